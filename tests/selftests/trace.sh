#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Connections work while every event of the sockets and of the module is traced
# (CVE-2026-52941), and after tracing has ended.

. "$(dirname "$0")/lib.sh"
events=/sys/kernel/tracing/events
probe=$SMC_TEST_BUILD/smcprobe

if [ ! -d $events ]; then
	echo "1..0 # SKIP no tracing in this kernel"
	exit 4
fi
if [ ! -d /sys/module/smc_lo ] && [ ! -d /sys/module/smc ]; then
	echo "1..0 # SKIP no SMC stack is loaded"
	exit 4
fi

systems() { ls -d $events/{sock,smc,smc_lo,tcp,syscalls}/enable 2> /dev/null; }

traced() {
	local file status=0
	for file in $(systems); do echo 1 > "$file" || status=1; done
	"$probe" exchange || status=1
	"$SMC_TEST_BUILD/fallback" -v fallback_client > /dev/null || status=1
	for file in $(systems); do echo 0 > "$file" || status=1; done
	"$probe" exchange || status=1
	return $status
}
check "connections under tracing" traced
finish
