#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# smc_cgroup and its BPF program: SMC for whole cgroups.
#
# 1. In a chosen cgroup, and in those within it, every TCP stream socket is an
#    SMC socket, with any type flags; MPTCP, UDP, raw and Unix sockets are not.
# 2. Outside of it, beside it and above it nothing changes.
# 3. Static programs that know nothing of SMC talk SMC-D to each other there;
#    with one of them outside they talk TCP. All bytes arrive.
# 4. What was removed ends: for new sockets, while old connections go on. After
#    the last removal the program is gone.
# 5. Cgroups that are gone can be listed and removed; wrong ones are refused.

. "$(dirname "$0")/lib.sh"
need_module
probe=$SMC_TEST_BUILD/smcprobe
diag=$SMC_TEST_BUILD/smcdiag
tools=$SMC_TEST_DIR/../../tools/smc_bpf
smc_cgroup=$tools/smc_cgroup
PATH=$PATH:/usr/sbin:/sbin
cgroups=/sys/fs/cgroup/smc_bpf.$$
work=$(mktemp -d)

skip_all() {
	echo "1..0 # SKIP $1"
	exit 4
}

[ -e /sys/kernel/btf/vmlinux ] || skip_all "this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"
[ -e "$tools/smc_cgroup.bpf.o" ] || skip_all "the BPF program is not built (clang)"
command -v bpftool > /dev/null || skip_all "no bpftool"
mkdir "$cgroups" "$cgroups/chosen" "$cgroups/chosen/deep" "$cgroups/chosen/deep/deeper" "$cgroups/other" ||
	skip_all "no cgroups of version 2"

# The programs that a check started, wherever they are.
end_all() {
	local dir
	for dir in "$cgroups"/chosen/deep "$cgroups/chosen" "$cgroups/other"; do
		echo 1 > "$dir/cgroup.kill" 2> /dev/null
	done
	wait 2> /dev/null
}

# Kinds of sockets that there are not would each start modprobe, in vain.
loader=$(cat /proc/sys/kernel/modprobe)
echo > /proc/sys/kernel/modprobe

clean_up() {
	echo "$loader" > /proc/sys/kernel/modprobe
	end_all
	rm -rf /sys/fs/bpf/smc_cgroup "$work"
	find "$cgroups" -depth -type d -exec rmdir {} + 2> /dev/null
}
trap clean_up EXIT

# in_cgroup NAME COMMAND...
in_cgroup() {
	local name=$1
	shift
	sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$cgroups/$name" "$@"
}

# The table of what becomes of each kind, where all is converted. The sockets tell their protocol.
all_smc() { converted "$probe" | sed '/: smc/s/protocol 6/protocol 256/'; }

converts_in() { diff <(all_smc) <(in_cgroup "$1" "$probe" convert); }
nothing_in() { diff <("$probe" convert) <(in_cgroup "$1" "$probe" convert); }

check "no cgroup, no change" nothing_in chosen
check "a cgroup is added" "$smc_cgroup" add "$cgroups/chosen"
check "every TCP stream socket in it is SMC and no other" converts_in chosen
check "also in a cgroup within it" converts_in chosen/deep
check "and far below" converts_in chosen/deep/deeper
check "nothing changes beside it" nothing_in other
check "nothing changes above it" nothing_in .

# talk SERVER-CGROUP CLIENT-CGROUP EXPECTED: static programs, and what both ends are meanwhile.
port=7000
sent=$probe answer=$diag
talk() {
	local server=$1 client=$2 want=$3 got tries=0 status=0
	port=$((port + 1))
	mkfifo "$work/in" "$work/answer"
	exec 8<> "$work/answer" 9<> "$work/in"
	in_cgroup "$server" busybox nc -l -p $port < "$work/answer" > "$work/got" 8>&- 9>&- &
	until ss -ltn | grep -q ":$port "; do
		sleep 0.1
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { echo "no server"; return 1; }
	done
	in_cgroup "$client" busybox nc 127.0.0.1 $port < "$work/in" > "$work/back" 8>&- 9>&- &
	cat "$sent" >&9
	cat "$answer" >&8
	tries=0
	until cmp -s "$sent" "$work/got" && cmp -s "$answer" "$work/back"; do
		sleep 0.1
		tries=$((tries + 1))
		[ $tries -lt 100 ] || break
	done
	got=$("$diag" -c)
	[ "$got" = "$want" ] || { echo "$got instead of $want"; status=1; }
	cmp "$sent" "$work/got" || status=1
	cmp "$answer" "$work/back" || status=1
	[ -z "${4:-}" ] || "$4" || status=1
	exec 8>&- 9>&-
	end_all
	rm -f "$work"/*
	return $status
}

check "static programs in it talk SMC-D" talk chosen chosen/deep "smcd=2 fallback=0 smcr=0"
check "with a plain client they talk TCP" talk chosen other "smcd=0 fallback=1 smcr=0"
check "with a plain server they talk TCP" talk other chosen "smcd=0 fallback=1 smcr=0"
check "outside there is no SMC at all" talk other other "smcd=0 fallback=0 smcr=0"

second() {
	local got
	"$smc_cgroup" add "$cgroups/other" "$cgroups/chosen/deep" || return 1
	got=$("$smc_cgroup" list | sort)
	[ "$got" = "$(printf '%s\n' "$cgroups/chosen" "$cgroups/chosen/deep" "$cgroups/other")" ] ||
		{ echo "$got"; return 1; }
	converts_in other
}
check "more cgroups are added and listed" second
check "between two of them is SMC-D" talk chosen other "smcd=2 fallback=0 smcr=0"

one_less() {
	"$smc_cgroup" remove "$cgroups/chosen" && nothing_in chosen && converts_in chosen/deep && converts_in other
}
check "one that is removed takes no other along" one_less

gone() {
	local got
	rmdir "$cgroups/chosen/deep/deeper" "$cgroups/chosen/deep" || return 1
	got=$("$smc_cgroup" list | grep '^id ')
	"$smc_cgroup" remove "$got" || return 1
	got=$("$smc_cgroup" list)
	[ "$got" = "$cgroups/other" ] || { echo "$got"; return 1; }
	mkdir "$cgroups/chosen/deep"
}
check "a cgroup that is gone can be removed" gone

remove_last() { "$smc_cgroup" remove "$cgroups/other"; }
check "a connection outlives the removal" talk other other "smcd=2 fallback=0 smcr=0" remove_last
check "afterwards there is none" talk other other "smcd=0 fallback=0 smcr=0"
attached() { bpftool prog list | grep -w smc_cgroup; }
check "the program is gone with the last cgroup" eval '! attached'

check "what is no cgroup is refused" refuses "not a cgroup of version 2" "$smc_cgroup" add /tmp
check "what was not added cannot be removed" refuses "was not added" "$smc_cgroup" remove "$cgroups/other"
check "nothing is left behind by refusals" eval '! attached && [ ! -e /sys/fs/bpf/smc_cgroup ]'
finish
