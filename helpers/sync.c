// SPDX-License-Identifier: GPL-2.0

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

void rust_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void rust_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int rust_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

int rust_helper_mutex_lock_killable(struct mutex *lock)
{
	return mutex_lock_killable(lock);
}
