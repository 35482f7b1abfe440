// SPDX-License-Identifier: GPL-2.0

//! Accept and confirm: the two messages by which server and client name their buffers.
//!
//! They share one format, so one type stands for both. Of SMC-R's only the kind is read, which is
//! enough to decline it.

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
    EYECATCHER_D,
    FEATURES,
    HOSTNAME_LEN,
    LOOPBACK_CHID,
    OS_LINUX,
    RELEASE, //
};
use crate::clc::eid::{
    self,
    Eid, //
};

/// The length of SMC-D's message in version 1, and the least in version 2.
const LEN_D: u16 = 48;
const LEN_D_V2: u16 = 78;
/// The same of SMC-R.
const LEN_R: u16 = 68;
const LEN_R_V2: u16 = 108;
/// What a first contact adds in release 0, and in later releases on top.
const FIRST_CONTACT: u16 = 36;
const FIRST_CONTACT_RELEASE_1: u16 = 16;

/// How much of an accept a client keeps, as C does: the longest that SMC-D's peers send.
pub(crate) const MAX_ACCEPT_LEN: usize = 160;

/// A valid accept or confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    /// RDMA was chosen.
    R,
    /// SMC-D was chosen in version 1, which no loopback device can do.
    SmcdV1(Dmb),
    /// SMC-D was chosen in version 2.
    Smcd(Smcd),
}

/// The buffer the sender of the message receives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dmb {
    /// The first half of the sender's GID.
    pub(crate) gid: u64,
    /// The DMB's token.
    pub(crate) token: u64,
    /// The place of the connection in the DMB; 0 from all known senders.
    pub(crate) index: u8,
    /// The size of the DMB, compressed: 16 KiB shifted left by so much; below 16.
    pub(crate) size: u8,
    /// The sender's number of the link group.
    pub(crate) link_group: u32,
}

/// An accept or confirm of SMC-D in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Smcd {
    /// The sender's buffer.
    pub(crate) dmb: Dmb,
    /// The channel that was chosen.
    chid: u16,
    /// The second half of the sender's GID.
    gid_ext: u64,
    /// The EID that was chosen; raw, since the peer may send anything.
    pub(crate) eid: [u8; eid::LEN],
    /// There if the sender made a new link group for this connection.
    pub(crate) first_contact: Option<FirstContact>,
}

/// What peers tell each other at their first contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstContact {
    /// The release of version 2; below 16.
    pub(crate) release: u8,
    /// The supplemental features, from release 1 on.
    pub(crate) features: u16,
    /// The sender's host name, blank padded.
    pub(crate) hostname: [u8; HOSTNAME_LEN],
}

impl FirstContact {
    /// What this host says: the newest release that the peer knows too.
    pub(crate) fn answer(release: u8, hostname: [u8; HOSTNAME_LEN]) -> Self {
        let release = release.min(RELEASE);
        Self {
            release,
            features: if release == 0 { 0 } else { FEATURES },
            hostname,
        }
    }

    /// Reads the extension; one that is not there reads as release 0.
    fn parse(fields: &Fields<'_>) -> Self {
        let release = fields.byte(75) & 0x0f;
        Self {
            release,
            features: if release == 0 { 0 } else { fields.be16(112) },
            hostname: fields.array(78),
        }
    }
}

impl Accept {
    /// Reads an accept or confirm; `message` is all of it, or the beginning of a longer one.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if no single transport is chosen, if it is too short for it (or in version 1
    /// of another length), or if it does not end with an eyecatcher.
    pub(crate) fn parse(header: &Header, message: &[u8]) -> Result<Self, Malformed> {
        let length_is_right = match (header.version, header.v1) {
            (_, Modes::None | Modes::Both) => return Err(Malformed),
            (Version::V1, Modes::D) => header.length == LEN_D,
            (Version::V1, Modes::R) => header.length == LEN_R,
            (Version::V2, Modes::D) => header.length >= LEN_D_V2,
            (Version::V2, Modes::R) => header.length >= LEN_R_V2,
        };
        if !matches!(header.kind, Kind::Accept | Kind::Confirm) || !length_is_right {
            return Err(Malformed);
        }
        let fields = Fields::with_trailer(header, message)?;
        if header.v1 == Modes::R {
            return Ok(Self::R);
        }
        let dmb = Dmb {
            gid: fields.be64(8),
            token: fields.be64(16),
            index: fields.byte(24),
            size: fields.byte(25) >> 4,
            // A number of the sender's own, in its own byte order.
            link_group: u32::from_ne_bytes(fields.array(28)),
        };
        Ok(match header.version {
            Version::V1 => Self::SmcdV1(dmb),
            Version::V2 => Self::Smcd(Smcd {
                dmb,
                chid: fields.be16(32),
                eid: fields.array(34),
                gid_ext: fields.be64(66),
                first_contact: header.first_contact().then(|| FirstContact::parse(&fields)),
            }),
        })
    }
}

impl Smcd {
    /// What this host says about a connection over its loopback device.
    pub(crate) fn new(
        gid: Gid,
        eid: Eid,
        token: u64,
        size: u8,
        link_group: u32,
        first_contact: Option<FirstContact>,
    ) -> Self {
        Self {
            dmb: Dmb {
                gid: gid.gid,
                token,
                index: 0,
                size,
                link_group,
            },
            chid: LOOPBACK_CHID,
            gid_ext: gid.ext,
            eid: *eid.as_bytes(),
            first_contact,
        }
    }

    /// Whether a loopback device was chosen, whosever.
    pub(crate) fn is_loopback(&self) -> bool {
        self.chid == LOOPBACK_CHID
    }

    /// Whether the sender speaks of the loopback device `gid`: then it runs on the same kernel.
    pub(crate) fn is_from(&self, gid: Gid) -> bool {
        let sender = Gid {
            gid: self.dmb.gid,
            ext: self.gid_ext,
        };
        self.is_loopback() && sender == gid
    }

    /// The release the sender speaks, if this is a first contact.
    pub(crate) fn release(&self) -> Option<u8> {
        self.first_contact
            .map(|first_contact| first_contact.release)
    }

    /// The message, as an accept or a confirm.
    pub(crate) fn encode(&self, kind: Kind) -> Packet {
        let (bit, extension) = match &self.first_contact {
            None => (0, 0),
            Some(FirstContact { release: 0, .. }) => (Header::FIRST_CONTACT, FIRST_CONTACT),
            Some(_) => (
                Header::FIRST_CONTACT,
                FIRST_CONTACT + FIRST_CONTACT_RELEASE_1,
            ),
        };
        let last = (Version::V2.number() << 4) | bit | Modes::D.bits();
        let mut packet = Packet::new(EYECATCHER_D, kind, LEN_D_V2 + extension, last);
        packet
            .put(&self.dmb.gid.to_be_bytes())
            .put(&self.dmb.token.to_be_bytes())
            .put(&[self.dmb.index, self.dmb.size << 4, 0, 0])
            .put(&self.dmb.link_group.to_ne_bytes())
            .put(&self.chid.to_be_bytes())
            .put(&self.eid)
            .put(&self.gid_ext.to_be_bytes());
        if let Some(first_contact) = &self.first_contact {
            packet
                .put(&[0, OS_LINUX | first_contact.release, 0, 0])
                .put(&first_contact.hostname);
            if first_contact.release > 0 {
                // Around the features: limits of link groups, which SMC-R has, and what is
                // reserved.
                packet
                    .skip(2)
                    .put(&first_contact.features.to_be_bytes())
                    .skip(12);
            }
        }
        packet.put(&EYECATCHER_D);
        packet
    }
}
