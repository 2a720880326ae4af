//! Closing and duplicating descriptors, and their flags. The kernel does it; here is kept which of them are ours.

use std::ffi::{c_int, c_uint, c_ulong};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;

use rustix::io::{DupFlags, Errno, FdFlags};

use crate::abi::Out;
use crate::byte_locks;
use crate::connect;
use crate::description::Description;
use crate::failed::{Result, answer, guarded, is_inside, set_errno};
use crate::locks;
use crate::page::borrow;
use crate::stdio;
use crate::table;
use crate::turns;

/// Flags that `F_SETFL` changes.
const CHANGEABLE: c_int =
    libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT | libc::O_ASYNC;
/// What the kernel adds to the flags of every file.
const LARGE_FILE: c_int = 0o100_000;

fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// Notes a new descriptor of an open file.
fn add(fd: c_int, file: Arc<Description>) -> Result<c_int> {
    if let Err(errno) = table::put(fd, file) {
        // SAFETY: just made, and known to nobody.
        unsafe { rustix::io::close(fd) };
        return Err(errno.into());
    }
    stdio::now_ours(fd);
    Ok(fd)
}

fn duplicate_at_least(
    fd: c_int,
    file: Arc<Description>,
    lowest: usize,
    close_on_exec: bool,
) -> Result<c_int> {
    let lowest = c_int::try_from(lowest).ok().filter(|fd| *fd >= 0).ok_or(Errno::INVAL)?;
    let new = rustix::io::fcntl_dupfd_cloexec(borrow(fd)?, lowest)?;
    if !close_on_exec {
        rustix::io::fcntl_setfd(&new, FdFlags::empty())?;
    }
    add(new.into_raw_fd(), file)
}

/// Makes `new` another descriptor of the open file behind `old`, whatever it was.
fn duplicate_to(old: c_int, file: Arc<Description>, new: c_int, close_on_exec: bool) -> Result<c_int> {
    if new < 0 || new as usize >= table::FDS {
        return Err(Errno::BADF.into());
    }
    let replaced = table::take(new);
    // SAFETY: only to be replaced, by the kernel, and then forgotten: it belongs to the program.
    let mut owned = std::mem::ManuallyDrop::new(unsafe { std::os::fd::FromRawFd::from_raw_fd(new) });
    let flags = if close_on_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
    let made = rustix::io::dup3(borrow(old)?, &mut owned, flags);
    if let (Err(_), Some(replaced)) = (&made, &replaced) {
        table::put(new, Arc::clone(replaced))?;
    }
    made?;
    give_back(replaced.inspect(|file| byte_locks::closed(file)));
    add(new, file)
}

/// Before `new` becomes something that is not ours.
fn give_up(new: c_int, make: impl FnOnce() -> c_int) -> c_int {
    let replaced = table::take(new);
    let made = make();
    match replaced {
        Some(replaced) if made < 0 => {
            let _ = table::put(new, replaced);
        }
        replaced => give_back(replaced.inspect(|file| byte_locks::closed(file))),
    }
    made
}

/// Closes a range, but for what the program must leave alone.
fn close_all(first: c_uint, last: c_uint, flags: c_int, real: impl Fn(c_uint, c_uint) -> c_int) -> c_int {
    let mut start = first;
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    for (fd, is_theirs) in table::special_in(first, last) {
        if !is_theirs {
            if fd as c_uint > start {
                let result = real(start, fd as c_uint - 1);
                if result != 0 {
                    return result;
                }
            }
            start = fd as c_uint + 1;
        } else if !only_marks {
            give_back(close_file(fd));
        }
    }
    if start <= last { real(start, last) } else { 0 }
}

/// Gives up an open file, which the server is told if it was the last descriptor of it here.
pub(crate) fn give_back(file: Option<Arc<Description>>) {
    let _ = guarded(|| {
        drop(file);
        Ok(())
    });
}

/// Forgets a placeholder that is about to be closed.
fn close_file(fd: c_int) -> Option<Arc<Description>> {
    let file = table::take(fd)?;
    byte_locks::closed(&file);
    Some(file)
}

fn control(fd: c_int, file: Arc<Description>, command: c_int, argument: usize) -> Option<Result<c_int>> {
    Some(match command {
        libc::F_DUPFD => duplicate_at_least(fd, file, argument, false),
        libc::F_DUPFD_CLOEXEC => duplicate_at_least(fd, file, argument, true),
        libc::F_GETFL => Ok(file.page.flags() | LARGE_FILE),
        libc::F_SETFL => {
            let kept = file.page.flags() & !CHANGEABLE;
            file.page.set_flags(kept | argument as c_int & CHANGEABLE);
            Ok(0)
        }
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => byte_locks::control(&file, command, argument),
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => Err(Errno::INVAL.into()),
        libc::F_GETLEASE | libc::F_SETLEASE | libc::F_NOTIFY | libc::F_ADD_SEALS | libc::F_GET_SEALS => {
            Err(Errno::INVAL.into())
        }
        // The kernel keeps them with the descriptor.
        _ => return None,
    })
}

/// Requests of `ioctl` that make sense for a file.
fn request(file: &Description, request: c_ulong, argument: Out<c_int>) -> Result<c_int> {
    match request {
        libc::FIONREAD => {
            let left = file.attr()?.size.saturating_sub(file.page.position()?.get());
            argument.put(c_int::try_from(left).unwrap_or(c_int::MAX))?;
            Ok(0)
        }
        libc::FIONBIO => {
            let flags = file.page.flags() & !libc::O_NONBLOCK;
            let on = argument.get().ok_or(Errno::FAULT)? != 0;
            file.page.set_flags(flags | if on { libc::O_NONBLOCK } else { 0 });
            Ok(0)
        }
        libc::FICLONE | libc::FICLONERANGE => Err(Errno::OPNOTSUPP.into()),
        _ => Err(Errno::NOTTY.into()),
    }
}

interpose! {
    fn close[real](fd: c_int) -> c_int {
        if table::is_kept(fd) {
            let is_ours = table::is_internal(fd);
            if is_inside() {
                table::take(fd);
                // If it was closed past us, the number's new owner is the program.
                return if is_ours { real(fd) } else { 0 };
            }
            return if is_ours { refuse(libc::EBADF) } else { turns::close(fd, || real(fd)) };
        }
        if !table::is_special(fd) {
            return turns::close(fd, || real(fd));
        }
        // The last descriptor's end is told to the server once the number is free.
        let file = close_file(fd);
        let result = real(fd);
        let told = file.as_ref().map_or(Ok(()), |file| file.tell_losses());
        give_back(file);
        match told {
            Ok(()) => result,
            Err(errno) => refuse(errno.raw_os_error()),
        }
    }

    fn close_range[real](first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let close = |first, last| real(first, last, flags);
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
            return close_all(first, last, flags, close);
        }
        turns::close_range(first, last, || close_all(first, last, flags, close))
    }

    fn closefrom[real](first: c_int) -> () {
        let first = first.max(0) as c_uint;
        turns::close_range(first, c_uint::MAX, || {
            close_all(first, c_uint::MAX, 0, |first, last| {
                // SAFETY: the program has asked for it.
                unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) as c_int }
            })
        });
        let _ = real;
    }

    fn dup[real](fd: c_int) -> c_int {
        match table::find(fd) {
            None => turns::duplicated(fd, real(fd)),
            Some(file) => answer(|| duplicate_at_least(fd, file, 0, false)),
        }
    }

    fn dup2[real](old: c_int, new: c_int) -> c_int {
        if table::is_internal(new) {
            return refuse(libc::EBUSY);
        }
        turns::replace(old, new, || match table::find(old) {
            Some(_) if old == new => new,
            Some(file) => answer(|| duplicate_to(old, file, new, false)),
            None if old != new && table::is_special(new) => give_up(new, || real(old, new)),
            None => real(old, new),
        })
    }

    fn dup3[real](old: c_int, new: c_int, flags: c_int) -> c_int {
        if table::is_internal(new) {
            return refuse(libc::EBUSY);
        }
        turns::replace(old, new, || match table::find(old) {
            Some(_) if old == new || flags & !libc::O_CLOEXEC != 0 => refuse(libc::EINVAL),
            Some(file) => answer(|| duplicate_to(old, file, new, flags & libc::O_CLOEXEC != 0)),
            None if old != new && table::is_special(new) => give_up(new, || real(old, new, flags)),
            None => real(old, new, flags),
        })
    }

    fn fcntl | fcntl64 [real](fd: c_int, command: c_int, argument: usize) -> c_int {
        match table::find(fd) {
            None if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                turns::duplicated(fd, real(fd, command, argument))
            }
            None => real(fd, command, argument),
            Some(file) => match control(fd, file, command, argument) {
                Some(result) => answer(|| result),
                None => real(fd, command, argument),
            },
        }
    }

    fn ioctl[real](fd: c_int, what: c_ulong, argument: Out<c_int>) -> c_int {
        match table::find(fd) {
            None => real(fd, what, argument),
            Some(_) if what == libc::FIOCLEX => set_close_on_exec(fd, true),
            Some(_) if what == libc::FIONCLEX => set_close_on_exec(fd, false),
            Some(file) => answer(|| request(&file, what, argument)),
        }
    }

    fn isatty[real](fd: c_int) -> c_int {
        if table::is_special(fd) {
            set_errno(libc::ENOTTY);
            return 0;
        }
        real(fd)
    }
}

fn set_close_on_exec(fd: c_int, on: bool) -> c_int {
    let flags = if on { FdFlags::CLOEXEC } else { FdFlags::empty() };
    answer(|| Ok(rustix::io::fcntl_setfd(borrow(fd)?, flags).map(|()| 0)?))
}

/// The descriptors that the program was started with.
pub(crate) fn inherited() -> Vec<c_int> {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Takes over those that are placeholders.
pub(crate) fn adopt_inherited() {
    let mut known: Vec<Arc<Description>> = Vec::new();
    let inherited = inherited();
    for fd in inherited.iter().copied() {
        let Some(page) = borrow(fd).ok().and_then(crate::page::Page::adopt) else { continue };
        let Some(page) = crate::cwd::adopt(fd, page) else { continue };
        // Descriptors of one open file share its page: they are one here as well.
        let file = match known.iter().find(|file| file.page.is_same(&page)) {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(Description::adopt(page));
                known.push(Arc::clone(&file));
                file
            }
        };
        if table::put(fd.as_raw_fd(), file).is_ok() {
            stdio::now_ours(fd);
        }
    }
    for fd in inherited.into_iter().filter(|fd| *fd > 2 && !table::is_kept(*fd) && locks::is_of_lock(*fd)) {
        // The open file itself was to end with the program before.
        // SAFETY: the library's own, which nobody here knows.
        unsafe { rustix::io::close(fd) };
    }
    if !known.is_empty() {
        connect::has_been_there();
    }
}
