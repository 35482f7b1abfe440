// SPDX-License-Identifier: GPL-2.0
/*
 * Non-trivial C macros and inline functions, wrapped for Rust as rust/helpers
 * of the kernel does it. One file per header, sorted alphabetically.
 */

#include "folio.c"
#include "inet.c"
#include "net.c"
#include "netlink.c"
#include "sbitmap.c"
#include "sched.c"
#include "sock.c"
#include "sync.c"
#include "tcp.c"
#include "uts.c"
#include "workqueue.c"
