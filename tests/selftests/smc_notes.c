// SPDX-License-Identifier: GPL-2.0
/*
 * TCP as the oracle: a scenario notes what a program can observe; the variant's
 * notes must equal those of TCP on the same kernel.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "smc_test.h"

void smc_note(struct smc_notes *notes, const char *format, ...)
{
	size_t left = sizeof(notes->text) - notes->len;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(notes->text + notes->len, left, format, args);
	va_end(args);
	if (len > 0)
		notes->len += (size_t)len < left ? (size_t)len : left - 1;
}

/* The result of a call; its errno by name where it failed. */
void smc_note_result(struct smc_notes *notes, const char *call, ssize_t result)
{
	if (result < 0)
		smc_note(notes, " %s=%s", call, strerrorname_np(errno));
	else
		smc_note(notes, " %s=%zd", call, result);
}

/* What poll() says now, by name. */
void smc_note_poll(struct smc_notes *notes, int fd)
{
	static const struct {
		short bit;
		const char *name;
	} bits[] = {
		{ POLLIN, "IN" }, { POLLPRI, "PRI" }, { POLLOUT, "OUT" },
		{ POLLRDHUP, "RDHUP" }, { POLLERR, "ERR" }, { POLLHUP, "HUP" },
		{ POLLRDNORM, "RDNORM" }, { POLLWRNORM, "WRNORM" },
	};
	struct pollfd pfd = {
		.fd = fd,
		.events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLWRNORM,
	};
	char separator = '=';

	poll(&pfd, 1, 0);
	smc_note(notes, " poll");
	for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
		if (!(pfd.revents & bits[i].bit))
			continue;
		smc_note(notes, "%c%s", separator, bits[i].name);
		separator = '|';
	}
	if (separator == '=')
		smc_note(notes, "=0");
}

/*
 * Waits until what the ends (-1: closed) report no longer changes, since
 * packets of TCP may still be on their way to a busy softirq.
 */
void smc_settle(const int fd[2])
{
	const struct timespec pause = { .tv_nsec = 50000 };
	short last[2] = { -1, -1 };
	int equal = 0;

	while (equal < 2) {
		struct pollfd pfd[2];

		for (int i = 0; i < 2; i++)
			pfd[i] = (struct pollfd) {
				.fd = fd[i],
				.events = POLLIN | POLLOUT | POLLRDHUP,
			};
		poll(pfd, 2, 0);
		if (pfd[0].revents == last[0] && pfd[1].revents == last[1])
			equal++;
		else
			equal = 0;
		last[0] = pfd[0].revents;
		last[1] = pfd[1].revents;
		nanosleep(&pause, NULL);
	}
}

/* Shows where two notes part: enough of what came before, and what follows. */
static void show_difference(const char *want, const char *got)
{
	size_t same = 0, from;

	while (want[same] && want[same] == got[same])
		same++;
	while (same && want[same - 1] != ' ')
		same--;
	from = same > 400 ? same - 400 : 0;
	fprintf(stderr, "# %s%.*s\n#   TCP:  %.100s\n#   here: %.100s\n", from ? "..." : "",
		(int)(same - from), want + from, want + same, got + same);
}

/*
 * Plays @scenario on TCP and on @ends. A difference is looked at again twice,
 * because a busy machine can delay a packet of either; a real one stays.
 */
bool smc_same_as_tcp(const struct smc_ends *ends, smc_scenario *scenario, const void *arg)
{
	const struct smc_ends *tcp = ends->family == AF_INET6 ? &smc_ends_tcp6 : &smc_ends_tcp;
	struct smc_notes want, got;

	for (int round = 0; round < 3; round++) {
		memset(&want, 0, sizeof(want));
		memset(&got, 0, sizeof(got));
		scenario(tcp, &want, arg);
		scenario(ends, &got, arg);
		if (!strcmp(want.text, got.text))
			return true;
	}
	show_difference(want.text, got.text);
	return false;
}

pid_t smc_thread_id(void)
{
	return syscall(SYS_gettid);
}

/* 0 once the task that @path describes sleeps, -ETIMEDOUT if it does not. */
static int wait_asleep(const char *path)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	char text[256];

	for (int waited = 0; waited < SMC_TIMEOUT_MS; waited++) {
		int fd = open(path, O_RDONLY);
		const char *state;
		ssize_t len;

		if (fd < 0)
			return -errno;
		len = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[len > 0 ? len : 0] = '\0';
		state = strrchr(text, ')');
		if (state && state[1] == ' ' && state[2] == 'S')
			return 0;
		nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

/* 0 once thread @tid of this process sleeps. */
int smc_wait_asleep(pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	return wait_asleep(path);
}

/* 0 once the main thread of process @pid sleeps. */
int smc_wait_process_asleep(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	return wait_asleep(path);
}
