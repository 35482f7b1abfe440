// SPDX-License-Identifier: GPL-2.0

//! The shared words of one direction.

#![deny(unsafe_code)]

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

use super::cursor::{
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
            control: CacheLine(Atomic::<usize>::new(
                Control::new().advance(at.into_raw()).into_raw(),
            )),
            consumed: CacheLine(Consumed {
                position: Atomic::<usize>::new(at.into_raw()),
                blocked: Atomic::<bool>::new(false),
            }),
        }
    }

    /// What the sender has published. Pairs with [`Self::publish`] and [`Self::raise`].
    #[inline]
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
    #[inline(always)]
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
    #[inline]
    pub(crate) fn consumed(&self) -> Position {
        Position::from_raw(self.consumed.0.position.load(Acquire))
    }

    /// Gives everything before `to` back to the sender.
    ///
    /// Only the reader calls this, serialised by its own lock. Returns whether the sender has said
    /// that it waits for room; who gets `true` looks at the room there is now, and either calls
    /// [`Self::unblock`] and wakes the sender, or leaves it to the next read.
    #[inline(always)]
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
