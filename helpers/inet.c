// SPDX-License-Identifier: GPL-2.0

#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <net/addrconf.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ipv6.h>

u32 rust_helper_ip_saddr(struct sk_buff *skb)
{
	return (__force u32)ip_hdr(skb)->saddr;
}

u32 rust_helper_ip_daddr(struct sk_buff *skb)
{
	return (__force u32)ip_hdr(skb)->daddr;
}

struct in6_addr *rust_helper_ipv6_saddr(struct sk_buff *skb)
{
	return &ipv6_hdr(skb)->saddr;
}

struct in6_addr *rust_helper_ipv6_daddr(struct sk_buff *skb)
{
	return &ipv6_hdr(skb)->daddr;
}

bool rust_helper_skb_is_ipv4(struct sk_buff *skb)
{
	return skb->protocol == htons(ETH_P_IP);
}

struct in6_addr *rust_helper_sk_v6_rcv_saddr(struct sock *sk)
{
	return &sk->sk_v6_rcv_saddr;
}

struct in6_addr *rust_helper_sk_v6_daddr(struct sock *sk)
{
	return &sk->sk_v6_daddr;
}

/* The device to which a socket's packets go. The caller holds the RCU read lock. */
static struct net_device *sk_dst_dev(struct sock *sk)
{
	struct dst_entry *dst = __sk_dst_get(sk);

	return dst ? dst_dev_rcu(dst) : NULL;
}

bool rust_helper_sk_dev_has_subnet(struct sock *sk, u32 subnet, u8 len)
{
	struct net_device *dev = sk_dst_dev(sk);
	struct in_device *in_dev = dev ? __in_dev_get_rcu(dev) : NULL;
	const struct in_ifaddr *ifa;

	if (!in_dev)
		return false;
	in_dev_for_each_ifa_rcu(ifa, in_dev) {
		if (inet_mask_len(ifa->ifa_mask) == len &&
		    inet_ifa_match((__force __be32)subnet, ifa))
			return true;
	}
	return false;
}

bool rust_helper_sk_dev_has_subnet6(struct sock *sk, const void *prefix, u8 len)
{
	struct net_device *dev = sk_dst_dev(sk);
	struct inet6_dev *in6_dev = dev ? __in6_dev_get(dev) : NULL;
	struct inet6_ifaddr *ifa;
	struct in6_addr subnet;

	/* It comes from a message and may not be aligned. */
	memcpy(&subnet, prefix, sizeof(subnet));
	if (!in6_dev)
		return false;
	list_for_each_entry_rcu(ifa, &in6_dev->addr_list, if_list) {
		if (!(ipv6_addr_type(&ifa->addr) & IPV6_ADDR_LINKLOCAL) &&
		    ifa->prefix_len == len && ipv6_prefix_equal(&ifa->addr, &subnet, len))
			return true;
	}
	return false;
}

/* As inet_create() initialises a socket, where this module has to do it itself. */
void rust_helper_inet_sock_defaults(struct sock *sk, u16 protocol)
{
	struct inet_sock *inet = inet_sk(sk);

	sk->sk_type = SOCK_STREAM;
	sk->sk_protocol = protocol;
	sk->sk_txrehash = READ_ONCE(sock_net(sk)->core.sysctl_txrehash);
	inet->pmtudisc = READ_ONCE(sock_net(sk)->ipv4.sysctl_ip_no_pmtu_disc) ?
			 IP_PMTUDISC_DONT : IP_PMTUDISC_WANT;
	inet->uc_ttl = -1;
	inet->mc_ttl = 1;
	inet_set_bit(MC_LOOP, sk);
	inet_set_bit(MC_ALL, sk);
}

/* As inet6_create() does it. */
void rust_helper_inet6_sock_defaults(struct sock *sk)
{
	struct ipv6_pinfo *np = (struct ipv6_pinfo *)
		((u8 *)sk + sk->sk_prot->ipv6_pinfo_offset);

	inet_sk(sk)->pinet6 = np;
	np->hop_limit = -1;
	np->mcast_hops = IPV6_DEFAULT_MCASTHOPS;
	np->pmtudisc = IPV6_PMTUDISC_WANT;
	inet6_set_bit(MC6_LOOP, sk);
	inet6_set_bit(MC6_ALL, sk);
	sk->sk_ipv6only = READ_ONCE(sock_net(sk)->ipv6.sysctl.bindv6only);
}
