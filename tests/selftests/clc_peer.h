/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A peer that speaks the CLC handshake by hand: a TCP endpoint in user space,
 * behind a TUN device, that sets or echoes the SMC option in its SYN and then
 * sends any bytes. The kernel under test takes it for a remote host.
 *
 * Functions return 0 or a count on success and a negative errno on failure,
 * after a line on standard error that says what went wrong.
 */

#ifndef CLC_PEER_H
#define CLC_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/types.h>

/* The address of the kernel's end of the device, and of the peer. */
#define CLC_KERNEL	"10.9.0.1"
#define CLC_PEER	"10.9.0.2"

/* What the peer's SYN or SYN-ACK says. */
enum clc_option {
	CLC_PLAIN,	/* nothing of SMC */
	CLC_SMC,	/* the SMC option */
	CLC_ECHO,	/* SYN-ACK: the SMC option if the SYN has it, as an echo would */
};

/* How the kernel ended the connection. */
enum clc_end {
	CLC_OPEN,
	CLC_FIN,
	CLC_RST,
};

struct clc_peer {
	int tun;
	uint16_t port;		/* of the peer */
	uint16_t kernel_port;
	uint32_t snd_nxt;
	uint32_t rcv_nxt;
	bool acked;		/* the kernel's SYN-ACK, or ACK of ours, has come */
	bool smc;		/* the kernel's SYN or SYN-ACK had the SMC option */
	enum clc_end end;
	size_t len;		/* bytes received and not yet read */
	uint8_t in[16384];
};

/* Whether the kernel has code for the option, which it has with CONFIG_SMC=m. */
bool clc_option_known(void);

/* Makes the device in the caller's network namespace, which should be its own. */
int clc_peer_open(struct clc_peer *peer);
void clc_peer_close(struct clc_peer *peer);

/* Three-way handshakes: towards a listener of the kernel, and by a client of it. */
int clc_peer_connect(struct clc_peer *peer, uint16_t port, enum clc_option option);
int clc_peer_accept(struct clc_peer *peer, enum clc_option option);

int clc_peer_send(struct clc_peer *peer, const void *data, size_t len);
/* Waits for len bytes, or for less if the connection ends or time is up. */
ssize_t clc_peer_recv(struct clc_peer *peer, void *data, size_t len, int timeout_ms);
/* Waits for the end of the connection. */
enum clc_end clc_peer_wait_end(struct clc_peer *peer, int timeout_ms);
int clc_peer_fin(struct clc_peer *peer);
int clc_peer_reset(struct clc_peer *peer);

/* A CLC message, at most of 652 bytes here. */
struct clc_msg {
	size_t len;
	uint8_t byte[1024];
};

/*
 * The bytes that are written as hexadecimal digits, xx*n for a byte that
 * repeats, and 'text' without blanks for ASCII.
 */
struct clc_msg clc_join(const char *const part[]);
#define clc_bytes(...)	clc_join((const char *const []){ __VA_ARGS__, NULL })
/* Sets a 16-bit field. */
void clc_set16(struct clc_msg *msg, size_t at, uint16_t value);
int clc_peer_send_msg(struct clc_peer *peer, const struct clc_msg *msg);

/* A proposal of a client with loopback only, on another host, with one EID. */
struct clc_msg clc_proposal(void);
/* A proposal of a client with RDMA, native devices, and IPv6 prefixes as well. */
struct clc_msg clc_proposal_all(void);
/* A proposal of version 1 for RDMA: the address and length of its subnet. */
struct clc_msg clc_proposal_v1(const char *subnet);
/*
 * A proposal with version 2 only: the modes are the lower half of the last byte
 * of the header, and there is an area for SMC-D if there are GIDs.
 */
struct clc_msg clc_proposal_v2(uint8_t modes, const char *eids, const char *gids);
/* The message with other bytes from @at on. */
struct clc_msg clc_change(struct clc_msg msg, size_t at, const char *text);
/* A decline; out of sync sets the first-contact bit. */
struct clc_msg clc_decline(uint32_t reason, bool out_of_sync);
/* An answer of type 2 (accept) or 3 (confirm) that names this GID and EID. */
struct clc_msg clc_accept(uint8_t type, const uint8_t gid[16], const uint8_t eid[32]);

#define CLC_TYPE(msg)		((msg)[4])
#define CLC_DIAGNOSIS(msg)	(((uint32_t)(msg)[16] << 24) | ((msg)[17] << 16) | \
				 ((msg)[18] << 8) | (msg)[19])

#endif /* CLC_PEER_H */
