// SPDX-License-Identifier: GPL-2.0

//! The wire handshakes of a listener's children that nobody has accepted yet.
//!
//! With `SMC_LIMIT_HS` the listener counts those under way, and sends clients to TCP when they are
//! too many.

#![deny(unsafe_code)]

use super::Peer;
use crate::{
    kapi::{
        sock::Sk,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        }, //
    },
    Lo, //
};
use core::mem;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// How many handshakes of one listener's children are under way.
pub(super) struct Pressure(Atomic<usize>);

impl Pressure {
    fn enter(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What a listener knows of its unaccepted children.
struct Crowd {
    peers: RBTree<usize, Arc<Peer>>,
    /// Whose number is limited, if it is.
    pressure: Option<Arc<Pressure>>,
}

/// The handshakes of a listener's children that nobody has accepted yet.
#[pin_data]
pub(crate) struct Parked {
    #[pin]
    crowd: SpinLockBh<Crowd>,
}

impl Parked {
    /// None.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            crowd <- new_spinlock_bh!(Crowd {
                peers: RBTree::new(),
                pressure: None,
            }, "Parked::crowd"),
        })
    }

    /// Begins or ends to count the handshakes under way, for a socket that is about to listen.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn limit(&self, limited: bool) -> Result {
        let pressure = limited
            .then(|| Arc::new(Pressure(Atomic::new(0)), GFP_KERNEL_ACCOUNT))
            .transpose()?;
        let _old = mem::replace(&mut self.crowd.lock().pressure, pressure);
        Ok(())
    }

    /// Whether the handshakes under way are counted.
    pub(crate) fn is_limited(&self) -> bool {
        self.crowd.lock().pressure.is_some()
    }

    /// Whether handshakes are limited, and those under way hold half of a `backlog` or more:
    /// silent clients must not keep others out of the accept queue.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn is_congested(&self, backlog: usize) -> bool {
        let crowd = self.crowd.lock();
        crowd.pressure.as_ref().is_some_and(|pressure| {
            let begun = pressure.0.load(Relaxed);
            begun.saturating_mul(2) >= backlog.max(1)
        })
    }

    /// Adds the handshake of a child that was just born and has not begun to converse.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Softirq.
    pub(crate) fn insert(&self, peer: &Arc<Peer>) -> Result {
        let node = RBTreeNode::new(peer.sk.addr(), peer.clone(), GFP_ATOMIC)?;
        let mut crowd = self.crowd.lock();
        if let Some(pressure) = &crowd.pressure {
            pressure.enter();
            peer.pressure.populate(pressure.clone());
        }
        crowd.peers.insert(node);
        Ok(())
    }

    /// Takes the handshake of an accepted child.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn take(&self, child: &Sk) -> Option<Arc<Peer>> {
        let peer = self.crowd.lock().peers.remove(&child.addr())?;
        let _parked = child.unpark::<Peer>();
        Some(peer)
    }

    /// Resets all children, of a listener that goes away.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn kill_all(&self) {
        loop {
            let node = {
                let mut crowd = self.crowd.lock();
                crowd
                    .peers
                    .cursor_front_mut()
                    .map(|cursor| cursor.remove_current().1)
            };
            let Some(node) = node else {
                return;
            };
            let (_, peer) = node.to_key_value();
            Peer::kill(&peer);
        }
    }
}

/// Begins the handshake of a child that is not paired and whose client speaks SMC.
///
/// Without memory the handshake begins when the child is accepted.
///
/// # Context
///
/// Softirq; the child is new and locked.
pub(crate) fn child_born(lo: &Lo, child: &Sk, park: impl FnOnce(&Arc<Peer>) -> bool) {
    let Ok(peer) = Peer::server(&lo.wire, child, GFP_ATOMIC) else {
        return;
    };
    if park(&peer) {
        child.park(peer.clone());
        Peer::kick(&peer, &lo.queue);
    }
}
