//! The functions of `agios.h`. The one library that is started is a global, as the interface has no other place for it.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, PoisonError, RwLock};

use iogate_core::Op;
use iogate_gate::Failed;
use iogate_gate::failed::{answer, iogate_gate_error};

use crate::config;
use crate::library::{Callback, Key, Library, One, Several, With};
use crate::metrics::CMetrics;

static STARTED: RwLock<Option<Arc<Library>>> = RwLock::new(None);

const CONFIG: &str = "/etc/agios.conf";

fn invalid(text: String) -> Failed {
    Failed::new(libc::EINVAL, text)
}

fn started() -> Result<Arc<Library>, Failed> {
    let started = STARTED.read().unwrap_or_else(PoisonError::into_inner).clone();
    let library = started.ok_or_else(|| invalid("expected agios_init before".into()))?;
    library.check()?;
    Ok(library)
}

/// The request that a program means.
///
/// # Safety
/// `file_id` is null or a string.
unsafe fn key(file_id: *const c_char, op: i32, offset: i64, len: i64) -> Result<Key, Failed> {
    if file_id.is_null() {
        return Err(invalid("file_id is a null pointer".into()));
    }
    let mut hasher = DefaultHasher::new();
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(file_id) }.hash(&mut hasher);
    let op = match op {
        0 => Op::Read,
        1 => Op::Write,
        op => return Err(invalid(format!("type is {op}: expected RT_READ or RT_WRITE"))),
    };
    let offset =
        u64::try_from(offset).map_err(|_| invalid(format!("offset is {offset}: expected 0 or more")))?;
    let bytes = (u32::try_from(len).ok().filter(|bytes| *bytes > 0))
        .ok_or_else(|| invalid(format!("len is {len}: expected 1 to {}", u32::MAX)))?;
    Ok(Key { file: hasher.finish(), op, offset, bytes })
}

/// The text of a configuration file.
///
/// # Safety
/// `path` is null or a string.
unsafe fn text(path: *const c_char) -> Result<String, Failed> {
    let (path, default) = match path.is_null() {
        true => (OsStr::new(CONFIG), true),
        // SAFETY: the caller's promise.
        false => (OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()), false),
    };
    match std::fs::read_to_string(path) {
        Err(error) if default && error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|error| {
            Failed::new(error.raw_os_error().unwrap_or(libc::EINVAL), format!("{}: {error}", path.display()))
        }),
    }
}

/// Starts the library.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_init(
    process_request: Option<One>,
    process_requests: Option<Several>,
    config_file: *mut c_char,
    max_queue_id: i32,
) -> bool {
    let result = answer(|| {
        let queue_ids = (u32::try_from(max_queue_id).ok())
            .ok_or_else(|| invalid(format!("max_queue_id is {max_queue_id}: expected 0 or more")))?;
        // SAFETY: the caller's pointer.
        let scheduler = config::scheduler(&unsafe { text(config_file) }?)?;
        let mut place = STARTED.write().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|library| library.check().is_ok()) {
            return Err(Failed::new(libc::EBUSY, "it is started: expected agios_exit before"));
        }
        let library = Library::start(process_request, process_requests, scheduler, queue_ids)?;
        if let Some(parents) = place.replace(library) {
            // A child's: its locks may be held by threads that are not here.
            std::mem::forget(parents);
        }
        Ok(())
    });
    result == 0
}

/// Stops the library.
#[unsafe(no_mangle)]
pub extern "C" fn agios_exit() {
    answer(|| {
        let library = STARTED.write().unwrap_or_else(PoisonError::into_inner).take();
        match library {
            Some(library) if library.check().is_ok() => library.stop(),
            parents => std::mem::forget(parents),
        }
        Ok(())
    });
}

/// # Safety
/// `file_id` is null or a string.
unsafe fn add(
    (file_id, op, offset, len): (*const c_char, i32, i64, i64),
    identifier: i64,
    queue_id: i32,
    callback: Callback,
) -> bool {
    // SAFETY: the caller's pointer.
    answer(|| started()?.add(unsafe { key(file_id, op, offset, len) }?, identifier, queue_id, callback)) == 0
}

/// Adds a request.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_add_request(
    file_id: *mut c_char,
    op: i32,
    offset: i64,
    len: i64,
    identifier: i64,
    queue_id: i32,
) -> bool {
    // SAFETY: the caller's pointer.
    unsafe { add((file_id, op, offset, len), identifier, queue_id, Callback::Init) }
}

/// Adds a request with a function of its own.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_add_request_calling(
    file_id: *mut c_char,
    op: i32,
    offset: i64,
    len: i64,
    identifier: i64,
    queue_id: i32,
    callback: Option<One>,
) -> bool {
    let callback = callback.map_or(Callback::Init, Callback::One);
    // SAFETY: the caller's pointer.
    unsafe { add((file_id, op, offset, len), identifier, queue_id, callback) }
}

/// Adds a request with a function of its own and a pointer for it.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_add_request_with(
    file_id: *mut c_char,
    op: i32,
    offset: i64,
    len: i64,
    identifier: i64,
    queue_id: i32,
    callback: Option<With>,
    user_info: *mut c_void,
) -> bool {
    let callback = callback.map_or(Callback::Init, |callback| Callback::With(callback, user_info));
    // SAFETY: the caller's pointer.
    unsafe { add((file_id, op, offset, len), identifier, queue_id, callback) }
}

/// A request has been processed.
///
/// # Safety
/// `file_id` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_release_request(file_id: *mut c_char, op: i32, len: i64, offset: i64) -> bool {
    // SAFETY: the caller's pointer.
    answer(|| started()?.release(&unsafe { key(file_id, op, offset, len) }?)) == 0
}

/// Takes a request back.
///
/// # Safety
/// `file_id` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_cancel_request(file_id: *mut c_char, op: i32, len: i64, offset: i64) -> bool {
    // SAFETY: the caller's pointer.
    answer(|| started()?.cancel(&unsafe { key(file_id, op, offset, len) }?)) == 0
}

/// The metrics, which begin anew.
#[unsafe(no_mangle)]
pub extern "C" fn agios_get_metrics_and_reset() -> *mut CMetrics {
    let mut metrics = std::ptr::null_mut();
    answer(|| {
        let taken = started()?.metrics()?;
        // SAFETY: the program frees it with `free`.
        let memory: *mut CMetrics = unsafe { libc::malloc(size_of::<CMetrics>()) }.cast();
        if memory.is_null() {
            return Err(Failed::new(libc::ENOMEM, "no memory for the metrics"));
        }
        // SAFETY: there is as much, aligned for anything.
        unsafe { memory.write(taken) };
        metrics = memory;
        Ok(())
    });
    metrics
}

/// What went wrong last in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn agios_error() -> *const c_char {
    iogate_gate_error()
}
