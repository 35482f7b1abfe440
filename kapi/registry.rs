// SPDX-License-Identifier: GPL-2.0

//! A table of the sockets of one kind, to be walked by whoever reports on them.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h) (`sk_add_node()` and kin)

use super::{
    bindings,
    proto::value_of,
    sock::Sk, //
};
use core::marker::PhantomData;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// The number of chains, a power of two: creating and closing sockets on several CPUs rarely
/// meets on one lock.
const BUCKETS: usize = 64;

struct Head(bindings::hlist_head);

// SAFETY: The chain is used under its lock only.
unsafe impl Send for Head {}

/// The sockets with a value of type `T`.
///
/// # Invariants
///
/// Each socket in a chain has its value initialised and is referenced by its `struct socket`; it
/// leaves the chain before its value goes away.
///
/// # Context
///
/// Process context.
#[pin_data]
pub(crate) struct Registry<T> {
    #[pin]
    buckets: [SpinLock<Head>; BUCKETS],
    _type: PhantomData<T>,
}

// SAFETY: The chains are guarded by their locks, and `T` is shared between tasks anyway.
unsafe impl<T: Send + Sync> Sync for Registry<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Send for Registry<T> {}

impl<T> Registry<T> {
    /// An empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            buckets <- pin_init::pin_init_array_from_fn(|_| {
                new_spinlock!(Head(pin_init::zeroed()), "Registry::bucket")
            }),
            _type: PhantomData,
        })
    }

    fn bucket(&self, sk: &Sk) -> Option<&SpinLock<Head>> {
        // Sockets of a slab differ in the bits above the size of a cache line.
        self.buckets.get((sk.addr() >> 6) % BUCKETS)
    }

    /// Adds a socket, whose value is complete.
    pub(crate) fn insert(&self, sk: &Sk) {
        if let Some(bucket) = self.bucket(sk) {
            let mut head = bucket.lock();
            // INVARIANT: The caller is within an operation that keeps socket and value.
            // SAFETY: Under the chain's lock; the socket's node is unused.
            unsafe { bindings::sk_add_node(sk.as_ptr(), &raw mut head.0) };
        }
    }

    /// Removes a socket; once this returns, no walk looks at it.
    pub(crate) fn remove(&self, sk: &Sk) {
        if let Some(bucket) = self.bucket(sk) {
            let _head = bucket.lock();
            // SAFETY: Under the chain's lock; does nothing for a socket that is in no chain.
            unsafe { bindings::sk_del_node_init(sk.as_ptr()) };
        }
    }

    /// Shows the sockets to `visit`, which must not sleep, until it returns false.
    ///
    /// A walk resumes at the chain and the place within it that `at` tells, and leaves there how
    /// far it got. Sockets that come and go meanwhile may be missed or seen twice.
    pub(crate) fn walk(&self, at: &mut [usize; 2], mut visit: impl FnMut(&Sk, &T) -> bool) {
        let [chain, place] = at;
        while let Some(bucket) = self.buckets.get(*chain) {
            let mut head = bucket.lock();
            // SAFETY: Under the chain's lock.
            let mut sk = unsafe { bindings::sk_head(&raw mut head.0) };
            let mut index = 0;
            while !sk.is_null() {
                if index >= *place {
                    // SAFETY: By the type invariant.
                    let (sock, value) = unsafe { (Sk::from_ptr(sk), &*value_of::<T>(sk)) };
                    if !visit(sock, value) {
                        *place = index;
                        return;
                    }
                }
                index += 1;
                // SAFETY: Under the chain's lock.
                sk = unsafe { bindings::sk_next(sk) };
            }
            drop(head);
            *chain += 1;
            *place = 0;
        }
    }
}
