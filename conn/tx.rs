// SPDX-License-Identifier: GPL-2.0

//! Sending: from an [`IovIterSource`] into the rings of a direction.
//!
//! Follows `tcp_sendmsg_locked()` and `sk_stream_wait_memory()`: what is returned, which error
//! comes first, when `SOCK_NOSPACE` is set.

#![deny(unsafe_code)]

use kernel::{
    iov::IovIterSource,
    prelude::*,
    sync::atomic::Relaxed, //
};

use super::{
    chain::{
        note_place,
        Direction,
        Payer, //
    },
    close::{
        self,
        SendGate, //
    },
    Connection,
    Side, //
};
use crate::{
    bufpool::{
        size::Class,
        RingRef, //
    },
    cdc::cursor::{
        room,
        Control,
        Flags,
        Position,
        MAX_UNREAD, //
    },
    kapi::{
        msg,
        sock::Sk,
        sync::lock_killable,
        wait::{
            signal_error,
            Timeout,
            Waiter, //
        }, //
    }, //
};

/// The most bytes that are published at once, so that a reader can begin with a large message.
const CHUNK: usize = 64 << 10;

/// From this size on a ring is only followed by another one when its reader does not move, or when
/// the sender would not wait. It is as fast as larger ones, and stays in the caches.
const ENOUGH: usize = 256 << 10;

/// How long a reader may pause before a waiting sender makes the chain larger, in milliseconds.
const PATIENCE: u32 = 10;

/// How long a sender waits before it asks for memory again, in milliseconds.
const MEMORY_PAUSE: u32 = 50;

/// What the sender of a direction keeps for itself.
pub(super) struct Tx {
    /// The last ring of the chain.
    pub(super) tail: Option<RingRef>,
    /// How many bytes went to it.
    written: usize,
    /// The reader's position as last seen.
    consumed: Position,
    /// How many bytes may be unread, as last looked up.
    limit: usize,
    /// How many more bytes fit into `tail`, as far as is known; there may be more room by now, never
    /// less.
    left: usize,
}

impl Tx {
    pub(super) const fn new() -> Self {
        Self {
            tail: None,
            written: 0,
            consumed: Position::START,
            limit: MAX_UNREAD,
            left: 0,
        }
    }

    /// The room for more bytes, or at least for the `wanted` ones.
    ///
    /// # Errors
    ///
    /// - `EIO` - the positions do not belong together.
    #[inline]
    fn room(&mut self, direction: &Direction, word: Control, wanted: usize) -> Result<usize> {
        self.left = self.known_room(word)?;
        if self.left < wanted && self.tail.is_some() {
            self.consumed = direction.channel.consumed();
            self.left = self.known_room(word)?;
        }
        Ok(self.left)
    }

    /// Notes that `bytes` more were sent.
    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
        self.left = self.left.saturating_sub(bytes);
    }

    #[inline]
    fn known_room(&self, word: Control) -> Result<usize> {
        let unread = word.unread(self.consumed).ok_or(EIO)?;
        let Some(tail) = &self.tail else {
            return Ok(0);
        };
        let free = room(tail.size(), self.written, unread).ok_or(EIO)?;
        Ok(free.min(self.limit.saturating_sub(unread)))
    }
}

/// Why a sender has no room, which says what it waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Obstacle {
    /// As much is unread as may be.
    Limit,
    /// The chain could be larger, but the reader is likely to make room.
    Reader,
    /// There is no memory, or none may be charged.
    Memory,
}

impl Obstacle {
    /// How long to wait at most before trying again without having been woken.
    fn pause(self) -> Timeout {
        match self {
            Self::Limit => Timeout::FOREVER,
            Self::Reader => Timeout::from_msecs(PATIENCE),
            Self::Memory => Timeout::from_msecs(MEMORY_PAUSE),
        }
    }
}

/// Why pushing stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    /// Everything is sent.
    Done,
    /// There is no room for more.
    NoRoom(Obstacle),
    /// The caller's memory cannot be read.
    Fault,
    /// This end may not send.
    Ended,
}

/// What became of bytes that were copied into a ring.
enum Put {
    /// That many are there for the reader; fewer than asked for where the caller's memory cannot
    /// be read.
    Published(usize),
    /// Something happened to the connection meanwhile. That many count as sent all the same.
    Refused(usize),
}

/// How far a send has come.
struct Sent {
    /// How many bytes were sent.
    bytes: usize,
    /// The last one of them is urgent (`MSG_OOB`).
    urgent: bool,
}

impl Connection {
    /// Sends what `from` yields.
    ///
    /// Errors and context: [`super::Endpoint::send`].
    #[inline(always)]
    pub(super) fn send(
        &self,
        side: Side,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        flags: msg::Flags,
    ) -> Result<usize> {
        let mut sent = Sent {
            bytes: 0,
            urgent: flags.contains(msg::Flags::OOB),
        };
        if let Some(result) = self.push_whole(side, sk, from, &mut sent) {
            return result;
        }
        let timeout = sk.sndtimeo(flags.contains(msg::Flags::DONTWAIT));
        self.send_more(side, sk, from, sent, timeout)
    }

    /// Sends a message that fits as it is, as most do, when nothing is out of the ordinary.
    ///
    /// Nothing otherwise, for [`Self::push`] to go on: it knows all cases.
    #[inline(always)]
    fn push_whole(
        &self,
        side: Side,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        sent: &mut Sent,
    ) -> Option<Result<usize>> {
        let len = from.len();
        let direction = self.outgoing(side);
        let mut tx = lock_killable(&direction.tx).ok()?;
        let word = direction.channel.observe();
        if word.flags() != Flags::NONE
            || sk.has_err()
            || sk.shutdown_mask().send()
            || sent.urgent
            || len == 0
            || len > tx.left.min(CHUNK)
        {
            return None;
        }
        match self.put(side, sk, &mut tx, word, from, len, false) {
            Ok(Put::Published(0)) => Some(Err(EFAULT)),
            Ok(Put::Published(bytes)) => Some(Ok(bytes)),
            Ok(Put::Refused(bytes)) => {
                sent.bytes = bytes;
                None
            }
            Err(_) => None,
        }
    }

    /// Sends the rest of a message, which waits for room if there is time.
    #[inline(never)]
    fn send_more(
        &self,
        side: Side,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        mut sent: Sent,
        timeout: Timeout,
    ) -> Result<usize> {
        match self.push(side, sk, from, &mut sent, timeout.expired()) {
            Ok(Stop::NoRoom(obstacle)) if timeout.expired() => {
                self.send_without_room(side, sk, from, sent, obstacle)
            }
            Ok(Stop::NoRoom(obstacle)) => {
                self.send_waiting(side, sk, from, sent, timeout, obstacle)
            }
            stop => finish(sk, stop, sent.bytes),
        }
    }

    /// Goes on without room and without time: makes sure that room leads to a wake-up.
    #[cold]
    fn send_without_room(
        &self,
        side: Side,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        mut sent: Sent,
        obstacle: Obstacle,
    ) -> Result<usize> {
        self.report_no_room(side, sk, obstacle);
        match self.push(side, sk, from, &mut sent, true) {
            Ok(Stop::NoRoom(_)) if sent.bytes == 0 => Err(EAGAIN),
            Ok(Stop::NoRoom(_)) => Ok(sent.bytes),
            stop => finish(sk, stop, sent.bytes),
        }
    }

    /// Goes on without room as long as there is time.
    #[cold]
    fn send_waiting(
        &self,
        side: Side,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        mut sent: Sent,
        mut timeout: Timeout,
        mut obstacle: Obstacle,
    ) -> Result<usize> {
        let channel = &self.outgoing(side).channel;
        let mut eager = false;
        pin_init::stack_pin_init!(let waiter = Waiter::new(sk));
        loop {
            let consumed = channel.consumed();
            self.report_no_room(side, sk, obstacle);
            obstacle = match self.push(side, sk, from, &mut sent, eager) {
                Ok(Stop::NoRoom(obstacle)) => obstacle,
                stop => return finish(sk, stop, sent.bytes),
            };
            let stopped = if timeout.expired() {
                Some(EAGAIN)
            } else {
                signal_error(timeout)
            };
            if let Some(err) = stopped {
                return if sent.bytes > 0 {
                    Ok(sent.bytes)
                } else {
                    Err(err)
                };
            }
            let pause = timeout.at_most(obstacle.pause());
            let left = waiter.as_mut().wait(pause);
            timeout = timeout.after(pause, left);
            // The reader had its time: make room without it.
            eager = left.expired() && channel.consumed() == consumed;
        }
    }

    /// Says that this end waits for room; whoever makes some sees it from now on.
    fn report_no_room(&self, side: Side, sk: &Sk, obstacle: Obstacle) {
        let outgoing = self.outgoing(side);
        // In this order: who sees that the sender is blocked wakes those who said so.
        sk.set_nospace();
        outgoing.channel.block();
        // A reader that waits for more than there can be must begin to read.
        if obstacle == Obstacle::Limit || !outgoing.is_writeable() {
            if let Some(peer) = self.end(side.peer()).sk() {
                if outgoing.unread() > 0 && peer.rcvlowat(false, usize::MAX) > 1 {
                    peer.data_ready();
                }
            }
        }
    }

    /// Sends as much as there is room for; counts it in `sent`.
    ///
    /// `eager`: makes the chain larger rather than wait for the reader.
    ///
    /// # Errors
    ///
    /// - `EINTR` - a fatal signal is pending.
    /// - `EIO` - the positions do not belong together.
    fn push(
        &self,
        side: Side,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        sent: &mut Sent,
        eager: bool,
    ) -> Result<Stop> {
        let direction = self.outgoing(side);
        let mut tx = lock_killable(&direction.tx)?;
        loop {
            let word = direction.channel.observe();
            match close::send_gate(word) {
                SendGate::Open if sk.has_err() || sk.shutdown_mask().send() => {
                    return Ok(Stop::Ended);
                }
                SendGate::Open => {}
                SendGate::Shut => return Ok(Stop::Ended),
                SendGate::Aborted => {
                    self.settle(side);
                    self.drop_tail(side, &mut tx);
                    return Ok(Stop::Ended);
                }
                SendGate::ReaderGone => {
                    self.drop_tail(side, &mut tx);
                    if sk.has_err() {
                        return Ok(Stop::Ended);
                    }
                    if !from.is_empty() || sent.bytes > 0 {
                        self.refuse(side);
                    }
                    sent.bytes += from.len();
                    from.advance(from.len());
                    return Ok(Stop::Done);
                }
            }
            if from.is_empty() {
                return Ok(Stop::Done);
            }

            let wanted = from.len().min(CHUNK);
            let room = tx.room(direction, word, wanted)?;
            if room == 0 {
                match self.grow(side, sk, &mut tx, word, eager)? {
                    None => continue,
                    Some(obstacle) => {
                        if sent.urgent
                            && sent.bytes > 0
                            && self.mark_urgent(side, sk, word.position())
                        {
                            self.announce_urgent(side);
                        }
                        return Ok(Stop::NoRoom(obstacle));
                    }
                }
            }
            let len = wanted.min(room);
            match self.put(side, sk, &mut tx, word, from, len, sent.urgent)? {
                Put::Published(copied) => {
                    sent.bytes += copied;
                    if copied < len {
                        return Ok(Stop::Fault);
                    }
                    if from.is_empty() {
                        return Ok(Stop::Done);
                    }
                }
                // For the gate to judge, at the top.
                Put::Refused(bytes) => sent.bytes += bytes,
            }
        }
    }

    /// Copies up to `len` bytes, for which there is room, behind `word` and publishes them, with
    /// the last one of the message marked if that is `urgent`.
    ///
    /// # Errors
    ///
    /// - `EIO`, `EINVAL` - there is no room for them.
    #[inline(always)]
    #[expect(clippy::too_many_arguments)]
    fn put(
        &self,
        side: Side,
        sk: &Sk,
        tx: &mut Tx,
        word: Control,
        from: &mut IovIterSource<'_>,
        len: usize,
        urgent: bool,
    ) -> Result<Put> {
        let direction = self.outgoing(side);
        let tail = tx.tail.as_ref().ok_or(EIO)?;
        let copied = tail.fill(word.position(), tx.written, len, from)?;
        if copied == 0 {
            return Ok(Put::Published(0));
        }
        let ends_urgent = urgent && (copied < len || from.is_empty());
        if ends_urgent {
            // A mark that is not published is as good as none.
            self.mark_urgent(side, sk, word.position().advance(copied));
        }
        let reader = self.end(side.peer()).sk();
        direction.stamp_for(reader);
        match direction.channel.publish(word, copied) {
            Ok(word) => {
                tx.advance(copied);
                if ends_urgent {
                    self.announce_urgent(side);
                } else {
                    self.announce(side, reader, word);
                }
                Ok(Put::Published(copied))
            }
            Err(found) if close::send_gate(found) == SendGate::ReaderGone => {
                Ok(Put::Refused(copied))
            }
            Err(_) => Ok(Put::Refused(0)),
        }
    }

    /// Tells the reader that bytes up to `word` are there, unless it wants more at once
    /// (`tcp_data_ready()`). `reader` is its socket, if it had one before they were published.
    #[inline(always)]
    fn announce(&self, side: Side, reader: Option<&Sk>, word: Control) {
        let Some(reader) = reader.or_else(|| self.end(side.peer()).announced()) else {
            return self.end(side.peer()).tell_herald();
        };
        if reader.takes_any() || self.has_enough(side, reader, word) {
            reader.data_ready();
        }
    }

    /// Whether with the bytes up to `word` there are as many as `reader` wants at once.
    #[cold]
    fn has_enough(&self, side: Side, reader: &Sk, word: Control) -> bool {
        let consumed = self.outgoing(side).channel.consumed();
        let wanted = reader.rcvlowat(false, usize::MAX);
        word.unread(consumed).is_none_or(|unread| unread >= wanted)
    }

    /// Answers what was sent to an end that had closed or refuses it, as the peer's RST would.
    #[cold]
    fn refuse(&self, side: Side) {
        let channel = &self.outgoing(side).channel;
        self.end(side).die(EPIPE);
        self.end(side.peer())
            .die(close::reset_error(channel.observe()));
        channel.raise(|_| Flags::TX_ABORT);
        self.end(side).wake_for_reset();
        self.end(side.peer()).wake_for_reset();
    }

    /// Gives up the last ring, for there is nobody left to read it.
    #[cold]
    fn drop_tail(&self, side: Side, tx: &mut Tx) {
        if let Some(tail) = tx.tail.take() {
            self.release(side, tail);
        }
    }

    /// Makes room by appending a ring; says what prevents it.
    ///
    /// # Errors
    ///
    /// - `EIO` - the positions do not belong together.
    #[cold]
    fn grow(
        &self,
        side: Side,
        sk: &Sk,
        tx: &mut Tx,
        word: Control,
        eager: bool,
    ) -> Result<Option<Obstacle>> {
        let direction = self.outgoing(side);
        tx.limit = self.limit(side, sk, tx.consumed);
        let unread = word.unread(tx.consumed).ok_or(EIO)?;
        let obstacle = match &tx.tail {
            None => {
                let class = self.first_class(side, sk, tx.limit);
                let ring = self.obtain(side, class).or_else(|| {
                    // Something must always be possible, or a stream could stand still for ever.
                    self.group.take(Class::RESERVE).ok()
                });
                match ring {
                    Some(ring) => {
                        self.append(side, tx, word, ring);
                        None
                    }
                    None => Some((Obstacle::Memory, tx.limit)),
                }
            }
            // The limit was all that was in the way.
            Some(_) if tx.known_room(word)? > 0 => None,
            Some(tail) => {
                let size = tail.size();
                match tail.class().next_within(tx.limit.saturating_sub(unread)) {
                    None => Some((Obstacle::Limit, tx.limit)),
                    Some(_) if !direction.chain.lock().has_place() => Some((Obstacle::Limit, size)),
                    Some(_) if !eager && size >= ENOUGH => Some((Obstacle::Reader, size)),
                    Some(class) => match self.obtain_another(side, class) {
                        Some(ring) => {
                            self.append(side, tx, word, ring);
                            None
                        }
                        None => Some((Obstacle::Memory, size)),
                    },
                }
            }
        };
        let ceiling = obstacle.map_or(tx.limit, |(_, ceiling)| ceiling);
        direction.ceiling.store(ceiling, Relaxed);
        Ok(obstacle.map(|(obstacle, _)| obstacle))
    }

    /// How many bytes may be unread: what TCP would take into its send and receive buffers.
    ///
    /// Unless the application has set them, the send buffer grows to its maximum whatever the
    /// reader does, and the receive buffer grows as its owner reads
    /// (`tcp_rcv_space_adjust()`), so that a reader that stands still costs no more than with TCP.
    fn limit(&self, side: Side, sk: &Sk, consumed: Position) -> usize {
        let reader = self.end(side.peer()).sk();
        let send = if sk.sndbuf_locked() {
            sk.sndbuf()
        } else {
            sk.tcp_wmem_max()
        };
        let receive = match reader {
            Some(reader) if reader.rcvbuf_locked() => reader.rcvbuf(),
            reader => {
                let reader = reader.unwrap_or(sk);
                consumed
                    .since(Position::START)
                    .saturating_mul(2)
                    .saturating_add(reader.tcp_rmem_default())
                    .min(reader.tcp_rmem_max())
            }
        };
        send.saturating_add(receive).clamp(1, MAX_UNREAD)
    }

    /// The class of the first ring: small, unless both ends have set what they need.
    fn first_class(&self, side: Side, sk: &Sk, limit: usize) -> Class {
        let reader = self.end(side.peer()).sk();
        if sk.sndbuf_locked() && reader.is_some_and(Sk::rcvbuf_locked) {
            Class::at_least(limit).min(Class::LARGEST_KEPT)
        } else {
            Class::FIRST
        }
    }

    /// Takes and charges a ring of this class, or of a smaller one.
    fn obtain(&self, side: Side, class: Class) -> Option<RingRef> {
        // Who reads pays, as with a receive queue; until somebody does, the sender.
        let payer = match self.end(side.peer()).sk() {
            Some(_) => Payer::Reader,
            None => Payer::Sender,
        };
        let end = match payer {
            Payer::Reader => self.end(side.peer()),
            _ => self.end(side),
        };
        let mut next = Some(class);
        while let Some(class) = next {
            if end.charge(class.size()) {
                match self.group.take(class) {
                    Ok(ring) => {
                        payer.charged(&ring);
                        return Some(ring);
                    }
                    Err(_) => end.uncharge(class.size()),
                }
            }
            next = class.smaller();
        }
        None
    }

    /// As [`Self::obtain`], for a ring that is not the only one of its direction.
    fn obtain_another(&self, side: Side, class: Class) -> Option<RingRef> {
        self.places.extend().ok()?;
        let ring = self.obtain(side, class);
        match &ring {
            Some(ring) => note_place(ring),
            None => self.places.shrink(),
        }
        ring
    }

    /// Makes `ring` the one that is written from now on.
    fn append(&self, side: Side, tx: &mut Tx, word: Control, ring: RingRef) {
        let direction = self.outgoing(side);
        ring.begin(word.position());
        let appended = direction.chain.lock().append(ring.clone());
        if appended.is_err() {
            // Nobody reads any more, which the gate is about to tell; the clone is not the last.
            drop(appended);
            self.release(side, ring);
            return;
        }
        tx.written = 0;
        tx.left = 0;
        if let Some(old) = tx.tail.replace(ring) {
            old.seal(word.position());
            self.release(side, old);
        }
    }
}

/// The result of a send that stopped.
fn finish(sk: &Sk, stop: Result<Stop>, sent: usize) -> Result<usize> {
    match stop {
        Ok(Stop::Done) => Ok(sent),
        _ if sent > 0 => Ok(sent),
        Ok(Stop::Fault) => Err(EFAULT),
        Ok(Stop::Ended) => {
            sk.take_err()?;
            Err(EPIPE)
        }
        Ok(Stop::NoRoom(_)) => Err(EAGAIN),
        Err(err) => Err(err),
    }
}
