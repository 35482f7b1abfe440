// SPDX-License-Identifier: GPL-2.0

//! One established SMC-D connection: two ends, and a byte stream in each direction.
//!
//! Both ends run in this kernel, in process context, and meet in the memory of this object: no
//! device, no softirq, no message is between them (`net/smc/smc_{tx,rx,cdc,close}.c`).
//!
//! # Invariants
//!
//! 1. A direction's stream lies in a chain of rings. The sender appends a ring, the reader takes
//!    the drained ones away; where one ring ends the next one begins, and the end is written
//!    before any byte behind it is published.
//! 2. What is between the reader's position and the sender's may only be read, the rest of the
//!    rings in the chain may only be written, each by the one task that holds `rx` or `tx`.
//! 3. Flags are only added. What a flag means is decided in the same atomic step that adds it:
//!    no byte is published behind an end of stream, and a close knows whether data was unread.
//! 4. A sender that reports [`Channel::block`](crate::cdc::Channel::block) without room is woken
//!    when there is room by the rule of
//!    [`is_writeable`](crate::cdc::cursor::is_writeable), at the latest when everything is read.
//! 5. Memory is charged to an end before its ring is appended, noted in the ring, and uncharged by
//!    whoever gives up the last reference to the ring. An end's socket outlives its charges.
//! 6. There is a place for one ring of each direction as long as the connection lives; a ring that is
//!    appended to another one has a place of its own, which is noted in it.
//! 7. An end dies once: its error is set at most once, whoever of the two ends, the network or a
//!    system call notices first.
//!
//! # Locks
//!
//! In this order; none is held while sleeping for the peer, a signal or time.
//!
//! 1. `Direction::tx`, `Direction::rx` (mutexes): held over copies from and to user memory, so
//!    nobody who must not wait for a stalled copy takes them. Shutdown, the peer's close and death
//!    do not. Whoever holds `rx` may try `tx`, not wait for it.
//! 2. `End::account` (mutex): one charge or uncharge of that end's socket.
//! 3. `Direction::chain` (spinlock, process context): the list of rings; nothing is allocated or
//!    freed under it.
//! 4. `Urgent::marks` (spinlock, process context): the urgent mark; see [`urgent`].
//! 5. `End::fate` (spinlock, bottom halves off): whether the end has died; and `End::herald`
//!    (likewise): whom to tell before the end has a socket. Neither is held while the other is taken.
//!
//! `Connection::parting` (mutex) is taken alone, by an end that has closed; see [`parting`].
//!
//! Wake-ups are called with at most a `tx` or `rx` held. The wake-up of an end never takes any
//! lock of this room.
//!
//! # Contexts
//!
//! [`Endpoint::abort`] and the lock-free questions ([`Endpoint::readable`], `explains_*`, ...) run
//! in softirq too; everything else runs in process context, and so does the drop of the last
//! reference to a connection or an endpoint.

#![deny(unsafe_code)]

mod chain;
pub(crate) mod close;
mod end;
mod endpoint;
pub(crate) mod idle;
#[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
mod kunit;
mod parting;
mod rx;
mod tx;
mod urgent;

pub(crate) use self::{
    end::Side,
    endpoint::{
        DirectionInfo,
        Endpoint,
        Info, //
    }, //
};

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Full,
            Relaxed, //
        },
        new_mutex,
        Arc,
        Mutex, //
    }, //
};

use self::{
    chain::{
        Direction,
        Payer, //
    },
    close::{
        Closed,
        PollView, //
    },
    end::End,
    parting::Parting, //
};
use crate::{
    bufpool::{
        self,
        quota::{
            Reservation,
            User, //
        },
        RingRef, //
    },
    cdc::cursor::Flags,
    kapi::sock::Sk,
    lgr::LinkGroup, //
};

/// A connection.
///
/// # Invariants
///
/// Whoever has it got it from an [`Endpoint`]. There was one for each side, and each closes its end
/// when it goes, so a connection that goes itself is closed and has no rings.
#[pin_data]
struct Connection {
    group: Arc<LinkGroup>,
    #[pin]
    from_client: Direction,
    #[pin]
    from_server: Direction,
    #[pin]
    client: End,
    #[pin]
    server: End,
    #[pin]
    parting: Mutex<Parting>,
    /// The places of the rings; free after the last ring.
    places: Reservation,
}

impl Connection {
    /// A connection in this group that `user` answers for. It has no ring before the first byte is
    /// sent, but places for them.
    ///
    /// Errors and context: [`Endpoint::pair`].
    fn new(group: Arc<LinkGroup>, user: User) -> Result<Arc<Self>> {
        let places = group.reserve(user)?;
        Arc::pin_init(
            pin_init!(Self {
                group,
                from_client <- Direction::new(),
                from_server <- Direction::new(),
                client <- End::new(),
                server <- End::new(),
                parting <- new_mutex!(Parting::Together, "Connection::parting"),
                places,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    #[inline]
    fn end(&self, side: Side) -> &End {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// The direction that `side` writes.
    #[inline]
    fn outgoing(&self, side: Side) -> &Direction {
        match side {
            Side::Client => &self.from_client,
            Side::Server => &self.from_server,
        }
    }

    /// The direction that `side` reads.
    #[inline]
    fn incoming(&self, side: Side) -> &Direction {
        self.outgoing(side.peer())
    }

    /// Gives up a reference to a ring of the direction that `sender` writes.
    fn release(&self, sender: Side, ring: RingRef) {
        let Some(ring) = bufpool::last(ring) else {
            return;
        };
        let payer = Payer::of(&ring);
        let bytes = ring.size();
        let has_place = chain::has_place(&ring);
        self.group.put(ring);
        if has_place {
            self.places.shrink();
        }
        self.uncharge(sender, payer, bytes);
    }

    fn uncharge(&self, sender: Side, payer: Payer, bytes: usize) {
        match payer {
            Payer::Nobody => {}
            Payer::Sender => self.end(sender).uncharge(bytes),
            Payer::Reader => self.end(sender.peer()).uncharge(bytes),
        }
    }

    /// Lets `side` die of what its control words say, if they say that it is dead. Afterwards the
    /// error is in its socket, or has been taken from there.
    fn settle(&self, side: Side) {
        let incoming = self.incoming(side).channel.observe();
        let outgoing = self.outgoing(side).channel.observe();
        if incoming.raise(outgoing.flags()).has(Flags::TX_ABORT) {
            self.end(side).die(close::reset_error(incoming));
        }
    }

    fn abort(&self, side: Side, err: Error) {
        // The errors first: who sees the flags finds them.
        self.end(side).die(err);
        let reset = close::reset_error(self.outgoing(side).channel.observe());
        self.end(side.peer()).die(reset);
        for side in [Side::Client, Side::Server] {
            self.outgoing(side).channel.raise(|_| Flags::TX_ABORT);
        }
        for side in [Side::Client, Side::Server] {
            self.end(side).wake();
        }
    }

    fn close(&self, side: Side, reset: bool) -> Closed {
        let incoming = self.incoming(side);
        let outgoing = self.outgoing(side);
        let end = self.end(side);
        if end.closed.xchg(true, Full) {
            return close::outcome(incoming.channel.observe(), Flags::NONE);
        }
        end.retire();

        let consumed = incoming.channel.consumed();
        let sent = outgoing.channel.observe();
        let mut flags = Flags::NONE;
        let before = incoming.channel.raise(|word| {
            flags = if close::is_over(word, sent) {
                Flags::RX_CLOSED
            } else {
                close::reader_closes(word, consumed, reset)
            };
            flags
        });
        let closed = close::outcome(before, flags);
        let peer = self.end(side.peer());
        if closed == Closed::Reset {
            peer.die(close::reset_error(outgoing.channel.observe()));
        }
        let before = outgoing.channel.raise(|_| close::writer_closes(closed));
        match closed {
            // The peer was told when this end shut down; TCP has nothing more to send.
            Closed::Clean if before.has(Flags::TX_SHUT) => {}
            Closed::Clean => peer.wake_for_end(),
            Closed::Reset => peer.wake(),
        }

        self.drop_reader(side);
        self.drop_writer(side);
        closed
    }

    /// Gives back the rings `side` reads from. A sender in the middle of a copy keeps the last one
    /// until it finds that nobody reads any more.
    fn drop_reader(&self, side: Side) {
        let incoming = self.incoming(side);
        let head = incoming.rx.lock().head.take();
        if let Some(ring) = head {
            self.release(side.peer(), ring);
        }
        loop {
            // A statement of its own: in the head of the loop the lock would be held throughout.
            let ring = incoming.chain.lock().close();
            let Some(ring) = ring else {
                break;
            };
            self.release(side.peer(), ring);
        }
        let tail = incoming.tx.try_lock().and_then(|mut tx| tx.tail.take());
        if let Some(ring) = tail {
            self.release(side.peer(), ring);
        }
    }

    /// Gives up the ring `side` writes to; what is unread stays with the reader.
    fn drop_writer(&self, side: Side) {
        let tail = self.outgoing(side).tx.lock().tail.take();
        if let Some(ring) = tail {
            self.release(side, ring);
        }
    }

    fn attach(&self, side: Side, sk: ARef<Sk>) {
        self.end(side).take(sk);
        // The sender has paid for what it sent so far.
        let incoming = self.incoming(side);
        let bytes = incoming.chain.lock().paid_by_sender();
        if bytes == 0 || !self.end(side).charge(bytes) {
            return;
        }
        let moved = incoming.chain.lock().make_reader_pay(bytes);
        self.end(side.peer()).uncharge(moved);
        if moved < bytes {
            self.end(side).uncharge(bytes - moved);
        }
    }

    fn poll_mask(&self, side: Side, sk: &Sk) -> u32 {
        let incoming = self.incoming(side);
        let outgoing = self.outgoing(side);
        let mut view = PollView {
            incoming: incoming.channel.observe(),
            outgoing: outgoing.channel.observe(),
            shut_rd: sk.shutdown_mask().rcv(),
            readable: false,
            writeable: outgoing.is_writeable(),
            urgent: false,
            error: false,
        };
        let (unread, urgent) = incoming.unread_and_urgent();
        // The urgent byte itself is not worth waking up for.
        let passed = urgent.lost + usize::from(urgent.is_at_mark() && !sk.oob_inline());
        let unread = unread.saturating_sub(passed);
        view.urgent = urgent.pending;
        view.readable = unread > 0
            // A sender without room sends no more, however much the reader wants at once.
            && (unread >= sk.rcvlowat(false, usize::MAX) || incoming.channel.is_blocked());
        if !view.is_shut_wr() && !view.writeable {
            // In this order: who sees that the sender is blocked wakes those who said so.
            sk.set_nospace();
            outgoing.channel.block();
            view.writeable = outgoing.is_writeable();
        }
        if view.is_dead() {
            self.settle(side);
        }
        // Last: whoever sets flags has set the error before.
        view.error = sk.has_err();
        view.mask()
    }

    fn info(&self, side: Side) -> Info {
        let incoming = self.incoming(side).info();
        let outgoing = self.outgoing(side).info();
        Info {
            group: self.group.id(),
            rx: incoming,
            tx: outgoing,
            closed: self.end(side).closed.load(Relaxed),
            peer_closed: self.end(side.peer()).closed.load(Relaxed),
            charged: match self.end(side).account.try_lock() {
                Some(account) => *account,
                None => 0,
            },
        }
    }
}
