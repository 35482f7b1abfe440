// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use super::bindings;

/// A number nobody can guess.
///
/// # Context
///
/// Any.
pub(crate) fn get_random_u64() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: The array is writable for its whole length.
    unsafe { bindings::get_random_bytes((&raw mut bytes).cast(), bytes.len()) };
    u64::from_ne_bytes(bytes)
}

/// A number nobody can guess, other than zero.
///
/// # Context
///
/// Any.
pub(crate) fn nonzero_u32() -> u32 {
    loop {
        let [a, b, c, d, ..] = get_random_u64().to_ne_bytes();
        let number = u32::from_ne_bytes([a, b, c, d]);
        if number != 0 {
            return number;
        }
    }
}
