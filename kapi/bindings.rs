// SPDX-License-Identifier: GPL-2.0

//! Generated bindings of this module; only [`super`] may name them.
//!
//! Names that the kernel's own bindings have are the kernel's own types, so
//! that values pass between both worlds without a cast.

#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    improper_ctypes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]
#![cfg_attr(CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES, allow(unnecessary_transmutes))]

pub(super) use kernel::bindings::*;
use kernel::ffi;
use pin_init::{
    MaybeZeroable,
    Zeroable, //
};

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

include!("../bindings/bindings_generated.rs");
include!("../bindings/bindings_helpers_generated.rs");
