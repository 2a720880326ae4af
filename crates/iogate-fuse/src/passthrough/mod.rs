//! The POSIX pass-through: each operation is the same operation on the source directory.
//!
//! Everything is carried out in the calling thread.

mod attr;
pub(crate) mod caller;
mod dir;
mod entry;
mod file;
mod inode;
mod xattr;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use iogate_engine::layouts::OpenLayouts;
use iogate_engine::{Engine, Store};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use self::dir::OpenDir;
use self::file::OpenFile;
use self::inode::{HeldInode, InodeTable};
use crate::abi::{InHeader, Input, op};
use crate::control::ControlFiles;
use crate::file_system::{Agreed, FileSystem as Operations, Opened};
use crate::handle::Handles;
use crate::options::{CacheMode, MountOptions};

/// A mounted source directory.
pub(crate) struct FileSystem {
    inodes: InodeTable,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    store: Arc<dyn Store>,
    layouts: Option<Arc<OpenLayouts>>,
    control: ControlFiles,
    cache: CacheMode,
    copy_offload: bool,
    timeout: Duration,
    request_bytes_max: u32,
    /// Bytes of a `SetxattrIn`, as agreed on with the kernel.
    setxattr_in_bytes: usize,
}

impl FileSystem {
    pub(crate) fn new(
        root: OwnedFd,
        engine: Arc<Engine>,
        store: Arc<dyn Store>,
        options: &MountOptions,
        agreed: Agreed,
        control: ControlFiles,
    ) -> Result<FileSystem, Errno> {
        let layouts = options.layouts.clone().map(|layouts| OpenLayouts::new(layouts, engine));
        Ok(FileSystem {
            // The other half is for open files.
            inodes: InodeTable::new(root, descriptors_max() / 2)?,
            files: Handles::default(),
            dirs: Handles::default(),
            store,
            layouts,
            control,
            cache: options.cache,
            copy_offload: options.copy_offload,
            timeout: options.metadata_timeout,
            request_bytes_max: agreed.request_bytes_max,
            setxattr_in_bytes: agreed.setxattr_in_bytes,
        })
    }
}

impl Operations for FileSystem {
    fn handle(&self, header: &InHeader, input: Input<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        match header.opcode {
            op::LOOKUP => self.lookup(header, input, out),
            op::GETATTR => self.getattr(header, input, out),
            op::SETATTR => self.setattr(header, input, out),
            op::READLINK => self.readlink(header, out),
            op::SYMLINK => self.symlink(header, input, out),
            op::MKNOD => self.mknod(header, input, out),
            op::MKDIR => self.mkdir(header, input, out),
            op::UNLINK => self.unlink(header, input, false),
            op::RMDIR => self.unlink(header, input, true),
            op::RENAME | op::RENAME2 => self.rename(header, input),
            op::LINK => self.link(header, input, out),
            op::OPEN => self.open(header, input, out),
            op::CREATE => self.create(header, input, out),
            op::TMPFILE => self.tmpfile(header, input, out),
            op::RELEASE => self.release(input),
            op::FLUSH => self.flush(input),
            op::FSYNC => self.fsync(input),
            op::FSYNCDIR => self.fsyncdir(input),
            op::SYNCFS => self.syncfs(header),
            op::STATFS => self.statfs(header, out),
            op::FALLOCATE => self.fallocate(header, input),
            op::LSEEK => self.lseek(input, out),
            op::COPY_FILE_RANGE => self.copy_file_range(input, out),
            op::OPENDIR => self.opendir(header, input, out),
            op::READDIR => self.readdir(header, input, out, false),
            op::READDIRPLUS => self.readdir(header, input, out, true),
            op::RELEASEDIR => self.releasedir(input),
            op::GETXATTR => self.getxattr(header, input, out),
            op::SETXATTR => self.setxattr(header, input),
            op::LISTXATTR => self.listxattr(header, input, out),
            op::REMOVEXATTR => self.removexattr(header, input),
            op::IOCTL => Err(Errno::NOTTY),
            op::DESTROY => Ok(()),
            // Locks stay in the kernel; what else is new is not supported, and the kernel stops asking.
            _ => Err(Errno::NOSYS),
        }
    }

    fn handle_forget(&self, header: &InHeader, input: Input<'_>) {
        input.forgotten(header, |node, count| self.inodes.forget(node, count));
    }

    fn file(&self, handle: u64) -> Result<Arc<dyn Opened>, Errno> {
        Ok(self.files.get(handle)?)
    }

    fn may_be_slow(&self, opcode: u32) -> bool {
        matches!(
            opcode,
            op::FSYNC | op::FSYNCDIR | op::SYNCFS | op::FALLOCATE | op::COPY_FILE_RANGE | op::DESTROY
        )
    }
}

/// Most descriptors that this process may have.
fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX)
}

/// Opens a file that is held already, whatever happened to its name.
fn open_again(inode: &HeldInode, flags: i32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    rustix::fs::open(inode.proc_path().as_bytes(), flags, Mode::empty())
}

/// The error of the system call that just failed.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Closes a descriptor and says what the file system says.
fn close(fd: OwnedFd) -> Result<(), Errno> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor is owned, and given up here.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}
