// SPDX-License-Identifier: GPL-2.0

//! How the TCP connection below a connection ends.
//!
//! By default each end's TCP socket is closed with the end, so that whoever watches the network
//! sees a connection end as all do. Where an administrator asks for it, one whose ends are both in
//! the same namespace ends without a packet: the TCP socket of the end that closes first is kept
//! until the other end closes, and both go at the same time. Until then both are established, so
//! that nobody gets their addresses, and none finds the other one gone.
//!
//! # Invariants
//!
//! 1. A TCP socket that is kept has no owner and uses its own wait queue.
//! 2. It is kept while the other end is open, and no longer than the connection. As both are in
//!    one namespace, it keeps none that would be gone otherwise.
//! 3. Sockets go without a packet in pairs only.
//!
//! # Locks
//!
//! `Parting` is a mutex in which one step is taken; nothing is called or dropped under it.

#![deny(unsafe_code)]

use core::mem::replace;

use super::{
    chain::Direction,
    Connection,
    Side, //
};
use crate::{
    cdc::cursor::Flags,
    kapi::{
        sock::TcpState,
        tcp::TcpSocket, //
    }, //
};

/// What has become of the two TCP sockets.
pub(super) enum Parting {
    /// Both ends have theirs.
    Together,
    /// One end has closed without a packet, and this was its socket.
    Kept(TcpSocket),
    /// At least one end has closed, and nothing is to be kept.
    Over,
}

impl Connection {
    /// Ends the TCP socket of an end that is closed.
    ///
    /// # Context
    ///
    /// Process context, may sleep. `tcp` is detached, and its owner's wait queue still exists.
    pub(super) fn part(&self, side: Side, tcp: TcpSocket) {
        let keeps = self.may_keep(side, &tcp);
        if keeps {
            tcp.use_own_wait_queue();
        }
        let mut parting = self.parting.lock();
        let gone = match replace(&mut *parting, Parting::Over) {
            Parting::Together if keeps => {
                *parting = Parting::Kept(tcp);
                None
            }
            Parting::Kept(first) => Some((tcp, Some(first))),
            _ => Some((tcp, None)),
        };
        drop(parting);
        match gone {
            Some((tcp, Some(first))) => {
                let (client, server) = match side {
                    Side::Client => (tcp, first),
                    Side::Server => (first, tcp),
                };
                // As long as the client's socket is there nobody connects from its address: no
                // SYN finds the server's one without it.
                server.close_quietly();
                client.close_quietly();
            }
            // With a packet, as TCP does.
            Some((tcp, None)) => drop(tcp),
            None => {}
        }
    }

    /// Whether the TCP socket of `side` may be kept until the other end closes.
    fn may_keep(&self, side: Side, tcp: &TcpSocket) -> bool {
        let was_reset = |direction: &Direction| direction.channel.observe().has(Flags::TX_ABORT);
        let net = tcp.sk().net();
        net.quiet_close()
            && !was_reset(self.incoming(side))
            && !was_reset(self.outgoing(side))
            // TCP knows whether the other end has finished sending; if it just closes, it parts.
            && tcp.sk().tcp_state() == TcpState::Established
            // An end that nobody has accepted may be elsewhere.
            && self
                .end(side.peer())
                .sk()
                .is_some_and(|peer| core::ptr::eq(peer.net(), net))
    }
}
