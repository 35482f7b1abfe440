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
        result
    }

    /// Whichever socket reported the mirrored error, the other forgets it.
    pub(super) fn settle_errors(&self, outer: &Sk, inner: &Sk) {
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
}
