// SPDX-License-Identifier: GPL-2.0

//! The passive open: listening, and accepting in the accepter's own context.

#![deny(unsafe_code)]

use super::{
    lo,
    Mode,
    SmcSock, //
};
use crate::{
    clc::{
        local::Claim,
        peer::Peer,
        wire::decline::Reason, //
    },
    conn::{
        Endpoint,
        Side, //
    },
    kapi::{
        proto::{
            Accept,
            Op, //
        },
        sock::{
            Sk,
            TcpState, //
        },
        tcp::{
            TcpOwner,
            TcpSocket, //
        },
        wait::{
            self,
            Waiter, //
        },
    },
};
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        SetOnce, //
    },
};

/// How the connection of a child travels.
pub(super) enum Link {
    /// Through rings.
    Smcd(Endpoint),
    /// As its handshake over the wire says.
    Wire(Arc<Peer>),
    /// Over TCP.
    Tcp {
        reason: Reason,
        /// The client's code, if it declined, or 0.
        diagnosis: u32,
    },
}

/// A child that was taken from TCP's accept queue.
///
/// The fields drop in this order: the rings before what lies beside them.
pub(super) struct Arrival {
    pub(super) link: Link,
    pub(super) child: TcpSocket,
}

impl Arrival {
    /// Resets the connection of a child that nobody will accept.
    pub(super) fn reset(self) {
        if let Link::Wire(peer) = &self.link {
            Peer::abandon(peer);
        }
        self.child.reset_on_close();
    }
}

impl SmcSock {
    /// `listen()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(super) fn listen_on(op: &Op<'_, Self>, backlog: c_int) -> Result {
        op.tcp()?.share_file(op.socket);
        if !op.is_listening() {
            op.parked.limit(op.limits_handshakes.load(Relaxed))?;
        }
        // Before TCP listens: the first SYN may come at once.
        op.tcp()?.offer_smc(true);
        op.listening.store(true, Relaxed);
        let limited = op.parked.is_limited();
        let result = Self::through(op, |tcp| tcp.listen::<Self>(backlog, limited));
        let listens = op.tcp()?.sk().tcp_state() == TcpState::Listen;
        if listens {
            op.sk.show_listening(true);
        } else {
            op.listening.store(false, Relaxed);
        }
        result
    }

    /// Resets the pairs whose children nobody will accept any more, if the socket listens.
    ///
    /// Children may move to another listener of a reuse-port group, which need not be one of ours:
    /// that must not find a half-dead pair.
    ///
    /// Says whether the socket did listen.
    pub(super) fn stop_listening(&self, sk: &Sk) -> bool {
        if !self.listening.xchg(false, kernel::sync::atomic::Full) {
            return false;
        }
        sk.show_listening(false);
        while let Some(offer) = self.pending.take_any() {
            offer.leave(Side::Server);
        }
        self.parked.kill_all();
        self.deferred.drop_all();
        true
    }

    /// `accept()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(super) fn accept_one(op: &Op<'_, Self>, mut accept: Accept<'_>) -> Result {
        let Arrival { child, link } = Self::next_arrival(op, &mut accept)?;
        let mode = SetOnce::new();
        let mut peer = None;
        let mut declined = 0;
        // From here on the partner is reset if anything fails: the end is dropped then.
        let mut end = None;
        match link {
            Link::Smcd(own) => end = Some(own),
            Link::Wire(own) => peer = Some(own),
            Link::Tcp { reason, diagnosis } => {
                mode.populate(Mode::Tcp(reason));
                declined = diagnosis;
            }
        }
        let born = match accept.graft(op.sk, |_birth| Self::around(child, mode)) {
            Ok(born) => born,
            Err(err) => {
                if let Some(peer) = peer {
                    Peer::abandon(&peer);
                }
                return Err(err);
            }
        };
        if let Some(peer) = peer {
            born.adopt(born.sk, peer);
        }
        born.diagnosis.store(declined, Relaxed);
        Self::open(&born);
        born.tcp()?.share_file(born.socket);
        // What happened while the child had no owner, or changed hands.
        if !born.kick_peer() {
            if let Some(inner) = born.tcp_sk().filter(|inner| inner.has_err()) {
                born.error_report(born.sk, inner);
            }
        }
        if let Some(end) = end {
            end.attach(born.sk.into());
            born.decide(born.sk, Mode::Smcd(end), born.attempt());
            born.check_inner();
        }
        Ok(())
    }

    /// Finds out how the connection of a child travels.
    ///
    /// # Errors
    ///
    /// * `ENODEV`: the module is on its way in or out.
    /// * `ENOMEM`: out of memory.
    pub(super) fn classify(op: &Op<'_, Self>, child: TcpSocket) -> Result<Arrival> {
        let link = match op.pending.take(child.sk()) {
            Some(pair) => match pair.claim(&lo()?.groups, Side::Server, child.sk()) {
                Claim::End(end) => Link::Smcd(end),
                Claim::Alone { reason, diagnosis } => Link::Tcp { reason, diagnosis },
                Claim::Done => Link::Tcp {
                    reason: Reason::Memory,
                    diagnosis: 0,
                },
            },
            None => match op.parked.take(child.sk()) {
                Some(peer) => Link::Wire(peer),
                // There was no memory for it when the child was born.
                None if child.sk().tcp_speaks_smc() => {
                    Link::Wire(Peer::server(&lo()?.wire, child.sk(), GFP_KERNEL)?)
                }
                None => Link::Tcp {
                    reason: Reason::PeerNoSmc,
                    diagnosis: 0,
                },
            },
        };
        Ok(Arrival { child, link })
    }

    /// The next child, if there is one.
    ///
    /// # Errors
    ///
    /// * `EAGAIN`: there is none.
    /// * those of TCP.
    fn try_arrival(op: &Op<'_, Self>, accept: &mut Accept<'_>) -> Result<Arrival> {
        let tcp = op.tcp()?;
        if op.deferred.is_used() {
            return Self::take_deferred(op);
        }
        // Saves making a socket for nothing.
        if tcp.sk().tcp_state() == TcpState::Listen && tcp.accept_queue_empty() {
            return Err(EAGAIN);
        }
        let (child, is_last) = tcp.accept(accept.kern())?;
        accept.set_empty(is_last);
        Self::classify(op, child)
    }

    /// Waits for the next child.
    fn next_arrival(op: &Op<'_, Self>, accept: &mut Accept<'_>) -> Result<Arrival> {
        match Self::try_arrival(op, accept) {
            Err(err) if err == EAGAIN => {}
            other => return other,
        }
        let mut timeout = op.sk.rcvtimeo(accept.nonblock());
        if timeout.expired() {
            return Err(EAGAIN);
        }
        pin_init::stack_pin_init!(let waiter = Waiter::new_exclusive(op.sk));
        loop {
            match Self::try_arrival(op, accept) {
                Err(err) if err == EAGAIN => {}
                other => return other,
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
