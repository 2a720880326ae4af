//! Several stores as the targets of one: a file is a file of the same path in each, striped round-robin.
//!
//! Stripe `k` of a file is on target `(first + k) mod n`, at stripe `k div n` of the file there, so that what is
//! contiguous on a target is contiguous in its file, and a dispatch is one vectored call a target. The file's size
//! is where its last byte is; what lies before that and was never written reads as zeros, though the target's own
//! file may end earlier.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use iogate_core::{FileId, Layout, Op, TargetId};

use super::{FileHandle, Io, IoDone, OpenMode, Segment, Store, StoreFile};
use crate::Workers;
use crate::privileges::limit_thread_or_warn;

/// Most threads that ask far targets for one store.
const THREADS_MAX: usize = 256;

/// Makes room on full targets, if it can; returns whether it has. May wait.
pub type MakeRoom = Box<dyn Fn() -> bool + Send + Sync>;

/// Several stores as the targets of one.
#[derive(Clone)]
pub struct StripedStore {
    targets: Arc<[Arc<dyn Store>]>,
    layout: Layout,
    /// For what asks far targets: the thread that submits or completes may be what their answers come in. `None`: it never is.
    far: Option<Arc<Workers>>,
    room: Arc<OnceLock<MakeRoom>>,
}

impl StripedStore {
    /// A store over `targets`, of which `layout` says which byte is where. Fails if the layout is for another number
    /// of targets, or has empty stripes.
    pub fn new(targets: Vec<Arc<dyn Store>>, layout: Layout) -> io::Result<StripedStore> {
        let found = targets.len();
        let fits = layout.targets as usize == found && found > 0;
        if !fits || layout.stripe_bytes == 0 || layout.first_target as usize >= found {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "expected stripes of at least one byte, on as many targets as there are stores ({found}), the \
                     first one of them; found {layout:?}"
                ),
            ));
        }
        let far = Some(Workers::new("iogate-striped", THREADS_MAX, limit_thread_or_warn));
        Ok(StripedStore { targets: targets.into(), layout, far, room: Arc::default() })
    }

    /// Without threads of its own: whoever submits may wait for the targets.
    #[must_use]
    pub fn without_threads(self) -> StripedStore {
        StripedStore { far: None, ..self }
    }

    /// Whom to ask for room when a target is full, before a write fails. The first call counts.
    pub fn when_full(&self, make_room: MakeRoom) {
        let _ = self.room.set(make_room);
    }

    /// Carries out the pieces of a dispatch, in a thread that may wait for far targets if it `waits`. `known` is the file's size as a
    /// first attempt of a read has found it; of a write, there was one.
    fn carry_out(&self, io: Io, pieces: Vec<Piece>, waits: bool, known: Option<u64>, done: IoDone) {
        let file = match file_of(&io.file) {
            Ok(file) => file,
            Err(error) => return done(io, Err(error)),
        };
        // A dispatch covers a contiguous range, so what it has on one target is contiguous there.
        let mut calls = Vec::new();
        for target in 0..self.targets.len() {
            let mut mine = pieces.iter().filter(|piece| piece.target == target).peekable();
            let Some(offset) = mine.peek().map(|piece| piece.offset) else { continue };
            let segments = mine.map(|piece| piece.segment).collect();
            let call = file.parts.part(target, io.op == Op::Write).map(|part| {
                let target = TargetId(target as u32);
                part.map(|file| Io {
                    file,
                    op: io.op,
                    offset,
                    target,
                    origin: io.origin,
                    extends: io.extends,
                    segments,
                })
            });
            calls.push((target, call));
        }
        let results = (0..self.targets.len()).map(|_| None).collect();
        let left = calls.len();
        if left == 0 {
            return done(io, Ok(0));
        }
        let join = Join { io, done, pieces, results, left, store: self.clone(), known };
        let join = Arc::new(Mutex::new(Some(join)));
        for (index, (target, call)) in calls.into_iter().enumerate() {
            let call = match call {
                Ok(Some(call)) => call,
                Ok(None) => {
                    Join::arrive(&join, target, Ok(0));
                    continue;
                }
                Err(error) => {
                    Join::arrive(&join, target, Err(error));
                    continue;
                }
            };
            let store = &self.targets[target];
            // The others are underway by then.
            let is_last = index + 1 == left;
            match if waits && is_last { store.run_waiting(&call) } else { store.run(&call) } {
                Some(result) => Join::arrive(&join, target, result),
                None => {
                    let join = Arc::clone(&join);
                    store.start(call, Box::new(move |_, result| Join::arrive(&join, target, result)));
                }
            }
        }
    }

    /// A handle on the file that has these parts, as the targets' stores know them. What it was not opened for
    /// fails with `EBADF`.
    pub fn file(parts: Arc<dyn Parts>, reads: bool, writes: bool) -> FileHandle {
        Arc::new(StripedFile { parts, reads, writes })
    }
}

/// A striped file's parts on the targets. Shared by all handles on the file.
pub trait Parts: Send + Sync + fmt::Debug {
    /// The same for every handle on the same file; see [`StoreFile::id`].
    fn id(&self) -> FileId;

    /// The part on a target; made if it is not there and `create` says so. `None` is a part without bytes.
    fn part(&self, target: usize, create: bool) -> io::Result<Option<FileHandle>>;

    /// Whether [`Parts::part`] has to ask a target that is far away first, and so must not be called in a completion; or whether
    /// [`Parts::check`] has to be called.
    fn asks_afar(&self, target: usize) -> bool {
        let _ = target;
        false
    }

    /// Fails if the parts are not to be used any more. May wait.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

fn check(io: &Io) -> io::Result<()> {
    file_of(&io.file)?.parts.check()
}

/// Parts that have all been opened.
#[derive(Debug)]
struct Opened(Vec<FileHandle>);

impl Parts for Opened {
    /// The first target's id for it: one for one path, as in all its handles.
    fn id(&self) -> FileId {
        self.0[0].id()
    }

    fn part(&self, target: usize, _create: bool) -> io::Result<Option<FileHandle>> {
        Ok(Some(FileHandle::clone(&self.0[target])))
    }
}

#[derive(Debug)]
struct StripedFile {
    parts: Arc<dyn Parts>,
    reads: bool,
    writes: bool,
}

impl StoreFile for StripedFile {
    fn id(&self) -> FileId {
        self.parts.id()
    }
}

fn file_of(handle: &FileHandle) -> io::Result<&StripedFile> {
    let any: &dyn Any = &**handle;
    any.downcast_ref().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{handle:?} is not a file of a striped store"))
    })
}

/// A piece of a dispatch: within one segment and one stripe.
#[derive(Clone, Copy)]
struct Piece {
    target: usize,
    segment: Segment,
    /// First byte in the target's file.
    offset: u64,
}

fn pieces(layout: &Layout, io: &Io) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(io.segments.len() + 1);
    let mut offset = io.offset;
    for segment in &io.segments {
        let mut rest = *segment;
        while rest.bytes > 0 {
            let bytes =
                usize::try_from(layout.stripe_end(offset) - offset).map_or(rest.bytes, |n| n.min(rest.bytes));
            pieces.push(Piece {
                target: layout.target_of(offset).0 as usize,
                segment: Segment { memory: rest.memory, bytes },
                offset: layout.inner_offset(offset),
            });
            rest = Segment { memory: rest.memory.wrapping_add(bytes), bytes: rest.bytes - bytes };
            offset += bytes as u64;
        }
    }
    pieces
}

/// Runs what asks far targets in a thread that may wait for them. It is told if there is no thread.
fn elsewhere(far: Option<&Arc<Workers>>, run: impl FnOnce(io::Result<()>) + Send + 'static) {
    let Some(far) = far else { return run(Ok(())) };
    let run = Arc::new(Mutex::new(Some(run)));
    let there = Arc::clone(&run);
    let take = |run: &Mutex<Option<_>>| run.lock().unwrap_or_else(PoisonError::into_inner).take();
    let started = far.run_elsewhere(move || {
        if let Some(run) = take(&there) {
            run(Ok(()));
        }
    });
    if let Err((error, _)) = started
        && let Some(run) = take(&run)
    {
        run(Err(error));
    }
}

fn size_of(targets: &[Arc<dyn Store>], layout: &Layout, file: &StripedFile) -> io::Result<u64> {
    let mut size = 0;
    for (index, target) in targets.iter().enumerate() {
        if let Some(part) = file.parts.part(index, false)? {
            size = size.max(layout.outer_size(TargetId(index as u32), target.size(&part)?));
        }
    }
    Ok(size)
}

impl Store for StripedStore {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        let files = self.targets.iter().map(|target| target.open(path, mode)).collect::<io::Result<_>>()?;
        // What may not be written, the targets refuse.
        Ok(StripedStore::file(Arc::new(Opened(files)), true, true))
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a striped store opens its files by path"))
    }

    fn start(&self, io: Io, done: IoDone) {
        let file = match file_of(&io.file) {
            Ok(file) => file,
            Err(error) => return done(io, Err(error)),
        };
        let allowed = if io.op == Op::Write { file.writes } else { file.reads };
        if !allowed {
            return done(io, Err(io::Error::from_raw_os_error(libc::EBADF)));
        }
        let pieces = pieces(&self.layout, &io);
        if pieces.iter().any(|piece| file.parts.asks_afar(piece.target)) {
            let store = self.clone();
            return elsewhere(self.far.as_ref(), move |thread| match thread.and_then(|()| check(&io)) {
                Ok(()) => store.carry_out(io, pieces, true, None, done),
                Err(error) => done(io, Err(error)),
            });
        }
        self.carry_out(io, pieces, false, None, done);
    }
    fn blocks(&self) -> bool {
        self.targets.iter().any(|target| target.blocks())
    }

    fn asks_afar(&self) -> bool {
        self.targets.iter().any(|target| target.asks_afar())
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        let file = file_of(file)?;
        self.targets.iter().enumerate().try_for_each(|(index, target)| {
            file.parts.part(index, false)?.map_or(Ok(()), |part| target.sync(&part, data_only))
        })
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        size_of(&self.targets, &self.layout, file_of(file)?)
    }
}

/// A dispatch that waits for its targets.
struct Join {
    io: Io,
    done: IoDone,
    pieces: Vec<Piece>,
    results: Vec<Option<io::Result<u64>>>,
    left: usize,
    store: StripedStore,
    /// The file's size before this attempt, where it is the second one of a read; anything, where it is that of a write.
    known: Option<u64>,
}

/// What has become of a read.
enum Outcome {
    Read(u64),
    /// Something is missing before the end of the file, which is here.
    Missing(u64),
}

impl Join {
    fn arrive(join: &Mutex<Option<Join>>, target: usize, result: io::Result<u64>) {
        let mut slot = join.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = slot.as_mut() else { return };
        waiting.results[target] = Some(result);
        waiting.left -= 1;
        if waiting.left > 0 {
            return;
        }
        let Some(finished) = slot.take() else { return };
        drop(slot);
        if finished.io.op == Op::Read
            && finished.is_short()
            && finished.store.targets.iter().any(|target| target.asks_afar())
        {
            let far = finished.store.far.clone();
            elsewhere(far.as_ref(), move |thread| finished.tell(thread));
        } else {
            finished.tell(Ok(()));
        }
    }

    /// Whether the end of the file, or a hole, is in it.
    fn is_short(&self) -> bool {
        let total = self.pieces.iter().map(|piece| piece.segment.bytes as u64).sum::<u64>();
        self.results.iter().flatten().all(Result::is_ok) && self.counts().iter().sum::<u64>() < total
    }

    fn tell(mut self, thread: io::Result<()>) {
        let result = thread.and_then(|()| match self.io.op {
            Op::Read => self.read_result(),
            Op::Write => self.write_result().map(Outcome::Read),
        });
        match result {
            Ok(Outcome::Read(count)) => (self.done)(self.io, Ok(count)),
            Ok(Outcome::Missing(size)) => {
                let far = self.store.far.clone();
                elsewhere(far.as_ref(), move |thread| self.try_again(thread, size));
            }
            Err(error) if self.may_find_room(&error) => {
                let far = self.store.far.clone();
                elsewhere(far.as_ref(), move |thread| self.try_with_room(thread.is_ok(), error));
            }
            Err(error) => (self.done)(self.io, Err(error)),
        }
    }

    /// Whether a target is full, and there may be room at a second attempt. What is only to be written where nothing is may meet its own
    /// first attempt.
    fn may_find_room(&self, error: &io::Error) -> bool {
        let is_full = self.io.op == Op::Write && error.raw_os_error() == Some(libc::ENOSPC);
        is_full && self.known.is_none() && !self.io.extends && self.store.room.get().is_some()
    }

    /// Writes once more, if there is room now.
    fn try_with_room(self, may_wait: bool, full: io::Error) {
        let has_room = may_wait && self.store.room.get().is_some_and(|make_room| make_room());
        if has_room {
            self.store.carry_out(self.io, self.pieces, true, Some(0), self.done);
        } else {
            (self.done)(self.io, Err(full));
        }
    }

    /// Reads once more: what one target did not have when it was asked may have come before another one was.
    fn try_again(self, thread: io::Result<()>, size: u64) {
        if let Err(error) = thread {
            return (self.done)(self.io, Err(error));
        }
        self.store.carry_out(self.io, self.pieces, true, Some(size), self.done);
    }

    /// The bytes before the first piece that is not whole; its target's error if there are none.
    fn write_result(&mut self) -> io::Result<u64> {
        let mut left = self.counts();
        let mut written = 0;
        for piece in &self.pieces {
            let got = left[piece.target].min(piece.segment.bytes as u64);
            left[piece.target] -= got;
            written += got;
            if got < piece.segment.bytes as u64 {
                return match self.results[piece.target].take() {
                    Some(Err(error)) if written == 0 => Err(error),
                    _ => Ok(written),
                };
            }
        }
        Ok(written)
    }

    /// Fills holes with zeros, up to the end of the file, if they are still there at the second attempt.
    fn read_result(&mut self) -> io::Result<Outcome> {
        if let Some(Err(_)) = self.results.iter().flatten().find(|result| result.is_err()) {
            let failed = self.results.iter_mut().filter_map(Option::take).find_map(Result::err);
            return Err(failed.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EIO)));
        }
        let total = self.pieces.iter().map(|piece| piece.segment.bytes as u64).sum::<u64>();
        if self.counts().iter().sum::<u64>() == total {
            return Ok(Outcome::Read(total));
        }
        let size = size_of(&self.store.targets, &self.store.layout, file_of(&self.io.file)?)?;
        // What has come behind the end since the first attempt may lie behind something that is on its way.
        let end = self.known.map_or(size, |known| known.min(size));
        let count = end.saturating_sub(self.io.offset).min(total);
        let missing = self.missing(count);
        if !missing.is_empty() && self.known.is_none() {
            return Ok(Outcome::Missing(size));
        }
        for Segment { memory, bytes } in missing {
            // SAFETY: within the dispatch's segments, which are ours until `done` is called.
            unsafe { memory.write_bytes(0, bytes) };
        }
        Ok(Outcome::Read(count))
    }

    /// What no target has given of the first `count` bytes.
    fn missing(&self, count: u64) -> Vec<Segment> {
        let mut left = self.counts();
        let mut missing = Vec::new();
        let mut at = 0;
        for piece in &self.pieces {
            let bytes = piece.segment.bytes as u64;
            let got = left[piece.target].min(bytes);
            left[piece.target] -= got;
            let wanted = count.saturating_sub(at).min(bytes);
            if got < wanted {
                let memory = piece.segment.memory.wrapping_add(got as usize);
                missing.push(Segment { memory, bytes: (wanted - got) as usize });
            }
            at += bytes;
        }
        missing
    }

    fn counts(&self) -> Vec<u64> {
        self.results
            .iter()
            .map(|result| *result.as_ref().and_then(|r| r.as_ref().ok()).unwrap_or(&0))
            .collect()
    }
}
