// SPDX-License-Identifier: GPL-2.0

//! The memory of a DMB, and every copy to and from it.
//!
//! A DMB is an array of compound folios rather than one contiguous piece: a fragmented host can
//! always provide it, nothing has to be mapped, and a copy needs no look-up to be checked
//! (hardened usercopy takes a lock to find the bounds of vmalloc memory). The bounds are checked
//! here, once for a copy.
//!
//! # Who may touch what
//!
//! Two tasks share the memory and no lock protects it. The protocol of [`crate::cdc`] gives each
//! byte to one of them at a time: from being read until being published again to the sender, from
//! there on to the reader. This room does not rely on that for memory safety. No Rust reference to
//! the bytes ever exists while the memory is shared; they are moved by the C functions behind
//! [`IovIterSource`] and [`IovIterDest`], as user memory is that other threads write to, so a
//! protocol error could mix up bytes but nothing else.

#![allow(unsafe_code)]

use core::ptr::NonNull;

use kernel::{
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*, //
};

use crate::kapi::folio::{
    Effort,
    Folio, //
};

/// The largest folio that is asked for, as an order: 64 KiB with pages of 4 KiB.
const MAX_ORDER: u32 = 4;

/// Memory for one DMB, zeroed at first.
///
/// # Invariants
///
/// All folios have the size `1 << shift`, and together they have `mask + 1` bytes, a power of two.
pub(crate) struct Memory {
    folios: KVec<Folio>,
    shift: u32,
    mask: usize,
}

impl Memory {
    /// Allocates `len` bytes, which must be a power of two of at least a page.
    ///
    /// Tries large folios first; only single pages are worth an effort.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - the length is none that a DMB can have.
    /// - `ENOMEM` - there is not as much memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let whole = Folio::order_for(len);
        if !len.is_power_of_two() || kernel::page::PAGE_SIZE << whole != len {
            return Err(EINVAL);
        }
        for order in (1..=whole.min(MAX_ORDER)).rev() {
            if let Ok(memory) = Self::with_order(len, order, Effort::Light) {
                return Ok(memory);
            }
        }
        Self::with_order(len, 0, Effort::Ordinary)
    }

    fn with_order(len: usize, order: u32, effort: Effort) -> Result<Self> {
        let size = kernel::page::PAGE_SIZE << order;
        let mut folios = KVec::with_capacity(len.div_ceil(size), GFP_KERNEL)?;
        for _ in 0..len.div_ceil(size) {
            folios.push(Folio::alloc(order, effort)?, GFP_KERNEL)?;
        }
        // INVARIANT: As many folios of this size as `len` needs, which both are powers of two.
        Ok(Self {
            folios,
            shift: size.trailing_zeros(),
            mask: len - 1,
        })
    }

    /// The number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.mask + 1
    }

    /// Calls `copy` for each piece of the `len` bytes at `at`, which continue at the beginning
    /// where the memory ends, until one returns less than the piece has; says how many bytes were
    /// copied.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - the memory has less than `len` bytes; nothing was copied.
    #[inline(always)]
    fn each_piece(
        &self,
        at: usize,
        len: usize,
        mut copy: impl FnMut(NonNull<u8>, usize) -> usize,
    ) -> Result<usize> {
        if len > self.len() {
            return Err(EINVAL);
        }
        let offset = at & self.mask;
        let (address, whole) = self.piece(offset)?;
        if len <= whole {
            // As a rule.
            return Ok(copy(address, len).min(len));
        }
        self.each_of_many(offset, len, copy)
    }

    /// The byte at `offset`, and how many there are in one piece from there on.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - there is no such byte.
    #[inline(always)]
    fn piece(&self, offset: usize) -> Result<(NonNull<u8>, usize)> {
        let size = 1 << self.shift;
        let within = offset & (size - 1);
        let folio = self.folios.get(offset >> self.shift).ok_or(EINVAL)?;
        // SAFETY: `within` is less than the size of the folio, whose bytes are one object.
        Ok((unsafe { folio.address().add(within) }, size - within))
    }

    /// As [`Self::each_piece`], for ranges in more than one piece.
    #[inline(never)]
    fn each_of_many(
        &self,
        mut offset: usize,
        len: usize,
        mut copy: impl FnMut(NonNull<u8>, usize) -> usize,
    ) -> Result<usize> {
        let mut left = len;
        while left > 0 {
            let (address, whole) = self.piece(offset)?;
            let piece = left.min(whole);
            let copied = copy(address, piece);
            left -= copied.min(piece);
            if copied < piece {
                break;
            }
            offset = (offset + piece) & self.mask;
        }
        Ok(len - left)
    }

    /// As [`Self::each_piece`] for a range that does not continue at the beginning.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing was copied.
    fn each_piece_within(
        &self,
        at: usize,
        len: usize,
        copy: impl FnMut(NonNull<u8>, usize) -> usize,
    ) -> Result<usize> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => self.each_piece(at, len, copy),
            _ => Err(EINVAL),
        }
    }

    /// Moves `len` bytes from `from` to the ring at `at`, a position in the stream, and says how
    /// many it could read.
    ///
    /// Fewer means a fault in the caller's memory (or the end of `from`): nothing behind them has
    /// been written.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - the ring is smaller than that; nothing has been written.
    ///
    /// # Context
    ///
    /// Process context, may sleep (page faults). The caller is the sender to which the range
    /// belongs at this time.
    #[inline(always)]
    pub(crate) fn fill(
        &self,
        at: usize,
        len: usize,
        from: &mut IovIterSource<'_>,
    ) -> Result<usize> {
        let iter = from.as_raw();
        self.each_piece(at, len, |piece, len| {
            // SAFETY: The iterator is valid as long as its wrapper, and the piece is in a folio
            // that `self` owns. What other tasks do with these bytes meanwhile, see the top.
            unsafe { kernel::bindings::_copy_from_iter(piece.as_ptr().cast(), len, iter) }
        })
    }

    /// Moves `len` bytes of the ring at `at`, a position in the stream, to `to`, and says how many
    /// it could write.
    ///
    /// Fewer means a fault in the caller's memory (or the end of `to`).
    ///
    /// # Errors
    ///
    /// - `EINVAL` - the ring is smaller than that; nothing has been read.
    ///
    /// # Context
    ///
    /// Process context, may sleep (page faults). The caller is the reader to which the range
    /// belongs at this time.
    #[inline(always)]
    pub(crate) fn drain(&self, at: usize, len: usize, to: &mut IovIterDest<'_>) -> Result<usize> {
        let iter = to.as_raw();
        self.each_piece(at, len, |piece, len| {
            // SAFETY: As in `fill`.
            unsafe { kernel::bindings::_copy_to_iter(piece.as_ptr().cast(), len, iter) }
        })
    }

    /// Writes `data` at the offset `at`.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing has been written.
    ///
    /// # Context
    ///
    /// Any. The caller is the sender to which the range belongs at this time.
    pub(crate) fn write(&self, at: usize, data: &[u8]) -> Result {
        let mut rest = data;
        self.each_piece_within(at, data.len(), |piece, len| {
            let Some((now, later)) = rest.split_at_checked(len) else {
                return 0;
            };
            rest = later;
            // SAFETY: Both are valid for that many bytes, and `data` is no memory of a DMB, to
            // which no reference exists.
            unsafe { piece.as_ptr().copy_from_nonoverlapping(now.as_ptr(), len) };
            len
        })?;
        Ok(())
    }

    /// Reads the bytes at the offset `at` into `data`.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing has been read.
    ///
    /// # Context
    ///
    /// Any. The caller is the reader to which the range belongs at this time.
    pub(crate) fn read(&self, at: usize, data: &mut [u8]) -> Result {
        let mut done = 0;
        self.each_piece_within(at, data.len(), |piece, len| {
            let Some(now) = data.get_mut(done..).and_then(|rest| rest.get_mut(..len)) else {
                return 0;
            };
            done += len;
            // SAFETY: As in `write`.
            unsafe { piece.as_ptr().copy_to_nonoverlapping(now.as_mut_ptr(), len) };
            len
        })?;
        Ok(())
    }

    /// Zeroes `len` bytes of the ring at `at`, a position in the stream, or all when it is smaller.
    ///
    /// # Context
    ///
    /// Any. The caller is the owner, and nobody is attached any more.
    pub(crate) fn zero(&self, at: usize, len: usize) {
        let _ = self.each_piece(at, len.min(self.len()), |piece, len| {
            // SAFETY: The piece is in a folio that `self` owns, and no reference to it exists.
            unsafe { piece.as_ptr().write_bytes(0, len) };
            len
        });
    }
}
