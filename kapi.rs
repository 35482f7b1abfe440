// SPDX-License-Identifier: GPL-2.0

//! What this module needs of the kernel and `rust/kernel` does not offer yet.
//!
//! A staging room: each child is shaped as it would stand in `rust/kernel`
//! (`kernel::net::sock`, `kernel::net::proto` ...), so that going upstream is a
//! set of moves. All `unsafe` of the module lives here and in
//! [`crate::dmb`]'s memory; no other room can name the bindings.

mod bindings;

pub(crate) mod alarm;
pub(crate) mod diag;
#[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
pub(crate) mod fixture;
pub(crate) mod folio;
pub(crate) mod global;
pub(crate) mod llist;
pub(crate) mod msg;
pub(crate) mod net;
pub(crate) mod proto;
pub(crate) mod random;
pub(crate) mod registry;
pub(crate) mod sbitmap;
pub(crate) mod sched;
pub(crate) mod shrinker;
pub(crate) mod sock;
pub(crate) mod sync;
mod sysctl;
pub(crate) mod tcp;
pub(crate) mod uts;
pub(crate) mod wait;
pub(crate) mod workqueue;
