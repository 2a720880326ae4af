//! The folder of an export that is the server's own: clients neither see nor reach it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iogate_core::reserved;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Its name, in the root of the export.
pub(crate) const NAME: &str = ".iogate";
/// The folder for files that are open and have no name.
pub(crate) const ORPHANS: &str = "orphans";
/// The folder for files that have no other name, until their objects are removed. Each has the name of its objects.
pub(crate) const REMOVED: &str = "removed";

/// Whether a path below the export's root is the folder, or leads into it.
pub(crate) fn contains(path: &Path) -> bool {
    reserved::is_path(path.as_os_str().as_bytes())
}

/// Opens a folder in it, and makes both where they are missing; only for the process's own user.
pub(crate) fn folder(root: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let own = make_and_open(root, NAME)?;
    make_and_open(std::os::fd::AsFd::as_fd(&own), name)
}

fn make_and_open(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(dir, name, flags, Mode::empty()),
            Err(errno) => Err(errno),
        },
        opened => opened,
    }
}
