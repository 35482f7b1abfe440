// SPDX-License-Identifier: GPL-2.0

//! SMC-D loopback: stream sockets of one host that talk through shared rings.
//!
//! # Rooms
//!
//! ```text
//! data       sock -> conn -> cdc -> dmb -> kapi
//! handshake  sock -> clc -> lgr -> bufpool -> dmb
//! views      diag -> sock, conn
//! ```
//!
//! A room uses those to its right; what goes the other way goes through traits
//! that the lower room owns.
//!
//! # Lock order
//!
//! From the outside in; rooms name their own contexts.
//!
//! 0. `Deferred::queue` of a listener (mutex, process context), and within it `Offer::pairing`
//! 1. the tx or the rx mutex of a connection's direction (process context, never held asleep)
//! 2. the mutex of a direction's memory charge
//! 3. the socket lock of our socket, then that of the TCP socket within
//! 4. `sk_callback_lock` of a TCP socket, or of ours for those who want `SIGIO`
//! 5. `SmcSock::attempt`; `Pending::queue` or `Table::bucket`, then `Offer::parties`
//! 6. the table of sockets, then chains of rings, link groups, free lists, DMBs, places for rings
//! 7. a socket's wait queue
//!
//! `Offer::pairing` is a mutex taken with none but the first of these held, `Connection::parting`
//! one taken with nothing else held, under which nothing is called. `Peer::talk` is held over 4 and
//! what comes after it, and over the spinlock of a TCP socket's lock, and taken with nothing else
//! held.

mod bufpool;
mod cdc;
mod clc;
mod conn;
mod diag;
mod dmb;
mod kapi;
mod lgr;
mod sock;

use kapi::{
    global::{
        Global,
        GlobalGuard, //
    },
    net::{
        NamespaceWatcher, //
        Net,
    },
    registry::Registry,
    workqueue::{
        Chore,
        OwnedQueue, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

module! {
    type: SmcLo,
    name: "smc_lo",
    authors: ["The smc_lo authors"],
    description: "SMC-D loopback: stream sockets that talk through shared rings",
    license: "GPL",
    alias: [
        "net-pf-43",
        "net-pf-2-proto-256-type-1",
        "net-pf-10-proto-256-type-1",
        "net-pf-16-proto-4-type-43",
    ],
    params: {
        max_dmbs: u32 {
            default: 131072,
            description: "Largest number of rings, in use and idle (2 for a busy connection)",
        },
        user_dmbs: u32 {
            default: 0,
            description: "Largest number of rings in use that one user but root answers for; 0: half of max_dmbs",
        },
        idle_mb: u32 {
            default: 64,
            description: "Largest amount of idle ring memory that is kept for reuse, in MiB",
        },
    },
}

/// What the module has exactly one of.
#[pin_data]
pub(crate) struct Lo {
    /// The loopback device's GID, both halves.
    gid: [u64; 2],
    /// Looks after idle sockets and rings. Stopped before they go.
    #[pin]
    housekeeping: Chore<sock::housekeeping::Housekeeping>,
    /// All sockets.
    #[pin]
    sockets: Registry<sock::SmcSock>,
    /// The clients that may meet a server in another namespace.
    #[pin]
    offers: clc::local::Table,
    /// Events and time-outs of handshakes. Destroyed before what its items use.
    queue: OwnedQueue,
    /// What handshakes over the wire have in common.
    #[pin]
    wire: clc::peer::Wire,
    /// The link groups, and behind them rings and the device.
    groups: lgr::Registration,
}

/// The one [`Lo`].
pub(crate) static LO: Global<Lo> = Global::new();

impl Lo {
    fn new() -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(|| {
            let max_dmbs = module_parameters::max_dmbs.value();
            let device = Arc::pin_init(dmb::Device::new(max_dmbs), GFP_KERNEL)?;
            let user_dmbs = match module_parameters::user_dmbs.value() {
                0 => max_dmbs / 2,
                count => count,
            };
            let idle_bytes = usize::try_from(module_parameters::idle_mb.value())
                .ok()
                .and_then(|mb| mb.checked_mul(1 << 20))
                .ok_or(EINVAL)?;
            let groups = lgr::Registration::new(lgr::Groups::new(
                device,
                bufpool::Limits {
                    idle_bytes,
                    user_rings: usize::try_from(user_dmbs)?,
                },
            )?)?;
            let queue = OwnedQueue::new(c"smc_lo")?;
            let gid = [
                kapi::random::get_random_u64(),
                kapi::random::get_random_u64(),
            ];
            Ok(try_pin_init!(Self {
                gid,
                housekeeping <- Chore::new(),
                sockets <- Registry::new(),
                offers <- clc::local::Table::new(),
                queue,
                wire <- clc::peer::Wire::new(*gid),
                groups,
            }? Error))
        })
    }
}

/// Follows the namespaces, whose link groups end with them.
struct Namespaces;

impl NamespaceWatcher for Namespaces {
    fn exit(net: &Net) {
        if let Some(lo) = LO.get() {
            lo.groups.namespace_exit(net.cookie());
        }
    }
}

/// The module's registrations; they drop in the order of declaration: first no new sockets, then
/// no reports, then what both use, and last whatever softirqs may still hold.
#[pin_data]
struct SmcLo {
    syn_option: kapi::tcp::stream::SynOption,
    family: kapi::proto::Registration<sock::SmcSock>,
    #[pin]
    diag: kapi::diag::Registration<diag::Diag>,
    #[pin]
    namespaces: kapi::net::Registration<Namespaces>,
    lo: GlobalGuard<Lo>,
}

/// Says what stands in the way of this module.
fn report_occupied() {
    pr_err!("AF_SMC is served by another module (smc?): unload it first\n");
}

impl kernel::InPlaceModule for SmcLo {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            lo: LO.init(Lo::new())?,
            namespaces <- kapi::net::Registration::new(),
            diag <- kapi::diag::Registration::new(module, report_occupied),
            // Sockets can be created from here on, so nothing may fail any more.
            family: kapi::proto::Registration::new().inspect_err(|err| {
                if *err == EEXIST {
                    report_occupied();
                }
            })?,
            // Not before it is certain that no other SMC stack has it switched on.
            syn_option: kapi::tcp::stream::SynOption::enable(),
        }? Error)
    }
}
