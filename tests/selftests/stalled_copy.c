// SPDX-License-Identifier: GPL-2.0
/*
 * A copy from or to memory that nobody provides stalls one call and no other.
 *
 * The memory is watched with userfaultfd, so a call on it stands still in the
 * middle for as long as the test likes. TCP holds its socket lock over its
 * copies and is no oracle here: only SMC-D connections are looked at.
 *
 * 1. While a send stands still: options, poll, names, diag, close of another
 *    descriptor, both ends' calls in the other direction, shutdown. After a
 *    shutdown the peer sees the end, and nothing of the send comes behind it.
 * 2. While a recv stands still: the same, and the peer sends and closes.
 * 3. Both at once in one direction: the other one works.
 * 4. The peer of a send that stands still closes; a process is killed in it.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/userfaultfd.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "smc_test.h"

#define PAGE		4096
#define LENGTH		(2 * PAGE)
#define SEED		19

/* A call on memory whose second page is missing until stall_end(). */
struct stall {
	int uffd;
	char *memory;
	int fd;
	bool sends;
	ssize_t result;
	int error;
	pthread_t thread;
};

static void *stalled_call(void *arg)
{
	struct stall *stall = arg;

	stall->result = stall->sends ? send(stall->fd, stall->memory, LENGTH, MSG_NOSIGNAL) :
				       recv(stall->fd, stall->memory, LENGTH, 0);
	stall->error = errno;
	return NULL;
}

/* Memory whose second page is missing; the bytes of a send are in the first. */
static int stall_prepare(struct stall *stall, int fd, bool sends)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };

	stall->fd = fd;
	stall->sends = sends;
	stall->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (stall->uffd < 0 || ioctl(stall->uffd, UFFDIO_API, &api))
		return -errno;
	stall->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	if (stall->memory == MAP_FAILED)
		return -errno;
	smc_fill(stall->memory, PAGE, SEED, 0);
	reg.range.start = (uintptr_t)stall->memory + PAGE;
	reg.range.len = PAGE;
	return ioctl(stall->uffd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

/* Returns when somebody has touched the missing page: poll() tells only what does not block. */
static int stall_await(struct stall *stall)
{
	struct pollfd pfd = { .fd = stall->uffd, .events = POLLIN };

	if (poll(&pfd, 1, SMC_TIMEOUT_MS) != 1)
		return -ETIMEDOUT;
	return pfd.revents == POLLIN ? 0 : -EIO;
}

static int stall_begin(struct stall *stall, int fd, bool sends)
{
	int ret = stall_prepare(stall, fd, sends);

	if (!ret)
		ret = -pthread_create(&stall->thread, NULL, stalled_call, stall);
	return ret ? ret : stall_await(stall);
}

/* Provides the page, and waits for the call. */
static int stall_end(struct stall *stall)
{
	char page[PAGE];
	struct uffdio_copy copy = {
		.dst = (uintptr_t)stall->memory + PAGE,
		.src = (uintptr_t)page,
		.len = PAGE,
	};

	smc_fill(page, PAGE, SEED, PAGE);
	if (ioctl(stall->uffd, UFFDIO_COPY, &copy))
		return -errno;
	return -pthread_join(stall->thread, NULL);
}

static void stall_free(struct stall *stall)
{
	munmap(stall->memory, LENGTH);
	close(stall->uffd);
}

/* Something that must return although the copy stands still. */
struct bystander {
	int (*call)(int fd);
	int fd;
	int result;
};

static void *run_bystander(void *arg)
{
	struct bystander *bystander = arg;

	bystander->result = bystander->call(bystander->fd);
	return NULL;
}

/* The result of @call in a thread of its own, -ETIMEDOUT if it does not return. */
static int in_time(int (*call)(int fd), int fd)
{
	struct bystander *bystander = calloc(1, sizeof(*bystander));
	struct timespec deadline;
	pthread_t thread;
	int result;

	bystander->call = call;
	bystander->fd = fd;
	if (pthread_create(&thread, NULL, run_bystander, bystander))
		return -EAGAIN;
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += SMC_TIMEOUT_MS / 1000;
	/* A thread that is late writes to its memory yet, which is not freed. */
	if (pthread_timedjoin_np(thread, NULL, &deadline))
		return -ETIMEDOUT;
	result = bystander->result;
	free(bystander);
	return result;
}

/* Options that are read, and that are set. */
static int use_options(int fd)
{
	struct timeval limit = { .tv_sec = 60 };
	int one = 1, size = 100000, zero = 0;
	struct tcp_info info;
	socklen_t len;
	int error;

	len = sizeof(info);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return -errno;
	error = smc_error(fd);
	if (error)
		return -abs(error);
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &zero, sizeof(zero)))
		return -errno;
	return 0;
}

static int ask(int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	int count;

	if (getsockname(fd, (struct sockaddr *)&addr, &len))
		return -errno;
	len = sizeof(addr);
	if (getpeername(fd, (struct sockaddr *)&addr, &len))
		return -errno;
	if (ioctl(fd, SIOCINQ, &count) || ioctl(fd, SIOCOUTQ, &count) ||
	    ioctl(fd, SIOCATMARK, &count))
		return -errno;
	smc_poll(fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0);
	return smc_mode(fd) == SMC_MODE_SMCD ? 0 : -EPROTO;
}

/* A descriptor more and less; the last one is not this one. */
static int close_another(int fd)
{
	int copy = dup(fd);

	return copy < 0 || close(copy) ? -errno : 0;
}

static int send_one(int fd)
{
	return send(fd, "x", 1, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int recv_one(int fd)
{
	char byte;

	return recv(fd, &byte, 1, 0) == 1 ? 0 : -errno;
}

static int recv_nothing(int fd)
{
	char byte;
	ssize_t ret = recv(fd, &byte, 1, MSG_DONTWAIT);

	return ret < 0 && errno == EAGAIN ? 0 : -EILSEQ;
}

/* As much as fits without waiting; all of it the same byte. */
static int send_until_full(int fd)
{
	static const char zeros[1 << 16];
	size_t sent = 0;
	ssize_t ret;

	while ((ret = send(fd, zeros, sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
		sent += ret;
	return errno == EAGAIN ? (int)sent : -errno;
}

static int shut_writing(int fd)
{
	return shutdown(fd, SHUT_WR) ? -errno : 0;
}

static int shut_both(int fd)
{
	return shutdown(fd, SHUT_RDWR) ? -errno : 0;
}

static int close_it(int fd)
{
	return close(fd) ? -errno : 0;
}

FIXTURE(stalled_copy)
{
	int fd[2];
};

FIXTURE_VARIANT(stalled_copy)
{
	const struct smc_ends *ends;
};

FIXTURE_VARIANT_ADD(stalled_copy, smc) { .ends = &smc_ends_smc };
FIXTURE_VARIANT_ADD(stalled_copy, smc6) { .ends = &smc_ends_smc6 };
FIXTURE_VARIANT_ADD(stalled_copy, af_smc) { .ends = &smc_ends_af_smc };

FIXTURE_SETUP(stalled_copy)
{
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	self->fd[0] = -1;
	self->fd[1] = -1;
	if (!smc_can_run(variant->ends))
		SKIP(return, "no SMC in this kernel");
	if (uffd < 0)
		SKIP(return, "no userfaultfd in this kernel");
	close(uffd);
	ASSERT_EQ(0, smc_pair(variant->ends, self->fd));
}

FIXTURE_TEARDOWN(stalled_copy)
{
	smc_close_pair(self->fd);
}

/* What works at both ends whatever stands still at fd[0]. */
static int use_both_ends(const int fd[2])
{
	static int (*const calls[])(int fd) = { use_options, ask, close_another };

	for (int end = 0; end < 2; end++) {
		for (int i = 0; i < ARRAY_SIZE(calls); i++) {
			int ret = in_time(calls[i], fd[end]);

			if (ret) {
				fprintf(stderr, "# call %d at end %d: %s\n", i, end, strerror(-ret));
				return ret;
			}
		}
	}
	return 0;
}

TEST_F(stalled_copy, a_send_holds_up_nothing)
{
	struct stall stall;
	char byte;

	ASSERT_EQ(0, stall_begin(&stall, self->fd[0], true));
	EXPECT_EQ(0, use_both_ends(self->fd));
	EXPECT_EQ(0, in_time(recv_nothing, self->fd[0]));
	EXPECT_EQ(0, in_time(send_one, self->fd[1]));
	EXPECT_EQ(0, in_time(recv_one, self->fd[0]));
	EXPECT_EQ(0, in_time(recv_nothing, self->fd[1]));
	EXPECT_EQ(0, stall_end(&stall));
	EXPECT_EQ(LENGTH, stall.result);
	EXPECT_EQ(0, smc_recv_all(self->fd[1], SEED, 0, LENGTH, LENGTH));
	stall_free(&stall);

	/* Nothing comes behind the end. */
	ASSERT_EQ(0, stall_begin(&stall, self->fd[0], true));
	EXPECT_EQ(0, in_time(shut_writing, self->fd[0]));
	EXPECT_EQ(0, in_time(smc_recv_eof, self->fd[1]));
	EXPECT_EQ(0, in_time(send_one, self->fd[1]));
	EXPECT_EQ(0, in_time(recv_one, self->fd[0]));
	EXPECT_EQ(0, stall_end(&stall));
	EXPECT_EQ(-1, stall.result);
	EXPECT_EQ(EPIPE, stall.error);
	EXPECT_EQ(0, recv(self->fd[1], &byte, 1, MSG_DONTWAIT));
	stall_free(&stall);
}

TEST_F(stalled_copy, a_recv_holds_up_nothing)
{
	struct stall stall;
	int more;

	ASSERT_EQ(0, smc_send_all(self->fd[1], SEED, 0, LENGTH, LENGTH));
	ASSERT_EQ(0, stall_begin(&stall, self->fd[0], false));
	EXPECT_EQ(0, use_both_ends(self->fd));
	EXPECT_EQ(0, in_time(send_one, self->fd[0]));
	EXPECT_EQ(0, in_time(recv_one, self->fd[1]));
	EXPECT_EQ(0, in_time(recv_nothing, self->fd[1]));
	more = in_time(send_until_full, self->fd[1]);
	EXPECT_LT(0, more);
	EXPECT_EQ(0, in_time(shut_writing, self->fd[1]));
	EXPECT_EQ(0, in_time(shut_both, self->fd[0]));
	EXPECT_EQ(0, in_time(smc_recv_eof, self->fd[1]));
	EXPECT_EQ(0, stall_end(&stall));
	EXPECT_EQ(LENGTH, stall.result);
	EXPECT_EQ(-1, smc_find_wrong(stall.memory, LENGTH, SEED, 0));
	/* What had been sent before the end stays readable. */
	while (more > 0) {
		static char buf[1 << 16];
		ssize_t ret = recv(self->fd[0], buf, sizeof(buf), 0);

		ASSERT_LT(0, ret);
		more -= ret;
	}
	EXPECT_EQ(0, more);
	EXPECT_EQ(0, smc_recv_eof(self->fd[0]));
	stall_free(&stall);
}

/* The peer goes while a recv stands still: what it sent is there. */
TEST_F(stalled_copy, a_recv_lets_its_peer_close)
{
	struct stall stall;

	ASSERT_EQ(0, smc_send_all(self->fd[1], SEED, 0, LENGTH, LENGTH));
	ASSERT_EQ(0, stall_begin(&stall, self->fd[0], false));
	EXPECT_EQ(0, in_time(close_it, self->fd[1]));
	self->fd[1] = -1;
	EXPECT_EQ(0, in_time(use_options, self->fd[0]));
	EXPECT_EQ(0, in_time(close_another, self->fd[0]));
	EXPECT_TRUE(smc_poll(self->fd[0], POLLRDHUP, SMC_TIMEOUT_MS) & POLLRDHUP);
	EXPECT_EQ(0, stall_end(&stall));
	EXPECT_EQ(LENGTH, stall.result);
	EXPECT_EQ(-1, smc_find_wrong(stall.memory, LENGTH, SEED, 0));
	EXPECT_EQ(0, smc_recv_eof(self->fd[0]));
	stall_free(&stall);
}

TEST_F(stalled_copy, a_send_lets_its_peer_close)
{
	struct stall stall;

	ASSERT_EQ(0, stall_begin(&stall, self->fd[0], true));
	EXPECT_EQ(0, in_time(close_it, self->fd[1]));
	self->fd[1] = -1;
	EXPECT_EQ(0, in_time(use_options, self->fd[0]));
	EXPECT_EQ(0, in_time(smc_recv_eof, self->fd[0]));
	EXPECT_EQ(0, in_time(close_another, self->fd[0]));
	EXPECT_EQ(0, stall_end(&stall));
	/* As the first send after the peer's close: taken, and answered by a reset. */
	EXPECT_EQ(LENGTH, stall.result);
	EXPECT_EQ(-1, send(self->fd[0], "x", 1, MSG_NOSIGNAL));
	EXPECT_EQ(EPIPE, errno);
	stall_free(&stall);
}

/* A sender and a reader of one direction, each in its copy. */
TEST_F(stalled_copy, both_ends_of_a_direction)
{
	struct stall out, in;

	ASSERT_EQ(0, smc_send_all(self->fd[0], SEED, 0, LENGTH, LENGTH));
	ASSERT_EQ(0, stall_begin(&in, self->fd[1], false));
	ASSERT_EQ(0, stall_begin(&out, self->fd[0], true));
	EXPECT_EQ(0, use_both_ends(self->fd));
	EXPECT_EQ(0, in_time(send_one, self->fd[1]));
	EXPECT_EQ(0, in_time(recv_one, self->fd[0]));
	EXPECT_EQ(0, stall_end(&out));
	EXPECT_EQ(LENGTH, out.result);
	EXPECT_EQ(0, use_both_ends(self->fd));
	EXPECT_EQ(0, stall_end(&in));
	EXPECT_EQ(LENGTH, in.result);
	EXPECT_EQ(-1, smc_find_wrong(in.memory, LENGTH, SEED, 0));
	EXPECT_EQ(0, smc_recv_all(self->fd[1], SEED, 0, LENGTH, LENGTH));
	EXPECT_EQ(0, smc_exchange(self->fd[0], self->fd[1], 1));
	stall_free(&out);
	stall_free(&in);
}

/* A process that is killed in its copy goes at once, and its peer sees the end. */
static void kill_in_copy(struct __test_metadata *_metadata, int fd[2], bool sends)
{
	int ready[2], status;
	pid_t child;
	char byte;

	if (!sends)
		ASSERT_EQ(0, smc_send_all(fd[1], SEED, 0, LENGTH, LENGTH));
	ASSERT_EQ(0, pipe(ready));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		struct stall stall;

		close(fd[1]);
		if (stall_begin(&stall, fd[0], sends))
			_exit(1);
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		pause();
	}
	close(fd[0]);
	fd[0] = -1;
	close(ready[1]);
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	close(ready[0]);
	EXPECT_EQ(0, in_time(use_options, fd[1]));
	EXPECT_EQ(0, kill(child, SIGKILL));
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_TRUE(smc_poll(fd[1], POLLRDHUP, SMC_TIMEOUT_MS) & POLLRDHUP);
	if (sends) {
		char buf[LENGTH];
		ssize_t got, all = 0;

		/* A part may have gone; it is the first one. */
		while ((got = recv(fd[1], buf + all, sizeof(buf) - all, 0)) > 0)
			all += got;
		EXPECT_EQ(0, got);
		EXPECT_EQ(-1, smc_find_wrong(buf, all, SEED, 0));
	}
}

TEST_F(stalled_copy, a_kill_ends_a_send)
{
	kill_in_copy(_metadata, self->fd, true);
}

TEST_F(stalled_copy, a_kill_ends_a_recv)
{
	kill_in_copy(_metadata, self->fd, false);
}

TEST_HARNESS_MAIN
