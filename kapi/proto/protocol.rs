// SPDX-License-Identifier: GPL-2.0

//! `struct proto`: what the socket core knows of a protocol, and what it calls
//! on the protocol's side of a socket.

use super::{
    super::{
        bindings,
        sock::{
            QueueLength,
            Sk, //
        },
    },
    object::{
        destruct6_callback,
        destruct_callback,
        init_value,
        tear_down,
        value_of,
        Object,
        Object6, //
    },
    socket::{
        op,
        Socket, //
    },
    Birth,
    StreamSocket,
    Version, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData, //
};
use kernel::{
    error::from_result,
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    prelude::*, //
};

/// A `struct proto` for sockets with a value of type `T`.
#[repr(transparent)]
pub(super) struct ProtoTable<T>(pub(super) UnsafeCell<bindings::proto>, PhantomData<T>);

// SAFETY: After registration core owns the table and synchronises its users.
unsafe impl<T> Sync for ProtoTable<T> {}

/// A NUL-terminated name in the fixed array that a protocol has for it.
const fn proto_name(name: &str) -> [c_char; 32] {
    let bytes = name.as_bytes();
    let mut array = [0; 32];
    let mut i = 0;
    while i < bytes.len() {
        array[i] = bytes[i];
        i += 1;
    }
    array
}

impl<T: StreamSocket> ProtoTable<T> {
    /// The table of a protocol of this name and IP version, not yet registered.
    pub(super) const fn new(name: &str, version: Version, module: *mut bindings::module) -> Self {
        let mut proto: bindings::proto = pin_init::zeroed();
        proto.name = proto_name(name);
        proto.owner = module;
        proto.init = match version {
            Version::V4 => Some(init_callback::<T, false>),
            Version::V6 => Some(init_callback::<T, true>),
        };
        proto.destroy = Some(destroy_callback::<T>);
        proto.unhash = Some(unhash_callback);
        proto.keepalive = Some(keepalive_callback::<T>);
        proto.ioctl = Some(ioctl_callback::<T>);
        match version {
            Version::V4 => proto.obj_size = const_u32(size_of::<Object<T>>()),
            Version::V6 => {
                proto.obj_size = const_u32(size_of::<Object6<T>>());
                proto.ipv6_pinfo_offset = const_u32(core::mem::offset_of!(Object6<T>, pinfo));
            }
        }
        Self(UnsafeCell::new(proto), PhantomData)
    }
}

/// A small size as `u32`, checked where it is a constant.
const fn const_u32(size: usize) -> u32 {
    let bytes = size.to_le_bytes();
    assert!(size <= 0xffff_ffff);
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The IP version that a protocol of this module serves.
///
/// # Safety
///
/// `proto` must point to a valid protocol.
pub(super) unsafe fn version_of(proto: *mut bindings::proto) -> Version {
    // SAFETY: The caller guarantees it; the field never changes after registration.
    if unsafe { (*proto).ipv6_pinfo_offset } == 0 {
        Version::V4
    } else {
        Version::V6
    }
}

/// # Safety
///
/// Called by the inet core with a new socket of one of our protocols.
unsafe extern "C" fn init_callback<T: StreamSocket, const V6: bool>(
    sk: *mut bindings::sock,
) -> c_int {
    let version = if V6 { Version::V6 } else { Version::V4 };
    from_result(|| {
        // SAFETY: Core has set `sk_socket` of the new socket.
        let socket = unsafe { Socket::from_ptr((*sk).sk_socket) };
        // SAFETY: As above.
        let new = unsafe { Sk::from_ptr(sk) };
        let birth = Birth {
            sk: new,
            version,
            kern: new.is_kern(),
        };
        // SAFETY: The value's memory is zeroed and unused.
        unsafe { init_value::<T, _>(sk, version, T::new(birth)) }?;
        // SAFETY: The socket is not yet in use.
        unsafe { bindings::socket_set_custom_sockopt(socket.as_ptr()) };
        // SAFETY: The value was just initialised; core keeps the socket meanwhile.
        T::opened(&unsafe { op::<T>(socket.as_ptr(), sk) });
        Ok(0)
    })
}

/// # Safety
///
/// Called by `sk_common_release()` for a socket whose creation failed, before or after its value
/// was initialised.
unsafe extern "C" fn destroy_callback<T: StreamSocket>(sk: *mut bindings::sock) {
    // SAFETY: The socket is alive, and nobody else uses it.
    let destruct = unsafe { (*sk).sk_destruct };
    let ours: [Option<unsafe extern "C" fn(*mut bindings::sock)>; 2] =
        [Some(destruct_callback::<T>), Some(destruct6_callback::<T>)];
    if ours.iter().any(|f| {
        f.map(|f| (f as *const c_void).addr()) == destruct.map(|f| (f as *const c_void).addr())
    }) {
        // SAFETY: Our destructor is installed only with the value initialised; the socket was
        // never handed out.
        unsafe { tear_down::<T>((*sk).sk_socket, sk) };
    }
}

/// # Safety
///
/// Called by core. Our sockets are in no table of the protocol's.
unsafe extern "C" fn unhash_callback(_sk: *mut bindings::sock) {}

/// # Safety
///
/// Called by core with a live socket, which it holds locked.
unsafe extern "C" fn keepalive_callback<T: StreamSocket>(sk: *mut bindings::sock, on: c_int) {
    // SAFETY: Core calls this for a socket in use, so its value is initialised.
    T::keepalive(unsafe { &*value_of::<T>(sk) }, on != 0);
}

/// # Safety
///
/// Called by core, io_uring's commands of sockets, with a socket whose file is open.
unsafe extern "C" fn ioctl_callback<T: StreamSocket>(
    sk: *mut bindings::sock,
    cmd: c_int,
    answer: *mut c_int,
) -> c_int {
    from_result(|| {
        let query = u32::try_from(cmd).ok().and_then(QueueLength::from_ioctl);
        let query = query.ok_or(ENOIOCTLCMD)?;
        // SAFETY: A socket whose file is open has its `struct socket`.
        let socket = unsafe { (*sk).sk_socket };
        // SAFETY: It belongs to a socket in use, which has its value initialised.
        let op = unsafe { op::<T>(socket, sk) };
        let length = T::queue_length(&op, query)?;
        // SAFETY: Core passes room for the answer.
        unsafe { *answer = length };
        Ok(0)
    })
}
