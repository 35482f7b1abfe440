// SPDX-License-Identifier: GPL-2.0

//! What C makes of a message, told a second time: in C's order, on C's zeroed area with C's offsets
//! of fields, and not in the way of the code under test.

use crate::clc::wire::Gid;

/// The sum of all parts of `struct smc_clc_msg_proposal_area`.
const AREA: usize = 652;

fn area(message: &[u8]) -> Vec<u8> {
    let mut area = vec![0; AREA];
    let len = message.len().min(AREA);
    area[..len].copy_from_slice(&message[..len]);
    area
}

fn be16(bytes: &[u8], at: usize) -> usize {
    (usize::from(bytes[at]) << 8) | usize::from(bytes[at + 1])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Whether the first bytes of a stream cannot begin a message.
pub(crate) fn differs(head: &[u8]) -> bool {
    head.iter()
        .zip([0xe2, 0xd4, 0xc3])
        .any(|(&byte, expected)| byte != expected)
        || head
            .get(3)
            .is_some_and(|&byte| byte != 0xd9 && byte != 0xc4)
}

/// The kind, if the header is there and its eyecatcher and version are right.
fn kind(message: &[u8]) -> Option<u8> {
    (message.len() >= 8 && !differs(message) && message[7] >> 4 >= 1 && be16(message, 5) >= 8)
        .then(|| message[4])
}

/// Whether the end of a message of `length` bytes is right, where it can be seen.
fn ends_well(message: &[u8], length: usize) -> bool {
    length > message.len() || !differs(&message[length - 4..length])
}

/// Where the version 2 extension begins.
fn v2_extension(area: &[u8]) -> Option<usize> {
    let native = area[7] & 1 == 1;
    let offset = be16(area, 50);
    if native && be16(area, 38) != 40 || offset == 0 || offset > 172 {
        return None;
    }
    Some(52 + offset)
}

/// Where the SMC-D extension begins.
fn smcd_extension(area: &[u8], v2: usize) -> Option<usize> {
    let offset = be16(area, v2 + 6);
    (offset != 0 && offset <= 288).then_some(v2 + 8 + offset)
}

/// Whether C takes this for a proposal.
pub(crate) fn proposal(message: &[u8]) -> bool {
    if kind(message) != Some(1) {
        return false;
    }
    let area = area(message);
    let (type1, type2) = (area[7] & 3, (area[7] >> 2) & 3);
    let ip_offset = be16(&area, 38);
    if ip_offset > 40 {
        return false;
    }
    let prefixes = usize::from(area[40 + ip_offset + 7]);
    if prefixes > 8 {
        return false;
    }
    let length = be16(&area, 5);
    let expected = if area[7] >> 4 == 1 {
        if type1 == 2 {
            return false;
        }
        40 + ip_offset + 8 + prefixes * 17 + 4
    } else {
        let mut expected = 80 + 4;
        if type1 != 2 {
            expected += 8 + prefixes * 17;
        }
        if type2 != 2 {
            let Some(v2) = v2_extension(&area) else {
                return false;
            };
            let (eids, gids) = (usize::from(area[v2]), usize::from(area[v2 + 1]));
            if eids > 8 {
                return false;
            }
            expected += 40 + eids * 32;
            if type2 & 1 == 1 {
                if gids > 8 {
                    return false;
                }
                expected += 48 + gids * 10;
            }
        }
        expected
    };
    length == expected && ends_well(message, length)
}

/// Whether a valid proposal has the extension for SMC-D in version 2.
pub(crate) fn has_smcd_extension(message: &[u8]) -> bool {
    let area = area(message);
    area[7] >> 4 >= 2
        && (area[7] >> 2) & 3 != 2
        && v2_extension(&area).is_some_and(|v2| smcd_extension(&area, v2).is_some())
}

/// Whether a valid proposal names the device `gid`, as C's server looks for it.
pub(crate) fn is_from(message: &[u8], gid: Gid) -> bool {
    let area = area(message);
    if area[7] >> 4 < 2 || (area[7] >> 2) & 1 == 0 {
        return false;
    }
    let Some(v2) = v2_extension(&area) else {
        return false;
    };
    let Some(smcd) = smcd_extension(&area, v2) else {
        return false;
    };
    let mut proposed = Vec::new();
    if be16(&area, 48) != 0 {
        proposed.push((be16(&area, 48), be64(&area, 40), 0));
    }
    let count = usize::from(area[v2 + 1]);
    let entry = |i: usize| {
        let at = smcd + 48 + 10 * i;
        (be64(&area, at), be16(&area, at + 8))
    };
    let mut i = 0;
    while i < count {
        let (first, chid) = entry(i);
        let mut ext = 0;
        if chid & 0xff00 == 0xff00 {
            if i + 1 == count || entry(i + 1).1 != chid {
                i += 1;
                continue;
            }
            i += 1;
            ext = entry(i).0;
        }
        proposed.push((chid, first, ext));
        i += 1;
    }
    proposed.contains(&(0xffff, gid.gid, gid.ext))
}

/// Whether C takes this for an accept or a confirm.
pub(crate) fn accept(message: &[u8]) -> bool {
    if !matches!(kind(message), Some(2 | 3)) {
        return false;
    }
    let length = be16(message, 5);
    let enough = match (message[7] >> 4, message[7] & 3) {
        (1, 0) => length == 68,
        (1, 1) => length == 48,
        (_, 0) => length >= 108,
        (_, 1) => length >= 78,
        _ => false,
    };
    enough && ends_well(message, length)
}

/// Whether C takes this for a decline.
pub(crate) fn decline(message: &[u8]) -> bool {
    kind(message) == Some(4) && be16(message, 5) == if message[7] >> 4 == 1 { 28 } else { 44 }
}
