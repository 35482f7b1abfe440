// SPDX-License-Identifier: GPL-2.0
/*
 * Signal-driven sockets: O_ASYNC sends the signals that TCP sends, with the
 * same code, band and descriptor.
 *
 * 1. connect: accomplished, refused; a listener: each client.
 * 2. Data, more data, data for a sleeping reader; room; the end, a reset, a
 *    shutdown of one's own.
 * 3. O_ASYNC set before connect() or after it, by way of dup() or in a child;
 *    to another owner; plain SIGIO without F_SETSIG.
 *
 * How often the same signal comes for one event is not compared: TCP wakes once
 * or more for a packet, as it likes. That it comes, and no other, is.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define WANTED		(SIGRTMIN + 3)

FIXTURE(signals)
{
	sigset_t old;
};

FIXTURE_VARIANT(signals)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(signals, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(signals, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(signals, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(signals, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(signals, af_smc) { .ends = &smc_ends_af_smc };

static void watched_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGIO);
	sigaddset(set, SIGURG);
	sigaddset(set, WANTED);
}

FIXTURE_SETUP(signals)
{
	sigset_t set;

	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	watched_signals(&set);
	ASSERT_EQ(0, sigprocmask(SIG_BLOCK, &set, &self->old));
}

FIXTURE_TEARDOWN(signals)
{
	sigset_t set;

	watched_signals(&set);
	while (sigtimedwait(&set, NULL, &(struct timespec){ 0 }) > 0)
		;
	sigprocmask(SIG_SETMASK, &self->old, NULL);
}

static void set_async(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, on ? flags | O_ASYNC : flags & ~O_ASYNC);
}

/* Lets the signal of @fd (0: SIGIO) go to process @owner. */
static void drive_by_signals(struct smc_notes *notes, int fd, int signal, pid_t owner)
{
	smc_note_result(notes, "setown", fcntl(fd, F_SETOWN, owner));
	smc_note_result(notes, "setsig", fcntl(fd, F_SETSIG, signal));
	set_async(fd, true);
}

/* The signals that have come: each kind once, with who sent it. */
static void note_signals(struct smc_notes *notes, const char *when, const int fd[2])
{
	static const char *const names[] = { "", "IN", "OUT", "MSG", "ERR", "PRI", "HUP" };
	long band[3][ARRAY_SIZE(names)] = { 0 };
	bool got[3][ARRAY_SIZE(names)] = { 0 };
	int plain = 0, urgent = 0;
	siginfo_t info;
	sigset_t set;

	smc_settle(fd);
	watched_signals(&set);
	smc_note(notes, " %s:", when);
	while (sigtimedwait(&set, &info, &(struct timespec){ 0 }) > 0) {
		int from = info.si_fd == fd[0] ? 0 : info.si_fd == fd[1] ? 1 : 2;

		if (info.si_signo == SIGIO) {
			plain = 1;
		} else if (info.si_signo == SIGURG) {
			urgent = 1;
		} else if (info.si_code >= POLL_IN && info.si_code <= POLL_HUP) {
			got[from][info.si_code] = true;
			band[from][info.si_code] = info.si_band;
		} else {
			smc_note(notes, "code=%d", info.si_code);
		}
	}
	for (int from = 0; from < 3; from++)
		for (int code = POLL_IN; code <= POLL_HUP; code++)
			if (got[from][code])
				smc_note(notes, "+%d/%s/%lx", from, names[code], band[from][code]);
	if (plain)
		smc_note(notes, "+SIGIO");
	if (urgent)
		smc_note(notes, "+SIGURG");
}

struct reader {
	int fd;
	ssize_t result;
	pid_t tid;
};

static void *read_a_byte(void *arg)
{
	struct reader *reader = arg;
	char byte;

	__atomic_store_n(&reader->tid, smc_thread_id(), __ATOMIC_RELEASE);
	reader->result = recv(reader->fd, &byte, 1, 0);
	return NULL;
}

/* A life of a connection, whose ends are driven by signals. */
static void live(const struct smc_ends *ends, struct smc_notes *notes, int fd[2])
{
	static char buf[1 << 16];
	struct reader reader = { .fd = fd[1] };
	pthread_t thread;

	smc_note_result(notes, "send", send(fd[0], "data", 4, 0));
	note_signals(notes, "data", fd);
	smc_note_result(notes, "send", send(fd[0], "more", 4, 0));
	note_signals(notes, "more", fd);
	smc_note_result(notes, "recv", recv(fd[1], buf, 2, 0));
	note_signals(notes, "part", fd);
	smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), 0));
	note_signals(notes, "all", fd);
	smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
	smc_note_result(notes, "send", send(fd[1], "back", 4, 0));
	note_signals(notes, "back", fd);

	/* A reader that sleeps needs no signal. */
	if (pthread_create(&thread, NULL, read_a_byte, &reader))
		return;
	while (!__atomic_load_n(&reader.tid, __ATOMIC_ACQUIRE))
		sched_yield();
	smc_wait_asleep(reader.tid);
	smc_note_result(notes, "send", send(fd[0], "x", 1, 0));
	pthread_join(thread, NULL);
	smc_note(notes, " reader=%zd", reader.result);
	note_signals(notes, "reader", fd);
	smc_note_result(notes, "send", send(fd[0], "y", 1, 0));
	smc_poll(fd[1], POLLIN, SMC_TIMEOUT_MS);
	note_signals(notes, "awake", fd);

	/* Urgent data; room, where TCP goes on sending what it had taken. */
	smc_note_result(notes, "oob", send(fd[0], "!", 1, MSG_OOB));
	note_signals(notes, "urgent", fd);
	set_async(fd[1], false);
	while (send(fd[0], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	smc_settle(fd);
	note_signals(notes, "full", fd);
	while (recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		smc_settle(fd);
	note_signals(notes, "room", fd);
	set_async(fd[1], true);

	/* The end, and what is behind it. */
	smc_note_result(notes, "shutdown", shutdown(fd[0], SHUT_WR));
	note_signals(notes, "end", fd);
	smc_note_result(notes, "send", send(fd[1], "late", 4, 0));
	note_signals(notes, "late", fd);
	smc_note_result(notes, "shutdown", shutdown(fd[1], SHUT_RD));
	note_signals(notes, "shut-rd", fd);
	close(fd[1]);
	fd[1] = -1;
	note_signals(notes, "closed", fd);
}

static void established(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	drive_by_signals(notes, fd[0], WANTED, getpid());
	drive_by_signals(notes, fd[1], WANTED, getpid());
	note_signals(notes, "begin", fd);
	live(ends, notes, fd);
	smc_close_pair(fd);
}

TEST_F(signals, of_a_connection_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, established, NULL));
}

static void from_the_beginning(const struct smc_ends *ends, struct smc_notes *notes,
			       const void *arg)
{
	const int *nonblock = arg;
	struct sockaddr_storage addr;
	int fd[2] = { -1, -1 }, two[2];
	int listener;
	socklen_t len;

	listener = smc_listen(ends, 4, &addr, &len);
	if (listener < 0)
		return;
	drive_by_signals(notes, listener, WANTED, getpid());
	fd[0] = smc_socket(&ends->client, *nonblock);
	drive_by_signals(notes, fd[0], WANTED, getpid());
	two[0] = fd[0];
	two[1] = listener;
	note_signals(notes, "fresh", two);
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
	smc_poll(fd[0], POLLOUT, SMC_TIMEOUT_MS);
	smc_poll(listener, POLLIN, SMC_TIMEOUT_MS);
	note_signals(notes, "connected", two);
	fd[1] = smc_accept(listener);
	note_signals(notes, "accepted", two);
	smc_note_result(notes, "flags", fcntl(fd[1], F_GETFL) & (O_ASYNC | O_NONBLOCK));
	smc_note_result(notes, "owner", fcntl(fd[1], F_GETOWN));
	smc_set_nonblock(fd[0], false);
	drive_by_signals(notes, fd[1], WANTED, getpid());
	live(ends, notes, fd);
	smc_close_pair(fd);

	/* A client that is gone before it is accepted; a listener that goes. */
	fd[0] = smc_connect(ends, &addr, len);
	two[0] = fd[0];
	note_signals(notes, "client", two);
	close(fd[0]);
	two[0] = -1;
	note_signals(notes, "gone", two);
	smc_note_result(notes, "shutdown", shutdown(listener, SHUT_RDWR));
	note_signals(notes, "listener", two);
	close(listener);

	/* Refused. */
	fd[0] = smc_socket(&ends->client, *nonblock);
	fd[1] = -1;
	drive_by_signals(notes, fd[0], WANTED, getpid());
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
	note_signals(notes, "refused", fd);
	smc_note(notes, " error=%d", smc_error(fd[0]));
	smc_close_pair(fd);
}

TEST_F(signals, from_connect_on_as_on_tcp)
{
	static const int nonblock[] = { 0, SOCK_NONBLOCK };

	EXPECT_TRUE(smc_same_as_tcp(variant->ends, from_the_beginning, &nonblock[0]));
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, from_the_beginning, &nonblock[1]));
}

static void resets(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	char buf[8];
	int fd[2];

	/* Behind nothing, behind data, by unread data. */
	for (int how = 0; how < 3; how++) {
		if (smc_pair(ends, fd))
			return;
		drive_by_signals(notes, fd[1], WANTED, getpid());
		if (how == 1)
			send(fd[0], "data", 4, 0);
		if (how == 2)
			send(fd[1], "unread", 6, 0);
		else
			smc_set_linger(fd[0], 0);
		note_signals(notes, "before", fd);
		close(fd[0]);
		fd[0] = -1;
		note_signals(notes, "reset", fd);
		smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
		smc_note_result(notes, "send", send(fd[1], "x", 1, MSG_NOSIGNAL));
		note_signals(notes, "after", fd);
		smc_close_pair(fd);
	}
	/* A send to an end that was closed. */
	if (smc_pair(ends, fd))
		return;
	drive_by_signals(notes, fd[1], WANTED, getpid());
	close(fd[0]);
	fd[0] = -1;
	note_signals(notes, "closed", fd);
	smc_note_result(notes, "send", send(fd[1], "x", 1, MSG_NOSIGNAL));
	note_signals(notes, "answer", fd);
	smc_close_pair(fd);
}

TEST_F(signals, of_a_reset_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, resets, NULL));
}

static void owners(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int fd[2], copy[2], status;
	pid_t child;

	if (smc_pair(ends, fd))
		return;
	/* Nobody asked yet. */
	send(fd[0], "a", 1, 0);
	note_signals(notes, "nobody", fd);
	/* Without F_SETSIG, and with O_ASYNC but without owner. */
	drive_by_signals(notes, fd[1], 0, getpid());
	send(fd[0], "b", 1, 0);
	note_signals(notes, "plain", fd);
	smc_note_result(notes, "setown", fcntl(fd[1], F_SETOWN, 0));
	send(fd[0], "c", 1, 0);
	note_signals(notes, "ownerless", fd);
	/* To the group. */
	drive_by_signals(notes, fd[1], WANTED, -getpgrp());
	smc_note(notes, " owner-is-group=%d", fcntl(fd[1], F_GETOWN) == -getpgrp());
	fcntl(fd[1], F_SETOWN, getpid());
	/* The descriptor of the one who asked, by way of a duplicate. */
	copy[0] = fd[0];
	copy[1] = dup(fd[1]);
	send(fd[0], "d", 1, 0);
	note_signals(notes, "duplicate", fd);
	close(fd[1]);
	send(fd[0], "e", 1, 0);
	note_signals(notes, "original-gone", fd);
	set_async(copy[1], false);
	send(fd[0], "f", 1, 0);
	note_signals(notes, "off", copy);
	set_async(copy[1], true);
	send(fd[0], "g", 1, 0);
	note_signals(notes, "on", copy);
	/* A child asks for its own. */
	child = fork();
	if (!child) {
		siginfo_t info = { 0 };
		sigset_t set;

		watched_signals(&set);
		if (fcntl(copy[1], F_SETOWN, getpid()) || send(copy[0], "h", 1, 0) != 1)
			_exit(100);
		_exit(sigtimedwait(&set, &info, &(struct timespec){ .tv_sec = 5 }) == WANTED ?
		      info.si_code : 101);
	}
	waitpid(child, &status, 0);
	smc_note(notes, " child=%d", WEXITSTATUS(status));
	note_signals(notes, "parent", copy);
	send(fd[0], "i", 1, 0);
	note_signals(notes, "orphan", copy);
	smc_close_pair(copy);
}

TEST_F(signals, reach_their_owner_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, owners, NULL));
}

struct steady_reader {
	int fd;
	pid_t tid;
	long begun, read;
	sem_t go;
};

static void *read_bytes(void *arg)
{
	struct steady_reader *reader = arg;
	char byte;

	__atomic_store_n(&reader->tid, smc_thread_id(), __ATOMIC_RELEASE);
	do {
		/* Not in recv() again: a reader that sleeps anew needs no signal either. */
		sem_wait(&reader->go);
		__atomic_add_fetch(&reader->begun, 1, __ATOMIC_RELEASE);
	} while (recv(reader->fd, &byte, 1, 0) == 1 &&
		 __atomic_add_fetch(&reader->read, 1, __ATOMIC_RELEASE));
	return NULL;
}

/*
 * Its wake-up races with the decision whether it needs a signal: on a processor
 * with the sender, and before it in rank, it runs as soon as it can.
 */
TEST_F(signals, a_reader_that_slept_gets_none)
{
	long rounds = smc_parameter("SMC_TEST_ROUNDS", 100), signals = 0;
	struct sched_param rank = { .sched_priority = 1 };
	struct steady_reader reader = { 0 };
	cpu_set_t one;
	pthread_t thread;
	sigset_t set;
	int fd[2];

	ASSERT_EQ(0, smc_pair(variant->ends, fd));
	ASSERT_EQ(0, sem_init(&reader.go, 0, 0));
	reader.fd = fd[1];
	ASSERT_EQ(0, fcntl(fd[1], F_SETOWN, getpid()));
	ASSERT_EQ(0, fcntl(fd[1], F_SETSIG, WANTED));
	set_async(fd[1], true);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(one), &one));
	ASSERT_EQ(0, pthread_create(&thread, NULL, read_bytes, &reader));
	ASSERT_EQ(0, pthread_setschedparam(thread, SCHED_FIFO, &rank));
	while (!__atomic_load_n(&reader.tid, __ATOMIC_ACQUIRE))
		sched_yield();
	watched_signals(&set);
	for (long i = 0; i < rounds; i++) {
		sem_post(&reader.go);
		while (__atomic_load_n(&reader.begun, __ATOMIC_ACQUIRE) <= i)
			sched_yield();
		ASSERT_EQ(0, smc_wait_asleep(reader.tid));
		while (sigtimedwait(&set, NULL, &(struct timespec){ 0 }) > 0)
			signals++;
		ASSERT_EQ(1, send(fd[0], "x", 1, 0));
		while (__atomic_load_n(&reader.read, __ATOMIC_ACQUIRE) <= i)
			sched_yield();
	}
	EXPECT_EQ(0, signals);
	set_async(fd[1], false);
	shutdown(fd[0], SHUT_WR);
	sem_post(&reader.go);
	pthread_join(thread, NULL);
	smc_close_pair(fd);
}

TEST_HARNESS_MAIN
