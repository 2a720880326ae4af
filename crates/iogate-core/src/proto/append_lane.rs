//! The order of appends to one file: a lane, in which records go in order of arrival, several together, and never two batches at once.
//!
//! An [`AppendLane`] decides, and its driver acts. `R` is a record as the driver has it. Whoever [pushes](AppendLane::push) into an idle
//! lane has somebody go on with it: [take](AppendLane::take) a batch, write it behind the file's end, see what
//! [became of it](judge), [put back](AppendLane::put_back) what is to be tried again, and take the next one, until there is none.
//!
//! # What it promises
//! - Records that are written lie in the file in the order in which they came, each whole.
//! - Each record that was pushed is taken again until it is not put back; while any waits, somebody is at it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Most records of a batch.
pub const RECORDS_MAX: usize = 1024;
/// Most bytes of a batch of several records.
pub const BATCH_BYTES: usize = 1 << 20;

/// The records that are to be appended to a file.
#[derive(Debug)]
pub struct AppendLane<R> {
    /// With their bytes.
    waiting: VecDeque<(R, usize)>,
    is_busy: bool,
    /// How many of the next records go one by one: together they were not taken.
    alone: usize,
    /// Behind the batches so far.
    position: u64,
}

/// What became of a batch: its first records, the next ones, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// So many are in the file, whole.
    pub whole: usize,
    /// So many fail.
    pub failed: usize,
    /// The bytes behind the whole ones that are of no whole record, in the batch: to be cut off.
    pub torn: Option<(u64, u64)>,
}

impl<R> Default for AppendLane<R> {
    fn default() -> AppendLane<R> {
        AppendLane { waiting: VecDeque::new(), is_busy: false, alone: 0, position: 0 }
    }
}

impl<R> AppendLane<R> {
    /// Takes in a record that is to be appended when all before it are there. Returns whether the caller is to have somebody go on:
    /// nobody is at it.
    #[must_use]
    pub fn push(&mut self, record: R, bytes: usize) -> bool {
        self.waiting.push_back((record, bytes));
        !core::mem::replace(&mut self.is_busy, true)
    }

    /// Takes the records that go together next. None: the lane is idle, and whoever was at it stops.
    pub fn take(&mut self) -> Vec<R> {
        let (mut records, mut sum) = (Vec::new(), 0);
        let most = if self.alone > 0 { 1 } else { RECORDS_MAX };
        while let Some(&(_, bytes)) = self.waiting.front()
            && records.len() < most
            && (records.is_empty() || sum + bytes <= BATCH_BYTES)
        {
            sum += bytes;
            records.extend(self.waiting.pop_front().map(|(record, _)| record));
        }
        self.alone = self.alone.saturating_sub(records.len());
        self.is_busy = !records.is_empty();
        records
    }

    /// Puts records of the batch back in front of those that wait; the first `alone` of all go one by one.
    pub fn put_back(&mut self, records: impl DoubleEndedIterator<Item = (R, usize)>, alone: usize) {
        self.alone = self.alone.max(alone);
        records.rev().for_each(|record| self.waiting.push_front(record));
    }

    /// Where a batch of so many bytes lies for the gate, if the file now ends at `end`: behind those before it, although their bytes may
    /// be elsewhere.
    pub fn place(&mut self, end: u64, bytes: u64) -> u64 {
        let place = self.position.max(end);
        self.position = place + bytes;
        place
    }
}

/// What became of a batch of records with these lengths, of which so many bytes were `written`; `None`: none, as the write failed. What
/// is neither whole nor failed is to be tried again.
pub fn judge(lengths: impl IntoIterator<Item = u64>, written: Option<u64>) -> Written {
    let (mut whole, mut behind, mut end) = (0, 0, 0);
    for length in lengths {
        if behind == 0 && written.is_some_and(|bytes| end + length <= bytes) {
            whole += 1;
            end += length;
        } else {
            behind += 1;
        }
    }
    // The first that did not fit fails; those behind it may be shorter.
    let failed = if written.is_some() { behind.min(1) } else { behind };
    let torn = written.filter(|&bytes| failed > 0 && bytes > end).map(|bytes| (end, bytes));
    Written { whole, failed, torn }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_waits_goes_together_within_bounds() {
        let mut lane = AppendLane::default();
        assert!(lane.push(0, BATCH_BYTES + 1), "nobody is at it");
        (1..3).for_each(|record| assert!(!lane.push(record, BATCH_BYTES / 2)));
        (3..2000).for_each(|record| assert!(!lane.push(record, 1)));
        assert_eq!(lane.take(), [0], "a long one goes alone");
        assert_eq!(lane.take(), [1, 2]);
        assert_eq!(lane.take().len(), RECORDS_MAX);
        assert_eq!(lane.take().len(), 1997 - RECORDS_MAX);
        assert!(lane.take().is_empty());
        assert!(lane.push(0, 1));
    }

    #[test]
    fn what_is_put_back_goes_first_and_alone_if_it_must() {
        let mut lane = AppendLane::default();
        (0..5).for_each(|record| assert_eq!(lane.push(record, 1), record == 0));
        let batch = lane.take();
        let _ = lane.push(5, 1);
        lane.put_back(batch.into_iter().map(|record| (record, 1)), 3);
        assert_eq!([(); 4].map(|()| lane.take()), [vec![0], vec![1], vec![2], vec![3, 4, 5]]);
    }

    #[test]
    fn the_first_record_that_does_not_fit_fails() {
        let judged = |written| judge([3, 4, 5], written);
        let written = |whole, failed, torn| Written { whole, failed, torn };
        assert_eq!(judged(Some(12)), written(3, 0, None));
        assert_eq!(judged(Some(7)), written(2, 1, None));
        assert_eq!(judged(Some(6)), written(1, 1, Some((3, 6))), "the third is tried again");
        assert_eq!(judged(Some(0)), written(0, 1, None));
        assert_eq!(judged(None), written(0, 3, None));
        assert_eq!(judge([5, 1], Some(4)), written(0, 1, Some((0, 4))), "it is shorter, but not the next");
    }

    #[test]
    fn batches_lie_one_behind_the_other() {
        let mut lane = AppendLane::<()>::default();
        assert_eq!(
            [(100, 10), (100, 5), (300, 1)].map(|(end, bytes)| lane.place(end, bytes)),
            [100, 110, 300]
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        /// Memory for joining a batch is missing.
        Short,
        /// The gate does not take a batch of several.
        Rejected,
        /// The file system takes so many of a thousandth.
        Taken(usize),
        Failed,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1usize..200).prop_map(Step::Push),
            1 => Just(Step::Short),
            1 => Just(Step::Rejected),
            4 => prop_oneof![Just(1000), 0usize..1000].prop_map(Step::Taken),
            1 => Just(Step::Failed),
        ]
    }

    proptest! {
        /// A file of which each byte says whose it is.
        #[test]
        fn a_file_has_whole_records_in_their_order_each_once(steps in prop::collection::vec(step(), 0..200)) {
            let (mut lane, mut file, mut lengths) = (AppendLane::default(), Vec::new(), Vec::new());
            let (mut acknowledged, mut failed, mut is_busy) = (Vec::new(), 0, false);
            let put_back = |lane: &mut AppendLane<usize>, records: &[usize], lengths: &[usize], alone| {
                lane.put_back(records.iter().map(|&record| (record, lengths[record])), alone);
            };
            // At the end all that waits is written.
            let rest = (0..1000).map(|_| Step::Taken(1000));
            for step in steps.into_iter().chain(rest) {
                if let Step::Push(bytes) = step {
                    let is_first = lane.push(lengths.len(), bytes);
                    prop_assert_eq!(is_first, !is_busy);
                    is_busy = true;
                    lengths.push(bytes);
                    continue;
                }
                if !is_busy {
                    continue;
                }
                let mut batch = lane.take();
                is_busy = !batch.is_empty();
                match step {
                    Step::Rejected if batch.len() > 1 => {
                        put_back(&mut lane, &batch, &lengths, batch.len());
                        continue;
                    }
                    Step::Short if batch.len() > 1 => {
                        put_back(&mut lane, &batch[1..], &lengths, 1);
                        batch.truncate(1);
                    }
                    _ => {}
                }
                let bytes: usize = batch.iter().map(|&record| lengths[record]).sum();
                let taken = match step {
                    Step::Taken(part) => Some(bytes * part / 1000),
                    Step::Failed => None,
                    _ => Some(bytes),
                };
                let start = file.len();
                let all = batch.iter().flat_map(|&record| core::iter::repeat_n(record, lengths[record]));
                file.extend(all.take(taken.unwrap_or(0)));
                let found =
                    judge(batch.iter().map(|&record| lengths[record] as u64), taken.map(|bytes| bytes as u64));
                if let Some((from, to)) = found.torn {
                    prop_assert_eq!(start + to as usize, file.len());
                    file.truncate(start + from as usize);
                }
                acknowledged.extend_from_slice(&batch[..found.whole]);
                failed += found.failed;
                put_back(&mut lane, &batch[found.whole + found.failed..], &lengths, 0);
            }
            prop_assert!(!is_busy, "something waits for ever");
            prop_assert_eq!(acknowledged.len() + failed, lengths.len());
            prop_assert!(acknowledged.is_sorted(), "records have overtaken each other");
            let whole: Vec<usize> =
                acknowledged.iter().flat_map(|&record| core::iter::repeat_n(record, lengths[record])).collect();
            prop_assert_eq!(file, whole);
        }
    }
}
