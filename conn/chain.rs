// SPDX-License-Identifier: GPL-2.0

//! One direction of a connection, and the chain of rings its stream lies in.

#![deny(unsafe_code)]

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_mutex,
        new_spinlock,
        Mutex,
        SpinLock, //
    },
    time::{
        ClockSource,
        RealTime, //
    },
};

use super::{
    rx::Rx,
    tx::Tx,
    urgent::{
        Urgent,
        View, //
    },
    DirectionInfo, //
};
use crate::{
    bufpool::{
        Ring,
        RingRef, //
    },
    cdc::{
        cursor::{
            is_writeable,
            Position,
            MAX_UNREAD, //
        },
        Channel, //
    },
    kapi::sock::Sk,
};

/// The most rings in a chain. Each is larger than the one before, so this is enough to go from the
/// smallest to the largest and some more.
const MAX_RINGS: usize = 8;

/// The note in a ring that has a place of its own, besides that of its direction.
const HAS_PLACE: u32 = 4;

/// Who has been charged for a ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Payer {
    /// Nobody, for it is the reserve.
    Nobody,
    /// The end that writes, before the other end belonged to anybody.
    Sender,
    /// The end that reads.
    Reader,
}

impl Payer {
    /// Who has been charged for `ring`.
    pub(super) fn of(ring: &Ring) -> Self {
        match ring.note() & !HAS_PLACE {
            1 => Self::Sender,
            2 => Self::Reader,
            _ => Self::Nobody,
        }
    }

    /// Notes in `ring` that this one has been charged.
    pub(super) fn charged(self, ring: &Ring) {
        let who = match self {
            Self::Nobody => 0,
            Self::Sender => 1,
            Self::Reader => 2,
        };
        ring.set_note(ring.note() & HAS_PLACE | who);
    }
}

/// Notes in `ring` that it has a place of its own.
pub(super) fn note_place(ring: &Ring) {
    ring.set_note(ring.note() | HAS_PLACE);
}

/// Whether `ring` has a place of its own.
pub(super) fn has_place(ring: &Ring) -> bool {
    ring.note() & HAS_PLACE != 0
}

/// The rings of a direction, the one that is read from first.
///
/// # Invariants
///
/// The first `len` entries of `rings` are there, the others are not.
pub(super) struct Chain {
    rings: [Option<RingRef>; MAX_RINGS],
    len: usize,
    /// Nobody reads any more, so nothing is appended.
    closed: bool,
}

impl Chain {
    const fn new() -> Self {
        Self {
            rings: [const { None }; MAX_RINGS],
            len: 0,
            closed: false,
        }
    }

    /// Whether there is any ring.
    pub(super) fn has_rings(&self) -> bool {
        self.len > 0
    }

    /// Whether another ring can be appended.
    pub(super) fn has_place(&self) -> bool {
        self.len < MAX_RINGS
    }

    /// Appends a ring.
    ///
    /// # Errors
    ///
    /// The ring, when nobody reads any more or there is no place.
    pub(super) fn append(&mut self, ring: RingRef) -> Result<(), RingRef> {
        match self.rings.get_mut(self.len) {
            Some(place) if !self.closed => {
                *place = Some(ring);
                self.len += 1;
                Ok(())
            }
            _ => Err(ring),
        }
    }

    /// The ring that is read from.
    pub(super) fn first(&self) -> Option<RingRef> {
        self.rings[0].clone()
    }

    /// Takes the ring that was read from.
    pub(super) fn remove_first(&mut self) -> Option<RingRef> {
        let first = self.rings[0].take()?;
        // INVARIANT: The gap goes to the end.
        self.rings.rotate_left(1);
        self.len -= 1;
        Some(first)
    }

    /// The ring that holds the byte `distance` behind `consumed`, and the bytes from there to
    /// where the stream goes on in another ring, if it does.
    pub(super) fn find(&self, consumed: Position, distance: usize) -> Option<(RingRef, usize)> {
        self.rings.iter().flatten().find_map(|ring| {
            let end = match ring.sealed() {
                Some(end) => end.checked_since(consumed)?,
                None => MAX_UNREAD,
            };
            let rest = end.checked_sub(distance).filter(|&rest| rest > 0)?;
            Some((ring.clone(), rest))
        })
    }

    /// Takes one ring after the other; nothing is appended any more.
    pub(super) fn close(&mut self) -> Option<RingRef> {
        self.closed = true;
        self.len = self.len.checked_sub(1)?;
        self.rings.get_mut(self.len)?.take()
    }

    /// The bytes of the rings the sender has paid for.
    pub(super) fn paid_by_sender(&self) -> usize {
        self.rings
            .iter()
            .flatten()
            .filter(|ring| Payer::of(ring) == Payer::Sender)
            .map(|ring| ring.size())
            .sum()
    }

    /// Notes that the reader has paid for up to `bytes` of what the sender had; says for how many.
    pub(super) fn make_reader_pay(&mut self, bytes: usize) -> usize {
        let mut paid = 0;
        for ring in self.rings.iter().flatten() {
            if Payer::of(ring) == Payer::Sender && paid + ring.size() <= bytes {
                Payer::Reader.charged(ring);
                paid += ring.size();
            }
        }
        paid
    }

    /// The size of all rings.
    fn size(&self) -> usize {
        self.rings.iter().flatten().map(|ring| ring.size()).sum()
    }
}

/// One direction of a connection.
///
/// In this order, with the channel aligned to cache lines, what the sender uses and what the reader
/// uses are on lines of their own.
#[repr(C)]
#[pin_data]
pub(super) struct Direction {
    #[pin]
    pub(super) tx: Mutex<Tx>,
    /// How many unread bytes would be too many for the sender to go on: the limit while the chain
    /// can grow, the size of its last ring when it cannot. Written by the sender.
    pub(super) ceiling: Atomic<usize>,
    pub(super) channel: Channel,
    #[pin]
    pub(super) rx: Mutex<Rx>,
    #[pin]
    pub(super) chain: SpinLock<Chain>,
    #[pin]
    pub(super) urgent: Urgent,
    /// When the latest bytes were published, in nanoseconds since 1970, if the reader wanted to
    /// know; else 0. As with TCP, which merges what waits to be read, it is that of all that waits.
    stamp: Atomic<i64>,
    /// The reader's position when somebody last looked whether the direction is idle.
    pub(super) looked_at: Atomic<usize>,
}

impl Direction {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            channel: Channel::new(Position::START),
            tx <- new_mutex!(Tx::new(), "Direction::tx"),
            rx <- new_mutex!(Rx::new(), "Direction::rx"),
            chain <- new_spinlock!(Chain::new(), "Direction::chain"),
            urgent <- Urgent::new(),
            stamp: Atomic::new(0),
            ceiling: Atomic::new(MAX_UNREAD),
            looked_at: Atomic::new(Position::START.into_raw()),
        })
    }

    /// Notes the time for bytes that are about to be published, if `reader` wants to know it.
    ///
    /// Ordered by [`Channel::publish`] and [`Channel::observe`]: who sees the bytes sees their time.
    #[inline(always)]
    pub(super) fn stamp_for(&self, reader: Option<&Sk>) {
        if reader.is_some_and(Sk::wants_rx_stamps) {
            self.stamp.store(RealTime::ktime_get(), Relaxed);
        } else if self.stamp.load(Relaxed) != 0 {
            self.stamp.store(0, Relaxed);
        }
    }

    /// When the latest bytes came, if that was noted.
    pub(super) fn stamp(&self) -> Option<i64> {
        Some(self.stamp.load(Relaxed)).filter(|&stamp| stamp != 0)
    }

    /// The bytes sent and not read.
    pub(super) fn unread(&self) -> usize {
        // The reader's position first: it never passes the sender's.
        let consumed = self.channel.consumed();
        self.channel.observe().unread(consumed).unwrap_or(0)
    }

    /// The bytes sent and not read, and the urgent mark among them.
    pub(super) fn unread_and_urgent(&self) -> (usize, View) {
        // As in `unread()`.
        let consumed = self.channel.consumed();
        let unread = self.channel.observe().unread(consumed).unwrap_or(0);
        (unread, self.urgent.view(consumed, unread))
    }

    /// Whether a sender is to be woken.
    pub(super) fn is_writeable(&self) -> bool {
        let unread = self.unread();
        is_writeable(self.ceiling.load(Relaxed).saturating_sub(unread), unread)
    }

    /// What tools show.
    pub(super) fn info(&self) -> DirectionInfo {
        // No reference leaves the lock: it might become the last one.
        let chain = self.chain.lock();
        let first = chain.rings[0].as_ref();
        let ring_size = first.map_or(PAGE_SIZE, |ring| ring.size());
        let consumed = self.channel.consumed();
        let control = self.channel.observe();
        DirectionInfo {
            token: first.map(|ring| ring.dmb().token()),
            size: chain.size(),
            control,
            producer: control.position().cursor(ring_size),
            consumer: consumed.cursor(ring_size),
        }
    }
}
