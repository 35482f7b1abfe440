// SPDX-License-Identifier: GPL-2.0

//! Which socket options are more than TCP's.
//!
//! C header: [`include/uapi/asm-generic/socket.h`](srctree/include/uapi/asm-generic/socket.h)

use super::super::bindings;
use kernel::ffi::c_int;

/// The socket options that need more than being passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketOption {
    /// Any of level `SOL_SOCKET` but the next ones.
    Socket,
    /// `SO_RCVLOWAT`, `SO_SNDBUF`: what whoever waits is compared with.
    Threshold,
    /// `SO_PEEK_OFF`.
    PeekOffset,
    /// `TCP_ULP`.
    Ulp,
    /// `TCP_DEFER_ACCEPT`.
    DeferAccept,
    /// `TCP_FASTOPEN_CONNECT`.
    FastOpenConnect,
    /// `TCP_INQ`.
    Inq,
    /// `SMC_LIMIT_HS` of level `SOL_SMC`.
    SmcLimitHandshakes,
    /// Any other of level `SOL_SMC`.
    SmcOther,
    /// Anything else.
    Other,
}

impl SocketOption {
    /// Classifies an option.
    pub(crate) fn new(level: c_int, name: c_int) -> Self {
        let raw = |number: c_int| u32::from_ne_bytes(number.to_ne_bytes());
        match (raw(level), raw(name)) {
            (bindings::SOL_SOCKET, bindings::SO_PEEK_OFF) => Self::PeekOffset,
            (
                bindings::SOL_SOCKET,
                bindings::SO_RCVLOWAT | bindings::SO_SNDBUF | bindings::SO_SNDBUFFORCE,
            ) => Self::Threshold,
            (bindings::SOL_SOCKET, _) => Self::Socket,
            (bindings::SOL_TCP, bindings::TCP_ULP) => Self::Ulp,
            (bindings::SOL_TCP, bindings::TCP_DEFER_ACCEPT) => Self::DeferAccept,
            (bindings::SOL_TCP, bindings::TCP_FASTOPEN_CONNECT) => Self::FastOpenConnect,
            (bindings::SOL_TCP, bindings::TCP_INQ) => Self::Inq,
            (bindings::SOL_SMC, bindings::SMC_LIMIT_HS) => Self::SmcLimitHandshakes,
            (bindings::SOL_SMC, _) => Self::SmcOther,
            _ => Self::Other,
        }
    }
}
