// SPDX-License-Identifier: GPL-2.0
/*
 * A listener of the kernel against peers that speak CLC by hand.
 *
 * 1. A client on another host is declined, with the reason, and served over TCP.
 * 2. So is one that declines itself, whatever flags it sets.
 * 3. One that says SMC in its SYN and then speaks something else is served
 *    over TCP, with every byte.
 * 4. Malformed proposals cost their sender the connection and nobody else.
 * 5. A silent client is cut off in bounded time; meanwhile others are served.
 * 6. No CLC byte ever reaches an application.
 *
 * With SMC_TEST_C=1 C's stack is expected instead. Its reasons and bytes are the
 * same. Two things differ that no byte shows: C cuts off a client that speaks
 * something else, and it keeps a child whose handshake has failed, with its TCP
 * connection, until accept() is called the next time, which does not return it.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clc_peer.h"
#include "kselftest_harness.h"
#include "smc_test.h"

/* C's limit is 6 s for each message; a machine that emulates may be slow. */
#define CLC_LIMIT_MS	20000

FIXTURE(clc_server)
{
	struct clc_peer peer;
	uint16_t port;
	int listener;
};

FIXTURE_SETUP(clc_server)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);

	if (!smc_can_run(&smc_ends_smc))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, clc_peer_open(&self->peer));
	self->listener = socket(AF_INET, SOCK_STREAM, IPPROTO_SMC);
	ASSERT_LE(0, self->listener);
	ASSERT_EQ(0, bind(self->listener, (struct sockaddr *)&addr, len));
	ASSERT_EQ(0, listen(self->listener, 128));
	ASSERT_EQ(0, getsockname(self->listener, (struct sockaddr *)&addr, &len));
	self->port = ntohs(addr.sin_port);

	ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	ASSERT_TRUE(self->peer.smc);
}

FIXTURE_TEARDOWN(clc_server)
{
	clc_peer_close(&self->peer);
	close(self->listener);
}

/* The child can be accepted and carries data both ways: first ours, then the peer's. */
static int check_served(struct _test_data_clc_server *self, const char *sent, uint32_t reason)
{
	struct smc_info info;
	char buf[64] = "";
	int fd, ret = -EPROTO;

	if (!(smc_poll(self->listener, POLLIN, SMC_TIMEOUT_MS) & POLLIN))
		return -ETIMEDOUT;
	fd = accept(self->listener, NULL, NULL);
	if (fd < 0)
		return -errno;
	/* What a test has reset before lies in the queue as well, as with TCP. */
	while (recv(fd, buf, 1, MSG_PEEK) < 0 && errno == ECONNRESET) {
		close(fd);
		fd = accept(self->listener, NULL, NULL);
		if (fd < 0)
			return -errno;
	}
	if (recv(fd, buf, strlen(sent), MSG_WAITALL) != strlen(sent) || strcmp(buf, sent))
		goto out;
	if (send(fd, "answer", 6, MSG_NOSIGNAL) != 6 ||
	    clc_peer_recv(&self->peer, buf, 6, SMC_TIMEOUT_MS) != 6 || memcmp(buf, "answer", 6))
		goto out;
	ret = smc_info(fd, &info);
	if (!ret && (info.mode != SMC_MODE_FALLBACK || (reason && info.reason != reason))) {
		fprintf(stderr, "mode %d, reason %#x\n", info.mode, info.reason);
		ret = -EPROTO;
	}
out:
	close(fd);
	return ret;
}

/* Other clients do not notice anything. */
static int check_others(void)
{
	int fd[2], ret = smc_pair(&smc_ends_smc, fd);

	if (ret)
		return ret;
	ret = smc_check_modes(&smc_ends_smc, fd);
	smc_close_pair(fd);
	return ret;
}

/* C's listener is readable by a child that has failed, which accept() only throws away. */
static void throw_away_failed(struct _test_data_clc_server *self, int timeout_ms)
{
	int fd;

	if (!smc_parameter("SMC_TEST_C", 0) || !smc_poll(self->listener, POLLIN, timeout_ms))
		return;
	smc_set_nonblock(self->listener, true);
	fd = accept(self->listener, NULL, NULL);
	if (fd >= 0)
		close(fd);
	smc_set_nonblock(self->listener, false);
}

static void declined(struct __test_metadata *_metadata, struct _test_data_clc_server *self,
		     const struct clc_msg *proposal, uint32_t reason)
{
	uint8_t answer[44];
	size_t len = proposal->byte[7] >> 4 == 1 ? 28 : 44;

	ASSERT_EQ(0, clc_peer_send_msg(&self->peer, proposal));
	ASSERT_EQ(len, clc_peer_recv(&self->peer, answer, len, CLC_LIMIT_MS));
	EXPECT_EQ(4, CLC_TYPE(answer));
	EXPECT_EQ(len, answer[5] << 8 | answer[6]);
	EXPECT_EQ(reason, CLC_DIAGNOSIS(answer));
	EXPECT_EQ(0, memcmp(answer, "\xe2\xd4\xc3\xd9", 4));
	EXPECT_EQ(0, memcmp(answer + len - 4, "\xe2\xd4\xc3\xd9", 4));
	ASSERT_EQ(0, clc_peer_send(&self->peer, "data", 4));
	EXPECT_EQ(0, check_served(self, "data", reason));
}

TEST_F(clc_server, remote_client_is_declined_and_served_over_tcp)
{
	struct clc_msg proposal = clc_proposal();

	declined(_metadata, self, &proposal, 0x03030007);
}

TEST_F(clc_server, client_of_version_1_is_declined_in_version_1)
{
	struct clc_msg proposal = clc_proposal_v1("0a090000 18");

	declined(_metadata, self, &proposal, 0x03030000);
}

/* RDMA is looked for only where client and server share a subnet, in every byte of it. */
TEST_F(clc_server, client_with_rdma_in_another_subnet_is_told_so)
{
	struct clc_msg other[] = {
		clc_proposal_v1("c0a80000 18"), clc_proposal_v1("0a090000 17"),
		clc_proposal_v1("0a090100 18"), clc_proposal_all(),
	};

	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		if (i)
			ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
		declined(_metadata, self, &other[i], 0x03070000);
	}
	/* The second of those that the last one names. */
	ASSERT_EQ(0, system("ip -6 address add fd01::5/64 dev clc0 nodad"));
	ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
	declined(_metadata, self, &other[3], 0x03030007);
}

/* Proposals of hosts that cannot be had, each with the reason C gives. */
TEST_F(clc_server, each_client_is_declined_for_its_own_reason)
{
	const struct {
		struct clc_msg proposal;
		uint32_t reason;
	} cases[] = {
		/* SMC-D in version 2, without the extension, or without any EID. */
		{ clc_change(clc_proposal(), 86, "0000"), 0x03030005 },
		{ clc_proposal_v2(0x6, "", "31*8 ffff 41*8 ffff"), 0x03030008 },
		/* SMC-R in version 2: no EID, another's EID, and too small a link group. */
		{ clc_proposal_v2(0x2, "", NULL), 0x03030008 },
		{ clc_proposal_v2(0x2, "'OTHER' 20*27", NULL), 0x03030000 },
		{ clc_change(clc_proposal_v2(0x2, "'OTHER' 20*27", NULL), 104, "0f"), 0x0303000a },
		{ clc_change(clc_proposal_v2(0x2, "'OTHER' 20*27", NULL), 105, "00"), 0x0303000b },
		/* Both: SMC-R is looked at even if SMC-D is not complete. */
		{ clc_proposal_v2(0xe, "'OTHER' 20*27", "31*8 ffff 41*8 ffff"), 0x03030007 },
		{ clc_change(clc_proposal_v2(0xe, "'OTHER' 20*27", "31*8 ffff 41*8 ffff"), 86,
			     "0000"), 0x03030000 },
		/* Nothing at all. */
		{ clc_bytes("e2d4c3d9 01 0054 2a 00*30 0000 00*40 e2d4c3d9"), 0x03010000 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (i)
			ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
		declined(_metadata, self, &cases[i].proposal, cases[i].reason);
	}
}

TEST_F(clc_server, proposal_in_single_bytes_is_understood)
{
	struct clc_msg proposal = clc_proposal();
	uint8_t answer[44];

	for (size_t i = 0; i < proposal.len; i++)
		ASSERT_EQ(0, clc_peer_send(&self->peer, proposal.byte + i, 1));
	ASSERT_EQ(44, clc_peer_recv(&self->peer, answer, 44, CLC_LIMIT_MS));
	EXPECT_EQ(0x03030007, CLC_DIAGNOSIS(answer));
	ASSERT_EQ(0, clc_peer_send(&self->peer, "data", 4));
	EXPECT_EQ(0, check_served(self, "data", 0x03030007));
}

TEST_F(clc_server, decline_instead_of_proposal_ends_in_tcp)
{
	for (int flag = 0; flag < 2; flag++) {
		struct clc_msg decline = clc_decline(0x04000000, flag);

		if (flag)
			ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
		ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &decline));
		ASSERT_EQ(0, clc_peer_send(&self->peer, "data", 4));
		EXPECT_EQ(0, check_served(self, "data", 0x05000000));
	}
}

TEST_F(clc_server, client_that_speaks_something_else_is_served_over_tcp)
{
	if (smc_parameter("SMC_TEST_C", 0))
		SKIP(return, "C cuts it off");
	ASSERT_EQ(0, clc_peer_send(&self->peer, "GET / HTTP/1.0\r\n\r\n", 18));
	EXPECT_EQ(0, check_served(self, "GET / HTTP/1.0\r\n\r\n", 0));
}

TEST_F(clc_server, malformed_proposal_costs_only_its_sender)
{
	static const struct {
		size_t at;
		size_t size;
		uint32_t value;
	} change[] = {
		/* Offsets of the IP area, version 2 and SMC-D extension. */
		{ 38, 2, 0xffff }, { 38, 2, 223 }, { 38, 2, 224 }, { 38, 2, 41 },
		{ 50, 2, 0 }, { 50, 2, 0xffff }, { 50, 2, 173 }, { 50, 2, 223 },
		{ 86, 2, 0xffff }, { 86, 2, 289 }, { 86, 2, 224 },
		/* Counts of prefixes, EIDs and GIDs. */
		{ 47, 1, 9 }, { 47, 1, 255 },
		{ 80, 1, 0 }, { 80, 1, 2 }, { 80, 1, 9 }, { 80, 1, 255 },
		{ 81, 1, 0 }, { 81, 1, 9 }, { 81, 1, 255 },
		/* The header, and the end. */
		{ 4, 1, 0 }, { 4, 1, 5 }, { 4, 1, 2 }, { 4, 1, 3 },
		{ 5, 2, 0 }, { 5, 2, 7 }, { 5, 2, 8 }, { 5, 2, 223 },
		{ 7, 1, 0x06 }, { 7, 1, 0x12 }, { 7, 1, 0x25 },
		{ 223, 1, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(change); i++) {
		struct clc_msg proposal = clc_proposal();
		uint8_t answer[44] = {};
		ssize_t len;

		if (i)
			ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
		if (change[i].size == 2)
			clc_set16(&proposal, change[i].at, change[i].value);
		else
			proposal.byte[change[i].at] = change[i].value;
		ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &proposal));
		throw_away_failed(self, CLC_LIMIT_MS);
		len = clc_peer_recv(&self->peer, answer, sizeof(answer), CLC_LIMIT_MS);
		if (len == sizeof(answer)) {
			EXPECT_EQ(4, CLC_TYPE(answer))
				TH_LOG("byte %zu", change[i].at);
		} else {
			EXPECT_NE(CLC_OPEN, clc_peer_wait_end(&self->peer, CLC_LIMIT_MS))
				TH_LOG("byte %zu = %u", change[i].at, change[i].value);
		}
		clc_peer_reset(&self->peer);
	}
	EXPECT_EQ(0, check_others());
}

TEST_F(clc_server, truncated_proposal_costs_only_its_sender)
{
	static const size_t len[] = { 1, 7, 8, 9, 52, 223 };

	for (size_t i = 0; i < ARRAY_SIZE(len); i++) {
		struct clc_msg proposal = clc_proposal();

		if (i)
			ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_SMC));
		proposal.len = len[i];
		ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &proposal));
		ASSERT_EQ(0, clc_peer_fin(&self->peer));
		throw_away_failed(self, CLC_LIMIT_MS);
		EXPECT_NE(CLC_OPEN, clc_peer_wait_end(&self->peer, CLC_LIMIT_MS))
			TH_LOG("after %zu bytes", len[i]);
		clc_peer_reset(&self->peer);
	}
	EXPECT_EQ(0, check_others());
}

TEST_F(clc_server, silent_client_is_cut_off_and_holds_up_nobody)
{
	EXPECT_EQ(0, check_others());
	EXPECT_EQ(CLC_OPEN, self->peer.end);
	throw_away_failed(self, CLC_LIMIT_MS);
	EXPECT_NE(CLC_OPEN, clc_peer_wait_end(&self->peer, CLC_LIMIT_MS));
	if (!smc_parameter("SMC_TEST_C", 0)) {
		char byte;
		int fd = accept(self->listener, NULL, NULL);

		ASSERT_LE(0, fd);
		EXPECT_EQ(-1, recv(fd, &byte, 1, 0));
		EXPECT_EQ(ETIMEDOUT, errno);
		close(fd);
	}
}

TEST_F(clc_server, client_without_the_option_is_served_over_tcp)
{
	clc_peer_reset(&self->peer);
	ASSERT_EQ(0, clc_peer_connect(&self->peer, self->port, CLC_PLAIN));
	EXPECT_FALSE(self->peer.smc);
	ASSERT_EQ(0, clc_peer_send(&self->peer, "data", 4));
	EXPECT_EQ(0, check_served(self, "data", 0x03010000));
}

TEST_HARNESS_MAIN
