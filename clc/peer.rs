// SPDX-License-Identifier: GPL-2.0

//! The wire handshake of one TCP connection: the owner of a
//! [`Machine`](super::wire::machine::Machine).
//!
//! Where both ends have set the SMC option and the local handshake did not pair
//! them, a [`Peer`] leads the conversation over the TCP stream. Events of the TCP
//! socket and a timer start its work item, which does what can be done at once
//! and never waits for the other end. That does not depend on a system call: a
//! server's child converses while it lies in its listener's accept queue, and
//! whoever accepts it before the end gets a socket that is not decided yet.
//!
//! # Meeting
//!
//! The server names a secret token in its accept. A client of the same kernel
//! finds the [`Rendezvous`] behind the token, once, and makes the connection of
//! which both take their ends. Clients of other kernels never get a token: their
//! device is not ours, and they are declined.
//!
//! # Locks
//!
//! `Peer::talk` is a mutex, taken with no other lock held, and in it
//! `Rendezvous::meeting` or the table of rendezvous, and locks of the TCP socket.
//! Softirqs only set the work item going.

#![deny(unsafe_code)]

mod parked;
mod rendezvous;

pub(crate) use self::{
    parked::{
        child_born,
        Parked, //
    },
    rendezvous::Wire, //
};

use self::{
    parked::Pressure,
    rendezvous::Rendezvous, //
};
use super::wire::{
    accept::Smcd,
    decline::Reason,
    machine::{
        Action,
        Event,
        Machine,
        Offer,
        Terms,
        Want,
        WAIT_SECONDS, //
    },
    Packet, //
};
use crate::{
    conn::Endpoint,
    kapi::{
        random,
        sock::Sk,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        tcp::child::ChildOwner,
        workqueue::expedite, //
    },
    Lo,
    LO, //
};
use kernel::{
    alloc::Flags,
    impl_has_delayed_work, new_delayed_work, new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SetOnce, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        DelayedWork,
        Queue,
        WorkItem, //
    },
};

/// How long a message may take.
const WAIT: Delta = Delta::from_secs(WAIT_SECONDS);

/// The size that is named to a peer, compressed: rings begin with 64 KiB and grow on demand.
const SIZE: u8 = 2;

/// The number that is named as the link group's. Nobody looks it up: what a connection belongs to
/// is known only when both ends are.
const LINK_GROUP: u32 = 1;

/// How a handshake ended.
pub(crate) enum Outcome {
    /// The connection is SMC-D, and this is the socket's end of it.
    Smcd(Endpoint),
    /// The connection is TCP.
    Tcp {
        /// The reason.
        reason: Reason,
        /// The peer's code, if it declined.
        diagnosis: u32,
    },
    /// The connection is dead.
    Failed,
    /// Somebody else has been told, or nobody wants to know any more.
    Gone,
}

/// The wire handshake of one TCP socket.
#[pin_data]
pub(crate) struct Peer {
    sk: ARef<Sk>,
    /// Whether there is an outcome.
    over: Atomic<bool>,
    /// Where it counts until then.
    pressure: SetOnce<Arc<Pressure>>,
    /// The socket that waits for the outcome, once there is one.
    #[pin]
    owner: SpinLockBh<Option<ARef<Sk>>>,
    #[pin]
    talk: Mutex<Talk>,
    #[pin]
    work: DelayedWork<Peer>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Peer { self.work }
}

/// The state of a handshake.
struct Talk {
    machine: Machine,
    /// How the client begins, until it has.
    beginning: Option<Action>,
    /// When the message that is awaited was asked for.
    since: Instant<Monotonic>,
    /// The server's invitation.
    invitation: Option<(u64, Arc<Rendezvous>)>,
    /// The client's end, until the confirm is sent.
    end: Option<Endpoint>,
    outcome: Option<Outcome>,
}

impl Peer {
    fn new(
        sk: &Sk,
        owner: Option<&Sk>,
        machine: Machine,
        beginning: Option<Action>,
        flags: Flags,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                sk: sk.into(),
                over: Atomic::new(false),
                pressure: SetOnce::new(),
                owner <- new_spinlock_bh!(owner.map(ARef::from), "Peer::owner"),
                talk <- new_mutex!(Talk {
                    machine,
                    beginning,
                    since: Instant::now(),
                    invitation: None,
                    end: None,
                    outcome: None,
                }, "Peer::talk"),
                work <- new_delayed_work!("Peer::work"),
            }),
            flags,
        )
    }

    /// The handshake of a client's TCP socket, which is connected. It begins with [`Self::kick`].
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// As `flags` say.
    pub(crate) fn client(wire: &Wire, sk: &Sk, owner: &Sk, flags: Flags) -> Result<Arc<Self>> {
        let (machine, beginning) = Machine::client(wire.host(), barred(sk));
        Self::new(sk, Some(owner), machine, Some(beginning), flags)
    }

    /// The handshake of a listener's child.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// As `flags` say.
    pub(crate) fn server(wire: &Wire, sk: &Sk, flags: Flags) -> Result<Arc<Self>> {
        let machine = Machine::server(wire.host(), barred(sk));
        Self::new(sk, None, machine, None, flags)
    }

    /// The socket that is to be woken when the handshake is over.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn adopt(&self, owner: &Sk) {
        *self.owner.lock() = Some(owner.into());
    }

    /// Looks at the TCP socket soon, and at all that has happened to it.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn kick(this: &Arc<Self>, queue: &Queue) {
        expedite::<_, 0>(queue, this.clone());
    }

    /// Whether there is an outcome.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the exchange in `conclude`.
        self.over.load(Acquire)
    }

    /// There is an outcome from now on.
    fn conclude(&self) {
        if !self.over.xchg(true, Full) {
            if let Some(pressure) = self.pressure.as_ref() {
                pressure.leave();
            }
        }
    }

    /// The outcome, as soon as there is one. The end of a connection is handed out once.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        if !self.is_over() {
            return None;
        }
        let mut talk = self.talk.lock();
        match &talk.outcome {
            None => None,
            Some(Outcome::Smcd(_)) => talk.outcome.replace(Outcome::Gone),
            &Some(Outcome::Tcp { reason, diagnosis }) => Some(Outcome::Tcp { reason, diagnosis }),
            Some(Outcome::Failed) => Some(Outcome::Failed),
            Some(Outcome::Gone) => Some(Outcome::Gone),
        }
    }

    /// Whether the handshake has ended with the connection.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_over() && matches!(self.talk.lock().outcome, Some(Outcome::Failed))
    }

    /// Ends the handshake, for a socket that is released. A partner that counts on it gets a
    /// reset.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn abandon(this: &Arc<Self>) {
        // Dropped outside the locks.
        let _owner = this.owner.lock().take();
        let _past = {
            let mut talk = this.talk.lock();
            let invitation = talk.invitation.take();
            let past = (talk.end.take(), talk.outcome.replace(Outcome::Gone));
            drop(talk);
            withdraw(invitation);
            past
        };
        this.conclude();
        // The timer must not outlive the queue, which does not wait for timers when it ends.
        if let Some(lo) = LO.get() {
            Self::kick(this, &lo.queue);
        }
    }

    /// Resets a child that nobody will accept.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    fn kill(this: &Arc<Self>) {
        Self::abandon(this);
        this.sk.stream_reset(ECONNRESET);
        let _parked = this.sk.unpark::<Self>();
    }

    /// Does what can be done now.
    fn advance(&self, talk: &mut Talk, lo: &Lo) {
        if let Some(action) = talk.beginning.take() {
            self.follow(talk, lo, action);
        }
        let mut buf = [0; 128];
        while talk.outcome.is_none() {
            let want = talk.machine.want();
            let glance = match want {
                Want::Peek(most) => self.sk.stream_peek(head(&mut buf, most)),
                Want::Read(most) => self.sk.stream_take(head(&mut buf, most)),
                Want::Nothing => return,
            };
            let bytes = buf.get(..glance.len).unwrap_or_default();
            match want {
                Want::Peek(_) => self.happens(talk, lo, Event::Peeked(bytes)),
                _ if bytes.is_empty() => {}
                _ => self.happens(talk, lo, Event::Read(bytes)),
            }
            if talk.outcome.is_some() || talk.machine.want() != want {
                continue;
            }
            // Nothing new has come, so this is the end of it.
            if let Some(err) = glance.error {
                self.happens(talk, lo, Event::Failed(err));
            } else if glance.ended {
                self.happens(talk, lo, Event::Closed);
            } else {
                break;
            }
        }
        if talk.outcome.is_none() && talk.since.elapsed() >= WAIT {
            self.happens(talk, lo, Event::Timeout);
        }
    }

    /// Tells the machine of an event and does what it says.
    fn happens(&self, talk: &mut Talk, lo: &Lo, event: Event<'_>) {
        let action = talk.machine.step(event);
        self.follow(talk, lo, action);
    }

    /// Does what the machine says.
    fn follow(&self, talk: &mut Talk, lo: &Lo, mut action: Action) {
        loop {
            let next = match action {
                Action::Wait => return,
                Action::Send(packet) => match self.send(lo, &packet) {
                    Ok(()) => {
                        talk.since = Instant::now();
                        return;
                    }
                    Err(err) => Event::Failed(err),
                },
                Action::Locate(subnets) => Event::Located(
                    subnets
                        .iter()
                        .any(|(subnet, len)| self.sk.has_subnet(subnet, len)),
                ),
                Action::Prepare(terms) => self.prepare(talk, lo, &terms),
                Action::Claim(accept) => self.claim(talk, lo, &accept),
                Action::Established { send } => {
                    let sent = send.map_or(Ok(()), |packet| self.send(lo, &packet));
                    // The client has its end; the server's is there if the client took its own,
                    // whatever the confirm says.
                    let end = match talk.invitation.take() {
                        Some((_, rendezvous)) => rendezvous.server_end(),
                        None => talk.end.take(),
                    };
                    match (sent, end) {
                        (Ok(()), Some(end)) => talk.outcome = Some(Outcome::Smcd(end)),
                        (Ok(()), None) => self.fail(talk, EPROTO),
                        (Err(err), _) => self.fail(talk, err),
                    }
                    return;
                }
                Action::Fallback {
                    send,
                    reason,
                    peer_diagnosis: diagnosis,
                } => {
                    withdraw(talk.invitation.take());
                    match send.map_or(Ok(()), |packet| self.send(lo, &packet)) {
                        Ok(()) => talk.outcome = Some(Outcome::Tcp { reason, diagnosis }),
                        Err(err) => self.fail(talk, err),
                    }
                    return;
                }
                Action::Fail(err) => {
                    self.fail(talk, err);
                    return;
                }
            };
            action = talk.machine.step(next);
        }
    }

    fn send(&self, lo: &Lo, packet: &Packet) -> Result {
        self.sk.stream_put(packet.as_bytes(), &lo.wire.stand)
    }

    /// Makes a server's invitation.
    fn prepare(&self, talk: &mut Talk, lo: &Lo, terms: &Terms) -> Event<'static> {
        match lo.wire.invite(terms, self.sk.net().cookie()) {
            Ok((token, rendezvous)) => {
                talk.invitation = Some((token, rendezvous));
                Event::Ready(offer(token))
            }
            Err(err) => Event::Refused(Reason::of_failure(err)),
        }
    }

    /// Follows a server's invitation.
    fn claim(&self, talk: &mut Talk, lo: &Lo, accept: &Smcd) -> Event<'static> {
        let end = lo
            .wire
            .find(accept.dmb.token)
            .ok_or(ENOENT)
            .and_then(|rendezvous| rendezvous.claim(&lo.groups, &self.sk));
        match end {
            Ok(end) => {
                talk.end = Some(end);
                Event::Ready(offer(random::get_random_u64()))
            }
            // A token of nobody counts as memory, as a DMB does that C cannot attach to.
            Err(err) => Event::Refused(Reason::of_failure(err)),
        }
    }

    /// Resets the connection.
    fn fail(&self, talk: &mut Talk, err: Error) {
        withdraw(talk.invitation.take());
        talk.end = None;
        self.sk.stream_reset(err);
        talk.outcome = Some(Outcome::Failed);
    }
}

/// What keeps a socket from SMC-D, whatever its peer is.
///
/// Follows `using_ipsec()`. Both ends of the local handshake look at it, too.
pub(super) fn barred(sk: &Sk) -> Option<Reason> {
    sk.has_ipsec_policy().then_some(Reason::Ipsec)
}

/// Ends a server's invitation. A client that has followed it gets a reset.
fn withdraw(invitation: Option<(u64, Arc<Rendezvous>)>) {
    if let (Some((token, rendezvous)), Some(lo)) = (invitation, LO.get()) {
        let _found = lo.wire.find(token);
        drop(rendezvous.server_end());
    }
}

/// The beginning of a buffer, at most so long.
fn head(buf: &mut [u8], most: usize) -> &mut [u8] {
    let len = buf.len().min(most);
    buf.get_mut(..len).unwrap_or_default()
}

/// What is named to the peer beside a token.
fn offer(token: u64) -> Offer {
    Offer {
        token,
        size: SIZE,
        link_group: LINK_GROUP,
    }
}

impl WorkItem for Peer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(lo) = LO.get() else {
            return;
        };
        let mut talk = this.talk.lock();
        if talk.outcome.is_some() {
            return;
        }
        this.advance(&mut talk, lo);
        match &talk.outcome {
            None => {
                let left = (WAIT - talk.since.elapsed()).as_millis_ceil();
                let left = kernel::time::msecs_to_jiffies(u32::try_from(left).unwrap_or(0));
                drop(talk);
                // Sooner, if something has happened meanwhile.
                let _ = lo.queue.enqueue_delayed(this.clone(), left + 1);
            }
            Some(outcome) => {
                let failed = matches!(outcome, Outcome::Failed);
                // Before the error is told, which goes past a socket that waits for an outcome.
                this.conclude();
                // Under the lock: who then asks for the outcome finds the error at the socket.
                if failed {
                    this.sk.stream_report();
                }
                drop(talk);
                let owner = this.owner.lock().clone();
                if let Some(owner) = owner {
                    owner.wake_all();
                }
            }
        }
    }
}

impl ChildOwner for Peer {
    fn event(this: ArcBorrow<'_, Self>) {
        if let (false, Some(lo)) = (this.is_over(), LO.get()) {
            Self::kick(&this.into(), &lo.queue);
        }
    }
}
