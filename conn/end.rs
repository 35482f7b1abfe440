// SPDX-License-Identifier: GPL-2.0

//! One end of a connection: its socket, what is charged to it, and its death.

#![deny(unsafe_code)]

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full, //
        },
        barrier::smp_mb,
        new_mutex,
        Mutex,
        SetOnce, //
    }, //
};

use crate::kapi::{
    sock::Sk,
    sync::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};

/// One of the two ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// The end that connected.
    Client,
    /// The end that was accepted.
    Server,
}

impl Side {
    /// The other end.
    pub(crate) fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Whether an end has died.
enum Fate {
    /// It has not.
    Alive,
    /// It has; the error is set, or waits for a socket to be set in.
    Dead(Option<Error>),
}

/// One end of a connection.
#[pin_data]
pub(super) struct End {
    /// The socket, from the moment it takes this end until the connection is gone.
    sk: SetOnce<ARef<Sk>>,
    /// The listener at which the end waits for its socket, if that wants to know what comes.
    #[pin]
    herald: SpinLockBh<Option<ARef<Sk>>>,
    #[pin]
    fate: SpinLockBh<Fate>,
    /// The bytes charged to the socket.
    #[pin]
    pub(super) account: Mutex<usize>,
    pub(super) closed: Atomic<bool>,
}

impl End {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            sk: SetOnce::new(),
            herald <- new_spinlock_bh!(None, "End::herald"),
            fate <- new_spinlock_bh!(Fate::Alive, "End::fate"),
            account <- new_mutex!(0, "End::account"),
            closed: Atomic::new(false),
        })
    }

    /// The socket that has taken this end.
    #[inline]
    pub(super) fn sk(&self) -> Option<&Sk> {
        self.sk.as_ref().map(|sk| &**sk)
    }

    /// The socket that must be told of what was published just now, if there is one yet: who takes
    /// the end later sees what was published.
    #[inline]
    pub(super) fn announced(&self) -> Option<&Sk> {
        self.sk().or_else(|| {
            // Publish before looking for whom to tell: pairs with the fence in `take()`.
            smp_mb(Full);
            self.sk()
        })
    }

    /// Lets `listener` be told of what comes before the end has a socket. Who looks afterwards sees
    /// what came before.
    pub(super) fn set_herald(&self, listener: &Sk) {
        let _old = core::mem::replace(&mut *self.herald.lock(), Some(listener.into()));
    }

    /// Tells the listener of an end without socket that something came.
    ///
    /// # Context
    ///
    /// Process context and softirq, after what came was published: the lock orders it against a
    /// listener that is about to look.
    #[cold]
    pub(super) fn tell_herald(&self) {
        let listener = self.herald.lock().clone();
        if let Some(listener) = listener {
            listener.data_ready();
        }
    }

    /// Lets the end die of `err`, unless it is dead; afterwards its socket has, or has had, the
    /// error.
    ///
    /// # Context
    ///
    /// Process context and softirq.
    pub(super) fn die(&self, err: Error) {
        let mut fate = self.fate.lock();
        if let Fate::Alive = *fate {
            *fate = Fate::Dead(match self.sk() {
                Some(sk) => {
                    sk.set_err(err);
                    None
                }
                None => Some(err),
            });
        }
    }

    /// Lets the end be dead without an error, unless it has died: whatever comes, its socket has
    /// nothing to do with it any more.
    ///
    /// # Context
    ///
    /// Process context.
    pub(super) fn retire(&self) {
        let mut fate = self.fate.lock();
        if let Fate::Alive = *fate {
            *fate = Fate::Dead(None);
        }
    }

    /// Gives the end to `sk`; nothing when somebody has it.
    pub(super) fn take(&self, sk: ARef<Sk>) {
        if !self.sk.populate(sk) {
            return;
        }
        // Be there before looking at what the peer did: pairs with the fence in `announced()`, and
        // with `Channel::raise()`, which is fully ordered.
        smp_mb(Full);
        let _listener = self.herald.lock().take();
        let mut fate = self.fate.lock();
        if let (Fate::Dead(pending), Some(sk)) = (&mut *fate, self.sk()) {
            if let Some(err) = pending.take() {
                sk.set_err(err);
            }
        }
    }

    /// Charges `bytes` to the socket.
    pub(super) fn charge(&self, bytes: usize) -> bool {
        let Some(sk) = self.sk() else {
            return false;
        };
        let mut account = self.account.lock();
        let charged = sk.charge(bytes);
        if charged {
            *account += bytes;
        }
        charged
    }

    /// Uncharges `bytes` that were charged.
    pub(super) fn uncharge(&self, bytes: usize) {
        if let Some(sk) = self.sk() {
            let mut account = self.account.lock();
            sk.uncharge(bytes);
            *account -= bytes;
        }
    }

    /// Wakes everybody who waits at this end.
    pub(super) fn wake(&self) {
        match self.announced() {
            Some(sk) => sk.state_change(),
            None => self.tell_herald(),
        }
    }

    /// Wakes everybody who waits at this end, which was reset, with the events of an error and
    /// `SIGIO` (`tcp_reset()`).
    pub(super) fn wake_for_reset(&self) {
        match self.announced() {
            Some(sk) => {
                sk.state_change();
                sk.error_report();
            }
            None => self.tell_herald(),
        }
    }

    /// Wakes everybody who waits at this end, and tells whoever reads from a callback, that the
    /// stream has ended (`tcp_fin()` and, for the callback and `SIGIO`, `tcp_data_ready()`).
    pub(super) fn wake_for_end(&self) {
        match self.announced() {
            Some(sk) => {
                sk.state_change();
                sk.data_ready();
            }
            None => self.tell_herald(),
        }
    }
}
