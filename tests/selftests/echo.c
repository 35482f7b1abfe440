// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes arrive as they were sent, whatever their number and the size of calls.
 *
 * 1. A message of every size from 1 byte to 64 MiB comes back unchanged.
 * 2. Both directions carry different streams at once, neither waits for the
 *    other.
 * 3. The sizes of send and recv calls need not match.
 * 4. Connections side by side keep their streams apart, also around the size of
 *    a ring (CVE-2026-72018).
 */

#include <errno.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define KIB	1024ULL
#define MIB	(1024 * KIB)

FIXTURE(echo)
{
	int fd[2];
};

FIXTURE_VARIANT(echo)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(echo, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(echo, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(echo, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(echo, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(echo, tcp6) { .ends = &smc_ends_tcp6 };
FIXTURE_VARIANT_ADD(echo, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(echo, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(echo, af_smc6) { .ends = &smc_ends_af_smc6 };
FIXTURE_VARIANT_ADD(echo, mixed) { .ends = &smc_ends_mixed };

FIXTURE_SETUP(echo)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(echo)
{
	smc_close_pair(self->fd);
}

/* @bytes there and, once all have arrived, back again. */
static int there_and_back(const int fd[2], uint64_t bytes, size_t chunk)
{
	for (int from = 0; from < 2; from++) {
		struct smc_stream sender = {
			.fd = fd[from], .sender = true, .seed = bytes + from,
			.bytes = bytes, .chunk = chunk,
		};
		int ret, sent;

		ret = smc_stream_start(&sender);
		if (ret)
			return ret;
		ret = smc_recv_all(fd[!from], bytes + from, 0, bytes, chunk);
		if (ret)
			shutdown(fd[!from], SHUT_RDWR);
		sent = smc_stream_join(&sender);
		if (ret || sent)
			return ret ? ret : sent;
	}
	return 0;
}

TEST_F(echo, small_sizes)
{
	for (uint64_t bytes = 1; bytes <= 300; bytes++) {
		ASSERT_EQ(0, there_and_back(self->fd, bytes, bytes))
			TH_LOG("size %llu", (unsigned long long)bytes);
	}
}

TEST_F(echo, sizes_around_powers_of_two)
{
	for (uint64_t size = 512; size <= MIB; size *= 2) {
		for (int off = -1; off <= 1; off++) {
			ASSERT_EQ(0, there_and_back(self->fd, size + off, size + off))
				TH_LOG("size %llu", (unsigned long long)size + off);
		}
	}
}

TEST_F_TIMEOUT(echo, sixty_four_mebibytes, 300)
{
	/* The full size where it matters; the others differ by how they were opened. */
	bool full = variant->ends == &smc_ends_tcp || variant->ends == &smc_ends_smc;

	ASSERT_EQ(0, there_and_back(self->fd, (full ? 64 : 4) * MIB, 256 * KIB));
}

TEST_F_TIMEOUT(echo, both_directions_at_once, 300)
{
	uint64_t bytes = smc_parameter("SMC_TEST_BYTES", 8 * MIB);
	struct smc_stream stream[4];
	int ret[4];

	for (int i = 0; i < 4; i++) {
		stream[i] = (struct smc_stream) {
			.fd = self->fd[i % 2], .sender = i < 2,
			/* What 0 sends 1 receives, and the other way round. */
			.seed = i < 2 ? i : !(i % 2), .bytes = bytes,
			.chunk = 37 * KIB + i * 11 * KIB,
		};
		ASSERT_EQ(0, smc_stream_start(&stream[i]));
	}
	for (int i = 0; i < 4; i++)
		ret[i] = smc_stream_join(&stream[i]);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, ret[i]);
}

TEST_F_TIMEOUT(echo, call_sizes_need_not_match, 120)
{
	static const size_t sizes[][2] = {
		{ 1, 4096 }, { 4096, 1 }, { 7, 13 }, { 1000, 65536 },
		{ 65537, 999 }, { 300000, 100000 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t bytes = sizes[i][0] < 10 || sizes[i][1] < 10 ? 20000 : 2 * MIB;
		struct smc_stream sender = {
			.fd = self->fd[0], .sender = true, .seed = i,
			.bytes = bytes, .chunk = sizes[i][0],
		};

		ASSERT_EQ(0, smc_stream_start(&sender));
		EXPECT_EQ(0, smc_recv_all(self->fd[1], i, 0, bytes, sizes[i][1]));
		ASSERT_EQ(0, smc_stream_join(&sender));
	}
}

TEST_F(echo, neighbours_are_untouched)
{
	static const int ring[] = { 16 * 1024, 64 * 1024, 1024 * 1024 };
	int left[2], right[2];

	ASSERT_EQ(0, smc_pair(variant->ends, left));
	ASSERT_EQ(0, smc_pair(variant->ends, right));
	for (size_t i = 0; i < ARRAY_SIZE(ring); i++) {
		/* Unread bytes lie in both neighbours meanwhile. */
		ASSERT_EQ(0, smc_send_all(left[0], 1, i * 1000, 1000, 1000));
		ASSERT_EQ(0, smc_send_all(right[0], 2, i * 1000, 1000, 1000));
		ASSERT_EQ(0, there_and_back(self->fd, ring[i] - 1, ring[i] - 1));
		ASSERT_EQ(0, there_and_back(self->fd, ring[i], ring[i]));
		ASSERT_EQ(0, there_and_back(self->fd, ring[i] + 1, ring[i] + 1));
		ASSERT_EQ(0, there_and_back(self->fd, 3 * ring[i], 3 * ring[i]));
		ASSERT_EQ(0, smc_recv_all(left[1], 1, i * 1000, 1000, 1000));
		ASSERT_EQ(0, smc_recv_all(right[1], 2, i * 1000, 1000, 1000));
	}
	smc_close_pair(left);
	smc_close_pair(right);
}

TEST_HARNESS_MAIN
