//! The ranges of records, over restarts of the server of names: whoever asks again gets the range that it had, although nobody has
//! heard of that.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use iogate_core::answers::{GivenRange, Key, State};
use iogate_core::ends::EarlierRange;
use iogate_core::wire::{AppendRecord, Identity, Range, Record};
use iogate_engine::lock;
use iogate_vfs::ends::RangeLog;

use iogate_vfs::answers::{Answers, ToNote};

/// The log, and what it knew when the server started and has not forgotten since.
pub(super) struct KeptRanges {
    answers: Arc<Answers>,
    earlier: Mutex<HashMap<Identity, HashMap<Key, EarlierRange>>>,
}

impl KeptRanges {
    pub(super) fn new(answers: Arc<Answers>) -> KeptRanges {
        let mut earlier: HashMap<Identity, HashMap<Key, EarlierRange>> = HashMap::new();
        for (key, bytes) in answers.values() {
            let Ok(given) = GivenRange::decode(&bytes) else { continue };
            let range = EarlierRange { record: given.record(&key), offset: given.offset };
            earlier.entry(given.file).or_default().insert(key, range);
        }
        KeptRanges { answers, earlier: Mutex::new(earlier) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, HashMap<Key, EarlierRange>>> {
        lock(&self.earlier)
    }
}

impl RangeLog for KeptRanges {
    fn earlier(&self, file: Identity) -> Vec<EarlierRange> {
        self.lock().get(&file).map(|ranges| ranges.values().copied().collect()).unwrap_or_default()
    }

    fn keep(&self, file: Identity, records: &[AppendRecord], ranges: &[Range]) -> io::Result<()> {
        let note = |(key, given): (Key, GivenRange)| {
            let mut bytes = Vec::new();
            given.encode(&mut bytes);
            ToNote { key, below: 0, state: State::Value, bytes }
        };
        self.answers.remember(&GivenRange::of(file, records, ranges).map(note).collect::<Vec<_>>())
    }

    fn forget(&self, file: Identity, records: &[AppendRecord]) -> io::Result<()> {
        let keys: Vec<Key> = records.iter().filter_map(Key::of_record).collect();
        if let Some(ranges) = self.lock().get_mut(&file) {
            for key in &keys {
                ranges.remove(key);
            }
        }
        let void = |key| ToNote { key, below: 0, state: State::Void, bytes: Vec::new() };
        self.answers.remember(&keys.into_iter().map(void).collect::<Vec<_>>())
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
