// SPDX-License-Identifier: GPL-2.0

#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/sock.h>

struct net *rust_helper_sock_net(struct sock *sk)
{
	return sock_net(sk);
}

void *rust_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

u64 rust_helper_net_cookie(struct net *net)
{
	return net->net_cookie;
}

int rust_helper_tcp_wmem_max(struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_wmem[2]);
}

int rust_helper_tcp_rmem_default(struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_rmem[1]);
}

int rust_helper_tcp_rmem_max(struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_rmem[2]);
}

bool rust_helper_tcp_stdurg(struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_stdurg);
}

bool rust_helper_tcp_timestamps(struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_timestamps) == 1;
}
