//! How much garbage collection moves: a mapping in blocks, of which the one with the least valid data is the next victim.
//!
//! A drive has 10^8 units, but how much is moved depends on the share of spare flash and on the pattern, and hardly on the size. So one
//! unit of every `stride` is followed, in blocks that are smaller by as much. Host's and moved data go to blocks of their own.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::NvmeState;

/// Units that are followed, at most.
const FOLLOWED: u64 = 1 << 14;
/// Entries of a block. Blocks of drives have thousands; from some dozens on, it makes no difference.
const BLOCK: u32 = 64;
/// Blocks that are kept free for what is moved.
const RESERVE: usize = 2;
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Ftl {
    stride: u64,
    /// Where each followed unit is: its entry.
    place: Box<[u32]>,
    /// Which unit each entry has, or none.
    unit: Box<[u32]>,
    valid: Box<[u32]>,
    free: Vec<u32>,
    /// The next entry for the host's data, and for what is moved; the last of a block is followed by taking another.
    open: [u32; 2],
    /// Since the last look: written by the host, and moved.
    counted: (u64, u64),
    moved: u64,
}

impl Ftl {
    /// A mapping of `units` in flash for `flash_units`.
    pub(super) fn new(units: u64, flash_units: u64, state: NvmeState) -> Ftl {
        let stride = units.div_ceil(FOLLOWED).max(1);
        let followed = units.div_ceil(stride).max(1);
        let wanted = u128::from(followed) * u128::from(flash_units.max(units)) / u128::from(units.max(1));
        // Two are open and two in reserve, whatever the spare, and there is always some room: else nothing could be moved.
        let least = followed.div_ceil(u64::from(BLOCK)) + 2 + RESERVE as u64 + 4;
        let blocks = (wanted as u64).div_ceil(u64::from(BLOCK)).max(least) as u32;
        let mut ftl = Ftl {
            stride,
            place: vec![NONE; followed as usize].into_boxed_slice(),
            unit: vec![NONE; (blocks * BLOCK) as usize].into_boxed_slice(),
            valid: vec![0; blocks as usize].into_boxed_slice(),
            free: (2..blocks).rev().collect(),
            open: [0, BLOCK],
            counted: (0, 0),
            moved: 0,
        };
        (0..followed as u32).for_each(|unit| ftl.host(unit));
        if state == NvmeState::Random {
            let mut number = 7u64;
            for _ in 0..6 * followed {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ftl.host(((number >> 20) % followed) as u32);
            }
        }
        ftl
    }

    /// Units that are moved for each that the host writes, in thousandths.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// The host writes `count` units from `first` on.
    pub(super) fn write(&mut self, first: u64, count: u64) {
        let mut unit = first.next_multiple_of(self.stride);
        while unit < first + count {
            self.host((unit / self.stride) as u32 % self.place.len() as u32);
            unit += self.stride;
        }
    }

    fn host(&mut self, unit: u32) {
        while self.free.len() < RESERVE {
            self.collect();
        }
        self.put(unit, 0);
        self.counted.0 += 1;
        if self.counted.0 == 4 * u64::from(BLOCK) {
            self.moved = self.counted.1 * 1_000 / self.counted.0;
            self.counted = (0, 0);
        }
    }

    /// Puts a unit into the open block of the host, or of what is moved.
    fn put(&mut self, unit: u32, stream: usize) {
        let old = self.place[unit as usize];
        if old != NONE {
            self.unit[old as usize] = NONE;
            self.valid[(old / BLOCK) as usize] -= 1;
        }
        let entry = self.open[stream];
        self.unit[entry as usize] = unit;
        self.place[unit as usize] = entry;
        self.valid[(entry / BLOCK) as usize] += 1;
        self.open[stream] = match (entry + 1) % BLOCK {
            0 => self.free.pop().map_or(NONE, |block| block * BLOCK),
            _ => entry + 1,
        };
    }

    /// Frees the block with the least valid data.
    fn collect(&mut self) {
        let is_open = |block: u32| self.open.iter().any(|entry| entry / BLOCK == block);
        let full =
            (0..self.valid.len() as u32).filter(|block| !is_open(*block) && !self.free.contains(block));
        let Some(victim) = full.min_by_key(|block| self.valid[*block as usize]) else { return };
        for entry in victim * BLOCK..(victim + 1) * BLOCK {
            let unit = self.unit[entry as usize];
            if unit != NONE {
                self.put(unit, 1);
                self.counted.1 += 1;
            }
        }
        self.free.push(victim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(spare: u64, state: NvmeState) -> f64 {
        Ftl::new(1 << 20, (1 << 20) * (100 + spare) / 100, state).moved() as f64 / 1_000.0
    }

    #[test]
    fn nothing_is_lost_and_no_entry_has_two_units() {
        let mut ftl = Ftl::new(100_000, 107_000, NvmeState::Random);
        for round in 0..50u64 {
            ftl.write(round * 7_919 % 100_000, 3_000);
            let valid: u32 = ftl.valid.iter().sum();
            assert_eq!(valid as usize, ftl.place.len());
            assert!((0..).zip(ftl.place.iter()).all(|(unit, entry)| ftl.unit[*entry as usize] == unit));
            assert!(!ftl.free.is_empty());
        }
    }

    #[test]
    fn a_drive_that_is_written_in_sequence_moves_nothing() {
        assert_eq!(moved(7, NvmeState::Filled), 0.0);
        let mut ftl = Ftl::new(1 << 20, 1_125_000, NvmeState::Filled);
        (0..3 << 20).step_by(256).for_each(|unit| ftl.write(unit % (1 << 20), 256));
        assert_eq!(ftl.moved(), 0);
    }

    /// With greedy victims and uniform writes, write amplification A and the share of spare flash p meet 1/p = about 2 A - 1 for large
    /// blocks (Desnoyers, Analytic modeling of SSD write performance, SYSTOR 2012, as is Hu et al., SYSTOR 2009).
    #[test]
    fn random_writes_move_as_much_as_the_spare_says() {
        for (spare, least, most) in [(7, 5.0, 9.0), (15, 2.4, 3.6), (28, 1.2, 1.9), (50, 0.5, 1.1)] {
            let moved = moved(spare, NvmeState::Random);
            assert!((least..most).contains(&moved), "{spare} %: {moved}");
        }
    }

    #[test]
    fn without_spare_flash_it_still_works() {
        assert!(moved(0, NvmeState::Random) > 5.0);
        let mut tiny = Ftl::new(1, 1, NvmeState::Random);
        (0..1_000).for_each(|_| tiny.write(0, 1));
    }
}
