// SPDX-License-Identifier: GPL-2.0

//! `poll()` under way.

use super::{
    super::bindings,
    Op, //
};

/// A table that `poll()` registers in.
pub(crate) struct PollTable {
    pub(in crate::kapi) file: *mut bindings::file,
    pub(super) table: *mut bindings::poll_table_struct,
}

impl PollTable {
    /// Registers on the socket's wait queue; a full barrier follows, so that an event after this
    /// call wakes the poller, and one before it is seen by whoever looks now.
    pub(crate) fn register<T>(&self, op: &Op<'_, T>) {
        // SAFETY: Core's arguments are valid during the call.
        unsafe { bindings::sock_poll_wait(self.file, op.socket.as_ptr(), self.table) };
    }
}
