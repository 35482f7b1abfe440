// SPDX-License-Identifier: GPL-2.0

//! The completion of sends with `MSG_ZEROCOPY`.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::super::{
    bindings,
    sock::Sk, //
};
use core::{
    mem,
    ptr::NonNull, //
};
use kernel::prelude::*;

/// A completion that the application expects, and has not been told of yet.
///
/// Dropped without [`Self::copied`], it was never promised.
///
/// # Invariants
///
/// The pointer is a completion of `msg_zerocopy_realloc()`, with the reference that this value has.
pub(crate) struct Completion(NonNull<bindings::ubuf_info>);

impl Completion {
    /// Promises a completion for a send of `len` bytes, on the error queue of a TCP socket.
    ///
    /// # Errors
    ///
    /// * `ENOBUFS`: out of memory, or the application pins too much of it.
    ///
    /// # Context
    ///
    /// Process context, may sleep. Takes the socket lock.
    pub(crate) fn new(sk: &Sk, len: usize) -> Result<Self> {
        let _guard = sk.lock();
        // SAFETY: A live socket, locked, in process context.
        let completion = unsafe {
            bindings::msg_zerocopy_realloc(sk.as_ptr(), len, core::ptr::null_mut(), false)
        };
        // INVARIANT: Just made.
        Ok(Self(NonNull::new(completion).ok_or(ENOBUFS)?))
    }

    /// Tells the application that its memory is free again, because it was copied.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn copied(self) {
        // SAFETY: By the type invariant; it is this value's alone.
        unsafe { bindings::ubuf_set_copied(self.0.as_ptr()) };
        // SAFETY: By the type invariant. The reference is given up, and not by `drop()` again.
        unsafe { bindings::net_zcopy_put(self.0.as_ptr()) };
        mem::forget(self);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. The reference is given up.
        unsafe { bindings::net_zcopy_put_abort(self.0.as_ptr(), true) }
    }
}
