// SPDX-License-Identifier: GPL-2.0

//! `splice_read()` under way.

use super::{
    super::bindings,
    result_of,
    Socket, //
};
use kernel::{
    ffi::c_uint,
    prelude::*, //
};

/// Arguments of `splice_read()`, to be passed on.
pub(crate) struct Splice {
    pub(in crate::kapi) ppos: *mut bindings::loff_t,
    pub(in crate::kapi) pipe: *mut bindings::pipe_inode_info,
    pub(in crate::kapi) len: usize,
    pub(in crate::kapi) flags: c_uint,
}

impl Splice {
    /// Whether the call must not wait for data, as TCP judges it: by the socket's file.
    pub(crate) fn nonblock(&self, socket: &Socket) -> bool {
        // SAFETY: `socket` belongs to a file that the system call holds open.
        unsafe { bindings::socket_nonblock(socket.as_ptr()) }
    }

    /// How many bytes the caller wants.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads up to `len` bytes into fresh pages by `recvmsg()` and hands these to the pipe.
    ///
    /// # Errors
    ///
    /// Those of `recvmsg()`, and `ESPIPE` when a position was given.
    pub(crate) fn copy(&self, socket: &Socket, len: usize) -> Result<usize> {
        // SAFETY: `socket` belongs to a file that the system call holds open.
        let file = unsafe { bindings::socket_file(socket.as_ptr()) };
        let len = len.min(self.len);
        // SAFETY: The arguments are core's own; `file` is open.
        let done =
            unsafe { bindings::copy_splice_read(file, self.ppos, self.pipe, len, self.flags) };
        result_of(done)
    }
}
