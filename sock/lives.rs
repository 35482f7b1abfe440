// SPDX-License-Identifier: GPL-2.0

//! The connections of one socket, one after the other: `connect()` to `AF_UNSPEC` dissolves one,
//! and the socket may connect again.
//!
//! Calls look at how their connection travels without a lock and without counting themselves, so
//! what they look at must stay: a dissolved connection is closed, its rings are gone, but what is
//! left of it stays with the socket. There are not many of these ([`LIMIT`]); after the last one
//! the socket is a TCP socket. Nobody is known to connect one socket so often, and TCP serves him.
//!
//! # Invariants
//!
//! 1. Lives are only appended; the last one is the present one. All others are dissolved SMC-D
//!    connections.
//! 2. A life's mode is set once, by whoever holds `SmcSock::attempt` and has found the attempt
//!    that it set out with unchanged; a life is appended under that lock, too. So no connection
//!    becomes that of a socket which was disconnected while it was made.

#![deny(unsafe_code)]

use super::Mode;
use kernel::{
    prelude::*,
    sync::SetOnce, //
};

/// The most connections through rings that a socket can have.
const LIMIT: usize = 8;

/// A socket between two disconnects.
struct Life {
    mode: SetOnce<Mode>,
    next: SetOnce<KBox<Life>>,
}

impl Life {
    const fn new(mode: SetOnce<Mode>) -> Self {
        Self {
            mode,
            next: SetOnce::new(),
        }
    }
}

/// A life that is not begun yet, so that it can be begun under a spinlock.
pub(super) struct Unborn(KBox<Life>);

impl Unborn {
    /// Allocates a life.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(KBox::new(Life::new(SetOnce::new()), GFP_KERNEL)?))
    }
}

/// All lives of a socket.
pub(super) struct Lives {
    first: Life,
}

impl Lives {
    /// The first life, in which the mode may be decided already.
    pub(super) const fn new(mode: SetOnce<Mode>) -> Self {
        Self {
            first: Life::new(mode),
        }
    }

    #[inline]
    fn last(&self) -> &Life {
        let mut life = &self.first;
        while let Some(next) = life.next.as_ref() {
            life = next;
        }
        life
    }

    /// How the present connection travels, if that is decided.
    #[inline]
    pub(super) fn mode(&self) -> Option<&Mode> {
        self.last().mode.as_ref()
    }

    /// Decides how the present connection travels; gives `mode` back if that was decided before.
    ///
    /// # Context
    ///
    /// `SmcSock::attempt` is held.
    pub(super) fn decide(&self, mode: Mode) -> Option<Mode> {
        let life = self.last();
        if life.mode.as_ref().is_some() {
            return Some(mode);
        }
        life.mode.populate(mode);
        None
    }

    /// Ends the present life and begins another, which will be `last_mode`'s if there can be no
    /// other after it. Says how the connection travelled that is to be closed now.
    ///
    /// # Context
    ///
    /// `SmcSock::attempt` is held.
    pub(super) fn renew(&self, unborn: Unborn, last_mode: Mode) -> Option<&Mode> {
        let mut count = 1;
        let mut life = &self.first;
        while let Some(next) = life.next.as_ref() {
            life = next;
            count += 1;
        }
        if count >= LIMIT {
            unborn.0.mode.populate(last_mode);
        }
        life.next.populate(unborn.0);
        life.mode.as_ref()
    }
}
