//! From a path to what lies below a root, and never anywhere else.
//!
//! The kernel resolves what comes before the last component, and stops where it would leave the root, whatever is renamed or
//! replaced meanwhile. The last component is then an argument of a call on its directory, or is held by an `O_PATH` descriptor.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iogate_core::wire::PATH_BYTES_MAX;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Most bytes of a name, in Linux.
const NAME_BYTES_MAX: usize = 255;
/// How often to try when the kernel cannot tell, for renames at the same time, whether a path stays below.
const TRIES: usize = 1000;

/// A name in a directory. The root itself is `.` in the root.
pub(super) struct Place<'a> {
    pub(super) dir: Dir<'a>,
    pub(super) name: &'a OsStr,
}

/// A directory that a name is in.
pub(super) enum Dir<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Dir<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Dir::Root(fd) => *fd,
            Dir::Below(fd) => fd.as_fd(),
        }
    }
}

impl<'a> Place<'a> {
    /// Finds the directory that the last component of `path` is in.
    pub(super) fn find(root: BorrowedFd<'a>, path: &'a Path) -> Result<Place<'a>, Errno> {
        check(path)?;
        let bytes = path.as_os_str().as_bytes();
        let (dir, name) = match bytes.iter().rposition(|&byte| byte == b'/') {
            None if bytes.is_empty() => (Dir::Root(root), &b"."[..]),
            None => (Dir::Root(root), bytes),
            Some(slash) => {
                let parent = Path::new(OsStr::from_bytes(&bytes[..slash]));
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                (Dir::Below(open(root, parent, flags, Mode::empty())?), &bytes[slash + 1..])
            }
        };
        Ok(Place { dir, name: OsStr::from_bytes(name) })
    }

    pub(super) fn is_root(&self) -> bool {
        self.name == "."
    }

    /// Holds what has the name, which may be a symbolic link.
    pub(super) fn hold(&self) -> Result<OwnedFd, Errno> {
        if self.is_root() {
            return rustix::io::fcntl_dupfd_cloexec(&self.dir, 0);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, self.name, flags, Mode::empty())
    }
}

/// Opens a path below the root. Symbolic links are followed as long as they stay below; `EACCES` where they do not.
pub(super) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    check(path)?;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // What a caller would take for another file system, to which it may copy.
            Err(Errno::XDEV) => return Err(Errno::ACCESS),
            opened => return opened,
        }
    }
    Err(Errno::BUSY)
}

/// A path is names with a slash between two of them, or empty.
fn check(path: &Path) -> Result<(), Errno> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Ok(());
    }
    if bytes.len() > PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    for name in bytes.split(|&byte| byte == b'/') {
        if matches!(name, b"" | b"." | b"..") || name.contains(&0) {
            return Err(Errno::INVAL);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
    }
    Ok(())
}

/// `/proc/self/fd/N`, on the stack: leads to exactly what the descriptor holds.
pub(super) struct ProcPath {
    bytes: [u8; 32],
    length: usize,
}

impl ProcPath {
    pub(super) fn new(fd: impl AsFd) -> ProcPath {
        let mut bytes = [0; 32];
        let mut rest = &mut bytes[..];
        // A descriptor's number fits.
        let _ = write!(rest, "/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let length = 32 - rest.len();
        ProcPath { bytes, length }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
