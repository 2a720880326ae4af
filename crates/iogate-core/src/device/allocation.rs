//! Where a file system puts the blocks of files that grow: ext3, ext4, XFS.
//!
//! **Charged:** a file that is written gets blocks of 4 KiB from a reservation of its own, which no other file takes from; when that is
//! used up, it gets another, as near behind its last block as there is room. How long reservations are tells the file systems apart:
//! ext3's begin with 8 blocks and double up to 1027; ext4's reach to the next power of two of the file's size up to 1 MiB, then to the
//! next multiple of 2, 4 or 8 MiB; XFS's are as long as the file, from 64 KiB to 8 GiB, and before that none. Blocks are taken when this
//! is asked: by a write-back under ext4 and XFS, which delay allocation, by the write under ext3. A part of a file that is read before it
//! is written was there before, in one piece of the length that is given here.
//!
//! **Left out:** groups and their metadata, directories (all files begin at the start of the device, as in one directory), ext4's
//! groups of small files, XFS's several allocation groups, space that is freed or given back (ext4's and XFS's reservations at a
//! close), an aged file system.
//!
//! **Sources:** ext3: `ext3_fs.h` (EXT3_DEFAULT_RESERVE_BLOCKS 8, EXT3_MAX_RESERVE_BLOCKS 1027), `balloc.c`; Cao et al., State of the
//! art: where we are with the ext3 filesystem, OLS 2005. ext4: `mballoc.c` (ext4_mb_normalize_request); Mathur et al., The new ext4
//! filesystem, OLS 2007. XFS: `xfs_iomap.c` (xfs_iomap_prealloc_size).
//! ext4 and XFS are as `filefrag` shows of images on Linux, see the tests.

use alloc::collections::BTreeMap;

use super::parameters::value;
use crate::hash::HashMap;
use crate::request::{FileId, Op};

/// Bytes of a block.
const BLOCK: u64 = value("allocation.block_b");
const EXT3_FIRST: u64 = value("allocation.ext3_first_blocks");
const EXT3_MAX: u64 = value("allocation.ext3_max_blocks");
const XFS_LEAST: u64 = value("allocation.xfs_least_blocks");
const XFS_MOST: u64 = value("allocation.xfs_most_blocks");

/// Whose rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// ext3: windows that double.
    Ext3,
    /// ext4: preallocation to round sizes.
    Ext4,
    /// XFS: as much again as there is.
    Xfs,
}

impl Rules {
    /// The rules of this name: `ext3`, `ext4` or `xfs`.
    pub fn by_name(name: &str) -> Option<Rules> {
        [("ext3", Rules::Ext3), ("ext4", Rules::Ext4), ("xfs", Rules::Xfs)]
            .into_iter()
            .find_map(|(own, rules)| (own == name).then_some(rules))
    }
}

/// Blocks of a file that lie together: from this block of the file on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    at: u64,
    blocks: u64,
}

#[derive(Debug, Default)]
struct File {
    /// By the first block in the file.
    extents: BTreeMap<u64, Extent>,
    /// What is left of its reservation: first block on the device, how many, and, where it is for a part of the file, which.
    left: (u64, u64),
    reserved_for: u64,
    /// Length of its last reservation.
    window: u64,
    /// Blocks up to the end of what was written.
    end: u64,
    /// Behind its last block on the device.
    goal: u64,
}

/// The blocks of a file system's files.
#[derive(Debug)]
pub(super) struct Allocation {
    rules: Rules,
    files: HashMap<FileId, File>,
    /// What is taken or reserved, by its first block: neither overlapping nor touching.
    taken: BTreeMap<u64, u64>,
    /// Blocks of a file that was there before.
    before: u64,
}

impl Allocation {
    pub(super) fn new(rules: Rules, extent_bytes: u64) -> Allocation {
        let before = (extent_bytes / BLOCK).max(1);
        Allocation { rules, files: HashMap::default(), taken: BTreeMap::new(), before }
    }

    /// Calls `piece(address, bytes)` for each part of a range that lies together; blocks that it has not yet it gets.
    pub(super) fn for_each_piece(
        &mut self,
        op: Op,
        file: FileId,
        offset: u64,
        bytes: u64,
        mut piece: impl FnMut(u64, u64),
    ) {
        let (mut at, end) = (offset, offset.saturating_add(bytes));
        while at < end {
            let (block, within) = (at / BLOCK, at % BLOCK);
            let wanted = end.div_ceil(BLOCK) - block;
            let (start, blocks) = match self.find(file, block) {
                Ok(found) => found,
                Err(room) => self.allocate(op, file, block, wanted, room),
            };
            let length = (blocks.saturating_mul(BLOCK) - within).min(end - at);
            piece(start.wrapping_mul(BLOCK).wrapping_add(within), length);
            at += length;
        }
    }

    /// Where a block of a file is, and how many follow it there; or how many follow that are nowhere yet.
    fn find(&self, file: FileId, block: u64) -> Result<(u64, u64), u64> {
        let Some(file) = self.files.get(&file) else { return Err(u64::MAX) };
        if let Some((first, extent)) = file.extents.range(..=block).next_back()
            && block - first < extent.blocks
        {
            return Ok((extent.at + block - first, extent.blocks - (block - first)));
        }
        Err(file.extents.range(block..).next().map_or(u64::MAX, |(next, _)| next - block))
    }

    /// Gives a file up to `wanted` blocks from `block` on, and no more than there is `room` for before what it has: where they are, and
    /// how many.
    fn allocate(&mut self, op: Op, id: FileId, block: u64, wanted: u64, room: u64) -> (u64, u64) {
        let file = self.files.entry(id).or_default();
        if op == Op::Read {
            let wanted = wanted.max(self.before - block % self.before).min(room);
            let start = reserve(&mut self.taken, file.goal, wanted);
            return file.take(block, start, wanted);
        }
        let wanted = wanted.min(room);
        let (start, left) = file.left;
        // What ext4 and XFS have reserved is for what follows in the file.
        let fits = left > 0 && (self.rules == Rules::Ext3 || file.reserved_for == block);
        if fits {
            let blocks = wanted.min(left);
            file.left = (start + blocks, left - blocks);
            file.reserved_for = block + blocks;
            return file.take(block, start, blocks);
        }
        let window = match self.rules {
            Rules::Ext3 => (file.window * 2).clamp(EXT3_FIRST, EXT3_MAX),
            Rules::Ext4 => ext4_end(block, wanted, file.end) - block,
            Rules::Xfs if file.end < XFS_LEAST => wanted,
            Rules::Xfs => wanted.max(file.end.min(XFS_MOST)),
        };
        let start = reserve(&mut self.taken, file.goal, window);
        let blocks = wanted.min(window);
        file.window = window;
        file.left = (start + blocks, window - blocks);
        file.reserved_for = block + blocks;
        file.take(block, start, blocks)
    }
}

impl File {
    /// Notes blocks of its own, behind those before them if they lie so.
    fn take(&mut self, block: u64, start: u64, blocks: u64) -> (u64, u64) {
        self.end = self.end.max(block + blocks);
        self.goal = start + blocks;
        if let Some((first, extent)) = self.extents.range_mut(..block).next_back()
            && first + extent.blocks == block
            && extent.at + extent.blocks == start
        {
            extent.blocks += blocks;
        } else {
            self.extents.insert(block, Extent { at: start, blocks });
        }
        (start, blocks)
    }
}

/// Takes the first room of `blocks` at or behind `goal`; where that is.
fn reserve(taken: &mut BTreeMap<u64, u64>, goal: u64, blocks: u64) -> u64 {
    let mut start = goal;
    if let Some((_, end)) = taken.range(..=goal).next_back() {
        start = start.max(*end);
    }
    let mut merged_end = None;
    for (next, end) in taken.range(start..) {
        if next - start >= blocks {
            break;
        }
        start = *end;
    }
    let end = start.saturating_add(blocks);
    if let Some(after) = taken.remove(&end) {
        merged_end = Some(after);
    }
    let end = merged_end.unwrap_or(end);
    match taken.range_mut(..=start).next_back() {
        Some((_, before)) if *before == start => *before = end,
        _ => {
            taken.insert(start, end);
        }
    }
    start
}

/// Up to which block of a file ext4 reserves for a request at `block`, in a file that ends at `file_end`.
fn ext4_end(block: u64, wanted: u64, file_end: u64) -> u64 {
    const MIB: u64 = (1 << 20) / BLOCK;
    let end = block.saturating_add(wanted);
    let size = file_end.max(end);
    let aligned = |to: u64| (block - block % to).saturating_add(to);
    let up_to = match size {
        ..=MIB => size.max(4).next_power_of_two(),
        _ if size <= 4 * MIB => aligned(2 * MIB),
        _ if size <= 8 * MIB => aligned(4 * MIB),
        _ => aligned(8 * MIB),
    };
    up_to.max(end)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Two files that grow by turns, `step` blocks at a time, to `blocks` each: the lengths of the first one's pieces.
    fn grown(rules: Rules, step: u64, blocks: u64) -> Vec<u64> {
        let mut allocation = Allocation::new(rules, 1 << 28);
        for at in (0..blocks).step_by(step as usize) {
            for file in [1, 2] {
                let mut left = step * BLOCK;
                allocation
                    .for_each_piece(Op::Write, FileId(file), at * BLOCK, left, |_, bytes| left -= bytes);
                assert_eq!(left, 0);
            }
        }
        let lengths = |file| -> Vec<u64> {
            allocation.files[&FileId(file)].extents.values().map(|extent| extent.blocks).collect()
        };
        // No block has two owners.
        let mut all: Vec<(u64, u64)> = allocation
            .files
            .values()
            .flat_map(|file| file.extents.values())
            .map(|extent| (extent.at, extent.at + extent.blocks))
            .collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(lengths(1).iter().sum::<u64>(), blocks);
        assert_eq!(lengths(1), lengths(2));
        lengths(1)
    }

    /// By hand: windows of 8, 16, 32, ... lie between each other's. By arrival, it would be 256 pieces of one block.
    #[test]
    fn two_growing_files_on_ext3_get_windows_that_double() {
        assert_eq!(grown(Rules::Ext3, 1, 256), [8, 16, 32, 64, 128, 8]);
        let long = grown(Rules::Ext3, 1, 8_192);
        assert_eq!(long[..8], [8, 16, 32, 64, 128, 256, 512, 1_024]);
        assert!(long[8..long.len() - 1].iter().all(|blocks| *blocks == 1_027));
    }

    /// By hand: to 16, 32, 64 KiB ... and 1 MiB, then to multiples of 2, 4 and 8 MiB.
    #[test]
    fn two_growing_files_on_ext4_get_round_pieces() {
        assert_eq!(
            grown(Rules::Ext4, 4, 8_192),
            [4, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 2_048, 2_048]
        );
    }

    /// By hand: each piece is as long as what was there.
    #[test]
    fn two_growing_files_on_xfs_get_as_much_again() {
        assert_eq!(grown(Rules::Xfs, 16, 1_024), [16, 16, 32, 64, 128, 256, 512]);
    }

    /// What `filefrag -v` says of one of two files that grew by turns to 4 MiB, 16 KiB and an fdatasync at a time, on loop images that
    /// mkfs.ext4 and mkfs.xfs had made, in blocks of 4 KiB.
    #[test]
    fn two_growing_files_lie_as_on_real_ext4_and_xfs() {
        assert_eq!(grown(Rules::Ext4, 4, 1_024), [4, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(grown(Rules::Xfs, 4, 1_024), [4, 4, 4, 4, 16, 32, 64, 128, 256, 512]);
    }

    /// What is written back late and in one go lies in one piece.
    #[test]
    fn delayed_allocation_leaves_fewer_pieces() {
        for rules in [Rules::Ext4, Rules::Xfs] {
            assert!(grown(rules, 1_024, 8_192).len() < grown(rules, 4, 8_192).len(), "{rules:?}");
        }
        assert_eq!(grown(Rules::Ext4, 2_048, 8_192), [2_048; 4]);
    }

    #[test]
    fn a_file_alone_is_in_one_piece_and_one_that_was_there_is_too() {
        for rules in [Rules::Ext3, Rules::Ext4, Rules::Xfs] {
            let mut allocation = Allocation::new(rules, 1 << 28);
            for at in 0..2_000 {
                allocation.for_each_piece(Op::Write, FileId(1), at * BLOCK, BLOCK, |_, _| ());
            }
            assert_eq!(allocation.files[&FileId(1)].extents.len(), 1, "{rules:?}");
            let mut pieces = Vec::new();
            allocation
                .for_each_piece(Op::Read, FileId(2), 100, 1 << 20, |at, bytes| pieces.push((at, bytes)));
            allocation.for_each_piece(Op::Write, FileId(2), 0, 1 << 20, |at, bytes| pieces.push((at, bytes)));
            assert_eq!(pieces.len(), 2, "{rules:?}: {pieces:?}");
            assert_eq!((pieces[0].0 - pieces[1].0, pieces[0].1), (100, 1 << 20));
        }
    }

    fn pieces(allocation: &mut Allocation, op: Op, file: u64, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut pieces = Vec::new();
        allocation.for_each_piece(op, FileId(file), offset, bytes, |at, bytes| pieces.push((at, bytes)));
        pieces
    }

    #[test]
    fn what_was_there_before_ends_where_something_was_written() {
        for rules in [Rules::Ext3, Rules::Ext4, Rules::Xfs] {
            let mut allocation = Allocation::new(rules, 1 << 28);
            let written = pieces(&mut allocation, Op::Write, 1, 10 * BLOCK, BLOCK);
            let read = pieces(&mut allocation, Op::Read, 1, 0, 20 * BLOCK);
            assert_eq!(
                read.iter().map(|(_, bytes)| bytes / BLOCK).collect::<Vec<_>>(),
                [10, 1, 9],
                "{rules:?}"
            );
            assert_eq!(read[1], written[0], "{rules:?}");
        }
    }

    /// Pieces that lie together as one.
    fn joined(pieces: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for &(at, bytes) in pieces {
            match all.last_mut() {
                Some((start, length)) if *start + *length == at => *length += bytes,
                _ => all.push((at, bytes)),
            }
        }
        all
    }

    proptest! {
        /// Whatever is read and written, and where.
        #[test]
        fn each_block_has_one_place_and_keeps_it(
            rules in prop::sample::select(std::vec![Rules::Ext3, Rules::Ext4, Rules::Xfs]),
            calls in prop::collection::vec((any::<bool>(), 0u64..3, 0u64..200, 1u64..40), 1..60),
        ) {
            let mut allocation = Allocation::new(rules, 64 * BLOCK);
            for &(reads, file, block, blocks) in &calls {
                let op = if reads { Op::Read } else { Op::Write };
                pieces(&mut allocation, op, file, block * BLOCK, blocks * BLOCK);
            }
            let mut places = Vec::new();
            for file in allocation.files.values() {
                let mut end = 0;
                for (&first, extent) in &file.extents {
                    prop_assert!(first >= end, "{:?}", file.extents);
                    end = first + extent.blocks;
                    places.push((extent.at, extent.at + extent.blocks));
                }
            }
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{places:?}");
            for file in 0..3 {
                // What is got in two parts that lie together is one part from then on.
                let [first, again] =
                    [(), ()].map(|()| joined(&pieces(&mut allocation, Op::Read, file, 0, 300 * BLOCK)));
                prop_assert_eq!(first, again);
            }
        }
    }
}
