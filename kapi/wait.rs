// SPDX-License-Identifier: GPL-2.0

//! Sleeping on a socket's wait queue.
//!
//! C headers: [`include/linux/wait.h`](srctree/include/linux/wait.h),
//! [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    sock::Sk, //
};
use core::marker::PhantomData;
use kernel::{
    ffi::{
        c_int,
        c_long, //
    },
    prelude::*,
    sync::{
        atomic::Full,
        barrier::smp_mb, //
    },
    types::Opaque, //
};

/// What is left of a socket's time-out, in jiffies.
///
/// Zero means: do not wait. `MAX_SCHEDULE_TIMEOUT` means: for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timeout(pub(super) c_long);

impl Timeout {
    /// Not waiting at all.
    pub(crate) const NONE: Self = Self(0);

    /// Waiting until something happens.
    pub(crate) const FOREVER: Self = Self(bindings::MAX_SCHEDULE_TIMEOUT);

    /// A time-out of some milliseconds, at least one jiffy.
    pub(crate) fn from_msecs(msecs: u32) -> Self {
        let jiffies = kernel::time::msecs_to_jiffies(msecs);
        Self(c_long::try_from(jiffies).unwrap_or(bindings::MAX_SCHEDULE_TIMEOUT))
    }

    /// This time-out, or `most` when that is shorter.
    pub(crate) fn at_most(self, most: Self) -> Self {
        Self(self.0.min(most.0))
    }

    /// What is left of this time-out after a wait for `part` of it that had `left` left.
    pub(crate) fn after(self, part: Self, left: Self) -> Self {
        if self == Self::FOREVER {
            return self;
        }
        Self((self.0 - (part.0 - left.0)).max(0))
    }

    /// Whether no time is left.
    pub(crate) fn expired(self) -> bool {
        self.0 <= 0
    }
}

/// The error of a wait that a pending signal ends: `ERESTARTSYS` where the call may be restarted
/// (no time-out was asked for), else `EINTR`.
///
/// Follows `sock_intr_errno()`.
pub(crate) fn signal_error(timeout: Timeout) -> Option<Error> {
    // SAFETY: Looks at the running task only.
    if !unsafe { bindings::signal_pending_current() } {
        return None;
    }
    // SAFETY: A pure computation on its argument.
    Some(Error::from_errno(unsafe {
        bindings::sock_intr_errno(timeout.0)
    }))
}

/// Sleeps on `sk`'s wait queue while `is_idle` says that there is nothing to do: at most once, until
/// woken, signalled or out of time. Returns the time left; the caller looks again.
///
/// `is_idle` is asked once, after the task was queued and a full barrier, so that it sees whatever
/// was done by someone who did not see the task there ([`Waiter`]). A wake-up takes the task off the
/// queue, so that the next ones, until it runs, find nobody and cost nothing.
///
/// # Context
///
/// Process context. `is_idle` must not sleep: the task is not `TASK_RUNNING` any more.
#[inline]
pub(crate) fn sleep_while(sk: &Sk, timeout: Timeout, is_idle: impl FnOnce() -> bool) -> Timeout {
    let entry = Opaque::<bindings::wait_queue_entry>::uninit();
    // SAFETY: `sk` has a socket with a wait queue while a system call uses it.
    let head = unsafe { bindings::sk_sleep(sk.as_ptr()) };
    // SAFETY: `entry` is memory for one, and stays where it is until the end of this function.
    unsafe { bindings::init_wait_entry(entry.get(), 0) };
    let interruptible = c_int::from_ne_bytes(bindings::TASK_INTERRUPTIBLE.to_ne_bytes());
    // SAFETY: `head` is the socket's queue, and `entry` was just initialised.
    unsafe { bindings::prepare_to_wait(head, entry.get(), interruptible) };
    let left = if is_idle() {
        // SAFETY: Process context.
        Timeout(unsafe { bindings::schedule_timeout(timeout.0) })
    } else {
        timeout
    };
    // SAFETY: As above. Afterwards nobody knows the entry.
    unsafe { bindings::finish_wait(head, entry.get()) };
    left
}

/// A task's place in a socket's wait queue; lives pinned on the stack (`stack_pin_init!`).
///
/// Being constructed, it has executed a full barrier after the entry was queued: a condition
/// tested from then on is either seen true, or whoever makes it true afterwards finds the entry
/// (`skwq_has_sleeper()`, in every wake-up of a socket, is the other half).
///
/// # Invariants
///
/// `entry` is queued on `head`, which belongs to a socket whose file the running system call
/// holds open.
///
/// # Context
///
/// Process context.
#[pin_data(PinnedDrop)]
pub(crate) struct Waiter<'a> {
    #[pin]
    entry: Opaque<bindings::wait_queue_entry>,
    head: *mut bindings::wait_queue_head,
    _sk: PhantomData<&'a Sk>,
}

impl<'a> Waiter<'a> {
    /// Queues the running task, beside all others that wait on the socket.
    pub(crate) fn new(sk: &'a Sk) -> impl PinInit<Self> + use<'a> {
        Self::queued(sk, bindings::add_wait_queue, 0)
    }

    /// Queues the running task as one of those of which a wake-up takes a single one.
    ///
    /// Whoever is woken has to act on the condition, or the wake-up is lost to the others.
    pub(crate) fn new_exclusive(sk: &'a Sk) -> impl PinInit<Self> + use<'a> {
        Self::queued(
            sk,
            bindings::add_wait_queue_exclusive,
            bindings::WQ_FLAG_EXCLUSIVE,
        )
    }

    fn queued(
        sk: &'a Sk,
        add: unsafe extern "C" fn(*mut bindings::wait_queue_head, *mut bindings::wait_queue_entry),
        flags: u32,
    ) -> impl PinInit<Self> + use<'a> {
        // SAFETY: `sk` has a socket with a wait queue while a system call uses it.
        let head = unsafe { bindings::sk_sleep(sk.as_ptr()) };
        pin_init!(Self {
            // INVARIANT: `add` queues the entry, which is pinned and leaves the queue on drop.
            entry <- Opaque::ffi_init(move |entry: *mut bindings::wait_queue_entry| {
                let new = bindings::wait_queue_entry {
                    flags,
                    // SAFETY: There is always a running task in process context.
                    private: unsafe { bindings::get_current() }.cast(),
                    func: Some(bindings::woken_wake_function),
                    ..Default::default()
                };
                // SAFETY: `entry` is the memory being initialised.
                unsafe { entry.write(new) };
                // SAFETY: `head` is the socket's queue, and `entry` was just initialised.
                unsafe { add(head, entry) };
                smp_mb(Full);
            }),
            head,
            _sk: PhantomData,
        })
    }

    /// Sleeps until woken, signalled or out of time, and returns the time left.
    ///
    /// A wake-up since the last return, or since the entry was queued, makes it return at once.
    /// The caller tests its condition again afterwards.
    pub(crate) fn wait(self: Pin<&mut Self>, timeout: Timeout) -> Timeout {
        let interruptible = bindings::TASK_INTERRUPTIBLE;
        // SAFETY: By the type invariant the entry is initialised and queued with
        // `woken_wake_function`.
        Timeout(unsafe { bindings::wait_woken(self.entry.get(), interruptible, timeout.0) })
    }
}

#[pinned_drop]
impl PinnedDrop for Waiter<'_> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the entry is queued on `head`, which still exists.
        unsafe { bindings::remove_wait_queue(self.head, self.entry.get()) };
    }
}
