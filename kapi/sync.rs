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
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
        lock::{
            Backend,
            Guard,
            Lock, //
        },
        Mutex,
        MutexGuard, //
    }, //
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
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
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

/// A place for an object that tasks and softirqs share, and that mostly is empty: whoever looks at
/// an empty one takes no lock.
///
/// As with a lock, a look that misses an object precedes its arrival: whoever brought it sees what
/// the one who looked had done before.
///
/// # Context
///
/// Process context and softirq.
#[pin_data]
pub(crate) struct Slot<T> {
    /// Whether the slot is full; changed under its lock.
    full: Atomic<bool>,
    #[pin]
    object: SpinLockBh<Option<T>>,
}

impl<T: Unpin> Slot<T> {
    /// An empty slot behind this lock, which has the caller's lock class.
    pub(crate) fn new<E>(lock: impl PinInit<SpinLockBh<Option<T>>, E>) -> impl PinInit<Self, E> {
        try_pin_init!(Self {
            full: Atomic::new(false),
            object <- lock,
        }? E)
    }

    /// Whether something has to be looked for under the lock.
    #[inline]
    fn looks_full(&self) -> bool {
        // Everything before the look: pairs with the fence in `fill()`.
        smp_mb(Full);
        self.full.load(Relaxed)
    }

    /// The object.
    #[inline]
    pub(crate) fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        self.looks_full()
            .then(|| self.object.lock().clone())
            .flatten()
    }

    /// Takes the object out.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        if !self.looks_full() {
            return None;
        }
        let mut object = self.object.lock();
        self.full.store(false, Relaxed);
        object.take()
    }

    /// Puts `new` into the slot if that is empty, and `allowed` says so under its lock.
    ///
    /// # Errors
    ///
    /// The object, if not.
    pub(crate) fn fill(&self, new: T, allowed: impl FnOnce() -> bool) -> Result<(), T> {
        {
            let mut object = self.object.lock();
            if object.is_some() || !allowed() {
                return Err(new);
            }
            *object = Some(new);
            self.full.store(true, Relaxed);
        }
        // The object is there before anything the caller looks at next.
        smp_mb(Full);
        Ok(())
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
pub(crate) fn lock_killable<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    // A lock is `repr(C)` and begins with the kernel's object, see `Lock::from_raw()`.
    let state = core::ptr::from_ref(mutex).cast_mut().cast();
    // SAFETY: A `Mutex` exists only initialised and pinned.
    match unsafe { bindings::mutex_lock_killable(state) } {
        // SAFETY: The mutex was taken just now.
        0 => Ok(unsafe { Guard::new(mutex, ()) }),
        _ => Err(EINTR),
    }
}
