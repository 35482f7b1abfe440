// SPDX-License-Identifier: GPL-2.0
/*
 * What socket() accepts, and what a fresh socket says of itself.
 *
 * 1. Only SOCK_STREAM exists: other types are ESOCKTNOSUPPORT.
 * 2. AF_SMC knows protocols 0 and 1 only: others are EPROTONOSUPPORT.
 * 3. SOCK_NONBLOCK and SOCK_CLOEXEC in the type take effect, also in accept4().
 * 4. SO_TYPE, SO_DOMAIN, SO_PROTOCOL and SO_ACCEPTCONN of a socket, of a
 *    listener and of an accepted child.
 * 5. socketpair() fails as on TCP.
 * 6. A TCP socket cannot be turned into SMC by TCP_ULP (CVE-2026-46330).
 * 7. Sockets that cannot be created leave nothing behind (CVE-2024-50293).
 */

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include "kselftest_harness.h"
#include "smc_test.h"

/* 0 or the errno of socket(). */
static int create_error(int domain, int type, int protocol)
{
	int fd = socket(domain, type, protocol);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int int_option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -errno : value;
}

FIXTURE(arguments)
{
};

FIXTURE_SETUP(arguments)
{
	if (!smc_can_run(&smc_ends_smc))
		SKIP(return, "no SMC in this kernel");
}

FIXTURE_TEARDOWN(arguments)
{
}

TEST_F(arguments, only_streams)
{
	static const int types[] = { SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		EXPECT_EQ(ESOCKTNOSUPPORT, create_error(AF_SMC, types[i], SMCPROTO_SMC));
		EXPECT_EQ(ESOCKTNOSUPPORT, create_error(AF_SMC, types[i], SMCPROTO_SMC6));
	}
	/* AF_INET itself finds no protocol of this type. */
	EXPECT_NE(0, create_error(AF_INET, SOCK_DGRAM, IPPROTO_SMC));
	EXPECT_NE(0, create_error(AF_INET6, SOCK_DGRAM, IPPROTO_SMC));
}

TEST_F(arguments, only_two_protocols)
{
	static const int protocols[] = { 2, 3, IPPROTO_TCP, IPPROTO_UDP, 255, IPPROTO_SMC, 65535 };

	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
		EXPECT_EQ(EPROTONOSUPPORT, create_error(AF_SMC, SOCK_STREAM, protocols[i]));
	EXPECT_EQ(0, create_error(AF_SMC, SOCK_STREAM, SMCPROTO_SMC));
	EXPECT_EQ(0, create_error(AF_SMC, SOCK_STREAM, SMCPROTO_SMC6));
	EXPECT_EQ(0, create_error(AF_INET, SOCK_STREAM, IPPROTO_SMC));
	EXPECT_EQ(0, create_error(AF_INET6, SOCK_STREAM, IPPROTO_SMC));
	EXPECT_EQ(EPROTONOSUPPORT, create_error(AF_INET, SOCK_STREAM, IPPROTO_SMC - 1));
}

TEST_F(arguments, refused_sockets_leave_nothing)
{
	int before = smc_sockets_in_use();

	for (int i = 0; i < 1000; i++) {
		ASSERT_EQ(ESOCKTNOSUPPORT, create_error(AF_SMC, SOCK_DGRAM, 0));
		ASSERT_EQ(EPROTONOSUPPORT, create_error(AF_SMC, SOCK_STREAM, 2));
	}
	EXPECT_EQ(before, smc_sockets_in_use());
}

TEST_F(arguments, out_of_descriptors)
{
	struct rlimit limit, none = { 0, 0 };
	int before = smc_sockets_in_use();

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	none.rlim_max = limit.rlim_max;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	for (int i = 0; i < 1000; i++) {
		ASSERT_EQ(EMFILE, create_error(AF_SMC, SOCK_STREAM, i % 2));
		ASSERT_EQ(EMFILE, create_error(AF_INET, SOCK_STREAM, IPPROTO_SMC));
	}
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT_EQ(before, smc_sockets_in_use());
}

TEST_F(arguments, tcp_is_not_converted)
{
	struct sockaddr_storage addr;
	int fd, listener;
	socklen_t len;

	listener = smc_listen(&smc_ends_tcp, 1, &addr, &len);
	ASSERT_LE(0, listener);
	fd = smc_connect(&smc_ends_tcp, &addr, len);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-1, setsockopt(fd, SOL_TCP, TCP_ULP, "smc", 3));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(SMC_MODE_PLAIN, smc_mode(fd));
	close(fd);
	close(listener);
}

FIXTURE(created)
{
	int fd;
};

FIXTURE_VARIANT(created)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(created, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(created, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(created, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(created, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(created, tcp6) { .ends = &smc_ends_tcp6 };
FIXTURE_VARIANT_ADD(created, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(created, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(created, af_smc6) { .ends = &smc_ends_af_smc6 };
FIXTURE_VARIANT_ADD(created, mixed) { .ends = &smc_ends_mixed };

FIXTURE_SETUP(created)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	self->fd = smc_socket(&variant->ends->client, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(created)
{
	close(self->fd);
}

TEST_F(created, flags_in_the_type)
{
	static const int flags[] = { 0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		int fd = smc_socket(&variant->ends->client, flags[i]);

		ASSERT_LE(0, fd);
		EXPECT_EQ(!!(flags[i] & SOCK_NONBLOCK), !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
		EXPECT_EQ(flags[i] & SOCK_CLOEXEC ? FD_CLOEXEC : 0, fcntl(fd, F_GETFD));
		close(fd);
	}
}

TEST_F(created, flags_of_accept4)
{
	static const int flags[] = { 0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC };
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;

	listener = smc_listen(variant->ends, 8, &addr, &len);
	ASSERT_LE(0, listener);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		int fd[2];

		fd[0] = smc_connect(variant->ends, &addr, len);
		ASSERT_LE(0, fd[0]);
		fd[1] = accept4(listener, NULL, NULL, flags[i]);
		ASSERT_LE(0, fd[1]);
		EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
		EXPECT_EQ(!!(flags[i] & SOCK_NONBLOCK), !!(fcntl(fd[1], F_GETFL) & O_NONBLOCK));
		EXPECT_EQ(flags[i] & SOCK_CLOEXEC ? FD_CLOEXEC : 0, fcntl(fd[1], F_GETFD));
		smc_close_pair(fd);
	}
	EXPECT_EQ(-1, accept4(listener, NULL, NULL, 1 << 20));
	EXPECT_EQ(EINVAL, errno);
	close(listener);
}

TEST_F(created, what_it_says_of_itself)
{
	const struct smc_end *client = &variant->ends->client;
	const struct smc_end *server = &variant->ends->server;
	int protocol = client->domain != AF_SMC && !client->protocol ? IPPROTO_TCP :
								       client->protocol;
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;

	EXPECT_EQ(SOCK_STREAM, int_option(self->fd, SO_TYPE));
	EXPECT_EQ(client->domain, int_option(self->fd, SO_DOMAIN));
	EXPECT_EQ(protocol, int_option(self->fd, SO_PROTOCOL));
	EXPECT_EQ(0, int_option(self->fd, SO_ACCEPTCONN));

	listener = smc_listen(variant->ends, 8, &addr, &len);
	ASSERT_LE(0, listener);
	EXPECT_EQ(1, int_option(listener, SO_ACCEPTCONN));
	ASSERT_EQ(0, smc_pair_from(variant->ends, listener, &addr, len, fd));
	EXPECT_EQ(0, int_option(fd[1], SO_ACCEPTCONN));
	EXPECT_EQ(SOCK_STREAM, int_option(fd[1], SO_TYPE));
	EXPECT_EQ(server->domain, int_option(fd[1], SO_DOMAIN));
	EXPECT_EQ(int_option(listener, SO_PROTOCOL), int_option(fd[1], SO_PROTOCOL));
	smc_close_pair(fd);
	close(listener);
}

TEST_F(created, no_socketpair)
{
	const struct smc_end *end = &variant->ends->client;
	int fd[2];

	EXPECT_EQ(-1, socketpair(end->domain, SOCK_STREAM, end->protocol, fd));
	EXPECT_EQ(EOPNOTSUPP, errno);
}

TEST_HARNESS_MAIN
