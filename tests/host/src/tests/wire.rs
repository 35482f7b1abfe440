// SPDX-License-Identifier: GPL-2.0

//! The codec: byte for byte what C sends, and the judgement C passes on what it receives.

use super::bytes::*;
use crate::{
    clc::{
        eid::{
            Eid,
            Table, //
        },
        wire::{
            accept::{
                Accept,
                FirstContact,
                Smcd, //
            },
            decline::{
                Decline,
                Reason, //
            },
            proposal::Proposal,
            Gid,
            Header,
            Kind,
            Malformed,
            Modes,
            Version, //
        },
    },
    fuzz,
    judge, //
};
use proptest::prelude::*;
use std::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

const HOSTNAME: [u8; 32] = *b"node                            ";

fn header(message: &[u8]) -> Result<Header, Malformed> {
    Header::parse(message.first_chunk().ok_or(Malformed)?)
}

fn parse_proposal(message: &[u8]) -> Result<Proposal<'_>, Malformed> {
    Proposal::parse(&header(message)?, message)
}

fn parse_accept(message: &[u8]) -> Result<Accept, Malformed> {
    Accept::parse(&header(message)?, message)
}

fn parse_decline(message: &[u8]) -> Result<Decline, Malformed> {
    Decline::parse(&header(message)?, message)
}

/// Every message there is an example of.
fn examples() -> Vec<Vec<u8>> {
    vec![
        proposal(),
        proposal_v1(),
        proposal_of(0x00),
        proposal_of(0x06),
        proposal_of(0x08),
        large_proposal(0, 0, 0),
        large_proposal(1, 1, 1),
        large_proposal(8, 8, 8),
        accept(),
        confirm(),
        decline("03030007"),
        decline_v1("03010000"),
    ]
}

#[test]
fn proposal_is_what_c_sends() {
    assert_eq!(
        Proposal::encode(GID, &[Eid::DEFAULT]).as_bytes(),
        proposal()
    );
}

#[test]
fn proposal_grows_with_the_table() {
    let mut table = Table::new();
    for (count, name) in [(1, b"A"), (2, b"B"), (3, b"C"), (4, b"D")] {
        let mut eid = [b' '; 32];
        eid[0] = name[0];
        table.add(eid.try_into().unwrap()).unwrap();
        let packet = Proposal::encode(GID, table.effective());
        let message = packet.as_bytes();
        assert_eq!(message.len(), 192 + 32 * count);
        let proposal = parse_proposal(message).unwrap();
        assert!(proposal.is_from(GID));
        assert!(proposal
            .eids()
            .eq(table.effective().iter().map(|eid| *eid.as_bytes())));
    }
}

#[test]
fn proposal_reads_as_written() {
    let message = proposal();
    let proposal = parse_proposal(&message).unwrap();
    assert_eq!(proposal.version(), Version::V2);
    assert_eq!(proposal.v1(), Modes::None);
    assert_eq!(proposal.v2(), Modes::D);
    assert_eq!(proposal.release(), 1);
    assert!(!proposal.has_seid());
    assert!(proposal.has_smcd_extension());
    assert_eq!(
        proposal.eids().collect::<Vec<_>>(),
        [*Eid::DEFAULT.as_bytes()]
    );
    assert!(proposal.is_from(GID));
    for stranger in [
        Gid {
            gid: GID.gid ^ 1,
            ..GID
        },
        Gid {
            ext: GID.ext ^ 1,
            ..GID
        },
        Gid {
            gid: GID.ext,
            ext: GID.gid,
        },
    ] {
        assert!(!proposal.is_from(stranger));
    }
}

#[test]
fn proposals_of_other_clients_are_valid() {
    for prefixes in 0..=8 {
        for eids in 0..=8 {
            for gids in 0..=8 {
                let message = large_proposal(prefixes, eids, gids);
                let proposal = parse_proposal(&message).unwrap();
                assert_eq!(proposal.v1(), Modes::Both);
                assert_eq!(proposal.v2(), Modes::Both);
                assert_eq!(proposal.eids().count(), usize::from(eids));
                assert!(!proposal.is_from(GID));
            }
        }
    }
    assert_eq!(large_proposal(8, 8, 8).len(), 652);
    let message = proposal_v1();
    let proposal = parse_proposal(&message).unwrap();
    assert_eq!(proposal.version(), Version::V1);
    assert_eq!((proposal.v1(), proposal.v2()), (Modes::R, Modes::None));
    assert_eq!(proposal.eids().count(), 0);
}

#[test]
fn subnets_are_version_1s() {
    let subnets = |message: &[u8]| -> Vec<(IpAddr, u8)> {
        let proposal = parse_proposal(message).unwrap();
        proposal.subnets().unwrap().iter().collect()
    };
    let ipv4 = [(Ipv4Addr::new(192, 168, 0, 0).into(), 24)];
    assert_eq!(subnets(&proposal_v1()), ipv4);
    assert_eq!(subnets(&large_proposal(0, 1, 1)), ipv4);
    // IPv6 has the last word.
    let ipv6 = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).into(), 64);
    assert_eq!(subnets(&large_proposal(8, 8, 8)), [ipv6; 8]);
    let mut message = large_proposal(2, 1, 1);
    message[40 + 40 + 8 + 17 + 1] = 0x01;
    message[40 + 40 + 8 + 17 + 16] = 255;
    let other = (Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0).into(), 255);
    assert_eq!(subnets(&message), [ipv6, other]);
    assert_eq!(parse_proposal(&proposal()).unwrap().subnets(), None);
}

#[test]
fn gid_takes_two_entries_of_one_channel() {
    // Where the entries begin in a proposal with two of them, and where the count is.
    let with = |entries: &[(u64, u16)], native: (u64, u16)| {
        let mut message = large_proposal(0, 1, u8::try_from(entries.len()).unwrap());
        let first = message.len() - 4 - 10 * entries.len();
        for (i, (gid, chid)) in entries.iter().enumerate() {
            let at = first + 10 * i;
            message[at..at + 8].copy_from_slice(&gid.to_be_bytes());
            message[at + 8..at + 10].copy_from_slice(&chid.to_be_bytes());
        }
        message[40..48].copy_from_slice(&native.0.to_be_bytes());
        message[48..50].copy_from_slice(&native.1.to_be_bytes());
        message
    };
    let (a, b) = (GID.gid, GID.ext);
    for (entries, native, expected) in [
        (&[(a, 0xffff), (b, 0xffff)][..], (0, 0), true),
        (&[(b, 0xffff), (a, 0xffff)], (0, 0), false),
        (&[(a, 0xffff)], (0, 0), false),
        (&[(a, 0xffff), (b, 0xfffe)], (0, 0), false),
        (&[(a, 0xfffe), (b, 0xfffe)], (0, 0), false),
        (&[(9, 7), (a, 0xffff), (b, 0xffff)], (0, 0), true),
        // The first pair swallows the first half of the second.
        (&[(9, 0xffff), (a, 0xffff), (b, 0xffff)], (0, 0), false),
        // A first half alone is skipped, alone.
        (&[(9, 0xfffe), (a, 0xffff), (b, 0xffff)], (0, 0), true),
        (&[(9, 7), (9, 8)], (a, 0xffff), false),
    ] {
        let message = with(entries, native);
        let proposal = parse_proposal(&message).unwrap();
        assert_eq!(proposal.is_from(GID), expected, "{entries:x?} {native:x?}");
        assert_eq!(judge::is_from(&message, GID), expected);
    }
    // A native device has no second half, so it is a loopback device only by that.
    let half = Gid { gid: a, ext: 0 };
    let message = with(&[], (a, 0xffff));
    assert!(parse_proposal(&message).unwrap().is_from(half));
    assert!(judge::is_from(&message, half));
}

#[test]
fn accept_and_confirm_are_what_c_sends() {
    let first_contact = FirstContact::answer(1, HOSTNAME);
    let ours = Smcd::new(
        GID,
        Eid::DEFAULT,
        0xa1a2_a3a4_a5a6_a7a8,
        2,
        7,
        Some(first_contact),
    );
    assert_eq!(ours.encode(Kind::Accept).as_bytes(), accept());
    let theirs = Smcd::new(GID, Eid::DEFAULT, 0xb1b2_b3b4_b5b6_b7b8, 6, 9, None);
    assert_eq!(theirs.encode(Kind::Confirm).as_bytes(), confirm());
}

#[test]
fn accept_reads_as_written() {
    for release in [None, Some(0), Some(1), Some(2), Some(15)] {
        let first_contact = release.map(|release| FirstContact::answer(release, HOSTNAME));
        for kind in [Kind::Accept, Kind::Confirm] {
            let sent = Smcd::new(
                GID,
                Eid::DEFAULT,
                u64::MAX - 1,
                6,
                0x0102_0304,
                first_contact,
            );
            let packet = sent.encode(kind);
            let length = match release {
                None => 78,
                Some(0) => 114,
                Some(_) => 130,
            };
            assert_eq!(packet.as_bytes().len(), length);
            assert_eq!(header(packet.as_bytes()).unwrap().kind, kind);
            assert_eq!(parse_accept(packet.as_bytes()), Ok(Accept::Smcd(sent)));
            assert!(sent.is_from(GID));
            assert_eq!(sent.release(), release.map(|release| release.min(1)));
        }
    }
}

#[test]
fn accepts_of_other_transports_are_told_apart() {
    let v1 = bytes(
        "e2d4c3c4 02 0030 11 0102030405060708 a1a2a3a4a5a6a7a8 00 20 0000 00000000 00*12 e2d4c3c4",
    );
    match parse_accept(&v1) {
        Ok(Accept::SmcdV1(dmb)) => assert_eq!(dmb.token, 0xa1a2_a3a4_a5a6_a7a8),
        other => panic!("{other:?}"),
    }
    let rdma = bytes("e2d4c3d9 02 0044 10 00*56 e2d4c3d9");
    assert_eq!(parse_accept(&rdma), Ok(Accept::R));
    let rdma_v2 = bytes("e2d4c3d9 02 006c 28 00*96 e2d4c3d9");
    assert_eq!(parse_accept(&rdma_v2), Ok(Accept::R));
    // "None" and "both" are no choice.
    for last in [0x22, 0x23] {
        let mut message = accept();
        message[7] = last;
        assert_eq!(parse_accept(&message), Err(Malformed));
    }
}

#[test]
fn first_contact_without_its_extension_reads_as_release_0() {
    let mut message = confirm();
    message[7] |= 0x08;
    match parse_accept(&message) {
        Ok(Accept::Smcd(smcd)) => assert_eq!(smcd.first_contact.unwrap().features, 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn end_of_a_long_accept_is_not_looked_at() {
    let mut message = bytes("e2d4c3c4 02 0fff 21");
    message.resize(4095, 0);
    let header = header(&message).unwrap();
    assert_eq!(Accept::parse(&header, &message), Err(Malformed));
    assert!(Accept::parse(&header, &message[..160]).is_ok());
}

#[test]
fn decline_is_what_c_sends() {
    for (reason, code) in [
        (Reason::Memory, "01010000"),
        (Reason::PeerNoSmc, "03010000"),
        (Reason::NoDevice, "03030000"),
        (Reason::NoSmcdDevice, "03030001"),
        (Reason::NoSmcrDevice, "03030002"),
        (Reason::NoSmcdExtension, "03030005"),
        (Reason::NoCommonDevice, "03030007"),
        (Reason::NoUeid, "03030008"),
        (Reason::TooFewConnections, "0303000a"),
        (Reason::TooFewLinks, "0303000b"),
        (Reason::OtherSubnet, "03070000"),
        (Reason::ModeUnsupported, "03040000"),
        (Reason::OptionUnsupported, "03060000"),
        (Reason::PeerDeclined, "05000000"),
    ] {
        for (version, expected) in [
            (Version::V1, decline_v1(code)),
            (Version::V2, decline(code)),
        ] {
            let packet = Decline::encode(reason, version);
            assert_eq!(packet.as_bytes(), expected);
            assert_eq!(
                parse_decline(&expected),
                Ok(Decline {
                    diagnosis: reason.code(),
                    out_of_sync: false,
                })
            );
        }
    }
}

#[test]
fn decline_keeps_codes_that_are_not_known() {
    let mut message = decline("deadbeef");
    message[7] |= 0x08;
    // C does not look at the end of a decline.
    message[43] = 0;
    assert_eq!(
        parse_decline(&message),
        Ok(Decline {
            diagnosis: 0xdead_beef,
            out_of_sync: true,
        })
    );
}

#[test]
fn stream_is_clc_until_the_first_byte_that_differs() {
    for message in examples() {
        for len in 0..message.len() {
            assert!(Header::may_begin(&message[..len]));
        }
    }
    for text in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x03\x01",
        b"\0",
        b"\xe2\xd4\xc4",
    ] {
        for len in 1..=text.len() {
            let differs = judge::differs(&text[..len]);
            assert_eq!(Header::may_begin(&text[..len]), !differs);
        }
    }
}

#[test]
fn every_truncation_is_judged_as_in_c() {
    for message in examples() {
        for len in 0..message.len() {
            fuzz::message(&message[..len]);
        }
        fuzz::message(&message);
    }
}

#[test]
fn every_value_of_every_byte_is_judged_as_in_c() {
    for mut message in examples() {
        for at in 0..message.len() {
            let original = message[at];
            for value in 0..=255 {
                message[at] = value;
                fuzz::message(&message);
            }
            message[at] = original;
        }
    }
}

#[test]
fn offsets_and_counts_at_their_limits_are_judged_as_in_c() {
    for message in examples() {
        let len = u16::try_from(message.len()).unwrap();
        // The offsets of the IP area and the version 2 extension; the SMC-D extension's lies in
        // the latter, here where it is for no, one and eight prefixes.
        for field in [38, 50, 86, 94, 111, 230] {
            for offset in [
                0,
                1,
                27,
                28,
                39,
                40,
                41,
                171,
                172,
                173,
                287,
                288,
                289,
                len - 1,
                len,
                0x7fff,
                0xffff,
            ] {
                let mut message = message.clone();
                if let Some(place) = message.get_mut(field..field + 2) {
                    place.copy_from_slice(&offset.to_be_bytes());
                }
                fuzz::message(&message);
            }
        }
        for field in [47, 80, 81, 87, 88, 89, 105, 106, 224, 225] {
            for count in [0, 7, 8, 9, 255] {
                let mut message = message.clone();
                if let Some(place) = message.get_mut(field) {
                    *place = count;
                }
                fuzz::message(&message);
            }
        }
    }
}

#[test]
fn too_many_entries_are_refused() {
    for (prefixes, eids, gids) in [(9, 0, 0), (255, 0, 0), (0, 9, 0), (0, 0, 9), (0, 0, 255)] {
        let message = large_proposal(prefixes, eids, gids);
        assert!(
            parse_proposal(&message).is_err(),
            "{prefixes} {eids} {gids}"
        );
        fuzz::message(&message);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_judged_as_in_c(message in prop::collection::vec(any::<u8>(), 0..700)) {
        fuzz::message(&message);
    }

    #[test]
    fn any_body_behind_a_good_header_is_judged_as_in_c(
        kind in 0u8..6,
        last in any::<u8>(),
        mut body in prop::collection::vec(prop_oneof![Just(0u8), 0u8..12, any::<u8>()], 0..700),
    ) {
        let mut message = bytes("e2d4c3d9");
        let length = u16::try_from(8 + body.len() + 4).unwrap();
        message.push(kind);
        message.extend(length.to_be_bytes());
        message.push(last);
        message.append(&mut body);
        message.extend(bytes("e2d4c3c4"));
        fuzz::message(&message);
    }

    #[test]
    fn several_changed_bytes_are_judged_as_in_c(
        which in 0usize..12,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        fix_length in any::<bool>(),
        len in any::<prop::sample::Index>(),
    ) {
        let mut message = examples().swap_remove(which);
        for (at, value) in changes {
            let at = at.index(message.len());
            message[at] = value;
        }
        if fix_length {
            message.resize(len.index(653), 0);
            if message.len() >= 8 {
                let length = u16::try_from(message.len()).unwrap();
                message[5..7].copy_from_slice(&length.to_be_bytes());
            }
        }
        fuzz::message(&message);
    }
}
