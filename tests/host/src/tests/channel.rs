// SPDX-License-Identifier: GPL-2.0

//! The shared words of one direction, one step at a time. What happens when steps meet, see
//! `ring_loom.rs`.

#![cfg(not(loom))]

use crate::cdc::{
    cursor::{
        Flags,
        Position, //
    },
    Channel, //
};

#[test]
fn what_is_published_is_observed() {
    let channel = Channel::new(Position::START);
    let word = channel.publish(channel.observe(), 10).unwrap();
    assert_eq!(word, channel.observe());
    assert_eq!(word.position(), Position::START.advance(10));
    assert_eq!(word.unread(channel.consumed()), Some(10));
}

#[test]
fn nothing_is_published_behind_a_flag() {
    for flag in [Flags::TX_SHUT, Flags::TX_ABORT, Flags::RX_CLOSED] {
        let channel = Channel::new(Position::START);
        let seen = channel.observe();
        assert_eq!(channel.raise(|_| flag), seen);
        let found = channel.publish(seen, 10).unwrap_err();
        assert_eq!(found, channel.observe());
        assert_eq!(found.position(), Position::START);
        assert!(found.has(flag));
    }
}

#[test]
fn only_a_blocked_sender_is_reported_to_the_reader() {
    let channel = Channel::new(Position::START);
    channel.publish(channel.observe(), 10).unwrap();
    assert!(!channel.consume(Position::START.advance(4)));
    channel.block();
    assert!(channel.is_blocked());
    assert!(channel.consume(Position::START.advance(8)));
    channel.unblock();
    assert!(!channel.consume(Position::START.advance(10)));
    assert_eq!(channel.observe().unread(channel.consumed()), Some(0));
}

#[test]
fn a_direction_may_start_anywhere() {
    let at = Position::from_raw(usize::MAX);
    let channel = Channel::new(at);
    assert_eq!(channel.observe().unread(channel.consumed()), Some(0));
    let word = channel.publish(channel.observe(), 3).unwrap();
    assert_eq!(word.unread(at), Some(3));
}
