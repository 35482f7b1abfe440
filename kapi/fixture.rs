// SPDX-License-Identifier: GPL-2.0

//! What tests need of the kernel: sockets of their own, and iterators over kernel memory.

use super::{
    bindings,
    sock::Sk, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    ffi::c_int,
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*,
    sync::aref::ARef, //
};

/// A socket of the kernel in the initial namespace, to stand for that of an application.
///
/// # Invariants
///
/// A TCP socket that is connected to nothing; it is released on drop.
pub(crate) struct TestSocket(NonNull<bindings::socket>);

// SAFETY: A socket may be used and released by any task.
unsafe impl Send for TestSocket {}
// SAFETY: `Sk` is `Sync`, and there is nothing else to share.
unsafe impl Sync for TestSocket {}

impl TestSocket {
    /// Makes a socket.
    ///
    /// # Errors
    ///
    /// Those of `sock_create_kern()`.
    pub(crate) fn new() -> Result<Self> {
        let mut socket = core::ptr::null_mut();
        // SAFETY: The initial namespace lives for ever; `socket` is where the result goes.
        to_result(unsafe {
            bindings::sock_create_kern(
                &raw mut bindings::init_net,
                c_int::try_from(bindings::AF_INET)?,
                c_int::try_from(bindings::sock_type_SOCK_STREAM)?,
                0,
                &raw mut socket,
            )
        })?;
        NonNull::new(socket).map(Self).ok_or(ENOMEM)
    }

    /// The `struct sock`.
    pub(crate) fn sk(&self) -> &Sk {
        // SAFETY: The socket is ours, and has its `sk` until it is released.
        unsafe { Sk::from_ptr((*self.0.as_ptr()).sk) }
    }

    /// A reference to the `struct sock`.
    pub(crate) fn sk_ref(&self) -> ARef<Sk> {
        self.sk().into()
    }
}

impl Drop for TestSocket {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the socket is ours.
        unsafe { bindings::sock_release(self.0.as_ptr()) }
    }
}

/// Calls `with` with an iterator that yields `data`.
pub(crate) fn with_source<R>(data: &[u8], with: impl FnOnce(&mut IovIterSource<'_>) -> R) -> R {
    let vec = bindings::kvec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    let mut iter = bindings::iov_iter::default();
    // SAFETY: `vec` is one element and outlives the iterator.
    unsafe {
        bindings::iov_iter_kvec(
            &raw mut iter,
            bindings::ITER_SOURCE,
            &raw const vec,
            1,
            data.len(),
        )
    };
    // SAFETY: Initialised just now as a source, over bytes that outlive the call.
    with(unsafe { IovIterSource::from_raw(&raw mut iter) })
}

/// Calls `with` with an iterator that fills `data`.
pub(crate) fn with_dest<R>(data: &mut [u8], with: impl FnOnce(&mut IovIterDest<'_>) -> R) -> R {
    let vec = bindings::kvec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: data.len(),
    };
    let mut iter = bindings::iov_iter::default();
    // SAFETY: `vec` is one element and outlives the iterator.
    unsafe {
        bindings::iov_iter_kvec(
            &raw mut iter,
            bindings::ITER_DEST,
            &raw const vec,
            1,
            data.len(),
        )
    };
    // SAFETY: Initialised just now as a destination, over bytes that outlive the call.
    with(unsafe { IovIterDest::from_raw(&raw mut iter) })
}
