// SPDX-License-Identifier: GPL-2.0

//! The callbacks by which a socket tells of its events.

use super::super::bindings;
use kernel::{
    ffi::c_void,
    sync::SetOnce, //
};

/// One callback, as `struct sock` has it.
pub(super) type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

/// Those of a socket's callbacks that its owner replaces.
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    /// `sk_error_report`.
    pub(super) error_report: Callback,
    /// `sk_state_change`.
    pub(super) state_change: Callback,
    /// `sk_data_ready`.
    pub(super) data_ready: Callback,
}

impl Callbacks {
    /// Those of a socket.
    ///
    /// # Safety
    ///
    /// `sk` must be a live socket whose callbacks nobody changes meanwhile.
    pub(super) unsafe fn of(sk: *const bindings::sock) -> Self {
        // SAFETY: The caller guarantees it.
        unsafe {
            Self {
                error_report: (*sk).sk_error_report,
                state_change: (*sk).sk_state_change,
                data_ready: (*sk).sk_data_ready,
            }
        }
    }

    /// Gives them to a socket.
    ///
    /// # Safety
    ///
    /// `sk` must be a live socket whose `sk_callback_lock` is held for writing, or that nobody
    /// else has yet.
    pub(super) unsafe fn install(self, sk: *mut bindings::sock) {
        // SAFETY: The caller guarantees it.
        unsafe {
            (*sk).sk_error_report = self.error_report;
            (*sk).sk_state_change = self.state_change;
            (*sk).sk_data_ready = self.data_ready;
        }
    }
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
