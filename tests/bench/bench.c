// SPDX-License-Identifier: GPL-2.0
/*
 * bench - the cost of connections, round trips and bulk data, one figure a line:
 *
 *	ROW VALUE UNIT
 *
 *	bench tcp|smc|unix|pipe [ROW...]
 *	bench tcp|smc|unix|pipe -ROW...	all but these
 *
 * A row comes as often as it was measured, and not at all where it has no
 * meaning. Its name says what was measured:
 *
 *	conn_echo_close		connect, a 64 B echo by another process, close
 *	conn_echo_close_quiet	the same, with net.smc.quiet_close over smc_lo
 *	conn_echo_close_1m	the same with buffers of 1 MiB set at both ends
 *	setup_live_N		connect, accept and close while N others live
 *	rtt_N			a message of N bytes there and back
 *	rtt_1k_busypoll		the same with SO_BUSY_POLL
 *	oneway_100		messages of 100 B, one after the other
 *	oneway_100_nodelay	the same with TCP_NODELAY
 *	stream_N		writes of N bytes, reads of 64 KiB
 *	stream_64k_1m		the same with buffers of 1 MiB set at both ends
 *	mem_idle_kb		memory of a connection that was used once
 *	live_max		connections that live at once, of LIVE_MAX tried;
 *				SMC counts those that are SMC-D
 *
 * The peer is a child process. Meant for a machine that counts instructions
 * (one instruction = 1 ns), where the figures repeat to a percent; elsewhere
 * only their relation means anything. Every connection is proved by sock_diag
 * to be what the family says.
 */

#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"
#include "smc_test.h"

#define SAMPLES		5
#define CONNECTIONS	200
#define SETUPS		100
#define ROUND_TRIPS	400
#define MESSAGES	20000
#define BULK		(16 << 20)
#define IDLE		1500
#define LIVE_MAX	20000
/* Of one address pair fewer ports than that are ephemeral. */
#define LIVE_PER_ADDRESS 8000

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

/* Measuring begins; the marks are for profile.c. */
static double begin(void)
{
#ifdef __x86_64__
	asm volatile(MARK_BYTES(0x01) ::: "memory");
#endif
	return now();
}

/* Measuring ends: the microseconds since begin(). */
static double since(double start)
{
	double time = now() - start;

#ifdef __x86_64__
	asm volatile(MARK_BYTES(0x02) ::: "memory");
#endif
	return time;
}

static const char *row;

static void print(double value, const char *unit)
{
	printf("%s %.3f %s\n", row, value, unit);
	fflush(stdout);
}

/* Sizes of the buffers of the sockets to come; 0 leaves them as they are. */
static int buffer_size;

static void set_buffers(int fd)
{
	if (buffer_size &&
	    (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_size, sizeof(buffer_size)) ||
	     setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_size, sizeof(buffer_size))))
		err(1, "setsockopt");
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
		/* What is accepted inherits them. */
		set_buffers(fd);
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

	fd = family == UNIX ? socket(AF_UNIX, SOCK_STREAM, 0) :
			      smc_socket(&ends()->client, 0);
	if (fd < 0)
		errx(1, "no socket");
	set_buffers(fd);
	if (connect(fd, (struct sockaddr *)&address, address_len))
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

static void conn_echo_close(long size)
{
	int listener, warm = CONNECTIONS / 8;
	double start = 0;
	pid_t child;
	int i, fd;

	buffer_size = size;
	listener = listen_here();
	child = fork_peer();
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
			start = begin();
		fd = connect_there();
		put(fd, 64);
		if (!get(fd, 64))
			errx(1, "no echo");
		if (i == 0)
			prove(fd);
		close(fd);
	}
	print(since(start) / CONNECTIONS, "us");
	reap(child);
	close(listener);
}

/* The same where connections end without a packet, which other stacks do not offer. */
static void conn_echo_close_quiet(long size)
{
	int fd = family == SMC ? open("/proc/sys/net/smc/quiet_close", O_WRONLY) : -1;

	if (family == SMC && fd < 0)
		return;
	if (fd >= 0 && write(fd, "1", 1) != 1)
		err(1, "quiet_close");
	conn_echo_close(size);
	if (fd >= 0 && pwrite(fd, "0", 1, 0) != 1)
		err(1, "quiet_close");
	close(fd);
}

/* Both ends of a new connection, in this process. */
static void make_pair(int listener, int fd[2])
{
	fd[0] = connect_there();
	fd[1] = accept(listener, NULL, NULL);
	if (fd[1] < 0)
		err(1, "accept");
}

static int (*live)[2];
static int live_count;

static void grow_to(int listener, int count)
{
	for (; live_count < count; live_count++)
		make_pair(listener, live[live_count]);
}

static void close_live(void)
{
	for (; live_count > 0; live_count--) {
		close(live[live_count - 1][0]);
		close(live[live_count - 1][1]);
	}
}

static void setup_live(long others)
{
	int fd[2], sample, i, listener = listen_here();
	double start;

	/* C has room for so many. */
	grow_to(listener, others);
	for (sample = 0; sample <= SAMPLES; sample++) {
		start = begin();
		for (i = 0; i < SETUPS; i++) {
			make_pair(listener, fd);
			if (i == 0 && sample == 0) {
				if (family == SMC && smc_mode(fd[0]) != SMC_MODE_SMCD)
					goto out;
			}
			close(fd[1]);
			close(fd[0]);
		}
		/* The first one warms up. */
		if (sample)
			print(since(start) / SETUPS, "us");
	}
out:
	close_live();
	close(listener);
}

static long available_kb(void)
{
	char line[128];
	long kb = -1;
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(line, sizeof(line), file) && sscanf(line, "MemFree: %ld", &kb) != 1)
		;
	if (kb < 0)
		errx(1, "/proc/meminfo");
	fclose(file);
	return kb;
}

static void mem_idle(long count)
{
	int listener = listen_here();
	long before, after;
	int i;

	/* Slabs and caches of the first connections. */
	grow_to(listener, 10);
	sleep(2);
	before = available_kb();
	grow_to(listener, 10 + count);
	for (i = 0; i < live_count; i++) {
		put(live[i][0], 64);
		get(live[i][1], 64);
		put(live[i][1], 64);
		get(live[i][0], 64);
	}
	prove(live[live_count - 1][0]);
	/* Idle: so long that whatever is to go back has gone. */
	sleep(15);
	after = available_kb();
	print((double)(before - after) / count, "kB");
	close_live();
	close(listener);
}

static int count_smcd(const struct smc_info *info, void *arg)
{
	*(int *)arg += info->mode == SMC_MODE_SMCD && info->state == 1;
	return 0;
}

static void live_max(long most)
{
	int i, count = 0, listeners = 0, listener[LIVE_MAX / LIVE_PER_ADDRESS + 1];

	for (i = 0; i < most; i++) {
		/* Another listener is another port, to which all ephemeral ones may connect. */
		if (i % LIVE_PER_ADDRESS == 0)
			listener[listeners++] = listen_here();
		grow_to(listener[listeners - 1], i + 1);
	}
	count = 2 * live_count;
	if (family == SMC) {
		count = 0;
		if (smc_diag_walk(count_smcd, &count))
			errx(1, "no sock_diag");
	}
	print(count / 2, "connections");
	close_live();
	while (listeners > 0)
		close(listener[--listeners]);
}

/* A stream in both directions: descriptors to read and to write. */
struct link {
	int in;
	int out;
};

static void set_busy_poll(int fd)
{
	int us = 200;

	if (setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof(us)))
		err(1, "SO_BUSY_POLL");
}

static bool busy_poll;
static bool no_delay;

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
		if (busy_poll)
			set_busy_poll(there->in);
		there->out = there->in;
	} else {
		int one = 1;

		here->in = connect_there();
		if (busy_poll)
			set_busy_poll(here->in);
		if (no_delay && setsockopt(here->in, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
			err(1, "TCP_NODELAY");
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

static void round_trips(long bytes)
{
	size_t size = bytes;
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
			start = begin();
		put(here.out, size);
		if (!get(here.in, size))
			errx(1, "no echo");
	}
	print(since(start) / ROUND_TRIPS, "us");
	close(here.out);
	reap(child);
}

static void rtt_busypoll(long size)
{
	busy_poll = true;
	round_trips(size);
	busy_poll = false;
}

/* @total bytes in writes of @size, in microseconds. */
static double pour(size_t size, size_t total)
{
	struct link here, there;
	double start = 0;
	size_t done, got = 0;
	size_t warm = total / 8 / size * size;
	pid_t child = join(&here, &there);

	total = warm + total / size * size;
	if (!child) {
		answer(&there);
		while (got < total) {
			ssize_t n = read(there.in, buffer, 65536);

			if (n <= 0)
				err(1, "read");
			got += n;
		}
		put(there.out, 1);
		_exit(0);
	}
	for (done = 0; done < total; done += size) {
		if (!start && done >= warm)
			start = begin();
		put(here.out, size);
	}
	get(here.in, 1);
	start = since(start);
	close(here.out);
	reap(child);
	return start;
}

static void oneway(long size)
{
	print(MESSAGES / pour(size, MESSAGES * size) * 1e6, "messages/s");
}

static void oneway_nodelay(long size)
{
	no_delay = true;
	oneway(size);
	no_delay = false;
}

static void stream(long size)
{
	/* Bytes a microsecond are megabytes a second. */
	print(BULK / pour(size, BULK), "MB/s");
}

static void stream_1m(long size)
{
	buffer_size = 1 << 20;
	stream(size);
}

#define SOCKETS		(1 << TCP | 1 << SMC | 1 << UNIX)
#define ALL		(SOCKETS | 1 << PIPE)
#define NETWORK		(1 << TCP | 1 << SMC)

static const struct {
	const char *name;
	void (*run)(long arg);
	long arg;
	int samples;
	int families;
} rows[] = {
	/* Memory first: what comes later leaves slabs behind. */
	{ "mem_idle_kb", mem_idle, IDLE, 1, SOCKETS },
	{ "conn_echo_close", conn_echo_close, 0, SAMPLES, SOCKETS },
	{ "conn_echo_close_quiet", conn_echo_close_quiet, 0, SAMPLES, NETWORK },
	{ "conn_echo_close_1m", conn_echo_close, 1 << 20, SAMPLES, NETWORK },
	{ "setup_live_0", setup_live, 0, 1, SOCKETS },
	{ "setup_live_200", setup_live, 200, 1, SOCKETS },
	{ "setup_live_1000", setup_live, 1000, 1, SOCKETS },
	{ "setup_live_5000", setup_live, 5000, 1, NETWORK },
	{ "setup_live_10000", setup_live, 10000, 1, NETWORK },
	{ "rtt_64", round_trips, 64, SAMPLES, ALL },
	{ "rtt_1k", round_trips, 1024, SAMPLES, ALL },
	{ "rtt_1k_busypoll", rtt_busypoll, 1024, SAMPLES, NETWORK },
	{ "rtt_4k", round_trips, 4096, SAMPLES, ALL },
	{ "oneway_100", oneway, 100, SAMPLES, ALL },
	{ "oneway_100_nodelay", oneway_nodelay, 100, SAMPLES, NETWORK },
	{ "stream_4k", stream, 4096, SAMPLES, ALL },
	{ "stream_64k", stream, 65536, SAMPLES, ALL },
	{ "stream_64k_1m", stream_1m, 65536, SAMPLES, NETWORK },
	{ "live_max", live_max, LIVE_MAX, 1, NETWORK },
};

/* The rows that are named, or all but those named with a minus. */
static bool is_wanted(const char *name, char **names)
{
	bool others = !*names || **names == '-';

	for (; *names; names++) {
		if (!strcmp(*names + (**names == '-'), name))
			return **names != '-';
	}
	return others;
}

int main(int argc, char **argv)
{
	struct rlimit limit = { 65536, 65536 };
	size_t i;
	int k;

	signal(SIGPIPE, SIG_IGN);
	if (setrlimit(RLIMIT_NOFILE, &limit))
		err(1, "setrlimit");
	live = calloc(LIVE_MAX, sizeof(*live));
	for (i = 0; argc >= 2 && i < ARRAY_SIZE(names); i++) {
		if (!strcmp(argv[1], names[i]))
			break;
	}
	if (argc < 2 || i == ARRAY_SIZE(names) || !live)
		errx(2, "usage: bench tcp|smc|unix|pipe [ROW...|-ROW...]");
	family = i;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		row = rows[i].name;
		for (k = 0; k < rows[i].samples; k++) {
			buffer_size = 0;
			if (rows[i].families & 1 << family && is_wanted(row, argv + 2))
				rows[i].run(rows[i].arg);
		}
	}
	return 0;
}
