// SPDX-License-Identifier: GPL-2.0

//! The pure rooms of smc_lo on the host.
//!
//! Each room is the module's own file, named by path, beside a crate `kernel` that offers what it
//! uses. A room added here gets a file of the same name in `tests/`; a model for loom has `loom`
//! in the names of its tests.

#![cfg_attr(not(test), allow(dead_code))]

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
}

#[path = "../../../conn"]
mod conn {
    pub(crate) mod close;
}

#[cfg(test)]
mod tests {
    mod channel;
    mod close;
    mod cursor;
    mod eid;
    #[cfg(loom)]
    mod ring_loom;
    mod size;
}
