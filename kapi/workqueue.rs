// SPDX-License-Identifier: GPL-2.0

//! A work queue of one's own.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use super::bindings;
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    types::Opaque,
    workqueue::{
        HasDelayedWork,
        Queue,
        RawWorkItem,
        WorkItem, //
    },
};

/// A work queue that is drained and destroyed when dropped, so that no work item of the module
/// runs after it.
///
/// # Invariants
///
/// The pointer came from `alloc_workqueue()` and was not destroyed.
pub(crate) struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Any task may use or destroy a work queue.
unsafe impl Send for OwnedQueue {}
// SAFETY: Work queues synchronise their users.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Allocates an unbound queue.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: `name` lives for ever.
        let queue =
            unsafe { bindings::alloc_workqueue(name.as_char_ptr(), bindings::WQ_UNBOUND, 0) };
        // INVARIANT: Just allocated.
        Ok(Self(NonNull::new(queue).ok_or(ENOMEM)?))
    }
}

/// Makes a delayed work item run now, whether or not its time is set.
///
/// # Context
///
/// Any.
pub(crate) fn expedite<W, const ID: u64>(queue: &Queue, item: Arc<W>)
where
    W: WorkItem<ID, Pointer = Arc<W>> + HasDelayedWork<W, ID> + Send + Sync + 'static,
{
    let queue = core::ptr::from_ref(queue)
        .cast_mut()
        .cast::<bindings::workqueue_struct>();
    let cpu = c_int::try_from(bindings::wq_misc_consts_WORK_CPU_UNBOUND).unwrap_or(0);
    // SAFETY: The closure returns false only if the item was queued before: then the queue has the
    // reference of that time, and this one is given back.
    let _given_back = unsafe {
        RawWorkItem::<ID>::__enqueue(item, |work| {
            // SAFETY: An item with `HasDelayedWork` has its `work_struct` in a `delayed_work`.
            let delayed = container_of!(work, bindings::delayed_work, work);
            // SAFETY: `Queue` is transparent; both objects live during the call.
            !bindings::mod_delayed_work_on(cpu, queue, delayed, 0)
        })
    };
}

impl Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: By the type invariant the queue lives as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue was not destroyed before.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}

/// What a [`Chore`] does.
pub(crate) trait Tidy: 'static {
    /// The time between two rounds, in milliseconds.
    const PERIOD: c_uint;

    /// Does one round; whether another one is needed.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    fn round() -> bool;
}

/// Housekeeping, which is done now and then as long as there is a need. It never wakes an idle
/// processor.
///
/// # Invariants
///
/// `work` is initialised with `callback`.
#[pin_data(PinnedDrop)]
pub(crate) struct Chore<T: Tidy> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    /// The next round is certain to begin later than now.
    armed: Atomic<bool>,
    _tidy: PhantomData<T>,
}

// SAFETY: Any task may queue or cancel delayed work.
unsafe impl<T: Tidy> Send for Chore<T> {}
// SAFETY: Delayed work synchronises its users.
unsafe impl<T: Tidy> Sync for Chore<T> {}

impl<T: Tidy> Chore<T> {
    /// Housekeeping that is not needed yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: Initialised here.
            work <- Opaque::ffi_init(|work| {
                // SAFETY: `work` is the memory being initialised, which is pinned.
                unsafe { bindings::init_deferrable_work(work, Some(Self::callback)) }
            }),
            armed: Atomic::new(false),
            _tidy: PhantomData,
        })
    }

    /// Makes sure that a round begins later than now.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub(crate) fn arm(&self) {
        if !self.armed.load(Relaxed) && !self.armed.xchg(true, Full) {
            // SAFETY: By the type invariant.
            unsafe { bindings::queue_power_efficient(self.work.get(), T::PERIOD) };
        }
    }

    /// # Safety
    ///
    /// Called by the work queue with the work of a `Self`.
    unsafe extern "C" fn callback(work: *mut bindings::work_struct) {
        // SAFETY: The work is in a `delayed_work`, as `new` initialised it.
        let delayed = unsafe { container_of!(work, bindings::delayed_work, work) };
        // SAFETY: `Opaque` is transparent, and `work` a field of `Self`, which waits for us in
        // `drop`.
        let this = unsafe { &*container_of!(Opaque::cast_from(delayed), Self, work) };
        // Whoever arms from here on gets a round of its own; whatever came before is seen by this.
        this.armed.xchg(false, Full);
        if T::round() {
            this.arm();
        }
    }
}

#[pinned_drop]
impl<T: Tidy> PinnedDrop for Chore<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the work is initialised.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}
