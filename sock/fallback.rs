// SPDX-License-Identifier: GPL-2.0

//! What a socket does once its connection is plain TCP, or while TCP alone
//! knows the answer.

#![deny(unsafe_code)]

use super::{
    Mode,
    SmcSock, //
};
use crate::{
    clc::wire::decline::Reason,
    kapi::{
        proto::Op,
        sock::Sk,
        tcp::TcpSocket, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

impl SmcSock {
    /// Makes the connection of an attempt TCP for good.
    pub(super) fn fall_back(&self, sk: &Sk, reason: Reason, attempt: u64) {
        self.decide(sk, Mode::Tcp(reason), attempt);
    }

    /// Passes a call on to TCP, and keeps the pending errors of both sockets one error: it is
    /// reported once, whichever of the two reports it.
    pub(super) fn through<R>(
        op: &Op<'_, Self>,
        call: impl FnOnce(&TcpSocket) -> Result<R>,
    ) -> Result<R> {
        let tcp = op.tcp()?;
        op.settle_errors(op.sk, tcp.sk());
        let result = call(tcp);
        op.settle_errors(op.sk, tcp.sk());
        op.sk.mirror_incoming_cpu(tcp.sk());
        result
    }

    /// Whichever socket reported the mirrored error, the other forgets it.
    pub(super) fn settle_errors(&self, outer: &Sk, inner: &Sk) {
        self.settle_soft_error(outer, inner);
        if self.mirrored.load(Relaxed) == 0 {
            return;
        }
        if !outer.has_err() {
            self.mirrored.store(0, Relaxed);
            let _ = inner.take_err();
        } else if !inner.has_err() {
            self.mirrored.store(0, Relaxed);
            let _ = outer.take_err();
        }
    }

    /// The same for errors that do not end the connection, of which TCP tells nobody. `SO_ERROR`
    /// shows those that were there at the last call, poll included.
    pub(super) fn settle_soft_error(&self, outer: &Sk, inner: &Sk) {
        let mirrored = self.mirrored_soft.load(Relaxed);
        if mirrored != 0 && outer.soft_err() == 0 {
            self.mirrored_soft.store(0, Relaxed);
            inner.set_soft_err(0);
            return;
        }
        let err = inner.soft_err();
        if err != mirrored {
            self.mirrored_soft.store(err, Relaxed);
            outer.set_soft_err(err);
        }
    }
}
