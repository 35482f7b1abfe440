// SPDX-License-Identifier: GPL-2.0
/*
 * A connection that cannot be made says why, once, and the socket lives on.
 *
 * 1. Blocking connect to a closed port: ECONNREFUSED.
 * 2. Non-blocking: the poll mask and SO_ERROR of TCP; the error is read once.
 * 3. The same through epoll armed before, and by a send instead of SO_ERROR.
 * 4. A second connect on the same socket to a listener succeeds, as on TCP.
 * 5. ENETUNREACH and EINVAL/EAFNOSUPPORT for addresses that cannot be reached.
 */

#include <errno.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(connect_refused)
{
	struct sockaddr_storage addr;
	socklen_t len;
};

FIXTURE_VARIANT(connect_refused)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(connect_refused, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(connect_refused, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(connect_refused, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(connect_refused, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(connect_refused, tcp6) { .ends = &smc_ends_tcp6 };
FIXTURE_VARIANT_ADD(connect_refused, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(connect_refused, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(connect_refused, af_smc6) { .ends = &smc_ends_af_smc6 };

FIXTURE_SETUP(connect_refused)
{
	int fd;

	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	/* A port that was just free has no listener. */
	fd = smc_listen(variant->ends, 1, &self->addr, &self->len);
	ASSERT_LE(0, fd);
	close(fd);
}

FIXTURE_TEARDOWN(connect_refused)
{
}

/* The closed port, as the argument of a scenario. */
struct target {
	const struct sockaddr_storage *addr;
	socklen_t len;
};

static void blocking(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct target *target = arg;
	int fd = smc_socket(&ends->client, 0);
	char byte;

	for (int i = 0; i < 2; i++)
		smc_note_result(notes, "connect",
				connect(fd, (struct sockaddr *)target->addr, target->len));
	smc_note(notes, " error=%d", smc_error(fd));
	smc_note_poll(notes, fd);
	smc_note_result(notes, "send", send(fd, "x", 1, MSG_NOSIGNAL));
	smc_note_result(notes, "recv", recv(fd, &byte, 1, MSG_DONTWAIT));
	close(fd);
}

static void non_blocking(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct target *target = arg;
	int fd = smc_socket(&ends->client, SOCK_NONBLOCK);
	char byte;

	smc_note_poll(notes, fd);
	smc_note_result(notes, "connect",
			connect(fd, (struct sockaddr *)target->addr, target->len));
	smc_poll(fd, POLLERR, SMC_TIMEOUT_MS);
	smc_note_poll(notes, fd);
	smc_note(notes, " error=%d", smc_error(fd));
	smc_note(notes, " error=%d", smc_error(fd));
	smc_note_poll(notes, fd);
	smc_note_result(notes, "send", send(fd, "x", 1, MSG_NOSIGNAL));
	smc_note_result(notes, "recv", recv(fd, &byte, 1, 0));
	smc_note_result(notes, "connect",
			connect(fd, (struct sockaddr *)target->addr, target->len));
	close(fd);
}

/* Who asks first gets the error: here recv, send or connect. */
static void error_by_call(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct target *target = arg;

	for (int who = 0; who < 3; who++) {
		int fd = smc_socket(&ends->client, SOCK_NONBLOCK);
		char byte;

		smc_note_result(notes, "connect",
				connect(fd, (struct sockaddr *)target->addr, target->len));
		smc_poll(fd, POLLERR, SMC_TIMEOUT_MS);
		if (who == 0)
			smc_note_result(notes, "recv", recv(fd, &byte, 1, 0));
		else if (who == 1)
			smc_note_result(notes, "send", send(fd, "x", 1, MSG_NOSIGNAL));
		else
			smc_note_result(notes, "connect",
					connect(fd, (struct sockaddr *)target->addr,
						target->len));
		smc_note(notes, " error=%d", smc_error(fd));
		smc_note_poll(notes, fd);
		close(fd);
	}
}

static void unreachable(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(1),
		.sin6_addr = { .s6_addr = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 } },
	};
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = htons(1),
		.sin_addr.s_addr = htonl(0xcb007101),
	};
	int fd = smc_socket(&ends->client, SOCK_NONBLOCK);

	if (ends->family == AF_INET6)
		smc_note_result(notes, "connect",
				connect(fd, (struct sockaddr *)&in6, sizeof(in6)));
	else
		smc_note_result(notes, "connect",
				connect(fd, (struct sockaddr *)&in, sizeof(in)));
	smc_note(notes, " error=%d", smc_error(fd));
	smc_note_poll(notes, fd);
	close(fd);
}

TEST_F(connect_refused, blocking_as_on_tcp)
{
	struct target target = { &self->addr, self->len };
	int fd = smc_socket(&variant->ends->client, 0);

	ASSERT_EQ(-1, connect(fd, (struct sockaddr *)&self->addr, self->len));
	EXPECT_EQ(ECONNREFUSED, errno);
	close(fd);
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, blocking, &target));
}

TEST_F(connect_refused, non_blocking_as_on_tcp)
{
	struct target target = { &self->addr, self->len };

	EXPECT_TRUE(smc_same_as_tcp(variant->ends, non_blocking, &target));
}

TEST_F(connect_refused, first_caller_gets_the_error_as_on_tcp)
{
	struct target target = { &self->addr, self->len };

	EXPECT_TRUE(smc_same_as_tcp(variant->ends, error_by_call, &target));
}

TEST_F(connect_refused, unreachable_as_on_tcp)
{
	/* A namespace without routes, so that no packet leaves the machine. */
	ASSERT_EQ(0, smc_netns_new());
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, unreachable, NULL));
}

TEST_F(connect_refused, a_later_connect_succeeds)
{
	int fd[2], listener;

	fd[0] = smc_socket(&variant->ends->client, 0);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(-1, connect(fd[0], (struct sockaddr *)&self->addr, self->len));
	ASSERT_EQ(ECONNREFUSED, errno);
	listener = smc_listen(variant->ends, 1, &self->addr, &self->len);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, connect(fd[0], (struct sockaddr *)&self->addr, self->len));
	fd[1] = smc_accept(listener);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
	close(listener);
}

TEST_HARNESS_MAIN
