// SPDX-License-Identifier: GPL-2.0
/*
 * A thread that sleeps in a socket is woken by what wakes it on TCP, and gets
 * the result it gets there.
 *
 * 1. recv, send into a full connection, poll and epoll, each against data,
 *    space, shutdown and close of the peer, a reset, and shutdown of the own
 *    end by another thread.
 * 2. Two threads that read one socket share the data between them.
 * 3. A signal interrupts with EINTR, or restarts the call with SA_RESTART.
 * 4. SO_RCVTIMEO and SO_SNDTIMEO end a call with EAGAIN, not before.
 * 5. While one thread sleeps in recv, another's MSG_DONTWAIT returns at once.
 */

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#include "kselftest_harness.h"
#include "smc_test.h"

enum call {
	RECV,
	SEND,
	WAIT_IN,
	WAIT_OUT,
	EPOLL_ET,
	CALLS,
};

enum cause {
	DATA,
	SPACE,
	PEER_SHUT_WR,
	PEER_SHUT_RD,
	PEER_CLOSE,
	PEER_RESET,
	OWN_SHUT_RD,
	OWN_SHUT_WR,
	OWN_SHUT_RDWR,
	OWN_DISCONNECT,
	CAUSES,
};

static const char *const call_name[CALLS] = {
	"recv", "send", "poll_in", "poll_out", "epoll_et",
};

static const char *const cause_name[CAUSES] = {
	"data", "space", "peer_shut_wr", "peer_shut_rd", "peer_close", "peer_reset",
	"own_shut_rd", "own_shut_wr", "own_shut_rdwr",
	"own_disconnect",
};

struct combination {
	enum call call;
	enum cause cause;
};

FIXTURE(wake)
{
	int fd[2];
};

FIXTURE_VARIANT(wake)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(wake, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(wake, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(wake, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(wake, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(wake, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(wake)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(wake)
{
	smc_close_pair(self->fd);
}

struct sleeper {
	int fd;
	enum call call;
	pid_t tid;
	bool done;
	ssize_t result;
	int error;
	short revents;
	pthread_t thread;
};

static void *sleep_in_call(void *arg)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET };
	struct sleeper *sleeper = arg;
	struct pollfd pfd = { .fd = sleeper->fd };
	char buf[4096] = { 0 };
	int epoll;

	__atomic_store_n(&sleeper->tid, smc_thread_id(), __ATOMIC_RELEASE);
	switch (sleeper->call) {
	case RECV:
		sleeper->result = recv(sleeper->fd, buf, sizeof(buf), 0);
		break;
	case SEND:
		sleeper->result = send(sleeper->fd, buf, sizeof(buf), MSG_NOSIGNAL);
		break;
	case EPOLL_ET:
		epoll = epoll_create1(0);
		epoll_ctl(epoll, EPOLL_CTL_ADD, sleeper->fd, &event);
		sleeper->result = epoll_wait(epoll, &event, 1, SMC_TIMEOUT_MS);
		sleeper->revents = event.events;
		close(epoll);
		break;
	default:
		pfd.events = sleeper->call == WAIT_IN ? POLLIN | POLLRDHUP : POLLOUT;
		sleeper->result = poll(&pfd, 1, SMC_TIMEOUT_MS);
		sleeper->revents = pfd.revents;
	}
	sleeper->error = sleeper->result < 0 ? errno : 0;
	__atomic_store_n(&sleeper->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static int start_sleeper(struct sleeper *sleeper)
{
	int ret = pthread_create(&sleeper->thread, NULL, sleep_in_call, sleeper);

	if (ret)
		return -ret;
	while (!__atomic_load_n(&sleeper->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	return smc_wait_asleep(sleeper->tid);
}

/*
 * Fills what @fd can take. TCP's acknowledgements make room in the sender for
 * a while after the receiver has taken what it can, delayed ones included: full
 * is what stays full.
 */
static void fill_up(int fd)
{
	const struct timespec pause = { .tv_nsec = 300000000 };
	static char buf[65536];

	do {
		while (send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			;
		while (send(fd, buf, 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			;
		nanosleep(&pause, NULL);
	} while (send(fd, buf, 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0);
}

static void drain(int fd)
{
	static char buf[65536];

	do {
		while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
	} while (smc_poll(fd, POLLIN, 20) == POLLIN);
}

static void do_cause(int fd[2], enum cause cause)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };

	switch (cause) {
	case DATA:
		send(fd[1], "0123456789", 10, MSG_NOSIGNAL);
		break;
	case SPACE:
		drain(fd[1]);
		break;
	case PEER_SHUT_WR:
		shutdown(fd[1], SHUT_WR);
		break;
	case PEER_SHUT_RD:
		shutdown(fd[1], SHUT_RD);
		break;
	case PEER_RESET:
		smc_set_linger(fd[1], 0);
		/* fallthrough */
	case PEER_CLOSE:
		close(fd[1]);
		fd[1] = -1;
		break;
	case OWN_DISCONNECT:
		connect(fd[0], &unspec, sizeof(unspec));
		break;
	default:
		shutdown(fd[0], SHUT_RD + cause - OWN_SHUT_RD);
	}
}

/* Does the sleeper wake, and with what? Not waking is a result as well. */
static void combine(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	const struct combination *combination = arg;
	struct sleeper sleeper = { .call = combination->call };
	int fd[2];

	if (smc_pair(ends, fd)) {
		smc_note(notes, "no pair");
		return;
	}
	sleeper.fd = fd[0];
	if (combination->call == SEND || combination->call == WAIT_OUT)
		fill_up(fd[0]);
	if (start_sleeper(&sleeper)) {
		smc_note(notes, "never asleep");
	} else {
		do_cause(fd, combination->cause);
		for (int i = 0; i < 200 && !__atomic_load_n(&sleeper.done, __ATOMIC_ACQUIRE); i++)
			nanosleep(&pause, NULL);
	}
	if (__atomic_load_n(&sleeper.done, __ATOMIC_ACQUIRE))
		smc_note(notes, " %zd %s %#x", sleeper.result, strerrorname_np(sleeper.error),
			 sleeper.revents);
	else
		smc_note(notes, " sleeps on");
	/* Whatever it is waiting for, this ends it. */
	shutdown(fd[0], SHUT_RDWR);
	if (fd[1] >= 0) {
		smc_set_linger(fd[1], 0);
		close(fd[1]);
		fd[1] = -1;
	}
	pthread_join(sleeper.thread, NULL);
	smc_close_pair(fd);
}

TEST_F_TIMEOUT(wake, every_call_by_every_cause_as_on_tcp, 900)
{
	for (enum call call = 0; call < CALLS; call++) {
		for (enum cause cause = 0; cause < CAUSES; cause++) {
			struct combination combination = { call, cause };

			if (cause == SPACE && call != SEND && call != WAIT_OUT)
				continue;
			EXPECT_TRUE(smc_same_as_tcp(variant->ends, combine, &combination))
				TH_LOG("%s, %s", call_name[call], cause_name[cause]);
		}
	}
}

TEST_F(wake, two_readers_share_a_stream)
{
	struct sleeper sleeper[2] = {
		{ .fd = self->fd[1], .call = RECV }, { .fd = self->fd[1], .call = RECV },
	};

	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, start_sleeper(&sleeper[i]));
	ASSERT_EQ(3, send(self->fd[0], "abc", 3, 0));
	while (!__atomic_load_n(&sleeper[0].done, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&sleeper[1].done, __ATOMIC_ACQUIRE))
		sched_yield();
	ASSERT_EQ(3, send(self->fd[0], "def", 3, 0));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, pthread_join(sleeper[i].thread, NULL));
		EXPECT_EQ(3, sleeper[i].result);
	}
}

TEST_F(wake, a_sleeping_reader_does_not_hold_up_others)
{
	struct sleeper sleeper = { .fd = self->fd[0], .call = RECV };
	char byte;

	ASSERT_EQ(0, start_sleeper(&sleeper));
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(-1, recv(self->fd[0], &byte, 1, MSG_DONTWAIT));
		ASSERT_EQ(EAGAIN, errno);
	}
	/* The other direction is free as well. */
	ASSERT_EQ(0, smc_send_all(self->fd[0], 4, 0, 10000, 1000));
	ASSERT_EQ(0, smc_recv_all(self->fd[1], 4, 0, 10000, 1000));
	ASSERT_EQ(0, shutdown(self->fd[1], SHUT_WR));
	ASSERT_EQ(0, pthread_join(sleeper.thread, NULL));
	EXPECT_EQ(0, sleeper.result);
}

static void on_signal(int signal)
{
}

static int interrupt(struct sleeper *sleeper, int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };

	if (sigaction(SIGUSR1, &action, NULL) || start_sleeper(sleeper))
		return -1;
	return pthread_kill(sleeper->thread, SIGUSR1);
}

TEST_F(wake, a_signal_interrupts)
{
	static const enum call calls[] = { RECV, SEND };

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct sleeper sleeper = { .fd = self->fd[0], .call = calls[i] };

		if (calls[i] == SEND)
			fill_up(self->fd[0]);
		ASSERT_EQ(0, interrupt(&sleeper, 0));
		ASSERT_EQ(0, pthread_join(sleeper.thread, NULL));
		EXPECT_EQ(-1, sleeper.result);
		EXPECT_EQ(EINTR, sleeper.error);
	}
}

TEST_F(wake, a_signal_with_restart_does_not_show)
{
	struct sleeper sleeper = { .fd = self->fd[0], .call = RECV };

	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, i ? pthread_kill(sleeper.thread, SIGUSR1) :
				 interrupt(&sleeper, SA_RESTART));
		ASSERT_EQ(0, smc_wait_asleep(sleeper.tid));
	}
	ASSERT_EQ(5, send(self->fd[1], "hello", 5, 0));
	ASSERT_EQ(0, pthread_join(sleeper.thread, NULL));
	EXPECT_EQ(5, sleeper.result);
}

/* A time limit makes a call that cannot restart: EINTR in spite of SA_RESTART. */
TEST_F(wake, a_signal_ends_a_call_with_a_time_limit)
{
	const struct timeval patience = { .tv_sec = 60 };
	struct sleeper sleeper = { .fd = self->fd[0], .call = RECV };

	ASSERT_EQ(0, setsockopt(self->fd[0], SOL_SOCKET, SO_RCVTIMEO, &patience,
				sizeof(patience)));
	ASSERT_EQ(0, interrupt(&sleeper, SA_RESTART));
	ASSERT_EQ(0, pthread_join(sleeper.thread, NULL));
	EXPECT_EQ(-1, sleeper.result);
	EXPECT_EQ(EINTR, sleeper.error);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

TEST_F(wake, time_limits)
{
	const struct timeval limit = { .tv_usec = 60000 };
	int64_t start;
	char byte;

	ASSERT_EQ(0, setsockopt(self->fd[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	ASSERT_EQ(0, setsockopt(self->fd[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)));
	start = now_ms();
	ASSERT_EQ(-1, recv(self->fd[0], &byte, 1, 0));
	EXPECT_EQ(EAGAIN, errno);
	/* Not before its time, apart from a tick; later is the machine's load. */
	EXPECT_LE(50, now_ms() - start);
	fill_up(self->fd[0]);
	start = now_ms();
	ASSERT_EQ(-1, send(self->fd[0], &byte, 1, MSG_NOSIGNAL));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_LE(50, now_ms() - start);
	/* What was sent before counts: no error, a short count. */
	drain(self->fd[1]);
	EXPECT_EQ(1, send(self->fd[0], &byte, 1, MSG_NOSIGNAL));
}

TEST_HARNESS_MAIN
