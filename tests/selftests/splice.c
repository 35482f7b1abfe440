// SPDX-License-Identifier: GPL-2.0
/*
 * splice() out of and into a socket.
 *
 * 1. Bytes spliced to a pipe stay what they were, although both ends are closed
 *    and the ring they came from is reused and refilled (CVE-2025-40012).
 * 2. Results at an empty socket, at the end of the stream, and for an offset:
 *    as on TCP.
 * 3. A splice from a pipe arrives; tee() of a pipe filled from a socket works.
 * 4. vmsplice() and splice(), sendfile() out of and into a file, full pipes and
 *    sockets, wrong ends, sockets that were shut down or reset: as on TCP.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define BYTES	(64 * 1024)

FIXTURE(splice)
{
	int fd[2];
	int pipe[2];
};

FIXTURE_VARIANT(splice)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(splice, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(splice, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(splice, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(splice, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(splice, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(splice)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
	ASSERT_EQ(0, pipe(self->pipe));
	ASSERT_LE(BYTES, fcntl(self->pipe[1], F_SETPIPE_SZ, 1024 * 1024));
}

FIXTURE_TEARDOWN(splice)
{
	smc_close_pair(self->fd);
	smc_close_pair(self->pipe);
}

/* Moves @bytes from @from to @to. */
static int splice_all(int from, int to, size_t bytes)
{
	while (bytes) {
		ssize_t ret = splice(from, NULL, to, NULL, bytes, 0);

		if (ret <= 0)
			return ret ? -errno : -ENODATA;
		bytes -= ret;
	}
	return 0;
}

/* Compares @bytes of the pipe with the stream @seed. */
static int read_pipe(int pipe, uint64_t seed, size_t bytes)
{
	static char buf[BYTES];
	size_t done = 0;

	while (done < bytes) {
		ssize_t ret = read(pipe, buf + done, bytes - done);

		if (ret <= 0)
			return -1;
		done += ret;
	}
	return smc_find_wrong(buf, bytes, seed, 0) < 0 ? 0 : -EILSEQ;
}

TEST_F(splice, bytes_survive_the_connection)
{
	enum { OTHERS = 40 };
	int other[OTHERS][2];

	ASSERT_EQ(0, smc_send_all(self->fd[0], 21, 0, BYTES, BYTES));
	ASSERT_EQ(0, splice_all(self->fd[1], self->pipe[1], BYTES));
	smc_close_pair(self->fd);
	for (int i = 0; i < OTHERS; i++) {
		ASSERT_EQ(0, smc_pair(variant->ends, other[i]));
		ASSERT_EQ(0, smc_send_all(other[i][0], 99, 0, BYTES, BYTES));
	}
	EXPECT_EQ(0, read_pipe(self->pipe[0], 21, BYTES));
	for (int i = 0; i < OTHERS; i++)
		smc_close_pair(other[i]);
}

TEST_F(splice, into_a_socket)
{
	static char buf[BYTES];

	smc_fill(buf, BYTES, 22, 0);
	ASSERT_EQ(BYTES, write(self->pipe[1], buf, BYTES));
	ASSERT_EQ(0, splice_all(self->pipe[0], self->fd[0], BYTES));
	ASSERT_EQ(0, smc_recv_all(self->fd[1], 22, 0, BYTES, 5000));
}

TEST_F(splice, pipe_can_be_teed)
{
	int copy[2];

	ASSERT_EQ(0, pipe(copy));
	ASSERT_EQ(0, smc_send_all(self->fd[0], 23, 0, 4096, 4096));
	ASSERT_EQ(0, splice_all(self->fd[1], self->pipe[1], 4096));
	ASSERT_EQ(4096, tee(self->pipe[0], copy[1], 4096, SPLICE_F_NONBLOCK));
	EXPECT_EQ(0, read_pipe(self->pipe[0], 23, 4096));
	EXPECT_EQ(0, read_pipe(copy[0], 23, 4096));
	smc_close_pair(copy);
}

static void results(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int fd[2], pipe_fd[2];
	loff_t offset;

	/* SPLICE_F_NONBLOCK is about the pipe: TCP asks the socket's O_NONBLOCK. */
	if (smc_pair(ends, fd) || pipe(pipe_fd) || smc_set_nonblock(fd[1], true))
		return;
	smc_note_result(notes, "empty", splice(fd[1], NULL, pipe_fd[1], NULL, 10,
					       SPLICE_F_NONBLOCK));
	for (offset = 0; offset < 2; offset++)
		smc_note_result(notes, "offset", splice(fd[1], &offset, pipe_fd[1], NULL, 10,
							SPLICE_F_NONBLOCK));
	send(fd[0], "abcdef", 6, 0);
	smc_settle(fd);
	smc_note_result(notes, "part", splice(fd[1], NULL, pipe_fd[1], NULL, 4, 0));
	smc_note_result(notes, "rest", splice(fd[1], NULL, pipe_fd[1], NULL, 4, 0));
	shutdown(fd[0], SHUT_WR);
	smc_settle(fd);
	smc_note_result(notes, "end", splice(fd[1], NULL, pipe_fd[1], NULL, 4, 0));
	smc_close_pair(fd);
	smc_close_pair(pipe_fd);
}

TEST_F(splice, results_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, results, NULL));
}

/* Memory and files, by way of pipes or not, into a socket and out of it. */
static void transfers(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	enum { LENGTH = 20000 };
	static char data[LENGTH], back[LENGTH];
	struct iovec iov = { back, LENGTH };
	int fd[2], to[2], copy[2], file, sink;
	off_t offset;
	ssize_t ret;

	file = memfd_create("source", 0);
	sink = memfd_create("sink", 0);
	if (file < 0 || sink < 0 || pipe(to) || pipe(copy) || smc_pair(ends, fd))
		return;
	smc_fill(data, LENGTH, 5, 0);
	memcpy(back, data, LENGTH);
	smc_note_result(notes, "write", write(file, data, LENGTH));

	/* Pages of this process, a copy of which stays in another pipe. */
	smc_note_result(notes, "vmsplice", vmsplice(to[1], &iov, 1, 0));
	smc_note_result(notes, "tee", tee(to[0], copy[1], LENGTH, 0));
	smc_note_result(notes, "more", splice(to[0], NULL, fd[0], NULL, 5000, SPLICE_F_MORE));
	smc_note_result(notes, "rest", splice(to[0], NULL, fd[0], NULL, LENGTH, 0));
	smc_note(notes, " recv=%d", smc_recv_all(fd[1], 5, 0, LENGTH, 7000));
	smc_note_result(notes, "teed", splice(copy[0], NULL, fd[0], NULL, LENGTH, 0));
	smc_note(notes, " recv=%d", smc_recv_all(fd[1], 5, 0, LENGTH, 7000));

	/* A file, from its position and from another one. */
	lseek(file, 0, SEEK_SET);
	smc_note_result(notes, "sendfile", sendfile(fd[0], file, NULL, 5000));
	offset = 5000;
	smc_note_result(notes, "sendfile", sendfile(fd[0], file, &offset, 2 * LENGTH));
	smc_note(notes, " offset=%ld position=%ld", (long)offset, (long)lseek(file, 0, SEEK_CUR));
	smc_note_result(notes, "at end", sendfile(fd[0], file, &offset, 10));
	smc_note(notes, " recv=%d", smc_recv_all(fd[1], 5, 0, LENGTH, 7000));

	/* Into a file, with and without a pipe of one's own. */
	smc_note(notes, " send=%d", smc_send_all(fd[0], 6, 0, 4000, 4000));
	smc_settle(fd);
	smc_note_result(notes, "to file", sendfile(sink, fd[1], NULL, 4000));
	smc_note_result(notes, "pread", pread(sink, back, 4000, 0));
	smc_note(notes, " wrong=%zd", smc_find_wrong(back, 4000, 6, 0));
	smc_note(notes, " send=%d", smc_send_all(fd[0], 6, 4000, 4000, 4000));
	smc_settle(fd);
	smc_note_result(notes, "to pipe", splice(fd[1], NULL, to[1], NULL, 4000, SPLICE_F_MOVE));
	offset = 4000;
	smc_note_result(notes, "on", splice(to[0], NULL, sink, &offset, 4000, SPLICE_F_MOVE));
	smc_note_result(notes, "pread", pread(sink, back, 8000, 0));
	smc_note(notes, " wrong=%zd", smc_find_wrong(back, 8000, 6, 0));

	/* Ends that do not go together. */
	smc_note_result(notes, "socket", splice(fd[0], NULL, fd[1], NULL, 10, 0));
	smc_note_result(notes, "file", splice(file, NULL, fd[1], NULL, 10, 0));
	smc_note_result(notes, "offset", splice(to[0], NULL, fd[0], &offset, 10, 0));
	smc_note_result(notes, "tee", tee(fd[1], to[1], 10, 0));
	smc_note_result(notes, "tee", tee(to[0], fd[1], 10, 0));
	smc_note_result(notes, "socket to socket", sendfile(fd[0], fd[0], NULL, 0));

	/* A pipe without room, and one without data. */
	fcntl(to[1], F_SETFL, O_NONBLOCK);
	while (write(to[1], data, 4096) > 0)
		;
	send(fd[0], "x", 1, 0);
	smc_settle(fd);
	smc_note_result(notes, "full pipe",
			splice(fd[1], NULL, to[1], NULL, 1, SPLICE_F_NONBLOCK));
	smc_note_result(notes, "recv", recv(fd[1], back, 10, MSG_DONTWAIT));
	smc_note_result(notes, "empty pipe",
			splice(copy[0], NULL, fd[0], NULL, 1, SPLICE_F_NONBLOCK));
	close(copy[1]);
	copy[1] = -1;
	smc_note_result(notes, "ended pipe", splice(copy[0], NULL, fd[0], NULL, 1, 0));

	/* A socket without room: what is in the pipe stays there. */
	smc_set_nonblock(fd[0], true);
	while (send(fd[0], data, LENGTH, 0) > 0)
		;
	while (send(fd[0], data, 1, 0) > 0)
		;
	smc_note_result(notes, "full", splice(to[0], NULL, fd[0], NULL, 100, 0));
	offset = 0;
	smc_note_result(notes, "full", sendfile(fd[0], file, &offset, 100));
	smc_note(notes, " offset=%ld", (long)offset);
	while ((ret = recv(fd[1], back, LENGTH, MSG_DONTWAIT)) > 0)
		smc_settle(fd);
	smc_note_result(notes, "drained", ret);
	smc_note_result(notes, "again", splice(to[0], NULL, fd[0], NULL, 100, 0));
	smc_settle(fd);
	smc_note_result(notes, "recv", recv(fd[1], back, 200, MSG_DONTWAIT));

	/* Shut down, and reset. */
	shutdown(fd[0], SHUT_WR);
	smc_note_result(notes, "shut", splice(to[0], NULL, fd[0], NULL, 100, 0));
	offset = 0;
	smc_note_result(notes, "shut", sendfile(fd[0], file, &offset, 100));
	smc_settle(fd);
	smc_note_result(notes, "end to file", sendfile(sink, fd[1], NULL, 100));
	smc_set_linger(fd[0], 0);
	close(fd[0]);
	fd[0] = -1;
	smc_settle(fd);
	smc_note_result(notes, "reset", splice(to[0], NULL, fd[1], NULL, 100, 0));
	smc_note_result(notes, "reset", sendfile(fd[1], file, &offset, 100));
	smc_note_result(notes, "reset to file", sendfile(sink, fd[1], NULL, 100));
	smc_close_pair(fd);
	smc_close_pair(to);
	smc_close_pair(copy);
	close(file);
	close(sink);
}

TEST_F(splice, transfers_as_on_tcp)
{
	signal(SIGPIPE, SIG_IGN);
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, transfers, NULL));
}

TEST_HARNESS_MAIN
