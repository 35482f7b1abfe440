// SPDX-License-Identifier: GPL-2.0

//! One socket as an application holds it.
//!
//! It owns a TCP socket from birth to death. Until it is decided how its
//! connection travels, and for ever if that is TCP, the TCP socket serves the
//! application; once the connection is an SMC-D connection, data goes through
//! its rings and the TCP socket stays idle beside them.
//!
//! # States
//!
//! The mode in `lives` is empty for a fresh, listening or connecting socket, and
//! set once until the socket is disconnected. It is the one thing that the
//! lock-free paths look at. `attempt` has an offer while a connection is on its
//! way. A disconnect may come at any time, while other threads connect, send,
//! receive, poll or shut down:
//!
//! 1. Under `attempt` it counts the attempt up, takes the offer, and ends the
//!    present life if that had an SMC-D connection. From here on no connection
//!    that was begun before can become this socket's; its end is dropped, which
//!    resets it.
//! 2. It closes the old connection. Threads that still use it find it closed
//!    and return, and give the socket neither errors nor shutdown flags.
//! 3. It disconnects TCP, which sets the error and wakes everybody.
//!
//! # Locks
//!
//! See the crate root. The socket lock of the outer socket serves options, and
//! `sk_shutdown`.

#![deny(unsafe_code)]

mod connect;
mod defer;
mod fallback;
pub(crate) mod housekeeping;
mod listen;
mod lives;
mod ops;
mod opts;
mod wire;

use self::{
    defer::Deferred,
    lives::Lives, //
};
use crate::{
    clc::{
        local::{
            self,
            Offer,
            Pending, //
        },
        peer::{
            Parked,
            Peer, //
        },
        wire::decline::Reason,
    },
    conn::Endpoint,
    kapi::{
        proto::{
            Family,
            FamilyMember,
            Op, //
        },
        sock::Sk,
        sync::{
            new_spinlock_bh,
            Slot,
            SpinLockBh, //
        },
        tcp::{
            Child,
            Syn,
            TcpOwner,
            TcpSocket,
            Wake, //
        },
    },
    Lo, LO,
};
use kernel::{
    module::this_module,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
        Arc,
        SetOnce, //
    },
};

/// How a connection travels, once that is decided.
pub(crate) enum Mode {
    /// Over TCP.
    Tcp(Reason),
    /// Through shared rings.
    Smcd(Endpoint),
}

/// A connection that is on its way.
struct Attempt {
    /// How often the socket was disconnected before.
    number: u32,
    offer: Option<Arc<Offer>>,
}

impl Attempt {
    /// The number, and in the lowest bit whether there is an offer.
    fn glimpse(&self) -> u64 {
        u64::from(self.number) << 1 | u64::from(self.offer.is_some())
    }
}

/// A socket's value.
#[pin_data]
pub(crate) struct SmcSock {
    /// The TCP socket; gone only in the last moments.
    tcp: Option<TcpSocket>,
    lives: Lives,
    #[pin]
    attempt: SpinLockBh<Attempt>,
    /// What `attempt` holds, for those who look without its lock; written under it.
    glimpse: Atomic<u64>,
    #[pin]
    pending: Pending,
    /// The wire handshake of a connection that is on its way.
    #[pin]
    peer: Slot<Arc<Peer>>,
    /// The wire handshakes of unaccepted children, of a listener.
    #[pin]
    parked: Parked,
    /// The code with which the peer declined, or 0.
    diagnosis: Atomic<u32>,
    listening: Atomic<bool>,
    /// `SMC_LIMIT_HS`: whether the next `listen()` limits handshakes over the wire.
    limits_handshakes: Atomic<bool>,
    /// The errno that was last copied from the TCP socket to ours and not yet reported, or 0.
    mirrored: Atomic<i32>,
    /// The same for errors that do not end the connection.
    mirrored_soft: Atomic<i32>,
    /// `TCP_INQ`.
    tells_unread: Atomic<bool>,
    /// How many bytes had been sent when `SOF_TIMESTAMPING_OPT_ID` was set; see
    /// [`Endpoint::sent`].
    stamps_from: Atomic<u32>,
    /// Children without data, of a listener, and how long they stay that.
    #[pin]
    deferred: Deferred,
}

static FAMILY: Family<SmcSock> = Family::new(this_module::<crate::LocalModule>());

impl FamilyMember for SmcSock {
    fn family() -> &'static Family<Self> {
        &FAMILY
    }
}

impl SmcSock {
    /// A value around a TCP socket, which is attached afterwards.
    fn around(tcp: TcpSocket, mode: SetOnce<Mode>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            tcp: Some(tcp),
            lives: Lives::new(mode),
            attempt <- new_spinlock_bh!(Attempt {
                number: 0,
                offer: None,
            }, "SmcSock::attempt"),
            glimpse: Atomic::new(0),
            pending <- Pending::new(),
            peer <- Slot::new(new_spinlock_bh!(None, "SmcSock::peer")),
            parked <- Parked::new(),
            diagnosis: Atomic::new(0),
            listening: Atomic::new(false),
            limits_handshakes: Atomic::new(false),
            mirrored: Atomic::new(0),
            mirrored_soft: Atomic::new(0),
            tells_unread: Atomic::new(false),
            stamps_from: Atomic::new(0),
            deferred <- Deferred::new(),
        })
    }

    /// The socket is complete: lets TCP's events and others' looks reach it.
    fn open(op: &Op<'_, Self>) {
        if let Ok(tcp) = op.tcp() {
            tcp.attach(op);
            tcp.mirror_options(op.sk);
            op.sk.mirror_peek_off(tcp.sk());
            op.tells_unread.store(tcp.sk().tcp_recvmsg_inq(), Relaxed);
        }
        if let Some(lo) = LO.get() {
            lo.sockets.insert(op.sk);
        }
    }

    /// The TCP socket.
    ///
    /// # Errors
    ///
    /// * `EBADF`: the socket is being released.
    #[inline]
    fn tcp(&self) -> Result<&TcpSocket> {
        self.tcp.as_ref().ok_or(EBADF)
    }

    /// How the connection travels, if that is decided.
    #[inline]
    pub(crate) fn mode(&self) -> Option<&Mode> {
        self.lives.mode()
    }

    /// The TCP socket's side, for reports.
    pub(crate) fn tcp_sk(&self) -> Option<&Sk> {
        self.tcp.as_ref().map(TcpSocket::sk)
    }

    /// Whether it listens.
    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Relaxed)
    }

    /// The offer of a connection that is on its way.
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        (self.glimpse() & 1 != 0)
            .then(|| self.attempt.lock().offer.clone())
            .flatten()
    }

    /// Where the pairs of unaccepted children wait, of a listener.
    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// The number of the present attempt to connect, which a disconnect ends.
    fn attempt(&self) -> u64 {
        self.glimpse() >> 1
    }

    /// What `attempt` holds, without its lock.
    #[inline]
    fn glimpse(&self) -> u64 {
        // Everything before the look and nothing behind it: as if the lock were taken and given
        // back. Pairs with the fence in `change_attempt()`.
        smp_mb(Full);
        let glimpse = self.glimpse.load(Relaxed);
        smp_mb(Full);
        glimpse
    }

    /// Changes the attempt. Whoever looks afterwards, with or without the lock, sees it changed; what
    /// the caller looks at next was looked at after the change.
    fn change_attempt<R>(&self, change: impl FnOnce(&mut Attempt) -> R) -> R {
        let result = {
            let mut attempt = self.attempt.lock();
            let result = change(&mut attempt);
            self.glimpse.store(attempt.glimpse(), Relaxed);
            result
        };
        smp_mb(Full);
        result
    }

    /// Sets the mode, unless it is set already or the socket was disconnected since the `attempt`
    /// that led to it, and wakes whoever waits for it.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    fn decide(&self, sk: &Sk, mode: Mode, attempt: u64) {
        let is_smcd = matches!(mode, Mode::Smcd(_));
        let refused = {
            let present = self.attempt.lock();
            if u64::from(present.number) == attempt {
                self.lives.decide(mode)
            } else {
                Some(mode)
            }
        };
        // Resets a connection that is nobody's.
        if refused.is_none() {
            if let (true, Some(lo)) = (is_smcd, LO.get()) {
                lo.housekeeping.arm();
            }
            self.drop_offer();
            sk.wake_all();
        }
    }
}

/// What the module has exactly one of.
///
/// # Errors
///
/// * `ENODEV`: the module is on its way in or out.
fn lo() -> Result<&'static Lo> {
    LO.get().ok_or(ENODEV)
}

impl TcpOwner for SmcSock {
    fn error_report(&self, outer: &Sk, inner: &Sk) {
        let err = inner.raw_err();
        match self.mode() {
            Some(Mode::Smcd(end)) => {
                if err != 0 && !end.explains_rst() {
                    end.abort(Error::from_errno(-err));
                }
            }
            // The handshake fails of it, and then it is reported.
            None if self.kick_peer() => {}
            // Core reports the outer socket's error to the application, once.
            _ if err != self.mirrored.load(Relaxed) => {
                outer.set_raw_err(err);
                self.mirrored.store(err, Relaxed);
            }
            _ => {}
        }
    }

    fn state_change(&self, outer: &Sk, inner: &Sk) -> Wake {
        if inner.has_err() {
            // TCP reports it after this wake-up, which is too late for whoever it wakes.
            self.error_report(outer, inner);
        }
        match self.mode() {
            // The peer's end has told the application already.
            Some(Mode::Smcd(end)) if end.explains_fin() => Wake::Drop,
            None if self.kick_peer() => Wake::Drop,
            None => {
                self.established(outer, inner);
                Wake::Pass
            }
            _ => Wake::Pass,
        }
    }

    fn data_ready(&self, _outer: &Sk, _inner: &Sk) -> Wake {
        match self.mode() {
            // FIN counts as something to read.
            Some(Mode::Smcd(_)) => Wake::Drop,
            None if self.kick_peer() => Wake::Drop,
            _ => Wake::Pass,
        }
    }

    fn is_congested(&self, inner: &Sk) -> bool {
        self.parked.is_congested(inner.max_backlog())
    }

    fn syn_seen(syn: &Syn<'_>) {
        if let Some(lo) = LO.get() {
            local::syn_seen(&lo.offers, syn);
        }
    }

    fn child_born(child: &Child<'_>) {
        if let Some(lo) = LO.get() {
            if !local::child_born(&lo.offers, child) {
                Self::unpaired_child(lo, child);
            }
        }
    }
}
