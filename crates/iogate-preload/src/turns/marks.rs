//! Which descriptors are of files that count.

use std::env;
use std::ffi::c_int;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags};

use super::{is_for_writing, settings, state};
use crate::abi::Text;
use crate::page::borrow;
use crate::stdio;
use crate::table::FDS;

/// A bit for each descriptor, as in the table of our own files.
static MARKED: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];
/// Patterns that have been noted, for `iogate run`.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// Whether writes to a descriptor wait for a turn.
#[inline]
pub(crate) fn is_marked(fd: c_int) -> bool {
    let fd = fd as u32 as usize;
    fd < FDS && MARKED[fd / 64].load(Ordering::Relaxed) >> (fd % 64) & 1 == 1
}

pub(super) fn mark(fd: c_int) {
    let fd = fd as u32 as usize;
    if fd < FDS {
        MARKED[fd / 64].fetch_or(1 << (fd % 64), Ordering::Relaxed);
    }
}

pub(super) fn unmark(fd: c_int) {
    let fd = fd as u32 as usize;
    if fd < FDS {
        MARKED[fd / 64].fetch_and(!(1 << (fd % 64)), Ordering::Relaxed);
    }
}

/// Marks a descriptor that can be written to if its file is a regular one that counts. `path` is what it was opened with.
#[cold]
pub(super) fn consider(fd: c_int, path: Option<&[u8]>) {
    let (Some(settings), Ok(borrowed)) = (settings::get(), borrow(fd)) else { return };
    let Ok(stat) = rustix::fs::fstat(borrowed) else { return };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || fd as usize >= FDS {
        return;
    }
    let Some(pattern) = settings.patterns.find(borrowed.as_fd(), path, &stat) else { return };
    state::add(fd, (stat.st_dev, stat.st_ino));
    note(pattern);
    if fd == 1 || fd == 2 {
        stdio::now_ours(fd);
    }
}

/// Whether what is written to a file counts as bulk output: 1, or 0 if it does not or there is no such file. For libraries that
/// take turns for several processes, of MPI for one: `int iogate_is_bulk(const char *path)`.
#[unsafe(no_mangle)]
extern "C" fn iogate_is_bulk(path: Text) -> c_int {
    let find = || {
        let (settings, path) = (settings::get()?, path.get()?);
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let pattern = settings.patterns.find(file.as_fd(), Some(path.to_bytes()), &stat);
        is_regular.then_some(pattern).flatten()
    };
    find().map(note).is_some().into()
}

/// Considers the descriptors that the program was started with.
pub(super) fn adopt_inherited() {
    for fd in crate::descriptors::inherited() {
        let flags = borrow(fd).and_then(rustix::fs::fcntl_getfl);
        if flags.is_ok_and(|flags| is_for_writing(flags.bits() as c_int)) {
            consider(fd, None);
        }
    }
}

/// Tells `iogate run`, if it has started the program, that a pattern has found a file: a byte for each in a file of its own.
fn note(pattern: usize) {
    let bit = 1u64.checked_shl(pattern as u32).unwrap_or(0);
    if NOTED.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let Some(path) = env::var_os("IOGATE_FOUND") else { return };
    if let Ok(file) = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::pwrite(file, b"1", pattern as u64);
    }
}
