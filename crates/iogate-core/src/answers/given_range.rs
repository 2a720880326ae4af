//! The ranges that records were given: remembered, so that who asks again gets the old one although nobody has heard of it.

use alloc::vec::Vec;

use super::Key;
use crate::wire::codec::{Reader, Record, Value, WireError, record};
use crate::wire::{AppendRecord, Identity, Range, RequestOrigin, range};

record! {
    /// What is remembered of a record that was given a range.
    GivenRange {
        /// Of which file.
        file: Identity,
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        bytes: u32,
    }
}

impl GivenRange {
    /// What to remember of records that were given ranges: those that are new, of clients that number their requests.
    pub fn of<'a>(
        file: Identity,
        records: &'a [AppendRecord],
        ranges: &'a [Range],
    ) -> impl Iterator<Item = (Key, GivenRange)> + 'a {
        let new = records.iter().zip(ranges).filter(|(_, range)| range.is_there == range::NEW);
        new.filter_map(move |(record, range)| {
            Some((Key::of_record(record)?, GivenRange { file, offset: range.offset, bytes: record.bytes }))
        })
    }

    /// The record that was given it, if it is known by this key.
    pub fn record(&self, key: &Key) -> AppendRecord {
        let Key { uid, client, number, step } = *key;
        AppendRecord { client, number, step, uid, bytes: self.bytes }
    }
}

impl Key {
    /// The key of a record that is to be appended; `None` if it has no origin.
    pub fn of_record(record: &AppendRecord) -> Option<Key> {
        let AppendRecord { client, number, step, uid, .. } = *record;
        Key::of(uid, &RequestOrigin { client, number, step, unanswered: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = Identity { inode: 7, generation: 8 };

    fn record(client: u8, number: u64) -> AppendRecord {
        AppendRecord { client: [client; 16], number, step: 2, uid: 3, bytes: 64 }
    }

    #[test]
    fn only_new_ranges_of_records_with_an_origin_are_remembered() {
        let records = [record(1, 1), record(1, 2), record(0, 3), record(1, 4)];
        let ranges = [(0, range::NEW), (64, 1), (128, range::NEW), (192, range::NEW)]
            .map(|(offset, is_there)| Range { offset, is_there });
        let given: Vec<_> = GivenRange::of(FILE, &records, &ranges).collect();
        let numbers: Vec<_> = given.iter().map(|(key, range)| (key.number, range.offset)).collect();
        assert_eq!(numbers, [(1, 0), (4, 192)]);
        let (key, range) = given[1];
        assert_eq!(range.record(&key), records[3]);
    }

    #[test]
    fn its_bytes_stay_as_they_are() {
        let range = GivenRange { file: FILE, offset: 9, bytes: 10 };
        let mut bytes = Vec::new();
        range.encode(&mut bytes);
        let words = [7, 8, 9].map(u64::to_le_bytes).concat();
        assert_eq!(bytes, [&words[..], &10_u32.to_le_bytes()].concat());
        assert_eq!(GivenRange::decode(&bytes), Ok(range));
        assert!(GivenRange::decode(&bytes[1..]).is_err());
    }
}
