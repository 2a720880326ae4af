//! Why something is refused: an errno for programs, a text for people.

use alloc::string::String;
use core::fmt;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Linux's number for it, such as [`errno::EINVAL`].
    pub errno: i32,
    /// One line: what was expected, what came, what to do.
    pub text: String,
}

impl Refusal {
    /// A refusal with this errno and this text.
    pub fn new(errno: i32, text: impl Into<String>) -> Refusal {
        Refusal { errno, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Linux's error numbers, as far as the core refuses anything with them. They are the same on all its architectures that iogate runs on.
pub mod errno {
    /// Operation not permitted.
    pub const EPERM: i32 = 1;
    /// No such file, directory, place or target.
    pub const ENOENT: i32 = 2;
    /// Input or output failed.
    pub const EIO: i32 = 5;
    /// No such handle.
    pub const EBADF: i32 = 9;
    /// Try again later.
    pub const EAGAIN: i32 = 11;
    /// Permission denied.
    pub const EACCES: i32 = 13;
    /// Not now.
    pub const EBUSY: i32 = 16;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// Too many open files.
    pub const EMFILE: i32 = 24;
    /// The file would be too large.
    pub const EFBIG: i32 = 27;
    /// No space is left.
    pub const ENOSPC: i32 = 28;
    /// It would wait for itself.
    pub const EDEADLK: i32 = 35;
    /// There is no room for more locks.
    pub const ENOLCK: i32 = 37;
    /// It leads back to itself.
    pub const ELOOP: i32 = 40;
    /// Not what the protocol says.
    pub const EPROTO: i32 = 71;
    /// Too many users.
    pub const EUSERS: i32 = 87;
    /// Not supported here.
    pub const EOPNOTSUPP: i32 = 95;
    /// Somebody else has that place.
    pub const EADDRINUSE: i32 = 98;
    /// What is meant is over.
    pub const ESTALE: i32 = 116;
    /// The user's quota is used up.
    pub const EDQUOT: i32 = 122;
    /// It was given up.
    pub const ECANCELED: i32 = 125;
}
