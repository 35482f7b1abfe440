// SPDX-License-Identifier: GPL-2.0

//! `accept()` under way.

use super::{
    super::{
        bindings,
        sock::Sk, //
    },
    object::{
        alloc,
        discard,
        init_value, //
    },
    protocol::version_of,
    socket::{
        op,
        Op,
        Socket, //
    },
    Birth,
    StreamSocket, //
};
use kernel::prelude::*;

/// An `accept()` under way: the socket that will hold the new connection.
pub(crate) struct Accept<'a> {
    pub(super) socket: &'a Socket,
    pub(super) arg: *mut bindings::proto_accept_arg,
}

impl Accept<'_> {
    /// Whether the call must not wait.
    pub(crate) fn nonblock(&self) -> bool {
        // SAFETY: Core's argument is valid during the call.
        let flags = unsafe { (*self.arg).flags };
        u32::try_from(flags).is_ok_and(|flags| flags & bindings::O_NONBLOCK != 0)
    }

    /// Whether the kernel itself accepts.
    pub(crate) fn kern(&self) -> bool {
        // SAFETY: Core's argument is valid during the call.
        unsafe { (*self.arg).kern }
    }

    /// Tells core whether more connections wait.
    pub(crate) fn set_empty(&mut self, empty: bool) {
        // SAFETY: Core's argument is valid during the call.
        unsafe { (*self.arg).is_empty = empty.into() };
    }

    /// Gives the accepted connection its socket, of the same protocol as `listener`.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    /// * those of `init`.
    pub(crate) fn graft<'b, T: StreamSocket, I: PinInit<T, Error>>(
        &'b self,
        listener: &Sk,
        init: impl FnOnce(Birth<'_>) -> I,
    ) -> Result<Op<'b, T>> {
        let parent = listener.as_ptr();
        // SAFETY: `listener` is a live socket; these fields never change.
        let (family, proto, protocol) = unsafe {
            (
                (*parent).__sk_common.skc_family,
                (*parent).__sk_common.skc_prot,
                bindings::sk_protocol(parent),
            )
        };
        // SAFETY: `proto` is one of this module's registered protocols, as the listener has it.
        let version = unsafe { version_of(proto) };
        let net = listener.net();
        // SAFETY: As above; the socket is not yet visible to anybody.
        let sk = unsafe {
            alloc::<T>(
                net,
                family.into(),
                proto,
                protocol,
                version,
                self.kern(),
                None,
            )?
        };
        // SAFETY: A new socket, referenced until it is put below.
        let new = unsafe { Sk::from_ptr(sk) };
        // SAFETY: `sk` has no socket yet, and `self.socket` no `sk`.
        unsafe { bindings::sock_graft(sk, self.socket.as_ptr()) };
        let birth = Birth {
            sk: new,
            version,
            kern: self.kern(),
        };
        // SAFETY: The value of the new socket is not initialised.
        if let Err(err) = unsafe { init_value::<T, _>(sk, version, init(birth)) } {
            // SAFETY: Nobody but this function knows `sk`; its value is not initialised.
            unsafe { discard(self.socket.as_ptr(), sk) };
            return Err(err);
        }
        // SAFETY: The socket is not yet in use.
        unsafe {
            (*self.socket.as_ptr()).state = bindings::socket_state_SS_CONNECTED;
        };
        // SAFETY: Just initialised; the caller is within `accept()`, which keeps the new socket.
        Ok(unsafe { op::<T>(self.socket.as_ptr(), sk) })
    }
}
