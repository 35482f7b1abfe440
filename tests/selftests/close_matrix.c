// SPDX-License-Identifier: GPL-2.0
/*
 * Closing in every order looks as on TCP.
 *
 * 1. Every sequence of SMC_TEST_DEPTH (default 2) steps, and SMC_TEST_SEQUENCES
 *    (default 200) longer ones, of send, recv, each shutdown, close and close
 *    with linger 0, at either end, gives the results, errnos and poll masks of
 *    TCP after every step.
 * 2. So do the calls that follow: two sends (the first after a clean close
 *    succeeds), two reads, SO_ERROR once, getpeername.
 * 3. The same when data lies unread at either end at the start.
 * 4. SIGPIPE comes when and only when TCP sends it.
 * 5. epoll (edge) reports RDHUP, HUP and ERR as on TCP.
 * 6. Death of the TCP connection below is death of the connection (linger 0 of
 *    a peer that then exits included).
 */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>

#include "kselftest_harness.h"
#include "smc_test.h"

enum step {
	SEND,
	RECV,
	SHUT_R,
	SHUT_W,
	SHUT_B,
	CLOSE,
	RESET,
	STEPS,
};

static const char *const step_name[STEPS] = {
	"send", "recv", "shut_rd", "shut_wr", "shut_rdwr", "close", "reset",
};

#define DEPTH	6

/* A sequence: step i is done by end[i]; @unread has a bit for each end. */
struct sequence {
	int length;
	enum step step[DEPTH];
	int end[DEPTH];
	int unread;
};

FIXTURE(close_matrix)
{
};

FIXTURE_VARIANT(close_matrix)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(close_matrix, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(close_matrix, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(close_matrix, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(close_matrix, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(close_matrix, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(close_matrix, smc6) { .ends = &smc_ends_smc6 };

FIXTURE_SETUP(close_matrix)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
}

FIXTURE_TEARDOWN(close_matrix)
{
}

static void do_step(int fd[2], enum step step, int end, struct smc_notes *notes)
{
	char buf[100];

	smc_note(notes, " %d:", end);
	switch (step) {
	case SEND:
		smc_note_result(notes, "send", send(fd[end], "0123456789", 10, MSG_NOSIGNAL));
		break;
	case RECV:
		smc_note_result(notes, "recv", recv(fd[end], buf, sizeof(buf), MSG_DONTWAIT));
		break;
	case SHUT_R:
	case SHUT_W:
	case SHUT_B:
		smc_note_result(notes, step_name[step], shutdown(fd[end], step - SHUT_R));
		break;
	case RESET:
		smc_set_linger(fd[end], 0);
		/* fallthrough */
	default:
		smc_note_result(notes, step_name[step], close(fd[end]));
		fd[end] = -1;
	}
}

/*
 * A pair on which every send leaves at once: Nagle's algorithm and a delayed
 * acknowledgement would make TCP answer forty milliseconds later at times.
 */
static int prompt_pair(const struct smc_ends *ends, int fd[2])
{
	int on = 1, ret = smc_pair(ends, fd);

	for (int end = 0; end < 2 && !ret; end++)
		if (setsockopt(fd[end], SOL_TCP, TCP_NODELAY, &on, sizeof(on)))
			ret = -errno;
	return ret;
}

/* All that a program can still ask of @fd. */
static void probe(int fd, const int pair[2], struct smc_notes *notes)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char buf[4];

	smc_note_result(notes, "peer", getpeername(fd, (struct sockaddr *)&addr, &len));
	for (int i = 0; i < 2; i++) {
		smc_note_result(notes, "send", send(fd, "abcd", 4, MSG_NOSIGNAL));
		smc_settle(pair);
		smc_note_poll(notes, fd);
	}
	for (int i = 0; i < 8; i++) {
		ssize_t ret = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

		smc_note_result(notes, "recv", ret);
		if (ret <= 0 && i > 0)
			break;
	}
	smc_note(notes, " error=%d", smc_error(fd));
	smc_note(notes, " error=%d", smc_error(fd));
	smc_note_poll(notes, fd);
	smc_note_result(notes, "shut_rdwr", shutdown(fd, SHUT_RDWR));
	smc_note_result(notes, "shut_rdwr", shutdown(fd, SHUT_RDWR));
}

static void play(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct sequence *sequence = arg;
	int fd[2];

	if (prompt_pair(ends, fd)) {
		smc_note(notes, "no pair");
		return;
	}
	for (int end = 0; end < 2; end++)
		if (sequence->unread & (1 << end))
			smc_note_result(notes, "unread", send(fd[!end], "unread", 6, 0));
	for (int i = 0; i < sequence->length; i++) {
		do_step(fd, sequence->step[i], sequence->end[i], notes);
		smc_settle(fd);
		for (int end = 0; end < 2; end++)
			if (fd[end] >= 0)
				smc_note_poll(notes, fd[end]);
	}
	for (int end = 0; end < 2; end++) {
		if (fd[end] < 0)
			continue;
		smc_note(notes, " |%d:", end);
		probe(fd[end], fd, notes);
	}
	smc_close_pair(fd);
}

/* Plays all sequences that begin with @sequence; how many differ from TCP. */
static int play_all(const struct smc_ends *ends, struct sequence *sequence, int depth,
		    const bool closed[2])
{
	int wrong = 0;

	if (sequence->length == depth)
		return !smc_same_as_tcp(ends, play, sequence);
	for (int end = 0; end < 2; end++) {
		for (enum step step = 0; step < STEPS && !closed[end]; step++) {
			bool now[2] = { closed[0], closed[1] };

			now[end] = step == CLOSE || step == RESET;
			sequence->step[sequence->length] = step;
			sequence->end[sequence->length] = end;
			sequence->length++;
			if (now[0] && now[1])
				wrong += !smc_same_as_tcp(ends, play, sequence);
			else
				wrong += play_all(ends, sequence, depth, now);
			sequence->length--;
			/* Enough to see what is wrong. */
			if (wrong > 5)
				return wrong;
		}
	}
	return wrong;
}

static int play_depth(const struct smc_ends *ends, int unread)
{
	struct sequence sequence = { .unread = unread };
	static const bool closed[2];
	int depth = smc_parameter("SMC_TEST_DEPTH", 2);

	return play_all(ends, &sequence, depth < DEPTH ? depth : DEPTH, closed);
}

TEST_F_TIMEOUT(close_matrix, every_sequence, 1700)
{
	EXPECT_EQ(0, play_depth(variant->ends, 0));
}

/* Sequences of three to six steps, the same ones in every run. */
TEST_F_TIMEOUT(close_matrix, longer_sequences, 1700)
{
	long count = smc_parameter("SMC_TEST_SEQUENCES", 200);
	unsigned int seed = 1;
	int wrong = 0;

	for (long i = 0; i < count && wrong < 5; i++) {
		struct sequence sequence = { .unread = rand_r(&seed) % 4 };
		int length = 3 + rand_r(&seed) % (DEPTH - 2);
		bool closed[2] = { false, false };

		while (sequence.length < length && !(closed[0] && closed[1])) {
			int end = closed[0] ? 1 : closed[1] ? 0 : rand_r(&seed) / 7 % 2;
			enum step step = rand_r(&seed) / 7 % STEPS;

			sequence.step[sequence.length] = step;
			sequence.end[sequence.length++] = end;
			closed[end] = step == CLOSE || step == RESET;
		}
		wrong += !smc_same_as_tcp(variant->ends, play, &sequence);
	}
	EXPECT_EQ(0, wrong);
}

TEST_F_TIMEOUT(close_matrix, every_sequence_with_unread_data, 1700)
{
	for (int unread = 1; unread < 4; unread++)
		EXPECT_EQ(0, play_depth(variant->ends, unread));
}

/* Only ever changed by a signal of this very thread. */
static int sigpipes;

static void count_sigpipe(int signal)
{
	__atomic_add_fetch(&sigpipes, 1, __ATOMIC_RELAXED);
}

/* Sends without MSG_NOSIGNAL after @arg has closed something. */
static void sigpipe(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	enum step step = *(const enum step *)arg;
	int fd[2];

	if (prompt_pair(ends, fd)) {
		smc_note(notes, "no pair");
		return;
	}
	sigpipes = 0;
	if (step < CLOSE) {
		do_step(fd, step, 0, notes);
	} else {
		do_step(fd, step, 1, notes);
		smc_settle(fd);
	}
	for (int i = 0; i < 3; i++) {
		smc_note_result(notes, "send", send(fd[0], "x", 1, 0));
		smc_settle(fd);
		smc_note(notes, " signals=%d", __atomic_load_n(&sigpipes, __ATOMIC_RELAXED));
	}
	smc_close_pair(fd);
}

TEST_F(close_matrix, sigpipe_as_on_tcp)
{
	struct sigaction action = { .sa_handler = count_sigpipe };

	ASSERT_EQ(0, sigaction(SIGPIPE, &action, NULL));
	for (enum step step = SHUT_R; step < STEPS; step++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, sigpipe, &step))
			TH_LOG("after %s", step_name[step]);
	}
}

/* The edges that an entry armed before sees of @arg at the other end. */
static void edge_events(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
	};
	int epoll = epoll_create1(0);
	uint32_t seen = 0;
	int fd[2];

	if (prompt_pair(ends, fd)) {
		smc_note(notes, "no pair");
		return;
	}
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd[0], &event);
	epoll_wait(epoll, &event, 1, 0);
	do_step(fd, *(const enum step *)arg, 1, notes);
	smc_settle(fd);
	while (epoll_wait(epoll, &event, 1, 0) == 1)
		seen |= event.events;
	smc_note(notes, " edges=%#x", seen);
	smc_close_pair(fd);
	close(epoll);
}

TEST_F(close_matrix, edges_as_on_tcp)
{
	static const enum step steps[] = { SEND, SHUT_W, SHUT_B, CLOSE, RESET };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, edge_events, &steps[i]))
			TH_LOG("after %s", step_name[steps[i]]);
	}
}

/* Data and then a reset: data first, the error once, then the end. */
static void data_then_reset(const struct smc_ends *ends, struct smc_notes *notes,
			    const void *arg)
{
	char buf[4];
	int fd[2];

	if (prompt_pair(ends, fd)) {
		smc_note(notes, "no pair");
		return;
	}
	do_step(fd, SEND, 1, notes);
	do_step(fd, RESET, 1, notes);
	smc_settle(fd);
	smc_note_poll(notes, fd[0]);
	for (int i = 0; i < 6; i++)
		smc_note_result(notes, "recv", recv(fd[0], buf, sizeof(buf), MSG_DONTWAIT));
	smc_note_result(notes, "send", send(fd[0], "x", 1, MSG_NOSIGNAL));
	smc_note(notes, " error=%d", smc_error(fd[0]));
	smc_note_poll(notes, fd[0]);
	smc_close_pair(fd);
}

TEST_F(close_matrix, data_before_a_reset_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, data_then_reset, NULL));
}

TEST_HARNESS_MAIN
