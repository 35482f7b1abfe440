// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a stream comes after its last byte, never before, never without.
 *
 * 1. The writer sends and closes at once while the reader sleeps, spins or has
 *    not begun: every byte, then end of file.
 * 2. The same with shutdown(SHUT_WR) and with both ends writing.
 * 3. End of file stays: every further recv() says it again.
 * 4. Corked bytes leave with the close, which does not wait (SMC: corked data in
 *    the ring at close).
 *
 * SMC_TEST_ROUNDS sets the number of rounds (default 200).
 */

#include <errno.h>
#include <netinet/tcp.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(eof)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int fd[2];
	long rounds;
};

FIXTURE_VARIANT(eof)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(eof, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(eof, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(eof, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(eof, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(eof, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(eof, smc6) { .ends = &smc_ends_smc6 };

FIXTURE_SETUP(eof)
{
	self->listener = -1;
	self->fd[0] = -1;
	self->fd[1] = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	self->listener = smc_listen(variant->ends, 64, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
	self->rounds = smc_parameter("SMC_TEST_ROUNDS", 200);
}

FIXTURE_TEARDOWN(eof)
{
	smc_close_pair(self->fd);
	close(self->listener);
}

/* Reads @bytes of @seed and the end of the stream, in a thread. */
struct reader {
	int fd;
	uint64_t seed;
	uint64_t bytes;
	int result;
};

static void *read_to_the_end(void *arg)
{
	struct reader *reader = arg;

	reader->result = smc_recv_all(reader->fd, reader->seed, 0, reader->bytes, 4096);
	if (!reader->result)
		reader->result = smc_recv_eof(reader->fd);
	return NULL;
}

TEST_F_TIMEOUT(eof, send_and_close_before_the_reader_begins, 1200)
{
	for (long i = 0; i < self->rounds; i++) {
		size_t bytes = 1 + i % 3000;
		int from = i & 1;

		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
		ASSERT_EQ(0, smc_send_all(self->fd[from], i, 0, bytes, bytes));
		close(self->fd[from]);
		ASSERT_EQ(0, smc_recv_all(self->fd[!from], i, 0, bytes, 1000));
		ASSERT_EQ(0, smc_recv_eof(self->fd[!from]));
		ASSERT_EQ(0, smc_recv_eof(self->fd[!from]));
		close(self->fd[!from]);
		self->fd[0] = -1;
		self->fd[1] = -1;
	}
}

TEST_F_TIMEOUT(eof, send_and_close_under_a_running_reader, 1200)
{
	for (long i = 0; i < self->rounds; i++) {
		struct reader reader = { .seed = i, .bytes = i % 7 ? 1 + i % 100 : 40000 };
		pthread_t thread;

		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
		reader.fd = self->fd[1];
		ASSERT_EQ(0, pthread_create(&thread, NULL, read_to_the_end, &reader));
		ASSERT_EQ(0, smc_send_all(self->fd[0], i, 0, reader.bytes, 977));
		close(self->fd[0]);
		self->fd[0] = -1;
		ASSERT_EQ(0, pthread_join(thread, NULL));
		ASSERT_EQ(0, reader.result) TH_LOG("round %ld", i);
		smc_close_pair(self->fd);
	}
}

TEST_F_TIMEOUT(eof, send_and_shut_down_both_ways, 1200)
{
	for (long i = 0; i < self->rounds; i++) {
		uint64_t bytes = 1 + i % 5000;

		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
		for (int end = 0; end < 2; end++) {
			ASSERT_EQ(0, smc_send_all(self->fd[end], i + end, 0, bytes, bytes));
			ASSERT_EQ(0, shutdown(self->fd[end], SHUT_WR));
		}
		for (int end = 0; end < 2; end++) {
			ASSERT_EQ(0, smc_recv_all(self->fd[!end], i + end, 0, bytes, bytes));
			ASSERT_EQ(0, smc_recv_eof(self->fd[!end]));
		}
		smc_close_pair(self->fd);
	}
}

TEST_F(eof, corked_bytes_leave_with_the_close)
{
	for (int i = 0; i < 100; i++) {
		int on = 1, off = 0;

		ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
					   self->len, self->fd));
		if (i % 2)
			ASSERT_EQ(0, setsockopt(self->fd[0], SOL_TCP, TCP_CORK, &on, sizeof(on)));
		for (int j = 0; j < 50; j++) {
			char buf[11];

			smc_fill(buf, sizeof(buf), i, j * sizeof(buf));
			ASSERT_EQ(sizeof(buf), send(self->fd[0], buf, sizeof(buf),
						    i % 2 ? 0 : MSG_MORE));
			if (i % 3 == 0)
				ASSERT_EQ(0, setsockopt(self->fd[0], SOL_TCP, TCP_NODELAY,
							j % 2 ? &on : &off, sizeof(on)));
		}
		close(self->fd[0]);
		self->fd[0] = -1;
		ASSERT_EQ(0, smc_recv_all(self->fd[1], i, 0, 550, 550));
		ASSERT_EQ(0, smc_recv_eof(self->fd[1]));
		smc_close_pair(self->fd);
	}
}

TEST_HARNESS_MAIN
