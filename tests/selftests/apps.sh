#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Programs that people run, under smc_run at both ends and at one end only.
#
# Each moves real bytes, which must arrive as they were sent. While the
# connection lives, sock_diag must show it as SMC-D with both ends under
# smc_run, and as TCP at the one SMC socket there is otherwise.

. "$(dirname "$0")/lib.sh"
diag=$SMC_TEST_BUILD/smcdiag

if [ ! -d /sys/module/smc_lo ] && [ ! -d /sys/module/smc ]; then
	echo "1..0 # SKIP no SMC stack is loaded"
	exit 4
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
port=7100
mkdir "$dir/www"
head -c 8000000 /dev/urandom > "$dir/www/file"
head -c 1000 "$dir/www/file" > "$dir/www/small"
sum=$(sha256sum < "$dir/www/file")

# Node.js and the JVM run code they have made. A page of such code that was freed and then
# filled from a file by virtiofsd, behind the emulator's back, would run as it was before:
# so the code of all programs is read before the first of them starts.
cat $(for program in nginx python3 node java redis-server redis-cli memcached nc iperf3 sockperf curl ab wrk; do
	file=$(readlink -f "$(command -v $program)") || continue
	echo "$file"
	ldd "$file" | grep -o '/[^ ]*'
	[ $program != java ] || find "${file%/bin/java}/lib" -name '*.so'
done) > /dev/null 2>&1

# shown END [PID]: waits until sock_diag shows what must be with smc_run at this end,
# as long as this process has not ended.
shown() {
	local want i
	case $1 in
	both) want='^smcd=[1-9][0-9]* fallback=0 ' ;;
	*) want='^smcd=0 fallback=[1-9]' ;;
	esac
	for i in $(seq 1000); do
		"$diag" -c | grep -q "$want" && return 0
		[ -z "${2:-}" ] || kill -0 "$2" 2> /dev/null || break
		sleep 0.05
	done
	echo "sock_diag never showed $want but $("$diag" -c)"
	"$diag"
	return 1
}

# under END SIDE: the prefix of a command at this side.
under() {
	case $1 in
	both | "$2") echo "$SMC_RUN" ;;
	*) echo env ;;
	esac
}

# served PORT PID: waits until the server listens.
served() {
	local i
	# A JVM in an emulator takes its time.
	for i in $(seq 1800); do
		ss -Hltn "sport = :$1" | grep -q . && return 0
		if ! kill -0 "$2" 2> /dev/null; then
			wait "$2"
			echo "server ended with status $?: $(tail -n 5 "$dir/server")"
			return 1
		fi
		sleep 0.1
	done
	echo "server does not listen: $(tail -n 5 "$dir/server")"
	return 1
}

# with SERVER-FUNCTION CLIENT-FUNCTION END
with() {
	local pid status=0
	# A group of its own, so that helpers of the server end with it.
	set -m
	$1 "$(under "$3" server)" > "$dir/server" 2>&1 < /dev/null &
	pid=$!
	set +m
	served $port $pid && $2 "$(under "$3" client)" "$3" || status=1
	kill -- -$pid 2> /dev/null
	wait $pid 2> /dev/null
	return $status
}

# app NAME PROGRAM SERVER-FUNCTION CLIENT-FUNCTION
app() {
	local end
	for end in both server client; do
		# A port with connections in TIME_WAIT may be refused.
		port=$((port + 1))
		if command -v "$2" > /dev/null; then
			check "$1, smc_run at $end" with "$3" "$4" $end
		else
			skip "$1, smc_run at $end" "$2 is not installed"
		fi
	done
}

# A slow reader, so that there is time to look: what the server has sent and is not
# read would not keep its socket open.
fetch() {
	local status=0 pid
	$1 curl -sS --noproxy '*' --limit-rate 2M -o "$dir/got" "http://127.0.0.1:$port/file" &
	pid=$!
	shown "$2" $pid || status=1
	wait $pid || { echo "curl: status $?"; status=1; }
	[ "$(sha256sum < "$dir/got")" = "$sum" ] || { echo "other bytes arrived"; status=1; }
	rm -f "$dir/got"
	return $status
}

# many COMMAND...: requests in parallel, by a program that says how many there were.
many() {
	"$@" "http://127.0.0.1:$port/small" > "$dir/many" 2>&1 || { echo "$2: status $?"; cat "$dir/many"; return 1; }
	if grep -E 'Socket errors|Non-2xx|Failed requests: *[1-9]' "$dir/many" ||
			! grep -qE '[1-9][0-9]* requests in|Complete requests: *40$' "$dir/many"; then
		cat "$dir/many"
		return 1
	fi
}

# With connections that stay, a new one for every request, and those of HTTP/1.1.
http_clients() {
	local status=0
	fetch "$@" || status=1
	many $1 ab -k -n 40 -c 4 || status=1
	many $1 ab -n 40 -c 4 || status=1
	many $1 wrk -t 1 -c 4 -d 1s --timeout 30s || status=1
	return $status
}

nginx_server() {
	cat > "$dir/nginx.conf" <<-END
		daemon off; pid $dir/pid; error_log $dir/error; worker_processes 2; user root;
		events { }
		http { access_log off; client_body_temp_path $dir/a; proxy_temp_path $dir/b; fastcgi_temp_path $dir/c;
		uwsgi_temp_path $dir/d; scgi_temp_path $dir/e; sendfile on;
		server { listen 127.0.0.1:$port; root $dir/www; } }
	END
	exec $1 nginx -c "$dir/nginx.conf"
}

python_server() { exec $1 python3 -m http.server -b 127.0.0.1 -d "$dir/www" $port; }

node_server() {
	exec $1 node -e "
		const fs = require('fs');
		require('http').createServer((request, answer) => fs.createReadStream('$dir/www' + request.url).pipe(answer))
			.listen($port, '127.0.0.1');"
}

java_server() {
	exec $1 java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -m jdk.httpserver -b 127.0.0.1 -d "$dir/www" -p $port
}

redis_server() { exec $1 redis-server --port $port --bind 127.0.0.1 --save '' --appendonly no --dir "$dir"; }

redis_client() {
	local status=0 line
	coproc REDIS { exec $1 redis-cli --raw -p $port; }
	local pid=$REDIS_PID in=${REDIS[1]} out=${REDIS[0]}
	echo "SET key $(head -c 100000 /dev/zero | tr '\0' 'x')" >&"$in"
	read -r -t 30 -u "$out" line
	[ "$line" = OK ] || { echo "SET: $line"; status=1; }
	shown "$2" || status=1
	echo 'STRLEN key' >&"$in"
	read -r -t 30 -u "$out" line
	[ "$line" = 100000 ] || { echo "STRLEN: $line"; status=1; }
	eval "exec $in>&-"
	wait "$pid"
	return $status
}

memcached_server() { exec $1 memcached -u root -l 127.0.0.1 -p $port; }

memcached_client() {
	local status=0 line
	coproc CACHE { exec $1 nc 127.0.0.1 $port; }
	local pid=$CACHE_PID in=${CACHE[1]} out=${CACHE[0]}
	printf 'set key 0 0 5\r\nvalue\r\n' >&"$in"
	read -r -t 30 -u "$out" line
	[ "$line" = $'STORED\r' ] || { echo "set: $line"; status=1; }
	shown "$2" || status=1
	printf 'get key\r\nquit\r\n' >&"$in"
	read -r -t 30 -u "$out" line
	read -r -t 30 -u "$out" line
	[ "$line" = $'value\r' ] || { echo "get: $line"; status=1; }
	eval "exec $in>&-"
	wait "$pid"
	return $status
}

nc_server() { exec $1 nc -l 127.0.0.1 $port > "$dir/got"; }

# nc ends when its peer has: everything has arrived then.
nc_client() {
	local status=0 pid i
	mkfifo "$dir/pipe"
	$1 nc -N 127.0.0.1 $port < "$dir/pipe" &
	pid=$!
	{
		head -c 1000000 "$dir/www/file"
		shown "$2" >&2 || status=1
		tail -c +1000001 "$dir/www/file"
	} > "$dir/pipe"
	wait $pid || { echo "nc: status $?"; status=1; }
	rm "$dir/pipe"
	for i in $(seq 100); do
		ss -Htn "sport = :$port" | grep -q ESTAB || break
		sleep 0.05
	done
	[ "$(sha256sum < "$dir/got")" = "$sum" ] || { echo "other bytes arrived"; status=1; }
	return $status
}

iperf_server() { exec $1 iperf3 -s -B 127.0.0.1 -p $port; }

iperf_client() {
	local status=0 pid
	$1 iperf3 -c 127.0.0.1 -p $port -t 2 > "$dir/iperf" 2>&1 &
	pid=$!
	shown "$2" $pid || status=1
	wait $pid || { cat "$dir/iperf"; status=1; }
	grep -q 'receiver' "$dir/iperf" || { cat "$dir/iperf"; status=1; }
	return $status
}

sockperf_server() { exec $1 sockperf server --tcp -i 127.0.0.1 -p $port; }

sockperf_client() {
	local status=0 pid
	$1 sockperf ping-pong --tcp -i 127.0.0.1 -p $port -t 2 --data-integrity > "$dir/sockperf" 2>&1 &
	pid=$!
	shown "$2" $pid || status=1
	wait $pid || { cat "$dir/sockperf"; status=1; }
	grep -q 'Latency is' "$dir/sockperf" || { cat "$dir/sockperf"; status=1; }
	return $status
}

app "nginx and curl, ab, wrk" nginx nginx_server http_clients
app "Python's server and curl, ab, wrk" python3 python_server http_clients
app "Node's server and curl, ab, wrk" node node_server http_clients
app "Java's server and curl, ab, wrk" java java_server http_clients
app "redis" redis-server redis_server redis_client
app "memcached and nc" memcached memcached_server memcached_client
app "nc" nc nc_server nc_client
app "iperf3" iperf3 iperf_server iperf_client
app "sockperf" sockperf sockperf_server sockperf_client
finish
