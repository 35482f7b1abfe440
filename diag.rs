// SPDX-License-Identifier: GPL-2.0

//! What tools see of the sockets: `NETLINK_SOCK_DIAG`, as C's `smc_diag` answers it.

#![deny(unsafe_code)]

use crate::{
    conn::{
        DirectionInfo,
        Info, //
    },
    kapi::{
        diag::{
            ConnInfo,
            Cursor,
            DmbInfo,
            Record,
            Source, //
        },
        net::Net,
        sock::{
            Sk,
            TcpState, //
        },
    },
    sock::{
        Mode,
        SmcSock, //
    },
    Lo,
    LO, //
};

/// `enum smc_state`, as far as it can be told from outside.
mod state {
    pub(super) const ACTIVE: u8 = 1;
    pub(super) const INIT: u8 = 2;
    pub(super) const CLOSED: u8 = 7;
    pub(super) const LISTEN: u8 = 10;
    pub(super) const PEERCLOSEWAIT1: u8 = 20;
    pub(super) const APPCLOSEWAIT1: u8 = 22;
    pub(super) const APPFINCLOSEWAIT: u8 = 24;
    pub(super) const PROCESSABORT: u8 = 27;
}

/// `conn_state_flags`: the peer is done writing, has closed, has aborted.
mod flags {
    pub(super) const DONE_WRITING: u8 = 0x80;
    pub(super) const CLOSED: u8 = 0x40;
    pub(super) const ABORT: u8 = 0x20;
}

/// The sockets' reporter.
pub(crate) struct Diag;

impl Source for Diag {
    fn dump(net: &Net, at: &mut [usize; 2], emit: &mut dyn FnMut(&Record<'_>) -> bool) {
        let Some(lo) = LO.get() else {
            return;
        };
        lo.sockets.walk(at, |sk, sock| {
            if sk.net().cookie() != net.cookie() {
                return true;
            }
            match record(lo, sk, sock) {
                Some(record) => emit(&record),
                None => true,
            }
        });
    }
}

/// The report on one socket.
fn record<'a>(lo: &Lo, sk: &'a Sk, sock: &'a SmcSock) -> Option<Record<'a>> {
    let inner = sock.tcp_sk()?;
    let info = match sock.mode() {
        Some(Mode::Smcd(end)) => Some(end.info()),
        _ => None,
    };
    let state = match &info {
        Some(info) => smcd_state(info),
        None => match (inner.tcp_state(), sock.mode().is_some()) {
            (TcpState::Listen, _) => state::LISTEN,
            // Connected, as far as TCP is concerned, but not yet for the application.
            (_, false) => state::INIT,
            (TcpState::Established, true) => state::ACTIVE,
            (TcpState::Opening, true) => state::INIT,
            (TcpState::Closing, true) => state::APPCLOSEWAIT1,
            (TcpState::Close, true) => state::CLOSED,
        },
    };
    let (mode, fallback) = match sock.mode() {
        Some(Mode::Tcp(reason)) => (
            crate::kapi::diag::Mode::Tcp,
            (reason.code(), sock.peer_diagnosis()),
        ),
        Some(Mode::Smcd(_)) => (crate::kapi::diag::Mode::Smcd, (0, 0)),
        None => (crate::kapi::diag::Mode::Undecided, (0, 0)),
    };
    Some(Record {
        sk,
        inner,
        state,
        mode,
        shutdown: sk.shutdown_mask().mask(),
        fallback,
        conn: info.map(|info| (conn_info(&info), dmb_info(lo, &info))),
    })
}

fn smcd_state(info: &Info) -> u8 {
    use crate::cdc::cursor::Flags;

    let aborted = info.rx.control.has(Flags::TX_ABORT) || info.tx.control.has(Flags::TX_ABORT);
    let sent = info.tx.control.has(Flags::TX_SHUT);
    let received = info.rx.control.has(Flags::TX_SHUT);
    match (aborted, sent, received) {
        (true, _, _) => state::PROCESSABORT,
        (_, false, false) => state::ACTIVE,
        (_, true, false) => state::PEERCLOSEWAIT1,
        (_, false, true) => state::APPCLOSEWAIT1,
        (_, true, true) => state::APPFINCLOSEWAIT,
    }
}

fn state_flags(direction: &DirectionInfo, closed: bool) -> u8 {
    use crate::cdc::cursor::Flags;

    let mut bits = 0;
    if direction.control.has(Flags::TX_SHUT) {
        bits |= flags::DONE_WRITING;
    }
    if direction.control.has(Flags::TX_ABORT) {
        bits |= flags::ABORT;
    }
    if closed {
        bits |= flags::CLOSED;
    }
    bits
}

fn conn_info(info: &Info) -> ConnInfo {
    let size = |direction: &DirectionInfo| u32::try_from(direction.size).unwrap_or(u32::MAX);
    let cursor = |cursor: crate::cdc::cursor::Cursor| Cursor {
        wrap: cursor.wrap,
        count: cursor.count,
    };
    ConnInfo {
        token: info.rx.token.map_or(0, |token| {
            u32::try_from(token.get() & 0xffff_ffff).unwrap_or(0)
        }),
        sndbuf_size: size(&info.tx),
        rmbe_size: size(&info.rx),
        rx_prod: cursor(info.rx.producer),
        rx_cons: cursor(info.rx.consumer),
        tx_prod: cursor(info.tx.producer),
        tx_cons: cursor(info.tx.consumer),
        rx_state_flags: state_flags(&info.rx, info.peer_closed),
        tx_state_flags: state_flags(&info.tx, info.closed),
    }
}

fn dmb_info(lo: &Lo, info: &Info) -> DmbInfo {
    DmbInfo {
        linkid: info.group,
        gid: lo.gid,
        token: info.rx.token.map_or(0, |token| token.get()),
        peer_token: info.tx.token.map_or(0, |token| token.get()),
    }
}
