// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>

struct workqueue_struct *rust_helper_alloc_workqueue(const char *name, unsigned int flags,
						     int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}
