// SPDX-License-Identifier: GPL-2.0

//! The socket calls, passed on to TCP.

use super::{
    super::{
        bindings,
        msg::{
            Flags,
            MsgHdr,
            OptVal,
            SockAddr,
            UserOpt, //
        },
        proto::{
            result_of,
            PollTable,
            Splice, //
        },
        sock::{
            QueueLength,
            Shutdown,
            Sk, //
        },
    },
    hooks::hook,
    TcpOwner,
    TcpSocket, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    ffi::{
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    prelude::*, //
};

impl TcpSocket {
    /// `bind()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn bind(&self, addr: SockAddr<'_>) -> Result {
        let op = self.ops().bind.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket, and an address as long as it says.
        to_result(unsafe { op(self.0.as_ptr(), addr.ptr, addr.len) })
    }

    /// `connect()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn connect(&self, addr: SockAddr<'_>, flags: c_int) -> Result {
        let op = self.ops().connect.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket, and an address as long as it says.
        to_result(unsafe { op(self.0.as_ptr(), addr.ptr, addr.len, flags) })
    }

    /// `connect()` to nowhere: dissolves the connection, so that the socket may connect again.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn disconnect(&self) -> Result {
        let op = self.ops().connect.ok_or(EOPNOTSUPP)?;
        let mut addr = bindings::__kernel_sockaddr_storage::default();
        let len = c_int::try_from(size_of::<bindings::sa_family_t>()).map_err(|_| EINVAL)?;
        // SAFETY: A live socket, and an address as long as it says, of the family AF_UNSPEC.
        to_result(unsafe { op(self.0.as_ptr(), (&raw mut addr).cast(), len, 0) })
    }

    /// `listen()`, with the owner's hooks for SYNs and children. If handshakes are `limited`, the
    /// owner is asked before the SMC option of a SYN is answered with ours.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn listen<T: TcpOwner>(&self, backlog: c_int, limited: bool) -> Result {
        let op = self.ops().listen.ok_or(EOPNOTSUPP)?;
        {
            let _guard = self.sk().lock();
            if !hook::<T>(self.sk(), limited) {
                self.restore_callbacks();
                // Nobody would answer a client that begins to speak SMC before it is accepted.
                // SAFETY: A TCP socket, locked.
                unsafe { bindings::tcp_set_syn_smc(self.sk().as_ptr(), false) };
            }
        }
        // SAFETY: A live socket.
        to_result(unsafe { op(self.0.as_ptr(), backlog) })
    }

    /// Whether no connection waits to be accepted.
    pub(crate) fn accept_queue_empty(&self) -> bool {
        // SAFETY: A TCP socket; the queue's head is read as a whole.
        unsafe { bindings::icsk_accept_queue_empty(self.sk().as_ptr()) }
    }

    /// Takes a connection from the accept queue, without waiting; says whether it was the last one.
    ///
    /// `kern`: the kernel itself accepts.
    ///
    /// # Errors
    ///
    /// * `EAGAIN`: there is none.
    /// * `EINVAL`: the socket does not listen.
    /// * `ENFILE`, `ENOMEM`: no new socket can be made.
    pub(crate) fn accept(&self, kern: bool) -> Result<(Self, bool)> {
        let op = self.ops().accept.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket.
        let (family, kind) = unsafe {
            (
                c_int::from((*self.sk().as_ptr()).__sk_common.skc_family),
                c_int::from((*self.0.as_ptr()).type_),
            )
        };
        let tcp = c_int::try_from(bindings::IPPROTO_TCP).map_err(|_| EINVAL)?;
        let mut sock = core::ptr::null_mut();
        // SAFETY: `sock` receives the result.
        to_result(unsafe { bindings::sock_create_lite(family, kind, tcp, &raw mut sock) })?;
        // INVARIANT: Just created; without operations it is released as an empty socket.
        let new = Self(NonNull::new(sock).ok_or(ENOMEM)?);
        let mut arg = bindings::proto_accept_arg {
            flags: c_int::try_from(bindings::O_NONBLOCK).map_err(|_| EINVAL)?,
            kern,
            ..Default::default()
        };
        // SAFETY: Both sockets are live, and the argument is valid.
        to_result(unsafe { op(self.0.as_ptr(), new.0.as_ptr(), &raw mut arg) })?;
        // SAFETY: The new socket has the protocol of this one; its module is the kernel itself,
        // or is held by the listener.
        unsafe {
            (*new.0.as_ptr()).ops = (*self.0.as_ptr()).ops;
            bindings::module_hold((*(*new.0.as_ptr()).ops).owner);
        }
        Ok((new, arg.is_empty != 0))
    }

    /// `getsockname()` or `getpeername()`; returns the length.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn getname(&self, addr: *mut c_void, peer: c_int) -> Result<c_int> {
        let op = self.ops().getname.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket; `addr` is core's buffer for any address.
        let len = unsafe { op(self.0.as_ptr(), addr.cast(), peer) };
        to_result(len).map(|()| len)
    }

    /// The event mask of the TCP connection. The caller has registered on the wait queue.
    pub(crate) fn poll(&self, table: &PollTable) -> u32 {
        let Some(op) = self.ops().poll else {
            return 0;
        };
        // SAFETY: A live socket and an open file; without table nothing is registered.
        unsafe { op(table.file, self.0.as_ptr(), core::ptr::null_mut()) }
    }

    /// Answers a question about the queues of the TCP connection.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: the socket listens.
    pub(crate) fn queue_length(&self, query: QueueLength) -> Result<c_int> {
        let sk = self.sk().as_ptr();
        // SAFETY: A live TCP socket, which has its protocol for life.
        let ioctl = unsafe { (*(*sk).__sk_common.skc_prot).ioctl };
        let cmd = c_int::try_from(query.cmd())?;
        let mut answer = 0;
        // SAFETY: A live TCP socket that is not locked, and room for the answer.
        to_result(unsafe { ioctl.ok_or(ENOTTY)?(sk, cmd, &raw mut answer) })?;
        Ok(answer)
    }

    /// `ioctl()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn ioctl(&self, cmd: c_uint, arg: c_ulong, compat: bool) -> Result<c_int> {
        #[cfg(CONFIG_COMPAT)]
        if compat {
            let op = self.ops().compat_ioctl.ok_or(ENOTTY)?;
            // SAFETY: A live socket; the argument is the application's.
            let ret = unsafe { op(self.0.as_ptr(), cmd, arg) };
            return if ret < 0 {
                Err(Error::from_errno(ret))
            } else {
                Ok(ret)
            };
        }
        let _ = compat;
        let op = self.ops().ioctl.ok_or(ENOTTY)?;
        // SAFETY: A live socket; the argument is the application's.
        let ret = unsafe { op(self.0.as_ptr(), cmd, arg) };
        if ret < 0 {
            // Includes ENOIOCTLCMD, which is no errno but a request to core.
            Err(Error::from_errno(ret))
        } else {
            Ok(ret)
        }
    }

    /// `shutdown()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn shutdown(&self, how: Shutdown) -> Result {
        let op = self.ops().shutdown.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket.
        to_result(unsafe { op(self.0.as_ptr(), how.how().unwrap_or(0)) })
    }

    /// `setsockopt()` of any level, with a value in user memory or in the kernel's.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn setsockopt(&self, level: c_int, name: c_int, value: OptVal) -> Result {
        // Core has an int there.
        if c_int::try_from(value.len).is_err() {
            return Err(EINVAL);
        }
        if u32::try_from(level) == Ok(bindings::SOL_SOCKET) {
            // SAFETY: A live socket; the function checks the value.
            to_result(unsafe {
                bindings::sock_setsockopt(self.0.as_ptr(), level, name, value.ptr, value.len)
            })
        } else {
            let op = self.ops().setsockopt.ok_or(EOPNOTSUPP)?;
            // SAFETY: As above.
            to_result(unsafe { op(self.0.as_ptr(), level, name, value.ptr, value.len) })
        }
    }

    /// `setsockopt()` of level `SOL_SOCKET` with a value that was copied once.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn set_socket_option(&self, name: c_int, value: &mut [u8]) -> Result {
        // SAFETY: Makes a kernel pointer of `value`, which outlives the call.
        let ptr = unsafe { bindings::kernel_sockptr(value.as_mut_ptr().cast()) };
        let len = c_uint::try_from(value.len()).map_err(|_| EINVAL)?;
        let level = c_int::try_from(bindings::SOL_SOCKET).map_err(|_| EINVAL)?;
        self.setsockopt(level, name, OptVal { ptr, len })
    }

    /// `getsockopt()`, but for level `SOL_SOCKET`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn getsockopt(&self, level: c_int, name: c_int, value: UserOpt) -> Result {
        let op = self.ops().getsockopt.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket; the function checks the user's pointers.
        to_result(unsafe { op(self.0.as_ptr(), level, name, value.val, value.len) })
    }

    /// Copies to `outer` the options that core reads from the socket an application holds.
    ///
    /// # Context
    ///
    /// Process context; takes both socket locks, the outer one first.
    pub(crate) fn mirror_options(&self, outer: &Sk) {
        let _outer = outer.lock();
        let _inner = self.sk().lock();
        // SAFETY: Two live sockets, both locked.
        unsafe { bindings::sk_mirror_options(outer.as_ptr(), self.sk().as_ptr()) }
    }

    /// `sendmsg()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn sendmsg(&self, msg: &mut MsgHdr, len: usize) -> Result<usize> {
        let op = self.ops().sendmsg.ok_or(EOPNOTSUPP)?;
        // SAFETY: A live socket and a valid message.
        let ret = unsafe { op(self.0.as_ptr(), msg.as_ptr(), len) };
        usize::try_from(ret).map_err(|_| Error::from_errno(ret))
    }

    /// `recvmsg()`.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn recvmsg(&self, msg: &mut MsgHdr, len: usize, flags: Flags) -> Result<usize> {
        let op = self.ops().recvmsg.ok_or(EOPNOTSUPP)?;
        let flags = c_int::from_ne_bytes(flags.0.to_ne_bytes());
        // SAFETY: A live socket and a valid message.
        let ret = unsafe { op(self.0.as_ptr(), msg.as_ptr(), len, flags) };
        usize::try_from(ret).map_err(|_| Error::from_errno(ret))
    }

    /// `splice()` from the socket.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn splice_read(&self, splice: Splice) -> Result<usize> {
        let op = self.ops().splice_read.ok_or(EINVAL)?;
        // SAFETY: A live socket, which shares the application's file; the arguments are core's.
        result_of(unsafe {
            op(
                self.0.as_ptr(),
                splice.ppos,
                splice.pipe,
                splice.len,
                splice.flags,
            )
        })
    }

    /// Resets the connection instead of closing it: the peer gets RST.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn reset_on_close(&self) {
        // SAFETY: A live socket, which the function locks.
        unsafe { bindings::sock_no_linger((*self.0.as_ptr()).sk) }
    }
}
