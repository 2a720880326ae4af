//! Attributes: reading, and changing those of a file whatever its kind.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::file::OpenFile;
use super::inode::{HeldInode, ProcPath};
use super::{FileSystem, open_again};
use crate::abi::{Attr, AttrOut, GETATTR_FH, GetattrIn, InHeader, SetattrIn, StatfsOut, fattr};
use crate::operations::Attributes;

/// A file's attributes as the kernel wants them.
pub(super) fn attr_of(stat: &Stat) -> Attr {
    Attr {
        ino: stat.st_ino,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: stat.st_atime as u64,
        mtime: stat.st_mtime as u64,
        ctime: stat.st_ctime as u64,
        atimensec: stat.st_atime_nsec as u32,
        mtimensec: stat.st_mtime_nsec as u32,
        ctimensec: stat.st_ctime_nsec as u32,
        mode: stat.st_mode,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// The attributes of the file that a descriptor (`O_PATH` or not) holds.
pub(super) fn stat(fd: impl AsFd) -> Result<Stat, Errno> {
    rustix::fs::fstat(fd)
}

impl FileSystem {
    fn attr_out(&self, stat: &Stat) -> AttrOut {
        AttrOut {
            attr_valid: self.timeout.as_secs(),
            attr_valid_nsec: self.timeout.subsec_nanos(),
            dummy: 0,
            attr: attr_of(stat),
        }
    }
}

impl Attributes for FileSystem {
    fn getattr(&self, header: &InHeader, arg: GetattrIn) -> Result<AttrOut, Errno> {
        let stat = if arg.flags & GETATTR_FH != 0 {
            match self.files.get(arg.fh) {
                Ok(file) => stat(&file.fd)?,
                Err(_) => stat(self.inodes.get(header.nodeid)?.as_fd())?,
            }
        } else {
            stat(self.inodes.get(header.nodeid)?.as_fd())?
        };
        Ok(self.attr_out(&stat))
    }

    fn setattr(&self, header: &InHeader, arg: SetattrIn) -> Result<AttrOut, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let file = if arg.valid & fattr::FH != 0 { Some(self.files.get(arg.fh)?) } else { None };

        if arg.valid & fattr::MODE != 0 {
            change_mode(inode.as_fd(), arg.mode)?;
        }
        if arg.valid & (fattr::UID | fattr::GID) != 0 {
            let uid = (arg.valid & fattr::UID != 0).then(|| Uid::from_raw(arg.uid));
            let gid = (arg.valid & fattr::GID != 0).then(|| Gid::from_raw(arg.gid));
            rustix::fs::chownat(
                inode.as_fd(),
                c"",
                uid,
                gid,
                AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        if arg.valid & fattr::SIZE != 0 {
            truncate(&inode, file.as_ref(), arg.size)?;
        }
        if arg.valid & fattr::KILL_SUIDGID != 0 {
            clear_suid_sgid(inode.as_fd())?;
        }
        if arg.valid & (fattr::ATIME | fattr::MTIME) != 0 {
            let time = |set: u32, now: u32, secs: u64, nsec: u32| Timespec {
                tv_sec: secs as i64,
                tv_nsec: if arg.valid & now != 0 {
                    UTIME_NOW
                } else if arg.valid & set != 0 {
                    nsec.into()
                } else {
                    UTIME_OMIT
                },
            };
            let times = Timestamps {
                last_access: time(fattr::ATIME, fattr::ATIME_NOW, arg.atime, arg.atimensec),
                last_modification: time(fattr::MTIME, fattr::MTIME_NOW, arg.mtime, arg.mtimensec),
            };
            rustix::fs::utimensat(
                inode.as_fd(),
                c"",
                &times,
                AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        Ok(self.attr_out(&stat(inode.as_fd())?))
    }

    fn statfs(&self, header: &InHeader) -> Result<StatfsOut, Errno> {
        let statvfs = rustix::fs::fstatfs(self.inodes.get(header.nodeid)?.as_fd())?;
        Ok(StatfsOut {
            blocks: statvfs.f_blocks,
            bfree: statvfs.f_bfree,
            bavail: statvfs.f_bavail,
            files: statvfs.f_files,
            ffree: statvfs.f_ffree,
            bsize: statvfs.f_bsize as u32,
            namelen: statvfs.f_namelen as u32,
            frsize: statvfs.f_frsize as u32,
            padding: 0,
            spare: [0; 6],
        })
    }
}

pub(super) fn change_mode(file: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let path = ProcPath::new(file);
    rustix::fs::chmodat(CWD, path.as_bytes(), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
}

fn truncate(inode: &HeldInode, file: Option<&Arc<OpenFile>>, size: u64) -> Result<(), Errno> {
    match file {
        Some(file) => rustix::fs::ftruncate(&file.fd, size),
        None => rustix::fs::ftruncate(open_again(inode, libc::O_WRONLY | libc::O_NONBLOCK)?, size),
    }
}

/// Clears set-user-id, and set-group-id where it means what it says, as a write by somebody else must. Says whether it did.
pub(super) fn clear_suid_sgid(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mode = stat(file)?.st_mode;
    let mut cleared = mode & !libc::S_ISUID;
    if mode & libc::S_IXGRP != 0 {
        cleared &= !libc::S_ISGID;
    }
    if cleared != mode {
        change_mode(file, cleared)?;
    }
    Ok(cleared != mode)
}
