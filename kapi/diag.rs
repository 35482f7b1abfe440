// SPDX-License-Identifier: GPL-2.0

//! `NETLINK_SOCK_DIAG` for `AF_SMC`, byte-compatible with C's `smc_diag`.
//!
//! C headers: [`include/linux/sock_diag.h`](srctree/include/linux/sock_diag.h),
//! [`include/uapi/linux/smc_diag.h`](srctree/include/uapi/linux/smc_diag.h)

use super::{
    bindings,
    net::Net,
    sock::Sk,
    tcp::Tuple, //
};
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    ffi::{
        c_int,
        c_long,
        c_void, //
    },
    prelude::*,
    types::Opaque, //
};

/// How a connection travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Not decided: a fresh, connecting or listening socket (C reports its first mode, SMC-R).
    Undecided,
    /// Over TCP.
    Tcp,
    /// Through shared rings.
    Smcd,
}

/// A cursor as the report has it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cursor {
    /// How often the ring was wrapped.
    pub(crate) wrap: u16,
    /// The place in the ring, in bytes.
    pub(crate) count: u32,
}

/// `SMC_DIAG_CONNINFO`.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnInfo {
    /// Identifies the connection on this host.
    pub(crate) token: u32,
    /// The send buffer, which is the peer's RMB, in bytes.
    pub(crate) sndbuf_size: u32,
    /// The receive buffer in bytes.
    pub(crate) rmbe_size: u32,
    /// Received producer cursor.
    pub(crate) rx_prod: Cursor,
    /// Own consumer cursor.
    pub(crate) rx_cons: Cursor,
    /// Own producer cursor.
    pub(crate) tx_prod: Cursor,
    /// Received consumer cursor.
    pub(crate) tx_cons: Cursor,
    /// `conn_state_flags` received.
    pub(crate) rx_state_flags: u8,
    /// `conn_state_flags` sent.
    pub(crate) tx_state_flags: u8,
}

/// `SMC_DIAG_DMBINFO`.
#[derive(Clone, Copy, Default)]
pub(crate) struct DmbInfo {
    /// The link group.
    pub(crate) linkid: u32,
    /// The device, both halves of its GID.
    pub(crate) gid: [u64; 2],
    /// The token of the receive buffer.
    pub(crate) token: u64,
    /// The token of the peer's.
    pub(crate) peer_token: u64,
}

/// What is reported of one socket.
pub(crate) struct Record<'a> {
    /// The socket.
    pub(crate) sk: &'a Sk,
    /// The TCP socket within, for addresses.
    pub(crate) inner: &'a Sk,
    /// `enum smc_state`.
    pub(crate) state: u8,
    /// How it travels.
    pub(crate) mode: Mode,
    /// `sk_shutdown`.
    pub(crate) shutdown: u8,
    /// Why it is TCP, and what the peer said, as C's codes.
    pub(crate) fallback: (u32, u32),
    /// The rings, of an SMC-D connection.
    pub(crate) conn: Option<(ConnInfo, DmbInfo)>,
}

/// Whoever can report.
pub(crate) trait Source: 'static {
    /// Shows the sockets of `net` to `emit` until it returns false, from the place that `at`
    /// holds, and leaves there how far it got.
    fn dump(net: &Net, at: &mut [usize; 2], emit: &mut dyn FnMut(&Record<'_>) -> bool);
}

/// The registration of a [`Source`].
///
/// # Invariants
///
/// `handler` is registered until this value is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<S: Source> {
    #[pin]
    handler: Opaque<bindings::sock_diag_handler>,
    _source: PhantomData<S>,
}

// SAFETY: The handler is used by core only; this value does nothing but unregister.
unsafe impl<S: Source> Send for Registration<S> {}
// SAFETY: As above.
unsafe impl<S: Source> Sync for Registration<S> {}

impl<S: Source> Registration<S> {
    /// Starts reporting.
    ///
    /// # Errors
    ///
    /// * `EEXIST`: another module reports on `AF_SMC`; `occupied` is called.
    pub(crate) fn new(module: &'static ThisModule, occupied: fn()) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // INVARIANT: Registered here, unregistered in `drop`.
            handler <- Opaque::try_ffi_init(move |handler: *mut bindings::sock_diag_handler| {
                let new = bindings::sock_diag_handler {
                    owner: module.as_ptr(),
                    family: u8::try_from(bindings::AF_SMC).map_err(|_| EINVAL)?,
                    dump: Some(Self::dump_callback),
                    ..pin_init::zeroed()
                };
                // SAFETY: `handler` is the memory being initialised.
                unsafe { handler.write(new) };
                // SAFETY: Initialised above, and pinned until it is unregistered.
                to_result(unsafe { bindings::sock_diag_register(handler) }).map_err(|err| {
                    if err == EBUSY {
                        occupied();
                        EEXIST
                    } else {
                        err
                    }
                })
            }),
            _source: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by core with a request for `AF_SMC`.
    unsafe extern "C" fn dump_callback(
        skb: *mut bindings::sk_buff,
        nlh: *mut bindings::nlmsghdr,
    ) -> c_int {
        // SAFETY: Core passes a valid request.
        let flags = u32::from(unsafe { (*nlh).nlmsg_flags });
        if flags & bindings::NLM_F_DUMP != bindings::NLM_F_DUMP {
            return 0;
        }
        // SAFETY: Core passes a valid request; the callback is code of this module, which core
        // holds while it dumps.
        unsafe {
            bindings::sock_diag_dump_start(
                skb,
                nlh,
                Some(Self::fill_callback),
                kernel::module::this_module::<crate::LocalModule>().as_ptr(),
            )
        }
    }

    /// # Safety
    ///
    /// Called by netlink with a message to fill.
    unsafe extern "C" fn fill_callback(
        skb: *mut bindings::sk_buff,
        cb: *mut bindings::netlink_callback,
    ) -> c_int {
        // SAFETY: Netlink passes a valid callback; its first arguments are ours to keep.
        let args = unsafe { &mut (*cb).__bindgen_anon_1.args };
        let mut at = [0; 2];
        for (at, arg) in at.iter_mut().zip(args.iter()) {
            *at = usize::try_from(*arg).unwrap_or(0);
        }
        // SAFETY: Netlink passes the message's socket.
        let net = unsafe { Net::from_ptr(bindings::skb_sock_net(skb)) };
        S::dump(net, &mut at, &mut |record| {
            // SAFETY: Netlink's own arguments.
            unsafe { put(skb, cb, record) }.is_ok()
        });
        for (at, arg) in at.iter().zip(args.iter_mut()) {
            *arg = c_long::try_from(*at).unwrap_or(c_long::MAX);
        }
        // SAFETY: A valid message.
        c_int::try_from(unsafe { (*skb).len }).unwrap_or(c_int::MAX)
    }
}

#[pinned_drop]
impl<S: Source> PinnedDrop for Registration<S> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the handler is registered.
        unsafe { bindings::sock_diag_unregister(self.handler.get()) }
    }
}

/// Which of the extensions the request asks for.
fn wants(ext: u8, extension: u32) -> bool {
    u32::from(ext) & (1 << (extension - 1)) != 0
}

/// Appends one attribute.
///
/// # Safety
///
/// `skb` must be a message under construction.
unsafe fn put_attr<A>(skb: *mut bindings::sk_buff, kind: u32, value: &A) -> Result {
    let kind = c_int::try_from(kind).map_err(|_| EINVAL)?;
    let len = c_int::try_from(size_of::<A>()).map_err(|_| EINVAL)?;
    let value: *const A = value;
    // SAFETY: The caller vouches for the message; `value` is readable for its size.
    to_result(unsafe { bindings::nla_put(skb, kind, len, value.cast::<c_void>()) })
}

impl From<Cursor> for bindings::smc_diag_cursor {
    fn from(cursor: Cursor) -> Self {
        Self {
            reserved: 0,
            wrap: cursor.wrap,
            count: cursor.count,
        }
    }
}

/// Appends the report on one socket, whole or not at all.
///
/// # Safety
///
/// `skb` and `cb` must be netlink's arguments to a dump.
unsafe fn put(
    skb: *mut bindings::sk_buff,
    cb: *mut bindings::netlink_callback,
    record: &Record<'_>,
) -> Result {
    // SAFETY: The caller guarantees netlink's arguments.
    let (seq, kind, portid, request) = unsafe {
        (
            (*(*cb).nlh).nlmsg_seq,
            c_int::from((*(*cb).nlh).nlmsg_type),
            bindings::netlink_cb_portid((*cb).skb),
            bindings::nlmsg_data((*cb).nlh.cast_mut()).cast::<bindings::smc_diag_req>(),
        )
    };
    // SAFETY: Core checked that the request is long enough for its family; the extensions follow
    // within the same four bytes.
    let ext = unsafe { (*request).diag_ext };
    let len = c_int::try_from(size_of::<bindings::smc_diag_msg>()).map_err(|_| EINVAL)?;
    let multi = c_int::try_from(bindings::NLM_F_MULTI).map_err(|_| EINVAL)?;
    // SAFETY: `skb` is netlink's message.
    let nlh = unsafe { bindings::nlmsg_put(skb, portid, seq, kind, len, multi) };
    if nlh.is_null() {
        return Err(EMSGSIZE);
    }
    // SAFETY: As above.
    let filled = unsafe { fill(skb, cb, nlh, ext, record) };
    match filled {
        // SAFETY: The message header was put above.
        Ok(()) => unsafe { bindings::nlmsg_end(skb, nlh) },
        // SAFETY: As above.
        Err(_) => unsafe { bindings::nlmsg_cancel(skb, nlh) },
    }
    filled
}

/// Fills a report that was begun.
///
/// # Safety
///
/// As [`put`]; `nlh` is the header of a message with room for the fixed part.
unsafe fn fill(
    skb: *mut bindings::sk_buff,
    cb: *mut bindings::netlink_callback,
    nlh: *mut bindings::nlmsghdr,
    ext: u8,
    record: &Record<'_>,
) -> Result {
    let sk = record.sk.as_ptr();
    let inner = record.inner.as_ptr();
    let mut msg = bindings::smc_diag_msg::default();
    // SAFETY: A live socket, in a chain whose lock is held.
    let family = unsafe { (*sk).__sk_common.skc_family };
    msg.diag_family = u8::try_from(family).unwrap_or(0);
    msg.diag_state = record.state;
    msg.__bindgen_anon_1.bindgen_union_field = match record.mode {
        Mode::Undecided => 0,
        Mode::Tcp => 1,
        Mode::Smcd => 2,
    };
    msg.diag_shutdown = record.shutdown;
    // SAFETY: A live socket; the cookie has two words.
    unsafe { bindings::sock_diag_save_cookie(sk, (&raw mut msg.id.idiag_cookie).cast()) };
    // SAFETY: A live socket.
    unsafe {
        msg.id.idiag_if = (*inner)
            .__sk_common
            .skc_bound_dev_if
            .try_into()
            .unwrap_or(0);
        msg.diag_uid = bindings::netlink_sk_uid((*cb).skb, sk);
    };
    msg.diag_inode = record.sk.inode();
    // SAFETY: A live socket.
    let v6 = u32::from(unsafe { (*inner).__sk_common.skc_family }) == bindings::AF_INET6;
    let like = if v6 {
        Tuple::V6 {
            addrs: [[0; 16]; 2],
            ports: [0; 2],
        }
    } else {
        Tuple::V4 {
            addrs: [0; 2],
            ports: [0; 2],
        }
    };
    match record.inner.tcp_tuple(&like) {
        Tuple::V4 {
            addrs: [src, dst],
            ports: [sport, dport],
        } => {
            msg.id.idiag_src = [src, 0, 0, 0];
            msg.id.idiag_dst = [dst, 0, 0, 0];
            msg.id.idiag_sport = sport;
            msg.id.idiag_dport = dport;
        }
        Tuple::V6 {
            addrs: [src, dst],
            ports: [sport, dport],
        } => {
            msg.id.idiag_src = words(src);
            msg.id.idiag_dst = words(dst);
            msg.id.idiag_sport = sport;
            msg.id.idiag_dport = dport;
        }
    }
    // SAFETY: The message has room for the fixed part, which is aligned to four bytes only.
    unsafe {
        bindings::nlmsg_data(nlh)
            .cast::<bindings::smc_diag_msg>()
            .write_unaligned(msg)
    };
    // SAFETY: The caller guarantees a message under construction.
    unsafe { put_attr(skb, bindings::SMC_DIAG_SHUTDOWN, &record.shutdown) }?;
    let (reason, peer_diagnosis) = record.fallback;
    let fallback = bindings::smc_diag_fallback {
        reason,
        peer_diagnosis,
    };
    // SAFETY: As above.
    unsafe { put_attr(skb, bindings::SMC_DIAG_FALLBACK, &fallback) }?;
    let Some((conn, dmb)) = &record.conn else {
        return Ok(());
    };
    if wants(ext, bindings::SMC_DIAG_CONNINFO) {
        let info = bindings::smc_diag_conninfo {
            token: conn.token,
            sndbuf_size: conn.sndbuf_size,
            rmbe_size: conn.rmbe_size,
            peer_rmbe_size: conn.sndbuf_size,
            rx_prod: conn.rx_prod.into(),
            rx_cons: conn.rx_cons.into(),
            tx_prod: conn.tx_prod.into(),
            tx_cons: conn.tx_cons.into(),
            rx_conn_state_flags: conn.rx_state_flags,
            tx_conn_state_flags: conn.tx_state_flags,
            tx_prep: conn.tx_prod.into(),
            tx_sent: conn.tx_prod.into(),
            tx_fin: conn.tx_cons.into(),
            ..pin_init::zeroed()
        };
        // SAFETY: As above.
        unsafe { put_attr(skb, bindings::SMC_DIAG_CONNINFO, &info) }?;
    }
    if wants(ext, bindings::SMC_DIAG_DMBINFO) {
        let [gid, gid_ext] = dmb.gid;
        // Field by field: the padding behind the first one goes to user space too.
        let mut info: bindings::smcd_diag_dmbinfo = pin_init::zeroed();
        info.linkid = dmb.linkid;
        info.peer_gid = gid;
        info.my_gid = gid;
        info.token = dmb.token;
        info.peer_token = dmb.peer_token;
        info.peer_gid_ext = gid_ext;
        info.my_gid_ext = gid_ext;
        // SAFETY: As above.
        unsafe { put_attr(skb, bindings::SMC_DIAG_DMBINFO, &info) }?;
    }
    Ok(())
}

/// An IPv6 address as four words in network order.
fn words(addr: [u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(addr.chunks_exact(4)) {
        *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
    }
    words
}
