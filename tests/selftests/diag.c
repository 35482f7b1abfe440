// SPDX-License-Identifier: GPL-2.0
/*
 * sock_diag for AF_SMC says what is there, at any time.
 *
 * 1. State, mode, addresses, ports, user and inode of a fresh socket, a
 *    listener, both ends of a connection and a closed one.
 * 2. Ring sizes and DMB tokens of a connection, the tokens of its ends crossed.
 * 3. The reason of a fallback is given.
 * 4. A dump of many sockets comes in parts and lists each exactly once.
 * 5. Sockets of another namespace are not listed.
 * 6. Dumps with all extensions while sockets are made, connected and closed by
 *    many threads (CVE-2024-26615, CVE-2025-40357): no error, no crash.
 * 7. Requests that are short, of unknown kind or not dumps are refused.
 */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/smc_diag.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define STATE_ACTIVE	1
#define STATE_INIT	2
#define STATE_LISTEN	10

FIXTURE(diag)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int fd[2];
};

FIXTURE_VARIANT(diag)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(diag, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(diag, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(diag, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(diag, af_smc6) { .ends = &smc_ends_af_smc6 };

FIXTURE_SETUP(diag)
{
	struct rlimit limit;

	self->fd[0] = -1;
	self->fd[1] = -1;
	self->listener = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	self->listener = smc_listen(variant->ends, 128, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
}

FIXTURE_TEARDOWN(diag)
{
	smc_close_pair(self->fd);
	close(self->listener);
}

static uint16_t port_of(int fd, bool peer)
{
	struct sockaddr_in6 addr;
	socklen_t len = sizeof(addr);

	if (peer)
		getpeername(fd, (struct sockaddr *)&addr, &len);
	else
		getsockname(fd, (struct sockaddr *)&addr, &len);
	return ntohs(addr.sin6_port);
}

TEST_F(diag, state_addresses_and_owner)
{
	const int offset = variant->ends->family == AF_INET6 ? 15 : 3;
	struct smc_info info;
	struct stat st;
	int fresh;

	fresh = smc_socket(&variant->ends->client, 0);
	ASSERT_LE(0, fresh);
	ASSERT_EQ(0, fstat(fresh, &st));
	ASSERT_EQ(0, smc_info(fresh, &info));
	EXPECT_EQ(STATE_INIT, info.state);
	EXPECT_EQ(st.st_ino, info.inode);
	EXPECT_EQ(st.st_uid, info.uid);
	close(fresh);

	ASSERT_EQ(0, smc_info(self->listener, &info));
	EXPECT_EQ(STATE_LISTEN, info.state);
	EXPECT_EQ(port_of(self->listener, false), info.source_port);

	ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr, self->len,
				   self->fd));
	for (int end = 0; end < 2; end++) {
		ASSERT_EQ(0, smc_info(self->fd[end], &info));
		EXPECT_EQ(STATE_ACTIVE, info.state);
		EXPECT_EQ(SMC_MODE_SMCD, info.mode);
		/* The family of the socket, which need not be that of its addresses. */
		EXPECT_EQ(end ? variant->ends->server.domain : variant->ends->client.domain,
			  info.family);
		EXPECT_EQ(port_of(self->fd[end], false), info.source_port);
		EXPECT_EQ(port_of(self->fd[end], true), info.dest_port);
		/* 127.0.0.1 and ::1 both end in 1. */
		EXPECT_EQ(1, info.source[offset]);
		EXPECT_EQ(1, info.dest[offset]);
		EXPECT_EQ(0, info.reason);
	}
	ASSERT_EQ(0, shutdown(self->fd[0], SHUT_WR));
	ASSERT_EQ(0, smc_info(self->fd[0], &info));
	EXPECT_EQ(SHUT_WR + 1, info.shutdown);
}

TEST_F(diag, rings_and_tokens)
{
	struct smc_info info[2];

	ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr, self->len,
				   self->fd));
	/* Rings may come with the first byte only. */
	ASSERT_EQ(0, smc_exchange(self->fd[0], self->fd[1], 1));
	ASSERT_EQ(1, send(self->fd[0], "x", 1, 0));
	ASSERT_EQ(1, send(self->fd[1], "x", 1, 0));
	for (int end = 0; end < 2; end++) {
		ASSERT_EQ(0, smc_info(self->fd[end], &info[end]));
		ASSERT_TRUE(info[end].has_conninfo);
		ASSERT_TRUE(info[end].has_dmbinfo);
		EXPECT_LT(0, info[end].rmbe_size);
		EXPECT_NE(0, info[end].dmb_token);
	}
	EXPECT_EQ(info[0].dmb_token, info[1].dmb_peer_token);
	EXPECT_EQ(info[1].dmb_token, info[0].dmb_peer_token);
	EXPECT_NE(info[0].dmb_token, info[1].dmb_token);
}

TEST_F(diag, reason_of_a_fallback)
{
	struct smc_ends from_plain = *variant->ends;
	struct smc_info info;

	from_plain.client = (struct smc_end) { variant->ends->family, 0, SMC_MODE_PLAIN };
	from_plain.server.mode = SMC_MODE_FALLBACK;
	ASSERT_EQ(0, smc_pair_from(&from_plain, self->listener, &self->addr, self->len,
				   self->fd));
	ASSERT_EQ(0, smc_info(self->fd[1], &info));
	EXPECT_EQ(SMC_MODE_FALLBACK, info.mode);
	EXPECT_NE(0, info.reason);
}

struct count {
	uint64_t *inode;
	int *seen;
	int sockets;
	int others;
};

static int count_inode(const struct smc_info *info, void *arg)
{
	struct count *count = arg;

	for (int i = 0; i < count->sockets; i++) {
		if (count->inode[i] == info->inode) {
			count->seen[i]++;
			return 0;
		}
	}
	count->others++;
	return 0;
}

TEST_F(diag, many_sockets_each_once)
{
	enum { SOCKETS = 1000 };
	uint64_t inode[SOCKETS];
	int seen[SOCKETS] = { 0 };
	struct count count = { .inode = inode, .seen = seen, .sockets = SOCKETS };
	int fd[SOCKETS];

	for (int i = 0; i < SOCKETS; i++) {
		struct stat st;

		fd[i] = smc_socket(&variant->ends->client, 0);
		ASSERT_LE(0, fd[i]);
		ASSERT_EQ(0, fstat(fd[i], &st));
		inode[i] = st.st_ino;
	}
	ASSERT_EQ(0, smc_diag_walk(count_inode, &count));
	for (int i = 0; i < SOCKETS; i++)
		EXPECT_EQ(1, seen[i]);
	for (int i = 0; i < SOCKETS; i++)
		close(fd[i]);
	count.others = 0;
	memset(seen, 0, sizeof(seen));
	ASSERT_EQ(0, smc_diag_walk(count_inode, &count));
	for (int i = 0; i < SOCKETS; i++)
		EXPECT_EQ(0, seen[i]);
}

static int count_all(const struct smc_info *info, void *arg)
{
	++*(int *)arg;
	return 0;
}

TEST_F(diag, only_this_namespace)
{
	int here = 0, there = 0;

	ASSERT_EQ(0, smc_diag_walk(count_all, &here));
	EXPECT_LE(1, here);
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, smc_diag_walk(count_all, &there));
	EXPECT_EQ(0, there);
}

struct work {
	const struct smc_ends *ends;
	const struct sockaddr_storage *addr;
	socklen_t len;
	int listener;
	bool stop;
	long dumps;
	int failures;
};

static void *make_sockets(void *arg)
{
	struct work *work = arg;

	while (!__atomic_load_n(&work->stop, __ATOMIC_ACQUIRE)) {
		int fd = smc_socket(&work->ends->client, 0);

		if (fd < 0)
			__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
		else
			close(fd);
	}
	return NULL;
}

static void *connect_and_close(void *arg)
{
	struct work *work = arg;

	while (!__atomic_load_n(&work->stop, __ATOMIC_ACQUIRE)) {
		int fd = smc_connect(work->ends, work->addr, work->len);

		if (fd < 0) {
			__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
			return NULL;
		}
		send(fd, "x", 1, MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

static void *accept_and_close(void *arg)
{
	struct work *work = arg;
	char byte;
	int fd;

	while ((fd = accept(work->listener, NULL, NULL)) >= 0) {
		recv(fd, &byte, 1, 0);
		close(fd);
	}
	return NULL;
}

static void *dump(void *arg)
{
	struct work *work = arg;

	while (!__atomic_load_n(&work->stop, __ATOMIC_ACQUIRE)) {
		int all = 0;

		if (smc_diag_walk(count_all, &all))
			__atomic_add_fetch(&work->failures, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&work->dumps, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F_TIMEOUT(diag, dumps_under_load, 900)
{
	static void *(*const jobs[])(void *) = {
		dump, dump, make_sockets, make_sockets, connect_and_close, connect_and_close,
		connect_and_close, connect_and_close,
	};
	struct work work = {
		.ends = variant->ends, .addr = &self->addr, .len = self->len,
		.listener = self->listener,
	};
	const struct timespec pause = { .tv_sec = smc_parameter("SMC_TEST_SECONDS", 5) / 2 + 1 };
	pthread_t thread[ARRAY_SIZE(jobs)], accepter[2];

	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, jobs[i], &work));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&accepter[i], NULL, accept_and_close, &work));
	nanosleep(&pause, NULL);
	__atomic_store_n(&work.stop, true, __ATOMIC_RELEASE);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
	ASSERT_EQ(0, shutdown(self->listener, SHUT_RDWR));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_join(accepter[i], NULL));
	EXPECT_EQ(0, work.failures);
	EXPECT_LT(0, work.dumps);
}

/* The error that the kernel answers to a request, 0 for a dump or nothing. */
static int request_error(size_t bytes, int flags)
{
	struct {
		struct nlmsghdr nlh;
		struct smc_diag_req req;
	} request = {
		.nlh.nlmsg_len = NLMSG_LENGTH(bytes),
		.nlh.nlmsg_type = SOCK_DIAG_BY_FAMILY,
		.nlh.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags,
		.req.diag_family = AF_SMC,
		.req.diag_ext = 0xff,
	};
	static char buf[65536];
	struct nlmsghdr *nlh = (struct nlmsghdr *)buf;
	int fd, ret = 0;

	fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
	send(fd, &request, NLMSG_LENGTH(bytes), 0);
	if (recv(fd, buf, sizeof(buf), 0) > 0 && nlh->nlmsg_type == NLMSG_ERROR)
		ret = ((struct nlmsgerr *)NLMSG_DATA(nlh))->error;
	close(fd);
	return ret;
}

TEST_F(diag, odd_requests)
{
	EXPECT_EQ(0, request_error(sizeof(struct smc_diag_req), NLM_F_DUMP));
	EXPECT_EQ(-EINVAL, request_error(1, NLM_F_DUMP));
	/* Longer than a family byte, shorter than the request: still no crash. */
	request_error(8, NLM_F_DUMP);
	request_error(sizeof(struct smc_diag_req), 0);
}

TEST_HARNESS_MAIN
