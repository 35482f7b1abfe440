// SPDX-License-Identifier: GPL-2.0
/*
 * fuzz - random calls on SMC sockets from several threads in two namespaces.
 *
 *	fuzz [-s SEED] [-t SECONDS] [-j THREADS] [-f] [-c]
 *
 *	-s SEED		what the calls follow from (default: the time; printed)
 *	-t SECONDS	how long (default 60)
 *	-j THREADS	how many (default 4)
 *	-f		refuse allocations at random (fail-nth of the debug kernel)
 *	-c		no streams, only calls
 *
 * Two kinds of sockets are in use at once.
 *
 * Streams: connections whose every byte follows from its position. Any thread
 * may send, receive, peek, splice, shut down or close at any time; what arrives
 * is compared with what was sent, and an end of stream or a reset may only come
 * when somebody caused it.
 *
 * The pool: sockets in any state, on which any call is made with any argument,
 * legal or not, while other threads do the same and close them. Nothing is
 * expected of the results; the kernel must survive, nobody may hang, and no byte
 * of a stream may be touched.
 *
 * Prints one line of sums at the end, and leaves with 0 when nothing was wrong.
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "smc_test.h"

#define STREAMS		6
#define POOL		40
#define LISTENERS	6
/* Sockets of the pool have numbers from here on, everything else is below. */
#define POOL_FDS	512
#define CHUNK		(128 << 10)
/* Nothing may stand still as long as that, not even in an emulator. */
#define STUCK_SECONDS	90

/* xorshift64*: small, and the same everywhere. */
struct rng {
	uint64_t state;
};

static uint64_t draw(struct rng *rng)
{
	rng->state ^= rng->state >> 12;
	rng->state ^= rng->state << 25;
	rng->state ^= rng->state >> 27;
	return rng->state * 0x2545f4914f6cdd1d;
}

static unsigned int below(struct rng *rng, unsigned int n)
{
	return (draw(rng) >> 33) % n;
}

static bool one_in(struct rng *rng, unsigned int n)
{
	return below(rng, n) == 0;
}

/* Mostly small, sometimes large, never more than @most. */
static size_t some_size(struct rng *rng, size_t most)
{
	size_t size = draw(rng) >> (40 + below(rng, 24));

	return size > most ? size % (most + 1) : size;
}

struct worker {
	pthread_t thread;
	struct rng rng;
	int number;
	int fail_nth;
	/* The namespace it is in. */
	int home;
	atomic_ullong calls;
	const char *doing;
	char *buffer;
	/* A page that can be read and written, followed by one that cannot. */
	char *edge;
};

static int namespaces[2];
static bool inject;
static bool no_streams;
static atomic_bool over;
static atomic_uint wrong;
static atomic_ullong bytes_verified, connections, smcd, resets, refusals;

static void __printf(1, 2) complain(const char *format, ...)
{
	va_list args;

	wrong++;
	fputs("WRONG: ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

/* Refuses an allocation of the next call, sometimes. */
static void arm(struct worker *w)
{
	char text[16];
	int n;

	if (!inject || !one_in(&w->rng, 4))
		return;
	n = snprintf(text, sizeof(text), "%u", 1 + below(&w->rng, 24));
	if (pwrite(w->fail_nth, text, n, 0) == n)
		refusals++;
}

static void disarm(struct worker *w)
{
	if (inject && pwrite(w->fail_nth, "0", 1, 0) < 0)
		complain("fail-nth: %s", strerror(errno));
}

static void enter(struct worker *w, int home)
{
	if (w->home != home && smc_netns_enter(namespaces[home]))
		complain("setns");
	w->home = home;
}

/* Whether a call on a stream may end in that: nothing was there, or something was refused. */
static bool is_harmless(int error)
{
	switch (error) {
	case EAGAIN:
	case EINTR:
	case EFAULT:
	case EMFILE:
		return true;
	case ENOMEM:
	case ENOBUFS:
	case ENFILE:
		return inject;
	default:
		return false;
	}
}

/* Streams */

struct direction {
	pthread_mutex_t tx, rx;
	uint64_t seed;
	uint64_t sent;
	uint64_t got;
	/* Nothing is sent any more. */
	atomic_bool shut;
};

struct stream {
	pthread_rwlock_t life;
	bool open;
	int fd[2];
	/* The direction that fd[i] writes. */
	struct direction to[2];
};

static struct stream streams[STREAMS];

static const struct smc_ends *const ends_of[] = {
	&smc_ends_smc, &smc_ends_smc, &smc_ends_smc6, &smc_ends_af_smc, &smc_ends_af_smc6,
	&smc_ends_mixed, &smc_ends_fallback_client, &smc_ends_fallback_server,
};

static void randomise_buffers(struct rng *rng, int fd)
{
	int size;

	if (one_in(rng, 3)) {
		size = 1 + some_size(rng, 1 << 20);
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	}
	if (one_in(rng, 3)) {
		size = 1 + some_size(rng, 1 << 20);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	}
}

/* The address of the namespace @home, as the other one sees it. */
static socklen_t public_address(int family, int home, struct sockaddr_storage *addr)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;

	memset(addr, 0, sizeof(*addr));
	addr->ss_family = family;
	if (family == AF_INET6) {
		inet_pton(AF_INET6, home ? "fd09::2" : "fd09::1", &in6->sin6_addr);
		return sizeof(*in6);
	}
	inet_pton(AF_INET, home ? "10.9.0.2" : "10.9.0.1", &in->sin_addr);
	return sizeof(*in);
}

static void open_stream(struct worker *w, struct stream *s)
{
	const struct smc_ends *ends = ends_of[below(&w->rng, ARRAY_SIZE(ends_of))];
	int server = below(&w->rng, 2), client = below(&w->rng, 2);
	int listener, fd, accepted = -1, i;
	struct sockaddr_storage addr;
	socklen_t len;

	enter(w, server);
	listener = smc_socket(&ends->server, 0);
	if (listener < 0)
		return;
	randomise_buffers(&w->rng, listener);
	if (server == client)
		len = smc_loopback(ends->family, &addr);
	else
		len = public_address(ends->family, server, &addr);
	if (bind(listener, (struct sockaddr *)&addr, len) || listen(listener, 8) ||
	    getsockname(listener, (struct sockaddr *)&addr, &len)) {
		complain("listen: %s", strerror(errno));
		close(listener);
		return;
	}
	enter(w, client);
	fd = smc_socket(&ends->client, 0);
	if (fd < 0)
		goto out;
	randomise_buffers(&w->rng, fd);
	/* A timer interrupts; what was begun goes on. */
	if (connect(fd, (struct sockaddr *)&addr, len) && errno != EINTR && errno != EISCONN) {
		complain("connect: %s", strerror(errno));
		goto out;
	}
	do {
		accepted = accept(listener, NULL, NULL);
	} while (accepted < 0 && errno == EINTR);
	if (accepted < 0) {
		complain("accept: %s", strerror(errno));
		goto out;
	}
	if (!(smc_poll(fd, POLLOUT, SMC_TIMEOUT_MS * 6) & POLLOUT)) {
		complain("not connected");
		goto out;
	}
	connections++;
	if (smc_is_smcd(ends)) {
		if (smc_mode(fd) == SMC_MODE_SMCD)
			smcd++;
		/* A namespace shows its own sockets only; the client's is this one. */
		else if (!inject)
			complain("not SMC-D: mode %d", smc_mode(fd));
	}
	for (i = 0; i < 2; i++) {
		s->to[i].seed = draw(&w->rng);
		s->to[i].sent = 0;
		s->to[i].got = 0;
		s->to[i].shut = false;
	}
	s->fd[0] = fd;
	s->fd[1] = accepted;
	s->open = true;
	close(listener);
	return;
out:
	if (fd >= 0)
		close(fd);
	if (accepted >= 0)
		close(accepted);
	close(listener);
}

/* One call that sends up to @len bytes of the direction, from @data. */
static ssize_t send_once(struct worker *w, int fd, char *data, size_t len, int flags)
{
	struct iovec iov[8];
	struct msghdr msg = { .msg_iov = iov };
	int pipes[2], file;
	size_t done = 0;
	ssize_t n;

	switch (below(&w->rng, 6)) {
	case 0:
		w->doing = "sendmsg";
		while (msg.msg_iovlen < 7 && done < len) {
			size_t piece = some_size(&w->rng, len - done);

			iov[msg.msg_iovlen++] = (struct iovec){ data + done, piece };
			done += piece;
		}
		iov[msg.msg_iovlen++] = (struct iovec){ data + done, len - done };
		return sendmsg(fd, &msg, flags);
	case 1:
		w->doing = "sendfile";
		/* What becomes of the file is not of interest. */
		disarm(w);
		file = memfd_create("fuzz", MFD_CLOEXEC);
		if (file < 0)
			return -1;
		n = write(file, data, len);
		if (n > 0) {
			off_t at = 0;

			arm(w);
			n = sendfile(fd, file, &at, n);
		}
		close(file);
		return n;
	case 2:
		w->doing = "splice to socket";
		if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK))
			return -1;
		n = write(pipes[1], data, len);
		if (n > 0)
			n = splice(pipes[0], NULL, fd, NULL, n,
				   flags & MSG_DONTWAIT ? SPLICE_F_NONBLOCK : 0);
		close(pipes[0]);
		close(pipes[1]);
		return n;
	case 3:
		/* The memory ends in the middle: what comes before it may be sent. */
		w->doing = "send of bad memory";
		if (len > 4096)
			len = 4096;
		memcpy(w->edge + 4096 - len, data, len);
		return send(fd, w->edge + 4096 - len, len + 1 + below(&w->rng, 9000), flags);
	default:
		w->doing = "send";
		return send(fd, data, len, flags | (one_in(&w->rng, 8) ? MSG_MORE : 0));
	}
}

static void stream_send(struct worker *w, struct stream *s, int side)
{
	struct direction *d = &s->to[side];
	size_t len = 1 + some_size(&w->rng, CHUNK - 1);
	int flags = MSG_NOSIGNAL | (one_in(&w->rng, 4) ? 0 : MSG_DONTWAIT);
	ssize_t n;

	if (pthread_mutex_trylock(&d->tx))
		return;
	if (!d->shut) {
		smc_fill(w->buffer, len, d->seed, d->sent);
		arm(w);
		n = send_once(w, s->fd[side], w->buffer, len, flags);
		disarm(w);
		if (n > 0)
			d->sent += n;
		else if (n < 0 && !is_harmless(errno))
			complain("send: %s", strerror(errno));
	}
	pthread_mutex_unlock(&d->tx);
}

static void check_bytes(struct direction *d, const char *data, size_t len)
{
	ssize_t at = smc_find_wrong(data, len, d->seed, d->got);

	if (at >= 0)
		complain("byte %llu of %zu is wrong", (unsigned long long)d->got + at, len);
	bytes_verified += len;
}

/* What one call receives; counts it unless it only looks. */
static ssize_t receive_once(struct worker *w, int fd, struct direction *d, size_t len, int flags)
{
	struct iovec iov[4];
	struct msghdr msg = { .msg_iov = iov };
	char *data = w->buffer;
	size_t done = 0;
	int pipes[2], i;
	ssize_t n;

	switch (below(&w->rng, 8)) {
	case 0:
		w->doing = "peek";
		n = recv(fd, data, len, flags | MSG_PEEK);
		if (n > 0)
			check_bytes(d, data, n);
		return n > 0 ? -2 : n;
	case 1:
		w->doing = "recv with MSG_TRUNC";
		n = recv(fd, data, len, flags | MSG_TRUNC);
		if (n > 0)
			d->got += n;
		return n;
	case 2:
		w->doing = "recvmsg";
		for (i = 0; i < 3; i++) {
			size_t piece = some_size(&w->rng, len - done);

			iov[i] = (struct iovec){ data + done, piece };
			done += piece;
		}
		iov[i] = (struct iovec){ data + done, len - done };
		msg.msg_iovlen = 4;
		n = recvmsg(fd, &msg, flags);
		break;
	case 3:
		w->doing = "splice from socket";
		if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK))
			return -1;
		n = splice(fd, NULL, pipes[1], NULL, len,
			   flags & MSG_DONTWAIT ? SPLICE_F_NONBLOCK : 0);
		if (n > 0 && read(pipes[0], data, n) != n)
			complain("a pipe lost bytes");
		close(pipes[0]);
		close(pipes[1]);
		break;
	case 4:
		w->doing = "recv into bad memory";
		if (len > 4096)
			len = 4096;
		data = w->edge + 4096 - len;
		n = recv(fd, data, len + 1 + below(&w->rng, 9000), flags);
		break;
	default:
		w->doing = "recv";
		n = recv(fd, data, len, flags | (one_in(&w->rng, 16) ? MSG_WAITALL : 0));
		break;
	}
	if (n > 0) {
		check_bytes(d, data, n);
		d->got += n;
	}
	return n;
}

static void stream_receive(struct worker *w, struct stream *s, int side)
{
	struct direction *d = &s->to[!side];
	int flags = one_in(&w->rng, 8) ? 0 : MSG_DONTWAIT;
	ssize_t n;

	if (pthread_mutex_trylock(&d->rx))
		return;
	arm(w);
	n = receive_once(w, s->fd[side], d, 1 + some_size(&w->rng, CHUNK - 1), flags);
	disarm(w);
	if (n == 0 && (!d->shut || d->got != d->sent))
		complain("end of stream after %llu of %llu bytes, %sshut",
			 (unsigned long long)d->got, (unsigned long long)d->sent,
			 d->shut ? "" : "not ");
	if (n == -1 && !is_harmless(errno))
		complain("recv: %s", strerror(errno));
	pthread_mutex_unlock(&d->rx);
}

static void stream_shut(struct worker *w, struct stream *s, int side)
{
	struct direction *d = &s->to[side];

	w->doing = "shutdown";
	if (pthread_mutex_trylock(&d->tx))
		return;
	if (!atomic_exchange(&d->shut, true) && shutdown(s->fd[side], SHUT_WR))
		complain("shutdown: %s", strerror(errno));
	pthread_mutex_unlock(&d->tx);
}

/* Harmless options, which must not change what arrives. */
static void stream_option(struct worker *w, struct stream *s, int side)
{
	static const struct { int level, name; } options[] = {
		{ SOL_SOCKET, SO_RCVBUF }, { SOL_SOCKET, SO_SNDBUF }, { SOL_SOCKET, SO_KEEPALIVE },
		{ SOL_SOCKET, SO_RCVLOWAT }, { SOL_SOCKET, SO_PRIORITY }, { SOL_SOCKET, SO_BUSY_POLL },
		{ IPPROTO_TCP, TCP_NODELAY }, { IPPROTO_TCP, TCP_CORK }, { IPPROTO_TCP, TCP_QUICKACK },
		{ IPPROTO_TCP, TCP_KEEPIDLE }, { IPPROTO_TCP, TCP_NOTSENT_LOWAT },
	};
	unsigned int i = below(&w->rng, ARRAY_SIZE(options));
	int value = some_size(&w->rng, 1 << 18);

	w->doing = "setsockopt of a stream";
	setsockopt(s->fd[side], options[i].level, options[i].name, &value, sizeof(value));
}

/* Everything that was sent arrives, and then the end. */
static void drain(struct worker *w, struct stream *s, int side, bool reset)
{
	struct direction *d = &s->to[!side];
	ssize_t n;

	w->doing = "last recv";
	for (;;) {
		n = recv(s->fd[side], w->buffer, CHUNK, 0);
		if (n <= 0 && errno == EINTR && n < 0)
			continue;
		if (n <= 0)
			break;
		check_bytes(d, w->buffer, n);
		d->got += n;
	}
	if (n == 0 && d->got != d->sent && !reset)
		complain("ended after %llu of %llu bytes", (unsigned long long)d->got,
			 (unsigned long long)d->sent);
	if (n < 0 && !(reset && (errno == ECONNRESET || errno == EPIPE)))
		complain("last recv: %s", strerror(errno));
	if (d->got > d->sent)
		complain("%llu bytes of %llu", (unsigned long long)d->got,
			 (unsigned long long)d->sent);
}

/* The last one that has the stream. */
static void end_stream(struct worker *w, struct stream *s)
{
	int side = below(&w->rng, 2);
	struct direction *in = &s->to[!side];
	bool unread = in->got != in->sent;

	w->doing = "end of a stream";
	s->open = false;
	switch (below(&w->rng, 4)) {
	case 0:
		/* In order, in both directions. */
		shutdown(s->fd[0], SHUT_WR);
		shutdown(s->fd[1], SHUT_WR);
		drain(w, s, 0, false);
		drain(w, s, 1, false);
		break;
	case 1:
		smc_set_linger(s->fd[side], 0);
		close(s->fd[side]);
		drain(w, s, !side, true);
		resets++;
		s->fd[side] = -1;
		break;
	case 2:
		/* With data unread this is a reset. */
		close(s->fd[side]);
		drain(w, s, !side, unread);
		resets += unread;
		s->fd[side] = -1;
		break;
	default:
		/* TCP refuses what was still on its way, by a reset. */
		shutdown(s->fd[side], SHUT_RDWR);
		drain(w, s, !side, unread);
		break;
	}
	if (s->fd[0] >= 0)
		close(s->fd[0]);
	if (s->fd[1] >= 0)
		close(s->fd[1]);
}

static void stream_step(struct worker *w)
{
	struct stream *s = &streams[below(&w->rng, STREAMS)];
	int side = below(&w->rng, 2);

	if (one_in(&w->rng, 60) || !s->open) {
		w->doing = "opening a stream";
		if (pthread_rwlock_trywrlock(&s->life))
			return;
		if (s->open)
			end_stream(w, s);
		w->doing = "opening a stream";
		open_stream(w, s);
		pthread_rwlock_unlock(&s->life);
		return;
	}
	if (pthread_rwlock_tryrdlock(&s->life))
		return;
	if (s->open) {
		switch (below(&w->rng, 40)) {
		case 0:
			stream_shut(w, s, side);
			break;
		case 1 ... 3:
			stream_option(w, s, side);
			break;
		case 4 ... 20:
			stream_send(w, s, side);
			break;
		default:
			stream_receive(w, s, side);
			break;
		}
	}
	pthread_rwlock_unlock(&s->life);
}

/* The pool */

static atomic_int pool[POOL];
static struct sockaddr_storage known[LISTENERS];
static atomic_uint known_at;

static int any_fd(struct worker *w)
{
	return pool[below(&w->rng, POOL)];
}

/* Gives a new descriptor to the pool, in place of another one. */
static void keep(struct worker *w, int fd)
{
	int high, old;

	if (fd < 0)
		return;
	high = fcntl(fd, F_DUPFD_CLOEXEC, POOL_FDS);
	close(fd);
	if (high < 0)
		return;
	old = atomic_exchange(&pool[below(&w->rng, POOL)], high);
	if (old >= 0)
		close(old);
}

/* Its memory may be refused. */
static int any_socket(struct worker *w)
{
	static const struct { int domain, protocol; } kinds[] = {
		{ AF_INET, IPPROTO_SMC }, { AF_INET6, IPPROTO_SMC }, { AF_SMC, SMCPROTO_SMC },
		{ AF_SMC, SMCPROTO_SMC6 }, { AF_INET, 0 }, { AF_INET6, 0 },
	};
	unsigned int i = below(&w->rng, one_in(&w->rng, 3) ? ARRAY_SIZE(kinds) : 4);
	int flags = one_in(&w->rng, 2) ? SOCK_NONBLOCK : 0;

	int fd;

	enter(w, below(&w->rng, 2));
	arm(w);
	fd = socket(kinds[i].domain, SOCK_STREAM | flags, kinds[i].protocol);
	disarm(w);
	return fd;
}

/* Addresses of listeners, of nobody, and nonsense. */
static socklen_t any_address(struct worker *w, struct sockaddr_storage *addr)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;
	unsigned int i;

	memset(addr, 0, sizeof(*addr));
	switch (below(&w->rng, 10)) {
	case 0:
		for (i = 0; i < sizeof(*addr); i++)
			((char *)addr)[i] = draw(&w->rng) >> 56;
		return below(&w->rng, sizeof(*addr) + 1);
	case 1:
		addr->ss_family = AF_UNSPEC;
		return sizeof(*in);
	case 2:
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		in->sin_port = htons(1);
		return sizeof(*in);
	case 3:
		in6->sin6_family = AF_INET6;
		in6->sin6_addr = in6addr_any;
		return sizeof(*in6);
	default:
		*addr = known[below(&w->rng, LISTENERS)];
		return addr->ss_family == AF_INET6 ? sizeof(*in6) : sizeof(*in);
	}
}

static void make_listener(struct worker *w)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	int fd = any_socket(w), one = 1;

	if (fd < 0)
		return;
	if (one_in(&w->rng, 3))
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (one_in(&w->rng, 3))
		setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof(one));
	if (!listen(fd, below(&w->rng, 16)) && !getsockname(fd, (struct sockaddr *)&addr, &len)) {
		/* Bound to any address: reached through that of the loopback device. */
		if (addr.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
		else
			((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		known[known_at++ % LISTENERS] = addr;
	}
	keep(w, fd);
}

static void any_option(struct worker *w, bool set)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, 286, -1 };
	int level = levels[below(&w->rng, ARRAY_SIZE(levels))];
	int name = below(&w->rng, 90);
	socklen_t len = one_in(&w->rng, 2) ? sizeof(int) : below(&w->rng, 300);
	char value[300] = { 0 };
	unsigned int i, n = one_in(&w->rng, 2) ? 1 : sizeof(value);

	/* These reach beyond the socket, or stop its owner. */
	if (level == SOL_SOCKET && (name == SO_BINDTODEVICE || name == SO_BINDTOIFINDEX))
		return;
	/* These look for modules of any name, which takes a process each. */
	if (level == IPPROTO_TCP && (name == TCP_CONGESTION || name == TCP_ULP))
		return;
	for (i = 0; i < n; i++)
		value[i] = draw(&w->rng) >> 56;
	if (set)
		setsockopt(any_fd(w), level, name, one_in(&w->rng, 30) ? w->edge + 4094 : value, len);
	else
		getsockopt(any_fd(w), level, name, value, &len);
}

static void any_send(struct worker *w)
{
	static const int known_flags[] = {
		0, 0, MSG_DONTWAIT, MSG_OOB, MSG_MORE, MSG_FASTOPEN, MSG_ZEROCOPY, MSG_EOR, MSG_CONFIRM,
	};
	struct sockaddr_storage addr;
	struct iovec iov = { w->buffer, some_size(&w->rng, CHUNK) };
	char control[64];
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = below(&w->rng, 2) };
	int flags = MSG_NOSIGNAL | known_flags[below(&w->rng, ARRAY_SIZE(known_flags))];
	unsigned int i;

	if (one_in(&w->rng, 3)) {
		msg.msg_name = &addr;
		msg.msg_namelen = any_address(w, &addr);
	}
	if (one_in(&w->rng, 12)) {
		for (i = 0; i < sizeof(control); i++)
			control[i] = draw(&w->rng) >> 56;
		msg.msg_control = control;
		msg.msg_controllen = below(&w->rng, sizeof(control));
	}
	if (one_in(&w->rng, 20))
		flags |= draw(&w->rng) >> 40;
	sendmsg(any_fd(w), &msg, flags | MSG_NOSIGNAL);
}

static void any_receive(struct worker *w)
{
	static const int known_flags[] = {
		0, MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_ERRQUEUE,
	};
	struct sockaddr_storage addr;
	struct iovec iov = { w->buffer, some_size(&w->rng, CHUNK) };
	char control[128];
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_name = &addr, .msg_namelen = sizeof(addr),
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int flags = known_flags[below(&w->rng, ARRAY_SIZE(known_flags))];

	if (one_in(&w->rng, 20))
		flags |= draw(&w->rng) >> 40;
	recvmsg(any_fd(w), &msg, flags);
}

static void any_poll(struct worker *w)
{
	struct pollfd fds[4];
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP };
	int i, set;

	if (one_in(&w->rng, 2)) {
		for (i = 0; i < 4; i++)
			fds[i] = (struct pollfd){ any_fd(w), draw(&w->rng) >> 48, 0 };
		poll(fds, 4, below(&w->rng, 3));
		return;
	}
	set = epoll_create1(EPOLL_CLOEXEC);
	if (one_in(&w->rng, 2))
		event.events |= EPOLLET;
	if (one_in(&w->rng, 3))
		event.events |= EPOLLONESHOT;
	for (i = 0; i < 4; i++)
		epoll_ctl(set, EPOLL_CTL_ADD, any_fd(w), &event);
	epoll_wait(set, &event, 1, below(&w->rng, 3));
	close(set);
}

static void any_ioctl(struct worker *w)
{
	static const unsigned long requests[] = {
		FIONREAD, FIONBIO, FIOASYNC, 0x8905 /* SIOCATMARK */, 0x894B /* SIOCOUTQNSD */,
		TIOCOUTQ, 0x8902 /* FIOSETOWN */, 0x8903 /* FIOGETOWN */, 0x8906 /* SIOCGSTAMP */,
	};
	int value = 0;

	if (one_in(&w->rng, 4))
		ioctl(any_fd(w), 0x8900 + below(&w->rng, 0x60), w->buffer);
	else
		ioctl(any_fd(w), requests[below(&w->rng, ARRAY_SIZE(requests))], &value);
}

static void any_splice(struct worker *w)
{
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK))
		return;
	if (one_in(&w->rng, 2))
		splice(any_fd(w), NULL, pipes[1], NULL, some_size(&w->rng, CHUNK), SPLICE_F_NONBLOCK);
	else if (write(pipes[1], w->buffer, 1 + some_size(&w->rng, 60000)) > 0)
		splice(pipes[0], NULL, any_fd(w), NULL, 65536, below(&w->rng, 8));
	close(pipes[0]);
	close(pipes[1]);
}

/* Through a Unix socket, and out of it or not. */
static void pass_on(struct worker *w)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { w->buffer, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	int pair[2], fd = any_fd(w);

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return;
	memset(&control, 0, sizeof(control));
	control.header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (sendmsg(pair[0], &msg, MSG_DONTWAIT) == 1 && one_in(&w->rng, 2) &&
	    recvmsg(pair[1], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg)) {
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
		keep(w, fd);
	}
	close(pair[0]);
	close(pair[1]);
}

static void pool_step(struct worker *w)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int fd;

	switch (below(&w->rng, 24)) {
	case 0 ... 1:
		w->doing = "socket";
		keep(w, any_socket(w));
		break;
	case 2:
		w->doing = "listener";
		make_listener(w);
		break;
	case 3 ... 5:
		w->doing = "connect";
		fd = any_socket(w);
		len = any_address(w, &addr);
		arm(w);
		connect(fd, (struct sockaddr *)&addr, len);
		disarm(w);
		keep(w, fd);
		break;
	case 6:
		w->doing = "connect again";
		len = any_address(w, &addr);
		arm(w);
		connect(any_fd(w), (struct sockaddr *)&addr, len);
		break;
	case 7 ... 9:
		w->doing = "accept";
		arm(w);
		fd = accept4(any_fd(w), NULL, NULL, one_in(&w->rng, 2) ? SOCK_NONBLOCK : 0);
		disarm(w);
		keep(w, fd);
		break;
	case 10:
		w->doing = "listen";
		listen(any_fd(w), (int)below(&w->rng, 20) - 2);
		break;
	case 11:
		w->doing = "bind";
		len = any_address(w, &addr);
		bind(any_fd(w), (struct sockaddr *)&addr, len);
		break;
	case 12:
		w->doing = "shutdown";
		shutdown(any_fd(w), (int)below(&w->rng, 5) - 1);
		break;
	case 13:
		w->doing = "setsockopt";
		arm(w);
		any_option(w, true);
		break;
	case 14:
		w->doing = "getsockopt";
		any_option(w, false);
		break;
	case 15:
		w->doing = "names";
		len = below(&w->rng, 200);
		if (one_in(&w->rng, 2))
			getsockname(any_fd(w), (struct sockaddr *)&addr, &len);
		else
			getpeername(any_fd(w), (struct sockaddr *)&addr, &len);
		break;
	case 16 ... 17:
		w->doing = "sendmsg of the pool";
		arm(w);
		any_send(w);
		break;
	case 18 ... 19:
		w->doing = "recvmsg of the pool";
		arm(w);
		any_receive(w);
		break;
	case 20:
		w->doing = "poll";
		any_poll(w);
		break;
	case 21:
		w->doing = "ioctl";
		any_ioctl(w);
		break;
	case 22:
		w->doing = "splice of the pool";
		arm(w);
		any_splice(w);
		break;
	case 23:
		w->doing = "descriptors";
		if (one_in(&w->rng, 2)) {
			pass_on(w);
		} else {
			fd = fcntl(any_fd(w), F_DUPFD_CLOEXEC, 0);
			keep(w, fd);
		}
		break;
	}
	disarm(w);
}

/* Interrupts whatever waits. */
static void on_alarm(int signal)
{
	(void)signal;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM,
	};
	struct itimerspec every = { { 0, 30000000 }, { 0, 30000000 } };
	timer_t timer;

	event._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL))
		err(1, "timer");
	w->buffer = malloc(CHUNK);
	w->edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!w->buffer || w->edge == MAP_FAILED || munmap(w->edge + 4096, 4096) ||
	    mmap(w->edge + 4096, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		err(1, "memory");
	w->home = -1;
	w->fail_nth = inject ? open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC) : -1;
	if (inject && w->fail_nth < 0)
		err(1, "fail-nth");
	while (!over) {
		if (!no_streams && one_in(&w->rng, 2))
			stream_step(w);
		else
			pool_step(w);
		w->calls++;
	}
	timer_delete(timer);
	w->doing = NULL;
	close(w->fail_nth);
	munmap(w->edge, 8192);
	free(w->buffer);
	return NULL;
}

static void call(const char *command)
{
	if (system(command))
		errx(1, "%s failed", command);
}

/* Two namespaces that reach each other, and each itself. */
static void make_namespaces(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (smc_netns_new())
			errx(1, "no namespace");
		namespaces[i] = smc_netns_open();
		if (namespaces[i] < 0)
			errx(1, "no namespace");
	}
	/* This one is the second; the first is reached through its descriptor. */
	{
		char command[256];

		snprintf(command, sizeof(command),
			 "ip link add v1 type veth peer name v0 && ip link set v0 netns /proc/%d/fd/%d",
			 getpid(), namespaces[0]);
		call(command);
	}
	call("ip addr add 10.9.0.2/24 dev v1 && ip -6 addr add fd09::2/64 dev v1 nodad && ip link set v1 up");
	if (smc_netns_enter(namespaces[0]))
		errx(1, "no namespace");
	call("ip addr add 10.9.0.1/24 dev v0 && ip -6 addr add fd09::1/64 dev v0 nodad && ip link set v0 up");
}

static void report_stuck(struct worker *workers, int count)
{
	int i;

	for (i = 0; i < count; i++)
		printf("thread %d: %llu calls, in %s\n", i, (unsigned long long)workers[i].calls,
		       workers[i].doing ? workers[i].doing : "nothing");
	fflush(stdout);
	/* Where everybody is, in the kernel's log. */
	system("echo t > /proc/sysrq-trigger");
	_exit(1);
}

int main(int argc, char **argv)
{
	struct rlimit limit = { 4096, 4096 };
	struct sigaction action = { .sa_handler = on_alarm };
	uint64_t seed = time(NULL), calls = 0, before[64] = { 0 };
	int seconds = 60, threads = 4, still[64] = { 0 }, option, i;
	struct worker *workers;
	time_t end;

	while ((option = getopt(argc, argv, "s:t:j:fc")) >= 0) {
		switch (option) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			seconds = atoi(optarg);
			break;
		case 'j':
			threads = atoi(optarg);
			break;
		case 'f':
			inject = true;
			break;
		case 'c':
			no_streams = true;
			break;
		default:
			errx(2, "usage: fuzz [-s SEED] [-t SECONDS] [-j THREADS] [-f] [-c]");
		}
	}
	if (threads < 1 || threads > 64 || seconds < 1)
		errx(2, "1 to 64 threads, at least a second");
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	signal(SIGURG, SIG_IGN);
	sigaction(SIGALRM, &action, NULL);
	if (setrlimit(RLIMIT_NOFILE, &limit))
		err(1, "setrlimit");
	if (inject && smc_allow_refusals())
		errx(1, "no fault injection in this kernel");
	make_namespaces();
	for (i = 0; i < POOL; i++)
		pool[i] = -1;
	for (i = 0; i < STREAMS; i++) {
		pthread_rwlock_init(&streams[i].life, NULL);
		for (int k = 0; k < 2; k++) {
			pthread_mutex_init(&streams[i].to[k].tx, NULL);
			pthread_mutex_init(&streams[i].to[k].rx, NULL);
		}
	}
	workers = calloc(threads, sizeof(*workers));
	for (i = 0; i < threads; i++) {
		workers[i].number = i;
		/* Never zero, and far apart. */
		workers[i].rng.state = (seed + 1) * 0x9e3779b97f4a7c15 + (i + 1) * 0xd1342543de82ef95;
		if (!workers[i].rng.state)
			workers[i].rng.state = 1;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			err(1, "pthread_create");
	}
	end = time(NULL) + seconds;
	while (time(NULL) < end || !over) {
		sleep(1);
		over = time(NULL) >= end;
		for (i = 0; i < threads; i++) {
			still[i] = workers[i].calls == before[i] ? still[i] + 1 : 0;
			before[i] = workers[i].calls;
			if (still[i] >= STUCK_SECONDS) {
				complain("thread %d stands still", i);
				report_stuck(workers, threads);
			}
		}
	}
	/* What they are in ends too. */
	alarm(0);
	for (i = 0; i < threads; i++) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += STUCK_SECONDS;
		if (pthread_timedjoin_np(workers[i].thread, NULL, &until)) {
			complain("thread %d does not end", i);
			report_stuck(workers, threads);
		}
		calls += workers[i].calls;
	}
	for (i = 0; i < STREAMS; i++) {
		if (streams[i].open) {
			close(streams[i].fd[0]);
			close(streams[i].fd[1]);
		}
	}
	for (i = 0; i < POOL; i++) {
		if (pool[i] >= 0)
			close(pool[i]);
	}
	printf("%llu calls, %llu connections, %llu SMC-D, %llu resets, %llu bytes verified, %llu refusals, %u wrong\n",
	       (unsigned long long)calls, (unsigned long long)connections, (unsigned long long)smcd,
	       (unsigned long long)resets, (unsigned long long)bytes_verified,
	       (unsigned long long)refusals, wrong);
	return wrong ? 1 : 0;
}
