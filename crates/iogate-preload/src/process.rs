//! The beginning and the end of a program, its children, and programs that are themselves files of ours.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use iogate_core::Op;
use iogate_engine::store::Segment;
use libc::pid_t;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::abi::Text;
use crate::description::Description;
use crate::descriptors;
use crate::failed::{self, Failed, Result, answer};
use crate::log;
use crate::opening;
use crate::paths::{self, TreePath};
use crate::settings;
use crate::stat;
use crate::table;
use crate::turns;

/// Most bytes of a script's first line, as in Linux.
const FIRST_LINE_BYTES: usize = 256;

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

/// Starts the interpreter that a script's first line names, as the kernel would.
fn interpret(name: &CStr, line: &[u8], arguments: List, environment: List) -> Result<c_int> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let (interpreter, argument) = match line.iter().position(|byte| matches!(byte, b' ' | b'\t')) {
        Some(end) => (&line[..end], Some(line[end..].trim_ascii())),
        None => (line, None),
    };
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

/// Before the kernel replaces this program by another, if it can.
fn leave_for(path: Text) {
    let Some(path) = path.get() else { return };
    if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() {
        leave();
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
            turns::end_all();
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
            turns::end_all();
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
        leave();
        real(status);
    }
}
