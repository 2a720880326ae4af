//! A plain directory, by the system's calls.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iogate_core::wire::{Attr, Change, Timestamp, open, set};
use iogate_vfs::Caller;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT,
    Uid, XattrFlags,
};

use crate::common::ROOT;
use crate::ops::{HANDLES, Op};
use crate::{World, digest, line, pattern, seen, seen_times};

pub(crate) struct PlainWorld {
    pub(crate) root: PathBuf,
    handles: Vec<Option<OwnedFd>>,
    writes_keep_bits: bool,
}

impl PlainWorld {
    /// The world below a directory. `writes_keep_bits`: root's writes leave set-user-ID and set-group-ID bits.
    pub(crate) fn new(root: PathBuf, writes_keep_bits: bool) -> PlainWorld {
        PlainWorld { root, handles: (0..HANDLES).map(|_| None).collect(), writes_keep_bits }
    }

    fn with<T: Debug>(&self, handle: usize, f: impl FnOnce(&OwnedFd) -> io::Result<T>) -> String {
        self.handles[handle].as_ref().map_or_else(String::new, |file| line(f(file)))
    }

    fn stat(&self, path: &str) -> io::Result<Attr> {
        Ok(attr_of(&self.root.join(path).symlink_metadata()?))
    }
}

fn attr_of(stat: &std::fs::Metadata) -> Attr {
    let time = |seconds, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Attr {
        size: stat.size(),
        mode: stat.mode(),
        links: stat.nlink() as u32,
        uid: stat.uid(),
        gid: stat.gid(),
        atime: time(stat.atime(), stat.atime_nsec()),
        mtime: time(stat.mtime(), stat.mtime_nsec()),
        ..Attr::default()
    }
}

fn attr_of_open(file: &OwnedFd) -> io::Result<Attr> {
    Ok(attr_of(&std::fs::File::from(file.try_clone()?).metadata()?))
}

fn plain_change(path: &Path, change: &Change) -> io::Result<()> {
    let sets = |which| change.which & which != 0;
    if sets(set::UID) {
        let (uid, gid) = (Uid::from_raw(change.uid), Gid::from_raw(change.gid));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let is_link = path.symlink_metadata()?.is_symlink();
    if sets(set::MODE) {
        if is_link {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(change.mode))?;
    }
    if sets(set::SIZE) {
        if is_link || path.metadata()?.file_type().is_fifo() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        rustix::fs::ftruncate(rustix::fs::open(path, OFlags::WRONLY, Mode::empty())?, change.size)?;
    }
    if sets(set::ATIME | set::MTIME) {
        let time = |which, time: Timestamp| Timespec {
            tv_sec: time.seconds,
            tv_nsec: if sets(which) { time.nanoseconds.into() } else { UTIME_OMIT },
        };
        let times = Timestamps {
            last_access: time(set::ATIME, change.atime),
            last_modification: time(set::MTIME, change.mtime),
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

impl World for PlainWorld {
    /// In a thread that is another user for good.
    fn does(&mut self, caller: Caller, op: &Op) -> String {
        if caller == ROOT {
            // A tree limits the threads that use it, this one too, but for operations in root's own name. Data is written with the limits.
            let writes = matches!(op, Op::Write(..) | Op::Allocate(..));
            let _unlimited =
                (!writes || self.writes_keep_bits).then(|| iogate_engine::privileges::unlimited().unwrap());
            return self.does_itself(op);
        }
        let user = move || {
            let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
            rustix::thread::set_thread_groups(&[gid]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            self.does_itself(op)
        };
        std::thread::scope(|scope| scope.spawn(user).join().unwrap())
    }
}

impl PlainWorld {
    fn does_itself(&mut self, op: &Op) -> String {
        let at = |path: &str| self.root.join(path);
        match *op {
            Op::Open(handle, path, flags, mode) => {
                let opened = plain_open(&at(path), flags, mode);
                line(opened.map(|file| {
                    let text = seen(&attr_of_open(&file).unwrap());
                    self.handles[handle] = Some(file);
                    text
                }))
            }
            Op::Close(handle) => {
                self.handles[handle] = None;
                String::new()
            }
            Op::Write(handle, offset, bytes, value) => {
                self.with(handle, |file| Ok(rustix::io::pwrite(file, &pattern(value, bytes), offset)?))
            }
            Op::Read(handle, offset, bytes) => self.with(handle, |file| {
                let mut buffer = vec![0; bytes];
                let read = rustix::io::pread(file, &mut buffer[..], offset)?;
                buffer.truncate(read);
                Ok(digest(&buffer))
            }),
            Op::HandleAttr(handle) => self.with(handle, |file| Ok(seen(&attr_of_open(file)?))),
            Op::HandleSize(handle, size) => self.with(handle, |file| {
                rustix::fs::ftruncate(file, size)?;
                Ok(seen(&attr_of_open(file)?))
            }),
            Op::Allocate(handle, mode, offset, bytes) => self.with(handle, |file| {
                Ok(rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode), offset, bytes)?)
            }),
            Op::Sync(handle, _) => self.with(handle, |file| Ok(rustix::fs::fsync(file)?)),
            Op::Attr(path) => line(self.stat(path).map(|attr| seen(&attr))),
            Op::Change(path, ref change) => {
                let changed = plain_change(&at(path), change).and_then(|()| self.stat(path));
                line(changed.map(|attr| seen_times(change, &attr)))
            }
            Op::List(path) => line(at(path).read_dir().map(|dir| {
                let entry = |entry: io::Result<std::fs::DirEntry>| {
                    let entry = entry.unwrap();
                    // To list needs no permission to look.
                    let unseen = |kind: std::fs::FileType| {
                        let mode = match () {
                            () if kind.is_dir() => libc::S_IFDIR,
                            () if kind.is_symlink() => libc::S_IFLNK,
                            () if kind.is_fifo() => libc::S_IFIFO,
                            () => libc::S_IFREG,
                        };
                        Attr { mode, ..Attr::default() }
                    };
                    let attr = entry.path().symlink_metadata().map(|stat| attr_of(&stat));
                    let attr = attr.unwrap_or_else(|_| unseen(entry.file_type().unwrap()));
                    (entry.file_name().into_string().unwrap(), seen(&attr))
                };
                dir.map(entry).collect::<BTreeMap<_, _>>()
            })),
            Op::Node(path, mode) => {
                let permissions = Mode::from_raw_mode(mode & 0o7777);
                let made = match FileType::from_raw_mode(mode) {
                    FileType::Directory => rustix::fs::mkdir(at(path), permissions),
                    kind => rustix::fs::mknodat(CWD, at(path), kind, permissions, 0),
                };
                line(made.map_err(io::Error::from).and_then(|()| Ok(seen(&self.stat(path)?))))
            }
            Op::Symlink(target, path) => {
                line(std::os::unix::fs::symlink(target, at(path)).and_then(|()| Ok(seen(&self.stat(path)?))))
            }
            Op::Link(path, to) => {
                line(std::fs::hard_link(at(path), at(to)).and_then(|()| Ok(seen(&self.stat(to)?))))
            }
            Op::ReadLink(path) => line(
                rustix::fs::readlink(at(path), Vec::new()).map(|text| text.into_bytes()).map_err(Into::into),
            ),
            Op::Unlink(path, directory) => {
                let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                line(rustix::fs::unlinkat(CWD, at(path), flags).map_err(Into::into))
            }
            Op::Rename(path, to, flags) => {
                let flags = RenameFlags::from_bits_retain(flags);
                line(rustix::fs::renameat_with(CWD, at(path), CWD, at(to), flags).map_err(Into::into))
            }
            Op::SetXattr(path, value, flags) => {
                let flags = XattrFlags::from_bits_retain(flags);
                line(rustix::fs::lsetxattr(at(path), "user.x", &[value; 10], flags).map_err(Into::into))
            }
            Op::Xattr(path) => {
                let mut value = [0; 100];
                let read = rustix::fs::lgetxattr(at(path), "user.x", &mut value[..]);
                line(read.map(|bytes| value[..bytes].to_vec()).map_err(Into::into))
            }
            Op::Xattrs(path) => {
                let mut names = [0; 1000];
                let read = rustix::fs::llistxattr(at(path), &mut names[..]);
                line(read.map(|bytes| names[..bytes].to_vec()).map_err(Into::into))
            }
            Op::RemoveXattr(path) => line(rustix::fs::lremovexattr(at(path), "user.x").map_err(Into::into)),
        }
    }
}

/// As `open(2)`, but that a FIFO is not opened.
fn plain_open(path: &Path, how: u32, mode: u32) -> io::Result<OwnedFd> {
    let has = |flag| how & flag != 0;
    let mut flags = match (has(open::READ), has(open::WRITE)) {
        (true, true) => OFlags::RDWR,
        (true, false) => OFlags::RDONLY,
        _ => OFlags::WRONLY,
    };
    for (flag, adds) in [
        (open::CREATE, OFlags::CREATE),
        (open::EXCLUSIVE, OFlags::EXCL),
        (open::TRUNCATE, OFlags::TRUNC),
        (open::NO_FOLLOW, OFlags::NOFOLLOW),
        (open::DIRECTORY, OFlags::DIRECTORY),
    ] {
        if has(flag) {
            flags |= adds;
        }
    }
    let is_fifo = path.metadata().is_ok_and(|stat| stat.file_type().is_fifo());
    let fails_otherwise =
        has(open::EXCLUSIVE) || has(open::DIRECTORY) || (has(open::NO_FOLLOW) && path.is_symlink());
    if is_fifo && !fails_otherwise {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    }
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?)
}
