// SPDX-License-Identifier: GPL-2.0

#include <linux/sched.h>

bool rust_helper_need_resched(void)
{
	return need_resched();
}
