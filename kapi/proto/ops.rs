// SPDX-License-Identifier: GPL-2.0

//! `struct proto_ops`: what system calls do to the file's side of a socket.

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
        sock::Shutdown, //
    },
    const_c_int,
    count_result,
    int_result,
    object::tear_down,
    socket::op,
    Accept,
    Op,
    PollTable,
    Socket,
    Splice,
    StreamSocket, //
};
use core::marker::PhantomData;
use kernel::{
    error::from_result,
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_ulong, //
    },
    prelude::*, //
};

/// The operations of a family's sockets.
pub(super) struct OpsTable<T>(PhantomData<T>);

impl<T: StreamSocket> OpsTable<T> {
    /// The table for the sockets of an address family.
    pub(super) const fn table(family: u32, module: *mut bindings::module) -> bindings::proto_ops {
        bindings::proto_ops {
            family: const_c_int(family),
            owner: module,
            release: Some(Self::release_callback),
            bind: Some(Self::bind_callback),
            connect: Some(Self::connect_callback),
            socketpair: Some(bindings::sock_no_socketpair),
            accept: Some(Self::accept_callback),
            getname: Some(Self::getname_callback),
            poll: Some(Self::poll_callback),
            ioctl: Some(Self::ioctl_callback),
            #[cfg(CONFIG_COMPAT)]
            compat_ioctl: Some(Self::compat_ioctl_callback),
            listen: Some(Self::listen_callback),
            shutdown: Some(Self::shutdown_callback),
            setsockopt: Some(Self::setsockopt_callback),
            getsockopt: Some(Self::getsockopt_callback),
            sendmsg: Some(Self::sendmsg_callback),
            recvmsg: Some(Self::recvmsg_callback),
            mmap: Some(bindings::sock_no_mmap),
            splice_read: Some(Self::splice_read_callback),
            set_peek_off: Some(bindings::sk_set_peek_off),
            gettstamp: Some(bindings::sock_gettstamp),
            ..pin_init::zeroed()
        }
    }

    /// Runs an operation on a socket.
    ///
    /// # Safety
    ///
    /// `socket` must be a socket of `T` whose file is open.
    unsafe fn with<R>(
        socket: *mut bindings::socket,
        f: impl FnOnce(&Op<'_, T>) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: The caller guarantees a valid socket.
        let sk = unsafe { (*socket).sk };
        if sk.is_null() {
            return Err(EBADF);
        }
        // SAFETY: A socket with `sk` set and a file open has its value initialised.
        f(&unsafe { op::<T>(socket, sk) })
    }

    /// # Safety
    ///
    /// Called by core when the last reference to the file, or to a socket without file, is gone.
    unsafe extern "C" fn release_callback(socket: *mut bindings::socket) -> c_int {
        // SAFETY: Core passes a valid socket.
        let sk = unsafe { (*socket).sk };
        if sk.is_null() {
            return 0;
        }
        // SAFETY: No operation runs any more or can start.
        unsafe { tear_down::<T>(socket, sk) };
        // SAFETY: The inner socket, which borrowed our wait queue, is gone by now.
        unsafe { bindings::sock_orphan(sk) };
        // SAFETY: As above.
        unsafe { (*socket).sk = core::ptr::null_mut() };
        // SAFETY: Gives up the reference that the `struct socket` had.
        unsafe { bindings::sock_put(sk) };
        0
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::bind`.
    unsafe extern "C" fn bind_callback(
        socket: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
    ) -> c_int {
        // SAFETY: Core passes an open socket, and an address of `len` bytes.
        unsafe {
            int_result(Self::with(socket, |op| {
                T::bind(op, SockAddr::new(addr, len))
            }))
        }
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::connect`.
    unsafe extern "C" fn connect_callback(
        socket: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
        flags: c_int,
    ) -> c_int {
        // SAFETY: Core passes an open socket, and an address of `len` bytes.
        unsafe {
            int_result(Self::with(socket, |op| {
                T::connect(op, SockAddr::new(addr, len), flags)
            }))
        }
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::accept`.
    unsafe extern "C" fn accept_callback(
        socket: *mut bindings::socket,
        newsock: *mut bindings::socket,
        arg: *mut bindings::proto_accept_arg,
    ) -> c_int {
        // SAFETY: Core passes an open socket, a new one and a valid argument.
        unsafe {
            bindings::socket_set_custom_sockopt(newsock);
            int_result(Self::with(socket, |op| {
                let socket = Socket::from_ptr(newsock);
                T::accept(op, Accept { socket, arg })
            }))
        }
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::getname`.
    unsafe extern "C" fn getname_callback(
        socket: *mut bindings::socket,
        addr: *mut bindings::sockaddr,
        peer: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: Core passes an open socket, and room for any address.
            unsafe { Self::with(socket, |op| T::getname(op, addr.cast(), peer)) }
        })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::poll`.
    unsafe extern "C" fn poll_callback(
        file: *mut bindings::file,
        socket: *mut bindings::socket,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        let table = PollTable { file, table };
        // SAFETY: Core passes an open socket.
        unsafe { Self::with(socket, |op| Ok(T::poll(op, &table))) }.unwrap_or(bindings::POLLNVAL)
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::ioctl`.
    unsafe extern "C" fn ioctl_callback(
        socket: *mut bindings::socket,
        cmd: c_uint,
        arg: c_ulong,
    ) -> c_int {
        // SAFETY: Core passes an open socket.
        from_result(|| unsafe { Self::with(socket, |op| T::ioctl(op, cmd, arg, false)) })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::compat_ioctl`.
    #[cfg(CONFIG_COMPAT)]
    unsafe extern "C" fn compat_ioctl_callback(
        socket: *mut bindings::socket,
        cmd: c_uint,
        arg: c_ulong,
    ) -> c_int {
        // SAFETY: Core passes an open socket.
        from_result(|| unsafe { Self::with(socket, |op| T::ioctl(op, cmd, arg, true)) })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::listen`.
    unsafe extern "C" fn listen_callback(socket: *mut bindings::socket, backlog: c_int) -> c_int {
        // SAFETY: Core passes an open socket.
        int_result(unsafe { Self::with(socket, |op| T::listen(op, backlog)) })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::shutdown`.
    unsafe extern "C" fn shutdown_callback(socket: *mut bindings::socket, how: c_int) -> c_int {
        // SAFETY: Core passes an open socket.
        int_result(unsafe { Self::with(socket, |op| T::shutdown(op, Shutdown::from_how(how)?)) })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::setsockopt`.
    unsafe extern "C" fn setsockopt_callback(
        socket: *mut bindings::socket,
        level: c_int,
        name: c_int,
        ptr: bindings::sockptr_t,
        len: c_uint,
    ) -> c_int {
        // SAFETY: Core passes an open socket.
        int_result(unsafe {
            Self::with(socket, |op| {
                T::setsockopt(op, level, name, OptVal { ptr, len })
            })
        })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::getsockopt`.
    unsafe extern "C" fn getsockopt_callback(
        socket: *mut bindings::socket,
        level: c_int,
        name: c_int,
        val: *mut c_char,
        len: *mut c_int,
    ) -> c_int {
        // SAFETY: Core passes an open socket.
        int_result(unsafe {
            Self::with(socket, |op| {
                T::getsockopt(op, level, name, UserOpt { val, len })
            })
        })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::sendmsg`.
    unsafe extern "C" fn sendmsg_callback(
        socket: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
    ) -> c_int {
        // SAFETY: Core passes an open socket and a valid message.
        count_result(unsafe { Self::with(socket, |op| T::sendmsg(op, MsgHdr::from_ptr(msg), len)) })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::recvmsg`.
    unsafe extern "C" fn recvmsg_callback(
        socket: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: c_int,
    ) -> c_int {
        let flags = Flags(u32::from_ne_bytes(flags.to_ne_bytes()));
        // SAFETY: Core passes an open socket and a valid message.
        count_result(unsafe {
            Self::with(socket, |op| {
                T::recvmsg(op, MsgHdr::from_ptr(msg), len, flags)
            })
        })
    }

    /// # Safety
    ///
    /// Called by core as `proto_ops::splice_read`.
    unsafe extern "C" fn splice_read_callback(
        socket: *mut bindings::socket,
        ppos: *mut bindings::loff_t,
        pipe: *mut bindings::pipe_inode_info,
        len: usize,
        flags: c_uint,
    ) -> isize {
        let splice = Splice {
            ppos,
            pipe,
            len,
            flags,
        };
        // SAFETY: Core passes an open socket and valid arguments.
        match unsafe { Self::with(socket, |op| T::splice_read(op, splice)) } {
            Ok(done) => isize::try_from(done).unwrap_or(isize::MAX),
            Err(err) => isize::try_from(err.to_errno()).unwrap_or(isize::MIN),
        }
    }
}
