# SPDX-License-Identifier: GPL-2.0
#
# For people; the kernel's build system reads Kbuild.
#
#   make                    smc_lo.ko for the running kernel, or for KDIR=
#   make modules_install    installs it
#   make headers            completes a Debian kernel's headers, which lack what Rust needs
#   make clean              removes everything that was built
#
# With a lab of its own (compilers, kernels and machine are made when missing):
#
#   make run                TCP and smc_lo side by side
#   make check              every test
#   make shell              a guest with the module loaded; KERNEL=debug
#   make clippy             lints
#   make fmt                formats the Rust sources
#   make kunit              the module's own unit tests, in the debug kernel
#   make bench              figures of record, by counted instructions
#   make parity             Python's and redis-server's own tests, over TCP and over smc_lo
#   make torture            random calls, races and stressors on the debug kernel; MINUTES=60

RELEASE ?= $(shell uname -r)
# Headers that were completed come before those that need to be.
KDIR ?= $(firstword $(wildcard $(shell scripts/kernel/headers --path "$(RELEASE)")) /lib/modules/$(RELEASE)/build)
KERNEL ?= prod
MINUTES ?= 60

# The checks come first, so that an unfit kernel costs one line.
kbuild = flags=$$(scripts/kernel/toolchain "$(kdir)") && $(MAKE) -C "$(kdir)" M="$(CURDIR)" $$flags
kdir = $(KDIR)

modules rust-analyzer:
	@$(kbuild) $@
	@mkdir -p build && echo "$(kdir)" > build/kdir

# For the kernel that was built for, also by root, who looks for headers elsewhere. Of one
# that was not built here there is no key to sign with, and no map, without which the
# kernel's makefile leaves depmod out.
modules_install: kdir = $(file < build/kdir)
modules_install: foreign = $(if $(wildcard $(kdir)/System.map),,yes)
modules_install:
	@[ -n "$(kdir)" ] || { echo "smc_lo: nothing is built yet: run make first" >&2; exit 1; }
	@$(kbuild) $(if $(foreign),CONFIG_MODULE_SIG_ALL=) $@
	$(if $(foreign),@depmod $(if $(INSTALL_MOD_PATH),-b "$(INSTALL_MOD_PATH)") "$$(cat "$(kdir)/include/config/kernel.release")")

headers:
	@scripts/kernel/headers "$(RELEASE)"

# Without the kernel's help, so that it works where no kernel is installed.
clean:
	@rm -rf build tests/host/target
	@find . -name .git -prune -o -type f \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' \
		-o -name '*.cmd' -o -name '*.bc' -o -name '*.d' -o -name '*.rmeta' -o -name '*.rsi' -o -name '*.so' -o -name '*_generated.rs' \
		-o -name modules.order -o -name Module.symvers -o -name rust-project.json \) -print | xargs -r rm -f
	@find . -name .git -prune -o -type d \( -name __pycache__ -o -name '.tmp_*' \) -print | xargs -r rm -rf

# For the lab's kernels, each in a directory of its own.
build/%/smc_lo.ko: FORCE
	@scripts/kernel/module $*

run:
	@scripts/run

check:
	@scripts/check

shell:
	@scripts/vm --kernel $(KERNEL) --shell

clippy:
	@scripts/lab setup prod
	@scripts/kernel/module clippy

fmt:
	@scripts/lab setup
	@scripts/rustfmt

kunit:
	@scripts/lab setup debug
	@scripts/kunit

bench:
	@scripts/bench

parity:
	@scripts/parity

torture:
	@scripts/torture --minutes $(MINUTES)

FORCE:

.PHONY: modules modules_install rust-analyzer headers clean run check shell clippy fmt kunit bench parity torture FORCE
