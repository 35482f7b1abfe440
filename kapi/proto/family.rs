// SPDX-License-Identifier: GPL-2.0

//! The tables of one family of sockets, and the birth of its sockets that the
//! inet core does not create.

use super::{
    super::{
        bindings,
        net::Net,
        sock::Sk, //
    },
    const_c_int,
    int_result,
    object::{
        alloc,
        discard,
        init_value, //
    },
    ops::OpsTable,
    protocol::ProtoTable,
    socket::{
        op,
        Socket, //
    },
    Birth,
    StreamSocket,
    Version, //
};
use core::cell::UnsafeCell;
use kernel::{
    ffi::c_int,
    prelude::*, //
};

/// Everything that core keeps pointers to while a family of sockets is registered: the `AF_SMC`
/// family with its IPv4 and IPv6 protocols, and `IPPROTO_SMC` of both inet families.
pub(crate) struct Family<T> {
    pub(super) smc: ProtoTable<T>,
    pub(super) smc6: ProtoTable<T>,
    pub(super) inet: ProtoTable<T>,
    pub(super) inet6: ProtoTable<T>,
    pub(super) smc_ops: bindings::proto_ops,
    pub(super) inet_ops: bindings::proto_ops,
    pub(super) inet6_ops: bindings::proto_ops,
    pub(super) inet_switch: UnsafeCell<bindings::inet_protosw>,
    pub(super) inet6_switch: UnsafeCell<bindings::inet_protosw>,
    pub(super) family: bindings::net_proto_family,
    pub(super) memory_allocated: UnsafeCell<bindings::atomic_long_t>,
}

// SAFETY: The cells are written before registration and used by core alone afterwards.
unsafe impl<T> Sync for Family<T> {}

impl<T: StreamSocket> Family<T> {
    /// The tables, for a static.
    pub(crate) const fn new(module: &'static ThisModule) -> Self
    where
        T: FamilyMember,
    {
        let owner = module.as_ptr();
        Self {
            smc: ProtoTable::new("SMC", Version::V4, owner),
            smc6: ProtoTable::new("SMC6", Version::V6, owner),
            inet: ProtoTable::new("INET_SMC", Version::V4, owner),
            inet6: ProtoTable::new("INET6_SMC", Version::V6, owner),
            smc_ops: OpsTable::<T>::table(bindings::AF_SMC, owner),
            inet_ops: OpsTable::<T>::table(bindings::AF_INET, owner),
            inet6_ops: OpsTable::<T>::table(bindings::AF_INET6, owner),
            inet_switch: UnsafeCell::new(pin_init::zeroed()),
            inet6_switch: UnsafeCell::new(pin_init::zeroed()),
            family: bindings::net_proto_family {
                family: const_c_int(bindings::AF_SMC),
                create: Some(create_callback::<T>),
                owner,
            },
            memory_allocated: UnsafeCell::new(pin_init::zeroed()),
        }
    }
}

/// A socket type whose family is a static of this module.
pub(crate) trait FamilyMember: StreamSocket {
    /// The static.
    fn family() -> &'static Family<Self>;
}

/// # Safety
///
/// Called by core as `net_proto_family::create`, with a new socket.
unsafe extern "C" fn create_callback<T: FamilyMember>(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: c_int,
    kern: c_int,
) -> c_int {
    int_result((|| {
        // SAFETY: Core passes a valid new socket.
        let kind = u32::try_from(unsafe { (*socket).type_ }).unwrap_or(0);
        if kind != bindings::sock_type_SOCK_STREAM {
            return Err(ESOCKTNOSUPPORT);
        }
        let family = T::family();
        let (version, proto) = match protocol {
            0 => (Version::V4, &family.smc),
            1 => (Version::V6, &family.smc6),
            _ => return Err(EPROTONOSUPPORT),
        };
        let protocol = u16::try_from(protocol).map_err(|_| EPROTONOSUPPORT)?;
        // SAFETY: Core passes a live namespace and a valid new socket.
        let (net, holder) = unsafe { (Net::from_ptr(net), Socket::from_ptr(socket)) };
        // SAFETY: The protocol is registered as long as the family is.
        let sk = unsafe {
            alloc::<T>(
                net,
                const_c_int(bindings::AF_SMC),
                proto.0.get(),
                protocol,
                version,
                kern != 0,
                Some(holder),
            )?
        };
        // SAFETY: A new socket with one reference.
        let new = unsafe { Sk::from_ptr(sk) };
        let birth = Birth {
            sk: new,
            version,
            kern: kern != 0,
        };
        // SAFETY: The value's memory is zeroed and unused.
        if let Err(err) = unsafe { init_value::<T, _>(sk, version, T::new(birth)) } {
            // SAFETY: Nobody but this function knows `sk`.
            unsafe { discard(socket, sk) };
            return Err(err);
        }
        // SAFETY: The socket is new.
        unsafe { bindings::socket_set_custom_sockopt(socket) };
        // SAFETY: The socket is new, and the table is static.
        unsafe { (*socket).ops = &raw const family.smc_ops };
        // SAFETY: The socket is new.
        unsafe { (*socket).state = bindings::socket_state_SS_UNCONNECTED };
        // SAFETY: The value was just initialised; core keeps the socket meanwhile.
        T::opened(&unsafe { op::<T>(socket, sk) });
        Ok(())
    })())
}
