// SPDX-License-Identifier: GPL-2.0

//! The conversation: every step against every answer, and two machines against each other.

use super::bytes::*;
use crate::clc::{
    eid::Table,
    wire::{
        decline::Reason,
        machine::{
            Action,
            Event,
            Host,
            Machine,
            Offer,
            Want, //
        },
        proposal::Proposal,
        Gid, //
    },
};
use kernel::prelude::*;
use proptest::prelude::*;
use std::collections::VecDeque;

fn host() -> Host {
    Host {
        gid: GID,
        hostname: *b"node                            ",
        eids: Table::new(),
    }
}

const SERVER_OFFER: Offer = Offer {
    token: 0xa1a2_a3a4_a5a6_a7a8,
    size: 2,
    link_group: 7,
};

const CLIENT_OFFER: Offer = Offer {
    token: 0xb1b2_b3b4_b5b6_b7b8,
    size: 6,
    link_group: 9,
};

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Smc,
    Tcp { reason: Reason, diagnosis: u32 },
    Dead(Error),
}

use End::*;

/// TCP without a decline received.
fn tcp(reason: Reason) -> Option<End> {
    Some(Tcp {
        reason,
        diagnosis: 0,
    })
}

/// A machine with its owner: the stream it reads, and what it had sent.
struct Peer {
    machine: Machine,
    offer: Result<Offer, Reason>,
    /// Whether this host is in a client's subnet, and whether the machine has asked.
    near: bool,
    located: bool,
    inbox: VecDeque<u8>,
    sent: Vec<u8>,
    end: Option<End>,
    /// The most bytes the stream gives at once.
    chunk: usize,
}

impl Peer {
    fn new(machine: Machine, offer: Offer) -> Self {
        Self {
            machine,
            offer: Ok(offer),
            near: true,
            located: false,
            inbox: VecDeque::new(),
            sent: Vec::new(),
            end: None,
            chunk: usize::MAX,
        }
    }

    fn server() -> Self {
        Self::new(Machine::server(host(), None), SERVER_OFFER)
    }

    /// A server whose socket has a policy for IPsec.
    fn barred_server() -> Self {
        Self::new(Machine::server(host(), Some(Reason::Ipsec)), SERVER_OFFER)
    }

    fn client() -> Self {
        Self::begun(None)
    }

    /// A client that has done the first thing.
    fn begun(barred: Option<Reason>) -> Self {
        let (machine, beginning) = Machine::client(host(), barred);
        let mut peer = Self::new(machine, CLIENT_OFFER);
        peer.follow(beginning);
        peer
    }

    /// A server that has sent its accept.
    fn accepted_server() -> Self {
        let mut peer = Self::server();
        peer.hears(&proposal());
        assert_eq!(std::mem::take(&mut peer.sent), accept());
        peer
    }

    /// Does what the machine says.
    fn event(&mut self, event: Event<'_>) {
        let action = self.machine.step(event);
        self.follow(action);
    }

    fn follow(&mut self, mut action: Action) {
        loop {
            let (send, end) = match action {
                Action::Wait => return,
                Action::Locate(_) => {
                    assert!(!self.located, "a machine asks once");
                    self.located = true;
                    action = self.machine.step(Event::Located(self.near));
                    continue;
                }
                Action::Send(packet) => (Some(packet), None),
                Action::Prepare(_) | Action::Claim(_) => {
                    action = self.machine.step(match self.offer {
                        Ok(offer) => Event::Ready(offer),
                        Err(reason) => Event::Refused(reason),
                    });
                    continue;
                }
                Action::Established { send } => (send, Some(Smc)),
                Action::Fallback {
                    send,
                    reason,
                    peer_diagnosis: diagnosis,
                } => (send, Some(Tcp { reason, diagnosis })),
                Action::Fail(error) => (None, Some(Dead(error))),
            };
            if let Some(packet) = send {
                self.sent.extend(packet.as_bytes());
            }
            if end.is_some() {
                assert_eq!(self.end, None, "a machine ends once");
                assert_eq!(self.machine.want(), Want::Nothing);
                self.end = end;
            }
            return;
        }
    }

    /// Lets the machine have what it wants of what has arrived.
    fn pump(&mut self) {
        loop {
            let have = self.inbox.len();
            let before = self.machine.want();
            match before {
                Want::Nothing => return,
                Want::Peek(most) => {
                    let head: Vec<u8> = self.inbox.iter().copied().take(most).collect();
                    self.event(Event::Peeked(&head));
                    // Nothing new to be seen until more arrives.
                    if self.machine.want() == before {
                        return;
                    }
                }
                Want::Read(most) => {
                    let taken: Vec<u8> =
                        self.inbox.drain(..most.min(have).min(self.chunk)).collect();
                    if taken.is_empty() {
                        return;
                    }
                    self.event(Event::Read(&taken));
                }
            }
        }
    }

    fn hears(&mut self, bytes: &[u8]) {
        self.inbox.extend(bytes);
        self.pump();
    }

    /// Lets the stream end.
    fn hangs_up(&mut self) {
        self.pump();
        self.event(Event::Closed);
    }

    /// What is left in the stream, for the application.
    fn rest(&self) -> Vec<u8> {
        self.inbox.iter().copied().collect()
    }
}

/// The three places in which a machine waits for a peer.
fn waiting() -> [(&'static str, Peer); 3] {
    let mut client = Peer::client();
    client.sent.clear();
    [
        ("proposal", Peer::server()),
        ("accept", client),
        ("confirm", Peer::accepted_server()),
    ]
}

#[test]
fn handshake_is_the_three_messages_c_exchanges() {
    let mut client = Peer::client();
    assert_eq!(client.sent, proposal());
    let mut server = Peer::server();
    server.hears(&client.sent);
    assert_eq!(server.sent, accept());

    client.sent.clear();
    client.hears(&server.sent);
    assert_eq!(client.end, Some(Smc));
    // The server's first contact is answered with one.
    assert_eq!(client.sent.len(), 130);
    assert_eq!(client.sent[..8], bytes("e2d4c3c4 03 0082 29"));

    server.hears(&client.sent);
    assert_eq!(server.end, Some(Smc));
    assert_eq!(server.sent, accept(), "nothing more is sent");
}

#[test]
fn server_goes_by_the_older_release() {
    for (release, length) in [(0, "0072"), (1, "0082"), (2, "0082"), (15, "0082")] {
        let mut server = Peer::server();
        let mut message = proposal();
        message[83] = release << 4;
        server.hears(&message);
        assert_eq!(server.sent[..8], bytes(&format!("e2d4c3c4 02 {length} 29")));
        assert_eq!(server.sent[75], 0x20 | release.min(1));
    }
}

#[test]
fn what_follows_a_message_stays_in_the_stream() {
    for chunk in [1, 3, usize::MAX] {
        for (name, mut peer) in waiting() {
            peer.chunk = chunk;
            let message = match name {
                "proposal" => [proposal(), decline("03030007")].concat(),
                "accept" => accept(),
                _ => confirm(),
            };
            peer.hears(&[&message[..], b"data"].concat());
            assert!(peer.end.is_some(), "{name}");
            assert_eq!(peer.rest(), b"data", "{name}");
        }
    }
}

#[test]
fn decline_in_any_step_ends_in_tcp_without_an_answer() {
    for version in [1, 2] {
        for bit in [0x00, 0x08] {
            for (name, mut peer) in waiting() {
                let mut message = match version {
                    1 => decline_v1("03030007"),
                    _ => decline("03030007"),
                };
                message[7] |= bit;
                message.extend(b"data");
                peer.hears(&message);
                assert_eq!(
                    peer.end,
                    Some(Tcp {
                        reason: Reason::PeerDeclined,
                        diagnosis: 0x0303_0007
                    }),
                    "{name}"
                );
                assert_eq!(peer.sent, b"", "{name}");
                assert_eq!(peer.rest(), b"data", "{name}");
            }
        }
    }
}

#[test]
fn silence_in_any_step_is_a_timeout() {
    for begun in [0, 1, 7, 8, 9, 20] {
        for (name, mut peer) in waiting() {
            let message = decline("03030007");
            peer.hears(&message[..begun]);
            peer.event(Event::Timeout);
            assert_eq!(peer.end, Some(Dead(ETIMEDOUT)), "{name} {begun}");
            assert_eq!(peer.sent, b"", "{name}");
        }
    }
}

#[test]
fn hanging_up_is_a_reset_and_within_a_message_a_broken_protocol() {
    for begun in [0, 1, 7, 8, 9, 20] {
        for (name, mut peer) in waiting() {
            peer.hears(&decline("03030007")[..begun]);
            peer.hangs_up();
            let expected = match (name, begun) {
                // For the application this is a connection without data.
                ("proposal", 0) => tcp(Reason::PeerNoSmc),
                (_, 0) => Some(Dead(ECONNRESET)),
                _ => Some(Dead(EPROTO)),
            };
            assert_eq!(peer.end, expected, "{name} {begun}");
            assert_eq!(peer.sent, b"", "{name}");
        }
    }
}

#[test]
fn failure_of_tcp_is_passed_on_in_any_step() {
    for (name, mut peer) in waiting() {
        peer.event(Event::Failed(EHOSTUNREACH));
        assert_eq!(peer.end, Some(Dead(EHOSTUNREACH)), "{name}");
    }
}

#[test]
fn client_that_does_not_speak_clc_is_served_over_tcp() {
    for text in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16", b"\xe2\xd4x"] {
        let mut server = Peer::server();
        server.hears(text);
        assert_eq!(server.end, tcp(Reason::PeerNoSmc));
        assert_eq!(server.sent, b"");
        assert_eq!(server.rest(), text);
    }
}

#[test]
fn server_that_does_not_speak_clc_is_an_error_at_its_first_byte() {
    for (name, mut peer) in waiting() {
        if name != "proposal" {
            peer.hears(b"H");
            assert_eq!(peer.end, Some(Dead(EPROTO)), "{name}");
        }
    }
}

#[test]
fn message_out_of_turn_is_a_broken_protocol() {
    for (name, mut peer) in waiting() {
        peer.hears(&match name {
            "proposal" => accept(),
            "accept" => confirm(),
            _ => proposal(),
        });
        assert_eq!(peer.end, Some(Dead(EPROTO)), "{name}");
        assert_eq!(peer.sent, b"", "{name}");
    }
}

#[test]
fn malformed_message_is_a_broken_protocol_in_any_step() {
    for (name, _) in waiting() {
        let message = match name {
            "proposal" => proposal(),
            "accept" => accept(),
            _ => confirm(),
        };
        // Version 0, a length too small for anything, and a bad end.
        for (at, value) in [(7, 0x01), (6, 7), (message.len() - 1, 0)] {
            let (_, mut peer) = waiting().into_iter().find(|w| w.0 == name).unwrap();
            let mut message = message.clone();
            message[at] = value;
            if at == 6 {
                message[5] = 0;
            }
            peer.hears(&message);
            assert_eq!(peer.end, Some(Dead(EPROTO)), "{name} {at}");
            assert_eq!(peer.sent, b"", "{name}");
        }
    }
}

#[test]
fn oversized_message_is_taken_in_full_and_judged() {
    // No proposal is longer than the longest.
    let mut server = Peer::server();
    let mut message = bytes("e2d4c3d9 01 ffff 26");
    message.resize(65535, 0);
    server.hears(&message);
    assert_eq!(server.end, Some(Dead(EPROTO)));

    // An accept may be, and its end is not looked at.
    let mut client = Peer::client();
    let mut message = accept();
    message[5..7].copy_from_slice(&[0x10, 0x00]);
    message.resize(4096, 0xee);
    message.extend(b"data");
    client.hears(&message);
    assert!(matches!(client.end, Some(Smc)));
    assert_eq!(client.rest(), b"data");
}

#[test]
fn server_declines_what_it_cannot_do() {
    let no_eid = Proposal::encode(GID, &[]).as_bytes().to_vec();
    let mut no_extension = proposal();
    no_extension[86..88].fill(0);
    let mut other_eid = proposal();
    other_eid[120] = b'X';
    // SMC-R in version 2: with and without an EID in common, or any, and with its limits too low.
    let rdma = |at: usize, bytes: &[u8]| {
        let mut message = proposal_of(0x02);
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    let same_eid = rdma(120, b"SMC-LO.DEFAULT                  ");
    let few_conns = rdma(104, &[15]);
    let few_links = rdma(105, &[0]);
    let mut few_of_release_0 = few_links.clone();
    few_of_release_0[83] = 0;
    let mut rdma_without_eid = rdma(80, &[0]);
    rdma_without_eid.drain(120..152);
    set_length(&mut rdma_without_eid);
    // What is wrong with SMC-D does not matter while SMC-R is there to be looked at.
    let mut both_without_extension = proposal_of(0x0e);
    both_without_extension[86..88].fill(0);
    for (message, reason, version) in [
        (proposal_of(0x0f), Reason::NoCommonDevice, 2),
        (proposal_of(0x06), Reason::NoCommonDevice, 2),
        (proposal_of(0x00), Reason::NoDevice, 2),
        (proposal_of(0x02), Reason::NoDevice, 2),
        (same_eid, Reason::NoSmcrDevice, 2),
        (few_conns, Reason::TooFewConnections, 2),
        (few_links, Reason::TooFewLinks, 2),
        (few_of_release_0, Reason::NoDevice, 2),
        (rdma_without_eid, Reason::NoUeid, 2),
        (both_without_extension, Reason::NoDevice, 2),
        (proposal_of(0x01), Reason::NoSmcdDevice, 2),
        (proposal_of(0x08), Reason::NoDevice, 2),
        (proposal_of(0x09), Reason::NoSmcdDevice, 2),
        (proposal_of(0x0a), Reason::PeerNoSmc, 2),
        (proposal_v1(), Reason::NoDevice, 1),
        (no_eid, Reason::NoUeid, 2),
        (no_extension, Reason::NoSmcdExtension, 2),
        (other_eid, Reason::NoSmcdDevice, 2),
    ] {
        let mut server = Peer::server();
        server.hears(&message);
        assert_eq!(server.end, tcp(reason));
        let code = format!("{:08x}", reason.code());
        let expected = match version {
            1 => decline_v1(&code),
            _ => decline(&code),
        };
        assert_eq!(server.sent, expected);
        assert_eq!(server.rest(), b"");
    }
}

#[test]
fn server_looks_for_devices_of_version_1_only_in_its_subnet() {
    for (message, reason, located, version) in [
        (proposal_v1(), Reason::OtherSubnet, true, 1),
        (proposal_of(0x00), Reason::OtherSubnet, true, 2),
        (proposal_of(0x08), Reason::OtherSubnet, true, 2),
        (proposal_of(0x09), Reason::OtherSubnet, true, 2),
        (proposal_of(0x0f), Reason::OtherSubnet, true, 2),
        // Version 2 has the last word where no RDMA is to be looked for.
        (proposal_of(0x05), Reason::NoCommonDevice, false, 2),
        // There is nothing of version 1.
        (proposal_of(0x02), Reason::NoDevice, false, 2),
        (proposal_of(0x0e), Reason::NoCommonDevice, false, 2),
    ] {
        let mut server = Peer::server();
        server.near = false;
        server.hears(&message);
        assert_eq!(server.end, tcp(reason));
        assert_eq!(server.located, located);
        let code = format!("{:08x}", reason.code());
        let expected = match version {
            1 => decline_v1(&code),
            _ => decline(&code),
        };
        assert_eq!(server.sent, expected);
    }
}

#[test]
fn server_without_room_declines() {
    let mut server = Peer::server();
    server.offer = Err(Reason::Memory);
    server.hears(&proposal());
    assert_eq!(server.end, tcp(Reason::Memory));
    assert_eq!(server.sent, decline("01010000"));
}

#[test]
fn server_with_ipsec_declines_whatever_is_proposed() {
    for (message, answer) in [
        (proposal(), decline("03020000")),
        (proposal_of(0x0f), decline("03020000")),
        (proposal_v1(), decline_v1("03020000")),
    ] {
        let mut server = Peer::barred_server();
        server.hears(&message);
        assert_eq!(server.end, tcp(Reason::Ipsec));
        assert_eq!(server.sent, answer);
        assert!(!server.located);
    }
    // It does not insist on it: a client that says nothing of SMC, or no, is heard.
    let mut server = Peer::barred_server();
    server.hears(b"GET / HTTP/1.0");
    assert_eq!(server.end, tcp(Reason::PeerNoSmc));
    assert_eq!(server.sent, b"");
}

#[test]
fn client_with_ipsec_begins_with_the_decline() {
    let client = Peer::begun(Some(Reason::Ipsec));
    assert_eq!(client.end, tcp(Reason::Ipsec));
    assert_eq!(client.sent, decline("03020000"));
    assert_eq!(client.machine.want(), Want::Nothing);
}

#[test]
fn failure_for_want_of_places_has_a_reason_of_its_own() {
    for err in [ENOSPC, EDQUOT] {
        assert_eq!(Reason::of_failure(err).code(), 0x030d_0000);
    }
    assert_eq!(Reason::of_failure(ENOMEM).code(), 0x0101_0000);
}

#[test]
fn client_declines_what_it_did_not_propose() {
    let v1 = bytes(
        "e2d4c3c4 02 0030 11 0102030405060708 a1a2a3a4a5a6a7a8 00 20 0000 00000000 00*12 e2d4c3c4",
    );
    let rdma = bytes("e2d4c3d9 02 006c 28 00*96 e2d4c3d9");
    let mut stranger = accept();
    stranger[66] ^= 1;
    let mut other_eid = accept();
    other_eid[34] = b'X';
    // A link group that the two are said to have in common already.
    let mut known_group = confirm();
    known_group[4] = 2;
    let mut out_of_sync = decline("04000000");
    out_of_sync[7] |= 0x08;
    for (message, reason, expected) in [
        (known_group, Reason::OutOfSync, out_of_sync),
        (v1, Reason::ModeUnsupported, decline_v1("03040000")),
        (rdma, Reason::ModeUnsupported, decline("03040000")),
        (stranger, Reason::Memory, decline("01010000")),
        (other_eid, Reason::NoSmcdDevice, decline("03030001")),
    ] {
        let (_, mut client) = waiting().into_iter().nth(1).unwrap();
        client.hears(&message);
        assert_eq!(client.end, tcp(reason));
        assert_eq!(client.sent, expected);
    }
    // A channel that was not proposed is no refusal but nonsense.
    let (_, mut client) = waiting().into_iter().nth(1).unwrap();
    let mut channel = accept();
    channel[33] = 0xfe;
    client.hears(&channel);
    assert_eq!(client.end, Some(Dead(EPROTO)));
    assert_eq!(client.sent, b"");
}

#[test]
fn client_that_does_not_find_the_token_declines() {
    let (_, mut client) = waiting().into_iter().nth(1).unwrap();
    client.offer = Err(Reason::Memory);
    client.hears(&accept());
    assert_eq!(client.end, tcp(Reason::Memory));
    assert_eq!(client.sent, decline("01010000"));
}

#[test]
fn confirm_of_something_else_is_an_error_and_no_way_back() {
    let with = |at: usize, value: u8| {
        let mut message = confirm();
        message[at] = value;
        message
    };
    let mut release_0 = confirm();
    release_0[7] |= 0x08;
    for message in [
        // Another kernel, channel, EID, transport; a release that was not agreed on.
        with(8, 0xff),
        with(33, 0xfe),
        with(34, b'X'),
        bytes("e2d4c3d9 03 006c 28 00*96 e2d4c3d9"),
        release_0,
    ] {
        let mut server = Peer::accepted_server();
        server.hears(&message);
        assert_eq!(server.end, Some(Dead(EPROTO)));
        assert_eq!(server.sent, b"");
    }
}

#[test]
fn owner_that_is_late_is_not_the_peers_fault() {
    let mut server = Machine::server(host(), None);
    let message = proposal();
    assert!(matches!(
        server.step(Event::Peeked(&message[..8])),
        Action::Wait
    ));
    assert!(matches!(
        server.step(Event::Read(&message)),
        Action::Prepare(_)
    ));
    for event in [Event::Timeout, Event::Closed, Event::Peeked(b"x")] {
        assert!(matches!(server.step(event), Action::Wait));
    }
    assert!(matches!(
        server.step(Event::Ready(SERVER_OFFER)),
        Action::Send(_)
    ));
}

/// Two machines and a pipe each way that carries bytes in pieces, whenever it likes.
struct Pair {
    ends: [Peer; 2],
    /// How much of what an end sent has left it.
    carried: [usize; 2],
    /// Whether an end has closed, by which the other's stream ends.
    reset: [bool; 2],
}

impl Pair {
    fn new(server_gid: Gid) -> Self {
        let mut server = Peer::server();
        let host = Host {
            gid: server_gid,
            ..host()
        };
        server.machine = Machine::server(host, None);
        Self {
            ends: [Peer::client(), server],
            carried: [0; 2],
            reset: [false; 2],
        }
    }

    /// Carries up to `count` bytes to the end `to`.
    fn carry(&mut self, to: usize, count: usize) {
        let from = 1 - to;
        let sent = &self.ends[from].sent[self.carried[from]..];
        let piece = sent[..count.min(sent.len())].to_vec();
        self.carried[from] += piece.len();
        self.ends[to].hears(&piece);
        self.close();
    }

    /// An end that failed resets the connection; one that is TCP sends data.
    fn close(&mut self) {
        for i in 0..2 {
            if matches!(self.ends[i].end, Some(Dead(_))) && !self.reset[i] {
                self.reset[i] = true;
                self.ends[1 - i].event(Event::Failed(ECONNRESET));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.end.is_some())
    }
}

/// What the network and the clocks do next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Carry { to: usize, count: usize },
    Timeout { at: usize },
    Refuse { at: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0usize..2, 1usize..160).prop_map(|(to, count)| Step::Carry { to, count }),
        1 => (0usize..2).prop_map(|at| Step::Timeout { at }),
        1 => (0usize..2).prop_map(|at| Step::Refuse { at }),
    ]
}

fn smooth_step() -> impl Strategy<Value = Step> {
    (0usize..2, 1usize..160).prop_map(|(to, count)| Step::Carry { to, count })
}

/// Runs two machines through `steps` and then to the end, and checks what must always hold.
fn run(mut pair: Pair, steps: &[Step]) -> [End; 2] {
    for &step in steps {
        match step {
            Step::Carry { to, count } => pair.carry(to, count),
            Step::Timeout { at } => {
                if pair.ends[at].end.is_none() {
                    pair.ends[at].event(Event::Timeout);
                    pair.close();
                }
            }
            Step::Refuse { at } => pair.ends[at].offer = Err(Reason::Memory),
        }
    }
    for _ in 0..8 {
        pair.carry(0, usize::MAX);
        pair.carry(1, usize::MAX);
    }
    assert!(pair.is_over(), "both come to an end by themselves");
    // Both applications write as soon as they may.
    for to in 0..2 {
        pair.carry(to, usize::MAX);
        pair.ends[to].hears(b"data");
    }
    let ends = [pair.ends[0].end.unwrap(), pair.ends[1].end.unwrap()];
    match ends {
        [Smc, Smc] | [Tcp { .. }, Tcp { .. }] => {
            for end in &pair.ends {
                assert_eq!(end.rest(), b"data", "{ends:?}");
            }
        }
        // The one that fails resets the connection, whatever the other took it for.
        [Dead(_), _] | [_, Dead(_)] => {}
        _ => panic!("one end is SMC-D and the other TCP: {ends:?}"),
    }
    ends
}

proptest! {
    #[test]
    fn ends_agree_or_the_connection_is_reset(steps in prop::collection::vec(step(), 0..24)) {
        run(Pair::new(GID), &steps);
    }

    #[test]
    fn ends_on_one_kernel_agree_on_smc_however_slow(
        steps in prop::collection::vec(smooth_step(), 0..24),
    ) {
        let ends = run(Pair::new(GID), &steps);
        prop_assert_eq!(ends, [Smc, Smc]);
    }

    #[test]
    fn ends_on_two_kernels_agree_on_tcp_however_slow(
        steps in prop::collection::vec(smooth_step(), 0..24),
    ) {
        let other = Gid { gid: 1, ext: 2 };
        let ends = run(Pair::new(other), &steps);
        prop_assert_eq!(ends, [
            Tcp { reason: Reason::PeerDeclined, diagnosis: 0x0303_0007 },
            Tcp { reason: Reason::NoCommonDevice, diagnosis: 0 },
        ]);
    }
}

/// An event without its bytes.
#[derive(Clone, Debug)]
enum Happening {
    Peeked(Vec<u8>),
    Read(Vec<u8>),
    Closed,
    Failed,
    Timeout,
    Located,
    Ready,
    Refused,
}

fn happening() -> impl Strategy<Value = Happening> {
    let message = prop_oneof![
        Just(proposal()),
        Just(accept()),
        Just(confirm()),
        Just(decline("03030007")),
        Just(decline_v1("03030007")),
        Just(large_proposal(8, 8, 8)),
        prop::collection::vec(any::<u8>(), 0..200),
    ];
    let message = (message, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(mut message, len, whole)| {
            if !whole {
                message.truncate(len.index(message.len() + 1));
            }
            message
        },
    );
    prop_oneof![
        4 => message.clone().prop_map(|mut message| {
            message.truncate(8);
            Happening::Peeked(message)
        }),
        4 => message.prop_map(Happening::Read),
        1 => Just(Happening::Closed),
        1 => Just(Happening::Failed),
        1 => Just(Happening::Timeout),
        1 => Just(Happening::Located),
        2 => Just(Happening::Ready),
        1 => Just(Happening::Refused),
    ]
}

proptest! {
    /// Also orders that no owner produces end at most once, and nothing happens afterwards.
    #[test]
    fn events_in_any_order_end_a_machine_once(
        is_client in any::<bool>(),
        happenings in prop::collection::vec(happening(), 0..16),
    ) {
        let mut machine = if is_client {
            Machine::client(host(), None).0
        } else {
            Machine::server(host(), None)
        };
        let mut over = false;
        for happening in &happenings {
            let action = machine.step(match happening {
                Happening::Peeked(bytes) => Event::Peeked(bytes),
                Happening::Read(bytes) => Event::Read(bytes),
                Happening::Closed => Event::Closed,
                Happening::Failed => Event::Failed(ECONNRESET),
                Happening::Timeout => Event::Timeout,
                Happening::Located => Event::Located(true),
                Happening::Ready => Event::Ready(SERVER_OFFER),
                Happening::Refused => Event::Refused(Reason::Memory),
            });
            if over {
                prop_assert!(matches!(action, Action::Wait));
            }
            over |= matches!(
                action,
                Action::Established { .. } | Action::Fallback { .. } | Action::Fail(_)
            );
            if over {
                prop_assert_eq!(machine.want(), Want::Nothing);
            }
            match machine.want() {
                Want::Read(count) => prop_assert!((1..=65535).contains(&count)),
                Want::Peek(count) => prop_assert_eq!(count, 8),
                Want::Nothing => {}
            }
        }
    }
}
