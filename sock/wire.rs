// SPDX-License-Identifier: GPL-2.0

//! Sockets whose connection is decided by a conversation over the wire: they
//! look at what their [`Peer`] has reached, and pass it the events of TCP.

#![deny(unsafe_code)]

use super::{
    connect::Standing,
    lo,
    Mode,
    SmcSock, //
};
use crate::{
    clc::peer::{
        self,
        Outcome,
        Peer, //
    },
    kapi::{
        proto::Op,
        sock::{
            Sk,
            TcpState, //
        },
        tcp::Child, //
    },
    Lo,
    LO, //
};
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

impl SmcSock {
    /// The wire handshake of a connection that is on its way.
    pub(super) fn peer(&self) -> Option<Arc<Peer>> {
        self.peer.get()
    }

    /// The code with which the peer declined, or 0.
    pub(crate) fn peer_diagnosis(&self) -> u32 {
        self.diagnosis.load(Relaxed)
    }

    /// Lets the wire handshake look at the TCP socket; whether there is one under way.
    ///
    /// # Context
    ///
    /// Any.
    pub(super) fn kick_peer(&self) -> bool {
        match (self.peer(), LO.get()) {
            (Some(peer), Some(lo)) if !peer.is_over() => {
                Peer::kick(&peer, &lo.queue);
                true
            }
            _ => false,
        }
    }

    /// TCP is connected: begins the handshake over the wire, if that is the one to come.
    ///
    /// Whoever connected without blocking may look much later, but a server waits only so long.
    ///
    /// # Context
    ///
    /// Softirq, under the TCP socket's `sk_callback_lock`.
    pub(super) fn established(&self, outer: &Sk, inner: &Sk) {
        if inner.tcp_state() != TcpState::Established || !inner.tcp_speaks_smc() {
            return;
        }
        if self.offer().is_some_and(|offer| offer.close_unmarked()) {
            // Without memory the next look at the socket begins it.
            let _ = self.converse(outer, inner, GFP_ATOMIC);
        }
    }

    /// Begins the handshake over the wire, unless somebody else has.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    pub(super) fn converse(&self, outer: &Sk, inner: &Sk, flags: Flags) -> Result {
        let lo = lo()?;
        let peer = Peer::client(&lo.wire, inner, outer, flags)?;
        let first = self.peer.fill(peer.clone(), || self.mode().is_none());
        if first.is_ok() {
            Peer::kick(&peer, &lo.queue);
        }
        Ok(())
    }

    /// What the handshake over the wire says of the socket.
    pub(super) fn heard<'a>(op: &'a Op<'_, Self>, peer: &Peer, attempt: u64) -> Standing<'a> {
        match peer.outcome() {
            None => return Standing::Pending,
            Some(Outcome::Smcd(end)) => {
                end.attach(op.sk.into());
                op.decide(op.sk, Mode::Smcd(end), attempt);
                op.check_inner();
            }
            Some(Outcome::Tcp { reason, diagnosis }) => {
                op.diagnosis.store(diagnosis, Relaxed);
                op.fall_back(op.sk, reason, attempt);
            }
            Some(Outcome::Failed) => return Standing::Idle,
            // Another thread is at it, and wakes us.
            Some(Outcome::Gone) => {}
        }
        match op.mode() {
            Some(mode) => {
                op.drop_peer();
                Standing::Decided(mode)
            }
            None => Standing::Pending,
        }
    }

    /// Gives an accepted socket the handshake of its child, which may be over.
    pub(super) fn adopt(&self, sk: &Sk, peer: Arc<Peer>) {
        peer.adopt(sk);
        // It is new, so there is none.
        let _ = self.peer.fill(peer, || true);
    }

    /// Forgets the wire handshake of a connection that is decided, failed or was dissolved.
    pub(super) fn drop_peer(&self) {
        if let Some(peer) = self.peer.take() {
            Peer::abandon(&peer);
        }
    }

    /// Begins the handshake of a child that has no pair, if its client speaks SMC.
    ///
    /// # Context
    ///
    /// Softirq under RCU; the child is new and locked.
    pub(super) fn unpaired_child(lo: &Lo, child: &Child<'_>) {
        if !child.sk.tcp_speaks_smc() {
            return;
        }
        peer::child_born(lo, child.sk, |peer| {
            let parked = child.ack.listener().with_owner::<Self, _>(|listener, _| {
                listener.is_listening() && listener.parked.insert(peer).is_ok()
            });
            parked == Some(true)
        });
    }
}
