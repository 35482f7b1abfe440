// SPDX-License-Identifier: GPL-2.0
/*
 * Nobody is ever paired with a stranger. Every end sends who it is and a fresh
 * number, and the bytes prove who talks to whom; honest connections are SMC-D.
 *
 * 1. The same addresses and ports in parallel namespaces, connecting at once.
 * 2. Between namespaces over veth, also where two such pairs use the same
 *    addresses and ports; IPv4 and IPv6.
 * 3. A socket belongs to the namespace it was made in, not to its thread's.
 * 4. REDIRECT, DNAT, SNAT and TPROXY with a decoy at the original address: the
 *    ends that talk agree on the mode.
 * 5. A spoofed SYN of a client that is connecting pairs nobody.
 * 6. Tuples that are used again at once, by SMC and plain TCP in turn, with a
 *    reset or a clean close between: modes and bytes are of the new connection.
 * 7. Devices and their addresses come and go while clients connect to them
 *    (CVE-2025-40064): nobody meets anybody but his server.
 * 8. A namespace whose last process dies with a live connection: the peer reads
 *    its bytes and then the end.
 * 9. Connections between namespaces end with packets, whatever net.smc.quiet_close
 *    says in both.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define PORT	8000

/* Runs a shell command built like printf(); 0 if it succeeded. */
static int __printf(1, 2) shell(const char *format, ...)
{
	char command[1024];
	va_list args;
	int ret;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	ret = system(command);
	if (ret)
		fprintf(stderr, "# failed (%#x): %s\n", ret, command);
	return ret;
}

/* The rules of nft/@name.nft for the namespace of the caller. */
static int load_rules(const char *name)
{
	const char *dir = getenv("SMC_TEST_DIR");

	return shell("nft -f %s/nft/%s.nft", dir ? dir : ".", name);
}

/* A new namespace, which the caller enters; its descriptor. */
static int new_namespace(void)
{
	int ret = smc_netns_new();

	return ret ? ret : smc_netns_open();
}

/* Gives device @name of namespace @ns the addresses of host @host in net @net. */
static int configure(int ns, const char *name, int net, int host)
{
	if (smc_netns_enter(ns) ||
	    shell("ip address add 10.%d.0.%d/24 dev %s%d", net, host, name, net) ||
	    shell("ip address add fd00:%d::%d/64 dev %s%d nodad", net, host, name, net) ||
	    shell("ip link set %s%d up", name, net))
		return -EIO;
	return 0;
}

/* Joins namespaces @a and @b by a veth pair with addresses 10.@net.0.1 and .2. */
static int join(int a, int b, int net)
{
	if (smc_netns_enter(a) ||
	    shell("ip link add veth%d type veth peer name peer%d netns /proc/%d/fd/%d",
		  net, net, getpid(), b))
		return -EIO;
	return configure(a, "veth", net, 1) || configure(b, "peer", net, 2) ? -EIO : 0;
}

static socklen_t address(struct sockaddr_storage *addr, const char *text, int port)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	struct sockaddr_in *in = (struct sockaddr_in *)addr;

	memset(addr, 0, sizeof(*addr));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		return sizeof(*in);
	}
	inet_pton(AF_INET6, text, &in6->sin6_addr);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	return sizeof(*in6);
}

/* A listener at an address of namespace @ns. */
static int listen_at(const struct smc_end *end, int ns, const char *text, int port)
{
	struct sockaddr_storage addr;
	int fd, on = 1;
	socklen_t len;

	if (smc_netns_enter(ns))
		return -EIO;
	fd = smc_socket(end, 0);
	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	len = address(&addr, text, port);
	if (bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 128)) {
		fprintf(stderr, "# cannot listen at %s:%d: %s\n", text, port, strerror(errno));
		close(fd);
		return -EADDRNOTAVAIL;
	}
	return fd;
}

/* A socket of namespace @ns, bound to @port unless that is 0. */
static int bound_socket(const struct smc_end *end, int ns, const char *text, int port)
{
	struct sockaddr_storage addr;
	int fd, on = 1;
	socklen_t len;

	if (smc_netns_enter(ns))
		return -EIO;
	fd = smc_socket(end, 0);
	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	len = address(&addr, text, port);
	if (port && bind(fd, (struct sockaddr *)&addr, len)) {
		fprintf(stderr, "# cannot bind %s:%d: %s\n", text, port, strerror(errno));
		close(fd);
		return -EADDRINUSE;
	}
	return fd;
}

static int connect_to(int fd, const char *text, int port)
{
	struct sockaddr_storage addr;
	socklen_t len = address(&addr, text, port);

	if (connect(fd, (struct sockaddr *)&addr, len)) {
		fprintf(stderr, "# connect to %s:%d: %s\n", text, port, strerror(errno));
		return -EHOSTUNREACH;
	}
	return 0;
}

/* Client and server tell each other who they are; 0 if each hears the other. */
static int introduce(int client, int server, uint64_t who)
{
	static uint64_t number;
	uint64_t fresh = __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED);

	return smc_exchange(client, server, who << 48 | fresh);
}

/*
 * The two ends of one connection say the same of it: both SMC-D or neither. The
 * proof is looked up in each end's own namespace.
 */
static int same_mode(int client, int client_ns, int server, int server_ns, bool must_be_smcd)
{
	int mode[2];

	if (smc_netns_enter(client_ns))
		return -EIO;
	mode[0] = smc_mode(client);
	if (smc_netns_enter(server_ns))
		return -EIO;
	mode[1] = smc_mode(server);
	if ((mode[0] == SMC_MODE_SMCD) == (mode[1] == SMC_MODE_SMCD) &&
	    (!must_be_smcd || mode[0] == SMC_MODE_SMCD))
		return 0;
	fprintf(stderr, "# modes: client %d, server %d\n", mode[0], mode[1]);
	return -EPROTOTYPE;
}

FIXTURE(identity)
{
	int ns[4];
	bool smcd;
};

FIXTURE_VARIANT(identity)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(identity, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(identity, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(identity, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(identity, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(identity, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(identity)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	self->smcd = smc_is_smcd(variant->ends);
	for (int i = 0; i < 4; i++) {
		self->ns[i] = new_namespace();
		ASSERT_LE(0, self->ns[i]);
	}
}

FIXTURE_TEARDOWN(identity)
{
	for (int i = 0; i < 4; i++)
		close(self->ns[i]);
}

/* One of several namespaces that all do the same at the same time. */
struct twin {
	const struct smc_ends *ends;
	int ns;
	int peer_ns;
	const char *addr;
	const char *from;
	uint64_t who;
	int rounds;
	pthread_barrier_t *barrier;
	int result;
};

static int twin_round(struct twin *twin, int listener)
{
	int ret, fd[2];

	fd[0] = bound_socket(&twin->ends->client, twin->ns, twin->from, 5000);
	if (fd[0] < 0)
		return fd[0];
	pthread_barrier_wait(twin->barrier);
	ret = connect_to(fd[0], twin->addr, PORT);
	fd[1] = ret ? -1 : smc_accept(listener);
	if (!ret)
		ret = fd[1] < 0 ? fd[1] : introduce(fd[0], fd[1], twin->who);
	if (!ret)
		ret = same_mode(fd[0], twin->ns, fd[1], twin->peer_ns,
				smc_is_smcd(twin->ends));
	/* A reset, so that the same ports are free at once. */
	smc_set_linger(fd[0], 0);
	smc_close_pair(fd);
	return ret;
}

static void *run_twin(void *arg)
{
	struct twin *twin = arg;
	int listener, round;

	listener = listen_at(&twin->ends->server, twin->peer_ns, twin->addr, PORT);
	twin->result = listener < 0 ? listener : 0;
	for (round = 0; round < twin->rounds; round++) {
		int ret;

		if (twin->result) {
			/* The others must not wait for us. */
			pthread_barrier_wait(twin->barrier);
			continue;
		}
		ret = twin_round(twin, listener);
		if (ret == -EADDRINUSE) {
			pthread_barrier_wait(twin->barrier);
			ret = 0;
		}
		twin->result = ret;
	}
	close(listener);
	return NULL;
}

static int run_twins(struct twin *twin, int count)
{
	pthread_t thread[4];
	pthread_barrier_t barrier;
	int ret = 0;

	pthread_barrier_init(&barrier, NULL, count);
	for (int i = 0; i < count; i++) {
		twin[i].barrier = &barrier;
		if (pthread_create(&thread[i], NULL, run_twin, &twin[i]))
			return -EAGAIN;
	}
	for (int i = 0; i < count; i++) {
		pthread_join(thread[i], NULL);
		if (twin[i].result)
			ret = twin[i].result;
	}
	return ret;
}

TEST_F_TIMEOUT(identity, parallel_namespaces_with_the_same_tuples, 600)
{
	struct twin twin[4];

	for (int i = 0; i < 4; i++)
		twin[i] = (struct twin) {
			.ends = variant->ends, .ns = self->ns[i], .peer_ns = self->ns[i],
			.addr = "127.0.0.1", .from = "127.0.0.1", .who = i + 1, .rounds = 100,
		};
	EXPECT_EQ(0, run_twins(twin, 4));
}

TEST_F_TIMEOUT(identity, two_veth_pairs_with_the_same_tuples, 600)
{
	struct twin twin[2];

	ASSERT_EQ(0, join(self->ns[0], self->ns[1], 9));
	ASSERT_EQ(0, join(self->ns[2], self->ns[3], 9));
	for (int i = 0; i < 2; i++)
		twin[i] = (struct twin) {
			.ends = variant->ends, .ns = self->ns[2 * i],
			.peer_ns = self->ns[2 * i + 1], .addr = "10.9.0.2",
			.from = "10.9.0.1", .who = i + 1, .rounds = 100,
		};
	EXPECT_EQ(0, run_twins(twin, 2));
}

TEST_F(identity, veth_with_ipv6)
{
	struct smc_end client = variant->ends->client, server = variant->ends->server;
	int listener, fd[2];

	if (client.domain == AF_SMC)
		client.protocol = SMCPROTO_SMC6;
	else
		client.domain = AF_INET6;
	if (server.domain == AF_SMC)
		server.protocol = SMCPROTO_SMC6;
	else
		server.domain = AF_INET6;
	ASSERT_EQ(0, join(self->ns[0], self->ns[1], 9));
	listener = listen_at(&server, self->ns[1], "::", PORT);
	ASSERT_LE(0, listener);
	for (int i = 0; i < 20; i++) {
		fd[0] = bound_socket(&client, self->ns[0], "::", 0);
		ASSERT_LE(0, fd[0]);
		ASSERT_EQ(0, connect_to(fd[0], i % 2 ? "fd00:9::2" : "::ffff:10.9.0.2", PORT));
		fd[1] = smc_accept(listener);
		ASSERT_LE(0, fd[1]);
		EXPECT_EQ(0, introduce(fd[0], fd[1], i));
		EXPECT_EQ(0, same_mode(fd[0], self->ns[0], fd[1], self->ns[1], self->smcd));
		smc_close_pair(fd);
	}
	close(listener);
}

TEST_F(identity, namespace_of_the_socket_not_of_the_thread)
{
	int here, there, fd[2];

	here = listen_at(&variant->ends->server, self->ns[0], "127.0.0.1", PORT);
	there = listen_at(&variant->ends->server, self->ns[1], "127.0.0.1", PORT);
	ASSERT_LE(0, here);
	ASSERT_LE(0, there);
	fd[0] = bound_socket(&variant->ends->client, self->ns[0], "127.0.0.1", 0);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(0, smc_netns_enter(self->ns[1]));
	ASSERT_EQ(0, connect_to(fd[0], "127.0.0.1", PORT));
	ASSERT_EQ(0, smc_set_nonblock(there, true));
	EXPECT_EQ(-1, accept(there, NULL, NULL));
	fd[1] = smc_accept(here);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(0, introduce(fd[0], fd[1], 1));
	EXPECT_EQ(0, same_mode(fd[0], self->ns[0], fd[1], self->ns[0], self->smcd));
	smc_close_pair(fd);
	close(here);
	close(there);
}

/*
 * @client connects to @addr:PORT, but @real is who answers; @decoy, a listener
 * at the address that was named, hears of nobody.
 */
static int translated(int client, int client_ns, const char *addr, int real, int real_ns,
		      int decoy)
{
	int server, ret;

	if (smc_netns_enter(client_ns))
		return -EIO;
	ret = connect_to(client, addr, PORT);
	if (ret)
		return ret;
	server = smc_accept(real);
	if (server < 0)
		return server;
	ret = introduce(client, server, 7);
	if (!ret)
		ret = same_mode(client, client_ns, server, real_ns, false);
	close(server);
	if (!ret && decoy >= 0) {
		smc_set_nonblock(decoy, true);
		if (accept(decoy, NULL, NULL) >= 0 || errno != EAGAIN)
			ret = -EDOM;
	}
	return ret;
}

TEST_F(identity, ends_with_packets_whatever_both_namespaces_say)
{
	int listener, fd[2];

	if (!self->smcd || access(SMC_QUIET_CLOSE, F_OK))
		SKIP(return, "nothing to say");
	ASSERT_EQ(0, join(self->ns[0], self->ns[1], 9));
	listener = listen_at(&variant->ends->server, self->ns[1], "10.9.0.2", PORT);
	ASSERT_LE(0, listener);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, smc_netns_enter(self->ns[1]));
		ASSERT_EQ(0, smc_set_sysctl(SMC_QUIET_CLOSE, i & 1 ? "1" : "0"));
		fd[0] = bound_socket(&variant->ends->client, self->ns[0], "10.9.0.1", 0);
		ASSERT_LE(0, fd[0]);
		ASSERT_EQ(0, smc_set_sysctl(SMC_QUIET_CLOSE, i & 2 ? "1" : "0"));
		ASSERT_EQ(0, connect_to(fd[0], "10.9.0.2", PORT));
		fd[1] = smc_accept(listener);
		ASSERT_LE(0, fd[1]);
		EXPECT_EQ(0, introduce(fd[0], fd[1], i));
		EXPECT_EQ(0, same_mode(fd[0], self->ns[0], fd[1], self->ns[1], self->smcd));
		smc_close_pair(fd);
		ASSERT_EQ(0, smc_netns_enter(self->ns[0]));
		EXPECT_EQ(i + 1, smc_count_tcp(TCP_TIME_WAIT));
	}
	close(listener);
}

TEST_F(identity, redirect)
{
	int decoy, real;

	ASSERT_EQ(0, smc_netns_enter(self->ns[0]));
	ASSERT_EQ(0, load_rules("redirect"));
	decoy = listen_at(&variant->ends->server, self->ns[0], "127.0.0.1", PORT);
	real = listen_at(&variant->ends->server, self->ns[0], "127.0.0.1", 9000);
	ASSERT_LE(0, decoy);
	ASSERT_LE(0, real);
	for (int i = 0; i < 20; i++) {
		int client = bound_socket(&variant->ends->client, self->ns[0], "127.0.0.1", 0);

		ASSERT_LE(0, client);
		EXPECT_EQ(0, translated(client, self->ns[0], "127.0.0.1", real, self->ns[0],
					decoy));
		close(client);
	}
	close(decoy);
	close(real);
}

/* Clients in ns 0, a router in ns 1, servers in ns 2: 10.9.0.1-.2 10.8.0.1-.2. */
static int make_router(const int ns[4])
{
	if (join(ns[0], ns[1], 9) || join(ns[1], ns[2], 8) || smc_netns_enter(ns[0]) ||
	    shell("ip route add default via 10.9.0.2") || smc_netns_enter(ns[2]) ||
	    shell("ip route add default via 10.8.0.1") || smc_netns_enter(ns[1]))
		return -EIO;
	return shell("sysctl -q -w net.ipv4.ip_forward=1");
}

TEST_F(identity, through_a_router)
{
	int listener;

	ASSERT_EQ(0, make_router(self->ns));
	listener = listen_at(&variant->ends->server, self->ns[2], "10.8.0.2", PORT);
	ASSERT_LE(0, listener);
	for (int i = 0; i < 20; i++) {
		int fd[2];

		fd[0] = bound_socket(&variant->ends->client, self->ns[0], "10.9.0.1", 0);
		ASSERT_LE(0, fd[0]);
		ASSERT_EQ(0, connect_to(fd[0], "10.8.0.2", PORT));
		fd[1] = smc_accept(listener);
		ASSERT_LE(0, fd[1]);
		EXPECT_EQ(0, introduce(fd[0], fd[1], i));
		EXPECT_EQ(0, same_mode(fd[0], self->ns[0], fd[1], self->ns[2], self->smcd));
		smc_close_pair(fd);
	}
	close(listener);
}

TEST_F(identity, dnat_and_snat)
{
	int decoy, real;

	ASSERT_EQ(0, make_router(self->ns));
	ASSERT_EQ(0, load_rules("nat"));
	/* The decoys sit at the address that the client names and where it is sent. */
	decoy = listen_at(&variant->ends->server, self->ns[1], "10.9.0.2", PORT);
	real = listen_at(&variant->ends->server, self->ns[2], "10.8.0.2", 9000);
	ASSERT_LE(0, decoy);
	ASSERT_LE(0, real);
	for (int i = 0; i < 20; i++) {
		int client = bound_socket(&variant->ends->client, self->ns[0], "10.9.0.1", 0);

		ASSERT_LE(0, client);
		EXPECT_EQ(0, translated(client, self->ns[0], "10.9.0.2", real, self->ns[2],
					decoy));
		close(client);
	}
	close(decoy);
	close(real);
}

TEST_F(identity, transparent_proxy)
{
	int decoy, proxy, on = 1;
	struct sockaddr_storage addr;
	socklen_t len;

	ASSERT_EQ(0, make_router(self->ns));
	ASSERT_EQ(0, shell("ip rule add fwmark 1 lookup 100"));
	ASSERT_EQ(0, shell("ip route add local default dev lo table 100"));
	ASSERT_EQ(0, load_rules("tproxy"));
	proxy = smc_socket(&variant->ends->server, 0);
	ASSERT_LE(0, proxy);
	ASSERT_EQ(0, setsockopt(proxy, SOL_IP, IP_TRANSPARENT, &on, sizeof(on)));
	len = address(&addr, "0.0.0.0", 9000);
	ASSERT_EQ(0, bind(proxy, (struct sockaddr *)&addr, len));
	ASSERT_EQ(0, listen(proxy, 16));
	decoy = listen_at(&variant->ends->server, self->ns[2], "10.8.0.2", PORT);
	ASSERT_LE(0, decoy);
	for (int i = 0; i < 20; i++) {
		int client = bound_socket(&variant->ends->client, self->ns[0], "10.9.0.1", 0);

		ASSERT_LE(0, client);
		/* The proxy is the peer of this TCP connection, so it is the peer. */
		EXPECT_EQ(0, translated(client, self->ns[0], "10.8.0.2", proxy, self->ns[1],
					decoy));
		close(client);
	}
	close(decoy);
	close(proxy);
}

static uint16_t checksum(const void *data, size_t len, uint32_t sum)
{
	const uint16_t *word = data;

	for (; len > 1; len -= 2)
		sum += *word++;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* A SYN from and to the loopback address with any ports and sequence number. */
static int send_syn(int raw, uint16_t from, uint16_t to, uint32_t seq)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct {
		uint32_t source;
		uint32_t dest;
		uint16_t protocol;
		uint16_t length;
		struct tcphdr tcp;
	} packet = {
		.source = htonl(INADDR_LOOPBACK),
		.dest = htonl(INADDR_LOOPBACK),
		.protocol = htons(IPPROTO_TCP),
		.length = htons(sizeof(struct tcphdr)),
		.tcp.source = htons(from),
		.tcp.dest = htons(to),
		.tcp.seq = htonl(seq),
		.tcp.doff = sizeof(struct tcphdr) / 4,
		.tcp.syn = 1,
		.tcp.window = htons(65535),
	};

	packet.tcp.check = checksum(&packet, sizeof(packet), 0);
	if (sendto(raw, &packet.tcp, sizeof(packet.tcp), 0, (struct sockaddr *)&addr,
		   sizeof(addr)) < 0)
		return -errno;
	return 0;
}

TEST_F(identity, spoofed_syn_of_a_connecting_client)
{
	int listener, raw, fd[2];
	struct sockaddr_storage addr;
	socklen_t len;

	listener = listen_at(&variant->ends->server, self->ns[0], "127.0.0.1", PORT);
	ASSERT_LE(0, listener);
	raw = socket(AF_INET, SOCK_RAW, IPPROTO_TCP);
	ASSERT_LE(0, raw);
	/* The honest SYN is held back, the spoofed ones (marked) go through. */
	ASSERT_EQ(0, setsockopt(raw, SOL_SOCKET, SO_MARK, &(int){ 5 }, sizeof(int)));
	ASSERT_EQ(0, load_rules("hold-syn"));
	fd[0] = bound_socket(&variant->ends->client, self->ns[0], "127.0.0.1", 5000);
	ASSERT_LE(0, fd[0]);
	ASSERT_EQ(0, smc_set_nonblock(fd[0], true));
	len = address(&addr, "127.0.0.1", PORT);
	ASSERT_EQ(-1, connect(fd[0], (struct sockaddr *)&addr, len));
	ASSERT_EQ(EINPROGRESS, errno);
	for (uint32_t i = 0; i < 200; i++)
		ASSERT_EQ(0, send_syn(raw, 5000, PORT, i * 0x01234567));
	/* The client still connects; nobody has answered for it. */
	EXPECT_EQ(0, smc_poll(fd[0], POLLOUT, 50) & POLLOUT);
	ASSERT_EQ(0, smc_set_nonblock(listener, true));
	EXPECT_EQ(-1, accept(listener, NULL, NULL));
	ASSERT_EQ(0, smc_set_nonblock(listener, false));

	/* Once its SYN may leave, the connection is its own. */
	ASSERT_EQ(0, shell("nft flush ruleset"));
	ASSERT_TRUE(smc_poll(fd[0], POLLOUT, 6 * SMC_TIMEOUT_MS) & POLLOUT);
	ASSERT_EQ(0, smc_error(fd[0]));
	fd[1] = smc_accept(listener);
	ASSERT_LE(0, fd[1]);
	ASSERT_EQ(0, smc_set_nonblock(fd[0], false));
	EXPECT_EQ(0, introduce(fd[0], fd[1], 3));
	EXPECT_EQ(0, same_mode(fd[0], self->ns[0], fd[1], self->ns[0], false));
	smc_close_pair(fd);
	close(raw);
	close(listener);
}

TEST_F_TIMEOUT(identity, tuples_used_again, 600)
{
	const struct smc_end plain = { AF_INET, 0, SMC_MODE_PLAIN };
	int listener;

	for (int i = 0; i < 300; i++) {
		/* Each end is plain TCP in some rounds: then nobody may be SMC-D. */
		bool plain_client = i % 3 == 1, plain_server = i % 5 == 2;
		int fd[2];

		listener = listen_at(plain_server ? &plain : &variant->ends->server,
				     self->ns[0], "127.0.0.1", PORT);
		ASSERT_LE(0, listener);
		fd[0] = bound_socket(plain_client ? &plain : &variant->ends->client,
				     self->ns[0], "127.0.0.1", 5000);
		ASSERT_LE(0, fd[0]);
		ASSERT_EQ(0, connect_to(fd[0], "127.0.0.1", PORT));
		fd[1] = smc_accept(listener);
		ASSERT_LE(0, fd[1]);
		ASSERT_EQ(0, introduce(fd[0], fd[1], i)) TH_LOG("round %d", i);
		ASSERT_EQ(0, same_mode(fd[0], self->ns[0], fd[1], self->ns[0],
				       self->smcd && !plain_client && !plain_server));
		/* A reset leaves nothing behind, so that the tuple is free at once. */
		ASSERT_EQ(0, smc_set_linger(fd[i % 2], 0));
		close(fd[i % 2]);
		close(fd[!(i % 2)]);
		close(listener);
	}
}

struct visitor {
	const struct smc_ends *ends;
	int ns;
	bool stop;
	int failures;
	long connected;
};

/* Connects to an address that may be gone this moment. */
static void *visit(void *arg)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct visitor *visitor = arg;

	while (!__atomic_load_n(&visitor->stop, __ATOMIC_ACQUIRE)) {
		struct sockaddr_storage addr;
		socklen_t len = address(&addr, "10.7.0.1", PORT);
		int fd = bound_socket(&visitor->ends->client, visitor->ns, "", 0);
		char byte = 0;

		if (fd < 0)
			break;
		smc_set_nonblock(fd, true);
		connect(fd, (struct sockaddr *)&addr, len);
		if (smc_poll(fd, POLLIN, 20) & POLLIN && recv(fd, &byte, 1, 0) == 1) {
			__atomic_add_fetch(&visitor->connected, 1, __ATOMIC_RELAXED);
			if (byte != '7')
				__atomic_add_fetch(&visitor->failures, 1, __ATOMIC_RELAXED);
		}
		close(fd);
		/* An address that is gone refuses at once. */
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void *greet(void *arg)
{
	int fd;

	while ((fd = accept(*(int *)arg, NULL, NULL)) >= 0) {
		send(fd, "7", 1, MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

TEST_F_TIMEOUT(identity, devices_come_and_go, 300)
{
	struct visitor visitor = { .ends = variant->ends, .ns = self->ns[0] };
	pthread_t thread[2], server;
	int listener;

	listener = listen_at(&variant->ends->server, self->ns[0], "0.0.0.0", PORT);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, pthread_create(&server, NULL, greet, &listener));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, visit, &visitor));
	for (int i = 0; i < 8; i++) {
		ASSERT_EQ(0, shell("ip link add dummy7 type veth peer name other7"));
		ASSERT_EQ(0, configure(self->ns[0], "dummy", 7, 1));
		ASSERT_EQ(0, shell("ip link del dummy7"));
	}
	__atomic_store_n(&visitor.stop, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
	ASSERT_EQ(0, shutdown(listener, SHUT_RDWR));
	ASSERT_EQ(0, pthread_join(server, NULL));
	EXPECT_EQ(0, visitor.failures);
	close(listener);
}

/* A process in ns 1 accepts, sends 100 bytes of @seed and waits to be killed. */
static pid_t doomed_server(const struct smc_ends *ends, int ns, const char *addr,
			   uint64_t seed, int ready)
{
	pid_t pid = fork();
	int listener, fd;

	if (pid)
		return pid;
	listener = listen_at(&ends->server, ns, addr, PORT);
	if (listener < 0 || write(ready, "r", 1) != 1)
		_exit(1);
	fd = smc_accept(listener);
	if (fd < 0 || smc_send_all(fd, seed, 0, 100, 100) || write(ready, "s", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

TEST_F_TIMEOUT(identity, namespace_dies_with_a_live_connection, 300)
{
	for (int i = 0; i < 10; i++) {
		int ready[2], client, ns;
		char addr[32], byte;
		pid_t server;

		ns = new_namespace();
		ASSERT_LE(0, ns);
		/* The device of the round before may not be gone yet. */
		ASSERT_EQ(0, join(self->ns[0], ns, 20 + i));
		snprintf(addr, sizeof(addr), "10.%d.0.2", 20 + i);
		ASSERT_EQ(0, pipe(ready));
		server = doomed_server(variant->ends, ns, addr, i, ready[1]);
		ASSERT_LT(0, server);
		ASSERT_EQ(1, read(ready[0], &byte, 1));
		client = bound_socket(&variant->ends->client, self->ns[0], "", 0);
		ASSERT_LE(0, client);
		/* From here on nobody but the server is in that namespace. */
		close(ns);
		ASSERT_EQ(0, connect_to(client, addr, PORT));
		ASSERT_EQ(1, read(ready[0], &byte, 1));
		EXPECT_EQ(0, smc_check_mode(client, variant->ends->client.mode));
		ASSERT_EQ(0, kill(server, SIGKILL));
		ASSERT_EQ(server, waitpid(server, NULL, 0));
		EXPECT_EQ(0, smc_recv_all(client, i, 0, 100, 100));
		EXPECT_EQ(0, smc_recv_eof(client));
		/* The first send after a clean close still succeeds. */
		EXPECT_EQ(1, send(client, "x", 1, MSG_NOSIGNAL));
		close(client);
		smc_close_pair(ready);
	}
}

TEST_HARNESS_MAIN
