// SPDX-License-Identifier: GPL-2.0

//! Questions about the queues of a stream.
//!
//! C header: [`include/uapi/linux/sockios.h`](srctree/include/uapi/linux/sockios.h)

use super::super::bindings;
use kernel::{
    ffi::{
        c_int,
        c_ulong, //
    },
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// What an `ioctl()` asks of a stream's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueLength {
    /// `SIOCINQ`, also known as `FIONREAD`: bytes that can be read.
    Unread,
    /// `SIOCOUTQ`: bytes that the peer has not acknowledged.
    Unacknowledged,
    /// `SIOCOUTQNSD`: bytes that were not sent yet.
    Unsent,
    /// `SIOCATMARK`: whether the next byte is the urgent one.
    AtMark,
}

impl QueueLength {
    /// The question behind a command, if it is one.
    pub(crate) fn from_ioctl(cmd: u32) -> Option<Self> {
        match cmd {
            bindings::SIOCINQ => Some(Self::Unread),
            bindings::SIOCOUTQ => Some(Self::Unacknowledged),
            bindings::SIOCOUTQNSD => Some(Self::Unsent),
            bindings::SIOCATMARK => Some(Self::AtMark),
            _ => None,
        }
    }

    /// The command that asks the question.
    pub(in crate::kapi) fn cmd(self) -> u32 {
        match self {
            Self::Unread => bindings::SIOCINQ,
            Self::Unacknowledged => bindings::SIOCOUTQ,
            Self::Unsent => bindings::SIOCOUTQNSD,
            Self::AtMark => bindings::SIOCATMARK,
        }
    }

    /// Writes the answer to where the application wants it.
    ///
    /// # Errors
    ///
    /// * `EFAULT`: the memory is not writable.
    pub(crate) fn reply(self, arg: c_ulong, answer: c_int) -> Result {
        let ptr = UserPtr::from_addr(arg);
        UserSlice::new(ptr, size_of::<c_int>())
            .writer()
            .write_slice(&answer.to_ne_bytes())
    }
}
