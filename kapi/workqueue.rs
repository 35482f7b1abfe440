// SPDX-License-Identifier: GPL-2.0

//! A work queue of one's own.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use super::bindings;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    ffi::c_int,
    prelude::*,
    sync::Arc,
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
