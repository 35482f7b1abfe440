// SPDX-License-Identifier: GPL-2.0

//! The few items of the `kernel` crate that the pure rooms use, for the host.
//!
//! Same paths, same signatures, same results; nothing that the kernel lacks. With `--cfg loom`
//! the atomics are loom's, so that a model of a room explores its interleavings.

pub mod error;
pub mod sync;

/// What `kernel::prelude` offers the pure rooms.
pub mod prelude {
    pub use crate::{
        build_assert,
        const_assert,
        error::{
            code::*,
            Error,
            Result, //
        },
        pr_debug,
        pr_err,
        pr_info,
        pr_warn,
        static_assert, //
    };
    pub use core::{
        mem::{
            align_of,
            align_of_val,
            size_of,
            size_of_val, //
        },
        pin::Pin, //
    };
}

/// `kernel::page`.
pub mod page {
    /// The number of bits of an offset in a page.
    pub const PAGE_SHIFT: usize = 12;
    /// The size of a page in bytes.
    pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
}

/// An assertion checked while compiling, at item level.
#[macro_export]
macro_rules! static_assert {
    ($condition:expr $(,$arg:literal)?) => {
        const _: () = ::core::assert!($condition $(,$arg)?);
    };
}

/// An assertion checked while compiling, in a function.
#[macro_export]
macro_rules! const_assert {
    ($condition:expr $(,$arg:literal)?) => {
        const { ::core::assert!($condition $(,$arg)?) }
    };
}

/// An assertion the kernel build checks when linking; here it is checked when running.
#[macro_export]
macro_rules! build_assert {
    ($($arg:tt)*) => {
        ::core::assert!($($arg)*)
    };
}

/// A log line of any level; on the host it goes to standard error.
#[macro_export]
macro_rules! pr_info {
    ($($arg:tt)*) => {
        ::std::eprint!($($arg)*)
    };
}

pub use pr_info as pr_debug;
pub use pr_info as pr_err;
pub use pr_info as pr_warn;
