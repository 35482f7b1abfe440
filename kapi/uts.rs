// SPDX-License-Identifier: GPL-2.0

//! The name of this system.
//!
//! C header: [`include/linux/utsname.h`](srctree/include/linux/utsname.h)

use super::bindings;

/// The node name of the running task's UTS namespace, cut or padded with blanks to `N` bytes.
///
/// # Context
///
/// Process context.
pub(crate) fn nodename<const N: usize>() -> [u8; N] {
    let mut name = [b' '; N];
    // SAFETY: The name is an array that lives as long as the running task's namespace, always
    // ends with a zero byte, and may change while it is read.
    let mut from = unsafe { bindings::utsname_nodename() };
    for to in &mut name {
        // SAFETY: The end was not reached.
        let byte = unsafe { from.read_volatile() };
        if byte == 0 {
            break;
        }
        *to = byte;
        // SAFETY: As above.
        from = unsafe { from.add(1) };
    }
    name
}
