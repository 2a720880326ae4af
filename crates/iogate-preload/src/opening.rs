//! Opening files.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use iogate_core::wire::{Identity, open};
use iogate_vfs::OpenHow;
use libc::mode_t;
use rustix::io::{Errno, FdFlags};

use crate::abi::Text;
use crate::connect;
use crate::description::{Description, Handle, access_of};
use crate::failed::{Failed, Result};
use crate::page::Page;
use crate::paths::{self, TreePath};
use crate::stdio;
use crate::table;
use crate::turns::opened;

/// What `O_TMPFILE` has beside `O_DIRECTORY`.
const TMPFILE: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// Flags that say how to open, and nothing of the open file.
const ONCE: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC;

/// The process's umask, which the kernel does not tell without changing it.
static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Asks the kernel for the umask, while the process has one thread.
pub(crate) fn learn_umask() {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    UMASK.store(mask.as_raw_mode(), Ordering::Relaxed);
}

/// Permissions less what the umask takes.
pub(crate) fn masked(mode: mode_t) -> u32 {
    mode & 0o7777 & !UMASK.load(Ordering::Relaxed)
}

/// Opens a file of the tree under the lowest free descriptor.
pub(crate) fn open_file(path: &TreePath, flags: c_int, mode: mode_t) -> Result<c_int> {
    // The descriptor first: without one, nothing may have been made or cut at the server. Programs started meanwhile have no use for it.
    let (fd, page) = Page::create(flags & !ONCE, true, Identity::default(), path.bytes())?;
    table::check_number(fd.as_raw_fd())?;
    let (path, handle) = if flags & libc::O_PATH != 0 {
        (find(path, flags)?, None)
    } else {
        let (path, handle) = open_at_server(path, flags, mode)?;
        page.set_identity(handle.file.identity());
        (path, Some(handle))
    };
    page.set_path(path.bytes())?;
    if flags & libc::O_CLOEXEC == 0 {
        rustix::io::fcntl_setfd(&fd, FdFlags::empty())?;
    }
    table::put(fd.as_raw_fd(), Arc::new(Description::new(page, handle)))?;
    let fd = fd.into_raw_fd();
    stdio::now_ours(fd);
    Ok(fd)
}

/// What `O_PATH` asks: that there is something.
fn find(path: &TreePath, flags: c_int) -> Result<TreePath> {
    let (found, attr) = if flags & libc::O_NOFOLLOW != 0 {
        let attr = paths::on_tree(path, |tree, caller, path| tree.attr(caller, path))?;
        path.check(&attr)?;
        (path.clone(), attr)
    } else {
        paths::follow(path)?
    };
    let directory = flags & libc::O_DIRECTORY != 0;
    TreePath { path: found.path.clone(), directory }.check(&attr)?;
    Ok(found)
}

fn open_at_server(path: &TreePath, flags: c_int, mode: mode_t) -> Result<(TreePath, Handle)> {
    let creates = flags & libc::O_CREAT != 0;
    if creates && path.directory {
        return Err(Errno::ISDIR.into());
    }
    let mut ours = access_of(flags);
    let translated = [
        (libc::O_CREAT, open::CREATE),
        (libc::O_EXCL, open::EXCLUSIVE),
        (libc::O_TRUNC, open::TRUNCATE),
        (libc::O_NOFOLLOW, open::NO_FOLLOW),
        (libc::O_DIRECTORY, open::DIRECTORY),
    ];
    for (flag, adds) in translated {
        if flags & flag != 0 {
            ours |= adds;
        }
    }
    if flags & TMPFILE != 0 {
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(Errno::INVAL.into());
        }
        ours = ours & !(open::CREATE | open::DIRECTORY) | open::TEMPORARY;
    } else if creates && flags & libc::O_DIRECTORY != 0 {
        return Err(Errno::INVAL.into());
    } else if !creates {
        ours &= !open::EXCLUSIVE;
    }
    if path.directory {
        ours |= open::DIRECTORY;
    }
    // A link at the end is never followed: the server says so of its own ones, and it is for us to say of those that lead out.
    let exclusive = creates && flags & libc::O_EXCL != 0;
    let how =
        OpenHow { flags: ours, mode: masked(mode), identity: Identity::default(), ..OpenHow::default() };
    let link = connect::link()?;
    let opened = |path: &TreePath| -> Result<Handle> {
        let file = link.tree.open(connect::caller(), &path.path, how)?;
        Ok(Handle { file, store: Arc::clone(&link.store) })
    };
    match opened(path) {
        Err(Failed::With(errno)) if paths::may_be_a_link_out(errno) => {
            let found = paths::without_links(path)?;
            let stays = exclusive || flags & libc::O_NOFOLLOW != 0;
            let found = if stays { found } else { follow_or_create(&found, creates)? };
            if found == *path {
                return Err(errno.into());
            }
            let handle = opened(&found)?;
            Ok((found, handle))
        }
        handle => Ok((path.clone(), handle?)),
    }
}

/// Follows links at the end of a path; with `creates`, to what need not be there.
fn follow_or_create(path: &TreePath, creates: bool) -> Result<TreePath> {
    match paths::follow(path) {
        Err(Failed::With(Errno::NOENT)) if creates => paths::target_of(path),
        found => Ok(found?.0),
    }
}

interpose! {
    fn open | open64 [real](path: Text, flags: c_int, mode: mode_t) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| opened(real(path, flags, mode), flags, path), |path: TreePath| open_file(&path, flags, mode))
    }

    fn __open_2 | __open64_2 [real](path: Text, flags: c_int) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| opened(real(path, flags), flags, path), |path: TreePath| open_file(&path, flags, 0))
    }

    fn openat | openat64 [real](dir: c_int, path: Text, flags: c_int, mode: mode_t) -> c_int {
        on_path!(dir, path, |path| opened(real(dir, path, flags, mode), flags, path), |path: TreePath| open_file(&path, flags, mode))
    }

    fn __openat_2 | __openat64_2 [real](dir: c_int, path: Text, flags: c_int) -> c_int {
        on_path!(dir, path, |path| opened(real(dir, path, flags), flags, path), |path: TreePath| open_file(&path, flags, 0))
    }

    fn creat | creat64 [real](path: Text, mode: mode_t) -> c_int {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        on_path!(libc::AT_FDCWD, path, |path| opened(real(path, mode), flags, path), |path: TreePath| open_file(&path, flags, mode))
    }

    fn umask[real](mask: mode_t) -> mode_t {
        UMASK.store(mask & 0o777, Ordering::Relaxed);
        real(mask)
    }
}
