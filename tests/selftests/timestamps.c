// SPDX-License-Identifier: GPL-2.0
/*
 * Time stamps of what is received: SO_TIMESTAMP, SO_TIMESTAMPNS and
 * SO_TIMESTAMPING, each in its old and its new form.
 *
 * 1. The same control messages as on TCP, with a time between that of the send
 *    and that of the receive; for reads, peeks, small control buffers, the end.
 * 2. What was asked for before a socket was accepted holds for the child.
 * 3. Times of what was sent, on the error queue, asked for by option and by
 *    message; control data that is not valid is refused. The times come without
 *    the packet (SOF_TIMESTAMPING_OPT_TSONLY): there is none.
 */

#include <errno.h>
#include <time.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#ifndef SO_TIMESTAMP_OLD
#define SO_TIMESTAMP_OLD	29
#define SO_TIMESTAMPNS_OLD	35
#define SO_TIMESTAMPING_OLD	37
#endif
#ifndef SO_TIMESTAMP_NEW
#define SO_TIMESTAMP_NEW	63
#define SO_TIMESTAMPNS_NEW	64
#define SO_TIMESTAMPING_NEW	65
#endif
#ifndef TCP_INQ
#define TCP_INQ			36
#endif

#define RX		SOF_TIMESTAMPING_RX_SOFTWARE
#define REPORT		SOF_TIMESTAMPING_SOFTWARE
#define FILTER		(1 << 17)	/* SOF_TIMESTAMPING_OPT_RX_FILTER */

FIXTURE(timestamps)
{
	int fd[2];
};

FIXTURE_VARIANT(timestamps)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(timestamps, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(timestamps, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(timestamps, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(timestamps, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(timestamps, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(timestamps)
{
	self->fd[0] = -1;
	self->fd[1] = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	/* Stamps are taken while any socket asks for them, which TCP needs some time to see. */
	ASSERT_EQ(0, smc_pair(&smc_ends_tcp, self->fd));
	ASSERT_EQ(0, setsockopt(self->fd[0], SOL_SOCKET, SO_TIMESTAMP_OLD, &(int){ 1 },
				sizeof(int)));
	usleep(20000);
}

FIXTURE_TEARDOWN(timestamps)
{
	smc_close_pair(self->fd);
}

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* What a stamp of the first two words of @data says, in nanoseconds. */
static int64_t stamp_of(int type, const void *data)
{
	int64_t word[2];

	memcpy(word, data, sizeof(word));
	if (type == SO_TIMESTAMP_OLD || type == SO_TIMESTAMP_NEW)
		word[1] *= 1000;
	return word[0] * 1000000000ll + word[1];
}

/* Receives, and notes the control messages; stamps must not be before @since. */
static void note_recvmsg(struct smc_notes *notes, int fd, size_t len, int flags, size_t room,
			 int64_t since)
{
	_Alignas(8) char control[512];
	char buf[64];
	struct iovec iov = { buf, len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = room,
	};

	ssize_t ret = recvmsg(fd, &msg, flags);

	smc_note_result(notes, "recvmsg", ret);
	if (ret < 0)
		return;
	if (msg.msg_flags & MSG_CTRUNC)
		smc_note(notes, "+ctrunc");
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		int64_t stamp;

		smc_note(notes, "(%d,%d,%zu", cmsg->cmsg_level, cmsg->cmsg_type, cmsg->cmsg_len);
		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_len >= CMSG_LEN(16)) {
			stamp = stamp_of(cmsg->cmsg_type, CMSG_DATA(cmsg));
			/* A time of microseconds may seem to be before its nanoseconds. */
			smc_note(notes, stamp < since - 1000 ? " early" :
				 stamp > now() ? " late" : " right");
		}
		smc_note(notes, ")");
	}
}

struct request {
	int name;
	int value;
	int more;		/* another option, which the first does not undo */
};

static const struct request requests[] = {
	{ SO_TIMESTAMP_OLD, 1 }, { SO_TIMESTAMPNS_OLD, 1 },
	{ SO_TIMESTAMP_NEW, 1 }, { SO_TIMESTAMPNS_NEW, 1 },
	{ SO_TIMESTAMPING_OLD, RX | REPORT }, { SO_TIMESTAMPING_NEW, RX | REPORT },
	{ SO_TIMESTAMPING_OLD, RX }, { SO_TIMESTAMPING_OLD, RX | FILTER },
	{ SO_TIMESTAMPING_OLD, RX | REPORT | FILTER },
	{ SO_TIMESTAMPING_OLD, RX | REPORT, SO_TIMESTAMP_OLD },
	{ SO_TIMESTAMPING_NEW, RX | REPORT, SO_TIMESTAMPNS_NEW },
	{ SO_TIMESTAMP_OLD, 0 },
};

static void ask(int fd, const struct request *request)
{
	int one = 1;

	setsockopt(fd, SOL_SOCKET, request->name, &request->value, sizeof(int));
	if (request->more)
		setsockopt(fd, SOL_SOCKET, request->more, &one, sizeof(one));
}

static void receives(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct request *request = arg;
	int fd[2], one = 1;
	int64_t since;

	if (smc_pair(ends, fd))
		return;
	ask(fd[1], request);
	since = now();
	send(fd[0], "first", 5, 0);
	smc_settle(fd);
	note_recvmsg(notes, fd[1], 3, MSG_PEEK, 512, since);
	note_recvmsg(notes, fd[1], 3, 0, 512, since);
	note_recvmsg(notes, fd[1], 10, 0, 512, since);
	note_recvmsg(notes, fd[1], 10, MSG_DONTWAIT, 512, since);
	since = now();
	send(fd[0], "second", 6, 0);
	smc_settle(fd);
	note_recvmsg(notes, fd[1], 1, MSG_TRUNC, 512, since);
	note_recvmsg(notes, fd[1], 1, 0, CMSG_LEN(8), since);
	note_recvmsg(notes, fd[1], 1, 0, 0, since);
	setsockopt(fd[1], SOL_TCP, TCP_INQ, &one, sizeof(one));
	note_recvmsg(notes, fd[1], 1, 0, 512, since);
	note_recvmsg(notes, fd[1], 0, 0, 512, since);
	smc_note_result(notes, "recv", recv(fd[1], &(char){ 0 }, 1, 0));
	send(fd[0], "!", 1, MSG_OOB);
	smc_settle(fd);
	note_recvmsg(notes, fd[1], 1, MSG_OOB, 512, since);
	since = now();
	send(fd[0], "last", 4, 0);
	shutdown(fd[0], SHUT_WR);
	smc_settle(fd);
	note_recvmsg(notes, fd[1], 20, MSG_WAITALL, 512, since);
	note_recvmsg(notes, fd[1], 20, 0, 512, since);
	smc_close_pair(fd);
}

TEST_F(timestamps, of_what_is_received_as_on_tcp)
{
	for (int i = 0; i < ARRAY_SIZE(requests); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, receives, &requests[i]))
			TH_LOG("option %d, value %x", requests[i].name, requests[i].value);
	}
}

static void inherits(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct request *request = arg;
	struct sockaddr_storage addr;
	int fd[2], listener;
	int64_t since;
	socklen_t len;

	listener = smc_listen(ends, 4, &addr, &len);
	if (listener < 0)
		return;
	ask(listener, request);
	if (!smc_pair_from(ends, listener, &addr, len, fd)) {
		since = now();
		send(fd[0], "data", 4, 0);
		smc_settle(fd);
		note_recvmsg(notes, fd[1], 10, 0, 512, since);
		smc_close_pair(fd);
	}
	close(listener);
}

TEST_F(timestamps, of_an_accepted_socket_as_on_tcp)
{
	for (int i = 0; i < ARRAY_SIZE(requests); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, inherits, &requests[i]))
			TH_LOG("option %d, value %x", requests[i].name, requests[i].value);
	}
}

#define TX_ALL	(SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK)
#define ID	SOF_TIMESTAMPING_OPT_ID
#define ALONE	SOF_TIMESTAMPING_OPT_TSONLY

/* What the error queue holds: for each time its kind, its key and whether it is right. */
static void note_queue(struct smc_notes *notes, const int fd[2], int64_t since)
{
	smc_settle(fd);
	smc_note_poll(notes, fd[0]);
	for (;;) {
		_Alignas(8) char control[512];
		char buf[64];
		struct iovec iov = { buf, sizeof(buf) };
		struct msghdr msg = {
			.msg_iov = &iov, .msg_iovlen = 1,
			.msg_control = control, .msg_controllen = sizeof(control),
		};
		ssize_t ret = recvmsg(fd[0], &msg, MSG_ERRQUEUE | MSG_DONTWAIT);

		smc_note_result(notes, "queued", ret);
		if (ret < 0)
			return;
		for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg;
		     cmsg = CMSG_NXTHDR(&msg, cmsg)) {
			struct sock_extended_err *err = (void *)CMSG_DATA(cmsg);
			int64_t stamp = stamp_of(cmsg->cmsg_type, CMSG_DATA(cmsg));

			smc_note(notes, "(%d,%d", cmsg->cmsg_level, cmsg->cmsg_type);
			if (cmsg->cmsg_level == SOL_SOCKET)
				smc_note(notes, stamp < since - 1000 || stamp > now() ?
						" wrong" : " right");
			else
				smc_note(notes, " errno=%d origin=%d info=%d data=%u",
					 err->ee_errno, err->ee_origin, err->ee_info, err->ee_data);
			smc_note(notes, ")");
		}
	}
}

/* A send whose message asks for @flags. */
static ssize_t send_asking(int fd, const char *data, int type, uint32_t flags)
{
	_Alignas(8) char control[CMSG_SPACE(sizeof(flags))] = "";
	struct iovec iov = { (void *)data, strlen(data) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = type;
	cmsg->cmsg_len = CMSG_LEN(sizeof(flags));
	memcpy(CMSG_DATA(cmsg), &flags, sizeof(flags));
	return sendmsg(fd, &msg, 0);
}

static void sends(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const int *value = arg;
	int fd[2], none = 0;
	int64_t since;
	char buf[64];

	if (smc_pair(ends, fd))
		return;
	since = now();
	smc_note_result(notes, "send", send(fd[0], "before", 6, 0));
	smc_settle(fd);
	smc_note_result(notes, "option", setsockopt(fd[0], SOL_SOCKET, SO_TIMESTAMPING_OLD, value,
						     sizeof(int)));
	note_queue(notes, fd, since);
	for (int i = 0; i < 2; i++) {
		smc_note_result(notes, "send", send(fd[0], "message", 7, 0));
		note_queue(notes, fd, since);
	}
	smc_note_result(notes, "empty", send(fd[0], "", 0, 0));
	note_queue(notes, fd, since);
	smc_note_result(notes, "ask", send_asking(fd[0], "asked", SO_TIMESTAMPING_OLD,
						  SOF_TIMESTAMPING_TX_SOFTWARE));
	note_queue(notes, fd, since);
	smc_note_result(notes, "ask not", send_asking(fd[0], "asked", SO_TIMESTAMPING_OLD, 0));
	note_queue(notes, fd, since);
	smc_note_result(notes, "ask wrongly", send_asking(fd[0], "asked", SO_TIMESTAMPING_OLD,
							   SOF_TIMESTAMPING_RX_SOFTWARE));
	smc_note_result(notes, "unknown", send_asking(fd[0], "asked", 1000, 0));
	smc_note_result(notes, "recv", recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
	smc_note_result(notes, "option", setsockopt(fd[0], SOL_SOCKET, SO_TIMESTAMPING_OLD, &none,
						     sizeof(int)));
	smc_note_result(notes, "send", send(fd[0], "off", 3, 0));
	note_queue(notes, fd, since);
	smc_note_result(notes, "option", setsockopt(fd[0], SOL_SOCKET, SO_TIMESTAMPING_OLD, value,
						     sizeof(int)));
	smc_note_result(notes, "send", send(fd[0], "on again", 8, 0));
	note_queue(notes, fd, since);
	smc_close_pair(fd);
}

TEST_F(timestamps, of_what_is_sent_as_on_tcp)
{
	static const int values[] = {
		REPORT | ALONE | ID | TX_ALL, REPORT | ALONE | TX_ALL,
		REPORT | ALONE | ID | SOF_TIMESTAMPING_TX_SOFTWARE,
		REPORT | ALONE | ID | SOF_TIMESTAMPING_TX_ACK, REPORT | ALONE | ID,
		ALONE | ID | TX_ALL, REPORT | ALONE | ID | SOF_TIMESTAMPING_OPT_CMSG | TX_ALL,
		REPORT | ALONE | ID | SOF_TIMESTAMPING_OPT_ID_TCP | TX_ALL,
	};

	for (int i = 0; i < ARRAY_SIZE(values); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, sends, &values[i]))
			TH_LOG("value %x", values[i]);
	}
}

TEST_HARNESS_MAIN
