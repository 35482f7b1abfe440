// SPDX-License-Identifier: GPL-2.0

//! What is done for idle sockets: nothing of theirs stays in memory that is not needed.

#![deny(unsafe_code)]

use super::{
    Mode,
    SmcSock, //
};
use crate::{
    conn::idle::Resting,
    kapi::workqueue::Tidy,
    LO, //
};
use kernel::ffi::c_uint;

/// How many connections are looked after between two looks at the table of sockets.
const BATCH: usize = 32;

/// As many bytes of rings stay for the next connections while there are others.
const KEPT: usize = 1 << 20;

/// Takes the rings of idle connections, and frees rings that no connection has taken for a while.
pub(crate) struct Housekeeping;

impl Tidy for Housekeeping {
    const PERIOD: c_uint = 1000;

    fn round() -> bool {
        let Some(lo) = LO.get() else {
            return false;
        };
        let mut at = [0; 2];
        let mut connections = false;
        loop {
            let mut found: [Option<Resting>; BATCH] = [const { None }; BATCH];
            let mut places = found.iter_mut();
            let mut place = places.next();
            lo.sockets.walk(&mut at, |_, sock: &SmcSock| {
                if let Some(Mode::Smcd(end)) = sock.mode() {
                    connections = true;
                    let Some(free) = place.take() else {
                        return false;
                    };
                    *free = end.resting();
                    place = if free.is_some() {
                        places.next()
                    } else {
                        Some(free)
                    };
                }
                true
            });
            let full = place.is_none();
            for resting in found.into_iter().flatten() {
                resting.release_rings();
            }
            if !full {
                break;
            }
        }
        let kept = if connections { KEPT } else { 0 };
        lo.groups.decay(kept) || connections
    }
}
