//! What executes a dispatch.

mod appending;
mod batched;
mod direct;
mod directory;
mod ids;
mod memory;
mod modelled;
mod nearness;
mod null;
mod plain_calls;
mod ring;
mod striped;
mod vectored;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use iogate_core::{FileId, Op, TargetId};

use crate::origin::Origin;

pub use appending::{AppendFile, Appended};
pub use batched::BatchedStore;
pub use directory::{Backend, DirectoryOptions, DirectoryStore};
pub use memory::MemoryStore;
pub use modelled::{DeviceStats, ModelledStore};
pub use nearness::Nearness;
pub use null::NullStore;
pub use plain_calls::PlainCalls;
pub use striped::{MakeRoom, Parts, StripedStore};

/// An open file of a store. Cheap to clone; closed when the last clone goes.
pub type FileHandle = Arc<dyn StoreFile>;

/// An open file, as its store sees it.
pub trait StoreFile: Send + Sync + fmt::Debug + std::any::Any {
    /// The same for every handle on the same file, so that requests through different handles are ordered and
    /// aggregated together.
    fn id(&self) -> FileId;
}

/// A piece of memory of one request. Laid out as the system's `iovec`, so that a list of them is one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// First byte.
    pub memory: *mut u8,
    /// Length in bytes.
    pub bytes: usize,
}

// SAFETY: the memory belongs to whoever submitted the request, who promised not to touch it until its completion.
unsafe impl Send for Segment {}

/// One dispatch: a contiguous range of one file, in the memory of one or more requests.
#[derive(Debug)]
pub struct Io {
    /// The file (of the dispatch's first request).
    pub file: FileHandle,
    /// Read or write.
    pub op: Op,
    /// First byte in the file.
    pub offset: u64,
    /// The target of the first byte.
    pub target: TargetId,
    /// Who sent the dispatch's first request, for a store that is itself behind a gate.
    pub origin: Origin,
    /// It is one request's, and to be refused with `EEXIST` if the file already reaches behind its first byte. The engine sees to that,
    /// unless the store asks afar: then it passes this on.
    pub extends: bool,
    /// The memory, in offset order.
    pub segments: Vec<Segment>,
}

/// Called once when a dispatch has been carried out: bytes transferred from its start, or the error if none were;
/// and the dispatch, so that its memory can be used again.
pub type IoDone = Box<dyn FnOnce(Io, io::Result<u64>) + Send>;

/// What has become of a request that was submitted by [`crate::Engine::submit_for_store`].
#[derive(Debug)]
pub struct Finished {
    /// The request's memory.
    pub memory: *mut u8,
    /// As a [`crate::Completion`] has it.
    pub result: io::Result<usize>,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMode {
    /// For writing too.
    pub write: bool,
    /// Create it if it is not there.
    pub create: bool,
}

/// Executes dispatches. A panic in one while the engine calls it ends the process: nobody would complete its requests.
pub trait Store: Send + Sync + 'static {
    /// Opens a file by its path below the store's root. Fails as `open(2)` does where the store has real files.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle>;

    /// Takes over a file that a front end opened itself below the store's root (a directory's, a modelled one's).
    /// Fails with [`io::ErrorKind::Unsupported`] where files are known by path only.
    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle>;

    /// Takes over a description of such a file that was opened with `O_APPEND`, for batches at its end. Fails as [`Store::adopt`].
    fn adopt_appending(&self, fd: OwnedFd) -> io::Result<Arc<AppendFile>> {
        drop(fd);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this store has no descriptions of files"))
    }

    /// Carries out a dispatch and calls `done`, before it returns or later in another thread.
    ///
    /// Fewer bytes than asked for mean, for a read, that the file ends there (a store that fails after some bytes
    /// of a read reports the error); for a write, that no more were written. A store never reports bytes that it
    /// has not transferred.
    fn start(&self, io: Io, done: IoDone);

    /// Carries out a dispatch in the calling thread and returns what [`Store::start`] would report, where the store
    /// works like that: it saves the allocation and the detour of a callback. `None` means that nothing has been
    /// done (or nothing that does not bear repeating), and that `start` is to be called.
    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        let _ = io;
        None
    }

    /// As [`Store::run`], in a thread that may wait for far targets.
    fn run_waiting(&self, io: &Io) -> Option<io::Result<u64>> {
        self.run(io)
    }

    /// As [`Store::run`], in a thread that must not get stuck: only what waits for nothing, neither a device nor a server nor another
    /// program, and does not submit. `None` for the rest, which other threads then carry out by `run` and `start`.
    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        let _ = io;
        None
    }

    /// Whether `run` and `start` may keep the calling thread for as long as the device takes, so that dispatches
    /// that are to be in service at once need a thread each.
    fn blocks(&self) -> bool {
        true
    }

    /// Whether `run` and `start` may submit to the engine that calls them; without waiting for room, if the store does not block.
    fn submits(&self) -> bool {
        false
    }

    /// Requests that were submitted by [`crate::Engine::submit_for_store`] are over, several at once. As a completion, it must not block
    /// and may submit. What it leaves in the vector is dropped.
    fn finished(&self, finished: &mut Vec<Finished>) {
        let _ = finished;
    }

    /// Whether [`Store::size`] and [`Store::sync`] wait for an answer that comes in a thread which also calls completions, so
    /// that neither may be called in one.
    fn asks_afar(&self) -> bool {
        false
    }

    /// The size of a file in bytes.
    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        let _ = file;
        Err(io::Error::new(io::ErrorKind::Unsupported, "this store does not know the sizes of its files"))
    }

    /// Reads in the calling thread, from wherever that is fastest: for a look at what is there already. Fewer bytes than asked for: the
    /// file ends there. Not where [`Store::asks_afar`].
    fn peek(&self, file: &FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        let _ = (file, offset, memory);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this store does not read by itself"))
    }

    /// Makes what was written to a file durable: as `fdatasync(2)` with `data_only`, else as `fsync(2)`.
    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()>;
}
