// SPDX-License-Identifier: GPL-2.0

//! Idle connections, which are to have no rings.
//!
//! Taking a ring away whenever everything has been read would cost a busy connection as much as a
//! message does. So somebody looks now and then, and takes the rings of those directions in which
//! nothing was read since the last look.

#![deny(unsafe_code)]

use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

use super::{
    Connection,
    Endpoint,
    Side, //
};

/// One direction of a connection that seems to be idle, with rings.
///
/// # Context
///
/// Used and dropped in process context, where no lock of a connection is held.
pub(crate) struct Resting {
    conn: Arc<Connection>,
    reader: Side,
}

impl Resting {
    /// Gives the rings back, unless the direction is busy again.
    pub(crate) fn release_rings(self) {
        self.conn.release_idle(self.reader);
    }
}

impl Endpoint {
    /// The direction this end reads, if it has rings and nothing was read from them since this was
    /// called last.
    ///
    /// # Context
    ///
    /// Process context; does not sleep. One caller at a time.
    pub(crate) fn resting(&self) -> Option<Resting> {
        let incoming = self.conn.incoming(self.side);
        let consumed = incoming.channel.consumed();
        let before = incoming.looked_at.load(Relaxed);
        incoming.looked_at.store(consumed.into_raw(), Relaxed);
        let idle = before == consumed.into_raw()
            && incoming.unread() == 0
            && incoming.chain.lock().has_rings();
        idle.then(|| Resting {
            conn: self.conn.clone(),
            reader: self.side,
        })
    }
}

impl Connection {
    fn release_idle(&self, reader: Side) {
        // Who holds it is about to read.
        if let Some(mut rx) = self.incoming(reader).rx.try_lock() {
            self.drop_idle(reader, &mut rx);
        }
    }
}
