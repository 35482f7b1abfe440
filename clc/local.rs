// SPDX-License-Identifier: GPL-2.0

//! The local handshake: two sockets of this kernel find each other while TCP
//! shakes hands.
//!
//! A client makes an [`Offer`] before its SYN leaves. When the SYN reaches a
//! listener of ours, the offer is marked, before the SYN is answered: once the
//! client is connected, it knows for certain whether its peer is ours. When the
//! listener's child is born, the offer is matched with it by one
//! compare-exchange, if both initial sequence numbers agree. Each end then
//! claims its side of the pair in its own process context, in either order.
//!
//! # Identity
//!
//! Sequence numbers alone prove nothing: they can be observed and predicted. In
//! one namespace the proof is the connection table: the tuple is unique there,
//! so the socket found behind the reversed tuple is the sender of the packet,
//! unless that was forged or rewritten, which the sequence numbers then show.
//! Across namespaces the client's initial sequence number is a secret of 32
//! random bits, chosen for this connection, and the tuples must mirror each
//! other. Address translation, proxies and anything doubtful: no match.
//!
//! # States
//!
//! `Open -> Marked` (SYN seen by a listener of ours), `Open | Marked ->
//! Matched` (child born), `Open | Marked -> Closed` (the client decides for TCP,
//! or gives up). `Matched` and `Closed` are final, and exclude each other.
//!
//! # Locks and contexts
//!
//! The state word is the only authority and needs no lock. `parties` is taken
//! in softirq and in process context, and inside it nothing else but a
//! listener's queue. `pairing` is taken in process context only. A listener's
//! queue is taken under its TCP socket's `sk_callback_lock`.

#![deny(unsafe_code)]

use crate::{
    bufpool::quota::User,
    clc::{
        eid::Eid,
        peer::barred,
        wire::decline::Reason, //
    },
    conn::{
        Endpoint,
        Side, //
    },
    kapi::{
        random,
        sock::{
            Sk,
            TcpState, //
        },
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        tcp::{
            Child,
            Syn,
            TcpSocket, //
        },
    },
    lgr::Groups,
    sock::SmcSock,
};
use kernel::{
    impl_has_delayed_work, impl_list_arc_safe, impl_list_item,
    list::{
        List,
        ListArc,
        ListLinks, //
    },
    new_delayed_work, new_mutex,
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

/// How long a connected client waits for the child of a listener that has marked its offer.
///
/// The child is born by the client's own ACK, as a rule before `connect()` returns; packet
/// steering, a busy softirq daemon or a full backlog can delay it.
const PATIENCE: Delta = Delta::from_millis(100);

const OPEN: u32 = 0;
const MARKED: u32 = 1;
const MATCHED: u32 = 2;
const CLOSED: u32 = 3;

/// The sockets of a client, as long as it wants to be found.
struct Parties {
    outer: Option<ARef<Sk>>,
    inner: Option<ARef<Sk>>,
    handle: Option<ListArc<Offer>>,
    /// Whom the alarm wakes. A socket holds the module, so this must stay until the alarm has
    /// rung, whatever becomes of the offer.
    sleeper: Option<ARef<Sk>>,
}

/// The connection of a matched pair, and which side is done with the pair.
struct Pairing {
    /// The other side's end, while one side has its own and the other one is expected.
    end: Option<Endpoint>,
    /// Why there is no connection, once that was found out.
    refusal: Option<Refusal>,
    client_done: bool,
    server_done: bool,
}

/// Why a matched pair has no connection.
#[derive(Clone, Copy)]
struct Refusal {
    reason: Reason,
    /// The end that does not want one; none if there are no memory or no places for rings.
    by: Option<Side>,
}

impl Refusal {
    /// What one side gets.
    fn tell(self, side: Side) -> Claim {
        match self.by {
            Some(by) if by != side => Claim::Alone {
                reason: Reason::PeerDeclined,
                diagnosis: self.reason.code(),
            },
            _ => Claim::Alone {
                reason: self.reason,
                diagnosis: 0,
            },
        }
    }
}

impl Pairing {
    fn is_done(&self, side: Side) -> bool {
        match side {
            Side::Client => self.client_done,
            Side::Server => self.server_done,
        }
    }

    fn set_done(&mut self, side: Side) {
        match side {
            Side::Client => self.client_done = true,
            Side::Server => self.server_done = true,
        }
    }
}

/// What one side gets of a matched pair.
pub(crate) enum Claim {
    /// Its end of the connection.
    End(Endpoint),
    /// Nothing: it has been here before.
    Done,
    /// No connection, and the other side will get none either: one of them has left or must not
    /// have one, or there are no memory or no places for rings. What TCP has connected stays TCP.
    Alone {
        /// The reason.
        reason: Reason,
        /// The other side's code, if the reason is that one's, or 0.
        diagnosis: u32,
    },
}

/// A client's offer to meet a server of this kernel.
#[pin_data]
pub(crate) struct Offer {
    state: Atomic<u32>,
    /// The client's initial sequence number, if it was chosen for this connection.
    isn: Option<u32>,
    client_net: u64,
    /// Who answers for the connection: it is the client that asks for it.
    user: User,
    server_net: Atomic<u64>,
    deadline: SetOnce<Instant<Monotonic>>,
    child: SetOnce<ARef<Sk>>,
    #[pin]
    parties: SpinLockBh<Parties>,
    #[pin]
    pairing: Mutex<Pairing>,
    #[pin]
    links: ListLinks,
    #[pin]
    alarm: DelayedWork<Offer>,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Offer { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Offer { using ListLinks { self.links }; }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Offer { self.alarm }
}

impl WorkItem for Offer {
    type Pointer = Arc<Self>;

    /// The patience with an unborn child is at an end: whoever waits looks again.
    fn run(this: Arc<Self>) {
        let sleeper = this.parties.lock().sleeper.take();
        if let Some(outer) = sleeper {
            outer.wake_all();
        }
    }
}

/// What a client knows of its connection.
pub(crate) enum Verdict {
    /// The peer is a socket of ours.
    Local,
    /// The peer is not.
    Foreign,
    /// The peer may be a socket of ours: its child was not born yet.
    Unborn,
}

impl Offer {
    /// Makes an offer for a client that is about to connect, and lets it be found.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory; the connection will be TCP.
    ///
    /// # Context
    ///
    /// Process context. The client's TCP socket is not connected.
    pub(crate) fn new(
        table: &Table,
        outer: &Sk,
        tcp: &TcpSocket,
        across: bool,
    ) -> Result<Arc<Self>> {
        // The peer's TIME-WAIT state accepts an arbitrary number only with time stamps.
        let isn = if across && tcp.is_fresh() && outer.net().tcp_timestamps() {
            Some(random::nonzero_u32())
        } else {
            None
        };
        let handle = ListArc::pin_init(
            try_pin_init!(Self {
                state: Atomic::new(OPEN),
                isn,
                client_net: outer.net().cookie(),
                user: User::new(outer.answerable_uid()),
                server_net: Atomic::new(0),
                deadline: SetOnce::new(),
                child: SetOnce::new(),
                parties <- new_spinlock_bh!(Parties {
                    outer: Some(outer.into()),
                    inner: Some(tcp.sk().into()),
                    handle: None,
                    sleeper: None,
                }, "Offer::parties"),
                pairing <- new_mutex!(Pairing {
                    end: None,
                    refusal: None,
                    client_done: false,
                    server_done: false,
                }, "Offer::pairing"),
                links <- ListLinks::new(),
                alarm <- new_delayed_work!("Offer::alarm"),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        let offer = handle.clone_arc();
        if let Some(isn) = isn {
            table.insert(isn, &offer)?;
            tcp.preset_isn(isn);
        }
        // The offer owns itself from here on, until it is paired or withdrawn.
        offer.parties.lock().handle = Some(handle);
        Ok(offer)
    }

    /// A listener of ours has seen the client's SYN.
    fn mark(&self) {
        let _ = self.state.cmpxchg(OPEN, MARKED, Full);
    }

    /// Whether the client behind `inner` sent what the child answers: both initial sequence
    /// numbers agree, and nobody has used the TCP stream.
    fn agrees(inner: &Sk, child: &Child<'_>) -> bool {
        inner.tcp_write_seq() == child.rcv_isn.wrapping_add(1)
            && inner.tcp_copied_seq() == child.snt_isn.wrapping_add(1)
    }

    /// Pairs the offer with a child, and hands it to the listener's queue.
    fn pair(self: &Arc<Self>, child: &Child<'_>, queue: &mut List<Offer>) -> bool {
        let handle = {
            let mut parties = self.parties.lock();
            if parties.handle.is_none() {
                return false;
            }
            self.server_net
                .store(child.ack.listener().net().cookie(), Relaxed);
            self.child.populate(child.sk.into());
            // Publishes the child and the namespace to whoever sees the new state. A second SYN
            // may mark the offer meanwhile.
            if self.state.cmpxchg(OPEN, MATCHED, Full).is_err()
                && self.state.cmpxchg(MARKED, MATCHED, Full).is_err()
            {
                return false;
            }
            parties.handle.take()
        };
        if let Some(handle) = handle {
            queue.push_back(handle);
        }
        true
    }

    /// Wakes the client, if it waits.
    fn wake(&self) {
        let outer = self.parties.lock().outer.clone();
        if let Some(outer) = outer {
            outer.wake_all();
        }
    }

    /// Whether the offer was matched.
    pub(crate) fn matched(&self) -> bool {
        self.state.load(Acquire) == MATCHED
    }

    /// Closes the offer of a client whose SYN was answered by no listener of ours; whether it
    /// was not, and now is closed.
    ///
    /// # Context
    ///
    /// Any, once the SYN was answered.
    pub(crate) fn close_unmarked(&self) -> bool {
        self.state.cmpxchg(OPEN, CLOSED, Full).is_ok()
    }

    /// Decides, for a client whose TCP connection is established.
    ///
    /// While the answer is [`Verdict::Unborn`], the client's wait queue is woken when it changes.
    pub(crate) fn decide(self: &Arc<Self>, queue: &Queue) -> Verdict {
        loop {
            match self.state.load(Acquire) {
                MATCHED => return Verdict::Local,
                CLOSED => return Verdict::Foreign,
                OPEN => {
                    // The SYN was answered, but not by a listener of ours.
                    if self.state.cmpxchg(OPEN, CLOSED, Full).is_ok() {
                        return Verdict::Foreign;
                    }
                }
                _ => {
                    let now = Instant::now();
                    if self.deadline.populate(now) {
                        let jiffies = kernel::time::msecs_to_jiffies(
                            u32::try_from(PATIENCE.as_millis_ceil()).unwrap_or(u32::MAX),
                        );
                        let armed = {
                            let mut parties = self.parties.lock();
                            parties.sleeper = parties.outer.clone();
                            parties.sleeper.is_some()
                        };
                        if armed {
                            let _ = queue.enqueue_delayed(self.clone(), jiffies + 1);
                        }
                    }
                    let waited = self
                        .deadline
                        .copy()
                        .map_or(Delta::ZERO, |since| now - since);
                    if waited < PATIENCE {
                        return Verdict::Unborn;
                    }
                    if self.state.cmpxchg(MARKED, CLOSED, Full).is_ok() {
                        return Verdict::Foreign;
                    }
                }
            }
        }
    }

    /// Takes one side of a matched pair, for that side's TCP socket `own`.
    ///
    /// # Context
    ///
    /// Process context, may sleep. The caller's socket holds its namespace, and as long as the
    /// other side is not done, a socket of its own holds that one.
    pub(crate) fn claim(&self, groups: &Arc<Groups>, side: Side, own: &Sk) -> Claim {
        let mut pairing = self.pairing.lock();
        if pairing.is_done(side) {
            return Claim::Done;
        }
        pairing.set_done(side);
        if let Some(end) = pairing.end.take() {
            return Claim::End(end);
        }
        if pairing.is_done(side.peer()) {
            let left = Refusal {
                reason: Reason::Memory,
                by: None,
            };
            return pairing.refusal.unwrap_or(left).tell(side);
        }
        match self.connect(groups, side, own) {
            Ok((client, server)) => {
                let (end, other) = match side {
                    Side::Client => (client, server),
                    Side::Server => (server, client),
                };
                pairing.end = Some(other);
                Claim::End(end)
            }
            Err(refusal) => {
                pairing.refusal = Some(refusal);
                refusal.tell(side)
            }
        }
    }

    /// Makes the connection for the first side that comes, unless one of them must not have one.
    fn connect(
        &self,
        groups: &Arc<Groups>,
        side: Side,
        own: &Sk,
    ) -> Result<(Endpoint, Endpoint), Refusal> {
        // A client looks first, as it does over the wire.
        for end in [Side::Client, Side::Server] {
            let barred = match end {
                _ if end == side => barred(own),
                Side::Client => self.inner().and_then(|client| barred(&client)),
                Side::Server => self.child.as_ref().and_then(|child| barred(child)),
            };
            if let Some(reason) = barred {
                return Err(Refusal {
                    reason,
                    by: Some(end),
                });
            }
        }
        groups
            .get(
                self.client_net,
                self.server_net.load(Relaxed),
                &Eid::DEFAULT,
            )
            .and_then(|group| Endpoint::pair(group, self.user))
            .map_err(|err| Refusal {
                reason: Reason::of_failure(err),
                by: None,
            })
    }

    /// Leaves a matched pair for good, unless this side has taken its end: the other side stays
    /// with TCP, or is reset if it has taken its own end already.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn leave(&self, side: Side) {
        // An end that is dropped resets the connection.
        let _end = {
            let mut pairing = self.pairing.lock();
            if pairing.is_done(side) {
                return;
            }
            pairing.set_done(side);
            pairing.end.take()
        };
    }

    /// Withdraws the offer, and leaves the pair for TCP if it was matched all the same, unless the
    /// client has taken its end.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn retire(&self, table: &Table) {
        self.withdraw(table);
        if self.matched() {
            self.leave(Side::Client);
        }
    }

    /// Ends the search for a partner: from now on nobody finds the offer. A pair that was matched
    /// before stays matched.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn withdraw(&self, table: &Table) {
        if let Some(isn) = self.isn {
            table.remove(isn, self);
        }
        loop {
            let state = self.state.load(Acquire);
            if state == MATCHED || state == CLOSED {
                break;
            }
            if self.state.cmpxchg(state, CLOSED, Full).is_ok() {
                break;
            }
        }
        let _dropped_outside_lock;
        let mut parties = self.parties.lock();
        _dropped_outside_lock = (
            parties.outer.take(),
            parties.inner.take(),
            parties.handle.take(),
        );
    }

    fn inner(&self) -> Option<ARef<Sk>> {
        self.parties.lock().inner.clone()
    }
}

/// The pairs whose children wait in a listener's accept queue.
///
/// TCP fills the accept queue in the order in which children are born, so the pair of a child that
/// is accepted is at or near the front.
#[pin_data]
pub(crate) struct Pending {
    #[pin]
    queue: SpinLockBh<List<Offer>>,
}

impl Pending {
    /// No pairs.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            queue <- new_spinlock_bh!(List::new(), "Pending::queue"),
        })
    }

    /// Takes the pair of an accepted child.
    pub(crate) fn take(&self, child: &Sk) -> Option<Arc<Offer>> {
        let mut queue = self.queue.lock();
        let mut cursor = queue.cursor_front();
        while let Some(next) = cursor.peek_next() {
            if next
                .child
                .as_ref()
                .is_some_and(|sk| sk.addr() == child.addr())
            {
                return Some(next.remove().into_arc());
            }
            cursor.move_next();
        }
        None
    }

    /// Takes any pair, when the listener goes away: it has said so before ([`child_born`] looks
    /// under the lock of the queue), so that none is added behind the last one.
    pub(crate) fn take_any(&self) -> Option<Arc<Offer>> {
        self.queue.lock().pop_front().map(ListArc::into_arc)
    }
}

/// The number of chains of the table of offers across namespaces; a power of two.
const BUCKETS: usize = 256;

type Chain = RBTree<(u32, usize), Arc<Offer>>;

/// The offers of clients that may meet a server in another namespace, by initial sequence number.
#[pin_data]
pub(crate) struct Table {
    #[pin]
    buckets: [SpinLockBh<Chain>; BUCKETS],
    len: Atomic<usize>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            buckets <- pin_init::pin_init_array_from_fn(|_| {
                new_spinlock_bh!(RBTree::new(), "Table::bucket")
            }),
            len: Atomic::new(0),
        })
    }

    fn bucket(&self, isn: u32) -> Option<&SpinLockBh<Chain>> {
        self.buckets
            .get(usize::try_from(isn).unwrap_or(0) % BUCKETS)
    }

    fn key(isn: u32, offer: &Offer) -> (u32, usize) {
        (isn, core::ptr::from_ref(offer).addr())
    }

    fn insert(&self, isn: u32, offer: &Arc<Offer>) -> Result {
        let node = RBTreeNode::new(Self::key(isn, offer), offer.clone(), GFP_KERNEL_ACCOUNT)?;
        if let Some(bucket) = self.bucket(isn) {
            let _old = bucket.lock().insert(node);
            self.len.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn remove(&self, isn: u32, offer: &Offer) {
        if let Some(bucket) = self.bucket(isn) {
            let key = Self::key(isn, offer);
            let node = bucket.lock().remove_node(&key);
            if node.is_some() {
                self.len.fetch_sub(1, Relaxed);
            }
        }
    }

    /// The offer whose client sent a packet with this initial sequence number, over the mirrored
    /// tuple, as `proof` confirms.
    fn find(&self, syn: &Syn<'_>, isn: u32, proof: impl Fn(&Sk) -> bool) -> Option<Arc<Offer>> {
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        let tuple = syn.tuple().mirrored();
        // Never dropped under the lock, where it could be the last reference.
        let mut candidate = None;
        let mut bucket = self.bucket(isn)?.lock();
        let mut cursor = bucket.cursor_lower_bound_mut(&(isn, 0));
        while let Some(here) = cursor {
            let ((key, _), offer) = here.current();
            if *key != isn {
                break;
            }
            let fits = offer
                .inner()
                .is_some_and(|inner| inner.tcp_tuple(&tuple) == tuple && proof(&inner));
            if fits {
                candidate = Some(offer.clone());
                break;
            }
            cursor = here.move_next();
        }
        drop(bucket);
        candidate
    }
}

/// The offer behind a packet, in the listener's namespace or any other.
fn find(table: &Table, syn: &Syn<'_>, isn: u32, proof: impl Fn(&Sk) -> bool) -> Option<Arc<Offer>> {
    match syn.local_sender() {
        Some(client) => {
            if !proof(&client) {
                return None;
            }
            client
                .with_owner::<SmcSock, _>(|sock, _| sock.offer())
                .flatten()
        }
        None => table.find(syn, isn, proof),
    }
}

/// Marks the offer of the client that sent a SYN.
///
/// # Context
///
/// Softirq under RCU.
pub(crate) fn syn_seen(table: &Table, syn: &Syn<'_>) {
    let isn = syn.seq();
    let proof = |client: &Sk| {
        client.tcp_state() == TcpState::Opening && client.tcp_write_seq() == isn.wrapping_add(1)
    };
    if let Some(offer) = find(table, syn, isn, proof) {
        offer.mark();
    }
}

/// Matches the offer of the client whose handshake a child completes; whether there was one.
///
/// # Context
///
/// Softirq under RCU.
pub(crate) fn child_born(table: &Table, child: &Child<'_>) -> bool {
    let proof = |client: &Sk| Offer::agrees(client, child);
    let Some(offer) = find(table, &child.ack, child.rcv_isn, proof) else {
        return false;
    };
    let matched = child
        .ack
        .listener()
        .with_owner::<SmcSock, _>(|listener, _| {
            let mut queue = listener.pending().queue.lock();
            listener.is_listening() && offer.pair(child, &mut queue)
        });
    if matched == Some(true) {
        offer.wake();
    }
    matched == Some(true)
}
