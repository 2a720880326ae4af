//! Open files, apart from reading and writing them.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iogate_engine::layouts::OpenLayout;
use iogate_engine::{FileHandle, PathClass, Store};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::attr::clear_suid_sgid;
use super::caller::in_name_of;
use super::inode::{HeldInode, Inode, ProcPath};
use super::{FileSystem, open_again};
use crate::abi::{
    CopyFileRangeIn, CreateIn, EntryOut, FallocateIn, InHeader, LseekIn, OPEN_KILL_SUIDGID, OpenIn, OpenOut,
    fopen,
};
use crate::append::AppendGuard;
use crate::coherence::Coherence;
use crate::file_system::{Opened, errno_of};
use crate::operations::Files;
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
    is_far: bool,
    pub(super) inode: Arc<Inode>,
    store: Arc<dyn Store>,
    class: PathClass,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.inode.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Opened for OpenFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn class(&self) -> &PathClass {
        &self.class
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

    fn is_far(&self) -> bool {
        self.is_far
    }

    fn asks_before_writes(&self) -> bool {
        self.layout.is_some()
    }
}

impl FileSystem {
    /// The entry and the handle of a file that was just created.
    fn created(&self, fd: OwnedFd) -> Result<(EntryOut, OpenOut), Errno> {
        let path = ProcPath::new(fd.as_fd());
        let path_fd =
            rustix::fs::openat(CWD, path.as_bytes(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let entry: EntryOut = self.enter(path_fd)?;
        let opened = self.inodes.get(entry.nodeid).and_then(|inode| self.opened(fd, inode.inode));
        match opened {
            Ok(opened) => Ok((entry, opened)),
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
        inode.open.fetch_add(1, Ordering::Relaxed);
        let (is_far, store, class) = (self.is_far, self.store.clone(), PathClass::default());
        let fh = self.files.insert(OpenFile { fd, data, layout, is_far, inode, store, class });
        let open_flags = match self.cache {
            CacheMode::Direct => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
            CacheMode::Page => fopen::KEEP_CACHE,
        };
        Ok(OpenOut { fh, open_flags, padding: 0 })
    }
}

impl Files for FileSystem {
    fn open(&self, header: &InHeader, arg: OpenIn) -> Result<OpenOut, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let flags = arg.flags as i32 & !FLAGS_KEPT_BACK & !(libc::O_CREAT | libc::O_EXCL);
        let fd = open_again(&inode, flags)?;
        // Removed past the mount, while the kernel still trusts the name: it looks it up again. What is open here, a program may open
        // once more, by its descriptor.
        if inode.inode.open.load(Ordering::Relaxed) == 0 && rustix::fs::fstat(&fd)?.st_nlink == 0 {
            return Err(Errno::STALE);
        }
        if arg.open_flags & OPEN_KILL_SUIDGID != 0 {
            clear_suid_sgid(fd.as_fd())?;
        }
        self.opened(fd, inode.inode)
    }

    fn create(&self, header: &InHeader, arg: CreateIn, name: &CStr) -> Result<(EntryOut, OpenOut), Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        // The kernel has checked that the caller may create, not that it may open what somebody else creates
        // meanwhile: that file has to be looked up (the kernel does on ESTALE) and opened with its own checks.
        let flags = (arg.flags as i32 & !FLAGS_KEPT_BACK) | libc::O_CREAT | libc::O_EXCL;
        let created = in_name_of(header, arg.umask, || open_at(&parent, name, flags, arg.mode));
        let fd = match created {
            Err(Errno::EXIST) if arg.flags as i32 & libc::O_EXCL == 0 => return Err(Errno::STALE),
            created => created?,
        };
        self.created(fd)
    }

    fn tmpfile(&self, header: &InHeader, arg: CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        let flags = (arg.flags as i32 & !FLAGS_KEPT_BACK & !libc::O_CREAT) | libc::O_TMPFILE;
        let fd = in_name_of(header, arg.umask, || open_at(&parent, c".", flags, arg.mode))?;
        self.created(fd)
    }

    fn release(&self, handle: u64) -> Result<(), Errno> {
        self.files.remove(handle).map(drop)
    }

    /// Some network file systems report a failed write-back here.
    fn flush(&self, handle: u64) -> Result<(), Errno> {
        let file = self.files.get(handle)?;
        let duplicate = rustix::io::fcntl_dupfd_cloexec(&file.fd, 0)?;
        super::close(duplicate)
    }

    fn fsync(&self, handle: u64, data_only: bool) -> Result<(), Errno> {
        self.files.get(handle)?.sync(data_only)
    }

    fn syncfs(&self, header: &InHeader) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        rustix::fs::syncfs(open_again(&inode, libc::O_RDONLY)?)
    }

    fn fallocate(&self, header: &InHeader, arg: FallocateIn) -> Result<(), Errno> {
        let file = self.files.get(arg.fh)?;
        rustix::fs::fallocate(&file.fd, FallocateFlags::from_bits_retain(arg.mode), arg.offset, arg.length)?;
        // The kernel says of writes by whom these bits go, and leaves this to us. The source's file system goes by us.
        if header.uid != 0 {
            clear_suid_sgid(file.fd.as_fd())?;
        }
        Ok(())
    }

    fn lseek(&self, arg: LseekIn) -> Result<u64, Errno> {
        let file = self.files.get(arg.fh)?;
        let from = match arg.whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(arg.offset),
            libc::SEEK_HOLE => SeekFrom::Hole(arg.offset),
            // The kernel knows the others itself.
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::seek(&file.fd, from)
    }

    fn copy_file_range(&self, arg: CopyFileRangeIn) -> Result<u32, Errno> {
        if !self.copy_offload {
            return Err(Errno::NOSYS);
        }
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
        Ok(copied as u32)
    }
}

fn open_at(parent: &HeldInode, name: &CStr, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode & 0o7777))
}
