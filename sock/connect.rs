// SPDX-License-Identifier: GPL-2.0

//! The active open, and how a connecting socket learns what it is.

#![deny(unsafe_code)]

use super::{
    lives::Unborn,
    lo,
    Mode,
    SmcSock, //
};
use crate::{
    clc::{
        local::{
            Claim,
            Offer,
            Verdict, //
        },
        wire::decline::Reason, //
    },
    conn::Side,
    kapi::{
        msg::{
            is_nonblock,
            SockAddr, //
        },
        proto::Op,
        sock::{
            Sk,
            TcpState, //
        },
        wait::{
            self,
            Timeout,
            Waiter, //
        },
    },
    LO,
};
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// What a socket is at this moment.
pub(super) enum Standing<'a> {
    /// It has a connection.
    Decided(&'a Mode),
    /// A connection is on its way; whoever waits is woken when that changes.
    Pending,
    /// It has none, and asks for none: fresh, listening or failed.
    Idle,
}

impl SmcSock {
    /// `connect()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(super) fn connect_to(op: &Op<'_, Self>, addr: SockAddr<'_>, flags: c_int) -> Result {
        op.tcp()?.share_file(op.socket);
        if addr.is_unspec() {
            return Self::disconnect(op, addr, flags);
        }
        if op.mode().is_none() && op.peer().is_some_and(|peer| peer.has_failed()) {
            // TCP was connected; as with TCP, a connect that failed may be tried again.
            op.drop_peer();
            op.tcp()?.disconnect()?;
        }
        let fresh = op.mode().is_none() && !op.is_listening() && op.make_offer(op.sk, addr)?;
        let result = Self::through(op, |tcp| tcp.connect(addr, flags));
        match result {
            Ok(()) => Self::await_decision(op, flags),
            // TCP is connected, but not yet the socket.
            Err(err) if err == EISCONN && matches!(Self::standing(op), Standing::Pending) => {
                Self::await_decision(op, flags)
            }
            // On its way or there, whoever started it.
            Err(err) if op.is_opening() || op.is_connected() => {
                let _ = Self::standing(op);
                Err(err)
            }
            Err(err) => {
                if fresh {
                    op.drop_offer();
                }
                Err(err)
            }
        }
    }

    /// `connect()` to nowhere: dissolves the connection.
    fn disconnect(op: &Op<'_, Self>, addr: SockAddr<'_>, flags: c_int) -> Result {
        let unborn = Unborn::new()?;
        let (offer, mode) = op.change_attempt(|attempt| {
            attempt.number = attempt.number.wrapping_add(1);
            let mode = match op.lives.mode() {
                Some(Mode::Smcd(_)) => op.lives.renew(unborn, Mode::Tcp(Reason::Memory)),
                _ => None,
            };
            (attempt.offer.take(), mode)
        });
        op.retire(offer);
        op.drop_peer();
        if let Some(Mode::Smcd(end)) = mode {
            end.close(true);
            let _ = op.sk.take_err();
            op.sk.clear_shutdown();
        }
        op.sk.set_peek_off(-1);
        let listened = op.stop_listening(op.sk);
        let result = Self::through(op, |tcp| tcp.connect(addr, flags));
        if listened {
            op.tcp()?.attach(op);
        }
        // Whoever connects next says again whether this end speaks SMC.
        op.tcp()?.offer_smc(false);
        result
    }

    /// Whether TCP is still shaking hands.
    fn is_opening(&self) -> bool {
        self.tcp_sk()
            .is_some_and(|inner| inner.tcp_state() == TcpState::Opening)
    }

    /// Makes the offer of a new connection; whether this call did.
    fn make_offer(&self, sk: &Sk, addr: SockAddr<'_>) -> Result<bool> {
        let tcp = self.tcp()?;
        if tcp.sk().tcp_state() != TcpState::Close {
            return Ok(false);
        }
        // That of an attempt which failed after its connect() had returned.
        self.drop_offer();
        if tcp.sk().tcp_in_repair() {
            // There is no handshake in which to ask the peer, who may be anywhere.
            self.fall_back(sk, Reason::OptionUnsupported, self.attempt());
            return Ok(false);
        }
        let table = &lo()?.offers;
        let offer = match Offer::new(table, sk, tcp, !addr.is_loopback()) {
            Ok(offer) => offer,
            // A connection without SMC is better than none.
            Err(_) => {
                self.fall_back(sk, Reason::Memory, self.attempt());
                return Ok(false);
            }
        };
        let surplus = self.change_attempt(|attempt| match &attempt.offer {
            Some(_) => Some(offer),
            None => {
                attempt.offer = Some(offer);
                None
            }
        });
        // Two threads connect one socket: TCP refuses one of them.
        if let Some(offer) = surplus {
            offer.retire(table);
            return Ok(false);
        }
        tcp.offer_smc(true);
        Ok(true)
    }

    /// Forgets the offer of a connection that is decided, failed or was dissolved.
    pub(super) fn drop_offer(&self) {
        if self.glimpse() & 1 != 0 {
            let offer = self.change_attempt(|attempt| attempt.offer.take());
            self.retire(offer);
        }
    }

    fn retire(&self, offer: Option<Arc<Offer>>) {
        if let (Some(offer), Some(lo)) = (offer, LO.get()) {
            offer.retire(&lo.offers);
        }
    }

    /// Finds out what the socket is, and decides its mode if that can be decided now.
    ///
    /// # Context
    ///
    /// Process context; does not wait for anything.
    pub(super) fn standing<'a>(op: &'a Op<'_, Self>) -> Standing<'a> {
        if let Some(mode) = op.mode() {
            return Standing::Decided(mode);
        }
        loop {
            let attempt = op.attempt();
            let standing = Self::standing_in(op, attempt);
            // What was seen of an attempt that ended meanwhile wakes nobody any more.
            if op.attempt() == attempt {
                return standing;
            }
        }
    }

    /// What the socket is in an attempt to connect.
    fn standing_in<'a>(op: &'a Op<'_, Self>, attempt: u64) -> Standing<'a> {
        if let Some(peer) = op.peer() {
            return Self::heard(op, &peer, attempt);
        }
        let Some(offer) = op.offer() else {
            // An offer is forgotten after its decision was made.
            return op.mode().map_or(Standing::Idle, Standing::Decided);
        };
        let (Some(inner), Ok(lo)) = (op.tcp_sk(), lo()) else {
            return Standing::Idle;
        };
        let verdict = if offer.matched() {
            // Also when the connection has been reset since.
            Verdict::Local
        } else {
            match inner.tcp_state() {
                TcpState::Opening => return Standing::Pending,
                TcpState::Close | TcpState::Listen => return Standing::Idle,
                TcpState::Established | TcpState::Closing => offer.decide(&lo.queue),
            }
        };
        match verdict {
            Verdict::Unborn => return Standing::Pending,
            Verdict::Foreign if inner.tcp_speaks_smc() => {
                // Out of memory: whoever calls next tries again.
                let _ = op.converse(op.sk, inner, GFP_KERNEL);
                return Standing::Pending;
            }
            Verdict::Foreign => op.fall_back(op.sk, Reason::PeerNoSmc, attempt),
            Verdict::Local => {
                if !Self::join(op, &offer, attempt) {
                    return Standing::Pending;
                }
            }
        }
        match op.mode() {
            Some(mode) => Standing::Decided(mode),
            None => Standing::Pending,
        }
    }

    /// Takes the client's end of a matched pair; whether this call did, or nobody can.
    fn join(op: &Op<'_, Self>, offer: &Arc<Offer>, attempt: u64) -> bool {
        let (Ok(lo), Some(inner)) = (lo(), op.tcp_sk()) else {
            return false;
        };
        match offer.claim(&lo.groups, Side::Client, inner) {
            Claim::End(end) => {
                end.attach(op.sk.into());
                op.decide(op.sk, Mode::Smcd(end), attempt);
                op.check_inner();
                true
            }
            // Another thread is at it, and wakes us.
            Claim::Done => op.mode().is_some(),
            Claim::Alone { reason, diagnosis } => {
                op.diagnosis.store(diagnosis, Relaxed);
                op.fall_back(op.sk, reason, attempt);
                true
            }
        }
    }

    /// Lets an SMC-D connection die if its TCP connection did before there was an end to tell.
    pub(super) fn check_inner(&self) {
        if let (Some(Mode::Smcd(end)), Some(inner)) = (self.mode(), self.tcp_sk()) {
            let err = inner.raw_err();
            if err != 0 && !end.explains_rst() {
                end.abort(Error::from_errno(-err));
            }
        }
    }

    /// Waits until a socket that TCP has connected knows what it is. This takes no time, the short
    /// patience of the local handshake, or as long as a peer may take over the wire. A signal ends
    /// the wait, not the connection: whoever uses it next finds out.
    ///
    /// # Errors
    ///
    /// * `EALREADY`: the call must not wait.
    /// * `ETIMEDOUT`, `EPROTO`, `ECONNRESET`: the handshake over the wire failed.
    fn await_decision(op: &Op<'_, Self>, flags: c_int) -> Result {
        let timeout = if is_nonblock(flags) {
            Timeout::NONE
        } else {
            Timeout::FOREVER
        };
        match Self::settled(op, timeout) {
            Ok(Standing::Idle) => op.sk.take_err(),
            Err(err) if err == EAGAIN => Err(EALREADY),
            Ok(Standing::Decided(_) | Standing::Pending) | Err(_) => Ok(()),
        }
    }

    /// Waits until the connection that is on its way has arrived or failed.
    ///
    /// # Errors
    ///
    /// * `EAGAIN`: there is no time to wait.
    /// * `ERESTARTSYS`, `EINTR`: a signal is pending.
    pub(super) fn settled<'a>(op: &'a Op<'_, Self>, timeout: Timeout) -> Result<Standing<'a>> {
        let standing = Self::standing(op);
        if !matches!(standing, Standing::Pending) {
            return Ok(standing);
        }
        if timeout.expired() {
            return Err(EAGAIN);
        }
        let mut timeout = timeout;
        pin_init::stack_pin_init!(let waiter = Waiter::new(op.sk));
        loop {
            let standing = Self::standing(op);
            if !matches!(standing, Standing::Pending) {
                return Ok(standing);
            }
            if timeout.expired() {
                return Err(EAGAIN);
            }
            if let Some(err) = wait::signal_error(timeout) {
                return Err(err);
            }
            timeout = waiter.as_mut().wait(timeout);
        }
    }
}
