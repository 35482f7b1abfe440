// SPDX-License-Identifier: GPL-2.0

//! Every interleaving of the steps in which the two ends of a direction meet.
//!
//! The words are the module's own; sleeping is modelled by a flag in the place of the wait queue,
//! with the fences `Waiter` and `skwq_has_sleeper()` have.

use crate::{
    cdc::{
        cursor::{
            Flags,
            Position, //
        },
        Channel, //
    },
    conn::close::{
        outcome,
        read_end,
        reader_closes,
        send_gate,
        Closed,
        ReadEnd,
        SendGate, //
    }, //
};
use kernel::sync::{
    atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    barrier::smp_mb, //
};
use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread, //
};

fn at(bytes: usize) -> Position {
    Position::START.advance(bytes)
}

fn channel() -> Channel {
    Channel::new(Position::START)
}

/// What the module's sender does with one byte: ask the gate, publish, and ask the gate again when
/// the word has moved.
///
/// # Errors
///
/// What the gate says, when it is not open.
fn send(channel: &Channel) -> Result<(), SendGate> {
    let seen = channel.observe();
    match send_gate(seen) {
        SendGate::Open => {}
        closed => return Err(closed),
    }
    match channel.publish(seen, 1) {
        Ok(_) => Ok(()),
        Err(found) => Err(send_gate(found)),
    }
}

/// A place in a wait queue and the wake-up it may get.
struct Queue {
    queued: Atomic<bool>,
    woken: Atomic<bool>,
}

impl Queue {
    fn new() -> Self {
        Self {
            queued: Atomic::<bool>::new(false),
            woken: Atomic::<bool>::new(false),
        }
    }

    /// `add_wait_queue(); smp_mb();`
    fn enter(&self) {
        self.queued.store(true, Relaxed);
        smp_mb(Full);
    }

    /// `if (skwq_has_sleeper()) wake_up();`
    fn wake(&self) {
        smp_mb(Full);
        if self.queued.load(Relaxed) {
            self.woken.store(true, Relaxed);
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Relaxed)
    }
}

#[test]
fn loom_a_reader_does_not_sleep_through_a_message() {
    loom::model(|| {
        let shared = Arc::new((channel(), Queue::new()));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (channel, queue) = &*shared;
                channel.publish(channel.observe(), 1).unwrap();
                queue.wake();
            })
        };
        let (channel, queue) = &*shared;
        queue.enter();
        let sleeps = channel.observe().unread(channel.consumed()) == Some(0);
        sender.join().unwrap();
        assert!(!sleeps || queue.is_woken());
    });
}

#[test]
fn loom_a_reader_does_not_sleep_through_a_shutdown() {
    loom::model(|| {
        let shared = Arc::new((channel(), Queue::new()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (channel, queue) = &*shared;
                channel.raise(|_| Flags::TX_SHUT);
                queue.wake();
            })
        };
        let (channel, queue) = &*shared;
        queue.enter();
        let sleeps = read_end(channel.observe()) == ReadEnd::Open;
        other.join().unwrap();
        assert!(!sleeps || queue.is_woken());
    });
}

#[test]
fn loom_a_sender_does_not_sleep_through_room() {
    loom::model(|| {
        let channel = channel();
        channel.publish(channel.observe(), 8).unwrap();
        let shared = Arc::new((channel, Queue::new()));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (channel, queue) = &*shared;
                if channel.consume(at(8)) {
                    channel.unblock();
                    queue.wake();
                }
            })
        };
        let (channel, queue) = &*shared;
        // The order of the module: the place in the queue first.
        queue.enter();
        channel.block();
        let sleeps = channel.consumed() == at(0);
        reader.join().unwrap();
        assert!(!sleeps || queue.is_woken());
    });
}

#[test]
fn loom_a_sender_that_blocks_again_is_not_forgotten() {
    loom::model(|| {
        let channel = channel();
        channel.publish(channel.observe(), 8).unwrap();
        // Somebody else has already said that there is no room.
        channel.block();
        let shared = Arc::new((channel, Queue::new()));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (channel, queue) = &*shared;
                for position in [at(4), at(8)] {
                    if channel.consume(position) {
                        channel.unblock();
                        queue.wake();
                    }
                }
            })
        };
        let (channel, queue) = &*shared;
        queue.enter();
        channel.block();
        let sleeps = channel.consumed() != at(8);
        reader.join().unwrap();
        assert!(!sleeps || queue.is_woken());
    });
}

#[test]
fn loom_bytes_are_read_as_written_and_rewritten_after_they_were_read() {
    loom::model(|| {
        // A ring of one byte, used twice.
        let shared = Arc::new((channel(), UnsafeCell::new(0_u8)));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (channel, byte) = &*shared;
                byte.with_mut(|byte| unsafe { *byte = 1 });
                let word = channel.publish(channel.observe(), 1).unwrap();
                if channel.consumed() == at(1) {
                    byte.with_mut(|byte| unsafe { *byte = 2 });
                    channel.publish(word, 1).unwrap();
                }
            })
        };
        let (channel, byte) = &*shared;
        let mut expected = 1;
        let mut consumed = at(0);
        for _ in 0..2 {
            if channel.observe().unread(consumed) == Some(1) {
                byte.with(|byte| assert_eq!(unsafe { *byte }, expected));
                expected += 1;
                consumed = consumed.advance(1);
                channel.consume(consumed);
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn loom_nothing_appears_behind_the_end_of_stream() {
    loom::model(|| {
        let shared = Arc::new(channel());
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || send(&shared).is_ok())
        };
        shared.raise(|_| Flags::TX_SHUT);
        // What a reader sees from here on is the end, once and for all.
        let seen = shared.observe();
        let sent = sender.join().unwrap();
        let last = shared.observe();
        assert_eq!(seen, last);
        assert_eq!(last.position(), at(usize::from(sent)));
        assert_eq!(read_end(last), ReadEnd::Eof);
    });
}

#[test]
fn loom_a_close_knows_whether_data_is_unread() {
    loom::model(|| {
        let shared = Arc::new(channel());
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || send(&shared))
        };
        let mut flags = Flags::NONE;
        let before = shared.raise(|word| {
            flags = reader_closes(word, at(0), false);
            flags
        });
        let closed = outcome(before, flags);
        match sender.join().unwrap() {
            // The byte was there: it was seen as unread.
            Ok(()) => assert_eq!(closed, Closed::Reset),
            // It was refused: nobody has counted it.
            Err(gate) => {
                assert_eq!(gate, SendGate::ReaderGone);
                assert_eq!(closed, Closed::Clean);
            }
        }
    });
}

#[test]
fn loom_a_reader_finds_the_end_of_a_ring_before_it_passes_it() {
    loom::model(|| {
        const OPEN: usize = usize::MAX;
        let shared = Arc::new((channel(), Atomic::<usize>::new(OPEN)));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (channel, end) = &*shared;
                let word = channel.publish(channel.observe(), 1).unwrap();
                end.store(word.position().into_raw(), Release);
                channel.publish(word, 1).unwrap();
            })
        };
        let (channel, end) = &*shared;
        let unread = channel.observe().unread(at(0)).unwrap();
        let end = end.load(kernel::sync::atomic::Acquire);
        if unread > 1 {
            assert_eq!(end, at(1).into_raw());
        }
        sender.join().unwrap();
    });
}
