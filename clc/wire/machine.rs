// SPDX-License-Identifier: GPL-2.0

//! The conversation: which message is awaited, and what follows from it.
//!
//! A machine knows no socket, clock or memory. Its owner reports events and does what the answer
//! says, so that no thread waits for a peer and a silent or hostile one costs a machine and a
//! timer. It takes exactly the CLC messages out of the stream and leaves what follows to the
//! application, and it ends in one of three ways: SMC-D; TCP, with a stream in which neither end
//! finds CLC bytes; or an error, where the peer may still take what is sent for CLC, or what was
//! sent for data, and only closing the connection is safe.
//!
//! Steps and time limits are those of `__smc_connect()` and `smc_listen_work()`. One thing is
//! different: a client whose first bytes cannot be CLC never spoke SMC, whatever its SYN said
//! (some middleboxes echo options), and is served over TCP instead of being cut off.

#![deny(unsafe_code)]

use kernel::prelude::*;

use super::{
    accept::{
        Accept,
        FirstContact,
        Smcd,
        MAX_ACCEPT_LEN, //
    },
    decline::{
        Decline,
        Reason, //
    },
    proposal::{
        Proposal,
        Subnets, //
    },
    Gid,
    Header,
    Kind,
    Modes,
    Packet,
    Version,
    HOSTNAME_LEN,
    MAX_LEN, //
};
use crate::clc::eid::{
    Eid,
    Table, //
};

/// How long a message may take to arrive in full, in seconds; `CLC_WAIT_TIME`.
pub(crate) const WAIT_SECONDS: i64 = 6;

/// The fewest connections of a link group that SMC-R is declined for, `SMC_CONN_PER_LGR_MIN`.
const MIN_CONNS: u8 = 16;
/// The same of its links, `SMC_LINKS_ADD_LNK_MIN`.
const MIN_LINKS: u8 = 1;

/// What this host says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The loopback device's GID.
    pub(crate) gid: Gid,
    /// The node name, blank padded.
    pub(crate) hostname: [u8; HOSTNAME_LEN],
    /// The EIDs at the time of the handshake.
    pub(crate) eids: Table,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The next bytes of the stream, still in it: as many as have arrived of [`Want::Peek`].
    Peeked(&'a [u8]),
    /// The next bytes of the stream, taken out of it: some or all of [`Want::Read`].
    Read(&'a [u8]),
    /// The stream has ended, and all bytes before were reported.
    Closed,
    /// The TCP connection failed, or did not take what was to be sent.
    Failed(Error),
    /// [`WAIT_SECONDS`] have passed since the machine began or last had something sent.
    Timeout,
    /// Whether one of the subnets of [`Action::Locate`] is this host's.
    Located(bool),
    /// What [`Action::Prepare`] or [`Action::Claim`] asked for is done.
    Ready(Offer),
    /// It cannot be done.
    Refused(Reason),
}

/// What the owner does next.
#[derive(Debug)]
pub(crate) enum Action {
    /// Looks at [`Machine::want`] and waits for the next event.
    Wait,
    /// Sends a message, starts the time anew and waits.
    Send(Packet),
    /// Server: looks for an address in one of these subnets, with a prefix of the same length, at
    /// the device to which the client's packets go, and answers at once.
    Locate(Subnets),
    /// Server: makes a connection for these terms and answers at once.
    Prepare(Terms),
    /// Client: takes the client's end of the connection behind the server's token and answers at
    /// once.
    Claim(Smcd),
    /// The connection is SMC-D. Server: the peer says that it has taken its end; whether it really
    /// has, the owner knows.
    Established {
        /// What is to be sent first.
        send: Option<Packet>,
    },
    /// The connection is TCP.
    Fallback {
        /// What is to be sent first.
        send: Option<Packet>,
        /// The reason.
        reason: Reason,
        /// The peer's code if it declined, else 0.
        peer_diagnosis: u32,
    },
    /// The connection is dead and is to be reset.
    Fail(Error),
}

/// What the machine awaits from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// To see up to so many bytes without taking them.
    Peek(usize),
    /// To take no more than so many bytes.
    Read(usize),
    /// Nothing.
    Nothing,
}

/// The terms of a connection that a client proposes and this host agrees with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The EID in common.
    pub(crate) eid: Eid,
    /// The release of version 2 that both know.
    release: u8,
    /// The client's version.
    version: Version,
}

/// Why a proposal is declined: where this host is in one of the client's subnets, and else.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    near: Reason,
    far: Reason,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self {
            near: reason,
            far: reason,
        }
    }
}

/// What this end names to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The token of the buffer.
    pub(crate) token: u64,
    /// The compressed size of the buffer; below 16.
    pub(crate) size: u8,
    /// The number of the link group, which is new for each handshake.
    pub(crate) link_group: u32,
}

/// One end of a handshake.
pub(crate) struct Machine {
    host: Host,
    /// What keeps a server's socket from SMC-D, whatever the client proposes.
    barred: Option<Reason>,
    state: State,
    inbox: Inbox,
}

/// What the machine waits for.
#[derive(Debug)]
enum State {
    /// Server: the proposal.
    Proposal,
    /// Server: its owner, for where a client of this version is.
    Locating(Refusal, Version),
    /// Server: its owner, for a connection.
    Preparing(Terms),
    /// Server: the confirm to this accept.
    Confirm(Smcd),
    /// Client: the accept.
    Accept,
    /// Client: its owner, for the connection that this accept names.
    Claiming(Smcd, Eid),
    /// Nothing any more.
    Over,
}

impl State {
    /// The kind of message that is awaited.
    fn awaits(&self) -> Option<Kind> {
        match self {
            Self::Proposal => Some(Kind::Proposal),
            Self::Accept => Some(Kind::Accept),
            Self::Confirm(_) => Some(Kind::Confirm),
            Self::Locating(..) | Self::Preparing(_) | Self::Claiming(..) | Self::Over => None,
        }
    }
}

/// The message that is arriving.
struct Inbox {
    /// Its header, once all of it was seen.
    header: Option<Header>,
    /// Whether any byte of it was seen.
    begun: bool,
    /// How many of its bytes were taken.
    taken: usize,
    /// Those bytes, as far as they fit; the others of a long message matter to nobody.
    bytes: [u8; MAX_LEN],
}

impl Inbox {
    const EMPTY: Self = Self {
        header: None,
        begun: false,
        taken: 0,
        bytes: [0; MAX_LEN],
    };

    /// How many bytes are missing.
    fn missing(&self, header: &Header) -> usize {
        usize::from(header.length).saturating_sub(self.taken)
    }

    /// Appends bytes of the message.
    fn take(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.taken).zip(bytes) {
            *to = *from;
        }
        self.taken += bytes.len();
    }

    /// What of the message a reader with a buffer of `limit` bytes keeps.
    fn message(&self, limit: usize) -> &[u8] {
        self.bytes
            .get(..self.taken.min(limit))
            .unwrap_or(&self.bytes)
    }
}

impl Machine {
    /// The server's end, which waits for a proposal, and declines it if the socket is `barred` from
    /// SMC-D.
    pub(crate) fn server(host: Host, barred: Option<Reason>) -> Self {
        Self {
            host,
            barred,
            state: State::Proposal,
            inbox: Inbox::EMPTY,
        }
    }

    /// The client's end, and how it begins: with the proposal, or, if the socket is `barred` from
    /// SMC-D, with the decline in its place.
    pub(crate) fn client(host: Host, barred: Option<Reason>) -> (Self, Action) {
        let (state, action) = match barred {
            None => {
                let proposal = Proposal::encode(host.gid, host.eids.effective());
                (State::Accept, Action::Send(proposal))
            }
            Some(reason) => (State::Over, decline(reason, Version::V2)),
        };
        let machine = Self {
            host,
            barred: None,
            state,
            inbox: Inbox::EMPTY,
        };
        (machine, action)
    }

    /// What is awaited from the stream. While this is [`Want::Nothing`] the stream is left alone.
    pub(crate) fn want(&self) -> Want {
        match (self.state.awaits(), &self.inbox.header) {
            (None, _) => Want::Nothing,
            (Some(_), None) => Want::Peek(Header::LEN),
            (Some(_), Some(header)) => Want::Read(self.inbox.missing(header)),
        }
    }

    /// Takes an event and says what to do. After an ending all events are answered with
    /// [`Action::Wait`].
    pub(crate) fn step(&mut self, event: Event<'_>) -> Action {
        let action = match event {
            Event::Peeked(bytes) => self.peeked(bytes),
            Event::Read(bytes) => self.read(bytes),
            Event::Closed => self.closed(),
            Event::Timeout if self.state.awaits().is_some() => Action::Fail(ETIMEDOUT),
            // Whoever answers to the machine is late, not the peer.
            Event::Timeout => Action::Wait,
            Event::Failed(_) if matches!(self.state, State::Over) => Action::Wait,
            Event::Failed(error) => Action::Fail(error),
            Event::Located(near) => self.located(near),
            Event::Ready(offer) => self.ready(offer),
            Event::Refused(reason) => self.refused(reason),
        };
        if matches!(
            action,
            Action::Established { .. } | Action::Fallback { .. } | Action::Fail(_)
        ) {
            self.state = State::Over;
        }
        action
    }

    /// The next bytes are these, and still in the stream.
    fn peeked(&mut self, bytes: &[u8]) -> Action {
        let (Some(awaited), None) = (self.state.awaits(), &self.inbox.header) else {
            return Action::Wait;
        };
        self.inbox.begun |= !bytes.is_empty();
        if !Header::may_begin(bytes) {
            return match awaited {
                // Nothing was sent or taken: the stream is as TCP made it.
                Kind::Proposal => fallback(Reason::PeerNoSmc),
                _ => Action::Fail(EPROTO),
            };
        }
        let Some(bytes) = bytes.first_chunk() else {
            return Action::Wait;
        };
        match Header::parse(bytes) {
            Ok(header) if header.kind == awaited || header.kind == Kind::Decline => {
                self.inbox.header = Some(header);
                Action::Wait
            }
            _ => Action::Fail(EPROTO),
        }
    }

    /// These bytes of the message were taken out of the stream.
    fn read(&mut self, bytes: &[u8]) -> Action {
        let Want::Read(wanted) = self.want() else {
            return Action::Wait;
        };
        self.inbox.take(bytes);
        match (bytes.len().cmp(&wanted), self.inbox.header) {
            (core::cmp::Ordering::Less, _) => Action::Wait,
            (core::cmp::Ordering::Equal, Some(header)) => {
                let action = self.message(&header).unwrap_or_else(Action::Fail);
                self.inbox = Inbox::EMPTY;
                action
            }
            // Bytes were taken that belong to somebody else.
            _ => Action::Fail(EPROTO),
        }
    }

    /// The stream ended.
    fn closed(&mut self) -> Action {
        match (&self.state, self.inbox.begun) {
            // The peer came and went. To the application that is a connection with nothing in it.
            (State::Proposal, false) => fallback(Reason::PeerNoSmc),
            (State::Accept | State::Confirm(_), false) => Action::Fail(ECONNRESET),
            (State::Proposal | State::Accept | State::Confirm(_), true) => Action::Fail(EPROTO),
            // The answer comes first; the end will be seen again.
            (State::Locating(..) | State::Preparing(_) | State::Claiming(..) | State::Over, _) => {
                Action::Wait
            }
        }
    }

    /// A whole message arrived.
    ///
    /// # Errors
    ///
    /// - `EPROTO` - it is malformed, or no answer to what was said before.
    fn message(&mut self, header: &Header) -> Result<Action> {
        if header.kind == Kind::Decline {
            let decline = Decline::parse(header, self.inbox.message(MAX_LEN))?;
            return Ok(Action::Fallback {
                send: None,
                reason: Reason::PeerDeclined,
                peer_diagnosis: decline.diagnosis,
            });
        }
        match &self.state {
            State::Proposal => {
                let proposal = Proposal::parse(header, self.inbox.message(MAX_LEN))?;
                if let Some(reason) = self.barred {
                    return Ok(decline(reason, proposal.version()));
                }
                Ok(match self.host.terms(&proposal) {
                    Ok(terms) => {
                        self.state = State::Preparing(terms);
                        Action::Prepare(terms)
                    }
                    Err(refusal) => match proposal.subnets() {
                        Some(subnets) if refusal.near != refusal.far => {
                            self.state = State::Locating(refusal, proposal.version());
                            Action::Locate(subnets)
                        }
                        _ => decline(refusal.near, proposal.version()),
                    },
                })
            }
            State::Accept => {
                let accept = Accept::parse(header, self.inbox.message(MAX_ACCEPT_LEN))?;
                // Only SMC-D in version 2 was proposed.
                let Accept::Smcd(accept) = accept else {
                    return Ok(decline(Reason::ModeUnsupported, header.version));
                };
                // A channel that was not proposed breaks the protocol.
                if !accept.is_loopback() {
                    return Err(EPROTO);
                }
                // Link groups are never reused on the wire, so the server counts others than ours.
                if accept.first_contact.is_none() {
                    return Ok(decline(Reason::OutOfSync, header.version));
                }
                let eid = self.host.eids.negotiate([accept.eid]);
                Ok(match eid {
                    // As in C, a buffer that cannot be attached to is one without memory.
                    _ if !accept.is_from(self.host.gid) => decline(Reason::Memory, header.version),
                    None => decline(Reason::NoSmcdDevice, header.version),
                    Some(eid) => {
                        self.state = State::Claiming(accept, eid);
                        Action::Claim(accept)
                    }
                })
            }
            State::Confirm(ours) => {
                // The client takes the connection for SMC-D from now on: there is no way back.
                let Accept::Smcd(peer) = Accept::parse(header, self.inbox.message(MAX_LEN))? else {
                    return Err(EPROTO);
                };
                if !peer.is_from(self.host.gid)
                    || peer.eid != ours.eid
                    || peer
                        .release()
                        .is_some_and(|theirs| Some(theirs) != ours.release())
                {
                    return Err(EPROTO);
                }
                Ok(Action::Established { send: None })
            }
            State::Locating(..) | State::Preparing(_) | State::Claiming(..) | State::Over => {
                Ok(Action::Wait)
            }
        }
    }

    /// The owner knows where the client is.
    fn located(&self, is_near: bool) -> Action {
        match self.state {
            State::Locating(refusal, version) if is_near => decline(refusal.near, version),
            State::Locating(refusal, version) => decline(refusal.far, version),
            _ => Action::Wait,
        }
    }

    /// The owner did what it was asked to do.
    fn ready(&mut self, offer: Offer) -> Action {
        match &self.state {
            State::Preparing(terms) => {
                let first_contact = FirstContact::answer(terms.release, self.host.hostname);
                let accept = self.host.smcd(terms.eid, &offer, Some(first_contact));
                self.state = State::Confirm(accept);
                Action::Send(accept.encode(Kind::Accept))
            }
            State::Claiming(accept, eid) => {
                let first_contact = accept
                    .release()
                    .map(|release| FirstContact::answer(release, self.host.hostname));
                let confirm = self.host.smcd(*eid, &offer, first_contact);
                Action::Established {
                    send: Some(confirm.encode(Kind::Confirm)),
                }
            }
            _ => Action::Wait,
        }
    }

    /// The owner cannot do what it was asked to do.
    fn refused(&mut self, reason: Reason) -> Action {
        match &self.state {
            State::Preparing(terms) => decline(reason, terms.version),
            State::Claiming(..) => decline(reason, Version::V2),
            _ => Action::Wait,
        }
    }
}

impl Host {
    /// The terms on which this host accepts a proposal.
    ///
    /// Follows `smc_listen_v2_check()` and `smc_listen_find_device()` of a host that has the
    /// loopback device only, so that a client reads the same reason from either.
    ///
    /// # Errors
    ///
    /// The reason to decline.
    fn terms(&self, proposal: &Proposal<'_>) -> Result<Terms, Refusal> {
        let (v1, v2) = (proposal.v1(), proposal.v2());
        let has_eid = proposal.eids().next().is_some();
        let smcd = match v2 {
            _ if !v2.has_d() => Err(Reason::PeerNoSmc),
            _ if !proposal.has_smcd_extension() => Err(Reason::NoSmcdExtension),
            _ if !has_eid && !proposal.has_seid() => Err(Reason::NoUeid),
            _ => Ok(()),
        };
        let smcr = v2.has_r() && has_eid;
        if v1 == Modes::None && !smcr {
            // Without an EID nothing is left of SMC-R, and that is said last.
            smcd.map_err(|reason| if v2.has_r() { Reason::NoUeid } else { reason })?;
        }
        if smcr && proposal.release() >= 1 {
            if proposal.max_conns() < MIN_CONNS {
                return Err(Reason::TooFewConnections.into());
            }
            if proposal.max_links() < MIN_LINKS {
                return Err(Reason::TooFewLinks.into());
            }
        }

        let eid = self.eids.negotiate(proposal.eids());
        let mut first = None;
        match (smcd, eid) {
            (Ok(()), _) if !proposal.is_from(self.gid) => first = Some(Reason::NoCommonDevice),
            (Ok(()), Some(eid)) => {
                return Ok(Terms {
                    eid,
                    release: proposal.release(),
                    version: proposal.version(),
                })
            }
            _ => {}
        }
        // The devices that are not here, in the order in which C looks for them.
        let missing = match (v1, v2) {
            _ if v1.has_d() => Reason::NoSmcdDevice,
            _ if smcr && eid.is_some() => Reason::NoSmcrDevice,
            _ if v1.has_r() || v2.has_r() => Reason::NoDevice,
            _ => Reason::NoSmcdDevice,
        };
        Err(Refusal {
            near: first.unwrap_or(missing),
            // Devices of version 1 are not looked for on behalf of another subnet.
            far: match first {
                Some(reason) if !v1.has_r() && !v2.has_r() => reason,
                _ => Reason::OtherSubnet,
            },
        })
    }

    /// What this host says about a buffer of its own.
    fn smcd(&self, eid: Eid, offer: &Offer, first_contact: Option<FirstContact>) -> Smcd {
        Smcd::new(
            self.gid,
            eid,
            offer.token,
            offer.size,
            offer.link_group,
            first_contact,
        )
    }
}

/// The end in TCP without a word.
fn fallback(reason: Reason) -> Action {
    Action::Fallback {
        send: None,
        reason,
        peer_diagnosis: 0,
    }
}

/// The end in TCP with a decline, which the peer waits for.
fn decline(reason: Reason, version: Version) -> Action {
    Action::Fallback {
        send: Some(Decline::encode(reason, version)),
        reason,
        peer_diagnosis: 0,
    }
}
