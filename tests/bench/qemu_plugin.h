/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is needed of QEMU's interface for plugins, as of QEMU 9.1 to 10; Debian's
 * packages have no header of it.
 */
#ifndef SMC_LO_BENCH_QEMU_PLUGIN_H
#define SMC_LO_BENCH_QEMU_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

typedef void (*on_translation)(uint64_t id, struct qemu_plugin_tb *block);
typedef void (*on_execution)(unsigned int processor, void *data);
typedef void (*on_end)(uint64_t id, void *data);

enum { QEMU_PLUGIN_CB_NO_REGS };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, on_translation cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, on_execution cb,
					  int flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, on_execution cb,
					    int flags, void *data);
void qemu_plugin_register_atexit_cb(uint64_t id, on_end cb, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *data, size_t len);

#endif
