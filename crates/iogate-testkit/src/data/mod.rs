//! What programs saw of files, and whether that can have been right.
//!
//! A file is of one kind: *cells* of a fixed size that carry numbers, or *records* that were appended. Nobody writes a cell while another
//! write of it is underway, but for one whose writer was killed. Files are known by who they are, not by their names.
//!
//! | file | what must hold of |
//! |---|---|
//! | `cells.rs` | each cell: no read before what was known, nothing of before a truncation |
//! | `records.rs` | records: each once, whole, behind all that was acknowledged; no hole where nobody wrote |

mod cells;
mod records;

use std::collections::BTreeMap;

use cells::Cells;
use records::Records;

/// `EIO`.
const EIO: i32 = 5;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program calls.
    Call {
        /// The number of the call.
        call: u64,
        /// The process.
        client: u64,
        /// Its handle, which [`Op::Open`] begins.
        handle: u64,
        /// The file.
        file: u64,
        /// What it asks for.
        op: Op,
    },
    /// A call is answered.
    Return {
        /// The number of the call.
        call: u64,
        /// The answer.
        answer: Answer,
    },
    /// A process is gone: what it has called for is not answered.
    Killed {
        /// The process.
        client: u64,
        /// Its records underway may be there in part: who carried them out is gone, too.
        tears: bool,
    },
    /// What no sync has covered may be lost from now on: a machine has booted, or a write-back has failed.
    Loss,
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens.
    Open,
    /// Closes.
    Close,
    /// Makes durable.
    Sync,
    /// Writes cells, all of one number, larger than all before it in the file.
    Write {
        /// The first cell.
        first: u64,
        /// How many.
        cells: u64,
        /// Their number.
        number: u64,
    },
    /// Reads cells.
    Read {
        /// The first cell.
        first: u64,
        /// How many.
        cells: u64,
    },
    /// Sets the size, in cells.
    Truncate {
        /// How many are left.
        cells: u64,
    },
    /// Takes cells out of the file. Only in a file that one process at a time uses.
    Collapse {
        /// The first one.
        first: u64,
        /// How many.
        cells: u64,
    },
    /// Appends a record.
    Append {
        /// Who.
        writer: u64,
        /// Which of its records: they grow.
        number: u64,
    },
    /// Writes a record at an offset far behind the end: what lies before it is a hole.
    Place {
        /// Who.
        writer: u64,
        /// Which of its records: they grow.
        number: u64,
    },
    /// Cuts a file of records to nothing.
    Empty,
    /// Reads all records.
    ReadAll,
}

/// What a call returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It failed. Nobody knows whether it took effect.
    Failed(i32),
    /// Cells that were read.
    Cells(Vec<Cell>),
    /// Records that were read.
    Records(Vec<Piece>),
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Zeros, or it lies behind the end.
    Nothing,
    /// A number of a file.
    Number(u64, u64),
    /// No cell.
    Other,
}

/// What a stretch of a file of records is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole record.
    Record {
        /// The file that it was written for.
        file: u64,
        /// Who wrote it.
        writer: u64,
        /// Which one.
        number: u64,
    },
    /// Bytes that are no record: so many.
    Other(u64),
}

/// A call that is not answered.
#[derive(Clone, Copy)]
struct Underway {
    at: u64,
    client: u64,
    handle: u64,
    file: u64,
    op: Op,
}

/// An open file.
#[derive(Clone, Copy, Default)]
struct Handle {
    opened: u64,
    /// When it was last told that something is lost.
    told: u64,
}

/// What was written, as far as losses matter: who wrote it, when, and whether it must be there.
#[derive(Clone, Copy, Debug)]
struct Put {
    client: u64,
    called: u64,
    /// When it was answered, or seen by a reader.
    known: Option<u64>,
    answered: Option<u64>,
    is_lost: bool,
    is_durable: bool,
}

impl Put {
    fn new(at: u64, client: u64) -> Put {
        Put { client, called: at, known: None, answered: None, is_lost: false, is_durable: false }
    }

    /// What was lost last may have been this, if it was underway then.
    fn is_answered(&mut self, at: u64, last_loss: u64) {
        self.known.get_or_insert(at);
        self.answered.get_or_insert(at);
        self.is_lost |= self.called < last_loss;
    }

    /// A read that was called for at a time has found it. What it saw may have been lost meanwhile; what is there after a loss is not.
    fn is_seen(&mut self, called: u64, at: u64, last_loss: u64) {
        let may_be_lost = self.is_lost || self.known.is_none() && self.called < last_loss;
        self.known.get_or_insert(at);
        self.is_lost = may_be_lost && called < last_loss;
    }

    /// Whether it has to be there for who calls at a time.
    fn holds(&self, at: u64) -> bool {
        self.known.is_some_and(|known| known < at) && (self.is_durable || !self.is_lost)
    }

    fn lose(&mut self) {
        self.is_lost |= self.known.is_some();
    }
}

/// When a read was called for and answered, and something was lost last.
#[derive(Clone, Copy)]
struct Times {
    called: u64,
    now: u64,
    last_loss: u64,
}

/// A sync that was called at a time, and has said that all is well.
#[derive(Clone, Copy)]
struct Synced<'a> {
    called: u64,
    client: u64,
    handle: Handle,
    losses: &'a [u64],
}

impl Synced<'_> {
    /// A process answers for what it has written itself. A handle does not tell of what was lost before it was there.
    fn cover(&self, put: &mut Put) {
        let Some(answered) = put.answered else { return };
        let was_lost = self.losses.iter().any(|&loss| put.called < loss && loss < self.handle.opened);
        if put.client == self.client && answered < self.called && put.called > self.handle.told && !was_lost {
            put.is_durable = true;
        }
    }
}

#[derive(Default)]
struct File {
    cells: Cells,
    records: Records,
    /// When a process was last told of a loss.
    told: BTreeMap<u64, u64>,
}

/// Takes in what happens, and says what cannot be.
#[derive(Default)]
pub struct Checker {
    now: u64,
    underway: BTreeMap<u64, Underway>,
    handles: BTreeMap<u64, Handle>,
    files: BTreeMap<u64, File>,
    losses: Vec<u64>,
    is_torn: bool,
    shows_parts: bool,
}

impl Checker {
    /// Nothing has happened.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// As [`Checker::new`], where readers may see a part of a record that is being written, and of one that has failed, and a file that is
    /// cut in part, until a cut that has failed is finished.
    pub fn of_parts() -> Checker {
        Checker { shows_parts: true, ..Checker::default() }
    }

    /// Takes in what happens next.
    ///
    /// # Errors
    /// Why that cannot be, for people.
    pub fn take(&mut self, event: &Event) -> Result<(), String> {
        self.now += 1;
        match event {
            &Event::Call { call, client, handle, file, op } => {
                let at = self.now;
                self.underway.insert(call, Underway { at, client, handle, file, op });
                let of = self.files.entry(file).or_default();
                match op {
                    Op::Open => {
                        let told = of.told.get(&client).copied().unwrap_or_default();
                        self.handles.insert(handle, Handle { opened: at, told });
                    }
                    Op::Write { first, cells, number } => of.cells.write(at, client, first, cells, number),
                    Op::Truncate { cells } => of.cells.truncate(at, client, cells),
                    Op::Append { writer, number } => of.records.append(at, client, writer, number),
                    Op::Place { writer, number } => of.records.place(at, client, writer, number),
                    Op::Empty => of.records.empty(at, client),
                    _ => {}
                }
                Ok(())
            }
            Event::Return { call, answer } => {
                let of = self.underway.remove(call).ok_or_else(|| format!("call {call} was not made"))?;
                self.returned(of, answer).map_err(|why| {
                    let Underway { client, handle, file, op, .. } = of;
                    format!("{why}; process {client}, handle {handle}, file {file}, {op:?}: {answer:?}")
                })
            }
            &Event::Killed { client, tears } => {
                self.is_torn |= tears;
                for of in self.underway.values().filter(|of| of.client == client) {
                    if matches!(of.op, Op::Collapse { .. }) {
                        self.files.entry(of.file).or_default().cells.forget();
                    }
                }
                self.underway.retain(|_, of| of.client != client);
                Ok(())
            }
            Event::Loss => {
                self.losses.push(self.now);
                for file in self.files.values_mut() {
                    file.cells.puts().for_each(Put::lose);
                    file.records.puts().for_each(Put::lose);
                }
                Ok(())
            }
        }
    }

    fn returned(&mut self, of: Underway, answer: &Answer) -> Result<(), String> {
        let (now, is_torn) = (self.now, self.is_torn || !self.losses.is_empty());
        let shows_parts = self.shows_parts;
        let last_loss = self.losses.last().copied().unwrap_or_default();
        let file = self.files.entry(of.file).or_default();
        file.records.ended(of.at, now);
        if matches!((of.op, answer), (Op::Append { .. } | Op::Empty, Answer::Done)) {
            file.records.finish(of.at, now);
        }
        match (of.op, answer) {
            (Op::Sync | Op::Close, Answer::Failed(EIO)) => {
                file.told.insert(of.client, now);
                self.handles.entry(of.handle).or_default().told = now;
            }
            (Op::Sync, Answer::Done) => {
                let handle = self.handles.get(&of.handle).copied().unwrap_or_default();
                let synced = Synced { called: of.at, client: of.client, handle, losses: &self.losses };
                file.cells.puts().chain(file.records.puts()).for_each(|put| synced.cover(put));
            }
            (Op::Write { .. } | Op::Truncate { .. }, Answer::Done) => file.cells.done(of.at, now, last_loss),
            (Op::Collapse { first, cells }, Answer::Done) => {
                file.cells.collapse(now, of.client, first, cells, last_loss > of.at);
            }
            (Op::Collapse { .. }, Answer::Failed(EIO)) => file.cells.forget(),
            // Its first bytes may stay where others may write elsewhere in the file.
            (Op::Append { .. }, Answer::Failed(_)) => file.records.has_parts |= shows_parts,
            (Op::Append { .. } | Op::Place { .. }, Answer::Done) => file.records.done(of.at, now, last_loss),
            (Op::Empty, Answer::Done) => file.records.emptied(of.at, now, last_loss),
            (Op::Empty, Answer::Failed(_)) => file.records.empty_failed(of.at, now),
            (Op::Read { first, .. }, Answer::Cells(seen)) => {
                let times = Times { called: of.at, now, last_loss };
                file.cells.read(of.file, times, first, seen)?;
            }
            (Op::ReadAll, Answer::Records(pieces)) => {
                let has_gaps =
                    is_torn || file.records.has_parts || shows_parts && file.records.are_underway(of.at, now);
                file.records.read(of.file, (of.at, now), pieces, is_torn, has_gaps)?;
            }
            (_, Answer::Cells(_) | Answer::Records(_)) => return Err("nobody asked for that".into()),
            _ => {}
        }
        Ok(())
    }

    /// Nothing more happens, and nothing was wrong for long: everything has to be answered.
    ///
    /// # Errors
    /// What is not.
    pub fn end(&self) -> Result<(), String> {
        match self.underway.iter().next() {
            None => Ok(()),
            Some((call, Underway { client, file, op, .. })) => {
                Err(format!("call {call} of process {client} on file {file} is never answered: {op:?}"))
            }
        }
    }
}

/// Checks a whole history.
///
/// # Errors
/// The first thing that cannot be, for people.
pub fn check(events: &[Event]) -> Result<(), String> {
    check_by(Checker::new(), events)
}

fn check_by(mut checker: Checker, events: &[Event]) -> Result<(), String> {
    events.iter().try_for_each(|event| checker.take(event))?;
    checker.end()
}

#[cfg(test)]
mod tests;
