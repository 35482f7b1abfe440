// SPDX-License-Identifier: GPL-2.0

//! `TCP_DEFER_ACCEPT`: a listener shows a child with its first data.
//!
//! TCP drops the ACK that completes a handshake without data, so that there is no child before
//! (`tcp_check_req()`). A client with rings never sends data over TCP, so TCP must not know of the
//! option: it makes children at once, and the listener keeps them here until they would have been
//! born, i.e. until they have data, or the client has finished sending, or the time is over after
//! which TCP would have taken the ACK of a repeated SYN-ACK. One that is reset before is never
//! shown, for TCP would have forgotten its request.
//!
//! Children of clients that shake hands over the wire are shown at once: they have data.
//!
//! # Invariants
//!
//! Children here have no owner but the listener, whose wait queue theirs is: everything that makes
//! one of them ready wakes whoever waits on the listener, who then looks again. They are gone before
//! the listener's wait queue.
//!
//! # Locks
//!
//! `Deferred::queue` (mutex) comes before all others. It is held over looks at children and while
//! they are taken from TCP, never asleep waiting for something. Children are dropped outside.

#![deny(unsafe_code)]

use super::{
    listen::{
        Arrival,
        Link, //
    },
    SmcSock, //
};
use crate::kapi::{
    alarm::Alarm,
    proto::Op,
    sock::TcpState, //
};
use kernel::{
    ffi::c_int,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex, //
    },
    time::Delta,
};

/// The time before the first repetition of a SYN-ACK, `TCP_TIMEOUT_INIT`, in seconds.
const FIRST: c_int = 1;
/// The most time between two repetitions, `TCP_RTO_MAX`, in seconds.
const MOST: c_int = 120;

/// How long to wait for data, as TCP keeps it: in repetitions of the SYN-ACK.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Patience(u32);

impl Patience {
    /// The first number of repetitions that takes at least so many seconds (`secs_to_retrans()`).
    pub(super) fn from_secs(seconds: c_int) -> Self {
        let (mut repetitions, mut interval, mut period) = (0, FIRST, FIRST);
        if seconds > 0 {
            repetitions = 1;
            while seconds > period && repetitions < 255 {
                repetitions += 1;
                interval = (interval * 2).min(MOST);
                period += interval;
            }
        }
        Self(repetitions)
    }

    /// How many seconds that is (`retrans_to_secs()`).
    pub(super) fn secs(self) -> c_int {
        let mut interval = FIRST;
        (0..self.0).fold(0, |period, _| {
            let next = period + interval;
            interval = (interval * 2).min(MOST);
            next
        })
    }
}

/// Children that wait.
struct Queue {
    waiting: KVec<Arrival>,
    /// Rings when the patience with the first of them is at an end.
    alarm: Option<Alarm>,
}

/// A listener's children without data.
#[pin_data]
pub(super) struct Deferred {
    patience: Atomic<u32>,
    /// Whether there may be children here; stays set.
    used: Atomic<bool>,
    #[pin]
    queue: Mutex<Queue>,
}

/// What is to be done with a child.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Verdict {
    /// It is shown.
    Ready,
    /// It was reset before it had data.
    Gone,
    /// It waits for so long at most, in milliseconds.
    Waits(u32),
}

impl Deferred {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            patience: Atomic::new(0),
            used: Atomic::new(false),
            queue <- new_mutex!(Queue { waiting: KVec::new(), alarm: None }, "Deferred::queue"),
        })
    }

    /// `TCP_DEFER_ACCEPT` of the socket.
    pub(super) fn patience(&self) -> Patience {
        Patience(self.patience.load(Relaxed))
    }

    /// Sets `TCP_DEFER_ACCEPT`.
    pub(super) fn set_patience(&self, patience: Patience) {
        self.patience.store(patience.0, Relaxed);
    }

    /// Whether children go through here.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Relaxed) || self.patience() != Patience(0)
    }

    /// Resets all children, of a listener that goes away.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(super) fn drop_all(&self) {
        if !self.used.load(Relaxed) {
            return;
        }
        let (children, _alarm) = {
            let mut queue = self.queue.lock();
            (core::mem::take(&mut queue.waiting), queue.alarm.take())
        };
        for child in children {
            child.reset();
        }
    }

    fn judge(&self, arrival: &Arrival) -> Verdict {
        let inner = arrival.child.sk();
        let (unread, is_over) = match &arrival.link {
            Link::Smcd(end) => (end.readable(inner) > 0, end.explains_fin()),
            Link::Wire(_) => return Verdict::Ready,
            Link::Tcp { .. } => (inner.tcp_has_data(), false),
        };
        let is_reset = match &arrival.link {
            Link::Smcd(end) if end.is_dead() => true,
            _ => inner.tcp_state() == TcpState::Close,
        };
        let patience = u32::try_from(self.patience().secs())
            .unwrap_or(0)
            .saturating_mul(1000);
        let age = inner.tcp_msecs_since_data();
        if unread {
            Verdict::Ready
        } else if is_reset {
            Verdict::Gone
        } else if is_over || inner.tcp_state() != TcpState::Established || age >= patience {
            Verdict::Ready
        } else {
            Verdict::Waits(patience - age)
        }
    }
}

impl SmcSock {
    /// Whether a child can be accepted now.
    pub(super) fn has_deferred(op: &Op<'_, Self>) -> bool {
        Self::look_at_deferred(op, |_, ready| ready.is_some()).unwrap_or(false)
    }

    /// The next child that can be accepted now, and whether it was the last one.
    ///
    /// # Errors
    ///
    /// * `EAGAIN`: there is none.
    /// * those of TCP's `accept()`.
    pub(super) fn take_deferred(op: &Op<'_, Self>) -> Result<Arrival> {
        Self::look_at_deferred(op, |waiting, ready| {
            ready.and_then(|index| waiting.remove(index).ok())
        })?
        .ok_or(EAGAIN)
    }

    /// Takes what has arrived from TCP, and looks for the first child that can be accepted; `f`
    /// gets all of them, and its index.
    fn look_at_deferred<R>(
        op: &Op<'_, Self>,
        f: impl FnOnce(&mut KVec<Arrival>, Option<usize>) -> R,
    ) -> Result<R> {
        let deferred = &op.deferred;
        let mut gone = KVec::new();
        let result = {
            let mut queue = deferred.queue.lock();
            deferred.used.store(true, Relaxed);
            Self::take_arrivals(op, &mut queue.waiting)?;
            let mut ready = None;
            let mut wait = None;
            let mut index = 0;
            while let Some(arrival) = queue.waiting.get(index) {
                match deferred.judge(arrival) {
                    Verdict::Ready => {
                        ready.get_or_insert(index);
                    }
                    Verdict::Waits(msecs) => {
                        wait = Some(wait.map_or(msecs, |wait: u32| wait.min(msecs)));
                    }
                    Verdict::Gone => {
                        if let Ok(child) = queue.waiting.remove(index) {
                            // Without memory it is dropped here, which is slower, not wrong.
                            let _ = gone.push(child, GFP_KERNEL);
                            continue;
                        }
                    }
                }
                index += 1;
            }
            // Out of memory: whoever waits sees the child when it has data.
            queue.alarm =
                wait.and_then(|msecs| Alarm::set(op.sk, Delta::from_millis(msecs.into())).ok());
            f(&mut queue.waiting, ready)
        };
        drop(gone);
        Ok(result)
    }

    /// Moves children from TCP's accept queue to ours.
    ///
    /// # Errors
    ///
    /// Those of TCP's `accept()`, unless there are children here already.
    fn take_arrivals(op: &Op<'_, Self>, waiting: &mut KVec<Arrival>) -> Result {
        let tcp = op.tcp()?;
        // What is here would be requests, which the backlog limits just as well.
        while waiting.len() <= tcp.sk().max_backlog() {
            let arrival = if tcp.accept_queue_empty() && tcp.sk().tcp_state() == TcpState::Listen {
                Err(EAGAIN)
            } else {
                waiting
                    .reserve(1, GFP_KERNEL)
                    .map_err(Error::from)
                    .and_then(|()| tcp.accept(op.sk.is_kern()))
            };
            let child = match arrival {
                Ok((child, _)) => child,
                Err(err) if err == EAGAIN || !waiting.is_empty() => return Ok(()),
                Err(err) => return Err(err),
            };
            // Its events wake whoever waits for it. What has happened before is seen by who looks
            // afterwards.
            child.share_wait_queue(op.socket);
            let arrival = Self::classify(op, child)?;
            if let Link::Smcd(end) = &arrival.link {
                end.set_herald(op.sk);
            }
            waiting.push(arrival, GFP_KERNEL)?;
        }
        Ok(())
    }
}
