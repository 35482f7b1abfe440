// SPDX-License-Identifier: GPL-2.0

//! The pure rooms of smc_lo on the host.
//!
//! Each room is the module's own file, named by path, beside a crate `kernel` that offers what it
//! uses. A room added here gets a file of the same name in `tests/`; a model for loom has `loom`
//! in the names of its tests. What a fuzzer is to break has a function in `fuzz.rs`.

// The users of most items are in the module.
#![allow(dead_code)]

#[path = "../../../bufpool"]
mod bufpool {
    pub(crate) mod size;
}

#[path = "../../../cdc"]
mod cdc {
    mod channel;
    pub(crate) mod cursor;

    #[cfg(test)]
    pub(crate) use self::channel::Channel;
}

#[path = "../../../clc"]
mod clc {
    pub(crate) mod eid;
    pub(crate) mod wire;
}

#[path = "../../../conn"]
mod conn {
    pub(crate) mod close;
}

#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(any(test, fuzzing))]
mod judge;

#[cfg(test)]
mod tests {
    mod bytes;
    mod channel;
    mod close;
    mod cursor;
    mod eid;
    mod fuzz;
    mod machine;
    #[cfg(loom)]
    mod ring_loom;
    mod size;
    mod wire;
}
