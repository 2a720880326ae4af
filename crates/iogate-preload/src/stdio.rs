//! Streams. The C library's own read and write past the functions that can be stood in for, so a stream of ours is one with
//! functions of its own (`fopencookie`), which call `read` and `write` by descriptor.
//!
//! `stdin`, `stdout` and `stderr` are variables: each is set to such a stream as soon as its descriptor is ours, and the stream then serves
//! whatever the descriptor becomes.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{FILE, off64_t, size_t, ssize_t};
use rustix::io::Errno;

use crate::abi::Text;
use crate::failed::{Result, answer, errno, set_errno};
use crate::opening::open_file;
use crate::paths::TreePath;
use crate::table;
use crate::turns;

#[repr(C)]
struct Functions {
    read: extern "C" fn(*mut c_void, *mut c_void, size_t) -> ssize_t,
    write: extern "C" fn(*mut c_void, *const c_void, size_t) -> ssize_t,
    seek: extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// The C library's `FILE`, as far as it is public (`struct_FILE.h`) and needed.
#[repr(C)]
struct Layout {
    flags: c_int,
    read: [*mut c_char; 3],
    write_base: *mut c_char,
    write_next: *mut c_char,
    others: [*mut c_char; 8],
    fd: c_int,
}

const UNBUFFERED: c_int = 0x2;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const LINE_BUFFERED: c_int = 0x200;
const APPENDING: c_int = 0x1000;

/// Our streams, with their descriptors.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());
/// Those that stand for the standard descriptors.
static STANDARD: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

fn descriptor(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int
}

extern "C" fn read_cookie(cookie: *mut c_void, memory: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the C library's buffer, of that size.
    unsafe { libc::read(descriptor(cookie), memory, bytes) }
}

extern "C" fn write_cookie(cookie: *mut c_void, memory: *const c_void, bytes: size_t) -> ssize_t {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the C library's buffer, of that size.
        let count = unsafe { libc::write(descriptor(cookie), memory.byte_add(done), bytes - done) };
        if count <= 0 {
            break;
        }
        done += count as usize;
    }
    done as ssize_t
}

extern "C" fn seek_cookie(cookie: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: the C library's own variable.
    unsafe {
        let found = libc::lseek64(descriptor(cookie), *offset, whence);
        if found < 0 {
            return -1;
        }
        *offset = found;
    }
    0
}

extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    streams().retain(|(_, of)| *of != fd);
    if let Some(standard) = STANDARD.get(fd as usize) {
        standard.store(ptr::null_mut(), Ordering::Release);
    }
    // SAFETY: the stream owned it.
    unsafe { libc::close(fd) }
}

/// Our streams, held.
pub(crate) type Streams = MutexGuard<'static, Vec<(usize, c_int)>>;

/// Holds our streams, as a fork must find them whole.
pub(crate) fn streams() -> Streams {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How `fopen` is asked to open.
struct Mode {
    /// Of `open(2)`.
    flags: c_int,
    /// What a stream has of it.
    stream: &'static CStr,
}

impl Mode {
    fn read(text: Text) -> Result<Mode> {
        let text = text.bytes()?;
        if text.windows(4).any(|part| part == b"ccs=") {
            return Err(Errno::INVAL.into());
        }
        let both = text.contains(&b'+');
        let (mut flags, stream) = match (text.first(), both) {
            (Some(b'r'), false) => (libc::O_RDONLY, c"r"),
            (Some(b'r'), true) => (libc::O_RDWR, c"r+"),
            (Some(b'w'), false) => (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, c"w"),
            (Some(b'w'), true) => (libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, c"w+"),
            (Some(b'a'), false) => (libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND, c"a"),
            (Some(b'a'), true) => (libc::O_RDWR | libc::O_CREAT | libc::O_APPEND, c"a+"),
            _ => return Err(Errno::INVAL.into()),
        };
        if text.contains(&b'x') {
            flags |= libc::O_EXCL;
        }
        if text.contains(&b'e') {
            flags |= libc::O_CLOEXEC;
        }
        Ok(Mode { flags, stream })
    }

    /// A stream that only appends begins at the end, which `ftell` says before anything is written.
    fn go_to_end(&self, fd: c_int) {
        if self.flags & (libc::O_APPEND | libc::O_ACCMODE) == libc::O_APPEND | libc::O_WRONLY {
            // SAFETY: a descriptor that was opened for the stream. What cannot be sought in has no such place.
            unsafe { libc::lseek64(fd, 0, libc::SEEK_END) };
        }
    }

    /// Sees to it that a descriptor can have such a stream, and appends if the stream does.
    fn fit(&self, fd: c_int) -> Result<()> {
        // SAFETY: the commands take and give numbers only.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let (has, wants) = (flags & libc::O_ACCMODE, self.flags & libc::O_ACCMODE);
        if has != libc::O_RDWR && has != wants {
            return Err(Errno::INVAL.into());
        }
        if self.flags & libc::O_APPEND != 0 && flags & libc::O_APPEND == 0 {
            // SAFETY: as above.
            if unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_APPEND) } < 0 {
                return Err(std::io::Error::last_os_error().into());
            }
            self.go_to_end(fd);
        }
        Ok(())
    }
}

/// Makes a stream of a descriptor.
fn stream_of(fd: c_int, mode: &CStr) -> Result<*mut FILE> {
    let functions =
        Functions { read: read_cookie, write: write_cookie, seek: seek_cookie, close: close_cookie };
    // SAFETY: the functions keep what `fopencookie` asks of them.
    let stream = unsafe { fopencookie(ptr::without_provenance_mut(fd as usize), mode.as_ptr(), functions) };
    if stream.is_null() {
        return Err(Errno::NOMEM.into());
    }
    // SAFETY: the C library's layout; the number is for people who look, as the stream's functions have their own.
    unsafe { (*stream.cast::<Layout>()).fd = fd };
    let mut streams = streams();
    streams.retain(|(_, of)| *of != fd);
    streams.push((stream.addr(), fd));
    Ok(stream)
}

fn open_stream(path: &TreePath, mode: &Mode) -> Result<*mut FILE> {
    let fd = open_file(path, mode.flags, 0o666)?;
    mode.go_to_end(fd);
    stream_or_close(fd, mode.stream)
}

fn stream_or_close(fd: c_int, mode: &CStr) -> Result<*mut FILE> {
    stream_of(fd, mode).inspect_err(|_| {
        // SAFETY: the descriptor was opened for this stream.
        unsafe { libc::close(fd) };
    })
}

/// Opens a stream whose file may be bulk output, and must then be written to by functions that are stood in for.
fn open_in_turns(path: Text, mode: Text, wanted: &Mode) -> *mut FILE {
    // SAFETY: the caller's strings.
    unsafe {
        let fd = libc::open(path.pointer(), wanted.flags, 0o666);
        if fd < 0 {
            return ptr::null_mut();
        }
        wanted.go_to_end(fd);
        let stream = libc::fdopen(fd, mode.pointer());
        if stream.is_null() {
            let errno = errno();
            libc::close(fd);
            set_errno(errno);
        }
        stream
    }
}

/// As [`open_in_turns`], in a stream of the C library's, which closes and opens past the functions that are stood in for.
fn reopen_in_turns(stream: *mut FILE, path: Text, mode: Text, real: impl FnOnce() -> *mut FILE) -> *mut FILE {
    if !turns::is_active() {
        return real();
    }
    // SAFETY: the caller's stream.
    let before = unsafe { libc::fileno(stream) };
    let mut made = ptr::null_mut();
    turns::close(before, || {
        made = real();
        0
    });
    let Ok(wanted) = Mode::read(mode) else { return made };
    if made.is_null() {
        return made;
    }
    // SAFETY: the stream that the C library has just opened.
    let fd = turns::opened(unsafe { libc::fileno(made) }, wanted.flags, path);
    if !turns::is_marked(fd) {
        return made;
    }
    match STANDARD.get(fd as usize).map(|standard| standard.load(Ordering::Acquire)) {
        Some(standard) if !standard.is_null() => standard,
        _ => stream_of(fd, wanted.stream).unwrap_or(made),
    }
}

/// The descriptor of a stream of ours.
fn descriptor_of(stream: *mut FILE) -> Option<c_int> {
    streams().iter().find(|(of, _)| *of == stream.addr()).map(|(_, fd)| *fd)
}

/// Sees to it that a standard stream goes on when its descriptor has become ours.
pub(crate) fn now_ours(fd: c_int) {
    let Some(standard) = STANDARD.get(fd as usize) else { return };
    if !standard.load(Ordering::Acquire).is_null() {
        return;
    }
    let mode = if fd == 0 { c"r" } else { c"w" };
    let Ok(stream) = stream_of(fd, mode) else { return };
    standard.store(stream, Ordering::Release);
    // SAFETY: the variables are the C library's, and a program that changes a standard descriptor does not use its stream at the
    // same time. What the old stream has not written yet belongs to the descriptor's new file.
    unsafe {
        let variable = match fd {
            0 => &raw mut stdin,
            1 => &raw mut stdout,
            _ => &raw mut stderr,
        };
        let old = *variable;
        *variable = stream;
        if old.is_null() {
            return;
        }
        let layout = &*old.cast::<Layout>();
        if fd == 2 || layout.flags & UNBUFFERED != 0 {
            libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0);
        } else if layout.flags & LINE_BUFFERED != 0 {
            libc::setvbuf(stream, ptr::null_mut(), libc::_IOLBF, 0);
        }
        if fd != 0 && layout.write_next > layout.write_base {
            let pending = layout.write_next.offset_from(layout.write_base) as usize;
            libc::fwrite(layout.write_base.cast(), 1, pending, stream);
            __fpurge(old);
        }
    }
}

/// Opens something else in a stream. `opened` is the new file's descriptor.
fn reopen(stream: *mut FILE, mode: &Mode, opened: c_int) -> Result<*mut FILE> {
    mode.go_to_end(opened);
    let known = descriptor_of(stream);
    // SAFETY: the caller's stream.
    let fd = known.unwrap_or_else(|| unsafe { libc::fileno(stream) });
    // SAFETY: the caller's stream; its descriptor, and one that was opened for it.
    unsafe {
        libc::fflush(stream);
        __fpurge(stream);
        libc::clearerr(stream);
        if fd < 0 {
            return stream_or_close(opened, mode.stream);
        }
        let made = if opened == fd { fd } else { libc::dup2(opened, fd) };
        let error = std::io::Error::last_os_error();
        if opened != fd {
            libc::close(opened);
        }
        if made < 0 {
            return Err(error.into());
        }
        if known.is_none() {
            let standard = STANDARD.get(fd as usize).map_or(ptr::null_mut(), |of| of.load(Ordering::Acquire));
            return if standard.is_null() { stream_of(fd, mode.stream) } else { Ok(standard) };
        }
        let layout = &mut *stream.cast::<Layout>();
        layout.flags &= !(NO_READS | NO_WRITES | APPENDING);
        layout.flags |= match mode.flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        if mode.flags & libc::O_APPEND != 0 {
            layout.flags |= APPENDING;
        }
    }
    Ok(stream)
}

interpose! {
    fn fopen | fopen64 [real](path: Text, mode: Text) -> *mut FILE {
        let pass_on = |path: Text| match Mode::read(mode) {
            Ok(wanted) if turns::is_active() && turns::is_for_writing(wanted.flags) => {
                open_in_turns(path, mode, &wanted)
            }
            _ => real(path, mode),
        };
        on_path!(libc::AT_FDCWD, path, pass_on, |path: TreePath| open_stream(&path, &Mode::read(mode)?))
    }

    fn fdopen[real](fd: c_int, mode: Text) -> *mut FILE {
        if table::find(fd).is_none() && !turns::is_marked(fd) {
            return real(fd, mode);
        }
        answer(|| {
            let wanted = Mode::read(mode)?;
            wanted.fit(fd)?;
            stream_of(fd, wanted.stream)
        })
    }

    fn freopen | freopen64 [real](path: Text, mode: Text, stream: *mut FILE) -> *mut FILE {
        let is_known = descriptor_of(stream).is_some();
        let pass_on = |path: Text| {
            if !is_known {
                return reopen_in_turns(stream, path, mode, || real(path, mode, stream));
            }
            answer(|| {
                let wanted = Mode::read(mode)?;
                let Some(name) = path.get() else { return Err(Errno::BADF.into()) };
                // SAFETY: the caller's string.
                let opened = unsafe { libc::open(name.as_ptr(), wanted.flags, 0o666) };
                if opened < 0 {
                    return Err(std::io::Error::last_os_error().into());
                }
                reopen(stream, &wanted, opened)
            })
        };
        on_path!(libc::AT_FDCWD, path, pass_on, |path: TreePath| {
            let wanted = Mode::read(mode)?;
            reopen(stream, &wanted, open_file(&path, wanted.flags, 0o666)?)
        })
    }

    // The C library closes its own streams past `close`.
    fn fclose[real](stream: *mut FILE) -> c_int {
        if !turns::is_active() || descriptor_of(stream).is_some() {
            return real(stream);
        }
        // SAFETY: the caller's stream.
        turns::close(unsafe { libc::fileno(stream) }, || real(stream))
    }

    fn fileno | fileno_unlocked [real](stream: *mut FILE) -> c_int {
        match descriptor_of(stream) {
            None => real(stream),
            Some(fd) => fd,
        }
    }

    fn vdprintf[real](fd: c_int, format: Text, arguments: *mut c_void) -> c_int {
        if table::is_special(fd) { print(fd, format, arguments) } else { real(fd, format, arguments) }
    }

    fn __vdprintf_chk[real](fd: c_int, flag: c_int, format: Text, arguments: *mut c_void) -> c_int {
        if table::is_special(fd) { print(fd, format, arguments) } else { real(fd, flag, format, arguments) }
    }
}

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
}

fn print(fd: c_int, format: Text, arguments: *mut c_void) -> c_int {
    let mut text = ptr::null_mut();
    // SAFETY: the caller's format with its arguments.
    let bytes = unsafe { vasprintf(&raw mut text, format.pointer(), arguments) };
    if bytes < 0 {
        return bytes;
    }
    let written = write_cookie(ptr::without_provenance_mut(fd as usize), text.cast(), bytes as usize);
    // SAFETY: `vasprintf` has allocated it.
    unsafe { libc::free(text.cast()) };
    if written < bytes as ssize_t { -1 } else { bytes }
}
