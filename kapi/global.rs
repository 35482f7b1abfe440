// SPDX-License-Identifier: GPL-2.0

//! Values that exist once, from the module's init to its exit.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
};

/// A static whose value is made in the module's init and dropped in its exit.
///
/// # Invariants
///
/// While `ready`, the slot is initialised. It is `ready` from the end of [`Global::init`] to the
/// drop of the guard that it returned.
pub(crate) struct Global<T> {
    slot: UnsafeCell<MaybeUninit<T>>,
    ready: Atomic<bool>,
}

// SAFETY: The value is handed out by shared reference only, and made and dropped by one task.
unsafe impl<T: Send + Sync> Sync for Global<T> {}

impl<T: Send + Sync> Global<T> {
    /// An empty slot.
    pub(crate) const fn new() -> Self {
        Self {
            slot: UnsafeCell::new(MaybeUninit::uninit()),
            ready: Atomic::new(false),
        }
    }

    /// Makes the value; it lives as long as the guard returned.
    ///
    /// The guard belongs into the module's own state, behind (that is: dropped after) everything
    /// whose callbacks call [`Self::get`]; the module loader calls init and exit one at a time.
    ///
    /// # Errors
    ///
    /// * `EBUSY`: the value exists already.
    /// * those of `init`.
    pub(crate) fn init<E>(&'static self, init: impl PinInit<T, E>) -> Result<GlobalGuard<T>>
    where
        Error: From<E>,
    {
        if self.ready.load(Relaxed) {
            return Err(EBUSY);
        }
        let slot = self.slot.get().cast::<T>();
        // SAFETY: The slot is static, hence pinned, and not initialised: nobody reads it.
        unsafe { pin_init::raw_try_init(slot, init) }?;
        // INVARIANT: The slot was just initialised.
        self.ready.store(true, Release);
        Ok(GlobalGuard(self))
    }

    /// The value, unless the module is not up.
    #[inline]
    pub(crate) fn get(&'static self) -> Option<&'static T> {
        // Pairs with the Release in `init`.
        if !self.ready.load(Acquire) {
            return None;
        }
        // SAFETY: By the type invariant the slot is initialised; the guard is dropped only when
        // nobody calls this any more, as `init` asks for.
        Some(unsafe { (*self.slot.get()).assume_init_ref() })
    }
}

/// The life of a [`Global`]'s value.
pub(crate) struct GlobalGuard<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync> Drop for GlobalGuard<T> {
    fn drop(&mut self) {
        self.0.ready.store(false, Relaxed);
        // SAFETY: By the type invariant of `Global` the slot is initialised, and by the contract
        // of `init` nobody uses it any more.
        unsafe { self.0.slot.get().cast::<T>().drop_in_place() };
    }
}
