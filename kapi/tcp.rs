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

mod callbacks;
mod calls;
pub(crate) mod child;
mod hooks;
mod owner;
pub(crate) mod stamps;
pub(crate) mod stream;
mod syn;
mod tuple;
pub(crate) mod zerocopy;

pub(crate) use {
    child::Child,
    owner::{
        TcpOwner,
        Wake, //
    },
    syn::Syn,
    tuple::Tuple, //
};

use self::{
    callbacks::{
        same,
        Callbacks,
        DEFAULTS, //
    },
    hooks::{
        learn,
        unhook, //
    },
    owner::callbacks, //
};
use super::{
    bindings,
    proto::{
        Birth,
        Op,
        Socket,
        Version, //
    },
    sock::{
        Sk,
        TcpState, //
    },
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*, //
};

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
        DEFAULTS.populate(unsafe { Callbacks::of(sk) });
        learn(new.sk(), birth.version == Version::V6);
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
    /// Process context. The TCP socket must not be in use by an application yet, or have this owner.
    pub(crate) fn attach<T: TcpOwner>(&self, owner: &Op<'_, T>) {
        let sk = self.sk().as_ptr();
        let _guard = self.sk().lock();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under both locks. The owner's `struct socket` outlives the TCP socket, which
        // `detach` and drop precede.
        unsafe {
            bindings::sk_assign_wq(sk, owner.socket.as_ptr());
            let user = bindings::sk_user_data(sk);
            if user.is_null() || core::ptr::eq(user.cast(), owner.sk.as_ptr()) {
                bindings::sk_assign_user_data_nocopy(sk, owner.sk.as_ptr().cast());
                callbacks::<T>().install(sk);
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

    /// Gives a TCP socket that is about to listen without hooks core's own callbacks, until it is
    /// attached again: its children would begin with ours, and nobody would take them away
    /// (`sk_clone()` clears just `sk_user_data`). Such a listener serves plain TCP, and its
    /// children may move to another one's queue and outlive this module's sockets.
    ///
    /// # Context
    ///
    /// Process context, the TCP socket locked.
    fn restore_callbacks(&self) {
        let sk = self.sk().as_ptr();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        if let Some(defaults) = DEFAULTS.as_ref() {
            // SAFETY: A live socket, whose callback lock is held.
            unsafe { defaults.install(sk) };
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
    }

    /// Takes the owner's callback for new data out of the way of a protocol that is about to be put
    /// on top of TCP and would call it for ever. The owner of a connection that is TCP for good has
    /// no use for it.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn yield_data_ready<T: TcpOwner>(&self) {
        let sk = self.sk().as_ptr();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under the lock.
        let present = unsafe { Callbacks::of(sk) };
        if let Some(defaults) = DEFAULTS.as_ref() {
            if same(present.data_ready, callbacks::<T>().data_ready) {
                let yielded = Callbacks {
                    data_ready: defaults.data_ready,
                    ..present
                };
                // SAFETY: Under the lock.
                unsafe { yielded.install(sk) };
            }
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
    }

    /// Makes `socket`'s wait queue that of a TCP socket which has no owner yet, until it is attached
    /// to one or dropped, before the wait queue goes.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn share_wait_queue(&self, socket: &Socket) {
        let sk = self.sk().as_ptr();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under the lock; the caller guarantees that the wait queue outlives its use.
        unsafe { bindings::sk_assign_wq(sk, socket.as_ptr()) };
        // SAFETY: As above: SIGIO for whoever listens.
        unsafe { bindings::sock_set_flag_fasync(sk) };
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
                defaults.install(sk);
            }
        }
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
        unhook(self.sk());
    }

    /// Gives a socket that is detached its own wait queue back, before the owner's goes.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn use_own_wait_queue(&self) {
        let sk = self.sk().as_ptr();
        // SAFETY: A live socket.
        unsafe { bindings::sk_callback_write_lock(sk) };
        // SAFETY: Under the lock; the socket's own `struct socket` lives as long as this value.
        unsafe { bindings::sk_assign_wq(sk, self.0.as_ptr()) };
        // SAFETY: Locked above.
        unsafe { bindings::sk_callback_write_unlock(sk) };
    }

    /// Closes the socket without telling the other end (`__tcp_close()` of one that is under
    /// repair), which has no use for it.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn close_quietly(self) {
        let guard = self.sk().lock();
        // SAFETY: A TCP socket, locked.
        unsafe { bindings::tcp_set_repair(self.sk().as_ptr()) };
        drop(guard);
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
