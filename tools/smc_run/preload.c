// SPDX-License-Identifier: GPL-2.0
/*
 * libsmc_preload.so - TCP sockets of a program become SMC sockets.
 *
 * socket() for a TCP stream, of AF_INET or AF_INET6, opens an SMC socket
 * instead; every other call goes through as it came. A kernel without SMC
 * gives the TCP socket that was asked for.
 *
 * Environment, ignored in set-uid programs:
 *	SMC_FAMILY	inet: same domain, protocol IPPROTO_SMC (default)
 *			smc:  AF_SMC, as the preload library of smc-tools
 *			auto: inet if the kernel has it, else smc
 *	SMC_RCVBUF	size of the receive buffer in bytes, suffixes k and m
 *	SMC_SNDBUF	size of the send buffer, likewise
 *	SMC_DEBUG	not 0: one line on standard error for each socket
 *
 * In family inet the socket reports the domain the program asked for, and
 * getsockopt(SO_PROTOCOL) is answered with IPPROTO_TCP, so that a program which
 * recognises TCP by them still does.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef AF_SMC
#define AF_SMC		43
#endif
#ifndef IPPROTO_SMC
#define IPPROTO_SMC	256
#endif
#define SMCPROTO_SMC	0
#define SMCPROTO_SMC6	1

/* The kernel's SOCK_TYPE_MASK: what is left are SOCK_NONBLOCK, SOCK_CLOEXEC. */
#define TYPE_MASK	0xf

#define EXPORT		__attribute__((visibility("default")))

/* What socket() of a TCP stream becomes, in the order tried before TCP. */
enum family {
	FAMILY_INET,
	FAMILY_SMC,
	FAMILY_AUTO,
};

static int (*next_socket)(int domain, int type, int protocol);
static int (*next_getsockopt)(int fd, int level, int name, void *value,
			      socklen_t *len);

static enum family family = FAMILY_INET;
static bool debug;
static int rcvbuf;
static int sndbuf;

/* Bytes that @name asks for, 0 if it is unset or no size. */
static int size_from_env(const char *name)
{
	const char *text = secure_getenv(name);
	long long bytes;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	bytes = strtoll(text, &end, 10);
	if (end == text || errno || bytes < 0 || bytes > 0x7fffffff)
		return 0;
	if (*end == 'k' || *end == 'K') {
		bytes *= 1024;
		end++;
	} else if (*end == 'm' || *end == 'M') {
		bytes *= 1024 * 1024;
		end++;
	}
	return *end || bytes > 0x7fffffff ? 0 : bytes;
}

static void set_up_once(void)
{
	const char *text;

	/* POSIX promises that a function fits into the result of dlsym(). */
	*(void **)&next_socket = dlsym(RTLD_NEXT, "socket");
	*(void **)&next_getsockopt = dlsym(RTLD_NEXT, "getsockopt");

	text = secure_getenv("SMC_FAMILY");
	if (text && !strcmp(text, "smc"))
		family = FAMILY_SMC;
	else if (text && !strcmp(text, "auto"))
		family = FAMILY_AUTO;
	text = secure_getenv("SMC_DEBUG");
	debug = text && *text && strcmp(text, "0");
	rcvbuf = size_from_env("SMC_RCVBUF");
	sndbuf = size_from_env("SMC_SNDBUF");
}

/*
 * Runs at the first call, not only in a constructor: another library's
 * constructor may open sockets, or start threads that do, before ours runs.
 */
static void set_up(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int saved = errno;

	pthread_once(&once, set_up_once);
	errno = saved;
}

static __attribute__((constructor)) void set_up_early(void)
{
	set_up();
}

static bool is_tcp_stream(int domain, int type, int protocol)
{
	return (domain == AF_INET || domain == AF_INET6) &&
	       (type & TYPE_MASK) == SOCK_STREAM &&
	       (protocol == 0 || protocol == IPPROTO_TCP);
}

/* Did the kernel say that it does not know this kind of socket? */
static bool is_unsupported(int error)
{
	return error == EPROTONOSUPPORT || error == ESOCKTNOSUPPORT ||
	       error == EAFNOSUPPORT;
}

static void report(int domain, const char *kind, int fd)
{
	if (debug)
		dprintf(STDERR_FILENO, "libsmc_preload: %s stream socket %d is %s\n",
			domain == AF_INET ? "AF_INET" : "AF_INET6", fd, kind);
}

/* Asks for the sizes the user named; a refusal leaves the kernel's default. */
static void set_buffers(int fd)
{
	if (rcvbuf)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
	if (sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
}

/* An SMC socket for a TCP stream of @domain, or -1 with errno set. */
static int smc_socket(int domain, int type, const char **kind)
{
	int fd = -1;

	if (family != FAMILY_SMC) {
		*kind = "IPPROTO_SMC";
		fd = next_socket(domain, type, IPPROTO_SMC);
		if (fd >= 0 || family == FAMILY_INET || !is_unsupported(errno))
			return fd;
	}
	*kind = "AF_SMC";
	return next_socket(AF_SMC, type,
			   domain == AF_INET ? SMCPROTO_SMC : SMCPROTO_SMC6);
}

EXPORT int socket(int domain, int type, int protocol)
{
	int saved = errno;
	const char *kind;
	int fd;

	set_up();
	if (!is_tcp_stream(domain, type, protocol))
		return next_socket(domain, type, protocol);

	fd = smc_socket(domain, type, &kind);
	if (fd < 0) {
		if (!is_unsupported(errno))
			return fd;
		errno = saved;
		fd = next_socket(domain, type, protocol);
		if (fd < 0)
			return fd;
		kind = "TCP: this kernel has no SMC";
	}
	saved = errno;
	set_buffers(fd);
	report(domain, kind, fd);
	errno = saved;
	return fd;
}

EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int protocol;
	int ret;

	set_up();
	ret = next_getsockopt(fd, level, name, value, len);
	if (ret || level != SOL_SOCKET || name != SO_PROTOCOL ||
	    *len < sizeof(protocol))
		return ret;
	memcpy(&protocol, value, sizeof(protocol));
	if (protocol == IPPROTO_SMC) {
		protocol = IPPROTO_TCP;
		memcpy(value, &protocol, sizeof(protocol));
	}
	return 0;
}
