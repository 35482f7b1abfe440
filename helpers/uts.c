// SPDX-License-Identifier: GPL-2.0

#include <linux/utsname.h>

const unsigned char *rust_helper_utsname_nodename(void)
{
	return (const unsigned char *)utsname()->nodename;
}
