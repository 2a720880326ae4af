//! A dispatch queue behind a gate, as in the forwarding daemon IOFSL (TWINS thesis, section 3.2).
//!
//! Dispatches wait in order of arrival. The first one goes on together with others of the same file and operation, wherever
//! in the queue they are: a *batch*. What the scheduler has put apart can so come together again, which is why schedulers that
//! rely on separation (`twins`) want small batches, or none.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{AppendFile, FileHandle, Io, IoDone, OpenMode, Store};

/// Passes dispatches on in batches.
pub struct BatchedStore {
    inner: Arc<dyn Store>,
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    batch_max: usize,
    batches_max: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Io, IoDone)>,
    /// Batches in service.
    batches: usize,
}

/// The dispatches of a batch that are not done.
struct Batch {
    left: Mutex<usize>,
}

thread_local! {
    /// The stores whose batches this thread is passing on: it looks for the next one itself.
    static PASSING_ON: RefCell<Vec<*const Shared>> = const { RefCell::new(Vec::new()) };
}

impl BatchedStore {
    /// At most `batches_max` batches of `batch_max` dispatches in service on `inner`. IOFSL's default is 16 dispatches.
    pub fn new(
        inner: Arc<dyn Store>,
        batch_max: NonZero<usize>,
        batches_max: NonZero<usize>,
    ) -> BatchedStore {
        let (batch_max, batches_max) = (batch_max.get(), batches_max.get());
        BatchedStore { inner, shared: Arc::new(Shared { queue: Mutex::default(), batch_max, batches_max }) }
    }
}

impl Shared {
    /// The next batch, if one may begin.
    fn next(&self) -> Option<Vec<(Io, IoDone)>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.batches >= self.batches_max {
            return None;
        }
        let first = queue.waiting.pop_front()?;
        let (file, op) = (first.0.file.id(), first.0.op);
        let mut batch = vec![first];
        let mut at = 0;
        while batch.len() < self.batch_max && at < queue.waiting.len() {
            let (io, _) = &queue.waiting[at];
            if io.file.id() == file && io.op == op {
                batch.extend(queue.waiting.remove(at));
            } else {
                at += 1;
            }
        }
        queue.batches += 1;
        Some(batch)
    }

    /// Passes on batches until none may begin.
    fn pass_on(self: &Arc<Self>, inner: &Arc<dyn Store>) {
        let this = Arc::as_ptr(self);
        if PASSING_ON.with_borrow(|stores| stores.contains(&this)) {
            // A completion inside the inner store's `start`: the loop below on this thread's stack goes on.
            return;
        }
        PASSING_ON.with_borrow_mut(|stores| stores.push(this));
        while let Some(dispatches) = self.next() {
            let batch = Arc::new(Batch { left: Mutex::new(dispatches.len()) });
            for (io, done) in dispatches {
                let (shared, batch, store) = (Arc::clone(self), Arc::clone(&batch), Arc::clone(inner));
                let landed = move |io: Io, result: io::Result<u64>| {
                    done(io, result);
                    shared.landed(&batch, &store);
                };
                inner.start(io, Box::new(landed));
            }
        }
        PASSING_ON.with_borrow_mut(|stores| stores.pop());
    }

    fn landed(self: &Arc<Self>, batch: &Batch, inner: &Arc<dyn Store>) {
        let over = {
            let mut left = batch.left.lock().unwrap_or_else(PoisonError::into_inner);
            *left -= 1;
            *left == 0
        };
        if over {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner).batches -= 1;
            self.pass_on(inner);
        }
    }
}

impl Store for BatchedStore {
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
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_back((io, done));
        self.shared.pass_on(&self.inner);
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

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use iogate_core::{Op, TargetId};

    use super::*;
    use crate::origin::Origin;
    use crate::store::MemoryStore;

    /// Keeps what it is given until it is told to go on.
    struct Held {
        memory: MemoryStore,
        held: Mutex<Vec<(Io, IoDone)>>,
        more: Condvar,
    }

    impl Store for Held {
        fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
            self.memory.open(path, mode)
        }

        fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
            self.memory.adopt(fd)
        }

        fn start(&self, io: Io, done: IoDone) {
            self.held.lock().unwrap().push((io, done));
            self.more.notify_all();
        }

        fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
            self.memory.sync(file, data_only)
        }
    }

    /// Is far away.
    struct Far(MemoryStore);

    impl Store for Far {
        fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
            self.0.open(path, mode)
        }

        fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
            self.0.adopt(fd)
        }

        fn start(&self, io: Io, done: IoDone) {
            self.0.start(io, done);
        }

        fn asks_afar(&self) -> bool {
            true
        }

        fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
            self.0.sync(file, data_only)
        }
    }

    /// Else the engine asks it for a size in a completion, which the answer would have to come in.
    #[test]
    fn batches_of_a_store_that_asks_afar_ask_afar() {
        let batched = |store| BatchedStore::new(store, NonZero::new(1).unwrap(), NonZero::new(1).unwrap());
        assert!(batched(Arc::new(Far(MemoryStore::new()))).asks_afar());
        assert!(!batched(Arc::new(MemoryStore::new())).asks_afar());
    }

    #[test]
    fn a_batch_takes_the_same_file_and_operation_from_all_over_the_queue() {
        let held =
            Arc::new(Held { memory: MemoryStore::new(), held: Mutex::default(), more: Condvar::new() });
        let two = NonZero::new(2).unwrap();
        let store = BatchedStore::new(held.clone(), NonZero::new(3).unwrap(), two);
        let mode = OpenMode { write: true, create: true };
        let files = ["a", "b", "c"].map(|name| store.open(name.as_ref(), mode).unwrap());
        let start = |file: usize, offset| {
            let file = FileHandle::clone(&files[file]);
            let (target, origin) = (TargetId(0), Origin::default());
            let io = Io { file, op: Op::Write, offset, target, origin, extends: false, segments: Vec::new() };
            store.start(io, Box::new(|_, result| assert_eq!(result.unwrap(), 0)));
        };
        // Two batches of one are in service; the rest waits.
        for (file, offset) in [(0, 0), (1, 1), (2, 2), (0, 3), (2, 4), (2, 5), (2, 6), (0, 7)] {
            start(file, offset);
        }
        let take = || std::mem::take(&mut *held.held.lock().unwrap());
        let offsets = |batch: &[(Io, IoDone)]| batch.iter().map(|(io, _)| io.offset).collect::<Vec<_>>();
        let mut first = take();
        assert_eq!(offsets(&first), [0, 1]);
        let (io, done) = first.pop().unwrap();
        done(io, Ok(0));
        let mut second = take();
        assert_eq!(offsets(&second), [2, 4, 5]);
        for (io, done) in second.drain(1..) {
            done(io, Ok(0));
        }
        assert!(take().is_empty(), "a batch is over when all of it is");
        let (io, done) = second.pop().unwrap();
        done(io, Ok(0));
        assert_eq!(offsets(&take()), [3, 7]);
        assert!(take().is_empty());
    }
}
