// SPDX-License-Identifier: GPL-2.0
/*
 * The ways into TCP, one a row: what is done to either end, the reason that each
 * end must give for it (C's codes), and the same demands on all of them.
 *
 * 1. Each end that is an SMC socket says that it fell back, why, and with which
 *    code the peer declined.
 * 2. The first bytes, which may travel with the SYN, and 256 KiB each way arrive
 *    as they were sent.
 * 3. An epoll registration of the client that is older than the connection,
 *    level or edge triggered, hears of the connection, of each byte that comes,
 *    of room that was made and of the end.
 * 4. Rows that do not fall back are there, too: asking for more than SMC-D can
 *    give is no reason while it is not used.
 *
 * Ways that need a peer which speaks CLC by hand are in clc_client and
 * clc_server, those that need a module with small limits in load_limits.sh.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/xfrm.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define BULK		(1 << 18)

/* SMC_CLC_DECL_* */
#define PEERNOSMC	0x03010000
#define IPSEC		0x03020000
#define OPTUNSUPP	0x03060000
#define PEERDECL	0x05000000

#ifndef IP_XFRM_POLICY
#define IP_XFRM_POLICY	17
#endif
#ifndef IPV6_XFRM_POLICY
#define IPV6_XFRM_POLICY 35
#endif

/* What is done to a socket before it connects or listens. */
enum prepare {
	NOTHING,
	FASTOPEN,		/* of the listener: TCP_FASTOPEN */
	FASTOPEN_ALL,		/* TCP_FASTOPEN, _KEY and _NO_COOKIE */
	FASTOPEN_NO_COOKIE,
	FASTOPEN_CONNECT,
	POLICY,			/* for IPsec, as key daemons have it */
};

/* What an end must turn out to be. */
struct outcome {
	enum smc_mode mode;
	uint32_t reason;
	uint32_t peer_diagnosis;
};

static const struct outcome is_plain = { SMC_MODE_PLAIN };
static const struct outcome is_smcd = { SMC_MODE_SMCD };

FIXTURE(fallback_reasons)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int fd[2];
	int epoll;
};

FIXTURE_VARIANT(fallback_reasons)
{
	bool v6;
	struct { int domain, protocol; } client, server;
	enum prepare on_client, on_server;
	bool with_syn;		/* connect by sendto(MSG_FASTOPEN) */
	bool syn_data;		/* bytes travel with the SYN */
	struct outcome client_is, server_is;
};

#define SMC4		{ AF_INET, IPPROTO_SMC }
#define SMC6		{ AF_INET6, IPPROTO_SMC }
#define AF_SMC4		{ AF_SMC, SMCPROTO_SMC }
#define TCP4		{ AF_INET, 0 }
#define TCP6		{ AF_INET6, 0 }
#define FELL		SMC_MODE_FALLBACK

/* The oracle of the demands, and what they are on SMC-D. */
FIXTURE_VARIANT_ADD(fallback_reasons, tcp) {
	.client = TCP4, .server = TCP4,
	.client_is = is_plain, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, smc) {
	.client = SMC4, .server = SMC4,
	.client_is = is_smcd, .server_is = is_smcd,
};

/* The peer is no SMC socket. */
FIXTURE_VARIANT_ADD(fallback_reasons, plain_server) {
	.client = SMC4, .server = TCP4,
	.client_is = { FELL, PEERNOSMC }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, plain_server_of_af_smc) {
	.client = AF_SMC4, .server = TCP4,
	.client_is = { FELL, PEERNOSMC }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, plain_server_of_ipv6) {
	.v6 = true, .client = SMC6, .server = TCP6,
	.client_is = { FELL, PEERNOSMC }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, plain_client) {
	.client = TCP4, .server = SMC4,
	.client_is = is_plain, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, plain_client_of_af_smc) {
	.client = TCP4, .server = AF_SMC4,
	.client_is = is_plain, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, plain_client_of_ipv6) {
	.v6 = true, .client = TCP6, .server = SMC6,
	.client_is = is_plain, .server_is = { FELL, PEERNOSMC },
};

/* Fast open, asked for with the first bytes. */
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_tcp) {
	.client = TCP4, .server = TCP4, .on_server = FASTOPEN, .with_syn = true,
	.syn_data = true,
	.client_is = is_plain, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_to_plain) {
	.client = SMC4, .server = TCP4, .on_server = FASTOPEN, .with_syn = true,
	.syn_data = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_to_plain_without) {
	.client = SMC4, .server = TCP4, .with_syn = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_to_smc) {
	.client = SMC4, .server = SMC4, .on_server = FASTOPEN, .with_syn = true,
	.syn_data = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_to_smc_without) {
	.client = SMC4, .server = SMC4, .with_syn = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_to_smc_of_ipv6) {
	.v6 = true, .client = SMC6, .server = SMC6, .on_server = FASTOPEN,
	.with_syn = true, .syn_data = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_from_plain) {
	.client = TCP4, .server = SMC4, .on_server = FASTOPEN_ALL,
	.with_syn = true, .syn_data = true,
	.client_is = is_plain, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_without_cookie) {
	.client = SMC4, .server = SMC4, .on_server = FASTOPEN,
	.on_client = FASTOPEN_NO_COOKIE, .with_syn = true, .syn_data = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = { FELL, PEERNOSMC },
};

/* The same, asked for with an option. */
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_connect_to_plain) {
	.client = SMC4, .server = TCP4, .on_server = FASTOPEN,
	.on_client = FASTOPEN_CONNECT, .syn_data = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_connect_to_plain_without) {
	.client = SMC4, .server = TCP4, .on_client = FASTOPEN_CONNECT,
	.client_is = { FELL, OPTUNSUPP }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_connect_to_smc) {
	.client = SMC4, .server = SMC4, .on_server = FASTOPEN,
	.on_client = FASTOPEN_CONNECT, .syn_data = true,
	.client_is = { FELL, OPTUNSUPP }, .server_is = { FELL, PEERNOSMC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_connect_from_plain) {
	.client = TCP4, .server = SMC4, .on_server = FASTOPEN,
	.on_client = FASTOPEN_CONNECT, .syn_data = true,
	.client_is = is_plain, .server_is = { FELL, PEERNOSMC },
};

/* Fast open is allowed and nobody uses it. C falls back. */
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_of_listener_unused) {
	.client = SMC4, .server = SMC4, .on_server = FASTOPEN_ALL,
	.client_is = is_smcd, .server_is = is_smcd,
};
FIXTURE_VARIANT_ADD(fallback_reasons, fastopen_of_client_unused) {
	.client = SMC4, .server = SMC4, .on_client = FASTOPEN_NO_COOKIE,
	.client_is = is_smcd, .server_is = is_smcd,
};

/* IPsec looks after one end or both. */
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_client) {
	.client = SMC4, .server = SMC4, .on_client = POLICY,
	.client_is = { FELL, IPSEC }, .server_is = { FELL, PEERDECL, IPSEC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_server) {
	.client = SMC4, .server = SMC4, .on_server = POLICY,
	.client_is = { FELL, PEERDECL, IPSEC }, .server_is = { FELL, IPSEC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_both) {
	.client = SMC4, .server = SMC4, .on_client = POLICY, .on_server = POLICY,
	.client_is = { FELL, IPSEC }, .server_is = { FELL, PEERDECL, IPSEC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_client_of_ipv6) {
	.v6 = true, .client = SMC6, .server = SMC6, .on_client = POLICY,
	.client_is = { FELL, IPSEC }, .server_is = { FELL, PEERDECL, IPSEC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_server_of_af_smc) {
	.client = AF_SMC4, .server = AF_SMC4, .on_server = POLICY,
	.client_is = { FELL, PEERDECL, IPSEC }, .server_is = { FELL, IPSEC },
};
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_client_to_plain) {
	.client = SMC4, .server = TCP4, .on_client = POLICY,
	.client_is = { FELL, PEERNOSMC }, .server_is = is_plain,
};
FIXTURE_VARIANT_ADD(fallback_reasons, ipsec_server_from_plain) {
	.client = TCP4, .server = SMC4, .on_server = POLICY,
	.client_is = is_plain, .server_is = { FELL, PEERNOSMC },
};

static bool is_smc(int domain, int protocol)
{
	return domain == AF_SMC || protocol == IPPROTO_SMC;
}

/* Where both ends want fast open, it takes no cookie. */
static int allow_fast_open(void)
{
	static const char all[] = "0x207";
	int fd = open("/proc/sys/net/ipv4/tcp_fastopen", O_WRONLY);
	ssize_t n = write(fd, all, sizeof(all) - 1);

	close(fd);
	return n == sizeof(all) - 1 ? 0 : -1;
}

/* A policy that lets everything pass, for this socket alone. */
static int set_policy(int fd, bool v6)
{
	for (int dir = XFRM_POLICY_IN; dir <= XFRM_POLICY_OUT; dir++) {
		struct xfrm_userpolicy_info info = {
			.sel.family = v6 ? AF_INET6 : AF_INET,
			.lft.soft_byte_limit = XFRM_INF,
			.lft.hard_byte_limit = XFRM_INF,
			.lft.soft_packet_limit = XFRM_INF,
			.lft.hard_packet_limit = XFRM_INF,
			.dir = dir,
			.action = XFRM_POLICY_ALLOW,
		};

		if (setsockopt(fd, v6 ? SOL_IPV6 : SOL_IP,
			       v6 ? IPV6_XFRM_POLICY : IP_XFRM_POLICY, &info, sizeof(info)))
			return -1;
	}
	return 0;
}

/* The module that reads policies is not loaded by asking for one. */
static bool knows_policies(void)
{
	int probe = socket(AF_INET, SOCK_STREAM, 0);
	bool knows = !set_policy(probe, false);

	if (!knows && !system("modprobe -q xfrm_user"))
		knows = !set_policy(probe, false);
	close(probe);
	return knows;
}

static int prepare(int fd, bool v6, enum prepare what)
{
	static const char key[16] = "0123456789abcdef";
	int on = 1, queue = 16;

	switch (what) {
	case NOTHING:
		return 0;
	case FASTOPEN_ALL:
		if (setsockopt(fd, SOL_TCP, TCP_FASTOPEN_KEY, key, sizeof(key)) ||
		    setsockopt(fd, SOL_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof(on)))
			return -1;
		/* fallthrough */
	case FASTOPEN:
		return setsockopt(fd, SOL_TCP, TCP_FASTOPEN, &queue, sizeof(queue));
	case FASTOPEN_NO_COOKIE:
		return setsockopt(fd, SOL_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof(on));
	case FASTOPEN_CONNECT:
		return setsockopt(fd, SOL_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on));
	case POLICY:
		return set_policy(fd, v6);
	}
	return -1;
}

FIXTURE_SETUP(fallback_reasons)
{
	const struct smc_end server = { variant->server.domain, variant->server.protocol };
	bool needs_smc = is_smc(variant->client.domain, variant->client.protocol) ||
			 is_smc(variant->server.domain, variant->server.protocol);
	bool needs_policy = variant->on_client == POLICY || variant->on_server == POLICY;

	self->listener = -1;
	self->epoll = -1;
	self->fd[0] = -1;
	self->fd[1] = -1;
	if (needs_smc && !smc_can_run(&smc_ends_smc))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, allow_fast_open());
	if (needs_policy && !knows_policies())
		SKIP(return, "sockets have no policies for IPsec here (CONFIG_XFRM_USER)");
	self->listener = smc_socket(&server, 0);
	ASSERT_LE(0, self->listener);
	ASSERT_EQ(0, prepare(self->listener, variant->v6, variant->on_server))
		TH_LOG("errno %d", errno);
	self->len = smc_loopback(variant->v6 ? AF_INET6 : AF_INET, &self->addr);
	ASSERT_EQ(0, bind(self->listener, (struct sockaddr *)&self->addr, self->len));
	ASSERT_EQ(0, listen(self->listener, 8));
	ASSERT_EQ(0, getsockname(self->listener, (struct sockaddr *)&self->addr, &self->len));
	self->epoll = epoll_create1(0);
	ASSERT_LE(0, self->epoll);
}

FIXTURE_TEARDOWN(fallback_reasons)
{
	smc_close_pair(self->fd);
	close(self->epoll);
	close(self->listener);
}

/* Waits until epoll reports one of these events of the client. */
static uint32_t hears(int epoll, uint32_t events)
{
	struct epoll_event event;

	do {
		if (epoll_wait(epoll, &event, 1, SMC_TIMEOUT_MS) != 1)
			return 0;
	} while (!(event.events & events));
	return event.events;
}

/* Takes what was reported already, so that only news count. */
static void forget(int epoll)
{
	struct epoll_event event;

	while (epoll_wait(epoll, &event, 1, 0) > 0 && event.events & EPOLLET)
		;
}

/* Connects, and sends the first bytes. */
static void begin(struct __test_metadata *_metadata, struct _test_data_fallback_reasons *self,
		  const struct _fixture_variant_fallback_reasons *variant, bool nonblock)
{
	const struct sockaddr *addr = (struct sockaddr *)&self->addr;
	ssize_t sent = -1;

	if (nonblock)
		ASSERT_EQ(0, smc_set_nonblock(self->fd[0], true));
	if (variant->with_syn) {
		sent = sendto(self->fd[0], "head", 4, MSG_FASTOPEN | MSG_NOSIGNAL, addr,
			      self->len);
		if (sent < 0) {
			ASSERT_TRUE(nonblock);
			ASSERT_EQ(EINPROGRESS, errno);
			ASSERT_NE(0, hears(self->epoll, EPOLLOUT));
		}
	} else if (connect(self->fd[0], addr, self->len)) {
		ASSERT_TRUE(nonblock);
		ASSERT_EQ(EINPROGRESS, errno);
		ASSERT_NE(0, hears(self->epoll, EPOLLOUT));
	}
	if (sent < 0) {
		sent = send(self->fd[0], "head", 4, MSG_NOSIGNAL);
		if (sent < 0 && nonblock && errno == EINPROGRESS) {
			ASSERT_NE(0, hears(self->epoll, EPOLLOUT));
			sent = send(self->fd[0], "head", 4, MSG_NOSIGNAL);
		}
	}
	ASSERT_EQ(4, sent)
		TH_LOG("errno %d", errno);
}

static void check_outcome(struct __test_metadata *_metadata, const char *end, int fd,
			  const struct outcome *want)
{
	struct smc_info info;

	if (want->mode == SMC_MODE_PLAIN) {
		EXPECT_EQ(SMC_MODE_PLAIN, smc_mode(fd));
		return;
	}
	ASSERT_EQ(0, smc_info(fd, &info));
	EXPECT_EQ(want->mode, info.mode)
		TH_LOG("%s: reason %#x", end, info.reason);
	EXPECT_EQ(want->reason, info.reason)
		TH_LOG("%s: reason %#x", end, info.reason);
	EXPECT_EQ(want->peer_diagnosis, info.peer_diagnosis)
		TH_LOG("%s: diagnosis %#x", end, info.peer_diagnosis);
}

/* A stream each way at once. */
static void check_bulk(struct __test_metadata *_metadata, const int fd[2], uint64_t seed)
{
	struct smc_stream streams[4];

	for (int i = 0; i < 4; i++) {
		streams[i] = (struct smc_stream) {
			.fd = fd[i & 1], .sender = i < 2, .bytes = BULK, .chunk = 8192,
			.seed = seed + (i < 2 ? i & 1 : !(i & 1)),
		};
		ASSERT_EQ(0, smc_stream_start(&streams[i]));
	}
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, smc_stream_join(&streams[i]));
}

static void trial(struct __test_metadata *_metadata, struct _test_data_fallback_reasons *self,
		  const struct _fixture_variant_fallback_reasons *variant, bool nonblock,
		  uint32_t trigger)
{
	const struct smc_end client = { variant->client.domain, variant->client.protocol };
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | trigger,
	};
	struct tcp_info info;
	socklen_t len = sizeof(info);
	char buf[65536] = "";

	self->fd[0] = smc_socket(&client, 0);
	ASSERT_LE(0, self->fd[0]);
	ASSERT_EQ(0, prepare(self->fd[0], variant->v6, variant->on_client))
		TH_LOG("errno %d", errno);
	ASSERT_EQ(0, epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->fd[0], &event));
	/* A fresh socket is hung up and writable. */
	hears(self->epoll, EPOLLHUP);
	begin(_metadata, self, variant, nonblock);
	self->fd[1] = smc_accept(self->listener);
	ASSERT_LE(0, self->fd[1]);
	ASSERT_EQ(4, recv(self->fd[1], buf, 4, MSG_WAITALL));
	EXPECT_EQ(0, memcmp(buf, "head", 4));
	check_outcome(_metadata, "client", self->fd[0], &variant->client_is);
	check_outcome(_metadata, "server", self->fd[1], &variant->server_is);
	ASSERT_EQ(0, getsockopt(self->fd[0], SOL_TCP, TCP_INFO, &info, &len));
	EXPECT_EQ(variant->syn_data, !!(info.tcpi_options & TCPI_OPT_SYN_DATA));

	ASSERT_EQ(0, smc_set_nonblock(self->fd[0], false));
	check_bulk(_metadata, self->fd, trigger + nonblock);
	ASSERT_EQ(0, smc_set_nonblock(self->fd[0], true));

	/* What comes is heard of, each time. */
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(-1, recv(self->fd[0], buf, sizeof(buf), 0));
		ASSERT_EQ(EAGAIN, errno);
		if (trigger)
			forget(self->epoll);
		ASSERT_EQ(1, send(self->fd[1], "x", 1, MSG_NOSIGNAL));
		EXPECT_NE(0, hears(self->epoll, EPOLLIN));
		ASSERT_EQ(1, recv(self->fd[0], buf, sizeof(buf), 0));
	}
	/* Room is. */
	while (send(self->fd[0], buf, sizeof(buf), MSG_NOSIGNAL) > 0)
		;
	ASSERT_EQ(EAGAIN, errno);
	if (trigger)
		forget(self->epoll);
	ASSERT_EQ(0, smc_set_nonblock(self->fd[1], true));
	for (event.events = 0; !(event.events & EPOLLOUT);) {
		while (recv(self->fd[1], buf, sizeof(buf), 0) > 0)
			;
		ASSERT_EQ(EAGAIN, errno);
		/* TCP sends on what is in its queue first. */
		ASSERT_LE(0, epoll_wait(self->epoll, &event, 1, 100));
	}
	/* The end is. */
	if (trigger)
		forget(self->epoll);
	ASSERT_EQ(0, shutdown(self->fd[1], SHUT_WR));
	EXPECT_NE(0, hears(self->epoll, EPOLLRDHUP));
	EXPECT_EQ(0, recv(self->fd[0], buf, sizeof(buf), 0));
	smc_close_pair(self->fd);
}

TEST_F(fallback_reasons, bytes_and_epoll_registrations_survive)
{
	for (int nonblock = 0; nonblock < 2; nonblock++) {
		trial(_metadata, self, variant, nonblock, 0);
		trial(_metadata, self, variant, nonblock, EPOLLET);
	}
}

TEST_HARNESS_MAIN
