// SPDX-License-Identifier: GPL-2.0
/*
 * An SMC socket with a peer that is not SMC is a TCP socket.
 *
 * 1. Bytes that look like CLC messages, at the start of a stream to or from a
 *    plain peer, are data like any other; no byte of a handshake is added.
 * 2. A plain peer that says nothing, or closes or resets at once, holds up
 *    nobody else: the next honest client gets SMC-D.
 * 3. Options and calls that ask for TCP before connect (TCP_FASTOPEN and its
 *    kin, MSG_FASTOPEN), all in a row, are refused or obeyed once
 *    (CVE-2022-48780); the connection works.
 * 4. SIGIO and SIGURG, timeouts, linger, half close: as on TCP (notes compared).
 * 5. Close with unread and unsent data, while the peer sends, with linger 0 and
 *    after SHUT_RD, leaves nothing (callbacks of a socket that is gone).
 * 6. SMC and plain clients of one listener, mixed, each get their own bytes.
 */

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>

#include "kselftest_harness.h"
#include "smc_test.h"

static const struct smc_end plain = { AF_INET, 0, SMC_MODE_PLAIN };

FIXTURE(fallback)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int fd[2];
};

static const struct smc_ends smc_ends_inet_client = {
	AF_INET,
	{ AF_INET, IPPROTO_SMC, SMC_MODE_FALLBACK },
	{ AF_INET, 0, SMC_MODE_PLAIN },
};

static const struct smc_ends smc_ends_inet_server = {
	AF_INET,
	{ AF_INET, 0, SMC_MODE_PLAIN },
	{ AF_INET, IPPROTO_SMC, SMC_MODE_FALLBACK },
};

FIXTURE_VARIANT(fallback)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(fallback, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(fallback, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(fallback, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(fallback, inet_client) { .ends = &smc_ends_inet_client };
FIXTURE_VARIANT_ADD(fallback, inet_server) { .ends = &smc_ends_inet_server };

FIXTURE_SETUP(fallback)
{
	self->fd[0] = -1;
	self->fd[1] = -1;
	self->listener = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	self->listener = smc_listen(variant->ends, 128, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
	ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr, self->len, self->fd));
}

FIXTURE_TEARDOWN(fallback)
{
	smc_close_pair(self->fd);
	close(self->listener);
}

/* Proposal, accept, confirm and decline headers with their trailers. */
static const char clc_like[][16] = {
	"\xe2\xd4\xc3\xd9\x01\x00\x10\x26\0\0\0\0\xe2\xd4\xc3\xd9",
	"\xe2\xd4\xc3\xc4\x02\x00\x10\x28\0\0\0\0\xe2\xd4\xc3\xc4",
	"\xe2\xd4\xc3\xc4\x03\x00\x10\x20\0\0\0\0\xe2\xd4\xc3\xc4",
	"\xe2\xd4\xc3\xd9\x04\x00\x10\x10\0\0\0\0\xe2\xd4\xc3\xd9",
	"\xe2\xd4\xc3\xd9\x01\xff\xff\x20\0\0\0\0\0\0\0",
	"\xe2\xd4\xc3",
};

TEST_F(fallback, bytes_like_a_handshake_are_data)
{
	for (size_t i = 0; i < ARRAY_SIZE(clc_like); i++) {
		for (int from = 0; from < 2; from++) {
			char got[sizeof(clc_like[0])];

			ASSERT_EQ(sizeof(got), send(self->fd[from], clc_like[i], sizeof(got), 0));
			ASSERT_EQ(sizeof(got), recv(self->fd[!from], got, sizeof(got),
						    MSG_WAITALL));
			EXPECT_EQ(0, memcmp(got, clc_like[i], sizeof(got)));
			/* And nothing else. */
			EXPECT_EQ(-1, recv(self->fd[from], got, 1, MSG_DONTWAIT));
		}
		smc_close_pair(self->fd);
		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
	}
}

TEST_F(fallback, idle_and_rude_peers_hold_up_nobody)
{
	const struct smc_ends *ends = variant->ends;
	struct smc_ends honest = *ends;
	int silent[8], fd[2];

	for (int i = 0; i < 8; i++) {
		int rude;

		silent[i] = socket(AF_INET, SOCK_STREAM, 0);
		ASSERT_EQ(0, connect(silent[i], (struct sockaddr *)&self->addr, self->len));
		rude = socket(AF_INET, SOCK_STREAM, 0);
		ASSERT_EQ(0, connect(rude, (struct sockaddr *)&self->addr, self->len));
		send(rude, clc_like[i % ARRAY_SIZE(clc_like)], 8, 0);
		if (i % 2)
			ASSERT_EQ(0, smc_set_linger(rude, 0));
		close(rude);
	}
	/* An SMC client after them: the queue is served in order. */
	if (ends->server.mode == SMC_MODE_FALLBACK) {
		honest.client = honest.server;
		honest.client.mode = SMC_MODE_SMCD;
		honest.server.mode = SMC_MODE_SMCD;
	}
	fd[0] = smc_connect(&honest, &self->addr, self->len);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(6, send(fd[0], "honest", 6, 0));
	for (int i = 0; i < 17; i++) {
		char got[16] = "";
		int server;

		server = accept(self->listener, NULL, NULL);
		ASSERT_LE(0, server);
		if (recv(server, got, 6, MSG_WAITALL | (i < 16 ? MSG_DONTWAIT : 0)) == 6 &&
		    !memcmp(got, "honest", 6)) {
			fd[1] = server;
			EXPECT_EQ(0, smc_check_modes(&honest, fd));
			EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 5));
			close(fd[1]);
			fd[1] = -2;
			break;
		}
		close(server);
	}
	EXPECT_EQ(-2, fd[1]);
	close(fd[0]);
	for (int i = 0; i < 8; i++)
		close(silent[i]);
}

static void triggers(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static const int names[] = {
		TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE,
	};
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;
	int on = 1;
	char buf[8];

	listener = smc_listen(ends, 4, &addr, &len);
	fd[0] = smc_socket(&ends->client, 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		smc_note_result(notes, "option", setsockopt(fd[0], SOL_TCP, names[i], &on,
							    sizeof(on)));
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
	smc_note_result(notes, "send", send(fd[0], "data", 4, MSG_NOSIGNAL));
	fd[1] = accept(listener, NULL, NULL);
	smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), 0));
	smc_note_result(notes, "option", setsockopt(fd[0], SOL_TCP, TCP_FASTOPEN, &on,
						    sizeof(on)));
	smc_close_pair(fd);
	close(listener);
}

TEST_F(fallback, triggers_in_a_row_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, triggers, NULL));
}

static void fast_open(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;
	char buf[8];

	listener = smc_listen(ends, 4, &addr, &len);
	fd[0] = smc_socket(&ends->client, 0);
	smc_note_result(notes, "sendto", sendto(fd[0], "fast", 4, MSG_FASTOPEN | MSG_NOSIGNAL,
						(struct sockaddr *)&addr, len));
	smc_note_result(notes, "again", sendto(fd[0], "fast", 4, MSG_FASTOPEN | MSG_NOSIGNAL,
					       (struct sockaddr *)&addr, len));
	fd[1] = accept(listener, NULL, NULL);
	smc_note_result(notes, "recv", recv(fd[1], buf, 4, MSG_WAITALL));
	smc_close_pair(fd);
	close(listener);
}

TEST_F(fallback, fast_open_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, fast_open, NULL));
}

TEST_F(fallback, triggers_and_a_reset_many_times)
{
	int on = 1;

	for (int i = 0; i < 200; i++) {
		int client, server;

		client = smc_socket(&variant->ends->client, 0);
		ASSERT_LE(0, client);
		setsockopt(client, SOL_TCP, TCP_FASTOPEN, &on, sizeof(on));
		setsockopt(client, SOL_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof(on));
		ASSERT_EQ(0, connect(client, (struct sockaddr *)&self->addr, self->len));
		server = smc_accept(self->listener);
		ASSERT_LE(0, server);
		ASSERT_EQ(0, smc_set_linger(server, 0));
		close(server);
		ASSERT_TRUE(smc_poll(client, POLLIN, SMC_TIMEOUT_MS) & POLLERR);
		EXPECT_EQ(ECONNRESET, smc_error(client));
		EXPECT_EQ(0, smc_error(client));
		close(client);
	}
}

/* Counts of SIGIO and SIGURG. */
static int signals[2];

static void on_signal(int signal)
{
	__atomic_add_fetch(&signals[signal == SIGURG], 1, __ATOMIC_RELAXED);
}

/* Was there a SIGIO; how many SIGURG were there? */
static int got_signals(int signal)
{
	int count = __atomic_load_n(&signals[signal == SIGURG], __ATOMIC_RELAXED);

	return signal == SIGURG ? count : !!count;
}

/* SIGIO when data comes, SIGURG for an urgent byte. */
static void signalled(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const int end = *(const int *)arg;
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	fcntl(fd[end], F_SETOWN, getpid());
	fcntl(fd[end], F_SETFL, O_ASYNC | O_NONBLOCK);
	signals[0] = 0;
	signals[1] = 0;
	send(fd[!end], "x", 1, 0);
	smc_settle(fd);
	smc_note(notes, " io=%d urg=%d", got_signals(SIGIO), got_signals(SIGURG));
	send(fd[!end], "!", 1, MSG_OOB);
	smc_settle(fd);
	smc_note(notes, " io=%d urg=%d", got_signals(SIGIO), got_signals(SIGURG));
	signals[0] = 0;
	close(fd[!end]);
	fd[!end] = -1;
	smc_settle(fd);
	smc_note(notes, " io=%d", got_signals(SIGIO));
	smc_close_pair(fd);
}

TEST_F(fallback, signals_as_on_tcp)
{
	struct sigaction action = { .sa_handler = on_signal };

	ASSERT_EQ(0, sigaction(SIGIO, &action, NULL));
	ASSERT_EQ(0, sigaction(SIGURG, &action, NULL));
	for (int end = 0; end < 2; end++)
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, signalled, &end));
}

/* SO_LINGER with a time must not turn a close into a reset. */
TEST_F(fallback, lingering_close_delivers_all)
{
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, smc_set_linger(self->fd[i % 2], 5));
		ASSERT_EQ(0, smc_send_all(self->fd[i % 2], i, 0, 30000, 30000));
		close(self->fd[i % 2]);
		self->fd[i % 2] = -1;
		EXPECT_EQ(0, smc_recv_all(self->fd[!(i % 2)], i, 0, 30000, 1000));
		EXPECT_EQ(0, smc_recv_eof(self->fd[!(i % 2)]));
		smc_close_pair(self->fd);
		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
	}
}

static void *keep_sending(void *arg)
{
	char buf[4096] = { 0 };

	while (send(*(int *)arg, buf, sizeof(buf), MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

TEST_F(fallback, close_while_the_peer_sends)
{
	char buf[4096] = { 0 };

	for (int i = 0; i < 60; i++) {
		int own = i % 2;
		pthread_t thread;

		/* Unsent bytes of ours, unread bytes of theirs. */
		ASSERT_EQ(0, smc_set_nonblock(self->fd[own], true));
		while (send(self->fd[own], buf, sizeof(buf), MSG_NOSIGNAL) > 0)
			;
		ASSERT_EQ(0, pthread_create(&thread, NULL, keep_sending, &self->fd[!own]));
		ASSERT_TRUE(smc_poll(self->fd[own], POLLIN, SMC_TIMEOUT_MS) & POLLIN);
		if (i % 3 == 1)
			ASSERT_EQ(0, smc_set_linger(self->fd[own], 0));
		if (i % 3 == 2)
			ASSERT_EQ(0, shutdown(self->fd[own], SHUT_RD));
		close(self->fd[own]);
		self->fd[own] = -1;
		ASSERT_EQ(0, pthread_join(thread, NULL));
		smc_close_pair(self->fd);
		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
	}
}

TEST_F(fallback, mixed_clients_of_one_listener)
{
	const struct smc_ends *ends = variant->ends;
	enum { CLIENTS = 60 };
	int client[CLIENTS];

	for (int i = 0; i < CLIENTS; i++) {
		struct smc_ends mixed = *ends;

		/* Every third is plain, every other SMC where the listener is. */
		if (ends->server.mode == SMC_MODE_FALLBACK && i % 3)
			mixed.client = ends->server;
		else
			mixed.client = plain;
		client[i] = smc_connect(&mixed, &self->addr, self->len);
		ASSERT_LE(0, client[i]);
		ASSERT_EQ(sizeof(i), send(client[i], &i, sizeof(i), 0));
	}
	for (int i = 0; i < CLIENTS; i++) {
		int who = -1, server = smc_accept(self->listener);

		ASSERT_LE(0, server);
		ASSERT_EQ(sizeof(who), recv(server, &who, sizeof(who), MSG_WAITALL));
		ASSERT_EQ(i, who);
		EXPECT_EQ(0, smc_exchange(client[who], server, who));
		if (ends->server.mode == SMC_MODE_FALLBACK)
			EXPECT_EQ(0, smc_check_mode(server, who % 3 ? SMC_MODE_SMCD :
								      SMC_MODE_FALLBACK));
		close(client[who]);
		close(server);
	}
}

TEST_HARNESS_MAIN
