// SPDX-License-Identifier: GPL-2.0
/*
 * smcprobe - holds or uses SMC sockets for the scripts.
 *
 *	smcprobe KIND		opens sockets of KIND, prints "ready" and waits
 *	smcprobe exchange	one SMC-D connection with data both ways
 *	smcprobe spin		opens and closes sockets of every kind for ever
 *	smcprobe threads N	N threads open a TCP socket at once; prints how many
 *				of them are SMC sockets (for smc_run)
 *	smcprobe load FILE N	loads a module whose N-th allocation is refused;
 *				prints "loaded", the errno, or "no refusal"
 *	smcprobe crowd N SIZE	N connections live at once, each of which carries SIZE
 *				bytes at once each way before anything is read,
 *				and data again when all have; prints how many
 *				ends are SMC-D, how many TCP, and the latter's
 *				reason
 *	smcprobe hold_many N	N connections; prints "ready" and waits
 *	smcprobe rest		one SMC-D connection whose rings go back while it
 *				is idle, and come when it is used again
 *	smcprobe convert	what each kind of socket() became (for smc_run)
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "smc_test.h"

static const struct {
	const char *name;
	struct smc_end end;
} fresh[] = {
	{ "fresh4", { AF_SMC, SMCPROTO_SMC } },
	{ "fresh6", { AF_SMC, SMCPROTO_SMC6 } },
	{ "fresh_inet4", { AF_INET, IPPROTO_SMC } },
	{ "fresh_inet6", { AF_INET6, IPPROTO_SMC } },
};

static int hold(const char *kind)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int ret = -EINVAL;
	int fd[2];

	for (size_t i = 0; i < ARRAY_SIZE(fresh); i++) {
		if (!strcmp(kind, fresh[i].name))
			ret = smc_socket(&fresh[i].end, 0);
	}
	if (!strcmp(kind, "listener"))
		ret = smc_listen(&smc_ends_smc, 1, &addr, &len);
	if (!strcmp(kind, "pair"))
		ret = smc_pair(&smc_ends_smc, fd);
	if (!strcmp(kind, "fallback"))
		ret = smc_pair(&smc_ends_fallback_client, fd);
	if (!strcmp(kind, "unaccepted")) {
		ret = smc_listen(&smc_ends_af_smc, 1, &addr, &len);
		if (ret >= 0)
			ret = smc_connect(&smc_ends_af_smc, &addr, len);
	}
	if (ret < 0) {
		printf("cannot: %s\n", strerror(-ret));
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

static int exchange(void)
{
	int ret, fd[2];

	ret = smc_pair(&smc_ends_smc, fd);
	if (!ret)
		ret = smc_exchange(fd[0], fd[1], 1);
	if (ret)
		fprintf(stderr, "smcprobe: %s\n", strerror(-ret));
	return ret ? 1 : 0;
}

static int spin(void)
{
	for (unsigned int i = 0;; i++) {
		const struct smc_end *end = &fresh[i % ARRAY_SIZE(fresh)].end;
		int fd = socket(end->domain, SOCK_STREAM, end->protocol);

		if (fd >= 0)
			close(fd);
		/* From IPv4 and IPv6 core while the module is on its way out. */
		else if (errno == ENOMEM && end->domain == AF_INET)
			continue;
		else if (errno == ENOBUFS && end->domain == AF_INET6)
			continue;
		else if (errno != EAFNOSUPPORT && errno != EPROTONOSUPPORT &&
			 errno != ESOCKTNOSUPPORT) {
			printf("%s: %s\n", fresh[i % ARRAY_SIZE(fresh)].name,
			       strerror(errno));
			return 1;
		}
	}
}

static pthread_barrier_t barrier;

static void *open_one(void *arg)
{
	pthread_barrier_wait(&barrier);
	*(int *)arg = socket(AF_INET, SOCK_STREAM, 0);
	return NULL;
}

static int open_together(int threads)
{
	pthread_t *thread = calloc(threads, sizeof(*thread));
	int *fd = calloc(threads, sizeof(*fd));
	int converted = 0;

	pthread_barrier_init(&barrier, NULL, threads);
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&thread[i], NULL, open_one, &fd[i]))
			return 1;
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		if (fd[i] < 0)
			return 1;
		converted += smc_mode(fd[i]) > SMC_MODE_PLAIN;
	}
	printf("%d\n", converted);
	free(thread);
	free(fd);
	return 0;
}

/* One line for each kind: arguments, SMC or not, and what the socket reports. */
static int convert(void)
{
	static const int domains[] = { AF_INET, AF_INET6, AF_UNIX };
	static const int protocols[] = { 0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_MPTCP };
	static const int types[] = {
		SOCK_STREAM, SOCK_STREAM | SOCK_NONBLOCK, SOCK_STREAM | SOCK_CLOEXEC,
		SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, SOCK_DGRAM, SOCK_RAW,
	};
	const size_t kinds = ARRAY_SIZE(protocols) * ARRAY_SIZE(types);

	for (size_t i = 0; i < ARRAY_SIZE(domains) * kinds; i++) {
		int domain = domains[i / kinds], type = types[i % ARRAY_SIZE(types)];
		int protocol = protocols[i % kinds / ARRAY_SIZE(types)];
		int fd = socket(domain, type, protocol);
		int said_domain = -1, said_protocol = -1;
		socklen_t len = sizeof(int);

		printf("%d %#x %d:", domain, type, protocol);
		if (fd < 0) {
			printf(" %s\n", strerrorname_np(errno));
			continue;
		}
		getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &said_domain, &len);
		getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &said_protocol, &len);
		printf(" %s domain %d protocol %d%s%s\n",
		       smc_mode(fd) > SMC_MODE_PLAIN ? "smc" : "plain", said_domain,
		       said_protocol, fcntl(fd, F_GETFL) & O_NONBLOCK ? " nonblock" : "",
		       fcntl(fd, F_GETFD) & FD_CLOEXEC ? " cloexec" : "");
		close(fd);
	}
	return 0;
}

/* Exit status 0: loaded or refused for lack of memory; 3: nothing was refused. */
static int load_with_refusal(const char *file, const char *n)
{
	int module = open(file, O_RDONLY), nth = open("/proc/thread-self/fail-nth", O_RDWR);
	char text[16] = "";
	int ret;

	if (module < 0 || nth < 0 || pwrite(nth, n, strlen(n), 0) < 0)
		return 1;
	ret = syscall(SYS_finit_module, module, "", 0) ? errno : 0;
	if (pread(nth, text, sizeof(text) - 1, 0) < 0 || pwrite(nth, "0", 1, 0) < 0)
		return 1;
	puts(ret ? strerrorname_np(ret) : "loaded");
	if (atoi(text))
		return ret ? 1 : 3;
	return ret == 0 || ret == ENOMEM || ret == ENOBUFS ? 0 : 1;
}

/* Waits for @fd, so that a sender without room is told from one without hope. */
static bool ready(int fd, short events)
{
	return smc_poll(fd, events, 60000) & events;
}

/* Both ends send @size bytes, then both read them; never asleep for ever. */
static int cross(const int fd[2], char *buf, size_t size)
{
	size_t sent[2] = {}, got[2] = {};

	while (got[0] < size || got[1] < size) {
		bool moved = false;

		for (int i = 0; i < 2; i++) {
			ssize_t n = send(fd[i], buf, size - sent[i], MSG_DONTWAIT);

			if (n < 0 && errno != EAGAIN)
				return -errno;
			sent[i] += n > 0 ? n : 0;
			moved |= n > 0;
		}
		/* Only when nobody can send any more. */
		for (int i = 0; i < 2 && !moved; i++) {
			ssize_t n = recv(fd[i], buf, size - got[i], MSG_DONTWAIT);

			if (n == 0 || (n < 0 && errno != EAGAIN))
				return n ? -errno : -EPIPE;
			got[i] += n > 0 ? n : 0;
			moved |= n > 0;
		}
		if (!moved && !ready(fd[0], POLLIN | (sent[0] < size ? POLLOUT : 0)))
			return -ETIME;
	}
	return 0;
}

static int crowd(int count, size_t size, bool stay)
{
	int (*fd)[2] = calloc(count, sizeof(*fd));
	char *buf = calloc(1, size + 1);
	struct sockaddr_storage addr;
	int smcd = 0, tcp = 0, listener;
	uint32_t reason = 0;
	socklen_t len;
	int ret = 0;

	listener = smc_listen(&smc_ends_smc, 128, &addr, &len);
	if (listener < 0 || !fd || !buf)
		return 1;
	for (int i = 0; i < count && !ret; i++) {
		fd[i][0] = smc_connect(&smc_ends_smc, &addr, len);
		fd[i][1] = fd[i][0] < 0 ? -EINVAL : smc_accept(listener);
		if (fd[i][1] < 0)
			ret = fd[i][0] < 0 ? fd[i][0] : fd[i][1];
		else
			ret = cross(fd[i], buf, size);
	}
	for (int i = 0; i < count && !ret; i++) {
		for (int end = 0; end < 2 && !ret; end++) {
			struct smc_info info;

			ret = smc_info(fd[i][end], &info);
			smcd += info.mode == SMC_MODE_SMCD;
			tcp += info.mode == SMC_MODE_FALLBACK;
			if (info.mode == SMC_MODE_FALLBACK)
				reason = info.reason;
		}
		if (!ret)
			ret = smc_exchange(fd[i][0], fd[i][1], i);
	}
	if (ret) {
		printf("%s\n", strerror(-ret));
		return 1;
	}
	if (stay) {
		puts("ready");
		fflush(stdout);
		pause();
	}
	printf("%d SMC-D, %d TCP, reason %#x\n", smcd, tcp, reason);
	return 0;
}

static int rest(void)
{
	struct smc_info info[2];
	int ret, fd[2];

	ret = smc_pair(&smc_ends_smc, fd);
	for (int round = 0; round < 2 && !ret; round++) {
		ret = smc_exchange(fd[0], fd[1], round);
		/* Not at once: a connection in use keeps what it has. */
		for (int tenths = 0; tenths < 600 && !ret; tenths++) {
			ret = smc_info(fd[0], &info[0]);
			if (!ret)
				ret = smc_info(fd[1], &info[1]);
			if (!info[0].dmb_token && !info[1].dmb_token)
				break;
			usleep(100000);
		}
		if (!ret && (info[0].dmb_token || info[1].dmb_token)) {
			printf("rings are there still\n");
			return 1;
		}
	}
	if (ret)
		printf("%s\n", strerror(-ret));
	return ret ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "crowd"))
		return crowd(atoi(argv[2]), strtoul(argv[3], NULL, 0), false);
	if (argc == 3 && !strcmp(argv[1], "hold_many"))
		return crowd(atoi(argv[2]), 1, true);
	if (argc == 2 && !strcmp(argv[1], "rest"))
		return rest();
	if (argc == 3 && !strcmp(argv[1], "threads"))
		return open_together(atoi(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "load"))
		return load_with_refusal(argv[2], argv[3]);
	if (argc == 2 && !strcmp(argv[1], "exchange"))
		return exchange();
	if (argc == 2 && !strcmp(argv[1], "spin"))
		return spin();
	if (argc == 2 && !strcmp(argv[1], "convert"))
		return convert();
	if (argc == 2)
		return hold(argv[1]);
	fprintf(stderr, "usage: smcprobe KIND | exchange | spin | threads N | load FILE N |\n"
		"       smcprobe crowd N SIZE | hold_many N | rest | convert\n");
	return 2;
}
