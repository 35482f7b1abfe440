// SPDX-License-Identifier: GPL-2.0

//! Lock-free lists: anybody adds at any time, takers take turns.
//!
//! C header: [`include/linux/llist.h`](srctree/include/linux/llist.h), whose rule for
//! `llist_del_first()` is kept: one taker at a time. With several takers an entry could go out and
//! come back while another taker holds its successor.

use core::ptr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        new_spinlock,
        Arc,
        SpinLock,
        UniqueArc, //
    },
};

/// An object that can stand in a [`Llist`].
pub(crate) struct Linked<T> {
    /// The entry below this one; has a meaning only while this stands in a list.
    next: Atomic<*mut Linked<T>>,
    value: T,
}

// SAFETY: The link is a pointer that only lists follow, which own what it points to.
unsafe impl<T: Send> Send for Linked<T> {}
// SAFETY: As above; and the link is atomic.
unsafe impl<T: Sync> Sync for Linked<T> {}

impl<T> Linked<T> {
    /// An object that stands in no list.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            next: Atomic::new(ptr::null_mut()),
            value,
        }
    }

    /// The object alone.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> core::ops::Deref for Linked<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

/// A list of objects that nobody else refers to; last in, first out.
///
/// # Invariants
///
/// `head` and the `next` of each entry are null or come from `Arc::into_raw`; the list owns these
/// references, which are the only ones. Entries leave only while `takers` is held, so an entry
/// that a taker looks at stays.
#[pin_data(PinnedDrop)]
pub(crate) struct Llist<T: Send + Sync> {
    head: Atomic<*mut Linked<T>>,
    #[pin]
    takers: SpinLock<()>,
}

// SAFETY: The list owns its entries, which may be sent.
unsafe impl<T: Send + Sync> Send for Llist<T> {}
// SAFETY: Adding is atomic, taking is serialised.
unsafe impl<T: Send + Sync> Sync for Llist<T> {}

impl<T: Send + Sync> Llist<T> {
    /// An empty list.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: There is no entry.
        pin_init!(Self {
            head: Atomic::new(ptr::null_mut()),
            takers <- new_spinlock!((), "Llist::takers"),
        })
    }

    /// Adds an object.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub(crate) fn push(&self, entry: UniqueArc<Linked<T>>) {
        // INVARIANT: A `UniqueArc` is the only reference.
        let entry = Arc::into_raw(Arc::from(entry)).cast_mut();
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: `entry` came from `Arc::into_raw` just now, and no taker knows it yet.
            unsafe { &*entry }.next.store(head, Relaxed);
            // Release: who takes the entry sees it as we leave it. Full: so that the caller can look
            // afterwards whether anybody is still going to take it.
            match self.head.cmpxchg(head, entry, Full) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Takes the object that was added last.
    ///
    /// # Context
    ///
    /// Process context, or any context in which no other taker is a process.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Arc<Linked<T>>> {
        let _turn = self.takers.lock();
        let mut head = self.head.load(Acquire);
        loop {
            if head.is_null() {
                return None;
            }
            // SAFETY: By the type invariant the list owns `head`, and it stays, because only
            // takers remove entries and it is our turn.
            let next = unsafe { &*head }.next.load(Relaxed);
            // Acquire: what stands below was added before, by whoever released it.
            match self.head.cmpxchg(head, next, Acquire) {
                // SAFETY: The reference that the list owned goes to the caller.
                Ok(_) => return Some(unsafe { Arc::from_raw(head) }),
                Err(_) => head = self.head.load(Acquire),
            }
        }
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Llist<T> {
    fn drop(self: Pin<&mut Self>) {
        while self.pop().is_some() {}
    }
}
