//! What a disk holds back from its medium: written ranges, sorted by address, bounded in number and bytes.

use alloc::vec::Vec;

/// Most ranges held at once. Drives hold one for each command that they have accepted; the number is that of
/// native command queueing, as data sheets do not give one for the cache.
const RANGES_MAX: usize = 32;

/// Ranges that are written but not yet on the medium. They neither overlap nor touch.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    /// Start and end of each, sorted.
    ranges: Vec<(u64, u64)>,
    bytes: u64,
    bytes_max: u64,
    ranges_max: usize,
}

impl WriteCache {
    pub(super) fn new(bytes_max: u64) -> WriteCache {
        WriteCache::with_ranges(bytes_max, RANGES_MAX)
    }

    /// One that holds as many ranges as is said.
    pub(super) fn with_ranges(bytes_max: u64, ranges_max: usize) -> WriteCache {
        WriteCache { ranges: Vec::with_capacity(ranges_max + 1), bytes: 0, bytes_max, ranges_max }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.bytes_max > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether it holds more than it may.
    pub(super) fn is_over_full(&self) -> bool {
        self.bytes > self.bytes_max || self.ranges.len() > self.ranges_max
    }

    /// Whether it holds all of `address..end`.
    pub(super) fn contains(&self, address: u64, end: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        after > 0 && self.ranges[after - 1].1 >= end
    }

    /// Adds `address..end`, merged with what it overlaps or touches.
    pub(super) fn insert(&mut self, address: u64, end: u64) {
        let first = self.ranges.partition_point(|range| range.1 < address);
        let last = first + self.ranges[first..].partition_point(|range| range.0 <= end);
        let mut merged = (address, end);
        for range in &self.ranges[first..last] {
            merged = (merged.0.min(range.0), merged.1.max(range.1));
            self.bytes -= range.1 - range.0;
        }
        self.bytes += merged.1 - merged.0;
        if first == last {
            self.ranges.insert(first, merged);
        } else {
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..last);
        }
    }

    /// Takes out the next piece to put on the medium: from the range at or after `head`, or else from the
    /// lowest (one sweep of the arm after the other in the same direction); at most `piece_max` bytes of it,
    /// or as much as brings a longer range down to the bound.
    pub(super) fn take_next(&mut self, head: u64, piece_max: u64) -> Option<(u64, u64)> {
        let index = self.ranges.partition_point(|range| range.1 <= head);
        self.take_at(if index < self.ranges.len() { index } else { 0 }, piece_max)
    }

    /// The ranges, sorted.
    pub(super) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Whether `bytes` more can be taken.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.ranges.len() < self.ranges_max
            && (self.is_empty() || self.bytes.saturating_add(bytes) <= self.bytes_max)
    }

    /// Whether it holds half of what it may.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes > self.bytes_max / 2 || self.ranges.len() > self.ranges_max / 2
    }

    /// The index of the range that has the byte at `address`.
    pub(super) fn range_at(&self, address: u64) -> Option<usize> {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        (after > 0 && self.ranges[after - 1].1 > address).then(|| after - 1)
    }

    /// Forgets `address..end`.
    pub(super) fn remove(&mut self, address: u64, end: u64) {
        let first = self.ranges.partition_point(|range| range.1 <= address);
        let last = first + self.ranges[first..].partition_point(|range| range.0 < end);
        let Some((from, _)) = self.ranges[first..last].first().copied() else { return };
        let to = self.ranges[last - 1].1;
        self.bytes -= self.ranges[first..last].iter().map(|range| range.1 - range.0).sum::<u64>();
        let left = [(from, address), (end, to)].into_iter().filter(|range| range.0 < range.1);
        self.bytes += left.clone().map(|range| range.1 - range.0).sum::<u64>();
        self.ranges.splice(first..last, left);
    }

    /// Takes out a piece of one range, as [`WriteCache::take_next`] does.
    pub(super) fn take_at(&mut self, index: usize, piece_max: u64) -> Option<(u64, u64)> {
        let &(address, range_end) = self.ranges.get(index)?;
        let bytes = range_end - address;
        let piece = bytes.saturating_sub(self.bytes_max).max(piece_max).min(bytes);
        if piece == bytes {
            self.ranges.remove(index);
        } else {
            self.ranges[index].0 += piece;
        }
        self.bytes -= piece;
        Some((address, address + piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_leave_in_sweeps() {
        let mut cache = WriteCache::new(1 << 20);
        for (address, end) in [(100, 200), (300, 400), (500, 600), (200, 300), (550, 700)] {
            cache.insert(address, end);
        }
        assert_eq!((cache.ranges.as_slice(), cache.bytes), ([(100, 400), (500, 700)].as_slice(), 500));
        assert!(cache.contains(150, 400) && !cache.contains(150, 401) && !cache.contains(450, 460));
        assert_eq!(cache.take_next(450, 150), Some((500, 650)));
        assert_eq!(cache.take_next(650, 150), Some((650, 700)));
        assert_eq!(cache.take_next(700, 1_000), Some((100, 400)));
        assert_eq!((cache.take_next(400, 1), cache.bytes), (None, 0));
    }

    #[test]
    fn what_is_removed_leaves_the_rest() {
        let mut cache = WriteCache::with_ranges(1 << 20, 9);
        for (address, end) in [(100, 200), (300, 400), (500, 600)] {
            cache.insert(address, end);
        }
        cache.remove(150, 550);
        assert_eq!((cache.ranges(), cache.bytes), ([(100, 150), (550, 600)].as_slice(), 100));
        cache.remove(110, 120);
        assert_eq!((cache.ranges(), cache.bytes), ([(100, 110), (120, 150), (550, 600)].as_slice(), 90));
        cache.remove(200, 300);
        cache.remove(600, 700);
        assert_eq!((cache.ranges().len(), cache.range_at(130), cache.range_at(150)), (3, Some(1), None));
        cache.remove(0, 1_000);
        assert_eq!((cache.is_empty(), cache.bytes), (true, 0));
    }

    #[test]
    fn one_long_range_comes_down_to_the_bound_at_once() {
        let mut cache = WriteCache::new(1_000);
        cache.insert(0, 1 << 40);
        assert!(cache.is_over_full());
        assert_eq!(cache.take_next(0, 10), Some((0, (1 << 40) - 1_000)));
        assert!(!cache.is_over_full());
    }
}
