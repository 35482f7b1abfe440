// SPDX-License-Identifier: GPL-2.0

//! The times of what was sent, on the error queue: `SOF_TIMESTAMPING_TX_*`.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/uapi/linux/net_tstamp.h`](srctree/include/uapi/linux/net_tstamp.h)

use super::super::{
    bindings,
    msg::MsgHdr,
    sock::Sk, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Which times of a send its sender wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TxStamps(u32);

impl TxStamps {
    /// What the control data of the message asks for, or else the options of the socket.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: the control data is not valid.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn requested(sk: &Sk, msg: &mut MsgHdr) -> Result<Self> {
        if !msg.has_control() {
            return Ok(Self(sk.tx_stamps()));
        }
        let mut stamps = 0;
        // SAFETY: A live socket, a valid header of a sender, and room for the answer.
        to_result(unsafe { bindings::msg_tx_stamps(sk.as_ptr(), msg.as_ptr(), &raw mut stamps) })?;
        Ok(Self(stamps))
    }

    /// Whether there are any.
    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    /// Queues the times on the error queue of a TCP socket: sent and received is the same moment.
    ///
    /// `bytes`: how many bytes were sent since `SOF_TIMESTAMPING_OPT_ID` was set. Without memory
    /// nothing is told, as with TCP.
    ///
    /// # Context
    ///
    /// Process context; no lock is held.
    pub(crate) fn tell(self, tcp: &Sk, bytes: u32) {
        // SAFETY: A live TCP socket.
        unsafe { bindings::tcp_stamp_sent(tcp.as_ptr(), self.0, bytes) }
    }
}
