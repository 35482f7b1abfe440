// SPDX-License-Identifier: GPL-2.0
/*
 * poll, select and epoll say what the next call would do, and lose no event.
 *
 * 1. A ping-pong driven by epoll alone, level, edge and one-shot, makes every
 *    round; the watcher is one thread, the peer another.
 * 2. An edge-triggered reader that reads all it can each time gets every byte
 *    of a long stream; so does a writer that waits for POLLOUT edges.
 * 3. After EAGAIN on send, POLLOUT comes when the peer has read, and then a
 *    send is possible; a reader that takes a single byte does not set it off.
 * 4. A new message is a new edge although older data lies unread.
 * 5. poll masks of a fresh socket, a connection and a full connection: as TCP.
 * 6. Two epoll sets see the same event; one in an epoll set in another does.
 */

#include <errno.h>
#include <sys/epoll.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(readiness)
{
	int fd[2];
	int epoll;
};

FIXTURE_VARIANT(readiness)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(readiness, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(readiness, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(readiness, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(readiness, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(readiness, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(readiness)
{
	self->fd[0] = -1;
	self->fd[1] = -1;
	self->epoll = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
	self->epoll = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_LE(0, self->epoll);
}

FIXTURE_TEARDOWN(readiness)
{
	smc_close_pair(self->fd);
	close(self->epoll);
}

static int watch(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* The events of one wait, 0 at the time limit. */
static uint32_t wait_event(int epoll, int timeout_ms)
{
	struct epoll_event event = { 0 };

	return epoll_wait(epoll, &event, 1, timeout_ms) == 1 ? event.events : 0;
}

#define ROUNDS	2000

static void *echo_single_bytes(void *arg)
{
	int fd = *(int *)arg;
	char byte;

	while (recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, MSG_NOSIGNAL) == 1)
		;
	return NULL;
}

static int ping_pong(int epoll, int fd[2], uint32_t trigger)
{
	pthread_t thread;
	int ret = 0;

	if (pthread_create(&thread, NULL, echo_single_bytes, &fd[1]))
		return -EAGAIN;
	ret = watch(epoll, fd[0], EPOLLIN | trigger);
	for (int i = 0; i < ROUNDS && !ret; i++) {
		struct epoll_event event = { .events = EPOLLIN | trigger };
		char sent = i, got;

		if (send(fd[0], &sent, 1, MSG_NOSIGNAL) != 1)
			ret = -errno;
		else if (!(wait_event(epoll, SMC_TIMEOUT_MS) & EPOLLIN))
			ret = -ETIMEDOUT;
		else if (recv(fd[0], &got, 1, MSG_DONTWAIT) != 1 || got != sent)
			ret = -EILSEQ;
		else if (trigger & EPOLLONESHOT)
			ret = epoll_ctl(epoll, EPOLL_CTL_MOD, fd[0], &event) ? -errno : 0;
	}
	shutdown(fd[0], SHUT_RDWR);
	pthread_join(thread, NULL);
	return ret;
}

TEST_F(readiness, ping_pong_level)
{
	EXPECT_EQ(0, ping_pong(self->epoll, self->fd, 0));
}

TEST_F(readiness, ping_pong_edge)
{
	EXPECT_EQ(0, ping_pong(self->epoll, self->fd, EPOLLET));
}

TEST_F(readiness, ping_pong_one_shot)
{
	EXPECT_EQ(0, ping_pong(self->epoll, self->fd, EPOLLONESHOT));
	smc_close_pair(self->fd);
	close(self->epoll);
	self->epoll = epoll_create1(0);
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
	EXPECT_EQ(0, ping_pong(self->epoll, self->fd, EPOLLONESHOT | EPOLLET));
}

/* Sends a stream with edges of POLLOUT alone. */
struct edge_writer {
	int fd;
	uint64_t bytes;
	int result;
};

static void *write_by_edges(void *arg)
{
	struct edge_writer *writer = arg;
	int epoll = epoll_create1(0);
	static char buf[50000];
	uint64_t pos = 0;

	writer->result = watch(epoll, writer->fd, EPOLLOUT | EPOLLET);
	while (!writer->result && pos < writer->bytes) {
		size_t len = writer->bytes - pos < sizeof(buf) ? writer->bytes - pos : sizeof(buf);
		ssize_t ret;

		smc_fill(buf, len, 41, pos);
		ret = send(writer->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret > 0)
			pos += ret;
		/* A short count means full as much as EAGAIN does. */
		if (ret < 0 && errno != EAGAIN)
			writer->result = -errno;
		else if (ret < (ssize_t)len && !(wait_event(epoll, SMC_TIMEOUT_MS) & EPOLLOUT))
			writer->result = -ETIMEDOUT;
	}
	close(epoll);
	return NULL;
}

TEST_F(readiness, edges_lose_no_byte)
{
	struct edge_writer writer = { .fd = self->fd[0], .bytes = 32 * 1024 * 1024 };
	static char buf[30000];
	uint64_t pos = 0;
	pthread_t thread;

	ASSERT_EQ(0, watch(self->epoll, self->fd[1], EPOLLIN | EPOLLET));
	ASSERT_EQ(0, pthread_create(&thread, NULL, write_by_edges, &writer));
	while (pos < writer.bytes) {
		ssize_t ret = recv(self->fd[1], buf, sizeof(buf), MSG_DONTWAIT);

		if (ret > 0) {
			ASSERT_EQ(-1, smc_find_wrong(buf, ret, 41, pos));
			pos += ret;
			continue;
		}
		ASSERT_EQ(-1, ret);
		ASSERT_EQ(EAGAIN, errno);
		ASSERT_TRUE(wait_event(self->epoll, SMC_TIMEOUT_MS) & EPOLLIN)
			TH_LOG("no edge at byte %llu", (unsigned long long)pos);
	}
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, writer.result);
}

TEST_F(readiness, space_after_eagain)
{
	static char buf[65536];
	uint64_t filled = 0, drained = 0;
	ssize_t ret;

	ASSERT_EQ(0, watch(self->epoll, self->fd[0], EPOLLOUT | EPOLLET));
	EXPECT_EQ(EPOLLOUT, wait_event(self->epoll, 0));
	for (int round = 0; round < 5; round++) {
		while ((ret = send(self->fd[0], buf, sizeof(buf), MSG_DONTWAIT)) > 0)
			filled += ret;
		while ((ret = send(self->fd[0], buf, 1, MSG_DONTWAIT)) > 0)
			filled += ret;
		ASSERT_EQ(EAGAIN, errno);
		/* Edges of the filling itself are gone. */
		while (wait_event(self->epoll, 0))
			;
		EXPECT_EQ(0, smc_poll(self->fd[0], POLLOUT, 0));
		/* Read until there is space, which must be before all is read. */
		while (!smc_poll(self->fd[0], POLLOUT, 0) && drained < filled) {
			ret = recv(self->fd[1], buf, sizeof(buf), 0);
			ASSERT_LT(0, ret);
			drained += ret;
			if (drained == filled)
				ASSERT_EQ(POLLOUT, smc_poll(self->fd[0], POLLOUT,
							    SMC_TIMEOUT_MS));
		}
		EXPECT_EQ(EPOLLOUT, wait_event(self->epoll, SMC_TIMEOUT_MS));
		ret = send(self->fd[0], buf, 1, MSG_DONTWAIT);
		EXPECT_EQ(1, ret);
		filled += ret;
	}
	EXPECT_LT(0, filled);
}

TEST_F(readiness, each_message_is_an_edge)
{
	ASSERT_EQ(0, watch(self->epoll, self->fd[1], EPOLLIN | EPOLLET));
	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(1, send(self->fd[0], "x", 1, 0));
		EXPECT_EQ(EPOLLIN, wait_event(self->epoll, SMC_TIMEOUT_MS));
		EXPECT_EQ(0, wait_event(self->epoll, 0));
	}
}

static void masks(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static char buf[65536];
	int fresh, fd[2];

	fresh = smc_socket(&ends->client, 0);
	smc_note_poll(notes, fresh);
	if (smc_pair(ends, fd))
		return;
	smc_note_poll(notes, fd[0]);
	smc_note_poll(notes, fd[1]);
	send(fd[0], "x", 1, 0);
	smc_settle(fd);
	smc_note_poll(notes, fd[1]);
	while (send(fd[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	while (send(fd[1], buf, 1, MSG_DONTWAIT) > 0)
		;
	smc_note_poll(notes, fd[1]);
	smc_note_poll(notes, fd[0]);
	smc_close_pair(fd);
	close(fresh);
}

TEST_F(readiness, masks_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, masks, NULL));
}

TEST_F(readiness, two_sets_and_a_nested_one)
{
	int other = epoll_create1(0), outer = epoll_create1(0);

	ASSERT_EQ(0, watch(self->epoll, self->fd[1], EPOLLIN));
	ASSERT_EQ(0, watch(other, self->fd[1], EPOLLIN | EPOLLET));
	ASSERT_EQ(0, watch(outer, self->epoll, EPOLLIN));
	EXPECT_EQ(0, wait_event(outer, 0));
	ASSERT_EQ(1, send(self->fd[0], "x", 1, 0));
	EXPECT_EQ(EPOLLIN, wait_event(outer, SMC_TIMEOUT_MS));
	EXPECT_EQ(EPOLLIN, wait_event(self->epoll, SMC_TIMEOUT_MS));
	EXPECT_EQ(EPOLLIN, wait_event(other, SMC_TIMEOUT_MS));
	close(other);
	close(outer);
}

TEST_HARNESS_MAIN
