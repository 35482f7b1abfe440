// SPDX-License-Identifier: GPL-2.0

//! Hooks in a listener's handshakes: a copy of its address family's operations
//! (`icsk_af_ops`) of which two are this module's.

use super::{
    super::{
        bindings,
        sock::Sk, //
    },
    callbacks::DEFAULTS,
    Child,
    Syn,
    TcpOwner, //
};
use kernel::{
    ffi::c_int,
    sync::SetOnce, //
};

/// A copy of an address family's operations with this module's hooks in it.
struct AfOps {
    ops: bindings::inet_connection_sock_af_ops,
    original: *const bindings::inet_connection_sock_af_ops,
}

// SAFETY: Both are constant once made.
unsafe impl Send for AfOps {}
// SAFETY: As above.
unsafe impl Sync for AfOps {}

/// A listener's answer to whether it has too many handshakes of SMC under way.
type Congested = Option<unsafe extern "C" fn(*const bindings::sock) -> bool>;

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

/// The hooked operations of one family, once it has had a listener.
fn af_ops(v6: bool) -> &'static SetOnce<AfOps> {
    of_family(&AF_OPS, v6)
}

/// Learns the operations of a family from a new socket of it.
///
/// # Context
///
/// Any; nobody else uses `sk` yet.
pub(super) fn learn(sk: &Sk, v6: bool) {
    // SAFETY: A new TCP socket.
    let fresh = FreshAfOps(unsafe { bindings::icsk_af_ops(sk.as_ptr()) });
    of_family(&FRESH_AF_OPS, v6).populate(fresh);
}

/// Puts the hooks for the owner `T` into a TCP socket that is about to listen, unless its
/// operations are not those of a fresh socket (an IPv6 socket that was connected to an IPv4
/// address); whether it has them. The owner is asked whether it is congested if handshakes are
/// `limited`.
///
/// # Context
///
/// Process context, `sk` locked.
pub(super) fn hook<T: TcpOwner>(sk: &Sk, limited: bool) -> bool {
    let hooked = hook_af_ops::<T>(sk);
    let congested: Congested = if hooked && limited {
        Some(congested_hook::<T>)
    } else {
        None
    };
    // SAFETY: A TCP socket, locked, that does not listen or has this owner.
    unsafe { bindings::tcp_set_smc_hs_congested(sk.as_ptr(), congested) };
    hooked
}

/// The part of [`hook`] that looks at SYNs and children.
fn hook_af_ops<T: TcpOwner>(sk: &Sk) -> bool {
    let sk = sk.as_ptr();
    // SAFETY: A TCP socket, locked.
    let present = unsafe { bindings::icsk_af_ops(sk) };
    // SAFETY: As above.
    let v6 = u32::from(unsafe { (*sk).__sk_common.skc_family }) == bindings::AF_INET6;
    let fresh = of_family(&FRESH_AF_OPS, v6)
        .copy()
        .is_some_and(|fresh| core::ptr::eq(fresh.0, present));
    if !fresh {
        // It may have listened before.
        return af_ops(v6)
            .as_ref()
            .is_some_and(|ours| core::ptr::eq(&raw const ours.ops, present));
    }
    // SAFETY: The operations are a constant of the kernel.
    let mut ops = unsafe { present.read() };
    if v6 {
        ops.conn_request = Some(conn_request_hook::<T, true>);
        ops.syn_recv_sock = Some(syn_recv_sock_hook::<T, true>);
    } else {
        ops.conn_request = Some(conn_request_hook::<T, false>);
        ops.syn_recv_sock = Some(syn_recv_sock_hook::<T, false>);
    }
    let cell = af_ops(v6);
    cell.populate(AfOps {
        ops,
        original: present,
    });
    // Nothing while another listener of the family is the first one.
    let Some(ours) = cell.as_ref() else {
        return false;
    };
    // SAFETY: Under the socket lock; the copy is static.
    unsafe { bindings::icsk_set_af_ops(sk, &raw const ours.ops) };
    true
}

/// Takes the hooks out of a TCP socket that may have them.
///
/// # Context
///
/// Process context, `sk` locked.
pub(super) fn unhook(sk: &Sk) {
    let sk = sk.as_ptr();
    // SAFETY: A TCP socket, locked.
    unsafe { bindings::tcp_set_smc_hs_congested(sk, None) };
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

/// # Safety
///
/// Called by TCP for a SYN with the SMC option that reached the listening socket `sk`, in softirq
/// under RCU.
unsafe extern "C" fn congested_hook<T: TcpOwner>(sk: *const bindings::sock) -> bool {
    // SAFETY: TCP passes a live listener.
    let listener = unsafe { Sk::from_ptr(sk.cast_mut()) };
    // One that loses its owner is about to go.
    listener
        .with_owner::<T, _>(|owner, _| owner.is_congested(listener))
        .unwrap_or(true)
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
    // SAFETY: A live listener.
    let listener = unsafe { Sk::from_ptr(sk.cast_mut()) };
    let ack = Syn { listener, skb };
    // Without a request there is only a cookie to say that the packet completes a handshake. When
    // nothing was sent, as over the TCP connections below ours, the ACK of the FIN fits it as well:
    // both its numbers are one higher. Taken for a handshake it would bear a child without a
    // client, for `accept()` to return.
    if req_unhash.is_null() && ack.is_afterthought() {
        // SAFETY: TCP gives the reference away, as the original would without a child.
        unsafe { bindings::dst_release(dst) };
        return core::ptr::null_mut();
    }
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
    // SAFETY: As above.
    unsafe { bindings::tcp_set_smc_hs_congested(child, None) };
    if let Some(defaults) = DEFAULTS.as_ref() {
        // SAFETY: As above; nobody calls the callbacks of a locked new socket.
        unsafe { defaults.install(child) };
    }
    // SAFETY: TCP passes a valid flag: whether this child, and no other, answers the request.
    if unsafe { *own_req } {
        // SAFETY: A live child, locked by this context.
        let new = unsafe { Sk::from_ptr(child) };
        T::child_born(&Child {
            ack,
            sk: new,
            // SAFETY: `req` is the request that the child answers.
            rcv_isn: unsafe { bindings::tcp_rsk_rcv_isn(req) },
            // SAFETY: As above.
            snt_isn: unsafe { bindings::tcp_rsk_snt_isn(req) },
        });
    }
    child
}
