// SPDX-License-Identifier: GPL-2.0

//! What wire handshakes have in common: who this host is, and where the two ends of a connection
//! meet.

#![deny(unsafe_code)]

use crate::{
    bufpool::quota::User,
    clc::{
        eid::{
            Eid,
            Table, //
        },
        wire::{
            machine::{
                Host,
                Terms, //
            },
            Gid,
            HOSTNAME_LEN, //
        },
    },
    conn::Endpoint,
    kapi::{
        random,
        sock::Sk,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        tcp::stream::Stand,
        uts, //
    },
    lgr::Groups, //
};
use core::mem;
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// What wire handshakes have in common.
#[pin_data]
pub(crate) struct Wire {
    gid: Gid,
    hostname: [u8; HOSTNAME_LEN],
    #[pin]
    eids: SpinLockBh<Table>,
    #[pin]
    rendezvous: Mutex<RBTree<u64, Arc<Rendezvous>>>,
    pub(super) stand: Stand,
}

impl Wire {
    /// For the loopback device with this GID.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` - no memory.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn new([gid, ext]: [u64; 2]) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            gid: Gid { gid, ext },
            hostname: uts::nodename(),
            eids <- new_spinlock_bh!(Table::new(), "Wire::eids"),
            rendezvous <- new_mutex!(RBTree::new(), "Wire::rendezvous"),
            stand: Stand::new()?,
        })
    }

    pub(super) fn host(&self) -> Host {
        Host {
            gid: self.gid,
            hostname: self.hostname,
            eids: *self.eids.lock(),
        }
    }

    /// Lets a server's connection be found by a token, which is returned.
    pub(super) fn invite(&self, terms: &Terms, server_net: u64) -> Result<(u64, Arc<Rendezvous>)> {
        let rendezvous = Arc::pin_init(
            pin_init!(Rendezvous {
                server_net,
                eid: terms.eid,
                meeting <- new_mutex!(Meeting::Open, "Rendezvous::meeting"),
            }),
            GFP_KERNEL,
        )?;
        let token = random::get_random_u64();
        let node = RBTreeNode::new(token, rendezvous.clone(), GFP_KERNEL)?;
        // A token that is in use already would lead its clients astray; they fail and go on in
        // TCP, once in many universes.
        let _replaced = self.rendezvous.lock().insert(node);
        Ok((token, rendezvous))
    }

    /// The rendezvous behind a token, which from now on nobody finds.
    pub(super) fn find(&self, token: u64) -> Option<Arc<Rendezvous>> {
        self.rendezvous.lock().remove(&token)
    }
}

/// Where the two ends of a connection meet that one of them has named to the other.
#[pin_data]
pub(super) struct Rendezvous {
    server_net: u64,
    eid: Eid,
    #[pin]
    meeting: Mutex<Meeting>,
}

/// How far the meeting is.
enum Meeting {
    /// The client has not come.
    Open,
    /// The client has taken its end; this is the server's.
    Claimed(Endpoint),
    /// The server has taken its end, or gone.
    Closed,
}

impl Rendezvous {
    /// Makes the connection and takes the client's end.
    pub(super) fn claim(&self, groups: &Arc<Groups>, client: &Sk) -> Result<Endpoint> {
        let mut meeting = self.meeting.lock();
        if !matches!(*meeting, Meeting::Open) {
            return Err(ENOENT);
        }
        let group = groups.get(client.net().cookie(), self.server_net, &self.eid)?;
        let (end, server) = Endpoint::pair(group, User::new(client.answerable_uid()))?;
        *meeting = Meeting::Claimed(server);
        Ok(end)
    }

    /// Takes the server's end, if the client has come. Afterwards no client can.
    pub(super) fn server_end(&self) -> Option<Endpoint> {
        let meeting = mem::replace(&mut *self.meeting.lock(), Meeting::Closed);
        match meeting {
            Meeting::Claimed(end) => Some(end),
            Meeting::Open | Meeting::Closed => None,
        }
    }
}
