//! POSIX locks: a process's, of bytes of a file.
//!
//! Where the server's locks hold among all who use the files, they are taken there, in the process's session: they end with it, and a
//! child of `fork` has none, as its session is another one. Elsewhere they hold on this machine only, by files of its memory (`locks`).
//!
//! Who has a lock does not know who waits for it: so it is asked for again and again, at first after a millisecond. A signal that has a
//! handler ends the wait.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use iogate_core::wire::{Lock, lock as kinds};
use libc::off_t;
use rustix::io::Errno;

use crate::abi::Out;
use crate::connect;
use crate::description::{Description, Handle};
use crate::failed::{Failed, Result, errno_of, fail_as, guarded};
use crate::locks;
use crate::table;

/// All of a session's locks of bytes are one owner's: the process's.
const OWNER: u64 = 1;

/// Between two attempts for a lock that somebody has: the first one, doubled from one to the next, and the longest.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// `fcntl` with `F_GETLK`, `F_SETLK` or `F_SETLKW`. What asks the server is guarded, and not the waiting in between: handlers of signals
/// run there.
pub(crate) fn control(file: &Description, command: c_int, argument: usize) -> Result<c_int> {
    let out: Out<libc::flock> = Out::from_argument(argument);
    let mut lock = out.get().ok_or(Errno::FAULT)?;
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    let start = guarded(|| start_of(file, &lock))?;
    let access = file.page.flags() & libc::O_ACCMODE;
    let missing = match c_int::from(lock.l_type) {
        libc::F_RDLCK => libc::O_WRONLY,
        libc::F_WRLCK => libc::O_RDONLY,
        _ => -1,
    };
    if command != libc::F_GETLK && access == missing {
        return Err(Errno::BADF.into());
    }
    let Some(handle) = guarded(|| at_server(file))? else {
        lock.l_start = start;
        lock.l_whence = libc::SEEK_SET as i16;
        guarded(|| locks::control_here(file, command, &mut lock))?;
        if command == libc::F_GETLK {
            out.put(lock)?;
        }
        return Ok(0);
    };
    let wish = wish(&lock, start)?;
    match command {
        libc::F_GETLK if wish.kind == kinds::NONE => Err(Errno::INVAL.into()),
        libc::F_GETLK => {
            let found = guarded(|| Ok(handle.file.get_lock(&wish)?))?;
            tell(&mut lock, &found);
            out.put(lock)?;
            Ok(0)
        }
        _ => set(file, &handle, &wish, command == libc::F_SETLKW),
    }
}

/// Where a lock begins, in the file.
fn start_of(file: &Description, lock: &libc::flock) -> Result<off_t> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => file.page.position()?.get(),
        libc::SEEK_END => file.attr()?.size,
        _ => return Err(Errno::INVAL.into()),
    };
    let start = off_t::try_from(base).ok().and_then(|base| base.checked_add(lock.l_start));
    Ok(start.ok_or(Errno::OVERFLOW)?)
}

/// The file at a server whose locks hold among all who use it; `None` if they do not, or if it is a directory.
fn at_server(file: &Description) -> Result<Option<Handle>> {
    if !connect::link()?.tree.shares_locks() {
        return Ok(None);
    }
    match file.handle() {
        Err(failed) if errno_of(&failed) == Errno::ISDIR => Ok(None),
        handle => handle.map(Some),
    }
}

/// What is asked for, as the server has it: with the bytes that Linux takes it to be of.
fn wish(lock: &libc::flock, start: off_t) -> Result<Lock> {
    if start < 0 {
        return Err(Errno::INVAL.into());
    }
    let (first, last) = match lock.l_len {
        0 => (start, off_t::MAX),
        length if length > 0 => (start, start.checked_add(length - 1).ok_or(Errno::OVERFLOW)?),
        length => (start.checked_add(length).ok_or(Errno::INVAL)?, start - 1),
    };
    let kind = match c_int::from(lock.l_type) {
        libc::F_RDLCK => kinds::SHARED,
        libc::F_WRLCK => kinds::EXCLUSIVE,
        libc::F_UNLCK => kinds::NONE,
        _ => return Err(Errno::INVAL.into()),
    };
    let (first, last) = (u64::try_from(first), u64::try_from(last));
    let (Ok(first), Ok(last)) = (first, last) else { return Err(Errno::INVAL.into()) };
    Ok(Lock { space: kinds::BYTES, kind, owner: OWNER, first, last, process: std::process::id() })
}

/// What was found in the way, as `F_GETLK` says it: of a lock that would be given only that.
fn tell(lock: &mut libc::flock, found: &Lock) {
    let kind = match found.kind {
        kinds::SHARED => libc::F_RDLCK,
        kinds::EXCLUSIVE => libc::F_WRLCK,
        _ => {
            lock.l_type = libc::F_UNLCK as i16;
            return;
        }
    };
    let bytes = |bytes: u64| off_t::try_from(bytes).unwrap_or(off_t::MAX);
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = bytes(found.first);
    lock.l_len = if bytes(found.last) == off_t::MAX { 0 } else { bytes(found.last - found.first + 1) };
    lock.l_pid = found.process as i32;
}

fn set(file: &Description, handle: &Handle, wish: &Lock, waits: bool) -> Result<c_int> {
    if wish.kind != kinds::NONE {
        // Even if it is not given: whether an attempt that failed for the network was carried out is not known.
        table::connection().note_lock(file.page.identity());
    }
    let attempt = || guarded(|| Ok(handle.file.set_lock(wish)?));
    // How long to wait until the next one, if it is worth it: who had a lock before a restart of the server has it first.
    let after = |failed: &Failed, pause: Duration| match errno_of(failed) {
        Errno::AGAIN if waits => Some(pause),
        Errno::BUSY => Some(PAUSE_MAX),
        _ => None,
    };
    let mut pause = match attempt() {
        Ok(()) => return Ok(0),
        Err(failed) => after(&failed, PAUSE).ok_or(failed)?,
    };
    let signals = HeldUp::begin();
    loop {
        signals.let_in(pause)?;
        pause = match attempt() {
            Ok(()) => return Ok(0),
            Err(failed) => after(&failed, (2 * pause).min(PAUSE_MAX)).ok_or(failed)?,
        };
    }
}

/// Signals that have handlers wait while the server is asked, so that none is overlooked. Others need not: they end the process or do
/// nothing.
struct HeldUp {
    before: libc::sigset_t,
}

impl HeldUp {
    fn begin() -> HeldUp {
        // A handler of these is for what the thread itself does.
        const OWN: [c_int; 6] =
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];
        // SAFETY: zeros are values of both, and the calls fill them in.
        unsafe {
            let mut with_handlers: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut with_handlers);
            for signal in (1..=libc::SIGRTMAX()).filter(|signal| !OWN.contains(signal)) {
                let mut action: libc::sigaction = std::mem::zeroed();
                let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
                if is_known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
                    libc::sigaddset(&raw mut with_handlers, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const with_handlers, &raw mut before);
            HeldUp { before }
        }
    }

    /// Waits, and has handlers run. Fails with `EINTR` if one did, at once.
    fn let_in(&self, pause: Duration) -> Result<()> {
        let mut time = libc::timespec {
            tv_sec: pause.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(pause.subsec_nanos()),
        };
        // By the system call, as `ppoll` is stood in for; the kernel's set of signals has eight bytes.
        // SAFETY: nothing is waited for, and the rest lives.
        let result = unsafe {
            libc::syscall(
                libc::SYS_ppoll,
                ptr::null_mut::<libc::pollfd>(),
                0,
                &raw mut time,
                &raw const self.before,
                8,
            )
        };
        if result < 0 { Err(Errno::INTR.into()) } else { Ok(()) }
    }
}

impl Drop for HeldUp {
    fn drop(&mut self) {
        // SAFETY: the mask that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// A descriptor of the file is being closed: the process's POSIX locks of it end, through whichever descriptor they were taken.
pub(crate) fn closed(file: &Description) {
    let _ = guarded(|| {
        locks::closed_here(file);
        let identity = file.page.identity();
        if !table::is_connected() || !table::connection().forget_lock(identity) {
            return Ok(());
        }
        let all = Lock::all_back(kinds::BYTES, OWNER);
        let give_back = |file: &Description| file.handle().is_ok_and(|file| file.file.set_lock(&all).is_ok());
        // This open file may be of no use any more, as another process opened it and it has no name now.
        let mut others = table::all().into_iter().filter(|other| other.page.identity() == identity);
        if !give_back(file) && !others.any(|other| give_back(&other)) {
            tracing::warn!("a lock is not given back before the process ends");
            table::connection().note_lock(identity);
        }
        Ok(())
    });
}

/// As `lockf`: a lock from the position on.
fn lock_from_here(file: &Description, command: c_int, bytes: off_t) -> Result<c_int> {
    // SAFETY: zeros are a value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_whence = libc::SEEK_CUR as i16;
    lock.l_len = bytes;
    lock.l_type = if command == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK } as i16;
    let control_command = match command {
        libc::F_LOCK => libc::F_SETLKW,
        libc::F_TLOCK | libc::F_ULOCK => libc::F_SETLK,
        libc::F_TEST => libc::F_GETLK,
        _ => return Err(Errno::INVAL.into()),
    };
    control(file, control_command, (&raw mut lock).expose_provenance())?;
    if command == libc::F_TEST && c_int::from(lock.l_type) != libc::F_UNLCK {
        return Err(Failed::With(Errno::ACCESS));
    }
    Ok(0)
}

interpose! {
    fn lockf | lockf64 [real](fd: c_int, command: c_int, bytes: off_t) -> c_int {
        match table::find(fd) {
            None => real(fd, command, bytes),
            Some(file) => fail_as(-1, lock_from_here(&file, command, bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_of_the_bytes_that_linux_takes_it_to_be_of() {
        let asked = |start: off_t, length: off_t| {
            // SAFETY: zeros are a value of it.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_len) = (libc::F_WRLCK as i16, length);
            wish(&lock, start).map(|wish| (wish.first, wish.last)).map_err(|failed| errno_of(&failed))
        };
        let end = off_t::MAX as u64;
        for (start, length, expected) in [
            (10, 5, Ok((10, 14))),
            (10, 0, Ok((10, end))),
            (10, -4, Ok((6, 9))),
            (10, -10, Ok((0, 9))),
            (10, -11, Err(Errno::INVAL)),
            (0, -1, Err(Errno::INVAL)),
            (-1, 5, Err(Errno::INVAL)),
            (off_t::MAX, 1, Ok((end, end))),
            (off_t::MAX, 2, Err(Errno::OVERFLOW)),
            (1, off_t::MIN, Err(Errno::INVAL)),
        ] {
            assert_eq!(asked(start, length), expected, "{start} {length}");
        }
    }
}
