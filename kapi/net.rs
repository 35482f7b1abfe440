// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use super::{
    bindings,
    sysctl, //
};
use core::marker::PhantomData;
use kernel::{
    error::from_result,
    ffi::c_int,
    prelude::*,
    types::Opaque, //
};

/// A network namespace.
#[repr(transparent)]
pub(crate) struct Net(Opaque<bindings::net>);

impl Net {
    /// Borrows a namespace.
    ///
    /// # Safety
    ///
    /// The memory behind `ptr` must stay a namespace for `'a`.
    pub(super) unsafe fn from_ptr<'a>(ptr: *mut bindings::net) -> &'a Self {
        // SAFETY: The type is transparent, and the caller guarantees the rest.
        unsafe { &*ptr.cast() }
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// A number that no other namespace of this boot has or will have.
    pub(crate) fn cookie(&self) -> u64 {
        // SAFETY: `self` is a namespace; the cookie is set before anybody can see it.
        unsafe { bindings::net_cookie(self.0.get()) }
    }

    /// `net.ipv4.tcp_wmem[2]`, in bytes.
    pub(crate) fn tcp_wmem_max(&self) -> usize {
        // SAFETY: `self` is a namespace.
        let max = unsafe { bindings::tcp_wmem_max(self.0.get()) };
        usize::try_from(max).unwrap_or(0)
    }

    /// `net.ipv4.tcp_rmem[1]`, in bytes.
    pub(crate) fn tcp_rmem_default(&self) -> usize {
        // SAFETY: `self` is a namespace.
        let size = unsafe { bindings::tcp_rmem_default(self.0.get()) };
        usize::try_from(size).unwrap_or(0)
    }

    /// `net.ipv4.tcp_rmem[2]`, in bytes.
    pub(crate) fn tcp_rmem_max(&self) -> usize {
        // SAFETY: `self` is a namespace.
        let max = unsafe { bindings::tcp_rmem_max(self.0.get()) };
        usize::try_from(max).unwrap_or(0)
    }

    /// Whether urgent data is the byte behind what was sent with `MSG_OOB`, as RFC 793 has it:
    /// `net.ipv4.tcp_stdurg`.
    pub(crate) fn tcp_stdurg(&self) -> bool {
        // SAFETY: `self` is a namespace.
        unsafe { bindings::tcp_stdurg(self.0.get()) }
    }

    /// Whether TCP connections of this namespace carry time stamps with a random offset.
    pub(crate) fn tcp_timestamps(&self) -> bool {
        // SAFETY: `self` is a namespace.
        unsafe { bindings::tcp_timestamps(self.0.get()) }
    }
}

/// What a subsystem wants to know of namespaces.
pub(crate) trait NamespaceWatcher: 'static {
    /// A namespace goes away: its own sockets are gone already.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    fn exit(net: &Net);
}

/// The registration of a [`NamespaceWatcher`], and of the settings of each namespace.
///
/// # Invariants
///
/// `ops` is registered until this value is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<T: NamespaceWatcher> {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
    _watcher: PhantomData<T>,
}

// SAFETY: Registered operations are used by core only; this value does nothing but unregister.
unsafe impl<T: NamespaceWatcher> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: NamespaceWatcher> Sync for Registration<T> {}

impl<T: NamespaceWatcher> Registration<T> {
    /// Starts watching.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // INVARIANT: Registered here, unregistered in `drop`.
            ops <- Opaque::try_ffi_init(|ops: *mut bindings::pernet_operations| {
                let new = sysctl::extend(bindings::pernet_operations {
                    init: Some(init_callback),
                    exit: Some(Self::exit_callback),
                    ..pin_init::zeroed()
                });
                // SAFETY: `ops` is the memory being initialised.
                unsafe { ops.write(new) };
                // SAFETY: `ops` was just initialised and is pinned until it is unregistered.
                kernel::error::to_result(unsafe { bindings::register_pernet_subsys(ops) })
            }),
            _watcher: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by core with a namespace that is going away.
    unsafe extern "C" fn exit_callback(net: *mut bindings::net) {
        // SAFETY: Core passes a namespace that lives during the call.
        let net = unsafe { Net::from_ptr(net) };
        T::exit(net);
        // SAFETY: Within `exit`.
        unsafe { sysctl::unregister(net) };
    }
}

/// # Safety
///
/// Called by core with a namespace that is being made, or is there when the module comes.
unsafe extern "C" fn init_callback(net: *mut bindings::net) -> c_int {
    from_result(|| {
        // SAFETY: Core passes a namespace that lives during the call, within `init`.
        unsafe { sysctl::register(Net::from_ptr(net)) }?;
        Ok(0)
    })
}

#[pinned_drop]
impl<T: NamespaceWatcher> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the operations are registered.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) }
    }
}
