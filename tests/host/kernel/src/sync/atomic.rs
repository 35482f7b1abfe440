// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync::atomic`: the kernel's atomic type over the host's.
//!
//! [`Full`] is sequentially consistent here, which is weaker than the kernel's full ordering: a
//! model that passes with it does not rely on more than the kernel gives.

#[cfg(loom)]
use loom::sync::atomic as host;
#[cfg(not(loom))]
use std::sync::atomic as host;

use std::sync::atomic::Ordering as HostOrdering;

/// The ordering annotations.
pub mod ordering {
    use super::HostOrdering;

    /// No ordering.
    pub struct Relaxed;
    /// Later accesses stay behind this load.
    pub struct Acquire;
    /// Earlier accesses stay before this store.
    pub struct Release;
    /// Both, and a barrier.
    pub struct Full;

    /// Any annotation, for read-modify-write operations.
    pub trait Ordering {
        #[doc(hidden)]
        const RMW: HostOrdering;
    }
    /// What a load may carry.
    pub trait AcquireOrRelaxed {
        #[doc(hidden)]
        const LOAD: HostOrdering;
    }
    /// What a store may carry.
    pub trait ReleaseOrRelaxed {
        #[doc(hidden)]
        const STORE: HostOrdering;
    }

    impl Ordering for Relaxed {
        const RMW: HostOrdering = HostOrdering::Relaxed;
    }
    impl Ordering for Acquire {
        const RMW: HostOrdering = HostOrdering::Acquire;
    }
    impl Ordering for Release {
        const RMW: HostOrdering = HostOrdering::Release;
    }
    impl Ordering for Full {
        const RMW: HostOrdering = HostOrdering::SeqCst;
    }
    impl AcquireOrRelaxed for Relaxed {
        const LOAD: HostOrdering = HostOrdering::Relaxed;
    }
    impl AcquireOrRelaxed for Acquire {
        const LOAD: HostOrdering = HostOrdering::Acquire;
    }
    impl ReleaseOrRelaxed for Relaxed {
        const STORE: HostOrdering = HostOrdering::Relaxed;
    }
    impl ReleaseOrRelaxed for Release {
        const STORE: HostOrdering = HostOrdering::Release;
    }
}

pub use ordering::{
    Acquire,
    Full,
    Relaxed,
    Release, //
};

/// A type with a host atomic.
pub trait AtomicType: Sized + Copy {
    #[doc(hidden)]
    type Host;
}

/// An atomic variable.
pub struct Atomic<T: AtomicType>(T::Host);

macro_rules! atomic {
    ($type:ty, $host:ident) => {
        impl AtomicType for $type {
            type Host = host::$host;
        }

        impl Atomic<$type> {
            /// A variable that starts with `value`.
            #[cfg(not(loom))]
            pub const fn new(value: $type) -> Self {
                Self(host::$host::new(value))
            }

            /// A variable that starts with `value`.
            #[cfg(loom)]
            pub fn new(value: $type) -> Self {
                Self(host::$host::new(value))
            }

            /// Reads it.
            pub fn load<O: ordering::AcquireOrRelaxed>(&self, _: O) -> $type {
                self.0.load(O::LOAD)
            }

            /// Writes it.
            pub fn store<O: ordering::ReleaseOrRelaxed>(&self, value: $type, _: O) {
                self.0.store(value, O::STORE)
            }

            /// Exchanges it.
            pub fn xchg<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                self.0.swap(value, O::RMW)
            }

            /// Exchanges it when it is `old`; a failed exchange orders nothing.
            ///
            /// # Errors
            ///
            /// The value found, when it is another one.
            pub fn cmpxchg<O: ordering::Ordering>(
                &self,
                old: $type,
                new: $type,
                _: O,
            ) -> Result<$type, $type> {
                self.0
                    .compare_exchange(old, new, O::RMW, HostOrdering::Relaxed)
            }
        }
    };
}

macro_rules! arithmetic {
    ($type:ty) => {
        impl Atomic<$type> {
            /// Adds to it, wrapping.
            pub fn add(&self, value: $type, _: Relaxed) {
                self.0.fetch_add(value, HostOrdering::Relaxed);
            }

            /// Adds to it, wrapping, and gives the value before.
            pub fn fetch_add<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                self.0.fetch_add(value, O::RMW)
            }

            /// Subtracts from it, wrapping, and gives the value before.
            pub fn fetch_sub<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                self.0.fetch_sub(value, O::RMW)
            }
        }
    };
}

atomic!(bool, AtomicBool);
atomic!(i32, AtomicI32);
atomic!(u32, AtomicU32);
atomic!(i64, AtomicI64);
atomic!(u64, AtomicU64);
atomic!(isize, AtomicIsize);
atomic!(usize, AtomicUsize);
arithmetic!(i32);
arithmetic!(u32);
arithmetic!(i64);
arithmetic!(u64);
arithmetic!(isize);
arithmetic!(usize);
