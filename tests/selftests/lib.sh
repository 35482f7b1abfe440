# SPDX-License-Identifier: GPL-2.0
# Sourced by the test scripts: TAP, the module, and namespaces.

test_number=0
test_failed=0

# ok|not_ok|skip DESCRIPTION [REASON]
ok() {
	test_number=$((test_number + 1))
	echo "ok $test_number $1"
}

not_ok() {
	test_number=$((test_number + 1))
	test_failed=1
	echo "not ok $test_number $1"
	[ -z "${2:-}" ] || printf '%s\n' "$2" | sed 's/^/# /'
}

skip() {
	test_number=$((test_number + 1))
	echo "ok $test_number $1 # SKIP $2"
}

# check DESCRIPTION COMMAND...: succeeds with the command, whose output a failure shows.
check() {
	local what=$1 output
	shift
	if output=$("$@" 2>&1); then
		ok "$what"
	else
		not_ok "$what" "$output"
	fi
}

# finish: the plan and the exit status.
finish() {
	echo "1..$test_number"
	exit $test_failed
}

# need_module: the module must be loaded and its file known, or all is skipped.
need_module() {
	if [ ! -d /sys/module/smc_lo ] || [ ! -e "$SMC_LO_KO" ]; then
		echo "1..0 # SKIP smc_lo is not loaded from $SMC_LO_KO"
		exit 4
	fi
}

# refuses ERROR-TEXT COMMAND...: the command fails and says so.
refuses() {
	local text=$1 output
	shift
	output=$("$@" 2>&1) && { echo "succeeded: $*"; return 1; }
	case $output in
	*"$text"*) return 0 ;;
	*) echo "$output"; return 1 ;;
	esac
}

# since FILE MARK: the lines of the kernel log after MARK.
log_mark() {
	local mark="smc_lo selftest mark $1 $$ $RANDOM"
	echo "$mark" > /dev/kmsg
	echo "$mark"
}

log_since() { dmesg | sed "1,/$1/d"; }

# converted PROBE: the table that "smcprobe convert" must print where TCP sockets become SMC
# sockets: what plain ones report, made SMC.
converted() {
	"$1" convert | while IFS= read -r line; do
		case $line in
		*' 0x2 '* | *' 0x3 '*) ;;
		'2 0x'*' 0: '* | '2 0x'*' 6: '* | '10 0x'*' 0: '* | '10 0x'*' 6: '*) line=${line/: plain/: smc} ;;
		esac
		echo "$line"
	done
}
