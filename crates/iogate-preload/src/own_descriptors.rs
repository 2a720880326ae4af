//! Descriptors of our own, at numbers that programs do not count on, and that they can neither close nor replace.
//! Whoever works for the library closes them as usual.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::FdFlags;
use rustix::process::{Resource, getrlimit};

use crate::table;

/// Programs take the lowest numbers, and shells some above 10 and 255.
const LOWEST: u64 = 512;

/// Moves a descriptor out of the program's way. A child of `fork` does not have it.
#[allow(clippy::needless_pass_by_value, reason = "the original is closed")]
pub(crate) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    keep_with(&fd, false)
}

/// A copy of a descriptor, out of the program's way, which children and programs started by `exec` have as well.
pub(crate) fn keep_inheritable(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let kept = keep_with(fd, true)?;
    rustix::io::fcntl_setfd(&kept, FdFlags::empty())?;
    Ok(kept)
}

fn keep_with(fd: &OwnedFd, inherited: bool) -> io::Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let kept = rustix::io::fcntl_dupfd_cloexec(fd, LOWEST.min(limit / 2) as i32)?;
    table::protect(kept.as_raw_fd(), inherited)?;
    Ok(kept)
}
