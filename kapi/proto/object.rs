// SPDX-License-Identifier: GPL-2.0

//! The memory of a socket, from its allocation to its destructor.
//!
//! The C part comes first and is initialised as the inet core does it; the Rust
//! value follows it, and is dropped by the destructor that replaces the core's.

use super::{
    super::{
        bindings,
        net::Net,
        sock::Sk, //
    },
    socket::{
        op,
        Socket, //
    },
    StreamSocket,
    Version, //
};
use core::ptr::addr_of_mut;
use kernel::{
    ffi::c_int,
    prelude::*,
    types::Opaque, //
};

/// A socket as its C users see it, followed by the Rust value.
#[repr(C)]
pub(super) struct Object<T> {
    inet: Opaque<bindings::inet_sock>,
    value: T,
}

/// An IPv6 socket: core wants `struct ipv6_pinfo` at the end of the object.
#[repr(C)]
pub(super) struct Object6<T> {
    object: Object<T>,
    pub(super) pinfo: Opaque<bindings::ipv6_pinfo>,
}

/// The Rust value behind a socket.
///
/// # Safety
///
/// `sk` must be a socket of `T`'s protocols whose value is initialised and not yet dropped.
pub(in crate::kapi) unsafe fn value_of<T>(sk: *mut bindings::sock) -> *mut T {
    // SAFETY: The caller guarantees that `sk` begins an `Object<T>`.
    unsafe { addr_of_mut!((*sk.cast::<Object<T>>()).value) }
}

/// Allocates a socket that is not created by the inet core, and initialises it as
/// `inet_create()` and `inet6_create()` do.
///
/// # Safety
///
/// `proto` must be a registered protocol of `T`.
pub(super) unsafe fn alloc<T: StreamSocket>(
    net: &Net,
    family: c_int,
    proto: *mut bindings::proto,
    protocol: u16,
    version: Version,
    kern: bool,
    socket: Option<&Socket>,
) -> Result<*mut bindings::sock> {
    // SAFETY: The namespace is alive, and the caller vouches for the protocol.
    let sk = unsafe {
        bindings::sk_alloc(
            net.as_ptr(),
            family,
            bindings::SMC_LO_GFP_KERNEL,
            proto,
            kern.into(),
        )
    };
    if sk.is_null() {
        return Err(ENOBUFS);
    }
    let socket = socket.map_or(core::ptr::null_mut(), Socket::as_ptr);
    // SAFETY: `sk` is new; `socket` is NULL or has no `sk` yet.
    unsafe { bindings::sock_init_data(socket, sk) };
    // SAFETY: `sk` is new and begins an `inet_sock`.
    unsafe { bindings::inet_sock_defaults(sk, protocol) };
    match version {
        // SAFETY: As above. The destructor of a socket without value.
        Version::V4 => unsafe { (*sk).sk_destruct = Some(bindings::inet_sock_destruct) },
        Version::V6 => {
            // SAFETY: As above, and the object ends in an `ipv6_pinfo`.
            unsafe { bindings::inet6_sock_defaults(sk) };
            // SAFETY: As above.
            unsafe { (*sk).sk_destruct = Some(bindings::inet6_sock_destruct) };
        }
    }
    Ok(sk)
}

/// Initialises the value of a socket and takes over its destructor.
///
/// # Safety
///
/// `sk` must be new, of a protocol of `T`, with its C part initialised.
pub(super) unsafe fn init_value<T: StreamSocket, I: PinInit<T, Error>>(
    sk: *mut bindings::sock,
    version: Version,
    init: I,
) -> Result {
    // SAFETY: `sk` is new; the outer and the inner socket of one family nest, so ours have a lock
    // class of their own.
    unsafe { bindings::sock_lock_init_smc_class(sk) };
    // SAFETY: The caller guarantees that the value's memory is there and unused; a socket never
    // moves.
    unsafe { pin_init::raw_try_init(value_of::<T>(sk), init) }?;
    // SAFETY: `sk` is new.
    unsafe {
        (*sk).sk_destruct = Some(match version {
            Version::V4 => destruct_callback::<T>,
            Version::V6 => destruct6_callback::<T>,
        });
    };
    // SAFETY: `sk` is new.
    unsafe { (*sk).sk_write_space = Some(write_space_callback) };
    // SAFETY: `sk` is initialised.
    unsafe { bindings::sock_prot_inuse_add(sk, 1) };
    Ok(())
}

/// Frees a socket whose value was never initialised.
///
/// # Safety
///
/// Nobody else may know `sk`.
pub(super) unsafe fn discard(socket: *mut bindings::socket, sk: *mut bindings::sock) {
    // SAFETY: The caller guarantees that both are ours.
    unsafe { bindings::sock_orphan(sk) };
    // SAFETY: As above.
    unsafe { (*socket).sk = core::ptr::null_mut() };
    // SAFETY: As above; this is the last reference.
    unsafe { bindings::sock_put(sk) };
}

/// Takes a socket's value out of use: cuts all ways to it, then frees what must not be freed in
/// softirq.
///
/// # Safety
///
/// `sk`'s value must be initialised, and no operation may run on it or start.
pub(super) unsafe fn tear_down<T: StreamSocket>(
    socket: *mut bindings::socket,
    sk: *mut bindings::sock,
) {
    // SAFETY: The caller guarantees that the value is initialised.
    T::release(&unsafe { op::<T>(socket, sk) });
    // SAFETY: `release` cut every other way to the value, and no operation runs.
    let value = unsafe { Pin::new_unchecked(&mut *value_of::<T>(sk)) };
    T::finish(value);
    // SAFETY: The socket is still alive.
    unsafe { bindings::sock_prot_inuse_add(sk, -1) };
    // SAFETY: As above. Core's destructor insists on it.
    unsafe { Sk::from_ptr(sk) }.show_listening(false);
}

/// # Safety
///
/// Called by core with the last reference to a socket gone. May run in softirq.
pub(super) unsafe extern "C" fn destruct_callback<T>(sk: *mut bindings::sock) {
    // SAFETY: Installed only when the value was initialised; nobody has the socket any more.
    unsafe { value_of::<T>(sk).drop_in_place() };
    // SAFETY: The destructor that the inet core gave this socket.
    unsafe { bindings::inet_sock_destruct(sk) };
}

/// # Safety
///
/// As [`destruct_callback`], for IPv6.
pub(super) unsafe extern "C" fn destruct6_callback<T>(sk: *mut bindings::sock) {
    // SAFETY: As in `destruct_callback`.
    unsafe { value_of::<T>(sk).drop_in_place() };
    // SAFETY: As in `destruct_callback`.
    unsafe { bindings::inet6_sock_destruct(sk) };
}

/// Wakes writers that found no room, as `sk_stream_write_space()` does; the caller has seen that
/// there is enough.
///
/// # Safety
///
/// Called with a live socket.
unsafe extern "C" fn write_space_callback(sk: *mut bindings::sock) {
    let _rcu = kernel::sync::rcu::read_lock();
    // SAFETY: The caller guarantees a live socket; RCU keeps its `struct socket`.
    if !unsafe { bindings::sk_clear_nospace(sk) } {
        return;
    }
    // SAFETY: As above.
    unsafe { bindings::sk_wake_writers(sk) };
    // SAFETY: As above.
    unsafe { bindings::sk_wake_async_out(sk) };
}
