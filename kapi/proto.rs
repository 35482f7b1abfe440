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

use super::{
    bindings,
    msg::{
        Flags,
        MsgHdr,
        OptVal,
        SockAddr,
        UserOpt, //
    },
    net::Net,
    sock::{
        Shutdown,
        Sk, //
    },
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Deref,
    ptr::{
        addr_of_mut,
        NonNull, //
    },
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    prelude::*,
    types::Opaque, //
};

/// A socket as its C users see it, followed by the Rust value.
#[repr(C)]
pub(super) struct Object<T> {
    inet: Opaque<bindings::inet_sock>,
    value: T,
}

/// An IPv6 socket: core wants `struct ipv6_pinfo` at the end of the object.
#[repr(C)]
struct Object6<T> {
    object: Object<T>,
    pinfo: Opaque<bindings::ipv6_pinfo>,
}

/// The Rust value behind a socket.
///
/// # Safety
///
/// `sk` must be a socket of `T`'s protocols whose value is initialised and not yet dropped.
pub(super) unsafe fn value_of<T>(sk: *mut bindings::sock) -> *mut T {
    // SAFETY: The caller guarantees that `sk` begins an `Object<T>`.
    unsafe { addr_of_mut!((*sk.cast::<Object<T>>()).value) }
}

/// A `struct socket`: what a file holds.
#[repr(transparent)]
pub(crate) struct Socket(Opaque<bindings::socket>);

impl Socket {
    /// Borrows a socket.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid socket for `'a`.
    pub(super) unsafe fn from_ptr<'a>(ptr: *mut bindings::socket) -> &'a Self {
        // SAFETY: The type is transparent, and the caller guarantees the rest.
        unsafe { &*ptr.cast() }
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut bindings::socket {
        self.0.get()
    }
}

/// A socket within one of its operations: its file is open, and its value shared.
pub(crate) struct Op<'a, T> {
    /// What the file holds.
    pub(crate) socket: &'a Socket,
    /// The protocol's side of it.
    pub(crate) sk: &'a Sk,
    value: &'a T,
}

impl<T> Deref for Op<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

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

/// An `accept()` under way: the socket that will hold the new connection.
pub(crate) struct Accept<'a> {
    socket: &'a Socket,
    arg: *mut bindings::proto_accept_arg,
}

impl Accept<'_> {
    /// Whether the call must not wait.
    pub(crate) fn nonblock(&self) -> bool {
        // SAFETY: Core's argument is valid during the call.
        let flags = unsafe { (*self.arg).flags };
        u32::try_from(flags).is_ok_and(|flags| flags & bindings::O_NONBLOCK != 0)
    }

    /// Whether the kernel itself accepts.
    pub(crate) fn kern(&self) -> bool {
        // SAFETY: Core's argument is valid during the call.
        unsafe { (*self.arg).kern }
    }

    /// Tells core whether more connections wait.
    pub(crate) fn set_empty(&mut self, empty: bool) {
        // SAFETY: Core's argument is valid during the call.
        unsafe { (*self.arg).is_empty = empty.into() };
    }

    /// Gives the accepted connection its socket, of the same protocol as `listener`.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    /// * those of `init`.
    pub(crate) fn graft<'b, T: StreamSocket, I: PinInit<T, Error>>(
        &'b self,
        listener: &Sk,
        init: impl FnOnce(Birth<'_>) -> I,
    ) -> Result<Op<'b, T>> {
        let parent = listener.as_ptr();
        // SAFETY: `listener` is a live socket; these fields never change.
        let (family, proto, protocol) = unsafe {
            (
                (*parent).__sk_common.skc_family,
                (*parent).__sk_common.skc_prot,
                bindings::sk_protocol(parent),
            )
        };
        // SAFETY: `proto` is one of this module's registered protocols, as the listener has it.
        let version = unsafe { version_of(proto) };
        let net = listener.net();
        // SAFETY: As above; the socket is not yet visible to anybody.
        let sk = unsafe {
            alloc::<T>(
                net,
                family.into(),
                proto,
                protocol,
                version,
                self.kern(),
                None,
            )?
        };
        // SAFETY: A new socket, referenced until it is put below.
        let new = unsafe { Sk::from_ptr(sk) };
        // SAFETY: `sk` has no socket yet, and `self.socket` no `sk`.
        unsafe { bindings::sock_graft(sk, self.socket.as_ptr()) };
        let birth = Birth {
            sk: new,
            version,
            kern: self.kern(),
        };
        // SAFETY: The value of the new socket is not initialised.
        if let Err(err) = unsafe { init_value::<T, _>(sk, version, init(birth)) } {
            // SAFETY: Nobody but this function knows `sk`; its value is not initialised.
            unsafe { discard(self.socket.as_ptr(), sk) };
            return Err(err);
        }
        // SAFETY: The socket is not yet in use.
        unsafe {
            (*self.socket.as_ptr()).state = bindings::socket_state_SS_CONNECTED;
        };
        // SAFETY: Just initialised; the caller is within `accept()`, which keeps the new socket.
        Ok(unsafe { op::<T>(self.socket.as_ptr(), sk) })
    }
}

/// Arguments of `splice_read()`, to be passed on.
pub(crate) struct Splice {
    pub(super) ppos: *mut bindings::loff_t,
    pub(super) pipe: *mut bindings::pipe_inode_info,
    pub(super) len: usize,
    pub(super) flags: c_uint,
}

impl Splice {
    /// Whether the call must not wait for data, as TCP judges it: by the socket's file.
    pub(crate) fn nonblock(&self, socket: &Socket) -> bool {
        // SAFETY: `socket` belongs to a file that the system call holds open.
        unsafe { bindings::socket_nonblock(socket.as_ptr()) }
    }

    /// Reads into fresh pages by `recvmsg()` and hands these to the pipe.
    ///
    /// # Errors
    ///
    /// Those of `recvmsg()`, and `ESPIPE` when a position was given.
    pub(crate) fn copy(&self, socket: &Socket) -> Result<usize> {
        // SAFETY: `socket` belongs to a file that the system call holds open.
        let file = unsafe { bindings::socket_file(socket.as_ptr()) };
        // SAFETY: The arguments are core's own; `file` is open.
        let done =
            unsafe { bindings::copy_splice_read(file, self.ppos, self.pipe, self.len, self.flags) };
        result_of(done)
    }
}

/// A count, or a negative errno, as a result.
pub(super) fn result_of(value: isize) -> Result<usize> {
    usize::try_from(value).map_err(|_| c_int::try_from(value).map_or(EINVAL, Error::from_errno))
}

/// A table that `poll()` registers in.
pub(crate) struct PollTable {
    pub(super) file: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
}

impl PollTable {
    /// Registers on the socket's wait queue; a full barrier follows, so that an event after this
    /// call wakes the poller, and one before it is seen by whoever looks now.
    pub(crate) fn register<T>(&self, op: &Op<'_, T>) {
        // SAFETY: Core's arguments are valid during the call.
        unsafe { bindings::sock_poll_wait(self.file, op.socket.as_ptr(), self.table) };
    }
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

/// Builds the operation handle of a socket.
///
/// # Safety
///
/// `socket` and `sk` must belong together, `sk`'s value must be initialised, and both must outlive
/// `'a`.
unsafe fn op<'a, T>(socket: *mut bindings::socket, sk: *mut bindings::sock) -> Op<'a, T> {
    Op {
        // SAFETY: The caller guarantees it.
        socket: unsafe { Socket::from_ptr(socket) },
        // SAFETY: The caller guarantees it.
        sk: unsafe { Sk::from_ptr(sk) },
        // SAFETY: The caller guarantees it.
        value: unsafe { &*value_of::<T>(sk) },
    }
}

/// The IP version that a protocol of this module serves.
///
/// # Safety
///
/// `proto` must point to a valid protocol.
unsafe fn version_of(proto: *mut bindings::proto) -> Version {
    // SAFETY: The caller guarantees it; the field never changes after registration.
    if unsafe { (*proto).ipv6_pinfo_offset } == 0 {
        Version::V4
    } else {
        Version::V6
    }
}

/// Allocates a socket that is not created by the inet core, and initialises it as
/// `inet_create()` and `inet6_create()` do.
///
/// # Safety
///
/// `proto` must be a registered protocol of `T`.
unsafe fn alloc<T: StreamSocket>(
    net: &Net,
    family: c_int,
    proto: *mut bindings::proto,
    protocol: u16,
    version: Version,
    kern: bool,
    socket: Option<&Socket>,
) -> Result<*mut bindings::sock> {
    // SAFETY: The namespace is alive, and the caller vouches for the protocol.
    let sk = unsafe {
        bindings::sk_alloc(
            net.as_ptr(),
            family,
            bindings::SMC_LO_GFP_KERNEL,
            proto,
            kern.into(),
        )
    };
    if sk.is_null() {
        return Err(ENOBUFS);
    }
    let socket = socket.map_or(core::ptr::null_mut(), Socket::as_ptr);
    // SAFETY: `sk` is new; `socket` is NULL or has no `sk` yet.
    unsafe { bindings::sock_init_data(socket, sk) };
    // SAFETY: `sk` is new and begins an `inet_sock`.
    unsafe { bindings::inet_sock_defaults(sk, protocol) };
    match version {
        // SAFETY: As above. The destructor of a socket without value.
        Version::V4 => unsafe { (*sk).sk_destruct = Some(bindings::inet_sock_destruct) },
        Version::V6 => {
            // SAFETY: As above, and the object ends in an `ipv6_pinfo`.
            unsafe { bindings::inet6_sock_defaults(sk) };
            // SAFETY: As above.
            unsafe { (*sk).sk_destruct = Some(bindings::inet6_sock_destruct) };
        }
    }
    Ok(sk)
}

/// Initialises the value of a socket and takes over its destructor.
///
/// # Safety
///
/// `sk` must be new, of a protocol of `T`, with its C part initialised.
unsafe fn init_value<T: StreamSocket, I: PinInit<T, Error>>(
    sk: *mut bindings::sock,
    version: Version,
    init: I,
) -> Result {
    // SAFETY: `sk` is new; the outer and the inner socket of one family nest, so ours have a lock
    // class of their own.
    unsafe { bindings::sock_lock_init_smc_class(sk) };
    // SAFETY: The caller guarantees that the value's memory is there and unused; a socket never
    // moves.
    unsafe { pin_init::raw_try_init(value_of::<T>(sk), init) }?;
    // SAFETY: `sk` is new.
    unsafe {
        (*sk).sk_destruct = Some(match version {
            Version::V4 => destruct_callback::<T>,
            Version::V6 => destruct6_callback::<T>,
        });
    };
    // SAFETY: `sk` is new.
    unsafe { (*sk).sk_write_space = Some(write_space_callback) };
    // SAFETY: `sk` is initialised.
    unsafe { bindings::sock_prot_inuse_add(sk, 1) };
    Ok(())
}

/// Frees a socket whose value was never initialised.
///
/// # Safety
///
/// Nobody else may know `sk`.
unsafe fn discard(socket: *mut bindings::socket, sk: *mut bindings::sock) {
    // SAFETY: The caller guarantees that both are ours.
    unsafe { bindings::sock_orphan(sk) };
    // SAFETY: As above.
    unsafe { (*socket).sk = core::ptr::null_mut() };
    // SAFETY: As above; this is the last reference.
    unsafe { bindings::sock_put(sk) };
}

/// Takes a socket's value out of use: cuts all ways to it, then frees what must not be freed in
/// softirq.
///
/// # Safety
///
/// `sk`'s value must be initialised, and no operation may run on it or start.
unsafe fn tear_down<T: StreamSocket>(socket: *mut bindings::socket, sk: *mut bindings::sock) {
    // SAFETY: The caller guarantees that the value is initialised.
    T::release(&unsafe { op::<T>(socket, sk) });
    // SAFETY: `release` cut every other way to the value, and no operation runs.
    let value = unsafe { Pin::new_unchecked(&mut *value_of::<T>(sk)) };
    T::finish(value);
    // SAFETY: The socket is still alive.
    unsafe { bindings::sock_prot_inuse_add(sk, -1) };
    // SAFETY: As above. Core's destructor insists on it.
    unsafe { Sk::from_ptr(sk) }.show_listening(false);
}

/// # Safety
///
/// Called by core with the last reference to a socket gone. May run in softirq.
unsafe extern "C" fn destruct_callback<T>(sk: *mut bindings::sock) {
    // SAFETY: Installed only when the value was initialised; nobody has the socket any more.
    unsafe { value_of::<T>(sk).drop_in_place() };
    // SAFETY: The destructor that the inet core gave this socket.
    unsafe { bindings::inet_sock_destruct(sk) };
}

/// # Safety
///
/// As [`destruct_callback`], for IPv6.
unsafe extern "C" fn destruct6_callback<T>(sk: *mut bindings::sock) {
    // SAFETY: As in `destruct_callback`.
    unsafe { value_of::<T>(sk).drop_in_place() };
    // SAFETY: As in `destruct_callback`.
    unsafe { bindings::inet6_sock_destruct(sk) };
}

/// Wakes writers that found no room, as `sk_stream_write_space()` does; the caller has seen that
/// there is enough.
///
/// # Safety
///
/// Called with a live socket.
unsafe extern "C" fn write_space_callback(sk: *mut bindings::sock) {
    let _rcu = kernel::sync::rcu::read_lock();
    // SAFETY: The caller guarantees a live socket; RCU keeps its `struct socket`.
    if !unsafe { bindings::sk_clear_nospace(sk) } {
        return;
    }
    // SAFETY: As above.
    unsafe { bindings::sk_wake_writers(sk) };
    // SAFETY: As above.
    unsafe { bindings::sk_wake_async_out(sk) };
}

/// A `struct proto` for sockets with a value of type `T`.
#[repr(transparent)]
struct ProtoTable<T>(UnsafeCell<bindings::proto>, PhantomData<T>);

// SAFETY: After registration core owns the table and synchronises its users.
unsafe impl<T> Sync for ProtoTable<T> {}

/// A NUL-terminated name in the fixed array that a protocol has for it.
const fn proto_name(name: &str) -> [c_char; 32] {
    let bytes = name.as_bytes();
    let mut array = [0; 32];
    let mut i = 0;
    while i < bytes.len() {
        array[i] = bytes[i];
        i += 1;
    }
    array
}

impl<T: StreamSocket> ProtoTable<T> {
    const fn new(name: &str, version: Version, module: *mut bindings::module) -> Self {
        let mut proto: bindings::proto = pin_init::zeroed();
        proto.name = proto_name(name);
        proto.owner = module;
        proto.init = match version {
            Version::V4 => Some(init_callback::<T, false>),
            Version::V6 => Some(init_callback::<T, true>),
        };
        proto.destroy = Some(destroy_callback::<T>);
        proto.unhash = Some(unhash_callback);
        proto.keepalive = Some(keepalive_callback::<T>);
        match version {
            Version::V4 => proto.obj_size = const_u32(size_of::<Object<T>>()),
            Version::V6 => {
                proto.obj_size = const_u32(size_of::<Object6<T>>());
                proto.ipv6_pinfo_offset = const_u32(core::mem::offset_of!(Object6<T>, pinfo));
            }
        }
        Self(UnsafeCell::new(proto), PhantomData)
    }
}

/// A small size as `u32`, checked where it is a constant.
const fn const_u32(size: usize) -> u32 {
    let bytes = size.to_le_bytes();
    assert!(size <= 0xffff_ffff);
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// # Safety
///
/// Called by the inet core with a new socket of one of our protocols.
unsafe extern "C" fn init_callback<T: StreamSocket, const V6: bool>(
    sk: *mut bindings::sock,
) -> c_int {
    let version = if V6 { Version::V6 } else { Version::V4 };
    from_result(|| {
        // SAFETY: Core has set `sk_socket` of the new socket.
        let socket = unsafe { Socket::from_ptr((*sk).sk_socket) };
        // SAFETY: As above.
        let new = unsafe { Sk::from_ptr(sk) };
        let birth = Birth {
            sk: new,
            version,
            kern: new.is_kern(),
        };
        // SAFETY: The value's memory is zeroed and unused.
        unsafe { init_value::<T, _>(sk, version, T::new(birth)) }?;
        // SAFETY: The socket is not yet in use.
        unsafe { bindings::socket_set_custom_sockopt(socket.as_ptr()) };
        // SAFETY: The value was just initialised; core keeps the socket meanwhile.
        T::opened(&unsafe { op::<T>(socket.as_ptr(), sk) });
        Ok(0)
    })
}

/// # Safety
///
/// Called by `sk_common_release()` for a socket whose creation failed, before or after its value
/// was initialised.
unsafe extern "C" fn destroy_callback<T: StreamSocket>(sk: *mut bindings::sock) {
    // SAFETY: The socket is alive, and nobody else uses it.
    let destruct = unsafe { (*sk).sk_destruct };
    let ours: [Option<unsafe extern "C" fn(*mut bindings::sock)>; 2] =
        [Some(destruct_callback::<T>), Some(destruct6_callback::<T>)];
    if ours.iter().any(|f| {
        f.map(|f| (f as *const c_void).addr()) == destruct.map(|f| (f as *const c_void).addr())
    }) {
        // SAFETY: Our destructor is installed only with the value initialised; the socket was
        // never handed out.
        unsafe { tear_down::<T>((*sk).sk_socket, sk) };
    }
}

/// # Safety
///
/// Called by core. Our sockets are in no table of the protocol's.
unsafe extern "C" fn unhash_callback(_sk: *mut bindings::sock) {}

/// # Safety
///
/// Called by core with a live socket, which it holds locked.
unsafe extern "C" fn keepalive_callback<T: StreamSocket>(sk: *mut bindings::sock, on: c_int) {
    // SAFETY: Core calls this for a socket in use, so its value is initialised.
    T::keepalive(unsafe { &*value_of::<T>(sk) }, on != 0);
}

/// The operations of a family's sockets.
struct OpsTable<T>(PhantomData<T>);

impl<T: StreamSocket> OpsTable<T> {
    const fn table(family: u32, module: *mut bindings::module) -> bindings::proto_ops {
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

/// A small constant as `c_int`.
const fn const_c_int(value: u32) -> c_int {
    assert!(value <= 0x7fff_ffff);
    c_int::from_ne_bytes(value.to_ne_bytes())
}

fn int_result(result: Result) -> c_int {
    from_result(|| result.map(|()| 0))
}

fn count_result(result: Result<usize>) -> c_int {
    from_result(|| result.map(|count| c_int::try_from(count).unwrap_or(c_int::MAX)))
}

/// Everything that core keeps pointers to while a family of sockets is registered: the `AF_SMC`
/// family with its IPv4 and IPv6 protocols, and `IPPROTO_SMC` of both inet families.
pub(crate) struct Family<T> {
    smc: ProtoTable<T>,
    smc6: ProtoTable<T>,
    inet: ProtoTable<T>,
    inet6: ProtoTable<T>,
    smc_ops: bindings::proto_ops,
    inet_ops: bindings::proto_ops,
    inet6_ops: bindings::proto_ops,
    inet_switch: UnsafeCell<bindings::inet_protosw>,
    inet6_switch: UnsafeCell<bindings::inet_protosw>,
    family: bindings::net_proto_family,
    memory_allocated: UnsafeCell<bindings::atomic_long_t>,
}

// SAFETY: The cells are written before registration and used by core alone afterwards.
unsafe impl<T> Sync for Family<T> {}

impl<T: StreamSocket> Family<T> {
    /// The tables, for a static.
    pub(crate) const fn new(module: &'static ThisModule) -> Self
    where
        T: FamilyMember,
    {
        let owner = module.as_ptr();
        Self {
            smc: ProtoTable::new("SMC", Version::V4, owner),
            smc6: ProtoTable::new("SMC6", Version::V6, owner),
            inet: ProtoTable::new("INET_SMC", Version::V4, owner),
            inet6: ProtoTable::new("INET6_SMC", Version::V6, owner),
            smc_ops: OpsTable::<T>::table(bindings::AF_SMC, owner),
            inet_ops: OpsTable::<T>::table(bindings::AF_INET, owner),
            inet6_ops: OpsTable::<T>::table(bindings::AF_INET6, owner),
            inet_switch: UnsafeCell::new(pin_init::zeroed()),
            inet6_switch: UnsafeCell::new(pin_init::zeroed()),
            family: bindings::net_proto_family {
                family: const_c_int(bindings::AF_SMC),
                create: Some(create_callback::<T>),
                owner,
            },
            memory_allocated: UnsafeCell::new(pin_init::zeroed()),
        }
    }
}

/// A socket type whose family is a static of this module.
pub(crate) trait FamilyMember: StreamSocket {
    /// The static.
    fn family() -> &'static Family<Self>;
}

/// # Safety
///
/// Called by core as `net_proto_family::create`, with a new socket.
unsafe extern "C" fn create_callback<T: FamilyMember>(
    net: *mut bindings::net,
    socket: *mut bindings::socket,
    protocol: c_int,
    kern: c_int,
) -> c_int {
    int_result((|| {
        // SAFETY: Core passes a valid new socket.
        let kind = u32::try_from(unsafe { (*socket).type_ }).unwrap_or(0);
        if kind != bindings::sock_type_SOCK_STREAM {
            return Err(ESOCKTNOSUPPORT);
        }
        let family = T::family();
        let (version, proto) = match protocol {
            0 => (Version::V4, &family.smc),
            1 => (Version::V6, &family.smc6),
            _ => return Err(EPROTONOSUPPORT),
        };
        let protocol = u16::try_from(protocol).map_err(|_| EPROTONOSUPPORT)?;
        // SAFETY: Core passes a live namespace and a valid new socket.
        let (net, holder) = unsafe { (Net::from_ptr(net), Socket::from_ptr(socket)) };
        // SAFETY: The protocol is registered as long as the family is.
        let sk = unsafe {
            alloc::<T>(
                net,
                const_c_int(bindings::AF_SMC),
                proto.0.get(),
                protocol,
                version,
                kern != 0,
                Some(holder),
            )?
        };
        // SAFETY: A new socket with one reference.
        let new = unsafe { Sk::from_ptr(sk) };
        let birth = Birth {
            sk: new,
            version,
            kern: kern != 0,
        };
        // SAFETY: The value's memory is zeroed and unused.
        if let Err(err) = unsafe { init_value::<T, _>(sk, version, T::new(birth)) } {
            // SAFETY: Nobody but this function knows `sk`.
            unsafe { discard(socket, sk) };
            return Err(err);
        }
        // SAFETY: The socket is new.
        unsafe { bindings::socket_set_custom_sockopt(socket) };
        // SAFETY: The socket is new, and the table is static.
        unsafe { (*socket).ops = &raw const family.smc_ops };
        // SAFETY: The socket is new.
        unsafe { (*socket).state = bindings::socket_state_SS_UNCONNECTED };
        // SAFETY: The value was just initialised; core keeps the socket meanwhile.
        T::opened(&unsafe { op::<T>(socket, sk) });
        Ok(())
    })())
}

/// One `struct proto`, registered.
///
/// # Invariants
///
/// The protocol is registered.
struct ProtoRegistration(*mut bindings::proto);

// SAFETY: Core synchronises registrations.
unsafe impl Send for ProtoRegistration {}
// SAFETY: As above.
unsafe impl Sync for ProtoRegistration {}

impl ProtoRegistration {
    fn new(proto: *mut bindings::proto) -> Result<Self> {
        // SAFETY: `proto` is a static table, complete by now.
        to_result(unsafe { bindings::proto_register(proto, 1) })?;
        // INVARIANT: Just registered.
        Ok(Self(proto))
    }
}

impl Drop for ProtoRegistration {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; no socket is left, since each holds the module.
        unsafe { bindings::proto_unregister(self.0) }
    }
}

/// Per-CPU counters of memory that protocols have set aside.
///
/// # Invariants
///
/// The pointer came from `alloc_percpu()`.
struct ForwardAlloc(NonNull<c_int>);

// SAFETY: Per-CPU memory may be freed by any task.
unsafe impl Send for ForwardAlloc {}
// SAFETY: This value only frees it.
unsafe impl Sync for ForwardAlloc {}

impl ForwardAlloc {
    fn new() -> Result<Self> {
        // SAFETY: An allocation, process context.
        let ptr = unsafe { bindings::alloc_percpu_int() };
        // INVARIANT: Just allocated.
        Ok(Self(NonNull::new(ptr).ok_or(ENOMEM)?))
    }
}

impl Drop for ForwardAlloc {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the protocols that used it are gone.
        unsafe { bindings::free_percpu_int(self.0.as_ptr()) }
    }
}

/// A family, open to applications.
///
/// # Invariants
///
/// The family and its protocol switches are registered. Fields drop in the order of declaration:
/// no new sockets first, then the protocols, then what these point to.
pub(crate) struct Registration<T: FamilyMember> {
    _switches: Switches<T>,
    _protos: [ProtoRegistration; 4],
    _forward_alloc: ForwardAlloc,
}

/// The ways by which applications come to new sockets.
struct Switches<T: FamilyMember> {
    inet6: bool,
    _type: PhantomData<T>,
}

// SAFETY: Holds no data.
unsafe impl<T: FamilyMember> Send for Switches<T> {}
// SAFETY: As above.
unsafe impl<T: FamilyMember> Sync for Switches<T> {}

impl<T: FamilyMember> Registration<T> {
    /// Opens the family. Sockets can be created before this returns, so it comes last in init.
    ///
    /// # Errors
    ///
    /// * `EEXIST`: another module serves `AF_SMC`.
    /// * `ENOBUFS`, `ENOMEM`: out of memory.
    pub(crate) fn new() -> Result<Self> {
        let tables = T::family();
        let forward_alloc = ForwardAlloc::new()?;
        let protos = [&tables.smc, &tables.smc6, &tables.inet, &tables.inet6];
        for proto in protos {
            let proto = proto.0.get();
            // SAFETY: The tables are static and not yet registered; `tcp_prot` is complete and
            // these fields of it do not change.
            unsafe {
                (*proto).memory_allocated = tables.memory_allocated.get();
                (*proto).per_cpu_fw_alloc = forward_alloc.0.as_ptr();
                (*proto).sysctl_mem = bindings::tcp_prot.sysctl_mem;
                (*proto).sysctl_wmem_offset = bindings::tcp_prot.sysctl_wmem_offset;
                (*proto).sysctl_rmem_offset = bindings::tcp_prot.sysctl_rmem_offset;
            }
        }
        let [a, b, c, d] = protos.map(|proto| ProtoRegistration::new(proto.0.get()));
        let protos = [a?, b?, c?, d?];
        let switches = Switches::new(tables)?;
        // INVARIANT: Both registered.
        Ok(Self {
            _switches: switches,
            _protos: protos,
            _forward_alloc: forward_alloc,
        })
    }
}

impl<T: FamilyMember> Switches<T> {
    fn new(tables: &'static Family<T>) -> Result<Self> {
        let kind = u16::try_from(bindings::sock_type_SOCK_STREAM).map_err(|_| EINVAL)?;
        let protocol = u16::try_from(bindings::IPPROTO_SMC).map_err(|_| EINVAL)?;
        for (switch, proto, ops) in [
            (&tables.inet_switch, &tables.inet, &tables.inet_ops),
            (&tables.inet6_switch, &tables.inet6, &tables.inet6_ops),
        ] {
            // SAFETY: The static is not registered yet.
            unsafe {
                *switch.get() = bindings::inet_protosw {
                    type_: kind,
                    protocol,
                    prot: proto.0.get(),
                    ops: &raw const *ops,
                    ..pin_init::zeroed()
                };
            }
        }
        // SAFETY: The table is static. Everything a socket needs is in place.
        to_result(unsafe { bindings::sock_register(&raw const tables.family) })?;
        // From here on there may be sockets, so nothing may fail any more.
        // SAFETY: The switch is static and complete.
        unsafe { bindings::inet_register_protosw(tables.inet_switch.get()) };
        // SAFETY: As above. It fails only for a protocol that the kernel keeps for itself.
        let inet6 = unsafe { bindings::inet6_register_protosw(tables.inet6_switch.get()) } == 0;
        Ok(Self {
            inet6,
            _type: PhantomData,
        })
    }
}

impl<T: FamilyMember> Drop for Switches<T> {
    fn drop(&mut self) {
        let tables = T::family();
        if self.inet6 {
            // SAFETY: Registered in `new`.
            unsafe { bindings::inet6_unregister_protosw(tables.inet6_switch.get()) };
        }
        // SAFETY: As above.
        unsafe { bindings::inet_unregister_protosw(tables.inet_switch.get()) };
        // SAFETY: As above.
        unsafe { bindings::sock_unregister(const_c_int(bindings::AF_SMC)) };
    }
}
