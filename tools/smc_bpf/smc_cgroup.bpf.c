// SPDX-License-Identifier: GPL-2.0
/*
 * Makes SMC sockets of the TCP sockets that tasks in chosen cgroups open.
 *
 * The kernel asks what is attached to update_socket_protocol() for the protocol
 * of every new socket, before it is made. The program answers IPPROTO_SMC for a
 * TCP stream socket if the task's cgroup (version 2), or one above it, is in the
 * map "cgroups". It needs no header but the kernel's uapi.
 */

#include <linux/bpf.h>
#include <linux/in.h>

#define __section(name)	__attribute((section(name)))

#define AF_INET		2
#define AF_INET6	10
#define SOCK_STREAM	1
#define SOCK_TYPE_MASK	0xf
#ifndef IPPROTO_SMC
#define IPPROTO_SMC	256
#endif

/* How deep a cgroup may lie for its ancestors to be looked at. */
#define MAX_LEVEL	64

/* The chosen cgroups, by their ids: the inode numbers of their directories. */
struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[65536];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	__u64 *key;
	__u8 *value;
} cgroups __section(".maps");

static void *(*const map_lookup_elem)(void *map, const void *key) =
	(void *)BPF_FUNC_map_lookup_elem;
static __u64 (*const get_current_ancestor_cgroup_id)(int level) =
	(void *)BPF_FUNC_get_current_ancestor_cgroup_id;

/* update_socket_protocol(family, type, protocol), each argument a word. */
__section("fmod_ret/update_socket_protocol")
int smc_cgroup(const __u64 *args)
{
	int family = args[0], type = args[1], protocol = args[2];

	if (family != AF_INET && family != AF_INET6)
		return protocol;
	if ((type & SOCK_TYPE_MASK) != SOCK_STREAM)
		return protocol;
	if (protocol != 0 && protocol != IPPROTO_TCP)
		return protocol;
	/* From the root down to the task's own, behind which there is none. */
	for (int level = 0; level < MAX_LEVEL; level++) {
		__u64 id = get_current_ancestor_cgroup_id(level);

		if (!id)
			break;
		if (map_lookup_elem(&cgroups, &id))
			return IPPROTO_SMC;
	}
	return protocol;
}

char _license[] __section("license") = "GPL";
