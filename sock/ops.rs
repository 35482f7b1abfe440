// SPDX-License-Identifier: GPL-2.0

//! The socket's operations: which of TCP and the rings serves each.

#![deny(unsafe_code)]

use super::{
    connect::Standing,
    lives::Lives,
    Mode,
    SmcSock, //
};
use crate::{
    clc::wire::decline::Reason,
    conn::{
        close::{
            event,
            Closed, //
        },
        Endpoint, //
    },
    kapi::{
        msg::{
            Flags,
            MsgHdr,
            OptVal,
            SockAddr,
            UserOpt, //
        },
        proto::{
            Accept,
            Birth,
            Op,
            PollTable,
            Splice,
            StreamSocket, //
        },
        sock::{
            QueueLength,
            Shutdown,
            TcpState, //
        },
        tcp::{
            stamps::TxStamps,
            zerocopy::Completion,
            TcpSocket, //
        },
        wait::Timeout,
    },
    LO,
};
use kernel::{
    ffi::{
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    prelude::*,
    sync::{
        atomic::Relaxed,
        SetOnce, //
    },
};

impl StreamSocket for SmcSock {
    fn new(birth: Birth<'_>) -> impl PinInit<Self, Error> {
        let tcp = TcpSocket::new(&birth);
        pin_init::pin_init_scope(move || Ok(Self::around(tcp?, SetOnce::new())))
    }

    fn opened(op: &Op<'_, Self>) {
        Self::open(op);
    }

    fn bind(op: &Op<'_, Self>, addr: SockAddr<'_>) -> Result {
        Self::through(op, |tcp| tcp.bind(addr))
    }

    fn connect(op: &Op<'_, Self>, addr: SockAddr<'_>, flags: c_int) -> Result {
        Self::connect_to(op, addr, flags)
    }

    fn accept(op: &Op<'_, Self>, accept: Accept<'_>) -> Result {
        Self::accept_one(op, accept)
    }

    fn getname(op: &Op<'_, Self>, addr: *mut c_void, peer: c_int) -> Result<c_int> {
        // TCP has a peer until it is reset, which the rings know first.
        if let (Some(Mode::Smcd(end)), 1) = (op.mode(), peer) {
            if end.is_dead() {
                return Err(ENOTCONN);
            }
        }
        op.tcp()?.getname(addr, peer)
    }

    fn poll(op: &Op<'_, Self>, table: &PollTable) -> u32 {
        // First the queue, then the look: whatever changes in between wakes the poller.
        table.register(op);
        if op.is_listening() && op.deferred.is_used() {
            return if Self::has_deferred(op) {
                event::IN | event::RDNORM
            } else {
                0
            };
        }
        match Self::standing(op) {
            Standing::Decided(Mode::Smcd(end)) => {
                let mut mask = end.poll_mask(op.sk);
                if let Some(inner) = op.tcp_sk() {
                    op.settle_soft_error(op.sk, inner);
                    if inner.has_queued_errors() {
                        mask |= event::ERR;
                    }
                }
                mask
            }
            // A handshake over the wire that fails resets TCP some time before it says so.
            Standing::Pending if op.is_connected() || op.peer().is_some() => 0,
            _ => Self::through(op, |tcp| Ok(tcp.poll(table))).unwrap_or(0),
        }
    }

    fn ioctl(op: &Op<'_, Self>, cmd: c_uint, arg: c_ulong, compat: bool) -> Result<c_int> {
        if let Some(query) = QueueLength::from_ioctl(cmd) {
            query.reply(arg, Self::queue_length(op, query)?)?;
            return Ok(0);
        }
        Self::through(op, |tcp| tcp.ioctl(cmd, arg, compat))
    }

    fn queue_length(op: &Op<'_, Self>, query: QueueLength) -> Result<c_int> {
        let end = match Self::standing(op) {
            Standing::Decided(Mode::Smcd(end)) => end,
            // What TCP has is of the handshake.
            Standing::Pending => return Ok(0),
            _ => return Self::through(op, |tcp| tcp.queue_length(query)),
        };
        let length = match query {
            QueueLength::Unread => end.readable(op.sk),
            // What was sent lies in the peer's receive buffer.
            QueueLength::Unacknowledged | QueueLength::Unsent => 0,
            QueueLength::AtMark => end.is_at_mark().into(),
        };
        Ok(c_int::try_from(length).unwrap_or(c_int::MAX))
    }

    fn listen(op: &Op<'_, Self>, backlog: c_int) -> Result {
        Self::listen_on(op, backlog)
    }

    fn shutdown(op: &Op<'_, Self>, how: Shutdown) -> Result {
        let mut standing = Self::standing(op);
        if matches!(standing, Standing::Pending) && op.is_connected() {
            // TCP is about to send FIN, which no ring would know of: decide now.
            if let (Some(offer), Some(lo)) = (op.offer(), LO.get()) {
                offer.withdraw(&lo.offers);
            }
            standing = Self::settled(op, Timeout::FOREVER)?;
        }
        if let Standing::Decided(Mode::Smcd(end)) = standing {
            if end.is_dead() {
                return Err(ENOTCONN);
            }
            // The rings first: a peer that sees FIN has seen the flag.
            if op.is_connected() {
                end.shutdown(op.sk, how);
            }
            return op.tcp()?.shutdown(how);
        }
        // Before TCP resets its children, or moves them to another listener of the group.
        let listened = how.rcv() && op.stop_listening(op.sk);
        let result = Self::through(op, |tcp| tcp.shutdown(how));
        if listened {
            op.tcp()?.attach(op);
        }
        if op
            .tcp_sk()
            .is_some_and(|inner| inner.tcp_state() == TcpState::Close)
        {
            // It ends a connection that was on its way.
            if op.mode().is_none() {
                op.drop_offer();
            }
        }
        result
    }

    fn setsockopt(op: &Op<'_, Self>, level: c_int, name: c_int, value: OptVal) -> Result {
        Self::set_option(op, level, name, value)
    }

    fn getsockopt(op: &Op<'_, Self>, level: c_int, name: c_int, value: UserOpt) -> Result {
        Self::get_option(op, level, name, value)
    }

    #[inline(always)]
    fn sendmsg(op: &Op<'_, Self>, msg: &mut MsgHdr, len: usize) -> Result<usize> {
        let flags = msg.flags();
        if flags.contains(Flags::FASTOPEN) {
            Self::connect_first(op, msg)?;
        }
        let end = match op.mode() {
            Some(Mode::Smcd(end)) => end,
            _ => match Self::end_to_send(op, flags)? {
                Some(end) => end,
                None => return Self::through(op, |tcp| tcp.sendmsg(msg, len)),
            },
        };
        if flags.contains(Flags::ZEROCOPY) || msg.has_control() || op.sk.wants_tx_stamps() {
            return Self::send_and_tell(op, end, msg, len);
        }
        end.send(op.sk, msg.source(), flags)
            .map_err(|err| Self::signalled(op, flags, err))
    }

    #[inline(always)]
    fn recvmsg(op: &Op<'_, Self>, msg: &mut MsgHdr, len: usize, flags: Flags) -> Result<usize> {
        let end = match op.mode() {
            Some(Mode::Smcd(end)) if !flags.intersects(Flags::ERRQUEUE.with(Flags::OOB)) => end,
            _ => match Self::end_to_receive(op, flags)? {
                Some(end) => end,
                None => return Self::recv_elsewhere(op, msg, len, flags),
            },
        };
        msg.clear_name();
        let received = end.recv(op.sk, msg.dest(), len, flags)?;
        if op.sk.wants_rx_stamps() {
            // A receiver of no bytes has looked at data, too, if there is any.
            if let (true, Some(stamp)) = (received > 0 || len == 0, end.stamp()) {
                msg.set_rx_stamp(op.sk, stamp);
            }
        }
        Self::tell_unread(op, end, msg);
        Ok(received)
    }

    fn splice_read(op: &Op<'_, Self>, splice: Splice) -> Result<usize> {
        let timeout = op.sk.rcvtimeo(splice.nonblock(op.socket));
        match Self::settled(op, timeout)? {
            Standing::Decided(Mode::Smcd(end)) => {
                match end.spliceable(op.sk, splice.len(), timeout)? {
                    0 => Ok(0),
                    len => splice.copy(op.socket, len),
                }
            }
            Standing::Decided(Mode::Tcp(_)) => {
                // TCP looks at it without asking whether it is there.
                op.tcp()?.share_file(op.socket);
                Self::through(op, |tcp| tcp.splice_read(splice))
            }
            _ => Self::nothing_to_read(op),
        }
    }

    fn keepalive(_value: &Self, _on: bool) {
        // Kernel users of the outer socket; applications' SO_KEEPALIVE goes to TCP directly.
    }

    fn release(op: &Op<'_, Self>) {
        if let Some(lo) = LO.get() {
            lo.sockets.remove(op.sk);
        }
        // The rings first: a peer that sees FIN has seen the flags.
        if let Some(Mode::Smcd(end)) = op.mode() {
            if let (Closed::Reset, Ok(tcp)) = (end.close(op.sk.linger_reset()), op.tcp()) {
                tcp.reset_on_close();
            }
        }
        op.drop_offer();
        op.drop_peer();
        if let Ok(tcp) = op.tcp() {
            tcp.detach(op.sk);
        }
        // After `detach` no child is born to us any more.
        op.stop_listening(op.sk);
    }

    fn finish(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(tcp) = this.tcp.take() {
            match this.lives.mode() {
                Some(Mode::Smcd(end)) => end.part(tcp),
                _ => drop(tcp),
            }
        }
        *this.lives = Lives::new(SetOnce::new());
    }
}

impl SmcSock {
    /// What `MSG_FASTOPEN` is before it sends anything: a `connect()`. One that has nothing to
    /// connect any more is refused by TCP, whatever the connection is.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    fn connect_first(op: &Op<'_, Self>, msg: &mut MsgHdr) -> Result {
        if let Some(Mode::Tcp(_)) = op.mode() {
            return Ok(());
        }
        if matches!(Self::standing(op), Standing::Idle) && !op.is_listening() {
            op.tcp()?.share_file(op.socket);
            op.fall_back(op.sk, Reason::OptionUnsupported, op.attempt());
            return Ok(());
        }
        // The bytes are not TCP's.
        Self::through(op, |tcp| msg.emptied(|msg| tcp.sendmsg(msg, 0)))?;
        Ok(())
    }

    /// The end to send through, once it is decided; none if TCP sends.
    ///
    /// # Errors
    ///
    /// * `EPIPE`: there is no connection; `SIGPIPE` was raised.
    /// * What the connection failed of, and what ends the wait for it.
    #[cold]
    fn end_to_send<'a>(op: &'a Op<'_, Self>, flags: Flags) -> Result<Option<&'a Endpoint>> {
        let timeout = op.sk.sndtimeo(flags.contains(Flags::DONTWAIT));
        match Self::settled(op, timeout)? {
            Standing::Decided(Mode::Smcd(end)) => Ok(Some(end)),
            Standing::Decided(Mode::Tcp(_)) => Ok(None),
            // TCP would take the bytes of a thread that is faster than another one's connect().
            _ => {
                op.sk.take_err()?;
                Err(Self::signalled(op, flags, EPIPE))
            }
        }
    }

    /// `sendmsg()` through rings whose sender is told more on its error queue: that `MSG_ZEROCOPY`
    /// was copied, and when it was sent.
    #[cold]
    fn send_and_tell(
        op: &Op<'_, Self>,
        end: &Endpoint,
        msg: &mut MsgHdr,
        len: usize,
    ) -> Result<usize> {
        let flags = msg.flags();
        let completion = if flags.contains(Flags::ZEROCOPY)
            && len > 0
            && op.sk.zerocopy()
            && !msg.has_completion()
        {
            Some(Completion::new(op.tcp()?.sk(), len)?)
        } else {
            None
        };
        let stamps = TxStamps::requested(op.tcp()?.sk(), msg)?;
        let sent = end
            .send(op.sk, msg.source(), flags)
            .map_err(|err| Self::signalled(op, flags, err))?;
        if sent > 0 && stamps.any() {
            let from = op.stamps_from.load(Relaxed);
            stamps.tell(op.tcp()?.sk(), end.sent().wrapping_sub(from));
        }
        if let Some(completion) = completion {
            completion.copied();
        }
        Ok(sent)
    }

    /// The end to receive the stream from, once it is decided; none if something else is to be
    /// received, or TCP has it.
    ///
    /// # Errors
    ///
    /// * What ends the wait for a connection that is on its way.
    #[cold]
    fn end_to_receive<'a>(op: &'a Op<'_, Self>, flags: Flags) -> Result<Option<&'a Endpoint>> {
        if flags.intersects(Flags::ERRQUEUE.with(Flags::OOB)) {
            return Ok(None);
        }
        let timeout = op.sk.rcvtimeo(flags.contains(Flags::DONTWAIT));
        match Self::settled(op, timeout)? {
            Standing::Decided(Mode::Smcd(end)) => Ok(Some(end)),
            _ => Ok(None),
        }
    }

    /// `recvmsg()` of what does not come through rings.
    #[cold]
    fn recv_elsewhere(
        op: &Op<'_, Self>,
        msg: &mut MsgHdr,
        len: usize,
        flags: Flags,
    ) -> Result<usize> {
        if flags.contains(Flags::ERRQUEUE) {
            return Self::through(op, |tcp| tcp.recvmsg(msg, len, flags));
        }
        if flags.contains(Flags::OOB) {
            return Self::recv_urgent(op, msg, len, flags);
        }
        if !matches!(op.mode(), Some(Mode::Tcp(_))) {
            return Self::nothing_to_read(op);
        }
        let result = Self::through(op, |tcp| tcp.recvmsg(msg, len, flags));
        if op.sk.peek_off().is_some() {
            op.sk.mirror_peek_off(op.tcp()?.sk());
        }
        result
    }

    /// `recvmsg()` with `MSG_OOB`, which never waits.
    fn recv_urgent(op: &Op<'_, Self>, msg: &mut MsgHdr, len: usize, flags: Flags) -> Result<usize> {
        let Standing::Decided(Mode::Smcd(end)) = Self::standing(op) else {
            return Self::through(op, |tcp| tcp.recvmsg(msg, len, flags));
        };
        msg.clear_name();
        let to = (len > 0 && !flags.contains(Flags::TRUNC)).then(|| msg.dest());
        let received = end.recv_urgent(op.sk, to, !flags.contains(Flags::PEEK))?;
        if received {
            msg.add_flags(Flags::OOB);
            if len == 0 {
                msg.add_flags(Flags::TRUNC);
            }
        }
        Self::tell_unread(op, end, msg);
        Ok(if received { len.min(1) } else { 0 })
    }

    /// Tells a receiver who asked for it what is left behind its message (`TCP_INQ`).
    #[inline(always)]
    fn tell_unread(op: &Op<'_, Self>, end: &Endpoint, msg: &mut MsgHdr) {
        let control = op.tells_unread.load(Relaxed);
        if control || msg.wants_unread() {
            Self::set_unread(end, msg, control);
        }
    }

    #[cold]
    fn set_unread(end: &Endpoint, msg: &mut MsgHdr, control: bool) {
        msg.set_unread(end.left(), control);
    }

    /// The result of reading from a socket without a connection.
    fn nothing_to_read(op: &Op<'_, Self>) -> Result<usize> {
        op.sk.take_err()?;
        match op.tcp_sk() {
            // A connection that failed is at its end.
            Some(inner) if inner.tcp_state() != TcpState::Listen && inner.shutdown_mask().rcv() => {
                Ok(0)
            }
            _ => Err(ENOTCONN),
        }
    }

    /// Whether TCP has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.tcp_sk().is_some_and(|inner| {
            matches!(inner.tcp_state(), TcpState::Established | TcpState::Closing)
        })
    }

    /// The error of a send call, which raises `SIGPIPE` if it is `EPIPE`.
    #[cold]
    fn signalled(op: &Op<'_, Self>, flags: Flags, err: Error) -> Error {
        if err == EPIPE {
            op.sk.raise_sigpipe(flags.0);
        }
        err
    }
}
