// SPDX-License-Identifier: GPL-2.0

//! The TCP socket within one of ours.
//!
//! It is a complete socket, with its own `struct socket`, of which just the wait
//! queue is ours (`sk_wq`): every TCP wake-up, `SIGIO` and sleeper meets the
//! application on one queue, whether the connection ends up in rings or in TCP.
//! Its callbacks are replaced while it is attached, and with them its owner
//! learns of errors, state changes and, for a listener, of SYNs and children.
//!
//! C headers: [`include/net/tcp.h`](srctree/include/net/tcp.h),
//! [`include/net/inet_connection_sock.h`](srctree/include/net/inet_connection_sock.h)

pub(crate) mod child;
pub(crate) mod stream;

use super::{
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
        value_of,
        Accept,
        Birth,
        Op,
        PollTable,
        Socket,
        Splice,
        StreamSocket,
        Version, //
    },
    sock::{
        Shutdown,
        Sk,
        TcpState, //
    },
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
    prelude::*,
    sync::{
        aref::ARef,
        SetOnce, //
    },
};

/// What becomes of a wake-up that TCP is about to give.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// It goes on to the application.
    Pass,
    /// It is of no interest to the application.
    Drop,
}

/// The owner of TCP sockets: what it wants to know of them.
///
/// # Context
///
/// All of these run in softirq or with the TCP socket's spinlock held, and under the TCP socket's
/// `sk_callback_lock`: they must not sleep and must not call into the TCP socket.
pub(crate) trait TcpOwner: StreamSocket {
    /// The TCP socket has an error, `inner.raw_err()`; the application is woken afterwards.
    fn error_report(&self, outer: &Sk, inner: &Sk);

    /// The TCP socket's state changed.
    fn state_change(&self, outer: &Sk, inner: &Sk) -> Wake;

    /// The TCP socket has something to read, or a connection to accept.
    fn data_ready(&self, outer: &Sk, inner: &Sk) -> Wake;

    /// A SYN reached a listening TCP socket of ours.
    ///
    /// # Context
    ///
    /// Softirq under RCU, without a lock. Runs before the SYN is answered.
    fn syn_seen(syn: &Syn<'_>);

    /// A listening TCP socket of ours got a child by its own three-way handshake.
    ///
    /// # Context
    ///
    /// Softirq under RCU, without a lock but the child's; before the child is in the queue.
    fn child_born(child: &Child<'_>);
}

/// The address of one end of a connection, port in network order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tuple {
    /// IPv4, also carried by IPv6 sockets.
    V4 {
        /// Addresses of the local and the remote end.
        addrs: [u32; 2],
        /// Ports of the local and the remote end.
        ports: [u16; 2],
    },
    /// IPv6.
    V6 {
        /// Addresses of the local and the remote end.
        addrs: [[u8; 16]; 2],
        /// Ports of the local and the remote end.
        ports: [u16; 2],
    },
}

impl Tuple {
    /// The same connection as the other end sees it.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::V4 {
                addrs: [a, b],
                ports: [p, q],
            } => Self::V4 {
                addrs: [b, a],
                ports: [q, p],
            },
            Self::V6 {
                addrs: [a, b],
                ports: [p, q],
            } => Self::V6 {
                addrs: [b, a],
                ports: [q, p],
            },
        }
    }
}

/// A SYN that a listening socket of ours received, or the ACK that completes its handshake.
pub(crate) struct Syn<'a> {
    listener: &'a Sk,
    skb: *mut bindings::sk_buff,
}

impl Syn<'_> {
    /// The listening TCP socket.
    pub(crate) fn listener(&self) -> &Sk {
        self.listener
    }

    /// The packet's sequence number.
    pub(crate) fn seq(&self) -> u32 {
        // SAFETY: TCP has pulled the header of the packet it gave us.
        unsafe { bindings::tcp_skb_seq(self.skb) }
    }

    fn is_ipv4(&self) -> bool {
        // SAFETY: A valid packet.
        unsafe { bindings::skb_is_ipv4(self.skb) }
    }

    /// The connection as the receiver of the packet, the server, sees it.
    pub(crate) fn tuple(&self) -> Tuple {
        // SAFETY: A valid packet whose headers are pulled.
        let ports = unsafe {
            [
                bindings::tcp_skb_dest(self.skb),
                bindings::tcp_skb_source(self.skb),
            ]
        };
        if self.is_ipv4() {
            // SAFETY: As above, of IPv4.
            let addrs = unsafe { [bindings::ip_daddr(self.skb), bindings::ip_saddr(self.skb)] };
            Tuple::V4 { addrs, ports }
        } else {
            // SAFETY: As above, of IPv6.
            let addrs = unsafe {
                [
                    bindings::ipv6_daddr(self.skb),
                    bindings::ipv6_saddr(self.skb),
                ]
            };
            // SAFETY: Both point into the packet's header.
            let addrs = addrs.map(|addr| unsafe { addr.cast::<[u8; 16]>().read_unaligned() });
            Tuple::V6 { addrs, ports }
        }
    }

    /// The socket that sent the packet, if it belongs to the listener's own namespace.
    ///
    /// The tuple is unique there, so a socket that is found is the sender, unless the packet was
    /// forged or rewritten; the caller compares sequence numbers.
    pub(crate) fn local_sender(&self) -> Option<ARef<Sk>> {
        let net = self.listener.net().as_ptr();
        let sk = if self.is_ipv4() {
            // SAFETY: Under RCU, with a valid IPv4 packet.
            unsafe {
                bindings::__inet_lookup_established(
                    net,
                    bindings::ip_daddr(self.skb),
                    bindings::tcp_skb_dest(self.skb),
                    bindings::ip_saddr(self.skb),
                    u16::from_be(bindings::tcp_skb_source(self.skb)),
                    bindings::tcp_v4_iif(self.skb),
                    bindings::tcp_v4_sdif(self.skb),
                )
            }
        } else {
            // SAFETY: Under RCU, with a valid IPv6 packet.
            unsafe {
                bindings::__inet6_lookup_established(
                    net,
                    bindings::ipv6_daddr(self.skb),
                    bindings::tcp_skb_dest(self.skb),
                    bindings::ipv6_saddr(self.skb),
                    u16::from_be(bindings::tcp_skb_source(self.skb)),
                    bindings::tcp_v6_iif(self.skb),
                    bindings::tcp_v6_sdif(self.skb),
                )
            }
        };
        let sk = NonNull::new(sk)?;
        // SAFETY: The look-up returned a referenced socket of some kind.
        if !unsafe { bindings::sk_fullsock(sk.as_ptr()) } {
            // SAFETY: Gives the reference back.
            unsafe { bindings::sock_gen_put(sk.as_ptr()) };
            return None;
        }
        // SAFETY: A full socket, whose reference this value takes over.
        Some(unsafe { ARef::from_raw(sk.cast()) })
    }
}

/// The child of a listening socket of ours.
pub(crate) struct Child<'a> {
    /// The packet that completed the handshake.
    pub(crate) ack: Syn<'a>,
    /// The child, locked.
    pub(crate) sk: &'a Sk,
    /// The initial sequence number of the client.
    pub(crate) rcv_isn: u32,
    /// The initial sequence number of the server.
    pub(crate) snt_isn: u32,
}

impl Sk {
    /// The sequence number of the next byte to be written to the TCP stream.
    ///
    /// Right after the handshake this is the initial sequence number plus one, and stays so while
    /// nobody writes to the stream.
    pub(crate) fn tcp_write_seq(&self) -> u32 {
        // SAFETY: Called for TCP sockets only, which `tcp_sk` casts to.
        unsafe { bindings::tcp_write_seq(self.as_ptr()) }
    }

    /// The sequence number of the next byte to be read from the TCP stream.
    ///
    /// Right after the handshake this is the peer's initial sequence number plus one, and stays so
    /// while nobody reads from the stream.
    pub(crate) fn tcp_copied_seq(&self) -> u32 {
        // SAFETY: As in `tcp_write_seq`.
        unsafe { bindings::tcp_copied_seq(self.as_ptr()) }
    }

    /// The connection as a TCP socket sees it, in the IP version of a packet.
    pub(crate) fn tcp_tuple(&self, like: &Tuple) -> Tuple {
        let sk = self.as_ptr();
        // SAFETY: A full TCP socket; the fields are read as a whole.
        let ports = unsafe {
            [
                (*sk.cast::<bindings::inet_sock>()).inet_sport,
                bindings::sk_dport(sk),
            ]
        };
        match like {
            Tuple::V4 { .. } => Tuple::V4 {
                // SAFETY: As above.
                addrs: unsafe { [bindings::sk_rcv_saddr(sk), bindings::sk_daddr(sk)] },
                ports,
            },
            Tuple::V6 { .. } => {
                // SAFETY: As above; these fields exist in every socket.
                let addrs = unsafe { [bindings::sk_v6_rcv_saddr(sk), bindings::sk_v6_daddr(sk)] };
                // SAFETY: Both point into the socket.
                let addrs = addrs.map(|addr| unsafe { addr.cast::<[u8; 16]>().read_unaligned() });
                Tuple::V6 { addrs, ports }
            }
        }
    }

    /// Runs `f` on the owner of this TCP socket, if it is one of ours and still attached.
    ///
    /// # Context
    ///
    /// Any; `f` runs under `sk_callback_lock` with bottom halves disabled.
    pub(crate) fn with_owner<T: TcpOwner, R>(&self, f: impl FnOnce(&T, &Sk) -> R) -> Option<R> {
        let sk = self.as_ptr();
        // SAFETY: A full socket.
        unsafe { bindings::sk_callback_read_lock(sk) };
        let result = {
            // SAFETY: As above.
            let report = unsafe { (*sk).sk_error_report };
            let ours: Option<unsafe extern "C" fn(*mut bindings::sock)> =
                Some(error_report_callback::<T>);
            // SAFETY: Under the lock, the owner is attached while `sk_user_data` names it.
            let outer = unsafe { bindings::sk_user_data(sk) }.cast::<bindings::sock>();
            if !same(report, ours) || outer.is_null() {
                None
            } else {
                // SAFETY: `detach` clears the pointer under this lock before the owner's value
                // goes away.
                Some(f(unsafe { &*value_of::<T>(outer) }, unsafe {
                    Sk::from_ptr(outer)
                }))
            }
        };
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_read_unlock(sk) };
        result
    }
}

/// Whether two callbacks are the same function.
fn same(
    a: Option<unsafe extern "C" fn(*mut bindings::sock)>,
    b: Option<unsafe extern "C" fn(*mut bindings::sock)>,
) -> bool {
    let addr = |f: Option<unsafe extern "C" fn(*mut bindings::sock)>| {
        f.map_or(0, |f| (f as *const c_void).addr())
    };
    addr(a) == addr(b)
}

type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

/// The callbacks that core gives every TCP socket.
#[derive(Clone, Copy)]
struct Callbacks {
    error_report: Callback,
    state_change: Callback,
    data_ready: Callback,
}

/// Core's callbacks, learnt from the first socket: they are not exported, and a child has its
/// listener's instead.
static DEFAULTS: SetOnce<Callbacks> = SetOnce::new();

/// Calls one of core's own callbacks.
///
/// # Safety
///
/// `sk` must be a live socket in the circumstances in which core calls the callback.
unsafe fn call_default(sk: *mut bindings::sock, which: fn(&Callbacks) -> Callback) {
    if let Some(callback) = DEFAULTS.as_ref().and_then(which) {
        // SAFETY: The caller guarantees it.
        unsafe { callback(sk) }
    }
}

/// # Safety
///
/// Called by TCP as `sk_error_report`.
unsafe extern "C" fn error_report_callback<T: TcpOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP passes a live socket.
    let inner = unsafe { Sk::from_ptr(sk) };
    let _ = inner.with_owner::<T, _>(|owner, outer| owner.error_report(outer, inner));
    // SAFETY: TCP's own call.
    unsafe { call_default(sk, |callbacks| callbacks.error_report) }
}

/// # Safety
///
/// Called by TCP as `sk_state_change`.
unsafe extern "C" fn state_change_callback<T: TcpOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP passes a live socket.
    let inner = unsafe { Sk::from_ptr(sk) };
    let wake = inner.with_owner::<T, _>(|owner, outer| owner.state_change(outer, inner));
    if wake != Some(Wake::Drop) {
        // SAFETY: TCP's own call.
        unsafe { call_default(sk, |callbacks| callbacks.state_change) }
    }
}

/// # Safety
///
/// Called by TCP as `sk_data_ready`.
unsafe extern "C" fn data_ready_callback<T: TcpOwner>(sk: *mut bindings::sock) {
    // SAFETY: TCP passes a live socket.
    let inner = unsafe { Sk::from_ptr(sk) };
    let wake = inner.with_owner::<T, _>(|owner, outer| owner.data_ready(outer, inner));
    if wake != Some(Wake::Drop) {
        // SAFETY: TCP's own call.
        unsafe { call_default(sk, |callbacks| callbacks.data_ready) }
    }
}

/// A copy of an address family's operations with this module's hooks in it.
struct AfOps {
    ops: bindings::inet_connection_sock_af_ops,
    original: *const bindings::inet_connection_sock_af_ops,
}

// SAFETY: Both are constant once made.
unsafe impl Send for AfOps {}
// SAFETY: As above.
unsafe impl Sync for AfOps {}

/// The hooked operations of IPv4 and of IPv6 listeners.
static AF_OPS: [SetOnce<AfOps>; 2] = [SetOnce::new(), SetOnce::new()];

/// The operations of a family, as its new sockets have them.
#[derive(Clone, Copy)]
struct FreshAfOps(*const bindings::inet_connection_sock_af_ops);

// SAFETY: The operations are constants of the kernel.
unsafe impl Send for FreshAfOps {}
// SAFETY: As above.
unsafe impl Sync for FreshAfOps {}

/// Learnt from the first socket of each family: an IPv6 socket has others after it was connected
/// to an IPv4 address.
static FRESH_AF_OPS: [SetOnce<FreshAfOps>; 2] = [SetOnce::new(), SetOnce::new()];

/// The one of IPv4 or that of IPv6.
fn of_family<T>([four, six]: &'static [SetOnce<T>; 2], v6: bool) -> &'static SetOnce<T> {
    if v6 {
        six
    } else {
        four
    }
}

fn af_ops(v6: bool) -> &'static SetOnce<AfOps> {
    of_family(&AF_OPS, v6)
}

/// # Safety
///
/// Called by TCP for a SYN that reached the listening socket `sk`, in softirq under RCU.
unsafe extern "C" fn conn_request_hook<T: TcpOwner, const V6: bool>(
    sk: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
) -> c_int {
    let Some(ops) = af_ops(V6).as_ref() else {
        return 0;
    };
    // SAFETY: TCP passes a live listener.
    let listener = unsafe { Sk::from_ptr(sk) };
    T::syn_seen(&Syn { listener, skb });
    // SAFETY: The original is a constant of the kernel.
    match unsafe { (*ops.original).conn_request } {
        // SAFETY: TCP's own call.
        Some(original) => unsafe { original(sk, skb) },
        None => 0,
    }
}

/// # Safety
///
/// Called by TCP for the packet that completes a handshake, in softirq under RCU.
unsafe extern "C" fn syn_recv_sock_hook<T: TcpOwner, const V6: bool>(
    sk: *const bindings::sock,
    skb: *mut bindings::sk_buff,
    req: *mut bindings::request_sock,
    dst: *mut bindings::dst_entry,
    req_unhash: *mut bindings::request_sock,
    own_req: *mut bool,
    opt_child_init: Option<
        unsafe extern "C" fn(newsk: *mut bindings::sock, sk: *const bindings::sock),
    >,
) -> *mut bindings::sock {
    let Some(ops) = af_ops(V6).as_ref() else {
        return core::ptr::null_mut();
    };
    // SAFETY: The original is a constant of the kernel.
    let Some(original) = (unsafe { (*ops.original).syn_recv_sock }) else {
        return core::ptr::null_mut();
    };
    // SAFETY: TCP's own call.
    let child = unsafe { original(sk, skb, req, dst, req_unhash, own_req, opt_child_init) };
    if child.is_null() {
        return child;
    }
    // A child starts as a copy of its listener. The operations of v4-mapped children were already
    // replaced by the original.
    // SAFETY: The child is new and locked.
    if core::ptr::eq(unsafe { bindings::icsk_af_ops(child) }, &raw const ops.ops) {
        // SAFETY: As above.
        unsafe { bindings::icsk_set_af_ops(child, ops.original) };
    }
    if let Some(defaults) = DEFAULTS.as_ref() {
        // SAFETY: As above; nobody calls the callbacks of a locked new socket.
        unsafe {
            (*child).sk_error_report = defaults.error_report;
            (*child).sk_state_change = defaults.state_change;
            (*child).sk_data_ready = defaults.data_ready;
        }
    }
    // SAFETY: TCP passes a valid flag: whether this child, and no other, answers the request.
    if unsafe { *own_req } {
        // SAFETY: A live listener.
        let listener = unsafe { Sk::from_ptr(sk.cast_mut()) };
        // SAFETY: A live child, locked by this context.
        let new = unsafe { Sk::from_ptr(child) };
        T::child_born(&Child {
            ack: Syn { listener, skb },
            sk: new,
            // SAFETY: `req` is the request that the child answers.
            rcv_isn: unsafe { bindings::tcp_rsk_rcv_isn(req) },
            // SAFETY: As above.
            snt_isn: unsafe { bindings::tcp_rsk_snt_isn(req) },
        });
    }
    child
}

/// An owned TCP socket.
///
/// # Invariants
///
/// The pointer is a TCP socket that this value owns.
pub(crate) struct TcpSocket(NonNull<bindings::socket>);

// SAFETY: A `struct socket` may be used and released by any task in process context.
unsafe impl Send for TcpSocket {}
// SAFETY: Its operations synchronise themselves.
unsafe impl Sync for TcpSocket {}

impl TcpSocket {
    /// Creates the TCP socket for a new socket of ours, with the labels, the cgroup and the
    /// namespace that an application's own TCP socket would have.
    ///
    /// # Errors
    ///
    /// Those of `socket()`.
    pub(crate) fn new(birth: &Birth<'_>) -> Result<Self> {
        let family = match birth.version {
            Version::V4 => bindings::AF_INET,
            Version::V6 => bindings::AF_INET6,
        };
        let family = c_int::try_from(family).map_err(|_| EINVAL)?;
        let tcp = c_int::try_from(bindings::IPPROTO_TCP).map_err(|_| EINVAL)?;
        let mut sock = core::ptr::null_mut();
        if birth.kern {
            let net = birth.sk.net().as_ptr();
            let kind = c_int::try_from(bindings::sock_type_SOCK_STREAM).map_err(|_| EINVAL)?;
            // SAFETY: Process context; `sock` receives the result.
            to_result(unsafe {
                bindings::sock_create_kern(net, family, kind, tcp, &raw mut sock)
            })?;
            // SAFETY: Just created. TCP's timers outlive the socket and need the namespace.
            unsafe { bindings::sk_net_refcnt_upgrade((*sock).sk) };
        } else {
            let kind = c_int::try_from(bindings::sock_type_SOCK_STREAM).map_err(|_| EINVAL)?;
            // SAFETY: Process context; `sock` receives the result.
            to_result(unsafe { bindings::sock_create(family, kind, tcp, &raw mut sock) })?;
        }
        // INVARIANT: Just created.
        let new = Self(NonNull::new(sock).ok_or(ENOMEM)?);
        let sk = new.sk().as_ptr();
        // SAFETY: The socket is new; nobody changes its callbacks.
        DEFAULTS.populate(unsafe {
            Callbacks {
                error_report: (*sk).sk_error_report,
                state_change: (*sk).sk_state_change,
                data_ready: (*sk).sk_data_ready,
            }
        });
        // SAFETY: As above.
        let fresh = FreshAfOps(unsafe { bindings::icsk_af_ops(sk) });
        of_family(&FRESH_AF_OPS, birth.version == Version::V6).populate(fresh);
        Ok(new)
    }

    /// The protocol's side of the socket.
    pub(crate) fn sk(&self) -> &Sk {
        // SAFETY: By the type invariant; `sk` is set for the life of a TCP socket.
        unsafe { Sk::from_ptr((*self.0.as_ptr()).sk) }
    }

    /// The operations, which TCP may change in mid-life (kTLS, `IPV6_ADDRFORM`).
    fn ops(&self) -> &bindings::proto_ops {
        // SAFETY: By the type invariant; the operations are constants of the kernel.
        unsafe { &*(&raw const (*self.0.as_ptr()).ops).read_volatile() }
    }

    /// Makes `owner` the owner: its wait queue is TCP's from now on, and it is told of events,
    /// unless somebody else has put the socket to use before it was accepted (a BPF program, in a
    /// sockmap).
    ///
    /// # Context
    ///
    /// Process context. The TCP socket must not be in use by an application yet.
    pub(crate) fn attach<T: TcpOwner>(&self, owner: &Op<'_, T>) {
        let sk = self.sk().as_ptr();
        let _guard = self.sk().lock();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under both locks. The owner's `struct socket` outlives the TCP socket, which
        // `detach` and drop precede.
        unsafe {
            bindings::sk_assign_wq(sk, owner.socket.as_ptr());
            if bindings::sk_user_data(sk).is_null() {
                bindings::sk_assign_user_data_nocopy(sk, owner.sk.as_ptr().cast());
                (*sk).sk_error_report = Some(error_report_callback::<T>);
                (*sk).sk_state_change = Some(state_change_callback::<T>);
                (*sk).sk_data_ready = Some(data_ready_callback::<T>);
            }
            // SIGIO: the application's list hangs on the shared wait queue; the flag that core
            // sets reaches only the outer socket.
            bindings::sock_set_flag_fasync(sk);
            (*sk).sk_uid = (*owner.sk.as_ptr()).sk_uid;
            (*sk).sk_ino = (*owner.sk.as_ptr()).sk_ino;
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
    }

    /// Lets TCP see the file that the application holds: `SIGURG`, `splice()` and the owner match
    /// of netfilter look for it there.
    pub(crate) fn share_file(&self, socket: &Socket) {
        // SAFETY: By the type invariant; a file that is open during the call.
        let (ours, theirs) = unsafe {
            (
                (*self.0.as_ptr()).file,
                bindings::socket_file(socket.as_ptr()),
            )
        };
        if ours != theirs {
            let _guard = self.sk().lock();
            // SAFETY: Under the socket lock, as readers are. `detach` clears it before the file
            // goes.
            unsafe { (*self.0.as_ptr()).file = theirs };
        }
    }

    /// Ends what [`Self::attach`] and [`Self::share_file`] began, except for the wait queue, which
    /// TCP needs until it is closed. The owner's value is not reached any more afterwards.
    pub(crate) fn detach(&self, owner: &Sk) {
        let sk = self.sk().as_ptr();
        let _guard = self.sk().lock();
        // SAFETY: A live socket. The file must be gone, or release would not free the inode.
        unsafe { (*self.0.as_ptr()).file = core::ptr::null_mut() };
        // SAFETY: As above.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under both locks.
        let ours = core::ptr::eq(unsafe { bindings::sk_user_data(sk) }.cast(), owner.as_ptr());
        if let Some(defaults) = DEFAULTS.as_ref().filter(|_| ours) {
            // SAFETY: As above.
            unsafe {
                bindings::sk_assign_user_data_nocopy(sk, core::ptr::null_mut());
                (*sk).sk_error_report = defaults.error_report;
                (*sk).sk_state_change = defaults.state_change;
                (*sk).sk_data_ready = defaults.data_ready;
            }
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
        for v6 in [false, true] {
            if let Some(ops) = af_ops(v6).as_ref() {
                // SAFETY: Under the socket lock.
                if core::ptr::eq(unsafe { bindings::icsk_af_ops(sk) }, &raw const ops.ops) {
                    // SAFETY: As above.
                    unsafe { bindings::icsk_set_af_ops(sk, ops.original) };
                }
            }
        }
    }

    /// Chooses the initial sequence number of the next connection, so that it is known before the
    /// SYN leaves. Does nothing when the socket was connected before, or is by now.
    pub(crate) fn preset_isn(&self, isn: u32) {
        let _guard = self.sk().lock();
        if self.sk().tcp_state() == TcpState::Close && self.is_fresh() {
            // SAFETY: A TCP socket, locked; TCP has not chosen a number yet.
            unsafe { bindings::tcp_set_write_seq(self.sk().as_ptr(), isn) }
        }
    }

    /// Whether the next SYN will carry the number that [`Self::preset_isn`] chooses: it does not
    /// when the socket was connected before.
    pub(crate) fn is_fresh(&self) -> bool {
        self.sk().tcp_write_seq() == 0
    }

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

    /// `listen()`, with the owner's hooks for SYNs and children.
    ///
    /// # Errors
    ///
    /// Those of TCP.
    pub(crate) fn listen<T: TcpOwner>(&self, backlog: c_int) -> Result {
        let op = self.ops().listen.ok_or(EOPNOTSUPP)?;
        {
            let _guard = self.sk().lock();
            let sk = self.sk().as_ptr();
            // SAFETY: A TCP socket, locked.
            let present = unsafe { bindings::icsk_af_ops(sk) };
            // SAFETY: As above.
            let v6 = u32::from(unsafe { (*sk).__sk_common.skc_family }) == bindings::AF_INET6;
            let cell = af_ops(v6);
            // Other operations than a fresh socket's (of an IPv6 socket that was connected to an
            // IPv4 address) stay as they are: such a listener serves plain TCP.
            let fresh = of_family(&FRESH_AF_OPS, v6)
                .copy()
                .is_some_and(|fresh| core::ptr::eq(fresh.0, present));
            if fresh {
                // SAFETY: The operations are a constant of the kernel.
                let mut ops = unsafe { present.read() };
                if v6 {
                    ops.conn_request = Some(conn_request_hook::<T, true>);
                    ops.syn_recv_sock = Some(syn_recv_sock_hook::<T, true>);
                } else {
                    ops.conn_request = Some(conn_request_hook::<T, false>);
                    ops.syn_recv_sock = Some(syn_recv_sock_hook::<T, false>);
                }
                cell.populate(AfOps {
                    ops,
                    original: present,
                });
                // Nothing while another listener of the family is the first one: plain TCP.
                if let Some(ours) = cell.as_ref() {
                    // SAFETY: Under the socket lock; the copy is static.
                    unsafe { bindings::icsk_set_af_ops(sk, &raw const ours.ops) };
                }
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

    /// Takes a connection from the accept queue, without waiting.
    ///
    /// # Errors
    ///
    /// * `EAGAIN`: there is none.
    /// * `EINVAL`: the socket does not listen.
    /// * `ENFILE`, `ENOMEM`: no new socket can be made.
    pub(crate) fn accept(&self, accept: &mut Accept<'_>) -> Result<Self> {
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
            kern: accept.kern(),
            ..Default::default()
        };
        // SAFETY: Both sockets are live, and the argument is valid.
        to_result(unsafe { op(self.0.as_ptr(), new.0.as_ptr(), &raw mut arg) })?;
        accept.set_empty(arg.is_empty != 0);
        // SAFETY: The new socket has the protocol of this one; its module is the kernel itself,
        // or is held by the listener.
        unsafe {
            (*new.0.as_ptr()).ops = (*self.0.as_ptr()).ops;
            bindings::module_hold((*(*new.0.as_ptr()).ops).owner);
        }
        Ok(new)
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
        let len = c_int::try_from(value.len).map_err(|_| EINVAL)?;
        if u32::try_from(level) == Ok(bindings::SOL_SOCKET) {
            // SAFETY: A live socket; the function checks the value.
            to_result(unsafe {
                bindings::sock_setsockopt(self.0.as_ptr(), level, name, value.ptr, value.len)
            })
        } else {
            let op = self.ops().setsockopt.ok_or(EOPNOTSUPP)?;
            let _ = len;
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

impl Drop for TcpSocket {
    /// # Context
    ///
    /// Process context, may sleep. An attached socket was detached before, and its owner's wait
    /// queue still exists.
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value owns the socket.
        unsafe { bindings::sock_release(self.0.as_ptr()) }
    }
}
