// SPDX-License-Identifier: GPL-2.0

//! What a task that spins must look at.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use super::bindings;

/// Whether another task should have this processor.
///
/// # Context
///
/// Process context.
#[inline]
pub(crate) fn need_resched() -> bool {
    // SAFETY: Looks at the running task only.
    unsafe { bindings::need_resched() }
}
