//! Record marking (RFC 5531, section 11): which bytes of a stream are one message.

/// Bytes of a record that must have come before there is memory for all of it.
const BELIEVED_AFTER: usize = 64 << 10;
/// Fragments of one record; nobody needs more, and each costs its mark only.
const FRAGMENTS_MAX: u32 = 64;

/// Why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record that is longer than any message may be.
    #[error("expected a record of at most {max} bytes, found one of {found} or more")]
    TooLong {
        /// Bytes that it would have at least.
        found: u64,
        /// Bytes that it may have.
        max: usize,
    },
    /// A record in too many pieces.
    #[error("expected a record of at most {FRAGMENTS_MAX} fragments")]
    TooManyFragments,
}

/// Puts records together from what a stream brings.
#[derive(Debug)]
pub struct Records {
    max: usize,
    record: Vec<u8>,
    mark: [u8; 4],
    mark_bytes: usize,
    /// Bytes of the present fragment that have not come.
    missing: usize,
    is_last: bool,
    fragments: u32,
}

impl Records {
    /// Of a stream whose records have at most so many bytes.
    pub fn new(max: usize) -> Records {
        Records {
            max,
            record: Vec::new(),
            mark: [0; 4],
            mark_bytes: 0,
            missing: 0,
            is_last: false,
            fragments: 0,
        }
    }

    /// Takes what has come, all of it. `each` is given every record that is complete. After an error, the stream is of no use.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Vec<u8>)) -> Result<(), RecordError> {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let (taken, rest) = bytes.split_at(bytes.len().min(self.missing));
                self.make_room(taken.len());
                self.record.extend_from_slice(taken);
                bytes = rest;
                each_if(self.arrived(taken.len()), &mut each);
                continue;
            }
            self.mark[self.mark_bytes] = bytes[0];
            self.mark_bytes += 1;
            bytes = &bytes[1..];
            if self.mark_bytes == self.mark.len() {
                self.mark_bytes = 0;
                each_if(self.begin_fragment(u32::from_be_bytes(self.mark))?, &mut each);
            }
        }
        Ok(())
    }

    /// The record that is coming, and how many bytes may be appended to it right from the stream, if that is worth it.
    /// [`Records::appended`] has to follow.
    pub fn direct(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        if self.missing < BELIEVED_AFTER / 2 || self.record.len() < BELIEVED_AFTER {
            return None;
        }
        self.make_room(self.missing);
        Some((&mut self.record, self.missing))
    }

    /// So many bytes were appended to what [`Records::direct`] has given. Returns the record if that completes it.
    pub fn appended(&mut self, count: usize) -> Option<Vec<u8>> {
        self.arrived(count)
    }

    /// Whether a record has begun and is not complete.
    pub fn is_within(&self) -> bool {
        self.missing > 0 || self.mark_bytes > 0 || self.fragments > 0
    }

    /// Bytes that are kept for a record that is not complete.
    pub fn held(&self) -> usize {
        self.record.capacity()
    }

    /// Bytes that the record which has begun will have, as far as its marks have said.
    pub fn announced(&self) -> usize {
        self.record.len() + self.missing
    }

    /// Room for what comes: of a long record only when enough of it has come.
    fn make_room(&mut self, count: usize) {
        let more = if self.record.len() >= BELIEVED_AFTER { self.missing } else { count };
        self.record.reserve(more);
    }

    fn begin_fragment(&mut self, mark: u32) -> Result<Option<Vec<u8>>, RecordError> {
        self.is_last = mark >> 31 == 1;
        self.missing = (mark & 0x7fff_ffff) as usize;
        self.fragments += 1;
        let found = self.record.len() as u64 + self.missing as u64;
        if found > self.max as u64 {
            return Err(RecordError::TooLong { found, max: self.max });
        }
        if self.fragments > FRAGMENTS_MAX {
            return Err(RecordError::TooManyFragments);
        }
        Ok(if self.missing == 0 { self.arrived(0) } else { None })
    }

    fn arrived(&mut self, count: usize) -> Option<Vec<u8>> {
        self.missing -= count;
        if self.missing > 0 || !self.is_last {
            return None;
        }
        self.fragments = 0;
        self.is_last = false;
        Some(std::mem::take(&mut self.record))
    }
}

fn each_if(record: Option<Vec<u8>>, each: &mut impl FnMut(Vec<u8>)) {
    if let Some(record) = record {
        each(record);
    }
}

/// Bytes of a record's mark.
pub const MARK_BYTES: usize = 4;

/// The mark of a record that is sent in one fragment.
pub fn mark(bytes: usize) -> [u8; 4] {
    (bytes as u32 | 1 << 31).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fed(records: &mut Records, bytes: &[u8]) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut found = Vec::new();
        records.feed(bytes, |record| found.push(record))?;
        Ok(found)
    }

    proptest! {
        #[test]
        fn records_come_out_whole_however_they_are_cut(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..6),
            fragment in 4usize..90,
            piece in 1usize..50,
        ) {
            let mut stream = Vec::new();
            for record in &records {
                let mut fragments: Vec<&[u8]> = record.chunks(fragment).collect();
                if fragments.is_empty() {
                    fragments.push(&[]);
                }
                let last = fragments.len() - 1;
                for (index, bytes) in fragments.into_iter().enumerate() {
                    let mark = bytes.len() as u32 | u32::from(index == last) << 31;
                    stream.extend_from_slice(&mark.to_be_bytes());
                    stream.extend_from_slice(bytes);
                }
            }
            let (mut machine, mut found) = (Records::new(200), Vec::new());
            for bytes in stream.chunks(piece) {
                found.extend(fed(&mut machine, bytes).unwrap());
            }
            prop_assert_eq!(found, records);
            prop_assert!(!machine.is_within());
        }
    }

    #[test]
    fn too_long_a_record_is_refused_before_there_is_memory_for_it() {
        let mut machine = Records::new(1 << 20);
        assert!(fed(&mut machine, &0xffff_ffffu32.to_be_bytes()).is_err());
        let mut machine = Records::new(1 << 20);
        assert_eq!(fed(&mut machine, &mark(1 << 20)), Ok(vec![]));
        fed(&mut machine, &[0; 1000]).unwrap();
        assert!(machine.held() < 64 << 10, "{}", machine.held());
        let mut machine = Records::new(10);
        fed(&mut machine, &[0, 0, 0, 6, 1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(fed(&mut machine, &mark(5)), Err(RecordError::TooLong { found: 11, max: 10 }));
        let mut machine = Records::new(10);
        assert_eq!(fed(&mut machine, &[0; 4 * 65]), Err(RecordError::TooManyFragments));
    }

    #[test]
    fn the_rest_of_a_long_record_comes_right_from_the_stream() {
        let mut machine = Records::new(1 << 20);
        fed(&mut machine, &mark(1 << 20)).unwrap();
        assert!(machine.direct().is_none());
        fed(&mut machine, &vec![1; 64 << 10]).unwrap();
        let (record, room) = machine.direct().unwrap();
        assert_eq!(room, (1 << 20) - (64 << 10));
        record.extend_from_slice(&vec![2; room]);
        let record = machine.appended(room).unwrap();
        assert_eq!((record.len(), record[0], record[1 << 19]), (1 << 20, 1, 2));
        assert!(!machine.is_within());
    }
}
