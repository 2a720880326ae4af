//! A store that does nothing, for measuring what a gate itself costs.
//!
//! Every file exists, and has no end. A write reports all its bytes, and they are gone. A read reports all its bytes
//! too and leaves the memory as it was, so that not even the cost of filling it is measured: what is read must not
//! be used as data.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::FileId;

use super::{FileHandle, Io, IoDone, OpenMode, Store, StoreFile};

/// A store that does nothing.
#[derive(Debug, Default)]
pub struct NullStore {
    files: Mutex<HashMap<PathBuf, FileHandle>>,
}

impl NullStore {
    /// A store that does nothing.
    pub fn new() -> NullStore {
        NullStore::default()
    }
}

#[derive(Debug)]
struct NullFile(FileId);

impl StoreFile for NullFile {
    fn id(&self) -> FileId {
        self.0
    }
}

impl Store for NullStore {
    fn open(&self, path: &Path, _mode: OpenMode) -> io::Result<FileHandle> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path) {
            return Ok(Arc::clone(file));
        }
        let file: FileHandle = Arc::new(NullFile(FileId(files.len() as u64 + 1)));
        files.insert(path.to_path_buf(), Arc::clone(&file));
        Ok(file)
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a null store opens its files by path"))
    }

    fn start(&self, io: Io, done: IoDone) {
        let bytes = bytes_of(&io);
        done(io, Ok(bytes));
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        Some(Ok(bytes_of(io)))
    }

    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        self.run(io)
    }

    fn blocks(&self) -> bool {
        false
    }

    fn sync(&self, _file: &FileHandle, _data_only: bool) -> io::Result<()> {
        Ok(())
    }

    fn size(&self, _file: &FileHandle) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

fn bytes_of(io: &Io) -> u64 {
    io.segments.iter().map(|segment| segment.bytes as u64).sum()
}
