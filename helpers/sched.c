// SPDX-License-Identifier: GPL-2.0

#include <linux/sched.h>
#include <linux/sched/stat.h>

/*
 * A task that was woken on this processor, such as the peer, need not be due at
 * once; need_resched() does not tell of it then.
 */
bool rust_helper_cpu_is_wanted(void)
{
	return need_resched() || !single_task_running();
}
