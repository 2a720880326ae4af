//! Changing attributes, and extended attributes.

use iogate_core::wire::Identity;
use std::ffi::c_int;

use iogate_core::wire::{Change, Timestamp, set};
use libc::{gid_t, mode_t, size_t, ssize_t, uid_t};
use rustix::io::Errno;

use crate::abi::{In, Memory, Text};
use crate::connect;
use crate::description::Description;
use crate::failed::{Result, answer};
use crate::paths::{self, TreePath};
use crate::table;

fn change_path(path: &TreePath, follow: bool, change: &Change) -> Result<c_int> {
    let path = resolved(path, follow)?;
    paths::on_tree(&path, |tree, caller, path| tree.set_attr(caller, path, Identity::default(), change))?;
    Ok(0)
}

fn change_open(file: &Description, change: &Change) -> Result<c_int> {
    file.handle()?.file.set_attr(connect::caller(), change)?;
    Ok(0)
}

/// A change of what `path` names, or of the descriptor itself, as the `...at` functions have it.
fn change_at(
    dir: c_int,
    path: Text,
    flags: c_int,
    change: Result<Change>,
    real: impl Fn(Text) -> c_int,
) -> c_int {
    let is_empty = path.get().is_none_or(|path| path.is_empty());
    if let (true, Some(file)) = (is_empty, table::find(dir)) {
        if path.get().is_some() && flags & libc::AT_EMPTY_PATH == 0 {
            return answer(|| Err(Errno::NOENT.into()));
        }
        return answer(|| change_open(&file, &change?));
    }
    let mut change = Some(change);
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    on_path!(dir, path, real, |path: TreePath| {
        change_path(&path, follow, &change.take().ok_or(Errno::IO)??)
    })
}

/// The path to change: a symbolic link at its end is followed, or not.
fn resolved(path: &TreePath, follow: bool) -> Result<TreePath> {
    if follow || path.directory { Ok(paths::follow(path)?.0) } else { Ok(path.clone()) }
}

fn permissions(mode: mode_t) -> Result<Change> {
    Ok(Change { which: set::MODE, mode: mode & 0o7777, ..Change::default() })
}

fn owners(uid: uid_t, gid: gid_t) -> Result<Change> {
    let mut which = 0;
    if uid != uid_t::MAX {
        which |= set::UID;
    }
    if gid != gid_t::MAX {
        which |= set::GID;
    }
    Ok(Change { which, uid, gid, ..Change::default() })
}

/// Both times, or now.
fn times(times: In<[libc::timespec; 2]>) -> Result<Change> {
    let Some([atime, mtime]) = times.get() else {
        let which = set::ATIME | set::ATIME_NOW | set::MTIME | set::MTIME_NOW;
        return Ok(Change { which, ..Change::default() });
    };
    let mut change = Change::default();
    for (time, field, flag, now) in [
        (atime, &mut change.atime, set::ATIME, set::ATIME_NOW),
        (mtime, &mut change.mtime, set::MTIME, set::MTIME_NOW),
    ] {
        match time.tv_nsec {
            libc::UTIME_OMIT => {}
            libc::UTIME_NOW => change.which |= flag | now,
            nanoseconds @ 0..1_000_000_000 => {
                change.which |= flag;
                *field = Timestamp { seconds: time.tv_sec, nanoseconds: nanoseconds as u32 };
            }
            _ => return Err(Errno::INVAL.into()),
        }
    }
    Ok(change)
}

fn times_in_microseconds(pair: In<[libc::timeval; 2]>) -> Result<Change> {
    let Some(pair) = pair.get() else { return times(In::NULL) };
    let [atime, mtime] = pair.map(|time| {
        let nanoseconds = u32::try_from(time.tv_usec).ok().filter(|us| *us < 1_000_000).map(|us| us * 1000);
        nanoseconds.map(|nanoseconds| Timestamp { seconds: time.tv_sec, nanoseconds })
    });
    let (atime, mtime) = (atime.ok_or(Errno::INVAL)?, mtime.ok_or(Errno::INVAL)?);
    Ok(Change { which: set::ATIME | set::MTIME, atime, mtime, ..Change::default() })
}

fn times_in_seconds(pair: In<libc::utimbuf>) -> Result<Change> {
    let Some(pair) = pair.get() else { return times(In::NULL) };
    let moment = |seconds| Timestamp { seconds, nanoseconds: 0 };
    let (atime, mtime) = (moment(pair.actime), moment(pair.modtime));
    Ok(Change { which: set::ATIME | set::MTIME, atime, mtime, ..Change::default() })
}

interpose! {
    fn chmod[real](path: Text, mode: mode_t) -> c_int {
        change_at(libc::AT_FDCWD, path, 0, permissions(mode), |path| real(path, mode))
    }

    fn lchmod[real](path: Text, mode: mode_t) -> c_int {
        change_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, permissions(mode), |path| real(path, mode))
    }

    fn fchmod[real](fd: c_int, mode: mode_t) -> c_int {
        match table::find(fd) {
            None => real(fd, mode),
            Some(file) => answer(|| change_open(&file, &permissions(mode)?)),
        }
    }

    fn fchmodat[real](dir: c_int, path: Text, mode: mode_t, flags: c_int) -> c_int {
        change_at(dir, path, flags, permissions(mode), |path| real(dir, path, mode, flags))
    }

    fn chown[real](path: Text, uid: uid_t, gid: gid_t) -> c_int {
        change_at(libc::AT_FDCWD, path, 0, owners(uid, gid), |path| real(path, uid, gid))
    }

    fn lchown[real](path: Text, uid: uid_t, gid: gid_t) -> c_int {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        change_at(libc::AT_FDCWD, path, flags, owners(uid, gid), |path| real(path, uid, gid))
    }

    fn fchown[real](fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        match table::find(fd) {
            None => real(fd, uid, gid),
            Some(file) => answer(|| change_open(&file, &owners(uid, gid)?)),
        }
    }

    fn fchownat[real](dir: c_int, path: Text, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        change_at(dir, path, flags, owners(uid, gid), |path| real(dir, path, uid, gid, flags))
    }

    fn utimensat[real](dir: c_int, path: Text, pair: In<[libc::timespec; 2]>, flags: c_int) -> c_int {
        change_at(dir, path, flags, times(pair), |path| real(dir, path, pair, flags))
    }

    fn futimens[real](fd: c_int, pair: In<[libc::timespec; 2]>) -> c_int {
        match table::find(fd) {
            None => real(fd, pair),
            Some(file) => answer(|| change_open(&file, &times(pair)?)),
        }
    }

    fn utimes[real](path: Text, pair: In<[libc::timeval; 2]>) -> c_int {
        change_at(libc::AT_FDCWD, path, 0, times_in_microseconds(pair), |path| real(path, pair))
    }

    fn lutimes[real](path: Text, pair: In<[libc::timeval; 2]>) -> c_int {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        change_at(libc::AT_FDCWD, path, flags, times_in_microseconds(pair), |path| real(path, pair))
    }

    fn futimesat[real](dir: c_int, path: Text, pair: In<[libc::timeval; 2]>) -> c_int {
        change_at(dir, path, 0, times_in_microseconds(pair), |path| real(dir, path, pair))
    }

    fn futimes[real](fd: c_int, pair: In<[libc::timeval; 2]>) -> c_int {
        match table::find(fd) {
            None => real(fd, pair),
            Some(file) => answer(|| change_open(&file, &times_in_microseconds(pair)?)),
        }
    }

    fn utime[real](path: Text, pair: In<libc::utimbuf>) -> c_int {
        change_at(libc::AT_FDCWD, path, 0, times_in_seconds(pair), |path| real(path, pair))
    }
}

/// Hands out a value or a list of names: of nothing but its size, if there is no room asked about.
fn hand_out(found: &[u8], memory: Memory, room: size_t) -> Result<ssize_t> {
    match room {
        0 => Ok(found.len() as ssize_t),
        room if room < found.len() => Err(Errno::RANGE.into()),
        room => Ok(memory.fill(room, found)? as ssize_t),
    }
}

fn get(path: &TreePath, follow: bool, name: Text, memory: Memory, room: size_t) -> Result<ssize_t> {
    let (path, name) = (resolved(path, follow)?, name.bytes()?);
    hand_out(&paths::on_tree(&path, |tree, caller, path| tree.xattr(caller, path, name))?, memory, room)
}

fn list(path: &TreePath, follow: bool, memory: Memory, room: size_t) -> Result<ssize_t> {
    let path = resolved(path, follow)?;
    hand_out(&paths::on_tree(&path, |tree, caller, path| tree.xattrs(caller, path))?, memory, room)
}

fn put(path: &TreePath, follow: bool, name: Text, value: &[u8], flags: c_int) -> Result<c_int> {
    let (path, name) = (resolved(path, follow)?, name.bytes()?);
    paths::on_tree(&path, |tree, caller, path| {
        tree.set_xattr(caller, path, Identity::default(), name, value, flags as u32)
    })?;
    Ok(0)
}

fn remove_from(path: &TreePath, follow: bool, name: Text) -> Result<c_int> {
    let (path, name) = (resolved(path, follow)?, name.bytes()?);
    paths::on_tree(&path, |tree, caller, path| tree.remove_xattr(caller, path, Identity::default(), name))?;
    Ok(0)
}

interpose! {
    fn getxattr[real](path: Text, name: Text, memory: Memory, room: size_t) -> ssize_t {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, name, memory, room),
            |path: TreePath| get(&path, true, name, memory, room)
        )
    }

    fn lgetxattr[real](path: Text, name: Text, memory: Memory, room: size_t) -> ssize_t {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, name, memory, room),
            |path: TreePath| get(&path, false, name, memory, room)
        )
    }

    fn fgetxattr[real](fd: c_int, name: Text, memory: Memory, room: size_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, name, memory, room),
            Some(file) => answer(|| {
                hand_out(&file.handle()?.file.xattr(connect::caller(), name.bytes()?)?, memory, room)
            }),
        }
    }

    fn listxattr[real](path: Text, memory: Memory, room: size_t) -> ssize_t {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, memory, room),
            |path: TreePath| list(&path, true, memory, room)
        )
    }

    fn llistxattr[real](path: Text, memory: Memory, room: size_t) -> ssize_t {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, memory, room),
            |path: TreePath| list(&path, false, memory, room)
        )
    }

    fn flistxattr[real](fd: c_int, memory: Memory, room: size_t) -> ssize_t {
        match table::find(fd) {
            None => real(fd, memory, room),
            Some(file) => {
                answer(|| hand_out(&file.handle()?.file.xattrs(connect::caller())?, memory, room))
            }
        }
    }

    fn setxattr[real](path: Text, name: Text, value: Memory, bytes: size_t, flags: c_int) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, name, value, bytes, flags),
            |path: TreePath| put(&path, true, name, value.bytes(bytes)?, flags)
        )
    }

    fn lsetxattr[real](path: Text, name: Text, value: Memory, bytes: size_t, flags: c_int) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, name, value, bytes, flags),
            |path: TreePath| put(&path, false, name, value.bytes(bytes)?, flags)
        )
    }

    fn fsetxattr[real](fd: c_int, name: Text, value: Memory, bytes: size_t, flags: c_int) -> c_int {
        match table::find(fd) {
            None => real(fd, name, value, bytes, flags),
            Some(file) => answer(|| {
                let (name, value) = (name.bytes()?, value.bytes(bytes)?);
                file.handle()?.file.set_xattr(connect::caller(), name, value, flags as u32)?;
                Ok(0)
            }),
        }
    }

    fn removexattr[real](path: Text, name: Text) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, name), |path: TreePath| {
            remove_from(&path, true, name)
        })
    }

    fn lremovexattr[real](path: Text, name: Text) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, name), |path: TreePath| {
            remove_from(&path, false, name)
        })
    }

    fn fremovexattr[real](fd: c_int, name: Text) -> c_int {
        match table::find(fd) {
            None => real(fd, name),
            Some(file) => answer(|| {
                file.handle()?.file.remove_xattr(connect::caller(), name.bytes()?)?;
                Ok(0)
            }),
        }
    }
}
