//! The ranges of records, over restarts of the server of names: whoever asks again gets the range that it had, although nobody has
//! heard of that.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::answers::{Key, State};
use iogate_core::wire::{AppendRecord, Identity, Range};

use crate::server::{Answers, ToNote};

/// Bytes of what is remembered of a record: file, ticket, offset, length.
const KEPT_BYTES: usize = 36;

/// A range that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) file: Identity,
    /// Larger than those of all that was given before it.
    pub(crate) ticket: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

impl Kept {
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
pub(crate) struct KeptRanges {
    answers: Arc<Answers>,
    earlier: Mutex<HashMap<Key, Kept>>,
}

impl KeptRanges {
    pub(crate) fn new(answers: Arc<Answers>) -> KeptRanges {
        let values = answers.values().into_iter();
        let earlier = values.filter_map(|(key, bytes)| Some((key, Kept::from_bytes(&bytes)?))).collect();
        KeptRanges { answers, earlier: Mutex::new(earlier) }
    }

    /// The ranges that records of a file were given before the server started.
    pub(crate) fn take(&self, file: Identity, records: &[AppendRecord]) -> Vec<(AppendRecord, Kept)> {
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if earlier.is_empty() {
            return Vec::new();
        }
        let kept = |record: &AppendRecord| {
            let kept = earlier.remove(&key(record)?)?;
            ((kept.file, kept.bytes) == (file, record.bytes)).then_some((*record, kept))
        };
        records.iter().filter_map(kept).collect()
    }

    /// Remembers ranges. They are in the log when this returns.
    pub(crate) fn keep(
        &self,
        file: Identity,
        ticket: u64,
        records: &[AppendRecord],
        ranges: &[Range],
    ) -> io::Result<()> {
        let note = |(record, range): (&AppendRecord, &Range)| {
            let kept = Kept { file, ticket, offset: range.offset, bytes: record.bytes };
            let bytes = kept.to_bytes().to_vec();
            (range.is_there == 0).then_some(())?;
            Some(ToNote { key: key(record)?, below: 0, state: State::Value, bytes })
        };
        let notes: Vec<ToNote> = records.iter().zip(ranges).filter_map(note).collect();
        self.answers.remember(&notes)
    }
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
        let other = Identity { inode: 9, ..FILE };
        let expected = Kept { file: FILE, ticket: 5, offset: 64, bytes: 64 };
        assert_eq!(kept.take(FILE, &[record(1), record(2), record(3)]), [(record(1), expected)]);
        assert_eq!(kept.take(FILE, &[record(1)]), []);
        drop(kept);
        assert_eq!(KeptRanges::new(open()).take(other, &[record(1)]), [], "of another file");
    }
}
