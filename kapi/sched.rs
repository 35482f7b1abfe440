// SPDX-License-Identifier: GPL-2.0

//! What a task that spins must look at.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use super::bindings;

/// Whether another task wants this processor, be it due at once or not.
///
/// # Context
///
/// Process context.
#[inline]
pub(crate) fn cpu_is_wanted() -> bool {
    // SAFETY: Looks at the running task only.
    unsafe { bindings::cpu_is_wanted() }
}
