// SPDX-License-Identifier: GPL-2.0
//! SMC-D loopback.
use kernel::prelude::*;
mod kapi;
module! {
    type: SmcLo,
    name: "smc_lo",
    authors: ["The smc_lo authors"],
    description: "SMC-D loopback",
    license: "GPL",
}
struct SmcLo;
impl kernel::Module for SmcLo {
    fn init(_m: &'static ThisModule) -> Result<Self> { Ok(Self) }
}
