// SPDX-License-Identifier: GPL-2.0
/*
 * One socket, many descriptors, processes and threads.
 *
 * 1. The peer sees the end only when the last duplicate is closed, across
 *    dup(), fork() and SCM_RIGHTS.
 * 2. A listener shared by processes: each connection is taken once.
 * 3. exec() closes what SOCK_CLOEXEC marked; the rest goes on working.
 * 4. A killed process gives its peer all its bytes and the end.
 * 5. Many threads send records on one socket: no record is torn that was sent
 *    whole, none is lost; sender and closer race (CVE: use after free of the
 *    connection by a late sender).
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(sharing)
{
	int fd[2];
};

FIXTURE_VARIANT(sharing)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(sharing, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(sharing, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(sharing, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(sharing, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(sharing, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(sharing)
{
	self->fd[0] = -1;
	self->fd[1] = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(sharing)
{
	smc_close_pair(self->fd);
}

TEST_F(sharing, duplicates)
{
	int copy = dup(self->fd[0]);
	char byte;

	ASSERT_LE(0, copy);
	close(self->fd[0]);
	self->fd[0] = copy;
	EXPECT_EQ(-1, recv(self->fd[1], &byte, 1, MSG_DONTWAIT));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(0, smc_exchange(self->fd[0], self->fd[1], 1));
	close(self->fd[0]);
	self->fd[0] = -1;
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
}

TEST_F(sharing, a_child_keeps_the_connection)
{
	int status;
	pid_t child;

	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		close(self->fd[1]);
		_exit(smc_recv_all(self->fd[0], 1, 0, 100, 100) ||
		      smc_send_all(self->fd[0], 2, 0, 100, 100));
	}
	close(self->fd[0]);
	self->fd[0] = -1;
	ASSERT_EQ(0, smc_send_all(self->fd[1], 1, 0, 100, 100));
	EXPECT_EQ(0, smc_recv_all(self->fd[1], 2, 0, 100, 100));
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(sharing, a_killed_process_leaves_its_bytes)
{
	char byte = 0;
	pid_t child;
	int ready[2];

	ASSERT_EQ(0, pipe(ready));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		close(self->fd[1]);
		smc_send_all(self->fd[0], 3, 0, 50000, 50000);
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		/* Killed while it sleeps in the socket. */
		recv(self->fd[0], &byte, 1, 0);
		_exit(1);
	}
	close(self->fd[0]);
	self->fd[0] = -1;
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, NULL, 0));
	EXPECT_EQ(0, smc_recv_all(self->fd[1], 3, 0, 50000, 1000));
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	smc_close_pair(ready);
}

static int send_descriptor(int through, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	return sendmsg(through, &msg, 0) == 1 ? 0 : -errno;
}

static int receive_descriptor(int through)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(through, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return -EPROTO;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return fd;
}

TEST_F(sharing, passed_to_another_process)
{
	int channel[2], status;
	pid_t child;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int fd;

		smc_close_pair(self->fd);
		fd = receive_descriptor(channel[1]);
		_exit(fd < 0 || smc_recv_all(fd, 4, 0, 100, 100) ||
		      smc_send_all(fd, 5, 0, 100, 100));
	}
	ASSERT_EQ(0, send_descriptor(channel[0], self->fd[0]));
	close(self->fd[0]);
	self->fd[0] = -1;
	ASSERT_EQ(0, smc_send_all(self->fd[1], 4, 0, 100, 100));
	EXPECT_EQ(0, smc_recv_all(self->fd[1], 5, 0, 100, 100));
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	smc_close_pair(channel);
}

/* A descriptor that lies in a queue nobody reads is closed with the queue. */
TEST_F(sharing, lost_in_a_unix_socket)
{
	int channel[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
	ASSERT_EQ(0, send_descriptor(channel[0], self->fd[0]));
	close(self->fd[0]);
	self->fd[0] = -1;
	smc_close_pair(channel);
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
}

/* A socket on its way to nobody but itself is found by the collector of garbage. */
TEST_F(sharing, lost_in_a_circle)
{
	int channel[2], probe[2];

	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
		ASSERT_EQ(0, send_descriptor(channel[0], channel[0]));
		ASSERT_EQ(0, send_descriptor(channel[0], channel[1]));
		ASSERT_EQ(0, send_descriptor(channel[0], self->fd[i]));
		ASSERT_EQ(0, send_descriptor(channel[1], channel[0]));
		close(self->fd[i]);
		self->fd[i] = -1;
		smc_close_pair(channel);
		/* The next passing of a descriptor starts a collection. */
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, probe));
		ASSERT_EQ(0, send_descriptor(probe[0], probe[1]));
		smc_close_pair(probe);
		if (!i)
			EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	}
}

/* A socket that connects, and one that listens, in the hands of somebody else. */
TEST_F(sharing, passed_before_it_is_connected)
{
	struct sockaddr_storage addr;
	int channel[2], listener, fd, status;
	socklen_t len;
	pid_t child;

	listener = smc_listen(variant->ends, 4, &addr, &len);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int other, accepted, client;

		close(listener);
		smc_close_pair(self->fd);
		client = receive_descriptor(channel[1]);
		other = receive_descriptor(channel[1]);
		if (client < 0 || other < 0 || smc_set_nonblock(client, false))
			_exit(1);
		/* It is this process that accepts, and that finds out what the client is. */
		accepted = smc_accept(other);
		if (accepted < 0)
			_exit(2);
		if (!(smc_poll(client, POLLOUT, SMC_TIMEOUT_MS) & POLLOUT) || smc_error(client))
			_exit(3);
		_exit(smc_check_modes(variant->ends, (int [2]) { client, accepted }) ||
		      smc_exchange(client, accepted, 9) ? 4 : 0);
	}
	fd = smc_socket(&variant->ends->client, SOCK_NONBLOCK);
	ASSERT_LE(0, fd);
	if (connect(fd, (struct sockaddr *)&addr, len))
		EXPECT_EQ(EINPROGRESS, errno);
	ASSERT_EQ(0, send_descriptor(channel[0], fd));
	ASSERT_EQ(0, send_descriptor(channel[0], listener));
	close(fd);
	close(listener);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	smc_close_pair(channel);
}

/* Children of a listener that is itself lost in a queue are reset with it. */
TEST_F(sharing, a_listener_lost_with_its_children)
{
	struct sockaddr_storage addr;
	int channel[2], listener, client;
	socklen_t len;

	listener = smc_listen(variant->ends, 4, &addr, &len);
	ASSERT_LE(0, listener);
	client = smc_connect(variant->ends, &addr, len);
	ASSERT_LE(0, client);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
	ASSERT_EQ(0, send_descriptor(channel[0], listener));
	close(listener);
	ASSERT_EQ(4, send(client, "data", 4, 0));
	smc_close_pair(channel);
	EXPECT_TRUE(smc_poll(client, POLLRDHUP, SMC_TIMEOUT_MS) & POLLRDHUP);
	EXPECT_EQ(ECONNRESET, smc_error(client));
	close(client);
}

TEST_F(sharing, exec_keeps_what_is_not_marked)
{
	char fd_text[16];
	int status;
	pid_t child;

	snprintf(fd_text, sizeof(fd_text), "%d", self->fd[0]);
	ASSERT_EQ(0, fcntl(self->fd[1], F_SETFD, FD_CLOEXEC));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		/* dd copies what it reads from the socket back to it. */
		dup2(self->fd[0], STDIN_FILENO);
		dup2(self->fd[0], STDOUT_FILENO);
		close(self->fd[0]);
		execlp("dd", "dd", "bs=100", "count=1", "status=none", NULL);
		_exit(127);
	}
	close(self->fd[0]);
	self->fd[0] = -1;
	ASSERT_EQ(0, smc_send_all(self->fd[1], 6, 0, 100, 100));
	EXPECT_EQ(0, smc_recv_all(self->fd[1], 6, 0, 100, 100));
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(sharing, accepters_in_several_processes)
{
	enum { CHILDREN = 4, CLIENTS = 200 };
	struct sockaddr_storage addr;
	int listener, client[CLIENTS];
	int status, served = 0;
	pid_t child[CHILDREN];
	socklen_t len;

	listener = smc_listen(variant->ends, CLIENTS, &addr, &len);
	ASSERT_LE(0, listener);
	for (int i = 0; i < CHILDREN; i++) {
		child[i] = fork();
		ASSERT_LE(0, child[i]);
		if (child[i])
			continue;
		for (;;) {
			int fd = accept(listener, NULL, NULL);

			/* Each client sends one byte and gets it back once. */
			if (fd < 0 || recv(fd, &status, 1, 0) != 1 || send(fd, &status, 1, 0) != 1)
				_exit(1);
			close(fd);
		}
	}
	for (int i = 0; i < CLIENTS; i++) {
		client[i] = smc_connect(variant->ends, &addr, len);
		ASSERT_LE(0, client[i]);
		ASSERT_EQ(1, send(client[i], "x", 1, 0));
	}
	for (int i = 0; i < CLIENTS; i++) {
		char buf[2];

		served += recv(client[i], buf, 2, MSG_WAITALL) == 1;
		close(client[i]);
	}
	EXPECT_EQ(CLIENTS, served);
	for (int i = 0; i < CHILDREN; i++) {
		kill(child[i], SIGKILL);
		ASSERT_EQ(child[i], waitpid(child[i], NULL, 0));
	}
	close(listener);
}

struct record {
	uint32_t thread;
	uint32_t number;
	uint64_t check;
};

struct writer {
	int fd;
	uint32_t id;
	pthread_t thread;
	int result;
};

#define RECORDS	3000

static void *write_records(void *arg)
{
	struct writer *writer = arg;

	for (uint32_t i = 0; i < RECORDS && !writer->result; i++) {
		struct record record = { writer->id, i, ~((uint64_t)writer->id << 32 | i) };

		/* So short a record is never split while there is space for it. */
		if (send(writer->fd, &record, sizeof(record), MSG_NOSIGNAL) != sizeof(record))
			writer->result = -EIO;
	}
	return NULL;
}

TEST_F(sharing, records_of_many_threads)
{
	enum { WRITERS = 6 };
	struct writer writer[WRITERS];
	uint32_t next[WRITERS] = { 0 };

	for (int i = 0; i < WRITERS; i++) {
		writer[i] = (struct writer) { .fd = self->fd[0], .id = i };
		ASSERT_EQ(0, pthread_create(&writer[i].thread, NULL, write_records, &writer[i]));
	}
	for (int i = 0; i < WRITERS * RECORDS; i++) {
		struct record record;

		ASSERT_EQ(sizeof(record), recv(self->fd[1], &record, sizeof(record), MSG_WAITALL));
		ASSERT_GT(WRITERS, record.thread);
		ASSERT_EQ(record.check, ~((uint64_t)record.thread << 32 | record.number));
		ASSERT_EQ(next[record.thread]++, record.number);
	}
	for (int i = 0; i < WRITERS; i++) {
		ASSERT_EQ(0, pthread_join(writer[i].thread, NULL));
		EXPECT_EQ(0, writer[i].result);
	}
}

static void *send_until_it_fails(void *arg)
{
	while (send(*(int *)arg, "x", 1, MSG_NOSIGNAL) == 1)
		;
	return NULL;
}

TEST_F(sharing, senders_race_with_the_end)
{
	enum { SENDERS = 4 };

	for (int round = 0; round < 100; round++) {
		pthread_t thread[SENDERS];
		static char buf[4096];

		for (int i = 0; i < SENDERS; i++)
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, send_until_it_fails,
						    &self->fd[0]));
		ASSERT_LT(0, recv(self->fd[1], buf, sizeof(buf), 0));
		if (round % 4 == 0)
			ASSERT_EQ(0, shutdown(self->fd[0], SHUT_WR));
		if (round % 4 == 1)
			ASSERT_EQ(0, smc_set_linger(self->fd[1], 0));
		if (round % 4 == 2)
			ASSERT_EQ(0, shutdown(self->fd[0], SHUT_RDWR));
		/* With data unread, or with all of it read. */
		if (round % 2 == 0)
			while (recv(self->fd[1], buf, sizeof(buf), 0) > 0)
				;
		close(self->fd[1]);
		self->fd[1] = -1;
		for (int i = 0; i < SENDERS; i++)
			ASSERT_EQ(0, pthread_join(thread[i], NULL));
		smc_close_pair(self->fd);
		ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
	}
}

TEST_HARNESS_MAIN
