//! A store that remembers what its files are called, and notes what was carried out when if asked to.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use iogate_core::{FileId, Op};
use iogate_engine::lock;
use iogate_engine::store::{AppendFile, FileHandle, Io, IoDone, OpenMode, Store};

/// Names that are remembered; files opened later go by their numbers.
const NAMES_MAX: usize = 65_536;

/// Passes everything on to another store.
pub(crate) struct WatchedStore {
    inner: Arc<dyn Store>,
    root: PathBuf,
    names: Mutex<HashMap<FileId, Box<str>>>,
    notes: Option<Arc<Mutex<Vec<Note>>>>,
}

/// One dispatch as the store saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) file: FileId,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
}

impl WatchedStore {
    /// Remembers names, below `root`.
    pub(crate) fn new(inner: Arc<dyn Store>, root: &Path) -> WatchedStore {
        let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        WatchedStore { inner, root, names: Mutex::default(), notes: None }
    }

    /// Notes dispatches too, all of them: for runs of known length.
    pub(crate) fn noting(self) -> (WatchedStore, Arc<Mutex<Vec<Note>>>) {
        let notes = Arc::new(Mutex::new(Vec::new()));
        (WatchedStore { notes: Some(notes.clone()), ..self }, notes)
    }

    /// The name of a file that was opened, below the root.
    pub(crate) fn name(&self, file: FileId) -> Option<String> {
        lock(&self.names).get(&file).map(|name| name.to_string())
    }

    fn remember(&self, file: FileId, path: impl FnOnce() -> Option<PathBuf>) {
        let mut names = lock(&self.names);
        if names.len() < NAMES_MAX || names.contains_key(&file) {
            // A number may have been another, now deleted file's.
            if let Some(path) = path() {
                let path = path.strip_prefix(&self.root).unwrap_or(&path);
                names.insert(file, path.to_string_lossy().into());
            }
        }
    }

    /// Carries out what `run` does at once, and notes it.
    fn noted(&self, io: &Io, run: impl FnOnce(&Io) -> Option<io::Result<u64>>) -> Option<io::Result<u64>> {
        let Some(notes) = &self.notes else { return run(io) };
        let start = Instant::now();
        let result = run(io)?;
        if let Ok(bytes) = &result {
            let (file, op, offset, requests) = (io.file.id(), io.op, io.offset, io.segments.len() as u64);
            lock(notes).push(Note { start, end: Instant::now(), file, op, offset, bytes: *bytes, requests });
        }
        Some(result)
    }
}

impl Store for WatchedStore {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        let file = self.inner.open(path, mode)?;
        self.remember(file.id(), || Some(path.to_owned()));
        Ok(file)
    }

    fn adopt_appending(&self, fd: OwnedFd) -> io::Result<Arc<AppendFile>> {
        self.inner.adopt_appending(fd)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
        let file = self.inner.adopt(fd)?;
        self.remember(file.id(), || path);
        Ok(file)
    }

    fn start(&self, io: Io, done: IoDone) {
        let Some(notes) = self.notes.clone() else { return self.inner.start(io, done) };
        let start = Instant::now();
        let (file, op, offset, requests) = (io.file.id(), io.op, io.offset, io.segments.len() as u64);
        let done = Box::new(move |io: Io, result: io::Result<u64>| {
            if let Ok(bytes) = result {
                lock(&notes).push(Note { start, end: Instant::now(), file, op, offset, bytes, requests });
            }
            done(io, result);
        });
        self.inner.start(io, done);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        self.noted(io, |io| self.inner.run(io))
    }

    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        self.noted(io, |io| self.inner.run_at_once(io))
    }

    fn blocks(&self) -> bool {
        self.inner.blocks()
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        self.inner.size(file)
    }

    fn asks_afar(&self) -> bool {
        self.inner.asks_afar()
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.inner.sync(file, data_only)
    }

    fn peek(&self, file: &FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        self.inner.peek(file, offset, memory)
    }
}
