// SPDX-License-Identifier: GPL-2.0

//! Urgent data: the mark in the stream of a direction.
//!
//! Follows `tcp_check_urg()`, `tcp_recv_urg()` and `tcp_recvmsg_locked()`: the last byte of a send
//! with `MSG_OOB` is marked, or with `net.ipv4.tcp_stdurg` the one behind it. It stays in its ring
//! with all others, so urgent data needs no room of its own and holds up nobody; who reads the
//! stream stops at the mark, and passes the byte over unless `SO_OOBINLINE` is set. SMC has no
//! urgent data (`net/smc/smc_tx.c` counts it and lets the sender wait); what C's SMC does with it is
//! not followed.
//!
//! # Invariants
//!
//! 1. There is at most one mark, the latest. A new one is ahead of the one before.
//! 2. A mark is set before its byte is published, so whoever sees the byte sees the mark: the
//!    stores here are ordered by [`Channel::publish`](crate::cdc::Channel::publish), the loads by
//!    [`Channel::observe`](crate::cdc::Channel::observe). A mark whose byte is not published yet is
//!    one that TCP has been told of by an earlier segment (`TCP_URG_NOTYET`).
//! 3. A mark behind the reader's position means nothing, and goes when the reader next looks.
//! 4. Lost bytes begin at the reader's position or mean nothing.
//!
//! # Locks
//!
//! `Urgent::marks` is taken last, in process context, by the sender (under `tx`), the reader (under
//! `rx`) and whoever asks; nothing is called under it. As long as no urgent data was sent, all but
//! the sender of such data look at `any` alone.

#![deny(unsafe_code)]

use kernel::{
    iov::IovIterDest,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_spinlock,
        SpinLock, //
    }, //
};

use super::{
    close::{
        self,
        ReadEnd, //
    },
    Connection,
    Side, //
};
use crate::{
    cdc::{
        cursor::{
            Flags,
            Position, //
        },
        Channel, //
    },
    kapi::{
        sock::Sk,
        sync::lock_killable,
        wait::{
            signal_error,
            Timeout, //
        }, //
    }, //
};

/// The urgent byte.
#[derive(Clone, Copy)]
struct Mark {
    at: Position,
    /// It was received by `MSG_OOB`.
    taken: bool,
}

/// Bytes that left the stream unread: the urgent ones before the latest at which the reader stood.
#[derive(Clone, Copy)]
struct Lost {
    from: Position,
    len: usize,
}

struct Marks {
    mark: Option<Mark>,
    lost: Option<Lost>,
}

impl Marks {
    /// How many bytes at the reader's position are lost.
    fn lost_at(&self, consumed: Position) -> usize {
        match self.lost {
            Some(lost) if lost.from == consumed => lost.len,
            _ => 0,
        }
    }

    /// Forgets what a reader at `consumed` has passed; whether nothing is left.
    fn pass(&mut self, consumed: Position) -> bool {
        self.mark = self
            .mark
            .filter(|mark| mark.at.checked_since(consumed).is_some());
        self.lost = self.lost.filter(|lost| lost.from == consumed);
        self.mark.is_none() && self.lost.is_none()
    }
}

/// The urgent data of a direction.
#[pin_data]
pub(super) struct Urgent {
    /// Whether there are marks to look at.
    any: Atomic<bool>,
    #[pin]
    marks: SpinLock<Marks>,
}

/// What a reader does with the next byte of the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// Reads up to that many bytes.
    Bytes(usize),
    /// Passes over that many.
    Skip(usize),
    /// Returns what it has.
    Stop,
    /// Returns for a signal, which may be `SIGURG`.
    Interrupted,
}

/// What others than readers see of the mark.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct View {
    /// How many of the unread bytes are lost.
    pub(super) lost: usize,
    /// How many bytes are before the mark, if there is one.
    pub(super) distance: Option<usize>,
    /// The urgent byte can be received by `MSG_OOB`.
    pub(super) pending: bool,
}

impl Urgent {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            any: Atomic::new(false),
            marks <- new_spinlock!(Marks { mark: None, lost: None }, "Urgent::marks"),
        })
    }

    /// Whether there may be marks to look at.
    #[inline]
    pub(super) fn is_marked(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Marks the byte at `at`; whether this is news to the reader, whose socket has
    /// `SO_OOBINLINE` as `inline` says.
    ///
    /// Called by the sender, before it publishes that byte.
    #[cold]
    fn mark(&self, channel: &Channel, at: Position, inline: bool) -> bool {
        let mut marks = self.marks.lock();
        let consumed = channel.consumed();
        let is_ahead = |of: Position| at.checked_since(of);
        if is_ahead(consumed).is_none() {
            return false;
        }
        if let Some(mark) = marks.mark {
            if is_ahead(mark.at).is_none_or(|distance| distance == 0) {
                return false;
            }
            let lost = marks.lost_at(consumed);
            let is_there = channel
                .observe()
                .unread(consumed)
                .is_some_and(|unread| unread > lost);
            if mark.at == consumed.advance(lost) && is_there && !inline {
                marks.lost = Some(Lost {
                    from: consumed,
                    len: lost + 1,
                });
            }
        }
        marks.mark = Some(Mark { at, taken: false });
        self.any.store(true, Relaxed);
        true
    }

    /// What a reader does that has got some bytes (or not) and is about to read at `at`.
    ///
    /// Called under the reader's lock; `consumed` is its position, behind `at` when it peeks.
    #[inline]
    pub(super) fn next(&self, at: Position, consumed: Position, got: usize, sk: &Sk) -> Next {
        if self.is_marked() {
            self.next_marked(at, consumed, got, sk)
        } else {
            Next::Bytes(usize::MAX)
        }
    }

    #[cold]
    fn next_marked(&self, at: Position, consumed: Position, got: usize, sk: &Sk) -> Next {
        let mut marks = self.marks.lock();
        if marks.pass(consumed) {
            self.any.store(false, Relaxed);
        }
        let lost = marks.lost_at(at);
        if lost > 0 {
            return Next::Skip(lost);
        }
        let ahead = marks.mark.and_then(|mark| mark.at.checked_since(at));
        match ahead {
            None => Next::Bytes(usize::MAX),
            Some(0) if got > 0 => Next::Stop,
            Some(0) if signal_error(Timeout::FOREVER).is_some() => Next::Interrupted,
            Some(0) if sk.oob_inline() => Next::Bytes(usize::MAX),
            Some(0) => Next::Skip(1),
            Some(distance) => Next::Bytes(distance),
        }
    }

    /// What is to be seen of the mark from the reader's position, with `unread` bytes published
    /// behind that.
    #[inline]
    pub(super) fn view(&self, consumed: Position, unread: usize) -> View {
        if self.is_marked() {
            self.view_marked(consumed, unread)
        } else {
            View::default()
        }
    }

    #[cold]
    fn view_marked(&self, consumed: Position, unread: usize) -> View {
        let marks = self.marks.lock();
        let lost = marks.lost_at(consumed).min(unread);
        let distance = |mark: Mark| mark.at.checked_since(consumed)?.checked_sub(lost);
        View {
            lost,
            distance: marks.mark.and_then(distance),
            pending: marks
                .mark
                .filter(|mark| !mark.taken)
                .and_then(distance)
                .is_some_and(|distance| distance < unread - lost),
        }
    }

    /// The position of the urgent byte that was not received yet.
    fn pending(&self, consumed: Position) -> Option<Position> {
        let marks = self.marks.lock();
        let mark = marks.mark.filter(|mark| !mark.taken)?;
        mark.at.checked_since(consumed).map(|_| mark.at)
    }

    /// Notes that the urgent byte at `at` was received.
    fn take(&self, at: Position) {
        if let Some(mark) = &mut self.marks.lock().mark {
            mark.taken |= mark.at == at;
        }
    }
}

impl View {
    /// How many of `unread` bytes `FIONREAD` counts (`tcp_inq()`).
    pub(super) fn readable(self, unread: usize, inline: bool) -> usize {
        let unread = unread - self.lost.min(unread);
        match self.distance {
            Some(distance) if !inline && distance < unread => distance,
            _ => unread,
        }
    }

    /// How many of `unread` bytes are before the mark, if it is among them. It ends a splice,
    /// whatever `SO_OOBINLINE` says (`__tcp_read_sock()`).
    pub(super) fn before_mark(self, unread: usize) -> Option<usize> {
        self.distance
            .filter(|&distance| distance < unread - self.lost.min(unread))
    }

    /// Whether a reader stands at the mark (`SIOCATMARK`).
    pub(super) fn is_at_mark(self) -> bool {
        self.distance == Some(0)
    }
}

impl Connection {
    /// Marks the last byte of what `sk`, at `side`, sent or is about to publish, up to `end`;
    /// whether the peer must be told.
    pub(super) fn mark_urgent(&self, side: Side, sk: &Sk, end: Position) -> bool {
        let direction = self.outgoing(side);
        let reader = self.end(side.peer()).sk();
        let inline = reader.is_some_and(|sk| sk.oob_inline());
        let at = if reader.unwrap_or(sk).net().tcp_stdurg() {
            end
        } else {
            end.before()
        };
        direction.urgent.mark(&direction.channel, at, inline)
    }

    /// Tells the reader that there is urgent data: `SIGURG` for its owner, and a wake-up whatever
    /// `SO_RCVLOWAT` says.
    #[cold]
    pub(super) fn announce_urgent(&self, side: Side) {
        match self.end(side.peer()).announced() {
            Some(peer) => {
                // After the byte was published: a handler finds it.
                peer.send_sigurg();
                peer.data_ready();
            }
            None => self.end(side.peer()).tell_herald(),
        }
    }

    /// Receives the urgent byte out of band, into `to` unless the caller only asks whether it is
    /// there; whether there was one, which `taking` removes from there.
    ///
    /// Errors and context: [`super::Endpoint::recv_urgent`]. A socket that was disconnected
    /// meanwhile has no urgent data.
    pub(super) fn recv_urgent(
        &self,
        side: Side,
        sk: &Sk,
        to: Option<&mut IovIterDest<'_>>,
        taking: bool,
    ) -> Result<bool> {
        let direction = self.incoming(side);
        if sk.oob_inline() {
            return Err(EINVAL);
        }
        let rx = lock_killable(&direction.rx)?;
        let consumed = rx.consumed();
        let word = direction.channel.observe();
        if word.has(Flags::RX_CLOSED) {
            return Err(EINVAL);
        }
        let at = direction.urgent.pending(consumed).ok_or(EINVAL)?;
        let end = close::read_end(word);
        if end == ReadEnd::Aborted {
            return Err(ENOTCONN);
        }
        let distance = at.since(consumed);
        if distance >= word.unread(consumed).ok_or(EIO)? {
            return if end == ReadEnd::Eof || sk.shutdown_mask().rcv() {
                Ok(false)
            } else {
                Err(EAGAIN)
            };
        }
        if taking {
            direction.urgent.take(at);
        }
        if let Some(to) = to {
            let found = direction.chain.lock().find(consumed, distance);
            let (ring, _) = found.ok_or(EIO)?;
            let copied = ring.drain(at, 1, to);
            self.release(side.peer(), ring);
            if copied? == 0 {
                return Err(EFAULT);
            }
        }
        Ok(true)
    }
}
