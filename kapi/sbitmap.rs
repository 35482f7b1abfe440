// SPDX-License-Identifier: GPL-2.0

//! Scalable bitmaps: numbers handed out by many processors at once.
//!
//! C header: [`include/linux/sbitmap.h`](srctree/include/linux/sbitmap.h)

use super::bindings;
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    types::Opaque, //
};

/// A set of the numbers below a limit, from which free ones are taken.
///
/// # Invariants
///
/// `map` is an initialised `struct sbitmap` of `depth` bits.
#[pin_data(PinnedDrop)]
pub(crate) struct Sbitmap {
    #[pin]
    map: Opaque<bindings::sbitmap>,
    depth: u32,
}

// SAFETY: A `struct sbitmap` may be used by any task.
unsafe impl Send for Sbitmap {}
// SAFETY: Taking and returning bits are atomic operations.
unsafe impl Sync for Sbitmap {}

impl Sbitmap {
    /// A set of `depth` free numbers.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    /// - `EINVAL` - the depth is zero.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn new(depth: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            map <- Opaque::try_ffi_init(move |map| {
                if depth == 0 {
                    return Err(EINVAL);
                }
                // SAFETY: `map` is the memory to initialise; -1 lets the function choose how many
                // bits share a word.
                to_result(unsafe {
                    bindings::sbitmap_init_node(
                        map,
                        depth,
                        -1,
                        bindings::GFP_KERNEL,
                        bindings::NUMA_NO_NODE,
                        false,
                        true,
                    )
                })
            }),
            depth,
        })
    }

    /// How many numbers there are.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// How many numbers are taken.
    pub(crate) fn weight(&self) -> u32 {
        // SAFETY: By the type invariant the map is initialised.
        unsafe { bindings::sbitmap_weight(self.map.get()) }
    }

    /// Takes a free number, if there is one.
    pub(crate) fn take(&self) -> Option<u32> {
        // SAFETY: By the type invariant the map is initialised.
        let bit: c_int = unsafe { bindings::sbitmap_get(self.map.get()) };
        u32::try_from(bit).ok()
    }

    /// Returns a number that [`Self::take`] gave.
    pub(crate) fn put(&self, bit: u32) {
        if bit < self.depth {
            // SAFETY: By the type invariant the map is initialised, and it has this bit.
            unsafe { bindings::sbitmap_put(self.map.get(), bit) }
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Sbitmap {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the map is initialised, and nobody uses it any more.
        unsafe { bindings::sbitmap_free(self.map.get()) }
    }
}
