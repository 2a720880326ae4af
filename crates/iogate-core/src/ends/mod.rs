//! Who may use the end of a striped file: one at a time, in the order in which they ask.
//!
//! Whoever has the end appends records at ranges that are given here, or sets the file's size, and then *settles*: says where the
//! file ends now. Ranges are given once, whatever becomes of them. The shell does what a [`Note`] says before it answers, so that
//! a server that is killed gives no range twice and knows which size somebody has begun to set.
//!
//! - Who does not settle ranges within the *lease* keeps them, and the next one goes on behind them: a forwarder that is stopped
//!   delays others and never blocks them. What it has not written by then stays its record's range: left alone, it would be a hole
//!   between records. A size is set after all ranges are settled, or *void* because they are too old; whoever sets it then sees to it
//!   that nobody writes to them any more.
//! - Who has begun to set a size keeps the end until it settles or leaves. Then the size stays begun: all who come are told to
//!   finish it first. So is who opens the file while somebody sets its size, or waits to: who does that may be dead, and what is
//!   written before the size is set in its place would be cut off.
//! - Where the file ends is known while all write at its end. While a handle writes elsewhere, and for a while after a
//!   start of the server (handles from before may still be in use), whoever has the end must *look* first.

mod records;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;

use self::records::Records;
use crate::hash::HashMap;
use crate::time::{Span, Time};
use crate::wire::{AppendRecord, Identity, Range};

/// Rules of [`Ends`].
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long ranges may be unsettled before somebody else gets the end behind them.
    pub lease: Span,
    /// How long ranges may be unsettled before a size may be set: nobody writes to them any more.
    pub void: Span,
    /// How long after the start a file from before it may be written to by handles that are not known here.
    pub doubt: Span,
    /// Most records whose ranges are remembered.
    pub records_max: usize,
    /// What a look finds is the end, even before what has been given: nobody here dies alone.
    pub looks_are_exact: bool,
}

impl Rules {
    /// Of a server that gives ends to forwarders.
    pub const SERVER: Rules = Rules {
        lease: Span::from_secs(1),
        void: Span::from_secs(5),
        doubt: Span::from_secs(60),
        records_max: 65_536,
        looks_are_exact: false,
    };
    /// Of a process that has names and data: others may use both without a word.
    pub const PROCESS: Rules = Rules { doubt: Span::MAX, looks_are_exact: true, ..Rules::SERVER };
}

/// An open handle on a file. Never used twice.
pub type HandleId = u64;
/// Somebody who asks, and waits for the answer.
pub type Waiter = u64;

/// What somebody wants of the end of a file.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Ranges for records.
    Append(Vec<AppendRecord>),
    /// To set the size.
    Resize(u64),
    /// To finish what somebody has begun, or else just to have the end.
    Take,
}

/// What to note with the file before anything else happens to its end; then [`Ends::noted`] is to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The ranges of these records are given to others from now on. To be noted first: a server that starts anew and still knew them would
    /// have two records write to one range. All others keep theirs, also those that were given earlier and are not settled.
    pub void: Vec<AppendRecord>,
    /// The size that is begun, or that none is.
    pub begun: Option<Option<u64>>,
    /// No range before this one is given again.
    pub mark: Option<u64>,
}

/// A range that was given before the server started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierRange {
    /// What it was given to.
    pub record: AppendRecord,
    /// Where it begins.
    pub offset: u64,
}

impl EarlierRange {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.record.bytes.into())
    }
}

/// What somebody is told who has asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Find out how large the file is, and ask again with the ticket.
    Look,
    /// Where the records go.
    Ranges(Vec<Range>),
    /// The end is yours. A size that somebody has begun to set, and that is to be set now.
    Yours(Option<u64>),
    /// A size has been begun: take the end, and finish it first.
    Unfinished,
    /// The file would be too large.
    TooLarge,
    /// The handle has been closed.
    Left,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Who.
    pub waiter: Waiter,
    /// Of which file.
    pub file: Identity,
    /// To settle it by; 0: there is nothing to settle.
    pub ticket: u64,
    /// What to note before.
    pub note: Option<Note>,
    /// How many handles may write elsewhere than at the end.
    pub writers: u32,
    /// With a size to set: ranges have been given that nobody has settled. They are void, and must not be written to later.
    pub voids: bool,
    /// What.
    pub answer: Answer,
}

/// The ends of all files that are open.
pub struct Ends {
    rules: Rules,
    /// When the server has started, and the same by the clock of its files.
    started: Time,
    started_wall: u64,
    tickets: u64,
    files: HashMap<Identity, File>,
    /// Files for whose end somebody waits.
    waited_for: BTreeSet<(u64, u64)>,
    records: Records,
}

#[derive(Default)]
struct File {
    handles: u32,
    /// Handles that write elsewhere than at the end.
    writers: u32,
    /// Counts the handles that did so.
    writers_seen: u64,
    /// What is noted with the file has been read.
    is_known: bool,
    /// All ranges that have been given lie before it, and the file ends here if this is exact.
    end: u64,
    is_exact: bool,
    /// The last mark that was noted.
    mark: u64,
    /// A size that nobody is setting, and that was begun.
    begun: Option<u64>,
    holder: Option<Holder>,
    /// Unsettled ranges of those who had the end for too long.
    overdue: Vec<Overdue>,
    /// Such ranges are waited for no more since a size was set last, though who has them may be alive.
    has_late: bool,
    queue: VecDeque<Asked>,
}

struct Asked {
    handle: HandleId,
    waiter: Waiter,
    wish: Wish,
}

struct Overdue {
    ticket: u64,
    handle: HandleId,
    since: Time,
}

struct Holder {
    ticket: u64,
    handle: HandleId,
    hold: Hold,
    phase: Phase,
    /// [`File::writers_seen`] when it got the end.
    writers_seen: u64,
    /// Its handle is closed.
    has_left: bool,
}

enum Hold {
    Look,
    Append { base: u64, top: u64 },
    Resize(u64),
    Bare,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// What is given is being noted.
    Granting,
    Held(Time),
    /// What was settled is being noted.
    Settling,
}

/// In place of an end in [`Ends::settle`]: it is not known, and a size that was to be set stays begun.
pub const UNKNOWN: u64 = u64::MAX;

impl Ends {
    /// Nobody has anything. `wall` is the time by the clock that files are born by, in nanoseconds since the Unix epoch; tickets grow
    /// from it on, and so are never those from before a restart.
    pub fn new(rules: Rules, now: Time, wall: u64) -> Ends {
        Ends {
            rules,
            started: now,
            started_wall: wall,
            tickets: wall,
            files: HashMap::default(),
            waited_for: BTreeSet::new(),
            records: Records::new(rules.records_max),
        }
    }

    /// A handle has been opened; `elsewhere`: it may write elsewhere than at the end. True if what is noted with the file must be
    /// [learnt](Ends::learn) before anything is asked through the handle.
    pub fn open(&mut self, file: Identity, elsewhere: bool) -> bool {
        let found = self.files.entry(file).or_default();
        found.handles += 1;
        if elsewhere {
            found.writers += 1;
            found.writers_seen += 1;
            found.is_exact = false;
        }
        !found.is_known
    }

    /// What is noted with a file: the mark, the size that is begun, and the ranges that records were given before the start. Nobody can
    /// tell whether these are there: whoever asks again gets its own, and nobody else does.
    pub fn learn(&mut self, file: Identity, mark: u64, begun: Option<u64>, earlier: &[EarlierRange]) {
        let Some(found) = self.files.get_mut(&file).filter(|found| !found.is_known) else { return };
        let given = earlier.iter().map(EarlierRange::end).max().unwrap_or(0);
        (found.is_known, found.mark, found.end, found.begun) = (true, mark, mark.max(given), begun);
        if begun.is_some() || !earlier.is_empty() {
            // Whoever had the end before the start may still be at it.
            found.overdue.push(Overdue { ticket: 0, handle: 0, since: self.started });
        }
        earlier.iter().for_each(|range| self.records.restore(file, range));
    }

    /// A size that is to be set before who opens a file now writes to it: it is begun, somebody sets it, or waits to.
    pub fn begun(&self, file: Identity) -> Option<u64> {
        let File { begun, holder, queue, .. } = self.files.get(&file)?;
        let held = holder.iter().filter_map(|holder| match holder.hold {
            Hold::Resize(size) => Some(size),
            _ => None,
        });
        let waits = queue.iter().filter_map(|asked| match asked.wish {
            Wish::Resize(size) => Some(size),
            _ => None,
        });
        begun.iter().copied().chain(held).chain(waits).next()
    }

    /// Somebody wants the end.
    pub fn ask(
        &mut self,
        now: Time,
        file: Identity,
        handle: HandleId,
        waiter: Waiter,
        wish: Wish,
    ) -> Vec<Told> {
        let Some(found) = self.files.get_mut(&file) else {
            return [told(waiter, file, Answer::Left)].into();
        };
        found.queue.push_back(Asked { handle, waiter, wish });
        self.advance(now, file)
    }

    /// Who was told to look has found that the file has at least so many bytes.
    #[expect(clippy::too_many_arguments, reason = "they are those of a message")]
    pub fn looked(
        &mut self,
        now: Time,
        file: Identity,
        handle: HandleId,
        waiter: Waiter,
        ticket: u64,
        at_least: u64,
        records: Vec<AppendRecord>,
    ) -> Vec<Told> {
        let rules = self.rules;
        match self.files.get_mut(&file) {
            Some(File { holder: Some(holder), end, overdue, .. })
                if (holder.ticket, holder.handle) == (ticket, handle)
                    && matches!(holder.hold, Hold::Look) =>
            {
                let is_exact = rules.looks_are_exact && overdue.is_empty();
                *end = if is_exact { at_least } else { at_least.max(*end) };
                let asked = Asked { handle, waiter, wish: Wish::Append(records) };
                let mut all = Vec::new();
                self.give(now, file, asked, &mut all);
                all.extend(self.advance(now, file));
                all
            }
            _ => self.ask(now, file, handle, waiter, Wish::Append(records)),
        }
    }

    /// Who has the end gives it back: the file ends at `end`, or [`UNKNOWN`]. Returns the ticket by which to tell that what is to be noted
    /// has been.
    pub fn settle(
        &mut self,
        now: Time,
        file: Identity,
        handle: HandleId,
        ticket: u64,
        end: u64,
    ) -> (Option<Note>, Vec<Told>) {
        let is_certain = self.is_certain(now, file);
        let Some(found) = self.files.get_mut(&file) else { return (None, Vec::new()) };
        let mut void = Vec::new();
        let note = match &mut found.holder {
            Some(holder) if (holder.ticket, holder.handle) == (ticket, handle) => {
                if !matches!(holder.phase, Phase::Held(_)) {
                    return (None, Vec::new());
                }
                holder.phase = Phase::Settling;
                let knows = holder.writers_seen == found.writers_seen && found.writers == 0 && is_certain;
                match holder.hold {
                    Hold::Look => None,
                    Hold::Append { base, top } => {
                        found.end = if end == UNKNOWN { top } else { end.clamp(base, top) };
                        found.is_exact = knows && end != UNKNOWN;
                        void = self.records.settle(ticket, found.end, end >= top);
                        None
                    }
                    Hold::Resize(size) if end == UNKNOWN => {
                        (found.begun, found.has_late) = (Some(size), true);
                        found.holder = None;
                        return (None, self.advance(now, file));
                    }
                    Hold::Bare => {
                        found.is_exact = knows && end != UNKNOWN && end >= found.end;
                        found.end = if end == UNKNOWN { found.end } else { found.end.max(end) };
                        None
                    }
                    Hold::Resize(_) => {
                        (found.end, found.is_exact) = (end, knows);
                        void = self.records.cut(file, end);
                        Some(None)
                    }
                }
            }
            None if found.begun.is_some() && found.begun == Some(end) => {
                // Begun before the server was killed, and done.
                let writers_seen = found.writers_seen;
                (found.begun, found.end) = (None, end);
                void = self.records.cut(file, end);
                let (hold, phase) = (Hold::Resize(end), Phase::Settling);
                found.holder = Some(Holder { ticket, handle, hold, phase, writers_seen, has_left: false });
                found.overdue.retain(|overdue| overdue.ticket != 0);
                Some(None)
            }
            _ => {
                if let Some(index) = found.overdue.iter().position(|overdue| overdue.ticket == ticket) {
                    found.overdue.remove(index);
                    self.records.settle_late(ticket, end);
                }
                return (None, self.advance(now, file));
            }
        };
        let mark = (found.end != found.mark).then_some(found.end);
        if note.is_none() && mark.is_none() && void.is_empty() {
            found.holder = None;
            return (None, self.advance(now, file));
        }
        if let Some(mark) = mark {
            found.mark = mark;
        }
        (Some(Note { void, begun: note, mark }), Vec::new())
    }

    /// What was to be noted has been, or could not be.
    pub fn noted(&mut self, now: Time, file: Identity, ticket: u64, is_noted: bool) -> Vec<Told> {
        let Some(found) = self.files.get_mut(&file) else { return Vec::new() };
        let Some(holder) = found.holder.as_mut().filter(|holder| holder.ticket == ticket) else {
            return Vec::new();
        };
        match (holder.phase, &holder.hold) {
            (Phase::Granting, _) if is_noted && !holder.has_left => {
                holder.phase = Phase::Held(now);
                return Vec::new();
            }
            (Phase::Granting, Hold::Append { base, .. }) if !is_noted => {
                found.end = *base;
                let _ = self.records.settle(ticket, 0, false);
            }
            (Phase::Granting, Hold::Resize(size)) if is_noted => found.begun = Some(*size),
            (Phase::Settling, Hold::Resize(_)) if !is_noted => found.begun = Some(found.end),
            // A server that starts anew would take what lies behind the end for given.
            (Phase::Settling, Hold::Append { top, .. }) if !is_noted => found.end = *top,
            _ => {}
        }
        if !is_noted {
            // Whatever is there now: it is noted next time.
            found.mark = UNKNOWN;
            found.has_late |= matches!(holder.hold, Hold::Resize(_));
        }
        found.holder = None;
        self.advance(now, file)
    }

    /// A handle is closed; `elsewhere` as when it was [opened](Ends::open).
    pub fn leave(&mut self, now: Time, file: Identity, handle: HandleId, elsewhere: bool) -> Vec<Told> {
        let Some(found) = self.files.get_mut(&file) else { return Vec::new() };
        found.handles -= 1;
        found.writers -= u32::from(elsewhere);
        let mut all = Vec::new();
        found.queue.retain(|asked| {
            let stays = asked.handle != handle;
            if !stays {
                all.push(told(asked.waiter, file, Answer::Left));
            }
            stays
        });
        found.has_late |= found.overdue.iter().any(|overdue| overdue.handle == handle);
        found.overdue.retain(|overdue| overdue.handle != handle);
        if let Some(holder) = found.holder.as_mut().filter(|holder| holder.handle == handle) {
            holder.has_left = true;
            found.has_late |= matches!(holder.hold, Hold::Append { .. } | Hold::Resize(_));
            if let Phase::Held(_) = holder.phase {
                if let Hold::Resize(size) = holder.hold {
                    found.begun = Some(size);
                }
                found.is_exact &= !matches!(holder.hold, Hold::Bare | Hold::Resize(_));
                found.holder = None;
            }
        }
        all.extend(self.advance(now, file));
        all
    }

    /// Lets those go on who have waited for long enough.
    pub fn reap(&mut self, now: Time) -> Vec<Told> {
        let waited_for: Vec<_> = self.waited_for.iter().copied().collect();
        let go_on = |(inode, generation)| self.advance(now, Identity { inode, generation });
        waited_for.into_iter().flat_map(go_on).collect()
    }

    /// Whether somebody waits.
    pub fn are_waited_for(&self) -> bool {
        !self.waited_for.is_empty()
    }

    /// Whether all handles on a file are known.
    fn is_certain(&self, now: Time, file: Identity) -> bool {
        file.generation > self.started_wall && self.rules.doubt != Span::MAX
            || now.since(self.started) > self.rules.doubt
    }

    /// Gives the end of a file to whoever is next, if it is free.
    fn advance(&mut self, now: Time, file: Identity) -> Vec<Told> {
        let rules = self.rules;
        let mut all = Vec::new();
        while let Some(found) = self.files.get_mut(&file) {
            if found.queue.is_empty() {
                if found.handles == 0 && found.holder.is_none() {
                    self.files.remove(&file);
                }
                break;
            }
            if let Some(holder) = &found.holder {
                let Phase::Held(since) = holder.phase else { break };
                let lasts = matches!(holder.hold, Hold::Resize(_) | Hold::Bare);
                if lasts || now.since(since) < rules.lease {
                    break;
                }
                if let Hold::Append { .. } = holder.hold {
                    found.overdue.push(Overdue { ticket: holder.ticket, handle: holder.handle, since });
                }
                found.holder = None;
            }
            let count = found.overdue.len();
            found.overdue.retain(|overdue| now.since(overdue.since) < rules.void);
            found.has_late |= found.overdue.len() < count;
            let appends = matches!(found.queue.front(), Some(Asked { wish: Wish::Append(_), .. }));
            if !appends && !found.overdue.is_empty() {
                break;
            }
            let Some(asked) = found.queue.pop_front() else { break };
            self.give(now, file, asked, &mut all);
        }
        let is_waited_for = self.files.get(&file).is_some_and(|found| !found.queue.is_empty());
        let key = (file.inode, file.generation);
        if is_waited_for {
            self.waited_for.insert(key)
        } else {
            self.waited_for.remove(&key)
        };
        all
    }

    /// Gives the end, which is free, or whose holder has looked.
    fn give(&mut self, now: Time, file: Identity, asked: Asked, all: &mut Vec<Told>) {
        let is_certain = self.is_certain(now, file);
        let Some(found) = self.files.get_mut(&file) else { return };
        let Asked { handle, waiter, wish } = asked;
        let before = found.holder.take();
        let has_looked = before.is_some();
        let ticket = before.as_ref().map_or(self.tickets + 1, |holder| holder.ticket);
        self.tickets = self.tickets.max(ticket);
        let writers_seen = before.map_or(found.writers_seen, |holder| holder.writers_seen);
        let writers = if is_certain { found.writers } else { found.writers.max(1) };
        let is_exact = found.is_exact && writers == 0;
        let (hold, note, answer) = match wish {
            Wish::Append(_) | Wish::Resize(_) if found.begun.is_some() => {
                return all.push(told(waiter, file, Answer::Unfinished));
            }
            Wish::Append(_) if !is_exact && !has_looked => (Hold::Look, None, Answer::Look),
            Wish::Append(records) => {
                let base = found.end;
                let bytes = records.iter().map(|record| u64::from(record.bytes)).sum();
                if base.checked_add(bytes).is_none_or(|end| end > i64::MAX as u64) {
                    return all.push(told(waiter, file, Answer::TooLarge));
                }
                let ranges = records.iter().map(|record| {
                    let (range, is_new) = self.records.range(file, ticket, record, found.end);
                    found.end += if is_new { u64::from(record.bytes) } else { 0 };
                    range
                });
                let ranges = ranges.collect();
                let note =
                    (found.end != found.mark).then_some(Note { mark: Some(found.end), ..Note::default() });
                found.mark = found.end;
                (Hold::Append { base, top: found.end }, note, Answer::Ranges(ranges))
            }
            Wish::Resize(size) => {
                found.mark = size;
                let note = Note { begun: Some(Some(size)), mark: Some(size), ..Note::default() };
                (Hold::Resize(size), Some(note), Answer::Yours(None))
            }
            Wish::Take => match found.begun.take() {
                Some(size) => (Hold::Resize(size), None, Answer::Yours(Some(size))),
                None => (Hold::Bare, None, Answer::Yours(None)),
            },
        };
        let voids = matches!(hold, Hold::Resize(_)) && mem::take(&mut found.has_late);
        let phase = if note.is_some() { Phase::Granting } else { Phase::Held(now) };
        found.holder = Some(Holder { ticket, handle, hold, phase, writers_seen, has_left: false });
        all.push(Told { waiter, file, ticket, note, writers, voids, answer });
    }
}

/// An answer that gives nothing.
fn told(waiter: Waiter, file: Identity, answer: Answer) -> Told {
    Told { waiter, file, ticket: 0, note: None, writers: 0, voids: false, answer }
}
