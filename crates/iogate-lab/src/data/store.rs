//! Reads and writes of trees, whose stores take memory: the only place with pointers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::{FileId, Op, TargetId};
use iogate_engine::store::{Io, IoDone, OpenMode, Segment, StoreFile};
use iogate_engine::{Completion, Engine, FileHandle, Origin, Store, Transfer};

/// A file that reads and writes bytes.
pub(crate) trait Data: Send + Sync + 'static {
    /// Its number.
    fn id(&self) -> FileId;
    /// Fewer bytes than asked for: it ends there.
    fn read(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;
    /// Returns how many were written.
    fn write(&self, offset: u64, bytes: &[u8], extends: bool) -> io::Result<usize>;
    /// Its size.
    fn size(&self) -> io::Result<u64>;
}

/// A file as a store has it.
pub(crate) struct Held(pub(crate) Arc<dyn Data>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({:?})", self.0.id())
    }
}

impl StoreFile for Held {
    fn id(&self) -> FileId {
        self.0.id()
    }
}

fn held(file: &FileHandle) -> io::Result<&Held> {
    let any: &dyn std::any::Any = &**file;
    any.downcast_ref().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Carries out what it is given at once, in the calling thread.
pub(crate) struct AtOnce;

impl Store for AtOnce {
    fn open(&self, _path: &Path, _mode: OpenMode) -> io::Result<FileHandle> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn start(&self, io: Io, done: IoDone) {
        let result = carry_out(&io);
        done(io, result);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        Some(carry_out(io))
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        held(file)?.0.size()
    }

    fn sync(&self, _file: &FileHandle, _data_only: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn carry_out(io: &Io) -> io::Result<u64> {
    let file = &held(&io.file)?.0;
    match io.op {
        Op::Write => {
            let mut bytes = Vec::new();
            for segment in &io.segments {
                // SAFETY: the memory is ours until the dispatch is done.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(segment.memory, segment.bytes) });
            }
            file.write(io.offset, &bytes, io.extends).map(|count| count as u64)
        }
        Op::Read => {
            let total = io.segments.iter().map(|segment| segment.bytes).sum();
            let found = file.read(io.offset, total)?;
            let mut rest = &found[..];
            for segment in &io.segments {
                let (here, behind) = rest.split_at(segment.bytes.min(rest.len()));
                // SAFETY: as above, and no longer than the segment.
                unsafe { std::slice::from_raw_parts_mut(segment.memory, here.len()) }.copy_from_slice(here);
                rest = behind;
            }
            Ok(found.len() as u64)
        }
    }
}

fn transfer(
    store: &dyn Store,
    file: &FileHandle,
    op: Op,
    offset: u64,
    bytes: &mut [u8],
    extends: bool,
) -> io::Result<usize> {
    let segment = Segment { memory: bytes.as_mut_ptr(), bytes: bytes.len() };
    let (file, origin, segments) = (FileHandle::clone(file), Origin::default(), vec![segment]);
    let io = Io { file, op, offset, target: TargetId(0), origin, extends, segments };
    let result = Arc::new(Mutex::new(None));
    let told = Arc::clone(&result);
    let tell = move |_, result| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    store.start(io, Box::new(tell));
    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    // All stores here are done when they return.
    result.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())).map(|count| count as usize)
}

/// Hands reads and writes, whose memory belongs to their completions, to a gate.
pub(crate) fn submit(engine: &Arc<Engine>, batch: Vec<(Transfer, Completion)>) {
    // SAFETY: whoever has made a transfer keeps its memory in its completion, which is called when the store is done with it.
    unsafe { engine.submit_all(batch) };
}

/// Reads from a tree's file.
pub(crate) fn read(store: &dyn Store, file: &FileHandle, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut found = vec![0; bytes];
    let count = transfer(store, file, Op::Read, offset, &mut found, false)?;
    found.truncate(count);
    Ok(found)
}

/// Writes to a tree's file.
pub(crate) fn write(
    store: &dyn Store,
    file: &FileHandle,
    offset: u64,
    bytes: &[u8],
    extends: bool,
) -> io::Result<usize> {
    transfer(store, file, Op::Write, offset, &mut bytes.to_vec(), extends)
}
