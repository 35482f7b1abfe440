// SPDX-License-Identifier: GPL-2.0
/*
 * A remote host that speaks CLC where nobody has asked for it is a TCP host.
 *
 * Where the SMC option was not exchanged both ways every byte belongs to the
 * applications. On a kernel without code for the option it never is, and the
 * remote host sends it in vain; on others the remote host leaves it out. What
 * follows from an option that was exchanged is in clc_server and clc_client.
 *
 * 1. A client that sends CLC messages: the application reads them as they are,
 *    and can answer.
 * 2. A server whose answer is a CLC message: connect() succeeds, the request is
 *    the first thing it hears, and its answer is what the application reads.
 * 3. Meanwhile honest local clients get SMC-D at once.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "clc_peer.h"
#include "kselftest_harness.h"
#include "smc_test.h"

#define PORT	8000

FIXTURE(remote_peer)
{
	struct clc_peer peer;
	enum clc_option option;		/* what the peer says, without effect */
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
	self->peer.tun = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, clc_peer_open(&self->peer));
	/* TCP sockets never have the option, whatever the kernel knows. */
	self->option = clc_option_known() && smc_is_smcd(variant->ends) ? CLC_PLAIN : CLC_SMC;
	self->listener = smc_socket(&variant->ends->server, 0);
	ASSERT_LE(0, self->listener);
	ASSERT_EQ(0, bind(self->listener, (struct sockaddr *)&any, sizeof(any)));
	ASSERT_EQ(0, listen(self->listener, 64));
	self->len = smc_loopback(AF_INET, &self->addr);
	((struct sockaddr_in *)&self->addr)->sin_port = htons(PORT);
}

FIXTURE_TEARDOWN(remote_peer)
{
	clc_peer_close(&self->peer);
	close(self->listener);
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

/* @msg arrives at the application of @server, and its answer at the peer. */
static int all_is_data(struct clc_peer *peer, int server, const struct clc_msg *msg)
{
	char got[1024];

	if (clc_peer_send_msg(peer, msg))
		return -EIO;
	if (recv(server, got, msg->len, MSG_WAITALL) != msg->len ||
	    memcmp(got, msg->byte, msg->len))
		return -EILSEQ;
	if (send(server, "answer", 6, MSG_NOSIGNAL) != 6 ||
	    clc_peer_recv(peer, got, 6, SMC_TIMEOUT_MS) != 6 || memcmp(got, "answer", 6))
		return -EPROTO;
	return 0;
}

TEST_F(remote_peer, messages_of_a_client_are_data)
{
	const struct clc_msg messages[] = {
		clc_proposal(), clc_proposal_all(), clc_decline(0x03010000, false),
		clc_decline(0x03010000, true), clc_bytes("e2 d4 c3 d9 01 ff ff 26"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		int server;

		ASSERT_EQ(0, clc_peer_connect(&self->peer, PORT, self->option));
		ASSERT_FALSE(self->peer.smc);
		server = smc_accept(self->listener);
		ASSERT_LE(0, server);
		EXPECT_EQ(0, all_is_data(&self->peer, server, &messages[i]));
		EXPECT_EQ(0, smc_check_mode(server, smc_is_smcd(variant->ends) ?
						    SMC_MODE_FALLBACK : SMC_MODE_PLAIN));
		EXPECT_EQ(0, honest_client(variant->ends, self->listener, &self->addr,
					   self->len));
		clc_peer_reset(&self->peer);
		close(server);
	}
}

TEST_F(remote_peer, silent_client_holds_up_nobody)
{
	int server;

	ASSERT_EQ(0, clc_peer_connect(&self->peer, PORT, self->option));
	ASSERT_FALSE(self->peer.smc);
	server = smc_accept(self->listener);
	ASSERT_LE(0, server);
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, honest_client(variant->ends, self->listener, &self->addr,
					   self->len));
	clc_peer_reset(&self->peer);
	close(server);
}

struct client {
	struct smc_end end;
	int fd;
	int error;
	pthread_t thread;
};

static void *connect_out(void *arg)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(80) };
	struct client *client = arg;

	inet_pton(AF_INET, CLC_PEER, &addr.sin_addr);
	client->fd = smc_socket(&client->end, 0);
	client->error = connect(client->fd, (struct sockaddr *)&addr, sizeof(addr)) ? errno : 0;
	return NULL;
}

TEST_F(remote_peer, messages_of_a_server_are_data)
{
	const struct clc_msg answers[] = {
		clc_decline(0x03030007, false), clc_decline(0x03030007, true), clc_proposal(),
		clc_accept(2, (const uint8_t *)"0123456789abcdef",
			   (const uint8_t *)"SMC-LO.DEFAULT                  "),
		clc_bytes("'answer'"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		struct client client = { .end = variant->ends->client };
		char got[256];

		ASSERT_EQ(0, pthread_create(&client.thread, NULL, connect_out, &client));
		ASSERT_EQ(0, clc_peer_accept(&self->peer, self->option));
		/* Whether the client has the option tells what its kernel knows. */
		EXPECT_EQ(self->option == CLC_PLAIN, self->peer.smc);
		ASSERT_EQ(0, pthread_join(client.thread, NULL));
		ASSERT_EQ(0, client.error);
		ASSERT_EQ(7, send(client.fd, "request", 7, MSG_NOSIGNAL));
		ASSERT_EQ(7, clc_peer_recv(&self->peer, got, 7, SMC_TIMEOUT_MS));
		EXPECT_EQ(0, memcmp(got, "request", 7));
		ASSERT_EQ(0, clc_peer_send_msg(&self->peer, &answers[i]));
		ASSERT_EQ(answers[i].len, recv(client.fd, got, answers[i].len, MSG_WAITALL));
		EXPECT_EQ(0, memcmp(got, answers[i].byte, answers[i].len));
		EXPECT_EQ(0, smc_check_mode(client.fd, smc_is_smcd(variant->ends) ?
							SMC_MODE_FALLBACK : SMC_MODE_PLAIN));
		clc_peer_reset(&self->peer);
		close(client.fd);
	}
}

TEST_HARNESS_MAIN
