//! Records that were appended.

use std::collections::{BTreeMap, BTreeSet};

use super::{Piece, Put};

/// The records of a file.
#[derive(Default)]
pub(super) struct Records {
    /// By writer and number.
    appended: BTreeMap<(u64, u64), Put>,
    /// When the call returned, by when it was made.
    ended: BTreeMap<u64, u64>,
    emptied: Vec<Emptied>,
    /// There may be parts of records that have failed.
    pub(super) has_parts: bool,
    /// Somebody has written far behind the end.
    has_holes: bool,
}

/// The file was cut to nothing, at some time between these. Where it has failed, it may be cut in part, until whoever appends or cuts next
/// has finished that.
struct Emptied {
    called: u64,
    done: Option<u64>,
    failed: Option<u64>,
    /// After it has failed, something was done that comes after it.
    finished: Option<u64>,
    /// For losses.
    put: Put,
}

impl Emptied {
    /// Whether it may have been behind what was called for at a time. What is called for after it has failed is behind it, too.
    fn may_follow(&self, called: u64) -> bool {
        self.done.or(self.failed).is_none_or(|over| over > called)
    }

    /// Whether it may be done in part in what a read sees that was called for at a time.
    fn may_be_underway(&self, called: u64) -> bool {
        self.done.or(self.finished).is_none_or(|over| over >= called)
    }
}

impl Records {
    pub(super) fn puts(&mut self) -> impl Iterator<Item = &mut Put> {
        self.appended.values_mut().chain(self.emptied.iter_mut().map(|emptied| &mut emptied.put))
    }

    pub(super) fn append(&mut self, at: u64, client: u64, writer: u64, number: u64) {
        self.appended.insert((writer, number), Put::new(at, client));
    }

    /// A call has returned, with whatever answer.
    pub(super) fn ended(&mut self, called: u64, now: u64) {
        self.ended.insert(called, now);
    }

    /// Whether records were being written, or cut off, during a read.
    pub(super) fn are_underway(&self, called: u64, now: u64) -> bool {
        let is_over = |put: &Put| self.ended.get(&put.called).is_some_and(|&ended| ended < called);
        self.appended.values().any(|put| put.called < now && !is_over(put))
            || self.emptied.iter().any(|emptied| emptied.called < now && emptied.may_be_underway(called))
    }

    pub(super) fn place(&mut self, at: u64, client: u64, writer: u64, number: u64) {
        self.append(at, client, writer, number);
        self.has_holes = true;
    }

    pub(super) fn done(&mut self, called: u64, now: u64, last_loss: u64) {
        let puts = self.appended.values_mut().filter(|put| put.called == called);
        puts.for_each(|put| put.is_answered(now, last_loss));
    }

    pub(super) fn empty(&mut self, at: u64, client: u64) {
        let put = Put::new(at, client);
        self.emptied.push(Emptied { called: at, done: None, failed: None, finished: None, put });
    }

    pub(super) fn emptied(&mut self, called: u64, now: u64, last_loss: u64) {
        for emptied in self.emptied.iter_mut().filter(|emptied| emptied.called == called) {
            emptied.done = Some(now);
            emptied.put.is_answered(now, last_loss);
        }
    }

    /// A cut has failed. Nobody knows whether it took effect, or in which parts of the file.
    pub(super) fn empty_failed(&mut self, called: u64, now: u64) {
        let failed = self.emptied.iter_mut().filter(|emptied| emptied.called == called);
        failed.for_each(|emptied| emptied.failed = Some(now));
    }

    /// An append or a cut that was called for at a time is done: those that had failed by then were finished before.
    pub(super) fn finish(&mut self, called: u64, now: u64) {
        let before = |emptied: &&mut Emptied| emptied.failed.is_some_and(|failed| failed < called);
        let before = self.emptied.iter_mut().filter(before);
        before.for_each(|emptied| _ = emptied.finished.get_or_insert(now));
    }

    /// `is_torn`: what is there may have been lost in part; `has_gaps`: there may be bytes that are no records.
    pub(super) fn read(
        &mut self,
        file: u64,
        (called, now): (u64, u64),
        pieces: &[Piece],
        is_torn: bool,
        has_gaps: bool,
    ) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        // When what lies before was called for, at the latest.
        let mut latest = 0;
        for piece in pieces {
            let &Piece::Record { file: of, writer, number } = piece else {
                if has_gaps || self.has_holes {
                    continue;
                }
                return Err("there are bytes that nobody wrote".into());
            };
            if of != file {
                return Err(format!("there is a record of file {of}"));
            }
            let name = format!("record {number} of writer {writer}");
            let put = self.appended.get(&(writer, number)).ok_or_else(|| format!("nobody wrote {name}"))?;
            if !seen.insert((writer, number)) {
                return Err(format!("{name} is there twice"));
            }
            if let Some(before) = last.insert(writer, number)
                && before > number
                // A loss may have taken back that the file was cut.
                && (!is_torn || self.emptied.is_empty())
            {
                return Err(format!("{name} comes after its number {before}"));
            }
            if !is_torn && put.answered.is_some_and(|answered| answered < latest) {
                return Err(format!("{name} was acknowledged before what lies in front of it was appended"));
            }
            latest = latest.max(put.called);
            let is_cut = |emptied: &Emptied| {
                emptied.put.holds(called) && put.answered.is_some_and(|answered| answered < emptied.called)
            };
            if self.emptied.iter().any(is_cut) {
                return Err(format!("{name} is there, and was cut off"));
            }
        }
        // A cut that has failed is finished for the whole file, or never was begun.
        let is_unbegun = |cut: &Emptied| {
            let was_there = |name| self.appended[name].answered.is_some_and(|answered| answered < cut.called);
            cut.finished.is_some() && !cut.may_be_underway(called) && !is_torn && seen.iter().any(was_there)
        };
        let may_be_cut = |put: &Put| {
            let cuts = |cut: &Emptied| cut.called < now && cut.may_follow(put.called) && !is_unbegun(cut);
            self.emptied.iter().any(cuts)
        };
        let missing = self.appended.iter().find(|(name, put)| {
            put.answered.is_some() && put.holds(called) && !seen.contains(name) && !may_be_cut(put)
        });
        match missing {
            None => Ok(()),
            Some(((writer, number), _)) => {
                Err(format!("record {number} of writer {writer} was acknowledged, and is not there"))
            }
        }
    }
}
