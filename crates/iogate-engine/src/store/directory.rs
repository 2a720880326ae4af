//! Files below a root directory: a dispatch is one `preadv` or `pwritev`, or one entry in an `io_uring`.
//!
//! With [`Backend::Auto`] the choice is made for each dispatch. Buffered reads are tried with `RWF_NOWAIT` in the
//! calling thread, and go to the ring only where the page cache does not have what there is; buffered writes are calls, as they
//! are copies into the page cache (the ring would hand them to a kernel thread). Aligned direct I/O goes to the
//! ring: a single thread that submits without waiting then keeps a deep device busy (16 deep, 4 KiB: five times the
//! calls' rate in the bench `engine`), and with a waiting thread for each request the bench tells no clear difference.
//! Buffered, the ring costs several microseconds a request more than a call.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iogate_core::{FileId, Op};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::direct::DirectFile;
use super::ids::Ids;
use super::nearness::type_of;
use super::ring::Ring;
use super::{AppendFile, FileHandle, Io, IoDone, Nearness, OpenMode, Segment, Store, StoreFile, vectored};

/// How dispatches reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The better of both for each dispatch; calls where the kernel does not permit `io_uring`.
    #[default]
    Auto,
    /// `preadv` and `pwritev` in the calling thread.
    Calls,
    /// `io_uring`, but for what direct I/O needs done in steps.
    Ring,
}

/// Settings of a [`DirectoryStore`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectoryOptions {
    /// How dispatches reach the kernel.
    pub backend: Backend,
    /// Past the page cache (`O_DIRECT`), where the file system can. Requests need no alignment, but gain by it.
    pub direct: bool,
}

/// Files below a root directory.
#[derive(Debug)]
pub struct DirectoryStore {
    root: OwnedFd,
    options: DirectoryOptions,
    ring: Option<Ring>,
    ids: Arc<Ids>,
    file_system: FileSystem,
}

/// The file system that a root is on.
#[derive(Clone, Copy, Debug)]
struct FileSystem {
    device: u64,
    kind: Option<u64>,
    nearness: Nearness,
}

impl FileSystem {
    /// How near an open file on a device below the root is.
    fn nearness_of(self, file: &OwnedFd, device: u64) -> Nearness {
        if device == self.device {
            return self.nearness;
        }
        match type_of(file) {
            // An overlay's files may have other devices.
            Ok(kind) if Some(kind) == self.kind => self.nearness,
            Ok(kind) => Nearness::of_type(kind),
            Err(_) => Nearness::Far,
        }
    }
}

impl DirectoryStore {
    /// The store below an existing directory, with calls through the page cache.
    pub fn new(root: &Path) -> io::Result<DirectoryStore> {
        DirectoryStore::with(root, DirectoryOptions { backend: Backend::Calls, direct: false })
    }

    /// The store below an existing directory. Fails if it cannot be opened, or as [`io::ErrorKind::Unsupported`] if
    /// [`Backend::Ring`] was asked for and is not permitted.
    pub fn with(root: &Path, options: DirectoryOptions) -> io::Result<DirectoryStore> {
        let ring = match options.backend {
            Backend::Calls => None,
            Backend::Ring => Some(Ring::new().map_err(|error| {
                let said = format!("the kernel has no io_uring, or does not permit it: {error}");
                io::Error::new(io::ErrorKind::Unsupported, said)
            })?),
            Backend::Auto => Ring::new()
                .inspect_err(|error| tracing::info!(%error, "no io_uring: dispatches are plain calls"))
                .ok(),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let device = rustix::fs::fstat(&root)?.st_dev;
        let (kind, nearness) = (type_of(&root).ok(), Nearness::of_directory(&root));
        let file_system = FileSystem { device, kind, nearness };
        Ok(DirectoryStore { root, options, ring, ids: Arc::new(Ids::new(device)), file_system })
    }
}

impl DirectoryStore {
    /// Whether there is a ring that takes dispatches.
    fn has_ring(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| !ring.is_broken())
    }
}

/// An open file of a [`DirectoryStore`].
#[derive(Debug)]
struct DirectoryFile {
    /// Through the page cache.
    fd: OwnedFd,
    /// Past it, if the store does direct I/O and the file can.
    direct: Option<DirectFile>,
    id: FileId,
    ids: Arc<Ids>,
    /// The file system knows `RWF_NOWAIT`. Those that do not (tmpfs, FUSE, NFS) gain nothing by the ring: it hands
    /// such reads to a kernel thread.
    nowait: AtomicBool,
    nearness: Nearness,
}

impl DirectoryFile {
    /// Reads what the page cache has; `None` if that is not all there is. Where that cannot be asked, reads as usual.
    ///
    /// # Safety
    /// The segments must be valid memory that nobody else uses meanwhile.
    unsafe fn read_cached(&self, io: &Io) -> Option<io::Result<u64>> {
        // SAFETY: as promised by the caller.
        unsafe {
            let cached = self.read_only_cached(io);
            if cached.is_some() || self.nowait.load(Ordering::Relaxed) {
                return cached;
            }
            Some(vectored::transfer(self.fd.as_fd(), Op::Read, io.offset, &io.segments, 1))
        }
    }

    /// Reads what the page cache has; `None` if that is not all there is, or cannot be asked.
    ///
    /// # Safety
    /// As [`DirectoryFile::read_cached`].
    unsafe fn read_only_cached(&self, io: &Io) -> Option<io::Result<u64>> {
        if io.segments.len() > vectored::SEGMENTS_MAX || !self.nowait.load(Ordering::Relaxed) {
            return None;
        }
        let bytes = io.segments.iter().map(|segment| segment.bytes).sum::<usize>();
        // SAFETY: as promised by the caller.
        let result =
            unsafe { vectored::call(self.fd.as_fd(), Op::Read, io.offset, &io.segments, libc::RWF_NOWAIT) };
        match result {
            Ok(count) if count == bytes || self.ends_at(io.offset + count as u64) => Some(Ok(count as u64)),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.nowait.store(false, Ordering::Relaxed);
                None
            }
            _ => None,
        }
    }

    /// Whether the file has nothing behind an offset. A count of 0 does not say so: Linux 5.9 and 5.10 give it with `RWF_NOWAIT` before
    /// the end, too.
    fn ends_at(&self, offset: u64) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_size as u64 <= offset)
    }
}

impl DirectoryFile {
    /// Carries a dispatch out by calls.
    ///
    /// # Safety
    /// The segments must be valid memory that nobody else uses meanwhile.
    unsafe fn transfer(&self, io: &Io) -> io::Result<u64> {
        // SAFETY: as promised by the caller.
        unsafe {
            match &self.direct {
                Some(direct) => direct.transfer(&self.fd, io.op, io.offset, &io.segments),
                None => vectored::transfer(self.fd.as_fd(), io.op, io.offset, &io.segments, 1),
            }
        }
    }
}

/// A number in use.
#[derive(Debug)]
struct Claim {
    id: FileId,
    ids: Arc<Ids>,
}

impl StoreFile for Claim {
    fn id(&self) -> FileId {
        self.id
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ids.release(self.id);
    }
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
        let direct = if self.options.direct { DirectFile::reopen(&fd)? } else { None };
        if self.options.direct && direct.is_none() {
            tracing::warn!(
                "a file goes through the page cache: its file system has no direct I/O, or it may not be opened again"
            );
        }
        let stat = rustix::fs::fstat(&fd)?;
        let id = self.ids.claim(stat.st_dev, stat.st_ino);
        let nearness = self.file_system.nearness_of(&fd, stat.st_dev);
        Ok(Arc::new(DirectoryFile {
            fd,
            direct,
            id,
            ids: Arc::clone(&self.ids),
            nowait: AtomicBool::new(true),
            nearness,
        }))
    }

    fn adopt_appending(&self, fd: OwnedFd) -> io::Result<Arc<AppendFile>> {
        let stat = rustix::fs::fstat(&fd)?;
        // As if it were another device's: no file has its number.
        let id = self.ids.claim(!stat.st_dev, stat.st_ino);
        Ok(AppendFile::new(fd, Arc::new(Claim { id, ids: Arc::clone(&self.ids) })))
    }

    fn start(&self, io: Io, done: IoDone) {
        if let Some(result) = self.run(&io) {
            return done(io, result);
        }
        let handle = FileHandle::clone(&io.file);
        // `run` refuses only what a ring can have.
        let (Some(ring), Ok(file)) = (&self.ring, file_of(&handle)) else {
            return done(io, Err(io::Error::from_raw_os_error(libc::EIO)));
        };
        let (fd, align) = match &file.direct {
            Some(direct) => (direct.fd.as_fd(), direct.block),
            None => (file.fd.as_fd(), 1),
        };
        if let Err((io, done)) = ring.start(fd, align, io, done) {
            // SAFETY: as in `run`.
            let result = unsafe { file.transfer(&io) };
            done(io, result);
        }
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        if let Some(file) = AppendFile::of(&io.file) {
            return Some(file.carry_out(io));
        }
        let file = match file_of(&io.file) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let has_ring = self.has_ring();
        // SAFETY: the segments are valid and ours until the dispatch is done: the promise of `Engine::submit`.
        unsafe {
            match &file.direct {
                Some(direct) if has_ring && direct.takes(io.offset, &io.segments) => None,
                None if has_ring && self.options.backend == Backend::Ring => None,
                None if has_ring && io.op == Op::Read => file.read_cached(io),
                _ => Some(file.transfer(io)),
            }
        }
    }

    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        if self.options.direct || self.options.backend == Backend::Ring {
            return None;
        }
        // What appends, or is another store's, is no such file.
        let file = file_of(&io.file).ok()?;
        // SAFETY: as in `run`.
        unsafe {
            match (file.nearness, io.op) {
                (Nearness::Memory, _) | (Nearness::Disk, Op::Write) => Some(file.transfer(io)),
                (Nearness::Disk, Op::Read) => file.read_only_cached(io),
                (Nearness::Far, _) => None,
            }
        }
    }

    fn blocks(&self) -> bool {
        !self.has_ring()
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        let fd = &file_of(file)?.fd;
        Ok(if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }?)
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&file_of(file)?.fd)?.st_size as u64)
    }

    fn peek(&self, file: &FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        let fd = file_of(file)?.fd.as_fd();
        let segment = [Segment { memory: memory.as_mut_ptr(), bytes: memory.len() }];
        // SAFETY: the memory is borrowed for the call.
        unsafe { vectored::transfer(fd, Op::Read, offset, &segment, 1) }.map(|bytes| bytes as usize)
    }
}
