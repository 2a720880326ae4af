//! Asking for attributes, permissions and space.

use std::ffi::{c_int, c_uint};

use iogate_core::wire::{Attr, Timestamp};
use rustix::io::Errno;

use crate::abi::{Out, Text};
use crate::connect;
use crate::cwd;
use crate::failed::{Result, answer};
use crate::paths::{self, TreePath};
use crate::table;

/// The device number of every file of ours: one that no file system of the kernel's has.
const DEVICE_MINOR: u32 = 0xf_106a;
/// The type of file system that `statfs` tells: `ioga`.
const FILE_SYSTEM: i64 = 0x696f_6761;

fn device() -> libc::dev_t {
    libc::makedev(0, DEVICE_MINOR)
}

fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: zeros are a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = device();
    stat.st_ino = attr.inode;
    stat.st_mode = attr.mode;
    stat.st_nlink = attr.links.into();
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.device.into();
    stat.st_size = attr.size as i64;
    stat.st_blksize = attr.buffer_bytes().into();
    stat.st_blocks = attr.blocks as i64;
    (stat.st_atime, stat.st_atime_nsec) = (attr.atime.seconds, attr.atime.nanoseconds.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.mtime.seconds, attr.mtime.nanoseconds.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.ctime.seconds, attr.ctime.nanoseconds.into());
    stat
}

fn statx_of(attr: &Attr) -> libc::statx {
    let time = |moment: Timestamp| {
        // SAFETY: zeros are a value of it.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (time.tv_sec, time.tv_nsec) = (moment.seconds, moment.nanoseconds);
        time
    };
    // SAFETY: zeros are a value of it.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    statx.stx_mask = libc::STATX_BASIC_STATS;
    statx.stx_dev_minor = DEVICE_MINOR;
    statx.stx_ino = attr.inode;
    statx.stx_mode = attr.mode as u16;
    statx.stx_nlink = attr.links;
    statx.stx_uid = attr.uid;
    statx.stx_gid = attr.gid;
    statx.stx_rdev_major = libc::major(attr.device.into());
    statx.stx_rdev_minor = libc::minor(attr.device.into());
    statx.stx_size = attr.size;
    statx.stx_blksize = attr.buffer_bytes();
    statx.stx_blocks = attr.blocks;
    statx.stx_atime = time(attr.atime);
    statx.stx_mtime = time(attr.mtime);
    statx.stx_ctime = time(attr.ctime);
    statx
}

/// The attributes of what is at a path.
pub(crate) fn attr_of(path: &TreePath, follow: bool) -> Result<Attr> {
    // A link is rare, and the rest needs one question.
    let attr = paths::on_tree(path, |tree, caller, path| tree.attr(caller, path))?;
    if attr.mode & libc::S_IFMT == libc::S_IFLNK && (follow || path.directory) {
        return Ok(paths::follow(path)?.1);
    }
    path.check(&attr)?;
    Ok(attr)
}

fn put_stat(path: &TreePath, follow: bool, out: Out<libc::stat>) -> Result<c_int> {
    out.put(stat_of(&attr_of(path, follow)?)).map(|()| 0)
}

/// The attributes of a descriptor, for a call with `AT_EMPTY_PATH`, where it is one of ours.
fn attr_at(fd: c_int, path: Text, flags: c_int) -> Option<Result<Attr>> {
    if flags & libc::AT_EMPTY_PATH == 0 || path.get().is_some_and(|path| !path.is_empty()) {
        return None;
    }
    match fd {
        libc::AT_FDCWD => cwd::get().map(|path| attr_of(&TreePath::new(&path), true)),
        fd => table::find(fd).map(|file| file.attr()),
    }
}

/// Whether the caller may do what `mode` says (`R_OK`, `W_OK`, `X_OK`), as far as permissions tell.
pub(crate) fn check_access(attr: &Attr, mode: c_int, effective: bool) -> Result<()> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    let (uid, gid) = if effective { (geteuid(), getegid()) } else { (getuid(), getgid()) };
    if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return Err(Errno::INVAL.into());
    }
    let is_directory = attr.mode & libc::S_IFMT == libc::S_IFDIR;
    let granted = if uid.is_root() {
        let runs = is_directory || attr.mode & 0o111 != 0;
        if runs { 0o7 } else { 0o6 }
    } else if attr.uid == uid.as_raw() {
        attr.mode >> 6
    } else if attr.gid == gid.as_raw()
        || rustix::process::getgroups()?.iter().any(|group| group.as_raw() == attr.gid)
    {
        attr.mode >> 3
    } else {
        attr.mode
    };
    if mode as u32 & !granted == 0 { Ok(()) } else { Err(Errno::ACCESS.into()) }
}

fn access_at(path: &TreePath, mode: c_int, flags: c_int) -> Result<c_int> {
    let attr = attr_of(path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
    check_access(&attr, mode, flags & libc::AT_EACCESS != 0)?;
    Ok(0)
}

fn put_space(out: Out<libc::statfs>) -> Result<c_int> {
    let space = connect::link()?.tree.space()?;
    // SAFETY: zeros are a value of it.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    found.f_type = FILE_SYSTEM;
    found.f_bsize = space.block_bytes as i64;
    found.f_frsize = space.block_bytes as i64;
    found.f_blocks = space.blocks;
    found.f_bfree = space.blocks_free;
    found.f_bavail = space.blocks_available;
    found.f_files = space.files;
    found.f_ffree = space.files_free;
    found.f_namelen = space.name_bytes_max.into();
    out.put(found).map(|()| 0)
}

fn put_vfs_space(out: Out<libc::statvfs>) -> Result<c_int> {
    let space = connect::link()?.tree.space()?;
    // SAFETY: zeros are a value of it.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    found.f_bsize = space.block_bytes;
    found.f_frsize = space.block_bytes;
    found.f_blocks = space.blocks;
    found.f_bfree = space.blocks_free;
    found.f_bavail = space.blocks_available;
    found.f_files = space.files;
    found.f_ffree = space.files_free;
    found.f_favail = space.files_free;
    found.f_namemax = space.name_bytes_max.into();
    out.put(found).map(|()| 0)
}

/// What there must be at the path for its space to be told.
fn exists(path: &TreePath) -> Result<()> {
    attr_of(path, true).map(drop)
}

fn stat_descriptor(fd: c_int, out: Out<libc::stat>, real: impl FnOnce() -> c_int) -> c_int {
    match table::find(fd) {
        None => real(),
        Some(file) => answer(|| out.put(stat_of(&file.attr()?)).map(|()| 0)),
    }
}

fn stat_at(
    dir: c_int,
    path: Text,
    out: Out<libc::stat>,
    flags: c_int,
    real: impl Fn(Text) -> c_int,
) -> c_int {
    if let Some(attr) = attr_at(dir, path, flags) {
        return answer(|| out.put(stat_of(&attr?)).map(|()| 0));
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    on_path!(dir, path, real, |path: TreePath| put_stat(&path, follow, out))
}

interpose! {
    fn stat | stat64 [real](path: Text, out: Out<libc::stat>) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, out), |path: TreePath| put_stat(&path, true, out))
    }

    fn lstat | lstat64 [real](path: Text, out: Out<libc::stat>) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, out), |path: TreePath| put_stat(&path, false, out))
    }

    fn fstat | fstat64 [real](fd: c_int, out: Out<libc::stat>) -> c_int {
        stat_descriptor(fd, out, || real(fd, out))
    }

    fn fstatat | fstatat64 [real](dir: c_int, path: Text, out: Out<libc::stat>, flags: c_int) -> c_int {
        stat_at(dir, path, out, flags, |path| real(dir, path, out, flags))
    }

    fn __xstat | __xstat64 [real](version: c_int, path: Text, out: Out<libc::stat>) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(version, path, out),
            |path: TreePath| put_stat(&path, true, out)
        )
    }

    fn __lxstat | __lxstat64 [real](version: c_int, path: Text, out: Out<libc::stat>) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(version, path, out),
            |path: TreePath| put_stat(&path, false, out)
        )
    }

    fn __fxstat | __fxstat64 [real](version: c_int, fd: c_int, out: Out<libc::stat>) -> c_int {
        stat_descriptor(fd, out, || real(version, fd, out))
    }

    fn __fxstatat | __fxstatat64 [real](
        version: c_int,
        dir: c_int,
        path: Text,
        out: Out<libc::stat>,
        flags: c_int,
    ) -> c_int {
        stat_at(dir, path, out, flags, |path| real(version, dir, path, out, flags))
    }

    fn statx[real](dir: c_int, path: Text, flags: c_int, mask: c_uint, out: Out<libc::statx>) -> c_int {
        if let Some(attr) = attr_at(dir, path, flags) {
            return answer(|| out.put(statx_of(&attr?)).map(|()| 0));
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        on_path!(
            dir,
            path,
            |path| real(dir, path, flags, mask, out),
            |path: TreePath| out.put(statx_of(&attr_of(&path, follow)?)).map(|()| 0)
        )
    }

    fn access[real](path: Text, mode: c_int) -> c_int {
        on_path!(libc::AT_FDCWD, path, |path| real(path, mode), |path: TreePath| access_at(&path, mode, 0))
    }

    fn euidaccess | eaccess [real](path: Text, mode: c_int) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, mode),
            |path: TreePath| access_at(&path, mode, libc::AT_EACCESS)
        )
    }

    fn faccessat[real](dir: c_int, path: Text, mode: c_int, flags: c_int) -> c_int {
        if let Some(attr) = attr_at(dir, path, flags) {
            return answer(|| check_access(&attr?, mode, flags & libc::AT_EACCESS != 0).map(|()| 0));
        }
        on_path!(
            dir,
            path,
            |path| real(dir, path, mode, flags),
            |path: TreePath| access_at(&path, mode, flags)
        )
    }

    fn statfs | statfs64 [real](path: Text, out: Out<libc::statfs>) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, out),
            |path: TreePath| exists(&path).and_then(|()| put_space(out))
        )
    }

    fn fstatfs | fstatfs64 [real](fd: c_int, out: Out<libc::statfs>) -> c_int {
        match table::find(fd) {
            None => real(fd, out),
            Some(_) => answer(|| put_space(out)),
        }
    }

    fn statvfs | statvfs64 [real](path: Text, out: Out<libc::statvfs>) -> c_int {
        on_path!(
            libc::AT_FDCWD,
            path,
            |path| real(path, out),
            |path: TreePath| exists(&path).and_then(|()| put_vfs_space(out))
        )
    }

    fn fstatvfs | fstatvfs64 [real](fd: c_int, out: Out<libc::statvfs>) -> c_int {
        match table::find(fd) {
            None => real(fd, out),
            Some(_) => answer(|| put_vfs_space(out)),
        }
    }

    fn pathconf[real](path: Text, name: c_int) -> i64 {
        on_path!(libc::AT_FDCWD, path, |path| real(path, name), |path: TreePath| {
            exists(&path)?;
            Ok(limit(name))
        })
    }

    fn fpathconf[real](fd: c_int, name: c_int) -> i64 {
        if table::is_special(fd) { limit(name) } else { real(fd, name) }
    }
}

/// As `pathconf`; -1 is no limit, or none known.
fn limit(name: c_int) -> i64 {
    match name {
        libc::_PC_LINK_MAX => 127,
        libc::_PC_NAME_MAX => 255,
        libc::_PC_PATH_MAX | libc::_PC_PIPE_BUF => 4096,
        libc::_PC_NO_TRUNC | libc::_PC_CHOWN_RESTRICTED => 1,
        libc::_PC_FILESIZEBITS => 64,
        _ => -1,
    }
}
