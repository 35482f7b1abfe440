// SPDX-License-Identifier: GPL-2.0
/*
 * What only TCP can do, asked of an SMC socket: the answer is TCP's, and the
 * connection goes on as TCP's would.
 *
 * 1. MSG_FASTOPEN on a socket that is connected, connecting or listening is
 *    refused as on TCP, and no byte of it gets lost or doubled.
 * 2. kTLS works once the connection is TCP. On SMC-D it is refused with
 *    EOPNOTSUPP, on which libraries encrypt by themselves.
 * 3. Connections that are made without a handshake (TCP_REPAIR) are TCP at once.
 * 4. Filters that drop packets, keys that the peer does not have (TCP_MD5SIG):
 *    connect() sees what TCP sees.
 * 5. IPV6_ADDRFORM turns the TCP socket into one of IPv4 in mid-life.
 * 6. A sockmap takes no SMC socket, whose packets it would not see.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"
#include "smc_test.h"

static const struct smc_ends smc_ends_fallback_client6 = {
	AF_INET6,
	{ AF_INET6, IPPROTO_SMC, SMC_MODE_FALLBACK },
	{ AF_INET6, 0, SMC_MODE_PLAIN },
};

FIXTURE(tcp_only)
{
};

FIXTURE_VARIANT(tcp_only)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(tcp_only, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(tcp_only, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(tcp_only, af_smc) { .ends = &smc_ends_af_smc };
FIXTURE_VARIANT_ADD(tcp_only, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(tcp_only, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(tcp_only, fallback_client6) { .ends = &smc_ends_fallback_client6 };

FIXTURE_SETUP(tcp_only)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_netns_new());
}

FIXTURE_TEARDOWN(tcp_only)
{
}

static void allow_fast_open(bool on)
{
	int fd = open("/proc/sys/net/ipv4/tcp_fastopen", O_WRONLY);

	if (write(fd, on ? "1" : "0", 1) != 1)
		perror("tcp_fastopen");
	close(fd);
}

static void note_fast_open(struct smc_notes *notes, int fd, int flags,
			   const struct sockaddr_storage *addr, socklen_t len)
{
	smc_note_result(notes, "fast", sendto(fd, "fast", 4, MSG_FASTOPEN | MSG_NOSIGNAL | flags,
					      (const struct sockaddr *)addr, addr ? len : 0));
}

static void late_fast_open(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_storage addr;
	int listener, full, fd[2];
	socklen_t len;
	char buf[32];

	listener = smc_listen(ends, 8, &addr, &len);
	note_fast_open(notes, listener, 0, &addr, len);
	if (smc_pair_from(ends, listener, &addr, len, fd))
		return;
	for (int on = 1; on >= 0; on--) {
		allow_fast_open(on);
		for (int end = 0; end < 2; end++) {
			note_fast_open(notes, fd[end], 0, &addr, len);
			note_fast_open(notes, fd[end], 0, NULL, 0);
			note_fast_open(notes, fd[end], MSG_DONTWAIT, &addr, len);
		}
	}
	allow_fast_open(true);
	smc_note_result(notes, "send", send(fd[0], "data", 4, 0));
	smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), 0));
	shutdown(fd[0], SHUT_WR);
	note_fast_open(notes, fd[0], 0, &addr, len);
	smc_close_pair(fd);
	note_fast_open(notes, listener, 0, &addr, len);

	/* Connected, and nobody has asked connect() yet. */
	fd[0] = smc_socket(&ends->client, SOCK_NONBLOCK);
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
	fd[1] = smc_accept(listener);
	smc_poll(fd[0], POLLOUT, SMC_TIMEOUT_MS);
	note_fast_open(notes, fd[0], 0, &addr, len);
	note_fast_open(notes, fd[0], 0, &addr, len);
	smc_note_result(notes, "send", send(fd[0], "data", 4, 0));
	smc_note_result(notes, "recv", recv(fd[1], buf, 8, MSG_WAITALL));
	smc_note(notes, " %.8s", buf);
	smc_close_pair(fd);
	close(listener);

	/* On its way: the queue of the listener is full. */
	full = smc_listen(ends, 0, &addr, &len);
	fd[0] = smc_connect(ends, &addr, len);
	fd[1] = smc_socket(&ends->client, SOCK_NONBLOCK);
	smc_note_result(notes, "connect", connect(fd[1], (struct sockaddr *)&addr, len));
	note_fast_open(notes, fd[1], 0, &addr, len);
	note_fast_open(notes, fd[1], MSG_DONTWAIT, NULL, 0);
	smc_note_poll(notes, fd[1]);
	smc_close_pair(fd);
	close(full);
}

TEST_F(tcp_only, late_fast_open_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, late_fast_open, NULL));
}

static int set_ulp(int fd, const char *name)
{
	return setsockopt(fd, SOL_TCP, TCP_ULP, name, strlen(name));
}

/* Sets the same key for both directions. */
static int set_key(int fd)
{
	struct tls12_crypto_info_aes_gcm_128 info = {
		.info.version = TLS_1_3_VERSION,
		.info.cipher_type = TLS_CIPHER_AES_GCM_128,
		.key = "key of 16 bytes",
		.iv = "iv of 8",
		.salt = "salt",
	};

	return setsockopt(fd, SOL_TLS, TLS_TX, &info, sizeof(info)) ?:
	       setsockopt(fd, SOL_TLS, TLS_RX, &info, sizeof(info));
}

static void tls(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static char bulk[40000], got[40000];
	int fd[2], fresh;
	char buf[64];

	fresh = smc_socket(&ends->client, 0);
	smc_note_result(notes, "fresh", set_ulp(fresh, "tls"));
	smc_note_result(notes, "unknown", set_ulp(fresh, "nonsense"));
	close(fresh);
	if (smc_pair(ends, fd))
		return;
	for (int end = 0; end < 2; end++) {
		smc_note_result(notes, "ulp", set_ulp(fd[end], "tls"));
		smc_note_result(notes, "again", set_ulp(fd[end], "tls"));
		smc_note_result(notes, "key", set_key(fd[end]));
	}
	for (int end = 0; end < 2; end++) {
		smc_note_result(notes, "send", send(fd[end], "secret", 6, 0));
		smc_settle(fd);
		smc_note_poll(notes, fd[!end]);
		smc_note_result(notes, "peek", recv(fd[!end], buf, 3, MSG_PEEK));
		smc_note_result(notes, "recv", recv(fd[!end], buf, sizeof(buf), 0));
		smc_note(notes, " %.6s", buf);
		smc_note_result(notes, "none", recv(fd[!end], buf, sizeof(buf), MSG_DONTWAIT));
		smc_fill(bulk, sizeof(bulk), end, 0);
		smc_note_result(notes, "send", send(fd[end], bulk, sizeof(bulk), 0));
		smc_note_result(notes, "recv", recv(fd[!end], got, sizeof(got), MSG_WAITALL));
		smc_note(notes, " wrong=%zd", smc_find_wrong(got, sizeof(got), end, 0));
	}
	smc_note_result(notes, "shutdown", shutdown(fd[0], SHUT_WR));
	smc_settle(fd);
	smc_note_poll(notes, fd[1]);
	smc_note_result(notes, "end", recv(fd[1], buf, sizeof(buf), 0));
	smc_close_pair(fd);
}

TEST_F(tcp_only, tls_of_the_kernel_as_on_tcp)
{
	int fd[2], error;

	if (smc_is_smcd(variant->ends))
		SKIP(return, "no TCP connection");
	ASSERT_EQ(0, smc_pair(&smc_ends_tcp, fd));
	error = set_ulp(fd[0], "tls") ? errno : 0;
	smc_close_pair(fd);
	if (error == ENOENT)
		SKIP(return, "no TLS in this kernel (CONFIG_TLS)");
	ASSERT_EQ(0, error);
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, tls, NULL));
}

TEST_F(tcp_only, tls_of_the_kernel_is_refused_by_smcd)
{
	int fd[2];

	if (!smc_is_smcd(variant->ends))
		SKIP(return, "a TCP connection");
	ASSERT_EQ(0, smc_pair(variant->ends, fd));
	for (int end = 0; end < 2; end++) {
		EXPECT_EQ(-1, set_ulp(fd[end], "tls"));
		EXPECT_EQ(EOPNOTSUPP, errno);
	}
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	EXPECT_EQ(0, smc_check_modes(variant->ends, fd));
	smc_close_pair(fd);
}

/* Puts a fresh socket where a connection begins that never had a handshake. */
static int revive(int fd, struct sockaddr_storage *addr, socklen_t len, uint32_t sent,
		  uint32_t received)
{
	const struct { int queue; uint32_t seq; } queues[] = {
		{ TCP_SEND_QUEUE, sent }, { TCP_RECV_QUEUE, received },
	};
	int on = 1;

	if (setsockopt(fd, SOL_TCP, TCP_REPAIR, &on, sizeof(on)))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
		if (setsockopt(fd, SOL_TCP, TCP_REPAIR_QUEUE, &queues[i].queue, sizeof(int)) ||
		    setsockopt(fd, SOL_TCP, TCP_QUEUE_SEQ, &queues[i].seq, sizeof(uint32_t)))
			return -1;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)addr, len))
		return -1;
	return getsockname(fd, (struct sockaddr *)addr, &len);
}

TEST_F(tcp_only, repaired_connections_are_tcp)
{
	const struct smc_ends *ends = variant->ends;
	const struct smc_end *end[2] = { &ends->client, &ends->server };
	struct sockaddr_storage addr[2];
	int off = 0, fd[2];
	socklen_t len;

	for (int i = 0; i < 2; i++) {
		len = smc_loopback(ends->family, &addr[i]);
		fd[i] = smc_socket(end[i], 0);
		ASSERT_LE(0, fd[i]);
		ASSERT_EQ(0, revive(fd[i], &addr[i], len, i ? 2000 : 1000, i ? 1000 : 2000))
			TH_LOG("errno %d", errno);
	}
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, connect(fd[i], (struct sockaddr *)&addr[!i], len))
			TH_LOG("errno %d", errno);
	}
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, setsockopt(fd[i], SOL_TCP, TCP_REPAIR, &off, sizeof(off)));
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	for (int i = 0; i < 2; i++) {
		struct smc_info info;

		if (end[i]->mode == SMC_MODE_PLAIN)
			continue;
		ASSERT_EQ(0, smc_info(fd[i], &info));
		EXPECT_EQ(SMC_MODE_FALLBACK, info.mode);
		EXPECT_EQ(0x03060000, info.reason);
	}
	smc_close_pair(fd);
}

static void attach_filter(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct timeval soon = { .tv_usec = 300000 };
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;
	int none = 0;

	listener = smc_listen(ends, 8, &addr, &len);
	for (uint32_t verdict = 0; verdict < 2; verdict++) {
		struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, -verdict);
		struct sock_fprog program = { .len = 1, .filter = &code };

		fd[0] = smc_socket(&ends->client, 0);
		setsockopt(fd[0], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
		smc_note_result(notes, "attach", setsockopt(fd[0], SOL_SOCKET, SO_ATTACH_FILTER,
							    &program, sizeof(program)));
		smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&addr, len));
		if (verdict) {
			fd[1] = smc_accept(listener);
			smc_note(notes, " %d", smc_exchange(fd[0], fd[1], 1));
			smc_note_result(notes, "lock", setsockopt(fd[0], SOL_SOCKET,
								  SO_LOCK_FILTER, &verdict,
								  sizeof(verdict)));
			smc_note_result(notes, "detach", setsockopt(fd[0], SOL_SOCKET,
								    SO_DETACH_FILTER, &none,
								    sizeof(none)));
			close(fd[1]);
		}
		close(fd[0]);
	}
	close(listener);
}

TEST_F(tcp_only, filters_drop_what_they_drop_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, attach_filter, NULL));
}

static int set_signature(int fd, const struct sockaddr_storage *addr, const char *key)
{
	struct tcp_md5sig md5 = { .tcpm_keylen = strlen(key) };

	md5.tcpm_addr = *addr;
	memcpy(md5.tcpm_key, key, md5.tcpm_keylen);
	return setsockopt(fd, SOL_TCP, TCP_MD5SIG, &md5, sizeof(md5));
}

static void sign(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static const char * const keys[] = { "right", "wrong" };
	const struct timeval soon = { .tv_usec = 300000 };
	struct sockaddr_storage addr;
	int listener, fd[2];
	socklen_t len;

	listener = smc_listen(ends, 8, &addr, &len);
	smc_note_result(notes, "key", set_signature(listener, &addr, "right"));
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		fd[0] = smc_socket(&ends->client, 0);
		setsockopt(fd[0], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
		smc_note_result(notes, "key", set_signature(fd[0], &addr, keys[i]));
		if (connect(fd[0], (struct sockaddr *)&addr, len)) {
			smc_note(notes, " connect=%d", errno);
		} else {
			fd[1] = smc_accept(listener);
			smc_note(notes, " %d", smc_exchange(fd[0], fd[1], 1));
			close(fd[1]);
		}
		close(fd[0]);
	}
	close(listener);
}

TEST_F(tcp_only, signatures_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, sign, NULL));
}

static void change_family(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 }, mapped;
	struct sockaddr_storage name;
	int listener, fd[2], inet = AF_INET;
	socklen_t len = sizeof(any);

	listener = smc_socket(&ends->server, 0);
	bind(listener, (struct sockaddr *)&any, sizeof(any));
	listen(listener, 4);
	getsockname(listener, (struct sockaddr *)&any, &len);
	mapped = any;
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
	fd[0] = smc_socket(&ends->client, 0);
	smc_note_result(notes, "fresh", setsockopt(fd[0], SOL_IPV6, IPV6_ADDRFORM, &inet,
						   sizeof(inet)));
	smc_note_result(notes, "connect", connect(fd[0], (struct sockaddr *)&mapped,
						  sizeof(mapped)));
	fd[1] = smc_accept(listener);
	for (int end = 0; end < 2; end++) {
		smc_note_result(notes, "change", setsockopt(fd[end], SOL_IPV6, IPV6_ADDRFORM,
							    &inet, sizeof(inet)));
		len = sizeof(name);
		smc_note_result(notes, "name", getsockname(fd[end], (struct sockaddr *)&name,
							   &len));
		smc_note(notes, " family=%d len=%d", name.ss_family, len);
		smc_note(notes, " %d", smc_exchange(fd[0], fd[1], end));
		smc_note_result(notes, "again", setsockopt(fd[end], SOL_IPV6, IPV6_ADDRFORM,
							   &inet, sizeof(inet)));
	}
	shutdown(fd[0], SHUT_WR);
	smc_settle(fd);
	smc_note_poll(notes, fd[1]);
	smc_close_pair(fd);
	close(listener);
}

TEST_F(tcp_only, address_family_changes_as_on_tcp)
{
	if (variant->ends->family != AF_INET6)
		SKIP(return, "IPv4");
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, change_family, NULL));
}

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

TEST_F(tcp_only, sockmap_takes_no_smc_socket)
{
	const struct smc_ends *ends = variant->ends;
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_SOCKMAP, .key_size = 4, .value_size = 4, .max_entries = 2,
	};
	const enum smc_mode mode[2] = { ends->client.mode, ends->server.mode };
	int map, fd[2];

	map = bpf(BPF_MAP_CREATE, &attr);
	if (map < 0)
		SKIP(return, "no sockmap in this kernel");
	ASSERT_EQ(0, smc_pair(ends, fd));
	for (int key = 0; key < 2; key++) {
		int ret;

		memset(&attr, 0, sizeof(attr));
		attr.map_fd = map;
		attr.key = (uintptr_t)&key;
		attr.value = (uintptr_t)&fd[key];
		ret = bpf(BPF_MAP_UPDATE_ELEM, &attr) ? -errno : 0;
		EXPECT_EQ(mode[key] == SMC_MODE_PLAIN ? 0 : -EOPNOTSUPP, ret);
	}
	EXPECT_EQ(0, smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
	close(map);
}

TEST_HARNESS_MAIN
