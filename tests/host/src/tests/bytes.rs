// SPDX-License-Identifier: GPL-2.0

//! CLC messages written out by hand, from the tables of the protocol and not from the code.

use crate::clc::wire::Gid;

/// The bytes that are written as hexadecimal digits, `xx*n` for a byte that repeats, and `'text'`
/// for ASCII.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        if let Some(ascii) = word.strip_prefix('\'') {
            bytes.extend(ascii.strip_suffix('\'').unwrap().as_bytes());
        } else if let Some((byte, count)) = word.split_once('*') {
            let byte = u8::from_str_radix(byte, 16).unwrap();
            bytes.extend(vec![byte; count.parse::<usize>().unwrap()]);
        } else {
            assert_eq!(word.len() % 2, 0, "{word}");
            bytes.extend(
                (0..word.len())
                    .step_by(2)
                    .map(|i| u8::from_str_radix(&word[i..i + 2], 16).unwrap()),
            );
        }
    }
    bytes
}

/// The kernel in these messages.
pub(super) const GID: Gid = Gid {
    gid: 0x0102_0304_0506_0708,
    ext: 0x1112_1314_1516_1718,
};

/// What C sends as a client that has loopback only, with one UEID.
pub(super) fn proposal() -> Vec<u8> {
    bytes(
        "e2d4c3d9 01 00e0 26
         00*8 00*16 00*6 0000
         00*8 0000 001c 00*3 00*5 00*20
         01 02 00 10 0000 0040
         00*16 00 00 0001 00*12
         'SMC-LO.DEFAULT' 20*18
         00*32 00*16
         0102030405060708 ffff
         1112131415161718 ffff
         e2d4c3d9",
    )
}

/// What C's server answers: a new link group, release 1.
pub(super) fn accept() -> Vec<u8> {
    bytes(&format!(
        "e2d4c3c4 02 0082 29
         0102030405060708
         a1a2a3a4a5a6a7a8
         00 20 0000 {}
         ffff
         'SMC-LO.DEFAULT' 20*18
         1112131415161718
         00 21 0000 'node' 20*28
         0000 0001 00*4 00*8
         e2d4c3c4",
        link_group(7)
    ))
}

/// What C's client confirms: the link group is there.
pub(super) fn confirm() -> Vec<u8> {
    bytes(&format!(
        "e2d4c3c4 03 004e 21
         0102030405060708
         b1b2b3b4b5b6b7b8
         00 60 0000 {}
         ffff
         'SMC-LO.DEFAULT' 20*18
         1112131415161718
         e2d4c3c4",
        link_group(9)
    ))
}

/// A link group's number in a message, which has the sender's byte order.
fn link_group(number: u32) -> String {
    format!("{:08x}", u32::from_be_bytes(number.to_ne_bytes()))
}

/// A decline in version 2 with this reason.
pub(super) fn decline(reason: &str) -> Vec<u8> {
    bytes(&format!(
        "e2d4c3d9 04 002c 20 00*8 {reason} 20 00*3 00*16 e2d4c3d9"
    ))
}

/// A decline in version 1 with this reason.
pub(super) fn decline_v1(reason: &str) -> Vec<u8> {
    bytes(&format!(
        "e2d4c3d9 04 001c 10 00*8 {reason} 00 00*3 e2d4c3d9"
    ))
}

/// What a client with RDMA and native devices may propose: everything, with these counts.
pub(super) fn large_proposal(prefixes: u8, eids: u8, gids: u8) -> Vec<u8> {
    let (p, e, g) = (usize::from(prefixes), usize::from(eids), usize::from(gids));
    let mut message = bytes(&format!(
        "e2d4c3d9 01 {:04x} 2f
         'sys-id-8' 01*16 02*6 0028
         2122232425262728 0007 {:04x} 00*3 00*5 00*20
         c0a80000 18 0000 {prefixes:02x}",
        40 + 40 + 8 + 17 * p + 40 + 32 * e + 48 + 10 * g + 4,
        28 + 8 + 17 * p,
    ));
    for _ in 0..p {
        message.extend(bytes("fd00 00*14 40"));
    }
    message.extend(bytes(&format!(
        "{eids:02x} {gids:02x} 00 10 0000 {:04x} 03*16 ff 02 0001 00*12",
        32 + 32 * e
    )));
    for i in 0..e {
        message.extend(bytes(&format!("'EID{i}' 20*28")));
    }
    message.extend(bytes("00*32 00*16"));
    for i in 0..g {
        message.extend(bytes(&format!("31*7 {i:02x} 0008")));
    }
    message.extend(bytes("e2d4c3d9"));
    message
}

/// What a client of version 1 with RDMA proposes.
pub(super) fn proposal_v1() -> Vec<u8> {
    bytes(
        "e2d4c3d9 01 0034 10
         'sys-id-8' 01*16 02*6 0000
         c0a80000 18 0000 00
         e2d4c3d9",
    )
}

/// What a client with these transports proposes: the lower four bits of the header.
pub(super) fn proposal_of(modes: u8) -> Vec<u8> {
    let mut message = large_proposal(0, 1, 1);
    message[7] = 0x20 | modes;
    if modes & 3 == 2 {
        // Without an IP area the others follow at once.
        message.drain(80..88);
        message[38..50].fill(0);
        message[50..52].copy_from_slice(&[0, 28]);
    }
    if (modes >> 2) & 1 == 0 {
        message.drain(message.len() - 62..message.len() - 4);
    }
    if modes >> 2 == 2 {
        message.drain(message.len() - 76..message.len() - 4);
    }
    set_length(&mut message);
    message
}

/// Makes the length in the header that of the message.
pub(super) fn set_length(message: &mut [u8]) {
    let length = u16::try_from(message.len()).unwrap();
    message[5..7].copy_from_slice(&length.to_be_bytes());
}
