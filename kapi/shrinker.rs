// SPDX-License-Identifier: GPL-2.0

//! Shrinkers: caches that give memory back when the kernel needs it.
//!
//! C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use super::bindings;
use core::ptr::NonNull;
use kernel::{
    ffi::c_ulong,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// `SHRINK_STOP`: no progress was possible.
const STOP: c_ulong = c_ulong::MAX;

/// A cache whose objects can be given back.
pub(crate) trait Shrink: Send + Sync {
    /// How many objects could be given back now.
    ///
    /// # Context
    ///
    /// Memory reclaim in process context: must not allocate, nor wait for who does.
    fn count(&self) -> usize;

    /// Gives back up to `objects` of them, and says how many.
    ///
    /// # Context
    ///
    /// As [`Self::count`].
    fn scan(&self, objects: usize) -> usize;
}

/// A registered shrinker.
///
/// # Invariants
///
/// `shrinker` is registered; its callbacks are those of `T` and its private data points to
/// `cache`.
pub(crate) struct Registration<T: Shrink> {
    shrinker: NonNull<bindings::shrinker>,
    _cache: Arc<T>,
}

// SAFETY: A shrinker may be freed by any task.
unsafe impl<T: Shrink> Send for Registration<T> {}
// SAFETY: There are no methods.
unsafe impl<T: Shrink> Sync for Registration<T> {}

impl<T: Shrink> Registration<T> {
    /// Makes the kernel ask `cache` for memory.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory for the shrinker.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn new(name: &'static CStr, cache: Arc<T>) -> Result<Self> {
        // SAFETY: The format takes one string, which lives for ever.
        let shrinker =
            unsafe { bindings::shrinker_alloc(0, c"%s".as_char_ptr(), name.as_char_ptr()) };
        let shrinker = NonNull::new(shrinker).ok_or(ENOMEM)?;
        let private = Arc::as_ptr(&cache).cast_mut().cast();
        // SAFETY: The shrinker is not registered yet, so it is ours alone.
        let fields = unsafe { &mut *shrinker.as_ptr() };
        fields.count_objects = Some(Self::count_callback);
        fields.scan_objects = Some(Self::scan_callback);
        fields.seeks = 2;
        fields.private_data = private;
        // SAFETY: All fields are set; `cache` lives as long as the registration.
        unsafe { bindings::shrinker_register(shrinker.as_ptr()) };
        // INVARIANT: Registered just now.
        Ok(Self {
            shrinker,
            _cache: cache,
        })
    }

    /// # Safety
    ///
    /// Called by the kernel for a shrinker that [`Self::new`] registered.
    unsafe extern "C" fn count_callback(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: `new` stored a pointer to a `T`, which lives until after the shrinker is gone.
        let cache = unsafe { &*(*shrinker).private_data.cast::<T>() };
        cache.count()
    }

    /// # Safety
    ///
    /// As [`Self::count_callback`].
    unsafe extern "C" fn scan_callback(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: As in `count_callback`.
        let cache = unsafe { &*(*shrinker).private_data.cast::<T>() };
        // SAFETY: The kernel passes a valid control structure.
        let wanted = unsafe { (*control).nr_to_scan };
        match cache.scan(wanted) {
            0 => STOP,
            freed => freed,
        }
    }
}

impl<T: Shrink> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the shrinker is registered. This waits for running
        // callbacks, so the cache is dropped after their end.
        unsafe { bindings::shrinker_free(self.shrinker.as_ptr()) }
    }
}
