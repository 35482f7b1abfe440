// SPDX-License-Identifier: GPL-2.0
/*
 * profile.so - counts what a guest of QEMU executes between two marks.
 *
 *	-plugin file=profile.so,out=FILE
 *
 * Each line of FILE is one block of code: its address, how many instructions it
 * has, how often it ran while counting. bench.c sets the marks (see mark.h).
 * For machines with one processor, whose instructions are counted (icount).
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mark.h"
#include "qemu_plugin.h"

#define EXPORT __attribute__((visibility("default")))

/* The interface as of QEMU 9.1 to 10. */
EXPORT int qemu_plugin_version = 4;

struct block {
	uint64_t address;
	uint64_t instructions;
	uint64_t runs;
	struct block *next;
};

/* Translated again and again: one entry for an address and a length. */
#define BUCKETS (1 << 18)
static struct block *table[BUCKETS];
static bool counting;
static const char *path;

static struct block *find(uint64_t address, uint64_t instructions)
{
	struct block **bucket = &table[(address * 0x9e3779b97f4a7c15) >> 46];
	struct block *block;

	for (block = *bucket; block; block = block->next) {
		if (block->address == address && block->instructions == instructions)
			return block;
	}
	block = calloc(1, sizeof(*block));
	if (!block)
		abort();
	block->address = address;
	block->instructions = instructions;
	block->next = *bucket;
	*bucket = block;
	return block;
}

static void executed(unsigned int processor, void *data)
{
	struct block *block = data;

	(void)processor;
	block->runs += counting;
}

static void begin(unsigned int processor, void *data)
{
	(void)processor;
	(void)data;
	counting = true;
}

static void end(unsigned int processor, void *data)
{
	(void)processor;
	(void)data;
	counting = false;
}

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
	size_t i, n = qemu_plugin_tb_n_insns(block);
	unsigned char code[sizeof(mark_begin)];

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(block, executed, QEMU_PLUGIN_CB_NO_REGS,
					     find(qemu_plugin_tb_vaddr(block), n));
	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);

		if (qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code))
			continue;
		if (!memcmp(code, mark_begin, sizeof(code)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, begin,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		if (!memcmp(code, mark_end, sizeof(code)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, end,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
}

static void finish(uint64_t id, void *data)
{
	FILE *file = fopen(path, "w");
	struct block *block;
	size_t i;

	(void)id;
	(void)data;
	if (!file)
		abort();
	for (i = 0; i < BUCKETS; i++) {
		for (block = table[i]; block; block = block->next) {
			if (block->runs)
				fprintf(file, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n",
					block->address, block->instructions, block->runs);
		}
	}
	if (fclose(file))
		abort();
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "profile: one argument, out=FILE\n");
		return 1;
	}
	path = strdup(argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, finish, NULL);
	return path ? 0 : 1;
}
