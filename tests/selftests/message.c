// SPDX-License-Identifier: GPL-2.0
/*
 * Flags and shapes of single send and receive calls.
 *
 * 1. MSG_PEEK leaves the data, MSG_WAITALL waits for all, MSG_DONTWAIT never
 *    waits, MSG_TRUNC discards without copying: results as on TCP.
 * 2. SO_RCVLOWAT holds back recv and poll as on TCP.
 * 3. Calls of no bytes, of one byte, with bad addresses: as on TCP.
 * 4. sendmsg and recvmsg with many pieces, some empty; sendmmsg and recvmmsg.
 * 5. A buffer that ends in unmapped memory moves what is mapped and loses
 *    nothing; the stream goes on after it.
 * 6. write, read, writev, readv and sendfile do the same as send and recv.
 * 7. Urgent data: MSG_OOB, SIOCATMARK, SO_OOBINLINE, POLLPRI and SIGURG as on
 *    TCP; it holds up nothing.
 * 8. SO_PEEK_OFF, TCP_INQ, MSG_ZEROCOPY and its completions: as on TCP.
 * 9. sendmmsg and recvmmsg with errors between, time limits and less than they
 *    ask for; MSG_WAITALL with a time limit, a signal, an end: as on TCP.
 * 10. A close that lingers, or must not, while the peer does not read.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#ifndef TCP_INQ
#define TCP_INQ		36
#endif
#ifndef SO_PEEK_OFF
#define SO_PEEK_OFF	42
#endif

FIXTURE(message)
{
	int fd[2];
};

FIXTURE_VARIANT(message)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(message, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(message, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(message, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(message, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(message, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(message)
{
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(message)
{
	smc_close_pair(self->fd);
}

/* recv() with its bytes noted. */
static void note_recv(struct smc_notes *notes, int fd, size_t len, int flags)
{
	char buf[64] = "";
	ssize_t ret = recv(fd, buf, len, flags);

	smc_note_result(notes, "recv", ret);
	if (ret > 0)
		smc_note(notes, "(%s)", flags & MSG_TRUNC ? "-" : buf);
}

static void receive_flags(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	note_recv(notes, fd[1], 8, MSG_DONTWAIT);
	note_recv(notes, fd[1], 8, MSG_DONTWAIT | MSG_PEEK);
	note_recv(notes, fd[1], 8, MSG_DONTWAIT | MSG_WAITALL);
	note_recv(notes, fd[1], 0, MSG_DONTWAIT);
	smc_note_result(notes, "send", send(fd[0], "abcdefghij", 10, 0));
	smc_settle(fd);
	note_recv(notes, fd[1], 0, 0);
	note_recv(notes, fd[1], 0, MSG_DONTWAIT);
	note_recv(notes, fd[1], 4, MSG_PEEK);
	note_recv(notes, fd[1], 4, MSG_PEEK);
	note_recv(notes, fd[1], 3, 0);
	note_recv(notes, fd[1], 2, MSG_TRUNC);
	note_recv(notes, fd[1], 20, MSG_PEEK | MSG_DONTWAIT);
	note_recv(notes, fd[1], 20, MSG_WAITALL | MSG_DONTWAIT);
	smc_note_result(notes, "send", send(fd[0], "klmno", 5, MSG_EOR));
	smc_settle(fd);
	note_recv(notes, fd[1], 2, MSG_TRUNC | MSG_PEEK);
	note_recv(notes, fd[1], 5, MSG_WAITALL);
	smc_note_result(notes, "send", send(fd[0], "", 0, 0));
	smc_settle(fd);
	note_recv(notes, fd[1], 5, MSG_DONTWAIT);
	note_recv(notes, fd[1], 5, MSG_DONTWAIT | MSG_ERRQUEUE);
	note_recv(notes, fd[1], 5, MSG_DONTWAIT | MSG_OOB);
	/* WAITALL ends early at the end of the stream. */
	send(fd[0], "end", 3, 0);
	shutdown(fd[0], SHUT_WR);
	smc_settle(fd);
	note_recv(notes, fd[1], 20, MSG_WAITALL);
	note_recv(notes, fd[1], 20, MSG_WAITALL);
	note_recv(notes, fd[1], 20, MSG_PEEK);
	smc_close_pair(fd);
}

TEST_F(message, receive_flags_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, receive_flags, NULL));
}

static void low_water(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const int marks[] = { 5, 1, 0, INT_MAX };
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		socklen_t len = sizeof(int);
		int value = 0;

		smc_note_result(notes, "rcvlowat", setsockopt(fd[1], SOL_SOCKET, SO_RCVLOWAT,
							      &marks[i], sizeof(marks[i])));
		getsockopt(fd[1], SOL_SOCKET, SO_RCVLOWAT, &value, &len);
		smc_note(notes, " %d", value);
		for (int j = 0; j < 3; j++) {
			smc_note_result(notes, "send", send(fd[0], "abc", 3, 0));
			smc_settle(fd);
			smc_note_poll(notes, fd[1]);
		}
		note_recv(notes, fd[1], 2, MSG_DONTWAIT);
		smc_note_poll(notes, fd[1]);
		note_recv(notes, fd[1], 60, MSG_DONTWAIT);
		smc_note_poll(notes, fd[1]);
	}
	smc_close_pair(fd);
}

TEST_F(message, low_water_mark_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, low_water, NULL));
}

static void bad_arguments(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct msghdr huge = { .msg_iovlen = UIO_MAXIOV + 1 };
	struct iovec iov = { .iov_base = (void *)8, .iov_len = 100 };
	struct msghdr wild = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	smc_note_result(notes, "send", send(fd[0], (void *)8, 100, 0));
	smc_note_result(notes, "sendmsg", sendmsg(fd[0], &wild, 0));
	smc_note_result(notes, "sendmsg", sendmsg(fd[0], &huge, 0));
	smc_note_result(notes, "send", send(fd[0], NULL, 0, 0));
	send(fd[0], "abcdef", 6, 0);
	smc_settle(fd);
	smc_note_result(notes, "recv", recv(fd[1], (void *)8, 3, 0));
	smc_note_result(notes, "recvmsg", recvmsg(fd[1], &wild, MSG_DONTWAIT));
	note_recv(notes, fd[1], 10, MSG_DONTWAIT);
	smc_close_pair(fd);
}

TEST_F(message, bad_arguments_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, bad_arguments, NULL));
}

TEST_F(message, many_pieces)
{
	enum { PIECES = 1024, STEP = 37 };
	static char out[PIECES * STEP], in[PIECES * STEP];
	struct iovec iov[PIECES];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = PIECES };
	size_t bytes = 0;

	smc_fill(out, sizeof(out), 11, 0);
	for (int i = 0; i < PIECES; i++) {
		iov[i].iov_base = out + bytes;
		iov[i].iov_len = i % 5 ? i % STEP : 0;
		bytes += iov[i].iov_len;
	}
	ASSERT_EQ(bytes, sendmsg(self->fd[0], &msg, 0));
	for (int i = 0, at = 0; i < PIECES; i++) {
		iov[i].iov_base = in + at;
		iov[i].iov_len = i % 3 ? STEP - 1 - i % 7 : 0;
		at += iov[i].iov_len;
		if (i == PIECES - 1)
			ASSERT_LE(bytes, at);
	}
	ASSERT_EQ(bytes, recvmsg(self->fd[1], &msg, MSG_WAITALL | MSG_DONTWAIT));
	EXPECT_EQ(0, memcmp(in, out, bytes));
}

TEST_F(message, many_messages)
{
	enum { MESSAGES = 64, SIZE = 99 };
	static char out[MESSAGES * SIZE], in[MESSAGES * SIZE];
	struct mmsghdr msg[MESSAGES] = {};
	struct iovec iov[MESSAGES];
	size_t received = 0;

	smc_fill(out, sizeof(out), 12, 0);
	for (int i = 0; i < MESSAGES; i++) {
		iov[i] = (struct iovec) { out + i * SIZE, SIZE };
		msg[i].msg_hdr.msg_iov = &iov[i];
		msg[i].msg_hdr.msg_iovlen = 1;
	}
	ASSERT_EQ(MESSAGES, sendmmsg(self->fd[0], msg, MESSAGES, 0));
	for (int i = 0; i < MESSAGES; i++)
		iov[i].iov_base = in + i * SIZE;
	ASSERT_EQ(MESSAGES, recvmmsg(self->fd[1], msg, MESSAGES, MSG_WAITALL, NULL));
	for (int i = 0; i < MESSAGES; i++)
		received += msg[i].msg_len;
	ASSERT_EQ(sizeof(out), received);
	EXPECT_EQ(0, memcmp(in, out, sizeof(out)));
}

/* Two pages of which only the first can be touched. */
static char *half_mapped(size_t page)
{
	char *area = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (area == MAP_FAILED)
		return NULL;
	munmap(area + page, page);
	return area;
}

TEST_F(message, faults_lose_nothing)
{
	size_t page = sysconf(_SC_PAGESIZE);
	uint64_t sent = 0, received = 0;
	char *area = half_mapped(page);

	ASSERT_NE(NULL, area);
	for (int round = 0; round < 200; round++) {
		size_t mapped = 1 + (round * 37) % 3000;
		char *edge = area + page - mapped;
		ssize_t ret;

		/* A send that runs into the hole: what counts is what it says. */
		smc_fill(edge, mapped, 13, sent);
		ret = send(self->fd[0], edge, mapped + 100, 0);
		ASSERT_TRUE((ret >= 0 && ret <= mapped) || (ret == -1 && errno == EFAULT));
		sent += ret > 0 ? ret : 0;
		ASSERT_EQ(0, smc_send_all(self->fd[0], 13, sent, 500, 500));
		sent += 500;

		/* The same for a receive, then the rest with a sound buffer. */
		ret = recv(self->fd[1], edge, mapped + 100, MSG_DONTWAIT);
		ASSERT_TRUE((ret > 0 && ret <= mapped + 100) || (ret == -1 && errno == EFAULT));
		if (ret > 0) {
			ASSERT_LE(ret, mapped);
			ASSERT_EQ(-1, smc_find_wrong(edge, ret, 13, received));
			received += ret;
		}
		ASSERT_EQ(0, smc_recv_all(self->fd[1], 13, received, sent - received, 4096));
		received = sent;
	}
}

TEST_F(message, reads_and_writes_of_files)
{
	static char out[10000], in[10000];
	struct iovec iov[2] = { { out, 3000 }, { out + 3000, 7000 } };
	off_t offset = 0;
	int file;

	smc_fill(out, sizeof(out), 14, 0);
	ASSERT_EQ(sizeof(out), write(self->fd[0], out, sizeof(out)));
	ASSERT_EQ(0, smc_recv_all(self->fd[1], 14, 0, sizeof(out), 3333));
	ASSERT_EQ(sizeof(out), writev(self->fd[0], iov, 2));
	iov[0].iov_base = in;
	iov[1].iov_base = in + 3000;
	ASSERT_EQ(sizeof(in), readv(self->fd[1], iov, 2));
	ASSERT_EQ(0, memcmp(in, out, sizeof(out)));

	file = memfd_create("sendfile", 0);
	ASSERT_LE(0, file);
	ASSERT_EQ(sizeof(out), write(file, out, sizeof(out)));
	ASSERT_EQ(sizeof(out), sendfile(self->fd[0], file, &offset, sizeof(out)));
	ASSERT_EQ(0, smc_recv_all(self->fd[1], 14, 0, sizeof(out), 10000));
	close(file);
	/* pread and pwrite have no place on a socket. */
	EXPECT_EQ(-1, pwrite(self->fd[0], out, 1, 0));
	EXPECT_EQ(ESPIPE, errno);
}

static void note_mark(struct smc_notes *notes, int fd)
{
	int mark = -1, unread = -1;

	smc_note_result(notes, "atmark", ioctl(fd, SIOCATMARK, &mark));
	ioctl(fd, SIOCINQ, &unread);
	smc_note(notes, "(%d,%d)", mark, unread);
}

/* One letter a call: what is sent to, or done with, a stream with urgent data. */
static const char *const urgent_scripts[] = {
	/* Data before, at and after the mark. */
	"n U a p m P r m o o d m p",
	/* The urgent byte is read before, between and after the rest. */
	"n U a o m r m r d p",
	"U p m o m p a r d",
	"U m r m p a r d",
	"n U r p m o p a m r d",
	/* A read of one byte at a time, and past the mark. */
	"n U a 1 1 1 1 1 1 m 1 m 1 p o d",
	/* Peeking in all places, with nothing consumed. */
	"n U a k k K o k r k m k r d",
	"U a k m K O k d",
	/* A new mark replaces one that was not reached, is reached, or passed. */
	"n U a U m p r m o r m o d",
	"U U U m p r o d m",
	"U p U a m r m o r d",
	"n U r U a m p r o d m",
	"n r U r a U m r o d",
	/* Many bytes of which the last one is urgent, and none at all. */
	"X m p r m o d", "n Z m p r d",
	/* Low water counts the urgent byte out. */
	"w n U p a p r p o p r p d",
	"w U p a p d p",
	/* Waiting for all stops at the mark. */
	"n U a W m W d",
	"t n U a r t r d",
	/* The end of the stream, and a reset, behind urgent data. */
	"n U s p r m o r r p", "U s m o r r p", "U s r r o p",
	"n U R p m o r r o p", "U R o r o p", "n R U o p r",
	"n U a c", "U c",
	/* A splice does not pass the mark, waiting (V) or not. */
	"n U a v m v V p o v V r v d", "U a v V m k v r v d", "n U a 1 V V m r",
	"n U r v a v d", "n U a U v v r v r v d", "n U s v V r V", "n U R v V r v v",
};

static void note_splice(struct smc_notes *notes, int fd, bool waits)
{
	int to[2];

	if (pipe(to))
		return;
	smc_set_nonblock(fd, !waits);
	smc_note_result(notes, "splice", splice(fd, NULL, to[1], NULL, 20, 0));
	smc_set_nonblock(fd, false);
	smc_close_pair(to);
}

static void urgent_step(struct smc_notes *notes, int fd[2], char step)
{
	const int low = 3, flags = MSG_NOSIGNAL;
	char buf[8] = "";

	switch (step) {
	case 'n':
		smc_note_result(notes, "send", send(fd[0], "before", 6, flags));
		break;
	case 'a':
		smc_note_result(notes, "send", send(fd[0], "after", 5, flags));
		break;
	case 'U':
		smc_note_result(notes, "oob", send(fd[0], "!", 1, flags | MSG_OOB));
		break;
	case 'X':
		smc_note_result(notes, "oob", send(fd[0], "bytes?", 6, flags | MSG_OOB));
		break;
	case 'Z':
		smc_note_result(notes, "oob", send(fd[0], "", 0, flags | MSG_OOB));
		break;
	case 's':
		smc_note_result(notes, "shutdown", shutdown(fd[0], SHUT_WR));
		break;
	case 'R':
		smc_set_linger(fd[0], 0);
		/* fallthrough */
	case 'c':
		/* The reader closes: is anything left unread? */
		close(fd[step == 'c']);
		fd[step == 'c'] = -1;
		break;
	case 'p':
		smc_note_poll(notes, fd[1]);
		break;
	case 'm':
		note_mark(notes, fd[1]);
		break;
	case 'r':
		note_recv(notes, fd[1], 20, MSG_DONTWAIT);
		break;
	case 't':
		note_recv(notes, fd[1], 20, MSG_DONTWAIT | MSG_TRUNC);
		break;
	case '1':
		note_recv(notes, fd[1], 1, MSG_DONTWAIT);
		break;
	case 'W':
		note_recv(notes, fd[1], 20, MSG_DONTWAIT | MSG_WAITALL);
		break;
	case 'k':
		note_recv(notes, fd[1], 20, MSG_DONTWAIT | MSG_PEEK);
		break;
	case 'o':
		note_recv(notes, fd[1], 1, MSG_OOB);
		break;
	case 'O':
		smc_note_result(notes, "recv", recv(fd[1], buf, 0, MSG_OOB | MSG_TRUNC));
		break;
	case 'K':
		note_recv(notes, fd[1], 1, MSG_OOB | MSG_PEEK);
		break;
	case 'v':
	case 'V':
		note_splice(notes, fd[1], step == 'V');
		break;
	case 'w':
		setsockopt(fd[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
		break;
	case 'd':
		note_recv(notes, fd[1], 60, MSG_DONTWAIT);
		note_recv(notes, fd[1], 60, MSG_DONTWAIT);
		break;
	}
}

struct urgent_play {
	const char *script;
	int inline_data;
};

static void urgent(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct urgent_play *play = arg;
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	setsockopt(fd[1], SOL_SOCKET, SO_OOBINLINE, &play->inline_data, sizeof(int));
	note_recv(notes, fd[1], 1, MSG_OOB);
	for (const char *step = play->script; *step; step++) {
		if (*step == ' ')
			continue;
		smc_note(notes, " [%c]", *step);
		urgent_step(notes, fd, *step);
		smc_settle(fd);
	}
	if (fd[0] >= 0)
		smc_note_poll(notes, fd[0]);
	smc_close_pair(fd);
}

static bool urgent_scripts_as_on_tcp(const struct smc_ends *ends)
{
	bool same = true;

	for (size_t i = 0; i < ARRAY_SIZE(urgent_scripts); i++) {
		for (int inline_data = 0; inline_data < 2; inline_data++) {
			struct urgent_play play = { urgent_scripts[i], inline_data };

			if (smc_same_as_tcp(ends, urgent, &play))
				continue;
			fprintf(stderr, "# %s%s\n", play.script, inline_data ? ", inline" : "");
			same = false;
		}
	}
	return same;
}

TEST_F(message, urgent_data_as_on_tcp)
{
	EXPECT_TRUE(urgent_scripts_as_on_tcp(variant->ends));
}

/* As RFC 793 has it, the urgent byte is the first one behind what was sent as such. */
TEST_F(message, standard_urgent_data_as_on_tcp)
{
	ASSERT_EQ(0, smc_netns_new());
	ASSERT_EQ(0, smc_set_sysctl("/proc/sys/net/ipv4/tcp_stdurg", "1"));
	EXPECT_TRUE(urgent_scripts_as_on_tcp(variant->ends));
}

static int urgent_signals;

static void on_urgent(int signal)
{
	__atomic_add_fetch(&urgent_signals, 1, __ATOMIC_RELAXED);
}

/* SIGURG reaches the owner of the file, whoever that is, once for each mark. */
static void urgent_owner(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct sigaction action = { .sa_handler = on_urgent };
	int fd[2];

	sigaction(SIGURG, &action, NULL);
	urgent_signals = 0;
	if (smc_pair(ends, fd))
		return;
	send(fd[0], "1", 1, MSG_OOB);
	smc_settle(fd);
	smc_note(notes, " no owner: %d", urgent_signals);
	for (int end = 0; end < 2; end++)
		smc_note_result(notes, "owner", fcntl(fd[end], F_SETOWN, getpid()));
	for (int end = 0; end < 2; end++) {
		for (int i = 0; i < 3; i++) {
			send(fd[!end], "ordinary", 8, 0);
			send(fd[!end], "2", 1, MSG_OOB);
			smc_settle(fd);
		}
		smc_note(notes, " end %d: %d", end, urgent_signals);
	}
	smc_note_result(notes, "owner", fcntl(fd[1], F_SETOWN, 0));
	send(fd[0], "3", 1, MSG_OOB);
	smc_settle(fd);
	smc_note(notes, " no more: %d", urgent_signals);
	smc_close_pair(fd);
}

TEST_F(message, urgent_data_signals_its_owner_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, urgent_owner, NULL));
}

/* A poller for POLLPRI alone, and a reader that waits for more, are woken. */
static void urgent_wakes(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct pollfd pfd = { .events = POLLPRI };
	int status, fd[2];
	pid_t child;

	if (smc_pair(ends, fd))
		return;
	pfd.fd = fd[1];
	child = fork();
	if (!child) {
		if (smc_wait_process_asleep(getppid()))
			_exit(1);
		send(fd[0], "!", 1, MSG_OOB);
		_exit(0);
	}
	smc_note_result(notes, "poll", poll(&pfd, 1, SMC_TIMEOUT_MS));
	smc_note(notes, "(%#x)", pfd.revents);
	waitpid(child, &status, 0);
	smc_note(notes, " child %d", status);
	smc_close_pair(fd);
}

TEST_F(message, urgent_data_wakes_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, urgent_wakes, NULL));
}

/* No room of its own: urgent data in a full stream never holds up what follows. */
TEST_F(message, urgent_data_holds_up_nothing)
{
	struct smc_stream reader = { .fd = self->fd[1], .seed = 15, .bytes = 200000, .chunk = 900 };
	int inline_data = 1;

	ASSERT_EQ(0, setsockopt(self->fd[1], SOL_SOCKET, SO_OOBINLINE, &inline_data,
				sizeof(inline_data)));
	ASSERT_EQ(0, smc_stream_start(&reader));
	for (uint64_t pos = 0; pos < reader.bytes; pos += 500) {
		char buf[500];

		smc_fill(buf, sizeof(buf), 15, pos);
		ASSERT_EQ(sizeof(buf), send(self->fd[0], buf, sizeof(buf), pos % 3 ? MSG_OOB : 0));
	}
	EXPECT_EQ(0, smc_stream_join(&reader));
}

/*
 * SO_PEEK_OFF. One letter a step: 0, 3, 9 (20) and - set the offset; s sends,
 * e ends the stream; k and K peek at little and much, t the same without a copy;
 * r and R read.
 */
static const char *const peek_scripts[] = {
	"s k k", "0 s k k k s k", "0 s k r k K", "3 s K K s K", "9 s K s s s K r K R K",
	"0 s k R s k", "- s k k 0 k k - k", "0 s t t s K", "3 s r k r k", "0 s K e K R K",
	"9 e K", "0 s s k r r r k", "0 K s K",
};

static void peek_offset(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	socklen_t len = sizeof(int);
	int value, fd[2];

	if (smc_pair(ends, fd))
		return;
	for (const char *step = arg; *step; step++) {
		switch (*step) {
		case ' ':
			continue;
		case '0': case '3': case '9': case '-':
			value = *step == '-' ? -1 : *step == '9' ? 20 : *step - '0';
			smc_note_result(notes, "set", setsockopt(fd[1], SOL_SOCKET, SO_PEEK_OFF,
								 &value, sizeof(value)));
			break;
		case 's':
			send(fd[0], "abcdefgh", 8, 0);
			break;
		case 'e':
			shutdown(fd[0], SHUT_WR);
			break;
		case 'k':
			note_recv(notes, fd[1], 3, MSG_PEEK | MSG_DONTWAIT);
			break;
		case 'K':
			note_recv(notes, fd[1], 60, MSG_PEEK | MSG_DONTWAIT);
			break;
		case 't':
			note_recv(notes, fd[1], 3, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
			break;
		case 'r':
			note_recv(notes, fd[1], 2, MSG_DONTWAIT);
			break;
		case 'R':
			note_recv(notes, fd[1], 60, MSG_DONTWAIT);
			break;
		}
		smc_settle(fd);
		value = -2;
		smc_note_result(notes, "get", getsockopt(fd[1], SOL_SOCKET, SO_PEEK_OFF, &value,
							 &len));
		smc_note(notes, "(%d)", value);
	}
	smc_close_pair(fd);
}

TEST_F(message, peek_offset_as_on_tcp)
{
	for (size_t i = 0; i < ARRAY_SIZE(peek_scripts); i++) {
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, peek_offset, peek_scripts[i]))
			TH_LOG("%s", peek_scripts[i]);
	}
}

/* TCP_INQ: what is left behind a message comes with it. */
static void note_left(struct smc_notes *notes, int fd, size_t len)
{
	char buf[64], control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { buf, len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	ssize_t ret = recvmsg(fd, &msg, MSG_DONTWAIT);

	smc_note_result(notes, "recvmsg", ret);
	if (ret < 0)
		return;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		int left;

		memcpy(&left, CMSG_DATA(cmsg), sizeof(left));
		smc_note(notes, "(%d,%d: %d)", cmsg->cmsg_level, cmsg->cmsg_type, left);
	}
	smc_note(notes, "flags %#x", msg.msg_flags & MSG_CTRUNC);
}

static void what_is_left(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const int on_listener = *(const int *)arg;
	struct sockaddr_storage addr;
	int listener, fd[2], on = 1;
	socklen_t len;

	listener = smc_listen(ends, 1, &addr, &len);
	if (on_listener)
		setsockopt(listener, SOL_TCP, TCP_INQ, &on, sizeof(on));
	if (smc_pair_from(ends, listener, &addr, len, fd))
		return;
	if (!on_listener)
		smc_note_result(notes, "set", setsockopt(fd[1], SOL_TCP, TCP_INQ, &on, sizeof(on)));
	on = 2;
	smc_note_result(notes, "set", setsockopt(fd[1], SOL_TCP, TCP_INQ, &on, sizeof(on)));
	note_left(notes, fd[1], 4);
	send(fd[0], "abcdefghij", 10, 0);
	smc_settle(fd);
	note_left(notes, fd[1], 4);
	note_left(notes, fd[1], 0);
	note_left(notes, fd[1], 4);
	note_left(notes, fd[1], 4);
	send(fd[0], "abc", 3, 0);
	shutdown(fd[0], SHUT_WR);
	smc_settle(fd);
	note_left(notes, fd[1], 1);
	note_left(notes, fd[1], 4);
	note_left(notes, fd[1], 4);
	note_left(notes, fd[1], 4);
	on = 0;
	smc_note_result(notes, "set", setsockopt(fd[1], SOL_TCP, TCP_INQ, &on, sizeof(on)));
	note_left(notes, fd[1], 4);
	smc_close_pair(fd);
	close(listener);
}

TEST_F(message, what_is_left_as_on_tcp)
{
	for (int on_listener = 0; on_listener < 2; on_listener++)
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, what_is_left, &on_listener));
}

/* The completions of zero-copy sends, up to number @last. */
static void note_completions(struct smc_notes *notes, int fd, uint32_t last)
{
	uint32_t next = 0;

	while (next <= last) {
		char control[128];
		struct msghdr msg = {
			.msg_control = control, .msg_controllen = sizeof(control),
		};
		struct sock_extended_err error;
		struct cmsghdr *cmsg;

		if (!(smc_poll(fd, 0, SMC_TIMEOUT_MS) & POLLERR)) {
			smc_note(notes, " none");
			return;
		}
		if (recvmsg(fd, &msg, MSG_ERRQUEUE) < 0) {
			smc_note(notes, " %s", strerrorname_np(errno));
			return;
		}
		cmsg = CMSG_FIRSTHDR(&msg);
		if (!cmsg) {
			smc_note(notes, " empty");
			return;
		}
		memcpy(&error, CMSG_DATA(cmsg), sizeof(error));
		if (error.ee_info != next)
			smc_note(notes, " %u instead of %u", error.ee_info, next);
		next = error.ee_data + 1;
		if (next > last)
			smc_note(notes, " to %u: level %d type %d errno %u origin %u code %u",
				 error.ee_data, cmsg->cmsg_level, cmsg->cmsg_type, error.ee_errno,
				 error.ee_origin, error.ee_code);
	}
}

static void zero_copy(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static char buf[20000];
	int fd[2], on = 1;

	if (smc_pair(ends, fd))
		return;
	smc_note_result(notes, "not set", send(fd[0], buf, 100, MSG_ZEROCOPY));
	smc_note_result(notes, "set", setsockopt(fd[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
	for (int i = 0; i < 5; i++)
		smc_note_result(notes, "send", send(fd[0], buf, 1000 + 4000 * i, MSG_ZEROCOPY));
	smc_note_result(notes, "nothing", send(fd[0], buf, 0, MSG_ZEROCOPY));
	smc_note_result(notes, "fault", send(fd[0], (void *)8, 100, MSG_ZEROCOPY));
	for (int left = 45100; left > 0;) {
		ssize_t ret = recv(fd[1], buf, sizeof(buf), 0);

		if (ret <= 0)
			break;
		left -= ret;
	}
	note_completions(notes, fd[0], 4);
	smc_note_poll(notes, fd[0]);
	smc_note(notes, " error=%d", smc_error(fd[0]));
	close(fd[1]);
	fd[1] = -1;
	smc_settle(fd);
	smc_note_result(notes, "late", send(fd[0], buf, 10, MSG_ZEROCOPY | MSG_NOSIGNAL));
	smc_settle(fd);
	smc_note_result(notes, "later", send(fd[0], buf, 10, MSG_ZEROCOPY | MSG_NOSIGNAL));
	smc_close_pair(fd);
}

TEST_F(message, zero_copy_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, zero_copy, NULL));
}

/* SIOCINQ through the life of a message; OUTQ after the peer has it. */
static void queues(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static const unsigned int requests[] = { SIOCINQ, SIOCOUTQ, SIOCOUTQNSD };
	int fresh = smc_socket(&ends->client, 0);
	struct sockaddr_storage addr;
	socklen_t len;
	int listener;
	int fd[2];

	listener = smc_listen(ends, 1, &addr, &len);
	if (smc_pair(ends, fd))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		int value = -1;

		smc_note_result(notes, "fresh", ioctl(fresh, requests[i], &value));
		smc_note(notes, "(%d)", value);
		value = -1;
		smc_note_result(notes, "listener", ioctl(listener, requests[i], &value));
		smc_note(notes, "(%d)", value);
	}
	for (int step = 0; step < 4; step++) {
		char buf[4000] = { 0 };

		if (step == 1)
			send(fd[0], buf, sizeof(buf), 0);
		else if (step == 2)
			recv(fd[1], buf, 1000, MSG_WAITALL);
		else if (step == 3)
			shutdown(fd[0], SHUT_WR);
		smc_settle(fd);
		for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
			for (int end = 0; end < 2; end++) {
				int value = -1;

				/* TCP counts its FIN as a byte until it is acknowledged. */
				if (step == 3 && requests[i] != SIOCINQ)
					continue;
				smc_note_result(notes, "ioctl", ioctl(fd[end], requests[i],
								      &value));
				smc_note(notes, "(%d)", value);
			}
		}
	}
	smc_note_result(notes, "TCGETS", ioctl(fd[0], 0x5401, NULL));
	smc_note_result(notes, "SIOCINQ", ioctl(fd[0], SIOCINQ, (void *)8));
	smc_close_pair(fd);
	close(listener);
	close(fresh);
}

TEST_F(message, queue_lengths_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, queues, NULL));
}

#define BATCH	5

/* A batch of messages of four bytes each; the one at @bad has no memory. */
static void make_batch(struct mmsghdr *msg, struct iovec *iov, char *data, int bad)
{
	memset(msg, 0, BATCH * sizeof(*msg));
	for (int i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec) { i == bad ? (void *)8 : data + 4 * i, 4 };
		msg[i].msg_hdr.msg_iov = &iov[i];
		msg[i].msg_hdr.msg_iovlen = 1;
	}
}

static void note_batch(struct smc_notes *notes, const char *call, int count,
		       const struct mmsghdr *msg)
{
	smc_note_result(notes, call, count);
	for (int i = 0; i < count; i++)
		smc_note(notes, ",%u", msg[i].msg_len);
}

static void batches(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct timeval limit = { .tv_usec = 50000 };
	struct mmsghdr msg[BATCH];
	struct iovec iov[BATCH];
	char data[4 * BATCH] = "abcdefghijklmnopqrs";
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	for (int bad = -1; bad < 3; bad++) {
		struct timespec soon = { .tv_nsec = 30000000 };

		make_batch(msg, iov, data, bad);
		note_batch(notes, "sendmmsg", sendmmsg(fd[0], msg, BATCH, 0), msg);
		smc_note(notes, " error=%d", smc_error(fd[0]));
		smc_settle(fd);
		note_batch(notes, "recvmmsg", recvmmsg(fd[1], msg, BATCH, MSG_DONTWAIT, NULL), msg);
		note_batch(notes, "recvmmsg", recvmmsg(fd[1], msg, BATCH, MSG_DONTWAIT, NULL), msg);
		smc_note(notes, " error=%d", smc_error(fd[1]));
		/* Three messages are there; the time limit is looked at behind each. */
		make_batch(msg, iov, data, -1);
		smc_note_result(notes, "send", send(fd[0], "123456789", 9, 0));
		smc_settle(fd);
		note_batch(notes, "for one",
			   recvmmsg(fd[1], msg, BATCH, MSG_WAITFORONE, NULL), msg);
		smc_note_result(notes, "send", send(fd[0], "123456789", 9, 0));
		smc_settle(fd);
		setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		note_batch(notes, "limited", recvmmsg(fd[1], msg, BATCH, 0, &soon), msg);
	}
	/* The end, and a reset, within a batch. */
	smc_note_result(notes, "send", send(fd[0], "12345", 5, 0));
	shutdown(fd[0], SHUT_WR);
	smc_settle(fd);
	make_batch(msg, iov, data, -1);
	note_batch(notes, "end", recvmmsg(fd[1], msg, BATCH, 0, NULL), msg);
	make_batch(msg, iov, data, -1);
	note_batch(notes, "sendmmsg", sendmmsg(fd[0], msg, BATCH, MSG_NOSIGNAL), msg);
	smc_close_pair(fd);
	if (smc_pair(ends, fd))
		return;
	smc_note_result(notes, "send", send(fd[0], "12345", 5, 0));
	smc_settle(fd);
	smc_set_linger(fd[0], 0);
	close(fd[0]);
	fd[0] = -1;
	smc_settle(fd);
	note_batch(notes, "reset", recvmmsg(fd[1], msg, BATCH, 0, NULL), msg);
	smc_note(notes, " error=%d", smc_error(fd[1]));
	note_batch(notes, "after", recvmmsg(fd[1], msg, BATCH, MSG_DONTWAIT, NULL), msg);
	note_batch(notes, "sendmmsg", sendmmsg(fd[1], msg, BATCH, MSG_NOSIGNAL), msg);
	smc_close_pair(fd);
}

TEST_F(message, batches_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, batches, NULL));
}

static void on_alarm(int signal)
{
}

/* Waits for ten bytes of which some come; then for ten of which none come. */
static void wait_for_all(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static const int flags[] = { MSG_WAITALL, MSG_WAITALL | MSG_PEEK, MSG_WAITALL | MSG_TRUNC };
	const struct timeval limit = { .tv_usec = 50000 }, none = { 0 };
	struct itimerval timer = { .it_value = { .tv_usec = 50000 } };
	int fd[2];

	if (smc_pair(ends, fd))
		return;
	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		char rest[16];

		setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		send(fd[0], "1234", 4, 0);
		smc_settle(fd);
		note_recv(notes, fd[1], 10, flags[i]);
		recv(fd[1], rest, sizeof(rest), MSG_DONTWAIT);
		note_recv(notes, fd[1], 10, flags[i]);
		setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
		send(fd[0], "5678", 4, 0);
		smc_settle(fd);
		setitimer(ITIMER_REAL, &timer, NULL);
		note_recv(notes, fd[1], 10, flags[i]);
		recv(fd[1], rest, sizeof(rest), MSG_DONTWAIT);
		setitimer(ITIMER_REAL, &timer, NULL);
		note_recv(notes, fd[1], 10, flags[i]);
	}
	/* A reset behind a part of it. */
	smc_note_result(notes, "send", send(fd[0], "last", 4, 0));
	smc_set_linger(fd[0], 0);
	close(fd[0]);
	fd[0] = -1;
	smc_settle(fd);
	note_recv(notes, fd[1], 10, MSG_WAITALL);
	note_recv(notes, fd[1], 10, MSG_WAITALL);
	note_recv(notes, fd[1], 10, MSG_WAITALL);
	smc_close_pair(fd);
}

TEST_F(message, waiting_for_all_as_on_tcp)
{
	const struct sigaction action = { .sa_handler = on_alarm };

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, wait_for_all, NULL));
}

/* What the reader finds after a close that lingers @arg seconds (-1: does not). */
static void lingering_close(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const int *seconds = arg;
	int fd[2];

	for (int shut = 0; shut < 2; shut++) {
		if (smc_pair(ends, fd))
			return;
		if (*seconds >= 0)
			smc_set_linger(fd[0], *seconds);
		smc_note(notes, " send=%d", smc_send_all(fd[0], 8, 0, 2000, 700));
		smc_settle(fd);
		if (shut)
			smc_note_result(notes, "shutdown", shutdown(fd[0], SHUT_WR));
		smc_note_result(notes, "close", close(fd[0]));
		fd[0] = -1;
		smc_settle(fd);
		smc_note_poll(notes, fd[1]);
		smc_note(notes, " recv=%d", smc_recv_all(fd[1], 8, 0, 2000, 600));
		note_recv(notes, fd[1], 10, 0);
		note_recv(notes, fd[1], 10, 0);
		smc_close_pair(fd);
	}
}

TEST_F(message, lingering_close_as_on_tcp)
{
	static const int seconds[] = { -1, 0, 1, 10 };

	for (int i = 0; i < ARRAY_SIZE(seconds); i++)
		EXPECT_TRUE(smc_same_as_tcp(variant->ends, lingering_close, &seconds[i]));
}

TEST_HARNESS_MAIN
