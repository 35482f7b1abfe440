// SPDX-License-Identifier: GPL-2.0
/* A remote host of our own making: see tun_tcp.h. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tun_tcp.h"

/* Option of RFC 6994 with the experiment number of SMC, and two NOPs. */
static const uint8_t smc_option[] = { 1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9 };
#define MAX_DATA	1200

struct segment {
	struct iphdr ip;
	struct tcphdr tcp;
	uint8_t rest[1500];	/* options, then data */
};

int tun_open(struct tun_tcp *tcp)
{
	struct ifreq ifr = { .ifr_name = "smctun", .ifr_flags = IFF_TUN | IFF_NO_PI };

	memset(tcp, 0, sizeof(*tcp));
	tcp->tun = open("/dev/net/tun", O_RDWR);
	if (tcp->tun < 0 || ioctl(tcp->tun, TUNSETIFF, &ifr))
		return -errno;
	if (system("ip address add " TUN_KERNEL "/24 dev smctun && ip link set smctun up"))
		return -EIO;
	return 0;
}

static uint32_t sum(const void *data, size_t len, uint32_t so_far)
{
	const uint8_t *byte = data;

	for (size_t i = 0; i < len; i++)
		so_far += i % 2 ? byte[i] : byte[i] << 8;
	return so_far;
}

static uint16_t fold(uint32_t total)
{
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return htons(~total);
}

static int send_segment(struct tun_tcp *tcp, bool syn, bool ack, bool fin, bool rst,
			bool with_option, const void *data, size_t len)
{
	size_t options = with_option ? sizeof(smc_option) : 0;
	size_t tcp_len = sizeof(struct tcphdr) + options + len;
	struct segment segment = {
		.ip.version = 4,
		.ip.ihl = 5,
		.ip.ttl = 64,
		.ip.protocol = IPPROTO_TCP,
		.ip.tot_len = htons(sizeof(struct iphdr) + tcp_len),
		.ip.saddr = inet_addr(TUN_PEER),
		.ip.daddr = inet_addr(TUN_KERNEL),
		.tcp.source = htons(tcp->own_port),
		.tcp.dest = htons(tcp->peer_port),
		.tcp.seq = htonl(tcp->snd_nxt),
		.tcp.ack_seq = ack ? htonl(tcp->rcv_nxt) : 0,
		.tcp.doff = (sizeof(struct tcphdr) + options) / 4,
		.tcp.syn = syn,
		.tcp.ack = ack,
		.tcp.fin = fin,
		.tcp.rst = rst,
		.tcp.psh = len > 0,
		.tcp.window = htons(60000),
	};
	uint32_t total = IPPROTO_TCP + tcp_len;

	memcpy(segment.rest, smc_option, options);
	if (len)
		memcpy(segment.rest + options, data, len);
	segment.ip.check = fold(sum(&segment.ip, sizeof(segment.ip), 0));
	total = sum(&segment.ip.saddr, 8, total);
	segment.tcp.check = fold(sum(&segment.tcp, tcp_len, total));
	if (write(tcp->tun, &segment, sizeof(struct iphdr) + tcp_len) < 0)
		return -errno;
	tcp->snd_nxt += len + syn + fin;
	return 0;
}

static bool has_smc_option(const struct segment *segment)
{
	size_t len = segment->tcp.doff * 4 - sizeof(struct tcphdr);

	for (size_t i = 0; i + 6 <= len; i++)
		if (!memcmp(segment->rest + i, smc_option + 2, 6))
			return true;
	return false;
}

/* The next segment of our connection (or any SYN if @listening); -EAGAIN in time. */
static int recv_segment(struct tun_tcp *tcp, bool listening, struct segment *segment,
			int timeout_ms)
{
	struct pollfd pfd = { .fd = tcp->tun, .events = POLLIN };

	while (poll(&pfd, 1, timeout_ms) == 1) {
		ssize_t len = read(tcp->tun, segment, sizeof(*segment));

		if (len < (ssize_t)(sizeof(struct iphdr) + sizeof(struct tcphdr)) ||
		    segment->ip.version != 4 || segment->ip.protocol != IPPROTO_TCP ||
		    ntohs(segment->tcp.dest) != tcp->own_port)
			continue;
		if (listening ? segment->tcp.syn : ntohs(segment->tcp.source) == tcp->peer_port)
			return 0;
	}
	return -EAGAIN;
}

/* A connection from a port of ours to @port of the kernel. */
int tun_connect(struct tun_tcp *tcp, uint16_t port, bool with_option)
{
	static uint16_t next_port = 30000;
	struct segment segment;
	int ret;

	tcp->own_port = next_port++;
	tcp->peer_port = port;
	tcp->snd_nxt = 1000000 * next_port;
	tcp->got_fin = false;
	tcp->got_rst = false;
	ret = send_segment(tcp, true, false, false, false, with_option, NULL, 0);
	if (!ret)
		ret = recv_segment(tcp, false, &segment, 5000);
	if (ret)
		return ret;
	if (!segment.tcp.syn || !segment.tcp.ack)
		return -ECONNREFUSED;
	tcp->smc_option = has_smc_option(&segment);
	tcp->rcv_nxt = ntohl(segment.tcp.seq) + 1;
	return send_segment(tcp, false, true, false, false, false, NULL, 0);
}

/* The next connection of the kernel to @port of ours. */
int tun_accept(struct tun_tcp *tcp, uint16_t port, bool with_option)
{
	struct segment segment;
	int ret;

	tcp->own_port = port;
	tcp->snd_nxt = 5000000;
	tcp->got_fin = false;
	tcp->got_rst = false;
	ret = recv_segment(tcp, true, &segment, 5000);
	if (ret)
		return ret;
	tcp->peer_port = ntohs(segment.tcp.source);
	tcp->smc_option = has_smc_option(&segment);
	tcp->rcv_nxt = ntohl(segment.tcp.seq) + 1;
	return send_segment(tcp, true, true, false, false, with_option, NULL, 0);
}

int tun_send(struct tun_tcp *tcp, const void *data, size_t len)
{
	const char *from = data;

	while (len) {
		size_t part = len < MAX_DATA ? len : MAX_DATA;
		int ret = send_segment(tcp, false, true, false, false, false, from, part);

		if (ret)
			return ret;
		from += part;
		len -= part;
	}
	return 0;
}

/* Up to @len bytes in order; 0 at the end of the stream, -EAGAIN in time. */
ssize_t tun_recv(struct tun_tcp *tcp, void *data, size_t len, int timeout_ms)
{
	size_t done = 0;

	while (done < len && !tcp->got_fin && !tcp->got_rst) {
		struct segment segment;
		size_t header, bytes;

		if (recv_segment(tcp, false, &segment, timeout_ms))
			break;
		if (segment.tcp.rst) {
			tcp->got_rst = true;
			break;
		}
		header = sizeof(struct iphdr) + segment.tcp.doff * 4;
		bytes = ntohs(segment.ip.tot_len) - header;
		if (ntohl(segment.tcp.seq) == tcp->rcv_nxt && bytes <= len - done) {
			memcpy((char *)data + done, (char *)&segment + header, bytes);
			done += bytes;
			tcp->rcv_nxt += bytes;
			if (segment.tcp.fin) {
				tcp->rcv_nxt++;
				tcp->got_fin = true;
			}
		}
		if (bytes || segment.tcp.fin)
			send_segment(tcp, false, true, false, false, false, NULL, 0);
	}
	if (done)
		return done;
	if (tcp->got_rst)
		return -ECONNRESET;
	return tcp->got_fin ? 0 : -EAGAIN;
}

int tun_fin(struct tun_tcp *tcp)
{
	return send_segment(tcp, false, true, true, false, false, NULL, 0);
}

int tun_rst(struct tun_tcp *tcp)
{
	return send_segment(tcp, false, true, false, true, false, NULL, 0);
}
