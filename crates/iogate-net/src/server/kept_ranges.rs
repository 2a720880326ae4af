//! The ranges of records, over restarts of the server of names: whoever asks again gets the range that it had, although nobody has
//! heard of that.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::answers::{Key, State};
use iogate_core::wire::{AppendRecord, Identity, Range, range};
use iogate_vfs::ends::{EarlierRange, RangeLog};

use super::{Answers, ToNote};

/// Bytes of what is remembered of a record: file, ticket, offset, length.
const KEPT_BYTES: usize = 36;

/// A range that was given.
#[derive(Clone, Copy)]
struct Kept {
    file: Identity,
    ticket: u64,
    offset: u64,
    bytes: u32,
}

impl Kept {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.into())
    }

    fn to_bytes(self) -> [u8; KEPT_BYTES] {
        let mut bytes = [0; KEPT_BYTES];
        let numbers = [self.file.inode, self.file.generation, self.ticket, self.offset];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Kept> {
        let bytes: &[u8; KEPT_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().map(|number| u64::from_le_bytes(*number));
        let file = Identity { inode: number(0)?, generation: number(8)? };
        let length = u32::from_le_bytes(*bytes.last_chunk()?);
        Some(Kept { file, ticket: number(16)?, offset: number(24)?, bytes: length })
    }
}

fn key(record: &AppendRecord) -> Option<Key> {
    let AppendRecord { client, number, step, uid, .. } = *record;
    (client != [0; 16]).then_some(Key { uid, client, number, step })
}

/// The log, and what it knew when the server started.
pub(super) struct KeptRanges {
    answers: Arc<Answers>,
    earlier: Mutex<HashMap<Key, Kept>>,
    /// Ticket and end of each of these ranges, by file.
    ends: HashMap<Identity, Vec<(u64, u64)>>,
}

impl KeptRanges {
    pub(super) fn new(answers: Arc<Answers>) -> KeptRanges {
        let values = answers.values().into_iter();
        let earlier: HashMap<Key, Kept> =
            values.filter_map(|(key, bytes)| Some((key, Kept::from_bytes(&bytes)?))).collect();
        let mut ends: HashMap<Identity, Vec<(u64, u64)>> = HashMap::new();
        for kept in earlier.values() {
            ends.entry(kept.file).or_default().push((kept.ticket, kept.end()));
        }
        KeptRanges { answers, earlier: Mutex::new(earlier), ends }
    }
}

impl RangeLog for KeptRanges {
    fn end(&self, file: Identity, void: u64) -> u64 {
        let ranges = self.ends.get(&file).into_iter().flatten();
        ranges.filter(|(ticket, _)| *ticket > void).map(|(_, end)| *end).max().unwrap_or(0)
    }

    fn take(&self, file: Identity, records: &[AppendRecord]) -> Vec<EarlierRange> {
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if earlier.is_empty() {
            return Vec::new();
        }
        let range = |&record: &AppendRecord| {
            let Kept { file: of, ticket, offset, bytes } = earlier.remove(&key(&record)?)?;
            ((of, bytes) == (file, record.bytes)).then_some(EarlierRange { record, ticket, offset })
        };
        records.iter().filter_map(range).collect()
    }

    fn keep(
        &self,
        file: Identity,
        ticket: u64,
        records: &[AppendRecord],
        ranges: &[Range],
    ) -> io::Result<()> {
        self.answers.remember(&notes(records, ranges, State::Value, |record, range| {
            Kept { file, ticket, offset: range.offset, bytes: record.bytes }.to_bytes().to_vec()
        }))
    }

    fn forget(&self, records: &[AppendRecord], ranges: &[Range]) {
        // If the log does not take that, the memory has it.
        let _ = self.answers.remember(&notes(records, ranges, State::Void, |_, _| Vec::new()));
    }
}

/// What to note of records that have got new ranges.
fn notes(
    records: &[AppendRecord],
    ranges: &[Range],
    state: State,
    bytes: impl Fn(&AppendRecord, &Range) -> Vec<u8>,
) -> Vec<ToNote> {
    let is_new = |(_, range): &(&AppendRecord, &Range)| range.is_there == range::NEW;
    let note = |(record, range): (&AppendRecord, &Range)| {
        Some(ToNote { key: key(record)?, below: 0, state, bytes: bytes(record, range) })
    };
    records.iter().zip(ranges).filter(is_new).filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = Identity { inode: 7, generation: 8 };

    fn record(number: u64) -> AppendRecord {
        AppendRecord { client: [1; 16], number, step: 0, uid: 3, bytes: 64 }
    }

    #[test]
    fn a_range_is_known_to_the_next_server_once() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Arc::new(Answers::open(&dir.path().join("log"), Default::default()).unwrap());
        let kept = KeptRanges::new(open());
        let ranges = [Range { offset: 64, is_there: 0 }, Range { offset: 0, is_there: 1 }];
        kept.keep(FILE, 5, &[record(1), record(2)], &ranges).unwrap();
        drop(kept);
        let kept = KeptRanges::new(open());
        assert_eq!([0, 4, 5].map(|void| kept.end(FILE, void)), [128, 128, 0]);
        let other = Identity { inode: 9, ..FILE };
        let expected = EarlierRange { record: record(1), ticket: 5, offset: 64 };
        assert_eq!(kept.take(FILE, &[record(1), record(2), record(3)]), [expected]);
        assert_eq!(kept.take(FILE, &[record(1)]), []);
        kept.keep(FILE, 6, &[record(3)], &ranges[..1]).unwrap();
        kept.forget(&[record(3)], &ranges[..1]);
        drop(kept);
        let kept = KeptRanges::new(open());
        assert_eq!((kept.end(FILE, 5), kept.take(FILE, &[record(3)])), (0, vec![]), "not given after all");
        drop(kept);
        assert_eq!(KeptRanges::new(open()).take(other, &[record(1)]), [], "of another file");
    }
}
