//! Where a file lies on a device.

use super::allocation::{Allocation, Rules};
use super::divisor::Divisor;
use crate::hash::HashMap;
use crate::request::{FileId, Op};

/// Files as a fresh file system lays them out: in extents, each taken from the device's start onwards when its
/// first byte is touched. A file no longer than an extent is contiguous; past the device's end it wraps around.
///
/// Left out: fragmentation within an extent, metadata, free space of an aged file system.
#[derive(Debug)]
pub struct Placement {
    extent_bytes: Divisor,
    extents: HashMap<(FileId, u64), u64>,
    /// Extents that were asked for lately, and their addresses, each at a place of its own: most are asked for again and again.
    lately: [Option<((FileId, u64), u64)>; LATELY],
    /// Instead, the rules of a file system.
    allocation: Option<Allocation>,
}

/// Extents that are found without a search: as many as a few applications have files.
const LATELY: usize = 16;

impl Default for Placement {
    fn default() -> Placement {
        Placement::new(Placement::EXTENT_BYTES)
    }
}

impl Placement {
    /// Bytes per extent, if nothing else is said.
    pub const EXTENT_BYTES: u64 = 256 << 20;

    /// No files yet; `extent_bytes` is not zero.
    pub fn new(extent_bytes: u64) -> Placement {
        let extent_bytes = Divisor::new(extent_bytes);
        Placement { extent_bytes, extents: HashMap::default(), lately: [None; LATELY], allocation: None }
    }

    /// The same by the rules of a file system; what was there before lies in extents of `extent_bytes`.
    pub fn by_rules(rules: Rules, extent_bytes: u64) -> Placement {
        Placement { allocation: Some(Allocation::new(rules, extent_bytes)), ..Placement::new(extent_bytes) }
    }

    /// Calls `piece(address, bytes)` for each part of a range that lies together, when it is read or written.
    pub fn for_each_piece(
        &mut self,
        op: Op,
        file: FileId,
        offset: u64,
        bytes: u64,
        piece: impl FnMut(u64, u64),
    ) {
        match &mut self.allocation {
            Some(allocation) => allocation.for_each_piece(op, file, offset, bytes, piece),
            None => self.for_each_extent(file, offset, bytes, piece),
        }
    }

    /// Where an extent of a file begins on the device.
    fn start(&mut self, file: FileId, index: u64) -> u64 {
        let key = (file, index);
        let place = file.0.wrapping_add(index) as usize % LATELY;
        match self.lately[place] {
            Some((lately, start)) if lately == key => start,
            _ => {
                let next = self.extents.len() as u64;
                // Wraps as the device itself does, should 2^64 bytes be touched.
                let start = self.extents.entry(key).or_insert(next).wrapping_mul(self.extent_bytes.get());
                self.lately[place] = Some((key, start));
                start
            }
        }
    }

    /// Calls `piece(address, bytes)` for each part of a range that lies in an extent of its own.
    fn for_each_extent(&mut self, file: FileId, offset: u64, bytes: u64, mut piece: impl FnMut(u64, u64)) {
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let (index, within) = self.extent_bytes.div_rem(at);
            let piece_end = (at - within).saturating_add(self.extent_bytes.get()).min(end);
            piece(self.start(file, index).wrapping_add(within), piece_end - at);
            at = piece_end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn files_are_contiguous_within_an_extent_and_apart_from_each_other() {
        let mut placement = Placement::default();
        let mut address = |file, offset| {
            let mut found = None;
            placement.for_each_extent(FileId(file), offset, 1, |address, _| found = Some(address));
            found
        };
        assert_eq!(address(7, 100), Some(100));
        assert_eq!(address(3, 0), Some(Placement::EXTENT_BYTES));
        assert_eq!(address(7, Placement::EXTENT_BYTES), Some(2 * Placement::EXTENT_BYTES));
        assert_eq!(address(7, 101), Some(101));
    }

    #[test]
    fn a_range_is_cut_where_its_extents_end() {
        let mut placement = Placement::new(100);
        (1..=2).for_each(|file| placement.for_each_extent(FileId(file), 0, 1, |_, _| {}));
        let mut pieces = Vec::new();
        placement.for_each_extent(FileId(1), 50, 200, |address, bytes| pieces.push((address, bytes)));
        assert_eq!(pieces, [(50, 50), (200, 100), (300, 50)]);
    }
}
