// SPDX-License-Identifier: GPL-2.0

//! `struct sock`, as every user of one sees it.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

mod option;
mod queue;

pub(crate) use self::{
    option::SocketOption,
    queue::QueueLength, //
};

use super::{
    bindings,
    net::Net,
    wait::Timeout, //
};
use core::ptr::NonNull;
use kernel::{
    ffi::c_int,
    prelude::*,
    sync::{
        aref::AlwaysRefCounted,
        rcu, //
    },
    types::Opaque, //
};

/// One or both directions of a stream, as `sk_shutdown` counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shutdown(u8);

impl Shutdown {
    /// The receiving direction, `RCV_SHUTDOWN`.
    pub(crate) const RCV: Self = Self(1);
    /// The sending direction, `SEND_SHUTDOWN`.
    pub(crate) const SEND: Self = Self(2);
    /// Both directions, `SHUTDOWN_MASK`.
    pub(crate) const BOTH: Self = Self(3);

    /// The directions that `shutdown(how)` names.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: `how` is none of `SHUT_RD`, `SHUT_WR` and `SHUT_RDWR`.
    pub(crate) fn from_how(how: c_int) -> Result<Self> {
        match how {
            0 => Ok(Self::RCV),
            1 => Ok(Self::SEND),
            2 => Ok(Self::BOTH),
            _ => Err(EINVAL),
        }
    }

    /// The argument of `shutdown()` for these directions, unless there are none.
    pub(crate) fn how(self) -> Option<c_int> {
        match self.0 {
            1 => Some(0),
            2 => Some(1),
            3 => Some(2),
            _ => None,
        }
    }

    /// The raw mask of `sk_shutdown`.
    pub(crate) fn mask(self) -> u8 {
        self.0
    }

    /// Whether receiving is shut down.
    pub(crate) fn rcv(self) -> bool {
        self.0 & Self::RCV.0 != 0
    }

    /// Whether sending is shut down.
    pub(crate) fn send(self) -> bool {
        self.0 & Self::SEND.0 != 0
    }

    /// Whether both directions are shut down.
    pub(crate) fn both(self) -> bool {
        self == Self::BOTH
    }
}

/// The TCP states this module tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TcpState {
    /// `TCP_CLOSE`: unconnected, or dead.
    Close,
    /// `TCP_SYN_SENT` or `TCP_SYN_RECV`: on the way.
    Opening,
    /// `TCP_ESTABLISHED`.
    Established,
    /// `TCP_LISTEN`.
    Listen,
    /// Any of the states in which one or both ends have sent FIN.
    Closing,
}

/// A `struct sock`: ours or the TCP socket within.
///
/// # Invariants
///
/// A reference to it holds, or borrows, a reference count.
#[repr(transparent)]
pub(crate) struct Sk(Opaque<bindings::sock>);

// SAFETY: A `struct sock` may be used and freed by any task.
unsafe impl Send for Sk {}
// SAFETY: All methods are either read-once accesses, or take the locks `struct sock` asks for.
unsafe impl Sync for Sk {}

// SAFETY: `sock_hold` and `sock_put` count references, and the object lives while there is one.
unsafe impl AlwaysRefCounted for Sk {
    fn inc_ref(&self) {
        // SAFETY: `self` borrows a reference, so the count is not zero.
        unsafe { bindings::sock_hold(self.0.get()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up the reference that it owned.
        unsafe { bindings::sock_put(obj.as_ptr().cast()) }
    }
}

impl Sk {
    /// Borrows a `struct sock`.
    ///
    /// # Safety
    ///
    /// `ptr` must be a full socket (no request or time-wait socket) that stays referenced for
    /// `'a`.
    pub(super) unsafe fn from_ptr<'a>(ptr: *mut bindings::sock) -> &'a Self {
        // SAFETY: The type is transparent, and the caller guarantees the rest.
        unsafe { &*ptr.cast() }
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// An identity to compare with, never to follow.
    pub(crate) fn addr(&self) -> usize {
        self.0.get().addr()
    }

    /// Tells whoever waits for data that there is some: `sk_data_ready`.
    ///
    /// # Context
    ///
    /// Any context but hardirq; no spinlock of this module may be held.
    pub(crate) fn data_ready(&self) {
        // SAFETY: A live socket.
        if unsafe { bindings::sk_is_async(self.0.get()) } {
            self.data_ready_async();
        } else {
            self.call_data_ready();
        }
    }

    /// As [`Self::data_ready`], when somebody may get `SIGIO`: a reader that is woken stays one that
    /// slept, who needs none, until that is decided (TCP holds its socket lock meanwhile).
    #[cold]
    fn data_ready_async(&self) {
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_read_lock(self.0.get()) };
        self.call_data_ready();
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_read_unlock(self.0.get()) };
    }

    fn call_data_ready(&self) {
        // SAFETY: The field is set for life by `sock_init_data` and may be replaced by a kernel
        // user, hence the volatile read.
        let callback = unsafe { (&raw const (*self.0.get()).sk_data_ready).read_volatile() };
        if let Some(callback) = callback {
            // SAFETY: `self` is a live socket, which is all the callback asks for.
            unsafe { callback(self.0.get()) }
        }
    }

    /// Tells whoever waits for room that there is some: `sk_write_space`.
    ///
    /// # Context
    ///
    /// As [`Self::data_ready`].
    pub(crate) fn write_space(&self) {
        // SAFETY: As in `data_ready`.
        let callback = unsafe { (&raw const (*self.0.get()).sk_write_space).read_volatile() };
        if let Some(callback) = callback {
            // SAFETY: As in `data_ready`.
            unsafe { callback(self.0.get()) }
        }
    }

    /// Tells everybody that the connection's state changed: `sk_state_change`.
    ///
    /// # Context
    ///
    /// As [`Self::data_ready`].
    pub(crate) fn state_change(&self) {
        // SAFETY: As in `data_ready`.
        let callback = unsafe { (&raw const (*self.0.get()).sk_state_change).read_volatile() };
        if let Some(callback) = callback {
            // SAFETY: As in `data_ready`.
            unsafe { callback(self.0.get()) }
        }
    }

    /// Tells everybody that the connection failed: `sk_error_report`.
    ///
    /// # Context
    ///
    /// As [`Self::data_ready`], after the error was set.
    pub(crate) fn error_report(&self) {
        // SAFETY: `self` is a live socket, which is all the function asks for.
        unsafe { bindings::sk_error_report(self.0.get()) }
    }

    /// Tells the owner of the socket's file that there is urgent data: `SIGURG`, and `SIGIO`.
    ///
    /// # Context
    ///
    /// As [`Self::data_ready`].
    pub(crate) fn send_sigurg(&self) {
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_read_lock(self.0.get()) };
        // SAFETY: Under the lock, a socket that is not orphaned has its `struct socket`, whose
        // file is there as long as that is not released.
        unsafe { bindings::sk_send_sigurg(self.0.get()) };
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_read_unlock(self.0.get()) };
    }

    /// Whether urgent data is part of the stream: `SO_OOBINLINE`.
    pub(crate) fn oob_inline(&self) -> bool {
        // SAFETY: A live socket.
        unsafe { bindings::sock_flag_urginline(self.0.get()) }
    }

    /// Wakes every task that waits on the socket, if any does.
    pub(crate) fn wake_all(&self) {
        let _rcu = rcu::read_lock();
        // SAFETY: `self` is a live socket, and RCU protects its wait queue.
        unsafe { bindings::sk_wake_all(self.0.get()) }
    }

    /// Notes that a writer found no room (`SOCK_NOSPACE`); a full barrier follows.
    ///
    /// # Context
    ///
    /// Process context, within a system call on this socket.
    pub(crate) fn set_nospace(&self) {
        // SAFETY: The socket's file is open, so `sk_socket` and `sk_wq` are set.
        unsafe { bindings::sk_set_nospace(self.0.get()) }
    }

    /// Notes whether a reader sleeps, so that data needs no `SIGIO` (`SOCKWQ_ASYNC_WAITDATA`).
    ///
    /// # Context
    ///
    /// Process context, within a system call on this socket.
    pub(crate) fn set_sleeps_for_data(&self, sleeps: bool) {
        // SAFETY: A live socket.
        if !unsafe { bindings::sk_is_async(self.0.get()) } {
            return;
        }
        // SAFETY: A live socket. The lock waits for whoever is about to decide about `SIGIO`.
        unsafe { bindings::sk_callback_write_lock(self.0.get()) };
        if sleeps {
            // SAFETY: The socket's file is open, so `sk_wq` is set.
            unsafe { bindings::sk_set_waitdata(self.0.get()) }
        } else {
            // SAFETY: As above.
            unsafe { bindings::sk_clear_waitdata(self.0.get()) }
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(self.0.get()) };
    }

    /// Sets the pending error, `sk_err`.
    pub(crate) fn set_err(&self, err: Error) {
        // SAFETY: `sk_err` is written and read as a whole, without a lock.
        unsafe { (&raw mut (*self.0.get()).sk_err).write_volatile(-err.to_errno()) }
    }

    /// The pending error as a positive errno, or 0.
    pub(crate) fn raw_err(&self) -> c_int {
        // SAFETY: As in `set_err`.
        unsafe { (&raw const (*self.0.get()).sk_err).read_volatile() }
    }

    /// Overwrites the pending error with a positive errno, or 0.
    pub(crate) fn set_raw_err(&self, err: c_int) {
        // SAFETY: As in `set_err`.
        unsafe { (&raw mut (*self.0.get()).sk_err).write_volatile(err) }
    }

    /// Whether an error is pending.
    #[inline]
    pub(crate) fn has_err(&self) -> bool {
        self.raw_err() != 0
    }

    /// Takes the pending error, which is reported once.
    ///
    /// # Errors
    ///
    /// Whatever was pending.
    pub(crate) fn take_err(&self) -> Result {
        if !self.has_err() {
            return Ok(());
        }
        // SAFETY: `sk_err` is a naturally aligned int that lives as long as `self`.
        let err = unsafe { bindings::sk_xchg_err(self.0.get()) };
        if err == 0 {
            Ok(())
        } else {
            Err(Error::from_errno(-err))
        }
    }

    /// The least number of bytes a receiver waits for, of `len` that it asked for.
    pub(crate) fn rcvlowat(&self, waitall: bool, len: usize) -> usize {
        if waitall {
            return len;
        }
        // SAFETY: A field read as a whole.
        let low = unsafe { (&raw const (*self.0.get()).sk_rcvlowat).read_volatile() };
        usize::try_from(low).unwrap_or(1).min(len).max(1)
    }

    /// Whether a receiver takes whatever there is: `SO_RCVLOWAT` is not above 1.
    #[inline]
    pub(crate) fn takes_any(&self) -> bool {
        // SAFETY: A field read as a whole.
        unsafe { (&raw const (*self.0.get()).sk_rcvlowat).read_volatile() <= 1 }
    }

    /// How long a receiver may wait.
    pub(crate) fn rcvtimeo(&self, nonblock: bool) -> Timeout {
        if nonblock {
            return Timeout::NONE;
        }
        // SAFETY: A field read as a whole.
        Timeout(unsafe { (&raw const (*self.0.get()).sk_rcvtimeo).read_volatile() })
    }

    /// How long a sender, or a connecting client, may wait.
    pub(crate) fn sndtimeo(&self, nonblock: bool) -> Timeout {
        if nonblock {
            return Timeout::NONE;
        }
        // SAFETY: A field read as a whole.
        Timeout(unsafe { (&raw const (*self.0.get()).sk_sndtimeo).read_volatile() })
    }

    /// The directions that are shut down.
    #[inline]
    pub(crate) fn shutdown_mask(&self) -> Shutdown {
        // SAFETY: A field read as a whole.
        Shutdown(unsafe { (&raw const (*self.0.get()).sk_shutdown).read_volatile() } & 3)
    }

    /// Shuts down more directions, if `still` holds once nobody else changes them.
    ///
    /// # Context
    ///
    /// Process context. Takes the socket lock, so that two callers do not lose each other's bit.
    pub(crate) fn add_shutdown(&self, more: Shutdown, still: impl FnOnce() -> bool) {
        let _guard = self.lock();
        if still() {
            self.set_shutdown(self.shutdown_mask().0 | more.0);
        }
    }

    /// Opens both directions again.
    ///
    /// # Context
    ///
    /// Process context. Takes the socket lock.
    pub(crate) fn clear_shutdown(&self) {
        let _guard = self.lock();
        self.set_shutdown(0);
    }

    fn set_shutdown(&self, mask: u8) {
        // SAFETY: Written under the socket lock, read as a whole without.
        unsafe { (&raw mut (*self.0.get()).sk_shutdown).write_volatile(mask) }
    }

    /// Sets where `MSG_PEEK` begins: `SO_PEEK_OFF`, -1 for none.
    pub(crate) fn set_peek_off(&self, offset: c_int) {
        // SAFETY: A field written and read as a whole, without a lock.
        unsafe { (&raw mut (*self.0.get()).sk_peek_off).write_volatile(offset) }
    }

    /// Where `MSG_PEEK` begins, in bytes behind what was read, if `SO_PEEK_OFF` is set.
    #[inline]
    pub(crate) fn peek_off(&self) -> Option<usize> {
        usize::try_from(self.raw_peek_off()).ok()
    }

    /// Takes over where `MSG_PEEK` begins from `from`.
    pub(crate) fn mirror_peek_off(&self, from: &Sk) {
        self.set_peek_off(from.raw_peek_off());
    }

    /// Moves where `MSG_PEEK` begins behind `bytes` that were peeked at, if `SO_PEEK_OFF` is set.
    pub(crate) fn peeked(&self, bytes: usize) {
        if let Some(offset) = self.peek_off() {
            self.set_peek_off(c_int::try_from(offset.saturating_add(bytes)).unwrap_or(c_int::MAX));
        }
    }

    /// Moves where `MSG_PEEK` begins before `bytes` that were read, if `SO_PEEK_OFF` is set.
    #[inline]
    pub(crate) fn unpeeked(&self, bytes: usize) {
        if let Some(offset) = self.peek_off() {
            self.set_peek_off(c_int::try_from(offset.saturating_sub(bytes)).unwrap_or(c_int::MAX));
        }
    }

    #[inline]
    fn raw_peek_off(&self) -> c_int {
        // SAFETY: As in `set_peek_off`.
        unsafe { (&raw const (*self.0.get()).sk_peek_off).read_volatile() }
    }

    /// Takes over on which processor `from` last received something: `SO_INCOMING_CPU`.
    pub(crate) fn mirror_incoming_cpu(&self, from: &Sk) {
        // SAFETY: Two live sockets; the field is written and read as a whole, without a lock.
        unsafe { bindings::sk_mirror_incoming_cpu(self.0.get(), from.0.get()) }
    }

    /// The error that does not end the connection, as a positive errno or 0: `sk_err_soft`.
    pub(crate) fn soft_err(&self) -> c_int {
        // SAFETY: A field written and read as a whole, without a lock.
        unsafe { (&raw const (*self.0.get()).sk_err_soft).read_volatile() }
    }

    /// Overwrites the error that does not end the connection.
    pub(crate) fn set_soft_err(&self, err: c_int) {
        // SAFETY: As in `soft_err`.
        unsafe { (&raw mut (*self.0.get()).sk_err_soft).write_volatile(err) }
    }

    /// Whether there is something to receive with `MSG_ERRQUEUE`.
    pub(crate) fn has_queued_errors(&self) -> bool {
        // SAFETY: A live socket; the queue's head is read as a whole.
        unsafe { bindings::sk_has_queued_errors(self.0.get()) }
    }

    /// Whether the application gave the socket a policy for IPsec: `IP_XFRM_POLICY`,
    /// `IPV6_XFRM_POLICY`.
    pub(crate) fn has_ipsec_policy(&self) -> bool {
        // SAFETY: A live socket; the pointers are read as a whole and not followed.
        unsafe { bindings::sk_has_xfrm_policy(self.0.get()) }
    }

    /// Whether sends with `MSG_ZEROCOPY` are to be completed: `SO_ZEROCOPY`.
    pub(crate) fn zerocopy(&self) -> bool {
        // SAFETY: A live socket.
        unsafe { bindings::sock_flag_zerocopy(self.0.get()) }
    }

    /// Whether data is to be received with the time at which it came: `SO_TIMESTAMP` and its kin.
    #[inline]
    pub(crate) fn wants_rx_stamps(&self) -> bool {
        // SAFETY: A live socket.
        unsafe { bindings::sk_wants_rx_stamps(self.0.get()) }
    }

    /// Whether time stamps of what was sent say how many bytes that were:
    /// `SOF_TIMESTAMPING_OPT_ID`.
    pub(crate) fn numbers_stamps(&self) -> bool {
        self.timestamping() & bindings::SOF_TIMESTAMPING_OPT_ID != 0
    }

    /// Whether the sender wants to know when data was sent: `SOF_TIMESTAMPING_TX_*`.
    #[inline]
    pub(crate) fn wants_tx_stamps(&self) -> bool {
        self.tx_stamps() != 0
    }

    /// The times of what is sent that the sender wants to know.
    #[inline]
    pub(super) fn tx_stamps(&self) -> u32 {
        self.timestamping() & bindings::SOF_TIMESTAMPING_TX_RECORD_MASK
    }

    /// The flags of `SO_TIMESTAMPING`.
    #[inline]
    fn timestamping(&self) -> u32 {
        // SAFETY: A field read as a whole.
        unsafe { (&raw const (*self.0.get()).sk_tsflags).read_volatile() }
    }

    /// Whether a TCP socket says with each message what is left behind it: `TCP_INQ`.
    pub(crate) fn tcp_recvmsg_inq(&self) -> bool {
        // SAFETY: Called for TCP sockets only.
        unsafe { bindings::tcp_recvmsg_inq(self.0.get()) }
    }

    /// Whether a TCP socket is being given the state of another one, as after a migration, so that
    /// it connects without a handshake: `TCP_REPAIR`.
    pub(crate) fn tcp_in_repair(&self) -> bool {
        // SAFETY: Called for TCP sockets only.
        unsafe { bindings::tcp_in_repair(self.0.get()) }
    }

    /// The budget for busy polling, in microseconds.
    pub(crate) fn ll_usec(&self) -> u32 {
        #[cfg(CONFIG_NET_RX_BUSY_POLL)]
        {
            // SAFETY: A field read as a whole.
            unsafe { (&raw const (*self.0.get()).sk_ll_usec).read_volatile() }
        }
        #[cfg(not(CONFIG_NET_RX_BUSY_POLL))]
        0
    }

    /// Charges memory, in bytes, to the socket's memory cgroup and its protocol.
    ///
    /// # Context
    ///
    /// Process context, may sleep. The caller serialises charges and uncharges of one socket.
    pub(crate) fn charge(&self, bytes: usize) -> bool {
        let Ok(bytes) = c_int::try_from(bytes) else {
            return false;
        };
        // SAFETY: The caller serialises, so nobody else changes `sk_forward_alloc`: this module
        // queues no packet on the socket.
        unsafe { bindings::__sk_mem_schedule(self.0.get(), bytes, bindings::SK_MEM_RECV) != 0 }
    }

    /// Gives back what [`Self::charge`] took.
    ///
    /// # Context
    ///
    /// As [`Self::charge`].
    pub(crate) fn uncharge(&self, bytes: usize) {
        if let Ok(bytes) = c_int::try_from(bytes) {
            // SAFETY: As in `charge`.
            unsafe { bindings::__sk_mem_reclaim(self.0.get(), bytes) }
        }
    }

    /// `SO_SNDBUF` as the kernel keeps it (twice the value that was set), in bytes.
    pub(crate) fn sndbuf(&self) -> usize {
        // SAFETY: A field read as a whole.
        let size = unsafe { (&raw const (*self.0.get()).sk_sndbuf).read_volatile() };
        usize::try_from(size).unwrap_or(0)
    }

    /// `SO_RCVBUF` as the kernel keeps it (twice the value that was set), in bytes.
    pub(crate) fn rcvbuf(&self) -> usize {
        // SAFETY: A field read as a whole.
        let size = unsafe { (&raw const (*self.0.get()).sk_rcvbuf).read_volatile() };
        usize::try_from(size).unwrap_or(0)
    }

    /// Whether the application set `SO_SNDBUF`.
    pub(crate) fn sndbuf_locked(&self) -> bool {
        self.userlocks() & bindings::SOCK_SNDBUF_LOCK != 0
    }

    /// Whether the application set `SO_RCVBUF`.
    pub(crate) fn rcvbuf_locked(&self) -> bool {
        self.userlocks() & bindings::SOCK_RCVBUF_LOCK != 0
    }

    fn userlocks(&self) -> u32 {
        // SAFETY: `self` is a live socket.
        unsafe { bindings::sk_userlocks(self.0.get()) }
    }

    /// Whether the socket is to be reset rather than closed: `SO_LINGER` with time 0.
    pub(crate) fn linger_reset(&self) -> bool {
        // SAFETY: `self` is a live socket.
        let lingers = unsafe { bindings::sock_flag_linger(self.0.get()) };
        // SAFETY: A field read as a whole.
        let time = unsafe { (&raw const (*self.0.get()).sk_lingertime).read_volatile() };
        lingers && time == 0
    }

    /// The upper limit of a send buffer in the socket's namespace, in bytes: `tcp_wmem[2]`.
    pub(crate) fn tcp_wmem_max(&self) -> usize {
        self.net().tcp_wmem_max()
    }

    /// The size with which a receive buffer begins in the socket's namespace, in bytes:
    /// `tcp_rmem[1]`.
    pub(crate) fn tcp_rmem_default(&self) -> usize {
        self.net().tcp_rmem_default()
    }

    /// The upper limit of a receive buffer in the socket's namespace, in bytes: `tcp_rmem[2]`.
    pub(crate) fn tcp_rmem_max(&self) -> usize {
        self.net().tcp_rmem_max()
    }

    /// The user of the host who answers for the socket (`kuid_t`): its own, or the one behind its
    /// user namespace.
    pub(crate) fn answerable_uid(&self) -> u32 {
        // SAFETY: A socket has a namespace for life, and its user is a field read as a whole.
        unsafe { bindings::sk_answerable_uid(self.0.get()) }
    }

    /// The network namespace.
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: A socket belongs to a namespace for life.
        let net = unsafe { bindings::sock_net(self.0.get()) };
        // SAFETY: The socket keeps the namespace's memory while it lives.
        unsafe { Net::from_ptr(net) }
    }

    /// The TCP state, meaningful for the socket within.
    pub(crate) fn tcp_state(&self) -> TcpState {
        // SAFETY: A field read as a whole.
        let state = unsafe { (&raw const (*self.0.get()).__sk_common.skc_state).read_volatile() };
        match u32::from(state) {
            bindings::TCP_ESTABLISHED => TcpState::Established,
            bindings::TCP_SYN_SENT | bindings::TCP_SYN_RECV => TcpState::Opening,
            bindings::TCP_CLOSE => TcpState::Close,
            bindings::TCP_LISTEN => TcpState::Listen,
            _ => TcpState::Closing,
        }
    }

    /// Whether a TCP socket has received data that nobody has read.
    pub(crate) fn tcp_has_data(&self) -> bool {
        // SAFETY: A live socket; the queue's head is read as a whole.
        unsafe { bindings::sk_has_data(self.0.get()) }
    }

    /// The time since a TCP socket received data, or since it was born, in milliseconds.
    pub(crate) fn tcp_msecs_since_data(&self) -> u32 {
        // SAFETY: Called for TCP sockets only; the field is read as a whole.
        unsafe { bindings::tcp_msecs_since_data(self.0.get()) }
    }

    /// The backlog of a listening socket.
    pub(crate) fn max_backlog(&self) -> usize {
        // SAFETY: A field read as a whole.
        let backlog = unsafe { (&raw const (*self.0.get()).sk_max_ack_backlog).read_volatile() };
        usize::try_from(backlog).unwrap_or(usize::MAX)
    }

    /// Shows core that this socket listens, or no longer does (`SO_ACCEPTCONN` reads it).
    pub(crate) fn show_listening(&self, listening: bool) {
        let state = if listening {
            bindings::TCP_LISTEN
        } else {
            bindings::TCP_CLOSE
        };
        if let Ok(state) = u8::try_from(state) {
            // SAFETY: A field written and read as a whole; only this module gives it a meaning.
            unsafe { (&raw mut (*self.0.get()).__sk_common.skc_state).write_volatile(state) }
        }
    }

    /// The inode number of the file that holds the socket, 0 without.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: `self` is a live socket.
        unsafe { bindings::sock_i_ino(self.0.get()) }
            .try_into()
            .unwrap_or(0)
    }

    /// Whether an application of the kernel itself created the socket.
    pub(crate) fn is_kern(&self) -> bool {
        // SAFETY: `self` is a live socket, and the bit is set at birth.
        unsafe { bindings::sk_kern_sock(self.0.get()) }
    }

    /// Takes the socket lock.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn lock(&self) -> SkGuard<'_> {
        // SAFETY: `self` is a live socket.
        unsafe { bindings::lock_sock(self.0.get()) };
        SkGuard(self)
    }

    /// The result of a stream operation that failed with `err`: raises `SIGPIPE` for `EPIPE`
    /// unless `MSG_NOSIGNAL` forbids it, and returns the error.
    ///
    /// Follows `sk_stream_error()`, but for the pending error, which the caller has taken.
    pub(crate) fn raise_sigpipe(&self, msg_flags: u32) {
        if msg_flags & bindings::MSG_NOSIGNAL == 0 {
            // SAFETY: Sends a signal to the running task.
            unsafe { bindings::send_sigpipe_current() };
        }
    }
}

/// The socket lock, held.
pub(crate) struct SkGuard<'a>(&'a Sk);

impl Drop for SkGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: The lock was taken when this value was made.
        unsafe { bindings::release_sock(self.0.as_ptr()) }
    }
}
