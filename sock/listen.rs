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
        local::Offer,
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
        tcp::TcpSocket,
        wait::{
            self,
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
        Arc,
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
        let Some(lo) = LO.get() else {
            return;
        };
        while let Some(offer) = self.pending.take_any() {
            // The end resets the connection when it is dropped.
            let _ = offer.claim(&lo.groups, Side::Server).map(drop);
        }
    }

    /// `accept()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(super) fn accept_one(op: &Op<'_, Self>, mut accept: Accept<'_>) -> Result {
        let child = Self::next_child(op, &mut accept)?;
        let pair = op.pending.take(child.sk());
        let mode = SetOnce::new();
        if pair.is_none() {
            mode.populate(Mode::Tcp(Reason::PeerNoSmc));
        }
        let born = accept.graft(op.sk, |_birth| Self::around(child, mode))?;
        Self::open(&born);
        born.tcp()?.share_file(born.socket);
        match pair {
            Some(pair) => Self::take_over(&born, &pair),
            None => Ok(()),
        }
    }

    /// Gives an accepted socket its end of the connection.
    fn take_over(born: &Op<'_, Self>, pair: &Arc<Offer>) -> Result {
        let end = pair
            .claim(&lo()?.groups, Side::Server)?
            .ok_or(ECONNABORTED)?;
        end.attach(born.sk.into());
        born.decide(born.sk, Mode::Smcd(end));
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
