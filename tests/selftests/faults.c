// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is refused at any point of a call leaves a clear result.
 *
 * For every allocation that socket, bind, listen, connect, accept, send, recv,
 * poll and close make, that one is refused (fail-nth of the kernel's fault
 * injection, which the debug kernel has).
 *
 * 1. A call succeeds or fails with ENOMEM or ENOBUFS; connect may also give a
 *    TCP connection. Nothing else.
 * 2. The same call without the refusal then succeeds, on the same socket where
 *    TCP allows it, on a new one otherwise.
 * 3. A stream in which every send and recv has a refusal somewhere loses and
 *    changes no byte.
 * 4. Nothing is left (CVE-2024-50293, CVE-2022-49905).
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "kselftest_harness.h"
#include "smc_test.h"

/* More allocations than any single call makes. */
#define MOST	400

FIXTURE(faults)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int nth;
};

FIXTURE_VARIANT(faults)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(faults, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(faults, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(faults, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(faults, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(faults, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(faults, fallback_server) { .ends = &smc_ends_fallback_server };

FIXTURE_SETUP(faults)
{
	self->listener = -1;
	self->nth = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	if (smc_allow_refusals())
		SKIP(return, "no fault injection in this kernel");
	self->nth = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_LE(0, self->nth);
	self->listener = smc_listen(variant->ends, 64, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
}

FIXTURE_TEARDOWN(faults)
{
	close(self->nth);
	close(self->listener);
}

/* The @n-th allocation of the calls that follow is refused. */
static void arm(int nth, int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", n);
	if (pwrite(nth, text, strlen(text), 0) < 0)
		perror("# fail-nth");
}

/* Ends the refusals; was there one since arm()? */
static bool disarm(int nth)
{
	char text[16] = "";
	bool refused;

	if (pread(nth, text, sizeof(text) - 1, 0) < 0)
		perror("# fail-nth");
	refused = atoi(text) == 0;
	arm(nth, 0);
	return refused;
}

static bool is_out_of_memory(int error)
{
	return error == ENOMEM || error == ENOBUFS;
}

TEST_F_TIMEOUT(faults, socket, 600)
{
	for (int n = 1; n < MOST; n++) {
		const struct smc_end *end = n % 2 ? &variant->ends->client :
						    &variant->ends->server;
		int fd, error;

		arm(self->nth, n);
		fd = socket(end->domain, SOCK_STREAM, end->protocol);
		error = errno;
		if (!disarm(self->nth)) {
			ASSERT_LE(0, fd);
			close(fd);
			return;
		}
		if (fd < 0)
			ASSERT_TRUE(is_out_of_memory(error)) TH_LOG("%d: errno %d", n, error);
		if (fd >= 0)
			close(fd);
	}
	ASSERT_TRUE(false) TH_LOG("more than %d allocations", MOST);
}

TEST_F_TIMEOUT(faults, listen, 600)
{
	for (int n = 1; n < MOST; n++) {
		struct sockaddr_storage addr;
		socklen_t len = smc_loopback(variant->ends->family, &addr);
		int fd, ret, error;
		bool refused;

		fd = smc_socket(&variant->ends->server, 0);
		ASSERT_LE(0, fd);
		arm(self->nth, n);
		ret = bind(fd, (struct sockaddr *)&addr, len);
		if (!ret)
			ret = listen(fd, 8);
		error = errno;
		refused = disarm(self->nth);
		if (ret)
			ASSERT_TRUE(is_out_of_memory(error)) TH_LOG("%d: errno %d", n, error);
		/* And again on the same socket, bound by now or not. */
		if (ret)
			ASSERT_EQ(0, listen(fd, 8));
		close(fd);
		if (!refused) {
			ASSERT_EQ(0, ret);
			return;
		}
	}
	ASSERT_TRUE(false) TH_LOG("more than %d allocations", MOST);
}

/*
 * The process context of connect runs the listener's side as well on loopback,
 * so a refusal there looks like a lost packet: the call may take a retransmission.
 */
TEST_F_TIMEOUT(faults, connect_and_accept, 900)
{
	const struct timeval limit = { .tv_sec = 5 };

	ASSERT_EQ(0, setsockopt(self->listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	for (int n = 1; n < MOST; n++) {
		int fd[2], ret, error, modes[2];
		bool refused;

		fd[0] = smc_socket(&variant->ends->client, 0);
		ASSERT_LE(0, fd[0]);
		arm(self->nth, n);
		ret = connect(fd[0], (struct sockaddr *)&self->addr, self->len);
		error = errno;
		fd[1] = ret ? -1 : accept(self->listener, NULL, NULL);
		if (!ret && fd[1] < 0)
			error = errno;
		refused = disarm(self->nth);
		if (ret || fd[1] < 0)
			ASSERT_TRUE(is_out_of_memory(error)) TH_LOG("%d: errno %d", n, error);
		/* A refused accept leaves the child in the queue. */
		if (!ret && fd[1] < 0)
			fd[1] = accept(self->listener, NULL, NULL);
		if (fd[1] >= 0) {
			for (int end = 0; end < 2; end++)
				modes[end] = smc_mode(fd[end]);
			EXPECT_EQ(modes[0] == SMC_MODE_SMCD, modes[1] == SMC_MODE_SMCD);
			ASSERT_EQ(0, smc_exchange(fd[0], fd[1], n));
			if (!refused)
				EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
			close(fd[1]);
		}
		close(fd[0]);
		if (!refused) {
			ASSERT_EQ(0, ret);
			return;
		}
	}
	ASSERT_TRUE(false) TH_LOG("more than %d allocations", MOST);
}

TEST_F_TIMEOUT(faults, send_and_receive, 900)
{
	static const size_t sizes[] = { 1, 5000, 70000, 300000 };
	static char buf[300000];
	uint64_t pos = 0;
	int fd[2];

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (int n = 1; n < 100; n++) {
			uint64_t end;
			ssize_t ret;
			int error;
			bool refused;

			/* Fresh connections at times: the first ring comes with the first byte. */
			if (n % 10 == 1) {
				pos = 0;
				ASSERT_EQ(0, smc_pair(variant->ends, fd));
			}
			smc_fill(buf, sizes[i], 51, pos);
			arm(self->nth, n);
			ret = send(fd[0], buf, sizes[i], MSG_NOSIGNAL | MSG_DONTWAIT);
			error = errno;
			refused = disarm(self->nth);
			if (ret < 0)
				ASSERT_TRUE(is_out_of_memory(error) || error == EAGAIN)
					TH_LOG("send %zu, %d: errno %d", sizes[i], n, error);
			end = pos + (ret > 0 ? ret : 0);
			while (pos < end) {
				arm(self->nth, n);
				ret = recv(fd[1], buf, sizeof(buf), 0);
				error = errno;
				refused |= disarm(self->nth);
				if (ret < 0) {
					ASSERT_TRUE(is_out_of_memory(error))
						TH_LOG("recv, %d: errno %d", n, error);
					continue;
				}
				ASSERT_LT(0, ret);
				ASSERT_EQ(-1, smc_find_wrong(buf, ret, 51, pos));
				pos += ret;
			}
			if (n % 10 == 0) {
				ASSERT_EQ(0, smc_exchange(fd[1], fd[0], n));
				smc_close_pair(fd);
			}
			if (!refused && n > 10)
				break;
		}
		smc_close_pair(fd);
	}
}

TEST_F_TIMEOUT(faults, close_and_shutdown, 600)
{
	for (int n = 1; n < 40; n++) {
		int fd[2];

		ASSERT_EQ(0, smc_pair(variant->ends, fd));
		ASSERT_EQ(0, smc_send_all(fd[0], n, 0, 2000, 2000));
		arm(self->nth, n);
		if (n % 2)
			shutdown(fd[0], SHUT_WR);
		close(fd[0]);
		disarm(self->nth);
		fd[0] = -1;
		/* Bytes that were accepted arrive, and the end does. */
		ASSERT_EQ(0, smc_recv_all(fd[1], n, 0, 2000, 500));
		ASSERT_EQ(0, smc_recv_eof(fd[1]));
		smc_close_pair(fd);
	}
}

TEST_HARNESS_MAIN
