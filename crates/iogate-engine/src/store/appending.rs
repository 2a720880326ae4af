//! Writes at the end of a file, where the kernel decides where that is, for all who write to the file on this machine.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::FileId;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::{FileHandle, Io, Segment, StoreFile};

/// A description of a file, opened with `O_APPEND`, with a number of its own in a gate: for it a batch is a write at an
/// offset that counts up. One batch at a time is underway. A gate may carry it out in pieces: it is written, in
/// one call, when the last piece has its turn.
#[derive(Debug)]
pub struct AppendFile {
    fd: OwnedFd,
    /// The description's number: no other open file's.
    own: Arc<dyn StoreFile>,
    batch: Mutex<Batch>,
}

#[derive(Debug, Default)]
struct Batch {
    memory: Option<Segment>,
    /// Bytes whose turn has not come.
    left: usize,
    result: Option<io::Result<Appended>>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where the first byte went.
    pub offset: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Why they are fewer than were given, if they are.
    pub short: Option<Errno>,
}

impl AppendFile {
    /// A description that was opened with `O_APPEND`; `own` keeps its number.
    pub(super) fn new(fd: OwnedFd, own: Arc<dyn StoreFile>) -> Arc<AppendFile> {
        Arc::new(AppendFile { fd, own, batch: Mutex::default() })
    }

    /// The one behind a handle, if there is one.
    pub(super) fn of(handle: &FileHandle) -> Option<&AppendFile> {
        let any: &dyn Any = &**handle;
        any.downcast_ref()
    }

    fn batch(&self) -> MutexGuard<'_, Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a batch, which is then submitted as a write of that memory. The one before must have been [ended](AppendFile::end).
    ///
    /// # Safety
    /// The memory must be valid, and not changed, until the write's completion has been called.
    pub unsafe fn begin(&self, memory: *const u8, bytes: usize) {
        let memory = Some(Segment { memory: memory.cast_mut(), bytes });
        *self.batch() = Batch { memory, left: bytes, result: None };
    }

    /// What became of the batch; its write's completion has been called.
    pub fn end(&self) -> io::Result<Appended> {
        let batch = std::mem::take(&mut *self.batch());
        batch.result.unwrap_or_else(|| Err(Errno::CANCELED.into()))
    }

    /// Carries out a piece of the batch.
    pub(super) fn carry_out(&self, io: &Io) -> io::Result<u64> {
        let bytes = io.segments.iter().map(|segment| segment.bytes).sum::<usize>();
        let mut batch = self.batch();
        batch.left = batch.left.saturating_sub(bytes);
        let (left, memory) = (batch.left, batch.memory);
        drop(batch);
        let Some(memory) = memory.filter(|_| left == 0) else { return Ok(bytes as u64) };
        // SAFETY: the memory is valid until the batch is complete, which it is not before this returns.
        let memory_bytes = unsafe { std::slice::from_raw_parts(memory.memory, memory.bytes) };
        let result = self.write(memory_bytes);
        let told = match &result {
            Ok(appended) => {
                let missing = memory.bytes - appended.bytes as usize;
                Ok(bytes.saturating_sub(missing) as u64)
            }
            Err(error) => Err((*error).into()),
        };
        self.batch().result = Some(result.map_err(io::Error::from));
        told
    }

    /// Appends bytes with one call. Where that takes fewer, the rest is tried too: the next call says why.
    fn write(&self, memory: &[u8]) -> Result<Appended, Errno> {
        let call = |memory: &[u8]| {
            let bytes = rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, memory))?;
            let end = rustix::fs::seek(&self.fd, SeekFrom::Current(0))?;
            Ok((end.saturating_sub(bytes as u64), bytes))
        };
        // Else the rest would be a fragment behind what others have written.
        let ends_at = |end: u64| {
            let size = rustix::fs::fstat(&self.fd)?.st_size as u64;
            if size == end { Ok(()) } else { Err(Errno::NOSPC) }
        };
        let (offset, mut bytes) = call(memory)?;
        while bytes < memory.len() {
            let end = offset + bytes as u64;
            let short = match ends_at(end).and_then(|()| call(&memory[bytes..])) {
                Ok((at, more)) if at == end && more > 0 => {
                    bytes += more;
                    continue;
                }
                // There is room again, and others have taken it just now: this would lie behind theirs.
                Ok((at, more)) => {
                    let cut = self.cut(at, at + more as u64);
                    if more > 0 && !matches!(cut, Ok(true)) {
                        tracing::error!(?cut, "a piece of a record is left, and something lies behind it");
                    }
                    Errno::NOSPC
                }
                Err(errno) => errno,
            };
            return Ok(Appended { offset, bytes: bytes as u64, short: Some(short) });
        }
        Ok(Appended { offset, bytes: bytes as u64, short: None })
    }

    /// The file's size.
    pub fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_size as u64)
    }

    /// Reads at an offset; fewer bytes at the end of the file. Fails if the description may not be read.
    pub fn read_at(&self, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < memory.len() {
            let (fd, at) = (&self.fd, offset + filled as u64);
            match rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut memory[filled..], at))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    /// Cuts the file at `size`, if it ends at `end`: nothing lies behind. Returns whether it did.
    pub fn cut(&self, size: u64, end: u64) -> io::Result<bool> {
        if self.size()? != end {
            return Ok(false);
        }
        rustix::fs::ftruncate(&self.fd, size)?;
        Ok(true)
    }
}

impl StoreFile for AppendFile {
    fn id(&self) -> FileId {
        self.own.id()
    }
}
