// SPDX-License-Identifier: GPL-2.0

//! What a socket holds of its connection, and what tools show of it.

#![deny(unsafe_code)]

use kernel::{
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Acquire,
        Arc, //
    }, //
};

use super::{
    close::Closed,
    Connection,
    Side, //
};
use crate::{
    bufpool::quota::User,
    cdc::cursor::{
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
        tcp::TcpSocket,
        wait::Timeout,
    },
    lgr::LinkGroup, //
};

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
    pub(super) conn: Arc<Connection>,
    pub(super) side: Side,
}

impl Endpoint {
    /// The two ends, the client's first, of a new connection in this group that `user` answers for.
    /// They belong to nobody yet.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`, `EDQUOT` - no places are left, for anybody or for this user.
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn pair(group: Arc<LinkGroup>, user: User) -> Result<(Self, Self)> {
        let conn = Connection::new(group, user)?;
        // INVARIANT: One for each side.
        let client = Self {
            conn: conn.clone(),
            side: Side::Client,
        };
        let server = Self {
            conn,
            side: Side::Server,
        };
        Ok((client, server))
    }

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

    /// Lets `listener` be woken by what comes before this end is attached to a socket. What came
    /// before is seen by whoever looks afterwards.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn set_herald(&self, listener: &Sk) {
        self.conn.end(self.side).set_herald(listener);
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
    #[inline(always)]
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
    /// - `ERESTARTSYS`, `EINTR` - a signal is pending.
    ///
    /// # Context
    ///
    /// Process context, may sleep; no lock but a pipe's is held.
    #[inline(always)]
    pub(crate) fn recv(
        &self,
        sk: &Sk,
        to: &mut IovIterDest<'_>,
        len: usize,
        flags: msg::Flags,
    ) -> Result<usize> {
        self.conn.recv(self.side, sk, to, len, flags)
    }

    /// Waits until there is something to receive, or the time is over, and says how many of `len`
    /// bytes a splice may take: none at the urgent mark, as `tcp_splice_read()` has it.
    ///
    /// # Errors
    ///
    /// - `EAGAIN` - at the urgent mark, and there is no time to wait.
    /// - `ECONNRESET` - at the urgent mark of a connection that was reset; reported once.
    ///
    /// # Context
    ///
    /// Process context, may sleep; no lock but a pipe's is held.
    pub(crate) fn spliceable(&self, sk: &Sk, len: usize, timeout: Timeout) -> Result<usize> {
        self.conn.spliceable(self.side, sk, len, timeout)
    }

    /// Receives the urgent byte out of band, as `tcp_recv_urg()` does: into `to` if there is one,
    /// and for good if `taking`. Says whether there was one, or the stream ends before it.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - there is no urgent data, it was received before, or it is part of the stream.
    /// - `ENOTCONN` - the connection was reset.
    /// - `EAGAIN` - it has been announced, but is not there yet.
    /// - `EFAULT` - the caller's memory cannot be written.
    /// - `EINTR` - a fatal signal is pending.
    ///
    /// # Context
    ///
    /// Process context, may sleep, but not until urgent data comes; no lock is held.
    pub(crate) fn recv_urgent(
        &self,
        sk: &Sk,
        to: Option<&mut IovIterDest<'_>>,
        taking: bool,
    ) -> Result<bool> {
        self.conn.recv_urgent(self.side, sk, to, taking)
    }

    /// Whether the next byte to be read is the urgent one (`SIOCATMARK`).
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn is_at_mark(&self) -> bool {
        let (unread, urgent) = self.conn.incoming(self.side).unread_and_urgent();
        // A reader that has got everything is behind the end of the stream, too.
        let ended = unread == 0 && self.incoming_word().has(Flags::TX_SHUT);
        urgent.is_at_mark() && !ended
    }

    /// When the latest bytes came, in nanoseconds since 1970, if this end wanted to know it then
    /// (`SO_TIMESTAMP` and its kin).
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn stamp(&self) -> Option<i64> {
        self.conn.incoming(self.side).stamp()
    }

    /// How many bytes this end has sent, of which only the lower half is meant.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn sent(&self) -> u32 {
        let [a, b, c, d, ..] = self.outgoing_word().position().into_raw().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// How many bytes are left to be read, where the end of the stream counts as one (`TCP_INQ`).
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn left(&self) -> usize {
        let unread = self.conn.incoming(self.side).unread();
        unread + usize::from(self.incoming_word().has(Flags::TX_SHUT))
    }

    /// How many bytes a read can return before it stops at urgent data (`FIONREAD`).
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn readable(&self, sk: &Sk) -> usize {
        let (unread, urgent) = self.conn.incoming(self.side).unread_and_urgent();
        urgent.readable(unread, sk.oob_inline())
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
        // A socket that was disconnected meanwhile is shut down no more.
        let end = self.conn.end(self.side);
        sk.add_shutdown(how, || !end.closed.load(Acquire));
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
    /// Whoever else still sends or receives here ends with `EPIPE` (`sk_disconnects` of TCP), if
    /// somebody wakes him, and nothing that happens to the connection reaches the socket any more.
    ///
    /// # Context
    ///
    /// Process context, may sleep, until copies of such calls are done.
    pub(crate) fn close(&self, reset: bool) -> Closed {
        self.conn.close(self.side, reset)
    }

    /// Ends the TCP socket of this end, which is closed.
    ///
    /// # Context
    ///
    /// Process context, may sleep. `tcp` is detached, and its owner's wait queue still exists.
    pub(crate) fn part(&self, tcp: TcpSocket) {
        self.conn.part(self.side, tcp);
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
