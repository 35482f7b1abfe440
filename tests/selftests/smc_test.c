// SPDX-License-Identifier: GPL-2.0
/* Socket pairs, streams and namespaces for the tests: see smc_test.h. */

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "smc_test.h"

#define TCP_END(domain)		{ domain, 0, SMC_MODE_PLAIN }

const struct smc_ends smc_ends_tcp = {
	AF_INET, TCP_END(AF_INET), TCP_END(AF_INET),
};

const struct smc_ends smc_ends_tcp6 = {
	AF_INET6, TCP_END(AF_INET6), TCP_END(AF_INET6),
};

const struct smc_ends smc_ends_smc = {
	AF_INET,
	{ AF_INET, IPPROTO_SMC, SMC_MODE_SMCD },
	{ AF_INET, IPPROTO_SMC, SMC_MODE_SMCD },
};

const struct smc_ends smc_ends_smc6 = {
	AF_INET6,
	{ AF_INET6, IPPROTO_SMC, SMC_MODE_SMCD },
	{ AF_INET6, IPPROTO_SMC, SMC_MODE_SMCD },
};

const struct smc_ends smc_ends_af_smc = {
	AF_INET,
	{ AF_SMC, SMCPROTO_SMC, SMC_MODE_SMCD },
	{ AF_SMC, SMCPROTO_SMC, SMC_MODE_SMCD },
};

const struct smc_ends smc_ends_af_smc6 = {
	AF_INET6,
	{ AF_SMC, SMCPROTO_SMC6, SMC_MODE_SMCD },
	{ AF_SMC, SMCPROTO_SMC6, SMC_MODE_SMCD },
};

const struct smc_ends smc_ends_mixed = {
	AF_INET,
	{ AF_SMC, SMCPROTO_SMC, SMC_MODE_SMCD },
	{ AF_INET, IPPROTO_SMC, SMC_MODE_SMCD },
};

const struct smc_ends smc_ends_fallback_client = {
	AF_INET,
	{ AF_SMC, SMCPROTO_SMC, SMC_MODE_FALLBACK },
	TCP_END(AF_INET),
};

const struct smc_ends smc_ends_fallback_server = {
	AF_INET,
	TCP_END(AF_INET),
	{ AF_SMC, SMCPROTO_SMC, SMC_MODE_FALLBACK },
};

/* Reports what failed, keeping the error for the caller. */
static int __printf(2, 3) fail(int error, const char *format, ...)
{
	va_list args;

	fputs("# ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(error));
	return -error;
}

bool smc_is_smcd(const struct smc_ends *ends)
{
	return ends->client.mode == SMC_MODE_SMCD;
}

bool smc_can_run(const struct smc_ends *ends)
{
	if (ends->client.mode == SMC_MODE_PLAIN && ends->server.mode == SMC_MODE_PLAIN)
		return true;
	return smc_sockets_in_use() >= 0;
}

/* Sockets */

int smc_socket(const struct smc_end *end, int flags)
{
	int fd = socket(end->domain, SOCK_STREAM | flags, end->protocol);

	if (fd < 0)
		return fail(errno, "socket(%d, SOCK_STREAM, %d)", end->domain,
			    end->protocol);
	return fd;
}

/* The loopback address of @family with port 0; returns its length. */
socklen_t smc_loopback(int family, struct sockaddr_storage *addr)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;

	memset(addr, 0, sizeof(*addr));
	addr->ss_family = family;
	if (family == AF_INET6) {
		in6->sin6_addr = in6addr_loopback;
		return sizeof(*in6);
	}
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return sizeof(*in);
}

/* A listener on a free port of the loopback address, which goes to @addr. */
int smc_listen(const struct smc_ends *ends, int backlog,
	       struct sockaddr_storage *addr, socklen_t *len)
{
	int fd = smc_socket(&ends->server, 0);

	if (fd < 0)
		return fd;
	*len = smc_loopback(ends->family, addr);
	if (bind(fd, (struct sockaddr *)addr, *len) ||
	    listen(fd, backlog) ||
	    getsockname(fd, (struct sockaddr *)addr, len)) {
		int ret = fail(errno, "cannot listen");

		close(fd);
		return ret;
	}
	return fd;
}

/* A client connected to @addr by a blocking connect. */
int smc_connect(const struct smc_ends *ends, const struct sockaddr_storage *addr,
		socklen_t len)
{
	int fd = smc_socket(&ends->client, 0);

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)addr, len)) {
		int ret = fail(errno, "connect");

		close(fd);
		return ret;
	}
	return fd;
}

int smc_accept(int listener)
{
	int fd = accept(listener, NULL, NULL);

	return fd < 0 ? fail(errno, "accept") : fd;
}

/*
 * A connection through @listener; fd[0] is the client, fd[1] the server. Both
 * are what @ends says they must be, or the call fails.
 */
int smc_pair_from(const struct smc_ends *ends, int listener,
		  const struct sockaddr_storage *addr, socklen_t len, int fd[2])
{
	int ret;

	fd[1] = -1;
	fd[0] = smc_connect(ends, addr, len);
	if (fd[0] < 0)
		return fd[0];
	fd[1] = smc_accept(listener);
	ret = fd[1] < 0 ? fd[1] : smc_check_modes(ends, fd);
	if (ret)
		smc_close_pair(fd);
	return ret;
}

/* The same with a listener of its own, already closed again. */
int smc_pair(const struct smc_ends *ends, int fd[2])
{
	struct sockaddr_storage addr;
	int listener, ret;
	socklen_t len;

	listener = smc_listen(ends, 1, &addr, &len);
	if (listener < 0)
		return listener;
	ret = smc_pair_from(ends, listener, &addr, len, fd);
	close(listener);
	return ret;
}

void smc_close_pair(int fd[2])
{
	for (int i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
}

int smc_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return fail(errno, "F_GETFL");
	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(fd, F_SETFL, flags) ? fail(errno, "F_SETFL") : 0;
}

/* SO_LINGER with a time; 0 makes close() a reset. */
int smc_set_linger(int fd, int seconds)
{
	struct linger linger = { .l_onoff = 1, .l_linger = seconds };

	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)))
		return fail(errno, "SO_LINGER");
	return 0;
}

/* The pending error of a socket, which reading it clears. */
int smc_error(int fd)
{
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
		return fail(errno, "SO_ERROR");
	return error;
}

/* The poll mask of @fd once one of @events (or ERR, HUP) is there; 0 if not. */
short smc_poll(int fd, short events, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = events };
	int ret;

	do {
		ret = poll(&pfd, 1, timeout_ms);
	} while (ret < 0 && errno == EINTR);
	return ret > 0 ? pfd.revents : 0;
}

/* Streams */

/* The eight bytes of the stream @seed at word @index (splitmix64). */
static uint64_t stream_word(uint64_t seed, uint64_t index)
{
	uint64_t word = seed + (index + 1) * 0x9e3779b97f4a7c15;

	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
	word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
	return word ^ (word >> 31);
}

/* How many of @left bytes at @pos lie in the word of @pos. */
static size_t in_word(uint64_t pos, size_t left)
{
	size_t rest = 8 - pos % 8;

	return rest < left ? rest : left;
}

/* Bytes [pos, pos + len) of the stream @seed. */
void smc_fill(void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	char *to = buf;

	while (len) {
		uint64_t word = stream_word(seed, pos / 8);
		size_t part = in_word(pos, len);

		memcpy(to, (char *)&word + pos % 8, part);
		to += part;
		pos += part;
		len -= part;
	}
}

/* Where @buf first differs from bytes [pos, pos + len) of @seed, or -1. */
ssize_t smc_find_wrong(const void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	const char *from = buf;
	size_t done = 0;

	while (done < len) {
		uint64_t word = stream_word(seed, (pos + done) / 8);
		size_t part = in_word(pos + done, len - done);

		if (memcmp(from + done, (char *)&word + (pos + done) % 8, part))
			return done;
		done += part;
	}
	return -1;
}

/* Sends bytes [pos, pos + bytes) of @seed in calls of @chunk bytes. */
int smc_send_all(int fd, uint64_t seed, uint64_t pos, uint64_t bytes, size_t chunk)
{
	uint64_t end = pos + bytes;
	int result = 0;
	char *buf;

	buf = malloc(chunk);
	if (!buf)
		return fail(ENOMEM, "send buffer");
	while (pos < end && !result) {
		size_t len = end - pos < chunk ? end - pos : chunk;
		size_t sent = 0;

		smc_fill(buf, len, seed, pos);
		while (sent < len) {
			ssize_t ret = send(fd, buf + sent, len - sent, MSG_NOSIGNAL);

			if (ret < 0) {
				result = fail(errno, "send at byte %llu",
					      (unsigned long long)(pos + sent));
				break;
			}
			sent += ret;
		}
		pos += sent;
	}
	free(buf);
	return result;
}

/* Receives bytes [pos, pos + bytes) of @seed and compares every one. */
int smc_recv_all(int fd, uint64_t seed, uint64_t pos, uint64_t bytes, size_t chunk)
{
	uint64_t end = pos + bytes;
	int result = 0;
	char *buf;

	buf = malloc(chunk);
	if (!buf)
		return fail(ENOMEM, "receive buffer");
	while (pos < end) {
		size_t len = end - pos < chunk ? end - pos : chunk;
		ssize_t ret = recv(fd, buf, len, 0);
		ssize_t wrong;

		if (ret <= 0) {
			result = fail(ret ? errno : ENODATA, "recv at byte %llu",
				      (unsigned long long)pos);
			break;
		}
		wrong = smc_find_wrong(buf, ret, seed, pos);
		if (wrong >= 0) {
			result = fail(EILSEQ, "byte %llu of the stream",
				      (unsigned long long)(pos + wrong));
			break;
		}
		pos += ret;
	}
	free(buf);
	return result;
}

/* Nothing more comes, and the peer has closed cleanly. */
int smc_recv_eof(int fd)
{
	char byte;
	ssize_t ret = recv(fd, &byte, 1, 0);

	if (ret < 0)
		return fail(errno, "recv instead of end of file");
	return ret ? fail(EILSEQ, "a byte instead of end of file") : 0;
}

/* A short message each way: both ends live, and belong to each other. */
int smc_exchange(int a, int b, uint64_t seed)
{
	int ret;

	ret = smc_send_all(a, seed, 0, 64, 64);
	if (!ret)
		ret = smc_recv_all(b, seed, 0, 64, 64);
	if (!ret)
		ret = smc_send_all(b, ~seed, 0, 64, 64);
	if (!ret)
		ret = smc_recv_all(a, ~seed, 0, 64, 64);
	return ret;
}

static void *stream_thread(void *arg)
{
	struct smc_stream *stream = arg;

	if (stream->sender)
		stream->result = smc_send_all(stream->fd, stream->seed, 0,
					      stream->bytes, stream->chunk);
	else
		stream->result = smc_recv_all(stream->fd, stream->seed, 0,
					      stream->bytes, stream->chunk);
	return NULL;
}

int smc_stream_start(struct smc_stream *stream)
{
	int ret = pthread_create(&stream->thread, NULL, stream_thread, stream);

	return ret ? fail(ret, "pthread_create") : 0;
}

int smc_stream_join(struct smc_stream *stream)
{
	int ret = pthread_join(stream->thread, NULL);

	return ret ? fail(ret, "pthread_join") : stream->result;
}

long smc_parameter(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 0) : otherwise;
}

/* Network namespaces */

static int loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int ret = 0;
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0)
		return fail(errno, "socket");
	ifr.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
	if (ioctl(fd, SIOCSIFFLAGS, &ifr))
		ret = fail(errno, "cannot bring lo up");
	close(fd);
	return ret;
}

/* Moves the caller to a new network namespace with lo up. */
int smc_netns_new(void)
{
	if (unshare(CLONE_NEWNET))
		return fail(errno, "unshare(CLONE_NEWNET)");
	return loopback_up();
}

/* A descriptor of the caller's namespace, for smc_netns_enter(). */
int smc_netns_open(void)
{
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? fail(errno, "open namespace") : fd;
}

int smc_netns_enter(int ns)
{
	return setns(ns, CLONE_NEWNET) ? fail(errno, "setns") : 0;
}

/* Writes @text to the file of a sysctl, mostly one of the caller's namespace. */
int smc_count_tcp(unsigned int state)
{
	static const char *const tables[] = {
		"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"
	};
	int sum = 0;

	for (int i = 0; i < 2; i++) {
		FILE *file = fopen(tables[i], "r");
		unsigned int found;
		char line[512];

		if (!file)
			continue;
		while (fgets(line, sizeof(line), file)) {
			if (sscanf(line, " %*d: %*[^ ] %*[^ ] %x", &found) == 1)
				sum += state ? found == state : found != TCP_LISTEN;
		}
		fclose(file);
	}
	return sum;
}

int smc_set_sysctl(const char *path, const char *text)
{
	int ret, fd = open(path, O_WRONLY);

	if (fd < 0)
		return fail(errno, "open %s", path);
	ret = write(fd, text, strlen(text)) < 0 ? fail(errno, "write %s", path) : 0;
	close(fd);
	return ret;
}

/*
 * Lets the kernel refuse any allocation of a task that asks for it by its
 * fail-nth file: sleeping ones and single pages too, and quietly. Fails where
 * the kernel has no fault injection.
 */
int smc_allow_refusals(void)
{
	static const char *const settings[][2] = {
		{ "failslab/ignore-gfp-wait", "N" }, { "failslab/verbose", "0" },
		{ "fail_page_alloc/ignore-gfp-wait", "N" }, { "fail_page_alloc/verbose", "0" },
		{ "fail_page_alloc/ignore-gfp-highmem", "N" }, { "fail_page_alloc/min-order", "0" },
	};
	char path[128];

	if (access("/sys/kernel/debug/failslab", F_OK))
		return -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", settings[i][0]);
		if (smc_set_sysctl(path, settings[i][1]))
			return -ENOENT;
	}
	return 0;
}
