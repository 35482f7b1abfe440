// SPDX-License-Identifier: GPL-2.0

//! A family of sockets, open to applications as long as a value lives.

use super::{
    super::bindings,
    const_c_int,
    Family,
    FamilyMember, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*, //
};

/// One `struct proto`, registered.
///
/// # Invariants
///
/// The protocol is registered.
struct ProtoRegistration(*mut bindings::proto);

// SAFETY: Core synchronises registrations.
unsafe impl Send for ProtoRegistration {}
// SAFETY: As above.
unsafe impl Sync for ProtoRegistration {}

impl ProtoRegistration {
    /// Registers a table.
    ///
    /// # Errors
    ///
    /// * `ENOBUFS`, `ENOMEM`: out of memory.
    fn new(proto: *mut bindings::proto) -> Result<Self> {
        // SAFETY: `proto` is a static table, complete by now.
        to_result(unsafe { bindings::proto_register(proto, 1) })?;
        // INVARIANT: Just registered.
        Ok(Self(proto))
    }
}

impl Drop for ProtoRegistration {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; no socket is left, since each holds the module.
        unsafe { bindings::proto_unregister(self.0) }
    }
}

/// Per-CPU counters of memory that protocols have set aside.
///
/// # Invariants
///
/// The pointer came from `alloc_percpu()`.
struct ForwardAlloc(NonNull<c_int>);

// SAFETY: Per-CPU memory may be freed by any task.
unsafe impl Send for ForwardAlloc {}
// SAFETY: This value only frees it.
unsafe impl Sync for ForwardAlloc {}

impl ForwardAlloc {
    /// Allocates the counters, at zero.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    fn new() -> Result<Self> {
        // SAFETY: An allocation, process context.
        let ptr = unsafe { bindings::alloc_percpu_int() };
        // INVARIANT: Just allocated.
        Ok(Self(NonNull::new(ptr).ok_or(ENOMEM)?))
    }
}

impl Drop for ForwardAlloc {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the protocols that used it are gone.
        unsafe { bindings::free_percpu_int(self.0.as_ptr()) }
    }
}

/// A family, open to applications.
///
/// # Invariants
///
/// The family and its protocol switches are registered. Fields drop in the order of declaration:
/// no new sockets first, then the protocols, then what these point to.
pub(crate) struct Registration<T: FamilyMember> {
    _switches: Switches<T>,
    _protos: [ProtoRegistration; 4],
    _forward_alloc: ForwardAlloc,
}

/// The ways by which applications come to new sockets.
struct Switches<T: FamilyMember> {
    inet6: bool,
    _type: PhantomData<T>,
}

// SAFETY: Holds no data.
unsafe impl<T: FamilyMember> Send for Switches<T> {}
// SAFETY: As above.
unsafe impl<T: FamilyMember> Sync for Switches<T> {}

impl<T: FamilyMember> Registration<T> {
    /// Opens the family. Sockets can be created before this returns, so it comes last in init.
    ///
    /// # Errors
    ///
    /// * `EEXIST`: another module serves `AF_SMC`.
    /// * `ENOBUFS`, `ENOMEM`: out of memory.
    pub(crate) fn new() -> Result<Self> {
        let tables = T::family();
        let forward_alloc = ForwardAlloc::new()?;
        let protos = [&tables.smc, &tables.smc6, &tables.inet, &tables.inet6];
        for proto in protos {
            let proto = proto.0.get();
            // SAFETY: The tables are static and not yet registered; `tcp_prot` is complete and
            // these fields of it do not change.
            unsafe {
                (*proto).memory_allocated = tables.memory_allocated.get();
                (*proto).per_cpu_fw_alloc = forward_alloc.0.as_ptr();
                (*proto).sysctl_mem = bindings::tcp_prot.sysctl_mem;
                (*proto).sysctl_wmem_offset = bindings::tcp_prot.sysctl_wmem_offset;
                (*proto).sysctl_rmem_offset = bindings::tcp_prot.sysctl_rmem_offset;
            }
        }
        let [a, b, c, d] = protos.map(|proto| ProtoRegistration::new(proto.0.get()));
        let protos = [a?, b?, c?, d?];
        let switches = Switches::new(tables)?;
        // INVARIANT: Both registered.
        Ok(Self {
            _switches: switches,
            _protos: protos,
            _forward_alloc: forward_alloc,
        })
    }
}

impl<T: FamilyMember> Switches<T> {
    /// Opens the ways in; the protocols are registered.
    ///
    /// # Errors
    ///
    /// * `EEXIST`: another module serves `AF_SMC`.
    fn new(tables: &'static Family<T>) -> Result<Self> {
        let kind = u16::try_from(bindings::sock_type_SOCK_STREAM).map_err(|_| EINVAL)?;
        let protocol = u16::try_from(bindings::IPPROTO_SMC).map_err(|_| EINVAL)?;
        for (switch, proto, ops) in [
            (&tables.inet_switch, &tables.inet, &tables.inet_ops),
            (&tables.inet6_switch, &tables.inet6, &tables.inet6_ops),
        ] {
            // SAFETY: The static is not registered yet.
            unsafe {
                *switch.get() = bindings::inet_protosw {
                    type_: kind,
                    protocol,
                    prot: proto.0.get(),
                    ops: &raw const *ops,
                    ..pin_init::zeroed()
                };
            }
        }
        // SAFETY: The table is static. Everything a socket needs is in place.
        to_result(unsafe { bindings::sock_register(&raw const tables.family) })?;
        // From here on there may be sockets, so nothing may fail any more.
        // SAFETY: The switch is static and complete.
        unsafe { bindings::inet_register_protosw(tables.inet_switch.get()) };
        // SAFETY: As above. It fails only for a protocol that the kernel keeps for itself.
        let inet6 = unsafe { bindings::inet6_register_protosw(tables.inet6_switch.get()) } == 0;
        Ok(Self {
            inet6,
            _type: PhantomData,
        })
    }
}

impl<T: FamilyMember> Drop for Switches<T> {
    fn drop(&mut self) {
        let tables = T::family();
        if self.inet6 {
            // SAFETY: Registered in `new`.
            unsafe { bindings::inet6_unregister_protosw(tables.inet6_switch.get()) };
        }
        // SAFETY: As above.
        unsafe { bindings::inet_unregister_protosw(tables.inet_switch.get()) };
        // SAFETY: As above.
        unsafe { bindings::sock_unregister(const_c_int(bindings::AF_SMC)) };
    }
}
