// SPDX-License-Identifier: GPL-2.0
/*
 * smcdiag - lists the SMC sockets of this network namespace, one a line:
 *
 *	inode=N state=NAME mode=MODE reason=0xN peer=0xN uid=N shutdown=N
 *	local=ADDR:PORT remote=ADDR:PORT [token=N sndbuf=N rmbe=N]
 *
 * all on one line, for scripts. "smcdiag -c" prints instead how many connected
 * sockets there are of each mode, as "smcd=N fallback=N smcr=N".
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <linux/smc_diag.h>

#include "smc_test.h"

/* States of net/smc.h, as smcss names them. */
static const char *state_name(int state)
{
	switch (state) {
	case 1:
		return "ACTIVE";
	case 2:
		return "INIT";
	case 7:
		return "CLOSED";
	case 10:
		return "LISTEN";
	case 20:
		return "PEERCLOSEWAIT1";
	case 21:
		return "PEERCLOSEWAIT2";
	case 22:
		return "APPCLOSEWAIT1";
	case 23:
		return "APPCLOSEWAIT2";
	case 24:
		return "APPFINCLOSEWAIT";
	case 25:
		return "PEERFINCLOSEWAIT";
	case 26:
		return "PEERABORTWAIT";
	case 27:
		return "PROCESSABORT";
	}
	return "UNKNOWN";
}

static const char *mode_name(enum smc_mode mode)
{
	switch (mode) {
	case SMC_MODE_SMCD:
		return "SMCD";
	case SMC_MODE_FALLBACK:
		return "TCP";
	case SMC_MODE_SMCR:
		return "SMCR";
	default:
		return "UNKNOWN";
	}
}

/* An AF_SMC socket does not say which family its address is of; its bytes do. */
static bool is_ipv6(int family, const uint8_t *addr)
{
	static const uint8_t none[12];

	return family == AF_INET6 || (family == AF_SMC && memcmp(addr + 4, none, sizeof(none)));
}

static void print_address(const char *name, int family, const uint8_t *addr, uint16_t port)
{
	bool ipv6 = is_ipv6(family, addr);
	char text[INET6_ADDRSTRLEN] = "?";

	inet_ntop(ipv6 ? AF_INET6 : AF_INET, addr, text, sizeof(text));
	printf(ipv6 ? " %s=[%s]:%u" : " %s=%s:%u", name, text, port);
}

static int print_socket(const struct smc_info *info, void *arg)
{
	(void)arg;
	printf("inode=%llu state=%s mode=%s reason=%#x peer=%#x uid=%u shutdown=%u",
	       (unsigned long long)info->inode, state_name(info->state),
	       mode_name(info->mode), info->reason, info->peer_diagnosis,
	       info->uid, info->shutdown);
	print_address("local", info->family, info->source, info->source_port);
	print_address("remote", info->family, info->dest, info->dest_port);
	if (info->has_conninfo)
		printf(" token=%#x sndbuf=%u rmbe=%u", info->token,
		       info->sndbuf_size, info->rmbe_size);
	putchar('\n');
	return 0;
}

/* C lists listeners and unconnected sockets as SMC-R: only ACTIVE counts. */
static int count_socket(const struct smc_info *info, void *arg)
{
	int *count = arg;

	if (info->state == 1 && info->mode >= SMC_MODE_SMCR && info->mode <= SMC_MODE_SMCD)
		count[info->mode]++;
	return 0;
}

int main(int argc, char **argv)
{
	int count[3] = { 0 };
	int ret;

	if (argc > 1 && strcmp(argv[1], "-c")) {
		fprintf(stderr, "usage: smcdiag [-c]\n");
		return 2;
	}
	if (argc > 1) {
		ret = smc_diag_walk(count_socket, count);
		if (!ret)
			printf("smcd=%d fallback=%d smcr=%d\n", count[SMC_MODE_SMCD],
			       count[SMC_MODE_FALLBACK], count[SMC_MODE_SMCR]);
	} else {
		ret = smc_diag_walk(print_socket, NULL);
	}
	if (ret)
		fprintf(stderr, "smcdiag: %s\n", strerror(-ret));
	return ret ? 1 : 0;
}
