// SPDX-License-Identifier: GPL-2.0

//! The words through which the two ends of a direction see each other's progress.
//!
//! They stand for the CDC messages of SMC-D (RFC 7609, 4.5 and appendix A.4): what a message would
//! carry is stored in place, because the other end reads the same memory.
//!
//! # Who writes what
//!
//! | word       | position: written by    | flags: added by            |
//! |------------|-------------------------|----------------------------|
//! | `control`  | the sender, [`publish`] | anybody, [`raise`]         |
//! | `consumed` | the reader, [`consume`] |                            |
//! | `blocked`  | the sender (set), the reader (cleared)              ||
//!
//! [`publish`]: Channel::publish
//! [`raise`]: Channel::raise
//! [`consume`]: Channel::consume
//!
//! # Ordering
//!
//! 1. Bytes are stored before [`publish`] (Release), and loaded after [`observe`] (Acquire).
//! 2. Bytes are loaded before [`consume`] (Release), and overwritten after [`consumed`] (Acquire).
//! 3. A reader that is about to sleep queues itself, fences and calls [`observe`]; the sender
//!    publishes, fences and looks at the queue. One of the two sees the other. Both fences are the
//!    wait queue's (`skwq_has_sleeper()`), the words here only take part.
//! 4. A sender without room calls [`block`] (store, fence) and then looks at [`consumed`] again;
//!    the reader calls [`consume`] (store, fence) and then looks at `blocked`. One of the two sees
//!    the other.
//!
//! [`observe`]: Channel::observe
//! [`consumed`]: Channel::consumed
//! [`block`]: Channel::block

#![deny(unsafe_code)]

pub(crate) mod cursor;

use kernel::sync::{
    atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    barrier::smp_mb, //
};

use self::cursor::{
    Control,
    Flags,
    Position, //
};

/// A value that has a cache line for itself, so that its writer does not slow down others.
#[repr(align(64))]
struct CacheLine<T>(T);

/// The shared words of one direction.
///
/// # Invariants
///
/// `control` holds a [`Control`], `consumed` a [`Position`]; flags are never taken away, and
/// `control` is never behind `consumed`.
pub(crate) struct Channel {
    control: CacheLine<Atomic<usize>>,
    /// Written by the reader for every read; `blocked` is looked at by it every time.
    consumed: CacheLine<Consumed>,
}

struct Consumed {
    position: Atomic<usize>,
    blocked: Atomic<bool>,
}

impl Channel {
    /// The words of a direction that starts at `at`.
    pub(crate) fn new(at: Position) -> Self {
        // INVARIANT: Everything written has been read, and no flag is set.
        Self {
            control: CacheLine(Atomic::new(
                Control::new().advance(at.into_raw()).into_raw(),
            )),
            consumed: CacheLine(Consumed {
                position: Atomic::new(at.into_raw()),
                blocked: Atomic::new(false),
            }),
        }
    }

    /// What the sender has published. Pairs with [`Self::publish`] and [`Self::raise`].
    pub(crate) fn observe(&self) -> Control {
        Control::from_raw(self.control.0.load(Acquire))
    }

    /// Publishes `bytes` more, unless a flag was raised since the caller saw `seen`.
    ///
    /// Only the sender calls this, serialised by its own lock. Comparing makes the word the only
    /// judge: bytes cannot appear behind an end of stream somebody has read, nor for a reader that
    /// has closed, however long the sender was stalled between looking and publishing.
    ///
    /// # Errors
    ///
    /// The word found, when it is not `seen`; nothing has been published then.
    pub(crate) fn publish(&self, seen: Control, bytes: usize) -> Result<Control, Control> {
        let next = seen.advance(bytes);
        match self
            .control
            .0
            .cmpxchg(seen.into_raw(), next.into_raw(), Release)
        {
            Ok(_) => Ok(next),
            Err(found) => Err(Control::from_raw(found)),
        }
    }

    /// Adds flags that `choose` derives from the word; gives the word before.
    ///
    /// Decision and flags are one atomic step: `choose` is asked again when the word moved.
    pub(crate) fn raise(&self, mut choose: impl FnMut(Control) -> Flags) -> Control {
        let mut seen = self.control.0.load(Relaxed);
        loop {
            let before = Control::from_raw(seen);
            let after = before.raise(choose(before));
            match self.control.0.cmpxchg(seen, after.into_raw(), Full) {
                Ok(_) => return before,
                Err(found) => seen = found,
            }
        }
    }

    /// Up to where the reader has read. Pairs with [`Self::consume`].
    pub(crate) fn consumed(&self) -> Position {
        Position::from_raw(self.consumed.0.position.load(Acquire))
    }

    /// Gives everything before `to` back to the sender.
    ///
    /// Only the reader calls this, serialised by its own lock. Returns whether the sender has said
    /// that it waits for room; who gets `true` looks at the room there is now, and either calls
    /// [`Self::unblock`] and wakes the sender, or leaves it to the next read.
    pub(crate) fn consume(&self, to: Position) -> bool {
        self.consumed.0.position.store(to.into_raw(), Release);
        // Store the position before looking at `blocked`: pairs with the fence in `block()`.
        smp_mb(Full);
        self.consumed.0.blocked.load(Relaxed)
    }

    /// Says that the sender waits for room. The caller looks at [`Self::consumed`] afterwards.
    pub(crate) fn block(&self) {
        self.consumed.0.blocked.store(true, Relaxed);
        // Store `blocked` before looking at the position: pairs with the fence in `consume()`.
        smp_mb(Full);
    }

    /// Whether the sender has said that it waits for room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.consumed.0.blocked.load(Relaxed)
    }

    /// Takes the sender's word back, before it is woken.
    pub(crate) fn unblock(&self) {
        self.consumed.0.blocked.store(false, Relaxed);
    }
}
