/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A remote host made of a TUN device and a few lines of TCP, which sends any
 * bytes and any options. One connection at a time, in order, no retransmission.
 */

#ifndef TUN_TCP_H
#define TUN_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The kernel's side and the made-up host's side of the device. */
#define TUN_KERNEL	"10.77.0.1"
#define TUN_PEER	"10.77.0.2"

struct tun_tcp {
	int tun;
	uint16_t own_port;
	uint16_t peer_port;
	uint32_t snd_nxt;
	uint32_t rcv_nxt;
	bool smc_option;	/* did the last SYN or SYN-ACK of the kernel carry it? */
	bool got_fin;
	bool got_rst;
};

int tun_open(struct tun_tcp *tcp);
int tun_connect(struct tun_tcp *tcp, uint16_t port, bool smc_option);
int tun_accept(struct tun_tcp *tcp, uint16_t port, bool smc_option);
int tun_send(struct tun_tcp *tcp, const void *data, size_t len);
ssize_t tun_recv(struct tun_tcp *tcp, void *data, size_t len, int timeout_ms);
int tun_fin(struct tun_tcp *tcp);
int tun_rst(struct tun_tcp *tcp);

#endif /* TUN_TCP_H */
