#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A capture of the handshake over the wire decodes as SMC, message by message,
# without a malformed field.

here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
need_module

if [ -z "${CLC_CAPTURE_INSIDE:-}" ]; then
	exec env CLC_CAPTURE_INSIDE=1 unshare -n "$0"
fi

for tool in tshark tcpdump nft python3; do
	command -v $tool > /dev/null && continue
	echo "1..0 # SKIP no $tool"
	exit 4
done
if ! modprobe -n -q smc; then
	echo "1..0 # SKIP the kernel has no SMC option (CONFIG_SMC=m)"
	exit 4
fi

file=$(mktemp)
trap 'rm -f "$file"' EXIT
ip link set lo up
nft 'table ip nat { chain out { type nat hook output priority -100;
	ip daddr 127.0.0.1 tcp dport 27100 redirect to :27101; }; }' || exit 1

tcpdump --immediate-mode -i lo -U -w "$file" tcp portrange 27100-27101 2> /dev/null &
capture=$!
# The file's header is written when the capture runs.
for _ in $(seq 100); do [ -s "$file" ] && break; sleep 0.1; done

converse() {
	python3 - << 'PYTHON'
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
server.bind(("127.0.0.1", 27101))
server.listen()
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
client.connect(("127.0.0.1", 27100))
child, _ = server.accept()
client.sendall(b"data")
assert child.recv(4) == b"data"
PYTHON
}
check "two sockets talk through a translated address" converse

# The three messages alone are 484 bytes, and each packet has 82 bytes of headers.
for _ in $(seq 100); do [ "$(stat -c %s "$file")" -ge 900 ] && break; sleep 0.1; done
kill $capture
wait $capture 2> /dev/null

decoded() {
	local found
	found=$(tshark -r "$file" -Y smc -T fields -e _ws.col.Info 2> /dev/null |
		sed -n 's/^\[\([^]]*\)\].*/\1/p' | paste -sd' ')
	[ "$found" = "SMC-Dv2-Proposal SMC-Dv2-Accept SMC-Dv2-Confirm" ] || { echo "found: $found"; return 1; }
}
check "the capture holds proposal, accept and confirm" decoded

malformed() { ! tshark -r "$file" -Y '_ws.malformed || _ws.expert.severity >= 0x800000' 2> /dev/null | grep .; }
check "no field of it is malformed" malformed

option() {
	local count
	count=$(tshark -r "$file" -Y 'tcp.flags.syn == 1 && tcp.options.experimental.exid == 0xe2d4' 2> /dev/null | wc -l)
	[ "$count" = 2 ] || { echo "$count SYN packets with the option"; return 1; }
}
check "SYN and SYN-ACK say SMC" option
finish
