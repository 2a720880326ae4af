//! Open files, apart from reading and writing them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use iogate_engine::layouts::OpenLayout;
use iogate_engine::{FileHandle, Store};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::attr::clear_suid_sgid;
use super::caller::in_name_of;
use super::inode::{HeldInode, Inode, ProcPath};
use super::{FileSystem, open_again};
use crate::abi::{
    CopyFileRangeIn, CreateIn, EntryOut, FSYNC_FDATASYNC, FallocateIn, FlushIn, FsyncIn, InHeader, Input,
    LseekIn, LseekOut, OPEN_KILL_SUIDGID, OpenIn, OpenOut, ReleaseIn, WriteOut, fopen,
};
use crate::append::AppendGuard;
use crate::coherence::Coherence;
use crate::file_system::{Opened, errno_of};
use crate::options::CacheMode;

/// Flags that the source's file is not opened with: the offset of an append is decided here, the memory of a
/// transfer is not the caller's, and the path of a held file ends in a link.
const FLAGS_KEPT_BACK: i32 = libc::O_APPEND | libc::O_DIRECT | libc::O_NOFOLLOW | libc::O_NOATIME;

/// An open file: one description for metadata here, one for data in the store.
pub(crate) struct OpenFile {
    pub(crate) fd: OwnedFd,
    data: FileHandle,
    /// Where its bytes lie, if that is asked for.
    layout: Option<OpenLayout>,
    inode: Arc<Inode>,
    store: Arc<dyn Store>,
}

impl Opened for OpenFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn coherence(&self) -> &Arc<Coherence> {
        &self.inode.coherence
    }

    fn clear_suid_sgid(&self) -> Result<bool, Errno> {
        clear_suid_sgid(self.fd.as_fd())
    }

    fn begin_append(&self, bytes: u32) -> Result<AppendGuard, Errno> {
        self.inode.appends.begin(bytes, || Ok(rustix::fs::fstat(&self.fd)?.st_size as u64))
    }

    fn before_write(&self, offset: u64) {
        if let Some(layout) = &self.layout {
            layout.before_write(self.fd.as_fd(), offset);
        }
    }

    fn sync(&self, data_only: bool) -> Result<(), Errno> {
        self.store.sync(&self.data, data_only).map_err(|error| errno_of(&error))
    }
}

impl FileSystem {
    pub(super) fn open(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: OpenIn = input.record().ok_or(Errno::INVAL)?;
        let inode = self.inodes.get(header.nodeid)?;
        let flags = arg.flags as i32 & !FLAGS_KEPT_BACK & !(libc::O_CREAT | libc::O_EXCL);
        let fd = open_again(&inode, flags)?;
        if arg.open_flags & OPEN_KILL_SUIDGID != 0 {
            clear_suid_sgid(fd.as_fd())?;
        }
        let reply = self.opened(fd, inode.inode)?;
        out.extend_from_slice(reply.as_bytes());
        Ok(())
    }

    pub(super) fn create(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: CreateIn = input.record().ok_or(Errno::INVAL)?;
        let name = input.file_name()?;
        let parent = self.inodes.get(header.nodeid)?;
        // The kernel has checked that the caller may create, not that it may open what somebody else creates
        // meanwhile: that file has to be looked up (the kernel does on ESTALE) and opened with its own checks.
        let flags = (arg.flags as i32 & !FLAGS_KEPT_BACK) | libc::O_CREAT | libc::O_EXCL;
        let created = in_name_of(header, arg.umask, || open_at(&parent, name, flags, arg.mode));
        let fd = match created {
            Err(Errno::EXIST) if arg.flags as i32 & libc::O_EXCL == 0 => return Err(Errno::STALE),
            created => created?,
        };
        self.created(fd, out)
    }

    pub(super) fn tmpfile(
        &self,
        header: &InHeader,
        mut input: Input<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let arg: CreateIn = input.record().ok_or(Errno::INVAL)?;
        let parent = self.inodes.get(header.nodeid)?;
        let flags = (arg.flags as i32 & !FLAGS_KEPT_BACK & !libc::O_CREAT) | libc::O_TMPFILE;
        let fd = in_name_of(header, arg.umask, || open_at(&parent, c".", flags, arg.mode))?;
        self.created(fd, out)
    }

    /// Replies with the entry and the handle of a file that was just created.
    fn created(&self, fd: OwnedFd, out: &mut Vec<u8>) -> Result<(), Errno> {
        let path = ProcPath::new(fd.as_fd());
        let path_fd =
            rustix::fs::openat(CWD, path.as_bytes(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let entry: EntryOut = self.enter(path_fd)?;
        let opened = self.inodes.get(entry.nodeid).and_then(|inode| self.opened(fd, inode.inode));
        match opened {
            Ok(opened) => {
                out.extend_from_slice(entry.as_bytes());
                out.extend_from_slice(opened.as_bytes());
                Ok(())
            }
            Err(errno) => {
                self.inodes.forget(entry.nodeid, 1);
                Err(errno)
            }
        }
    }

    fn opened(&self, fd: OwnedFd, inode: Arc<Inode>) -> Result<OpenOut, Errno> {
        let for_data = rustix::io::fcntl_dupfd_cloexec(&fd, 0)?;
        let data = self.store.adopt(for_data).map_err(|error| errno_of(&error))?;
        let layout = self.layouts.as_ref().map(|layouts| layouts.open(data.id(), fd.as_fd()));
        let fh = self.files.insert(OpenFile { fd, data, layout, inode, store: self.store.clone() });
        let open_flags = match self.cache {
            CacheMode::Direct => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
            CacheMode::Page => fopen::KEEP_CACHE,
        };
        Ok(OpenOut { fh, open_flags, padding: 0 })
    }

    pub(super) fn release(&self, mut input: Input<'_>) -> Result<(), Errno> {
        let arg: ReleaseIn = input.record().ok_or(Errno::INVAL)?;
        self.files.remove(arg.fh).map(drop)
    }

    /// A close: some network file systems report a failed write-back here.
    pub(super) fn flush(&self, mut input: Input<'_>) -> Result<(), Errno> {
        let arg: FlushIn = input.record().ok_or(Errno::INVAL)?;
        let file = self.files.get(arg.fh)?;
        let duplicate = rustix::io::fcntl_dupfd_cloexec(&file.fd, 0)?;
        super::close(duplicate)
    }

    pub(super) fn fsync(&self, mut input: Input<'_>) -> Result<(), Errno> {
        let arg: FsyncIn = input.record().ok_or(Errno::INVAL)?;
        let file = self.files.get(arg.fh)?;
        file.sync(arg.fsync_flags & FSYNC_FDATASYNC != 0)
    }

    pub(super) fn fsyncdir(&self, mut input: Input<'_>) -> Result<(), Errno> {
        let arg: FsyncIn = input.record().ok_or(Errno::INVAL)?;
        let dir = self.dirs.get(arg.fh)?;
        let stream = dir.stream.lock().expect("no directory operation panics");
        if arg.fsync_flags & FSYNC_FDATASYNC != 0 {
            rustix::fs::fdatasync(&stream.fd)
        } else {
            rustix::fs::fsync(&stream.fd)
        }
    }

    pub(super) fn syncfs(&self, header: &InHeader) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        rustix::fs::syncfs(open_again(&inode, libc::O_RDONLY)?)
    }

    pub(super) fn fallocate(&self, header: &InHeader, mut input: Input<'_>) -> Result<(), Errno> {
        let arg: FallocateIn = input.record().ok_or(Errno::INVAL)?;
        let file = self.files.get(arg.fh)?;
        rustix::fs::fallocate(&file.fd, FallocateFlags::from_bits_retain(arg.mode), arg.offset, arg.length)?;
        // The kernel says of writes by whom these bits go, and leaves this to us. The source's file system goes by us.
        if header.uid != 0 {
            clear_suid_sgid(file.fd.as_fd())?;
        }
        Ok(())
    }

    pub(super) fn lseek(&self, mut input: Input<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        let arg: LseekIn = input.record().ok_or(Errno::INVAL)?;
        let file = self.files.get(arg.fh)?;
        let from = match arg.whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(arg.offset),
            libc::SEEK_HOLE => SeekFrom::Hole(arg.offset),
            // The kernel knows the others itself.
            _ => return Err(Errno::INVAL),
        };
        let offset = rustix::fs::seek(&file.fd, from)?;
        out.extend_from_slice(LseekOut { offset }.as_bytes());
        Ok(())
    }

    pub(super) fn copy_file_range(&self, mut input: Input<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        if !self.copy_offload {
            // The kernel then copies by reads and writes, which go through the gate.
            return Err(Errno::NOSYS);
        }
        let arg: CopyFileRangeIn = input.record().ok_or(Errno::INVAL)?;
        let from = self.files.get(arg.fh_in)?;
        let to = self.files.get(arg.fh_out)?;
        let (mut from_offset, mut to_offset) = (arg.off_in, arg.off_out);
        // The reply counts in 32 bits; the caller goes on after a short copy.
        let bytes = arg.len.min(1 << 30) as usize;
        let copied = rustix::fs::copy_file_range(
            &from.fd,
            Some(&mut from_offset),
            &to.fd,
            Some(&mut to_offset),
            bytes,
        )?;
        out.extend_from_slice(WriteOut { size: copied as u32, padding: 0 }.as_bytes());
        Ok(())
    }
}

fn open_at(parent: &HeldInode, name: &std::ffi::CStr, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode & 0o7777))
}
