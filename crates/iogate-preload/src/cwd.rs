//! A working directory under the prefix.
//!
//! The kernel cannot have one there. It is kept here, and for programs started by `exec` in a descriptor that cannot be closed: a
//! placeholder like that of an open file, which says where we are, and follows renames by the processes that share it. The kernel's own
//! working directory is meanwhile one that has been removed, so that what does not know better fails with `ENOENT` instead of working in
//! the wrong place.

use std::ffi::{c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use iogate_core::wire::Identity;
use rustix::io::Errno;

use crate::abi::{Memory, Text};
use crate::failed::{Result, answer, guarded};
use crate::own_descriptors::keep_inheritable;
use crate::page::Page;
use crate::paths::{self, TreePath};
use crate::table;

/// Marks its page: no open file has these flags.
const FLAGS: c_int = c_int::MIN;

static IS_OURS: AtomicBool = AtomicBool::new(false);
/// Whoever holds it takes no other lock but its page's, and so closes no descriptor: who forks holds the table, too.
static PLACE: RwLock<Option<(Page, OwnedFd)>> = RwLock::new(None);

/// The working directory, held.
pub(crate) type Held = RwLockWriteGuard<'static, Option<(Page, OwnedFd)>>;

/// Holds the working directory, as a fork must find its lock free.
pub(crate) fn hold() -> Held {
    PLACE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The working directory's path in the tree, if it is there.
pub(crate) fn get() -> Option<Vec<u8>> {
    if !IS_OURS.load(Ordering::Acquire) {
        return None;
    }
    PLACE.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|(page, _)| page.path().ok())
}

/// Something has been renamed: if the directory was that, or below it, it has another path now.
pub(crate) fn follow(renamed: impl FnOnce(&Page)) {
    if let Some((page, _)) = &*PLACE.read().unwrap_or_else(PoisonError::into_inner) {
        renamed(page);
    }
}

/// Takes over what the process was started with; gives back a page that is an open file's.
pub(crate) fn adopt(fd: c_int, page: Page) -> Option<Page> {
    if page.flags() != FLAGS {
        return Some(page);
    }
    // SAFETY: a placeholder of a working directory belongs to this module.
    let found = unsafe { OwnedFd::from_raw_fd(fd) };
    if let Ok(kept) = keep_inheritable(&found) {
        remember(page, kept);
    }
    None
}

fn remember(page: Page, kept: OwnedFd) {
    let before = hold().replace((page, kept));
    drop(before);
    IS_OURS.store(true, Ordering::Release);
}

/// The working directory is the kernel's again.
fn leave() {
    if !IS_OURS.swap(false, Ordering::AcqRel) {
        return;
    }
    let _ = guarded(|| {
        let before = hold().take();
        drop(before);
        Ok(())
    });
}

fn enter(path: &TreePath) -> Result<c_int> {
    let (found, attr) = paths::follow(path)?;
    if attr.mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(Errno::NOTDIR.into());
    }
    crate::stat::check_access(&attr, libc::X_OK, true)?;
    let found = paths::without_links(&found)?;
    let (low, page) = Page::create(FLAGS, true, Identity::default(), found.bytes())?;
    let kept = keep_inheritable(&low)?;
    if !IS_OURS.load(Ordering::Acquire) {
        leave_kernel_directory()?;
    }
    leave();
    remember(page, kept);
    Ok(0)
}

/// Moves the kernel's working directory to one that is gone.
fn leave_kernel_directory() -> Result<()> {
    let mut name = *b"/tmp/iogate-XXXXXX\0";
    // SAFETY: a C string that may be changed.
    if unsafe { libc::mkdtemp(name.as_mut_ptr().cast::<c_char>()) }.is_null() {
        return Ok(rustix::process::chdir("/")?);
    }
    let path = &name[..name.len() - 1];
    let moved = rustix::process::chdir(path);
    rustix::fs::rmdir(path)?;
    Ok(moved?)
}

interpose! {
    fn chdir[real](path: Text) -> c_int {
        let real = |path| {
            let result = real(path);
            if result == 0 {
                leave();
            }
            result
        };
        on_path!(libc::AT_FDCWD, path, real, |path: TreePath| enter(&path))
    }

    fn fchdir[real](fd: c_int) -> c_int {
        match table::find(fd) {
            Some(description) => answer(|| enter(&description.path()?)),
            None => {
                let result = real(fd);
                if result == 0 {
                    leave();
                }
                result
            }
        }
    }

    fn getcwd[real](memory: Memory, bytes: usize) -> *mut c_char {
        match get() {
            None => real(memory, bytes),
            Some(path) => answer(|| whole(&TreePath::new(&path), memory, bytes)),
        }
    }

    fn __getcwd_chk[real](memory: Memory, bytes: usize, room: usize) -> *mut c_char {
        match get() {
            None => real(memory, bytes, room),
            Some(path) => answer(|| whole(&TreePath::new(&path), memory, bytes)),
        }
    }

    fn get_current_dir_name[real]() -> *mut c_char {
        match get() {
            None => real(),
            Some(path) => answer(|| whole(&TreePath::new(&path), Memory::NULL, 0)),
        }
    }

    fn getwd[real](memory: Memory) -> *mut c_char {
        match get() {
            None => real(memory),
            Some(path) => answer(|| whole(&TreePath::new(&path), memory, libc::PATH_MAX as usize)),
        }
    }
}

/// As `getcwd`: into the memory given, or into new memory.
fn whole(path: &TreePath, memory: Memory, bytes: usize) -> Result<*mut c_char> {
    let mut text = path.absolute();
    text.push(0);
    if memory.is_null() {
        if bytes != 0 && bytes < text.len() {
            return Err(Errno::RANGE.into());
        }
        return copy_of(&text, bytes);
    }
    match bytes {
        0 => Err(Errno::INVAL.into()),
        bytes if bytes < text.len() => Err(Errno::RANGE.into()),
        bytes => memory.fill(bytes, &text).map(|_| memory.pointer().cast()),
    }
}

/// Memory of C's, for the caller to free, with the bytes given, and at least `room` long.
pub(crate) fn copy_of(bytes: &[u8], room: usize) -> Result<*mut c_char> {
    // SAFETY: any length can be asked for.
    let memory = unsafe { libc::malloc(bytes.len().max(room)) };
    if memory.is_null() {
        return Err(Errno::NOMEM.into());
    }
    // SAFETY: just allocated, for at least so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
    Ok(memory.cast())
}
