// SPDX-License-Identifier: GPL-2.0

//! What system calls hand to a socket: messages, addresses, option values.
//!
//! C headers: [`include/linux/socket.h`](srctree/include/linux/socket.h),
//! [`include/linux/sockptr.h`](srctree/include/linux/sockptr.h)

use super::{
    bindings,
    sock::Sk, //
};
use core::marker::PhantomData;
use kernel::{
    ffi::{
        c_char,
        c_int,
        c_uint, //
    },
    iov::{
        IovIterDest,
        IovIterSource, //
    },
    prelude::*,
    types::Opaque, //
};

/// The `MSG_*` flags of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u32);

impl Flags {
    /// `MSG_DONTWAIT`.
    pub(crate) const DONTWAIT: Self = Self(bindings::MSG_DONTWAIT);
    /// `MSG_PEEK`.
    pub(crate) const PEEK: Self = Self(bindings::MSG_PEEK);
    /// `MSG_WAITALL`.
    pub(crate) const WAITALL: Self = Self(bindings::MSG_WAITALL);
    /// `MSG_TRUNC`.
    pub(crate) const TRUNC: Self = Self(bindings::MSG_TRUNC);
    /// `MSG_OOB`.
    pub(crate) const OOB: Self = Self(bindings::MSG_OOB);
    /// `MSG_ERRQUEUE`.
    pub(crate) const ERRQUEUE: Self = Self(bindings::MSG_ERRQUEUE);
    /// `MSG_ZEROCOPY`.
    pub(crate) const ZEROCOPY: Self = Self(bindings::MSG_ZEROCOPY);
    /// `MSG_FASTOPEN`.
    pub(crate) const FASTOPEN: Self = Self(bindings::MSG_FASTOPEN);

    /// Whether all of `other`'s flags are set.
    #[inline]
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether at least one of `any` is set.
    #[inline]
    pub(crate) fn intersects(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    /// These flags and `other`.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Whether the file flags of a call forbid waiting.
pub(crate) fn is_nonblock(flags: c_int) -> bool {
    u32::try_from(flags).is_ok_and(|flags| flags & bindings::O_NONBLOCK != 0)
}

/// A message to send, or room for one to receive.
#[repr(transparent)]
pub(crate) struct MsgHdr(Opaque<bindings::msghdr>);

impl MsgHdr {
    /// Borrows a message header.
    ///
    /// # Safety
    ///
    /// `ptr` must be a valid header that nobody else uses for `'a`.
    pub(super) unsafe fn from_ptr<'a>(ptr: *mut bindings::msghdr) -> &'a mut Self {
        // SAFETY: The type is transparent, and the caller guarantees the rest.
        unsafe { &mut *ptr.cast() }
    }

    /// The C object.
    pub(super) fn as_ptr(&mut self) -> *mut bindings::msghdr {
        self.0.get()
    }

    /// The flags of a send call.
    pub(crate) fn flags(&self) -> Flags {
        // SAFETY: `self` is a valid header.
        Flags(unsafe { (*self.0.get()).msg_flags })
    }

    /// Runs `f` on the message as if there were no bytes in it.
    pub(crate) fn emptied<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        // SAFETY: `self` is a valid header.
        let bytes = unsafe { bindings::msg_truncate(self.0.get(), 0) };
        let result = f(self);
        // SAFETY: As above; the message had as many bytes before.
        unsafe { bindings::msg_reexpand(self.0.get(), bytes) };
        result
    }

    /// The bytes to send.
    pub(crate) fn source(&mut self) -> &mut IovIterSource<'_> {
        // SAFETY: `self` is a valid header, borrowed for as long as the iterator is; core gives
        // `sendmsg` a source iterator.
        unsafe { IovIterSource::from_raw(&raw mut (*self.0.get()).msg_iter) }
    }

    /// The room to receive into.
    pub(crate) fn dest(&mut self) -> &mut IovIterDest<'_> {
        // SAFETY: As in `source`; core gives `recvmsg` a destination iterator.
        unsafe { IovIterDest::from_raw(&raw mut (*self.0.get()).msg_iter) }
    }

    /// Whether the sender brings control data.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        // SAFETY: `self` is a valid header.
        unsafe { (*self.0.get()).msg_controllen != 0 }
    }

    /// Whether the sender brings a completion of its own for `MSG_ZEROCOPY`.
    pub(crate) fn has_completion(&self) -> bool {
        // SAFETY: `self` is a valid header.
        !unsafe { (*self.0.get()).msg_ubuf }.is_null()
    }

    /// Whether the receiver asks what is left behind the message.
    pub(crate) fn wants_unread(&mut self) -> bool {
        // SAFETY: `self` is a valid header.
        unsafe { bindings::msg_get_inq(self.0.get()) }
    }

    /// Tells the receiver that `bytes` are left behind the message; as control data, too, if
    /// `TCP_INQ` asks for that.
    pub(crate) fn set_unread(&mut self, bytes: usize, control: bool) {
        let mut bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: `self` is a valid header.
        unsafe { (*self.0.get()).msg_inq = bytes };
        let level = c_int::try_from(bindings::SOL_TCP);
        let size = c_int::try_from(size_of::<c_int>());
        if let (true, Ok(level), Ok(size)) = (control, level, size) {
            let data = (&raw mut bytes).cast();
            // SAFETY: A valid header of a receiver, and data of that size. What does not fit is
            // noted in the header.
            unsafe { bindings::put_cmsg(self.0.get(), level, bindings::TCP_CM_INQ, size, data) };
        }
    }

    /// Tells the receiver at which time, in nanoseconds since 1970, the data came, as the options
    /// of its socket `sk` ask for it.
    pub(crate) fn set_rx_stamp(&mut self, sk: &Sk, stamp: i64) {
        // SAFETY: A valid header of a receiver, and a live socket. What does not fit is noted in
        // the header.
        unsafe { bindings::msg_put_rx_stamp(self.0.get(), sk.as_ptr(), stamp) }
    }

    /// Tells the receiver more about the message.
    pub(crate) fn add_flags(&mut self, flags: Flags) {
        // SAFETY: `self` is a valid header.
        unsafe { (*self.0.get()).msg_flags |= flags.0 }
    }

    /// Tells the caller that a stream message has no address.
    pub(crate) fn clear_name(&mut self) {
        // SAFETY: `self` is a valid header.
        unsafe { (*self.0.get()).msg_namelen = 0 }
    }
}

/// An address in kernel memory, as `bind()` and `connect()` get it.
#[derive(Clone, Copy)]
pub(crate) struct SockAddr<'a> {
    pub(super) ptr: *mut bindings::sockaddr_unsized,
    pub(super) len: c_int,
    _addr: PhantomData<&'a [u8]>,
}

impl SockAddr<'_> {
    /// Borrows an address.
    ///
    /// # Safety
    ///
    /// `ptr` must be a `struct sockaddr_storage`, of which `len` bytes are set, for `'a`.
    pub(super) unsafe fn new(ptr: *mut bindings::sockaddr_unsized, len: c_int) -> Self {
        Self {
            ptr,
            len,
            _addr: PhantomData,
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(0)
    }

    /// Its family, unless it is too short to have one.
    pub(crate) fn family(&self) -> Option<u32> {
        if self.len() < size_of::<bindings::sa_family_t>() {
            return None;
        }
        // SAFETY: The address has at least the size of its first field, the family.
        Some(unsafe { self.ptr.cast::<bindings::sa_family_t>().read() }.into())
    }

    /// Whether connecting to it dissolves a connection.
    pub(crate) fn is_unspec(&self) -> bool {
        self.family() == Some(bindings::AF_UNSPEC)
    }

    /// Whether it names the loopback network, which no other namespace shares.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.family() {
            Some(bindings::AF_INET) if self.len() >= size_of::<bindings::sockaddr_in>() => {
                // SAFETY: The length was checked.
                let addr = unsafe { (*self.ptr.cast::<bindings::sockaddr_in>()).sin_addr.s_addr };
                let [first, ..] = addr.to_ne_bytes();
                first == 127 || addr == 0
            }
            _ => false,
        }
    }
}

/// An option value in user or kernel memory.
#[derive(Clone, Copy)]
pub(crate) struct OptVal {
    pub(super) ptr: bindings::sockptr_t,
    pub(super) len: c_uint,
}

impl OptVal {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Copies its first bytes, as many as `buf` holds.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: it is shorter than `buf`.
    /// * `EFAULT`: it is not readable.
    pub(crate) fn read(&self, buf: &mut [u8]) -> Result {
        if self.len() < buf.len() {
            return Err(EINVAL);
        }
        // SAFETY: `buf` is writable for its length; the source is checked by the function when
        // it is in user memory, and as long as `self.len` says otherwise.
        let err =
            unsafe { bindings::copy_from_sockptr(buf.as_mut_ptr().cast(), self.ptr, buf.len()) };
        if err != 0 {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Reads an `int`.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub(crate) fn read_int(&self) -> Result<c_int> {
        let mut buf = [0; size_of::<c_int>()];
        self.read(&mut buf)?;
        Ok(c_int::from_ne_bytes(buf))
    }
}

/// Where `getsockopt()` puts a value and its length: user memory.
#[derive(Clone, Copy)]
pub(crate) struct UserOpt {
    pub(super) val: *mut c_char,
    pub(super) len: *mut c_int,
}

impl UserOpt {
    /// How many bytes the caller has room for.
    ///
    /// # Errors
    ///
    /// * `EFAULT`: the memory is not readable.
    /// * `EINVAL`: the number is negative.
    pub(crate) fn room(&self) -> Result<usize> {
        let mut room = [0; size_of::<c_int>()];
        let ptr = kernel::uaccess::UserPtr::from_addr(self.len.addr());
        kernel::uaccess::UserSlice::new(ptr, room.len())
            .reader()
            .read_slice(&mut room)?;
        usize::try_from(c_int::from_ne_bytes(room)).map_err(|_| EINVAL)
    }

    /// Writes an `int`, cut to the length that the caller has room for.
    ///
    /// # Errors
    ///
    /// * `EFAULT`: the memory is not accessible.
    /// * `EINVAL`: the length is negative.
    pub(crate) fn write_int(&self, value: c_int) -> Result {
        let room = self.room()?;
        let user = |ptr: usize, len| {
            kernel::uaccess::UserSlice::new(kernel::uaccess::UserPtr::from_addr(ptr), len)
        };
        let bytes = value.to_ne_bytes();
        let part = bytes.get(..room.min(bytes.len())).ok_or(EINVAL)?;
        let written = c_int::try_from(part.len()).map_err(|_| EINVAL)?;
        user(self.val.addr(), part.len())
            .writer()
            .write_slice(part)?;
        user(self.len.addr(), size_of::<c_int>())
            .writer()
            .write_slice(&written.to_ne_bytes())
    }
}
