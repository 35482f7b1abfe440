// SPDX-License-Identifier: GPL-2.0
/*
 * Listening and accepting.
 *
 * 1. connect and then accept in one thread; data and even the end of the stream
 *    sent before accept() are there after it.
 * 2. A listener that closes resets its queued children; accept() on it by
 *    another thread and connects in progress end in an error as on TCP.
 * 3. accept: time limit, EINTR, non-blocking, address arguments.
 * 4. The order of accept is the order of connect; the backlog holds.
 * 5. One connection wakes one of several accepters; EPOLLEXCLUSIVE likewise.
 * 6. listen() and accept() on sockets in the wrong state: as on TCP.
 * 7. SO_REUSEPORT spreads connections over listeners, all of them SMC.
 * 8. TCP_DEFER_ACCEPT: the child appears with its first data or the end of the
 *    stream, or in time, never when it is reset before; as on TCP.
 * 9. Children outlive their listener, plain ones included.
 * 10. IPv4 clients of a dual-stack listener, and v4-mapped addresses.
 * 11. A socket that was a client of the other IP version before it listens.
 * 12. A storm of clients, SMC and plain, while the listener closes and comes
 *     back, with and without SYN cookies (CVE-2026-23450).
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(listener)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int fd;
};

FIXTURE_VARIANT(listener)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(listener, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(listener, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(listener, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(listener, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(listener, tcp6) { .ends = &smc_ends_tcp6 };
FIXTURE_VARIANT_ADD(listener, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(listener, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(listener, af_smc6) { .ends = &smc_ends_af_smc6 };
FIXTURE_VARIANT_ADD(listener, mixed) { .ends = &smc_ends_mixed };

FIXTURE_SETUP(listener)
{
	self->fd = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	self->fd = smc_listen(variant->ends, 128, &self->addr, &self->len);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(listener)
{
	close(self->fd);
}

TEST_F(listener, data_and_end_before_accept)
{
	int fd[2];

	fd[0] = smc_connect(variant->ends, &self->addr, self->len);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(0, smc_send_all(fd[0], 31, 0, 100000, 10000));
	ASSERT_EQ(0, shutdown(fd[0], SHUT_WR));
	fd[1] = smc_accept(self->fd);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
	EXPECT_EQ(0, smc_recv_all(fd[1], 31, 0, 100000, 3000));
	EXPECT_EQ(0, smc_recv_eof(fd[1]));
	EXPECT_EQ(0, smc_send_all(fd[1], 32, 0, 5000, 5000));
	EXPECT_EQ(0, smc_recv_all(fd[0], 32, 0, 5000, 5000));
	smc_close_pair(fd);
}

TEST_F(listener, client_gone_before_accept)
{
	for (int i = 0; i < 100; i++) {
		int client = smc_connect(variant->ends, &self->addr, self->len);
		int server;

		ASSERT_LE(0, client);
		ASSERT_EQ(0, smc_send_all(client, i, 0, 1000, 1000));
		close(client);
		server = smc_accept(self->fd);
		ASSERT_LE(0, server);
		ASSERT_EQ(0, smc_recv_all(server, i, 0, 1000, 1000));
		ASSERT_EQ(0, smc_recv_eof(server));
		close(server);
	}
}

TEST_F(listener, order_and_backlog)
{
	enum { CLIENTS = 100 };
	int client[CLIENTS];

	for (int i = 0; i < CLIENTS; i++) {
		client[i] = smc_connect(variant->ends, &self->addr, self->len);
		ASSERT_LE(0, client[i]);
		ASSERT_EQ(sizeof(i), send(client[i], &i, sizeof(i), 0));
	}
	for (int i = 0; i < CLIENTS; i++) {
		int fd[2] = { client[i], smc_accept(self->fd) };
		int who = -1;

		ASSERT_LE(0, fd[1]);
		ASSERT_EQ(sizeof(who), recv(fd[1], &who, sizeof(who), MSG_WAITALL));
		EXPECT_EQ(i, who);
		EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
		smc_close_pair(fd);
	}
}

static void close_with_queue(const struct smc_ends *ends, struct smc_notes *notes,
			     const void *arg)
{
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;
	char byte;

	listener = smc_listen(ends, 8, &addr, &len);
	fd[0] = smc_connect(ends, &addr, len);
	fd[1] = smc_connect(ends, &addr, len);
	if (listener < 0 || fd[0] < 0 || fd[1] < 0)
		return;
	send(fd[0], "x", 1, 0);
	smc_note_result(notes, "close", close(listener));
	smc_settle(fd);
	for (int i = 0; i < 2; i++) {
		smc_note_poll(notes, fd[i]);
		smc_note_result(notes, "recv", recv(fd[i], &byte, 1, MSG_DONTWAIT));
		smc_note_result(notes, "recv", recv(fd[i], &byte, 1, MSG_DONTWAIT));
		smc_note_result(notes, "send", send(fd[i], "x", 1, MSG_NOSIGNAL));
		smc_note(notes, " error=%d", smc_error(fd[i]));
		smc_note_poll(notes, fd[i]);
	}
	smc_close_pair(fd);
}

TEST_F(listener, closing_resets_queued_children_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, close_with_queue, NULL));
}

static void wrong_states(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_storage addr, free_port;
	int fresh, listener, pair[2];
	socklen_t len;
	char byte;

	listener = smc_listen(ends, 8, &addr, &len);
	fresh = smc_socket(&ends->server, 0);
	if (smc_pair(ends, pair))
		return;
	smc_loopback(ends->family, &free_port);
	smc_note_result(notes, "accept", accept(fresh, NULL, NULL));
	smc_note_result(notes, "accept", accept(pair[1], NULL, NULL));
	smc_note_result(notes, "accept", accept(-1, NULL, NULL));
	smc_note_result(notes, "listen", listen(pair[1], 1));
	smc_note_result(notes, "listen", listen(listener, 1));
	smc_note_result(notes, "bind", bind(listener, (struct sockaddr *)&free_port, len));
	smc_note_result(notes, "bind", bind(pair[1], (struct sockaddr *)&free_port, len));
	smc_note_result(notes, "connect", connect(listener, (struct sockaddr *)&addr, len));
	smc_note_result(notes, "send", send(listener, "x", 1, MSG_NOSIGNAL));
	smc_note_result(notes, "recv", recv(listener, &byte, 1, MSG_DONTWAIT));
	smc_note_result(notes, "send", send(fresh, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	smc_note_result(notes, "recv", recv(fresh, &byte, 1, MSG_DONTWAIT));
	smc_note_result(notes, "shutdown", shutdown(fresh, SHUT_RDWR));
	smc_note_result(notes, "shutdown", shutdown(pair[1], 3));
	smc_note_poll(notes, fresh);
	smc_note_poll(notes, listener);
	/* A second bind to the port of a listener. */
	smc_note_result(notes, "bind", bind(fresh, (struct sockaddr *)&addr, len));
	/* A listener shut down is one no more; it may listen again. */
	smc_note_result(notes, "shutdown", shutdown(listener, SHUT_RD));
	smc_note_result(notes, "accept", accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	smc_note_poll(notes, listener);
	smc_note_result(notes, "listen", listen(listener, 4));
	smc_note_poll(notes, listener);
	/* Listening unbound takes any port. */
	close(fresh);
	fresh = smc_socket(&ends->server, 0);
	smc_note_result(notes, "listen", listen(fresh, 0));
	smc_close_pair(pair);
	close(listener);
	close(fresh);
}

TEST_F(listener, wrong_states_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, wrong_states, NULL));
}

TEST_F(listener, accept_without_a_client)
{
	const struct timeval limit = { .tv_usec = 50000 };

	ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
	EXPECT_EQ(-1, accept(self->fd, NULL, NULL));
	EXPECT_EQ(EAGAIN, errno);
	ASSERT_EQ(0, smc_set_nonblock(self->fd, false));
	ASSERT_EQ(0, setsockopt(self->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	EXPECT_EQ(-1, accept(self->fd, NULL, NULL));
	EXPECT_EQ(EAGAIN, errno);
}

struct accepter {
	int listener;
	int epoll;
	pid_t tid;
	bool done;
	int fd;
	int error;
	pthread_t thread;
};

static void *do_accept(void *arg)
{
	struct accepter *accepter = arg;
	struct epoll_event event;

	__atomic_store_n(&accepter->tid, smc_thread_id(), __ATOMIC_RELEASE);
	if (accepter->epoll >= 0)
		epoll_wait(accepter->epoll, &event, 1, -1);
	accepter->fd = accept(accepter->listener, NULL, NULL);
	accepter->error = errno;
	__atomic_store_n(&accepter->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static int start_accepter(struct accepter *accepter)
{
	int ret = pthread_create(&accepter->thread, NULL, do_accept, accepter);

	if (ret)
		return -ret;
	while (!__atomic_load_n(&accepter->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	return smc_wait_asleep(accepter->tid);
}

static void on_signal(int signal)
{
}

TEST_F(listener, a_signal_interrupts_accept)
{
	struct accepter accepter = { .listener = self->fd, .epoll = -1 };
	struct sigaction action = { .sa_handler = on_signal };

	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_EQ(0, start_accepter(&accepter));
	ASSERT_EQ(0, pthread_kill(accepter.thread, SIGUSR1));
	ASSERT_EQ(0, pthread_join(accepter.thread, NULL));
	EXPECT_EQ(-1, accepter.fd);
	EXPECT_EQ(EINTR, accepter.error);
}

TEST_F(listener, shutdown_ends_a_sleeping_accept)
{
	struct accepter accepter = { .listener = self->fd, .epoll = -1 };

	ASSERT_EQ(0, start_accepter(&accepter));
	ASSERT_EQ(0, shutdown(self->fd, SHUT_RDWR));
	ASSERT_EQ(0, pthread_join(accepter.thread, NULL));
	EXPECT_EQ(-1, accepter.fd);
	EXPECT_EQ(EINVAL, accepter.error);
}

/* @accepters sleep; each of as many clients is taken by a different one. */
static int one_each(const struct smc_ends *ends, struct accepter *accepter, int accepters,
		    const struct sockaddr_storage *addr, socklen_t len)
{
	int ret = 0;

	for (int i = 0; i < accepters && !ret; i++)
		ret = start_accepter(&accepter[i]);
	for (int i = 0; i < accepters && !ret; i++) {
		int done = 0, client = smc_connect(ends, addr, len);

		if (client < 0)
			return client;
		/* One of them takes it; the others still sleep. */
		while (done <= i) {
			done = 0;
			for (int j = 0; j < accepters; j++)
				done += __atomic_load_n(&accepter[j].done, __ATOMIC_ACQUIRE);
			sched_yield();
		}
		if (done != i + 1)
			ret = -EDOM;
		close(client);
	}
	for (int i = 0; i < accepters; i++) {
		pthread_join(accepter[i].thread, NULL);
		if (accepter[i].fd < 0)
			ret = -EBADF;
		else
			close(accepter[i].fd);
	}
	return ret;
}

TEST_F(listener, each_client_wakes_one_accepter)
{
	struct accepter accepter[4];

	for (int i = 0; i < 4; i++)
		accepter[i] = (struct accepter) { .listener = self->fd, .epoll = -1 };
	EXPECT_EQ(0, one_each(variant->ends, accepter, 4, &self->addr, self->len));
}

TEST_F(listener, exclusive_epoll_loses_no_client)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLEXCLUSIVE };
	struct accepter accepter[4];

	for (int i = 0; i < 4; i++) {
		accepter[i] = (struct accepter) {
			.listener = self->fd, .epoll = epoll_create1(0),
		};
		ASSERT_EQ(0, epoll_ctl(accepter[i].epoll, EPOLL_CTL_ADD, self->fd, &event));
	}
	EXPECT_EQ(0, one_each(variant->ends, accepter, 4, &self->addr, self->len));
	for (int i = 0; i < 4; i++)
		close(accepter[i].epoll);
}

TEST_F(listener, reports_a_client_to_poll)
{
	int fd[2];

	EXPECT_EQ(0, smc_poll(self->fd, POLLIN, 0));
	fd[0] = smc_connect(variant->ends, &self->addr, self->len);
	ASSERT_LE(0, fd[0]);
	EXPECT_EQ(POLLIN, smc_poll(self->fd, POLLIN, SMC_TIMEOUT_MS));
	fd[1] = smc_accept(self->fd);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(0, smc_poll(self->fd, POLLIN, 0));
	smc_close_pair(fd);
}

TEST_F(listener, children_outlive_it)
{
	enum { PAIRS = 50 };
	int fd[PAIRS][2], plain[PAIRS][2];
	const struct smc_end tcp = { variant->ends->family, 0, SMC_MODE_PLAIN };
	struct smc_ends from_plain = *variant->ends;

	from_plain.client = tcp;
	for (int i = 0; i < PAIRS; i++) {
		ASSERT_EQ(0, smc_pair_from(variant->ends, self->fd, &self->addr, self->len,
					   fd[i]));
		plain[i][0] = smc_connect(&from_plain, &self->addr, self->len);
		ASSERT_LE(0, plain[i][0]);
		plain[i][1] = smc_accept(self->fd);
		ASSERT_LE(0, plain[i][1]);
		if (variant->ends->server.mode != SMC_MODE_PLAIN)
			ASSERT_EQ(0, smc_check_mode(plain[i][1], SMC_MODE_FALLBACK));
	}
	close(self->fd);
	self->fd = -1;
	for (int i = 0; i < PAIRS; i++) {
		int on = 1;

		ASSERT_EQ(0, smc_exchange(fd[i][0], fd[i][1], i));
		ASSERT_EQ(0, smc_exchange(plain[i][0], plain[i][1], ~i));
		ASSERT_EQ(0, setsockopt(fd[i][1], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
		smc_close_pair(fd[i]);
		smc_close_pair(plain[i]);
	}
}

TEST_F(listener, reuseport_spreads_over_smc_listeners)
{
	int on = 1, clients = 0, got[2] = { 0, 0 };
	struct sockaddr_storage addr;
	int listener[2];
	socklen_t len = smc_loopback(variant->ends->family, &addr);

	for (int i = 0; i < 2; i++) {
		listener[i] = smc_socket(&variant->ends->server, 0);
		ASSERT_LE(0, listener[i]);
		ASSERT_EQ(0, setsockopt(listener[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
		ASSERT_EQ(0, bind(listener[i], (struct sockaddr *)&addr, len));
		ASSERT_EQ(0, listen(listener[i], 64));
		ASSERT_EQ(0, getsockname(listener[i], (struct sockaddr *)&addr, &len));
		ASSERT_EQ(0, smc_set_nonblock(listener[i], true));
	}
	for (clients = 0; clients < 64; clients++) {
		int fd[2], which = 0;

		fd[0] = smc_connect(variant->ends, &addr, len);
		ASSERT_LE(0, fd[0]);
		do {
			which = !which;
			fd[1] = accept(listener[which], NULL, NULL);
		} while (fd[1] < 0 && errno == EAGAIN);
		ASSERT_LE(0, fd[1]);
		got[which]++;
		ASSERT_EQ(0, smc_check_modes(variant->ends, fd));
		ASSERT_EQ(0, smc_set_nonblock(fd[1], false));
		ASSERT_EQ(0, smc_exchange(fd[0], fd[1], clients));
		smc_close_pair(fd);
	}
	EXPECT_LT(0, got[0]);
	EXPECT_LT(0, got[1]);
	close(listener[0]);
	close(listener[1]);
}

TEST_F(listener, deferred_accept_waits_for_data)
{
	int seconds = 5;
	int fd[2];

	ASSERT_EQ(0, setsockopt(self->fd, SOL_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)));
	fd[0] = smc_connect(variant->ends, &self->addr, self->len);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
	EXPECT_EQ(-1, accept(self->fd, NULL, NULL));
	EXPECT_EQ(EAGAIN, errno);
	ASSERT_EQ(0, smc_set_nonblock(self->fd, false));
	ASSERT_EQ(0, smc_send_all(fd[0], 33, 0, 100, 100));
	EXPECT_EQ(POLLIN, smc_poll(self->fd, POLLIN, SMC_TIMEOUT_MS));
	fd[1] = smc_accept(self->fd);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
	EXPECT_EQ(0, smc_recv_all(fd[1], 33, 0, 100, 100));
	smc_close_pair(fd);
}

/*
 * One letter a step: c a client connects; d it sends data, s shuts down, x
 * closes, r resets; p poll, a accept (and read); 0 and 9 set the option; w waits
 * for a child, however long; q closes the listener.
 */
static const char *const deferred_scripts[] = {
	"9 c p a d p a p a", "9 c d p a", "9 c s p a", "9 c x p a", "9 c r p a", "9 c d r p a",
	"9 c d x p a", "9 c p a x p a", "9 c p a r p a p", "9 c c d p a a", "9 c 0 d p a",
	"1 c p a w a", "1 c p w a d a", "2 c d p a", "c 0 p a", "9 c p q", "1 c p w d a",
};

static void deferred(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int client[4] = { -1, -1, -1, -1 }, server[4], clients = 0, servers = 0;
	struct sockaddr_storage addr;
	int listener, value;
	socklen_t addr_len, len;
	char buf[64];

	listener = smc_listen(ends, 4, &addr, &addr_len);
	if (listener < 0)
		return;
	smc_set_nonblock(listener, true);
	for (const char *step = arg; *step; step++) {
		int fd[2] = { clients ? client[clients - 1] : -1, listener };

		switch (*step) {
		case ' ':
			continue;
		case '0': case '1': case '2': case '9':
			value = *step - '0';
			smc_note_result(notes, "set", setsockopt(listener, SOL_TCP, TCP_DEFER_ACCEPT,
								 &value, sizeof(value)));
			len = sizeof(value);
			getsockopt(listener, SOL_TCP, TCP_DEFER_ACCEPT, &value, &len);
			smc_note(notes, "(%d)", value);
			break;
		case 'c':
			client[clients++] = smc_connect(ends, &addr, addr_len);
			break;
		case 'd':
			smc_note_result(notes, "send", send(fd[0], "data", 4, MSG_NOSIGNAL));
			break;
		case 's':
			smc_note_result(notes, "shutdown", shutdown(fd[0], SHUT_WR));
			break;
		case 'r':
			smc_set_linger(fd[0], 0);
			/* fallthrough */
		case 'x':
			close(fd[0]);
			fd[0] = client[clients - 1] = -1;
			break;
		case 'p':
			smc_note_poll(notes, listener);
			break;
		case 'w':
			smc_note(notes, " wait=%d", smc_poll(listener, POLLIN, SMC_TIMEOUT_MS));
			break;
		case 'a':
			server[servers] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
			smc_note(notes, " accept=%s",
				 server[servers] < 0 ? strerrorname_np(errno) : "ok");
			if (server[servers] < 0)
				break;
			smc_note_result(notes, "recv", recv(server[servers], buf, sizeof(buf), 0));
			value = -1;
			len = sizeof(value);
			getsockopt(server[servers], SOL_TCP, TCP_DEFER_ACCEPT, &value, &len);
			smc_note(notes, "(%d)", value);
			servers++;
			break;
		case 'q':
			close(listener);
			listener = fd[1] = -1;
			break;
		}
		smc_settle(fd);
	}
	while (servers)
		close(server[--servers]);
	while (clients)
		close(client[--clients]);
	close(listener);
}

TEST_F(listener, deferred_accept_as_on_tcp)
{
	for (size_t i = 0; i < ARRAY_SIZE(deferred_scripts); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, deferred, deferred_scripts[i]))
			TH_LOG("%s", deferred_scripts[i]);
	}
}

/* A sleeping accept() and epoll_wait() see the child when its data comes. */
TEST_F(listener, deferred_child_wakes_one_accepter)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int seconds = 60;

	ASSERT_EQ(0, setsockopt(self->fd, SOL_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds)));
	for (int polled = 0; polled < 2; polled++) {
		struct accepter accepter = { .listener = self->fd, .epoll = -1 };
		int client;

		if (polled) {
			accepter.epoll = epoll_create1(0);
			ASSERT_EQ(0, epoll_ctl(accepter.epoll, EPOLL_CTL_ADD, self->fd, &event));
		}
		ASSERT_EQ(0, start_accepter(&accepter));
		client = smc_connect(variant->ends, &self->addr, self->len);
		ASSERT_LE(0, client);
		ASSERT_EQ(0, smc_wait_asleep(accepter.tid));
		EXPECT_FALSE(__atomic_load_n(&accepter.done, __ATOMIC_ACQUIRE));
		ASSERT_EQ(1, send(client, "x", 1, 0));
		ASSERT_EQ(0, pthread_join(accepter.thread, NULL));
		EXPECT_LE(0, accepter.fd);
		close(accepter.fd);
		close(client);
		if (polled)
			close(accepter.epoll);
	}
}

TEST_F(listener, dual_stack)
{
	struct smc_end server = variant->ends->server;
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct sockaddr_storage addr;
	socklen_t len = sizeof(any);
	int listener, fd[2];
	uint16_t port;

	if (server.domain == AF_SMC)
		server.protocol = SMCPROTO_SMC6;
	else
		server.domain = AF_INET6;
	listener = smc_socket(&server, 0);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, bind(listener, (struct sockaddr *)&any, len));
	ASSERT_EQ(0, listen(listener, 4));
	ASSERT_EQ(0, getsockname(listener, (struct sockaddr *)&any, &len));
	port = any.sin6_port;
	for (int i = 0; i < 10; i++) {
		len = smc_loopback(variant->ends->family, &addr);
		if (variant->ends->family == AF_INET)
			((struct sockaddr_in *)&addr)->sin_port = port;
		else
			((struct sockaddr_in6 *)&addr)->sin6_port = port;
		/* ::ffff:127.0.0.1 from an IPv6 socket in every other round. */
		if (variant->ends->family == AF_INET6 && i % 2)
			inet_pton(AF_INET6, "::ffff:127.0.0.1",
				  &((struct sockaddr_in6 *)&addr)->sin6_addr);
		ASSERT_EQ(0, smc_pair_from(variant->ends, listener, &addr, len, fd));
		EXPECT_EQ(0, smc_exchange(fd[0], fd[1], i));
		smc_close_pair(fd);
	}
	close(listener);
}

/*
 * An IPv6 socket that was a client of IPv4 has other operations in TCP for ever
 * after: it listens, stops, and connects again as any other.
 */
static void once_a_client(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6, .sin6_port = htons(1) };
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	struct smc_end server = ends->server;
	struct sockaddr_storage addr;
	int fd[2], listener, client;
	socklen_t len;

	if (server.domain == AF_SMC)
		server.protocol = SMCPROTO_SMC6;
	else
		server.domain = AF_INET6;
	listener = smc_socket(&server, 0);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
	for (int round = 0; round < 2; round++) {
		/* The port of another listener, which accepts nobody. */
		int other = smc_listen(ends, 4, &addr, &len);

		mapped.sin6_port = ends->family == AF_INET6 ?
				   ((struct sockaddr_in6 *)&addr)->sin6_port :
				   ((struct sockaddr_in *)&addr)->sin_port;
		smc_note_result(notes, "client", connect(listener, (struct sockaddr *)&mapped,
							 sizeof(mapped)));
		smc_note_result(notes, "unspec", connect(listener, &unspec, sizeof(unspec)));
		smc_note(notes, " error=%d", smc_error(listener));
		close(other);

		smc_note_result(notes, "listen", listen(listener, 4));
		len = sizeof(mapped);
		getsockname(listener, (struct sockaddr *)&mapped, &len);
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
		for (int i = 0; i < 3; i++) {
			client = smc_socket(&server, 0);
			smc_note_result(notes, "connect", connect(client,
								  (struct sockaddr *)&mapped,
								  sizeof(mapped)));
			fd[0] = client;
			fd[1] = -1;
			if (i < 2 && smc_poll(listener, POLLIN, 1000) == POLLIN)
				fd[1] = accept(listener, NULL, NULL);
			if (fd[1] >= 0)
				smc_note(notes, " exchange=%d", smc_exchange(fd[0], fd[1], i));
			if (i < 2)
				smc_close_pair(fd);
		}
		/* One is left in the queue. */
		smc_note_result(notes, round ? "shutdown" : "unspec",
				round ? shutdown(listener, SHUT_RD) :
					connect(listener, &unspec, sizeof(unspec)));
		smc_settle(fd);
		smc_note_poll(notes, fd[0]);
		close(fd[0]);
		smc_note(notes, " error=%d", smc_error(listener));
	}
	/* Errors still arrive. */
	mapped.sin6_port = htons(1);
	smc_set_nonblock(listener, true);
	smc_note_result(notes, "refused", connect(listener, (struct sockaddr *)&mapped,
						  sizeof(mapped)));
	smc_poll(listener, POLLOUT, SMC_TIMEOUT_MS);
	smc_note(notes, " error=%d", smc_error(listener));
	close(listener);
}

TEST_F(listener, that_was_a_client_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, once_a_client, NULL));
}

struct storm {
	struct smc_end client;
	const struct sockaddr_storage *addr;
	socklen_t len;
	bool stop;
	long connected;
};

static void *connect_at_will(void *arg)
{
	struct storm *storm = arg;

	while (!__atomic_load_n(&storm->stop, __ATOMIC_ACQUIRE)) {
		int fd = socket(storm->client.domain, SOCK_STREAM | SOCK_NONBLOCK,
				storm->client.protocol);

		connect(fd, (struct sockaddr *)storm->addr, storm->len);
		if (smc_poll(fd, POLLOUT, 20) == POLLOUT && !smc_error(fd))
			__atomic_add_fetch(&storm->connected, 1, __ATOMIC_RELAXED);
		send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
	}
	return NULL;
}

/* A listener at @addr although connections of an earlier one are left there. */
static int listen_again(const struct smc_ends *ends, const struct sockaddr_storage *addr,
			socklen_t len)
{
	int fd = smc_socket(&ends->server, 0);
	int on = 1;

	if (fd < 0)
		return fd;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)addr, len) || listen(fd, 8)) {
		perror("# listen again");
		close(fd);
		return -1;
	}
	return fd;
}

TEST_F_TIMEOUT(listener, comes_and_goes_in_a_storm, 600)
{
	enum { CLIENTS = 4 };
	static const char *const cookies[] = { "1", "2" };
	const struct smc_end tcp = { variant->ends->family, 0, SMC_MODE_PLAIN };
	int fd[2];

	/*
	 * The sysctl is of the namespace, so one of our own; a port that is
	 * nobody's ephemeral one, or a client could connect to itself.
	 */
	close(self->fd);
	ASSERT_EQ(0, smc_netns_new());
	((struct sockaddr_in *)&self->addr)->sin_port = htons(7000);
	self->fd = listen_again(variant->ends, &self->addr, self->len);
	ASSERT_LE(0, self->fd);
	for (size_t i = 0; i < ARRAY_SIZE(cookies); i++) {
		struct storm storm[CLIENTS];
		pthread_t thread[CLIENTS];

		ASSERT_EQ(0, smc_set_sysctl("/proc/sys/net/ipv4/tcp_syncookies", cookies[i]));
		for (int j = 0; j < CLIENTS; j++) {
			storm[j] = (struct storm) {
				.client = j % 2 ? tcp : variant->ends->client,
				.addr = &self->addr, .len = self->len,
			};
			ASSERT_EQ(0, pthread_create(&thread[j], NULL, connect_at_will, &storm[j]));
		}
		for (int round = 0; round < 200; round++) {
			int accepted;

			/* Some children are taken, the others stay in the queue. */
			ASSERT_EQ(0, smc_set_nonblock(self->fd, true));
			for (int j = 0; j < 3; j++) {
				accepted = accept(self->fd, NULL, NULL);
				if (accepted >= 0)
					close(accepted);
			}
			smc_poll(self->fd, POLLIN, 1);
			close(self->fd);
			self->fd = listen_again(variant->ends, &self->addr, self->len);
			ASSERT_LE(0, self->fd);
		}
		for (int j = 0; j < CLIENTS; j++) {
			__atomic_store_n(&storm[j].stop, true, __ATOMIC_RELEASE);
			ASSERT_EQ(0, pthread_join(thread[j], NULL));
		}
	}
	/* After all that an honest client is served, whoever else is in the queue. */
	ASSERT_EQ(0, smc_set_nonblock(self->fd, false));
	close(self->fd);
	self->fd = smc_listen(variant->ends, 8, &self->addr, &self->len);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, smc_set_sysctl("/proc/sys/net/ipv4/tcp_syncookies", "1"));
	ASSERT_EQ(0, smc_pair_from(variant->ends, self->fd, &self->addr, self->len, fd));
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
}

TEST_HARNESS_MAIN
