//! Requests that must not be carried out twice: each is carried out by one at a time, and its notes are written before they count.
//!
//! [`Once`] decides, and its driver acts. `J` is what goes on when a request that somebody else carries out is done. Notes that come
//! while others are being written go together in one batch. The server of `iogate-net` drives it over a file.
//!
//! # How to drive it
//! 1. A request that has come [begins](Once::begin), with the names that it changes. If it is new, its intent is [noted](Once::note) and
//!    written before anything is done, its outcome before anybody is told, and then it [ends](Once::end). One that only this process must
//!    not carry out twice [begins](Once::begin_recent) and [ends](Once::end_recent) without notes.
//! 2. Notes are written by whoever finds nobody writing: [`begin_writing`](Once::begin_writing) says what, and
//!    [`written`](Once::written) takes what came of it. A note counts once its batch is [settled](Once::settled).
//!
//! # What it promises
//! - One at a time carries out a request, and none whose outcome is known, or of which nobody knows any more.
//! - One request at a time has a name.
//! - Notes are written in the order in which they came, each in one batch.
//! - If a batch fails, its intents and values are forgotten: what they announce must not be done. What was remembered before them is
//!   remembered again. Its outcomes stay, as what they tell has been done.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use super::table::Entry;
use super::underway::{Name, Underway};
use super::{AppendIntent, Key, Limits, Memory, Note, Recent, State, Table};
use crate::hash::HashMap;
use crate::wire::{Identity, Record, Request};

/// Requests that must not be carried out twice.
#[derive(Debug)]
pub struct Once<J> {
    table: Table,
    /// Answers that are in no log.
    recent: Recent,
    underway: Underway<J>,
    /// Notes that nobody has begun to write.
    batch: Batch,
    /// Notes that are being written.
    writing: Option<Batch>,
    /// Batches that failed: why, and how many have not heard of it.
    failed: BTreeMap<u64, (i32, usize)>,
    /// Records that were being appended when the process before ended, while its notes are taken in.
    unsettled: BTreeMap<Key, AppendIntent>,
    /// The same by file, until somebody has looked what became of them.
    appends: HashMap<Identity, Vec<(Key, AppendIntent)>>,
}

/// What is known of a request that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun<'a> {
    /// It is to be carried out now, and then to [end](Once::end).
    New,
    /// It was carried out: the bytes of its [`Outcome`](super::Outcome), or the remembered value or answer.
    Known(&'a [u8]),
    /// It is being carried out: [wait](Once::wait).
    Running,
    /// Another has one of its names: [wait](Once::wait), begin it then, or [give it up](Once::give_up).
    Taken,
    /// Nobody can tell any more whether it was.
    Unknown,
}

/// A note to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToNote {
    /// The request.
    pub key: Key,
    /// What its client needs no more, see [`Note::below`].
    pub below: u64,
    /// What the bytes are.
    pub state: State,
    /// What to remember.
    pub bytes: Vec<u8>,
}

/// Notes that are written together, by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId(u64);

/// What is to be written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Writing {
    /// The notes of the batch.
    pub notes: Vec<u8>,
    /// All that is remembered, these notes among it.
    pub all: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Batch {
    id: u64,
    bytes: Vec<u8>,
    /// What is forgotten again if it cannot be written, and what was remembered before.
    undo: Vec<(Key, Option<Entry>)>,
    /// How many have given notes to it.
    givers: usize,
}

impl<J> Once<J> {
    /// Nothing is known yet.
    pub fn new(limits: Limits) -> Once<J> {
        Once {
            table: Table::new(limits),
            recent: Recent::new(limits.recent, limits.seconds),
            underway: Underway::new(),
            batch: Batch::default(),
            writing: None,
            failed: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            appends: HashMap::default(),
        }
    }

    /// Takes in a note of the process before.
    pub fn restore(&mut self, note: &Note<'_>) {
        let intent = AppendIntent::decode(note.bytes).ok().filter(|intent| intent.kind == Request::WRITE);
        match (note.state, intent) {
            (State::Intent, Some(intent)) => drop(self.unsettled.insert(note.key, intent)),
            (State::Client, _) => {}
            _ => drop(self.unsettled.remove(&note.key)),
        }
        self.table.note(note);
    }

    /// All notes of the process before have been taken in; `now` is in seconds since the Unix epoch.
    pub fn restored(&mut self, now: u64) {
        for (key, intent) in mem::take(&mut self.unsettled) {
            self.appends.entry(intent.file).or_default().push((key, intent));
        }
        self.table.expire(now);
    }

    /// What is remembered.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Takes in a request that changes these names. No other has one of them until it [ends](Once::end).
    pub fn begin(&mut self, key: Key, names: &[Name<'_>]) -> Begun<'_> {
        if self.underway.has(&key) {
            return Begun::Running;
        }
        match self.table.look(&key) {
            Memory::Nothing if self.underway.begin(key, names) => Begun::New,
            Memory::Nothing => Begun::Taken,
            Memory::Noted(State::Outcome | State::Value, bytes) => Begun::Known(bytes),
            Memory::Noted(..) | Memory::Forgotten => Begun::Unknown,
        }
    }

    /// Takes in a request that only this process must not carry out twice. The time, in seconds of a clock that does not go back, is
    /// asked for if there is an answer.
    pub fn begin_recent(&mut self, key: Key, now: impl FnOnce() -> u64) -> Begun<'_> {
        if self.underway.has(&key) {
            return Begun::Running;
        }
        match self.recent.look(&key, now) {
            Some(answer) => Begun::Known(answer),
            None => {
                self.underway.begin(key, &[]);
                Begun::New
            }
        }
    }

    /// Such a request is done, with this answer. Returns what goes on now.
    #[must_use]
    pub fn end_recent(&mut self, key: &Key, answer: &[u8], now: u64) -> Vec<J> {
        self.recent.put(key, answer, now);
        self.end(key)
    }

    /// Has `then` go on when a request is done that is being carried out, or when it can have its names. Returns it if there is nothing to
    /// wait for: then it goes on now.
    pub fn wait(&mut self, key: &Key, names: &[Name<'_>], then: J) -> Option<J> {
        self.underway.wait(key, names, then)
    }

    /// One that has [waited](Once::wait) for its names has gone on; if it has not [begun](Once::begin), they are given up. Returns what
    /// goes on now.
    #[must_use]
    pub fn give_up(&mut self, key: &Key) -> Vec<J> {
        self.underway.give_up(key)
    }

    /// A request is no longer being carried out. Returns what goes on now.
    #[must_use]
    pub fn end(&mut self, key: &Key) -> Vec<J> {
        self.underway.end(key)
    }

    /// Takes in notes at `now`, in seconds since the Unix epoch; they are written together. Whoever gives some asks for what came of it,
    /// until it is [settled](Once::settled).
    pub fn note(&mut self, notes: &[ToNote], now: u64) -> BatchId {
        for ToNote { key, below, state, bytes } in notes {
            let note = Note { key: *key, below: *below, time: now, state: *state, bytes };
            let before = self.table.note(&note);
            note.encode(&mut self.batch.bytes);
            if matches!(state, State::Intent | State::Value) {
                self.batch.undo.push((*key, before));
            }
        }
        self.batch.givers += 1;
        BatchId(self.batch.id)
    }

    /// Begins to write the notes that have come, which nobody else does meanwhile. If the log `begins_anew`, all that is
    /// remembered goes with them, as far as it is not too old at `now`.
    pub fn begin_writing(&mut self, begins_anew: bool, now: u64) -> Writing {
        let next = Batch { id: self.batch.id + 1, ..Batch::default() };
        let mut batch = mem::replace(&mut self.batch, next);
        let notes = mem::take(&mut batch.bytes);
        self.writing = Some(batch);
        let all = begins_anew.then(|| {
            self.table.expire(now);
            let mut all = Vec::with_capacity(self.table.log_bytes());
            // What a record has left in its file is to be looked for however long ago that was, and whoever asks for it still.
            for (key, intent) in self.appends.values().flatten() {
                let mut bytes = Vec::new();
                intent.encode(&mut bytes);
                let (key, state) = (*key, State::Intent);
                Note { key, below: 0, time: now, state, bytes: &bytes }.encode(&mut all);
            }
            self.table.notes().for_each(|note| note.encode(&mut all));
            all
        });
        Writing { notes, all }
    }

    /// What was being written is in the log, or is not, with this errno.
    pub fn written(&mut self, result: Result<(), i32>) {
        let Some(batch) = self.writing.take() else { return };
        let Err(errno) = result else { return };
        for (key, before) in batch.undo.into_iter().rev() {
            // What was noted since then stays, and so would what was before it.
            match self.batch.undo.iter_mut().find(|(noted, _)| *noted == key) {
                Some((_, then)) => *then = before,
                None => self.table.put_back(&key, before),
            }
        }
        if batch.givers > 0 {
            self.failed.insert(batch.id, (errno, batch.givers));
        }
    }

    /// What came of the notes of a batch, with an errno if they are not in the log; `None` if nobody knows yet. To be asked until it is
    /// known, by each who has given some.
    pub fn settled(&mut self, batch: BatchId) -> Option<Result<(), i32>> {
        let BatchId(id) = batch;
        if id == self.batch.id || self.writing.as_ref().is_some_and(|writing| writing.id == id) {
            return None;
        }
        let Some((errno, unheard)) = self.failed.get_mut(&id) else { return Some(Ok(())) };
        let errno = *errno;
        *unheard -= 1;
        if *unheard == 0 {
            self.failed.remove(&id);
        }
        Some(Err(errno))
    }

    /// The requests whose intent has no outcome.
    pub fn unsettled(&self) -> impl Iterator<Item = (Key, &[u8])> {
        let intents = self.table.notes().filter(|note| note.state == State::Intent);
        intents.map(|note| (note.key, note.bytes))
    }

    /// Whether records were being appended to a file when the process before ended, and nobody has looked yet.
    pub fn has_unsettled(&self, file: &Identity) -> bool {
        self.appends.contains_key(file)
    }

    /// These records, in the order of their places. Until it is [noted](Once::note) what became of them, they are to be [looked
    /// for](Once::has_unsettled).
    pub fn unsettled_of(&self, file: &Identity) -> Vec<(Key, AppendIntent)> {
        let mut records = self.appends.get(file).cloned().unwrap_or_default();
        records.sort_by_key(|(_, intent)| intent.place);
        records
    }

    /// What became of a file's records has been noted.
    pub fn settle(&mut self, file: &Identity) {
        self.appends.remove(file);
    }
}

#[cfg(test)]
mod tests;
