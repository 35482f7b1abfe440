// SPDX-License-Identifier: GPL-2.0

//! Receiving: from the rings of a direction into an [`IovIterDest`].
//!
//! Follows `tcp_recvmsg_locked()`: what is returned, which error comes first, when it waits.

#![deny(unsafe_code)]

use kernel::{
    iov::IovIterDest,
    prelude::*,
    processor::cpu_relax,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    close::{
        self,
        ReadEnd, //
    },
    urgent::Next,
    Connection,
    Side, //
};
use crate::{
    bufpool::RingRef,
    cdc::cursor::{
        Control,
        Flags,
        Position, //
    },
    kapi::{
        msg,
        sched::cpu_is_wanted,
        sock::Sk,
        sync::lock_killable,
        wait::{
            self,
            signal_error,
            Timeout, //
        }, //
    }, //
};

/// The most bytes that are given back at once, so that a sender can go on while a large message is
/// read.
const CHUNK: usize = 64 << 10;

/// The size of the largest ring that stays with a connection when everything has been read.
const KEEP: usize = 256 << 10;

/// What a receiver may ask for that is not just to take what is there.
const ODD: msg::Flags = msg::Flags::PEEK
    .with(msg::Flags::TRUNC)
    .with(msg::Flags::WAITALL);

/// What ends the wait for more.
const ENDED: Flags = Flags::TX_SHUT.with(Flags::TX_ABORT).with(Flags::RX_CLOSED);

/// What the reader of a direction keeps for itself.
pub(super) struct Rx {
    /// The first ring of the chain.
    pub(super) head: Option<RingRef>,
    /// The reader's position.
    consumed: Position,
}

impl Rx {
    pub(super) const fn new() -> Self {
        Self {
            head: None,
            consumed: Position::START,
        }
    }

    /// The reader's position.
    pub(super) fn consumed(&self) -> Position {
        self.consumed
    }
}

/// Why pulling stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    /// All that was asked for is there, or what is there ends at urgent data.
    Done,
    /// There is no more, and this is behind the last byte.
    Dry(ReadEnd),
    /// The caller's memory cannot be written.
    Fault,
    /// A signal is pending, and urgent data comes next.
    Interrupted,
}

/// One call of `recvmsg()`.
struct Request<'a> {
    side: Side,
    sk: &'a Sk,
    len: usize,
    /// How many bytes are worth returning.
    target: usize,
    flags: msg::Flags,
    /// How many bytes there are so far.
    got: usize,
    /// How many bytes behind what was read a peek begins.
    offset: usize,
    /// The next byte of a peek that has begun.
    next: Option<Position>,
}

impl<'a> Request<'a> {
    fn new(side: Side, sk: &'a Sk, len: usize, flags: msg::Flags) -> Self {
        Self {
            side,
            sk,
            len,
            target: sk.rcvlowat(flags.contains(msg::Flags::WAITALL), len).max(1),
            flags,
            got: 0,
            offset: sk.peek_off().unwrap_or(0),
            next: None,
        }
    }
}

impl Connection {
    /// Waits until there is something to receive, of whatever kind, and says how many of `len`
    /// bytes a splice may receive: not those behind the urgent mark, which it does not pass.
    ///
    /// Errors and context: [`super::Endpoint::spliceable`].
    pub(super) fn spliceable(
        &self,
        side: Side,
        sk: &Sk,
        len: usize,
        mut timeout: Timeout,
    ) -> Result<usize> {
        while let (Some(word), false) = (self.empty_word(side), timeout.expired()) {
            if !self.is_unchanged(side, sk, word) {
                break;
            }
            timeout = self.await_change(side, sk, word, timeout);
        }
        let direction = self.incoming(side);
        let (unread, urgent) = direction.unread_and_urgent();
        match urgent.before_mark(unread) {
            None => Ok(len),
            Some(0) => {
                let word = direction.channel.observe();
                if close::read_end(word) == ReadEnd::Eof {
                    return Ok(0);
                }
                sk.take_err()?;
                if sk.shutdown_mask().rcv() || !timeout.expired() {
                    Ok(0)
                } else {
                    Err(EAGAIN)
                }
            }
            Some(before) => Ok(before.min(len)),
        }
    }

    /// Receives up to `len` bytes.
    ///
    /// Errors and context: [`super::Endpoint::recv`].
    #[inline(always)]
    pub(super) fn recv(
        &self,
        side: Side,
        sk: &Sk,
        to: &mut IovIterDest<'_>,
        len: usize,
        flags: msg::Flags,
    ) -> Result<usize> {
        let mut timeout = sk.rcvtimeo(flags.contains(msg::Flags::DONTWAIT));
        if !flags.intersects(ODD) && sk.takes_any() {
            // Who asks before the peer has answered needs no lock to find nothing.
            let empty = self.empty_word(side);
            if let (Some(word), false) = (empty, timeout.expired()) {
                timeout = self.await_change(side, sk, word, timeout);
            }
            if empty.is_none() || !timeout.expired() {
                if let Some(result) = self.pull_whole(side, sk, to, len) {
                    return result;
                }
            }
        }
        self.recv_more(side, sk, to, len, flags, timeout)
    }

    /// The word of the direction `side` reads, if there is nothing to read and that is not the end
    /// of it.
    #[inline]
    fn empty_word(&self, side: Side) -> Option<Control> {
        let channel = &self.incoming(side).channel;
        let consumed = channel.consumed();
        let word = channel.observe();
        (word.position() == consumed && !word.has(ENDED)).then_some(word)
    }

    /// Waits until the word of the direction `side` reads is not `seen` any more, something else
    /// happens to the socket, or there is no time left, which is said. Perhaps it returns before
    /// any of these.
    ///
    /// `seen` is what the caller saw before it looked and found a reason to wait.
    #[inline(never)]
    fn await_change(&self, side: Side, sk: &Sk, seen: Control, timeout: Timeout) -> Timeout {
        let budget = sk.ll_usec();
        if budget > 0 {
            self.spin(side, sk, seen, Delta::from_micros(i64::from(budget)));
        }
        sk.set_sleeps_for_data(true);
        let left = wait::sleep_while(sk, timeout, || self.is_unchanged(side, sk, seen));
        sk.set_sleeps_for_data(false);
        left
    }

    /// Takes what there is out of the stream when nothing is out of the ordinary.
    ///
    /// Nothing otherwise, for [`Self::pull`] to go on: it knows all cases.
    #[inline(always)]
    fn pull_whole(
        &self,
        side: Side,
        sk: &Sk,
        to: &mut IovIterDest<'_>,
        len: usize,
    ) -> Option<Result<usize>> {
        let direction = self.incoming(side);
        let mut rx = lock_killable(&direction.rx).ok()?;
        let word = direction.channel.observe();
        let unread = word.unread(rx.consumed)?;
        let head = rx.head.as_ref()?;
        let len = len.min(unread);
        if len == 0
            || len > CHUNK
            || word.has(Flags::RX_CLOSED)
            || direction.urgent.is_marked()
            || head.sealed().is_some()
            || (len == unread && head.size() > KEEP)
        {
            return None;
        }
        let copied = head.drain(rx.consumed, len, to).ok()?;
        if copied == 0 {
            return Some(Err(EFAULT));
        }
        sk.unpeeked(copied);
        self.pass(side, &mut rx, copied);
        Some(Ok(copied))
    }

    /// Receives when something is out of the ordinary: nothing is there, not enough, or not all of
    /// it is for this reader.
    #[inline(never)]
    fn recv_more(
        &self,
        side: Side,
        sk: &Sk,
        to: &mut IovIterDest<'_>,
        len: usize,
        flags: msg::Flags,
        mut timeout: Timeout,
    ) -> Result<usize> {
        let mut request = Request::new(side, sk, len, flags);
        loop {
            let seen = self.incoming(side).channel.observe();
            if let Some(result) = self.attempt(&mut request, to, timeout) {
                return result;
            }
            timeout = self.await_change(side, sk, seen, timeout);
        }
    }

    /// Whether an attempt would find what one found that began with `seen`.
    #[inline]
    fn is_unchanged(&self, side: Side, sk: &Sk, seen: Control) -> bool {
        self.incoming(side).channel.observe() == seen
            && !sk.has_err()
            && !sk.shutdown_mask().rcv()
            && signal_error(Timeout::FOREVER).is_none()
    }

    /// Waits for a change without sleeping, as long as nobody else wants this processor and for
    /// the time `SO_BUSY_POLL` allows.
    #[cold]
    fn spin(&self, side: Side, sk: &Sk, seen: Control, budget: Delta) {
        let start = Instant::<Monotonic>::now();
        while self.is_unchanged(side, sk, seen) && !cpu_is_wanted() && start.elapsed() < budget {
            cpu_relax();
        }
    }

    /// Receives what is there; nothing when the caller is to wait for more.
    fn attempt(
        &self,
        request: &mut Request<'_>,
        to: &mut IovIterDest<'_>,
        timeout: Timeout,
    ) -> Option<Result<usize>> {
        let stop = if request.flags.contains(msg::Flags::PEEK) {
            self.peek(request, to)
        } else {
            self.pull(request, to)
        };
        let end = match stop {
            Ok(Stop::Dry(end)) if request.got < request.target => end,
            Ok(Stop::Fault) if request.got == 0 => return Some(Err(EFAULT)),
            Ok(Stop::Interrupted) if timeout.expired() => return Some(Err(EAGAIN)),
            Ok(Stop::Interrupted) => return signal_error(timeout).map(Err),
            Err(err) if request.got == 0 => return Some(Err(err)),
            _ => return Some(Ok(request.got)),
        };

        if end == ReadEnd::Eof {
            return Some(Ok(request.got));
        }
        if end == ReadEnd::Aborted {
            self.settle(request.side);
        }
        let sk = request.sk;
        if request.got > 0 {
            let stop = timeout.expired()
                || end == ReadEnd::Aborted
                || sk.has_err()
                || sk.shutdown_mask().rcv()
                || signal_error(timeout).is_some();
            return stop.then_some(Ok(request.got));
        }
        if let Err(err) = sk.take_err() {
            return Some(Err(err));
        }
        if end == ReadEnd::Aborted || sk.shutdown_mask().rcv() {
            return Some(Ok(0));
        }
        if timeout.expired() {
            return Some(Err(EAGAIN));
        }
        signal_error(timeout).map(Err)
    }

    /// Takes bytes out of the stream.
    ///
    /// # Errors
    ///
    /// - `EINTR` - a fatal signal is pending.
    /// - `EPIPE` - the socket was disconnected meanwhile.
    /// - `EIO` - the positions do not belong together, or a ring is missing.
    fn pull(&self, request: &mut Request<'_>, to: &mut IovIterDest<'_>) -> Result<Stop> {
        let direction = self.incoming(request.side);
        let mut rx = lock_killable(&direction.rx)?;
        loop {
            let word = direction.channel.observe();
            if word.has(Flags::RX_CLOSED) {
                return Err(EPIPE);
            }
            let unread = word.unread(rx.consumed).ok_or(EIO)?;
            let next = direction
                .urgent
                .next(rx.consumed, rx.consumed, request.got, request.sk);
            let most = match next {
                Next::Bytes(most) => most,
                Next::Skip(len) if unread > 0 => {
                    self.pass(request.side, &mut rx, len.min(unread));
                    continue;
                }
                Next::Skip(_) => 0,
                Next::Stop => return Ok(Stop::Done),
                Next::Interrupted => return Ok(Stop::Interrupted),
            };
            if unread == 0 {
                return Ok(Stop::Dry(close::read_end(word)));
            }
            if request.got >= request.len {
                return Ok(Stop::Done);
            }
            let (there, is_sealed) = self.first_ring(request.side, &mut rx, unread)?;
            let head = rx.head.as_ref().ok_or(EIO)?;
            let is_large = head.size() > KEEP;
            let len = there.min(request.len - request.got).min(CHUNK).min(most);
            let copied = if request.flags.contains(msg::Flags::TRUNC) {
                len
            } else {
                head.drain(rx.consumed, len, to)?
            };
            if copied > 0 {
                request.got += copied;
                request.sk.unpeeked(copied);
                self.pass(request.side, &mut rx, copied);
            }
            if copied < len {
                return Ok(Stop::Fault);
            }
            if copied == unread {
                // Nothing is left; what was only needed for much need not stay, unless the
                // application has asked for as much.
                if is_large && !request.sk.rcvbuf_locked() {
                    self.drop_idle(request.side, &mut rx);
                } else if is_sealed {
                    self.drop_drained(request.side, &mut rx);
                }
                if request.got >= request.target {
                    return Ok(Stop::Done);
                }
            }
        }
    }

    /// Takes `len` bytes out of the stream, whoever got them.
    #[inline(always)]
    fn pass(&self, side: Side, rx: &mut Rx, len: usize) {
        rx.consumed = rx.consumed.advance(len);
        if self.incoming(side).channel.consume(rx.consumed) {
            self.offer_room(side);
        }
    }

    /// Makes `rx.head` the ring with the next byte; says how many of the `unread` ones are there,
    /// and whether the stream goes on in another ring.
    ///
    /// # Errors
    ///
    /// - `EIO` - there is no such ring.
    #[inline]
    fn first_ring(&self, side: Side, rx: &mut Rx, unread: usize) -> Result<(usize, bool)> {
        loop {
            if let Some(head) = &rx.head {
                let Some(end) = head.sealed() else {
                    return Ok((unread, false));
                };
                let there = end.checked_since(rx.consumed).ok_or(EIO)?;
                if there > 0 {
                    return Ok((there.min(unread), true));
                }
                self.drop_drained(side, rx);
            }
            rx.head = self.incoming(side).chain.lock().first();
            if rx.head.is_none() {
                return Err(EIO);
            }
        }
    }

    /// Gives back the first ring if the stream goes on in another one from here.
    #[cold]
    fn drop_drained(&self, side: Side, rx: &mut Rx) {
        let sealed = rx.head.as_ref().and_then(|head| head.sealed());
        if sealed != Some(rx.consumed) {
            return;
        }
        let first = self.incoming(side).chain.lock().remove_first();
        for ring in [rx.head.take(), first].into_iter().flatten() {
            self.release(side.peer(), ring);
        }
    }

    /// Gives back the only ring, from which everything has been read, unless it is being written to
    /// or the stream goes on elsewhere. The next send begins with a small one.
    #[cold]
    pub(super) fn drop_idle(&self, side: Side, rx: &mut Rx) {
        self.drop_drained(side, rx);
        let direction = self.incoming(side);
        // Only tried: the sender may hold it as long as it likes.
        let Some(mut tx) = direction.tx.try_lock() else {
            return;
        };
        let is_only_one = match (&rx.head, &tx.tail) {
            (Some(head), Some(tail)) => Arc::ptr_eq(head, tail),
            _ => false,
        };
        // Neither position moves while both locks are held.
        if !is_only_one || direction.channel.observe().position() != rx.consumed {
            return;
        }
        let tail = tx.tail.take();
        let first = direction.chain.lock().remove_first();
        drop(tx);
        for ring in [rx.head.take(), tail, first].into_iter().flatten() {
            self.release(side.peer(), ring);
        }
    }

    /// Wakes the sender, which waits, if there is enough room by now.
    #[cold]
    fn offer_room(&self, side: Side) {
        let direction = self.incoming(side);
        if direction.is_writeable() {
            direction.channel.unblock();
            if let Some(sender) = self.end(side.peer()).sk() {
                sender.write_space();
            }
        }
    }

    /// Copies bytes and leaves them in the stream.
    ///
    /// # Errors
    ///
    /// As [`Self::pull`].
    fn peek(&self, request: &mut Request<'_>, to: &mut IovIterDest<'_>) -> Result<Stop> {
        let direction = self.incoming(request.side);
        let rx = lock_killable(&direction.rx)?;
        loop {
            let word = direction.channel.observe();
            if word.has(Flags::RX_CLOSED) {
                return Err(EPIPE);
            }
            let unread = word.unread(rx.consumed).ok_or(EIO)?;
            // Somebody may have read what was peeked at, while this one waited.
            let distance = request
                .next
                .and_then(|next| next.checked_since(rx.consumed))
                .filter(|&distance| distance <= unread)
                .unwrap_or(request.offset);
            let at = rx.consumed.advance(distance);
            let next = direction
                .urgent
                .next(at, rx.consumed, request.got, request.sk);
            let most = match next {
                Next::Bytes(most) => most,
                Next::Skip(len) if distance < unread => {
                    request.next = Some(at.advance(len.min(unread - distance)));
                    continue;
                }
                Next::Skip(_) => 0,
                Next::Stop => return Ok(Stop::Done),
                Next::Interrupted => return Ok(Stop::Interrupted),
            };
            if distance >= unread {
                return Ok(Stop::Dry(close::read_end(word)));
            }
            if request.got >= request.len {
                return Ok(Stop::Done);
            }
            let found = direction.chain.lock().find(rx.consumed, distance);
            let (ring, there) = found.ok_or(EIO)?;
            let len = there
                .min(unread - distance)
                .min(request.len - request.got)
                .min(most);
            let copied = if request.flags.contains(msg::Flags::TRUNC) {
                Ok(len)
            } else {
                ring.drain(at, len, to)
            };
            self.release(request.side.peer(), ring);
            let copied = copied?;
            request.got += copied;
            request.sk.peeked(copied);
            request.next = Some(at.advance(copied));
            if copied < len {
                return Ok(Stop::Fault);
            }
        }
    }
}
