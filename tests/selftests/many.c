// SPDX-License-Identifier: GPL-2.0
/*
 * Many connections, living at once or one after the other.
 *
 * 1. SMC_TEST_CONNECTIONS (default 1000) connections live at once, all of them
 *    what they must be; every one carries its own stream, and they close in any
 *    order with nothing left.
 * 2. The same in two threads against one listener.
 * 3. A burst of non-blocking connects to one listener: all are established.
 * 4. The first byte of a server that writes inside its accept loop reaches every
 *    client (CDC before the buffers are known).
 * 5. SMC_TEST_THREADS (default 8) threads connect, send and close for
 *    SMC_TEST_SECONDS (default 5, six times that in variant smc); the acceptor closes after random pauses
 *    (CVE-2026-74513). No byte is wrong, and no socket is left.
 */

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define BACKLOG	4096

FIXTURE(many)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
};

FIXTURE_VARIANT(many)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(many, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(many, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(many, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(many, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(many, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(many)
{
	struct rlimit limit;

	self->listener = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	self->listener = smc_listen(variant->ends, BACKLOG, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
}

FIXTURE_TEARDOWN(many)
{
	close(self->listener);
}

/* A permutation without a pattern: index * odd constant modulo a power of two. */
static int shuffled(int index, int count)
{
	uint32_t size = 1, at = index;

	while (size < count)
		size *= 2;
	do {
		at = (at * 1664525u + 1013904223u) & (size - 1);
	} while (at >= count);
	return at;
}

TEST_F_TIMEOUT(many, a_thousand_live_at_once, 900)
{
	int count = smc_parameter("SMC_TEST_CONNECTIONS", 1000);
	int before = smc_sockets_in_use();
	int (*fd)[2] = calloc(count, sizeof(*fd));
	bool *closed = calloc(count, sizeof(*closed));

	ASSERT_NE(NULL, fd);
	ASSERT_NE(NULL, closed);
	for (int i = 0; i < count; i++) {
		/* The proof is a dump of all sockets: every one at first, then some. */
		bool prove = i < 50 || i % 50 == 0 || i == count - 1;

		if (prove) {
			ASSERT_EQ(0, smc_pair_from(variant->ends, self->listener, &self->addr,
						   self->len, fd[i]));
			continue;
		}
		fd[i][0] = smc_connect(variant->ends, &self->addr, self->len);
		ASSERT_LE(0, fd[i][0]);
		fd[i][1] = smc_accept(self->listener);
		ASSERT_LE(0, fd[i][1]);
	}
	for (int i = 0; i < count; i++)
		ASSERT_EQ(0, smc_exchange(fd[i][0], fd[i][1], i));
	for (int i = 0; i < count; i++) {
		/* Each has bytes on their way while others close. */
		ASSERT_EQ(0, smc_send_all(fd[i][0], i, 64, 200, 200));
		ASSERT_EQ(0, smc_send_all(fd[i][1], i, 64, 300, 300));
	}
	for (int i = 0; i < count; i++) {
		int at = shuffled(i, count);

		if (closed[at])
			continue;
		closed[at] = true;
		ASSERT_EQ(0, smc_recv_all(fd[at][1], at, 64, 200, 200));
		ASSERT_EQ(0, smc_recv_all(fd[at][0], at, 64, 300, 300));
		smc_close_pair(fd[at]);
	}
	for (int i = 0; i < count; i++)
		smc_close_pair(fd[i]);
	if (before >= 0) {
		/* The listener is one of them. */
		close(self->listener);
		self->listener = -1;
		EXPECT_EQ(0, smc_wait_no_sockets());
	}
	free(closed);
	free(fd);
}

TEST_F_TIMEOUT(many, burst_of_nonblocking_connects, 300)
{
	enum { BURST = 500 };
	int client[BURST], server[BURST];

	for (int i = 0; i < BURST; i++) {
		client[i] = smc_socket(&variant->ends->client, SOCK_NONBLOCK);
		ASSERT_LE(0, client[i]);
		if (connect(client[i], (struct sockaddr *)&self->addr, self->len))
			ASSERT_EQ(EINPROGRESS, errno);
	}
	for (int i = 0; i < BURST; i++) {
		ASSERT_EQ(POLLOUT, smc_poll(client[i], POLLOUT, SMC_TIMEOUT_MS));
		ASSERT_EQ(0, smc_error(client[i]));
		ASSERT_EQ(sizeof(i), send(client[i], &i, sizeof(i), 0));
	}
	for (int i = 0; i < BURST; i++) {
		int who = -1;

		server[i] = smc_accept(self->listener);
		ASSERT_LE(0, server[i]);
		ASSERT_EQ(sizeof(who), recv(server[i], &who, sizeof(who), MSG_WAITALL));
		ASSERT_LE(0, who);
		ASSERT_GT(BURST, who);
		if (i % 25 == 0) {
			ASSERT_EQ(0, smc_check_mode(server[i], variant->ends->server.mode));
			ASSERT_EQ(0, smc_check_mode(client[who], variant->ends->client.mode));
		}
	}
	for (int i = 0; i < BURST; i++) {
		close(client[i]);
		close(server[i]);
	}
}

/* What the threads of the tests below share. */
struct load {
	const struct smc_ends *ends;
	const struct sockaddr_storage *addr;
	socklen_t len;
	int listener;
	time_t until;
	/* How many connections clients began, how many were accepted, how many are done. */
	long begun, accepted;
	long connections;
	int failures;
	/* What went wrong first, and with which error. */
	const char *what;
	int ret;
};

static bool is_over(const struct load *load)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec >= load->until || __atomic_load_n(&load->failures, __ATOMIC_RELAXED);
}

static void *check(struct load *load, const char *what, int ret)
{
	if (ret && !__atomic_fetch_add(&load->failures, 1, __ATOMIC_RELAXED)) {
		load->what = what;
		load->ret = ret;
	}
	return NULL;
}

/* How many of the threads failed; says of the first one how. */
static int failures(const struct load *load)
{
	if (load->failures)
		fprintf(stderr, "# at first %s: %s\n", load->what, strerror(-load->ret));
	return load->failures;
}

/*
 * Lets at most half of the backlog wait to be accepted: a client that closes without an answer can
 * be faster than its server, and a full backlog ends in SYN cookies, with which TCP may reset a
 * connection whose first bytes it dropped.
 */
static void keep_pace(struct load *load)
{
	long begun = __atomic_add_fetch(&load->begun, 1, __ATOMIC_RELAXED);

	while (begun - __atomic_load_n(&load->accepted, __ATOMIC_RELAXED) > BACKLOG / 2 &&
	       !is_over(load))
		usleep(1000);
}

/* What is wrong with a send or receive of @len bytes that returned @ret: its error, none, or few. */
static int whole(ssize_t ret, size_t len)
{
	if (ret < 0)
		return -errno;
	if (!ret)
		return -ENODATA;
	return (size_t)ret == len ? 0 : -EMSGSIZE;
}

/* Connects, sends a stream of random length, closes; sometimes waits for an echo. */
static void *churn_client(void *arg)
{
	struct load *load = arg;
	unsigned int seed = smc_thread_id();

	while (!is_over(load)) {
		uint64_t bytes = 1 + rand_r(&seed) % 20000;
		bool echo = bytes % 3 == 0;
		int ret, fd;

		keep_pace(load);
		fd = smc_connect(load->ends, load->addr, load->len);
		if (fd < 0)
			return check(load, "connect", fd);
		/* The length comes first, so that the server knows the stream. */
		ret = whole(send(fd, &bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
		if (!ret)
			ret = smc_send_all(fd, bytes, 0, bytes, 1 + bytes / 3);
		if (!ret && echo)
			ret = smc_recv_all(fd, ~bytes, 0, 10, 10);
		close(fd);
		if (ret)
			return check(load, "the client", ret);
		__atomic_add_fetch(&load->connections, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static int serve_one(int fd, unsigned int *seed)
{
	struct timespec pause = { .tv_nsec = rand_r(seed) % 200000 };
	uint64_t bytes;
	int ret;

	ret = whole(recv(fd, &bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
	if (!ret)
		ret = smc_recv_all(fd, bytes, 0, bytes, 4096);
	if (!ret && bytes % 3 == 0)
		ret = smc_send_all(fd, ~bytes, 0, 10, 10);
	if (!ret)
		ret = smc_recv_eof(fd);
	nanosleep(&pause, NULL);
	return ret;
}

static void *churn_server(void *arg)
{
	struct load *load = arg;
	unsigned int seed = smc_thread_id();

	for (;;) {
		int ret, fd = accept(load->listener, NULL, NULL);

		/* The listener was shut down: the load is over. */
		if (fd < 0)
			return NULL;
		__atomic_add_fetch(&load->accepted, 1, __ATOMIC_RELAXED);
		ret = serve_one(fd, &seed);
		close(fd);
		if (ret)
			return check(load, "the server", ret);
	}
}

/* Clients and servers for @seconds; how many of them failed. */
static int churn(struct load *load, int seconds)
{
	int threads = smc_parameter("SMC_TEST_THREADS", 8);
	pthread_t thread[2 * threads];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	load->until = now.tv_sec + seconds;
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&thread[i], NULL, churn_client, load) ||
		    pthread_create(&thread[threads + i], NULL, churn_server, load))
			abort();
	}
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	shutdown(load->listener, SHUT_RDWR);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[threads + i], NULL);
	return failures(load);
}

TEST_F_TIMEOUT(many, churn_of_connections, 1700)
{
	struct load load = {
		.ends = variant->ends, .addr = &self->addr, .len = self->len,
		.listener = self->listener,
	};

	/* Six times as long where it matters most. */
	EXPECT_EQ(0, churn(&load, smc_parameter("SMC_TEST_SECONDS", 5) *
				  (variant->ends == &smc_ends_smc ? 6 : 1)));
	EXPECT_LT(0, load.connections);
	TH_LOG("%ld connections", load.connections);
	close(self->listener);
	self->listener = -1;
	EXPECT_EQ(0, smc_wait_no_sockets());
}

/*
 * The last ACK of a TCP connection without data looks like the third packet of a handshake by
 * cookie. If the listener takes it for one, a server gets a connection that has no client.
 */
TEST_F_TIMEOUT(many, every_connection_by_a_cookie, 120)
{
	struct load load = { .ends = variant->ends, .addr = &self->addr };

	close(self->listener);
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, smc_set_sysctl("/proc/sys/net/ipv4/tcp_syncookies", "2"));
	ASSERT_EQ(0, smc_set_sysctl("/proc/sys/net/ipv4/tcp_max_tw_buckets", "262144"));
	self->listener = smc_listen(variant->ends, BACKLOG, &self->addr, &self->len);
	ASSERT_LE(0, self->listener);
	load.listener = self->listener;
	load.len = self->len;
	EXPECT_EQ(0, churn(&load, 2));
	EXPECT_LT(0, load.connections);
	EXPECT_EQ(load.connections, load.accepted);
}

/* The acceptor closes at once, whatever the client is doing. */
static void *closing_server(void *arg)
{
	struct load *load = arg;
	unsigned int seed = smc_thread_id();

	for (;;) {
		struct timespec pause = { .tv_nsec = rand_r(&seed) % 200000 };
		int fd = accept(load->listener, NULL, NULL);

		if (fd < 0)
			return NULL;
		if (rand_r(&seed) % 2)
			nanosleep(&pause, NULL);
		if (rand_r(&seed) % 4 == 0)
			smc_set_linger(fd, 0);
		close(fd);
	}
}

static void *careless_client(void *arg)
{
	struct load *load = arg;
	unsigned int seed = smc_thread_id();

	while (!is_over(load)) {
		int fd = smc_socket(&load->ends->client, 0);
		char buf[2000];

		if (fd < 0)
			return check(load, "socket", fd);
		/* A queued child that is closed at once may reset the connect. */
		if (connect(fd, (struct sockaddr *)load->addr, load->len) == 0) {
			send(fd, buf, rand_r(&seed) % sizeof(buf), MSG_NOSIGNAL);
			if (rand_r(&seed) % 2)
				recv(fd, buf, sizeof(buf), 0);
		}
		close(fd);
		__atomic_add_fetch(&load->connections, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F_TIMEOUT(many, churn_against_a_closing_acceptor, 1700)
{
	int threads = smc_parameter("SMC_TEST_THREADS", 8);
	struct load load = {
		.ends = variant->ends, .addr = &self->addr, .len = self->len,
		.listener = self->listener,
	};
	pthread_t thread[2 * threads];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	load.until = now.tv_sec + smc_parameter("SMC_TEST_SECONDS", 5);
	for (int i = 0; i < threads; i++) {
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, careless_client, &load));
		ASSERT_EQ(0, pthread_create(&thread[threads + i], NULL, closing_server, &load));
	}
	for (int i = 0; i < threads; i++)
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
	ASSERT_EQ(0, shutdown(self->listener, SHUT_RDWR));
	for (int i = 0; i < threads; i++)
		ASSERT_EQ(0, pthread_join(thread[threads + i], NULL));
	EXPECT_EQ(0, failures(&load));
	EXPECT_LT(0, load.connections);
	close(self->listener);
	self->listener = -1;
	EXPECT_EQ(0, smc_wait_no_sockets());
}

static void *greeting_server(void *arg)
{
	struct load *load = arg;
	int fd;

	while ((fd = accept(load->listener, NULL, NULL)) >= 0) {
		send(fd, "!", 1, MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

static void *greeted_client(void *arg)
{
	struct load *load = arg;

	while (!is_over(load)) {
		char byte = 0;
		int fd = smc_connect(load->ends, load->addr, load->len);

		if (fd < 0)
			return check(load, "connect", fd);
		if (recv(fd, &byte, 1, 0) != 1 || byte != '!')
			check(load, "the first byte", -EPROTO);
		else
			check(load, "the end", smc_recv_eof(fd));
		close(fd);
		__atomic_add_fetch(&load->connections, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F_TIMEOUT(many, first_byte_of_an_accept_loop, 1700)
{
	enum { CLIENTS = 32 };
	struct load load = {
		.ends = variant->ends, .addr = &self->addr, .len = self->len,
		.listener = self->listener,
	};
	pthread_t server, client[CLIENTS];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	load.until = now.tv_sec + smc_parameter("SMC_TEST_SECONDS", 5) / 2 + 1;
	ASSERT_EQ(0, pthread_create(&server, NULL, greeting_server, &load));
	for (int i = 0; i < CLIENTS; i++)
		ASSERT_EQ(0, pthread_create(&client[i], NULL, greeted_client, &load));
	for (int i = 0; i < CLIENTS; i++)
		ASSERT_EQ(0, pthread_join(client[i], NULL));
	ASSERT_EQ(0, shutdown(self->listener, SHUT_RDWR));
	ASSERT_EQ(0, pthread_join(server, NULL));
	EXPECT_EQ(0, failures(&load));
	EXPECT_LT(0, load.connections);
}

TEST_HARNESS_MAIN
