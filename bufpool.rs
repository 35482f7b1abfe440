// SPDX-License-Identifier: GPL-2.0

//! Rings, and the free lists that keep them between two connections.
//!
//! A link group has a free list for each size class. A ring goes there zeroed, and only its last
//! user can put it there, so a ring from the list is as good as a new one: empty, and unknown to
//! anybody. Taking and giving are a few instructions whatever the number of connections
//! (C walks a list of all buffers, `smc_buf_get_slot()`).
//!
//! Idle rings have one budget for the whole module; what exceeds it is freed at once.

#![deny(unsafe_code)]

pub(crate) mod quota;
pub(crate) mod size;

use kernel::{
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        barrier::smp_mb,
        Arc,
        UniqueArc, //
    }, //
};

use self::{
    quota::{
        Quota,
        Reservation,
        User, //
    },
    size::Class, //
};
use crate::{
    cdc::cursor::Position,
    dmb::{
        Device,
        Registered, //
    },
    kapi::llist::{
        Linked,
        Llist, //
    }, //
};

/// The value of an end that is not there yet; no position has all bits set.
const OPEN: usize = usize::MAX;

/// A ring: a DMB that holds a part of a byte stream.
///
/// Every byte has its place by its position alone, see [`Position::offset`].
pub(crate) struct Ring {
    dmb: Registered,
    class: Class,
    /// The size of the class.
    size: usize,
    /// Where the stream was when the ring was appended; what is zeroed begins there.
    start: Atomic<usize>,
    /// How many bytes behind `start` may not be zero, at most the size.
    dirty: Atomic<usize>,
    /// Where the stream goes on in the next ring, or [`OPEN`].
    end: Atomic<usize>,
    /// Whatever the user of the ring notes, 0 in an empty one.
    note: Atomic<u32>,
}

/// A reference to a ring. Whoever is done with it asks [`last`] whether others are left.
pub(crate) type RingRef = Arc<Linked<Ring>>;

/// The last reference to a ring, to be given to [`Pool::put`].
pub(crate) type LastRef = UniqueArc<Linked<Ring>>;

/// Gives up a reference to a ring; who had the last one gets it back.
#[inline]
pub(crate) fn last(ring: RingRef) -> Option<LastRef> {
    Arc::into_unique_or_drop(ring).map(Pin::into_inner)
}

impl Ring {
    fn new(device: &Arc<Device>, class: Class) -> Result<RingRef> {
        let ring = Self {
            dmb: device.register(class.size())?,
            class,
            size: class.size(),
            start: Atomic::new(0),
            dirty: Atomic::new(0),
            end: Atomic::new(OPEN),
            note: Atomic::new(0),
        };
        Ok(Arc::new(Linked::new(ring), GFP_KERNEL)?)
    }

    /// The size class.
    #[inline]
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// The size in bytes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The DMB.
    pub(crate) fn dmb(&self) -> &Registered {
        &self.dmb
    }

    /// What its user noted.
    pub(crate) fn note(&self) -> u32 {
        self.note.load(Relaxed)
    }

    /// Notes something, which stays until the ring is empty again.
    pub(crate) fn set_note(&self, note: u32) {
        self.note.store(note, Relaxed);
    }

    /// Makes the ring begin at `at`.
    ///
    /// Called by the sender before anybody else knows the ring.
    pub(crate) fn begin(&self, at: Position) {
        self.start.store(at.into_raw(), Relaxed);
    }

    /// Makes the stream go on in another ring from `at` on.
    ///
    /// Called by the sender, before it publishes anything behind `at`.
    pub(crate) fn seal(&self, at: Position) {
        self.end.store(at.into_raw(), Release);
    }

    /// Where the stream goes on in another ring, if it does.
    #[inline]
    pub(crate) fn sealed(&self) -> Option<Position> {
        match self.end.load(Acquire) {
            OPEN => None,
            end => Some(Position::from_raw(end)),
        }
    }

    /// Moves up to `len` bytes from `from` to the place of `at`; `written` bytes went to this ring
    /// before. Says how many it could read.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - so many bytes do not fit in the ring.
    ///
    /// # Context
    ///
    /// Process context, may sleep. The caller is the sender, and has seen that the reader is done
    /// with what was there.
    #[inline(always)]
    pub(crate) fn fill(
        &self,
        at: Position,
        written: usize,
        len: usize,
        from: &mut IovIterSource<'_>,
    ) -> Result<usize> {
        if written < self.size {
            // Counted before the copy, which may end anywhere.
            let reach = written.saturating_add(len).min(self.size);
            self.dirty
                .store(self.dirty.load(Relaxed).max(reach), Relaxed);
        }
        self.dmb.memory().fill(at.into_raw(), len, from)
    }

    /// Moves up to `len` bytes at `at` to `to`, and says how many it could write.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - so many bytes are not in the ring.
    ///
    /// # Context
    ///
    /// Process context, may sleep. The caller is the reader, and has seen these bytes published.
    #[inline(always)]
    pub(crate) fn drain(
        &self,
        at: Position,
        len: usize,
        to: &mut IovIterDest<'_>,
    ) -> Result<usize> {
        self.dmb.memory().drain(at.into_raw(), len, to)
    }

    /// Forgets all that was in the ring, which is ours alone.
    fn clean(&mut self) {
        let dirty = core::mem::take(self.dirty.get_mut());
        self.dmb.memory().zero(*self.start.get_mut(), dirty);
        *self.end.get_mut() = OPEN;
        *self.note.get_mut() = 0;
    }
}

/// How much all pools together may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most bytes of idle rings.
    pub(crate) idle_bytes: usize,
    /// The most rings in use that a single user answers for, but for the administrator.
    pub(crate) user_rings: usize,
}

/// What all pools share: the device, the places for rings, and the budget for idle rings.
#[pin_data]
pub(crate) struct Shared {
    device: Arc<Device>,
    #[pin]
    quota: Quota,
    /// The most bytes that idle rings may have.
    budget: usize,
    idle_bytes: Atomic<usize>,
    idle_rings: Atomic<usize>,
}

impl Shared {
    /// The device, and how much of it may be used.
    pub(crate) fn new(device: Arc<Device>, limits: Limits) -> impl PinInit<Self> {
        let places = usize::try_from(device.max_dmbs()).unwrap_or(usize::MAX);
        pin_init!(Self {
            device,
            quota <- Quota::new(places, limits.user_rings),
            budget: limits.idle_bytes,
            idle_bytes: Atomic::new(0),
            idle_rings: Atomic::new(0),
        })
    }

    /// The device.
    #[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The bytes of idle rings.
    pub(crate) fn idle_bytes(&self) -> usize {
        self.idle_bytes.load(Relaxed)
    }

    /// The number of idle rings.
    pub(crate) fn idle_rings(&self) -> usize {
        self.idle_rings.load(Relaxed)
    }

    /// Whether `bytes` more may be idle; they count from now on.
    #[inline]
    fn admit(&self, bytes: usize) -> bool {
        if self.idle_bytes.fetch_add(bytes, Relaxed) + bytes > self.budget {
            self.idle_bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.idle_rings.fetch_add(1, Relaxed);
        true
    }

    #[inline]
    fn dismiss(&self, bytes: usize) {
        self.idle_bytes.fetch_sub(bytes, Relaxed);
        self.idle_rings.fetch_sub(1, Relaxed);
    }
}

/// The idle rings of one link group.
///
/// # Invariants
///
/// Every ring in a list is parked, zeroed, of the class of that list, and counted in `shared`.
#[pin_data]
pub(crate) struct Pool {
    #[pin]
    lists: [Llist<Ring>; Class::KEPT],
    shared: Arc<Shared>,
    /// Nothing is kept any more.
    closed: Atomic<bool>,
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new(shared: Arc<Shared>) -> impl PinInit<Self> {
        pin_init!(Self {
            lists <- pin_init::pin_init_array_from_fn(|_| Llist::new()),
            shared,
            closed: Atomic::new(false),
        })
    }

    /// Reserves places for the rings of a new connection that `user` answers for.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` - the device has no more places.
    /// - `EDQUOT` - the user has as many as one may have.
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn reserve(&self, user: User) -> Result<Reservation> {
        Reservation::new(self.shared.clone(), user)
    }

    /// Takes an empty ring of this class that nobody else knows.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` - the device has no room for another DMB.
    /// - `ENOMEM` - no memory.
    /// - `EAGAIN` - the random token was taken; it will not be the next time.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    #[inline]
    pub(crate) fn take(&self, class: Class) -> Result<RingRef> {
        match self.pop(class) {
            Some(ring) => Ok(ring),
            None => Ring::new(&self.shared.device, class),
        }
    }

    #[inline]
    fn pop(&self, class: Class) -> Option<RingRef> {
        let ring = self.lists.get(class.index())?.pop()?;
        self.shared.dismiss(class.size());
        ring.dmb.unpark();
        Some(ring)
    }

    /// Cleans a ring that nobody else knows any more and keeps it for the next connection, if the
    /// budget allows.
    ///
    /// # Context
    ///
    /// Process context.
    #[inline]
    pub(crate) fn put(&self, mut ring: LastRef) {
        let class = ring.class;
        let Some(list) = self.lists.get(class.index()) else {
            return;
        };
        // A ring that somebody is attached to is nobody's to reuse.
        if self.closed.load(Relaxed) || ring.dmb.park().is_err() {
            return;
        }
        ring.get_mut().clean();
        if self.shared.admit(class.size()) {
            // INVARIANT: Parked, zeroed and counted above.
            list.push(ring);
            // Pairs with the fence in `close()`: either this sees that the pool is closed, or
            // closing sees the ring.
            if self.closed.load(Relaxed) {
                self.trim(usize::MAX);
            }
        }
    }

    /// Frees idle rings, the largest first, until `bytes` are freed or none is left.
    ///
    /// Says how many bytes were freed.
    ///
    /// # Context
    ///
    /// Process context, memory reclaim.
    pub(crate) fn trim(&self, bytes: usize) -> usize {
        let mut freed = 0;
        for class in Class::kept() {
            while freed < bytes {
                let Some(ring) = self.pop(class) else {
                    break;
                };
                drop(ring);
                freed += class.size();
            }
        }
        freed
    }

    /// Keeps nothing any more and frees what is there.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        // Pairs with `Llist::push()`, which is fully ordered.
        smp_mb(Full);
        self.trim(usize::MAX);
    }
}
