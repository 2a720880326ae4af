//! Files below a root directory: a dispatch is one `preadv` or `pwritev`.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::FileId;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{FileHandle, Io, IoDone, OpenMode, Store, StoreFile, vectored};

/// Files below a root directory.
#[derive(Debug)]
pub struct DirectoryStore {
    root: OwnedFd,
    ids: Arc<Ids>,
}

impl DirectoryStore {
    /// The store below an existing directory.
    pub fn new(root: &Path) -> io::Result<DirectoryStore> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let device = rustix::fs::fstat(&root)?.st_dev;
        Ok(DirectoryStore { root, ids: Arc::new(Ids { device, used: Mutex::default() }) })
    }
}

/// An open file of a [`DirectoryStore`].
#[derive(Debug)]
struct DirectoryFile {
    fd: OwnedFd,
    id: FileId,
    ids: Arc<Ids>,
}

impl StoreFile for DirectoryFile {
    fn id(&self) -> FileId {
        self.id
    }
}

impl Drop for DirectoryFile {
    fn drop(&mut self) {
        self.ids.release(self.id);
    }
}

/// The ids of open files: the inode number, or on another device than the root's a hash of both. Two files must
/// never share an id (their requests would be aggregated), so what is taken is left alone.
#[derive(Debug)]
struct Ids {
    device: u64,
    used: Mutex<HashMap<u64, InUse>>,
}

#[derive(Debug)]
struct InUse {
    device: u64,
    inode: u64,
    handles: usize,
}

impl Ids {
    fn claim(&self, device: u64, inode: u64) -> FileId {
        // Fibonacci hashing: neighbouring device numbers end up far apart.
        let away = device.wrapping_sub(self.device).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut id = inode ^ away;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match used.entry(id) {
                Entry::Vacant(entry) => {
                    entry.insert(InUse { device, inode, handles: 1 });
                    return FileId(id);
                }
                Entry::Occupied(mut entry) if (entry.get().device, entry.get().inode) == (device, inode) => {
                    entry.get_mut().handles += 1;
                    return FileId(id);
                }
                Entry::Occupied(_) => id = id.wrapping_add(1 << 63 | 1),
            }
        }
    }

    fn release(&self, id: FileId) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = used.entry(id.0) {
            entry.get_mut().handles -= 1;
            if entry.get().handles == 0 {
                entry.remove();
            }
        }
    }
}

fn file_of(handle: &FileHandle) -> io::Result<&DirectoryFile> {
    let any: &dyn Any = &**handle;
    any.downcast_ref().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{handle:?} is not a file of this directory store"),
        )
    })
}

impl Store for DirectoryStore {
    /// Symbolic links and `..` are followed as long as they stay below the root.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        let mut flags = if mode.write { OFlags::RDWR } else { OFlags::RDONLY } | OFlags::CLOEXEC;
        let mut permissions = Mode::empty();
        if mode.create {
            flags |= OFlags::CREATE;
            permissions = Mode::from_raw_mode(0o666);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        self.adopt(rustix::fs::openat2(&self.root, path, flags, permissions, resolve)?)
    }

    /// Append mode is taken off the file: a gate's writes say where they go.
    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        if flags.contains(OFlags::APPEND) {
            rustix::fs::fcntl_setfl(&fd, flags - OFlags::APPEND)?;
        }
        let stat = rustix::fs::fstat(&fd)?;
        let id = self.ids.claim(stat.st_dev, stat.st_ino);
        Ok(Arc::new(DirectoryFile { fd, id, ids: Arc::clone(&self.ids) }))
    }

    fn start(&self, io: Io, done: IoDone) {
        let result = self.run(&io).unwrap_or(Ok(0));
        done(io, result);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        // SAFETY: the segments are valid and ours until the dispatch is done: the promise of `Engine::submit`.
        Some(
            file_of(&io.file).and_then(|file| unsafe {
                vectored::transfer(file.fd.as_fd(), io.op, io.offset, &io.segments)
            }),
        )
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        let fd = &file_of(file)?.fd;
        Ok(if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }?)
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&file_of(file)?.fd)?.st_size as u64)
    }
}
