//! A store whose syncs fail when a test says so.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use iogate_engine::store::{DirectoryStore, Io, IoDone, OpenMode};
use iogate_engine::{FileHandle, Store};

/// What becomes of a sync.
pub(crate) type Syncs = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A store whose syncs are what a test says.
pub(crate) struct Failing {
    pub(crate) store: DirectoryStore,
    pub(crate) syncs: Syncs,
}

impl Store for Failing {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        self.store.start(io, done);
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        self.store.size(file)
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        (self.syncs)()?;
        self.store.sync(file, data_only)
    }
}
