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
    prelude::*,
    workqueue::Queue, //
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
        let queue = unsafe { bindings::alloc_workqueue(name.as_char_ptr(), bindings::WQ_UNBOUND, 0) };
        // INVARIANT: Just allocated.
        Ok(Self(NonNull::new(queue).ok_or(ENOMEM)?))
    }
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
