//! Descriptors of our own, at numbers that programs do not count on, and that they can neither close nor replace.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::FdFlags;
use rustix::process::{Resource, getrlimit};

use crate::table;

/// Programs take the lowest numbers, and shells some above 10 and 255.
const LOWEST: u64 = 512;

/// A descriptor that is ours.
#[derive(Debug)]
pub(crate) struct Kept(OwnedFd);

impl Kept {
    /// A copy of a descriptor, out of the program's way. A child of `fork` does not have it.
    pub(crate) fn new(fd: &OwnedFd) -> io::Result<Kept> {
        Kept::with(fd, false)
    }

    /// A copy of a descriptor, out of the program's way, which children and programs started by `exec` have as well.
    pub(crate) fn inheritable(fd: &OwnedFd) -> io::Result<Kept> {
        let kept = Kept::with(fd, true)?;
        rustix::io::fcntl_setfd(&kept, FdFlags::empty())?;
        Ok(kept)
    }

    fn with(fd: &OwnedFd, inherited: bool) -> io::Result<Kept> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let kept = rustix::io::fcntl_dupfd_cloexec(fd, LOWEST.min(limit / 2) as i32)?;
        table::protect(kept.as_raw_fd(), inherited)?;
        Ok(Kept(kept))
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It is closed next, like any other.
        table::take(self.0.as_raw_fd());
    }
}
