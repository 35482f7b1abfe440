// SPDX-License-Identifier: GPL-2.0

//! Folios: physically contiguous, page-backed memory.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)

use super::bindings;
use core::{
    ptr::NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// How hard the allocator tries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effort {
    /// Only what is free, or easily made free: there is another way.
    Light,
    /// Whatever an ordinary kernel allocation does: there is no other way.
    Ordinary,
}

/// A folio of our own: zeroed when allocated, not charged to any memory cgroup.
///
/// # Invariants
///
/// `folio` is a folio in the direct map at `address`, of which this
/// value owns a reference.
pub(crate) struct Folio {
    folio: NonNull<bindings::folio>,
    address: NonNull<u8>,
}

// SAFETY: A folio may be used and freed by any task.
unsafe impl Send for Folio {}
// SAFETY: The methods that take `&self` only read fields that never change.
unsafe impl Sync for Folio {}

impl Folio {
    /// Allocates `PAGE_SIZE << order` zeroed bytes.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - there is no such folio, for this effort.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn alloc(order: u32, effort: Effort) -> Result<Self> {
        let mut gfp = bindings::GFP_KERNEL
            | bindings::__GFP_ZERO
            | bindings::__GFP_COMP
            | bindings::__GFP_NOWARN;
        if effort == Effort::Light {
            gfp |= bindings::__GFP_NORETRY;
        }
        // SAFETY: No requirement but the context.
        let folio = NonNull::new(unsafe { bindings::folio_alloc(gfp, order) }).ok_or(ENOMEM)?;
        // SAFETY: The folio was just allocated; it is not in high memory (no `__GFP_HIGHMEM`), so
        // it has an address as long as it lives.
        let address = unsafe { bindings::folio_address(folio.as_ptr()) };
        // INVARIANT: The allocation gave us the only reference to a folio of this order.
        Ok(Self {
            folio,
            address: NonNull::new(address.cast()).ok_or(ENOMEM)?,
        })
    }

    /// The first of its bytes, which exist as long as `self`.
    #[inline]
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The order of the smallest folio that holds `bytes`.
    pub(crate) fn order_for(bytes: usize) -> u32 {
        bytes
            .div_ceil(PAGE_SIZE)
            .next_power_of_two()
            .trailing_zeros()
    }
}

impl Drop for Folio {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value owns a reference, which it gives up here.
        unsafe { bindings::folio_put(self.folio.as_ptr()) }
    }
}
