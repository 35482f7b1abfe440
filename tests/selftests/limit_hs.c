// SPDX-License-Identifier: GPL-2.0
/*
 * SMC_LIMIT_HS of level SOL_SMC.
 *
 * 1. It is stored and returned as C's stack does, of every size, on every socket.
 *    No other option of the level is known. (Runs on C's stack as well.)
 * 2. A listener that was set before listen() serves new clients over TCP, with
 *    nothing of SMC in its SYN-ACK, while handshakes over the wire hold half of
 *    its backlog. When they end, SMC is offered again. Neighbours within the
 *    kernel, who need no handshake over the wire, are SMC-D all the time.
 * 3. Others offer SMC to everybody, also when it is set after listen().
 */

#include <arpa/inet.h>
#include <errno.h>
#include <linux/smc.h>
#include <time.h>

#include "clc_peer.h"
#include "kselftest_harness.h"
#include "smc_test.h"

#ifndef SOL_SMC
#define SOL_SMC		286
#endif

#define PEERNOSMC	0x03010000

FIXTURE(limit_hs)
{
	int fd;
};

FIXTURE_VARIANT(limit_hs)
{
	struct smc_end end;
};

FIXTURE_VARIANT_ADD(limit_hs, smc) { .end = { AF_INET, IPPROTO_SMC } };
FIXTURE_VARIANT_ADD(limit_hs, smc6) { .end = { AF_INET6, IPPROTO_SMC } };
FIXTURE_VARIANT_ADD(limit_hs, af_smc) { .end = { AF_SMC, SMCPROTO_SMC } };
FIXTURE_VARIANT_ADD(limit_hs, af_smc6) { .end = { AF_SMC, SMCPROTO_SMC6 } };

FIXTURE_SETUP(limit_hs)
{
	self->fd = -1;
	if (!smc_can_run(&smc_ends_smc))
		SKIP(return, "no SMC in this kernel");
	self->fd = smc_socket(&variant->end, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(limit_hs)
{
	close(self->fd);
}

static int set(int fd, int value)
{
	return setsockopt(fd, SOL_SMC, SMC_LIMIT_HS, &value, sizeof(value)) ? -errno : 0;
}

static int get(int fd)
{
	socklen_t len = sizeof(int);
	int value = -1;

	if (getsockopt(fd, SOL_SMC, SMC_LIMIT_HS, &value, &len))
		return -errno;
	return len == sizeof(int) ? value : -EMSGSIZE;
}

TEST_F(limit_hs, is_a_flag)
{
	EXPECT_EQ(0, get(self->fd));
	EXPECT_EQ(0, set(self->fd, 1));
	EXPECT_EQ(1, get(self->fd));
	EXPECT_EQ(0, set(self->fd, 0));
	EXPECT_EQ(0, get(self->fd));
	EXPECT_EQ(0, set(self->fd, -5));
	EXPECT_EQ(1, get(self->fd));
	EXPECT_EQ(0, set(self->fd, 256));
	EXPECT_EQ(1, get(self->fd));
}

TEST_F(limit_hs, value_of_any_size)
{
	unsigned char value[8] = { 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff };

	for (int len = -1; len <= 8; len++) {
		unsigned char got[8];
		socklen_t room = len;
		int ret;

		ret = setsockopt(self->fd, SOL_SMC, SMC_LIMIT_HS, value, len);
		EXPECT_EQ(len < 4 ? -1 : 0, ret);
		if (ret)
			EXPECT_EQ(EINVAL, errno);
		if (len < 4)
			ASSERT_EQ(0, set(self->fd, 1));
		memset(got, 0xaa, sizeof(got));
		ret = getsockopt(self->fd, SOL_SMC, SMC_LIMIT_HS, got, &room);
		EXPECT_EQ(len < 0 ? -1 : 0, ret);
		if (ret) {
			EXPECT_EQ(EINVAL, errno);
			continue;
		}
		EXPECT_EQ(len < 4 ? len : 4, room);
		for (int i = 0; i < 8; i++)
			EXPECT_EQ(i < room ? i == 0 : 0xaa, got[i]);
	}
}

TEST_F(limit_hs, memory_that_is_not_there)
{
	void *nowhere = (void *)16;
	socklen_t len = sizeof(int);
	int value = 1;

	EXPECT_EQ(-1, setsockopt(self->fd, SOL_SMC, SMC_LIMIT_HS, nowhere, len));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(0, get(self->fd));
	EXPECT_EQ(-1, getsockopt(self->fd, SOL_SMC, SMC_LIMIT_HS, nowhere, &len));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, getsockopt(self->fd, SOL_SMC, SMC_LIMIT_HS, &value, nowhere));
	EXPECT_EQ(EFAULT, errno);
}

TEST_F(limit_hs, nothing_else_of_the_level)
{
	static const int names[] = { 0, 2, 3, 0x7fffffff, -1 };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		socklen_t len = sizeof(int);
		int value = 1;

		EXPECT_EQ(-1, setsockopt(self->fd, SOL_SMC, names[i], &value, len));
		EXPECT_EQ(EOPNOTSUPP, errno);
		EXPECT_EQ(-1, getsockopt(self->fd, SOL_SMC, names[i], &value, &len));
		EXPECT_EQ(EOPNOTSUPP, errno);
		len = -1;
		EXPECT_EQ(-1, getsockopt(self->fd, SOL_SMC, names[i], &value, &len));
		EXPECT_EQ(EINVAL, errno);
	}
}

TEST_F(limit_hs, stays_with_its_socket)
{
	const struct smc_ends *ends = &smc_ends_smc;
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;

	listener = smc_listen(ends, 4, &addr, &len);
	ASSERT_LE(0, listener);
	EXPECT_EQ(0, set(listener, 1));
	EXPECT_EQ(1, get(listener));
	ASSERT_EQ(0, smc_pair_from(ends, listener, &addr, len, fd));
	EXPECT_EQ(0, get(fd[1]));
	EXPECT_EQ(0, set(fd[0], 1));
	EXPECT_EQ(1, get(fd[0]));
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
	close(listener);
}

FIXTURE(pressure)
{
	struct clc_peer peer;
	struct sockaddr_in addr;
	int listener;
	int64_t begin;
};

FIXTURE_VARIANT(pressure)
{
	int before, after;	/* SMC_LIMIT_HS before and after listen() */
};

FIXTURE_VARIANT_ADD(pressure, limited) { .before = 1, .after = 0 };
FIXTURE_VARIANT_ADD(pressure, unlimited) { .before = 0, .after = 1 };

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Handshakes end by themselves after six seconds, and then there is no pressure. */
#define PATIENCE_MS	5000

#define BACKLOG		8

FIXTURE_SETUP(pressure)
{
	socklen_t len = sizeof(self->addr);

	self->listener = -1;
	if (!smc_can_run(&smc_ends_smc))
		SKIP(return, "no SMC in this kernel");
	if (!clc_option_known())
		SKIP(return, "the kernel has no SMC option (CONFIG_SMC=m)");
	if (smc_parameter("SMC_TEST_C", 0))
		SKIP(return, "C's stack counts the handshakes of the whole host");
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, clc_peer_open(&self->peer));
	self->addr.sin_family = AF_INET;
	self->listener = socket(AF_INET, SOCK_STREAM, IPPROTO_SMC);
	ASSERT_LE(0, self->listener);
	ASSERT_EQ(0, bind(self->listener, (struct sockaddr *)&self->addr, len));
	ASSERT_EQ(0, set(self->listener, variant->before));
	ASSERT_EQ(0, listen(self->listener, BACKLOG));
	ASSERT_EQ(0, set(self->listener, variant->after));
	ASSERT_EQ(0, getsockname(self->listener, (struct sockaddr *)&self->addr, &len));
	self->begin = now_ms();
}

FIXTURE_TEARDOWN(pressure)
{
	clc_peer_close(&self->peer);
	close(self->listener);
}

/* A client that speaks SMC connects; is it offered? -1: it does not connect. */
static int offered(struct _test_data_pressure *self)
{
	if (clc_peer_connect(&self->peer, ntohs(self->addr.sin_port), CLC_SMC))
		return -1;
	return self->peer.smc;
}

TEST_F(pressure, sends_clients_to_tcp_until_handshakes_end)
{
	bool limited = variant->before;
	int silent[BACKLOG / 2], fd;
	struct smc_info info;
	char buf[8];

	for (int i = 0; i < BACKLOG / 2; i++)
		ASSERT_EQ(1, offered(self));
	fd = offered(self);
	if (now_ms() - self->begin > PATIENCE_MS)
		SKIP(return, "the machine is too slow");
	ASSERT_EQ(!limited, fd);
	if (limited)
		ASSERT_EQ(0, clc_peer_send(&self->peer, "data", 4));
	/* Accepting them ends no handshake. */
	for (int i = 0; i < BACKLOG / 2; i++) {
		silent[i] = smc_accept(self->listener);
		ASSERT_LE(0, silent[i]);
	}
	fd = smc_accept(self->listener);
	ASSERT_LE(0, fd);
	if (limited) {
		ASSERT_EQ(4, recv(fd, buf, 4, MSG_WAITALL));
		ASSERT_EQ(0, smc_info(fd, &info));
		EXPECT_EQ(SMC_MODE_FALLBACK, info.mode);
		EXPECT_EQ(PEERNOSMC, info.reason);
	}
	close(fd);
	fd = offered(self);
	if (now_ms() - self->begin > PATIENCE_MS)
		SKIP(return, "the machine is too slow");
	EXPECT_EQ(!limited, fd);
	close(smc_accept(self->listener));

	/* Neighbours are another matter. */
	fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SMC);
	self->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ASSERT_EQ(0, connect(fd, (struct sockaddr *)&self->addr, sizeof(self->addr)));
	EXPECT_EQ(0, smc_check_mode(fd, SMC_MODE_SMCD));
	close(fd);

	for (int i = 0; i < BACKLOG / 2; i++)
		close(silent[i]);
	EXPECT_EQ(1, offered(self));
}

TEST_HARNESS_MAIN
