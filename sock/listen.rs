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
    conn::Side,
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
        SetOnce, //
    },
};

impl SmcSock {
    /// `listen()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(super) fn listen_on(op: &Op<'_, Self>, backlog: c_int) -> Result {
        op.tcp()?.share_file(op.socket);
        // Before TCP listens: the first SYN may come at once.
        op.tcp()?.offer_smc(true);
        op.listening.store(true, Relaxed);
        let result = Self::through(op, |tcp| tcp.listen::<Self>(backlog));
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
    pub(super) fn stop_listening(&self, sk: &Sk) {
        if !self.listening.xchg(false, kernel::sync::atomic::Full) {
            return;
        }
        sk.show_listening(false);
        while let Some(offer) = self.pending.take_any() {
            offer.leave(Side::Server);
        }
        self.parked.kill_all();
    }

    /// `accept()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(super) fn accept_one(op: &Op<'_, Self>, mut accept: Accept<'_>) -> Result {
        let child = Self::next_child(op, &mut accept)?;
        let mode = SetOnce::new();
        let mut peer = None;
        // From here on the partner is reset if anything fails: the end is dropped then.
        let end = match op.pending.take(child.sk()) {
            Some(pair) => match pair.claim(&lo()?.groups, Side::Server) {
                Claim::End(end) => Some(end),
                Claim::Done | Claim::Alone => {
                    mode.populate(Mode::Tcp(Reason::Memory));
                    None
                }
            },
            None => {
                peer = op.parked.take(child.sk());
                if peer.is_none() && child.sk().tcp_speaks_smc() {
                    // There was no memory for it when the child was born.
                    peer = Some(Peer::server(&lo()?.wire, child.sk(), GFP_KERNEL)?);
                }
                if peer.is_none() {
                    mode.populate(Mode::Tcp(Reason::PeerNoSmc));
                }
                None
            }
        };
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

    /// Waits for the next child.
    fn next_child(op: &Op<'_, Self>, accept: &mut Accept<'_>) -> Result<TcpSocket> {
        let attempt = |accept: &mut Accept<'_>| {
            let tcp = op.tcp()?;
            // Saves making a socket for nothing.
            if tcp.sk().tcp_state() == TcpState::Listen && tcp.accept_queue_empty() {
                return Err(EAGAIN);
            }
            tcp.accept(accept)
        };
        match attempt(accept) {
            Err(err) if err == EAGAIN => {}
            other => return other,
        }
        let mut timeout = op.sk.rcvtimeo(accept.nonblock());
        if timeout.expired() {
            return Err(EAGAIN);
        }
        pin_init::stack_pin_init!(let waiter = Waiter::new_exclusive(op.sk));
        loop {
            match attempt(accept) {
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
