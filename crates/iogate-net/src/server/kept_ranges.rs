//! The ranges of records, over restarts of the server of names: whoever asks again gets the range that it had, although nobody has
//! heard of that.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::answers::{Key, State};
use iogate_core::ends::EarlierRange;
use iogate_core::wire::{AppendRecord, Identity, Range, range};
use iogate_vfs::ends::RangeLog;

use super::{Answers, ToNote};

/// Bytes of what is remembered of a record: file, offset, length.
const KEPT_BYTES: usize = 28;

/// A range that was given.
#[derive(Clone, Copy)]
struct Kept {
    file: Identity,
    offset: u64,
    bytes: u32,
}

impl Kept {
    fn to_bytes(self) -> [u8; KEPT_BYTES] {
        let mut bytes = [0; KEPT_BYTES];
        let numbers = [self.file.inode, self.file.generation, self.offset];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Kept> {
        let bytes: &[u8; KEPT_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().map(|number| u64::from_le_bytes(*number));
        let file = Identity { inode: number(0)?, generation: number(8)? };
        let length = u32::from_le_bytes(*bytes.last_chunk()?);
        Some(Kept { file, offset: number(16)?, bytes: length })
    }
}

fn key(record: &AppendRecord) -> Option<Key> {
    let AppendRecord { client, number, step, uid, .. } = *record;
    (client != [0; 16]).then_some(Key { uid, client, number, step })
}

/// The log, and what it knew when the server started and has not forgotten since.
pub(super) struct KeptRanges {
    answers: Arc<Answers>,
    earlier: Mutex<HashMap<Identity, HashMap<Key, EarlierRange>>>,
}

impl KeptRanges {
    pub(super) fn new(answers: Arc<Answers>) -> KeptRanges {
        let mut earlier: HashMap<Identity, HashMap<Key, EarlierRange>> = HashMap::new();
        for (key, bytes) in answers.values() {
            let Some(Kept { file, offset, bytes }) = Kept::from_bytes(&bytes) else { continue };
            let Key { uid, client, number, step } = key;
            let record = AppendRecord { client, number, step, uid, bytes };
            earlier.entry(file).or_default().insert(key, EarlierRange { record, offset });
        }
        KeptRanges { answers, earlier: Mutex::new(earlier) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, HashMap<Key, EarlierRange>>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RangeLog for KeptRanges {
    fn earlier(&self, file: Identity) -> Vec<EarlierRange> {
        self.lock().get(&file).map(|ranges| ranges.values().copied().collect()).unwrap_or_default()
    }

    fn keep(&self, file: Identity, records: &[AppendRecord], ranges: &[Range]) -> io::Result<()> {
        let new = records.iter().zip(ranges).filter(|(_, range)| range.is_there == range::NEW);
        let note = |(record, range): (&AppendRecord, &Range)| {
            let kept = Kept { file, offset: range.offset, bytes: record.bytes };
            note(record, State::Value, kept.to_bytes().to_vec())
        };
        self.answers.remember(&new.filter_map(note).collect::<Vec<_>>())
    }

    fn forget(&self, file: Identity, records: &[AppendRecord]) -> io::Result<()> {
        if let Some(ranges) = self.lock().get_mut(&file) {
            for key in records.iter().filter_map(key) {
                ranges.remove(&key);
            }
        }
        let void = |record| note(record, State::Void, Vec::new());
        self.answers.remember(&records.iter().filter_map(void).collect::<Vec<_>>())
    }
}

/// What to note of a record.
fn note(record: &AppendRecord, state: State, bytes: Vec<u8>) -> Option<ToNote> {
    Some(ToNote { key: key(record)?, below: 0, state, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = Identity { inode: 7, generation: 8 };

    fn record(number: u64) -> AppendRecord {
        AppendRecord { client: [1; 16], number, step: 0, uid: 3, bytes: 64 }
    }

    #[test]
    fn a_range_is_known_to_the_next_server_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let open =
            || KeptRanges::new(Arc::new(Answers::open(&dir.path().join("log"), Default::default()).unwrap()));
        let kept = open();
        let ranges = [Range { offset: 64, is_there: 0 }, Range { offset: 0, is_there: 1 }];
        kept.keep(FILE, &[record(1), record(2)], &ranges).unwrap();
        assert_eq!(kept.earlier(FILE), [], "of a server before");
        drop(kept);
        let kept = open();
        let expected = EarlierRange { record: record(1), offset: 64 };
        assert_eq!(kept.earlier(FILE), [expected]);
        assert_eq!(kept.earlier(FILE), [expected], "when the file is opened again, too");
        assert_eq!(kept.earlier(Identity { inode: 9, ..FILE }), [], "of another file");
        kept.keep(FILE, &[record(3)], &[Range { offset: 128, is_there: 0 }]).unwrap();
        kept.forget(FILE, &[record(1)]).unwrap();
        assert_eq!(kept.earlier(FILE), []);
        drop(kept);
        assert_eq!(open().earlier(FILE), [EarlierRange { record: record(3), offset: 128 }]);
    }
}
