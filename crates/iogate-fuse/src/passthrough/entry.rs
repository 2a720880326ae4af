//! Names: looking them up, making, removing and renaming them.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::FileSystem;
use super::attr::{attr_of, stat};
use super::caller::in_name_of;
use super::inode::HeldInode;
use crate::abi::{EntryOut, InHeader, Input, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, op};

impl FileSystem {
    pub(super) fn lookup(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let name = input.file_name()?;
        let parent = self.inodes.get(header.nodeid)?;
        out.extend_from_slice(self.look_up(&parent, name)?.as_bytes());
        Ok(())
    }

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

    pub(super) fn mknod(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: MknodIn = input.record().ok_or(Errno::INVAL)?;
        let name = input.file_name()?;
        let parent = self.inodes.get(header.nodeid)?;
        in_name_of(header, arg.umask, || {
            let kind = FileType::from_raw_mode(arg.mode);
            rustix::fs::mknodat(&parent, name, kind, Mode::from_raw_mode(arg.mode & 0o7777), arg.rdev.into())
        })?;
        out.extend_from_slice(self.look_up(&parent, name)?.as_bytes());
        Ok(())
    }

    pub(super) fn mkdir(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: MkdirIn = input.record().ok_or(Errno::INVAL)?;
        let name = input.file_name()?;
        let parent = self.inodes.get(header.nodeid)?;
        let mode = Mode::from_raw_mode(arg.mode & 0o7777);
        in_name_of(header, arg.umask, || rustix::fs::mkdirat(&parent, name, mode))?;
        out.extend_from_slice(self.look_up(&parent, name)?.as_bytes());
        Ok(())
    }

    pub(super) fn symlink(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let name = input.file_name()?;
        let target = input.name().ok_or(Errno::INVAL)?;
        let parent = self.inodes.get(header.nodeid)?;
        in_name_of(header, 0, || rustix::fs::symlinkat(target, &parent, name))?;
        out.extend_from_slice(self.look_up(&parent, name)?.as_bytes());
        Ok(())
    }

    pub(super) fn readlink(&self, header: &InHeader, out: &mut Vec<u8>) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let target = rustix::fs::readlinkat(inode.as_fd(), c"", Vec::new())?;
        out.extend_from_slice(target.to_bytes());
        Ok(())
    }

    pub(super) fn link(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: LinkIn = input.record().ok_or(Errno::INVAL)?;
        let name = input.file_name()?;
        let inode = self.inodes.get(arg.oldnodeid)?;
        let parent = self.inodes.get(header.nodeid)?;
        rustix::fs::linkat(CWD, inode.proc_path().as_bytes(), &parent, name, AtFlags::SYMLINK_FOLLOW)?;
        out.extend_from_slice(self.look_up(&parent, name)?.as_bytes());
        Ok(())
    }

    pub(super) fn unlink(&self, header: &InHeader, mut input: Input<'_>, dir: bool) -> Result<(), Errno> {
        let name = input.file_name()?;
        let parent = self.inodes.get(header.nodeid)?;
        rustix::fs::unlinkat(&parent, name, if dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })
    }

    pub(super) fn rename(&self, header: &InHeader, mut input: Input<'_>) -> Result<(), Errno> {
        let arg = if header.opcode == op::RENAME2 {
            input.record::<Rename2In>().ok_or(Errno::INVAL)?
        } else {
            let RenameIn { newdir } = input.record().ok_or(Errno::INVAL)?;
            Rename2In { newdir, flags: 0, padding: 0 }
        };
        let from = input.file_name()?;
        let to = input.file_name()?;
        let parent = self.inodes.get(header.nodeid)?;
        let new_parent = self.inodes.get(arg.newdir)?;
        rustix::fs::renameat_with(&parent, from, &new_parent, to, RenameFlags::from_bits_retain(arg.flags))
    }
}
