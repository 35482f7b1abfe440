// SPDX-License-Identifier: GPL-2.0

//! `kernel::error`: an errno as a type.

use core::{
    fmt,
    num::NonZeroI32, //
};

/// A negative errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(NonZeroI32);

/// The kernel's result.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// The error for a negative errno; `EINVAL` when it is not one.
    pub const fn from_errno(errno: i32) -> Self {
        match NonZeroI32::new(errno) {
            Some(value) if errno >= -4095 && errno < 0 => Self(value),
            _ => code::EINVAL,
        }
    }

    /// The negative errno.
    pub const fn to_errno(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match code::name(*self) {
            Some(name) => f.write_str(name),
            None => write!(f, "Error({})", self.0),
        }
    }
}

/// The constants, with Linux' numbers.
pub mod code {
    use super::Error;

    macro_rules! errors {
        ($($name:ident = $number:literal,)*) => {
            $(
                #[doc = stringify!($name)]
                pub const $name: Error = match core::num::NonZeroI32::new(-$number) {
                    Some(value) => Error(value),
                    None => panic!("an errno is not zero"),
                };
            )*

            /// The constant's name.
            pub(super) fn name(error: Error) -> Option<&'static str> {
                match -error.to_errno() {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        };
    }

    errors! {
        EPERM = 1,
        ENOENT = 2,
        EINTR = 4,
        EIO = 5,
        E2BIG = 7,
        EBADF = 9,
        EAGAIN = 11,
        ENOMEM = 12,
        EACCES = 13,
        EFAULT = 14,
        EBUSY = 16,
        EEXIST = 17,
        ENODEV = 19,
        EINVAL = 22,
        ENFILE = 23,
        ENOSPC = 28,
        EPIPE = 32,
        ERANGE = 34,
        EPROTO = 71,
        EBADMSG = 74,
        EOVERFLOW = 75,
        EDESTADDRREQ = 89,
        EMSGSIZE = 90,
        ENOPROTOOPT = 92,
        EPROTONOSUPPORT = 93,
        ESOCKTNOSUPPORT = 94,
        EOPNOTSUPP = 95,
        EAFNOSUPPORT = 97,
        EADDRINUSE = 98,
        ENETUNREACH = 101,
        ECONNABORTED = 103,
        ECONNRESET = 104,
        ENOBUFS = 105,
        EISCONN = 106,
        ENOTCONN = 107,
        EDQUOT = 122,
        ETIMEDOUT = 110,
        ECONNREFUSED = 111,
        EHOSTUNREACH = 113,
        EALREADY = 114,
        EINPROGRESS = 115,
        ERESTARTSYS = 512,
    }
}
