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
 *	smcprobe convert	what each kind of socket() became (for smc_run)
 */

#include <errno.h>
#include <fcntl.h>
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
	static const int protocols[] = { 0, IPPROTO_TCP, IPPROTO_UDP };
	static const int types[] = {
		SOCK_STREAM, SOCK_STREAM | SOCK_NONBLOCK, SOCK_STREAM | SOCK_CLOEXEC,
		SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, SOCK_DGRAM,
	};

	for (size_t i = 0; i < ARRAY_SIZE(domains) * 15; i++) {
		int domain = domains[i / 15], protocol = protocols[i / 5 % 3], type = types[i % 5];
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

int main(int argc, char **argv)
{
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
	fprintf(stderr, "usage: smcprobe KIND | exchange | spin | threads N | load FILE N | convert\n");
	return 2;
}
