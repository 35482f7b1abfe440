// SPDX-License-Identifier: GPL-2.0
/*
 * profile.so - counts what a guest of QEMU executes between two marks.
 *
 *	-plugin file=profile.so,out=FILE[,trace=FILE]
 *
 * Each line of FILE is one block of code: its address, how many instructions it
 * has, how often it ran while counting. The trace are the first blocks that ran,
 * one after the other: the address and the number of instructions of each, in
 * 64 bits. bench.c sets the marks (see mark.h).
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

/* Some hundred connections. */
#define TRACE_MAX (4 << 20)
static FILE *trace;
static size_t traced;

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
	if (!counting)
		return;
	block->runs++;
	if (trace && traced < TRACE_MAX) {
		uint64_t step[] = { block->address, block->instructions };

		if (fwrite(step, sizeof(step), 1, trace) != 1)
			abort();
		traced++;
	}
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
	if (fclose(file) || (trace && fclose(trace)))
		abort();
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	int i;

	(void)info;
	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			path = strdup(argv[i] + 4);
		if (!strncmp(argv[i], "trace=", 6)) {
			trace = fopen(argv[i] + 6, "w");
			if (!trace) {
				perror(argv[i]);
				return 1;
			}
		}
	}
	if (!path) {
		fprintf(stderr, "profile: out=FILE is missing\n");
		return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, finish, NULL);
	return 0;
}
