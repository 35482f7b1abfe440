// SPDX-License-Identifier: GPL-2.0

//! The owner of a TCP socket, and how it learns of the socket's events.

use super::{
    super::{
        bindings,
        proto::{
            value_of,
            StreamSocket, //
        },
        sock::Sk, //
    },
    callbacks::{
        call_default,
        same,
        Callback,
        Callbacks, //
    },
    Child,
    Syn, //
};

/// What becomes of a wake-up that TCP is about to give.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// It goes on to the application.
    Pass,
    /// It is of no interest to the application.
    Drop,
}

/// The owner of TCP sockets: what it wants to know of them.
///
/// # Context
///
/// All of these run in softirq or with the TCP socket's spinlock held, and under the TCP socket's
/// `sk_callback_lock`: they must not sleep and must not call into the TCP socket.
pub(crate) trait TcpOwner: StreamSocket {
    /// The TCP socket has an error, `inner.raw_err()`; the application is woken afterwards.
    fn error_report(&self, outer: &Sk, inner: &Sk);

    /// The TCP socket's state changed.
    fn state_change(&self, outer: &Sk, inner: &Sk) -> Wake;

    /// The TCP socket has something to read, or a connection to accept.
    fn data_ready(&self, outer: &Sk, inner: &Sk) -> Wake;

    /// Whether a listening TCP socket of ours has so many handshakes of SMC under way that the next
    /// client is to be served over TCP. Asked only of those that limit them.
    ///
    /// # Context
    ///
    /// Softirq under RCU, without a lock.
    fn is_congested(&self, inner: &Sk) -> bool;

    /// A SYN reached a listening TCP socket of ours.
    ///
    /// # Context
    ///
    /// Softirq under RCU, without a lock. Runs before the SYN is answered.
    fn syn_seen(syn: &Syn<'_>);

    /// A listening TCP socket of ours got a child by its own three-way handshake.
    ///
    /// # Context
    ///
    /// Softirq under RCU, without a lock but the child's; before the child is in the queue.
    fn child_born(child: &Child<'_>);
}

impl Sk {
    /// Runs `f` on the owner of this TCP socket, if it is one of ours and still attached.
    ///
    /// # Context
    ///
    /// Any; `f` runs under `sk_callback_lock` with bottom halves disabled.
    pub(crate) fn with_owner<T: TcpOwner, R>(&self, f: impl FnOnce(&T, &Sk) -> R) -> Option<R> {
        let sk = self.as_ptr();
        // SAFETY: A full socket.
        unsafe { bindings::sk_callback_read_lock(sk) };
        let result = {
            // SAFETY: As above.
            let report = unsafe { (*sk).sk_error_report };
            let ours: Callback = Some(error_report_callback::<T>);
            // SAFETY: Under the lock, the owner is attached while `sk_user_data` names it.
            let outer = unsafe { bindings::sk_user_data(sk) }.cast::<bindings::sock>();
            if !same(report, ours) || outer.is_null() {
                None
            } else {
                // SAFETY: `detach` clears the pointer under this lock before the owner's value
                // goes away.
                Some(f(unsafe { &*value_of::<T>(outer) }, unsafe {
                    Sk::from_ptr(outer)
                }))
            }
        };
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_read_unlock(sk) };
        result
    }
}

/// What a TCP socket with an owner of type `T` has in place of core's callbacks.
pub(super) fn callbacks<T: TcpOwner>() -> Callbacks {
    Callbacks {
        error_report: Some(error_report_callback::<T>),
        state_change: Some(state_change_callback::<T>),
        data_ready: Some(data_ready_callback::<T>),
    }
}

/// # Safety
///
/// Called by TCP as `sk_error_report`.
unsafe extern "C" fn error_report_callback<T: TcpOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP passes a live socket.
    let inner = unsafe { Sk::from_ptr(sk) };
    let _ = inner.with_owner::<T, _>(|owner, outer| owner.error_report(outer, inner));
    // SAFETY: TCP's own call.
    unsafe { call_default(sk, |callbacks| callbacks.error_report) }
}

/// # Safety
///
/// Called by TCP as `sk_state_change`.
unsafe extern "C" fn state_change_callback<T: TcpOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP passes a live socket.
    let inner = unsafe { Sk::from_ptr(sk) };
    let wake = inner.with_owner::<T, _>(|owner, outer| owner.state_change(outer, inner));
    if wake != Some(Wake::Drop) {
        // SAFETY: TCP's own call.
        unsafe { call_default(sk, |callbacks| callbacks.state_change) }
    }
}

/// # Safety
///
/// Called by TCP as `sk_data_ready`.
unsafe extern "C" fn data_ready_callback<T: TcpOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP passes a live socket.
    let inner = unsafe { Sk::from_ptr(sk) };
    let wake = inner.with_owner::<T, _>(|owner, outer| owner.data_ready(outer, inner));
    if wake != Some(Wake::Drop) {
        // SAFETY: TCP's own call.
        unsafe { call_default(sk, |callbacks| callbacks.data_ready) }
    }
}
