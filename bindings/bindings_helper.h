/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What this module needs of the kernel's headers beyond rust/bindings.
 * Sorted alphabetically.
 */

#include <linux/gfp.h>
#include <asm/ioctls.h>
#include <linux/net.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/splice.h>
#include <net/inet_common.h>
#include <net/inet6_hashtables.h>
#include <net/ipv6.h>
#include <net/protocol.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/transp_v6.h>
#include <uapi/linux/smc.h>
#include <uapi/linux/smc_diag.h>
#include <uapi/linux/tcp.h>

/* `bindgen` gets confused at certain things. */
const gfp_t RUST_CONST_HELPER_SMC_LO_GFP_KERNEL = GFP_KERNEL;
const gfp_t RUST_CONST_HELPER_SMC_LO_GFP_ATOMIC = GFP_ATOMIC;
const long RUST_CONST_HELPER_MAX_SCHEDULE_TIMEOUT = MAX_SCHEDULE_TIMEOUT;
const gfp_t RUST_CONST_HELPER___GFP_COMP = __GFP_COMP;
const gfp_t RUST_CONST_HELPER___GFP_NORETRY = __GFP_NORETRY;
const int RUST_CONST_HELPER_SK_MEM_RECV = SK_MEM_RECV;
const u32 RUST_CONST_HELPER_SOF_TIMESTAMPING_TX_RECORD_MASK = SOF_TIMESTAMPING_TX_RECORD_MASK;
const u32 RUST_CONST_HELPER_SOF_TIMESTAMPING_OPT_ID = SOF_TIMESTAMPING_OPT_ID;
const unsigned int RUST_CONST_HELPER_TCP_ESTABLISHED = TCP_ESTABLISHED;
const unsigned int RUST_CONST_HELPER_TCP_SYN_SENT = TCP_SYN_SENT;
const unsigned int RUST_CONST_HELPER_TCP_SYN_RECV = TCP_SYN_RECV;
const unsigned int RUST_CONST_HELPER_TCP_CLOSE = TCP_CLOSE;
const unsigned int RUST_CONST_HELPER_TCP_LISTEN = TCP_LISTEN;
const unsigned int RUST_CONST_HELPER_WQ_UNBOUND = WQ_UNBOUND;
const unsigned int RUST_CONST_HELPER_SIOCINQ = SIOCINQ;
const unsigned int RUST_CONST_HELPER_SIOCOUTQ = SIOCOUTQ;
const unsigned int RUST_CONST_HELPER_SIOCOUTQNSD = SIOCOUTQNSD;
const unsigned int RUST_CONST_HELPER_SIOCATMARK = SIOCATMARK;
const unsigned int RUST_CONST_HELPER_TCP_ULP = TCP_ULP;
const unsigned int RUST_CONST_HELPER_TCP_DEFER_ACCEPT = TCP_DEFER_ACCEPT;
const unsigned int RUST_CONST_HELPER_TCP_FASTOPEN_CONNECT = TCP_FASTOPEN_CONNECT;
const unsigned int RUST_CONST_HELPER_TCP_INQ = TCP_INQ;
const int RUST_CONST_HELPER_TCP_CM_INQ = TCP_CM_INQ;
