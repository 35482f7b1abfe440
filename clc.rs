// SPDX-License-Identifier: GPL-2.0

//! The handshake: whether a TCP connection becomes an SMC-D connection.
//!
//! Two transports decide it. [`local`] comes first: two sockets of this kernel
//! find each other while TCP shakes hands, without a byte on the wire.
//! [`wire`] is the CLC conversation of RFC 7609 over the TCP connection, and
//! [`peer`] leads it.

#![deny(unsafe_code)]

pub(crate) mod eid;
pub(crate) mod local;
pub(crate) mod peer;
pub(crate) mod wire;
