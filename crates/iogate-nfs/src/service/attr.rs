//! Attributes, changes and errors: this machine's, and those of NFS.

use std::io;

use iogate_core::wire::{Attr, Change, Timestamp, set};
use iogate_vfs::Users;
use iogate_vfs::held::Known;
use rustix::fs::FileType;

use crate::wire::{Fattr, Kind, SetAttr, SetTime, Status, Time};

/// The attributes of a file, for a client.
pub(super) fn fattr(known: &Known, fsid: u64, users: &Users) -> Fattr {
    let mut attr: Attr = known.attr;
    users.client_attr(&mut attr);
    let device = u64::from(attr.device);
    Fattr {
        kind: kind(attr.mode),
        mode: attr.mode & 0o7777,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.blocks.saturating_mul(512),
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
        fsid,
        fileid: attr.inode,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
    }
}

/// What kind of file has a mode.
pub(super) fn kind(mode: u32) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::BlockDevice => Kind::Block,
        FileType::CharacterDevice => Kind::Character,
        FileType::Socket => Kind::Socket,
        FileType::Fifo => Kind::Fifo,
        _ => Kind::Regular,
    }
}

/// A time, of which NFS knows 32 bits of seconds.
pub(super) fn time(at: Timestamp) -> Time {
    Time { seconds: at.seconds as u32, nanoseconds: at.nanoseconds }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds.into(), nanoseconds: time.nanoseconds }
}

/// What a client wants to set.
pub(super) fn change(attr: &SetAttr) -> Change {
    let mut change = Change::default();
    if let Some(mode) = attr.mode {
        (change.which, change.mode) = (change.which | set::MODE, mode & 0o7777);
    }
    if let Some(uid) = attr.uid {
        (change.which, change.uid) = (change.which | set::UID, uid);
    }
    if let Some(gid) = attr.gid {
        (change.which, change.gid) = (change.which | set::GID, gid);
    }
    if let Some(size) = attr.size {
        (change.which, change.size) = (change.which | set::SIZE, size);
    }
    match attr.atime {
        SetTime::Keep => {}
        SetTime::Now => change.which |= set::ATIME | set::ATIME_NOW,
        SetTime::To(time) => (change.which, change.atime) = (change.which | set::ATIME, timestamp(time)),
    }
    match attr.mtime {
        SetTime::Keep => {}
        SetTime::Now => change.which |= set::MTIME | set::MTIME_NOW,
        SetTime::To(time) => (change.which, change.mtime) = (change.which | set::MTIME, timestamp(time)),
    }
    change
}

/// Whether a file has what a client wanted to set. Times that were to be the server's are any.
pub(super) fn is_set(asked: &SetAttr, found: &Fattr) -> bool {
    let is_time = |asked, found| if let SetTime::To(asked) = asked { asked == found } else { true };
    asked.mode.is_none_or(|mode| mode & 0o7777 == found.mode & 0o7777)
        && asked.uid.is_none_or(|uid| uid == found.uid)
        && asked.gid.is_none_or(|gid| gid == found.gid)
        && asked.size.is_none_or(|size| size == found.size)
        && is_time(asked.atime, found.atime)
        && is_time(asked.mtime, found.mtime)
}

/// What a client is told of an error of the system. Of what is told by a status that does not say what it was, the log has the cause.
pub(super) fn status(error: &io::Error) -> Status {
    let status = status_of(error);
    if status.is_trouble() {
        tracing::debug!(%error, ?status, "an error that a client is told of");
    }
    status
}

fn status_of(error: &io::Error) -> Status {
    let Some(errno) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::InvalidInput => Status::Inval,
            _ => Status::Io,
        };
    };
    match errno {
        libc::EPERM => Status::Perm,
        libc::ENOENT => Status::NoEnt,
        libc::ENXIO => Status::NxIo,
        // A name is a mount point, or a program's file is being executed.
        libc::EACCES | libc::EBUSY | libc::ETXTBSY => Status::Access,
        libc::EEXIST => Status::Exist,
        libc::EXDEV => Status::XDev,
        libc::ENODEV => Status::NoDev,
        libc::ENOTDIR => Status::NotDir,
        libc::EISDIR => Status::IsDir,
        libc::EINVAL | libc::ELOOP => Status::Inval,
        libc::EFBIG | libc::EOVERFLOW => Status::FBig,
        libc::ENOSPC => Status::NoSpc,
        libc::EROFS => Status::RoFs,
        libc::EMLINK => Status::MLink,
        libc::ENAMETOOLONG => Status::NameTooLong,
        libc::ENOTEMPTY => Status::NotEmpty,
        libc::EDQUOT => Status::DQuot,
        libc::ESTALE | libc::EBADF => Status::Stale,
        libc::EOPNOTSUPP | libc::ENOSYS => Status::NotSupp,
        // It may go better later.
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE => Status::Jukebox,
        _ => Status::Io,
    }
}
