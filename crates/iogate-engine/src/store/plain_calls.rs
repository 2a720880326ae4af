//! "Virtual" aggregation: a contiguous dispatch as an ordered series of plain calls.
//!
//! For stores that cannot take vectors, and for measuring what one large call is worth beside the order alone.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use iogate_core::Op;

use super::{AppendFile, FileHandle, Io, IoDone, OpenMode, Store};

/// Passes on each segment of a dispatch as a call of its own, in offset order, each when the one before is done.
pub struct PlainCalls {
    inner: Arc<dyn Store>,
}

impl PlainCalls {
    /// Plain calls to `inner`.
    pub fn new(inner: Arc<dyn Store>) -> PlainCalls {
        PlainCalls { inner }
    }
}

impl Store for PlainCalls {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.inner.open(path, mode)
    }

    fn adopt_appending(&self, fd: OwnedFd) -> io::Result<Arc<AppendFile>> {
        self.inner.adopt_appending(fd)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.inner.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        let piece = Io { file: FileHandle::clone(&io.file), segments: Vec::with_capacity(1), ..io };
        let series = Series { inner: Arc::clone(&self.inner), whole: io, next: 0, transferred: 0, done };
        series.advance(piece);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        if io.segments.len() == 1 { self.inner.run(io) } else { None }
    }

    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        if io.segments.len() == 1 { self.inner.run_at_once(io) } else { None }
    }

    fn blocks(&self) -> bool {
        self.inner.blocks()
    }

    fn asks_afar(&self) -> bool {
        self.inner.asks_afar()
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.inner.sync(file, data_only)
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        self.inner.size(file)
    }

    fn peek(&self, file: &FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        self.inner.peek(file, offset, memory)
    }
}

/// A dispatch of which some calls are done.
struct Series {
    inner: Arc<dyn Store>,
    whole: Io,
    /// Index of the segment that is carried out next.
    next: usize,
    transferred: u64,
    done: IoDone,
}

impl Series {
    /// Carries out segments until one does not complete at once: the answer to that one goes on with the next.
    fn advance(mut self, mut piece: Io) {
        while let Some(&segment) = self.whole.segments.get(self.next) {
            piece.offset = self.whole.offset + self.transferred;
            piece.segments.clear();
            piece.segments.push(segment);
            let Some(result) = self.inner.run(&piece) else {
                let inner = Arc::clone(&self.inner);
                inner.start(piece, Box::new(move |piece, result| self.resume(piece, result)));
                return;
            };
            if let Some(result) = self.account(result) {
                return (self.done)(self.whole, result);
            }
        }
        (self.done)(self.whole, Ok(self.transferred));
    }

    fn resume(mut self, piece: Io, result: io::Result<u64>) {
        match self.account(result) {
            Some(result) => (self.done)(self.whole, result),
            None => self.advance(piece),
        }
    }

    /// Takes the answer to a call. Returns that to the dispatch if the series ends here.
    fn account(&mut self, result: io::Result<u64>) -> Option<io::Result<u64>> {
        match result {
            Ok(bytes) => {
                self.transferred += bytes;
                let whole = bytes == self.whole.segments[self.next].bytes as u64;
                self.next += 1;
                (!whole).then_some(Ok(self.transferred))
            }
            Err(_) if self.whole.op == Op::Write && self.transferred > 0 => Some(Ok(self.transferred)),
            Err(error) => Some(Err(error)),
        }
    }
}
