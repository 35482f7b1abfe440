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

/// A piece of memory in one folio.
struct Piece {
    address: NonNull<u8>,
    len: usize,
}

/// Memory for one DMB, zeroed at first.
///
/// # Invariants
///
/// All folios have the size `1 << shift`, and together they have at least `len` bytes.
pub(crate) struct Memory {
    folios: KVec<Folio>,
    shift: u32,
    len: usize,
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
        // INVARIANT: As many folios of this size as `len` needs.
        Ok(Self {
            folios,
            shift: size.trailing_zeros(),
            len,
        })
    }

    /// The number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a copy of `len` bytes at `offset` is within the memory.
    #[inline]
    fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// The piece of `offset..offset + len` that is in the folio of `offset`.
    #[inline]
    fn piece(&self, offset: usize, len: usize) -> Option<Piece> {
        let folio = self.folios.get(offset >> self.shift)?;
        let within = offset & (folio.size() - 1);
        Some(Piece {
            // SAFETY: `within` is less than the size of the folio, whose bytes are one object.
            address: unsafe { folio.address().add(within) },
            len: len.min(folio.size() - within),
        })
    }

    /// Moves `len` bytes from `from` to `offset`, and says how many it could read.
    ///
    /// Fewer means a fault in the caller's memory (or the end of `from`): nothing behind them has
    /// been written.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing has been written.
    ///
    /// # Context
    ///
    /// Process context, may sleep (page faults). The caller is the sender to which the range
    /// belongs at this time.
    #[inline]
    pub(crate) fn fill(
        &self,
        offset: usize,
        len: usize,
        from: &mut IovIterSource<'_>,
    ) -> Result<usize> {
        if !self.contains(offset, len) {
            return Err(EINVAL);
        }
        let mut done = 0;
        while done < len {
            let piece = self.piece(offset + done, len - done).ok_or(EINVAL)?;
            // SAFETY: The iterator is valid as long as its wrapper, and the piece is in a folio
            // that `self` owns. What other tasks do with these bytes meanwhile, see the top.
            let copied = unsafe {
                kernel::bindings::_copy_from_iter(
                    piece.address.as_ptr().cast(),
                    piece.len,
                    from.as_raw(),
                )
            };
            done += copied;
            if copied < piece.len {
                break;
            }
        }
        Ok(done)
    }

    /// Moves `len` bytes at `offset` to `to`, and says how many it could write.
    ///
    /// Fewer means a fault in the caller's memory (or the end of `to`).
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing has been read.
    ///
    /// # Context
    ///
    /// Process context, may sleep (page faults). The caller is the reader to which the range
    /// belongs at this time.
    #[inline]
    pub(crate) fn drain(
        &self,
        offset: usize,
        len: usize,
        to: &mut IovIterDest<'_>,
    ) -> Result<usize> {
        if !self.contains(offset, len) {
            return Err(EINVAL);
        }
        let mut done = 0;
        while done < len {
            let piece = self.piece(offset + done, len - done).ok_or(EINVAL)?;
            // SAFETY: As in `fill`.
            let copied = unsafe {
                kernel::bindings::_copy_to_iter(
                    piece.address.as_ptr().cast(),
                    piece.len,
                    to.as_raw(),
                )
            };
            done += copied;
            if copied < piece.len {
                break;
            }
        }
        Ok(done)
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing has been written.
    ///
    /// # Context
    ///
    /// Any. The caller is the sender to which the range belongs at this time.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> Result {
        if !self.contains(offset, data.len()) {
            return Err(EINVAL);
        }
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let piece = self.piece(offset + done, rest.len()).ok_or(EINVAL)?;
            // SAFETY: Both are valid for that many bytes, and `data` is no memory of a DMB, to
            // which no reference exists.
            unsafe {
                piece
                    .address
                    .as_ptr()
                    .copy_from_nonoverlapping(rest.as_ptr(), piece.len)
            };
            done += piece.len;
        }
        Ok(())
    }

    /// Reads the bytes at `offset` into `data`.
    ///
    /// # Errors
    ///
    /// - `EINVAL` - not all of the range is in this memory; nothing has been read.
    ///
    /// # Context
    ///
    /// Any. The caller is the reader to which the range belongs at this time.
    pub(crate) fn read(&self, offset: usize, data: &mut [u8]) -> Result {
        if !self.contains(offset, data.len()) {
            return Err(EINVAL);
        }
        let mut done = 0;
        while let Some(rest) = data.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let piece = self.piece(offset + done, rest.len()).ok_or(EINVAL)?;
            // SAFETY: As in `write`.
            unsafe {
                piece
                    .address
                    .as_ptr()
                    .copy_to_nonoverlapping(rest.as_mut_ptr(), piece.len)
            };
            done += piece.len;
        }
        Ok(())
    }

    /// Zeroes the part of `offset..offset + len` that is in this memory.
    ///
    /// # Context
    ///
    /// Any. The caller is the owner, and nobody is attached any more.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        let end = self.len.min(offset.saturating_add(len));
        let mut at = offset;
        while at < end {
            let Some(piece) = self.piece(at, end - at) else {
                return;
            };
            // SAFETY: The piece is in a folio that `self` owns, and no reference to it exists.
            unsafe { piece.address.as_ptr().write_bytes(0, piece.len) };
            at += piece.len;
        }
    }
}
