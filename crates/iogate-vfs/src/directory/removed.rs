//! Files that have lost their last name and whose objects are still to be removed, in the export's own folder.
//!
//! Whoever removes objects waits until the removal of the names is durable, and may end before that. So a file gets a name here before its
//! last other one goes, and keeps it until its objects are gone. A crash that takes the removal back leaves both names: then it is not
//! removed. The folder is opened and synced to make all removals durable that were answered before.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iogate_core::wire::{Attr, Gone};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use super::{DirectoryTree, stat};
use crate::object_id::ObjectId;
use crate::{Caller, private};

/// What a path leads to, if it is in the server's own folder and forwarders may use it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Own<'a> {
    /// The list of files that have no name and are open.
    Orphans,
    /// The list of those that are removed.
    Removed,
    /// One of these.
    RemovedFile(&'a OsStr),
}

impl Own<'_> {
    pub(super) fn of(path: &Path) -> Option<Own<'_>> {
        let mut parts = path.strip_prefix(private::NAME).ok()?.iter();
        let folder = parts.next()?;
        match (parts.next(), parts.next()) {
            (None, _) if folder == private::ORPHANS => Some(Own::Orphans),
            (None, _) if folder == private::REMOVED => Some(Own::Removed),
            (Some(name), None) if folder == private::REMOVED => {
                ObjectId::parse(name.as_bytes()).map(|_| Own::RemovedFile(name))
            }
            _ => None,
        }
    }
}

/// Fails unless this is for the server's own users.
pub(super) fn check_own(caller: Caller) -> Result<(), Errno> {
    let is_own = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
    if is_own { Ok(()) } else { Err(Errno::NOENT) }
}

impl DirectoryTree {
    /// Opens the folder for a sync.
    pub(super) fn open_removed(&self, caller: Caller) -> io::Result<OwnedFd> {
        check_own(caller)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.files.removed_folder()?, c".", flags, Mode::empty())?)
    }

    /// The attributes of a file there. It has one link, unless its removal was taken back.
    pub(super) fn removed_attr(&self, caller: Caller, name: &OsStr) -> io::Result<Attr> {
        check_own(caller)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(self.files.removed_folder()?, name, flags, Mode::empty())?;
        Ok(Attr { object: stat::object_of(&held), ..stat::of(&held)?.attr })
    }

    /// Its objects are gone, or it is not removed.
    pub(super) fn forget_removed(&self, caller: Caller, name: &OsStr) -> io::Result<Gone> {
        check_own(caller)?;
        rustix::fs::unlinkat(self.files.removed_folder()?, name, AtFlags::empty())?;
        Ok(Gone::NONE)
    }
}

/// File systems whose journal has all changes of names in their order.
const ORDERED: [u64; 2] = [0xEF53, 0x5846_5342]; // ext4, xfs

/// Makes all changes of names durable that were made before, on the file system of a folder.
pub(super) fn sync_names(folder: impl AsFd) -> io::Result<()> {
    if !ORDERED.contains(&(rustix::fs::fstatfs(&folder)?.f_type as u64)) {
        return Ok(rustix::fs::syncfs(folder)?);
    }
    // A sync of the whole file system would write all data back, too. The last change of names is the folder's own, which is made now.
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(&folder, &Timestamps { last_access: now, last_modification: now })?;
    Ok(rustix::fs::fsync(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_forwarders_may_use_is_reached() {
        let object = "0123456789abcdef0123456789abcdef";
        let file = format!(".iogate/removed/{object}");
        assert_eq!(Own::of(Path::new(&file)), Some(Own::RemovedFile(OsStr::new(object))));
        assert_eq!(Own::of(Path::new(".iogate/removed")), Some(Own::Removed));
        assert_eq!(Own::of(Path::new(".iogate/orphans")), Some(Own::Orphans));
        for path in ["", ".iogate", ".iogate/orphans/1-2", ".iogate/removed/x", "removed", ".iogate/answers"]
        {
            assert_eq!(Own::of(Path::new(path)), None, "{path}");
        }
        for path in [format!("{file}/x"), format!("a/{file}"), ".iogate/removed/..".into()] {
            assert_eq!(Own::of(Path::new(&path)), None, "{path}");
        }
    }
}
