// SPDX-License-Identifier: GPL-2.0

//! The callbacks by which a socket tells of its events.

use super::super::bindings;
use kernel::{
    ffi::c_void,
    sync::SetOnce, //
};

/// One callback, as `struct sock` has it.
pub(super) type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

/// The callbacks that core gives every TCP socket.
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    pub(super) error_report: Callback,
    pub(super) state_change: Callback,
    pub(super) data_ready: Callback,
}

/// Core's callbacks, learnt from the first socket: they are not exported, and a child has its
/// listener's instead.
pub(super) static DEFAULTS: SetOnce<Callbacks> = SetOnce::new();

/// Calls one of core's own callbacks.
///
/// # Safety
///
/// `sk` must be a live socket in the circumstances in which core calls the callback.
pub(super) unsafe fn call_default(sk: *mut bindings::sock, which: fn(&Callbacks) -> Callback) {
    if let Some(callback) = DEFAULTS.as_ref().and_then(which) {
        // SAFETY: The caller guarantees it.
        unsafe { callback(sk) }
    }
}

/// Whether two callbacks are the same function.
pub(super) fn same(a: Callback, b: Callback) -> bool {
    let addr = |f: Callback| f.map_or(0, |f| (f as *const c_void).addr());
    addr(a) == addr(b)
}
