//! Files in memory: for tests, and for measuring a gate without a file system.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use iogate_core::{FileId, Op};

use super::{FileHandle, Io, IoDone, OpenMode, Store, StoreFile};

/// Files in memory, by path. They live as long as the store.
#[derive(Debug, Default)]
pub struct MemoryStore {
    files: Mutex<HashMap<PathBuf, FileHandle>>,
}

impl MemoryStore {
    /// A store without files.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }
}

struct MemoryFile {
    id: FileId,
    bytes: RwLock<Vec<u8>>,
}

impl std::fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryFile").field("id", &self.id).finish_non_exhaustive()
    }
}

impl StoreFile for MemoryFile {
    fn id(&self) -> FileId {
        self.id
    }
}

fn file_of(handle: &FileHandle) -> io::Result<&MemoryFile> {
    let any: &dyn Any = &**handle;
    any.downcast_ref().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{handle:?} is not a file of a memory store"))
    })
}

impl MemoryFile {
    fn read(&self, io: &Io) -> u64 {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(io.offset).unwrap_or(usize::MAX).min(bytes.len());
        let mut rest = &bytes[start..];
        for segment in &io.segments {
            let count = segment.bytes.min(rest.len());
            // SAFETY: the segment is valid and ours until the dispatch is done, and apart from the file's vector.
            unsafe { segment.memory.copy_from_nonoverlapping(rest.as_ptr(), count) };
            rest = &rest[count..];
        }
        (bytes.len() - start - rest.len()) as u64
    }

    fn write(&self, io: &Io) -> io::Result<u64> {
        let too_large = || io::Error::from_raw_os_error(libc::EFBIG);
        let total = io.segments.iter().map(|segment| segment.bytes).sum::<usize>();
        let start = usize::try_from(io.offset).map_err(|_| too_large())?;
        let end = start.checked_add(total).filter(|end| *end <= isize::MAX as usize).ok_or_else(too_large)?;
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() < end {
            let more = end - bytes.len();
            bytes.try_reserve(more).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
            bytes.resize(end, 0);
        }
        let mut rest = &mut bytes[start..end];
        for segment in &io.segments {
            let (to, behind) = rest.split_at_mut(segment.bytes);
            // SAFETY: as in `read`.
            unsafe { segment.memory.copy_to_nonoverlapping(to.as_mut_ptr(), segment.bytes) };
            rest = behind;
        }
        Ok(total as u64)
    }
}

impl Store for MemoryStore {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path) {
            return Ok(Arc::clone(file));
        }
        if !mode.create {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let id = FileId(files.len() as u64 + 1);
        let file: FileHandle = Arc::new(MemoryFile { id, bytes: RwLock::default() });
        files.insert(path.to_path_buf(), Arc::clone(&file));
        Ok(file)
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a memory store opens its files by path"))
    }

    fn start(&self, io: Io, done: IoDone) {
        let result = self.run(&io).unwrap_or(Ok(0));
        done(io, result);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        Some(file_of(&io.file).and_then(|file| match io.op {
            Op::Read => Ok(file.read(io)),
            Op::Write => file.write(io),
        }))
    }

    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        self.run(io)
    }

    fn blocks(&self) -> bool {
        false
    }

    fn sync(&self, file: &FileHandle, _data_only: bool) -> io::Result<()> {
        file_of(file).map(drop)
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        let file = file_of(file)?;
        Ok(file.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn peek(&self, file: &FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        let bytes = file_of(file)?.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let there = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = there.len().min(memory.len());
        memory[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }
}
