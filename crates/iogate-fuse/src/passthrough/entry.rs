//! Names: looking them up, making, removing and renaming them.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::FileSystem;
use super::attr::{attr_of, stat};
use super::caller::in_name_of;
use super::inode::HeldInode;
use crate::abi::{EntryOut, InHeader, MkdirIn, MknodIn, Rename2In};
use crate::operations::Names;

impl FileSystem {
    /// Looks a name up and counts the lookup.
    pub(super) fn look_up(&self, parent: &HeldInode, name: &CStr) -> Result<EntryOut, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path_fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        self.enter(path_fd)
    }

    /// Counts a lookup of the file that an `O_PATH` descriptor holds.
    pub(super) fn enter(&self, path_fd: std::os::fd::OwnedFd) -> Result<EntryOut, Errno> {
        let stat = stat(&path_fd)?;
        let nodeid = self.inodes.look_up(path_fd, &stat);
        Ok(EntryOut {
            nodeid,
            generation: 0,
            entry_valid: self.timeout.as_secs(),
            attr_valid: self.timeout.as_secs(),
            entry_valid_nsec: self.timeout.subsec_nanos(),
            attr_valid_nsec: self.timeout.subsec_nanos(),
            attr: attr_of(&stat),
        })
    }
}

impl Names for FileSystem {
    fn lookup(&self, header: &InHeader, name: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        self.look_up(&parent, name)
    }

    fn mknod(&self, header: &InHeader, arg: MknodIn, name: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        in_name_of(header, arg.umask, || {
            let kind = FileType::from_raw_mode(arg.mode);
            rustix::fs::mknodat(&parent, name, kind, Mode::from_raw_mode(arg.mode & 0o7777), arg.rdev.into())
        })?;
        self.look_up(&parent, name)
    }

    fn mkdir(&self, header: &InHeader, arg: MkdirIn, name: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        let mode = Mode::from_raw_mode(arg.mode & 0o7777);
        in_name_of(header, arg.umask, || rustix::fs::mkdirat(&parent, name, mode))?;
        self.look_up(&parent, name)
    }

    fn symlink(&self, header: &InHeader, name: &CStr, target: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        in_name_of(header, 0, || rustix::fs::symlinkat(target, &parent, name))?;
        self.look_up(&parent, name)
    }

    fn readlink(&self, header: &InHeader) -> Result<Vec<u8>, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let target = rustix::fs::readlinkat(inode.as_fd(), c"", Vec::new())?;
        Ok(target.into_bytes())
    }

    fn link(&self, header: &InHeader, node: u64, name: &CStr) -> Result<EntryOut, Errno> {
        let inode = self.inodes.get(node)?;
        let parent = self.inodes.get(header.nodeid)?;
        rustix::fs::linkat(CWD, inode.proc_path().as_bytes(), &parent, name, AtFlags::SYMLINK_FOLLOW)?;
        self.look_up(&parent, name)
    }

    fn unlink(&self, header: &InHeader, name: &CStr, directory: bool) -> Result<(), Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        rustix::fs::unlinkat(&parent, name, if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
    }

    fn rename(&self, header: &InHeader, arg: Rename2In, from: &CStr, to: &CStr) -> Result<(), Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        let new_parent = self.inodes.get(arg.newdir)?;
        rustix::fs::renameat_with(&parent, from, &new_parent, to, RenameFlags::from_bits_retain(arg.flags))
    }
}
