// SPDX-License-Identifier: GPL-2.0

//! What must hold for any bytes whatever.
//!
//! A fuzzer brings the bytes (`fuzz/`), or an ordinary test takes them from the seeds.

use crate::{
    clc::{
        eid::Table,
        wire::{
            accept::Accept,
            decline::Decline,
            machine::{
                Action,
                Event,
                Host,
                Machine,
                Offer,
                Want, //
            },
            proposal::Proposal,
            Gid,
            Header, //
        },
    },
    judge, //
};
use kernel::prelude::*;

/// The kernel that the seeds come from.
const GID: Gid = Gid {
    gid: 0x0102_0304_0506_0708,
    ext: 0x1112_1314_1516_1718,
};

/// Reads a message in every way there is, and compares with what C makes of it.
pub fn message(message: &[u8]) {
    let Some(header) = message.first_chunk().map(Header::parse) else {
        return;
    };
    let proposal = header.and_then(|header| Proposal::parse(&header, message));
    let accept = header.and_then(|header| Accept::parse(&header, message));
    let decline = header.and_then(|header| Decline::parse(&header, message));
    assert_eq!(proposal.is_ok(), judge::proposal(message));
    assert_eq!(accept.is_ok(), judge::accept(message));
    assert_eq!(decline.is_ok(), judge::decline(message));
    if let Ok(proposal) = proposal {
        assert_eq!(proposal.is_from(GID), judge::is_from(message, GID));
        assert_eq!(
            proposal.has_smcd_extension(),
            judge::has_smcd_extension(message)
        );
        assert!(proposal.eids().count() <= 8);
    }
}

/// Lets a machine hear a stream. The first byte chooses the role and how the owner answers, the
/// second the size of the pieces, the rest is the stream.
///
/// The machine must end, take nothing out of the stream that is not a CLC message, and say nothing
/// after it has failed.
pub fn conversation(data: &[u8]) {
    let [choice, piece, stream @ ..] = data else {
        return;
    };
    let host = Host {
        gid: GID,
        hostname: [b' '; 32],
        eids: Table::new(),
    };
    let mut machine = if choice & 1 == 0 {
        Machine::server(host, None)
    } else {
        Machine::client(host, None).0
    };
    let offer = Offer {
        token: u64::from(*piece),
        size: choice >> 4,
        link_group: 1,
    };
    let mut taken = 0;
    let end = loop {
        let want = machine.want();
        let rest = &stream[taken..];
        let mut action = match want {
            Want::Peek(most) => machine.step(Event::Peeked(&rest[..most.min(rest.len())])),
            Want::Read(most) => {
                let count = most.min(rest.len()).min(usize::from(*piece) + 1);
                taken += count;
                machine.step(Event::Read(&rest[..count]))
            }
            Want::Nothing => panic!("a machine that has not ended wants something"),
        };
        if matches!(action, Action::Locate(_)) {
            action = machine.step(Event::Located(choice & 2 != 0));
        }
        if matches!(action, Action::Prepare(_) | Action::Claim(_)) {
            action = machine.step(Event::Ready(offer));
        }
        match action {
            Action::Locate(_) | Action::Prepare(_) | Action::Claim(_) => {
                panic!("one question, one answer")
            }
            Action::Send(_) => {}
            Action::Wait if machine.want() != want => {}
            Action::Wait => break machine.step(Event::Closed),
            end => break end,
        }
    };
    match end {
        Action::Established { .. } => assert!(taken >= 78),
        // Taken messages are whole; without any, the stream is untouched.
        Action::Fallback { .. } => assert!(taken == 0 || taken >= 28),
        Action::Fail(error) => assert!([EPROTO, ECONNRESET].contains(&error)),
        other => panic!("{other:?} is no end"),
    }
    assert_eq!(machine.want(), Want::Nothing);
    assert!(matches!(machine.step(Event::Timeout), Action::Wait));
}
