// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>

struct workqueue_struct *rust_helper_alloc_workqueue(const char *name, unsigned int flags,
						     int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

void rust_helper_init_deferrable_work(struct delayed_work *work, work_func_t func)
{
	INIT_DEFERRABLE_WORK(work, func);
}

void rust_helper_queue_power_efficient(struct delayed_work *work, unsigned int msecs)
{
	queue_delayed_work(system_power_efficient_wq, work, msecs_to_jiffies(msecs));
}
