// SPDX-License-Identifier: GPL-2.0

//! The two sides of a socket: what its file holds, and what its protocol has.

use super::{
    super::{
        bindings,
        sock::Sk, //
    },
    object::value_of, //
};
use core::ops::Deref;
use kernel::types::Opaque;

/// A `struct socket`: what a file holds.
#[repr(transparent)]
pub(crate) struct Socket(Opaque<bindings::socket>);

impl Socket {
    /// Borrows a socket.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid socket for `'a`.
    pub(in crate::kapi) unsafe fn from_ptr<'a>(ptr: *mut bindings::socket) -> &'a Self {
        // SAFETY: The type is transparent, and the caller guarantees the rest.
        unsafe { &*ptr.cast() }
    }

    /// The C object.
    pub(in crate::kapi) fn as_ptr(&self) -> *mut bindings::socket {
        self.0.get()
    }
}

/// A socket within one of its operations: its file is open, and its value shared.
pub(crate) struct Op<'a, T> {
    /// What the file holds.
    pub(crate) socket: &'a Socket,
    /// The protocol's side of it.
    pub(crate) sk: &'a Sk,
    value: &'a T,
}

impl<T> Deref for Op<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

/// Builds the operation handle of a socket.
///
/// # Safety
///
/// `socket` and `sk` must belong together, `sk`'s value must be initialised, and both must outlive
/// `'a`.
pub(super) unsafe fn op<'a, T>(
    socket: *mut bindings::socket,
    sk: *mut bindings::sock,
) -> Op<'a, T> {
    Op {
        // SAFETY: The caller guarantees it.
        socket: unsafe { Socket::from_ptr(socket) },
        // SAFETY: The caller guarantees it.
        sk: unsafe { Sk::from_ptr(sk) },
        // SAFETY: The caller guarantees it.
        value: unsafe { &*value_of::<T>(sk) },
    }
}
