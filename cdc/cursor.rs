// SPDX-License-Identifier: GPL-2.0

//! Positions in the byte stream of one direction, and the control word that carries them.
//!
//! SMC-D describes progress with cursors: an offset in the ring and a wrap counter (RFC 7609,
//! appendix A.4), exchanged in CDC messages together with flags. Both ends live in one kernel
//! here, so progress is a position in the stream, which never needs a ring to be understood, and
//! it shares one machine word with the flags: whoever reads the word sees both as of one moment.
//! The cursors that tools expect are derived.
//!
//! Pure: nothing here touches shared memory, see [`crate::cdc`].

#![deny(unsafe_code)]

/// The most bytes that may be on their way in one direction.
///
/// A larger distance between two positions does not occur; it means that one of them is wrong.
pub(crate) const MAX_UNREAD: usize = 1 << 27;

/// A position in the byte stream of one direction, in bytes since it was opened.
///
/// Positions wrap, so there is no order among them, only the distance of two that are known to be
/// close. They are compared modulo 2^60 (2^28 on 32-bit machines), a multiple of every ring size.
///
/// # Invariants
///
/// The value is at most [`Position::MASK`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Position(usize);

impl Position {
    const MASK: usize = usize::MAX >> Flags::BITS;

    /// The first byte.
    // INVARIANT: Zero is below every mask.
    pub(crate) const START: Self = Self(0);

    /// The position of a stored value; bits that no position has are dropped.
    pub(crate) const fn from_raw(raw: usize) -> Self {
        // INVARIANT: Masked.
        Self(raw & Self::MASK)
    }

    /// The value to store.
    pub(crate) const fn into_raw(self) -> usize {
        self.0
    }

    /// The position `bytes` further on.
    pub(crate) const fn advance(self, bytes: usize) -> Self {
        Self::from_raw(self.0.wrapping_add(bytes))
    }

    /// The position one byte back.
    pub(crate) const fn before(self) -> Self {
        Self::from_raw(self.0.wrapping_sub(1))
    }

    /// The number of bytes from `earlier` to here.
    pub(crate) const fn since(self, earlier: Self) -> usize {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// The number of bytes from `earlier` to here, when that many may be on their way.
    pub(crate) const fn checked_since(self, earlier: Self) -> Option<usize> {
        let bytes = self.since(earlier);
        if bytes <= MAX_UNREAD {
            Some(bytes)
        } else {
            None
        }
    }

    /// The offset of this position in a ring of `size` bytes, a power of two.
    ///
    /// Every ring is addressed by the position alone, so a ring begins wherever the stream is
    /// when it is appended.
    pub(crate) const fn offset(self, size: usize) -> usize {
        self.0 & (size - 1)
    }

    /// The cursor a CDC message would carry for a ring of `size` bytes, a power of two.
    pub(crate) fn cursor(self, size: usize) -> Cursor {
        let [low, high, ..] = (self.0 >> size.trailing_zeros()).to_le_bytes();
        Cursor {
            wrap: u16::from_le_bytes([low, high]),
            count: u32::try_from(self.offset(size)).unwrap_or(u32::MAX),
        }
    }
}

/// A cursor as CDC messages carry it, `union smcd_cdc_cursor`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cursor {
    /// How often the ring has been passed.
    pub(crate) wrap: u16,
    /// The offset in the ring, in bytes.
    pub(crate) count: u32,
}

/// The flags of one direction; they are only ever added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Flags(usize);

impl Flags {
    /// The number of bits they take in a [`Control`] word.
    const BITS: u32 = 4;
    const MASK: usize = (1 << Self::BITS) - 1;

    /// No flag.
    pub(crate) const NONE: Self = Self(0);
    /// The sender will not send any more; what is before the position is still good.
    ///
    /// `peer_done_writing` in a CDC message.
    pub(crate) const TX_SHUT: Self = Self(1);
    /// The connection was reset; what is before the position may still be read.
    ///
    /// `peer_conn_abort` in a CDC message.
    pub(crate) const TX_ABORT: Self = Self(2);
    /// The reader is gone; nobody will read what is sent.
    ///
    /// `peer_conn_closed` in a CDC message.
    pub(crate) const RX_CLOSED: Self = Self(4);
    /// The reader has shut down both directions. It reads what is there; more is a reset.
    ///
    /// Not in a CDC message: SMC discards what arrives for such an end.
    pub(crate) const RX_REFUSED: Self = Self(8);

    /// These flags and `other`.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether at least one of `any` is here.
    pub(crate) const fn intersects(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

/// The control word of one direction: the sender's position and the flags, as of one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Control(usize);

impl Control {
    /// The word of a fresh direction.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// The word of a stored value.
    pub(crate) const fn from_raw(raw: usize) -> Self {
        Self(raw)
    }

    /// The value to store.
    pub(crate) const fn into_raw(self) -> usize {
        self.0
    }

    /// Up to where the stream has been written.
    pub(crate) const fn position(self) -> Position {
        Position::from_raw(self.0 >> Flags::BITS)
    }

    /// The flags.
    pub(crate) const fn flags(self) -> Flags {
        Flags(self.0 & Flags::MASK)
    }

    /// Whether at least one of `any` is set.
    pub(crate) const fn has(self, any: Flags) -> bool {
        self.flags().intersects(any)
    }

    /// The word after `bytes` more have been written.
    pub(crate) const fn advance(self, bytes: usize) -> Self {
        Self((self.position().advance(bytes).into_raw() << Flags::BITS) | self.flags().0)
    }

    /// The word with `flags` added.
    pub(crate) const fn raise(self, flags: Flags) -> Self {
        Self(self.0 | flags.0)
    }

    /// The bytes written and not yet read, when the reader is at `consumed`.
    ///
    /// Nothing when these two cannot belong together.
    pub(crate) const fn unread(self, consumed: Position) -> Option<usize> {
        self.position().checked_since(consumed)
    }
}

/// The place a ring has for more bytes.
///
/// `written` bytes of the stream went to this ring since it was appended (it may stop counting
/// where it would overflow), of `unread` bytes in the whole direction.
///
/// Nothing when more would be in the ring than fit.
pub(crate) const fn room(size: usize, written: usize, unread: usize) -> Option<usize> {
    // Rings before this one hold the rest of what is unread.
    let used = if written < unread { written } else { unread };
    size.checked_sub(used)
}

/// Whether a sender is to be told about `free` bytes when `used` are on their way.
///
/// TCP's rule (`__sk_stream_is_writeable()`): at least a third of the whole is free. Who sleeps,
/// who polls and who wakes use this one rule, so nobody waits for an event that does not come.
pub(crate) const fn is_writeable(free: usize, used: usize) -> bool {
    free > 0 && free >= used / 2
}
