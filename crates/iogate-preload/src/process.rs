//! The beginning and the end of a program, its children, and programs that are themselves files of ours.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use iogate_core::Op;
use iogate_engine::store::Segment;
use libc::pid_t;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::abi::Text;
use crate::description::Description;
use crate::descriptors;
use crate::failed::{self, Failed, Result, answer};
use crate::locks;
use crate::log;
use crate::opening;
use crate::paths::{self, TreePath};
use crate::settings;
use crate::stat;
use crate::table;
use crate::turns;

/// Most bytes of a script's first line, as in Linux.
const FIRST_LINE_BYTES: usize = 256;
/// Most interpreters of interpreters, as in Linux.
const INTERPRETERS_MAX: usize = 4;
/// What programs begin with.
const ELF: &[u8] = b"\x7fELF";
/// For how long a process that ends at once may take leave.
static FAREWELL: libc::timespec = libc::timespec { tv_sec: 5, tv_nsec: 0 };

/// Called by the loader before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Called at the program's end, after what it has asked to be called then.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    if !settings::is_active() && !turns::is_active() {
        return;
    }
    log::start();
    table::watch_forks();
    if settings::is_active() {
        opening::learn_umask();
        descriptors::adopt_inherited();
    }
    if turns::is_active() {
        turns::start();
    }
}

extern "C" fn end() {
    if table::is_connected() || turns::is_active() {
        // What streams still hold is to be written before the session and the turns end, not in others.
        // SAFETY: null means all streams.
        unsafe { libc::fflush(ptr::null_mut()) };
        leave();
    }
}

/// Ends the process's turns, and its session, so that the server need not keep it for one who might come back. What is needed later
/// begins another.
fn leave() {
    // A signal may have come in the midst of a call that uses the session.
    if table::is_connected() && !failed::is_inside() {
        let _ = failed::guarded(|| {
            table::disconnect();
            Ok(())
        });
    }
    turns::end_all();
}

/// Sees to it that the process ends, with this status, even if it cannot take leave: `_exit` may be called by a signal handler in the
/// midst of a call that has locks, of this library or of the C library's memory. Needs none itself.
fn end_in_any_case(status: c_int) {
    #[repr(align(16))]
    struct Stack(UnsafeCell<[u8; 16 << 10]>);
    // SAFETY: one thread ever has it.
    unsafe impl Sync for Stack {}
    static STACK: Stack = Stack(UnsafeCell::new([0; 16 << 10]));
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);

    extern "C" fn end_later(status: *mut c_void) -> c_int {
        // By system calls alone: what belongs to a thread of the C library belongs to the one that goes on.
        // SAFETY: the time lives, and the process may end.
        unsafe {
            libc::syscall(libc::SYS_nanosleep, &raw const FAREWELL, ptr::null_mut::<libc::timespec>());
            libc::syscall(libc::SYS_exit_group, status.addr() as c_int);
        }
        0
    }

    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let like_a_thread =
        libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    // SAFETY: a stack of its own, of which it is told the end; and the program's signals are not for it.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let stack = STACK.0.get().add(1).cast::<c_void>();
        libc::clone(end_later, stack, like_a_thread, ptr::without_provenance_mut(status as u32 as usize));
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}

type List = *const *const c_char;

unsafe extern "C" {
    static environ: List;
}

/// Starts a program that is a file of ours, under the name that it was called by. Returns only if that fails.
fn execute(path: &TreePath, name: &CStr, arguments: List, environment: List) -> Result<c_int> {
    let (found, attr) = paths::follow(path)?;
    if attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno::ACCESS.into());
    }
    stat::check_access(&attr, libc::X_OK, true)?;
    let fd = opening::open_file(&found, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let started = execute_open(name, fd, arguments, environment);
    // SAFETY: opened above.
    unsafe { libc::close(fd) };
    started
}

fn execute_open(name: &CStr, fd: c_int, arguments: List, environment: List) -> Result<c_int> {
    let file = table::find(fd).ok_or(Errno::BADF)?;
    locks::share(&table::handed_on());
    let mut line = vec![0; FIRST_LINE_BYTES];
    let bytes = read_at(&file, 0, &mut line)?;
    line.truncate(bytes);
    if let Some(rest) = line.strip_prefix(b"#!") {
        return interpret(name, rest, arguments, environment);
    }
    let copy = copy_of(&file, name)?;
    let link = crate::page::link_of(copy.as_raw_fd());
    // SAFETY: the caller's lists, and a path that lives.
    unsafe { libc::execve(link.as_ptr(), arguments, environment) };
    Err(std::io::Error::last_os_error().into())
}

/// The interpreter that a script's first line names behind `#!`, and its argument.
fn interpreter(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    match line.iter().position(|byte| matches!(byte, b' ' | b'\t')) {
        Some(end) => (&line[..end], Some(line[end..].trim_ascii())),
        None => (line, None),
    }
}

/// Starts the interpreter that a script's first line names, as the kernel would.
fn interpret(name: &CStr, line: &[u8], arguments: List, environment: List) -> Result<c_int> {
    let (interpreter, argument) = interpreter(line);
    if interpreter.is_empty() {
        return Err(Errno::NOEXEC.into());
    }
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Failed::from(Errno::NOEXEC));
    let interpreter = text(interpreter)?;
    let argument = argument.map(text).transpose()?;
    let mut list = vec![interpreter.as_ptr()];
    list.extend(argument.as_ref().map(|argument| argument.as_ptr()));
    list.push(name.as_ptr());
    // SAFETY: the caller's list, which ends with null.
    unsafe {
        let mut next = arguments;
        while !next.is_null() && !(*next).is_null() {
            if next != arguments {
                list.push(*next);
            }
            next = next.add(1);
        }
        list.push(ptr::null());
        libc::execve(interpreter.as_ptr(), list.as_ptr(), environment);
    }
    Err(std::io::Error::last_os_error().into())
}

/// A program's copy in memory, which the kernel can execute.
fn copy_of(file: &Description, name: &CStr) -> Result<OwnedFd> {
    let base = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let copy = rustix::fs::memfd_create(base, MemfdFlags::CLOEXEC)?;
    let mut memory = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let bytes = read_at(file, offset, &mut memory)?;
        if bytes == 0 {
            return Ok(copy);
        }
        let mut rest = &memory[..bytes];
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&copy, rest)?..];
        }
        offset += bytes as i64;
    }
}

fn read_at(file: &Description, offset: i64, memory: &mut [u8]) -> Result<usize> {
    let segment = Segment { memory: memory.as_mut_ptr(), bytes: memory.len() };
    Ok(file.transfer_at(Op::Read, offset, &[segment])? as usize)
}

/// Before the kernel replaces this program by another, if it can: a program that goes on because it cannot needs its session.
fn leave_for(path: Text) {
    let Some(path) = path.get() else { return };
    if can_start(path, INTERPRETERS_MAX) {
        hand_on();
    }
}

/// As [`leave_for`], of a program that the C library looks for. Turns end even if it finds none that can be started.
fn leave_for_name(name: Text) {
    turns::end_all();
    let Some(name) = name.get() else { return };
    // SAFETY: a variable that the program does not change while it starts another.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: as above.
    let path = if path.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(path) } };
    let is_there = |dir: &[u8]| {
        let place = [if dir.is_empty() { b"." } else { dir }, name.to_bytes()].join(&b'/');
        CString::new(place).is_ok_and(|place| can_start(&place, INTERPRETERS_MAX))
    };
    if path.to_bytes().split(|byte| *byte == b':').any(is_there) {
        hand_on();
    }
}

/// Leaves what is open to the program that comes next, and ends the rest.
fn hand_on() {
    let _ = failed::guarded(|| {
        locks::share(&table::handed_on());
        Ok(())
    });
    leave();
}

/// Whether the kernel will start a file, as far as that can be known before: it may be executed, and begins as a program, or as a
/// script whose interpreter can be started.
fn can_start(path: &CStr, interpreters: usize) -> bool {
    if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return false;
    }
    let mut line = [0; FIRST_LINE_BYTES];
    let read = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .and_then(|file| rustix::io::read(file, &mut line));
    match (read, interpreters) {
        // It may be executed, and not read.
        (Err(Errno::ACCESS), _) => true,
        (Ok(bytes), 0) => line[..bytes].starts_with(ELF),
        (Ok(bytes), _) => match line[..bytes].strip_prefix(b"#!") {
            None => line[..bytes].starts_with(ELF),
            Some(rest) => {
                CString::new(interpreter(rest).0).is_ok_and(|path| can_start(&path, interpreters - 1))
            }
        },
        (Err(_), _) => false,
    }
}

fn environment() -> List {
    // SAFETY: the C library's variable, which a program does not change while it starts another.
    unsafe { environ }
}

fn name_of<'a>(name: Text) -> Result<&'a CStr> {
    Ok(name.get().ok_or(Errno::FAULT)?)
}

fn has_slash(name: Text) -> bool {
    name.get().is_some_and(|name: &CStr| name.to_bytes().contains(&b'/'))
}

interpose! {
    // A child that shares its parent's memory would change the parent's table.
    fn vfork[real]() -> pid_t {
        let _ = real;
        // SAFETY: what may follow `vfork` may follow `fork`.
        unsafe { libc::fork() }
    }

    fn execve[real](path: Text, arguments: List, environment: List) -> c_int {
        let name = path;
        let pass_on = |path: Text| {
            leave_for(path);
            real(path, arguments, environment)
        };
        on_path!(libc::AT_FDCWD, path, pass_on, |path: TreePath| execute(&path, name_of(name)?, arguments, environment))
    }

    fn execv[real](path: Text, arguments: List) -> c_int {
        let name = path;
        let pass_on = |path: Text| {
            leave_for(path);
            real(path, arguments)
        };
        on_path!(libc::AT_FDCWD, path, pass_on, |path: TreePath| {
            execute(&path, name_of(name)?, arguments, environment())
        })
    }

    fn execvp[real](path: Text, arguments: List) -> c_int {
        let name = path;
        if !has_slash(path) {
            leave_for_name(path);
            return real(path, arguments);
        }
        let pass_on = |path: Text| {
            leave_for(path);
            real(path, arguments)
        };
        on_path!(libc::AT_FDCWD, path, pass_on, |path: TreePath| {
            execute(&path, name_of(name)?, arguments, environment())
        })
    }

    fn execvpe[real](path: Text, arguments: List, environment: List) -> c_int {
        let name = path;
        if !has_slash(path) {
            leave_for_name(path);
            return real(path, arguments, environment);
        }
        let pass_on = |path: Text| {
            leave_for(path);
            real(path, arguments, environment)
        };
        on_path!(libc::AT_FDCWD, path, pass_on, |path: TreePath| {
            execute(&path, name_of(name)?, arguments, environment)
        })
    }

    fn fexecve[real](fd: c_int, arguments: List, environment: List) -> c_int {
        match table::find(fd) {
            None => real(fd, arguments, environment),
            Some(file) => answer(|| {
                let path = file.path()?;
                let name = CString::new(path.absolute()).map_err(|_| Errno::NOENT)?;
                execute(&path, &name, arguments, environment)
            }),
        }
    }

    fn _exit | _Exit [real](status: c_int) -> () {
        if table::is_connected() || turns::is_active() {
            end_in_any_case(status);
            leave();
        }
        real(status);
    }
}
