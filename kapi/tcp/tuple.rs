// SPDX-License-Identifier: GPL-2.0

//! What tells a connection from all others: its addresses and ports, and the
//! sequence numbers it began with.

use super::super::{
    bindings,
    sock::Sk, //
};
use core::net::IpAddr;
use kernel::{
    ffi::c_void,
    sync::rcu, //
};

/// The address of one end of a connection, port in network order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tuple {
    /// IPv4, also carried by IPv6 sockets.
    V4 {
        /// Addresses of the local and the remote end.
        addrs: [u32; 2],
        /// Ports of the local and the remote end.
        ports: [u16; 2],
    },
    /// IPv6.
    V6 {
        /// Addresses of the local and the remote end.
        addrs: [[u8; 16]; 2],
        /// Ports of the local and the remote end.
        ports: [u16; 2],
    },
}

impl Tuple {
    /// The same connection as the other end sees it.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::V4 {
                addrs: [a, b],
                ports: [p, q],
            } => Self::V4 {
                addrs: [b, a],
                ports: [q, p],
            },
            Self::V6 {
                addrs: [a, b],
                ports: [p, q],
            } => Self::V6 {
                addrs: [b, a],
                ports: [q, p],
            },
        }
    }
}

impl Sk {
    /// The sequence number of the next byte to be written to the TCP stream.
    ///
    /// Right after the handshake this is the initial sequence number plus one, and stays so while
    /// nobody writes to the stream.
    pub(crate) fn tcp_write_seq(&self) -> u32 {
        // SAFETY: Called for TCP sockets only, which `tcp_sk` casts to.
        unsafe { bindings::tcp_write_seq(self.as_ptr()) }
    }

    /// The sequence number of the next byte to be read from the TCP stream.
    ///
    /// Right after the handshake this is the peer's initial sequence number plus one, and stays so
    /// while nobody reads from the stream.
    pub(crate) fn tcp_copied_seq(&self) -> u32 {
        // SAFETY: As in `tcp_write_seq`.
        unsafe { bindings::tcp_copied_seq(self.as_ptr()) }
    }

    /// The connection as a TCP socket sees it, in the IP version of a packet.
    pub(crate) fn tcp_tuple(&self, like: &Tuple) -> Tuple {
        let sk = self.as_ptr();
        // SAFETY: A full TCP socket; the fields are read as a whole.
        let ports = unsafe {
            [
                (*sk.cast::<bindings::inet_sock>()).inet_sport,
                bindings::sk_dport(sk),
            ]
        };
        match like {
            Tuple::V4 { .. } => Tuple::V4 {
                // SAFETY: As above.
                addrs: unsafe { [bindings::sk_rcv_saddr(sk), bindings::sk_daddr(sk)] },
                ports,
            },
            Tuple::V6 { .. } => {
                // SAFETY: As above; these fields exist in every socket.
                let addrs = unsafe { [bindings::sk_v6_rcv_saddr(sk), bindings::sk_v6_daddr(sk)] };
                // SAFETY: Both point into the socket.
                let addrs = addrs.map(|addr| unsafe { addr.cast::<[u8; 16]>().read_unaligned() });
                Tuple::V6 { addrs, ports }
            }
        }
    }
    /// Whether the device to which a TCP socket's packets go has an address in a subnet, with a
    /// prefix of exactly this length in bits.
    ///
    /// # Context
    ///
    /// Process context and softirq.
    pub(crate) fn has_subnet(&self, subnet: IpAddr, len: u8) -> bool {
        let _rcu = rcu::read_lock();
        match subnet {
            IpAddr::V4(subnet) => {
                let subnet = u32::from_ne_bytes(subnet.octets());
                // SAFETY: A live socket; RCU protects its route, the device and the addresses.
                unsafe { bindings::sk_dev_has_subnet(self.as_ptr(), subnet, len) }
            }
            IpAddr::V6(subnet) => {
                let subnet = subnet.octets();
                // SAFETY: As above; an address has sixteen bytes, and the function only reads them.
                unsafe {
                    bindings::sk_dev_has_subnet6(
                        self.as_ptr(),
                        subnet.as_ptr().cast::<c_void>(),
                        len,
                    )
                }
            }
        }
    }
}
