//! Attributes as the kernel has them and as they are sent, and changes to them.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use iogate_core::reserved;
use iogate_core::wire::{self, Attr, Change, Space, Timestamp, set};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use rustix::path::Arg;

use super::beneath::{Place, ProcPath};
use crate::object_id::{OBJECT, ObjectId};

/// What there is to know about a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) attr: Attr,
    /// The number of its file system.
    pub(super) device: u64,
    /// When it was born, in nanoseconds since the Unix epoch; 0: the file system does not tell.
    pub(super) birth: u64,
}

impl Known {
    /// Whether this and `other` are one file, as both are known now.
    pub(super) fn is(&self, other: &Known) -> bool {
        let which = |known: &Known| (known.device, known.attr.inode, known.birth);
        which(self) == which(other)
    }
}

/// What there is to see of a name.
pub(super) fn look_at(place: &Place<'_>) -> Result<(Known, Listed), Errno> {
    Ok((at(&place.dir, place.name)?, list_at(&place.dir, place.name.as_bytes())))
}

/// Looks at a name in a directory, without following it.
pub(super) fn at(dir: impl AsFd, name: impl Arg) -> Result<Known, Errno> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Looks at what a descriptor (`O_PATH` or not) holds.
pub(super) fn of(fd: impl AsFd) -> Result<Known, Errno> {
    statx(fd, c"", AtFlags::EMPTY_PATH)
}

/// What the names of a file's extended attributes say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    /// It has others than iogate's own.
    has_others: bool,
    /// It has objects.
    pub(super) has_object: bool,
}

impl Listed {
    fn of(list: Result<&[u8], Errno>) -> Listed {
        let list = match list {
            Ok(list) => list,
            // The file system knows none.
            Err(Errno::OPNOTSUPP) => &[],
            // More than there was room for, or not known.
            Err(_) => return Listed { has_others: true, has_object: true },
        };
        let mut listed = Listed::default();
        for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            listed.has_object |= name == OBJECT;
            listed.has_others |= !reserved::is_attribute(name);
        }
        listed
    }

    /// Notes it in attributes.
    pub(super) fn note(self, attr: &mut Attr) {
        if !self.has_others {
            attr.flags |= wire::attr::NO_XATTRS;
        }
    }
}

/// Room for the names of a few extended attributes.
const LIST_BYTES: usize = 512;

/// Lists the extended attributes of a name in a directory, without following it.
pub(super) fn list_at(dir: impl AsFd, name: &[u8]) -> Listed {
    let mut list = [0u8; LIST_BYTES];
    let path = [ProcPath::new(dir).as_bytes(), b"/", name].concat();
    let count = rustix::fs::llistxattr(&path[..], &mut list);
    Listed::of(count.map(|count| &list[..count]))
}

/// Lists the extended attributes of what a descriptor (`O_PATH` or not) holds.
pub(super) fn list_of(fd: impl AsFd) -> Listed {
    let mut list = [0u8; LIST_BYTES];
    let count = rustix::fs::listxattr(ProcPath::new(fd).as_bytes(), &mut list);
    Listed::of(count.map(|count| &list[..count]))
}

/// What the objects of what a descriptor (`O_PATH` or not) holds are named by; `None` if it has no such name.
pub(super) fn find_object(fd: impl AsFd) -> std::io::Result<Option<[u8; 16]>> {
    let mut text = [0u8; 64];
    match rustix::fs::getxattr(ProcPath::new(fd).as_bytes(), OBJECT, &mut text[..]) {
        Ok(count) => match ObjectId::parse(&text[..count]) {
            Some(id) => Ok(Some(id.0)),
            None => {
                tracing::error!("the attribute that names a file's objects is damaged");
                Err(Errno::IO.into())
            }
        },
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`find_object`]; zeros if there is none.
pub(super) fn object_of(fd: impl AsFd) -> [u8; 16] {
    find_object(fd).ok().flatten().unwrap_or_default()
}

fn statx(dir: impl AsFd, name: impl Arg, flags: AtFlags) -> Result<Known, Errno> {
    let stat = rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok(Known { attr: attr_of(&stat), device, birth: birth_of(&stat) })
}

fn attr_of(stat: &Statx) -> Attr {
    let moment = |time: &StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    Attr {
        inode: stat.stx_ino,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: moment(&stat.stx_atime),
        mtime: moment(&stat.stx_mtime),
        ctime: moment(&stat.stx_ctime),
        mode: stat.stx_mode.into(),
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        // Linux's numbers fit 32 bits: 12 of the major, 20 of the minor one.
        device: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32,
        block_bytes: stat.stx_blksize,
        ..Attr::default()
    }
}

fn birth_of(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    (stat.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into())
}

/// Changes what a descriptor (`O_PATH` or not) holds. The size is set by `truncate`.
pub(super) fn change(
    fd: BorrowedFd<'_>,
    change: &Change,
    truncate: impl FnOnce(BorrowedFd<'_>, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let sets = |which: u32| change.which & which != 0;
    // The owner before the permissions: a change of the owner clears some of them.
    if sets(set::UID | set::GID) {
        // Which to the system means to leave an id as it is.
        if (sets(set::UID) && change.uid == u32::MAX) || (sets(set::GID) && change.gid == u32::MAX) {
            return Err(Errno::INVAL);
        }
        let uid = sets(set::UID).then(|| Uid::from_raw(change.uid));
        let gid = sets(set::GID).then(|| Gid::from_raw(change.gid));
        rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if sets(set::MODE) {
        let mode = Mode::from_raw_mode(change.mode & 0o7777);
        rustix::fs::chmodat(CWD, ProcPath::new(fd).as_bytes(), mode, AtFlags::empty())?;
    }
    if sets(set::SIZE) {
        truncate(fd, change.size)?;
    }
    if sets(set::ATIME | set::MTIME) {
        let time = |which, now, moment: Timestamp| {
            let nanoseconds = match (sets(which), sets(now)) {
                (false, _) => UTIME_OMIT,
                (true, true) => UTIME_NOW,
                (true, false) if moment.nanoseconds >= 1_000_000_000 => return Err(Errno::INVAL),
                (true, false) => moment.nanoseconds.into(),
            };
            Ok(Timespec { tv_sec: moment.seconds, tv_nsec: nanoseconds })
        };
        let times = Timestamps {
            last_access: time(set::ATIME, set::ATIME_NOW, change.atime)?,
            last_modification: time(set::MTIME, set::MTIME_NOW, change.mtime)?,
        };
        rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Takes away set-user-ID, and set-group-ID where it means what it says, as a write by somebody else than root does.
pub(super) fn clear_privileges(fd: impl AsFd) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(&fd)?.st_mode;
    let executed_by_group = mode & libc::S_IXGRP != 0;
    let cleared = mode & !libc::S_ISUID & if executed_by_group { !libc::S_ISGID } else { !0 };
    if FileType::from_raw_mode(mode) == FileType::RegularFile && cleared != mode {
        match rustix::fs::fchmod(&fd, Mode::from_raw_mode(cleared & 0o7777)) {
            // Another user's file, and the process is not root: it is the file system's to do.
            Err(Errno::PERM) => {}
            done => return done,
        }
    }
    Ok(())
}

/// `truncate(2)` of what a descriptor holds: checks permissions, and opens nothing.
pub(super) fn truncate_held(fd: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    let size = libc::off_t::try_from(size).map_err(|_| Errno::INVAL)?;
    let path = CString::new(ProcPath::new(fd).as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path is a string that lives until the call returns.
    if unsafe { libc::truncate(path.as_ptr(), size) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The space of the file system.
pub(super) fn space(root: impl AsFd) -> Result<Space, Errno> {
    let found = rustix::fs::fstatvfs(root)?;
    Ok(Space {
        block_bytes: found.f_frsize,
        blocks: found.f_blocks,
        blocks_free: found.f_bfree,
        blocks_available: found.f_bavail,
        files: found.f_files,
        files_free: found.f_ffree,
        name_bytes_max: found.f_namemax as u32,
    })
}
