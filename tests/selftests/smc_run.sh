#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# smc_run and its preload library.
#
# 1. Every TCP stream socket becomes SMC, with any type flags; others do not.
#    It reports TCP, and its own domain.
# 2. -f smc opens AF_SMC sockets, -f auto works, -d reports, -r and -t set sizes.
# 3. Arguments with blanks, quotes and wildcards arrive as they were given; the
#    exit status is the command's.
# 4. Sixty-four threads that open sockets first of all, many times (smc-tools
#    93c96c5).
# 5. Without SMC in the kernel the program gets TCP.
# 6. Programs that are there work through it: a transfer with a checksum.

. "$(dirname "$0")/lib.sh"
probe=$SMC_TEST_BUILD/smcprobe
diag=$SMC_TEST_BUILD/smcdiag

if [ ! -d /sys/module/smc_lo ] && [ ! -d /sys/module/smc ]; then
	echo "1..0 # SKIP no SMC stack is loaded"
	exit 4
fi

converts() { diff <(converted "$probe") <("$SMC_RUN" "$@" "$probe" convert); }
check "converts every TCP stream socket and no other" converts
check "converts likewise with -f auto" converts -f auto

af_smc() {
	local line
	line=$("$SMC_RUN" -f smc "$probe" convert | grep '^2 0x1 0:')
	[ "$line" = "2 0x1 0: smc domain 43 protocol 0" ] || { echo "$line"; return 1; }
	line=$("$SMC_RUN" -f smc "$probe" convert | grep '^10 0x1 6:')
	[ "$line" = "10 0x1 6: smc domain 43 protocol 1" ] || { echo "$line"; return 1; }
}
check "-f smc opens AF_SMC sockets" af_smc

same_arguments() {
	local want got
	want=$(printf '[%s]' 'a  b' "it's" '$HOME *' '"q"' '' $'new\nline' -d -r)
	got=$("$SMC_RUN" printf '[%s]' 'a  b' "it's" '$HOME *' '"q"' '' $'new\nline' -d -r)
	[ "$want" = "$got" ] || { echo "$got"; return 1; }
}
check "arguments pass unchanged" same_arguments

status_of() {
	"$SMC_RUN" sh -c 'exit 37'
	[ $? = 37 ]
}
check "exit status is the command's" status_of

wrong_usage() {
	! "$SMC_RUN" && ! "$SMC_RUN" -x true && ! "$SMC_RUN" -f other true && ! "$SMC_RUN" -r 5q true
}
check "wrong usage is refused" wrong_usage

reports() {
	"$SMC_RUN" -d "$probe" convert 2>&1 > /dev/null | grep -q IPPROTO_SMC
}
check "-d reports converted sockets" reports

sizes() {
	local script='
import socket
s = socket.socket()
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))'
	local got
	got=$("$SMC_RUN" -r 100k -t 50000 python3 -c "$script")
	[ "$got" = "204800 100000" ] || { echo "$got"; return 1; }
	got=$(SMC_RCVBUF=64k SMC_SNDBUF=1m "$SMC_RUN" python3 -c "$script")
	case $got in "131072 "*) ;; *) echo "$got"; return 1 ;; esac
}
check "-r, -t and the environment set buffer sizes" sizes

threads() {
	local i got
	for i in $(seq "${SMC_TEST_STARTS:-100}"); do
		got=$("$SMC_RUN" "$probe" threads 64) || { echo "round $i: status $?"; return 1; }
		[ "$got" = 64 ] || { echo "round $i: $got of 64"; return 1; }
	done
}
check "sixty-four threads at start-up" threads

setuid_is_safe() {
	local copy=/tmp/smcprobe.$$ got
	cp "$probe" $copy && chmod 4755 $copy || return 1
	got=$(setpriv --reuid 65534 --clear-groups "$SMC_RUN" $copy exchange 2>&1)
	local status=$?
	rm -f $copy
	# ld.so drops the library, with a message; the program works as it would without.
	[ $status = 0 ] || { echo "$got"; return 1; }
}
check "a set-uid program is left alone" setuid_is_safe

transfer() {
	local size=5000000 port=7${RANDOM:0:3} want got pid tries=0
	want=$(head -c $size /dev/zero | tr '\0' 'x' | sha256sum)
	"$SMC_RUN" python3 -c '
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
peer = listener.accept()[0]
while data := peer.recv(65536):
    sys.stdout.buffer.write(data)' $port | sha256sum > /tmp/got.$$ &
	pid=$!
	until ss -ltn | grep -q ":$port "; do
		sleep 0.1
		tries=$((tries + 1))
		[ $tries -lt 100 ] || return 1
	done
	head -c $size /dev/zero | tr '\0' 'x' | "$SMC_RUN" python3 -c '
import socket, subprocess, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(subprocess.run([sys.argv[2], "-c"], capture_output=True, text=True,
                     stdin=subprocess.DEVNULL).stdout, file=sys.stderr)
while data := sys.stdin.buffer.read(65536):
    peer.sendall(data)' $port "$diag" 2> /tmp/mode.$$
	wait $pid
	got=$(cat /tmp/got.$$)
	grep -q 'smcd=[12] fallback=0' /tmp/mode.$$ || { cat /tmp/mode.$$; return 1; }
	rm -f /tmp/got.$$ /tmp/mode.$$
	[ "$want" = "$got" ] || { echo "$want, $got"; return 1; }
}
check "Python to Python is SMC-D and loses nothing" transfer

without_smc() {
	local got
	[ -d /sys/module/smc_lo ] && [ -e "$SMC_LO_KO" ] || return 0
	rmmod smc_lo || return 1
	got=$("$SMC_RUN" "$probe" threads 8)
	insmod "$SMC_LO_KO" || return 1
	[ "$got" = 0 ] || { echo "$got"; return 1; }
}
check "TCP where the kernel has no SMC" without_smc

finish
