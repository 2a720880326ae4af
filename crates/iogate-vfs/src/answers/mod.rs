//! What an export remembers of requests that must not be carried out twice, in a file that outlives the process.
//!
//! Written without `fsync`: the page cache outlives the process too. With [`Keeping::Sync`] it outlives the machine.
//! Which requests are carried out, and when what is noted counts, the core decides: `iogate_core::answers`.
//! The file itself (locked, written, replaced) is in `file.rs`.

mod file;
pub mod losses;

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub use iogate_core::answers::ToNote;
use iogate_core::answers::{
    AppendIntent, BatchId, Begun as Found, Key, Limits, Log, Memory, Name, Once, Outcome, State as Noted,
};
use iogate_core::medium::Medium;
use iogate_core::wire::{Identity, Record};

use iogate_engine::lock;

use crate::{Clock, private};
use file::{File, boot_number};

/// How long what an export remembers is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Until the machine restarts.
    #[default]
    Boot,
    /// For good: requests that need it are answered when it is durable.
    Sync,
}

/// What an export remembers of requests that must not be carried out twice.
pub struct Answers {
    state: Mutex<State>,
    /// A batch has been written.
    written: Condvar,
    number: u64,
    /// There is a log.
    is_kept: bool,
    clock: Clock,
}

/// Where a log of answers lies.
pub trait LogFile: Medium<Error = io::Error> + Send {
    /// What it is called, for messages.
    fn path(&self) -> &Path;

    /// Keeps room behind the end, so that files can be removed when the file system is full.
    fn reserve(&mut self, end: u64) {
        let _ = end;
    }
}

type Job = Box<dyn FnOnce() + Send>;

struct State {
    once: Once<Job>,
    /// `None`: a thread writes, or there is none.
    log: Option<Log<Box<dyn LogFile>>>,
    /// Threads that wait for that.
    waiting: usize,
}

/// What is known of a request that has come.
pub enum Begun {
    /// It is to be carried out now.
    New(Running),
    /// It was: the bytes of its [`Outcome`], or the remembered value or answer.
    Known(Vec<u8>),
    /// It is being carried out, and [`Answers::wait`] goes on then.
    Running,
    /// Another has one of its names: [`Answers::wait_for_names`] goes on then, to begin it.
    Taken,
    /// Nobody can tell any more whether it was.
    Unknown,
}

/// What a look-up has found for a [`NameIntent`](iogate_core::answers::NameIntent); `None` if there is nothing of the name. Any other
/// failure does not tell that nothing is there: it stays one.
pub fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENODATA) => Ok(None),
            _ => Err(error),
        },
    }
}

fn seconds(clock: &Clock) -> u64 {
    clock.wall() / 1_000_000_000
}

impl Answers {
    /// Opens the log at `path`, or begins it. Its folder is made if it is not there. Fails with [`io::ErrorKind::WouldBlock`] if
    /// another process has it, and if the folder or the file is not this user's own.
    pub fn open(path: &Path, keeping: Keeping) -> io::Result<Answers> {
        Answers::open_within(path, keeping, Limits::default())
    }

    /// As [`Answers::open`], with other bounds.
    pub fn open_within(path: &Path, keeping: Keeping, limits: Limits) -> io::Result<Answers> {
        let sync = keeping == Keeping::Sync;
        let file = File::open(path, sync)?;
        // A log that is synced does not depend on the boot.
        let boot = if sync { [0; 16] } else { boot_number(file.boot())? };
        Answers::on(Box::new(file), (boot, private::random()?), limits, Clock::REAL)
    }

    /// Opens the log on a file, or begins it. It is of use to processes of the same `boot` only; one that is begun is called `id`, which
    /// is random.
    pub fn on(
        file: Box<dyn LogFile>,
        (boot, id): ([u8; 16], [u8; 16]),
        limits: Limits,
        clock: Clock,
    ) -> io::Result<Answers> {
        let mut once = Once::new(limits);
        let mut log = Log::open(file, boot, id, |note| once.restore(note))?;
        once.restored(seconds(&clock));
        let (number, end) = (log.number(), log.bytes());
        log.medium_mut().reserve(end);
        let state = Mutex::new(State { once, log: Some(log), waiting: 0 });
        Ok(Answers { state, written: Condvar::new(), number, is_kept: true, clock })
    }

    /// What is remembered as long as the process runs, without a log.
    pub fn in_memory(limits: Limits) -> Answers {
        let state = Mutex::new(State { once: Once::new(limits), log: None, waiting: 0 });
        Answers { state, written: Condvar::new(), number: 1, is_kept: false, clock: Clock::REAL }
    }

    /// The same as long as nothing that should be remembered is lost; not zero.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many requests are remembered.
    pub fn len(&self) -> usize {
        lock(&self.state).once.table().len()
    }

    /// Whether no request is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is remembered of a request with [`Noted::Value`]; `None` if nothing is.
    pub fn value(&self, key: &Key) -> Option<Vec<u8>> {
        match lock(&self.state).once.table().look(key) {
            Memory::Noted(Noted::Value, bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }

    /// All remembered values.
    pub fn values(&self) -> Vec<(Key, Vec<u8>)> {
        let state = lock(&self.state);
        let notes = state.once.table().notes().filter(|note| note.state == Noted::Value);
        notes.map(|note| (note.key, note.bytes.to_vec())).collect()
    }

    fn now(&self) -> u64 {
        seconds(&self.clock)
    }

    /// Remembers notes, all in one batch. They are in the log when this returns; if that fails, they are forgotten again (but
    /// outcomes, of which the log then knows less than the process).
    pub fn remember(&self, notes: &[ToNote]) -> io::Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let mut state = lock(&self.state);
        let batch = state.once.note(notes, self.now());
        if !self.is_kept {
            state.once.begin_writing(false, self.now());
            state.once.written(Ok(()));
            return Ok(());
        }
        self.write(state, batch)
    }

    /// Waits until a batch is written; writes it unless somebody else is writing.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>, batch: BatchId) -> io::Result<()> {
        loop {
            if let Some(result) = state.once.settled(batch) {
                return result.map_err(io::Error::from_raw_os_error);
            }
            let Some(mut log) = state.log.take() else {
                state.waiting += 1;
                state = self.written.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                state.waiting -= 1;
                continue;
            };
            let begins_anew = log.is_worth_shrinking(state.once.table().log_bytes());
            let writing = state.once.begin_writing(begins_anew, self.now());
            drop(state);
            let written = log.write(&writing.notes, writing.all.as_deref());
            for notice in log.notices() {
                tracing::warn!("the log of answers {}: {notice}", log.medium_mut().path().display());
            }
            if let Err(error) = &written {
                tracing::error!(%error, "what must be remembered of requests cannot be written: they fail");
            }
            state = lock(&self.state);
            state.log = Some(log);
            let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
            state.once.written(written.map_err(errno));
            if state.waiting > 0 {
                self.written.notify_all();
            }
        }
    }

    /// Takes in a request that must not be carried out twice, and the names that it changes: no other has one of them until it is over.
    pub fn begin(self: &Arc<Self>, key: Key, below: u64, names: &[Name<'_>]) -> Begun {
        self.begun(lock(&self.state).once.begin(key, names), key, below)
    }

    /// Seconds of a clock that does not go back.
    fn uptime(&self) -> u64 {
        self.clock.now().as_nanos() / 1_000_000_000
    }

    /// Takes in a request that only this process must not carry out twice: it ends with [`Running::answer`], and is in no log.
    pub fn begin_recent(self: &Arc<Self>, key: Key) -> Begun {
        self.begun(lock(&self.state).once.begin_recent(key, || self.uptime()), key, 0)
    }

    fn begun(self: &Arc<Self>, found: Found<'_>, key: Key, below: u64) -> Begun {
        match found {
            Found::New => Begun::New(Running { answers: Arc::clone(self), key, below, is_over: false }),
            Found::Known(bytes) => Begun::Known(bytes.to_vec()),
            Found::Running => Begun::Running,
            Found::Taken => Begun::Taken,
            Found::Unknown => Begun::Unknown,
        }
    }

    /// Goes on when a request is done that is being carried out, or now if it is. `then` must not block.
    pub fn wait(&self, key: &Key, then: impl FnOnce() + Send + 'static) {
        let now = lock(&self.state).once.wait(key, &[], Box::new(then));
        if let Some(then) = now {
            then();
        }
    }

    /// Goes on when a request has its names that are [taken](Begun::Taken), or now if they are not. `then` must not block. It is to begin
    /// the request before it drops its turn.
    pub fn wait_for_names(
        self: &Arc<Self>,
        key: &Key,
        names: &[Name<'_>],
        then: impl FnOnce(Turn) + Send + 'static,
    ) {
        let turn = Turn { answers: Arc::clone(self), key: *key };
        let now = lock(&self.state).once.wait(key, names, Box::new(move || then(turn)));
        if let Some(then) = now {
            then();
        }
    }

    /// A request is no longer being carried out.
    fn end(&self, key: &Key) {
        let waiting = lock(&self.state).once.end(key);
        waiting.into_iter().for_each(|then| then());
    }

    /// Whether records were being appended to a file when the process before ended, and nobody has looked yet.
    pub fn has_unsettled(&self, file: &Identity) -> bool {
        lock(&self.state).once.has_unsettled(file)
    }

    /// These records, in the order of their places; [settled](Answers::settle) once it is noted what became of them.
    pub fn unsettled_of(&self, file: &Identity) -> Vec<(Key, AppendIntent)> {
        lock(&self.state).once.unsettled_of(file)
    }

    /// What became of a file's records has been noted.
    pub fn settle(&self, file: &Identity) {
        lock(&self.state).once.settle(file);
    }

    /// The intents that have no outcome.
    pub fn unsettled(&self) -> Vec<(Key, Vec<u8>)> {
        let state = lock(&self.state);
        state.once.unsettled().map(|(key, bytes)| (key, bytes.to_vec())).collect()
    }
}

/// A request that is being carried out; who asks for the same meanwhile waits until this is dropped.
pub struct Running {
    answers: Arc<Answers>,
    key: Key,
    below: u64,
    is_over: bool,
}

impl Running {
    /// Notes what is about to be done. If that fails, it must not be done.
    pub fn intend<'a>(&self, intent: &impl Record<'a>) -> io::Result<()> {
        let mut bytes = Vec::new();
        intent.encode(&mut bytes);
        self.answers.remember(&[self.note(Noted::Intent, bytes)])
    }

    /// What to note for it.
    pub fn note(&self, state: Noted, bytes: Vec<u8>) -> ToNote {
        ToNote { key: self.key, below: self.below, state, bytes }
    }

    /// Notes what was done, or why it was not.
    pub fn finish(mut self, outcome: &Outcome<'_>) {
        let mut bytes = Vec::new();
        outcome.encode(&mut bytes);
        // If the log does not take it, its intent there tells as much.
        let _ = self.answers.remember(&[self.note(Noted::Outcome, bytes)]);
        self.over();
    }

    /// It was not done after all, although its intent may have been noted: it may be, when it comes again.
    pub fn void(mut self) {
        let _ = self.answers.remember(&[self.note(Noted::Void, Vec::new())]);
        self.over();
    }

    /// It was done, and its answer is remembered by this process alone.
    pub fn answer(mut self, answer: &[u8]) {
        self.is_over = true;
        let now = self.answers.uptime();
        let waiting = lock(&self.answers.state).once.end_recent(&self.key, answer, now);
        waiting.into_iter().for_each(|then| then());
    }

    /// It is over, and what became of it has been noted.
    pub fn over(&mut self) {
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

/// The turn of a request that has waited for its names. If it has not begun when this is dropped, they are the next one's.
pub struct Turn {
    answers: Arc<Answers>,
    key: Key,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = lock(&self.answers.state).once.give_up(&self.key);
        next.into_iter().for_each(|then| then());
    }
}

#[cfg(test)]
mod tests;
