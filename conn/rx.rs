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
        Flags,
        Position, //
    },
    kapi::{
        msg,
        sched::cpu_is_wanted,
        sock::Sk,
        sync::lock_killable,
        wait::{
            signal_error,
            Timeout,
            Waiter, //
        }, //
    }, //
};

/// The most bytes that are given back at once, so that a sender can go on while a large message is
/// read.
const CHUNK: usize = 64 << 10;

/// The size of the largest ring that stays with a connection when everything has been read.
const KEEP: usize = 256 << 10;

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
        timeout: Timeout,
    ) -> Result<usize> {
        let request = Request::new(side, sk, len, msg::Flags::NONE);
        if !timeout.expired() && self.is_idle(&request) {
            self.await_any(&request, timeout);
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

    /// Waits until an attempt would find more than a reason to wait, or there is no time left.
    #[cold]
    fn await_any(&self, request: &Request<'_>, mut timeout: Timeout) {
        self.spin(request);
        pin_init::stack_pin_init!(let waiter = Waiter::new(request.sk));
        while self.is_idle(request) && !timeout.expired() {
            request.sk.set_sleeps_for_data(true);
            timeout = waiter.as_mut().wait(timeout);
            request.sk.set_sleeps_for_data(false);
        }
    }

    /// Receives up to `len` bytes.
    ///
    /// Errors and context: [`super::Endpoint::recv`].
    pub(super) fn recv(
        &self,
        side: Side,
        sk: &Sk,
        to: &mut IovIterDest<'_>,
        len: usize,
        flags: msg::Flags,
    ) -> Result<usize> {
        let mut request = Request::new(side, sk, len, flags);
        let timeout = sk.rcvtimeo(flags.contains(msg::Flags::DONTWAIT));
        // Who asks before the peer has answered needs no lock to find nothing.
        if timeout.expired() || !self.looks_empty(side) {
            if let Some(result) = self.attempt(&mut request, to, timeout) {
                return result;
            }
        }
        self.recv_waiting(&mut request, to, timeout)
    }

    /// Whether there was nothing to read a moment ago.
    #[inline]
    fn looks_empty(&self, side: Side) -> bool {
        let channel = &self.incoming(side).channel;
        channel.observe().position() == channel.consumed()
    }

    /// Goes on with nothing there, or not enough, as long as there is time.
    #[cold]
    fn recv_waiting(
        &self,
        request: &mut Request<'_>,
        to: &mut IovIterDest<'_>,
        mut timeout: Timeout,
    ) -> Result<usize> {
        if !timeout.expired() {
            self.spin(request);
        }
        pin_init::stack_pin_init!(let waiter = Waiter::new(request.sk));
        loop {
            // As a rule nothing came since the last attempt, and that is seen without a lock.
            if timeout.expired() || !self.is_idle(request) {
                if let Some(result) = self.attempt(request, to, timeout) {
                    return result;
                }
            }
            request.sk.set_sleeps_for_data(true);
            timeout = waiter.as_mut().wait(timeout);
            request.sk.set_sleeps_for_data(false);
        }
    }

    /// Whether an attempt would find nothing but a reason to wait.
    fn is_idle(&self, request: &Request<'_>) -> bool {
        let channel = &self.incoming(request.side).channel;
        let consumed = channel.consumed();
        let word = channel.observe();
        word.unread(consumed) == Some(0)
            && close::read_end(word) == ReadEnd::Open
            && !word.has(Flags::RX_CLOSED)
            && !request.sk.has_err()
            && !request.sk.shutdown_mask().rcv()
            && signal_error(Timeout::FOREVER).is_none()
    }

    /// Waits for the next message without sleeping, for the time `SO_BUSY_POLL` allows and as long
    /// as nobody else wants this processor.
    fn spin(&self, request: &Request<'_>) {
        let budget = Delta::from_micros(i64::from(request.sk.ll_usec()));
        if budget.is_zero() {
            return;
        }
        let start = Instant::<Monotonic>::now();
        while self.is_idle(request) && !cpu_is_wanted() && start.elapsed() < budget {
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
                    self.skip(request.side, &mut rx, len.min(unread));
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
                rx.consumed = rx.consumed.advance(copied);
                if direction.channel.consume(rx.consumed) {
                    self.offer_room(request.side);
                }
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

    /// Takes bytes out of the stream that nobody gets.
    #[cold]
    fn skip(&self, side: Side, rx: &mut Rx, len: usize) {
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
