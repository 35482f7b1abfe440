// SPDX-License-Identifier: GPL-2.0

//! The proposal: what a client can do, and who it is.
//!
//! Its areas are found by offsets in the message. Each is limited as C limits it, by where the
//! area would lie in a message with everything in it, and the total length must be the sum of the
//! areas that the counts and modes announce: `smc_clc_msg_prop_valid()`.

#![deny(unsafe_code)]

use super::{
    Fields,
    Gid,
    Header,
    Kind,
    Malformed,
    Modes,
    Packet,
    Version,
    EYECATCHER,
    FEATURES,
    LOOPBACK_CHID,
    RELEASE, //
};
use crate::clc::eid::{
    self,
    Eid, //
};
use core::net::IpAddr;

/// The header and the client's identity for RDMA; `struct smc_clc_msg_proposal`.
const BASE: usize = 40;
/// The SMC-D area; `struct smc_clc_msg_smcd`.
const SMCD: usize = 40;
/// The IP area without IPv6 prefixes; `struct smc_clc_msg_proposal_prefix`.
const PREFIX: usize = 8;
/// One IPv6 prefix.
const PREFIX6: usize = 17;
/// The version 2 extension without UEIDs; `struct smc_clc_v2_extension`.
const V2: usize = 40;
/// The SMC-D version 2 extension without GIDs; `struct smc_clc_smcd_v2_extension`.
const V2D: usize = 48;
/// One GID with its CHID.
const GID_CHID: usize = 10;
/// The trailing eyecatcher.
const TRAILER: usize = EYECATCHER.len();

/// The most IPv6 prefixes, UEIDs, or GIDs in a proposal.
const MAX_ENTRIES: u8 = 8;

/// In the IP area: the length of the IPv4 prefix, and the number of IPv6 prefixes.
const PREFIX_LEN: usize = 4;
const PREFIX6_COUNT: usize = PREFIX - 1;

/// The offset of the field that holds the IP area's offset, which counts from [`BASE`].
const IP_OFFSET: usize = 38;
/// The offset of the native device's GID and CHID.
const NATIVE: usize = BASE;
/// The offset of the field that holds the version 2 extension's offset.
const V2_OFFSET: usize = BASE + 10;
/// Where the version 2 extension's offset counts from, and its limit.
const V2_ORIGIN: usize = V2_OFFSET + 2;
const V2_LIMIT: usize = MAX_V2_AT - V2_ORIGIN;
/// Where the version 2 extension begins in a message with everything in it.
const MAX_V2_AT: usize = BASE + SMCD + PREFIX + PREFIX6 * 8;
/// In the version 2 extension: the field of the SMC-D extension's offset, where that counts from,
/// and its limit.
const V2D_OFFSET: usize = 6;
const V2D_ORIGIN: usize = V2D_OFFSET + 2;
const V2D_LIMIT: usize = V2 + 8 * eid::LEN - V2D_ORIGIN;

/// In the version 2 extension: the limit of connections, before that of links.
const MAX_CONNS: usize = V2D_ORIGIN + 16;

/// The length of a proposal as it is sent with this many UEIDs.
pub(super) const fn sent_len(eids: usize) -> usize {
    BASE + SMCD + V2 + eid::LEN * eids + V2D + 2 * GID_CHID + TRAILER
}

/// The subnets of a client, each an address in it and the length of its prefix in bits, which may
/// be any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnets([Option<(IpAddr, u8)>; 8]);

impl Subnets {
    /// The subnets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        self.0.iter().flatten().copied()
    }
}

/// A valid proposal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposal<'a> {
    fields: Fields<'a>,
    version: Version,
    v1: Modes,
    v2: Option<Extension>,
}

/// The version 2 extension of a proposal, which is there if version 2 offers a transport.
///
/// # Invariants
///
/// `eids` and `gids` are at most [`MAX_ENTRIES`], unless SMC-D is not offered: then `gids` counts
/// nothing.
#[derive(Clone, Copy, Debug)]
struct Extension {
    modes: Modes,
    /// Its offset in the message.
    at: usize,
    eids: u8,
    gids: u8,
    /// The offset of the SMC-D extension in the message.
    smcd_at: Option<usize>,
}

impl Extension {
    /// Finds the extension of a proposal whose SMC-D area can be trusted.
    fn find(fields: &Fields<'_>, modes: Modes) -> Result<Self, Malformed> {
        let at = area(fields, V2_OFFSET, V2_LIMIT).ok_or(Malformed)?;
        let (eids, gids) = (fields.byte(at), fields.byte(at + 1));
        if eids > MAX_ENTRIES || modes.has_d() && gids > MAX_ENTRIES {
            return Err(Malformed);
        }
        // INVARIANT: Both counts are checked.
        Ok(Self {
            modes,
            at,
            eids,
            gids,
            smcd_at: area(fields, at + V2D_OFFSET, V2D_LIMIT),
        })
    }

    /// The bytes that this extension and SMC-D's should take.
    fn len(&self) -> usize {
        let v2 = V2 + eid::LEN * usize::from(self.eids);
        if self.modes.has_d() {
            v2 + V2D + GID_CHID * usize::from(self.gids)
        } else {
            v2
        }
    }
}

/// Where the area begins whose offset is in the 16-bit field at `field` and counts from behind it.
/// No area if the offset is 0 or above `limit`.
fn area(fields: &Fields<'_>, field: usize, limit: usize) -> Option<usize> {
    match usize::from(fields.be16(field)) {
        0 => None,
        offset if offset > limit => None,
        offset => Some(field + 2 + offset),
    }
}

impl<'a> Proposal<'a> {
    /// Reads a proposal; `message` is all of it.
    ///
    /// # Errors
    ///
    /// [`Malformed`] where C finds it so: an offset or a count above its limit, a total length
    /// that is not the sum of the areas, no trailing eyecatcher, version 1 without a transport.
    pub(crate) fn parse(header: &Header, message: &'a [u8]) -> Result<Self, Malformed> {
        let fields = Fields(message);
        let ip_offset = usize::from(fields.be16(IP_OFFSET));
        if header.kind != Kind::Proposal || ip_offset > SMCD {
            return Err(Malformed);
        }
        // Looked at even if there is no such area, and then it is another area's byte.
        let prefixes = fields.byte(BASE + ip_offset + PREFIX6_COUNT);
        if prefixes > MAX_ENTRIES {
            return Err(Malformed);
        }
        let ip_area = PREFIX + PREFIX6 * usize::from(prefixes);

        let (v2, areas) = match (header.version, header.v1, header.v2) {
            (Version::V1, Modes::None, _) => return Err(Malformed),
            (Version::V1, _, _) => (None, ip_offset + ip_area),
            (Version::V2, v1, v2) => {
                let extension = match v2 {
                    Modes::None => None,
                    // A native device sits before the IP area, and nowhere else.
                    _ if v1.has_d() && ip_offset != SMCD => return Err(Malformed),
                    modes => Some(Extension::find(&fields, modes)?),
                };
                let ip_area = if v1 == Modes::None { 0 } else { ip_area };
                let v2_len = extension.as_ref().map_or(0, Extension::len);
                (extension, SMCD + ip_area + v2_len)
            }
        };
        if usize::from(header.length) != BASE + areas + TRAILER {
            return Err(Malformed);
        }
        Ok(Self {
            fields: Fields::with_trailer(header, message)?,
            version: header.version,
            v1: header.v1,
            v2,
        })
    }

    /// The version the client speaks, and wants to be answered in.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The transports offered in version 1.
    pub(crate) fn v1(&self) -> Modes {
        self.v1
    }

    /// The transports offered in version 2.
    pub(crate) fn v2(&self) -> Modes {
        self.v2.map_or(Modes::None, |v2| v2.modes)
    }

    /// The subnets that version 1 asks for: one of IPv4, or else all of IPv6.
    pub(crate) fn subnets(&self) -> Option<Subnets> {
        if self.v1 == Modes::None {
            return None;
        }
        let at = BASE + usize::from(self.fields.be16(IP_OFFSET));
        let count = usize::from(self.fields.byte(at + PREFIX6_COUNT));
        let mut subnets = [None; 8];
        if let (0, [first, ..]) = (count, &mut subnets) {
            let subnet: [u8; 4] = self.fields.array(at);
            *first = Some((subnet.into(), self.fields.byte(at + PREFIX_LEN)));
        }
        for (i, subnet) in subnets.iter_mut().enumerate().take(count) {
            let at = at + PREFIX + PREFIX6 * i;
            let prefix: [u8; 16] = self.fields.array(at);
            *subnet = Some((prefix.into(), self.fields.byte(at + PREFIX6 - 1)));
        }
        Some(Subnets(subnets))
    }

    /// The release of version 2 that the client speaks; 0 in version 1.
    pub(crate) fn release(&self) -> u8 {
        self.v2.map_or(0, |v2| self.fields.byte(v2.at + 3) >> 4)
    }

    /// The most connections that a link group of SMC-R holds at the client; 0 in version 1.
    pub(crate) fn max_conns(&self) -> u8 {
        self.v2.map_or(0, |v2| self.fields.byte(v2.at + MAX_CONNS))
    }

    /// The most links that a link group of SMC-R has at the client; 0 in version 1.
    pub(crate) fn max_links(&self) -> u8 {
        self.v2
            .map_or(0, |v2| self.fields.byte(v2.at + MAX_CONNS + 1))
    }

    /// Whether the client proposes a system EID, which mainframes have.
    pub(crate) fn has_seid(&self) -> bool {
        self.v2
            .is_some_and(|v2| self.fields.byte(v2.at + 3) & 1 != 0)
    }

    /// Whether the extension is there that SMC-D needs in version 2.
    pub(crate) fn has_smcd_extension(&self) -> bool {
        self.v2.is_some_and(|v2| v2.smcd_at.is_some())
    }

    /// The UEIDs proposed, in the client's order.
    pub(crate) fn eids(&self) -> impl Iterator<Item = [u8; eid::LEN]> + 'a {
        let fields = self.fields;
        let (first, count) = self.v2.map_or((0, 0), |v2| (v2.at + V2, v2.eids));
        (0..usize::from(count)).map(move |i| fields.array(first + eid::LEN * i))
    }

    /// Whether one of the client's devices is the loopback device `gid`: then it runs on the same
    /// kernel.
    ///
    /// An emulated device takes two entries with one CHID; an entry without its second is ignored.
    pub(crate) fn is_from(&self, gid: Gid) -> bool {
        let Some(Extension {
            modes,
            gids,
            smcd_at: Some(smcd_at),
            ..
        }) = self.v2
        else {
            return false;
        };
        if !modes.has_d() {
            return false;
        }
        // The native device has no second half.
        if (self.gid_chid(NATIVE), gid.ext) == ((gid.gid, LOOPBACK_CHID), 0) {
            return true;
        }
        let mut entries =
            (0..usize::from(gids)).map(|i| self.gid_chid(smcd_at + V2D + GID_CHID * i));
        while let Some((first, chid)) = entries.next() {
            if !is_emulated(chid) {
                continue;
            }
            // The second entry is only taken when it belongs to the first.
            match entries.clone().next() {
                Some((ext, second)) if second == chid => {
                    entries.next();
                    if chid == LOOPBACK_CHID && gid == (Gid { gid: first, ext }) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// The GID and CHID at offset `at`.
    fn gid_chid(&self, at: usize) -> (u64, u16) {
        (self.fields.be64(at), self.fields.be16(at + 8))
    }

    /// The proposal of a client whose only device is the loopback device `gid`.
    ///
    /// It offers SMC-D in version 2, and no more of `eids` than a host may have.
    pub(crate) fn encode(gid: Gid, eids: &[Eid]) -> Packet {
        let eids = eids.get(..eid::MAX).unwrap_or(eids);
        let last = (Version::V2.number() << 4) | (Modes::D.bits() << 2) | Modes::None.bits();
        let mut packet = Packet::new(
            EYECATCHER,
            Kind::Proposal,
            be_len(sent_len(eids.len())),
            last,
        );
        packet
            // The identity for RDMA is empty, and there is no IP area.
            .skip(BASE - Header::LEN)
            // No native device.
            .skip(V2_OFFSET - BASE)
            .put(&be_len(BASE + SMCD - V2_ORIGIN).to_be_bytes())
            .skip(BASE + SMCD - V2_ORIGIN);
        packet
            .put(&[count(eids.len()), 2, 0, RELEASE << 4])
            .skip(2)
            .put(&be_len(V2 + eid::LEN * eids.len() - V2D_ORIGIN).to_be_bytes())
            // The RoCE GID and the limits of link groups are SMC-R's.
            .skip(16 + 2)
            .put(&FEATURES.to_be_bytes())
            .skip(12);
        for eid in eids {
            packet.put(eid.as_bytes());
        }
        packet
            .skip(V2D)
            .put(&gid.gid.to_be_bytes())
            .put(&LOOPBACK_CHID.to_be_bytes())
            .put(&gid.ext.to_be_bytes())
            .put(&LOOPBACK_CHID.to_be_bytes())
            .put(&EYECATCHER);
        packet
    }
}

/// Whether a channel is an emulated device's, `__smc_ism_is_emulated()`.
const fn is_emulated(chid: u16) -> bool {
    chid >> 8 == 0xff
}

/// A length or offset of a message that is sent; those are all below [`Packet::MAX_LEN`].
fn be_len(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// A number of entries of a message that is sent; those are all below [`MAX_ENTRIES`].
fn count(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}
