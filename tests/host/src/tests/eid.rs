// SPDX-License-Identifier: GPL-2.0

//! Rules of EIDs, and the table of them.

use crate::clc::eid::{
    Eid,
    Table,
    LEN,
    MAX, //
};
use kernel::prelude::*;

/// `name`, padded with blanks.
fn padded(name: &[u8]) -> [u8; LEN] {
    let mut bytes = [b' '; LEN];
    bytes[..name.len()].copy_from_slice(name);
    bytes
}

fn eid(name: &[u8]) -> Eid {
    Eid::try_from(padded(name)).unwrap()
}

/// C's `smc_clc_ueid_valid()`, told a second time from its comment and the kernel's character
/// table, to compare with.
fn valid_in_c(bytes: &[u8; LEN]) -> bool {
    const SPACES: [u8; 7] = [9, 10, 11, 12, 13, 32, 160];
    let mut end = LEN;
    while end > 0 && SPACES.contains(&bytes[end - 1]) {
        end -= 1;
    }
    let capital = |c: u8| c.is_ascii_uppercase() || (192..=222).contains(&c) && c != 215;
    end > 0
        && (capital(bytes[0]) || bytes[0].is_ascii_digit())
        && bytes[..end]
            .iter()
            .all(|&c| capital(c) || c.is_ascii_digit() || c == b'.' || c == b'-')
}

#[test]
fn accepts_and_refuses_what_c_does() {
    for (name, valid) in [
        (&b"A"[..], true),
        (b"9", true),
        (b"SMCV2-PSQA1-EID", true),
        (b"A.B-C.9", true),
        (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345", true),
        (b"", false),
        (b"a", false),
        (b"Ab", false),
        (b".A", false),
        (b"-A", false),
        (b" A", false),
        (b"A B", false),
        (b"A_B", false),
        (b"A\0", false),
        (b"A\t\n", true),
        (b"A\xa0", true),
        (b"\xc0\xde", true),
        (b"A\xd7", false),
        (b"A\xe0", false),
    ] {
        let bytes = padded(name);
        assert_eq!(Eid::try_from(bytes).is_ok(), valid, "{name:?}");
        assert_eq!(valid_in_c(&bytes), valid, "{name:?}");
    }
}

#[test]
fn every_byte_in_first_middle_and_last_place_is_judged_as_in_c() {
    for place in [0, 1, 15, 31] {
        for byte in 0..=255 {
            for base in [padded(b"A"), padded(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345")] {
                let mut bytes = base;
                bytes[place] = byte;
                assert_eq!(
                    Eid::try_from(bytes).is_ok(),
                    valid_in_c(&bytes),
                    "{bytes:?}"
                );
            }
        }
    }
}

#[test]
fn default_keeps_the_rules() {
    assert_eq!(
        Eid::try_from(*Eid::DEFAULT.as_bytes()).unwrap(),
        Eid::DEFAULT
    );
}

#[test]
fn default_holds_only_while_the_table_is_empty() {
    let mut table = Table::new();
    assert_eq!(table.user(), []);
    assert_eq!(table.effective(), [Eid::DEFAULT]);
    assert_eq!(
        table.negotiate([*Eid::DEFAULT.as_bytes()]),
        Some(Eid::DEFAULT)
    );

    table.add(eid(b"A")).unwrap();
    assert_eq!(table.effective(), [eid(b"A")]);
    assert_eq!(table.negotiate([*Eid::DEFAULT.as_bytes()]), None);

    table.remove(&padded(b"A")).unwrap();
    assert_eq!(table.effective(), [Eid::DEFAULT]);
}

#[test]
fn default_may_be_added_by_name() {
    let mut table = Table::new();
    table.add(eid(b"A")).unwrap();
    table.add(Eid::DEFAULT).unwrap();
    assert_eq!(table.user(), [eid(b"A"), Eid::DEFAULT]);
    table.remove(Eid::DEFAULT.as_bytes()).unwrap();
    assert_eq!(table.user(), [eid(b"A")]);
}

#[test]
fn fifth_is_refused_before_a_second_of_the_same_name() {
    let mut table = Table::new();
    let names = [b"A", b"B", b"C", b"D"];
    for name in names {
        table.add(eid(name)).unwrap();
        if table.user().len() < MAX {
            assert_eq!(table.add(eid(name)), Err(EEXIST));
        }
    }
    assert_eq!(table.add(eid(b"E")), Err(ERANGE));
    assert_eq!(table.add(eid(b"A")), Err(ERANGE));
    assert_eq!(table.user().len(), MAX);
}

#[test]
fn removing_keeps_the_order_of_the_others() {
    let mut table = Table::new();
    for name in [b"A", b"B", b"C", b"D"] {
        table.add(eid(name)).unwrap();
    }
    table.remove(&padded(b"B")).unwrap();
    assert_eq!(table.user(), [eid(b"A"), eid(b"C"), eid(b"D")]);
    assert_eq!(table.remove(&padded(b"B")), Err(ENOENT));
    table.add(eid(b"B")).unwrap();
    assert_eq!(table.user(), [eid(b"A"), eid(b"C"), eid(b"D"), eid(b"B")]);
    table.flush();
    assert_eq!(table.user(), []);
    assert_eq!(table.remove(&padded(b"A")), Err(ENOENT));
    assert_eq!(table.remove(Eid::DEFAULT.as_bytes()), Err(ENOENT));
}

#[test]
fn negotiation_takes_the_first_proposed_that_the_host_has() {
    let mut table = Table::new();
    table.add(eid(b"A")).unwrap();
    table.add(eid(b"B")).unwrap();
    let (a, b, c) = (padded(b"A"), padded(b"B"), padded(b"C"));
    assert_eq!(table.negotiate([c, b, a]), Some(eid(b"B")));
    assert_eq!(table.negotiate([a, b]), Some(eid(b"A")));
    assert_eq!(table.negotiate([c, padded(b"a")]), None);
    assert_eq!(table.negotiate([]), None);
}
