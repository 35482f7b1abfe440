// SPDX-License-Identifier: GPL-2.0

//! How a connection ends, compared with what TCP does.

use crate::{
    cdc::cursor::{
        Control,
        Flags,
        Position, //
    },
    conn::close::{
        event,
        outcome,
        read_end,
        reader_closes,
        reset_error,
        send_gate,
        writer_closes,
        Closed,
        PollView,
        ReadEnd,
        SendGate, //
    }, //
};
use kernel::prelude::*;

/// The two directions between an end A and an end B.
#[derive(Clone, Copy)]
struct Pair {
    to_b: Control,
    to_a: Control,
}

impl Pair {
    fn new() -> Self {
        Self {
            to_b: Control::new(),
            to_a: Control::new(),
        }
    }

    /// A closes, with `unread` bytes left and perhaps linger time 0.
    fn a_closes(&mut self, unread: usize, reset: bool) -> Closed {
        self.to_a = self.to_a.advance(unread);
        let flags = reader_closes(self.to_a, Position::START, reset);
        let closed = outcome(self.to_a, flags);
        self.to_a = self.to_a.raise(flags);
        self.to_b = self.to_b.raise(writer_closes(closed));
        closed
    }

    /// What B's poll gives.
    fn b_polls(&self, error: bool) -> u32 {
        self.view(error).mask()
    }

    fn view(&self, error: bool) -> PollView {
        PollView {
            incoming: self.to_b,
            outgoing: self.to_a,
            shut_rd: false,
            readable: false,
            writeable: true,
            urgent: false,
            error,
        }
    }
}

const READ: u32 = event::IN | event::RDNORM;
const WRITE: u32 = event::OUT | event::WRNORM;

#[test]
fn an_open_connection_only_writes() {
    let pair = Pair::new();
    assert_eq!(send_gate(pair.to_a), SendGate::Open);
    assert_eq!(read_end(pair.to_b), ReadEnd::Open);
    assert_eq!(pair.b_polls(false), WRITE);
}

#[test]
fn a_clean_close_is_an_end_of_stream_and_one_more_send() {
    let mut pair = Pair::new();
    assert_eq!(pair.a_closes(0, false), Closed::Clean);
    assert_eq!(read_end(pair.to_b), ReadEnd::Eof);
    assert_eq!(send_gate(pair.to_a), SendGate::ReaderGone);
    assert_eq!(pair.b_polls(false), READ | WRITE | event::RDHUP);

    // B sends: the answer is TCP's RST in CLOSE-WAIT.
    pair.to_a = pair.to_a.raise(Flags::TX_ABORT);
    assert_eq!(send_gate(pair.to_a), SendGate::Aborted);
    assert_eq!(reset_error(pair.to_b).to_errno(), EPIPE.to_errno());
    assert_eq!(read_end(pair.to_b), ReadEnd::Eof);
    assert_eq!(
        pair.b_polls(true),
        READ | WRITE | event::RDHUP | event::HUP | event::ERR
    );
}

#[test]
fn a_close_with_unread_data_is_a_reset() {
    for unread in [1, 4096, 1 << 20] {
        let mut pair = Pair::new();
        assert_eq!(pair.a_closes(unread, false), Closed::Reset);
        assert_eq!(read_end(pair.to_b), ReadEnd::Aborted);
        assert_eq!(send_gate(pair.to_a), SendGate::Aborted);
        assert_eq!(reset_error(pair.to_b).to_errno(), ECONNRESET.to_errno());
        assert_eq!(
            pair.b_polls(true),
            READ | WRITE | event::RDHUP | event::HUP | event::ERR
        );
    }
}

#[test]
fn linger_zero_is_a_reset_without_unread_data() {
    let mut pair = Pair::new();
    assert_eq!(pair.a_closes(0, true), Closed::Reset);
    assert_eq!(read_end(pair.to_b), ReadEnd::Aborted);
}

#[test]
fn a_reader_behind_a_sender_it_cannot_belong_to_resets() {
    let word = Control::new();
    let ahead = Position::START.advance(1);
    let flags = reader_closes(word, ahead, false);
    assert_eq!(outcome(word, flags), Closed::Reset);
}

#[test]
fn a_reset_after_the_end_of_stream_is_epipe_and_hides_behind_it() {
    let mut pair = Pair::new();
    // A shuts down writing, then closes with unread data.
    pair.to_b = pair.to_b.raise(Flags::TX_SHUT);
    assert_eq!(pair.a_closes(1, false), Closed::Reset);
    assert_eq!(reset_error(pair.to_b).to_errno(), EPIPE.to_errno());
    assert_eq!(read_end(pair.to_b), ReadEnd::Eof);
}

#[test]
fn an_end_that_shut_down_both_directions_resets_whoever_sends() {
    let mut pair = Pair::new();
    // A shuts down both: B may still send, once, and both get the error of their state.
    pair.to_b = pair.to_b.raise(Flags::TX_SHUT);
    pair.to_a = pair.to_a.raise(Flags::RX_REFUSED);
    assert_eq!(send_gate(pair.to_a), SendGate::ReaderGone);
    assert_eq!(pair.b_polls(false), READ | WRITE | event::RDHUP);
    assert_eq!(reset_error(pair.to_b).to_errno(), EPIPE.to_errno());
    assert_eq!(reset_error(pair.to_a).to_errno(), ECONNRESET.to_errno());
}

#[test]
fn half_closed_connections_go_on_in_the_other_direction() {
    let mut pair = Pair::new();
    pair.to_a = pair.to_a.raise(Flags::TX_SHUT);
    assert_eq!(send_gate(pair.to_a), SendGate::Shut);
    assert_eq!(read_end(pair.to_b), ReadEnd::Open);
    // B has shut down: it does not wait for room, and there is no HUP yet.
    let mut view = pair.view(false);
    view.writeable = false;
    assert_eq!(view.mask(), WRITE);
    pair.to_b = pair.to_b.raise(Flags::TX_SHUT);
    assert_eq!(
        pair.b_polls(false),
        READ | WRITE | event::RDHUP | event::HUP
    );
}

#[test]
fn a_second_close_of_a_dead_connection_is_a_reset() {
    let mut pair = Pair::new();
    pair.to_a = pair.to_a.raise(Flags::TX_ABORT);
    pair.to_b = pair.to_b.raise(Flags::TX_ABORT);
    assert_eq!(pair.a_closes(0, false), Closed::Reset);
}

/// Every reachable set of flags: poll never promises what the calls refuse.
#[test]
fn poll_agrees_with_the_calls_for_all_flags() {
    let flags = |bits: usize| Control::from_raw(bits);
    for incoming in (0..16).map(flags) {
        for outgoing in (0..16).map(flags) {
            let view = PollView {
                incoming,
                outgoing,
                shut_rd: false,
                readable: false,
                writeable: false,
                urgent: false,
                error: false,
            };
            let mask = view.mask();
            let blocked_read = read_end(incoming) == ReadEnd::Open && !view.is_dead();
            assert_eq!(
                mask & event::IN == 0,
                blocked_read,
                "{incoming:?} {outgoing:?}"
            );
            let refused = matches!(send_gate(outgoing), SendGate::Shut | SendGate::Aborted);
            if refused {
                assert_ne!(mask & event::OUT, 0, "{incoming:?} {outgoing:?}");
            }
        }
    }
}
