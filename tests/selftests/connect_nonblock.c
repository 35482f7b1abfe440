// SPDX-License-Identifier: GPL-2.0
/*
 * A non-blocking connect, watched by an epoll entry that was there before.
 *
 * 1. epoll (level and edge), poll and select that were armed before connect()
 *    see POLLOUT when it is done, and data afterwards, also when the connection
 *    fell back to TCP (wrk showed 0 requests).
 * 2. EINPROGRESS first; EALREADY or success while and after; then EISCONN.
 * 3. SO_ERROR is 0 after success; the socket works and is what it must be.
 * 4. TCP_FASTOPEN right after such a connect does not disturb it.
 * 5. A thread blocked in poll() before the connect is woken by it.
 */

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(connect_nonblock)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int epoll;
	int fd[2];
};

FIXTURE_VARIANT(connect_nonblock)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(connect_nonblock, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(connect_nonblock, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(connect_nonblock, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(connect_nonblock, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(connect_nonblock, tcp6) { .ends = &smc_ends_tcp6 };
FIXTURE_VARIANT_ADD(connect_nonblock, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(connect_nonblock, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(connect_nonblock, af_smc6) { .ends = &smc_ends_af_smc6 };
FIXTURE_VARIANT_ADD(connect_nonblock, mixed) { .ends = &smc_ends_mixed };

FIXTURE_SETUP(connect_nonblock)
{
	self->fd[0] = -1;
	self->fd[1] = -1;
	self->listener = -1;
	self->epoll = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	self->listener = smc_listen(variant->ends, 16, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
	self->epoll = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_LE(0, self->epoll);
	self->fd[0] = smc_socket(&variant->ends->client, SOCK_NONBLOCK);
	ASSERT_LE(0, self->fd[0]);
}

FIXTURE_TEARDOWN(connect_nonblock)
{
	smc_close_pair(self->fd);
	close(self->epoll);
	close(self->listener);
}

/* 0, or the errno of connect(). */
static int try_connect(int fd, const struct sockaddr_storage *addr, socklen_t len)
{
	return connect(fd, (const struct sockaddr *)addr, len) ? errno : 0;
}

/* Waits until @epoll has reported all of @events, and fails on errors. */
static int wait_for(int epoll, uint32_t events)
{
	uint32_t seen = 0;

	while ((seen & events) != events) {
		struct epoll_event event;

		if (epoll_wait(epoll, &event, 1, SMC_TIMEOUT_MS) != 1)
			return -ETIMEDOUT;
		seen |= event.events;
		/* A fresh TCP socket reports HUP; ERR is never right here. */
		if (event.events & EPOLLERR)
			return -EIO;
	}
	return 0;
}

static int armed_before(int epoll, int fd[2], uint32_t trigger, int listener,
			const struct sockaddr_storage *addr, socklen_t len)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | trigger,
	};
	int ret;

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd[0], &event))
		return -errno;
	ret = try_connect(fd[0], addr, len);
	if (ret && ret != EINPROGRESS)
		return -ret;
	ret = smc_poll(fd[0], POLLOUT, SMC_TIMEOUT_MS) & POLLOUT ? 0 : -ETIMEDOUT;
	if (!ret)
		ret = wait_for(epoll, EPOLLOUT);
	if (ret)
		return ret;
	fd[1] = smc_accept(listener);
	if (fd[1] < 0)
		return fd[1];
	for (int i = 0; i < 3 && !ret; i++) {
		ret = smc_send_all(fd[1], 9, i * 100, 100, 100);
		if (!ret)
			ret = wait_for(epoll, EPOLLIN);
		if (!ret)
			ret = smc_recv_all(fd[0], 9, i * 100, 100, 100);
	}
	return ret;
}

TEST_F(connect_nonblock, level_triggered_epoll_armed_before)
{
	ASSERT_EQ(0, armed_before(self->epoll, self->fd, 0, self->listener, &self->addr,
				  self->len));
	EXPECT_EQ(0, smc_error(self->fd[0]));
	EXPECT_EQ(0, smc_check_modes(variant->ends, self->fd));
}

TEST_F(connect_nonblock, edge_triggered_epoll_armed_before)
{
	ASSERT_EQ(0, armed_before(self->epoll, self->fd, EPOLLET, self->listener, &self->addr,
				  self->len));
	EXPECT_EQ(0, smc_error(self->fd[0]));
	EXPECT_EQ(0, smc_check_modes(variant->ends, self->fd));
}

TEST_F(connect_nonblock, results_of_repeated_connects)
{
	int ret = try_connect(self->fd[0], &self->addr, self->len);

	ASSERT_EQ(EINPROGRESS, ret);
	/* As on TCP: EALREADY while it runs, success once, then EISCONN. */
	do {
		ret = try_connect(self->fd[0], &self->addr, self->len);
	} while (ret == EALREADY);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(EISCONN, try_connect(self->fd[0], &self->addr, self->len));
	EXPECT_EQ(0, smc_error(self->fd[0]));
	self->fd[1] = smc_accept(self->listener);
	ASSERT_LE(0, self->fd[1]);
	EXPECT_EQ(0, smc_check_modes(variant->ends, self->fd));
	EXPECT_EQ(0, smc_set_nonblock(self->fd[0], false));
	EXPECT_EQ(0, smc_exchange(self->fd[0], self->fd[1], 3));
}

TEST_F(connect_nonblock, fast_open_option_meanwhile)
{
	int on = 1;

	for (int i = 0; i < 100; i++) {
		if (self->fd[0] < 0)
			self->fd[0] = smc_socket(&variant->ends->client, SOCK_NONBLOCK);
		ASSERT_LE(0, self->fd[0]);
		ASSERT_EQ(EINPROGRESS, try_connect(self->fd[0], &self->addr, self->len));
		/* Refused as on a TCP socket that is not closed or listening. */
		EXPECT_EQ(-1, setsockopt(self->fd[0], SOL_TCP, TCP_FASTOPEN, &on, sizeof(on)));
		EXPECT_EQ(EINVAL, errno);
		ASSERT_EQ(POLLOUT, smc_poll(self->fd[0], POLLOUT, SMC_TIMEOUT_MS));
		self->fd[1] = smc_accept(self->listener);
		ASSERT_LE(0, self->fd[1]);
		ASSERT_EQ(0, smc_check_modes(variant->ends, self->fd));
		smc_close_pair(self->fd);
	}
}

struct waiter {
	int fd;
	pid_t tid;
	bool use_select;
	int result;
};

static void *wait_for_input(void *arg)
{
	struct waiter *waiter = arg;

	__atomic_store_n(&waiter->tid, smc_thread_id(), __ATOMIC_RELEASE);
	if (waiter->use_select) {
		struct timeval patience = { .tv_sec = SMC_TIMEOUT_MS / 1000 };
		fd_set set;

		FD_ZERO(&set);
		FD_SET(waiter->fd, &set);
		waiter->result = select(waiter->fd + 1, &set, NULL, NULL, &patience);
	} else {
		/* POLLIN alone: HUP of the fresh socket would end it at once. */
		struct pollfd pfd = { .fd = waiter->fd, .events = POLLIN };

		while (poll(&pfd, 1, SMC_TIMEOUT_MS) == 1 && !(pfd.revents & POLLIN))
			;
		waiter->result = !!(pfd.revents & POLLIN);
	}
	return NULL;
}

TEST_F(connect_nonblock, a_sleeper_from_before_sees_data)
{
	for (int i = 0; i < 2; i++) {
		struct waiter waiter = { .use_select = i };
		pthread_t thread;

		if (self->fd[0] < 0)
			self->fd[0] = smc_socket(&variant->ends->client, SOCK_NONBLOCK);
		ASSERT_LE(0, self->fd[0]);
		waiter.fd = self->fd[0];
		ASSERT_EQ(EINPROGRESS, try_connect(self->fd[0], &self->addr, self->len));
		ASSERT_EQ(0, pthread_create(&thread, NULL, wait_for_input, &waiter));
		while (!__atomic_load_n(&waiter.tid, __ATOMIC_ACQUIRE))
			sched_yield();
		ASSERT_EQ(0, smc_wait_asleep(waiter.tid));
		self->fd[1] = smc_accept(self->listener);
		ASSERT_LE(0, self->fd[1]);
		ASSERT_EQ(1, send(self->fd[1], "x", 1, 0));
		ASSERT_EQ(0, pthread_join(thread, NULL));
		EXPECT_EQ(1, waiter.result);
		smc_close_pair(self->fd);
	}
}

TEST_HARNESS_MAIN
