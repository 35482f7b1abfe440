// SPDX-License-Identifier: GPL-2.0
/*
 * io_uring: each request completes as on TCP, once.
 *
 * 1. send, recv, sendmsg, recvmsg, read and write, at once or after a wait;
 *    MSG_WAITALL, peeking, a send larger than there is room; shutdown, close.
 * 2. connect: to a listener, refused, to a full listener; poll of it meanwhile.
 * 3. accept, once and multishot, into descriptors and registered files.
 * 4. recv, multishot and with provided buffers, until they run out, to the end;
 *    recv and send of several buffers.
 * 5. poll, once and multishot: data, room, the end, a reset.
 * 6. Cancelling whatever waits, by request and by time limit, leaves a socket
 *    that works.
 * 7. send_zc with its notification; registered buffers; commands of sockets.
 * 8. Registered files keep a connection; a ring that goes lets its requests go.
 * 9. Many connections driven by a ring alone lose no completion and no byte.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define RING_ENTRIES	64
#define UNCLAIMED	256

/* A ring, and completions that were seen and not yet asked for. */
struct ring {
	int fd;
	unsigned int queued;
	unsigned int enter;		/* flags of every io_uring_enter() */
	atomic_uint *sq_tail, *cq_head, *cq_tail;
	unsigned int sq_mask, cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	void *map;
	size_t map_len, sqes_len;
	struct io_uring_cqe unclaimed[UNCLAIMED];
	unsigned int unclaimed_count;
};

static int ring_open(struct ring *ring, unsigned int setup)
{
	struct io_uring_params params = {
		.flags = setup | IORING_SETUP_NO_SQARRAY, .sq_thread_idle = 1,
	};
	size_t sq_len, cq_len;

	memset(ring, 0, sizeof(*ring));
	ring->fd = syscall(SYS_io_uring_setup, RING_ENTRIES, &params);
	if (ring->fd < 0)
		return -errno;
	ring->enter = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
	if (setup & IORING_SETUP_SQPOLL)
		ring->enter |= IORING_ENTER_SQ_WAKEUP;
	sq_len = params.sq_off.array + params.sq_entries * sizeof(unsigned int);
	cq_len = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	ring->map_len = sq_len > cq_len ? sq_len : cq_len;
	ring->sqes_len = params.sq_entries * sizeof(struct io_uring_sqe);
	ring->map = mmap(NULL, ring->map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			 ring->fd, IORING_OFF_SQ_RING);
	ring->sqes = mmap(NULL, ring->sqes_len, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	if (ring->map == MAP_FAILED || ring->sqes == MAP_FAILED)
		return -ENOMEM;
	ring->sq_tail = ring->map + params.sq_off.tail;
	ring->sq_mask = *(unsigned int *)(ring->map + params.sq_off.ring_mask);
	ring->cq_head = ring->map + params.cq_off.head;
	ring->cq_tail = ring->map + params.cq_off.tail;
	ring->cq_mask = *(unsigned int *)(ring->map + params.cq_off.ring_mask);
	ring->cqes = ring->map + params.cq_off.cqes;
	return 0;
}

static void ring_close(struct ring *ring)
{
	munmap(ring->map, ring->map_len);
	munmap(ring->sqes, ring->sqes_len);
	close(ring->fd);
}

static int ring_register(struct ring *ring, unsigned int what, const void *arg, unsigned int count)
{
	return syscall(SYS_io_uring_register, ring->fd, what, arg, count) < 0 ? -errno : 0;
}

/* Queues a request; nobody sees it before ring_submit(). */
static void ring_queue(struct ring *ring, struct io_uring_sqe sqe)
{
	unsigned int tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);

	ring->sqes[tail & ring->sq_mask] = sqe;
	atomic_store_explicit(ring->sq_tail, tail + 1, memory_order_release);
	ring->queued++;
}

static int ring_enter(struct ring *ring, unsigned int wanted, int timeout_ms)
{
	struct __kernel_timespec ts = {
		.tv_sec = timeout_ms / 1000,
		.tv_nsec = timeout_ms % 1000 * 1000000,
	};
	struct io_uring_getevents_arg arg = { .ts = (uintptr_t)&ts };
	int ret;

	ret = syscall(SYS_io_uring_enter, ring->fd, ring->queued, wanted, ring->enter, &arg,
		      sizeof(arg));
	if (ret < 0 && errno != ETIME && errno != EINTR)
		return -errno;
	ring->queued = 0;
	return 0;
}

static int ring_submit(struct ring *ring)
{
	return ring_enter(ring, 0, 0);
}

/* Moves what has completed to where it can be asked for. */
static void ring_collect(struct ring *ring)
{
	unsigned int head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);

	while (head != atomic_load_explicit(ring->cq_tail, memory_order_acquire) &&
	       ring->unclaimed_count < UNCLAIMED) {
		ring->unclaimed[ring->unclaimed_count++] = ring->cqes[head & ring->cq_mask];
		head++;
	}
	atomic_store_explicit(ring->cq_head, head, memory_order_release);
}

/* The next completion of request @id (0: of any); false if there is none in time. */
static bool ring_wait(struct ring *ring, uint64_t id, struct io_uring_cqe *cqe, int timeout_ms)
{
	for (bool again = true; ; again = false) {
		ring_collect(ring);
		for (unsigned int i = 0; i < ring->unclaimed_count; i++) {
			if (id && ring->unclaimed[i].user_data != id)
				continue;
			*cqe = ring->unclaimed[i];
			ring->unclaimed_count--;
			memmove(&ring->unclaimed[i], &ring->unclaimed[i + 1],
				(ring->unclaimed_count - i) * sizeof(*cqe));
			return true;
		}
		/* Completions of other requests end a wait before its time. */
		if (!again && !timeout_ms)
			return false;
		if (timeout_ms) {
			unsigned int before;

			before = atomic_load_explicit(ring->cq_tail, memory_order_acquire);
			if (ring_enter(ring, 1, timeout_ms))
				return false;
			if (before == atomic_load_explicit(ring->cq_tail, memory_order_acquire))
				timeout_ms = 0;
		} else if (ring_enter(ring, 0, 0)) {
			return false;
		}
	}
}

/* Notes the next completion of request @id. */
static void note_done(struct smc_notes *notes, struct ring *ring, const char *name, uint64_t id)
{
	static const struct {
		unsigned int bit;
		const char *name;
	} flags[] = {
		{ IORING_CQE_F_BUFFER, "buffer" }, { IORING_CQE_F_MORE, "more" },
		{ IORING_CQE_F_SOCK_NONEMPTY, "nonempty" }, { IORING_CQE_F_NOTIF, "notif" },
	};
	struct io_uring_cqe cqe;

	if (!ring_wait(ring, id, &cqe, SMC_TIMEOUT_MS)) {
		smc_note(notes, " %s=lost", name);
		return;
	}
	if (cqe.res < 0)
		smc_note(notes, " %s=%s", name, strerrorname_np(-cqe.res));
	else if (cqe.flags & IORING_CQE_F_NOTIF)
		smc_note(notes, " %s=%x", name, cqe.res);
	else
		smc_note(notes, " %s=%d", name, cqe.res);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (cqe.flags & flags[i].bit)
			smc_note(notes, "+%s", flags[i].name);
}

/* As note_done(), for a request whose result is a descriptor, which is returned. */
static int note_opened(struct smc_notes *notes, struct ring *ring, const char *name, uint64_t id)
{
	struct io_uring_cqe cqe;

	if (!ring_wait(ring, id, &cqe, SMC_TIMEOUT_MS)) {
		smc_note(notes, " %s=lost", name);
		return -1;
	}
	if (cqe.res < 0)
		smc_note(notes, " %s=%s", name, strerrorname_np(-cqe.res));
	else
		smc_note(notes, " %s=opened%s", name, cqe.flags & IORING_CQE_F_MORE ? "+more" : "");
	return cqe.res < 0 ? -1 : cqe.res;
}

/* Notes whether request @id still waits. */
static void note_waiting(struct smc_notes *notes, struct ring *ring, const char *name, uint64_t id)
{
	struct io_uring_cqe cqe;

	if (ring_wait(ring, id, &cqe, 0))
		smc_note(notes, " %s-done=%d", name, cqe.res);
	else
		smc_note(notes, " %s-waits", name);
}

static struct io_uring_sqe request(uint8_t opcode, int fd, const void *addr, size_t len, uint64_t id)
{
	struct io_uring_sqe sqe = {
		.opcode = opcode,
		.fd = fd,
		.addr = (uintptr_t)addr,
		.len = len,
		.user_data = id,
	};

	return sqe;
}

static void start(struct ring *ring, struct io_uring_sqe sqe)
{
	ring_queue(ring, sqe);
	ring_submit(ring);
}

/* Queues, submits, waits and notes. */
static void note_request(struct smc_notes *notes, struct ring *ring, const char *name,
			 struct io_uring_sqe sqe)
{
	start(ring, sqe);
	note_done(notes, ring, name, sqe.user_data);
}

static struct io_uring_sqe cancel(uint64_t id, uint64_t target)
{
	struct io_uring_sqe sqe = request(IORING_OP_ASYNC_CANCEL, -1, NULL, 0, id);

	sqe.addr = target;
	return sqe;
}

static struct io_uring_sqe poll_for(int fd, unsigned int events, bool multishot, uint64_t id)
{
	struct io_uring_sqe sqe = request(IORING_OP_POLL_ADD, fd, NULL, 0, id);

	sqe.poll32_events = events;
	sqe.len = multishot ? IORING_POLL_ADD_MULTI : 0;
	return sqe;
}

/* How a scenario uses rings. */
struct style {
	unsigned int setup;
	uint8_t sqe_flags;
};

static const struct style inline_style = { 0, 0 };
static const struct style deferred_style = {
	IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0
};
/* By a thread that may sleep. */
static const struct style worker_style = { 0, IOSQE_ASYNC };

FIXTURE(io_uring)
{
	int fd[2];
};

FIXTURE_VARIANT(io_uring)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(io_uring, tcp) { .ends = &smc_ends_tcp };
FIXTURE_VARIANT_ADD(io_uring, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(io_uring, fallback_client) { .ends = &smc_ends_fallback_client };
FIXTURE_VARIANT_ADD(io_uring, fallback_server) { .ends = &smc_ends_fallback_server };
FIXTURE_VARIANT_ADD(io_uring, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(io_uring)
{
	struct ring ring;

	self->fd[0] = -1;
	self->fd[1] = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	if (ring_open(&ring, 0))
		SKIP(return, "no io_uring in this kernel");
	ring_close(&ring);
}

FIXTURE_TEARDOWN(io_uring)
{
	smc_close_pair(self->fd);
}

/* What each style of use must show alike. */
static bool same_in_each_style(const struct smc_ends *ends, smc_scenario *scenario)
{
	return smc_same_as_tcp(ends, scenario, &inline_style) &&
	       smc_same_as_tcp(ends, scenario, &deferred_style) &&
	       smc_same_as_tcp(ends, scenario, &worker_style);
}

static void transfers(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct style *style = arg;
	char buf[64] = "", a[3], b[5], c[8];
	struct iovec in[] = { { a, 3 }, { b, 5 }, { c, 8 } };
	struct iovec out[] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };
	struct msghdr to = { .msg_iov = in, .msg_iovlen = 3 };
	struct msghdr from = { .msg_iov = out, .msg_iovlen = 3 };
	struct io_uring_sqe sqe;
	struct ring ring;
	int fd[2];

	if (ring_open(&ring, style->setup) || smc_pair(ends, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}

	/* There and not there. */
	note_request(notes, &ring, "send", request(IORING_OP_SEND, fd[0], "hello", 5, 1));
	smc_settle(fd);
	note_request(notes, &ring, "recv", request(IORING_OP_RECV, fd[1], buf, 3, 2));
	note_request(notes, &ring, "recv", request(IORING_OP_RECV, fd[1], buf + 3, 9, 2));
	smc_note(notes, "(%s)", buf);
	sqe = request(IORING_OP_RECV, fd[1], buf, 9, 3);
	sqe.msg_flags = MSG_DONTWAIT;
	sqe.flags = style->sqe_flags;
	note_request(notes, &ring, "recv-dontwait", sqe);
	sqe.msg_flags = 0;
	start(&ring, sqe);
	note_waiting(notes, &ring, "recv", 3);
	smc_note_result(notes, "send", send(fd[0], "xy", 2, 0));
	note_done(notes, &ring, "recv", 3);

	/* All or nothing, in pieces. */
	sqe = request(IORING_OP_RECV, fd[1], buf, 10, 4);
	sqe.msg_flags = MSG_WAITALL;
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	for (int i = 0; i < 5; i++) {
		note_waiting(notes, &ring, "waitall", 4);
		smc_note_result(notes, "send", send(fd[0], "12", 2, 0));
		smc_settle(fd);
	}
	note_done(notes, &ring, "waitall", 4);
	sqe.msg_flags = MSG_PEEK;
	start(&ring, sqe);
	note_waiting(notes, &ring, "peek", 4);
	smc_note_result(notes, "send", send(fd[0], "peeked", 6, 0));
	note_done(notes, &ring, "peek", 4);
	sqe.ioprio = IORING_RECVSEND_POLL_FIRST;
	sqe.msg_flags = 0;
	note_request(notes, &ring, "poll-first", sqe);

	/* Messages in pieces; files. */
	sqe = request(IORING_OP_RECVMSG, fd[1], &to, 1, 5);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "recvmsg", 5);
	note_request(notes, &ring, "sendmsg", request(IORING_OP_SENDMSG, fd[0], &from, 1, 6));
	note_done(notes, &ring, "recvmsg", 5);
	smc_note(notes, "(%.3s%.5s)", a, b);
	sqe = request(IORING_OP_READV, fd[1], in, 3, 7);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "readv", 7);
	note_request(notes, &ring, "writev", request(IORING_OP_WRITEV, fd[0], out, 3, 8));
	note_done(notes, &ring, "readv", 7);
	sqe = request(IORING_OP_READ, fd[1], buf, sizeof(buf), 9);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "read", 9);
	note_request(notes, &ring, "write", request(IORING_OP_WRITE, fd[0], "file", 4, 10));
	note_done(notes, &ring, "read", 9);

	/* Urgent data, bad memory, the ends. */
	sqe = request(IORING_OP_RECV, fd[1], buf, 1, 11);
	sqe.msg_flags = MSG_OOB;
	note_request(notes, &ring, "oob", sqe);
	note_request(notes, &ring, "bad", request(IORING_OP_SEND, fd[0], (void *)8, 4, 12));
	sqe = request(IORING_OP_RECV, fd[1], buf, 9, 13);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "recv", 13);
	note_request(notes, &ring, "shutdown", request(IORING_OP_SHUTDOWN, fd[0], NULL, SHUT_WR, 14));
	note_done(notes, &ring, "recv", 13);
	note_request(notes, &ring, "shutdown", request(IORING_OP_SHUTDOWN, fd[0], NULL, 7, 14));
	note_request(notes, &ring, "send", request(IORING_OP_SEND, fd[0], "late", 4, 15));
	note_request(notes, &ring, "send", request(IORING_OP_SEND, fd[1], "back", 4, 16));
	smc_settle(fd);
	note_request(notes, &ring, "close", request(IORING_OP_CLOSE, fd[0], NULL, 0, 17));
	fd[0] = -1;
	smc_settle(fd);
	note_request(notes, &ring, "recv", request(IORING_OP_RECV, fd[1], buf, 9, 18));
	note_request(notes, &ring, "send", request(IORING_OP_SEND, fd[1], "more", 4, 19));
	note_request(notes, &ring, "send", request(IORING_OP_SEND, fd[1], "more", 4, 19));
	smc_close_pair(fd);
	ring_close(&ring);
}

TEST_F(io_uring, transfers_as_on_tcp)
{
	EXPECT_TRUE(same_in_each_style(variant->ends, transfers));
}

/* A send that must wait for room takes all, whoever does it. */
TEST_F(io_uring, a_large_send_takes_all)
{
	static const struct style *const styles[] = {
		&inline_style, &deferred_style, &worker_style,
	};
	const size_t bytes = 24 << 20;
	char *data = malloc(bytes);

	ASSERT_NE(NULL, data);
	smc_fill(data, bytes, 7, 0);
	for (int i = 0; i < ARRAY_SIZE(styles); i++) {
		struct smc_stream reader = { .seed = 7, .bytes = bytes, .chunk = 100000 };
		struct io_uring_sqe sqe;
		struct io_uring_cqe cqe;
		struct ring ring;

		ASSERT_EQ(0, ring_open(&ring, styles[i]->setup));
		ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
		sqe = request(IORING_OP_SEND, self->fd[0], data, bytes, 1);
		sqe.msg_flags = MSG_WAITALL;
		sqe.flags = styles[i]->sqe_flags;
		start(&ring, sqe);
		EXPECT_FALSE(ring_wait(&ring, 1, &cqe, 20));
		reader.fd = self->fd[1];
		ASSERT_EQ(0, smc_stream_start(&reader));
		ASSERT_TRUE(ring_wait(&ring, 1, &cqe, 60000));
		EXPECT_EQ(bytes, cqe.res);
		EXPECT_EQ(0, smc_stream_join(&reader));
		smc_close_pair(self->fd);
		ring_close(&ring);
	}
	free(data);
}

static struct io_uring_sqe connect_to(int fd, const struct sockaddr_storage *addr, socklen_t len,
				      uint64_t id)
{
	struct io_uring_sqe sqe = request(IORING_OP_CONNECT, fd, addr, 0, id);

	sqe.off = len;
	return sqe;
}

/* Clients that use up the backlog of @listener; the last is on its way. */
static int fill_backlog(const struct smc_ends *ends, const struct sockaddr_storage *addr,
			socklen_t len, int clients[4])
{
	for (int i = 0; i < 4; i++) {
		clients[i] = smc_socket(&ends->client, SOCK_NONBLOCK);
		if (clients[i] < 0)
			return clients[i];
		connect(clients[i], (const struct sockaddr *)addr, len);
		if (!(smc_poll(clients[i], POLLOUT, 200) & POLLOUT))
			return i + 1;
	}
	return -ETIMEDOUT;
}

static void connects(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct style *style = arg;
	struct sockaddr_storage addr, nowhere;
	struct io_uring_sqe sqe;
	struct ring ring;
	int listener, fd[2], flags[] = { 0, SOCK_NONBLOCK };
	socklen_t len;

	listener = smc_listen(ends, 8, &addr, &len);
	if (listener < 0 || ring_open(&ring, style->setup)) {
		smc_note(notes, " cannot begin");
		return;
	}
	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		fd[0] = smc_socket(&ends->client, flags[i]);
		sqe = connect_to(fd[0], &addr, len, 1);
		sqe.flags = style->sqe_flags;
		note_request(notes, &ring, "connect", sqe);
		smc_note_poll(notes, fd[0]);
		sqe.user_data = 2;
		note_request(notes, &ring, "connect-again", sqe);
		fd[1] = note_opened(notes, &ring, "accept",
				    (start(&ring, request(IORING_OP_ACCEPT, listener, NULL, 0, 3)), 3));
		if (fd[1] >= 0) {
			smc_note(notes, " mode=%d", smc_check_modes(ends, fd));
			smc_set_nonblock(fd[0], false);
			smc_note(notes, " exchange=%d", smc_exchange(fd[0], fd[1], i));
		}
		smc_close_pair(fd);
	}

	/* Nobody listens there any more. */
	close(listener);
	nowhere = addr;
	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		fd[0] = smc_socket(&ends->client, flags[i]);
		sqe = connect_to(fd[0], &nowhere, len, 4);
		sqe.flags = style->sqe_flags;
		note_request(notes, &ring, "refused", sqe);
		smc_note(notes, " error=%d", smc_error(fd[0]));
		smc_note_poll(notes, fd[0]);
		close(fd[0]);
	}
	fd[0] = smc_socket(&ends->client, 0);
	sqe = connect_to(fd[0], &addr, 3, 5);
	note_request(notes, &ring, "short", sqe);
	close(fd[0]);
	ring_close(&ring);
}

TEST_F(io_uring, connects_as_on_tcp)
{
	EXPECT_TRUE(same_in_each_style(variant->ends, connects));
}

/* A listener without room answers when it has some; the SYN comes again after a second. */
static void waiting_connect(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct style *style = arg;
	int listener, clients[4], count, server, fd;
	struct sockaddr_storage addr;
	struct io_uring_sqe sqe;
	struct ring ring;
	socklen_t len;

	listener = smc_listen(ends, 0, &addr, &len);
	count = listener < 0 ? listener : fill_backlog(ends, &addr, len, clients);
	if (count < 0 || ring_open(&ring, style->setup)) {
		smc_note(notes, " cannot begin");
		return;
	}
	smc_note(notes, " backlog=%d", count);
	fd = smc_socket(&ends->client, 0);
	sqe = connect_to(fd, &addr, len, 1);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "connect", 1);
	start(&ring, poll_for(fd, POLLOUT | POLLIN, false, 2));
	note_waiting(notes, &ring, "poll", 2);
	/* A send that is too early, and one cancelled connect. */
	note_request(notes, &ring, "cancel", cancel(3, 1));
	note_done(notes, &ring, "connect", 1);
	note_waiting(notes, &ring, "poll", 2);
	for (int i = 0; i < count; i++) {
		server = smc_accept(listener);
		close(server);
		close(clients[i]);
		if (i == 0) {
			/* A socket whose connect was cancelled has no event but by another one. */
			note_waiting(notes, &ring, "poll", 2);
			sqe.user_data = 4;
			note_request(notes, &ring, "connect-again", sqe);
		}
	}
	close(fd);
	close(listener);
	ring_close(&ring);
}

TEST_F(io_uring, a_waiting_connect_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, waiting_connect, &inline_style));
}

static struct io_uring_sqe accept_many(int listener, uint64_t id)
{
	struct io_uring_sqe sqe = request(IORING_OP_ACCEPT, listener, NULL, 0, id);

	sqe.ioprio = IORING_ACCEPT_MULTISHOT;
	return sqe;
}

static void accepts(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct style *style = arg;
	int files[4] = { -1, -1, -1, -1 };
	struct sockaddr_storage addr, from = { 0 };
	socklen_t len, from_len = sizeof(from);
	struct io_uring_sqe sqe;
	struct ring ring;
	char buf[8] = "";
	int listener, fd[2];

	listener = smc_listen(ends, 8, &addr, &len);
	if (listener < 0 || ring_open(&ring, style->setup)) {
		smc_note(notes, " cannot begin");
		return;
	}

	/* One, with its address. */
	sqe = request(IORING_OP_ACCEPT, listener, &from, 0, 1);
	sqe.addr2 = (uintptr_t)&from_len;
	sqe.accept_flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "accept", 1);
	fd[0] = smc_connect(ends, &addr, len);
	fd[1] = note_opened(notes, &ring, "accept", 1);
	smc_note(notes, " family=%d len=%d", from.ss_family, from_len);
	smc_note_result(notes, "flags", fcntl(fd[1], F_GETFL) & O_NONBLOCK);
	smc_note_result(notes, "flags", fcntl(fd[1], F_GETFD));
	smc_note(notes, " modes=%d", smc_check_modes(ends, fd));
	smc_close_pair(fd);

	/* Many, before and after they come. */
	fd[0] = smc_connect(ends, &addr, len);
	start(&ring, accept_many(listener, 2));
	fd[1] = note_opened(notes, &ring, "multi", 2);
	smc_note(notes, " modes=%d exchange=%d", smc_check_modes(ends, fd),
		 smc_exchange(fd[0], fd[1], 1));
	smc_close_pair(fd);
	for (int i = 0; i < 3; i++) {
		note_waiting(notes, &ring, "multi", 2);
		fd[0] = smc_connect(ends, &addr, len);
		fd[1] = note_opened(notes, &ring, "multi", 2);
		smc_note(notes, " modes=%d", smc_check_modes(ends, fd));
		smc_close_pair(fd);
	}
	note_request(notes, &ring, "cancel", cancel(3, 2));
	note_done(notes, &ring, "multi", 2);

	/* Into registered files, one of which then speaks. */
	smc_note(notes, " register=%d", ring_register(&ring, IORING_REGISTER_FILES, files, 4));
	sqe = accept_many(listener, 4);
	sqe.file_index = IORING_FILE_INDEX_ALLOC;
	start(&ring, sqe);
	fd[0] = smc_connect(ends, &addr, len);
	note_done(notes, &ring, "direct", 4);
	sqe = request(IORING_OP_SEND, 0, "direct", 6, 5);
	sqe.flags = IOSQE_FIXED_FILE;
	note_request(notes, &ring, "send", sqe);
	smc_note_result(notes, "recv", recv(fd[0], buf, sizeof(buf), 0));
	sqe = request(IORING_OP_CLOSE, 0, NULL, 0, 6);
	sqe.file_index = 1;
	note_request(notes, &ring, "close", sqe);
	smc_note(notes, " eof=%d", smc_recv_eof(fd[0]));
	close(fd[0]);

	/* The listener goes. */
	note_request(notes, &ring, "shutdown",
		     request(IORING_OP_SHUTDOWN, listener, NULL, SHUT_RDWR, 7));
	note_done(notes, &ring, "direct", 4);
	note_request(notes, &ring, "accept", request(IORING_OP_ACCEPT, listener, NULL, 0, 8));
	close(listener);
	ring_close(&ring);
}

TEST_F(io_uring, accepts_as_on_tcp)
{
	EXPECT_TRUE(same_in_each_style(variant->ends, accepts));
}

#define BUFFERS		8
#define BUFFER_SIZE	16

/* A ring of buffers for the kernel to choose from. */
struct buffers {
	struct io_uring_buf_ring *ring;
	char data[BUFFERS][BUFFER_SIZE];
	uint16_t tail;
};

static int buffers_open(struct ring *ring, struct buffers *buffers)
{
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = 1 };

	memset(buffers, 0, sizeof(*buffers));
	buffers->ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	if (buffers->ring == MAP_FAILED)
		return -ENOMEM;
	reg.ring_addr = (uintptr_t)buffers->ring;
	return ring_register(ring, IORING_REGISTER_PBUF_RING, &reg, 1);
}

static void buffers_add(struct buffers *buffers, int index)
{
	struct io_uring_buf *buf = &buffers->ring->bufs[buffers->tail % BUFFERS];

	buf->addr = (uintptr_t)buffers->data[index];
	buf->len = BUFFER_SIZE;
	buf->bid = index;
	buffers->tail++;
	atomic_store_explicit((_Atomic uint16_t *)&buffers->ring->tail, buffers->tail,
			      memory_order_release);
}

static struct io_uring_sqe recv_many(int fd, uint64_t id)
{
	struct io_uring_sqe sqe = request(IORING_OP_RECV, fd, NULL, 0, id);

	sqe.ioprio = IORING_RECV_MULTISHOT;
	sqe.flags = IOSQE_BUFFER_SELECT;
	sqe.buf_group = 1;
	return sqe;
}

static void multishot_recv(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct style *style = arg;
	struct buffers buffers;
	struct io_uring_sqe sqe;
	struct ring ring;
	char text[64];
	int fd[2];

	if (ring_open(&ring, style->setup) || buffers_open(&ring, &buffers) || smc_pair(ends, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}
	for (int i = 0; i < 5; i++)
		buffers_add(&buffers, i);
	smc_note_result(notes, "send", send(fd[0], "before", 6, 0));
	smc_settle(fd);
	start(&ring, recv_many(fd[1], 1));
	note_done(notes, &ring, "recv", 1);
	for (int i = 0; i < 2; i++) {
		note_waiting(notes, &ring, "recv", 1);
		smc_note_result(notes, "send", send(fd[0], "after", 5, 0));
		note_done(notes, &ring, "recv", 1);
		smc_note(notes, "(%s)", buffers.data[i + 1]);
	}
	/* More than a buffer, and more than all of them. */
	smc_fill(text, sizeof(text), 1, 0);
	smc_note_result(notes, "send", send(fd[0], text, 20, 0));
	note_done(notes, &ring, "recv", 1);
	note_done(notes, &ring, "recv", 1);
	note_waiting(notes, &ring, "recv", 1);
	smc_note_result(notes, "send", send(fd[0], text, 7, 0));
	note_done(notes, &ring, "recv", 1);
	for (int i = 0; i < 4; i++)
		buffers_add(&buffers, i);
	start(&ring, recv_many(fd[1], 2));
	note_done(notes, &ring, "recv", 2);
	note_waiting(notes, &ring, "recv", 2);
	note_request(notes, &ring, "cancel", cancel(3, 2));
	note_done(notes, &ring, "recv", 2);
	/* One buffer, of the kernel's choice, for one message. */
	sqe = request(IORING_OP_RECV, fd[1], NULL, 0, 4);
	sqe.flags = IOSQE_BUFFER_SELECT | style->sqe_flags;
	sqe.buf_group = 1;
	start(&ring, sqe);
	note_waiting(notes, &ring, "select", 4);
	smc_note_result(notes, "send", send(fd[0], "single", 6, 0));
	note_done(notes, &ring, "select", 4);
	/* The end. */
	start(&ring, recv_many(fd[1], 5));
	note_waiting(notes, &ring, "recv", 5);
	shutdown(fd[0], SHUT_WR);
	note_done(notes, &ring, "recv", 5);
	note_waiting(notes, &ring, "recv", 5);
	smc_close_pair(fd);

	/* A reset, behind data. */
	if (smc_pair(ends, fd))
		return;
	for (int i = 4; i < 8; i++)
		buffers_add(&buffers, i);
	start(&ring, recv_many(fd[1], 6));
	smc_note_result(notes, "send", send(fd[0], "last", 4, 0));
	note_done(notes, &ring, "recv", 6);
	smc_set_linger(fd[0], 0);
	close(fd[0]);
	fd[0] = -1;
	note_done(notes, &ring, "recv", 6);
	smc_close_pair(fd);
	ring_close(&ring);
	munmap(buffers.ring, 4096);
}

TEST_F(io_uring, multishot_recv_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, multishot_recv, &inline_style));
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, multishot_recv, &deferred_style));
}

/* Several buffers for one receive, and for one send. */
static void bundles(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	struct buffers buffers;
	struct io_uring_sqe sqe;
	struct ring ring;
	char text[64];
	int fd[2];

	if (ring_open(&ring, 0) || buffers_open(&ring, &buffers) || smc_pair(ends, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}
	smc_fill(text, sizeof(text), 1, 0);
	for (int waits = 0; waits < 2; waits++) {
		for (int i = 0; i < 4; i++)
			buffers_add(&buffers, i);
		if (!waits)
			smc_note_result(notes, "send", send(fd[0], text, 40, 0));
		smc_settle(fd);
		sqe = request(IORING_OP_RECV, fd[1], NULL, 0, 1);
		sqe.ioprio = IORING_RECVSEND_BUNDLE;
		sqe.flags = IOSQE_BUFFER_SELECT;
		sqe.buf_group = 1;
		start(&ring, sqe);
		if (waits) {
			note_waiting(notes, &ring, "recv", 1);
			smc_note_result(notes, "send", send(fd[0], text, 40, 0));
		}
		note_done(notes, &ring, "recv", 1);
		while (recv(fd[1], text, sizeof(text), MSG_DONTWAIT) > 0)
			;
		sqe.fd = fd[0];
		sqe.opcode = IORING_OP_SEND;
		note_request(notes, &ring, "send", sqe);
		smc_settle(fd);
		smc_note_result(notes, "recv", recv(fd[1], text, sizeof(text), MSG_DONTWAIT));
	}
	smc_close_pair(fd);
	ring_close(&ring);
	munmap(buffers.ring, 4096);
}

TEST_F(io_uring, bundles_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, bundles, NULL));
}

static void polls(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const unsigned int all = POLLIN | POLLPRI | POLLRDHUP | POLLRDNORM;
	const struct style *style = arg;
	struct sockaddr_storage addr;
	int fd[2], listener;
	struct ring ring;
	socklen_t len;
	char buf[64];

	listener = smc_listen(ends, 8, &addr, &len);
	if (listener < 0 || ring_open(&ring, style->setup)) {
		smc_note(notes, " cannot begin");
		return;
	}

	/* A socket without connection, a listener. */
	fd[0] = smc_socket(&ends->client, 0);
	note_request(notes, &ring, "fresh", poll_for(fd[0], all | POLLOUT, false, 1));
	close(fd[0]);
	start(&ring, poll_for(listener, all, true, 2));
	note_waiting(notes, &ring, "listener", 2);
	fd[0] = smc_connect(ends, &addr, len);
	note_done(notes, &ring, "listener", 2);
	note_waiting(notes, &ring, "listener", 2);
	fd[1] = smc_accept(listener);
	note_waiting(notes, &ring, "listener", 2);

	/* Once. */
	note_request(notes, &ring, "out", poll_for(fd[1], POLLOUT, false, 3));
	start(&ring, poll_for(fd[1], all, false, 4));
	note_waiting(notes, &ring, "in", 4);
	send(fd[0], "once", 4, 0);
	note_done(notes, &ring, "in", 4);
	recv(fd[1], buf, sizeof(buf), 0);

	/* Again and again. */
	start(&ring, poll_for(fd[1], all, true, 5));
	for (int i = 0; i < 3; i++) {
		note_waiting(notes, &ring, "multi", 5);
		send(fd[0], "again", 5, 0);
		note_done(notes, &ring, "multi", 5);
		if (i)
			recv(fd[1], buf, sizeof(buf), 0);
	}
	note_request(notes, &ring, "cancel", cancel(6, 5));
	note_done(notes, &ring, "multi", 5);
	start(&ring, poll_for(fd[1], POLLPRI, false, 9));
	note_waiting(notes, &ring, "urgent", 9);
	send(fd[0], "!", 1, MSG_OOB);
	smc_poll(fd[1], POLLPRI, SMC_TIMEOUT_MS);
	/* What wakes a poller here does not mention urgent data. */
	note_waiting(notes, &ring, "urgent", 9);
	recv(fd[1], buf, sizeof(buf), MSG_OOB);

	/* The end and a reset. */
	start(&ring, poll_for(fd[1], POLLRDHUP, false, 7));
	note_waiting(notes, &ring, "rdhup", 7);
	shutdown(fd[0], SHUT_WR);
	note_done(notes, &ring, "rdhup", 7);
	smc_close_pair(fd);
	if (smc_pair(ends, fd))
		return;
	start(&ring, poll_for(fd[1], 0, false, 8));
	note_waiting(notes, &ring, "hup", 8);
	smc_set_linger(fd[0], 0);
	close(fd[0]);
	fd[0] = -1;
	note_done(notes, &ring, "hup", 8);
	smc_close_pair(fd);
	shutdown(listener, SHUT_RDWR);
	note_done(notes, &ring, "listener", 2);
	close(listener);
	ring_close(&ring);
}

TEST_F(io_uring, polls_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, polls, &inline_style));
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, polls, &deferred_style));
}

/* Room, once there is none. */
static void poll_for_room(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static char buf[1 << 16];
	struct ring ring;
	int fd[2];

	if (ring_open(&ring, 0) || smc_pair(ends, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}
	while (send(fd[0], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	smc_settle(fd);
	start(&ring, poll_for(fd[0], POLLOUT, true, 1));
	note_waiting(notes, &ring, "out", 1);
	while (recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		smc_settle(fd);
	note_done(notes, &ring, "out", 1);
	smc_close_pair(fd);
	note_request(notes, &ring, "cancel", cancel(2, 1));
	ring_close(&ring);
}

TEST_F(io_uring, poll_for_room_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, poll_for_room, NULL));
}

/* A time limit for the request before it in the queue. */
static struct io_uring_sqe limit(const struct __kernel_timespec *ts, uint64_t id)
{
	return request(IORING_OP_LINK_TIMEOUT, -1, ts, 1, id);
}

static void cancels(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	const struct __kernel_timespec soon = { .tv_nsec = 20000000 };
	const struct __kernel_timespec late = { .tv_sec = 60 };
	const struct style *style = arg;
	static char big[32 << 20];
	struct sockaddr_storage addr;
	struct io_uring_sqe sqe;
	struct io_uring_cqe cqe;
	int fd[2], listener;
	struct ring ring;
	socklen_t len;
	char buf[64];

	listener = smc_listen(ends, 8, &addr, &len);
	if (listener < 0 || ring_open(&ring, style->setup) ||
	    smc_pair_from(ends, listener, &addr, len, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}

	/* By request. */
	sqe = request(IORING_OP_RECV, fd[1], buf, sizeof(buf), 1);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "recv", 1);
	note_request(notes, &ring, "cancel", cancel(2, 77));
	start(&ring, cancel(2, 1));
	ring_wait(&ring, 2, &cqe, SMC_TIMEOUT_MS);
	note_done(notes, &ring, "recv", 1);
	sqe = request(IORING_OP_ACCEPT, listener, NULL, 0, 3);
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "accept", 3);
	start(&ring, cancel(2, 3));
	ring_wait(&ring, 2, &cqe, SMC_TIMEOUT_MS);
	note_done(notes, &ring, "accept", 3);
	start(&ring, poll_for(fd[1], POLLIN, true, 4));
	note_waiting(notes, &ring, "poll", 4);
	note_request(notes, &ring, "cancel", cancel(2, 4));
	note_done(notes, &ring, "poll", 4);

	/* By descriptor, all there are. */
	for (int i = 0; i < 3; i++)
		start(&ring, request(IORING_OP_RECV, fd[1], buf, sizeof(buf), 10 + i));
	sqe = request(IORING_OP_ASYNC_CANCEL, fd[1], NULL, 0, 5);
	sqe.cancel_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
	note_request(notes, &ring, "cancel-all", sqe);
	for (int i = 0; i < 3; i++)
		note_done(notes, &ring, "recv", 10 + i);

	/* What a worker tells of a request that ends in its middle is a matter of luck. */
	if (style->sqe_flags & IOSQE_ASYNC)
		goto out;

	/* By time, and not by time. */
	sqe = request(IORING_OP_RECV, fd[1], buf, sizeof(buf), 6);
	sqe.flags = style->sqe_flags | IOSQE_IO_LINK;
	ring_queue(&ring, sqe);
	start(&ring, limit(&soon, 7));
	note_done(notes, &ring, "recv", 6);
	note_done(notes, &ring, "limit", 7);
	ring_queue(&ring, sqe);
	start(&ring, limit(&late, 7));
	note_waiting(notes, &ring, "recv", 6);
	send(fd[0], "in time", 7, 0);
	note_done(notes, &ring, "recv", 6);
	note_done(notes, &ring, "limit", 7);
	sqe = request(IORING_OP_ACCEPT, listener, NULL, 0, 6);
	sqe.flags = style->sqe_flags | IOSQE_IO_LINK;
	ring_queue(&ring, sqe);
	start(&ring, limit(&soon, 7));
	note_done(notes, &ring, "accept", 6);
	note_done(notes, &ring, "limit", 7);

	/* A part of MSG_WAITALL has come; a part of a large send has gone. */
	sqe = request(IORING_OP_RECV, fd[1], buf, 10, 8);
	sqe.msg_flags = MSG_WAITALL;
	sqe.flags = style->sqe_flags;
	send(fd[0], "part", 4, 0);
	smc_settle(fd);
	start(&ring, sqe);
	note_waiting(notes, &ring, "waitall", 8);
	start(&ring, cancel(2, 8));
	ring_wait(&ring, 2, &cqe, SMC_TIMEOUT_MS);
	note_done(notes, &ring, "waitall", 8);
	sqe = request(IORING_OP_SEND, fd[0], big, sizeof(big), 9);
	sqe.msg_flags = MSG_WAITALL;
	sqe.flags = style->sqe_flags;
	start(&ring, sqe);
	note_waiting(notes, &ring, "send", 9);
	smc_poll(fd[1], POLLIN, SMC_TIMEOUT_MS);
	smc_settle(fd);
	start(&ring, cancel(2, 9));
	ring_wait(&ring, 2, &cqe, SMC_TIMEOUT_MS);
	if (ring_wait(&ring, 9, &cqe, SMC_TIMEOUT_MS) && cqe.res > 0 && cqe.res < sizeof(big)) {
		size_t left = cqe.res;

		while (left > 0) {
			ssize_t ret = recv(fd[1], big, left, 0);

			if (ret <= 0)
				break;
			left -= ret;
		}
		smc_note(notes, " send=part left=%zu exchange=%d", left,
			 smc_exchange(fd[0], fd[1], 2));
	} else {
		smc_note(notes, " send=%d", cqe.res);
	}
out:
	smc_close_pair(fd);
	smc_note(notes, " pair=%d", smc_pair_from(ends, listener, &addr, len, fd));
	smc_close_pair(fd);
	close(listener);
	ring_close(&ring);
}

TEST_F(io_uring, cancels_as_on_tcp)
{
	EXPECT_TRUE(same_in_each_style(variant->ends, cancels));
}

static void zero_copy(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	static char data[1 << 16];
	struct iovec iov = { data, sizeof(data) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct io_uring_sqe sqe;
	struct ring ring;
	int fd[2];

	if (ring_open(&ring, 0) || smc_pair(ends, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}
	smc_fill(data, sizeof(data), 3, 0);
	smc_note(notes, " register=%d", ring_register(&ring, IORING_REGISTER_BUFFERS, &iov, 1));
	for (int i = 0; i < 4; i++) {
		sqe = request(IORING_OP_SEND_ZC, fd[0], data, i % 2 ? sizeof(data) : 100, 1);
		sqe.msg_flags = MSG_WAITALL;
		sqe.ioprio = IORING_SEND_ZC_REPORT_USAGE;
		if (i >= 2)
			sqe.ioprio |= IORING_RECVSEND_FIXED_BUF;
		start(&ring, sqe);
		note_done(notes, &ring, "send_zc", 1);
		smc_note(notes, " recv=%d",
			 smc_recv_all(fd[1], 3, 0, i % 2 ? sizeof(data) : 100, 5000));
		note_done(notes, &ring, "notif", 1);
	}
	sqe = request(IORING_OP_SENDMSG_ZC, fd[0], &msg, 1, 2);
	sqe.msg_flags = MSG_WAITALL;
	start(&ring, sqe);
	note_done(notes, &ring, "sendmsg_zc", 2);
	smc_note(notes, " recv=%d", smc_recv_all(fd[1], 3, 0, sizeof(data), 5000));
	note_done(notes, &ring, "notif", 2);
	note_request(notes, &ring, "read_fixed", ({
		send(fd[0], "fixed", 5, 0);
		smc_settle(fd);
		request(IORING_OP_READ_FIXED, fd[1], data, 100, 3);
	}));
	note_request(notes, &ring, "write_fixed",
		     request(IORING_OP_WRITE_FIXED, fd[1], data, 100, 3));
	shutdown(fd[0], SHUT_WR);
	note_request(notes, &ring, "send_zc", request(IORING_OP_SEND_ZC, fd[0], data, 10, 4));
	smc_close_pair(fd);
	ring_close(&ring);
}

TEST_F(io_uring, zero_copy_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, zero_copy, NULL));
}

static struct io_uring_sqe command(int fd, unsigned int op, int level, int name, void *value,
				   uint64_t id)
{
	struct io_uring_sqe sqe = { .opcode = IORING_OP_URING_CMD, .fd = fd, .user_data = id };

	sqe.cmd_op = op;
	sqe.level = level;
	sqe.optname = name;
	sqe.optval = (uintptr_t)value;
	sqe.optlen = value ? sizeof(int) : 0;
	return sqe;
}

static void commands(const struct smc_ends *ends, struct smc_notes *notes, const void *arg)
{
	int value = 1, listener, fd[2];
	struct sockaddr_storage addr;
	struct ring ring;
	socklen_t len;

	listener = smc_listen(ends, 8, &addr, &len);
	if (listener < 0 || ring_open(&ring, 0) || smc_pair_from(ends, listener, &addr, len, fd)) {
		smc_note(notes, " cannot begin");
		return;
	}
	note_request(notes, &ring, "inq", command(fd[1], SOCKET_URING_OP_SIOCINQ, 0, 0, NULL, 1));
	send(fd[0], "12345", 5, 0);
	smc_settle(fd);
	note_request(notes, &ring, "inq", command(fd[1], SOCKET_URING_OP_SIOCINQ, 0, 0, NULL, 1));
	note_request(notes, &ring, "outq", command(fd[0], SOCKET_URING_OP_SIOCOUTQ, 0, 0, NULL, 1));
	note_request(notes, &ring, "listener-inq",
		     command(listener, SOCKET_URING_OP_SIOCINQ, 0, 0, NULL, 1));
	note_request(notes, &ring, "listener-outq",
		     command(listener, SOCKET_URING_OP_SIOCOUTQ, 0, 0, NULL, 1));
	note_request(notes, &ring, "set", command(fd[0], SOCKET_URING_OP_SETSOCKOPT, IPPROTO_TCP,
						   TCP_NODELAY, &value, 2));
	value = 3;
	note_request(notes, &ring, "set", command(fd[0], SOCKET_URING_OP_SETSOCKOPT, SOL_SOCKET,
						   SO_RCVLOWAT, &value, 2));
	value = 0;
	note_request(notes, &ring, "get", command(fd[0], SOCKET_URING_OP_GETSOCKOPT, SOL_SOCKET,
						   SO_RCVLOWAT, &value, 3));
	smc_note(notes, " value=%d", value);
	note_request(notes, &ring, "get", command(fd[0], SOCKET_URING_OP_GETSOCKOPT, IPPROTO_TCP,
						   TCP_NODELAY, &value, 3));
	note_request(notes, &ring, "get", command(fd[0], SOCKET_URING_OP_GETSOCKOPT, SOL_SOCKET,
						   SO_ERROR, &value, 3));
	smc_close_pair(fd);
	fd[0] = smc_socket(&ends->client, 0);
	note_request(notes, &ring, "fresh-inq",
		     command(fd[0], SOCKET_URING_OP_SIOCINQ, 0, 0, NULL, 1));
	close(fd[0]);
	close(listener);
	ring_close(&ring);
}

TEST_F(io_uring, commands_as_on_tcp)
{
	EXPECT_TRUE(smc_same_as_tcp(variant->ends, commands, NULL));
}

/* A registered file is a reference: the connection ends with the last one. */
TEST_F(io_uring, registered_files_keep_a_connection)
{
	struct io_uring_sqe sqe;
	struct io_uring_cqe cqe;
	struct ring ring;
	char byte;

	ASSERT_EQ(0, ring_open(&ring, 0));
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
	ASSERT_EQ(0, ring_register(&ring, IORING_REGISTER_FILES, self->fd, 1));
	close(self->fd[0]);
	self->fd[0] = -1;
	EXPECT_EQ(-1, recv(self->fd[1], &byte, 1, MSG_DONTWAIT));
	EXPECT_EQ(EAGAIN, errno);
	sqe = request(IORING_OP_SEND, 0, "x", 1, 1);
	sqe.flags = IOSQE_FIXED_FILE;
	start(&ring, sqe);
	ASSERT_TRUE(ring_wait(&ring, 1, &cqe, SMC_TIMEOUT_MS));
	EXPECT_EQ(1, cqe.res);
	EXPECT_EQ(1, recv(self->fd[1], &byte, 1, 0));
	EXPECT_EQ(0, ring_register(&ring, IORING_UNREGISTER_FILES, NULL, 0));
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	ring_close(&ring);
}

/* Whatever waits holds the file only as long as the ring is there. */
TEST_F(io_uring, a_ring_that_goes_lets_go)
{
	struct sockaddr_storage addr;
	int status, listener;
	socklen_t len;
	pid_t child;

	listener = smc_listen(variant->ends, 8, &addr, &len);
	ASSERT_LE(0, listener);
	ASSERT_EQ(0, smc_pair_from(variant->ends, listener, &addr, len, self->fd));
	for (int killed = 0; killed < 2; killed++) {
		child = fork();
		ASSERT_LE(0, child);
		if (!child) {
			struct io_uring_sqe sqe;
			struct ring ring;
			char buf[64];

			if (ring_open(&ring, 0))
				_exit(1);
			ring_queue(&ring, request(IORING_OP_RECV, self->fd[1], buf, sizeof(buf), 1));
			sqe = request(IORING_OP_RECV, self->fd[1], buf, sizeof(buf), 2);
			sqe.flags = IOSQE_ASYNC;
			ring_queue(&ring, sqe);
			ring_queue(&ring, accept_many(listener, 3));
			ring_queue(&ring, poll_for(self->fd[1], POLLIN, true, 4));
			if (ring_submit(&ring))
				_exit(1);
			if (killed)
				raise(SIGKILL);
			_exit(0);
		}
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(killed, WIFSIGNALED(status));
		if (!killed)
			EXPECT_EQ(0, WEXITSTATUS(status));
		EXPECT_EQ(0, smc_exchange(self->fd[0], self->fd[1], killed));
	}
	close(self->fd[0]);
	self->fd[0] = -1;
	EXPECT_EQ(0, smc_recv_eof(self->fd[1]));
	close(listener);
}

#define LINKS		16

/*
 * One ring drives both ends of many connections: each byte that arrives is sent
 * back, by whichever end it arrived at. Nothing else would wake the ring.
 */
static int drive(const struct smc_ends *ends, unsigned int setup, uint8_t sqe_flags, long rounds)
{
	static char bytes[2 * LINKS];
	int fd[2 * LINKS], result = 0;
	struct io_uring_cqe cqe;
	struct sockaddr_storage addr;
	long left[LINKS];
	int listener, live = 0;
	struct ring ring;
	socklen_t len;

	listener = smc_listen(ends, LINKS, &addr, &len);
	if (listener < 0 || ring_open(&ring, setup))
		return -EINVAL;
	for (int i = 0; i < LINKS; i++) {
		struct io_uring_sqe sqe;

		if (smc_pair_from(ends, listener, &addr, len, &fd[2 * i]))
			return -EINVAL;
		left[i] = rounds;
		live++;
		for (int end = 0; end < 2; end++) {
			sqe = request(IORING_OP_RECV, fd[2 * i + end], &bytes[2 * i + end], 1,
				      2 * (2 * i + end) + 2);
			sqe.flags = sqe_flags;
			ring_queue(&ring, sqe);
		}
		sqe = request(IORING_OP_SEND, fd[2 * i], "a", 1, 2 * (2 * i) + 3);
		sqe.flags = sqe_flags;
		ring_queue(&ring, sqe);
		if (ring_submit(&ring))
			return -EINVAL;
	}
	while (live && !result) {
		struct io_uring_sqe sqe;
		int end;

		if (ring.queued && ring_submit(&ring)) {
			result = -EIO;
			break;
		}
		if (!ring_wait(&ring, 0, &cqe, SMC_TIMEOUT_MS)) {
			result = -ETIMEDOUT;
			break;
		}
		if (cqe.res != 1) {
			result = cqe.res < 0 ? cqe.res : -EILSEQ;
			break;
		}
		if (cqe.user_data & 1)
			continue;
		end = cqe.user_data / 2 - 1;
		if (!--left[end / 2]) {
			live--;
			continue;
		}
		sqe = request(IORING_OP_RECV, fd[end], &bytes[end], 1, 2 * end + 2);
		sqe.flags = sqe_flags;
		ring_queue(&ring, sqe);
		sqe = request(IORING_OP_SEND, fd[end], "b", 1, 2 * end + 3);
		sqe.flags = sqe_flags;
		ring_queue(&ring, sqe);
	}
	ring_close(&ring);
	for (int i = 0; i < 2 * LINKS; i++)
		close(fd[i]);
	close(listener);
	return result;
}

TEST_F(io_uring, loses_no_completion)
{
	long rounds = smc_parameter("SMC_TEST_ROUNDS", 200);

	EXPECT_EQ(0, drive(variant->ends, 0, 0, rounds));
	EXPECT_EQ(0, drive(variant->ends, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
			   0, rounds));
	EXPECT_EQ(0, drive(variant->ends, 0, IOSQE_ASYNC, rounds / 10));
	EXPECT_EQ(0, drive(variant->ends, IORING_SETUP_SQPOLL, 0, rounds / 10));
}

TEST_HARNESS_MAIN
