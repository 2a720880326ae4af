//! What an export remembers of requests with an origin, in a file that outlives the process.
//!
//! Written without `fsync`: the page cache outlives the process too. With [`Keeping::Sync`] it outlives the machine.
//! Requests that come while others are being written go together in one call.
//!
//! | file | purpose |
//! |---|---|
//! | `log.rs` | the file: opened, cut where it is torn, written, made small again |
//! | `once.rs` | requests for names and attributes, each carried out once |

mod log;
mod once;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use iogate_core::answers::{AppendIntent, Key, Limits, Memory, Note, Outcome, State as Noted, Table};
use iogate_core::wire::{Identity, Record, Request};

use super::lock;
use log::{Batch, File};

/// How long what an export remembers is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Until the machine restarts.
    #[default]
    Boot,
    /// For good: requests that need it are answered when it is durable.
    Sync,
}

/// What an export remembers of requests with an origin.
pub struct Answers {
    state: Mutex<State>,
    /// A batch has been written.
    written: Condvar,
    keeping: Keeping,
    number: u64,
    /// Records that were being appended to files when the process before ended.
    appends: Mutex<HashMap<Identity, Vec<(Key, AppendIntent)>>>,
}

type Job = Box<dyn FnOnce() + Send>;

struct State {
    table: Table,
    /// Requests that are being carried out, and who waits for each.
    running: HashMap<Key, Vec<Job>>,
    file: Arc<File>,
    /// Notes that are not written, and who waits for them.
    buffer: Vec<u8>,
    batch: Arc<Batch>,
    /// A thread writes the batch before.
    writing: bool,
    /// Threads that wait for that.
    waiting: usize,
}

/// What is known of a request that has come.
pub(super) enum Begun {
    /// It is to be carried out now.
    New(Running),
    /// It was: the bytes of its [`Outcome`], or the remembered value.
    Known(Vec<u8>),
    /// It is being carried out, and `wait` goes on then.
    Running,
    /// Nobody can tell any more whether it was.
    Unknown,
}

/// A note to be written: request, what its client needs no more, and what to remember.
pub(crate) struct ToNote {
    pub(crate) key: Key,
    /// See [`Note::below`].
    pub(crate) below: u64,
    pub(crate) state: Noted,
    pub(crate) bytes: Vec<u8>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Answers {
    /// Opens the log at `path`, or begins it. Its folder is made if it is not there. Fails with [`io::ErrorKind::WouldBlock`] if
    /// another process has it, and if the folder or the file is not this user's own.
    pub fn open(path: &Path, keeping: Keeping) -> io::Result<Answers> {
        let mut table = Table::new(Limits::default());
        let (file, number) = File::open(path, keeping == Keeping::Sync, |note| table.note(note))?;
        table.expire(now());
        let state = State {
            table,
            running: HashMap::new(),
            file: Arc::new(file),
            buffer: Vec::new(),
            batch: Arc::default(),
            writing: false,
            waiting: 0,
        };
        let (state, written) = (Mutex::new(state), Condvar::new());
        let answers = Answers { state, written, keeping, number, appends: Mutex::default() };
        for (key, bytes) in answers.unsettled() {
            if let Ok(intent) = AppendIntent::decode(&bytes)
                && intent.kind == Request::WRITE
            {
                lock(&answers.appends).entry(intent.file).or_default().push((key, intent));
            }
        }
        Ok(answers)
    }

    /// The same as long as nothing that should be remembered is lost; not zero.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many requests are remembered.
    pub fn len(&self) -> usize {
        lock(&self.state).table.len()
    }

    /// Whether no request is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is remembered of a request with [`Noted::Value`]; `None` if nothing is.
    pub fn value(&self, key: &Key) -> Option<Vec<u8>> {
        match lock(&self.state).table.look(key) {
            Memory::Noted(Noted::Value, bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }

    /// All remembered values.
    pub(crate) fn values(&self) -> Vec<(Key, Vec<u8>)> {
        let state = lock(&self.state);
        let notes = state.table.notes().filter(|note| note.state == Noted::Value);
        notes.map(|note| (note.key, note.bytes.to_vec())).collect()
    }

    /// Remembers notes, all in one batch. They are in the log when this returns; if that fails, they are forgotten again (but
    /// outcomes, of which the log then knows less than the process).
    pub(crate) fn remember(&self, notes: &[ToNote]) -> io::Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let time = now();
        let mut state = lock(&self.state);
        for ToNote { key, below, state: noted, bytes } in notes {
            let note = Note { key: *key, below: *below, time, state: *noted, bytes };
            let State { table, buffer, .. } = &mut *state;
            table.note(&note);
            note.encode(buffer);
        }
        let batch = Arc::clone(&state.batch);
        let (mut state, result) = self.write(state, &batch);
        if result.is_err() {
            for ToNote { key, below, state: noted, .. } in notes {
                if *noted != Noted::Outcome {
                    state.table.note(&Note {
                        key: *key,
                        below: *below,
                        time,
                        state: Noted::Void,
                        bytes: &[],
                    });
                }
            }
        }
        result
    }

    /// Waits until a batch is written; writes it unless somebody else is writing.
    fn write<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        batch: &Arc<Batch>,
    ) -> (MutexGuard<'a, State>, io::Result<()>) {
        loop {
            if let Some(result) = batch.result() {
                return (state, result);
            }
            if state.writing {
                state.waiting += 1;
                state = self.written.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                state.waiting -= 1;
                continue;
            }
            state.writing = true;
            let current = std::mem::take(&mut state.batch);
            let bytes = std::mem::take(&mut state.buffer);
            let file = Arc::clone(&state.file);
            // The table has the batch's notes already.
            let image = file.is_worth_shrinking(state.table.log_bytes()).then(|| {
                state.table.expire(now());
                let mut image = Vec::with_capacity(state.table.log_bytes());
                state.table.notes().for_each(|note| note.encode(&mut image));
                image
            });
            drop(state);
            let sync = self.keeping == Keeping::Sync;
            let shrunk = image.and_then(|image| file.shrink(&image, sync));
            let written = if shrunk.is_some() { Ok(()) } else { file.append(&bytes, sync) };
            if let Err(error) = &written {
                tracing::error!(%error, "what must be remembered of requests cannot be written: they fail");
            }
            state = lock(&self.state);
            if let Some(shrunk) = shrunk {
                state.file = Arc::new(shrunk);
            }
            state.writing = false;
            current.settle(&written);
            if state.waiting > 0 {
                self.written.notify_all();
            }
        }
    }

    /// Takes in a request that must not be carried out twice.
    pub(super) fn begin(self: &Arc<Self>, key: Key, below: u64) -> Begun {
        let mut state = lock(&self.state);
        if state.running.contains_key(&key) {
            return Begun::Running;
        }
        match state.table.look(&key) {
            Memory::Nothing => {}
            Memory::Noted(Noted::Outcome | Noted::Value, bytes) => return Begun::Known(bytes.to_vec()),
            Memory::Noted(..) | Memory::Forgotten => return Begun::Unknown,
        }
        state.running.insert(key, Vec::new());
        Begun::New(Running { answers: Arc::clone(self), key, below, is_over: false })
    }

    /// Goes on when a request that is being carried out is done, or now if it is. `then` must not block.
    pub(super) fn wait(&self, key: &Key, then: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        match state.running.get_mut(key) {
            Some(waiting) => waiting.push(Box::new(then)),
            None => {
                drop(state);
                then();
            }
        }
    }

    /// A request is no longer being carried out.
    fn end(&self, key: &Key) {
        let mut state = lock(&self.state);
        let Entry::Occupied(running) = state.running.entry(*key) else { return };
        let waiting = running.remove();
        drop(state);
        waiting.into_iter().for_each(|then| then());
    }

    /// Whether records were being appended to a file when the process before ended, and nobody has looked yet.
    pub(super) fn has_unsettled(&self, file: &Identity) -> bool {
        lock(&self.appends).contains_key(file)
    }

    /// These records, in the order of their places.
    pub(super) fn take_unsettled(&self, file: &Identity) -> Vec<(Key, AppendIntent)> {
        let mut records = lock(&self.appends).remove(file).unwrap_or_default();
        records.sort_by_key(|(_, intent)| intent.place);
        records
    }

    /// The intents that have no outcome.
    pub(super) fn unsettled(&self) -> Vec<(Key, Vec<u8>)> {
        let state = lock(&self.state);
        let notes = state.table.notes().filter(|note| note.state == Noted::Intent);
        notes.map(|note| (note.key, note.bytes.to_vec())).collect()
    }
}

/// A request that is being carried out; who asks for the same meanwhile waits until this is dropped.
pub(super) struct Running {
    answers: Arc<Answers>,
    pub(super) key: Key,
    pub(super) below: u64,
    is_over: bool,
}

impl Running {
    /// Notes what is about to be done. If that fails, it must not be done.
    pub(super) fn intend<'a>(&self, intent: &impl Record<'a>) -> io::Result<()> {
        let mut bytes = Vec::new();
        intent.encode(&mut bytes);
        self.answers.remember(&[self.note(Noted::Intent, bytes)])
    }

    /// What to note for it.
    pub(super) fn note(&self, state: Noted, bytes: Vec<u8>) -> ToNote {
        ToNote { key: self.key, below: self.below, state, bytes }
    }

    /// Notes what was done, or why it was not.
    pub(super) fn finish(mut self, outcome: &Outcome<'_>) {
        let mut bytes = Vec::new();
        outcome.encode(&mut bytes);
        // If the log does not take it, its intent there tells as much.
        let _ = self.answers.remember(&[self.note(Noted::Outcome, bytes)]);
        self.over();
    }

    /// It is over, and what became of it has been noted.
    pub(super) fn over(&mut self) {
        self.is_over = true;
        self.answers.end(&self.key);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.answers.end(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
