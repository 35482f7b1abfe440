// SPDX-License-Identifier: GPL-2.0

//! Arithmetic of positions, control words and room.

use crate::cdc::cursor::{
    is_writeable,
    room,
    Control,
    Cursor,
    Flags,
    Position,
    MAX_UNREAD, //
};
use proptest::prelude::*;

/// The largest ring.
const LARGEST: usize = 16 << 20;

/// The last position before they wrap.
fn last() -> Position {
    Position::from_raw(usize::MAX)
}

#[test]
fn positions_wrap_without_a_seam() {
    let next = last().advance(1);
    assert_eq!(next, Position::START);
    assert_eq!(next.since(last()), 1);
    for size in (12..=24).map(|shift| 1_usize << shift) {
        assert_eq!(last().offset(size), size - 1);
        assert_eq!(next.offset(size), 0);
    }
}

#[test]
fn distances_that_cannot_be_are_none() {
    let at = Position::from_raw(1000);
    assert_eq!(at.checked_since(at), Some(0));
    assert_eq!(at.advance(MAX_UNREAD).checked_since(at), Some(MAX_UNREAD));
    assert_eq!(at.advance(MAX_UNREAD + 1).checked_since(at), None);
    // The reader ahead of the sender.
    assert_eq!(at.checked_since(at.advance(1)), None);
}

#[test]
fn flags_stay_when_the_position_wraps() {
    let all = Flags::TX_SHUT
        .with(Flags::TX_ABORT)
        .with(Flags::RX_CLOSED)
        .with(Flags::RX_REFUSED);
    let word = Control::new().raise(all).advance(last().into_raw());
    assert_eq!(word.position(), last());
    let word = word.advance(1);
    assert_eq!(word.position(), Position::START);
    assert_eq!(word.flags(), all);
}

#[test]
fn cursors_count_wraps_of_the_ring() {
    const SIZE: usize = 16 << 10;
    let cursor = |bytes| Position::START.advance(bytes).cursor(SIZE);
    let expect = |wrap, count| Cursor { wrap, count };
    assert_eq!(cursor(0), expect(0, 0));
    assert_eq!(cursor(SIZE - 1), expect(0, 16383));
    assert_eq!(cursor(SIZE), expect(1, 0));
    assert_eq!(cursor(SIZE * 65536 + 5), expect(0, 5));
}

#[test]
fn room_counts_only_what_is_in_the_ring() {
    // Nothing before this ring.
    assert_eq!(room(16, 0, 0), Some(16));
    assert_eq!(room(16, 10, 10), Some(6));
    assert_eq!(room(16, 16, 16), Some(0));
    // A long life: most of what was written has been read.
    assert_eq!(room(16, 1000, 3), Some(13));
    assert_eq!(room(16, usize::MAX, 16), Some(0));
    // A fresh ring behind others that still hold 100 bytes.
    assert_eq!(room(16, 4, 100), Some(12));
    // More than fits.
    assert_eq!(room(16, 17, 17), None);
}

#[test]
fn writeable_is_a_third_of_the_whole() {
    assert!(is_writeable(1, 0));
    assert!(!is_writeable(0, 0));
    assert!(is_writeable(10, 20));
    assert!(!is_writeable(10, 22));
    // Whatever the size: who drained everything has made enough room.
    for size in [1, 2, 3, 4096, LARGEST] {
        assert!(is_writeable(size, 0));
    }
}

proptest! {
    #[test]
    fn advance_and_since_are_inverse(raw: usize, bytes in 0..=MAX_UNREAD) {
        let at = Position::from_raw(raw);
        prop_assert_eq!(at.advance(bytes).checked_since(at), Some(bytes));
    }

    #[test]
    fn the_offset_moves_with_the_position(raw: usize, bytes in 0..LARGEST, shift in 12..=24_u32) {
        let size = 1 << shift;
        let at = Position::from_raw(raw);
        let moved = (at.offset(size) + bytes) % size;
        prop_assert_eq!(at.advance(bytes).offset(size), moved);
    }

    #[test]
    fn a_word_is_its_position_and_flags(raw: usize, bytes in 0..=MAX_UNREAD, which in 0..16_u8) {
        let flags = [Flags::TX_SHUT, Flags::TX_ABORT, Flags::RX_CLOSED, Flags::RX_REFUSED]
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| which & (1 << bit) != 0)
            .fold(Flags::NONE, |all, (_, flag)| all.with(flag));
        let at = Position::from_raw(raw);
        let word = Control::new().advance(at.into_raw()).raise(flags);
        let word = Control::from_raw(word.into_raw());
        prop_assert_eq!(word.position(), at);
        prop_assert_eq!(word.flags(), flags);
        let next = word.advance(bytes);
        prop_assert_eq!(next.flags(), flags);
        prop_assert_eq!(next.unread(at), Some(bytes));
    }
}
