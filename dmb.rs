// SPDX-License-Identifier: GPL-2.0

//! The loopback device: DMBs by token.
//!
//! A direct memory buffer (DMB) is registered by the end that reads from it and attached by the
//! end that writes to it; a random token names it. On this device both ends are in one kernel, so
//! attaching means a reference to the same memory (`drivers/dibs/dibs_loopback.c`). Connections
//! keep what they have registered or attached and never look up a token for data.
//!
//! # Lifetime
//!
//! One count says who uses a DMB: the owner and everybody who is attached. Whatever can be found
//! in the table is counted; the step to zero and the removal from the table are one section under
//! the lock of the bucket. Registration and attachment may end in any order, in any task.

#![deny(unsafe_code)]
// This is all a device offers; connections within the kernel need a part of it.
#![cfg_attr(not(CONFIG_SMC_LO_KUNIT_TEST), allow(dead_code))]

mod mem;

use core::num::NonZeroU64;

use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        List,
        ListArc,
        ListLinks, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

use crate::kapi::{
    random::get_random_u64,
    sbitmap::Sbitmap,
    sync::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};

pub(crate) use self::mem::Memory;

/// The number of hash buckets, a power of two.
const BUCKETS: usize = 1024;

/// The name of a DMB: random, unique on this device, never zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Token(NonZeroU64);

impl Token {
    /// The token of a number from a message or a test, unless it is zero.
    pub(crate) fn new(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    /// The number, for messages and dumps.
    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }

    fn random() -> Option<Self> {
        Self::new(get_random_u64())
    }

    fn bucket(self) -> usize {
        // Random bits need no hashing.
        let [low, high, ..] = self.get().to_ne_bytes();
        usize::from(u16::from_ne_bytes([low, high])) & (BUCKETS - 1)
    }
}

/// The users of a parked DMB: its owner alone, and nobody may become another one.
const PARKED: u32 = 0;

/// A direct memory buffer.
#[pin_data]
pub(crate) struct Dmb {
    token: Token,
    /// The number in `0..max_dmbs`, `sba_idx` in C.
    index: u32,
    /// The owner and everybody attached, or [`PARKED`]. Counted up and to zero only under the
    /// lock of the bucket.
    users: Atomic<u32>,
    memory: Memory,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Dmb { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Dmb { using ListLinks { self.links }; }
}

impl Dmb {
    /// The name.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// The number on the device.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The memory.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Counts one more user, unless it is parked.
    fn enter(&self) -> bool {
        let mut users = self.users.load(Relaxed);
        while users != PARKED {
            match self.users.cmpxchg(users, users + 1, Acquire) {
                Ok(_) => return true,
                Err(found) => users = found,
            }
        }
        false
    }
}

/// The DMBs of one bucket.
type Bucket = List<Dmb>;

/// The loopback device.
#[pin_data]
pub(crate) struct Device {
    #[pin]
    buckets: [SpinLockBh<Bucket>; BUCKETS],
    #[pin]
    indexes: Sbitmap,
}

impl Device {
    /// A device with room for `max_dmbs` DMBs.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - no room at all.
    /// - `ENOMEM` - no memory.
    pub(crate) fn new(max_dmbs: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            buckets <- pin_init::pin_init_array_from_fn(|_| {
                new_spinlock_bh!(List::new(), "Device::buckets")
            }),
            indexes <- Sbitmap::new(max_dmbs),
        })
    }

    /// Registers a new DMB of `len` bytes, zeroed.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` - as many as the device has room for exist.
    /// - `EINVAL` - the length is none a DMB can have.
    /// - `ENOMEM` - no memory.
    /// - `EAGAIN` - the random token was taken; it will not be the next time.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn register(self: &Arc<Self>, len: usize) -> Result<Registered> {
        self.register_as(Token::random().ok_or(EAGAIN)?, len)
    }

    fn register_as(self: &Arc<Self>, token: Token, len: usize) -> Result<Registered> {
        let index = Index::take(self)?;
        let dmb = ListArc::pin_init(
            try_pin_init!(Dmb {
                token,
                index: index.number,
                users: Atomic::new(1),
                memory: Memory::new(len)?,
                links <- ListLinks::new(),
            }? Error),
            GFP_KERNEL,
        )?;
        let registered = dmb.clone_arc();
        // Whatever is not inserted is dropped after the lock.
        let _refused = {
            let mut bucket = self.bucket(token).lock();
            if find(&mut bucket, token).is_some() {
                Some(dmb)
            } else {
                bucket.push_front(dmb);
                None
            }
        };
        if _refused.is_some() {
            return Err(EAGAIN);
        }
        index.keep();
        Ok(Registered {
            dmb: registered,
            device: self.clone(),
        })
    }

    /// Attaches to the DMB that `token` names.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - nothing of that name is registered, or its owner has put it away.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn attach(self: &Arc<Self>, token: Token) -> Result<Attached> {
        let mut bucket = self.bucket(token).lock();
        let dmb = find(&mut bucket, token).ok_or(EINVAL)?;
        if !dmb.enter() {
            return Err(EINVAL);
        }
        Ok(Attached {
            dmb,
            device: self.clone(),
        })
    }

    /// Moves `data` to `offset` of the DMB that `token` names, as a device would.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - there is no such DMB, or not all of the range is in it; nothing was moved.
    ///
    /// # Context
    ///
    /// Any. The caller is the sender to which the range belongs at this time.
    pub(crate) fn move_data(self: &Arc<Self>, token: Token, offset: usize, data: &[u8]) -> Result {
        self.attach(token)?.memory().write(offset, data)
    }

    /// How many DMBs there may be.
    pub(crate) fn max_dmbs(&self) -> u32 {
        self.indexes.depth()
    }

    /// How many DMBs there are, in use and cached.
    pub(crate) fn dmbs(&self) -> u32 {
        self.indexes.weight()
    }

    fn bucket(&self, token: Token) -> &SpinLockBh<Bucket> {
        // PANIC: `Token::bucket` is less than the length of the array.
        &self.buckets[token.bucket()]
    }

    /// Counts one user less; the last one takes the DMB out of the table.
    fn leave(&self, dmb: &Dmb) {
        let _drop_outside_lock = {
            let mut bucket = self.bucket(dmb.token).lock();
            match dmb.users.load(Relaxed) {
                // The owner of a parked DMB is its only user.
                PARKED | 1 => {
                    dmb.users.store(PARKED, Relaxed);
                    remove(&mut bucket, dmb.token)
                }
                users => {
                    dmb.users.store(users - 1, Relaxed);
                    None
                }
            }
        };
        if _drop_outside_lock.is_some() {
            self.indexes.put(dmb.index);
        }
    }
}

/// Finds a DMB in its bucket.
fn find(bucket: &mut Bucket, token: Token) -> Option<Arc<Dmb>> {
    let mut cursor = bucket.cursor_front();
    while let Some(next) = cursor.peek_next() {
        if next.token == token {
            return Some(next.arc().into());
        }
        cursor.move_next();
    }
    None
}

/// Takes a DMB out of its bucket.
fn remove(bucket: &mut Bucket, token: Token) -> Option<ListArc<Dmb>> {
    let mut cursor = bucket.cursor_front();
    while let Some(next) = cursor.peek_next() {
        if next.token == token {
            return Some(next.remove());
        }
        cursor.move_next();
    }
    None
}

/// An index that goes back unless a DMB keeps it.
struct Index<'a> {
    device: &'a Device,
    number: u32,
}

impl<'a> Index<'a> {
    fn take(device: &'a Device) -> Result<Self> {
        let number = device.indexes.take().ok_or(ENOSPC)?;
        Ok(Self { device, number })
    }

    fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Index<'_> {
    fn drop(&mut self) {
        self.device.indexes.put(self.number);
    }
}

/// A DMB as its owner holds it; dropping it unregisters the DMB.
///
/// # Invariants
///
/// The DMB is in the table, and counts the owner unless it is parked.
pub(crate) struct Registered {
    dmb: Arc<Dmb>,
    device: Arc<Device>,
}

impl Registered {
    /// Puts the DMB away: from now on nobody can attach.
    ///
    /// # Errors
    ///
    /// - `EBUSY` - somebody is attached.
    #[inline]
    pub(crate) fn park(&self) -> Result {
        // Acquire: what those wrote who were attached is before what the owner does now.
        self.dmb.users.cmpxchg(1, PARKED, Full).map_err(|_| EBUSY)?;
        Ok(())
    }

    /// Takes a parked DMB out again.
    #[inline]
    pub(crate) fn unpark(&self) {
        let _ = self.dmb.users.cmpxchg(PARKED, 1, Release);
    }
}

impl core::ops::Deref for Registered {
    type Target = Dmb;

    #[inline]
    fn deref(&self) -> &Dmb {
        &self.dmb
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.device.leave(&self.dmb);
    }
}

/// A DMB as a sender holds it; dropping it detaches.
///
/// # Invariants
///
/// The DMB counts this user.
pub(crate) struct Attached {
    dmb: Arc<Dmb>,
    device: Arc<Device>,
}

impl core::ops::Deref for Attached {
    type Target = Dmb;

    fn deref(&self) -> &Dmb {
        &self.dmb
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.device.leave(&self.dmb);
    }
}

#[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
#[kernel::macros::kunit_tests(smc_lo_dmb)]
mod tests {
    use super::*;
    use kernel::{
        page::PAGE_SIZE,
        sync::Completion,
        workqueue, //
    };

    fn device(max_dmbs: u32) -> Result<Arc<Device>> {
        Arc::pin_init(Device::new(max_dmbs), GFP_KERNEL)
    }

    fn is_filled(dmb: &Dmb, value: u8) -> Result<bool> {
        let mut page = KVec::from_elem(0_u8, PAGE_SIZE, GFP_KERNEL)?;
        let mut offset = 0;
        while offset < dmb.memory().len() {
            dmb.memory().read(offset, &mut page)?;
            if page.iter().any(|&byte| byte != value) {
                return Ok(false);
            }
            offset += PAGE_SIZE;
        }
        Ok(true)
    }

    #[test]
    fn a_dmb_is_found_while_it_is_registered() -> Result {
        let device = device(4)?;
        let dmb = device.register(PAGE_SIZE)?;
        let token = dmb.token();
        assert_eq!(device.attach(token)?.token(), token);
        assert_eq!(device.dmbs(), 1);
        drop(dmb);
        assert_eq!(device.attach(token).err(), Some(EINVAL));
        assert_eq!(device.dmbs(), 0);
        Ok(())
    }

    #[test]
    fn memory_stays_until_the_last_user_leaves() -> Result {
        let device = device(4)?;
        let dmb = device.register(PAGE_SIZE)?;
        let first = device.attach(dmb.token())?;
        let second = device.attach(dmb.token())?;
        drop(dmb);
        first.memory().write(0, &[7])?;
        drop(first);
        let mut byte = [0];
        second.memory().read(0, &mut byte)?;
        assert_eq!(byte, [7]);
        assert_eq!(device.dmbs(), 1);
        drop(second);
        assert_eq!(device.dmbs(), 0);
        Ok(())
    }

    #[test]
    fn a_parked_dmb_lets_nobody_in() -> Result {
        let device = device(4)?;
        let dmb = device.register(PAGE_SIZE)?;
        let attached = device.attach(dmb.token())?;
        assert_eq!(dmb.park().err(), Some(EBUSY));
        drop(attached);
        dmb.park()?;
        assert_eq!(device.attach(dmb.token()).err(), Some(EINVAL));
        dmb.unpark();
        drop(device.attach(dmb.token())?);
        dmb.park()?;
        drop(dmb);
        assert_eq!(device.dmbs(), 0);
        Ok(())
    }

    #[test]
    fn a_full_device_refuses_until_a_dmb_is_gone() -> Result {
        let device = device(2)?;
        let first = device.register(PAGE_SIZE)?;
        let second = device.register(PAGE_SIZE)?;
        assert!(first.index() != second.index());
        assert_eq!(device.register(PAGE_SIZE).err(), Some(ENOSPC));
        drop(first);
        drop(device.register(PAGE_SIZE)?);
        Ok(())
    }

    #[test]
    fn a_token_is_given_once() -> Result {
        let device = device(4)?;
        let token = Token::new(1).ok_or(EINVAL)?;
        let first = device.register_as(token, PAGE_SIZE)?;
        assert_eq!(device.register_as(token, PAGE_SIZE).err(), Some(EAGAIN));
        assert_eq!(device.dmbs(), 1);
        drop(first);
        drop(device.register_as(token, PAGE_SIZE)?);
        Ok(())
    }

    #[test]
    fn moves_stay_within_the_dmb() -> Result {
        let device = device(4)?;
        let size = 16 << 10;
        // Neighbours, to see what escapes.
        let before = device.register(size)?;
        let dmb = device.register(size)?;
        let after = device.register(size)?;
        for neighbour in [&before, &after] {
            let canary = KVec::from_elem(0xa5_u8, size, GFP_KERNEL)?;
            neighbour.memory().write(0, &canary)?;
        }
        let data = KVec::from_elem(0x5a_u8, size, GFP_KERNEL)?;
        let move_data = |offset: usize, len: usize| {
            device.move_data(dmb.token(), offset, data.get(..len).ok_or(EFAULT)?)
        };
        move_data(0, size)?;
        move_data(size - 1, 1)?;
        move_data(size, 0)?;
        assert_eq!(move_data(size, 1), Err(EINVAL));
        assert_eq!(move_data(1, size), Err(EINVAL));
        assert_eq!(move_data(0xffff_fffc, 8), Err(EINVAL));
        assert_eq!(move_data(usize::MAX, 8), Err(EINVAL));
        assert!(is_filled(&dmb, 0x5a)?);
        assert!(is_filled(&before, 0xa5)?);
        assert!(is_filled(&after, 0xa5)?);
        Ok(())
    }

    #[test]
    fn memory_is_zeroed_in_part_across_its_folios() -> Result {
        let device = device(4)?;
        let size = 256 << 10;
        let dmb = device.register(size)?;
        assert!(is_filled(&dmb, 0)?);
        let data = KVec::from_elem(1_u8, size, GFP_KERNEL)?;
        dmb.memory().write(0, &data)?;
        dmb.memory().zero(PAGE_SIZE, size - 2 * PAGE_SIZE);
        let mut page = KVec::from_elem(0_u8, PAGE_SIZE, GFP_KERNEL)?;
        for (offset, value) in [
            (0, 1),
            (PAGE_SIZE, 0),
            (size / 2, 0),
            (size - 2 * PAGE_SIZE, 0),
            (size - PAGE_SIZE, 1),
        ] {
            dmb.memory().read(offset, &mut page)?;
            assert!(page.iter().all(|&byte| byte == value));
        }
        dmb.memory().zero(PAGE_SIZE, usize::MAX);
        assert!(is_filled(&dmb, 0)?);
        Ok(())
    }

    #[test]
    fn only_sizes_of_dmbs_are_registered() -> Result {
        let device = device(4)?;
        for len in [
            0,
            1,
            PAGE_SIZE - 1,
            PAGE_SIZE + 1,
            3 * PAGE_SIZE,
            usize::MAX,
        ] {
            assert_eq!(device.register(len).err(), Some(EINVAL));
        }
        assert_eq!(device.dmbs(), 0);
        Ok(())
    }

    #[test]
    fn users_come_and_go_in_many_tasks() -> Result {
        const TASKS: usize = 4;
        const ROUNDS: usize = 2000;
        let device = device(64)?;
        // A token that all tasks register, attach to and unregister.
        let token = Token::new(42).ok_or(EINVAL)?;
        let mut ends = KVec::new();
        for task in 0..TASKS {
            let end = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
            ends.push(end.clone(), GFP_KERNEL)?;
            let device = device.clone();
            workqueue::system_unbound().try_spawn(GFP_KERNEL, move || {
                for round in 0..ROUNDS {
                    if (round + task) % 2 == 0 {
                        if let Ok(dmb) = device.register_as(token, PAGE_SIZE) {
                            let attached = device.attach(token);
                            drop(dmb);
                            drop(attached);
                        }
                    } else if let Ok(attached) = device.attach(token) {
                        // Whoever finds it can use it.
                        assert!(attached.memory().write(0, &[1]).is_ok());
                    }
                }
                end.complete_all();
            })?;
        }
        for end in ends {
            end.wait_for_completion();
        }
        assert_eq!(device.dmbs(), 0);
        assert_eq!(device.attach(token).err(), Some(EINVAL));
        Ok(())
    }
}
