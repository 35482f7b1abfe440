# SPDX-License-Identifier: GPL-2.0
# Shell helpers shared by the scripts of this directory; sourced, not run.

# Everything that is downloaded or built lives here, outside the checkout.
CACHE=${SMC_LO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/smc_lo}
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SUITE=trixie
LLVM_SUFFIX=-19

say() { printf '%s\n' "$*" >&2; }

# die MESSAGE REMEDY: what failed and what to do about it, then exit.
die() {
	say "error: $1"
	[ $# -lt 2 ] || say "  to mend it: $2"
	exit 1
}

step_number=0

# step TITLE: announces a numbered step; `step_done` closes it with its time.
step() {
	step_number=$((step_number + 1))
	step_title=$1
	step_start=$SECONDS
	say "[$step_number] $step_title ..."
}

step_done() {
	say "[$step_number] $step_title: done in $((SECONDS - step_start)) s${1:+ ($1)}"
}

step_cached() {
	step_number=$((step_number + 1))
	say "[$step_number] $1: cached"
}

# digest FILE-OR-TEXT...: one short key for a set of inputs on standard input.
digest() { sha256sum | cut -c1-16; }

need_root() {
	[ "$(id -u)" = 0 ] || die "this needs root (it makes a chroot and mounts)" "run it with sudo"
}

# need_matplotlib: only what draws needs it, so the lab gets it when it is first wanted.
need_matplotlib() {
	"$REPO/scripts/lab" enter sh -c 'python3 -c "import matplotlib" 2> /dev/null ||
		{ apt-get -qq update && apt-get install -y -qq --no-install-recommends python3-matplotlib; } > /dev/null 2>&1' ||
		die "matplotlib could not be installed in the lab root" "check the network"
}
