// SPDX-License-Identifier: GPL-2.0

//! Link groups: what the connections between the same two tenants share.
//!
//! A link group (RFC 7609, 2.2) is all connections between two peers that may use each other's
//! memory. Both peers are on this host, so a group is the namespace of the client, the namespace
//! of the server, and the EID they agreed on; rings are only ever reused within a group. It stays
//! while both namespaces live, and while a connection uses it.
//!
//! Namespaces are named by their cookies, which are never reused, and never touched: an end
//! outlives the namespace of the other one.

#![deny(unsafe_code)]

use core::ops::Deref;

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
            Atomic,
            Relaxed, //
        },
        new_spinlock,
        Arc,
        SpinLock, //
    }, //
};

use crate::{
    bufpool::{
        quota::{
            Reservation,
            User, //
        },
        size::Class,
        LastRef,
        Limits,
        Pool,
        RingRef,
        Shared, //
    },
    clc::eid::Eid,
    dmb::Device,
    kapi::shrinker::{
        self,
        Shrink, //
    }, //
};

/// The number of hash buckets, a power of two.
const BUCKETS: usize = 256;

/// How many bytes of idle rings make room for a ring that the device refused.
const MAKE_ROOM: usize = 1;

/// Which part of what is idle survives a call of [`Groups::decay`].
const DECAY: usize = 4;

/// Who the members of a link group are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    client: u64,
    server: u64,
    eid: Eid,
}

impl Key {
    fn bucket(&self) -> usize {
        // Cookies are small numbers that count up; spread those of two namespaces differently.
        // A handful of EIDs is all there is.
        let mixed = self.client.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ self.server.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let [.., high] = mixed.to_le_bytes();
        usize::from(high) & (BUCKETS - 1)
    }

    fn names(&self, cookie: u64) -> bool {
        self.client == cookie || self.server == cookie
    }
}

/// A link group.
#[pin_data]
pub(crate) struct LinkGroup {
    id: u32,
    key: Key,
    #[pin]
    pool: Pool,
    groups: Arc<Groups>,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for LinkGroup { untracked; }
}
impl_list_item! {
    impl ListItem<0> for LinkGroup { using ListLinks { self.links }; }
}

impl LinkGroup {
    /// The number tools show.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Reserves places for the rings of a new connection that `user` answers for.
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
    pub(crate) fn reserve(&self, user: User) -> Result<Reservation> {
        self.pool.reserve(user)
    }

    /// Takes an empty ring, at the expense of idle rings anywhere when the device is full. The
    /// caller has a place for it, so sooner or later there is one.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` - the device is full at this moment, and no ring is idle.
    /// - `ENOMEM` - no memory.
    /// - `EAGAIN` - the random token was taken; it will not be the next time.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn take(&self, class: Class) -> Result<RingRef> {
        loop {
            match self.pool.take(class) {
                // Somebody else may take what was made free, but only for a place of their own.
                Err(err) if err == ENOSPC && self.groups.trim(MAKE_ROOM) > 0 => {}
                result => return result,
            }
        }
    }

    /// Gives a ring back.
    ///
    /// # Context
    ///
    /// Process context.
    #[inline]
    pub(crate) fn put(&self, ring: LastRef) {
        self.pool.put(ring);
    }
}

/// The table of all link groups.
#[pin_data]
pub(crate) struct Groups {
    #[pin]
    buckets: [SpinLock<List<LinkGroup>>; BUCKETS],
    shared: Arc<Shared>,
    next_id: Atomic<u32>,
}

impl Groups {
    /// An empty table for rings on `device`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn new(device: Arc<Device>, limits: Limits) -> Result<Arc<Self>> {
        let shared = Arc::pin_init(Shared::new(device, limits), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                buckets <- pin_init::pin_init_array_from_fn(|_| {
                    new_spinlock!(List::new(), "Groups::buckets")
                }),
                shared,
                next_id: Atomic::new(1),
            }),
            GFP_KERNEL,
        )
    }

    /// What all groups share.
    #[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The group of a client and a server in these namespaces; made if there is none.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep. The caller holds both namespaces, so that none of them ends.
    pub(crate) fn get(
        self: &Arc<Self>,
        client_cookie: u64,
        server_cookie: u64,
        eid: &Eid,
    ) -> Result<Arc<LinkGroup>> {
        let key = Key {
            client: client_cookie,
            server: server_cookie,
            eid: *eid,
        };
        if let Some(group) = self.find(&key) {
            return Ok(group);
        }
        let new = ListArc::pin_init(
            try_pin_init!(LinkGroup {
                id: self.next_id.fetch_add(1, Relaxed),
                key,
                pool <- Pool::new(self.shared.clone()),
                groups: self.clone(),
                links <- ListLinks::new(),
            }),
            GFP_KERNEL,
        )?;
        // Dropped after the lock, when somebody else was faster.
        let _surplus;
        let mut bucket = self.bucket(&key).lock();
        Ok(match find(&bucket, &key) {
            Some(group) => {
                _surplus = new;
                group
            }
            None => {
                let group = new.clone_arc();
                bucket.push_front(new);
                group
            }
        })
    }

    fn find(&self, key: &Key) -> Option<Arc<LinkGroup>> {
        find(&self.bucket(key).lock(), key)
    }

    fn bucket(&self, key: &Key) -> &SpinLock<List<LinkGroup>> {
        // PANIC: `Key::bucket` is less than the length of the array.
        &self.buckets[key.bucket()]
    }

    /// Forgets the groups of a namespace that ends. Connections of its peers may go on; their last
    /// one frees the group.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn namespace_exit(&self, cookie: u64) {
        self.remove(|key| key.names(cookie));
    }

    fn remove(&self, mut which: impl FnMut(&Key) -> bool) {
        for bucket in &self.buckets {
            let mut removed = List::new();
            {
                let mut bucket = bucket.lock();
                let mut cursor = bucket.cursor_front();
                while let Some(next) = cursor.peek_next() {
                    if which(&next.key) {
                        removed.push_back(next.remove());
                    } else {
                        cursor.move_next();
                    }
                }
            }
            while let Some(group) = removed.pop_front() {
                group.pool.close();
            }
        }
    }

    /// Frees most of what is idle, all of it within a few calls, but for as much as `keep` bytes;
    /// whether rings are idle still.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn decay(&self, keep: usize) -> bool {
        let surplus = self.shared.idle_bytes().saturating_sub(keep);
        // Of a single ring this is everything.
        self.trim(surplus - surplus / DECAY);
        self.shared.idle_rings() > 0
    }

    /// Frees idle rings of any group until `bytes` are freed or none is left; says how many were.
    ///
    /// # Context
    ///
    /// Process context, memory reclaim.
    pub(crate) fn trim(&self, bytes: usize) -> usize {
        let mut freed = 0;
        for bucket in &self.buckets {
            let mut position = 0;
            while freed < bytes && self.shared.idle_rings() > 0 {
                // The rings are freed without the lock, which connecting ends want.
                let group: Option<Arc<LinkGroup>> =
                    bucket.lock().iter().nth(position).map(Into::into);
                let Some(group) = group else {
                    break;
                };
                freed += group.pool.trim(bytes - freed);
                position += 1;
            }
        }
        freed
    }
}

/// Finds a group in its bucket.
fn find(bucket: &List<LinkGroup>, key: &Key) -> Option<Arc<LinkGroup>> {
    bucket
        .iter()
        .find(|group| group.key == *key)
        .map(Into::into)
}

impl Shrink for Groups {
    fn count(&self) -> usize {
        self.shared.idle_bytes() / kernel::page::PAGE_SIZE
    }

    fn scan(&self, pages: usize) -> usize {
        self.trim(pages.saturating_mul(kernel::page::PAGE_SIZE)) / kernel::page::PAGE_SIZE
    }
}

/// The table as the module owns it: the kernel can ask it for memory, and when this is dropped no
/// group stays.
///
/// # Context
///
/// Dropped when no socket is left.
pub(crate) struct Registration {
    _shrinker: shrinker::Registration<Groups>,
    groups: Arc<Groups>,
}

impl Registration {
    /// Registers the table.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    pub(crate) fn new(groups: Arc<Groups>) -> Result<Self> {
        Ok(Self {
            _shrinker: shrinker::Registration::new(c"smc_lo-rings", groups.clone())?,
            groups,
        })
    }
}

impl Deref for Registration {
    type Target = Arc<Groups>;

    fn deref(&self) -> &Arc<Groups> {
        &self.groups
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.groups.remove(|_| true);
    }
}

#[cfg(CONFIG_SMC_LO_KUNIT_TEST)]
#[kernel::macros::kunit_tests(smc_lo_lgr)]
mod tests {
    use super::*;
    use crate::{
        bufpool,
        cdc::cursor::Position,
        kapi::fixture::with_source, //
    };

    /// As many bytes as idle rings may have in these tests.
    const BUDGET: usize = 128 << 10;

    /// As many rings as a user may answer for in these tests.
    const USER_RINGS: usize = 6;

    fn groups(max_dmbs: u32) -> Result<Registration> {
        let device = Arc::pin_init(Device::new(max_dmbs), GFP_KERNEL)?;
        let limits = Limits {
            idle_bytes: BUDGET,
            user_rings: USER_RINGS,
        };
        Registration::new(Groups::new(device, limits)?)
    }

    fn give(group: &LinkGroup, ring: RingRef) -> Result {
        group.put(bufpool::last(ring).ok_or(EBUSY)?);
        Ok(())
    }

    #[test]
    fn members_find_their_group() -> Result {
        let groups = groups(16)?;
        let eid = Eid::DEFAULT;
        let group = groups.get(1, 2, &eid)?;
        assert!(Arc::ptr_eq(&group, &groups.get(1, 2, &eid)?));
        for (client, server) in [(2, 1), (1, 1), (1, 3)] {
            let other = groups.get(client, server, &eid)?;
            assert!(!Arc::ptr_eq(&group, &other));
            assert!(group.id() != other.id());
        }
        Ok(())
    }

    #[test]
    fn a_ring_comes_back_empty() -> Result {
        let groups = groups(16)?;
        let group = groups.get(1, 1, &Eid::DEFAULT)?;
        let ring = group.take(Class::FIRST)?;
        let token = ring.dmb().token();
        // Over the end of the ring, in two pieces.
        let at = Position::START.advance(ring.size() - 10);
        ring.begin(at);
        with_source(&[9; 30], |from| ring.fill(at, 0, 30, from))?;
        ring.seal(at.advance(30));
        ring.set_note(1);
        give(&group, ring)?;
        assert_eq!(groups.shared().idle_rings(), 1);

        let ring = group.take(Class::FIRST)?;
        assert_eq!(ring.dmb().token(), token);
        assert_eq!(groups.shared().idle_rings(), 0);
        assert_eq!(ring.sealed(), None);
        assert_eq!(ring.note(), 0);
        let mut all = KVec::from_elem(1_u8, ring.size(), GFP_KERNEL)?;
        ring.dmb().memory().read(0, &mut all)?;
        assert!(all.iter().all(|&byte| byte == 0));
        Ok(())
    }

    #[test]
    fn a_ring_is_not_reused_while_others_have_it() -> Result {
        let groups = groups(16)?;
        let group = groups.get(1, 1, &Eid::DEFAULT)?;
        let ring = group.take(Class::FIRST)?;
        let other = ring.clone();
        assert!(bufpool::last(ring).is_none());
        let attached = groups.shared().device().attach(other.dmb().token())?;
        // The last reference, but somebody is attached to the DMB.
        give(&group, other)?;
        assert_eq!(groups.shared().idle_rings(), 0);
        assert_eq!(groups.shared().device().dmbs(), 1);
        drop(attached);
        assert_eq!(groups.shared().device().dmbs(), 0);
        Ok(())
    }

    #[test]
    fn idle_rings_stay_in_the_budget() -> Result {
        let groups = groups(64)?;
        let group = groups.get(1, 1, &Eid::DEFAULT)?;
        let mut rings = KVec::new();
        for _ in 0..20 {
            rings.push(group.take(Class::FIRST)?, GFP_KERNEL)?;
        }
        for ring in rings {
            give(&group, ring)?;
        }
        assert_eq!(groups.shared().idle_bytes(), BUDGET);
        assert_eq!(groups.shared().idle_rings(), BUDGET / Class::FIRST.size());
        // The kernel asks for half of it.
        let pages = BUDGET / kernel::page::PAGE_SIZE;
        assert_eq!(groups.count(), pages);
        assert_eq!(groups.scan(pages / 2), pages / 2);
        assert_eq!(groups.shared().idle_bytes(), BUDGET / 2);
        Ok(())
    }

    #[test]
    fn a_full_device_gives_up_idle_rings_of_others() -> Result {
        let groups = groups(2)?;
        let mine = groups.get(1, 1, &Eid::DEFAULT)?;
        let other = groups.get(2, 2, &Eid::DEFAULT)?;
        let held = other.take(Class::FIRST)?;
        give(&other, other.take(Class::FIRST)?)?;
        let ring = mine.take(Class::FIRST)?;
        assert_eq!(groups.shared().idle_rings(), 0);
        assert_eq!(mine.take(Class::FIRST).err(), Some(ENOSPC));
        give(&other, held)?;
        give(&mine, ring)?;
        Ok(())
    }

    #[test]
    fn places_end_before_rings_do() -> Result {
        let groups = groups(5)?;
        let group = groups.get(1, 1, &Eid::DEFAULT)?;
        let first = group.reserve(User::ROOT)?;
        let second = group.reserve(User::ROOT)?;
        assert_eq!(group.reserve(User::ROOT).err(), Some(ENOSPC));
        second.extend()?;
        assert_eq!(first.extend().err(), Some(ENOSPC));
        second.shrink();
        first.extend()?;
        drop(first);
        let _third = group.reserve(User::ROOT)?;
        assert_eq!(second.extend(), Ok(()));
        Ok(())
    }

    #[test]
    fn a_user_leaves_places_for_others() -> Result {
        let groups = groups(16)?;
        let group = groups.get(1, 1, &Eid::DEFAULT)?;
        let greedy = User::new(1000);
        // In the same bucket as the greedy one.
        let modest = User::new(1016);
        let first = group.reserve(greedy)?;
        let second = group.reserve(greedy)?;
        first.extend()?;
        assert_eq!(group.reserve(greedy).err(), Some(EDQUOT));
        second.extend()?;
        assert_eq!(second.extend().err(), Some(EDQUOT));
        let other = group.reserve(modest)?;
        let _root = group.reserve(User::ROOT)?;
        drop(first);
        let _third = group.reserve(greedy)?;
        drop(other);
        let _fourth = group.reserve(modest)?;
        Ok(())
    }

    #[test]
    fn a_namespace_takes_its_groups_along() -> Result {
        let groups = groups(16)?;
        let eid = Eid::DEFAULT;
        let group = groups.get(1, 2, &eid)?;
        let stays = groups.get(2, 2, &eid)?;
        give(&group, group.take(Class::FIRST)?)?;
        give(&stays, stays.take(Class::FIRST)?)?;
        let used = group.take(Class::LARGEST_KEPT)?;
        groups.namespace_exit(1);
        assert_eq!(groups.shared().idle_rings(), 1);
        assert_eq!(groups.shared().device().dmbs(), 2);
        // A connection goes on with the group, which keeps nothing any more.
        give(&group, used)?;
        assert_eq!(groups.shared().device().dmbs(), 1);
        assert!(Arc::ptr_eq(&stays, &groups.get(2, 2, &eid)?));
        assert!(!Arc::ptr_eq(&group, &groups.get(1, 2, &eid)?));
        Ok(())
    }

    #[test]
    fn nothing_is_left_when_the_table_goes() -> Result {
        let groups = groups(16)?;
        let device = groups.shared().device().clone();
        let group = groups.get(1, 1, &Eid::DEFAULT)?;
        give(&group, group.take(Class::FIRST)?)?;
        drop(groups);
        assert_eq!(device.dmbs(), 0);
        Ok(())
    }
}
