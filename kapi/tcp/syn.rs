// SPDX-License-Identifier: GPL-2.0

//! The packets of a three-way handshake, as a listener of ours sees them.

use super::{
    super::{
        bindings,
        sock::Sk, //
    },
    Tuple, //
};
use core::ptr::NonNull;
use kernel::sync::aref::ARef;

/// A SYN that a listening socket of ours received, or the ACK that completes its handshake.
pub(crate) struct Syn<'a> {
    pub(super) listener: &'a Sk,
    pub(super) skb: *mut bindings::sk_buff,
}

impl Syn<'_> {
    /// The listening TCP socket.
    pub(crate) fn listener(&self) -> &Sk {
        self.listener
    }

    /// The packet's sequence number.
    pub(crate) fn seq(&self) -> u32 {
        // SAFETY: TCP has pulled the header of the packet it gave us.
        unsafe { bindings::tcp_skb_seq(self.skb) }
    }

    /// Whether the packet is of IPv4.
    fn is_ipv4(&self) -> bool {
        // SAFETY: A valid packet.
        unsafe { bindings::skb_is_ipv4(self.skb) }
    }

    /// The connection as the receiver of the packet, the server, sees it.
    pub(crate) fn tuple(&self) -> Tuple {
        // SAFETY: A valid packet whose headers are pulled.
        let ports = unsafe {
            [
                bindings::tcp_skb_dest(self.skb),
                bindings::tcp_skb_source(self.skb),
            ]
        };
        if self.is_ipv4() {
            // SAFETY: As above, of IPv4.
            let addrs = unsafe { [bindings::ip_daddr(self.skb), bindings::ip_saddr(self.skb)] };
            Tuple::V4 { addrs, ports }
        } else {
            // SAFETY: As above, of IPv6.
            let addrs = unsafe {
                [
                    bindings::ipv6_daddr(self.skb),
                    bindings::ipv6_saddr(self.skb),
                ]
            };
            // SAFETY: Both point into the packet's header.
            let addrs = addrs.map(|addr| unsafe { addr.cast::<[u8; 16]>().read_unaligned() });
            Tuple::V6 { addrs, ports }
        }
    }

    /// Whether the packet was sent, in the listener's own namespace, by a connection of which only
    /// the TIME-WAIT state is left: it completes no handshake.
    ///
    /// # Context
    ///
    /// Softirq under RCU.
    pub(super) fn is_afterthought(&self) -> bool {
        self.established().is_some_and(|sk| {
            // SAFETY: A referenced socket of some kind.
            let is_full = unsafe { bindings::sk_fullsock(sk.as_ptr()) };
            // SAFETY: Gives the reference back.
            unsafe { bindings::sock_gen_put(sk.as_ptr()) };
            !is_full
        })
    }

    /// The socket that sent the packet, if it belongs to the listener's own namespace.
    ///
    /// The tuple is unique there, so a socket that is found is the sender, unless the packet was
    /// forged or rewritten; the caller compares sequence numbers.
    pub(crate) fn local_sender(&self) -> Option<ARef<Sk>> {
        let sk = self.established()?;
        // SAFETY: A referenced socket of some kind.
        if !unsafe { bindings::sk_fullsock(sk.as_ptr()) } {
            // SAFETY: Gives the reference back.
            unsafe { bindings::sock_gen_put(sk.as_ptr()) };
            return None;
        }
        // SAFETY: A full socket, whose reference this value takes over.
        Some(unsafe { ARef::from_raw(sk.cast()) })
    }

    /// What the sender's side of the tuple finds in the listener's namespace, referenced: a socket,
    /// or what is left or not yet more of one.
    fn established(&self) -> Option<NonNull<bindings::sock>> {
        let net = self.listener.net().as_ptr();
        let sk = if self.is_ipv4() {
            // SAFETY: Under RCU, with a valid IPv4 packet.
            unsafe {
                bindings::__inet_lookup_established(
                    net,
                    bindings::ip_daddr(self.skb),
                    bindings::tcp_skb_dest(self.skb),
                    bindings::ip_saddr(self.skb),
                    u16::from_be(bindings::tcp_skb_source(self.skb)),
                    bindings::tcp_v4_iif(self.skb),
                    bindings::tcp_v4_sdif(self.skb),
                )
            }
        } else {
            // SAFETY: Under RCU, with a valid IPv6 packet.
            unsafe {
                bindings::__inet6_lookup_established(
                    net,
                    bindings::ipv6_daddr(self.skb),
                    bindings::tcp_skb_dest(self.skb),
                    bindings::ipv6_saddr(self.skb),
                    u16::from_be(bindings::tcp_skb_source(self.skb)),
                    bindings::tcp_v6_iif(self.skb),
                    bindings::tcp_v6_sdif(self.skb),
                )
            }
        };
        NonNull::new(sk)
    }
}
