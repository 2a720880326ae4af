//! What a function for C answers: 0 or an errno number, and a text of the thread. A panic never leaves it.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use iogate_core::Rejected;
use iogate_engine::SubmitError;

thread_local! {
    /// What went wrong last in this thread, with a zero byte at its end; or nothing.
    static ERROR: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failed {
    /// An errno number.
    pub errno: c_int,
    /// One line for people.
    pub text: String,
}

impl Failed {
    /// With its text.
    pub fn new(errno: c_int, text: impl Into<String>) -> Failed {
        Failed { errno, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Failed {
        Failed::new(libc::EINVAL, text)
    }

    /// Of an instance in which a panic was.
    pub fn poisoned() -> Failed {
        Failed::new(
            libc::ENOTRECOVERABLE,
            "a defect of this library (it panicked): the instance is of no use any more",
        )
    }
}

impl From<Rejected> for Failed {
    fn from(why: Rejected) -> Failed {
        let errno = match why {
            Rejected::Full { .. } => libc::EAGAIN,
            Rejected::Closed => libc::ESHUTDOWN,
            Rejected::Malformed { .. } | Rejected::Target { .. } => libc::EINVAL,
        };
        Failed::new(errno, why.to_string())
    }
}

impl From<SubmitError> for Failed {
    fn from(why: SubmitError) -> Failed {
        match why {
            SubmitError::Rejected(why) => why.into(),
            SubmitError::Closed | SubmitError::Unwanted => Failed::new(libc::ESHUTDOWN, why.to_string()),
        }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        let errno = match (error.raw_os_error(), error.kind()) {
            (Some(errno), _) => errno,
            (None, std::io::ErrorKind::InvalidInput) => libc::EINVAL,
            _ => libc::EIO,
        };
        Failed::new(errno, error.to_string())
    }
}

/// Runs a function for C: 0, or an errno number and the thread's text.
pub fn answer(run: impl FnOnce() -> Result<(), Failed>) -> c_int {
    let failed = match catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Failed::poisoned())) {
        Ok(()) => return 0,
        Err(failed) => failed,
    };
    let mut text = failed.text.into_bytes();
    for byte in &mut text {
        if byte.is_ascii_control() {
            *byte = b' ';
        }
    }
    text.push(0);
    // A thread that ends has no text any more.
    let _ = ERROR.try_with(|error| *error.borrow_mut() = text);
    failed.errno
}

/// What went wrong last in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn iogate_gate_error() -> *const c_char {
    let text = ERROR.try_with(|error| {
        let error = error.borrow();
        if error.is_empty() { c"".as_ptr() } else { error.as_ptr().cast() }
    });
    text.unwrap_or(c"".as_ptr())
}
