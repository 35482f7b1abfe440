// SPDX-License-Identifier: GPL-2.0

//! How a connection ends: what each flag means to each end.
//!
//! There is no state machine that two ends step through by messages (`net/smc/smc_close.c`): each
//! end derives what it must do from the two control words. TCP is the model, in particular
//! `tcp_close()`, `tcp_fin()`, `tcp_reset()` and `tcp_poll()`.
//!
//! | event at one end                     | its own direction | the other direction  |
//! |--------------------------------------|-------------------|----------------------|
//! | `shutdown(SHUT_WR)`                  | `TX_SHUT`         |                      |
//! | both directions shut down            | `TX_SHUT`         | `RX_REFUSED`         |
//! | close, everything read               | `TX_SHUT`         | `RX_CLOSED`          |
//! | close with unread data, or linger 0  | `TX_ABORT`        | `RX_CLOSED|TX_ABORT` |
//! | first send to an end that has closed | `TX_ABORT`        |                      |
//! | or refuses                           |                   |                      |
//! | close after both ends were shut      | `TX_SHUT`         | `RX_CLOSED`          |
//! | death seen from outside              | `TX_ABORT`        | `TX_ABORT`           |
//!
//! A close changes the other direction first, because that change decides whether data was left
//! unread and so what the own direction must say.
//!
//! Pure: the actors are in [`crate::conn`].

#![deny(unsafe_code)]

use kernel::prelude::*;

use crate::cdc::cursor::{
    Control,
    Flags,
    Position, //
};

/// How a close went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Closed {
    /// The peer reads what is left and then the end of the stream.
    Clean,
    /// The connection was reset, by this close or before.
    Reset,
}

/// What the closing reader of a direction adds to it.
///
/// `word` is the word it changes and `consumed` the last byte it read; `reset` asks for a reset
/// even if nothing is left unread (linger time 0). Positions that do not belong together count as
/// unread data.
pub(crate) fn reader_closes(word: Control, consumed: Position, reset: bool) -> Flags {
    if reset || word.unread(consumed) != Some(0) {
        Flags::RX_CLOSED.with(Flags::TX_ABORT)
    } else {
        Flags::RX_CLOSED
    }
}

/// Whether both ends have finished sending, as the two words of an end say.
///
/// TCP has closed the connection then: nobody is left to be reset, whatever is unread.
pub(crate) fn is_over(incoming: Control, outgoing: Control) -> bool {
    incoming.has(Flags::TX_SHUT) && outgoing.has(Flags::TX_SHUT)
}

/// How the close went that found `word` and added `flags` to it.
pub(crate) fn outcome(word: Control, flags: Flags) -> Closed {
    if word.raise(flags).has(Flags::TX_ABORT) {
        Closed::Reset
    } else {
        Closed::Clean
    }
}

/// What the closing end adds to its own direction.
pub(crate) fn writer_closes(closed: Closed) -> Flags {
    match closed {
        Closed::Clean => Flags::TX_SHUT,
        Closed::Reset => Flags::TX_ABORT,
    }
}

/// The error a reset means to the end that receives `incoming` (`tcp_reset()`).
///
/// # Errors
///
/// Not returned but given:
/// - `EPIPE` - the peer had finished sending before (TCP's CLOSE-WAIT).
/// - `ECONNRESET` - it had not.
pub(crate) fn reset_error(incoming: Control) -> Error {
    if incoming.has(Flags::TX_SHUT) {
        EPIPE
    } else {
        ECONNRESET
    }
}

/// Whether an end may send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SendGate {
    /// It may.
    Open,
    /// It has shut down its direction.
    Shut,
    /// The connection was reset.
    Aborted,
    /// The reader closed with everything read, or has shut down both directions, and nothing was
    /// sent since.
    ///
    /// TCP takes the bytes, and learns by the answer that nobody wants them: RST by
    /// `tcp_rcv_state_process()` in FIN-WAIT with `RCV_SHUTDOWN`, or without a socket.
    ReaderGone,
}

/// Whether the sender of a direction may send, as its control word says.
pub(crate) fn send_gate(word: Control) -> SendGate {
    if word.has(Flags::TX_ABORT) {
        SendGate::Aborted
    } else if word.has(Flags::TX_SHUT) {
        SendGate::Shut
    } else if word.has(Flags::RX_CLOSED.with(Flags::RX_REFUSED)) {
        SendGate::ReaderGone
    } else {
        SendGate::Open
    }
}

/// What a reader finds when it has read everything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReadEnd {
    /// More may come.
    Open,
    /// The end of the stream, for good: not even an error shows any more (`SOCK_DONE`).
    Eof,
    /// The connection was reset: the error once, then the end of the stream.
    Aborted,
}

/// What is behind the last byte of a direction.
pub(crate) fn read_end(word: Control) -> ReadEnd {
    if word.has(Flags::TX_SHUT) {
        ReadEnd::Eof
    } else if word.has(Flags::TX_ABORT) {
        ReadEnd::Aborted
    } else {
        ReadEnd::Open
    }
}

/// Poll events, as `include/uapi/linux/eventpoll.h` numbers them.
pub(crate) mod event {
    pub(crate) const IN: u32 = 0x0001;
    pub(crate) const PRI: u32 = 0x0002;
    pub(crate) const OUT: u32 = 0x0004;
    pub(crate) const ERR: u32 = 0x0008;
    pub(crate) const HUP: u32 = 0x0010;
    pub(crate) const RDNORM: u32 = 0x0040;
    pub(crate) const WRNORM: u32 = 0x0100;
    pub(crate) const RDHUP: u32 = 0x2000;
}

/// What a poll looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollView {
    /// The control word of the direction this end reads.
    pub(crate) incoming: Control,
    /// The control word of the direction this end writes.
    pub(crate) outgoing: Control,
    /// This end has shut down reading.
    pub(crate) shut_rd: bool,
    /// Enough is there to be read.
    pub(crate) readable: bool,
    /// Enough room is there to write.
    pub(crate) writeable: bool,
    /// Urgent data waits to be received.
    pub(crate) urgent: bool,
    /// An error waits to be fetched.
    pub(crate) error: bool,
}

impl PollView {
    /// Whether the connection was reset (TCP_CLOSE).
    pub(crate) fn is_dead(&self) -> bool {
        self.incoming.has(Flags::TX_ABORT) || self.outgoing.has(Flags::TX_ABORT)
    }

    /// Whether this end cannot send any more.
    pub(crate) fn is_shut_wr(&self) -> bool {
        self.is_dead() || self.outgoing.has(Flags::TX_SHUT)
    }

    /// The events, in the order of `tcp_poll()`.
    pub(crate) fn mask(&self) -> u32 {
        let rcv = self.is_dead() || self.shut_rd || self.incoming.has(Flags::TX_SHUT);
        let snd = self.is_shut_wr();
        let mut mask = 0;
        if rcv && snd {
            mask |= event::HUP;
        }
        if rcv {
            mask |= event::IN | event::RDNORM | event::RDHUP;
        }
        if self.readable {
            mask |= event::IN | event::RDNORM;
        }
        if snd || self.writeable {
            mask |= event::OUT | event::WRNORM;
        }
        if self.urgent {
            mask |= event::PRI;
        }
        if self.error {
            mask |= event::ERR;
        }
        mask
    }
}
