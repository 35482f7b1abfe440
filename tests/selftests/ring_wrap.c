// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a ring splits a message at any byte without harm.
 *
 * 1. After every number of bytes up to the largest first ring, a message that
 *    may lie across the end arrives whole; the reader lags, so that the ring is
 *    never empty and never starts anew.
 * 2. The same with one fixed ring size from SO_RCVBUF and SO_SNDBUF.
 * 3. Peeked bytes across the end equal the bytes read afterwards.
 * 4. A stream of odd message sizes passes the end at every offset many times.
 */

#include <errno.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define RING	(64 * 1024)
#define LAG	100

FIXTURE(ring_wrap)
{
	int fd[2];
};

FIXTURE_VARIANT(ring_wrap)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(ring_wrap, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(ring_wrap, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(ring_wrap, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(ring_wrap, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(ring_wrap, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(ring_wrap)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(ring_wrap)
{
	smc_close_pair(self->fd);
}

/* Messages of @len, each one byte further on, while LAG bytes stay unread. */
static int every_offset(const int fd[2], size_t ring, size_t len)
{
	uint64_t end = 2 * ring;
	uint64_t sent = 0, read = 0;
	int ret;

	ret = smc_send_all(fd[0], ring, sent, LAG, LAG);
	for (sent = LAG; !ret && sent < end; sent += len) {
		ret = smc_send_all(fd[0], ring, sent, len, len);
		if (ret)
			break;
		ret = smc_recv_all(fd[1], ring, read, len, len);
		read += len;
	}
	return ret ? ret : smc_recv_all(fd[1], ring, read, sent - read, LAG);
}

TEST_F(ring_wrap, every_offset_of_the_first_ring)
{
	/* Sizes without a common factor with the ring reach every offset. */
	ASSERT_EQ(0, every_offset(self->fd, RING, 7));
	ASSERT_EQ(0, every_offset(self->fd, 16 * RING, 333));
	ASSERT_EQ(0, every_offset(self->fd, 16 * RING, 4099));
}

TEST_F(ring_wrap, every_offset_of_a_small_ring)
{
	int size = 16 * 1024, fd[2], listener;
	struct sockaddr_storage addr;
	socklen_t len;

	listener = smc_listen(variant->ends, 1, &addr, &len);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
	ASSERT_EQ(0, setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	fd[0] = smc_socket(&variant->ends->client, 0);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(0, setsockopt(fd[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
	ASSERT_EQ(0, setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	ASSERT_EQ(0, connect(fd[0], (struct sockaddr *)&addr, len));
	fd[1] = smc_accept(listener);
	ASSERT_LE(0, fd[1]);
	ASSERT_EQ(0, smc_check_modes(variant->ends, fd));
	EXPECT_EQ(0, every_offset(fd, size, 1));
	EXPECT_EQ(0, every_offset(fd, 8 * size, 1021));
	smc_close_pair(fd);
	close(listener);
}

TEST_F(ring_wrap, peek_across_the_end)
{
	char peeked[600], read[600];
	uint64_t pos = 0;

	ASSERT_EQ(0, smc_send_all(self->fd[0], 5, 0, LAG, LAG));
	for (int i = 0; i < 2000; i++) {
		ASSERT_EQ(0, smc_send_all(self->fd[0], 5, LAG + pos, 599, 599));
		ASSERT_EQ(599, recv(self->fd[1], peeked, 599, MSG_PEEK | MSG_WAITALL));
		ASSERT_EQ(-1, smc_find_wrong(peeked, 599, 5, pos));
		ASSERT_EQ(599, recv(self->fd[1], read, 599, MSG_WAITALL));
		ASSERT_EQ(0, memcmp(peeked, read, 599));
		pos += 599;
	}
}

TEST_F(ring_wrap, odd_sizes_in_a_long_stream)
{
	static const size_t chunk[] = { 1009, 8191, 65537, 131071 };

	for (size_t i = 0; i < ARRAY_SIZE(chunk); i++) {
		struct smc_stream sender = {
			.fd = self->fd[0], .sender = true, .seed = i,
			.bytes = 4 * 1024 * 1024, .chunk = chunk[i],
		};

		ASSERT_EQ(0, smc_stream_start(&sender));
		EXPECT_EQ(0, smc_recv_all(self->fd[1], i, 0, sender.bytes, chunk[i] - 1));
		ASSERT_EQ(0, smc_stream_join(&sender));
	}
}

TEST_HARNESS_MAIN
