// SPDX-License-Identifier: GPL-2.0

//! How many rings connections may use, and who uses them.
//!
//! A connection that exists must be able to send in both directions, so it is given a place for
//! one ring each way when it begins: a host without free places has no more SMC-D connections,
//! but none that stands still. Rings beyond the first of a direction need a place of their own.
//! C learns while it sets a connection up that no DMB is free (`smc_conn_create()`), and an
//! unprivileged user can take them all; here one user's connections leave places for others.
//!
//! Idle rings have no place. They are in the way of nobody, because they are freed for whoever has
//! a place and finds the device full.

#![deny(unsafe_code)]

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_spinlock,
        Arc,
        SpinLock, //
    }, //
};

use super::Shared;

/// The places a new connection is given: a ring for each direction.
const FIRST_RINGS: usize = 2;

/// The number of trees of users, a power of two.
const BUCKETS: usize = 16;

/// Who answers for a connection: a user of the host, by number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct User(u32);

impl User {
    /// The host's administrator, who is bounded by nothing but the device.
    pub(crate) const ROOT: Self = Self(0);

    /// The user of this number (`kuid_t`).
    pub(crate) fn new(uid: u32) -> Self {
        Self(uid)
    }
}

/// The places of each user that has some.
type Users = RBTree<u32, usize>;

/// The places for rings.
///
/// # Invariants
///
/// `used` is the sum of all reservations, and at most `limit` but for attempts that are about to
/// fail; `users` has the sum of each bounded user's, at most `user_limit`.
#[pin_data]
pub(super) struct Quota {
    limit: usize,
    user_limit: usize,
    used: Atomic<usize>,
    #[pin]
    users: [SpinLock<Users>; BUCKETS],
}

impl Quota {
    /// `limit` places, of which one user may have `user_limit`.
    pub(super) fn new(limit: usize, user_limit: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            limit,
            user_limit,
            used: Atomic::new(0),
            users <- pin_init::pin_init_array_from_fn(|_| {
                new_spinlock!(RBTree::new(), "Quota::users")
            }),
        })
    }

    fn enter(&self, user: User, count: usize) -> Result {
        if self.used.fetch_add(count, Relaxed) + count > self.limit {
            self.used.fetch_sub(count, Relaxed);
            return Err(ENOSPC);
        }
        if user == User::ROOT {
            return Ok(());
        }
        self.count(user, count).inspect_err(|_| {
            self.used.fetch_sub(count, Relaxed);
        })
    }

    fn leave(&self, user: User, count: usize) {
        self.used.fetch_sub(count, Relaxed);
        if user != User::ROOT {
            self.discount(user, count);
        }
    }

    fn bucket(&self, user: User) -> Result<&SpinLock<Users>> {
        let number = usize::try_from(user.0)? & (BUCKETS - 1);
        self.users.get(number).ok_or(EINVAL)
    }

    /// Counts places of a bounded user.
    fn count(&self, user: User, count: usize) -> Result {
        let bucket = self.bucket(user)?;
        let add = |held: &mut usize| {
            if *held + count > self.user_limit {
                return Err(EDQUOT);
            }
            *held += count;
            Ok(())
        };
        if let Some(held) = bucket.lock().get_mut(&user.0) {
            return add(held);
        }
        if count > self.user_limit {
            return Err(EDQUOT);
        }
        let new = RBTreeNode::new(user.0, count, GFP_KERNEL)?;
        // Dropped after the lock, when somebody else was faster.
        let _surplus;
        let mut users = bucket.lock();
        match users.get_mut(&user.0) {
            Some(held) => {
                _surplus = new;
                add(held)
            }
            None => {
                users.insert(new);
                Ok(())
            }
        }
    }

    /// Counts places of a bounded user no more.
    fn discount(&self, user: User, count: usize) {
        let Ok(bucket) = self.bucket(user) else {
            return;
        };
        // Dropped after the lock.
        let _gone;
        let mut users = bucket.lock();
        if let Some(held) = users.get_mut(&user.0) {
            *held = held.saturating_sub(count);
            if *held == 0 {
                _gone = users.remove_node(&user.0);
            }
        }
    }
}

/// The places of one connection; they are free again when this is dropped.
///
/// # Context
///
/// Process context.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    user: User,
    count: Atomic<usize>,
}

impl Reservation {
    /// The places for a new connection that `user` answers for.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` - the device has no more places.
    /// - `EDQUOT` - the user has as many as one may have.
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(super) fn new(shared: Arc<Shared>, user: User) -> Result<Self> {
        shared.quota.enter(user, FIRST_RINGS)?;
        Ok(Self {
            shared,
            user,
            count: Atomic::new(FIRST_RINGS),
        })
    }

    /// Adds a place, for a ring that is not the only one of its direction.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn extend(&self) -> Result {
        self.shared.quota.enter(self.user, 1)?;
        self.count.add(1, Relaxed);
        Ok(())
    }

    /// Gives back a place that was added.
    pub(crate) fn shrink(&self) {
        self.count.fetch_sub(1, Relaxed);
        self.shared.quota.leave(self.user, 1);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shared.quota.leave(self.user, self.count.load(Relaxed));
    }
}
