//! From a path to what lies below a root, and never anywhere else.
//!
//! The kernel resolves what comes before the last component, and stops where it would leave the root, whatever is renamed or
//! replaced meanwhile. The last component is then an argument of a call on its directory, or is held by an `O_PATH` descriptor.
//!
//! What is in the root's `.iogate` is the server's own. A path without symbolic links leads there only by that name, as nobody can give
//! the folder another one; where there are links, the kernel is asked where they have led.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use iogate_core::reserved;
use iogate_core::wire::PATH_BYTES_MAX;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Most bytes of a name, in Linux.
const NAME_BYTES_MAX: usize = 255;
/// How often to try when the kernel cannot tell, for renames at the same time, whether a path stays below.
const TRIES: usize = 1000;
/// How many symbolic links are followed, one behind the other, as in Linux.
const LINKS_MAX: usize = 40;

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
        let (parent, name) = split(path);
        let Some(parent) = parent else {
            let name = if name.is_empty() { OsStr::new(".") } else { name };
            return Ok(Place { dir: Dir::Root(root), name });
        };
        let dir = open(root, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Place { dir: Dir::Below(dir), name }.unless_own(root)
    }

    /// As [`Place::find`], of a path that a symbolic link has led to.
    fn find_linked(root: BorrowedFd<'a>, path: &'a Path) -> Result<Place<'a>, Errno> {
        let (parent, name) = split(path);
        if matches!(name.as_bytes(), b"" | b"." | b"..") {
            return Err(Errno::ISDIR);
        }
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let dir = resolved(root, parent, flags, Mode::empty(), resolve)?;
        refuse_own(root, dir.as_fd(), None)?;
        Place { dir: Dir::Below(dir), name }.unless_own(root)
    }

    /// Fails if this is the server's own folder.
    fn unless_own(self, root: BorrowedFd<'_>) -> Result<Place<'a>, Errno> {
        if self.name.as_bytes() == reserved::DIRECTORY {
            refuse_own(root, self.dir.as_fd(), Some(self.name))?;
        }
        Ok(self)
    }

    /// Where the symbolic link leads that has the name; `EEXIST` if something else has. In a folder where everybody makes names, only
    /// the folder's owner's links and those of `uid` are followed, as the kernel has it where it protects links.
    fn link_target(&self, uid: u32) -> Result<PathBuf, Errno> {
        let link = rustix::fs::statat(&self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
            return Err(Errno::EXIST);
        }
        let folder = rustix::fs::fstat(&self.dir)?;
        let everybody = libc::S_ISVTX | libc::S_IWOTH;
        let is_shared = folder.st_mode & everybody == everybody;
        if is_shared && link.st_uid != uid && link.st_uid != folder.st_uid && protects_links() {
            return Err(Errno::ACCESS);
        }
        let target = rustix::fs::readlinkat(&self.dir, self.name, Vec::new())?;
        Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
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

/// Opens a path below the root. Symbolic links are followed as long as they stay below; `EACCES` where they do not, `ENOENT` where they
/// lead to what is the server's own. The flags are not to change what is opened, or create.
pub(super) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    check(path)?;
    if reserved::is_path(path.as_os_str().as_bytes()) {
        return Err(Errno::NOENT);
    }
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match resolved(root, path, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => {}
        opened => return opened,
    }
    let opened = resolved(root, path, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?;
    refuse_own(root, opened.as_fd(), None)?;
    Ok(opened)
}

/// Creates a file that is not there, by `make`, which fails with `EEXIST` if something is. Symbolic links to nothing are followed for a
/// user `uid`, which never creates anything but below the root, and not among what is the server's own.
pub(super) fn create<R>(
    root: BorrowedFd<'_>,
    path: &Path,
    follows: Option<u32>,
    make: impl Fn(&Place<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut linked: Option<PathBuf> = None;
    for _ in 0..LINKS_MAX {
        let place = match &linked {
            None => Place::find(root, path)?,
            Some(linked) => Place::find_linked(root, linked)?,
        };
        let Some(uid) = follows else { return make(&place) };
        match make(&place) {
            Err(Errno::EXIST) => {}
            created => return created,
        }
        let target = place.link_target(uid)?;
        let from = linked.as_deref().unwrap_or(path);
        linked = Some(split(from).0.unwrap_or(Path::new("")).join(target));
    }
    Err(Errno::LOOP)
}

fn resolved(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
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

/// Fails with `ENOENT` if what a descriptor holds, or a name in it, is the server's own.
fn refuse_own(root: BorrowedFd<'_>, held: BorrowedFd<'_>, name: Option<&OsStr>) -> Result<(), Errno> {
    let below = [&below(root, held)?[..], b"/", name.map_or(&[], OsStr::as_bytes)].concat();
    if reserved::is_path(&below) { Err(Errno::NOENT) } else { Ok(()) }
}

/// Where what a descriptor holds is below the root, as the kernel has it now: nothing, or a slash before each name. `ESTALE` if it is not.
fn below(root: BorrowedFd<'_>, held: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let path_of = |fd| rustix::fs::readlink(ProcPath::new(fd).as_bytes(), Vec::new());
    let (root, held) = (path_of(root)?, path_of(held)?);
    let root = root.as_bytes().strip_suffix(b"/").unwrap_or(root.as_bytes());
    // The root itself has been renamed meanwhile.
    let below = held.as_bytes().strip_prefix(root).ok_or(Errno::STALE)?;
    match below.first() {
        None | Some(b'/') => Ok(below.to_vec()),
        Some(_) => Err(Errno::STALE),
    }
}

/// The path below a root of the file that a descriptor holds, as the kernel has it now; of a name that is gone, the one that it was. Of
/// several names it is the one by which the file was found. `None`: the kernel knows none below the root.
pub fn path_of(root: impl AsFd, held: impl AsFd) -> Option<PathBuf> {
    let below = below(root.as_fd(), held.as_fd()).ok()?;
    let below = below.strip_prefix(b"/")?;
    let is_there = || rustix::fs::statat(&root, below, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let path = match below.strip_suffix(b" (deleted)") {
        // A file may be called so.
        Some(path) if !is_there() => path,
        _ => below,
    };
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// See `protected_symlinks` in `proc_sys_fs(5)`.
fn protects_links() -> bool {
    static PROTECTS: OnceLock<bool> = OnceLock::new();
    *PROTECTS.get_or_init(|| {
        std::fs::read("/proc/sys/fs/protected_symlinks").map_or(true, |value| value.trim_ascii() != b"0")
    })
}

/// What comes before the last slash, if there is one, and what comes behind it.
fn split(path: &Path) -> (Option<&Path>, &OsStr) {
    let bytes = path.as_os_str().as_bytes();
    match bytes.iter().rposition(|&byte| byte == b'/') {
        None => (None, path.as_os_str()),
        Some(0) => (Some(Path::new("/")), OsStr::from_bytes(&bytes[1..])),
        Some(at) => (Some(Path::new(OsStr::from_bytes(&bytes[..at]))), OsStr::from_bytes(&bytes[at + 1..])),
    }
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

/// Whether a path leads to another file than it did, or to none.
pub(super) fn is_another(error: &io::Error) -> bool {
    let errnos = [libc::ESTALE, libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENXIO];
    error.raw_os_error().is_some_and(|errno| errnos.contains(&errno))
}
