// SPDX-License-Identifier: GPL-2.0
/* What the kernel says of its SMC sockets: sock_diag and /proc/net/protocols. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>

#include "smc_test.h"

#define EXT(attribute)	(1 << ((attribute) - 1))

/* One sock_diag message with its attributes, into our own structure. */
static void read_message(const struct nlmsghdr *nlh, struct smc_info *info)
{
	const struct smc_diag_msg *msg = NLMSG_DATA(nlh);
	int left = nlh->nlmsg_len - NLMSG_LENGTH(sizeof(*msg));
	const struct rtattr *attr;

	memset(info, 0, sizeof(*info));
	info->mode = msg->diag_mode;
	info->state = msg->diag_state;
	info->shutdown = msg->diag_shutdown;
	info->uid = msg->diag_uid;
	info->inode = msg->diag_inode;
	info->family = msg->diag_family;
	memcpy(info->source, msg->id.idiag_src, sizeof(info->source));
	memcpy(info->dest, msg->id.idiag_dst, sizeof(info->dest));
	info->source_port = ntohs(msg->id.idiag_sport);
	info->dest_port = ntohs(msg->id.idiag_dport);

	attr = (const struct rtattr *)((const char *)msg + NLMSG_ALIGN(sizeof(*msg)));
	for (; RTA_OK(attr, left); attr = RTA_NEXT(attr, left)) {
		const void *data = RTA_DATA(attr);
		size_t len = RTA_PAYLOAD(attr);

		if (attr->rta_type == SMC_DIAG_FALLBACK &&
		    len >= sizeof(struct smc_diag_fallback)) {
			const struct smc_diag_fallback *fallback = data;

			info->reason = fallback->reason;
			info->peer_diagnosis = fallback->peer_diagnosis;
		} else if (attr->rta_type == SMC_DIAG_CONNINFO &&
			   len >= sizeof(struct smc_diag_conninfo)) {
			const struct smc_diag_conninfo *conn = data;

			info->has_conninfo = true;
			info->token = conn->token;
			info->sndbuf_size = conn->sndbuf_size;
			info->rmbe_size = conn->rmbe_size;
		} else if (attr->rta_type == SMC_DIAG_DMBINFO &&
			   len >= sizeof(struct smcd_diag_dmbinfo)) {
			struct smcd_diag_dmbinfo dmb;

			/* Attributes are aligned to four bytes only. */
			memcpy(&dmb, data, sizeof(dmb));
			info->has_dmbinfo = true;
			info->linkid = dmb.linkid;
			info->dmb_token = dmb.token;
			info->dmb_peer_token = dmb.peer_token;
		}
	}
}

/*
 * Visits every SMC socket of the caller's namespace until @visit returns other
 * than 0; that value, 0, or the negative errno of the dump.
 */
int smc_diag_walk(int (*visit)(const struct smc_info *info, void *arg), void *arg)
{
	struct {
		struct nlmsghdr nlh;
		struct smc_diag_req req;
	} request = {
		.nlh.nlmsg_len = sizeof(request),
		.nlh.nlmsg_type = SOCK_DIAG_BY_FAMILY,
		.nlh.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		.req.diag_family = AF_SMC,
		.req.diag_ext = EXT(SMC_DIAG_CONNINFO) | EXT(SMC_DIAG_DMBINFO) |
				EXT(SMC_DIAG_FALLBACK) | EXT(SMC_DIAG_SHUTDOWN),
	};
	bool done = false;
	char *buf = NULL;
	int ret = 0;
	int fd;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return -errno;
	buf = malloc(65536);
	if (!buf || send(fd, &request, sizeof(request), 0) < 0) {
		ret = -errno;
		done = true;
	}
	while (!done) {
		ssize_t len = recv(fd, buf, 65536, 0);
		struct nlmsghdr *nlh = (struct nlmsghdr *)buf;

		if (len < 0) {
			ret = -errno;
			break;
		}
		for (; NLMSG_OK(nlh, len); nlh = NLMSG_NEXT(nlh, len)) {
			struct smc_info info;

			if (nlh->nlmsg_type == NLMSG_DONE) {
				done = true;
				break;
			}
			if (nlh->nlmsg_type == NLMSG_ERROR) {
				ret = ((struct nlmsgerr *)NLMSG_DATA(nlh))->error;
				done = true;
				break;
			}
			/* The rest of a stopped walk is read, not visited. */
			read_message(nlh, &info);
			if (!ret)
				ret = visit(&info, arg);
		}
	}
	free(buf);
	close(fd);
	return ret;
}

static int match_inode(const struct smc_info *info, void *arg)
{
	struct smc_info *wanted = arg;

	if (info->inode != wanted->inode)
		return 0;
	*wanted = *info;
	return 1;
}

/* What sock_diag says of @fd; mode PLAIN where it lists no such socket. */
int smc_info(int fd, struct smc_info *info)
{
	struct stat st;
	int ret;

	memset(info, 0, sizeof(*info));
	if (fstat(fd, &st))
		return -errno;
	info->inode = st.st_ino;
	ret = smc_diag_walk(match_inode, info);
	if (ret == 1)
		return 0;
	if (ret)
		return ret;
	info->mode = SMC_MODE_PLAIN;
	return 0;
}

/* The enum smc_mode of @fd; errors are below SMC_MODE_PLAIN. */
int smc_mode(int fd)
{
	struct smc_info info;
	int ret = smc_info(fd, &info);

	return ret ? ret - 1 : (int)info.mode;
}

static const char *mode_name(enum smc_mode mode)
{
	switch (mode) {
	case SMC_MODE_PLAIN:
		return "no SMC socket";
	case SMC_MODE_SMCR:
		return "SMC-R or unconnected";
	case SMC_MODE_FALLBACK:
		return "SMC fallen back to TCP";
	case SMC_MODE_SMCD:
		return "SMC-D";
	}
	return "unknown";
}

/* 0 if @fd is what it must be; a plain TCP end needs no proof. */
int smc_check_mode(int fd, enum smc_mode want)
{
	struct smc_info info;
	int ret;

	if (want == SMC_MODE_PLAIN)
		return 0;
	ret = smc_info(fd, &info);
	if (ret) {
		fprintf(stderr, "# no proof of the mode, sock_diag: %s\n", strerror(-ret));
		return ret;
	}
	if (info.mode == want)
		return 0;
	fprintf(stderr, "# socket %d is %s (reason %#x, peer %#x), not %s\n", fd,
		mode_name(info.mode), info.reason, info.peer_diagnosis, mode_name(want));
	return -EPROTOTYPE;
}

/* Both ends of a connection: client fd[0], server fd[1]. */
int smc_check_modes(const struct smc_ends *ends, const int fd[2])
{
	int ret = smc_check_mode(fd[0], ends->client.mode);

	return ret ? ret : smc_check_mode(fd[1], ends->server.mode);
}

/* SMC sockets in the caller's namespace, -1 if no SMC stack is loaded. */
int smc_sockets_in_use(void)
{
	char line[512], name[32];
	int sockets, total = -1;
	FILE *file;

	file = fopen("/proc/thread-self/net/protocols", "r");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%31s %*d %d", name, &sockets) != 2)
			continue;
		if (!strcmp(name, "SMC") || !strcmp(name, "SMC6") ||
		    !strcmp(name, "INET_SMC") || !strcmp(name, "INET6_SMC"))
			total = (total < 0 ? 0 : total) + sockets;
	}
	fclose(file);
	return total;
}

/* 0 once no SMC socket is left; C frees some of them a while after close. */
int smc_wait_no_sockets(void)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	for (int waited = 0; smc_sockets_in_use() > 0; waited += 10) {
		if (waited > SMC_TIMEOUT_MS)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}
