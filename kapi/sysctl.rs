// SPDX-License-Identifier: GPL-2.0

//! What an administrator sets for a network namespace: `/proc/sys/net/smc/`.
//!
//! C headers: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h),
//! [`include/net/netns/generic.h`](srctree/include/net/netns/generic.h)

use super::{
    bindings,
    net::Net, //
};
use core::{
    cell::UnsafeCell,
    mem::size_of, //
};
use kernel::{
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    prelude::*, //
};

/// The settings of a namespace. Core allocates them zeroed with the namespace and frees them after
/// [`unregister`].
#[repr(C)]
struct Settings {
    table: [bindings::ctl_table; 1],
    header: *mut bindings::ctl_table_header,
    /// 0 or 1.
    quiet_close: u8,
}

/// The number under which core keeps the settings of every namespace.
struct Id(UnsafeCell<c_uint>);

// SAFETY: Written by core alone, before it calls `register` for any namespace.
unsafe impl Sync for Id {}

static ID: Id = Id(UnsafeCell::new(0));

/// Lets core keep settings for each namespace in which these operations are registered.
pub(super) fn extend(ops: bindings::pernet_operations) -> bindings::pernet_operations {
    bindings::pernet_operations {
        id: ID.0.get(),
        size: size_of::<Settings>(),
        ..ops
    }
}

/// The settings of `net`.
///
/// # Safety
///
/// The module's operations for namespaces must be registered, and not have left `net`.
unsafe fn settings(net: &Net) -> *mut Settings {
    // SAFETY: Written before the operations were first called.
    let id = unsafe { ID.0.get().read() };
    // SAFETY: The caller guarantees that there are settings.
    unsafe { bindings::net_generic(net.as_ptr(), id) }.cast()
}

/// Makes the settings of a new namespace visible.
///
/// # Errors
///
/// - `ENOMEM` - no memory.
///
/// # Safety
///
/// Called by core's `init` of the module's operations.
pub(super) unsafe fn register(net: &Net) -> Result {
    // SAFETY: As for this function.
    let settings = unsafe { settings(net) };
    let limits = (&raw const bindings::sysctl_vals).cast::<c_int>();
    let entry = bindings::ctl_table {
        procname: c"quiet_close".as_char_ptr(),
        // SAFETY: Memory of core's, zeroed, which no one else knows yet.
        data: unsafe { &raw mut (*settings).quiet_close }.cast::<c_void>(),
        maxlen: 1,
        mode: 0o644,
        proc_handler: Some(bindings::proc_dou8vec_minmax),
        // `SYSCTL_ZERO` and `SYSCTL_ONE`.
        extra1: limits.cast_mut().cast(),
        extra2: limits.wrapping_add(1).cast_mut().cast(),
        ..pin_init::zeroed()
    };
    // SAFETY: As above; an entry has no destructor.
    unsafe {
        (&raw mut (*settings).table)
            .cast::<bindings::ctl_table>()
            .write(entry)
    };
    // SAFETY: As above.
    let table = unsafe { &raw const (*settings).table }.cast::<bindings::ctl_table>();
    // SAFETY: `net` is being made, and the table stays until it is unregistered.
    let header = unsafe {
        bindings::register_net_sysctl_sz(net.as_ptr(), c"net/smc".as_char_ptr(), table, 1)
    };
    if header.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: As above.
    unsafe { (*settings).header = header };
    Ok(())
}

/// Takes the settings of a namespace away; once this returns, nobody reads or writes them there.
///
/// # Safety
///
/// Called by core's `exit` of the module's operations.
pub(super) unsafe fn unregister(net: &Net) {
    // SAFETY: As for this function.
    let settings = unsafe { settings(net) };
    // SAFETY: Set by `register`, which did not fail.
    unsafe { bindings::unregister_net_sysctl_table((*settings).header) }
}

impl Net {
    /// Whether connections within this namespace end without a packet: `net.smc.quiet_close`.
    ///
    /// # Context
    ///
    /// Any, where a socket of this module keeps the namespace.
    pub(crate) fn quiet_close(&self) -> bool {
        // SAFETY: Sockets are made while the operations are registered, which outlive them, and
        // one of them keeps the namespace.
        let settings = unsafe { settings(self) };
        // SAFETY: A byte that is written as a whole.
        unsafe { (&raw const (*settings).quiet_close).read_volatile() != 0 }
    }
}
