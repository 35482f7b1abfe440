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
//!    when there is room by the rule of [`is_writeable`], at the latest when everything is read.
//! 5. Memory is charged to an end before its ring is appended, noted in the ring, and uncharged by
//!    whoever gives up the last reference to the ring. An end's socket outlives its charges.
//! 6. An end dies once: its error is set at most once, whoever of the two ends, the network or a
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
//! 4. `End::fate` (spinlock, bottom halves off): whether the end has died.
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
mod rx;
mod tx;

use kernel::{
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
        new_mutex,
        Arc,
        Mutex,
        SetOnce, //
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
    }, //
};
use crate::{
    bufpool::{
        self,
        RingRef, //
    },
    cdc::cursor::{
        is_writeable,
        Control,
        Cursor,
        Flags, //
    },
    dmb::Token,
    kapi::{
        msg,
        sock::{
            Shutdown,
            Sk, //
        },
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        }, //
    },
    lgr::LinkGroup, //
};

/// One of the two ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// The end that connected.
    Client,
    /// The end that was accepted.
    Server,
}

impl Side {
    /// The other end.
    pub(crate) fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Whether an end has died.
enum Fate {
    /// It has not.
    Alive,
    /// It has; the error is set, or waits for a socket to be set in.
    Dead(Option<Error>),
}

/// One end of a connection.
#[pin_data]
struct End {
    /// The socket, from the moment it takes this end until the connection is gone.
    sk: SetOnce<ARef<Sk>>,
    #[pin]
    fate: SpinLockBh<Fate>,
    /// The bytes charged to the socket.
    #[pin]
    account: Mutex<usize>,
    closed: Atomic<bool>,
}

impl End {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            sk: SetOnce::new(),
            fate <- new_spinlock_bh!(Fate::Alive, "End::fate"),
            account <- new_mutex!(0, "End::account"),
            closed: Atomic::new(false),
        })
    }

    /// The socket that has taken this end.
    #[inline]
    fn sk(&self) -> Option<&Sk> {
        self.sk.as_ref().map(|sk| &**sk)
    }

    /// The socket that must be told of what was published just now, if there is one yet: who takes
    /// the end later sees what was published.
    #[inline]
    fn announced(&self) -> Option<&Sk> {
        self.sk().or_else(|| {
            // Publish before looking for whom to tell: pairs with the fence in `take()`.
            smp_mb(Full);
            self.sk()
        })
    }

    /// Lets the end die of `err`, unless it is dead; afterwards its socket has, or has had, the
    /// error.
    ///
    /// # Context
    ///
    /// Process context and softirq.
    fn die(&self, err: Error) {
        let mut fate = self.fate.lock();
        if let Fate::Alive = *fate {
            *fate = Fate::Dead(match self.sk() {
                Some(sk) => {
                    sk.set_err(err);
                    None
                }
                None => Some(err),
            });
        }
    }

    /// Gives the end to `sk`; nothing when somebody has it.
    fn take(&self, sk: ARef<Sk>) {
        if !self.sk.populate(sk) {
            return;
        }
        // Be there before looking at what the peer did: pairs with the fence in `announced()`, and
        // with `Channel::raise()`, which is fully ordered.
        smp_mb(Full);
        let mut fate = self.fate.lock();
        if let (Fate::Dead(pending), Some(sk)) = (&mut *fate, self.sk()) {
            if let Some(err) = pending.take() {
                sk.set_err(err);
            }
        }
    }

    /// Charges `bytes` to the socket.
    fn charge(&self, bytes: usize) -> bool {
        let Some(sk) = self.sk() else {
            return false;
        };
        let mut account = self.account.lock();
        let charged = sk.charge(bytes);
        if charged {
            *account += bytes;
        }
        charged
    }

    /// Uncharges `bytes` that were charged.
    fn uncharge(&self, bytes: usize) {
        if let Some(sk) = self.sk() {
            let mut account = self.account.lock();
            sk.uncharge(bytes);
            *account -= bytes;
        }
    }

    /// Wakes everybody who waits at this end.
    fn wake(&self) {
        if let Some(sk) = self.sk() {
            sk.state_change();
        }
    }

    /// Wakes everybody who waits at this end, and tells whoever reads from a callback, that the
    /// stream has ended (`tcp_fin()` and, for the callback and `SIGIO`, `tcp_data_ready()`).
    fn wake_for_end(&self) {
        if let Some(sk) = self.sk() {
            sk.state_change();
            sk.data_ready();
        }
    }
}

/// A connection.
#[pin_data(PinnedDrop)]
pub(crate) struct Connection {
    group: Arc<LinkGroup>,
    #[pin]
    from_client: Direction,
    #[pin]
    from_server: Direction,
    #[pin]
    client: End,
    #[pin]
    server: End,
}

impl Connection {
    /// A connection in this group, whose ends belong to nobody yet. It has no ring before the
    /// first byte is sent.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn new(group: Arc<LinkGroup>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                group,
                from_client <- Direction::new(),
                from_server <- Direction::new(),
                client <- End::new(),
                server <- End::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// The end of this side, for whoever uses it or holds it for somebody.
    pub(crate) fn endpoint(self: &Arc<Self>, side: Side) -> Endpoint {
        Endpoint {
            conn: self.clone(),
            side,
        }
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
        self.group.put(ring);
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
        outgoing.channel.raise(|_| close::writer_closes(closed));
        match closed {
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
        // A statement of its own: in the head of the loop the lock would be held throughout.
        let rings = incoming.chain.lock().close();
        for ring in rings.into_iter().flatten() {
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
            error: false,
        };
        let unread = incoming.unread();
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

#[allow(unsafe_code)] // The trait is unsafe to implement but through this macro.
#[pinned_drop]
impl PinnedDrop for Connection {
    fn drop(self: Pin<&mut Self>) {
        // An end that never belonged to anybody.
        self.close(Side::Client, true);
        self.close(Side::Server, true);
    }
}

/// What tools show of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectionInfo {
    /// The DMB that is read from, if there is one.
    pub(crate) token: Option<Token>,
    /// The size of all rings, in bytes.
    pub(crate) size: usize,
    /// The word with the sender's position and the flags.
    pub(crate) control: Control,
    /// The sender's cursor in a ring of the size of the first.
    pub(crate) producer: Cursor,
    /// The reader's cursor, likewise.
    pub(crate) consumer: Cursor,
}

/// What tools show of one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    /// The number of the link group.
    pub(crate) group: u32,
    /// The direction this end reads.
    pub(crate) rx: DirectionInfo,
    /// The direction this end writes.
    pub(crate) tx: DirectionInfo,
    /// This end has been closed.
    pub(crate) closed: bool,
    /// The other end has been closed.
    pub(crate) peer_closed: bool,
    /// The bytes charged to this end's socket; 0 when they are being changed.
    #[cfg_attr(not(CONFIG_SMC_LO_KUNIT_TEST), expect(dead_code))]
    pub(crate) charged: usize,
}

/// An end of a connection, as its socket or whoever keeps it for a socket holds it.
///
/// There is one for each side. Dropped without [`Endpoint::close`], it resets the connection.
///
/// # Context
///
/// Dropped in process context.
pub(crate) struct Endpoint {
    conn: Arc<Connection>,
    side: Side,
}

impl Endpoint {
    /// Gives this end to `sk`: from now on wake-ups reach it, errors too, and it pays for what it
    /// has been sent.
    ///
    /// # Context
    ///
    /// Process context, before `sk` is visible to the application or while no other call on it
    /// uses this end.
    pub(crate) fn attach(&self, sk: ARef<Sk>) {
        self.conn.attach(self.side, sk);
    }

    /// Sends what `from` yields, as `tcp_sendmsg()` does; says how many bytes.
    ///
    /// # Errors
    ///
    /// - `EPIPE` - this end is shut down or the peer is gone; the caller raises `SIGPIPE`.
    /// - `ECONNRESET` - the connection was reset, or whatever else it died of; reported once.
    /// - `EAGAIN` - no room, and no time to wait.
    /// - `EFAULT` - the caller's memory cannot be read.
    /// - `ERESTARTSYS`, `EINTR` - a signal is pending.
    ///
    /// # Context
    ///
    /// Process context, may sleep; no lock is held.
    pub(crate) fn send(
        &self,
        sk: &Sk,
        from: &mut IovIterSource<'_>,
        flags: msg::Flags,
    ) -> Result<usize> {
        self.conn.send(self.side, sk, from, flags)
    }

    /// Receives up to `len` bytes into `to`, as `tcp_recvmsg()` does; says how many, 0 at the end
    /// of the stream.
    ///
    /// # Errors
    ///
    /// - `ECONNRESET` - the connection was reset, or whatever else it died of; reported once.
    /// - `EAGAIN` - nothing there, and no time to wait.
    /// - `EFAULT` - the caller's memory cannot be written.
    /// - `EINVAL` - urgent data was asked for.
    /// - `ERESTARTSYS`, `EINTR` - a signal is pending.
    ///
    /// # Context
    ///
    /// Process context, may sleep; no lock but a pipe's is held.
    pub(crate) fn recv(
        &self,
        sk: &Sk,
        to: &mut IovIterDest<'_>,
        len: usize,
        flags: msg::Flags,
    ) -> Result<usize> {
        self.conn.recv(self.side, sk, to, len, flags)
    }

    /// The events of this end, as `tcp_poll()` gives them.
    ///
    /// # Context
    ///
    /// Process context. The caller has queued itself on the socket's wait queue before.
    pub(crate) fn poll_mask(&self, sk: &Sk) -> u32 {
        self.conn.poll_mask(self.side, sk)
    }

    /// Shuts down directions of this end.
    ///
    /// Reading ends at this socket alone; what the peer sends still arrives, as with TCP.
    ///
    /// # Context
    ///
    /// Process context, without the socket lock of `sk`.
    pub(crate) fn shutdown(&self, sk: &Sk, how: Shutdown) {
        if how.send() {
            self.conn
                .outgoing(self.side)
                .channel
                .raise(|_| Flags::TX_SHUT);
        }
        sk.add_shutdown(how);
        let refuses = sk.shutdown_mask().both();
        if refuses {
            self.conn
                .incoming(self.side)
                .channel
                .raise(|_| Flags::RX_REFUSED);
        }
        let peer = self.conn.end(self.side.peer());
        if how.send() {
            peer.wake_for_end();
        } else if refuses {
            // It may be waiting for room that nobody makes any more.
            peer.wake();
        }
        self.conn.end(self.side).wake();
    }

    /// Closes this end, with a reset if `reset` asks for it or data is left unread.
    ///
    /// # Context
    ///
    /// Process context, may sleep. No other call on this end is running.
    pub(crate) fn close(&self, reset: bool) -> Closed {
        self.conn.close(self.side, reset)
    }

    /// Lets this end die of `err`, and the other one of a reset; what has been received stays
    /// readable.
    ///
    /// # Context
    ///
    /// Process context and softirq.
    pub(crate) fn abort(&self, err: Error) {
        self.conn.abort(self.side, err);
    }

    /// Whether the peer has closed its end.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn peer_closed(&self) -> bool {
        self.outgoing_word().has(Flags::RX_CLOSED)
    }

    /// Whether the peer's end has done what makes TCP send FIN.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn explains_fin(&self) -> bool {
        self.peer_closed()
            || self
                .incoming_word()
                .has(Flags::TX_SHUT.with(Flags::TX_ABORT))
    }

    /// Whether the connection was reset, by whomever (TCP_CLOSE).
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn is_dead(&self) -> bool {
        self.outgoing_word().has(Flags::TX_ABORT) || self.incoming_word().has(Flags::TX_ABORT)
    }

    /// Whether the peer's end has done what makes TCP send RST.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn explains_rst(&self) -> bool {
        self.peer_closed() || self.is_dead()
    }

    /// How many bytes could be read now (`FIONREAD`).
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn readable(&self) -> usize {
        self.conn.incoming(self.side).unread()
    }

    /// What tools show.
    ///
    /// # Context
    ///
    /// Process context. Waits for no copy.
    pub(crate) fn info(&self) -> Info {
        self.conn.info(self.side)
    }

    fn incoming_word(&self) -> Control {
        self.conn.incoming(self.side).channel.observe()
    }

    fn outgoing_word(&self) -> Control {
        self.conn.outgoing(self.side).channel.observe()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.conn.close(self.side, true);
    }
}

#[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
#[kernel::macros::kunit_tests(smc_lo_conn)]
mod tests {
    use super::*;
    use crate::{
        bufpool::size::Class,
        clc::eid::Eid,
        dmb::Device,
        kapi::fixture::{
            with_dest,
            with_source,
            TestSocket, //
        },
        lgr, //
    };
    use kernel::{
        sync::Completion,
        workqueue, //
    };

    const DONTWAIT: msg::Flags = msg::Flags::DONTWAIT;

    /// A connection with a socket at each end.
    ///
    /// The fields drop in this order: ends, sockets, rings.
    struct Fixture {
        client: Endpoint,
        server: Endpoint,
        a: TestSocket,
        b: TestSocket,
        groups: lgr::Registration,
    }

    impl Fixture {
        /// Both ends belong to their sockets.
        fn new() -> Result<Self> {
            let fixture = Self::unaccepted()?;
            fixture.server.attach(fixture.b.sk_ref());
            Ok(fixture)
        }

        /// The server's end belongs to nobody yet.
        fn unaccepted() -> Result<Self> {
            let device = Arc::pin_init(Device::new(64), GFP_KERNEL)?;
            let groups = lgr::Registration::new(lgr::Groups::new(device, 1 << 20)?)?;
            let conn = Connection::new(groups.get(1, 1, &Eid::DEFAULT)?)?;
            let fixture = Self {
                client: conn.endpoint(Side::Client),
                server: conn.endpoint(Side::Server),
                a: TestSocket::new()?,
                b: TestSocket::new()?,
                groups,
            };
            fixture.client.attach(fixture.a.sk_ref());
            Ok(fixture)
        }

        fn a_sends(&self, data: &[u8]) -> Result<usize> {
            send(&self.client, &self.a, data)
        }

        fn b_sends(&self, data: &[u8]) -> Result<usize> {
            send(&self.server, &self.b, data)
        }

        fn a_receives(&self, data: &mut [u8]) -> Result<usize> {
            recv(&self.client, &self.a, data, DONTWAIT)
        }

        fn b_receives(&self, data: &mut [u8]) -> Result<usize> {
            recv(&self.server, &self.b, data, DONTWAIT)
        }

        fn polls(&self, side: Side) -> u32 {
            match side {
                Side::Client => self.client.poll_mask(self.a.sk()),
                Side::Server => self.server.poll_mask(self.b.sk()),
            }
        }

        fn dmbs_in_use(&self) -> Result<usize> {
            let shared = self.groups.shared();
            Ok(usize::try_from(shared.device().dmbs())? - shared.idle_rings())
        }
    }

    const WAIT: msg::Flags = msg::Flags(0);

    /// Runs `work` in a task of its own; the completion says when it has ended.
    fn spawn(work: impl FnOnce() + Send + 'static) -> Result<Arc<Completion>> {
        let end = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let signal = end.clone();
        workqueue::system_unbound().try_spawn(GFP_KERNEL, move || {
            work();
            signal.complete_all();
        })?;
        Ok(end)
    }

    fn send(end: &Endpoint, socket: &TestSocket, data: &[u8]) -> Result<usize> {
        with_source(data, |from| end.send(socket.sk(), from, DONTWAIT))
    }

    fn recv(
        end: &Endpoint,
        socket: &TestSocket,
        data: &mut [u8],
        flags: msg::Flags,
    ) -> Result<usize> {
        let len = data.len();
        with_dest(data, |to| end.recv(socket.sk(), to, len, flags))
    }

    /// A call that does not wait and has this flag, too.
    fn with(flag: msg::Flags) -> msg::Flags {
        msg::Flags(DONTWAIT.0 | flag.0)
    }

    /// `len` bytes of a stream that begins with byte `at` of an endless pattern.
    fn pattern(at: usize, len: usize) -> Result<KVVec<u8>> {
        let mut bytes = KVVec::with_capacity(len, GFP_KERNEL)?;
        for place in at..at + len {
            let [low, mid, high, ..] = place.wrapping_mul(2_654_435_761).to_le_bytes();
            bytes.push(low ^ mid ^ high, GFP_KERNEL)?;
        }
        Ok(bytes)
    }

    #[test]
    fn bytes_arrive_at_every_offset_of_the_ring() -> Result {
        const LEN: usize = 5;
        let fixture = Fixture::new()?;
        // Five has no divisor in common with the size: each offset is met once.
        for round in 0..Class::FIRST.size() {
            let sent = pattern(round, LEN)?;
            assert_eq!(fixture.a_sends(&sent)?, LEN);
            let mut got = [0; 2 * LEN];
            assert_eq!(fixture.b_receives(&mut got)?, LEN);
            assert_eq!(got.get(..LEN), Some(&sent[..]));
        }
        assert_eq!(fixture.b_receives(&mut [0]), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn both_ends_write_two_megabytes_before_either_reads() -> Result {
        const LEN: usize = 2 << 20;
        let fixture = Fixture::new()?;
        let to_b = pattern(1, LEN)?;
        let to_a = pattern(2, LEN)?;
        assert_eq!(fixture.a_sends(&to_b)?, LEN);
        assert_eq!(fixture.b_sends(&to_a)?, LEN);
        assert!(fixture.client.info().tx.size > Class::FIRST.size());
        assert_eq!(fixture.server.readable(), LEN);
        let mut got = KVVec::from_elem(0, LEN, GFP_KERNEL)?;
        assert_eq!(fixture.b_receives(&mut got)?, LEN);
        assert!(got[..] == to_b[..]);
        assert_eq!(fixture.a_receives(&mut got)?, LEN);
        assert!(got[..] == to_a[..]);
        // What was needed for so much is gone, and the stream goes on.
        assert_eq!(fixture.dmbs_in_use()?, 0);
        assert_eq!(fixture.a_sends(b"x")?, 1);
        assert_eq!(fixture.b_receives(&mut got)?, 1);
        assert_eq!(fixture.server.info().rx.size, Class::FIRST.size());
        Ok(())
    }

    #[test]
    fn a_stream_survives_any_sizes_of_reads_and_writes() -> Result {
        let fixture = Fixture::new()?;
        let (mut written, mut read) = (0, 0);
        let mut size = 1;
        while read < 4 << 20 {
            size = (size * 7 + 3) % 50_000;
            let sent = fixture.a_sends(&pattern(written, size)?)?;
            assert_eq!(sent, size);
            written += sent;
            let mut got = KVVec::from_elem(0, (size * 5) % 60_000, GFP_KERNEL)?;
            match fixture.b_receives(&mut got) {
                Ok(len) => {
                    assert!(got.get(..len) == Some(&pattern(read, len)?[..]));
                    read += len;
                }
                Err(err) => assert_eq!(err, EAGAIN),
            }
        }
        Ok(())
    }

    #[test]
    fn the_chain_ends_at_the_limit_and_room_is_reported() -> Result {
        let fixture = Fixture::new()?;
        let data = KVVec::from_elem(0_u8, 1 << 20, GFP_KERNEL)?;
        let mut sent = 0;
        let err = loop {
            match fixture.a_sends(&data) {
                Ok(len) => sent += len,
                Err(err) => break err,
            }
        };
        assert_eq!(err, EAGAIN);
        let limit = fixture.a.sk().tcp_wmem_max() + fixture.b.sk().tcp_rmem_max();
        assert!(sent <= limit);
        assert!(sent >= limit / 2);
        assert_eq!(fixture.polls(Side::Client) & close::event::OUT, 0);
        let mut got = KVVec::from_elem(0_u8, sent, GFP_KERNEL)?;
        assert_eq!(fixture.b_receives(&mut got)?, sent);
        assert!(fixture.polls(Side::Client) & close::event::OUT != 0);
        assert_eq!(fixture.a_sends(&[1])?, 1);
        Ok(())
    }

    #[test]
    fn peeking_leaves_the_stream_as_it_is() -> Result {
        const LEN: usize = 100_000;
        let fixture = Fixture::new()?;
        let sent = pattern(0, LEN)?;
        fixture.a_sends(&sent)?;
        for _ in 0..2 {
            let mut got = KVVec::from_elem(0, LEN + 1, GFP_KERNEL)?;
            let flags = with(msg::Flags::PEEK);
            assert_eq!(recv(&fixture.server, &fixture.b, &mut got, flags)?, LEN);
            assert!(got.get(..LEN) == Some(&sent[..]));
        }
        // Bytes can be dropped uncopied.
        let flags = with(msg::Flags::TRUNC);
        let mut got = [0; 10];
        assert_eq!(recv(&fixture.server, &fixture.b, &mut got, flags)?, 10);
        assert_eq!(got, [0; 10]);
        assert_eq!(fixture.b_receives(&mut got)?, 10);
        assert_eq!(Some(&got[..]), sent.get(10..20));
        Ok(())
    }

    #[test]
    fn the_end_comes_with_the_last_byte() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"last")?;
        assert_eq!(fixture.client.close(false), Closed::Clean);
        assert!(fixture.server.explains_fin());
        assert!(fixture.server.peer_closed());
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 4);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        Ok(())
    }

    #[test]
    fn one_more_send_goes_to_an_end_that_closed() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"x")?;
        assert_eq!(fixture.b_receives(&mut [0; 1])?, 1);
        assert_eq!(fixture.server.close(false), Closed::Clean);
        assert_eq!(fixture.a_sends(b"nobody reads this")?, 17);
        assert_eq!(fixture.a_sends(b"nor this"), Err(EPIPE));
        assert_eq!(fixture.a_sends(b"nor this"), Err(EPIPE));
        // The peer had finished: its end of stream hides the error.
        assert_eq!(fixture.a_receives(&mut [0; 1])?, 0);
        assert_eq!(fixture.dmbs_in_use()?, 0);
        Ok(())
    }

    #[test]
    fn unread_data_at_close_is_a_reset() -> Result {
        let fixture = Fixture::new()?;
        fixture.b_sends(b"still to be read")?;
        fixture.a_sends(b"unread")?;
        assert_eq!(fixture.server.close(false), Closed::Reset);
        assert!(fixture.client.explains_rst());
        let all = close::event::IN | close::event::HUP | close::event::ERR;
        assert_eq!(fixture.polls(Side::Client) & all, all);
        // What has arrived is readable, then the error once, then the end.
        let mut got = [0; 32];
        assert_eq!(fixture.a_receives(&mut got)?, 16);
        assert_eq!(fixture.a_receives(&mut got), Err(ECONNRESET));
        assert_eq!(fixture.a_receives(&mut got)?, 0);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        Ok(())
    }

    #[test]
    fn linger_zero_and_a_dropped_end_are_resets() -> Result {
        let fixture = Fixture::new()?;
        assert_eq!(fixture.server.close(true), Closed::Reset);
        assert_eq!(fixture.a_sends(b"x"), Err(ECONNRESET));
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));

        let Fixture {
            client, server, a, ..
        } = Fixture::new()?;
        drop(server);
        assert_eq!(send(&client, &a, b"x"), Err(ECONNRESET));
        Ok(())
    }

    #[test]
    fn death_is_reported_once_at_each_end() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"before")?;
        fixture.client.abort(ETIMEDOUT);
        fixture.server.abort(ECONNRESET);
        assert_eq!(fixture.a_sends(b"x"), Err(ETIMEDOUT));
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 6);
        assert_eq!(fixture.b_receives(&mut got), Err(ECONNRESET));
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        Ok(())
    }

    #[test]
    fn shutdown_ends_one_direction() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"x")?;
        fixture.client.shutdown(fixture.a.sk(), Shutdown::SEND);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 1);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        assert_eq!(fixture.b_sends(b"back")?, 4);
        assert_eq!(fixture.a_receives(&mut got)?, 4);
        Ok(())
    }

    #[test]
    fn nobody_is_reset_when_both_ends_had_finished() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"unread")?;
        fixture.b_sends(b"read")?;
        fixture.client.shutdown(fixture.a.sk(), Shutdown::SEND);
        fixture.server.shutdown(fixture.b.sk(), Shutdown::SEND);
        assert_eq!(fixture.server.close(true), Closed::Clean);
        assert_eq!(fixture.polls(Side::Client) & close::event::ERR, 0);
        let mut got = [0; 8];
        assert_eq!(fixture.a_receives(&mut got)?, 4);
        assert_eq!(fixture.a_receives(&mut got)?, 0);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        Ok(())
    }

    #[test]
    fn sending_to_an_end_that_shut_down_both_directions_resets_both() -> Result {
        let fixture = Fixture::new()?;
        fixture.a_sends(b"kept")?;
        fixture.server.shutdown(fixture.b.sk(), Shutdown::RCV);
        assert_eq!(fixture.a_sends(b"too")?, 3);
        fixture.server.shutdown(fixture.b.sk(), Shutdown::SEND);
        assert_eq!(fixture.a_sends(b"dropped")?, 7);
        assert_eq!(fixture.a_sends(b"x"), Err(EPIPE));
        assert!(fixture.server.is_dead());
        assert_eq!(fixture.b_sends(b"x"), Err(ECONNRESET));
        let mut got = [0; 16];
        assert_eq!(fixture.b_receives(&mut got)?, 7);
        assert_eq!(fixture.b_receives(&mut got)?, 0);
        Ok(())
    }

    #[test]
    fn data_waits_for_whoever_accepts() -> Result {
        const LEN: usize = 200_000;
        let fixture = Fixture::unaccepted()?;
        let sent = pattern(3, LEN)?;
        assert_eq!(fixture.a_sends(&sent)?, LEN);
        let paid = fixture.client.info().charged;
        assert!(paid >= LEN);
        // Who accepts pays from now on.
        fixture.server.attach(fixture.b.sk_ref());
        assert_eq!(fixture.client.info().charged, 0);
        assert_eq!(fixture.server.info().charged, paid);
        let mut got = KVVec::from_elem(0, LEN, GFP_KERNEL)?;
        assert_eq!(fixture.b_receives(&mut got)?, LEN);
        assert!(got[..] == sent[..]);
        fixture.server.close(false);
        fixture.client.close(false);
        assert_eq!(fixture.server.info().charged, 0);
        Ok(())
    }

    #[test]
    fn a_reset_before_accept_is_seen_after_it() -> Result {
        let fixture = Fixture::unaccepted()?;
        fixture.a_sends(b"x")?;
        fixture.client.close(true);
        fixture.server.attach(fixture.b.sk_ref());
        let mut got = [0; 8];
        assert_eq!(fixture.b_receives(&mut got)?, 1);
        assert_eq!(fixture.b_receives(&mut got), Err(ECONNRESET));
        Ok(())
    }

    #[test]
    fn memory_is_given_back_whoever_closes_first() -> Result {
        for first in [Side::Client, Side::Server] {
            for unread in [0, 100_000] {
                let fixture = Fixture::new()?;
                fixture.a_sends(&pattern(0, 300_000)?)?;
                let mut got = KVVec::from_elem(0, 300_000 - unread, GFP_KERNEL)?;
                fixture.b_receives(&mut got)?;
                let ends = match first {
                    Side::Client => [&fixture.client, &fixture.server],
                    Side::Server => [&fixture.server, &fixture.client],
                };
                for end in ends {
                    end.close(false);
                }
                assert_eq!(fixture.dmbs_in_use()?, 0);
                assert_eq!(fixture.client.info().charged, 0);
                assert_eq!(fixture.server.info().charged, 0);
            }
        }
        Ok(())
    }

    #[test]
    fn two_tasks_wait_for_each_other() -> Result {
        const LEN: usize = 8 << 20;
        let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
        let sender = {
            let fixture = fixture.clone();
            spawn(move || {
                let (mut at, mut size) = (0, 1);
                while at < LEN {
                    size = (size * 31 + 7) % 70_000 + 1;
                    let Ok(data) = pattern(at, size.min(LEN - at)) else {
                        return;
                    };
                    let sent = with_source(&data, |from| {
                        fixture.client.send(fixture.a.sk(), from, WAIT)
                    });
                    assert_eq!(sent, Ok(data.len()));
                    at += data.len();
                }
                fixture.client.close(false);
            })?
        };
        let (mut at, mut size) = (0, 1);
        let mut got = KVVec::from_elem(0, 70_000, GFP_KERNEL)?;
        loop {
            size = (size * 17 + 5) % 70_000 + 1;
            let room = got.get_mut(..size).ok_or(EFAULT)?;
            match recv(&fixture.server, &fixture.b, room, WAIT)? {
                0 => break,
                len => {
                    assert!(got.get(..len) == Some(&pattern(at, len)?[..]));
                    at += len;
                }
            }
        }
        sender.wait_for_completion();
        assert_eq!(at, LEN);
        Ok(())
    }

    #[test]
    fn messages_go_back_and_forth_between_sleeping_tasks() -> Result {
        const ROUNDS: u32 = 2000;
        let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
        let echo = {
            let fixture = fixture.clone();
            spawn(move || {
                let mut data = [0; 64];
                while recv(&fixture.server, &fixture.b, &mut data, WAIT) == Ok(data.len()) {
                    let sent = with_source(&data, |from| {
                        fixture.server.send(fixture.b.sk(), from, WAIT)
                    });
                    assert_eq!(sent, Ok(data.len()));
                }
            })?
        };
        for round in 0..ROUNDS {
            let [byte, ..] = round.to_le_bytes();
            let sent = [byte; 64];
            assert_eq!(fixture.a_sends(&sent)?, sent.len());
            let mut got = [0; 64];
            assert_eq!(
                recv(&fixture.client, &fixture.a, &mut got, WAIT)?,
                got.len()
            );
            assert_eq!(got, sent);
        }
        fixture.client.close(false);
        echo.wait_for_completion();
        Ok(())
    }

    #[test]
    fn the_last_byte_arrives_however_soon_the_sender_closes() -> Result {
        for round in 0..500_usize {
            let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
            let len = (round * 977) % 40_000 + 1;
            let sender = {
                let fixture = fixture.clone();
                spawn(move || {
                    let Ok(data) = pattern(round, len) else {
                        return;
                    };
                    let sent = with_source(&data, |from| {
                        fixture.client.send(fixture.a.sk(), from, WAIT)
                    });
                    assert_eq!(sent, Ok(len));
                    fixture.client.close(false);
                })?
            };
            let mut got = KVVec::from_elem(0, len + 1, GFP_KERNEL)?;
            let mut at = 0;
            loop {
                let room = got.get_mut(at..).ok_or(EFAULT)?;
                match recv(&fixture.server, &fixture.b, room, WAIT)? {
                    0 => break,
                    more => at += more,
                }
            }
            assert_eq!(at, len);
            assert!(got.get(..len) == Some(&pattern(round, len)?[..]));
            sender.wait_for_completion();
            fixture.server.close(false);
            assert_eq!(fixture.dmbs_in_use()?, 0);
        }
        Ok(())
    }

    #[test]
    fn a_close_in_the_middle_of_sending_loses_no_memory() -> Result {
        for round in 0..200_usize {
            let fixture = Arc::new(Fixture::new()?, GFP_KERNEL)?;
            let sender = {
                let fixture = fixture.clone();
                spawn(move || {
                    let data = [1; 4000];
                    let err = loop {
                        let sent = with_source(&data, |from| {
                            fixture.client.send(fixture.a.sk(), from, WAIT)
                        });
                        if let Err(err) = sent {
                            break err;
                        }
                    };
                    assert!(err == ECONNRESET || err == EPIPE);
                    fixture.client.close(false);
                })?
            };
            let mut got = KVVec::from_elem(0, 10_000, GFP_KERNEL)?;
            for _ in 0..round % 20 {
                recv(&fixture.server, &fixture.b, &mut got, WAIT)?;
            }
            fixture.server.close(false);
            sender.wait_for_completion();
            assert_eq!(fixture.dmbs_in_use()?, 0);
            assert_eq!(fixture.client.info().charged, 0);
            assert_eq!(fixture.server.info().charged, 0);
        }
        Ok(())
    }

    #[test]
    fn an_end_nobody_took_costs_nothing_in_the_end() -> Result {
        let Fixture {
            client,
            server,
            a,
            b,
            groups,
        } = Fixture::unaccepted()?;
        send(&client, &a, b"x")?;
        drop(client);
        drop(server);
        drop((a, b));
        let shared = groups.shared();
        assert_eq!(
            usize::try_from(shared.device().dmbs())?,
            shared.idle_rings()
        );
        Ok(())
    }
}
