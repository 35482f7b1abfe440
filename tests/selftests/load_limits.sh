#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The limits of what connections may use. The module is loaded with small ones.
#
# 1. More connections than the device has places for: as many as fit are SMC-D,
#    the others TCP, with the reason at both ends; none stands still, although
#    all rings are in use. When they have closed there are as many again.
# 2. Data that does not fit in the rings there are moves all the same, as long as
#    somebody reads.
# 3. Idle rings are in nobody's way.
# 4. A user has its share and no more; others, root in particular, have the rest.
#    All users of a user namespace count as the one who made it.
# 5. Without any limit in the way everything is SMC-D.
# 6. The rings of an idle connection go back, and come again.

. "$(dirname "$0")/lib.sh"
need_module
probe=$SMC_TEST_BUILD/smcprobe
# SMC_CLC_DECL_MAX_DMB
reason=0x30d0000

with() { rmmod smc_lo && insmod "$SMC_LO_KO" "$@"; }

# sees EXPECTED COMMAND...: the command succeeds and prints that line.
sees() {
	local want=$1 output
	shift
	output=$("$@" 2>&1) || { echo "failed: $output"; return 1; }
	[ "$output" = "$want" ] || { echo "$output instead of $want"; return 1; }
}

as_user() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }

# A user's namespaces, within which there is another one.
within() {
	as_user "$1" unshare -Ur -n sh -c 'ip link set lo up && exec unshare -U "$@"' - "${@:2}"
}

crowd="$probe crowd"

with max_dmbs=20 || exit 1
check "connections without a place are TCP" sees "20 SMC-D, 12 TCP, reason $reason" $crowd 16 100
check "places come back with the last close" sees "20 SMC-D, 0 TCP, reason 0" $crowd 10 100
check "idle rings leave room for others" sees "20 SMC-D, 0 TCP, reason 0" unshare -n sh -c \
	'ip link set lo up && exec "$@"' - $crowd 10 100
with max_dmbs=1 || exit 1
check "less than two places are none" sees "0 SMC-D, 4 TCP, reason $reason" $crowd 2 100

# Chains grow into places that later connections do not get then.
with max_dmbs=24 || exit 1
check "large data does not stop when places are rare" $crowd 10 30000
check "and leaves no place behind" sees "24 SMC-D, 0 TCP, reason 0" $crowd 12 100

with max_dmbs=40 user_dmbs=10 || exit 1
check "a user has its share" sees "10 SMC-D, 6 TCP, reason $reason" as_user 1000 $crowd 8 100
check "and gets it again" sees "10 SMC-D, 6 TCP, reason $reason" as_user 1000 $crowd 8 100
check "root is bounded by the device alone" sees "40 SMC-D, 0 TCP, reason 0" $crowd 20 100
if as_user 1000 unshare -Ur true 2> /dev/null; then
	check "namespaces count for their maker" sees "10 SMC-D, 6 TCP, reason $reason" within 1000 $crowd 8 100
else
	skip "namespaces count for their maker" "users may not make namespaces here"
fi

share_of_others() {
	local line status=0
	coproc GREEDY { exec setpriv --reuid 1000 --regid 1000 --clear-groups "$probe" hold_many 8; }
	read -r -u "${GREEDY[0]}" line
	[ "$line" = ready ] || { echo "$line"; return 1; }
	sees "10 SMC-D, 0 TCP, reason 0" as_user 1001 $crowd 5 100 || status=1
	sees "0 SMC-D, 2 TCP, reason $reason" as_user 1000 $crowd 1 100 || status=1
	kill "$GREEDY_PID"
	wait "$GREEDY_PID" 2> /dev/null
	return $status
}
check "what one user holds is not another's share" share_of_others

with || exit 1
check "nothing in the way: all are SMC-D" sees "400 SMC-D, 0 TCP, reason 0" $crowd 200 1000
check "rings of an idle connection go back" "$probe" rest
finish
