//! Writes at the end of a file: a lane for each file, shared by all who have it open.
//!
//! In which order records go, and which together, the core decides: `iogate_core::proto::append_lane`. Where the file is
//! this machine's, the kernel decides where a batch goes (`O_APPEND`), with respect to everybody who writes to the file; else
//! the file's size does, when the batch before is done.
//!
//! No lock of the lane is held while anything is asked of the file, the gate or the log of answers; completions only hand a batch on to a
//! worker. Only who opens the file's description keeps out others who need it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use iogate_core::answers::{AppendIntent, Key, Lies, Outcome, State};
use iogate_core::proto::append_lane::{self, AppendLane};
use iogate_core::wire::{Identity, Record, Request, Written};
use iogate_core::{FileId, Op};
use iogate_engine::store::{AppendFile, Appended};
use iogate_engine::{Completion, FileHandle, PAGE_BYTES, Transfer};
use iogate_vfs::TreeFile;
use rustix::io::Errno;

use super::buffer::Buffer;
use super::export::Served;
use super::incoming::TakenIn;
use super::lock;
use super::session::{OpenFile, Session};
use super::transfers::Write;
use crate::system::again;
use iogate_vfs::answers::{Answers, Begun, Running, ToNote};

/// Lanes that are there before those that nobody uses are looked for.
const LANES_MIN: usize = 1024;

/// The lanes of an export's files.
#[derive(Default)]
pub(super) struct Appends {
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    files: HashMap<(FileId, Identity), Weak<Lane>>,
    /// How many there are before unused ones are dropped.
    enough: usize,
}

impl Appends {
    /// The lane of a file. Files whose end somebody behind the tree decides have one for each handle: they are not in order among
    /// each other anyway, and need not wait for each other.
    pub(super) fn lane(&self, file: &dyn TreeFile) -> Arc<Lane> {
        if file.appends_elsewhere() {
            return Arc::default();
        }
        let mut lanes = lock(&self.lanes);
        if lanes.files.len() > lanes.enough.max(LANES_MIN) {
            lanes.files.retain(|_, lane| lane.strong_count() > 0);
            lanes.enough = 2 * lanes.files.len();
        }
        let slot = lanes.files.entry((file.data().id(), file.identity())).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let lane = Arc::default();
            *slot = Arc::downgrade(&lane);
            lane
        })
    }
}

/// The records that are to be appended to a file.
#[derive(Default)]
pub(super) struct Lane {
    queue: Mutex<AppendLane<Append>>,
    /// The file's own description; `None`: it has none.
    appender: OnceLock<Option<Arc<AppendFile>>>,
    /// One at a time opens it.
    opening: Mutex<()>,
}

/// A record that is to be appended.
pub(super) struct Append {
    pub(super) write: Write,
    /// When it came.
    pub(super) since: Instant,
    /// It is remembered, so that it is not appended twice.
    running: Option<Running>,
}

impl Append {
    pub(super) fn new(write: Write) -> Append {
        Append { write, since: Instant::now(), running: None }
    }

    fn bytes(&self) -> &[u8] {
        self.write.bytes()
    }

    /// Answers. What became of it has been noted.
    fn complete(mut self, result: io::Result<Written>) {
        if let Some(running) = &mut self.running {
            running.over();
        }
        self.write.complete(result);
    }

    fn fail(self, error: &io::Error) {
        let error = again(error);
        self.complete(Err(error));
    }
}

/// Records that go together.
struct Batch {
    records: Vec<Append>,
    /// Several of them, one behind the other.
    joined: Option<Buffer>,
    bytes: usize,
    /// Where it goes, if nobody else appends meanwhile.
    place: u64,
}

impl Batch {
    fn memory(&mut self) -> *mut u8 {
        match &mut self.joined {
            Some(joined) => joined.as_mut_ptr(),
            None => self.records[0].write.memory(),
        }
    }

    /// Where each record begins in it.
    fn starts(&self) -> Vec<u64> {
        let lengths = self.records.iter().map(|record| record.bytes().len() as u64);
        let sum = |end: &mut u64, bytes| {
            *end += bytes;
            Some(*end - bytes)
        };
        lengths.scan(0, sum).collect()
    }
}

impl Lane {
    /// Takes in a record that is to be appended when all before it are there. Returns whether the caller is to have somebody
    /// [go on](Lane::go_on): nobody is at it.
    #[must_use]
    fn push(&self, append: Append) -> bool {
        let bytes = append.bytes().len();
        lock(&self.queue).push(append, bytes)
    }

    /// Has a worker go on.
    fn go_on_soon(self: &Arc<Self>, session: &Session) {
        let lane = Arc::clone(self);
        session.run(move || lane.go_on());
    }

    /// Puts records back in front of those that wait.
    fn put_back(&self, records: impl DoubleEndedIterator<Item = Append>, alone: usize) {
        let with_bytes = records.map(|record| {
            let bytes = record.bytes().len();
            (record, bytes)
        });
        lock(&self.queue).put_back(with_bytes, alone);
    }

    /// Carries out what waits. Where a batch is not done at once, somebody goes on when it is.
    fn go_on(self: &Arc<Self>) {
        loop {
            let records = lock(&self.queue).take();
            if records.is_empty() {
                return;
            }
            let records: Vec<Append> = records.into_iter().filter_map(|record| self.admit(record)).collect();
            let Some(first) = records.first() else { continue };
            if !first.write.file.file.appends_elsewhere() {
                let Some(batch) = self.begin(records) else { continue };
                match self.submit(batch) {
                    Some(done) => self.finish(done),
                    None => return,
                }
                continue;
            }
            for record in records {
                let write = &record.write;
                let verifier = write.file.file.verifier();
                let appended = write.file.file.append(write.caller, write.origin(), record.bytes());
                let appended = appended.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()));
                record.complete(appended.map(|written| Written { verifier, ..written }));
            }
        }
    }

    /// Answers a record that is known, drops one that nobody waits for, and lets the others pass.
    fn admit(self: &Arc<Self>, record: Append) -> Option<Append> {
        let Append { write, since, running } = record;
        let Some(write) = write.if_wanted(since) else {
            // If it was tried before, its intent is in the log, and nothing of it in the file.
            if let Some(running) = running {
                running.void();
            }
            return None;
        };
        let session = write.session();
        let answers = session.export.answers.clone().filter(|_| running.is_none());
        let key = Key::of(write.caller.uid, &write.caller.origin);
        let (Some(answers), Some(key)) = (answers, key) else {
            return Some(Append { write, since, running });
        };
        let error = |errno| io::Error::from_raw_os_error(errno);
        match answers.begin(key, write.caller.origin.answered_below(), &[]) {
            Begun::New(running) => return Some(Append { write, since, running: Some(running) }),
            Begun::Running | Begun::Taken => {
                let lane = Arc::clone(self);
                answers.wait(&key, move || {
                    let session = Arc::clone(write.session());
                    if lane.push(Append { write, since, running: None }) {
                        lane.go_on_soon(&session);
                    }
                });
            }
            Begun::Unknown => write.complete(Err(error(libc::EIO))),
            Begun::Known(known) => write.complete(match Outcome::decode(&known) {
                Ok(known) if known.errno != 0 => Err(error(known.errno.into())),
                Ok(known) => Written::decode(known.fields).map_err(|_| error(libc::EIO)),
                Err(_) => Err(error(libc::EIO)),
            }),
        }
        None
    }

    /// The file's own description, which is opened by the first record. A failure is not for good.
    fn appender(&self, file: &OpenFile, export: &Served) -> io::Result<Option<&Arc<AppendFile>>> {
        let _opening = lock(&self.opening);
        if let Some(appender) = self.appender.get() {
            return Ok(appender.as_ref());
        }
        let appender = file.file.append_file()?;
        if let (Some(answers), Some(appender)) = (&export.answers, &appender) {
            settle(answers, &*file.file, appender);
        }
        Ok(self.appender.get_or_init(|| appender).as_ref())
    }

    /// Finds out what became of records that were underway when the process before ended. Before anybody can change the file.
    pub(super) fn settle(&self, file: &OpenFile, export: &Served) -> io::Result<()> {
        let is_due = |answers: &Arc<Answers>| answers.has_unsettled(&file.file.identity());
        if export.answers.as_ref().is_some_and(is_due) {
            self.appender(file, export)?;
        }
        Ok(())
    }

    /// Makes a batch of records, and notes it. `None`: they have been answered.
    fn begin(&self, mut records: Vec<Append>) -> Option<Batch> {
        let first = &records[0].write;
        let (file, session) = (Arc::clone(&first.file), Arc::clone(first.session()));
        let size = self.appender(&file, &session.export).and_then(|appender| match appender {
            Some(appender) => appender.size(),
            None => Ok(file.file.attr()?.size),
        });
        let place = match size {
            Ok(place) => place,
            Err(error) => {
                records.into_iter().for_each(|record| record.fail(&error));
                return None;
            }
        };
        let mut joined = None;
        if records.len() > 1 {
            let bytes: usize = records.iter().map(|record| record.bytes().len()).sum();
            match session.server.pool.take(&session.account.memory, bytes) {
                Some(mut memory) => {
                    let mut rest = memory.as_mut_slice();
                    for record in &records {
                        let (here, behind) = rest.split_at_mut(record.bytes().len());
                        here.copy_from_slice(record.bytes());
                        rest = behind;
                    }
                    joined = Some(memory);
                }
                // Without memory, one after the other.
                None => self.put_back(records.drain(1..), 1),
            }
        }
        let bytes = records.iter().map(|record| record.bytes().len()).sum();
        let mut batch = Batch { records, joined, bytes, place };
        let identity = file.file.identity();
        let mut notes = Vec::new();
        for (record, start) in batch.records.iter().zip(batch.starts()) {
            let Some(running) = &record.running else { continue };
            let page = PAGE_BYTES as u64;
            let intent = AppendIntent::new(identity, place + start, record.bytes(), page);
            let mut bytes = Vec::new();
            intent.encode(&mut bytes);
            notes.push(running.note(State::Intent, bytes));
        }
        if let Some(answers) = &session.export.answers
            && let Err(error) = answers.remember(&notes)
        {
            std::mem::take(&mut batch.records).into_iter().for_each(|record| record.fail(&error));
            return None;
        }
        Some(batch)
    }

    /// Brings a batch to the gate. Returns it if it is done by then; else somebody goes on when it is.
    fn submit(self: &Arc<Self>, mut batch: Batch) -> Option<Done> {
        let write = &batch.records[0].write;
        let (file, session) = (Arc::clone(&write.file), Arc::clone(write.session()));
        let (origin, bytes) = (write.origin(), batch.bytes as u32);
        let memory = batch.memory();
        let (data, offset) = if let Some(Some(appender)) = self.appender.get() {
            let offset = lock(&self.queue).place(batch.place, bytes.into());
            // SAFETY: the memory is the batch's, which lives in the completion.
            unsafe { appender.begin(memory, batch.bytes) };
            (Arc::clone(appender) as FileHandle, offset)
        } else {
            file.file.before_write(batch.place);
            (FileHandle::clone(file.file.data()), batch.place)
        };
        let transfer = Transfer { file: data, op: Op::Write, offset, memory, bytes, origin, extends: false };
        // From before the write: if what is behind the store loses its memory meanwhile, the clients are told rather too much.
        let verifier = file.file.verifier();
        let lane = Arc::clone(self);
        let worker = Arc::clone(&session);
        let place = Arc::new(Mutex::new(Place::Submitter(None)));
        let submitter = Arc::clone(&place);
        let done: Completion = Box::new(move |result| {
            let done = Done { batch, result, verifier };
            let mut place = lock(&place);
            match &mut *place {
                Place::Submitter(slot) => *slot = Some(done),
                // A completion must not wait for the log.
                Place::Worker => worker.run(move || {
                    lane.finish(done);
                    lane.go_on();
                }),
            }
        });
        // SAFETY: the memory is the batch's, which lives in the completion.
        unsafe { session.export.engine.submit_all([(transfer, done)]) }
        match std::mem::replace(&mut *lock(&submitter), Place::Worker) {
            Place::Submitter(done) => done,
            Place::Worker => None,
        }
    }

    /// Notes and answers a batch that has been carried out.
    fn finish(&self, Done { mut batch, result, verifier }: Done) {
        let is_rejected = matches!(&result, Err(error) if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none());
        if is_rejected && batch.records.len() > 1 {
            let count = batch.records.len();
            return self.put_back(batch.records.into_iter(), count);
        }
        let appender = self.appender.get().and_then(Option::as_ref);
        let written = match (appender, result) {
            (None, Ok(bytes)) => Ok(Appended { offset: batch.place, bytes: bytes as u64, short: None }),
            (None, Err(error)) => Err(error),
            (Some(appender), result) => {
                appender.end().map_err(|error| {
                    // Refused by the gate: nothing has been tried.
                    if error.raw_os_error() == Some(libc::ECANCELED) {
                        result.err().unwrap_or(error)
                    } else {
                        error
                    }
                })
            }
        };
        let starts = batch.starts();
        let lengths = batch.records.iter().map(|record| record.bytes().len() as u64);
        let judged = append_lane::judge(lengths, written.as_ref().ok().map(|appended| appended.bytes));
        if let (Ok(Appended { offset, .. }), Some((from, to)), Some(appender)) =
            (&written, judged.torn, appender)
        {
            // There was no room for more: what is there of the next record is no record.
            let cut = appender.cut(offset + from, offset + to);
            if !matches!(cut, Ok(true)) {
                tracing::error!(?cut, "a record was torn for want of room, and something lies behind it");
            }
        }
        let rest = batch.records.split_off(judged.whole);
        let failure = match &written {
            Ok(appended) => appended.short.unwrap_or(Errno::NOSPC).into(),
            Err(error) => again(error),
        };
        let mut results = Vec::new();
        for (record, start) in batch.records.into_iter().zip(&starts) {
            let offset = written.as_ref().map_or(0, |appended| appended.offset + start);
            let bytes = record.write.wire.bytes;
            results.push((record, Ok(Written { offset, bytes, verifier })));
        }
        let mut rest = rest.into_iter();
        results.extend(rest.by_ref().take(judged.failed).map(|record| (record, Err(again(&failure)))));
        self.put_back(rest, 0);
        let session = results.first().map(|(record, _)| Arc::clone(record.write.session()));
        if let Some(answers) = session.and_then(|session| session.export.answers.clone()) {
            let notes: Vec<ToNote> =
                results.iter().filter_map(|(record, result)| outcome(record, result)).collect();
            // If the log does not take them, their intents there tell as much.
            let _ = answers.remember(&notes);
        }
        results.into_iter().for_each(|(record, result)| record.complete(result));
    }
}

/// A batch that has been carried out.
struct Done {
    batch: Batch,
    result: io::Result<usize>,
    /// From before the write.
    verifier: u64,
}

/// Who finishes a batch.
enum Place {
    /// The thread that submits it, if it is done by then.
    Submitter(Option<Done>),
    Worker,
}

/// What to note of a record that was appended, or was not.
fn outcome(record: &Append, result: &io::Result<Written>) -> Option<ToNote> {
    let running = record.running.as_ref()?;
    Some(running.note(State::Outcome, outcome_bytes(result)))
}

fn outcome_bytes(result: &io::Result<Written>) -> Vec<u8> {
    let (mut fields, mut bytes) = (Vec::new(), Vec::new());
    let errno = match result {
        Ok(written) => {
            written.encode(&mut fields);
            0
        }
        Err(error) => super::session::explained(error).errno as u16,
    };
    Outcome { kind: Request::WRITE, errno, fields: &fields }.encode(&mut bytes);
    bytes
}

/// Finds out which records of a file were appended by the process before, which did not get to note it, and cuts off one that is torn.
fn settle(answers: &Answers, file: &dyn TreeFile, appender: &AppendFile) {
    let mut notes = Vec::new();
    let identity = file.identity();
    for (key, intent) in answers.unsettled_of(&identity) {
        let mut there = vec![0; intent.bytes as usize];
        let found = appender.size().and_then(|size| {
            let bytes = appender.read_at(intent.place, &mut there)?;
            Ok((size, intent.judge(size, &there[..bytes])))
        });
        let lies = match found {
            Ok((size, Lies::Torn)) => match appender.cut(intent.place, size) {
                Ok(true) => Lies::Nothing,
                _ => Lies::Other,
            },
            Ok((_, lies)) => lies,
            Err(_) => Lies::Other,
        };
        tracing::info!(
            ?lies,
            offset = intent.place,
            bytes = intent.bytes,
            "a record was underway at the end"
        );
        let (offset, bytes, verifier) = (intent.place, intent.bytes, file.verifier());
        let (state, bytes) = match lies {
            Lies::Whole => (State::Outcome, outcome_bytes(&Ok(Written { offset, bytes, verifier }))),
            Lies::Nothing | Lies::Torn => (State::Void, Vec::new()),
            Lies::Other => (State::Outcome, outcome_bytes(&Err(io::Error::from_raw_os_error(libc::EIO)))),
        };
        notes.push(ToNote { key, below: 0, state, bytes });
    }
    // What the log does not take is found out again by the next process.
    let _ = answers.remember(&notes);
    // Not before: whoever opens the file meanwhile, and repeats a record, waits for it.
    answers.settle(&identity);
}

impl Session {
    /// Appends a record to a file of the session.
    pub(super) fn append(&self, write: Write, taken: &mut TakenIn) {
        let lane = Arc::clone(&write.file.lane);
        if lane.push(Append::new(write)) {
            taken.keep(self, move || lane.go_on());
        }
    }

    /// The same in a worker's time.
    pub(super) fn append_soon(&self, write: Write) {
        let lane = Arc::clone(&write.file.lane);
        if lane.push(Append::new(write)) {
            lane.go_on_soon(self);
        }
    }
}
