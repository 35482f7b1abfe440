// SPDX-License-Identifier: GPL-2.0

//! Enterprise IDs: the names that say which hosts, or tenants, may share memory.
//!
//! An EID is 32 characters. Administrators add up to four of them (UEIDs); two ends speak SMC-D
//! when the server has one that the client proposes. C's stack has none until somebody adds one
//! and is then silently TCP; here a built-in EID holds while the table is empty. There is no
//! system EID, which only a mainframe has.
//!
//! Pure: the owner of the table brings the lock. Rules: `net/smc/smc_clc.c`.

#![deny(unsafe_code)]

use kernel::prelude::*;

/// The length of an EID, `SMC_MAX_EID_LEN`.
pub(crate) const LEN: usize = 32;

/// The number of UEIDs a host may have, `SMC_MAX_UEID`.
pub(crate) const MAX: usize = 4;

/// A valid EID.
///
/// # Invariants
///
/// Capital letters, digits, `.` and `-`, the first one a letter or digit, blanks only behind them,
/// and at least one character that is no blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eid([u8; LEN]);

impl Eid {
    /// The EID of a host whose administrator has named none.
    // INVARIANT: Written out with its blanks; a test compares it with the rules.
    pub(crate) const DEFAULT: Self = Self(*b"SMC-LO.DEFAULT                  ");

    /// Its 32 bytes.
    pub(crate) const fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl TryFrom<[u8; LEN]> for Eid {
    type Error = Error;

    /// Takes an EID that somebody wants to add.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - a character that is not allowed, or only blanks.
    fn try_from(bytes: [u8; LEN]) -> Result<Self> {
        let end = bytes
            .iter()
            .rposition(|&byte| !is_blank(byte))
            .ok_or(EINVAL)?;
        let mut name = bytes.iter().copied().take(end + 1);
        // INVARIANT: These are the rules of the type; all behind `end` is blank.
        if name.next().is_some_and(is_capital_or_digit)
            && name.all(|byte| is_capital_or_digit(byte) || matches!(byte, b'.' | b'-'))
        {
            Ok(Self(bytes))
        } else {
            Err(EINVAL)
        }
    }
}

/// Whether the kernel's `isspace()` holds.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0)
}

/// Whether the kernel's `isalnum()` holds and `islower()` does not; its table is Latin-1.
const fn is_capital_or_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde)
}

/// The EIDs of this host.
///
/// # Invariants
///
/// The first `count` of `eids` were added, in that order, and differ; `count` is at most [`MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    eids: [Eid; MAX],
    count: usize,
}

impl Table {
    /// A table without UEIDs.
    pub(crate) const fn new() -> Self {
        // INVARIANT: None was added.
        Self {
            eids: [Eid::DEFAULT; MAX],
            count: 0,
        }
    }

    /// The UEIDs that were added, for those who list them.
    pub(crate) fn user(&self) -> &[Eid] {
        self.eids.get(..self.count).unwrap_or_default()
    }

    /// The EIDs that hold: the UEIDs, or the built-in one while there are none. Never empty.
    pub(crate) fn effective(&self) -> &[Eid] {
        match self.user() {
            [] => core::slice::from_ref(&Eid::DEFAULT),
            user => user,
        }
    }

    /// Adds a UEID behind the others.
    ///
    /// # Errors
    ///
    /// - `ERANGE` - there are four already.
    /// - `EEXIST` - it is one of them.
    #[cfg_attr(not(test), expect(dead_code, reason = "netlink comes later"))]
    pub(crate) fn add(&mut self, eid: Eid) -> Result {
        // The order of the two tests is C's.
        if self.count == MAX {
            return Err(ERANGE);
        }
        if self.user().contains(&eid) {
            return Err(EEXIST);
        }
        let free = self.eids.get_mut(self.count).ok_or(ERANGE)?;
        // INVARIANT: It differs from the others, and a place was free.
        *free = eid;
        self.count += 1;
        Ok(())
    }

    /// Removes a UEID, named by its bytes.
    ///
    /// # Errors
    ///
    /// - `ENOENT` - there is no such UEID; the built-in one cannot be removed.
    #[cfg_attr(not(test), expect(dead_code, reason = "netlink comes later"))]
    pub(crate) fn remove(&mut self, bytes: &[u8; LEN]) -> Result {
        let user = self.eids.get_mut(..self.count).ok_or(ENOENT)?;
        let place = user
            .iter()
            .position(|eid| eid.as_bytes() == bytes)
            .ok_or(ENOENT)?;
        let tail = user.get_mut(place..).ok_or(ENOENT)?;
        tail.rotate_left(1);
        // INVARIANT: The removed one is now the last of `count`.
        self.count -= 1;
        Ok(())
    }

    /// Removes all UEIDs.
    #[cfg_attr(not(test), expect(dead_code, reason = "netlink comes later"))]
    pub(crate) fn flush(&mut self) {
        // INVARIANT: None is left.
        self.count = 0;
    }

    /// The first of the proposed EIDs that this host has.
    ///
    /// Proposed ones are raw: a peer's bytes need no rules, only to be equal.
    pub(crate) fn negotiate(&self, proposed: impl IntoIterator<Item = [u8; LEN]>) -> Option<Eid> {
        proposed.into_iter().find_map(|bytes| {
            self.effective()
                .iter()
                .find(|eid| *eid.as_bytes() == bytes)
                .copied()
        })
    }
}
