// SPDX-License-Identifier: GPL-2.0

//! Locks that `kernel::sync` lacks: a spinlock that disables bottom halves, and
//! a mutex acquisition that a fatal signal ends.
//!
//! C headers: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h),
//! [`include/linux/mutex.h`](srctree/include/linux/mutex.h)

use super::bindings;
use kernel::{
    ffi::c_char,
    prelude::*,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    },
};

/// A spinlock for data that softirqs use too: bottom halves are off while it is held.
///
/// # Context
///
/// Process context and softirq; never hardirq.
pub(crate) type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// The `spin_lock_bh()` backend of [`SpinLockBh`].
pub(crate) struct SpinLockBhBackend;

/// Creates a [`SpinLockBh`] initialiser with the given name and a new lock class.
macro_rules! new_spinlock_bh {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::kapi::sync::SpinLockBh::new(
            $inner, kernel::optional_name!($($name)?), kernel::static_lock_class!())
    };
}
pub(crate) use new_spinlock_bh;

// SAFETY: `spinlock_t` gives mutual exclusion between processes and softirqs when every user
// disables bottom halves, which this backend does. `relock` keeps its default.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: The caller guarantees that `ptr` is writable, and that `name` and `key` live
        // for ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller guarantees that `ptr` is an initialised lock.
        unsafe { bindings::spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The caller guarantees that `ptr` is an initialised lock.
        let taken = unsafe { bindings::spin_trylock_bh(ptr) };
        (taken != 0).then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller guarantees that it holds the lock.
        unsafe { bindings::spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller guarantees that `ptr` is an initialised lock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// A sleeping lock whose waiters a fatal signal can end.
pub(crate) type KillableMutex<T> = Lock<T, KillableMutexBackend>;

/// The backend of [`KillableMutex`]: a `struct mutex`, of which every acquisition but the
/// unconditional one is `mutex_lock_killable()`.
pub(crate) struct KillableMutexBackend;

/// Creates a [`KillableMutex`] initialiser with the given name and a new lock class.
macro_rules! new_killable_mutex {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::kapi::sync::KillableMutex::new(
            $inner, kernel::optional_name!($($name)?), kernel::static_lock_class!())
    };
}
pub(crate) use new_killable_mutex;

// SAFETY: `struct mutex` gives mutual exclusion whichever function acquires it. `relock` keeps
// its default.
unsafe impl Backend for KillableMutexBackend {
    type State = bindings::mutex;
    type GuardState = ();

    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: The caller guarantees that `ptr` is writable, and that `name` and `key` live
        // for ever.
        unsafe { bindings::__mutex_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller guarantees that `ptr` is an initialised mutex.
        unsafe { bindings::mutex_lock(ptr) }
    }

    // A guard comes only from a successful acquisition; `None` means that a fatal signal came
    // while this waited. `lock_killable` gives this its proper name.
    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The caller guarantees that `ptr` is an initialised mutex.
        let err = unsafe { bindings::mutex_lock_killable(ptr) };
        (err == 0).then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller guarantees that it holds the mutex.
        unsafe { bindings::mutex_unlock(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller guarantees that `ptr` is an initialised mutex.
        unsafe { bindings::mutex_assert_is_held(ptr) }
    }
}

/// Takes a mutex, unless the task is killed while it waits.
///
/// # Errors
///
/// * `EINTR`: a fatal signal is pending; the lock is not held.
///
/// # Context
///
/// Process context, may sleep.
#[inline]
pub(crate) fn lock_killable<T: ?Sized>(
    mutex: &KillableMutex<T>,
) -> Result<Guard<'_, T, KillableMutexBackend>> {
    mutex.try_lock().ok_or(EINTR)
}
