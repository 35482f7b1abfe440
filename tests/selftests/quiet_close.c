// SPDX-License-Identifier: GPL-2.0
/*
 * net.smc.quiet_close: connections within a namespace end without a packet.
 *
 * 1. It is off at first, takes 0 and 1, and is each namespace's own; without it
 *    a close leaves TIME_WAIT behind, as TCP does.
 * 2. With it nothing is left of connections that both ends have closed, whoever
 *    closes first, also at the same time or by being killed, and nobody was sent
 *    a reset.
 * 3. An end that closes is at once what it is to its peer without it: all bytes,
 *    then the end of file, then a broken pipe. Until the peer closes the TCP
 *    connection below stays.
 * 4. A half-closed connection, and one that is reset, ends with packets.
 * 5. Addresses can be used again at once.
 *
 * SMC_TEST_ROUNDS sets the number of rounds (default 200).
 */

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(quiet_close)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int fd[2];
	long rounds;
};

FIXTURE_VARIANT(quiet_close)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(quiet_close, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(quiet_close, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(quiet_close, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(quiet_close)
{
	self->listener = -1;
	self->fd[0] = -1;
	self->fd[1] = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	if (access(SMC_QUIET_CLOSE, F_OK))
		SKIP(return, "no quiet close in this stack");
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, smc_set_sysctl(SMC_QUIET_CLOSE, "1"));
	self->listener = smc_listen(variant->ends, 64, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
	self->rounds = smc_parameter("SMC_TEST_ROUNDS", 200);
}

FIXTURE_TEARDOWN(quiet_close)
{
	smc_close_pair(self->fd);
	close(self->listener);
}

/* How many resets TCP has sent in this namespace. */
static long resets(void)
{
	FILE *file = fopen("/proc/thread-self/net/snmp", "r");
	long sent = -1, values[16];
	char line[1024];

	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		char *field = line + 4, *end;
		int n = 0;

		if (strncmp(line, "Tcp: ", 5) || line[5] == 'R')
			continue;
		for (; n < 16; n++, field = end) {
			values[n] = strtol(field, &end, 10);
			if (end == field)
				break;
		}
		if (n > 13)
			sent = values[13];
	}
	fclose(file);
	return sent;
}

#define MAKE_PAIR()	ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr, \
						   self->len, self->fd))

static void close_end(int fd[2], int end)
{
	close(fd[end]);
	fd[end] = -1;
}

TEST_F(quiet_close, is_off_at_first_and_for_each_namespace)
{
	char text[8] = "";
	FILE *file;

	EXPECT_EQ(-EINVAL, smc_set_sysctl(SMC_QUIET_CLOSE, "2"));
	close(self->listener);
	ASSERT_EQ(0, smc_netns_new());
	file = fopen(SMC_QUIET_CLOSE, "r");
	ASSERT_NE(NULL, file);
	ASSERT_NE(NULL, fgets(text, sizeof(text), file));
	fclose(file);
	EXPECT_STREQ("0\n", text);
	self->listener = smc_listen(variant->ends, 64, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
	MAKE_PAIR();
	smc_close_pair(self->fd);
	EXPECT_EQ(1, smc_count_tcp(TCP_TIME_WAIT));
}

TEST_F(quiet_close, leaves_nothing_behind)
{
	for (int i = 0; i < 50; i++) {
		MAKE_PAIR();
		ASSERT_EQ(0, smc_exchange(self->fd[0], self->fd[1], i));
		close_end(self->fd, i & 1);
		ASSERT_EQ(0, smc_recv_eof(self->fd[!(i & 1)]));
		smc_close_pair(self->fd);
	}
	EXPECT_EQ(0, smc_count_tcp(0));
	EXPECT_EQ(0, resets());
}

TEST_F(quiet_close, tells_the_peer_all_the_same)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	int fd;

	signal(SIGPIPE, SIG_IGN);
	for (int end = 0; end < 2; end++) {
		MAKE_PAIR();
		fd = self->fd[!end];
		ASSERT_EQ(0, smc_send_all(self->fd[end], 7, 0, 5000, 5000));
		close_end(self->fd, end);
		EXPECT_EQ(2, smc_count_tcp(TCP_ESTABLISHED));
		EXPECT_EQ(POLLIN | POLLRDHUP, smc_poll(fd, POLLIN | POLLRDHUP, 0));
		EXPECT_EQ(0, smc_recv_all(fd, 7, 0, 5000, 5000));
		EXPECT_EQ(0, smc_recv_eof(fd));
		EXPECT_EQ(0, getpeername(fd, (void *)&name, &len));
		EXPECT_EQ(1, send(fd, "", 1, 0));
		EXPECT_EQ(-1, send(fd, "", 1, 0));
		EXPECT_EQ(EPIPE, errno);
		smc_close_pair(self->fd);
		EXPECT_EQ(0, smc_count_tcp(0));
	}
	EXPECT_EQ(0, resets());
}

TEST_F(quiet_close, half_closed_connections_end_with_packets)
{
	MAKE_PAIR();
	ASSERT_EQ(0, shutdown(self->fd[0], SHUT_WR));
	ASSERT_EQ(0, smc_recv_eof(self->fd[1]));
	ASSERT_EQ(0, smc_send_all(self->fd[1], 3, 0, 100, 100));
	ASSERT_EQ(0, smc_recv_all(self->fd[0], 3, 0, 100, 100));
	close_end(self->fd, 1);
	ASSERT_EQ(0, smc_recv_eof(self->fd[0]));
	close_end(self->fd, 0);
	EXPECT_EQ(1, smc_count_tcp(TCP_TIME_WAIT));
	EXPECT_EQ(1, smc_count_tcp(0));
}

TEST_F(quiet_close, half_close_of_whoever_is_left)
{
	MAKE_PAIR();
	close_end(self->fd, 0);
	ASSERT_EQ(0, smc_recv_eof(self->fd[1]));
	EXPECT_EQ(0, shutdown(self->fd[1], SHUT_WR));
	close_end(self->fd, 1);
	EXPECT_EQ(0, smc_count_tcp(0));
	EXPECT_EQ(0, resets());
}

TEST_F(quiet_close, unread_data_is_a_reset)
{
	char byte;

	MAKE_PAIR();
	ASSERT_EQ(1, send(self->fd[0], "", 1, 0));
	ASSERT_EQ(POLLIN, smc_poll(self->fd[1], POLLIN, SMC_TIMEOUT_MS));
	close_end(self->fd, 1);
	EXPECT_EQ(-1, recv(self->fd[0], &byte, 1, 0));
	EXPECT_EQ(ECONNRESET, errno);
	close_end(self->fd, 0);
	EXPECT_EQ(0, smc_count_tcp(0));
	EXPECT_EQ(1, resets());
}

TEST_F(quiet_close, unread_data_of_whoever_is_left)
{
	MAKE_PAIR();
	ASSERT_EQ(1, send(self->fd[0], "", 1, 0));
	close_end(self->fd, 0);
	close_end(self->fd, 1);
	EXPECT_EQ(0, smc_count_tcp(0));
	EXPECT_EQ(0, resets());
}

TEST_F(quiet_close, addresses_can_be_used_at_once)
{
	struct sockaddr_storage from = self->addr;
	struct sockaddr_in *in = (void *)&from;

	/* At the same place in addresses of both families. */
	in->sin_port = htons(23456);
	for (int i = 0; i < 50; i++) {
		self->fd[0] = smc_socket(&variant->ends->client, 0);
		ASSERT_LE(0, self->fd[0]);
		ASSERT_EQ(0, bind(self->fd[0], (void *)&from, self->len));
		ASSERT_EQ(0, connect(self->fd[0], (void *)&self->addr, self->len));
		self->fd[1] = smc_accept(self->listener);
		ASSERT_LE(0, self->fd[1]);
		ASSERT_EQ(0, smc_check_modes(variant->ends, self->fd));
		ASSERT_EQ(0, smc_exchange(self->fd[0], self->fd[1], i));
		smc_close_pair(self->fd);
	}
	EXPECT_EQ(0, smc_count_tcp(0));
}

static void *close_it(void *arg)
{
	close(*(int *)arg);
	return NULL;
}

TEST_F(quiet_close, both_ends_at_once)
{
	for (long i = 0; i < self->rounds; i++) {
		pthread_t thread;

		MAKE_PAIR();
		ASSERT_EQ(0, pthread_create(&thread, NULL, close_it, &self->fd[i & 1]));
		close(self->fd[!(i & 1)]);
		ASSERT_EQ(0, pthread_join(thread, NULL));
	}
	self->fd[0] = -1;
	self->fd[1] = -1;
	EXPECT_EQ(0, smc_count_tcp(0));
	EXPECT_EQ(0, resets());
}

TEST_F(quiet_close, ends_of_processes_that_are_killed)
{
	for (int end = 0; end < 2; end++) {
		pid_t child;
		int status;

		MAKE_PAIR();
		child = fork();
		ASSERT_LE(0, child);
		if (!child) {
			close(self->fd[!end]);
			pause();
			_exit(1);
		}
		close_end(self->fd, end);
		ASSERT_EQ(0, kill(child, SIGKILL));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_EQ(0, smc_recv_eof(self->fd[!end]));
		smc_close_pair(self->fd);
		EXPECT_EQ(0, smc_count_tcp(0));
	}
	EXPECT_EQ(0, resets());
}

TEST_HARNESS_MAIN
