// SPDX-License-Identifier: GPL-2.0
/*
 * bench - the cost of connections, round trips and bulk data, one figure a line:
 *
 *	TEST FAMILY VALUE UNIT
 *
 *	bench tcp|smc|unix|pipe
 *
 * The peer is a child process. Meant for a machine that counts instructions
 * (one instruction = 1 ns), where the figures repeat to a percent; elsewhere
 * only their relation means anything. Every connection is proved by sock_diag
 * to be what the family says.
 */

#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "smc_test.h"

#define CONNECTIONS	400
#define ROUND_TRIPS	2000
#define BULK		(32 << 20)

enum family {
	TCP,
	SMC,
	UNIX,
	PIPE,
};

static const char *const names[] = { "tcp", "smc", "unix", "pipe" };
static enum family family;
static char buffer[1 << 20];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void print(const char *test, double value, const char *unit)
{
	printf("%s %s %.3f %s\n", test, names[family], value, unit);
	fflush(stdout);
}

static void put(int fd, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(fd, buffer, len - done);

		if (n <= 0)
			err(1, "write");
		done += n;
	}
}

/* False at the end of the stream. */
static bool get(int fd, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, buffer, len - done);

		if (n < 0)
			err(1, "read");
		if (n == 0)
			return false;
		done += n;
	}
	return true;
}

static const struct smc_ends *ends(void)
{
	return family == SMC ? &smc_ends_smc : &smc_ends_tcp;
}

static struct sockaddr_storage address;
static socklen_t address_len;

static int listen_here(void)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address;
	int fd;

	if (family != UNIX) {
		fd = smc_listen(ends(), 128, &address, &address_len);
		if (fd < 0)
			errx(1, "cannot listen");
		return fd;
	}
	/* An abstract name of the kernel's choice. */
	un->sun_family = AF_UNIX;
	address_len = sizeof(sa_family_t);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)un, address_len) || listen(fd, 128))
		err(1, "listen");
	address_len = sizeof(address);
	if (getsockname(fd, (struct sockaddr *)un, &address_len))
		err(1, "getsockname");
	return fd;
}

static int connect_there(void)
{
	int fd;

	if (family != UNIX) {
		fd = smc_connect(ends(), &address, address_len);
		if (fd < 0)
			errx(1, "cannot connect");
		return fd;
	}
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, address_len))
		err(1, "connect");
	return fd;
}

static void prove(int fd)
{
	if (family == SMC && smc_mode(fd) != SMC_MODE_SMCD)
		errx(1, "not SMC-D: mode %d", smc_mode(fd));
}

static void reap(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || status)
		errx(1, "the peer failed");
}

static pid_t fork_peer(void)
{
	pid_t child = fork();

	if (child < 0)
		err(1, "fork");
	return child;
}

static void connections(void)
{
	int listener = listen_here();
	int warm = CONNECTIONS / 8;
	double start = 0;
	pid_t child = fork_peer();
	int i, fd;

	if (!child) {
		for (i = 0; i < CONNECTIONS + warm; i++) {
			fd = accept(listener, NULL, NULL);
			if (fd < 0)
				err(1, "accept");
			if (get(fd, 64))
				put(fd, 64);
			close(fd);
		}
		_exit(0);
	}
	for (i = 0; i < CONNECTIONS + warm; i++) {
		if (i == warm)
			start = now();
		fd = connect_there();
		put(fd, 64);
		if (!get(fd, 64))
			errx(1, "no echo");
		if (i == 0)
			prove(fd);
		close(fd);
	}
	print("connect+echo+close", (now() - start) / CONNECTIONS, "us");
	reap(child);
	close(listener);
}

/* A stream in both directions: descriptors to read and to write. */
struct link {
	int in;
	int out;
};

static pid_t join(struct link *here, struct link *there)
{
	int listener, up[2], down[2];
	pid_t child;

	if (family == PIPE) {
		if (pipe(up) || pipe(down))
			err(1, "pipe");
		*here = (struct link){ down[0], up[1] };
		*there = (struct link){ up[0], down[1] };
		child = fork_peer();
		close(child ? up[0] : down[0]);
		close(child ? down[1] : up[1]);
		return child;
	}
	listener = listen_here();
	child = fork_peer();
	if (!child) {
		there->in = accept(listener, NULL, NULL);
		if (there->in < 0)
			err(1, "accept");
		there->out = there->in;
	} else {
		here->in = connect_there();
		here->out = here->in;
		put(here->out, 1);
		get(here->in, 1);
		prove(here->in);
	}
	close(listener);
	return child;
}

/* First and last byte of every measurement, so that both ends are ready. */
static void answer(struct link *there)
{
	if (family == PIPE)
		return;
	get(there->in, 1);
	put(there->out, 1);
}

static void round_trips(const char *test, size_t size)
{
	int warm = ROUND_TRIPS / 8;
	struct link here, there;
	double start = 0;
	pid_t child = join(&here, &there);
	int i;

	if (!child) {
		answer(&there);
		while (get(there.in, size))
			put(there.out, size);
		_exit(0);
	}
	for (i = 0; i < ROUND_TRIPS + warm; i++) {
		if (i == warm)
			start = now();
		put(here.out, size);
		if (!get(here.in, size))
			errx(1, "no echo");
	}
	print(test, (now() - start) / ROUND_TRIPS, "us");
	close(here.out);
	reap(child);
}

static void bulk(const char *test, size_t size)
{
	struct link here, there;
	double start = 0;
	size_t done, got = 0;
	pid_t child = join(&here, &there);

	if (!child) {
		answer(&there);
		while (got < BULK + BULK / 8) {
			ssize_t n = read(there.in, buffer, 65536);

			if (n <= 0)
				err(1, "read");
			got += n;
		}
		put(there.out, 1);
		_exit(0);
	}
	for (done = 0; done < BULK + BULK / 8; done += size) {
		if (!start && done >= BULK / 8)
			start = now();
		put(here.out, size);
	}
	get(here.in, 1);
	/* Bytes a microsecond are megabytes a second. */
	print(test, BULK / (now() - start), "MB/s");
	close(here.out);
	reap(child);
}

int main(int argc, char **argv)
{
	size_t i;

	signal(SIGPIPE, SIG_IGN);
	for (i = 0; argc == 2 && i < ARRAY_SIZE(names); i++) {
		if (strcmp(argv[1], names[i]))
			continue;
		family = i;
		if (family != PIPE)
			connections();
		round_trips("rtt-64B", 64);
		round_trips("rtt-4KiB", 4096);
		bulk("bulk-4KiB", 4096);
		bulk("bulk-64KiB", 65536);
		return 0;
	}
	errx(2, "usage: bench tcp|smc|unix|pipe");
}
