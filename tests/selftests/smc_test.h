/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests share: socket pairs of every variant, the proof of what a
 * connection really is, streams whose every byte is checked, and network
 * namespaces.
 *
 * Functions return 0 or a descriptor on success and a negative errno on
 * failure, after a line on standard error that says what went wrong.
 */

#ifndef SMC_TEST_H
#define SMC_TEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "kselftest.h"

#ifndef AF_SMC
#define AF_SMC		43
#endif
#ifndef IPPROTO_SMC
#define IPPROTO_SMC	256
#endif
#define SMCPROTO_SMC	0
#define SMCPROTO_SMC6	1

/* An upper bound for anything that must happen soon; never a measure. */
#define SMC_TIMEOUT_MS	10000

/* Emulators run debug kernels: the harness's 30 s would be a measure of speed. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	300

/* What sock_diag says of a socket. */
enum smc_mode {
	SMC_MODE_PLAIN = -1,	/* not an SMC socket at all */
	SMC_MODE_SMCR,		/* also: not connected, as C reports it */
	SMC_MODE_FALLBACK,
	SMC_MODE_SMCD,
};

/* Arguments of socket() for one end, and what the end must turn out to be. */
struct smc_end {
	int domain;
	int protocol;
	enum smc_mode mode;
};

/* The two ends of a variant, and the address family they meet in. */
struct smc_ends {
	int family;
	struct smc_end client;
	struct smc_end server;
};

extern const struct smc_ends smc_ends_tcp;
extern const struct smc_ends smc_ends_tcp6;
extern const struct smc_ends smc_ends_smc;
extern const struct smc_ends smc_ends_smc6;
extern const struct smc_ends smc_ends_af_smc;
extern const struct smc_ends smc_ends_af_smc6;
extern const struct smc_ends smc_ends_mixed;
extern const struct smc_ends smc_ends_fallback_client;
extern const struct smc_ends smc_ends_fallback_server;

/* Without SMC in the kernel a test skips; it never passes. */
bool smc_can_run(const struct smc_ends *ends);
bool smc_is_smcd(const struct smc_ends *ends);

/* Sockets. */
int smc_socket(const struct smc_end *end, int flags);
socklen_t smc_loopback(int family, struct sockaddr_storage *addr);
int smc_listen(const struct smc_ends *ends, int backlog,
	       struct sockaddr_storage *addr, socklen_t *len);
int smc_connect(const struct smc_ends *ends, const struct sockaddr_storage *addr,
		socklen_t len);
int smc_accept(int listener);
int smc_pair(const struct smc_ends *ends, int fd[2]);
int smc_pair_from(const struct smc_ends *ends, int listener,
		  const struct sockaddr_storage *addr, socklen_t len, int fd[2]);
void smc_close_pair(int fd[2]);
int smc_set_nonblock(int fd, bool on);
int smc_set_linger(int fd, int seconds);
int smc_error(int fd);
short smc_poll(int fd, short events, int timeout_ms);

/* Proof of the mode. */
struct smc_info {
	enum smc_mode mode;
	uint8_t state;
	uint8_t shutdown;
	uint32_t uid;
	uint64_t inode;
	uint32_t reason;		/* of a fallback; 0 if there is none */
	uint32_t peer_diagnosis;
	bool has_conninfo;
	uint32_t token;
	uint32_t sndbuf_size;
	uint32_t rmbe_size;
	bool has_dmbinfo;
	uint32_t linkid;
	uint64_t dmb_token;
	uint64_t dmb_peer_token;
	int family;
	uint8_t source[16];
	uint8_t dest[16];
	uint16_t source_port;
	uint16_t dest_port;
};

int smc_diag_walk(int (*visit)(const struct smc_info *info, void *arg), void *arg);
int smc_info(int fd, struct smc_info *info);
int smc_mode(int fd);
int smc_check_mode(int fd, enum smc_mode want);
int smc_check_modes(const struct smc_ends *ends, const int fd[2]);
int smc_sockets_in_use(void);
int smc_wait_no_sockets(void);

/* Streams: the byte at each position follows from the seed alone. */
void smc_fill(void *buf, size_t len, uint64_t seed, uint64_t pos);
ssize_t smc_find_wrong(const void *buf, size_t len, uint64_t seed, uint64_t pos);
int smc_send_all(int fd, uint64_t seed, uint64_t pos, uint64_t bytes, size_t chunk);
int smc_recv_all(int fd, uint64_t seed, uint64_t pos, uint64_t bytes, size_t chunk);
int smc_recv_eof(int fd);
int smc_exchange(int a, int b, uint64_t seed);

/* One direction of a stream in a thread of its own. */
struct smc_stream {
	int fd;
	bool sender;
	uint64_t seed;
	uint64_t bytes;
	size_t chunk;
	int result;
	pthread_t thread;
};

int smc_stream_start(struct smc_stream *stream);
int smc_stream_join(struct smc_stream *stream);

/*
 * Notes of what a program saw of its sockets: results, errors, poll masks. A
 * scenario is played on TCP and on the variant, and the notes must be equal.
 */
struct smc_notes {
	char text[16384];
	size_t len;
};

typedef void smc_scenario(const struct smc_ends *ends, struct smc_notes *notes,
			  const void *arg);

void __printf(2, 3) smc_note(struct smc_notes *notes, const char *format, ...);
void smc_note_result(struct smc_notes *notes, const char *call, ssize_t result);
void smc_note_poll(struct smc_notes *notes, int fd);
void smc_settle(const int fd[2]);
bool smc_same_as_tcp(const struct smc_ends *ends, smc_scenario *scenario,
		     const void *arg);

/* Threads that are meant to sleep. */
pid_t smc_thread_id(void);
int smc_wait_asleep(pid_t tid);
int smc_wait_process_asleep(pid_t pid);

/* A number from the environment, so that a runner can ask for longer runs. */
long smc_parameter(const char *name, long otherwise);

/* How many TCP sockets of this namespace are in @state, of all but listeners if that is 0. */
int smc_count_tcp(unsigned int state);

/* Whether connections end without a packet. */
#define SMC_QUIET_CLOSE	"/proc/sys/net/smc/quiet_close"

/* Network namespaces. */
int smc_netns_new(void);
int smc_netns_open(void);
int smc_netns_enter(int ns);
int smc_set_sysctl(const char *path, const char *text);
int smc_allow_refusals(void);

#endif /* SMC_TEST_H */
