// SPDX-License-Identifier: GPL-2.0

//! Stream-socket families whose sockets carry a Rust value.
//!
//! A `struct sock` that embeds `struct inet_sock`, so that the inet and inet6
//! core may do to it what they do to any of theirs, is followed by the value of
//! a type that implements [`StreamSocket`].
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/net/protocol.h`](srctree/include/net/protocol.h)

mod accept;
mod family;
mod object;
mod ops;
mod poll;
mod protocol;
mod registration;
mod socket;
mod splice;

pub(super) use object::value_of;
pub(crate) use {
    accept::Accept,
    family::{
        Family,
        FamilyMember, //
    },
    poll::PollTable,
    registration::Registration,
    socket::{
        Op,
        Socket, //
    },
    splice::Splice, //
};

use super::{
    msg::{
        Flags,
        MsgHdr,
        OptVal,
        SockAddr,
        UserOpt, //
    },
    sock::{
        QueueLength,
        Shutdown,
        Sk, //
    },
};
use kernel::{
    error::from_result,
    ffi::{
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    prelude::*, //
};

/// The IP version of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    /// IPv4.
    V4,
    /// IPv6, which may carry IPv4.
    V6,
}

/// The circumstances of a socket's birth.
pub(crate) struct Birth<'a> {
    /// The new socket.
    pub(crate) sk: &'a Sk,
    /// Its IP version.
    pub(crate) version: Version,
    /// Whether the kernel itself creates it.
    pub(crate) kern: bool,
}

/// A value that can be a stream socket.
///
/// The methods are the socket's operations. They run in process context without the socket lock,
/// several at once, except [`Self::release`], after which no operation starts, and
/// [`Self::finish`], which has the value for itself.
pub(crate) trait StreamSocket: Sized + Send + Sync + 'static {
    /// Makes the value of a socket that an application creates.
    fn new(birth: Birth<'_>) -> impl PinInit<Self, Error>;

    /// The value of a created socket is in place: from now on others may be told of it.
    fn opened(op: &Op<'_, Self>);

    /// `bind()`.
    fn bind(op: &Op<'_, Self>, addr: SockAddr<'_>) -> Result;

    /// `connect()`.
    fn connect(op: &Op<'_, Self>, addr: SockAddr<'_>, flags: c_int) -> Result;

    /// `accept()`.
    fn accept(op: &Op<'_, Self>, accept: Accept<'_>) -> Result;

    /// `getsockname()`, or `getpeername()` for a `peer` other than 0; returns the length.
    fn getname(op: &Op<'_, Self>, addr: *mut c_void, peer: c_int) -> Result<c_int>;

    /// `poll()`: the event mask.
    fn poll(op: &Op<'_, Self>, table: &PollTable) -> u32;

    /// `ioctl()`.
    fn ioctl(op: &Op<'_, Self>, cmd: c_uint, arg: c_ulong, compat: bool) -> Result<c_int>;

    /// Answers a question about the stream's queues: in bytes, or 1 and 0 for yes and no.
    fn queue_length(op: &Op<'_, Self>, query: QueueLength) -> Result<c_int>;

    /// `listen()`.
    fn listen(op: &Op<'_, Self>, backlog: c_int) -> Result;

    /// `shutdown()`.
    fn shutdown(op: &Op<'_, Self>, how: Shutdown) -> Result;

    /// `setsockopt()`, including level `SOL_SOCKET`.
    fn setsockopt(op: &Op<'_, Self>, level: c_int, name: c_int, value: OptVal) -> Result;

    /// `getsockopt()`, but for level `SOL_SOCKET`, which core answers.
    fn getsockopt(op: &Op<'_, Self>, level: c_int, name: c_int, value: UserOpt) -> Result;

    /// `sendmsg()`: the number of bytes taken.
    fn sendmsg(op: &Op<'_, Self>, msg: &mut MsgHdr, len: usize) -> Result<usize>;

    /// `recvmsg()`: the number of bytes delivered.
    fn recvmsg(op: &Op<'_, Self>, msg: &mut MsgHdr, len: usize, flags: Flags) -> Result<usize>;

    /// `splice()` from the socket: the number of bytes moved.
    fn splice_read(op: &Op<'_, Self>, splice: Splice) -> Result<usize>;

    /// `SO_KEEPALIVE` set by a kernel user.
    fn keepalive(value: &Self, on: bool);

    /// The last file reference is gone: cuts every way by which others reach the value (callbacks,
    /// tables), all of which may be in use up to this point.
    fn release(op: &Op<'_, Self>);

    /// Frees what must be freed in process context; nobody else has the value any more.
    fn finish(self: Pin<&mut Self>);
}

/// A count, or a negative errno, as a result.
pub(super) fn result_of(value: isize) -> Result<usize> {
    usize::try_from(value).map_err(|_| c_int::try_from(value).map_or(EINVAL, Error::from_errno))
}

/// A result without value as an operation returns it: 0 or a negative errno.
fn int_result(result: Result) -> c_int {
    from_result(|| result.map(|()| 0))
}

/// A count as an operation returns it: the count or a negative errno.
fn count_result(result: Result<usize>) -> c_int {
    from_result(|| result.map(|count| c_int::try_from(count).unwrap_or(c_int::MAX)))
}

/// A small constant as `c_int`.
const fn const_c_int(value: u32) -> c_int {
    assert!(value <= 0x7fff_ffff);
    c_int::from_ne_bytes(value.to_ne_bytes())
}
