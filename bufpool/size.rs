// SPDX-License-Identifier: GPL-2.0

//! Size classes of rings.
//!
//! SMC compresses the size of an RMB into a class, 16 KiB times a power of two, and names the class
//! in its messages (RFC 7609, figure 16; `smc_compress_bufsize()`). Below them stands one class of
//! a single page, which is the reserve when nothing larger is to be had.
//!
//! Pure.

#![deny(unsafe_code)]

use kernel::page::PAGE_SIZE;

/// The smallest ring SMC knows, in bytes.
const SMALLEST: usize = 16 << 10;

/// How much larger each ring of a growing chain is.
const GROWTH: u32 = 2;

/// The class of a ring: its size, which is a power of two.
///
/// # Invariants
///
/// The number is at most that of [`Class::LARGEST`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Class(u8);

impl Class {
    /// One page: always to be had, and never charged.
    // INVARIANT: The first class.
    pub(crate) const RESERVE: Self = Self(0);
    /// What a connection starts with, 16 KiB.
    // INVARIANT: The second class.
    pub(crate) const FIRST: Self = Self(1);
    /// The largest class kept for reuse, 1 MiB, which is also the largest of C's SMC-D.
    // INVARIANT: The eighth class.
    pub(crate) const LARGEST_KEPT: Self = Self(7);
    /// How many classes are kept.
    pub(crate) const KEPT: usize = 8;
    /// The largest class, 16 MiB.
    // INVARIANT: The last class.
    pub(crate) const LARGEST: Self = Self(11);

    /// The largest class of at most `bytes`, or the smallest of them all.
    ///
    /// The reserve is chosen by name, never by size.
    pub(crate) fn at_most(bytes: usize) -> Self {
        let mut class = Self::FIRST;
        while let Some(next) = class.larger(1) {
            if next.size() > bytes {
                break;
            }
            class = next;
        }
        class
    }

    /// The smallest class of at least `bytes`, or the largest of them all.
    pub(crate) fn at_least(bytes: usize) -> Self {
        let class = Self::at_most(bytes);
        if class.size() < bytes {
            class.larger(1).unwrap_or(class)
        } else {
            class
        }
    }

    /// The class of a ring that follows one of this class and must fit in `bytes`.
    ///
    /// Nothing when not even the smallest fits.
    pub(crate) fn next_within(self, bytes: usize) -> Option<Self> {
        if bytes < SMALLEST {
            return None;
        }
        let grown = self.larger(GROWTH).unwrap_or(Self::LARGEST);
        Some(grown.min(Self::at_most(bytes)))
    }

    /// The class `steps` further up.
    fn larger(self, steps: u32) -> Option<Self> {
        let number = self.0.checked_add(u8::try_from(steps).ok()?)?;
        // INVARIANT: Not above the last class.
        (number <= Self::LARGEST.0).then_some(Self(number))
    }

    /// The next class down, as long as SMC has a name for it.
    pub(crate) fn smaller(self) -> Option<Self> {
        // INVARIANT: Below a class of which the number is valid.
        (self > Self::FIRST).then(|| Self(self.0 - 1))
    }

    /// The size of a ring in bytes.
    pub(crate) const fn size(self) -> usize {
        match self.0 {
            0 => PAGE_SIZE,
            number => SMALLEST << (number - 1),
        }
    }

    /// The class as a number, to index a table; the first [`Class::KEPT`] are those of rings that are
    /// kept.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All classes that are kept for reuse, the largest first.
    pub(crate) fn kept() -> impl Iterator<Item = Self> {
        // INVARIANT: Not above the largest that is kept.
        (0..=Self::LARGEST_KEPT.0).rev().map(Self)
    }
}
