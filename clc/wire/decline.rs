// SPDX-License-Identifier: GPL-2.0

//! The decline, and the reasons for which a connection becomes TCP.

#![deny(unsafe_code)]

use kernel::prelude::*;

use super::{
    Fields,
    Header,
    Kind,
    Malformed,
    Packet,
    Version,
    EYECATCHER,
    OS_LINUX, //
};

/// The length of a decline in version 1.
const LEN: u16 = 28;
/// The length of a decline in version 2.
const LEN_V2: u16 = 44;

/// Why a connection is TCP.
///
/// The codes are C's: peers log them, and sock_diag shows them as the fallback reason. Those that
/// only a host with RDMA or native devices can give are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is not enough memory for buffers.
    Memory,
    /// The peer's SYN, or SYN-ACK, did not say that it speaks SMC.
    PeerNoSmc,
    /// A policy of the socket wants the connection protected by IPsec, which is TCP's work.
    Ipsec,
    /// The peer offers nothing that this host has a device for.
    NoDevice,
    /// No EID in common, or SMC-D is offered only in version 1.
    NoSmcdDevice,
    /// The peer offers RDMA only.
    NoSmcrDevice,
    /// A proposal without the extension that SMC-D needs in version 2.
    NoSmcdExtension,
    /// The peer is on another host: none of its devices can be reached.
    NoCommonDevice,
    /// A proposal without any EID.
    NoUeid,
    /// The peer's link groups of SMC-R hold fewer connections than the protocol asks for.
    TooFewConnections,
    /// The peer's link groups of SMC-R have no link.
    TooFewLinks,
    /// The server chose a transport that was not offered.
    ModeUnsupported,
    /// A socket option was set that SMC cannot keep: TCP fast open.
    OptionUnsupported,
    /// The peer is in another subnet than this host, which version 1 does not allow.
    OtherSubnet,
    /// The device has no room for more DMBs, or none that this user may have.
    TooManyDmbs,
    /// The peer goes on with a link group that is not known here.
    OutOfSync,
    /// The peer declined.
    PeerDeclined,
}

impl Reason {
    /// Why there is no connection where making it failed with `err`.
    pub(crate) fn of_failure(err: Error) -> Self {
        if err == ENOSPC || err == EDQUOT {
            Self::TooManyDmbs
        } else {
            Self::Memory
        }
    }

    /// Its code, `SMC_CLC_DECL_*`.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Memory => 0x0101_0000,
            Self::PeerNoSmc => 0x0301_0000,
            Self::Ipsec => 0x0302_0000,
            Self::NoDevice => 0x0303_0000,
            Self::NoSmcdDevice => 0x0303_0001,
            Self::NoSmcrDevice => 0x0303_0002,
            Self::NoSmcdExtension => 0x0303_0005,
            Self::NoCommonDevice => 0x0303_0007,
            Self::NoUeid => 0x0303_0008,
            Self::TooFewConnections => 0x0303_000a,
            Self::TooFewLinks => 0x0303_000b,
            Self::ModeUnsupported => 0x0304_0000,
            Self::OptionUnsupported => 0x0306_0000,
            Self::OtherSubnet => 0x0307_0000,
            Self::TooManyDmbs => 0x030d_0000,
            Self::OutOfSync => 0x0400_0000,
            Self::PeerDeclined => 0x0500_0000,
        }
    }
}

/// A received decline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decline {
    /// The peer's code, which may be one that is not known here.
    pub(crate) diagnosis: u32,
    /// Whether the peer believes that the two ends count link groups differently.
    pub(crate) out_of_sync: bool,
}

impl Decline {
    /// Reads a decline. What it ends with is not looked at, as in C.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it has not the length of its version.
    pub(crate) fn parse(header: &Header, message: &[u8]) -> Result<Self, Malformed> {
        let expected = match header.version {
            Version::V1 => LEN,
            Version::V2 => LEN_V2,
        };
        if header.kind != Kind::Decline || header.length != expected {
            return Err(Malformed);
        }
        Ok(Self {
            diagnosis: Fields(message).be32(16),
            out_of_sync: header.first_contact(),
        })
    }

    /// The decline for `reason` in the peer's version.
    pub(crate) fn encode(reason: Reason, version: Version) -> Packet {
        let (length, os) = match version {
            Version::V1 => (LEN, 0),
            Version::V2 => (LEN_V2, OS_LINUX),
        };
        let bit = match reason {
            Reason::OutOfSync => Header::FIRST_CONTACT,
            _ => 0,
        };
        let last = (version.number() << 4) | bit;
        let mut packet = Packet::new(EYECATCHER, Kind::Decline, length, last);
        packet
            // The identity is an RDMA device's.
            .skip(8)
            .put(&reason.code().to_be_bytes())
            .put(&[os, 0, 0, 0]);
        if version == Version::V2 {
            // More diagnosis, of which none is defined.
            packet.skip(16);
        }
        packet.put(&EYECATCHER);
        packet
    }
}
