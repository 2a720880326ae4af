//! The POSIX pass-through: each operation is the same operation on the source directory.
//!
//! Everything is carried out in the calling thread. What of the source is far waits for somebody there.

mod attr;
pub(crate) mod caller;
mod dir;
mod entry;
mod file;
mod inode;
mod locks;
mod xattr;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iogate_engine::layouts::OpenLayouts;
use iogate_engine::store::Nearness;
use iogate_engine::{Engine, Store};
use iogate_vfs::path_of;
use iogate_vfs::taken_locks::TakenLocks;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use self::dir::OpenDir;
use self::file::OpenFile;
use self::inode::{HeldInode, InodeTable};
use crate::abi::op;
use crate::file_system::{Agreed, FileSystem as Mounted, Opened};
use crate::handle::Handles;
use crate::options::{CacheMode, MountOptions};

/// A mounted source directory.
pub(crate) struct FileSystem {
    inodes: InodeTable,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    store: Arc<dyn Store>,
    layouts: Option<Arc<OpenLayouts>>,
    /// `None`: they are the kernel's own.
    locks: Option<TakenLocks>,
    /// Names and attributes wait for a server or another program.
    is_far: bool,
    cache: CacheMode,
    copy_offload: bool,
    timeout: Duration,
    request_bytes_max: u32,
}

impl FileSystem {
    pub(crate) fn new(
        root: OwnedFd,
        engine: Arc<Engine>,
        store: Arc<dyn Store>,
        options: &MountOptions,
        agreed: Agreed,
    ) -> Result<FileSystem, Errno> {
        let is_far = Nearness::of_tree(&root) == Nearness::Far;
        let layouts = options.layouts.clone().map(|layouts| OpenLayouts::new(layouts, engine));
        Ok(FileSystem {
            // The other half is for open files.
            inodes: InodeTable::new(root, descriptors_max() / 2)?,
            files: Handles::default(),
            dirs: Handles::default(),
            store,
            layouts,
            locks: agreed.shares_locks.then(TakenLocks::default),
            is_far,
            cache: options.cache,
            copy_offload: options.copy_offload,
            timeout: options.metadata_timeout,
            request_bytes_max: agreed.request_bytes_max,
        })
    }
}

impl Mounted for FileSystem {
    fn forget(&self, node: u64, lookups: u64) {
        self.inodes.forget(node, lookups);
    }

    fn file(&self, handle: u64) -> Result<Arc<dyn Opened>, Errno> {
        Ok(self.files.get(handle)?)
    }

    fn path_of(&self, handle: u64) -> Option<PathBuf> {
        path_of(self.inodes.root(), &self.files.get(handle).ok()?.fd)
    }

    /// Setting an attribute may change a setting of the gate, which the program carries out before it is answered.
    fn may_be_slow(&self, opcode: u32) -> bool {
        self.is_far
            || matches!(
                opcode,
                op::FSYNC
                    | op::FSYNCDIR
                    | op::SYNCFS
                    | op::FALLOCATE
                    | op::COPY_FILE_RANGE
                    | op::SETXATTR
                    | op::DESTROY
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
