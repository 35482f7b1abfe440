// SPDX-License-Identifier: GPL-2.0
/*
 * See clc_peer.h. The link loses nothing, so there are no retransmissions, and
 * everything that arrives in order is acknowledged at once.
 */

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "clc_peer.h"

#define WAIT_MS		10000
#define MAX_SEGMENT	1000

/* NOP, NOP, and the experimental option that the kernel's option is. */
static const uint8_t smc_option[] = { 1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9 };

static int fail(int err, const char *what)
{
	fprintf(stderr, "clc_peer: %s: %s\n", what, strerror(err));
	return -err;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static int set_address(int fd, const char *name, const char *address, unsigned long request)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct ifreq ifr = {};

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	inet_pton(AF_INET, address, &addr.sin_addr);
	memcpy(&ifr.ifr_addr, &addr, sizeof(addr));
	return ioctl(fd, request, &ifr) ? fail(errno, "set address of device") : 0;
}

static int link_up(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = {};
	int ret;

	if (fd < 0)
		return fail(errno, "socket");
	ret = set_address(fd, name, CLC_KERNEL, SIOCSIFADDR);
	if (!ret)
		ret = set_address(fd, name, "255.255.255.0", SIOCSIFNETMASK);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	if (!ret && ioctl(fd, SIOCSIFFLAGS, &ifr))
		ret = fail(errno, "set device up");
	close(fd);
	return ret;
}

int clc_peer_open(struct clc_peer *peer)
{
	struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int ret;

	memset(peer, 0, sizeof(*peer));
	peer->tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	if (peer->tun < 0 && (errno == ENOENT || errno == ENODEV)) {
		/* Without udev nobody makes the node, and opening it loads the module. */
		mkdir("/dev/net", 0755);
		mknod("/dev/net/tun", S_IFCHR | 0600, makedev(10, 200));
		if (system("modprobe tun"))
			fprintf(stderr, "clc_peer: modprobe tun failed\n");
		peer->tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	}
	if (peer->tun < 0)
		return fail(errno, "open /dev/net/tun");
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", "clc0");
	ret = ioctl(peer->tun, TUNSETIFF, &ifr) ? fail(errno, "TUNSETIFF") : link_up("clc0");
	if (ret)
		close(peer->tun);
	return ret;
}

void clc_peer_close(struct clc_peer *peer)
{
	close(peer->tun);
}

bool clc_option_known(void)
{
	return !system("modprobe -n -q smc");
}

static uint32_t sum(uint32_t sum, const void *data, size_t len)
{
	const uint8_t *byte = data;

	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? byte[i] : byte[i] << 8;
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

struct segment {
	struct iphdr ip;
	struct tcphdr tcp;
	uint8_t rest[MAX_SEGMENT + 40];
};

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

/* Sends a segment with what is in segment->rest: options, then data. */
static int transmit(struct clc_peer *peer, struct segment *segment, int flags,
		    size_t options, size_t data)
{
	size_t tcp_len = sizeof(segment->tcp) + options + data;
	size_t len = sizeof(segment->ip) + tcp_len;
	uint16_t pseudo[2] = { htons(IPPROTO_TCP), htons(tcp_len) };

	segment->ip = (struct iphdr) {
		.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP,
		.tot_len = htons(len),
	};
	inet_pton(AF_INET, CLC_PEER, &segment->ip.saddr);
	inet_pton(AF_INET, CLC_KERNEL, &segment->ip.daddr);
	segment->ip.check = fold(sum(0, &segment->ip, sizeof(segment->ip)));
	segment->tcp = (struct tcphdr) {
		.source = htons(peer->port),
		.dest = htons(peer->kernel_port),
		.seq = htonl(peer->snd_nxt),
		.ack_seq = flags & ACK ? htonl(peer->rcv_nxt) : 0,
		.doff = (sizeof(segment->tcp) + options) / 4,
		.fin = !!(flags & FIN), .syn = !!(flags & SYN), .rst = !!(flags & RST),
		.psh = !!(flags & PSH), .ack = !!(flags & ACK),
		.window = htons(32768),
	};
	segment->tcp.check = fold(sum(sum(sum(0, &segment->ip.saddr, 8), pseudo, 4),
				      &segment->tcp, tcp_len));
	if (write(peer->tun, segment, len) != len)
		return fail(errno, "write to device");
	peer->snd_nxt += data + !!(flags & SYN) + !!(flags & FIN);
	return 0;
}

static int transmit_flags(struct clc_peer *peer, int flags)
{
	struct segment segment;

	return transmit(peer, &segment, flags, 0, 0);
}

/* Whether the options of a segment have the SMC option among them. */
static bool has_smc(const uint8_t *option, size_t len)
{
	while (len >= 2 && option[0]) {
		size_t size = option[0] == 1 ? 1 : option[1];

		if (!size || size > len)
			return false;
		if (size == 6 && !memcmp(option, smc_option + 2, 6))
			return true;
		option += size;
		len -= size;
	}
	return false;
}

/* Takes what is in order from a segment of the connection, and acknowledges it. */
static int receive(struct clc_peer *peer, const struct tcphdr *tcp, const uint8_t *data,
		   size_t len)
{
	uint32_t seq = ntohl(tcp->seq);
	uint32_t known = peer->rcv_nxt - seq;

	if (tcp->rst) {
		peer->end = CLC_RST;
		return 0;
	}
	if (tcp->ack)
		peer->acked = true;
	if (!len && !tcp->fin)
		return 0;
	if (known <= len) {
		size_t new = len - known;

		if (new > sizeof(peer->in) - peer->len)
			return fail(ENOBUFS, "receive");
		memcpy(peer->in + peer->len, data + known, new);
		peer->len += new;
		peer->rcv_nxt += new;
		if (tcp->fin && peer->end == CLC_OPEN) {
			peer->end = CLC_FIN;
			peer->rcv_nxt++;
		}
	}
	return transmit_flags(peer, ACK);
}

/*
 * Waits for a packet of the connection until the deadline. A SYN is left to
 * the caller, in *syn with its options behind it; then 1 is returned.
 */
static int step(struct clc_peer *peer, struct segment *packet, int64_t deadline)
{
	struct pollfd poll_fd = { .fd = peer->tun, .events = POLLIN };
	int64_t left = deadline - now_ms();
	size_t header, tcp_header;
	ssize_t len;
	uint8_t *raw = (uint8_t *)packet;

	if (left < 0 || !poll(&poll_fd, 1, left))
		return -ETIMEDOUT;
	len = read(peer->tun, packet, sizeof(*packet));
	if (len < 0)
		return fail(errno, "read from device");
	if (len < sizeof(struct iphdr) || packet->ip.version != 4 ||
	    packet->ip.protocol != IPPROTO_TCP)
		return 0;
	header = packet->ip.ihl * 4;
	if (header != sizeof(packet->ip) || len < header + sizeof(packet->tcp))
		return 0;
	tcp_header = packet->tcp.doff * 4;
	if (len < header + tcp_header)
		return 0;
	if (packet->tcp.syn && !packet->tcp.rst)
		return 1;
	if (packet->tcp.dest != htons(peer->port) ||
	    packet->tcp.source != htons(peer->kernel_port))
		return 0;
	return receive(peer, &packet->tcp, raw + header + tcp_header,
		       ntohs(packet->ip.tot_len) - header - tcp_header);
}

static void reset_state(struct clc_peer *peer)
{
	peer->acked = false;
	peer->smc = false;
	peer->end = CLC_OPEN;
	peer->len = 0;
	peer->snd_nxt = 0x10000000 + (uint32_t)now_ms() * 64;
}

int clc_peer_connect(struct clc_peer *peer, uint16_t port, enum clc_option option)
{
	int64_t deadline = now_ms() + WAIT_MS;
	struct segment packet;
	size_t options = option == CLC_PLAIN ? 0 : sizeof(smc_option);
	int ret;

	reset_state(peer);
	/* A port of its own for every connection. */
	peer->port = peer->port ? peer->port + 1 : 20000;
	peer->kernel_port = port;
	memcpy(packet.rest, smc_option, sizeof(smc_option));
	ret = transmit(peer, &packet, SYN, options, 0);
	while (!ret) {
		ret = step(peer, &packet, deadline);
		if (!ret && peer->end != CLC_OPEN)
			return -ECONNREFUSED;
		if (ret == 1 && packet.tcp.dest != htons(peer->port))
			ret = 0;
	}
	if (ret < 0)
		return fail(-ret, "connect");
	peer->rcv_nxt = ntohl(packet.tcp.seq) + 1;
	peer->smc = has_smc(packet.rest, packet.tcp.doff * 4 - sizeof(packet.tcp));
	return transmit_flags(peer, ACK);
}

int clc_peer_accept(struct clc_peer *peer, enum clc_option option)
{
	int64_t deadline = now_ms() + WAIT_MS;
	struct segment packet;
	size_t options;
	int ret;

	reset_state(peer);
	do {
		ret = step(peer, &packet, deadline);
	} while (!ret);
	if (ret < 0)
		return fail(-ret, "accept");
	options = packet.tcp.doff * 4 - sizeof(packet.tcp);
	peer->port = ntohs(packet.tcp.dest);
	peer->kernel_port = ntohs(packet.tcp.source);
	peer->rcv_nxt = ntohl(packet.tcp.seq) + 1;
	peer->smc = has_smc(packet.rest, options);
	memcpy(packet.rest, smc_option, sizeof(smc_option));
	options = option == CLC_SMC || (option == CLC_ECHO && peer->smc) ?
			sizeof(smc_option) : 0;
	ret = transmit(peer, &packet, SYN | ACK, options, 0);
	while (!ret && !peer->acked && peer->end == CLC_OPEN)
		ret = step(peer, &packet, deadline);
	return ret < 0 ? fail(-ret, "accept") : 0;
}

int clc_peer_send(struct clc_peer *peer, const void *data, size_t len)
{
	struct segment segment;
	int ret = 0;

	while (len && !ret) {
		size_t part = len < MAX_SEGMENT ? len : MAX_SEGMENT;

		memcpy(segment.rest, data, part);
		ret = transmit(peer, &segment, ACK | PSH, 0, part);
		data = (const uint8_t *)data + part;
		len -= part;
	}
	return ret;
}

ssize_t clc_peer_recv(struct clc_peer *peer, void *data, size_t len, int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;
	struct segment packet;
	int ret = 0;

	while (peer->len < len && peer->end == CLC_OPEN && ret >= 0)
		ret = step(peer, &packet, deadline);
	if (ret < 0 && ret != -ETIMEDOUT)
		return ret;
	if (len > peer->len)
		len = peer->len;
	memcpy(data, peer->in, len);
	peer->len -= len;
	memmove(peer->in, peer->in + len, peer->len);
	return len;
}

enum clc_end clc_peer_wait_end(struct clc_peer *peer, int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;
	struct segment packet;

	while (peer->end == CLC_OPEN && step(peer, &packet, deadline) >= 0)
		;
	return peer->end;
}

int clc_peer_fin(struct clc_peer *peer)
{
	return transmit_flags(peer, FIN | ACK);
}

int clc_peer_reset(struct clc_peer *peer)
{
	return transmit_flags(peer, RST | ACK);
}

/* Appends what @text spells. */
static void append(struct clc_msg *msg, const char *text)
{
	while (*text && msg->len < sizeof(msg->byte)) {
		unsigned int byte = 0, count = 1;

		if (isspace(*text)) {
			text++;
		} else if (*text == '\'') {
			for (text++; *text && *text != '\''; text++)
				msg->byte[msg->len++] = *text;
			text += *text == '\'';
		} else {
			if (sscanf(text, "%2x*%u", &byte, &count) < 1)
				return;
			text += 2;
			if (*text == '*')
				text += 1 + strspn(text + 1, "0123456789");
			if (count > sizeof(msg->byte) - msg->len)
				count = sizeof(msg->byte) - msg->len;
			memset(msg->byte + msg->len, byte, count);
			msg->len += count;
		}
	}
}

struct clc_msg clc_join(const char *const part[])
{
	struct clc_msg msg = {};

	for (; *part; part++)
		append(&msg, *part);
	return msg;
}

void clc_set16(struct clc_msg *msg, size_t at, uint16_t value)
{
	msg->byte[at] = value >> 8;
	msg->byte[at + 1] = value;
}

int clc_peer_send_msg(struct clc_peer *peer, const struct clc_msg *msg)
{
	return clc_peer_send(peer, msg->byte, msg->len);
}

struct clc_msg clc_proposal(void)
{
	return clc_bytes("e2d4c3d9 01 00e0 26 ",
			 "00*8 00*16 00*6 0000 ",
			 "00*8 0000 001c 00*28 ",
			 "01 02 00 10 0000 0040 ",
			 "00*16 00 00 0001 00*12 ",
			 "'SMC-LO.DEFAULT' 20*18 ",
			 "00*32 00*16 ",
			 "3132333435363738 ffff ",
			 "4142434445464748 ffff ",
			 "e2d4c3d9");
}

struct clc_msg clc_proposal_all(void)
{
	/* Two IPv6 prefixes, one EID, one native GID. */
	struct clc_msg msg = clc_bytes("e2d4c3d9 01 0000 2f ",
				       "'sys-id-8' 01*16 02*6 0028 ",
				       "2122232425262728 0007 0046 00*28 ",
				       "c0a80000 18 0000 02 ",
				       "fd00 00*14 40 fd01 00*14 40 ",
				       "01 01 00 10 0000 0040 ",
				       "03*16 ff 02 0001 00*12 ",
				       "'SMC-LO.DEFAULT' 20*18 ",
				       "00*32 00*16 ",
				       "3132333435363738 0008 ",
				       "e2d4c3d9");

	clc_set16(&msg, 5, msg.len);
	return msg;
}

struct clc_msg clc_proposal_v1(const char *subnet)
{
	return clc_bytes("e2d4c3d9 01 0034 10 'sys-id-8' 01*16 02*6 0000 ", subnet, "0000 00 ",
			 "e2d4c3d9");
}

struct clc_msg clc_proposal_v2(uint8_t modes, const char *eids, const char *gids)
{
	struct clc_msg eid = clc_bytes(eids), gid = clc_bytes(gids ? gids : "");
	struct clc_msg msg = clc_bytes("e2d4c3d9 01 0000 20 00*8 00*16 00*6 0000 ",
				       "00*8 0000 001c 00*28 ",
				       "00 00 00 10 0000 0000 03*16 ff 02 0001 00*12 ",
				       eids, gids ? "00*32 00*16 " : "", gids ? gids : "",
				       "e2d4c3d9");

	msg.byte[7] |= modes;
	msg.byte[80] = eid.len / 32;
	msg.byte[81] = gid.len / 10;
	if (gids)
		clc_set16(&msg, 86, 32 + eid.len);
	clc_set16(&msg, 5, msg.len);
	return msg;
}

struct clc_msg clc_change(struct clc_msg msg, size_t at, const char *text)
{
	struct clc_msg part = clc_bytes(text);

	memcpy(msg.byte + at, part.byte, part.len);
	return msg;
}

struct clc_msg clc_decline(uint32_t reason, bool out_of_sync)
{
	struct clc_msg msg = clc_bytes("e2d4c3d9 04 002c 20 00*8 00*4 20 00*3 00*16 e2d4c3d9");

	msg.byte[7] |= out_of_sync ? 0x08 : 0;
	clc_set16(&msg, 16, reason >> 16);
	clc_set16(&msg, 18, reason);
	return msg;
}

struct clc_msg clc_accept(uint8_t type, const uint8_t gid[16], const uint8_t eid[32])
{
	struct clc_msg msg = clc_bytes("e2d4c3c4 00 0082 29 ",
				       "00*8 a1a2a3a4a5a6a7a8 00 20 0000 00000007 ",
				       "ffff 00*32 00*8 ",
				       "00 21 0000 'node' 20*28 ",
				       "0000 0001 00*4 00*8 ",
				       "e2d4c3c4");

	msg.byte[4] = type;
	memcpy(msg.byte + 8, gid, 8);
	memcpy(msg.byte + 34, eid, 32);
	memcpy(msg.byte + 66, gid + 8, 8);
	return msg;
}
