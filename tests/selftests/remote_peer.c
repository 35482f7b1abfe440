// SPDX-License-Identifier: GPL-2.0
/*
 * A host on the wire that says anything ends in TCP or one clear error, for its
 * own connection only.
 *
 * The kernel decides by the SMC option whether there is a handshake on the wire.
 * Without it all bytes are the application's; with it a peer that declines,
 * is silent, or breaks the messages is answered in bounded time.
 *
 * 1. Proposals with every field at, beyond and far beyond its limit
 *    (CVE-2024-49571), cut short at every length, too long; DECLINE in place of
 *    each message (CVE-2026-46027); garbage; silence; FIN and RST.
 * 2. A server that copies the option of the SYN without being SMC: connect()
 *    ends in bounded time, with a connection that carries the request and
 *    nothing else, or a clear error.
 * 3. No byte of a handshake is ever read by an application (CVE-2023-52775).
 * 4. Meanwhile honest local clients get SMC-D at once.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <string.h>

#include "kselftest_harness.h"
#include "smc_test.h"
#include "tun_tcp.h"

#define PORT		8000
#define PROPOSAL	224
/* C waits 6 s for a message of a handshake. */
#define PATIENCE_MS	20000

FIXTURE(remote_peer)
{
	struct tun_tcp tcp;
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
};

FIXTURE_VARIANT(remote_peer)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(remote_peer, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(remote_peer, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(remote_peer, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(remote_peer)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	self->listener = -1;
	self->tcp.tun = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_netns_new());
	if (tun_open(&self->tcp))
		SKIP(return, "no TUN device");
	self->listener = smc_socket(&variant->ends->server, 0);
	ASSERT_LE(0, self->listener);
	ASSERT_EQ(0, bind(self->listener, (struct sockaddr *)&any, sizeof(any)));
	ASSERT_EQ(0, listen(self->listener, 64));
	self->len = smc_loopback(AF_INET, &self->addr);
	((struct sockaddr_in *)&self->addr)->sin_port = htons(PORT);
}

FIXTURE_TEARDOWN(remote_peer)
{
	close(self->tcp.tun);
	close(self->listener);
}

static void put16(uint8_t *at, uint16_t value)
{
	value = htons(value);
	memcpy(at, &value, sizeof(value));
}

/* A proposal as a host with SMC-D v2 and one EID sends it. */
static void make_proposal(uint8_t *msg)
{
	static const char eye[] = "\xe2\xd4\xc3\xd9";

	memset(msg, 0, PROPOSAL);
	memcpy(msg, eye, 4);
	msg[4] = 1;
	put16(msg + 5, PROPOSAL);
	msg[7] = 0x26;
	put16(msg + 50, 28);
	msg[80] = 1;
	msg[81] = 2;
	msg[83] = 0x10;
	put16(msg + 86, 64);
	put16(msg + 106, 1);
	memset(msg + 120, ' ', 32);
	memcpy(msg + 120, "REMOTE", 6);
	memset(msg + 200, 0x5a, 8);
	put16(msg + 208, 0xffff);
	memset(msg + 210, 0xa5, 8);
	put16(msg + 218, 0xffff);
	memcpy(msg + PROPOSAL - 4, eye, 4);
}

static void make_decline(uint8_t msg[28], bool out_of_sync)
{
	memset(msg, 0, 28);
	memcpy(msg, "\xe2\xd4\xc3\xd9\x04", 5);
	put16(msg + 5, 28);
	msg[7] = 0x10 | (out_of_sync ? 0x08 : 0);
	memcpy(msg + 16, "\x03\x01\x00\x00", 4);
	memcpy(msg + 24, "\xe2\xd4\xc3\xd9", 4);
}

/* Bytes that no application of these tests sends. */
static bool has_eyecatcher(const char *data, ssize_t len)
{
	for (ssize_t i = 0; i + 3 <= len; i++)
		if (!memcmp(data + i, "\xe2\xd4\xc3", 3))
			return true;
	return false;
}

/*
 * The remote host sends @msg first. Where the handshake is not on the wire the
 * application reads just that; where it is, the host is answered or dropped in
 * bounded time and the application never sees a byte of it.
 */
static int first_words(struct tun_tcp *tcp, int listener, bool option, const void *msg,
		       size_t len, bool fin)
{
	char got[4096];
	size_t done = 0;
	int ret, server;

	ret = tun_connect(tcp, PORT, option);
	if (!ret)
		ret = tun_send(tcp, msg, len);
	if (!ret && fin)
		ret = tun_fin(tcp);
	if (ret)
		return ret;
	if (tcp->smc_option) {
		/* An answer, an end or a reset: not silence for ever. */
		ssize_t answer = tun_recv(tcp, got, sizeof(got), PATIENCE_MS);

		if (answer == -EAGAIN)
			return -ETIMEDOUT;
		if (answer > 0 && memcmp(got, "\xe2\xd4\xc3", 3))
			return -EILSEQ;
		tun_rst(tcp);
		/* The application may get the connection; it reads no handshake. */
		smc_set_nonblock(listener, true);
		if (smc_poll(listener, POLLIN, 100)) {
			server = accept(listener, NULL, NULL);
			answer = server < 0 ? 0 : recv(server, got, sizeof(got), MSG_DONTWAIT);
			if (answer > 0 && has_eyecatcher(got, answer))
				ret = -EILSEQ;
			if (server >= 0)
				close(server);
		}
		smc_set_nonblock(listener, false);
		return ret;
	}
	server = smc_accept(listener);
	if (server < 0)
		return server;
	while (done < len && !ret) {
		ssize_t bytes = recv(server, got + done, sizeof(got) - done, 0);

		if (bytes <= 0)
			ret = -EPIPE;
		else
			done += bytes;
	}
	if (!ret && (done != len || memcmp(got, msg, len)))
		ret = -EILSEQ;
	if (!ret && fin)
		ret = smc_recv_eof(server);
	if (!ret && !fin && (send(server, "answer", 6, MSG_NOSIGNAL) != 6 ||
			     tun_recv(tcp, got, 6, SMC_TIMEOUT_MS) != 6 ||
			     memcmp(got, "answer", 6)))
		ret = -EILSEQ;
	tun_rst(tcp);
	close(server);
	return ret;
}

static int honest_client(const struct smc_ends *ends, int listener,
			 const struct sockaddr_storage *addr, socklen_t len)
{
	int ret, fd[2];

	ret = smc_pair_from(ends, listener, addr, len, fd);
	if (!ret)
		ret = smc_exchange(fd[0], fd[1], 1);
	smc_close_pair(fd);
	return ret;
}

TEST_F_TIMEOUT(remote_peer, proposals_with_every_limit, 900)
{
	static const struct {
		uint16_t at;
		uint8_t width;
		uint16_t values[6];
	} fields[] = {
		{ 5, 2, { 0, 7, 8, PROPOSAL - 1, PROPOSAL + 1, 0xffff } },
		{ 7, 1, { 0x00, 0x10, 0x16, 0x2f, 0x36, 0xff } },
		{ 38, 2, { 0, 39, 40, 41, PROPOSAL - 1, 0xffff } },
		{ 47, 1, { 0, 1, 8, 9, 128, 255 } },
		{ 50, 2, { 0, 27, 172, 173, PROPOSAL, 0xffff } },
		{ 80, 1, { 0, 1, 7, 8, 9, 255 } },
		{ 81, 1, { 0, 1, 8, 9, 128, 255 } },
		{ 83, 1, { 0, 1, 0x11, 0x20, 0xf0, 0xff } },
		{ 86, 2, { 0, 31, 288, 289, PROPOSAL, 0xffff } },
		{ 4, 1, { 0, 2, 3, 4, 5, 255 } },
		{ 220, 1, { 0, 1, 2, 3, 4, 255 } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		for (size_t j = 0; j < 6; j++) {
			uint8_t msg[PROPOSAL];

			make_proposal(msg);
			if (fields[i].width == 2)
				put16(msg + fields[i].at, fields[i].values[j]);
			else
				msg[fields[i].at] = fields[i].values[j];
			/* The end of the stream, so that no length is waited for. */
			ASSERT_EQ(0, first_words(&self->tcp, self->listener, true, msg,
						 sizeof(msg), true))
				TH_LOG("field %u = %u", fields[i].at, fields[i].values[j]);
		}
		ASSERT_EQ(0, honest_client(variant->ends, self->listener, &self->addr,
					   self->len));
	}
}

TEST_F_TIMEOUT(remote_peer, proposals_cut_short, 900)
{
	uint8_t msg[PROPOSAL];

	make_proposal(msg);
	for (size_t len = 1; len < sizeof(msg); len += len < 16 ? 1 : 23) {
		ASSERT_EQ(0, first_words(&self->tcp, self->listener, true, msg, len, true))
			TH_LOG("%zu bytes", len);
	}
	EXPECT_EQ(0, honest_client(variant->ends, self->listener, &self->addr, self->len));
}

TEST_F_TIMEOUT(remote_peer, sound_proposal_ends_in_tcp, 300)
{
	uint8_t msg[PROPOSAL];

	make_proposal(msg);
	EXPECT_EQ(0, first_words(&self->tcp, self->listener, true, msg, sizeof(msg), false));
	EXPECT_EQ(0, first_words(&self->tcp, self->listener, false, msg, sizeof(msg), false));
	EXPECT_EQ(0, honest_client(variant->ends, self->listener, &self->addr, self->len));
}

TEST_F_TIMEOUT(remote_peer, decline_instead_of_a_proposal, 300)
{
	for (int i = 0; i < 2; i++) {
		char got[64];
		uint8_t msg[28];
		int server;

		make_decline(msg, i);
		ASSERT_EQ(0, tun_connect(&self->tcp, PORT, true));
		if (self->tcp.smc_option)
			ASSERT_EQ(0, tun_send(&self->tcp, msg, sizeof(msg)));
		ASSERT_EQ(0, tun_send(&self->tcp, "request", 7));
		/* It is TCP from here on, or it was from the start. */
		server = smc_accept(self->listener);
		ASSERT_LE(0, server);
		ASSERT_EQ(7, recv(server, got, 7, MSG_WAITALL));
		EXPECT_EQ(0, memcmp(got, "request", 7));
		ASSERT_EQ(6, send(server, "answer", 6, MSG_NOSIGNAL));
		ASSERT_EQ(6, tun_recv(&self->tcp, got, 6, SMC_TIMEOUT_MS));
		EXPECT_EQ(0, memcmp(got, "answer", 6));
		tun_rst(&self->tcp);
		close(server);
	}
}

TEST_F_TIMEOUT(remote_peer, silence_holds_up_nobody, 300)
{
	ASSERT_EQ(0, tun_connect(&self->tcp, PORT, true));
	if (self->tcp.smc_option) {
		/* Its handshake is pending; others do not wait for it. */
		for (int i = 0; i < 20; i++)
			ASSERT_EQ(0, honest_client(variant->ends, self->listener, &self->addr,
						   self->len));
	} else {
		int server = smc_accept(self->listener);

		ASSERT_LE(0, server);
		close(server);
	}
	tun_rst(&self->tcp);
}

/* connect() in a thread, because the remote host is played by this one. */
struct client {
	struct smc_end end;
	int fd;
	int error;
	pthread_t thread;
};

static void *connect_out(void *arg)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_port = htons(80),
		.sin_addr.s_addr = inet_addr(TUN_PEER),
	};
	struct client *client = arg;

	client->fd = smc_socket(&client->end, 0);
	client->error = connect(client->fd, (struct sockaddr *)&addr, sizeof(addr)) ? errno : 0;
	if (!client->error && send(client->fd, "GET", 3, MSG_NOSIGNAL) != 3)
		client->error = errno;
	return NULL;
}

enum answer { DECLINE, NOTHING, GARBAGE, RESET, END, HTTP, ANSWERS };

/* Plays a server that copies the option and then gives @answer to a proposal. */
static int copying_server(struct tun_tcp *tcp, const struct smc_end *end, enum answer answer)
{
	static const char hello[] = "HTTP/1.1 200 OK\r\n\r\n";
	struct client client = { .end = *end };
	bool requested = false;
	char got[2048];
	uint8_t msg[28];
	ssize_t len;
	int ret;

	if (pthread_create(&client.thread, NULL, connect_out, &client))
		return -EAGAIN;
	ret = tun_accept(tcp, 80, true);
	if (!ret && tcp->smc_option) {
		len = tun_recv(tcp, got, PROPOSAL, SMC_TIMEOUT_MS);
		if (len <= 0 || !has_eyecatcher(got, 4))
			ret = -EPROTO;
		make_decline(msg, false);
		if (answer == DECLINE)
			tun_send(tcp, msg, sizeof(msg));
		else if (answer == GARBAGE)
			tun_send(tcp, "\xe2\xd4\xc3\xc4\x02\xff\xff\x20garbage", 15);
		else if (answer == RESET)
			tun_rst(tcp);
		else if (answer == END)
			tun_fin(tcp);
		else if (answer == HTTP)
			tun_send(tcp, hello, sizeof(hello) - 1);
	}
	/* Whatever it was, connect() ends; the runner's limit says in bounded time. */
	while (!ret && pthread_tryjoin_np(client.thread, NULL)) {
		/* The request, if it became TCP: nothing before it, nothing else. */
		len = tun_recv(tcp, got, 3, 100);
		if (len > 0 && (len != 3 || memcmp(got, "GET", 3)))
			ret = -EILSEQ;
		requested |= len == 3;
	}
	if (ret) {
		tun_rst(tcp);
		pthread_join(client.thread, NULL);
	} else if (!client.error && !requested) {
		len = tun_recv(tcp, got, 3, SMC_TIMEOUT_MS);
		if (len != 3 || memcmp(got, "GET", 3))
			ret = -EILSEQ;
	} else if (!tcp->smc_option && client.error) {
		/* Plain TCP has no reason to fail here. */
		ret = -client.error;
	}
	if (!ret && tcp->smc_option && answer == DECLINE && client.error)
		ret = -client.error;
	tun_rst(tcp);
	close(client.fd);
	return ret;
}

TEST_F_TIMEOUT(remote_peer, servers_that_copy_the_option, 300)
{
	for (enum answer answer = 0; answer < ANSWERS; answer++) {
		ASSERT_EQ(0, copying_server(&self->tcp, &variant->ends->client, answer))
			TH_LOG("answer %d", answer);
		ASSERT_EQ(0, honest_client(variant->ends, self->listener, &self->addr,
					   self->len));
	}
}

TEST_HARNESS_MAIN
