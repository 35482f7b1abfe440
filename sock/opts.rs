// SPDX-License-Identifier: GPL-2.0

//! Socket options: all of them are TCP's; those that core reads from the outer
//! socket are mirrored there.

#![deny(unsafe_code)]

use super::{
    connect::Standing,
    defer::Patience,
    Mode,
    SmcSock, //
};
use crate::{
    clc::wire::decline::Reason,
    kapi::{
        msg::{
            OptVal,
            UserOpt, //
        },
        proto::Op,
        sock::SocketOption,
    },
};
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::atomic::Relaxed, //
};

/// The longest value of an option of level `SOL_SOCKET` that has a fixed size.
const MAX_VALUE: usize = 64;

impl SmcSock {
    /// `setsockopt()` of any level.
    ///
    /// # Errors
    ///
    /// * `EOPNOTSUPP`: `TCP_ULP` of an SMC-D connection; an unknown option of level `SOL_SMC`.
    /// * `ENOTCONN`: `TCP_ULP` before it is known what the connection is.
    /// * those of TCP.
    pub(super) fn set_option(
        op: &Op<'_, Self>,
        level: c_int,
        name: c_int,
        value: OptVal,
    ) -> Result {
        let option = SocketOption::new(level, name);
        match option {
            SocketOption::Socket => return Self::set_socket_option(op, name, value),
            SocketOption::Threshold => {
                Self::set_socket_option(op, name, value)?;
                if let Some(Mode::Smcd(_)) = op.mode() {
                    // There may be enough by now; TCP tells those who wait, too.
                    op.sk.data_ready();
                    op.sk.write_space();
                }
                return Ok(());
            }
            SocketOption::PeekOffset => {
                Self::set_socket_option(op, name, value)?;
                op.sk.mirror_peek_off(op.tcp()?.sk());
                return Ok(());
            }
            SocketOption::Ulp => match Self::standing(op) {
                // What it would change is not where the data goes.
                Standing::Decided(Mode::Smcd(_)) => return Err(EOPNOTSUPP),
                Standing::Pending => return Err(ENOTCONN),
                Standing::Decided(Mode::Tcp(_)) => op.tcp()?.yield_data_ready::<Self>(),
                Standing::Idle => {}
            },
            SocketOption::DeferAccept => {
                op.deferred
                    .set_patience(Patience::from_secs(value.read_int()?));
                // Who waits judges anew.
                op.sk.data_ready();
                return Ok(());
            }
            SocketOption::SmcLimitHandshakes => {
                let limits = value.read_int()? != 0;
                op.limits_handshakes.store(limits, Relaxed);
                return Ok(());
            }
            SocketOption::SmcOther => return Err(EOPNOTSUPP),
            SocketOption::FastOpenConnect | SocketOption::Inq | SocketOption::Other => {}
        }
        Self::through(op, |tcp| tcp.setsockopt(level, name, value))?;
        if option == SocketOption::Inq {
            let tells = op.tcp()?.sk().tcp_recvmsg_inq();
            op.tells_unread.store(tells, Relaxed);
        }
        if option == SocketOption::FastOpenConnect && op.offer().is_none() {
            op.fall_back(op.sk, Reason::OptionUnsupported, op.attempt());
        }
        Ok(())
    }

    /// Sets an option of level `SOL_SOCKET`: the value is read once and applied to TCP, and what
    /// TCP made of it is mirrored.
    fn set_socket_option(op: &Op<'_, Self>, name: c_int, value: OptVal) -> Result {
        let mut buf = [0; MAX_VALUE];
        let len = value.len().min(buf.len());
        let copy = buf.get_mut(..len).ok_or(EINVAL)?;
        value.read(copy)?;
        let tcp = op.tcp()?;
        let numbered = op.sk.numbers_stamps();
        tcp.set_socket_option(name, copy)?;
        tcp.mirror_options(op.sk);
        if let (Some(Mode::Smcd(end)), true) = (op.mode(), !numbered && op.sk.numbers_stamps()) {
            op.stamps_from.store(end.sent(), Relaxed);
        }
        Ok(())
    }

    /// `getsockopt()`, but for level `SOL_SOCKET`, which core answers.
    ///
    /// # Errors
    ///
    /// * `EOPNOTSUPP`: an unknown option of level `SOL_SMC`.
    /// * those of TCP.
    pub(super) fn get_option(
        op: &Op<'_, Self>,
        level: c_int,
        name: c_int,
        value: UserOpt,
    ) -> Result {
        match SocketOption::new(level, name) {
            SocketOption::DeferAccept => value.write_int(op.deferred.patience().secs()),
            SocketOption::SmcLimitHandshakes => {
                value.write_int(op.limits_handshakes.load(Relaxed).into())
            }
            SocketOption::SmcOther => {
                let _room = value.room()?;
                Err(EOPNOTSUPP)
            }
            _ => Self::through(op, |tcp| tcp.getsockopt(level, name, value)),
        }
    }
}
