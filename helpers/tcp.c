// SPDX-License-Identifier: GPL-2.0

#include <linux/errqueue.h>
#include <net/inet_connection_sock.h>
#include <net/tcp.h>

u32 rust_helper_tcp_write_seq(struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->write_seq);
}

void rust_helper_tcp_set_write_seq(struct sock *sk, u32 seq)
{
	WRITE_ONCE(tcp_sk(sk)->write_seq, seq);
}

/* A socket under repair says nothing when it is closed. */
void rust_helper_tcp_set_repair(struct sock *sk)
{
	tcp_sk(sk)->repair = 1;
}

u32 rust_helper_tcp_copied_seq(struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->copied_seq);
}

u32 rust_helper_tcp_skb_seq(struct sk_buff *skb)
{
	return ntohl(tcp_hdr(skb)->seq);
}

u16 rust_helper_tcp_skb_source(struct sk_buff *skb)
{
	return (__force u16)tcp_hdr(skb)->source;
}

u16 rust_helper_tcp_skb_dest(struct sk_buff *skb)
{
	return (__force u16)tcp_hdr(skb)->dest;
}

/*
 * TCP has moved the IP layer's control block within skb->cb, so inet_sdif(),
 * inet6_iif() and inet6_sdif() would take sequence numbers for interfaces.
 */
int rust_helper_tcp_v4_iif(struct sk_buff *skb)
{
	return inet_iif(skb);
}

int rust_helper_tcp_v4_sdif(struct sk_buff *skb)
{
	return tcp_v4_sdif(skb);
}

int rust_helper_tcp_v6_iif(struct sk_buff *skb)
{
	return tcp_v6_iif_l3_slave(skb);
}

int rust_helper_tcp_v6_sdif(struct sk_buff *skb)
{
	return tcp_v6_sdif(skb);
}

u32 rust_helper_tcp_rsk_rcv_isn(struct request_sock *req)
{
	return tcp_rsk(req)->rcv_isn;
}

u32 rust_helper_tcp_rsk_snt_isn(struct request_sock *req)
{
	return tcp_rsk(req)->snt_isn;
}

const struct inet_connection_sock_af_ops *rust_helper_icsk_af_ops(struct sock *sk)
{
	return READ_ONCE(inet_csk(sk)->icsk_af_ops);
}

void rust_helper_icsk_set_af_ops(struct sock *sk,
				 const struct inet_connection_sock_af_ops *ops)
{
	WRITE_ONCE(inet_csk(sk)->icsk_af_ops, ops);
}

bool rust_helper_icsk_accept_queue_empty(struct sock *sk)
{
	return reqsk_queue_empty(&inet_csk(sk)->icsk_accept_queue);
}

bool rust_helper_tcp_in_repair(struct sock *sk)
{
	return tcp_sk(sk)->repair;
}

bool rust_helper_tcp_recvmsg_inq(struct sock *sk)
{
	return tcp_sk(sk)->recvmsg_inq;
}

u32 rust_helper_tcp_msecs_since_data(struct sock *sk)
{
	return jiffies_to_msecs(tcp_jiffies32 - READ_ONCE(inet_csk(sk)->icsk_ack.lrcvtime));
}

u32 rust_helper_tcp_skb_cb_seq(struct sk_buff *skb)
{
	return TCP_SKB_CB(skb)->seq;
}

u32 rust_helper_skb_len(struct sk_buff *skb)
{
	return skb->len;
}

struct sk_buff *rust_helper_sk_receive_queue_next(struct sock *sk, struct sk_buff *skb)
{
	return skb_queue_is_last(&sk->sk_receive_queue, skb) ? NULL : skb->next;
}

/* Kernels without SMC know no option. */
#if IS_ENABLED(CONFIG_SMC)
bool rust_helper_tcp_syn_smc(struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->syn_smc);
}

void rust_helper_tcp_set_syn_smc(struct sock *sk, bool on)
{
	WRITE_ONCE(tcp_sk(sk)->syn_smc, on);
}

void rust_helper_tcp_set_smc_hs_congested(struct sock *sk,
					  bool (*congested)(const struct sock *sk))
{
	WRITE_ONCE(tcp_sk(sk)->smc_hs_congested, congested);
}

void rust_helper_tcp_have_smc_enable(void)
{
	static_branch_enable(&tcp_have_smc);
}

void rust_helper_tcp_have_smc_disable(void)
{
	static_branch_disable(&tcp_have_smc);
}
#else
bool rust_helper_tcp_syn_smc(struct sock *sk)
{
	return false;
}

void rust_helper_tcp_set_syn_smc(struct sock *sk, bool on)
{
}

void rust_helper_tcp_set_smc_hs_congested(struct sock *sk,
					  bool (*congested)(const struct sock *sk))
{
}

void rust_helper_tcp_have_smc_enable(void)
{
}

void rust_helper_tcp_have_smc_disable(void)
{
}
#endif

/* As tcp_tx_timestamp(), and as if a segment without data had been acknowledged. */
void rust_helper_tcp_stamp_sent(struct sock *sk, u32 stamps, u32 bytes)
{
	static const int types[] = { SCM_TSTAMP_SCHED, SCM_TSTAMP_SND, SCM_TSTAMP_ACK };
	struct sk_buff *skb = alloc_skb(0, GFP_KERNEL);
	int i;

	if (!skb)
		return;
	__sock_tx_timestamp(stamps, &skb_shinfo(skb)->tx_flags);
	if (stamps & SOF_TIMESTAMPING_TX_ACK)
		TCP_SKB_CB(skb)->txstamp_ack = TSTAMP_ACK_SK;
	skb_shinfo(skb)->tskey = atomic_read(&sk->sk_tskey) + bytes - 1;
	for (i = 0; i < ARRAY_SIZE(types); i++)
		__skb_tstamp_tx(skb, NULL, NULL, sk, types[i]);
	kfree_skb(skb);
}
