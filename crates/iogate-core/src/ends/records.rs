//! Which records have been given ranges: who asks again gets the old one.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::EarlierRange;
use crate::hash::HashMap;
use crate::wire::{AppendRecord, Identity, Range, range};

/// What a record is known by: client, request, step and user.
type Key = ([u8; 16], u64, u16, u32);

/// The ranges of the last records.
pub(super) struct Records {
    most: usize,
    known: HashMap<Key, Known>,
    /// In the order in which they came; some may be forgotten already.
    order: VecDeque<Key>,
    /// Those of unsettled tickets, and whether they had their range from before.
    unsettled: BTreeMap<u64, Vec<(Key, bool)>>,
}

/// Most unsettled tickets that are remembered: of those who died.
const UNSETTLED_MAX: usize = 1024;

struct Known {
    file: Identity,
    offset: u64,
    bytes: u32,
    is_there: bool,
    /// Its range has been cut off since.
    is_cut: bool,
}

impl Known {
    fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}

fn key(record: &AppendRecord) -> Option<Key> {
    let is_some = record.client != [0; 16];
    is_some.then_some((record.client, record.number, record.step, record.uid))
}

fn record(&(client, number, step, uid): &Key, known: &Known) -> AppendRecord {
    AppendRecord { client, number, step, uid, bytes: known.bytes }
}

impl Records {
    pub(super) fn new(most: usize) -> Records {
        Records { most, known: HashMap::default(), order: VecDeque::new(), unsettled: BTreeMap::new() }
    }

    /// Remembers the range of a record, unless one is known.
    pub(super) fn restore(&mut self, file: Identity, range: &EarlierRange) {
        let EarlierRange { record, offset } = *range;
        let Some(key) = key(&record).filter(|key| !self.known.contains_key(key)) else { return };
        self.remember(key, Known { file, offset, bytes: record.bytes, is_there: false, is_cut: false });
    }

    fn remember(&mut self, key: Key, known: Known) {
        self.known.insert(key, known);
        self.order.push_back(key);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The range of a record: the one that it had, or a new one at `offset`; and whether that is new.
    pub(super) fn range(
        &mut self,
        file: Identity,
        ticket: u64,
        record: &AppendRecord,
        offset: u64,
    ) -> (Range, bool) {
        let new = (Range { offset, is_there: range::NEW }, true);
        let Some(key) = key(record) else { return new };
        let known = self.known.get(&key).filter(|known| (known.file, known.bytes) == (file, record.bytes));
        let found = match known {
            Some(known) if known.is_there => {
                return (Range { offset: known.offset, is_there: range::THERE }, false);
            }
            Some(known) => (Range { offset: known.offset, is_there: range::EARLIER }, false),
            None => new,
        };
        if found.1 {
            self.remember(key, Known { file, offset, bytes: record.bytes, is_there: false, is_cut: false });
        }
        self.unsettled.entry(ticket).or_default().push((key, !found.1));
        if self.unsettled.len() > UNSETTLED_MAX {
            // Its records keep their ranges.
            self.unsettled.pop_first();
        }
        found
    }

    /// Who has the end settles: new records are there as far as they end before `end`, else they are forgotten, as their ranges are given
    /// again. Those that had their range from before are there if `all` are. Returns the forgotten ones.
    pub(super) fn settle(&mut self, ticket: u64, end: u64, all: bool) -> Vec<AppendRecord> {
        let mut forgotten = Vec::new();
        for (key, was_known) in self.unsettled.remove(&ticket).unwrap_or_default() {
            let Some(known) = self.known.get_mut(&key).filter(|known| !known.is_there) else { continue };
            known.is_there = if was_known { all } else { known.end() <= end };
            if !known.is_there && !was_known {
                forgotten.push(record(&key, known));
                self.known.remove(&key);
            }
        }
        forgotten
    }

    /// Who had the end settles after others got it: new records are there as far as they end before `end`. The others keep their ranges,
    /// behind which others have written.
    pub(super) fn settle_late(&mut self, ticket: u64, end: u64) {
        for (key, was_known) in self.unsettled.remove(&ticket).unwrap_or_default() {
            if let Some(known) = self.known.get_mut(&key).filter(|_| !was_known) {
                known.is_there |= known.end() <= end;
            }
        }
    }

    /// The file has been cut: ranges that reach behind `end` are void, whoever had them and whenever. Those that are known to have been
    /// written are still known, as whoever asks again must not write them once more. Returns all of them: after a restart nobody would
    /// know which are there. Those that had been cut before are not among them.
    pub(super) fn cut(&mut self, file: Identity, end: u64) -> Vec<AppendRecord> {
        let mut void = Vec::new();
        self.known.retain(|key, known| {
            if known.file == file && known.end() > end && !known.is_cut {
                known.is_cut = true;
                void.push(record(key, known));
            }
            known.is_there || !known.is_cut
        });
        void
    }
}
