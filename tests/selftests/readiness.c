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
 * 7. EPOLLONESHOT, EPOLLEXCLUSIVE, edges of every step from a fresh socket to
 *    the end, through dup() and fork(): as TCP, so no wake-up without need.
 */

#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/wait.h>

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

/* The events of @epoll by mask, until there are none; the data says whose they are. */
static void note_events(struct smc_notes *notes, const char *when, int epoll, const int fd[2])
{
	struct epoll_event event;
	uint32_t got[3] = { 0 };

	smc_settle(fd);
	/* Level-triggered ones would come for ever. */
	for (int i = 0; i < 4 && epoll_wait(epoll, &event, 1, 0) == 1; i++)
		got[event.data.u32] |= event.events;
	smc_note(notes, " %s:", when);
	for (int i = 0; i < 3; i++)
		if (got[i])
			smc_note(notes, "+%d/%x", i, got[i]);
}

static int watch_as(int epoll, int op, int fd, uint32_t events, uint32_t whose)
{
	struct epoll_event event = { .events = events, .data.u32 = whose };

	return epoll_ctl(epoll, op, fd, &event);
}

static void one_shot(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const uint32_t *trigger = arg;
	const uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT | *trigger;
	int epoll = epoll_create1(0), fd[2];
	char buf[64];

	if (smc_pair(ends, fd))
		return;
	watch_as(epoll, EPOLL_CTL_ADD, fd[1], events, 1);
	note_events(notes, "begin", epoll, fd);
	send(fd[0], "a", 1, 0);
	note_events(notes, "shot", epoll, fd);
	send(fd[0], "b", 1, 0);
	note_events(notes, "disarmed", epoll, fd);
	watch_as(epoll, EPOLL_CTL_MOD, fd[1], events, 1);
	note_events(notes, "armed", epoll, fd);
	recv(fd[1], buf, sizeof(buf), 0);
	watch_as(epoll, EPOLL_CTL_MOD, fd[1], events, 1);
	note_events(notes, "empty", epoll, fd);
	send(fd[0], "!", 1, MSG_OOB);
	note_events(notes, "urgent", epoll, fd);
	recv(fd[1], buf, sizeof(buf), MSG_OOB);
	watch_as(epoll, EPOLL_CTL_MOD, fd[1], EPOLLOUT | EPOLLONESHOT | *trigger, 1);
	note_events(notes, "out", epoll, fd);
	shutdown(fd[0], SHUT_WR);
	note_events(notes, "end-disarmed", epoll, fd);
	watch_as(epoll, EPOLL_CTL_MOD, fd[1], events, 1);
	note_events(notes, "end", epoll, fd);
	smc_set_linger(fd[0], 0);
	close(fd[0]);
	fd[0] = -1;
	note_events(notes, "reset-disarmed", epoll, fd);
	watch_as(epoll, EPOLL_CTL_MOD, fd[1], EPOLLONESHOT | *trigger, 1);
	note_events(notes, "reset", epoll, fd);
	smc_close_pair(fd);
	close(epoll);
}

TEST_F(readiness, one_shots_as_on_tcp)
{
	static const uint32_t trigger[] = { 0, EPOLLET };

	EXPECT_TRUE(smc_same_as_tcp(variant->ends, one_shot, &trigger[0]));
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, one_shot, &trigger[1]));
}

/* Watches everything from the birth of the sockets to their end. */
static void edges(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const uint32_t all = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;
	int epoll = epoll_create1(0), fd[2] = { -1, -1 }, listener, copy, status, one = 1;
	static char buf[1 << 16];
	struct sockaddr_storage addr;
	socklen_t len;
	pid_t child;

	listener = smc_listen(ends, 4, &addr, &len);
	if (listener < 0)
		return;
	watch_as(epoll, EPOLL_CTL_ADD, listener, all, 2);
	fd[0] = smc_socket(&ends->client, SOCK_NONBLOCK);
	watch_as(epoll, EPOLL_CTL_ADD, fd[0], all, 0);
	note_events(notes, "fresh", epoll, fd);
	note_events(notes, "still", epoll, fd);
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
	smc_poll(fd[0], POLLIN, 20);
	note_events(notes, "connected", epoll, fd);
	note_events(notes, "still", epoll, fd);
	fd[1] = smc_accept(listener);
	watch_as(epoll, EPOLL_CTL_ADD, fd[1], all, 1);
	note_events(notes, "accepted", epoll, fd);
	smc_note(notes, " modes=%d", smc_check_modes(ends, fd));
	setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	note_events(notes, "still", epoll, fd);

	for (int i = 0; i < 3; i++) {
		send(fd[0], "data", 4, 0);
		note_events(notes, "data", epoll, fd);
	}
	recv(fd[1], buf, 2, 0);
	note_events(notes, "part", epoll, fd);
	recv(fd[1], buf, 100, 0);
	note_events(notes, "all", epoll, fd);
	smc_note_result(notes, "recv", recv(fd[1], buf, 100, MSG_DONTWAIT));
	note_events(notes, "nothing", epoll, fd);
	recv(fd[1], buf, 100, MSG_DONTWAIT | MSG_PEEK);
	smc_note_result(notes, "send", send(fd[1], "", 0, 0));
	note_events(notes, "no bytes", epoll, fd);
	send(fd[1], "!", 1, MSG_OOB);
	note_events(notes, "urgent", epoll, fd);

	/* The registration is the file's, whoever holds it. */
	copy = dup(fd[1]);
	close(fd[1]);
	fd[1] = copy;
	send(fd[0], "dup", 3, 0);
	note_events(notes, "dup", epoll, fd);
	child = fork();
	if (!child)
		_exit(send(fd[0], "child", 5, 0) != 5);
	waitpid(child, &status, 0);
	smc_note(notes, " child=%d", status);
	note_events(notes, "child", epoll, fd);
	recv(fd[1], buf, 100, 0);

	shutdown(fd[0], SHUT_WR);
	note_events(notes, "end", epoll, fd);
	shutdown(fd[1], SHUT_WR);
	note_events(notes, "both", epoll, fd);
	note_events(notes, "still", epoll, fd);
	close(fd[0]);
	fd[0] = -1;
	note_events(notes, "closed", epoll, fd);
	smc_close_pair(fd);

	/* Nobody listens. */
	close(listener);
	fd[0] = smc_socket(&ends->client, SOCK_NONBLOCK);
	watch_as(epoll, EPOLL_CTL_ADD, fd[0], all, 0);
	note_events(notes, "fresh", epoll, fd);
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
	note_events(notes, "refused", epoll, fd);
	note_events(notes, "still", epoll, fd);
	smc_close_pair(fd);
	close(epoll);
}

TEST_F(readiness, edges_from_the_beginning_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, edges, NULL));
}

/* A thread that counts how often its own set wakes it. */
struct counter {
	int epoll;
	int wakeups;
	bool stop;
	pid_t tid;
	pthread_t thread;
};

static void *count_wakeups(void *arg)
{
	struct counter *counter = arg;
	struct epoll_event event;

	__atomic_store_n(&counter->tid, smc_thread_id(), __ATOMIC_RELEASE);
	while (epoll_wait(counter->epoll, &event, 1, SMC_TIMEOUT_MS) == 1 &&
	       !__atomic_load_n(&counter->stop, __ATOMIC_ACQUIRE))
		__atomic_add_fetch(&counter->wakeups, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static int start_counter(struct counter *counter, int fd, uint32_t events)
{
	counter->epoll = epoll_create1(0);
	if (watch_as(counter->epoll, EPOLL_CTL_ADD, fd, events, 0))
		return -errno;
	if (pthread_create(&counter->thread, NULL, count_wakeups, counter))
		return -EAGAIN;
	while (!__atomic_load_n(&counter->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	return smc_wait_asleep(counter->tid);
}

/* Lets everybody who was woken do what he was woken for. */
static int settled_wakeups(struct counter counter[2], const int fd[2])
{
	smc_settle(fd);
	for (int i = 0; i < 2; i++)
		smc_wait_asleep(counter[i].tid);
	return __atomic_load_n(&counter[0].wakeups, __ATOMIC_SEQ_CST) +
	       __atomic_load_n(&counter[1].wakeups, __ATOMIC_SEQ_CST);
}

/* Two sets, of which each message wakes one; the end wakes both. */
static void exclusive(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const uint32_t *trigger = arg;
	struct counter counter[2] = { 0 };
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	for (int i = 0; i < 2; i++)
		if (start_counter(&counter[i], fd[1], EPOLLIN | EPOLLEXCLUSIVE | *trigger))
			return;
	for (int i = 0; i < 10; i++) {
		int before = settled_wakeups(counter, fd), after;

		send(fd[0], "x", 1, 0);
		smc_poll(fd[1], POLLIN, SMC_TIMEOUT_MS);
		do {
			after = settled_wakeups(counter, fd);
		} while (after == before);
		smc_note(notes, " woken=%d", after - before);
	}
	for (int i = 0; i < 2; i++)
		__atomic_store_n(&counter[i].stop, true, __ATOMIC_RELEASE);
	shutdown(fd[0], SHUT_WR);
	for (int i = 0; i < 2; i++) {
		smc_note(notes, " joined=%d", pthread_join(counter[i].thread, NULL));
		close(counter[i].epoll);
	}
	smc_close_pair(fd);
}

TEST_F(readiness, exclusive_sets_as_on_tcp)
{
	static const uint32_t trigger = EPOLLET;

	EXPECT_TRUE(smc_same_as_tcp(variant->ends, exclusive, &trigger));
}

/* A stream in one direction wakes its reader once a message, its sender never. */
TEST_F(readiness, wakes_nobody_without_need)
{
	struct counter counter[2] = { 0 };
	int before;

	ASSERT_EQ(0, start_counter(&counter[0], self->fd[0], EPOLLIN | EPOLLOUT | EPOLLET));
	ASSERT_EQ(0, start_counter(&counter[1], self->fd[1], EPOLLIN | EPOLLET));
	before = settled_wakeups(counter, self->fd);
	for (int i = 0; i < 100; i++) {
		char byte;

		ASSERT_EQ(1, send(self->fd[0], "x", 1, 0));
		smc_poll(self->fd[1], POLLIN, SMC_TIMEOUT_MS);
		settled_wakeups(counter, self->fd);
		ASSERT_EQ(1, recv(self->fd[1], &byte, 1, 0));
		settled_wakeups(counter, self->fd);
	}
	EXPECT_LE(settled_wakeups(counter, self->fd) - before, 100);
	for (int i = 0; i < 2; i++)
		__atomic_store_n(&counter[i].stop, true, __ATOMIC_RELEASE);
	shutdown(self->fd[0], SHUT_RDWR);
	shutdown(self->fd[1], SHUT_RDWR);
	for (int i = 0; i < 2; i++) {
		pthread_join(counter[i].thread, NULL);
		close(counter[i].epoll);
	}
}

TEST_HARNESS_MAIN
