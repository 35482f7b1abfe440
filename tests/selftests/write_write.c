// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that write much before either reads work as on TCP.
 *
 * 1. Each end writes 2 MiB with blocking calls before either reads a byte; TCP
 *    takes that much into its buffers, so no call may block for ever.
 * 2. The bytes are all there afterwards, in order.
 * 3. An end that does not read takes about as much as on TCP, not many times as
 *    much: a slow reader must slow its sender down.
 * 4. With both directions full, readers at both ends drain them together
 *    without a stall (a receive handler that sends dead-locked here).
 */

#include <errno.h>
#include <inttypes.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define MIB	(1024 * 1024)

FIXTURE(write_write)
{
	int fd[2];
};

FIXTURE_VARIANT(write_write)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(write_write, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(write_write, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(write_write, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(write_write, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(write_write, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(write_write)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(write_write)
{
	smc_close_pair(self->fd);
}

TEST_F(write_write, two_mebibytes_each_before_any_read)
{
	const struct timeval patience = { .tv_sec = 60 };

	/* A send that blocks returns EAGAIN at last, and the test fails. */
	for (int end = 0; end < 2; end++)
		ASSERT_EQ(0, setsockopt(self->fd[end], SOL_SOCKET, SO_SNDTIMEO, &patience,
					sizeof(patience)));
	for (int end = 0; end < 2; end++)
		ASSERT_EQ(0, smc_send_all(self->fd[end], end, 0, 2 * MIB, 64 * 1024));
	for (int end = 0; end < 2; end++)
		ASSERT_EQ(0, smc_recv_all(self->fd[!end], end, 0, 2 * MIB, 100 * 1024));
}

/* Bytes that @fd takes before it would block. */
static uint64_t fill_up(int fd, uint64_t seed)
{
	static char buf[8192];
	uint64_t pos = 0;
	ssize_t ret;

	for (;;) {
		smc_fill(buf, sizeof(buf), seed, pos);
		ret = send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret < 0)
			return errno == EAGAIN ? pos : 0;
		pos += ret;
	}
}

TEST_F(write_write, as_much_fits_unread_as_on_tcp)
{
	uint64_t filled, filled_tcp;
	int tcp[2];

	ASSERT_EQ(0, smc_pair(&smc_ends_tcp, tcp));
	filled_tcp = fill_up(tcp[0], 1);
	filled = fill_up(self->fd[0], 1);
	TH_LOG("%" PRIu64 " bytes, on TCP %" PRIu64, filled, filled_tcp);
	/* Two of TCP differ, too. */
	EXPECT_LE(filled_tcp * 3 / 4, filled);
	EXPECT_GE(filled_tcp * 2, filled);
	smc_close_pair(tcp);
}

TEST_F(write_write, both_full_then_drained_together)
{
	struct smc_stream stream[4];
	uint64_t filled[2];
	int ret[4];

	for (int end = 0; end < 2; end++) {
		filled[end] = fill_up(self->fd[end], end);
		ASSERT_LT(0, filled[end]);
		EXPECT_EQ(0, smc_poll(self->fd[end], POLLOUT, 0));
	}
	/* What lies there already is read first, and more is written meanwhile. */
	for (int i = 0; i < 2; i++) {
		stream[i] = (struct smc_stream) {
			.fd = self->fd[!i], .seed = i, .bytes = filled[i], .chunk = 65536,
		};
		ASSERT_EQ(0, smc_stream_start(&stream[i]));
	}
	for (int i = 2; i < 4; i++) {
		stream[i] = (struct smc_stream) {
			.fd = self->fd[i - 2], .sender = true, .seed = i,
			.bytes = 4 * MIB, .chunk = 65536,
		};
		ASSERT_EQ(0, smc_stream_start(&stream[i]));
	}
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, smc_stream_join(&stream[i]));
		stream[i] = (struct smc_stream) {
			.fd = self->fd[!i], .seed = i + 2, .bytes = 4 * MIB, .chunk = 65536,
		};
		ASSERT_EQ(0, smc_stream_start(&stream[i]));
	}
	for (int i = 0; i < 4; i++)
		ret[i] = smc_stream_join(&stream[i]);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, ret[i]);
}

TEST_HARNESS_MAIN
