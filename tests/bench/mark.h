/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where measuring begins and ends, as profile.c sees it: instructions that do
 * nothing (nopl with a displacement of bytes of our own, eight in all), and are nowhere else.
 */
#ifndef SMC_LO_BENCH_MARK_H
#define SMC_LO_BENCH_MARK_H

#define MARK_BYTES(last) ".byte 0x0f, 0x1f, 0x84, 0x00, 0x73, 0x6d, 0x63, " #last

static const unsigned char mark_begin[] = { 0x0f, 0x1f, 0x84, 0x00, 0x73, 0x6d, 0x63, 0x01 };
static const unsigned char mark_end[] = { 0x0f, 0x1f, 0x84, 0x00, 0x73, 0x6d, 0x63, 0x02 };

#endif
