// SPDX-License-Identifier: GPL-2.0
/*
 * A client of the kernel against servers that speak CLC by hand.
 *
 * 1. It proposes what C proposes with loopback only, byte for byte.
 * 2. A server that declines, or does not say SMC, is talked to over TCP.
 * 3. A server that accepts what it cannot have is declined and talked to over
 *    TCP: another host's GID, a token that nobody has, a link group that was not
 *    made, a mode nobody proposed.
 * 4. One that echoes the option and speaks something else, sends malformed
 *    answers, hangs up or is silent, ends in one clear error in bounded time.
 * 5. A non-blocking connect ends the same way, and an epoll registration that is
 *    older hears of it and of all that follows.
 *
 * With SMC_TEST_C=1 C's stack is expected instead, which differs in its EID only.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "clc_peer.h"
#include "kselftest_harness.h"
#include "smc_test.h"

#define CLC_LIMIT_MS	20000
#define PORT		7000

FIXTURE(clc_client)
{
	struct clc_peer peer;
	struct clc_msg proposal;	/* what the client sent */
	pthread_t thread;
	int fd;
	int result;			/* of connect() */
};

static void *connect_thread(void *arg)
{
	struct _test_data_clc_client *self = arg;
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_pton(AF_INET, CLC_PEER, &addr.sin_addr);
	self->result = connect(self->fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
	return NULL;
}

/* Lets the client connect, with the peer's answer to the option. */
static void start(struct __test_metadata *_metadata, struct _test_data_clc_client *self,
		  enum clc_option option)
{
	ASSERT_EQ(0, pthread_create(&self->thread, NULL, connect_thread, self));
	ASSERT_EQ(0, clc_peer_accept(&self->peer, option));
}

/* The same, and takes the proposal. */
static void start_smc(struct __test_metadata *_metadata, struct _test_data_clc_client *self,
		      enum clc_option option)
{
	start(_metadata, self, option);
	ASSERT_TRUE(self->peer.smc);
	ASSERT_EQ(8, clc_peer_recv(&self->peer, self->proposal.byte, 8, CLC_LIMIT_MS));
	self->proposal.len = self->proposal.byte[5] << 8 | self->proposal.byte[6];
	ASSERT_LT(self->proposal.len, sizeof(self->proposal.byte));
	ASSERT_EQ(self->proposal.len - 8,
		  clc_peer_recv(&self->peer, self->proposal.byte + 8, self->proposal.len - 8,
				CLC_LIMIT_MS));
}

FIXTURE_SETUP(clc_client)
{
	if (!smc_can_run(&smc_ends_smc))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, clc_peer_open(&self->peer));
	self->fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SMC);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(clc_client)
{
	close(self->fd);
	clc_peer_close(&self->peer);
}

/* The connection is TCP for this reason and carries data both ways. */
static void talks(struct __test_metadata *_metadata, struct _test_data_clc_client *self,
		  uint32_t reason)
{
	struct smc_info info;
	char buf[8];

	pthread_join(self->thread, NULL);
	ASSERT_EQ(0, self->result);
	ASSERT_EQ(4, send(self->fd, "data", 4, MSG_NOSIGNAL));
	ASSERT_EQ(4, clc_peer_recv(&self->peer, buf, 4, SMC_TIMEOUT_MS));
	EXPECT_EQ(0, memcmp(buf, "data", 4));
	ASSERT_EQ(0, clc_peer_send(&self->peer, "answer", 6));
	ASSERT_EQ(6, recv(self->fd, buf, 6, MSG_WAITALL));
	EXPECT_EQ(0, memcmp(buf, "answer", 6));
	ASSERT_EQ(0, smc_info(self->fd, &info));
	EXPECT_EQ(SMC_MODE_FALLBACK, info.mode);
	EXPECT_EQ(reason, info.reason);
}

/* The client declines, for this reason, and then talks over TCP. */
static void declines(struct __test_metadata *_metadata, struct _test_data_clc_client *self,
		     const struct clc_msg *answer, uint32_t reason)
{
	uint8_t decline[44];
	size_t len = answer->byte[7] >> 4 == 1 ? 28 : 44;

	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, answer));
	ASSERT_EQ(len, clc_peer_recv(&self->peer, decline, len, CLC_LIMIT_MS));
	EXPECT_EQ(4, CLC_TYPE(decline));
	EXPECT_EQ(reason, CLC_DIAGNOSIS(decline));
	talks(_metadata, self, reason);
}

/* connect() fails with this error, and the peer sees the connection end. */
static void fails(struct __test_metadata *_metadata, struct _test_data_clc_client *self, int error)
{
	pthread_join(self->thread, NULL);
	EXPECT_EQ(-error, self->result);
	close(self->fd);
	self->fd = -1;
	EXPECT_NE(CLC_OPEN, clc_peer_wait_end(&self->peer, CLC_LIMIT_MS));
}

/* The GID in a proposal with loopback only, at its place before the end. */
static void proposed_gid(const struct clc_msg *proposal, uint8_t gid[16])
{
	memcpy(gid, proposal->byte + proposal->len - 24, 8);
	memcpy(gid + 8, proposal->byte + proposal->len - 14, 8);
}

TEST_F(clc_client, proposal_is_what_c_proposes)
{
	struct clc_msg decline = clc_decline(0x03030007, false);
	struct clc_msg expected = clc_proposal();
	uint8_t gid[16];

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	proposed_gid(&self->proposal, gid);
	memcpy(expected.byte + expected.len - 24, gid, 8);
	memcpy(expected.byte + expected.len - 14, gid + 8, 8);
	ASSERT_EQ(expected.len, self->proposal.len);
	if (smc_parameter("SMC_TEST_C", 0))
		/* Another EID. */
		memcpy(expected.byte + 120, self->proposal.byte + 120, 32);
	for (size_t i = 0; i < expected.len; i++) {
		EXPECT_EQ(expected.byte[i], self->proposal.byte[i])
			TH_LOG("byte %zu", i);
	}
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &decline));
	talks(_metadata, self, 0x05000000);
}

TEST_F(clc_client, server_without_the_option_is_talked_to_at_once)
{
	start(_metadata, self, CLC_PLAIN);
	talks(_metadata, self, 0x03010000);
}

TEST_F(clc_client, server_that_declines_is_talked_to_over_tcp)
{
	struct clc_msg decline = clc_bytes("e2d4c3d9 04 001c 10 00*8 03010000 00*4 e2d4c3d9");

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &decline));
	talks(_metadata, self, 0x05000000);
}

TEST_F(clc_client, data_behind_a_decline_reaches_the_application)
{
	struct clc_msg decline = clc_decline(0x03030007, true);
	char buf[4];

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	memcpy(decline.byte + decline.len, "head", 4);
	decline.len += 4;
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &decline));
	pthread_join(self->thread, NULL);
	ASSERT_EQ(0, self->result);
	ASSERT_EQ(4, recv(self->fd, buf, 4, MSG_WAITALL));
	EXPECT_EQ(0, memcmp(buf, "head", 4));
	talks(_metadata, self, 0x05000000);
}

TEST_F(clc_client, server_on_another_host_is_declined)
{
	struct clc_msg accept;

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	accept = clc_accept(2, (const uint8_t *)"0123456789abcdef", self->proposal.byte + 120);
	/* There is no reason for it alone: the DMB cannot be had. */
	declines(_metadata, self, &accept, 0x01010000);
}

TEST_F(clc_client, server_with_a_token_of_nobody_is_declined)
{
	struct clc_msg accept;
	uint8_t gid[16];

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	proposed_gid(&self->proposal, gid);
	accept = clc_accept(2, gid, self->proposal.byte + 120);
	declines(_metadata, self, &accept, 0x01010000);
}

TEST_F(clc_client, server_that_goes_on_with_a_link_group_is_declined_as_out_of_sync)
{
	uint8_t decline[44], gid[16];
	struct clc_msg accept;

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	memcpy(gid, "0123456789abcdef", sizeof(gid));
	accept = clc_accept(2, gid, self->proposal.byte + 120);
	/* No first contact, and not what comes with it. */
	accept.byte[7] &= ~0x08;
	accept.len = 78;
	clc_set16(&accept, 5, accept.len);
	memcpy(accept.byte + 74, "\xe2\xd4\xc3\xc4", 4);
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &accept));
	ASSERT_EQ(44, clc_peer_recv(&self->peer, decline, 44, CLC_LIMIT_MS));
	EXPECT_EQ(4, CLC_TYPE(decline));
	EXPECT_EQ(0x28, decline[7]);
	EXPECT_EQ(0x04000000, CLC_DIAGNOSIS(decline));
	talks(_metadata, self, 0x04000000);
}

TEST_F(clc_client, server_that_chooses_what_was_not_proposed_is_declined)
{
	struct clc_msg rdma = clc_bytes("e2d4c3d9 02 006c 28 00*96 e2d4c3d9");

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	declines(_metadata, self, &rdma, 0x03040000);
}

TEST_F(clc_client, server_that_chooses_version_1_is_declined_in_it)
{
	struct clc_msg accept = clc_bytes("e2d4c3c4 02 0030 11 00*8 00*8 0020 0000 00*4 00*12 e2d4c3c4");

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	declines(_metadata, self, &accept, 0x03040000);
}

TEST_F(clc_client, server_that_echoes_the_option_is_a_clear_error)
{
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_ECHO);
	ASSERT_EQ(0, clc_peer_send(&self->peer, "HTTP/1.0 400 Bad Request\r\n\r\n", 28));
	fails(_metadata, self, EPROTO);
}

TEST_F(clc_client, malformed_answer_is_a_clear_error)
{
	struct clc_msg accept;
	uint8_t gid[16];

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	proposed_gid(&self->proposal, gid);
	accept = clc_accept(2, gid, self->proposal.byte + 120);
	/* Neither of the transports, and both. */
	accept.byte[7] |= 0x03;
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &accept));
	fails(_metadata, self, EPROTO);
}

TEST_F(clc_client, server_that_hangs_up_is_a_reset)
{
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	ASSERT_EQ(0, clc_peer_fin(&self->peer));
	fails(_metadata, self, ECONNRESET);
}

TEST_F(clc_client, server_that_resets_is_a_reset)
{
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	ASSERT_EQ(0, clc_peer_reset(&self->peer));
	pthread_join(self->thread, NULL);
	EXPECT_EQ(-ECONNRESET, self->result);
}

TEST_F(clc_client, silent_server_is_a_timeout)
{
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	fails(_metadata, self, ETIMEDOUT);
}

TEST_F(clc_client, non_blocking_connect_ends_with_the_decline)
{
	struct clc_msg decline = clc_decline(0x03030007, false);

	ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_SMC);
	pthread_join(self->thread, NULL);
	EXPECT_EQ(-EINPROGRESS, self->result);
	/* TCP is connected, but nobody may write yet. */
	EXPECT_EQ(0, smc_poll(self->fd, POLLOUT, 0));
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &decline));
	EXPECT_EQ(POLLOUT, smc_poll(self->fd, POLLOUT, SMC_TIMEOUT_MS));
	EXPECT_EQ(0, smc_error(self->fd));
	ASSERT_EQ(0, smc_set_nonblock(self->fd, false));
	self->result = 0;
	ASSERT_EQ(4, send(self->fd, "data", 4, MSG_NOSIGNAL));
	ASSERT_EQ(4, clc_peer_recv(&self->peer, self->proposal.byte, 4, SMC_TIMEOUT_MS));
	EXPECT_EQ(0, memcmp(self->proposal.byte, "data", 4));
}

/* Waits until epoll reports one of these events. */
static uint32_t hears(int epoll, uint32_t events)
{
	struct epoll_event event;

	while (epoll_wait(epoll, &event, 1, SMC_TIMEOUT_MS) == 1) {
		if (event.events & events)
			return event.events;
	}
	return 0;
}

static void epoll_registration(struct __test_metadata *_metadata,
			       struct _test_data_clc_client *self, uint32_t trigger)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | trigger };
	struct clc_msg decline = clc_decline(0x03020000, false);
	int epoll = epoll_create1(0);
	struct smc_info info;
	char buf[8];

	ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
	ASSERT_EQ(0, epoll_ctl(epoll, EPOLL_CTL_ADD, self->fd, &event));
	ASSERT_NE(0, hears(epoll, EPOLLHUP));
	start_smc(_metadata, self, CLC_SMC);
	pthread_join(self->thread, NULL);
	EXPECT_EQ(-EINPROGRESS, self->result);
	/* What was reported of the fresh socket is past, and nothing else has happened. */
	while (epoll_wait(epoll, &event, 1, 0) == 1 && trigger)
		;
	EXPECT_EQ(0, epoll_wait(epoll, &event, 1, 0));
	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &decline));
	EXPECT_EQ(EPOLLOUT, hears(epoll, EPOLLOUT));
	EXPECT_EQ(-1, recv(self->fd, buf, sizeof(buf), 0));
	EXPECT_EQ(EAGAIN, errno);
	ASSERT_EQ(0, clc_peer_send(&self->peer, "answer", 6));
	EXPECT_EQ(EPOLLIN | EPOLLOUT, hears(epoll, EPOLLIN));
	EXPECT_EQ(6, recv(self->fd, buf, 6, 0));
	ASSERT_EQ(0, smc_info(self->fd, &info));
	EXPECT_EQ(SMC_MODE_FALLBACK, info.mode);
	EXPECT_EQ(0x05000000, info.reason);
	EXPECT_EQ(0x03020000, info.peer_diagnosis);
	ASSERT_EQ(0, clc_peer_fin(&self->peer));
	EXPECT_NE(0, hears(epoll, EPOLLRDHUP));
	close(epoll);
}

TEST_F(clc_client, level_triggered_registration_outlives_the_decline)
{
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	epoll_registration(_metadata, self, 0);
}

TEST_F(clc_client, edge_triggered_registration_outlives_the_decline)
{
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	epoll_registration(_metadata, self, EPOLLET);
}

TEST_F(clc_client, non_blocking_connect_ends_with_the_error)
{
	ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	start_smc(_metadata, self, CLC_ECHO);
	pthread_join(self->thread, NULL);
	EXPECT_EQ(-EINPROGRESS, self->result);
	ASSERT_EQ(0, clc_peer_send(&self->peer, "HTTP", 4));
	EXPECT_NE(0, POLLERR & smc_poll(self->fd, POLLOUT, SMC_TIMEOUT_MS));
	EXPECT_EQ(EPROTO, smc_error(self->fd));
	EXPECT_EQ(0, smc_error(self->fd));
}

/* Whoever learns from poll() that there is an error finds it in SO_ERROR, however soon. */
TEST_F(clc_client, error_is_there_when_poll_says_so)
{
	long rounds = smc_parameter("SMC_TEST_ROUNDS", 200);

	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	while (rounds--) {
		struct pollfd pfd = { .fd = self->fd, .events = POLLOUT };

		ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
		start_smc(_metadata, self, CLC_ECHO);
		pthread_join(self->thread, NULL);
		ASSERT_EQ(0, clc_peer_send(&self->peer, "HTTP", 4));
		/* Without sleeping, so that every moment is seen. */
		while (!poll(&pfd, 1, 0))
			;
		ASSERT_EQ(POLLERR, pfd.revents & POLLERR);
		ASSERT_EQ(EPROTO, smc_error(self->fd));
		ASSERT_EQ(0, smc_error(self->fd));
		close(self->fd);
		clc_peer_close(&self->peer);
		ASSERT_EQ(0, clc_peer_open(&self->peer));
		self->fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SMC);
		ASSERT_LE(0, self->fd);
	}
}

TEST_HARNESS_MAIN
