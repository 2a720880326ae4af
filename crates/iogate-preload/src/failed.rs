//! Errors as C has them: a value that says so, and `errno`.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::io;
use std::panic::{self, AssertUnwindSafe};

use rustix::io::Errno;

/// Why a call on something of ours did not succeed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The error that it ends with.
    With(Errno),
    /// A symbolic link leads out of the prefix: the call is for the C library, with this path.
    Elsewhere(CString),
}

pub(crate) type Result<T> = std::result::Result<T, Failed>;

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::With(errno)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        if error.raw_os_error().is_none() {
            tracing::debug!("{error}");
        }
        Failed::With(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// The errno of a failure.
pub(crate) fn errno_of(failed: &Failed) -> Errno {
    match failed {
        Failed::With(errno) => *errno,
        Failed::Elsewhere(_) => Errno::XDEV,
    }
}

/// What a C function returns.
pub(crate) trait Returned {
    /// The value that says that it failed.
    const FAILED: Self;
}

impl Returned for i32 {
    const FAILED: i32 = -1;
}

impl Returned for i64 {
    const FAILED: i64 = -1;
}

impl Returned for isize {
    const FAILED: isize = -1;
}

impl<T> Returned for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// What the calling thread's last failure was.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether the calling thread is at work for the library, and not the program's.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Carries out a call on something of ours. A panic must not reach the program, which is not ours: it becomes `EIO`.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    DEPTH.set(DEPTH.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    DEPTH.set(DEPTH.get() - 1);
    result.unwrap_or(Err(Failed::With(Errno::IO)))
}

/// Carries out a call on something of ours, and returns as C does.
pub(crate) fn answer<T: Returned>(call: impl FnOnce() -> Result<T>) -> T {
    fail_as(T::FAILED, guarded(call))
}

/// Returns as C does, with a value of the function's own for a failure.
pub(crate) fn fail_as<T>(failure: T, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(failed) => {
            set_errno(errno_of(&failed).raw_os_error());
            failure
        }
    }
}
