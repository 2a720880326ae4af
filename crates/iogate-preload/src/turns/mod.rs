//! Bulk output in turns, for programs as they are: what is written to files that `IOGATE_FILES` describes waits for the process's turn
//! on their place.
//!
//! A descriptor of such a file is *marked*. A turn begins before the first write to a marked file, and is the process's: other files and
//! other threads share it. It ends when the last file written in it has been closed or synced, or nothing has been written for
//! `IOGATE_IDLE`. A child of `fork` has its parent's marks, and turns of its own.
//!
//! | module | purpose |
//! |---|---|
//! | `claims` | what the turns library is asked |
//! | `patterns` | which files count |
//! | `marks` | which descriptors are of such files |
//! | `state` | which turns there are, and when they begin and end |
//! | `settings` | the environment |

mod claims;
mod marks;
mod patterns;
mod settings;
mod state;

use std::ffi::{c_int, c_uint};

use libc::ssize_t;

use crate::abi::Text;
use crate::failed::is_inside;

pub(crate) use marks::is_marked;
pub(crate) use settings::{is_active, is_asked_for};
pub(crate) use state::end_all;

/// Before the program begins: what it was started with may be bulk output.
pub(crate) fn start() {
    marks::adopt_inherited();
}

/// After a file was opened: `fd` is what the call has returned, which this returns too.
#[inline]
pub(crate) fn opened(fd: c_int, flags: c_int, path: Text) -> c_int {
    if fd >= 0 && is_for_writing(flags) && is_active() && !is_inside() {
        marks::consider(fd, path.get().map(|path| path.to_bytes()));
    }
    fd
}

/// Whether something opened so can be written to.
#[inline]
pub(crate) fn is_for_writing(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
}

/// A write, which waits for a turn if its file is marked. Fails with the turn's error where there must be one (`IOGATE_STRICT`).
#[inline]
pub(crate) fn write(fd: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    if is_marked(fd) && !is_inside() { state::write(fd, call) } else { call() }
}

/// `fsync` and the like: what is written is where it belongs, so the file needs its turn no longer.
#[inline]
pub(crate) fn sync(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !is_marked(fd) || is_inside() {
        return call();
    }
    let result = call();
    state::synced(fd);
    result
}

/// Closes a descriptor.
#[inline]
pub(crate) fn close(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !is_marked(fd) {
        return call();
    }
    // Before the number is free for somebody else; but what the file system does at its end belongs to the turn.
    let gone = state::forget(fd);
    let result = call();
    state::closed(gone);
    result
}

/// Closes the descriptors of a range.
#[inline]
pub(crate) fn close_range(first: c_uint, last: c_uint, call: impl FnOnce() -> c_int) -> c_int {
    if !is_active() {
        return call();
    }
    let gone = state::forget_range(first, last);
    let result = call();
    state::closed(gone);
    result
}

/// After `fd` was duplicated: `new` is what the call has returned, which this returns too.
#[inline]
pub(crate) fn duplicated(fd: c_int, new: c_int) -> c_int {
    if new >= 0 && is_marked(fd) {
        state::duplicate(fd, new);
    }
    new
}

/// Makes `new` a duplicate of `old`, whatever it was.
#[inline]
pub(crate) fn replace(old: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if old == new || !is_marked(old) && !is_marked(new) {
        return call();
    }
    let gone = state::forget(new);
    let result = call();
    if result < 0 {
        state::remember(new, gone);
        return result;
    }
    state::closed(gone);
    duplicated(old, new)
}
