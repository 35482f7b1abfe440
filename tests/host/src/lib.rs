// SPDX-License-Identifier: GPL-2.0

//! The pure rooms of smc_lo on the host.
//!
//! Each room is the module's own file, named by path, beside a crate `kernel` that offers what it
//! uses. A room added here gets a file of the same name in `tests/`; a model for loom has `loom`
//! in the names of its tests.

#![cfg_attr(not(test), allow(dead_code))]

#[path = "../../../clc"]
mod clc {
    pub(crate) mod eid;
}

#[cfg(test)]
mod tests {
    mod eid;
}
