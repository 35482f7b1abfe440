// SPDX-License-Identifier: GPL-2.0

#include <linux/netlink.h>
#include <linux/user_namespace.h>
#include <net/netlink.h>
#include <net/sock.h>

int rust_helper_sock_diag_dump_start(struct sk_buff *skb, const struct nlmsghdr *nlh,
				     int (*dump)(struct sk_buff *skb,
						 struct netlink_callback *cb),
				     struct module *module)
{
	struct netlink_dump_control c = {
		.dump = dump,
		.min_dump_alloc = SKB_WITH_OVERHEAD(32768),
		.module = module,
	};

	return netlink_dump_start(sock_net(skb->sk)->diag_nlsk, skb, nlh, &c);
}

struct nlmsghdr *rust_helper_nlmsg_put(struct sk_buff *skb, u32 portid, u32 seq,
				       int type, int payload, int flags)
{
	return nlmsg_put(skb, portid, seq, type, payload, flags);
}

void *rust_helper_nlmsg_data(struct nlmsghdr *nlh)
{
	return nlmsg_data(nlh);
}

void rust_helper_nlmsg_end(struct sk_buff *skb, struct nlmsghdr *nlh)
{
	nlmsg_end(skb, nlh);
}

void rust_helper_nlmsg_cancel(struct sk_buff *skb, struct nlmsghdr *nlh)
{
	nlmsg_cancel(skb, nlh);
}

u32 rust_helper_netlink_cb_portid(struct sk_buff *skb)
{
	return NETLINK_CB(skb).portid;
}

u32 rust_helper_netlink_sk_uid(struct sk_buff *skb, struct sock *sk)
{
	return from_kuid_munged(sk_user_ns(NETLINK_CB(skb).sk), sk_uid(sk));
}

struct net *rust_helper_skb_sock_net(struct sk_buff *skb)
{
	return sock_net(skb->sk);
}
