// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync`: atomics and barriers.

pub mod atomic;

/// `kernel::sync::barrier`.
pub mod barrier {
    #[cfg(loom)]
    use loom::sync::atomic::fence;
    #[cfg(not(loom))]
    use std::sync::atomic::fence;

    /// The full barrier between processors.
    pub fn smp_mb(_: super::atomic::Full) {
        fence(std::sync::atomic::Ordering::SeqCst);
    }
}
