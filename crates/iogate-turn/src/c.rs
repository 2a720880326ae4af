//! The functions of `include/iogate.h`, which says what they promise.
//!
//! A panic never leaves them. What is wrong is an errno, and a text of the thread.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::{Place, Turn, Turns, Wish, in_turn};

/// `struct iogate_wish`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CWish {
    size: usize,
    targets: *const u32,
    target_count: usize,
    bytes: u64,
    weight: u32,
    timeout_ns: u64,
}

thread_local! {
    /// What went wrong last in this thread, with a zero byte at its end; or nothing.
    static ERROR: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What has failed.
struct Failed {
    errno: c_int,
    text: String,
}

impl Failed {
    fn new(errno: c_int, text: impl Into<String>) -> Failed {
        Failed { errno, text: text.into() }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        Failed::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
    }
}

/// Runs a function for C: its value, or -1, errno and the thread's text.
fn answer(run: impl FnOnce() -> Result<c_int, Failed>) -> c_int {
    let panicked = |_| Err(Failed::new(libc::ENOTRECOVERABLE, "a defect of this library (it panicked)"));
    let failed = match catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked) {
        Ok(value) => {
            let _ = ERROR.try_with(|error| error.borrow_mut().clear());
            return value;
        }
        Err(failed) => failed,
    };
    let mut text = failed.text.into_bytes();
    text.retain(|byte| *byte != 0);
    text.push(0);
    // A thread that ends has no text any more.
    let _ = ERROR.try_with(|error| *error.borrow_mut() = text);
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = failed.errno };
    -1
}

fn turns() -> Result<&'static Turns, Failed> {
    Turns::of_process().map_err(|error| Failed::new(libc::EINVAL, error.to_string()))
}

/// # Safety
/// `path` is null or a string.
unsafe fn place(path: *const c_char, turns: &Turns) -> Result<Place, Failed> {
    if path.is_null() {
        return Err(Failed::new(libc::EINVAL, "the path is a null pointer"));
    }
    // SAFETY: as above.
    let text = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    if text.is_empty() {
        return Err(Failed::new(libc::EINVAL, "the path is empty"));
    }
    let found = match text.to_str() {
        Some(text) => Place::of_text(text, turns.settings()),
        None => Place::of(text.as_ref(), turns.settings()),
    };
    found.map_err(|error| {
        let Failed { errno, text: why } = error.into();
        Failed::new(errno, format!("{}: {why}", text.display()))
    })
}

/// # Safety
/// `wish` is null, or points to as many bytes as its first field says, and that to its targets.
unsafe fn read_wish(wish: *const CWish) -> Result<Wish, Failed> {
    let mut known =
        CWish { size: 0, targets: std::ptr::null(), target_count: 0, bytes: 0, weight: 0, timeout_ns: 0 };
    if wish.is_null() {
        return Ok(Wish::default());
    }
    // SAFETY: there is at least the first field.
    let size = match unsafe { (&raw const (*wish).size).read() } {
        // Left out: there are at least the fields of the first version.
        0 => size_of::<CWish>(),
        size => size,
    };
    // A caller of a later version may have more, if it does not use it.
    let rest = size.saturating_sub(size_of::<CWish>());
    let behind = wish.cast::<u8>().wrapping_add(size - rest);
    // SAFETY: so many bytes are there.
    let more = unsafe { std::slice::from_raw_parts(behind, rest) };
    if more.iter().any(|byte| *byte != 0) {
        return Err(Failed::new(libc::EINVAL, "the wish has fields of a later version of iogate.h"));
    }
    // SAFETY: so many bytes are there at both ends, and any bytes are a wish.
    unsafe { std::ptr::copy_nonoverlapping(wish.cast::<u8>(), (&raw mut known).cast(), size - rest) };
    let targets = match (known.targets.is_null(), known.target_count) {
        (_, 0) => Vec::new(),
        (true, _) => {
            return Err(Failed::new(libc::EINVAL, "target_count is not 0, but targets is a null pointer"));
        }
        // SAFETY: so many are there.
        (false, count) => unsafe { std::slice::from_raw_parts(known.targets, count) }.to_vec(),
    };
    if !targets.is_sorted_by(|one, next| one < next) {
        return Err(Failed::new(libc::EINVAL, "the targets must be ascending, and each there once"));
    }
    Ok(Wish {
        targets,
        bytes: known.bytes,
        weight: known.weight,
        timeout: (known.timeout_ns > 0).then(|| Duration::from_nanos(known.timeout_ns)),
    })
}

/// Waits for a turn.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_acquire(
    path: *const c_char,
    wish: *const CWish,
    turn: *mut *mut Turn,
) -> c_int {
    answer(|| {
        if turn.is_null() {
            return Err(Failed::new(
                libc::EINVAL,
                "there is no place for the turn: `turn` is a null pointer",
            ));
        }
        // SAFETY: the caller's pointers.
        let (turns, wish) = unsafe {
            turn.write(std::ptr::null_mut());
            (turns()?, read_wish(wish)?)
        };
        // SAFETY: as above.
        let place = unsafe { place(path, turns) }?;
        let taken =
            turns.take(&place, &wish).map_err(|error| Failed::new(error.errno(), error.to_string()))?;
        // SAFETY: as above.
        unsafe { turn.write(Box::into_raw(Box::new(taken))) };
        Ok(0)
    })
}

/// Ends a turn.
///
/// # Safety
/// `turn` is null, or what [`iogate_acquire`] gave and nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_release(turn: *mut Turn) -> c_int {
    answer(|| {
        if turn.is_null() {
            return Ok(0);
        }
        // SAFETY: it came from a box.
        let turn = unsafe { Box::from_raw(turn) };
        turn.release().map_err(|error| Failed::new(libc::ESTALE, error.to_string()))?;
        Ok(0)
    })
}

/// A turn's fencing token.
///
/// # Safety
/// `turn` is null, or a turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_token(turn: *const Turn) -> u64 {
    // SAFETY: as above.
    unsafe { turn.as_ref() }.map_or(0, Turn::token)
}

/// Whether a turn counts.
///
/// # Safety
/// As [`iogate_token`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_is_valid(turn: *const Turn) -> c_int {
    // SAFETY: as above.
    unsafe { turn.as_ref() }.is_some_and(Turn::is_valid).into()
}

/// Probes a file system until it is quiet, or has been probed often enough.
///
/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_probe(path: *const c_char) -> c_int {
    answer(|| {
        let turns = turns()?;
        // SAFETY: as above.
        let place = unsafe { place(path, turns) }?;
        let report = turns.probe(&place).map_err(|error| Failed::new(error.errno(), error.to_string()))?;
        Ok(report.map_or(0, |report| c_int::try_from(report.attempts).unwrap_or(c_int::MAX)))
    })
}

/// From here on the process counts as in a turn.
#[unsafe(no_mangle)]
pub extern "C" fn iogate_enter() {
    in_turn::enter();
}

/// Takes that back.
#[unsafe(no_mangle)]
pub extern "C" fn iogate_leave() {
    in_turn::leave();
}

/// What went wrong last in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn iogate_error() -> *const c_char {
    let text = ERROR.try_with(|error| {
        let error = error.borrow();
        if error.is_empty() { c"".as_ptr() } else { error.as_ptr().cast() }
    });
    text.unwrap_or(c"".as_ptr())
}
