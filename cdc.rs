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

mod channel;
pub(crate) mod cursor;

pub(crate) use self::channel::Channel;
