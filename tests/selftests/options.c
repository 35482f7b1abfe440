// SPDX-License-Identifier: GPL-2.0
/*
 * Socket options and addresses.
 *
 * 1. Every common option of SOL_SOCKET, SOL_TCP, SOL_IP and SOL_IPV6 is set and
 *    read with the results of TCP: before connect, on a listener, on both ends
 *    of a connection.
 * 2. Options with short, long and missing buffers: as on TCP.
 * 3. What a listener was set to, its children have. Errors that end nothing,
 *    and time stamps: as on TCP.
 * 4. SO_RCVBUF and SO_SNDBUF of any size leave a working SMC-D connection.
 * 5. getsockname and getpeername give AF_INET or AF_INET6 addresses; short,
 *    long and wrong addresses in bind and connect: as on TCP.
 * 6. connect() to AF_UNSPEC in every state, time and again, and while others
 *    use the socket; as on TCP.
 * 7. Options, names and ioctls race with close and with a reset of the peer
 *    (CVE-2022-48751).
 */

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <string.h>

#include "kselftest_harness.h"
#include "smc_test.h"

FIXTURE(options)
{
};

FIXTURE_VARIANT(options)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(options, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(options, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(options, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(options, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(options, tcp6) { .ends = &smc_ends_tcp6 };
FIXTURE_VARIANT_ADD(options, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(options, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(options, af_smc6) { .ends = &smc_ends_af_smc6 };
FIXTURE_VARIANT_ADD(options, mixed) { .ends = &smc_ends_mixed };

FIXTURE_SETUP(options)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
}

FIXTURE_TEARDOWN(options)
{
}

struct option {
	int level;
	int name;
	const char *text;
	int value;
};

#define OPTION(level, name, value)	{ level, name, #name, value }

static const struct option ints[] = {
	OPTION(SOL_SOCKET, SO_REUSEADDR, 1),
	OPTION(SOL_SOCKET, SO_REUSEPORT, 1),
	OPTION(SOL_SOCKET, SO_KEEPALIVE, 1),
	OPTION(SOL_SOCKET, SO_BROADCAST, 1),
	OPTION(SOL_SOCKET, SO_OOBINLINE, 1),
	OPTION(SOL_SOCKET, SO_DONTROUTE, 1),
	OPTION(SOL_SOCKET, SO_PRIORITY, 3),
	OPTION(SOL_SOCKET, SO_MARK, 7),
	OPTION(SOL_SOCKET, SO_RCVLOWAT, 11),
	OPTION(SOL_SOCKET, SO_TIMESTAMP, 1),
	OPTION(SOL_SOCKET, SO_BUSY_POLL, 10),
	OPTION(SOL_SOCKET, SO_INCOMING_CPU, 0),
	OPTION(SOL_SOCKET, SO_ZEROCOPY, 1),
	OPTION(SOL_SOCKET, SO_PEEK_OFF, 0),
	OPTION(SOL_SOCKET, SO_PASSCRED, 1),
	OPTION(SOL_SOCKET, SO_ACCEPTCONN, 1),
	OPTION(SOL_SOCKET, SO_TYPE, 1),
	OPTION(SOL_SOCKET, 9999, 1),
	OPTION(SOL_TCP, TCP_NODELAY, 1),
	OPTION(SOL_TCP, TCP_CORK, 1),
	OPTION(SOL_TCP, TCP_MAXSEG, 1000),
	OPTION(SOL_TCP, TCP_KEEPIDLE, 60),
	OPTION(SOL_TCP, TCP_KEEPINTVL, 10),
	OPTION(SOL_TCP, TCP_KEEPCNT, 4),
	OPTION(SOL_TCP, TCP_SYNCNT, 3),
	OPTION(SOL_TCP, TCP_LINGER2, 5),
	OPTION(SOL_TCP, TCP_QUICKACK, 0),
	OPTION(SOL_TCP, TCP_DEFER_ACCEPT, 1),
	OPTION(SOL_TCP, TCP_USER_TIMEOUT, 10000),
	OPTION(SOL_TCP, TCP_NOTSENT_LOWAT, 65536),
	OPTION(SOL_TCP, TCP_WINDOW_CLAMP, 70000),
	OPTION(SOL_TCP, 9999, 1),
	OPTION(SOL_IP, IP_TOS, 16),
	OPTION(SOL_IP, IP_TTL, 33),
	OPTION(SOL_IP, IP_MTU_DISCOVER, 2),
	OPTION(SOL_IP, IP_FREEBIND, 1),
	OPTION(SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1),
	OPTION(SOL_IP, IP_RECVTOS, 1),
	OPTION(SOL_IPV6, IPV6_V6ONLY, 1),
	OPTION(SOL_IPV6, IPV6_TCLASS, 16),
	OPTION(SOL_IPV6, IPV6_UNICAST_HOPS, 33),
	OPTION(SOL_IPV6, IPV6_MTU_DISCOVER, 2),
	OPTION(9999, 1, 1),
};

static void note_option(struct smc_notes *notes, int fd, const struct option *option)
{
	socklen_t len = sizeof(int);
	int value = -1;

	smc_note_result(notes, "get", getsockopt(fd, option->level, option->name, &value, &len));
	smc_note(notes, "(%d,%u)", value, len);
	smc_note_result(notes, "set", setsockopt(fd, option->level, option->name, &option->value,
						 sizeof(int)));
	len = sizeof(int);
	value = -1;
	smc_note_result(notes, "get", getsockopt(fd, option->level, option->name, &value, &len));
	smc_note(notes, "(%d,%u)", value, len);
}

static void one_option(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_storage addr;
	int listener, fresh, fd[2];
	socklen_t len;

	fresh = smc_socket(&ends->client, 0);
	listener = smc_listen(ends, 4, &addr, &len);
	if (fresh < 0 || listener < 0 || smc_pair_from(ends, listener, &addr, len, fd))
		return;
	note_option(notes, fresh, arg);
	note_option(notes, fd[0], arg);
	note_option(notes, fd[1], arg);
	note_option(notes, listener, arg);
	smc_close_pair(fd);
	/* A child of the listener as it is now. */
	if (!smc_pair_from(ends, listener, &addr, len, fd)) {
		smc_note(notes, " child");
		note_option(notes, fd[1], arg);
		smc_close_pair(fd);
	} else {
		smc_note(notes, " no child");
	}
	close(listener);
	close(fresh);
}

TEST_F(options, integers_as_on_tcp)
{
	cpu_set_t one;

	/* SO_INCOMING_CPU tells the processor of the last packet. */
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(one), &one));
	for (size_t i = 0; i < ARRAY_SIZE(ints); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, one_option, &ints[i]))
			TH_LOG("%s", ints[i].text);
	}
}

static void shapes(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct linger linger = { 1, 3 };
	const struct timeval time = { 2, 500000 };
	struct linger got_linger = { 0 };
	struct timeval got_time = { 0 };
	struct tcp_info info;
	char name[16] = "";
	socklen_t len;
	int fd[2];
	int value = 1;

	if (smc_pair(ends, fd))
		return;
	/* An option that was applied says so, however short its value. */
	smc_note_result(notes, "congestion", setsockopt(fd[0], SOL_TCP, TCP_CONGESTION, "reno",
							4));
	len = sizeof(name);
	smc_note_result(notes, "congestion", getsockopt(fd[0], SOL_TCP, TCP_CONGESTION, name,
							&len));
	smc_note(notes, "(%s,%u)", name, len);
	smc_note_result(notes, "tos", setsockopt(fd[0], SOL_IP, IP_TOS, "\x10", 1));
	smc_note_result(notes, "nodelay", setsockopt(fd[0], SOL_TCP, TCP_NODELAY, &value, 1));
	smc_note_result(notes, "nodelay", setsockopt(fd[0], SOL_TCP, TCP_NODELAY, NULL, 4));
	smc_note_result(notes, "keepalive", setsockopt(fd[0], SOL_SOCKET, SO_KEEPALIVE, &value,
						       2));
	smc_note_result(notes, "linger", setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &linger, 4));
	smc_note_result(notes, "linger", setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &linger,
						    sizeof(linger)));
	len = sizeof(got_linger);
	getsockopt(fd[0], SOL_SOCKET, SO_LINGER, &got_linger, &len);
	smc_note(notes, "(%d,%d,%u)", got_linger.l_onoff, got_linger.l_linger, len);
	for (int name = SO_RCVTIMEO; name <= SO_SNDTIMEO; name++) {
		smc_note_result(notes, "timeo", setsockopt(fd[0], SOL_SOCKET, name, &time,
							   sizeof(time)));
		len = sizeof(got_time);
		getsockopt(fd[0], SOL_SOCKET, name, &got_time, &len);
		smc_note(notes, "(%ld,%ld,%u)", got_time.tv_sec, got_time.tv_usec, len);
	}
	len = 2;
	smc_note_result(notes, "type", getsockopt(fd[0], SOL_SOCKET, SO_TYPE, &value, &len));
	smc_note(notes, "(%u)", len);
	len = -1;
	smc_note_result(notes, "type", getsockopt(fd[0], SOL_SOCKET, SO_TYPE, &value, &len));
	len = 100;
	smc_note_result(notes, "type", getsockopt(fd[0], SOL_SOCKET, SO_TYPE, &value, &len));
	smc_note(notes, "(%u)", len);
	smc_note_result(notes, "null", getsockopt(fd[0], SOL_TCP, TCP_NODELAY, NULL, &len));
	len = sizeof(info);
	smc_note_result(notes, "info", getsockopt(fd[0], SOL_TCP, TCP_INFO, &info, &len));
	smc_note(notes, "(%u,state %u)", len, info.tcpi_state);
	smc_close_pair(fd);
}

TEST_F(options, shapes_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, shapes, NULL));
}

static void time_stamps(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct timeval stamp;
	struct timespec ns;
	int fd[2];
	char byte;

	if (smc_pair(ends, fd))
		return;
	for (int i = 0; i < 2; i++) {
		smc_note_result(notes, "stamp", ioctl(fd[1], SIOCGSTAMP, &stamp));
		smc_note_result(notes, "stampns", ioctl(fd[1], SIOCGSTAMPNS, &ns));
		smc_note_result(notes, "wild", ioctl(fd[1], SIOCGSTAMP, (void *)8));
		send(fd[0], "x", 1, 0);
		recv(fd[1], &byte, 1, 0);
	}
	smc_close_pair(fd);
}

TEST_F(options, time_stamp_requests_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, time_stamps, NULL));
}

/* Tells the kernel that a packet of the connection could not be delivered. */
static int send_unreachable(int fd)
{
	struct {
		struct icmphdr icmp;
		struct iphdr ip;
		struct tcphdr tcp;
	} packet = {
		.icmp = { .type = ICMP_DEST_UNREACH, .code = ICMP_HOST_UNREACH },
		.ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP },
	};
	const unsigned short *word = (const unsigned short *)&packet;
	struct sockaddr_in own, peer;
	socklen_t len = sizeof(own);
	int raw, on = 1, off = 0, queue = TCP_SEND_QUEUE;
	unsigned int seq = 0, sum = 0;
	ssize_t ret;

	if (getsockname(fd, (struct sockaddr *)&own, &len))
		return -1;
	len = sizeof(peer);
	if (getpeername(fd, (struct sockaddr *)&peer, &len))
		return -1;
	len = sizeof(seq);
	if (setsockopt(fd, SOL_TCP, TCP_REPAIR, &on, sizeof(on)) ||
	    setsockopt(fd, SOL_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) ||
	    getsockopt(fd, SOL_TCP, TCP_QUEUE_SEQ, &seq, &len) ||
	    setsockopt(fd, SOL_TCP, TCP_REPAIR, &off, sizeof(off)))
		return -1;
	packet.ip.tot_len = htons(sizeof(packet.ip) + sizeof(packet.tcp));
	packet.ip.saddr = own.sin_addr.s_addr;
	packet.ip.daddr = peer.sin_addr.s_addr;
	packet.tcp.source = own.sin_port;
	packet.tcp.dest = peer.sin_port;
	packet.tcp.seq = htonl(seq);
	packet.tcp.doff = 5;
	for (size_t i = 0; i < sizeof(packet) / 2; i++)
		sum += word[i];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	packet.icmp.checksum = ~sum;
	raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	own.sin_port = 0;
	ret = sendto(raw, &packet, sizeof(packet), 0, (struct sockaddr *)&own, sizeof(own));
	close(raw);
	return ret == sizeof(packet) ? 0 : -1;
}

static void soft_errors(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	smc_note_result(notes, "unreachable", send_unreachable(fd[0]));
	smc_settle(fd);
	smc_note_poll(notes, fd[0]);
	smc_note(notes, " error=%d", smc_error(fd[0]));
	smc_note(notes, " error=%d", smc_error(fd[0]));
	smc_note_poll(notes, fd[0]);
	smc_note(notes, " error=%d", smc_error(fd[0]));
	smc_note(notes, " exchange=%d", smc_exchange(fd[0], fd[1], 5));
	smc_close_pair(fd);
}

TEST_F(options, errors_that_end_nothing_as_on_tcp)
{
	if (variant->ends->family != AF_INET)
		SKIP(return, "the packet is one of IPv4");
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, soft_errors, NULL));
}

TEST_F(options, any_buffer_size_works)
{
	static const int sizes[] = {
		0, 1, 4096, 16383, 16384, 49152, 1 << 20, 2 << 20, 64 << 20, INT_MAX, -1,
	};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct smc_stream sender = {
			.sender = true, .seed = i, .bytes = 300000, .chunk = 50000,
		};
		struct sockaddr_storage addr;
		int listener, fd[2];
		socklen_t len;

		listener = smc_listen(variant->ends, 1, &addr, &len);
		ASSERT_LE(0, listener);
		fd[0] = smc_socket(&variant->ends->client, 0);
		ASSERT_LE(0, fd[0]);
		for (int name = SO_SNDBUF; name <= SO_RCVBUF; name++) {
			ASSERT_EQ(0, setsockopt(fd[0], SOL_SOCKET, name, &sizes[i], sizeof(int)));
			ASSERT_EQ(0, setsockopt(listener, SOL_SOCKET, name, &sizes[i],
						sizeof(int)));
		}
		ASSERT_EQ(0, connect(fd[0], (struct sockaddr *)&addr, len));
		fd[1] = smc_accept(listener);
		ASSERT_LE(0, fd[1]);
		ASSERT_EQ(0, smc_check_modes(variant->ends, fd)) TH_LOG("size %d", sizes[i]);
		sender.fd = fd[0];
		ASSERT_EQ(0, smc_stream_start(&sender));
		EXPECT_EQ(0, smc_recv_all(fd[1], i, 0, sender.bytes, 7000));
		ASSERT_EQ(0, smc_stream_join(&sender));
		smc_close_pair(fd);
		close(listener);
	}
}

/* The address as text with the port only as set or not set. */
static void note_address(struct smc_notes *notes, const char *call, int ret,
			 const struct sockaddr_storage *addr, socklen_t len)
{
	smc_note_result(notes, call, ret);
	if (ret)
		return;
	if (addr->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)addr;

		smc_note(notes, "(inet %#x %s %u)", ntohl(in->sin_addr.s_addr),
			 in->sin_port ? "port" : "no port", len);
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

		smc_note(notes, "(%d %#x %#x %s %u)", addr->ss_family,
			 ntohl(in6->sin6_addr.s6_addr32[0]), ntohl(in6->sin6_addr.s6_addr32[3]),
			 in6->sin6_port ? "port" : "no port", len);
	}
}

static void names(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	int fd[2], fresh = smc_socket(&ends->client, 0);
	int listener, ret;

	ret = getsockname(fresh, (struct sockaddr *)&addr, &len);
	note_address(notes, "fresh", ret, &addr, len);
	len = sizeof(addr);
	ret = getpeername(fresh, (struct sockaddr *)&addr, &len);
	note_address(notes, "fresh", ret, &addr, len);
	if (smc_pair(ends, fd))
		return;
	for (int end = 0; end < 2; end++) {
		len = sizeof(addr);
		ret = getsockname(fd[end], (struct sockaddr *)&addr, &len);
		note_address(notes, "own", ret, &addr, len);
		len = sizeof(addr);
		ret = getpeername(fd[end], (struct sockaddr *)&addr, &len);
		note_address(notes, "peer", ret, &addr, len);
		len = 4;
		ret = getpeername(fd[end], (struct sockaddr *)&addr, &len);
		smc_note(notes, " short=%d(%u)", ret, len);
		len = -1;
		smc_note_result(notes, "negative", getsockname(fd[end], (struct sockaddr *)&addr,
							       &len));
	}
	smc_close_pair(fd);

	listener = smc_listen(ends, 1, &addr, &len);
	fd[0] = smc_connect(ends, &addr, len);
	len = sizeof(addr);
	fd[1] = accept(listener, (struct sockaddr *)&addr, &len);
	note_address(notes, "accept", fd[1] < 0 ? -1 : 0, &addr, len);
	smc_close_pair(fd);
	close(listener);
	close(fresh);
}

TEST_F(options, names_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, names, NULL));
}

static void wrong_addresses(const struct smc_ends *ends, struct smc_notes *notes,
			    const void *arg)
{
	static const int families[] = {
		AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_SMC, AF_PACKET, 255,
	};
	struct sockaddr_storage addr, where;
	int listener;
	socklen_t len;

	listener = smc_listen(ends, 16, &where, &len);
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		for (socklen_t size = 0; size <= sizeof(addr); size += size < 32 ? 2 : 24) {
			int fd = smc_socket(&ends->client, 0);

			/* The right address with another family, or cut short. */
			addr = where;
			addr.ss_family = families[i];
			if (families[i] == AF_INET && ends->family == AF_INET6)
				((struct sockaddr_in *)&addr)->sin_addr.s_addr =
					htonl(INADDR_LOOPBACK);
			((struct sockaddr_in *)&addr)->sin_port = 0;
			smc_note(notes, " %d/%u", families[i], size);
			smc_note_result(notes, "b", bind(fd, (struct sockaddr *)&addr, size));
			close(fd);
		}
	}
	close(listener);
}

static void wrong_peers(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static const int families[] = { AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_SMC, 255 };
	struct sockaddr_storage addr, where;
	int listener;
	socklen_t len;

	listener = smc_listen(ends, 1024, &where, &len);
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		for (socklen_t size = 0; size <= 32; size += 2) {
			int fd = smc_socket(&ends->client, 0);

			/* A v4 address of a v6 port would be a different listener. */
			if (families[i] == AF_INET && ends->family == AF_INET6) {
				close(fd);
				continue;
			}
			addr = where;
			addr.ss_family = families[i];
			smc_note(notes, " %d/%u", families[i], size);
			smc_note_result(notes, "c", connect(fd, (struct sockaddr *)&addr, size));
			close(fd);
		}
	}
	close(listener);
}

TEST_F(options, wrong_addresses_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, wrong_addresses, NULL));
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, wrong_peers, NULL));
}

/* connect(AF_UNSPEC) dissolves a connection; the socket can be used again. */
static void disconnect(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;
	char byte;

	listener = smc_listen(ends, 4, &addr, &len);
	if (listener < 0 || smc_pair_from(ends, listener, &addr, len, fd))
		return;
	smc_note_result(notes, "unspec", connect(fd[0], &unspec, sizeof(unspec)));
	smc_settle(fd);
	smc_note_poll(notes, fd[0]);
	smc_note_poll(notes, fd[1]);
	smc_note_result(notes, "recv", recv(fd[1], &byte, 1, MSG_DONTWAIT));
	smc_note_result(notes, "send", send(fd[0], "x", 1, MSG_NOSIGNAL));
	close(fd[1]);
	smc_note_result(notes, "again", connect(fd[0], (struct sockaddr *)&addr, len));
	fd[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	if (fd[1] >= 0)
		smc_note(notes, " exchange=%d", smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
	close(listener);
}

TEST_F(options, disconnect_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, disconnect, NULL));
}

/* Disconnecting in every state that data, shutdown and close can lead to. */
static const char *const disconnect_scripts[] = {
	/* Unread data at either end. */
	"a D", "b D", "a b D", "a r D",
	/* Half closed by either end, by both, and reset. */
	"s D", "S D", "s S D", "S s D", "a s D", "b S D", "s S a b D", "C D", "s C D", "b C D",
	"R D", "b R D", "h D", "H D", "h H D", "x D",
	/* Twice, and what the socket says in between. */
	"D D", "D e D", "D s", "D w", "D p e p w r",
	/* Options and marks of the old connection. */
	"u D", "k D", "l D",
};

static void disconnect_step(struct smc_notes *notes, int fd[2], char step)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	int offset = 2;
	char buf[8];

	switch (step) {
	case 'D':
		smc_note_result(notes, "unspec", connect(fd[0], &unspec, sizeof(unspec)));
		break;
	case 'a':
		smc_note_result(notes, "send", send(fd[0], "abcd", 4, MSG_NOSIGNAL));
		break;
	case 'b':
		smc_note_result(notes, "back", send(fd[1], "efgh", 4, MSG_NOSIGNAL));
		break;
	case 'u':
		smc_note_result(notes, "oob", send(fd[1], "!", 1, MSG_NOSIGNAL | MSG_OOB));
		break;
	case 'r':
		smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
		break;
	case 'w':
		smc_note_result(notes, "recv", recv(fd[0], buf, sizeof(buf), MSG_DONTWAIT));
		break;
	case 'k':
		smc_note_result(notes, "peek", setsockopt(fd[0], SOL_SOCKET, SO_PEEK_OFF, &offset,
							  sizeof(offset)));
		break;
	case 'l':
		smc_set_linger(fd[0], 0);
		break;
	case 's':
	case 'h':
	case 'x':
		smc_note_result(notes, "shutdown", shutdown(fd[0], step == 's' ? SHUT_WR :
							    step == 'h' ? SHUT_RD : SHUT_RDWR));
		break;
	case 'S':
	case 'H':
		smc_note_result(notes, "peer", shutdown(fd[1], step == 'S' ? SHUT_WR : SHUT_RD));
		break;
	case 'R':
		smc_set_linger(fd[1], 0);
		/* fallthrough */
	case 'C':
		close(fd[1]);
		fd[1] = -1;
		break;
	case 'e':
		smc_note(notes, " error=%d", smc_error(fd[0]));
		break;
	}
	smc_settle(fd);
	for (int end = 0; end < 2; end++)
		if (fd[end] >= 0)
			smc_note_poll(notes, fd[end]);
}

static void disconnect_played(const struct smc_ends *ends, struct smc_notes *notes,
			      const void *arg)
{
	struct sockaddr_storage addr, name;
	socklen_t len, name_len = sizeof(name);
	int listener, fd[2];

	listener = smc_listen(ends, 4, &addr, &len);
	if (listener < 0 || smc_pair_from(ends, listener, &addr, len, fd))
		return;
	for (const char *step = arg; *step; step++) {
		if (*step == ' ')
			continue;
		smc_note(notes, " [%c]", *step);
		disconnect_step(notes, fd, *step);
	}
	/* What the peer is left with. */
	for (int i = 0; i < 3 && fd[1] >= 0; i++)
		disconnect_step(notes, fd, 'r');
	if (fd[1] >= 0)
		disconnect_step(notes, fd, 'b');
	smc_note_result(notes, "peername", getpeername(fd[0], (struct sockaddr *)&name,
						       &name_len));
	name_len = sizeof(int);
	listen(fd[0], 1);
	getsockopt(fd[0], SOL_SOCKET, SO_ACCEPTCONN, &name, &name_len);
	smc_note(notes, " listens=%d", *(int *)&name);
	smc_close_pair(fd);
	close(listener);
}

TEST_F(options, disconnect_in_every_state_as_on_tcp)
{
	for (size_t i = 0; i < ARRAY_SIZE(disconnect_scripts); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, disconnect_played,
					    disconnect_scripts[i]))
			TH_LOG("%s", disconnect_scripts[i]);
	}
}

/* Time and again; however often, the bytes arrive. */
TEST_F(options, connects_after_each_disconnect)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;

	listener = smc_listen(variant->ends, 4, &addr, &len);
	ASSERT_LE(0, listener);
	fd[0] = smc_socket(&variant->ends->client, 0);
	for (int round = 0; round < 12; round++) {
		ASSERT_EQ(0, connect(fd[0], (struct sockaddr *)&addr, len));
		fd[1] = smc_accept(listener);
		ASSERT_LE(0, fd[1]);
		/* A socket that has had many connections through rings goes on with TCP. */
		if (round < 4)
			ASSERT_EQ(0, smc_check_modes(variant->ends, fd));
		ASSERT_EQ(0, smc_exchange(fd[0], fd[1], round));
		if (round % 3 == 0)
			ASSERT_EQ(0, shutdown(fd[0], SHUT_RDWR));
		ASSERT_EQ(0, connect(fd[0], &unspec, sizeof(unspec)));
		smc_error(fd[0]);
		close(fd[1]);
	}
	close(fd[0]);
	close(listener);
}

struct disconnector {
	int fd;
	const struct sockaddr_storage *addr;
	socklen_t len;
	bool stop;
};

static void *use_at_will(void *arg)
{
	struct disconnector *shared = arg;
	char buf[3000] = { 0 };

	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		send(shared->fd, buf, sizeof(buf), MSG_NOSIGNAL);
		recv(shared->fd, buf, sizeof(buf), MSG_DONTWAIT);
		smc_poll(shared->fd, POLLIN | POLLOUT, 1);
		shutdown(shared->fd, SHUT_WR);
	}
	return NULL;
}

static void *connect_anew(void *arg)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	struct disconnector *shared = arg;

	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		connect(shared->fd, (struct sockaddr *)shared->addr, shared->len);
		connect(shared->fd, &unspec, sizeof(unspec));
	}
	return NULL;
}

/* One socket connected, used and disconnected by many threads at once. */
TEST_F(options, disconnect_races_with_everything)
{
	enum { THREADS = 4 };
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;

	listener = smc_listen(variant->ends, 16, &addr, &len);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, smc_set_nonblock(listener, true));
	for (int round = 0; round < 30; round++) {
		struct disconnector shared = { .addr = &addr, .len = len };
		pthread_t thread[THREADS];

		shared.fd = smc_socket(&variant->ends->client, SOCK_NONBLOCK);
		ASSERT_LE(0, shared.fd);
		for (int i = 0; i < THREADS; i++)
			ASSERT_EQ(0, pthread_create(&thread[i], NULL,
						    i % 2 ? connect_anew : use_at_will, &shared));
		for (int i = 0; i < 30; i++) {
			char buf[5000];
			int server;

			smc_poll(listener, POLLIN, 5);
			server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
			if (server < 0)
				continue;
			recv(server, buf, sizeof(buf), 0);
			send(server, buf, sizeof(buf), MSG_NOSIGNAL);
			close(server);
		}
		__atomic_store_n(&shared.stop, true, __ATOMIC_RELEASE);
		for (int i = 0; i < THREADS; i++)
			ASSERT_EQ(0, pthread_join(thread[i], NULL));
		close(shared.fd);
	}
	/* An honest client is served as before. */
	while ((fd[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		close(fd[1]);
	ASSERT_EQ(0, smc_set_nonblock(listener, false));
	ASSERT_EQ(0, smc_pair_from(variant->ends, listener, &addr, len, fd));
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
	close(listener);
}

struct racer {
	int fd;
	bool stop;
};

static void *race_options(void *arg)
{
	struct racer *racer = arg;
	struct sockaddr_storage addr;
	socklen_t len;
	int value = 1;

	while (!__atomic_load_n(&racer->stop, __ATOMIC_ACQUIRE)) {
		for (size_t i = 0; i < ARRAY_SIZE(ints); i++) {
			setsockopt(racer->fd, ints[i].level, ints[i].name, &ints[i].value,
				   sizeof(int));
			len = sizeof(value);
			getsockopt(racer->fd, ints[i].level, ints[i].name, &value, &len);
		}
		len = sizeof(addr);
		getsockname(racer->fd, (struct sockaddr *)&addr, &len);
		len = sizeof(addr);
		getpeername(racer->fd, (struct sockaddr *)&addr, &len);
		ioctl(racer->fd, SIOCINQ, &value);
		ioctl(racer->fd, SIOCOUTQ, &value);
	}
	return NULL;
}

TEST_F(options, calls_race_with_a_reset)
{
	enum { THREADS = 4 };

	for (int round = 0; round < 20; round++) {
		struct racer racer = { 0 };
		pthread_t thread[THREADS];
		int fd[2];

		ASSERT_EQ(0, smc_pair(variant->ends, fd));
		racer.fd = fd[round % 2];
		for (int i = 0; i < THREADS; i++)
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, race_options, &racer));
		ASSERT_EQ(0, smc_set_linger(fd[!(round % 2)], 0));
		close(fd[!(round % 2)]);
		EXPECT_TRUE(smc_poll(fd[round % 2], POLLIN, SMC_TIMEOUT_MS) & (POLLERR | POLLHUP));
		__atomic_store_n(&racer.stop, true, __ATOMIC_RELEASE);
		for (int i = 0; i < THREADS; i++)
			ASSERT_EQ(0, pthread_join(thread[i], NULL));
		/* The descriptor is still good: the socket below is not gone. */
		EXPECT_EQ(0, shutdown(fd[round % 2], SHUT_RDWR) && errno != ENOTCONN);
		close(fd[round % 2]);
	}
}

TEST_HARNESS_MAIN
