#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Loading and unloading the module.
#
# 1. rmmod is refused while a socket exists, of any kind, and works at once when
#    the last one is closed; connections that are live or falling back count.
# 2. It loads and unloads SMC_TEST_LOADS (default 1000) times, losing no memory.
# 3. Sockets are opened all the time while it is loaded and unloaded: each open
#    gives a socket or says that there is no such protocol (CVE-2026-64005); inet
#    core says ENOMEM or ENOBUFS of any protocol whose module is on its way out.
# 4. With C's smc.ko loaded it refuses with one line of log. The module says
#    EEXIST, of which the loader makes EBUSY.
# 5. Memory refused at any point of loading ends in ENOMEM and nothing left, or
#    in a module that works (CVE-2022-49905).
# 6. Loading twice is refused; nothing of it is left after unloading.

. "$(dirname "$0")/lib.sh"
need_module
probe=$SMC_TEST_BUILD/smcprobe

unload() { rmmod smc_lo; }
load() { insmod "$SMC_LO_KO"; }
is_loaded() { [ -d /sys/module/smc_lo ]; }

# held KIND: rmmod fails while a process holds a socket of this kind, then works.
held() {
	local pipe pid status=0
	coproc HOLD { exec "$probe" "$1"; }
	pid=$HOLD_PID
	read -r -u "${HOLD[0]}" line || { echo "$probe $1 did not start"; return 1; }
	[ "$line" = ready ] || { echo "$probe $1: $line"; status=1; }
	if unload 2> /dev/null; then
		echo "unloaded under a $1"
		load
		status=1
	fi
	kill "$pid"
	wait "$pid" 2> /dev/null
	# At once: the process is gone, so its sockets are closed.
	unload || status=1
	is_loaded || load || status=1
	return $status
}

for kind in fresh4 fresh6 fresh_inet4 fresh_inet6 listener pair fallback unaccepted; do
	check "a socket keeps the module: $kind" held "$kind"
done

available() { awk '/^MemAvailable:/ { print $2 }' /proc/meminfo; }

many_loads() {
	local i first last
	# The first rounds fill caches that stay.
	for i in $(seq 20); do unload && load || return 1; done
	first=$(available)
	for i in $(seq "$1"); do
		unload && load || { echo "round $i"; return 1; }
		# A connection in some rounds, so that there is something to lose.
		[ $((i % 50)) != 0 ] || "$probe" exchange || return 1
	done
	last=$(available)
	echo "available before and after: $first kB, $last kB"
	# A kilobyte lost each round would be 1000 kB; noise of the machine is allowed for.
	[ $((first - last)) -lt 20000 ]
}
check "loads and unloads ${SMC_TEST_LOADS:-1000} times" many_loads "${SMC_TEST_LOADS:-1000}"

under_creation() {
	local pid i status=0
	"$probe" spin &
	pid=$!
	for i in $(seq 30); do
		# Refused while the spinner has a socket open this moment.
		until unload 2> /dev/null; do :; done
		load || { echo "round $i: cannot load"; status=1; break; }
	done
	kill "$pid"
	wait "$pid" || [ $? = 143 ] || status=1
	is_loaded || load
	return $status
}
check "loads and unloads under sockets being opened" under_creation

check "a second load is refused" refuses "File exists" load

beside_c() {
	local mark lines status=0
	unload || return 1
	if ! modprobe -i smc 2> /dev/null; then
		load
		return 4
	fi
	mark=$(log_mark beside)
	refuses "Device or resource busy" load || status=1
	lines=$(log_since "$mark" | grep -c 'smc_lo:')
	[ "$lines" = 1 ] || { echo "$lines lines of log instead of one:"; log_since "$mark"; status=1; }
	rmmod smc || status=1
	load || status=1
	"$probe" exchange || status=1
	return $status
}
output=$(beside_c 2>&1)
case $? in
0) ok "refuses beside C's smc.ko with one line of log" ;;
4) skip "refuses beside C's smc.ko with one line of log" "this kernel has no smc.ko" ;;
*) not_ok "refuses beside C's smc.ko with one line of log" "$output" ;;
esac

# Every allocation of loading refused in turn, a few of them a round on slow machines.
refused_memory() {
	local n status output set
	for set in failslab fail_page_alloc; do
		echo N > /sys/kernel/debug/$set/ignore-gfp-wait
		echo 0 > /sys/kernel/debug/$set/verbose
	done
	unload || return 1
	for n in $(seq "${SMC_TEST_STEP:-1}" "${SMC_TEST_STEP:-1}" 4000); do
		output=$("$probe" load "$SMC_LO_KO" "$n")
		status=$?
		if [ $status = 1 ]; then
			echo "refusal $n: $output"
			is_loaded || load
			return 1
		fi
		if is_loaded; then
			"$probe" exchange && unload || { echo "after refusal $n"; return 1; }
		fi
		[ $status != 3 ] || break
	done
	echo "$n allocations"
	# Another user of per-namespace state, and then ours again.
	unshare -n true || return 1
	load && "$probe" exchange
}
if [ -e /sys/kernel/debug/failslab/ignore-gfp-wait ]; then
	check "memory refused while loading" refused_memory
else
	skip "memory refused while loading" "no fault injection in this kernel"
fi

nothing_left() {
	local status=0
	unload || return 1
	! grep -E '^(INET6?_)?SMC6? ' /proc/net/protocols || status=1
	[ ! -e /proc/sys/net/smc ] || { echo "/proc/sys/net/smc is left"; status=1; }
	refuses "not supported" "$probe" exchange || status=1
	load || status=1
	return $status
}
check "nothing of it is left after unloading" nothing_left
is_loaded || load
finish
