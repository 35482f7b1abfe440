// SPDX-License-Identifier: GPL-2.0

//! Children of a listening TCP socket of ours: their birth, and their events
//! while nobody has accepted them yet.

use super::{
    super::{
        bindings,
        sock::Sk, //
    },
    callbacks::{
        call_default,
        same,
        Callback,
        Callbacks,
        DEFAULTS, //
    },
    Syn, //
};
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// The child of a listening socket of ours.
pub(crate) struct Child<'a> {
    /// The packet that completed the handshake.
    pub(crate) ack: Syn<'a>,
    /// The child, locked.
    pub(crate) sk: &'a Sk,
    /// The initial sequence number of the client.
    pub(crate) rcv_isn: u32,
    /// The initial sequence number of the server.
    pub(crate) snt_isn: u32,
}

/// Who looks after a child until it is accepted.
pub(crate) trait ChildOwner: Send + Sync + 'static {
    /// Something arrived for the child, or it changed its state.
    ///
    /// # Context
    ///
    /// Softirq or process context, under the child's spinlock and its `sk_callback_lock`: must not
    /// sleep and must not call into the child.
    fn event(this: ArcBorrow<'_, Self>);
}

impl Sk {
    /// Tells `owner` of the child's events from now on.
    ///
    /// # Context
    ///
    /// Softirq; the child is new and locked.
    pub(crate) fn park<T: ChildOwner>(&self, owner: Arc<T>) {
        let sk = self.as_ptr();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under both locks; nobody has set anything there yet. The count that the pointer
        // carries is taken back by `unpark`.
        unsafe {
            bindings::sk_assign_user_data_nocopy(sk, Arc::into_raw(owner).cast_mut().cast());
            callbacks::<T>().install(sk);
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
    }

    /// Ends what [`Self::park`] began, and returns the owner; none if somebody else has.
    ///
    /// # Context
    ///
    /// Process context and softirq.
    pub(crate) fn unpark<T: ChildOwner>(&self) -> Option<Arc<T>> {
        let sk = self.as_ptr();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under the lock.
        let owner = unsafe { owner_of::<T>(sk) };
        if let (Some(_), Some(defaults)) = (owner, DEFAULTS.as_ref()) {
            // SAFETY: As above.
            unsafe {
                bindings::sk_assign_user_data_nocopy(sk, core::ptr::null_mut());
                defaults.install(sk);
            }
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
        // SAFETY: The pointer came from `Arc::into_raw`, and was just taken out.
        owner.map(|owner| unsafe { Arc::from_raw(owner) })
    }
}

/// The owner of a parked child.
///
/// # Safety
///
/// `sk` must be a live socket whose `sk_callback_lock` is held.
unsafe fn owner_of<T: ChildOwner>(sk: *mut bindings::sock) -> Option<*const T> {
    let ours: Callback = Some(error_report_callback::<T>);
    // SAFETY: The caller guarantees it.
    if !same(unsafe { (*sk).sk_error_report }, ours) {
        return None;
    }
    // SAFETY: As above; a parked child's pointer is its owner.
    let owner = unsafe { bindings::sk_user_data(sk) };
    (!owner.is_null()).then_some(owner.cast_const().cast())
}

/// Tells the owner, and then whom TCP tells.
///
/// # Safety
///
/// `sk` must be a live socket in the circumstances in which core calls the callback.
unsafe fn notify<T: ChildOwner>(sk: *mut bindings::sock, which: fn(&Callbacks) -> Callback) {
    // SAFETY: The caller guarantees it.
    unsafe { bindings::sk_callback_read_lock(sk) };
    // SAFETY: Under the lock.
    if let Some(owner) = unsafe { owner_of::<T>(sk) } {
        // SAFETY: The count behind the pointer is given up under this lock only.
        T::event(unsafe { ArcBorrow::from_raw(owner) });
    }
    // SAFETY: Locked above.
    unsafe { bindings::sk_callback_read_unlock(sk) };
    // SAFETY: The caller guarantees it.
    unsafe { call_default(sk, which) };
}

/// What a parked child has in place of core's callbacks.
fn callbacks<T: ChildOwner>() -> Callbacks {
    Callbacks {
        error_report: Some(error_report_callback::<T>),
        state_change: Some(state_change_callback::<T>),
        data_ready: Some(data_ready_callback::<T>),
    }
}

/// # Safety
///
/// Called by TCP as `sk_error_report`.
unsafe extern "C" fn error_report_callback<T: ChildOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP's own call.
    unsafe { notify::<T>(sk, |callbacks| callbacks.error_report) }
}

/// # Safety
///
/// Called by TCP as `sk_state_change`.
unsafe extern "C" fn state_change_callback<T: ChildOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP's own call.
    unsafe { notify::<T>(sk, |callbacks| callbacks.state_change) }
}

/// # Safety
///
/// Called by TCP as `sk_data_ready`.
unsafe extern "C" fn data_ready_callback<T: ChildOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP's own call.
    unsafe { notify::<T>(sk, |callbacks| callbacks.data_ready) }
}
