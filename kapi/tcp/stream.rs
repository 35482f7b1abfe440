// SPDX-License-Identifier: GPL-2.0

//! The bytes of a TCP stream, read and written by this module itself.
//!
//! A handshake cannot wait until its connection is accepted, so this works on
//! TCP sockets that still lie in their listener's accept queue. Those have no
//! `struct socket`, and nobody may own their socket lock: whoever closes the
//! listener counts on it. So the work is done as softirqs do theirs, under the
//! lock's spinlock with bottom halves off, and nothing here waits.

use super::super::{
    bindings,
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
        c_void, //
    },
    prelude::*, //
};

/// A `struct socket` that belongs to nobody, with which a TCP socket that has none can send.
///
/// TCP notes there that it has run out of memory, and finds an empty wait queue.
///
/// # Invariants
///
/// The pointer is a socket that this value owns.
pub(crate) struct Stand(NonNull<bindings::socket>);

// SAFETY: Only its flags and its wait queue are used, both of which are made for that.
unsafe impl Send for Stand {}
// SAFETY: As above.
unsafe impl Sync for Stand {}

impl Stand {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    pub(crate) fn new() -> Result<Self> {
        let family = c_int::try_from(bindings::AF_INET).map_err(|_| EINVAL)?;
        let kind = c_int::try_from(bindings::sock_type_SOCK_STREAM).map_err(|_| EINVAL)?;
        let tcp = c_int::try_from(bindings::IPPROTO_TCP).map_err(|_| EINVAL)?;
        let mut socket = core::ptr::null_mut();
        // SAFETY: Process context; `socket` receives the result.
        to_result(unsafe { bindings::sock_create_lite(family, kind, tcp, &raw mut socket) })?;
        // INVARIANT: Just created.
        Ok(Self(NonNull::new(socket).ok_or(ENOMEM)?))
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; without operations it is released as an empty socket.
        unsafe { bindings::sock_release(self.0.as_ptr()) }
    }
}

/// What a look at a stream shows.
pub(crate) struct Glance {
    /// How many bytes there were.
    pub(crate) len: usize,
    /// Whether the peer has sent FIN.
    pub(crate) ended: bool,
    /// Whether the connection is dead, and of what.
    pub(crate) error: Option<Error>,
}

/// The socket as softirqs have it.
///
/// # Invariants
///
/// Bottom halves are off, and the spinlock of `sk`'s socket lock is held, which nobody owns.
struct Exclusive<'a>(&'a Sk);

impl<'a> Exclusive<'a> {
    /// Waits until no system call owns the socket, and keeps others out.
    fn new(sk: &'a Sk) -> Self {
        loop {
            // SAFETY: Paired with the enabling below or on drop.
            unsafe { bindings::local_bh_disable() };
            // SAFETY: A live socket, with bottom halves off.
            unsafe { bindings::bh_lock_sock(sk.as_ptr()) };
            // SAFETY: As above.
            if !unsafe { bindings::sock_owned_by_user(sk.as_ptr()) } {
                // INVARIANT: Checked under the spinlock.
                return Self(sk);
            }
            // INVARIANT: Undone as a whole.
            drop(Self(sk));
            // A socket with an owner has left the accept queue, so it may be waited for.
            drop(sk.lock());
        }
    }

    fn sk(&self) -> *mut bindings::sock {
        self.0.as_ptr()
    }

    /// Copies the next bytes of the stream, which stay in it.
    fn peek(&self, buf: &mut [u8]) -> usize {
        let sk = self.sk();
        let start = self.0.tcp_copied_seq();
        let mut offset = 0;
        // SAFETY: By the type invariant nobody else touches the receive queue.
        let mut skb = unsafe { bindings::tcp_recv_skb(sk, start, &raw mut offset) };
        let mut len = 0;
        while let Some(rest) = buf.get_mut(len..).filter(|rest| !rest.is_empty()) {
            if skb.is_null() {
                break;
            }
            let wanted = u32::try_from(len).map_or(start, |len| start.wrapping_add(len));
            // SAFETY: A packet of the queue. Packets may overlap, but not leave gaps.
            let offset = wanted.wrapping_sub(unsafe { bindings::tcp_skb_cb_seq(skb) });
            // SAFETY: As above.
            let have = unsafe { bindings::skb_len(skb) }.saturating_sub(offset);
            let part = usize::try_from(have).unwrap_or(0).min(rest.len());
            let (Ok(from), Ok(count)) = (c_int::try_from(offset), c_int::try_from(part)) else {
                break;
            };
            if part > 0 {
                // SAFETY: `rest` has room for `part` bytes, and the function checks the packet.
                let err = unsafe {
                    bindings::skb_copy_bits(skb, from, rest.as_mut_ptr().cast::<c_void>(), count)
                };
                if err != 0 {
                    break;
                }
                len += part;
            }
            // SAFETY: A packet of the queue.
            skb = unsafe { bindings::sk_receive_queue_next(sk, skb) };
        }
        len
    }

    fn glance(&self, len: usize) -> Glance {
        let err = self.0.raw_err();
        // SAFETY: A live socket.
        let dead = unsafe { bindings::sock_flag_dead(self.sk()) };
        let closed = self.0.tcp_state() == TcpState::Close;
        let error = match err {
            0 if dead || closed => Some(ECONNRESET),
            0 => None,
            err => Some(Error::from_errno(-err)),
        };
        Glance {
            len,
            ended: self.0.shutdown_mask().rcv(),
            error,
        }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::bh_unlock_sock(self.sk()) };
        // SAFETY: By the type invariant.
        unsafe { bindings::local_bh_enable() };
    }
}

impl Sk {
    /// Looks at the next bytes of the TCP stream without taking them.
    ///
    /// # Context
    ///
    /// Process context, may sleep; no lock of the socket is held.
    pub(crate) fn stream_peek(&self, buf: &mut [u8]) -> Glance {
        let exclusive = Exclusive::new(self);
        let len = exclusive.peek(buf);
        exclusive.glance(len)
    }

    /// Takes the next bytes of the TCP stream.
    ///
    /// # Context
    ///
    /// As [`Self::stream_peek`].
    pub(crate) fn stream_take(&self, buf: &mut [u8]) -> Glance {
        let exclusive = Exclusive::new(self);
        let len = exclusive.peek(buf);
        if len > 0 {
            // SAFETY: By the invariant of `Exclusive`; so many bytes are there.
            unsafe { bindings::tcp_read_done(self.as_ptr(), len) };
        }
        exclusive.glance(len)
    }

    /// Writes bytes to the TCP stream, all or it is an error.
    ///
    /// # Errors
    ///
    /// * `ENOBUFS`: the stream does not take all of them; the connection is of no use any more.
    /// * those of `tcp_sendmsg()`.
    ///
    /// # Context
    ///
    /// As [`Self::stream_peek`].
    pub(crate) fn stream_put(&self, bytes: &[u8], stand: &Stand) -> Result {
        let exclusive = Exclusive::new(self);
        let sk = exclusive.sk();
        // SAFETY: A live socket.
        if unsafe { bindings::sock_flag_dead(sk) } {
            return Err(EPIPE);
        }
        let mut vec = bindings::kvec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut msg = bindings::msghdr {
            msg_flags: bindings::MSG_DONTWAIT | bindings::MSG_NOSIGNAL,
            ..Default::default()
        };
        // SAFETY: The iterator reads `vec` and `bytes`, which outlive the call below.
        unsafe {
            bindings::iov_iter_kvec(
                &raw mut msg.msg_iter,
                bindings::ITER_SOURCE,
                &raw mut vec,
                1,
                bytes.len(),
            )
        };
        // SAFETY: By the invariant of `Exclusive` the fields stay as they are put; what TCP
        // allocates meanwhile must not sleep.
        let (unaccepted, allocation) = unsafe {
            let allocation = (*sk).sk_allocation;
            (*sk).sk_allocation = bindings::SMC_LO_GFP_ATOMIC;
            ((*sk).sk_socket.is_null(), allocation)
        };
        if unaccepted {
            // SAFETY: As above; the stand outlives the call, and so the assignment.
            unsafe {
                bindings::sk_assign_wq(sk, stand.0.as_ptr());
                (*sk).sk_socket = stand.0.as_ptr();
            }
        }
        // SAFETY: The socket is locked, and the message valid.
        let sent = unsafe { bindings::tcp_sendmsg_locked(sk, &raw mut msg, bytes.len()) };
        if unaccepted {
            // SAFETY: As above.
            unsafe {
                (*sk).sk_socket = core::ptr::null_mut();
                bindings::sk_clear_wq(sk);
            }
        }
        // SAFETY: As above.
        unsafe { (*sk).sk_allocation = allocation };
        to_result(sent)?;
        if usize::try_from(sent) == Ok(bytes.len()) {
            Ok(())
        } else {
            Err(ENOBUFS)
        }
    }

    /// Resets the TCP connection. The peer gets RST; the application gets `err` once it is told by
    /// [`Self::stream_report`], and then the end of the stream.
    ///
    /// # Context
    ///
    /// As [`Self::stream_peek`].
    pub(crate) fn stream_reset(&self, err: Error) {
        let exclusive = Exclusive::new(self);
        let sk = exclusive.sk();
        // SAFETY: A live socket, whose protocol is TCP for life.
        let disconnect = unsafe { (*(*sk).__sk_common.skc_prot).disconnect };
        let nonblock = c_int::try_from(bindings::O_NONBLOCK).unwrap_or(0);
        // A connection that has died already keeps the error it died of.
        if self.tcp_state() == TcpState::Close {
            return;
        }
        if let Some(disconnect) = disconnect {
            // SAFETY: Locked as core has it when it does the same to a listener's children.
            unsafe { disconnect(sk, nonblock) };
        }
        self.set_raw_err(-err.to_errno());
        // SAFETY: A field of a locked socket.
        unsafe { (*sk).sk_shutdown = Shutdown::BOTH.mask() };
    }

    /// Tells whoever has the socket of its pending error.
    ///
    /// # Context
    ///
    /// Process context and softirq.
    pub(crate) fn stream_report(&self) {
        // SAFETY: A live socket.
        unsafe { bindings::sk_error_report(self.as_ptr()) }
    }

    /// Whether both ends have said, in SYN and SYN-ACK, that they speak SMC.
    ///
    /// # Context
    ///
    /// Any, for TCP sockets that are connected.
    pub(crate) fn tcp_speaks_smc(&self) -> bool {
        // SAFETY: Called for TCP sockets only.
        unsafe { bindings::tcp_syn_smc(self.as_ptr()) }
    }
}

impl super::TcpSocket {
    /// Whether to say in the next SYN, or in answers to SYNs that say so, that this end speaks
    /// SMC.
    pub(crate) fn offer_smc(&self, on: bool) {
        let _guard = self.sk().lock();
        // SAFETY: A TCP socket, locked.
        unsafe { bindings::tcp_set_syn_smc(self.sk().as_ptr(), on) }
    }
}

/// The kernel's attention to the SMC option in SYNs, which nobody else looks for.
pub(crate) struct SynOption(());

impl SynOption {
    /// Switches it on. Does nothing in a kernel without SMC.
    ///
    /// # Context
    ///
    /// Process context. No other SMC stack is loaded: both would claim the socket family.
    pub(crate) fn enable() -> Self {
        // SAFETY: Process context.
        unsafe { bindings::tcp_have_smc_enable() };
        Self(())
    }
}

impl Drop for SynOption {
    fn drop(&mut self) {
        // SAFETY: Process context.
        unsafe { bindings::tcp_have_smc_disable() }
    }
}
