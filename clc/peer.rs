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

use super::{
    eid::{
        Eid,
        Table, //
    },
    wire::{
        accept::Smcd,
        decline::Reason,
        machine::{
            Action,
            Event,
            Host,
            Machine,
            Offer,
            Terms,
            Want,
            WAIT_SECONDS, //
        },
        Gid,
        Packet,
        HOSTNAME_LEN, //
    },
};
use crate::{
    bufpool::quota::User,
    conn::Endpoint,
    kapi::{
        random,
        sock::Sk,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        tcp::{
            child::ChildOwner,
            stream::Stand, //
        },
        uts,
        workqueue::expedite, //
    },
    lgr::Groups,
    Lo,
    LO, //
};
use core::mem;
use kernel::{
    alloc::Flags,
    impl_has_delayed_work, new_delayed_work, new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
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

/// What wire handshakes have in common.
#[pin_data]
pub(crate) struct Wire {
    gid: Gid,
    hostname: [u8; HOSTNAME_LEN],
    #[pin]
    eids: SpinLockBh<Table>,
    #[pin]
    rendezvous: Mutex<RBTree<u64, Arc<Rendezvous>>>,
    stand: Stand,
}

impl Wire {
    /// For the loopback device with this GID.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn new([gid, ext]: [u64; 2]) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            gid: Gid { gid, ext },
            hostname: uts::nodename(),
            eids <- new_spinlock_bh!(Table::new(), "Wire::eids"),
            rendezvous <- new_mutex!(RBTree::new(), "Wire::rendezvous"),
            stand: Stand::new()?,
        })
    }

    fn host(&self) -> Host {
        Host {
            gid: self.gid,
            hostname: self.hostname,
            eids: *self.eids.lock(),
        }
    }

    /// Lets a server's connection be found by a token, which is returned.
    fn invite(&self, terms: &Terms, server_net: u64) -> Result<(u64, Arc<Rendezvous>)> {
        let rendezvous = Arc::pin_init(
            pin_init!(Rendezvous {
                server_net,
                eid: terms.eid,
                meeting <- new_mutex!(Meeting::Open, "Rendezvous::meeting"),
            }),
            GFP_KERNEL,
        )?;
        let token = random::get_random_u64();
        let node = RBTreeNode::new(token, rendezvous.clone(), GFP_KERNEL)?;
        // A token that is in use already would lead its clients astray; they fail and go on in
        // TCP, once in many universes.
        let _replaced = self.rendezvous.lock().insert(node);
        Ok((token, rendezvous))
    }

    /// The rendezvous behind a token, which from now on nobody finds.
    fn find(&self, token: u64) -> Option<Arc<Rendezvous>> {
        self.rendezvous.lock().remove(&token)
    }
}

/// Where the two ends of a connection meet that one of them has named to the other.
#[pin_data]
struct Rendezvous {
    server_net: u64,
    eid: Eid,
    #[pin]
    meeting: Mutex<Meeting>,
}

/// How far the meeting is.
enum Meeting {
    /// The client has not come.
    Open,
    /// The client has taken its end; this is the server's.
    Claimed(Endpoint),
    /// The server has taken its end, or gone.
    Closed,
}

impl Rendezvous {
    /// Makes the connection and takes the client's end.
    fn claim(&self, groups: &Arc<Groups>, client: &Sk) -> Result<Endpoint> {
        let mut meeting = self.meeting.lock();
        if !matches!(*meeting, Meeting::Open) {
            return Err(ENOENT);
        }
        let group = groups.get(client.net().cookie(), self.server_net, &self.eid)?;
        let (end, server) = Endpoint::pair(group, User::new(client.answerable_uid()))?;
        *meeting = Meeting::Claimed(server);
        Ok(end)
    }

    /// Takes the server's end, if the client has come. Afterwards no client can.
    fn server_end(&self) -> Option<Endpoint> {
        let meeting = mem::replace(&mut *self.meeting.lock(), Meeting::Closed);
        match meeting {
            Meeting::Claimed(end) => Some(end),
            Meeting::Open | Meeting::Closed => None,
        }
    }
}

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

/// How many handshakes of one listener's children are under way.
pub(crate) struct Pressure(Atomic<usize>);

impl Pressure {
    fn enter(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What a listener knows of its unaccepted children.
struct Crowd {
    peers: RBTree<usize, Arc<Peer>>,
    /// Whose number is limited, if it is.
    pressure: Option<Arc<Pressure>>,
}

/// The handshakes of a listener's children that nobody has accepted yet.
#[pin_data]
pub(crate) struct Parked {
    #[pin]
    crowd: SpinLockBh<Crowd>,
}

impl Parked {
    /// None.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            crowd <- new_spinlock_bh!(Crowd {
                peers: RBTree::new(),
                pressure: None,
            }, "Parked::crowd"),
        })
    }

    /// Begins or ends to count the handshakes under way, for a socket that is about to listen.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn limit(&self, limited: bool) -> Result {
        let pressure = limited
            .then(|| Arc::new(Pressure(Atomic::new(0)), GFP_KERNEL_ACCOUNT))
            .transpose()?;
        let _old = mem::replace(&mut self.crowd.lock().pressure, pressure);
        Ok(())
    }

    /// Whether the handshakes under way are counted.
    pub(crate) fn is_limited(&self) -> bool {
        self.crowd.lock().pressure.is_some()
    }

    /// Whether handshakes are limited, and those under way hold half of a `backlog` or more:
    /// silent clients must not keep others out of the accept queue.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn is_congested(&self, backlog: usize) -> bool {
        let crowd = self.crowd.lock();
        crowd.pressure.as_ref().is_some_and(|pressure| {
            let begun = pressure.0.load(Relaxed);
            begun.saturating_mul(2) >= backlog.max(1)
        })
    }

    /// Adds the handshake of a child that was just born and has not begun to converse.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Softirq.
    pub(crate) fn insert(&self, peer: &Arc<Peer>) -> Result {
        let node = RBTreeNode::new(peer.sk.addr(), peer.clone(), GFP_ATOMIC)?;
        let mut crowd = self.crowd.lock();
        if let Some(pressure) = &crowd.pressure {
            pressure.enter();
            peer.pressure.populate(pressure.clone());
        }
        crowd.peers.insert(node);
        Ok(())
    }

    /// Takes the handshake of an accepted child.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn take(&self, child: &Sk) -> Option<Arc<Peer>> {
        let peer = self.crowd.lock().peers.remove(&child.addr())?;
        let _parked = child.unpark::<Peer>();
        Some(peer)
    }

    /// Resets all children, of a listener that goes away.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn kill_all(&self) {
        loop {
            let node = {
                let mut crowd = self.crowd.lock();
                crowd
                    .peers
                    .cursor_front_mut()
                    .map(|cursor| cursor.remove_current().1)
            };
            let Some(node) = node else {
                return;
            };
            let (_, peer) = node.to_key_value();
            Peer::kill(&peer);
        }
    }
}

/// Begins the handshake of a child that is not paired and whose client speaks SMC.
///
/// Without memory the handshake begins when the child is accepted.
///
/// # Context
///
/// Softirq; the child is new and locked.
pub(crate) fn child_born(lo: &Lo, child: &Sk, park: impl FnOnce(&Arc<Peer>) -> bool) {
    let Ok(peer) = Peer::server(&lo.wire, child, GFP_ATOMIC) else {
        return;
    };
    if park(&peer) {
        child.park(peer.clone());
        Peer::kick(&peer, &lo.queue);
    }
}
