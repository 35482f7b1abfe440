// SPDX-License-Identifier: GPL-2.0

#include <linux/sbitmap.h>

void rust_helper_sbitmap_put(struct sbitmap *sb, unsigned int bitnr)
{
	sbitmap_put(sb, bitnr);
}

void rust_helper_sbitmap_free(struct sbitmap *sb)
{
	sbitmap_free(sb);
}
