// SPDX-License-Identifier: GPL-2.0

//! CLC messages: what two SMC peers say to each other over the TCP connection before they agree.
//!
//! The codec is pure: bytes in, types out, and back. What is sent is byte for byte what C's stack
//! sends with only its loopback device; what is received is judged as C judges it, also where C is
//! lenient, since a message that C accepts must at least be declined properly. [`machine`] leads
//! the conversation.
//!
//! Formats: RFC 7609, "IBM Shared Memory Communications Version 2", `net/smc/smc_clc.h`.

#![deny(unsafe_code)]

pub(crate) mod accept;
pub(crate) mod decline;
pub(crate) mod machine;
pub(crate) mod proposal;

use kernel::prelude::*;

use crate::clc::eid;

/// The length of the longest message that is valid as a whole, a proposal with everything in it.
pub(crate) const MAX_LEN: usize = 652;

/// The release of SMC version 2 that is spoken, `SMC_RELEASE`.
const RELEASE: u8 = 1;

/// The supplemental features that are known, `SMC_FEATURE_MASK`: emulated ISM devices.
const FEATURES: u16 = 1;

/// The channel of the loopback device, and of no other.
const LOOPBACK_CHID: u16 = 0xffff;

/// The operating system in a message: Linux, in the upper half of the byte.
const OS_LINUX: u8 = 2 << 4;

/// The bytes of a host name in a message, `SMC_MAX_HOSTNAME_LEN`.
pub(crate) const HOSTNAME_LEN: usize = 32;

/// "SMCR" in EBCDIC: begins and ends all messages but those of SMC-D's own format.
const EYECATCHER: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xd9];

/// "SMCD" in EBCDIC: begins and ends SMC-D's accept and confirm.
const EYECATCHER_D: [u8; 4] = [0xe2, 0xd4, 0xc3, 0xc4];

/// A message that breaks the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        EPROTO
    }
}

/// A version of the protocol; numbers above the second are read as the second, as C reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// SMC version 1.
    V1,
    /// SMC version 2.
    V2,
}

impl Version {
    /// Its number on the wire.
    const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client opens.
    Proposal,
    /// The server agrees.
    Accept,
    /// The client agrees with the server's choice.
    Confirm,
    /// Either ends the conversation; TCP goes on.
    Decline,
}

impl Kind {
    /// Its number on the wire.
    const fn number(self) -> u8 {
        match self {
            Self::Proposal => 1,
            Self::Accept => 2,
            Self::Confirm => 3,
            Self::Decline => 4,
        }
    }
}

impl TryFrom<u8> for Kind {
    type Error = Malformed;

    fn try_from(number: u8) -> Result<Self, Malformed> {
        match number {
            1 => Ok(Self::Proposal),
            2 => Ok(Self::Accept),
            3 => Ok(Self::Confirm),
            4 => Ok(Self::Decline),
            _ => Err(Malformed),
        }
    }
}

/// The two transports, as two bits that name which of them a peer can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modes {
    /// RDMA, SMC-R.
    R,
    /// Shared memory, SMC-D.
    D,
    /// Neither.
    None,
    /// Both.
    Both,
}

impl Modes {
    /// Reads the lower two bits.
    const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0 => Self::R,
            1 => Self::D,
            2 => Self::None,
            _ => Self::Both,
        }
    }

    /// The two bits.
    const fn bits(self) -> u8 {
        match self {
            Self::R => 0,
            Self::D => 1,
            Self::None => 2,
            Self::Both => 3,
        }
    }

    /// Whether SMC-D is among them.
    pub(crate) const fn has_d(self) -> bool {
        matches!(self, Self::D | Self::Both)
    }

    /// Whether SMC-R is among them.
    pub(crate) const fn has_r(self) -> bool {
        matches!(self, Self::R | Self::Both)
    }
}

/// The identity of a loopback device, and so of a running kernel: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    /// The first eight bytes.
    pub(crate) gid: u64,
    /// The last eight bytes, which only emulated devices have.
    pub(crate) ext: u64,
}

/// The first eight bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What follows.
    pub(crate) kind: Kind,
    /// The length of the whole message in bytes, at least [`Header::LEN`].
    pub(crate) length: u16,
    /// The version of the message.
    pub(crate) version: Version,
    /// The transports in version 1; in accept and confirm, the one that was chosen.
    v1: Modes,
    /// The transports in version 2, in a proposal.
    v2: Modes,
}

impl Header {
    /// Its length in bytes.
    pub(crate) const LEN: usize = 8;

    /// The bit of the last byte that says first contact, or in a decline: out of sync.
    const FIRST_CONTACT: u8 = 0x08;

    /// Whether a stream that begins with these bytes may be CLC.
    ///
    /// A peer that sends an SMC option by accident is told from one that speaks SMC by the first
    /// byte that differs, without taking any byte out of the stream.
    pub(crate) fn may_begin(bytes: &[u8]) -> bool {
        let head = bytes.get(..EYECATCHER.len()).unwrap_or(bytes);
        EYECATCHER.starts_with(head) || EYECATCHER_D.starts_with(head)
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`Malformed`] without an eyecatcher, or with an unknown kind, version 0 or a length that
    /// does not even hold the header.
    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, Malformed> {
        let [e0, e1, e2, e3, kind, l0, l1, last] = *bytes;
        if !is_eyecatcher([e0, e1, e2, e3]) {
            return Err(Malformed);
        }
        let length = u16::from_be_bytes([l0, l1]);
        if usize::from(length) < Self::LEN {
            return Err(Malformed);
        }
        Ok(Self {
            kind: kind.try_into()?,
            length,
            version: match last >> 4 {
                0 => return Err(Malformed),
                1 => Version::V1,
                _ => Version::V2,
            },
            v1: Modes::from_bits(last),
            v2: Modes::from_bits(last >> 2),
        })
    }

    /// Whether the first-contact bit is set.
    const fn first_contact(&self) -> bool {
        (self.v2.bits() << 2) & Self::FIRST_CONTACT != 0
    }
}

/// Whether these bytes begin or end a message.
fn is_eyecatcher(bytes: [u8; 4]) -> bool {
    bytes == EYECATCHER || bytes == EYECATCHER_D
}

/// A received message, read by offset.
///
/// Behind its end it is zero for ever. C parses in a zeroed buffer, so that an offset which leads
/// out of a message reads zeros there, and this view keeps both the result and the peace: no read
/// can fail.
#[derive(Clone, Copy, Debug)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Takes a whole message, or of a longer one the beginning; then its end is not looked at.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it does not end with an eyecatcher.
    fn with_trailer(header: &Header, message: &'a [u8]) -> Result<Self, Malformed> {
        let length = usize::from(header.length);
        let fields = Self(message);
        let trailer = length.saturating_sub(EYECATCHER.len());
        if length <= message.len() && !is_eyecatcher(fields.array(trailer)) {
            return Err(Malformed);
        }
        Ok(fields)
    }

    /// `N` bytes from offset `at`.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        for (to, from) in array.iter_mut().zip(self.0.iter().skip(at)) {
            *to = *from;
        }
        array
    }

    /// The byte at offset `at`.
    fn byte(&self, at: usize) -> u8 {
        u8::from_be_bytes(self.array(at))
    }

    /// The 16-bit number at offset `at`.
    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// The 32-bit number at offset `at`.
    fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// The 64-bit number at offset `at`.
    fn be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }
}

/// A message to send.
///
/// # Invariants
///
/// `len` is at most [`Packet::MAX_LEN`]; the bytes behind `len` are zero.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl Packet {
    /// The length of the longest message that is sent: a proposal with all UEIDs a host may have.
    pub(crate) const MAX_LEN: usize = proposal::sent_len(eid::MAX);

    /// Begins a message of `length` bytes with its header.
    fn new(eyecatcher: [u8; 4], kind: Kind, length: u16, last: u8) -> Self {
        // INVARIANT: Nothing is written yet.
        let mut packet = Self {
            bytes: [0; Self::MAX_LEN],
            len: 0,
        };
        packet
            .put(&eyecatcher)
            .put(&[kind.number()])
            .put(&length.to_be_bytes())
            .put(&[last]);
        packet
    }

    /// Appends bytes; what does not fit is cut off, which [`Packet::MAX_LEN`] excludes.
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(bytes) {
            *to = *from;
            // INVARIANT: There was a byte at `len`.
            self.len += 1;
        }
        self
    }

    /// Appends `count` zero bytes.
    fn skip(&mut self, count: usize) -> &mut Self {
        // INVARIANT: What is behind `len` is zero already.
        self.len = Self::MAX_LEN.min(self.len + count);
        self
    }

    /// The message.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
