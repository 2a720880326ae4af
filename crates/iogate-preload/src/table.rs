//! Which descriptor is which, and what a child of `fork` must not share with its parent.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockWriteGuard};

use rustix::io::{Errno, FdFlags};

use crate::byte_locks;
use crate::connect::Connection;
use crate::cwd;
use crate::description::Description;
use crate::descriptors;
use crate::failed::guarded;
use crate::locks;
use crate::page::borrow;
use crate::stdio;

/// Descriptors that can be ours. Numbers beyond are not given out.
pub(crate) const FDS: usize = 1 << 16;

/// A bit for each descriptor that is not the program's own affair. Whatever else a call costs, it costs only where
/// its bit is set. A bit is a hint: what a number means is the kernel's to say.
static SPECIAL: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];
/// By descriptor.
static TABLE: RwLock<Vec<Slot>> = RwLock::new(Vec::new());
static CONNECTION: AtomicPtr<Connection> = AtomicPtr::new(ptr::null_mut());

#[derive(Clone, Default)]
enum Slot {
    #[default]
    Theirs,
    /// A placeholder.
    Open(Arc<Description>),
    /// A descriptor of ours that the program can neither close nor replace.
    Internal {
        /// A child of `fork` has it too.
        inherited: bool,
        /// What it leads to: device and inode.
        file: (u64, u64),
    },
}

/// Whether a number is noted as ours. It may have been closed past us since, and given out again by the kernel.
#[inline]
fn is_noted(fd: c_int) -> bool {
    let fd = fd as u32 as usize;
    fd < FDS && SPECIAL[fd / 64].load(Ordering::Relaxed) >> (fd % 64) & 1 == 1
}

/// Whether a descriptor is ours: a placeholder, or a socket to a forwarder.
#[inline]
pub(crate) fn is_special(fd: c_int) -> bool {
    is_noted(fd) && (look_up(fd).is_some() || is_internal(fd))
}

/// The open file behind a descriptor, if it is one of ours.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<Arc<Description>> {
    if is_noted(fd) { look_up(fd) } else { None }
}

/// The kernel is asked what the number means now: it is not only `close` that frees one.
#[cold]
fn look_up(fd: c_int) -> Option<Arc<Description>> {
    let known = match TABLE.read().unwrap_or_else(PoisonError::into_inner).get(fd as usize) {
        Some(Slot::Open(description)) => Arc::clone(description),
        _ => return None,
    };
    if known.page.is_behind(fd) {
        return Some(known);
    }
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if let Slot::Open(current) = &table[fd as usize]
        && Arc::ptr_eq(current, &known)
    {
        clear(fd as usize);
        let stale = std::mem::take(&mut table[fd as usize]);
        drop(table);
        drop(stale);
        byte_locks::closed(&known);
        descriptors::give_back(Some(known));
    }
    None
}

/// What a descriptor leads to: device and inode.
pub(crate) fn file_behind(fd: c_int) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(borrow(fd)?)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether the program must leave a descriptor alone.
pub(crate) fn is_internal(fd: c_int) -> bool {
    is_kept(fd)
        && match TABLE.read().unwrap_or_else(PoisonError::into_inner).get(fd as usize) {
            Some(Slot::Internal { file, .. }) => file_behind(fd) == Ok(*file),
            _ => false,
        }
}

/// Whether a number was that of a descriptor of our own when it was last looked at. If it no longer is, it belongs to the program.
pub(crate) fn is_kept(fd: c_int) -> bool {
    is_noted(fd)
        && matches!(
            TABLE.read().unwrap_or_else(PoisonError::into_inner).get(fd as usize),
            Some(Slot::Internal { .. })
        )
}

/// Notes that a descriptor is a placeholder. Fails with `EMFILE` if its number is too high.
pub(crate) fn put(fd: c_int, description: Arc<Description>) -> Result<(), Errno> {
    set(fd, Slot::Open(description))
}

/// Notes that a descriptor is one that the program must leave alone. Fails as [`put`].
pub(crate) fn protect(fd: c_int, inherited: bool) -> Result<(), Errno> {
    set(fd, Slot::Internal { inherited, file: file_behind(fd)? })
}

/// Notes that a descriptor is about to be the program's, or nobody's. Returns what it was.
pub(crate) fn take(fd: c_int) -> Option<Arc<Description>> {
    if !is_noted(fd) {
        return None;
    }
    match replace(fd, Slot::Theirs) {
        Ok(Slot::Open(description)) => Some(description),
        _ => None,
    }
}

fn set(fd: c_int, slot: Slot) -> Result<(), Errno> {
    // What was there goes when the table is free again: to close a file takes a while.
    replace(fd, slot).map(drop)
}

/// Whether a descriptor has a number that the table has room for. Fails with `EMFILE` if not.
pub(crate) fn check_number(fd: c_int) -> Result<usize, Errno> {
    usize::try_from(fd).ok().filter(|index| *index < FDS).ok_or(Errno::MFILE)
}

fn replace(fd: c_int, slot: Slot) -> Result<Slot, Errno> {
    let index = check_number(fd)?;
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if table.len() <= index {
        table.resize(index + 1, Slot::Theirs);
    }
    match slot {
        Slot::Theirs => clear(index),
        _ => drop(SPECIAL[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed)),
    }
    Ok(std::mem::replace(&mut table[index], slot))
}

fn clear(index: usize) {
    SPECIAL[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
}

/// The special descriptors in a range, in order, each with whether the program may close it.
pub(crate) fn special_in(first: u32, last: u32) -> Vec<(c_int, bool)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let last = (last as usize).min(table.len().wrapping_sub(1));
    (first as usize..last.wrapping_add(1).min(table.len()))
        .filter_map(|fd| match table[fd] {
            Slot::Theirs => None,
            Slot::Open(_) => Some((fd as c_int, true)),
            Slot::Internal { file, .. } => {
                (file_behind(fd as c_int) == Ok(file)).then_some((fd as c_int, false))
            }
        })
        .collect()
}

/// Every open file of this process, once however many descriptors it has.
pub(crate) fn all() -> Vec<Arc<Description>> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let open = table.iter().filter_map(|slot| match slot {
        Slot::Open(description) => Some(Arc::clone(description)),
        _ => None,
    });
    let mut files: Vec<_> = open.collect();
    drop(table);
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(Arc::as_ptr(file)));
    files
}

/// The open files that a program has which is started by `exec`; but for the standard streams, which each command of a shell has, and which
/// hardly anybody locks.
pub(crate) fn handed_on() -> Vec<Arc<Description>> {
    let stays = |fd| {
        let flags = borrow(fd).and_then(rustix::io::fcntl_getfd);
        flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
    };
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    (0..)
        .zip(table.iter())
        .skip(3)
        .filter_map(|(fd, slot)| match slot {
            Slot::Open(description) if stays(fd) => Some(Arc::clone(description)),
            _ => None,
        })
        .collect()
}

/// The process's connection.
pub(crate) fn connection() -> &'static Connection {
    let mut known = CONNECTION.load(Ordering::Acquire);
    if known.is_null() {
        let made = Box::into_raw(Box::default());
        known = match CONNECTION.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: just made, and not taken.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
    }
    // SAFETY: made by a box above, and never freed.
    unsafe { &*known }
}

/// Whether the process has a connection, or has tried to have one.
pub(crate) fn is_connected() -> bool {
    !CONNECTION.load(Ordering::Acquire).is_null()
}

/// Ends the session. Open files are opened again when they are needed; but for those of which the process has had locks: others may have
/// them now.
pub(crate) fn disconnect() {
    let (link, had_locks) = (connection().take(), connection().take_locks());
    for file in all() {
        if had_locks(file.page.identity()) {
            file.lose();
        }
        drop(file.forget_handle());
    }
    drop(link);
}

type Held = (RwLockWriteGuard<'static, Vec<Slot>>, stdio::Streams, cwd::Held);

thread_local! {
    /// The table, the streams and the working directory, held by a thread that forks: the child must find them whole.
    static FORKING: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Sees to it that children of `fork` work.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the three do what such functions may.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    });
}

extern "C" fn before_fork() {
    let _ = guarded(|| {
        locks::share(&all());
        Ok(())
    });
    let table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let guards = (table, stdio::streams(), cwd::hold());
    FORKING.with_borrow_mut(|held| *held = Some(guards));
}

extern "C" fn after_fork() {
    FORKING.with_borrow_mut(Option::take);
}

/// The child leaves its parent's sessions alone: it connects when it first needs to, and opens its files again. What belonged
/// to other threads at the moment of the fork may be locked for ever, and is left behind.
extern "C" fn in_child() {
    CONNECTION.store(ptr::null_mut(), Ordering::Release);
    let Some((mut table, _streams, _cwd)) = FORKING.with_borrow_mut(Option::take) else { return };
    let mut renewed: HashMap<*const Description, Arc<Description>> = HashMap::new();
    for (fd, slot) in table.iter_mut().enumerate() {
        match std::mem::take(slot) {
            Slot::Theirs => {}
            Slot::Open(old) => {
                let new = renewed.entry(Arc::as_ptr(&old)).or_insert_with(|| Arc::new(old.for_child()));
                *slot = Slot::Open(Arc::clone(new));
                std::mem::forget(old);
            }
            kept @ Slot::Internal { inherited: true, .. } => *slot = kept,
            Slot::Internal { inherited: false, file } => {
                // The parent's socket.
                clear(fd);
                if file_behind(fd as c_int) == Ok(file) {
                    // SAFETY: the object that owns it is left behind, too.
                    unsafe { rustix::io::close(fd as c_int) };
                }
            }
        }
    }
}
