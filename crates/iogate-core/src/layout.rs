//! Which target of a striped store holds a byte.
//!
//! [`Layout`] is the rule that a gate has for all files; [`FileLayout`] is what one file's own layout is known to be.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::request::TargetId;

/// Targets are numbered from 0 to one below this.
pub const TARGETS_MAX: u32 = 4096;

/// Round-robin striping, as in every parallel file system: stripe `k` of a file is on target
/// `(first_target + k) mod targets` (TWINS thesis, equation 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Layout {
    /// The target of the file's first byte.
    pub first_target: u32,
    /// Bytes per stripe; not zero.
    pub stripe_bytes: u64,
    /// Number of targets; not zero.
    pub targets: u32,
}

impl Layout {
    /// Everything on target 0.
    pub const SINGLE: Layout = Layout { first_target: 0, stripe_bytes: u64::MAX, targets: 1 };

    /// The target that holds the byte at `offset`.
    pub const fn target_of(&self, offset: u64) -> TargetId {
        // As below, but for the divisions: every gate of a store with one target asks.
        if self.targets == 1 {
            return TargetId(0);
        }
        let stripe = offset / self.stripe_bytes;
        TargetId(((self.first_target as u64 + stripe % self.targets as u64) % self.targets as u64) as u32)
    }

    /// The end of the stripe that contains `offset` (exclusive), at most `u64::MAX`.
    pub const fn stripe_end(&self, offset: u64) -> u64 {
        (offset - offset % self.stripe_bytes).saturating_add(self.stripe_bytes)
    }

    /// Where the byte at `offset` is on its target, where a file's stripes lie one after another.
    pub const fn inner_offset(&self, offset: u64) -> u64 {
        let stripe = offset / self.stripe_bytes;
        stripe / self.targets as u64 * self.stripe_bytes + offset % self.stripe_bytes
    }

    /// How many bytes of a file's first `size` are on a target.
    pub const fn inner_size(&self, target: TargetId, size: u64) -> u64 {
        let (stripes, rest) = (size / self.stripe_bytes, size % self.stripe_bytes);
        let (rounds, last, place) =
            (stripes / self.targets as u64, stripes % self.targets as u64, self.place_of(target));
        let whole = if place < last { rounds + 1 } else { rounds };
        whole * self.stripe_bytes + if place == last { rest } else { 0 }
    }

    /// Where a target's byte `inner` is in the file; at most `u64::MAX`.
    pub const fn outer_offset(&self, target: TargetId, inner: u64) -> u64 {
        let round = inner / self.stripe_bytes;
        let stripe = round.saturating_mul(self.targets as u64).saturating_add(self.place_of(target));
        stripe.saturating_mul(self.stripe_bytes).saturating_add(inner % self.stripe_bytes)
    }

    /// The size of a file of which a target has `inner` bytes, as far as that target knows.
    pub const fn outer_size(&self, target: TargetId, inner: u64) -> u64 {
        match inner.checked_sub(1) {
            Some(last) => self.outer_offset(target, last).saturating_add(1),
            None => 0,
        }
    }

    /// Which stripe of a round a target has.
    const fn place_of(&self, target: TargetId) -> u64 {
        let targets = self.targets as u64;
        (target.0 as u64 + targets - self.first_target as u64) % targets
    }

    /// How many stripes the `bytes` bytes (not zero) from `offset` touch.
    pub const fn stripes(&self, offset: u64, bytes: u32) -> u64 {
        (offset + bytes as u64 - 1) / self.stripe_bytes - offset / self.stripe_bytes + 1
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::SINGLE
    }
}

/// A range of a file with a striping of its own. Stripes are counted from the start of the file, not of the extent
/// (as Lustre does in composite layouts): stripe `k` is on `targets[k mod targets.len()]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// One more than the last byte; `u64::MAX` where the extent goes on for ever.
    pub end: u64,
    /// Bytes per stripe.
    pub stripe_bytes: u64,
    /// The targets in stripe order, in any order and as often as they come.
    pub targets: Vec<TargetId>,
}

impl Extent {
    fn target_of(&self, offset: u64) -> TargetId {
        self.targets[(offset / self.stripe_bytes % self.targets.len() as u64) as usize]
    }

    /// As [`Layout::stripe_end`], within the extent. On a single target, all of it is one stripe.
    fn stripe_end(&self, offset: u64) -> u64 {
        match self.targets.len() {
            1 => self.end,
            _ => (offset - offset % self.stripe_bytes).saturating_add(self.stripe_bytes).min(self.end),
        }
    }

    /// How many stripes the bytes from `start` to `end` (exclusive, not equal, in the extent) touch.
    fn stripes(&self, start: u64, end: u64) -> u64 {
        match self.targets.len() {
            1 => 1,
            _ => (end - 1) / self.stripe_bytes - start / self.stripe_bytes + 1,
        }
    }
}

/// Why extents are not the layout of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// An extent ends before it starts, or starts before the one before it ends.
    #[error("extent {index}: expected a start below its end and not below {after}, got {start} to {end}")]
    Order {
        /// Its place in the list.
        index: usize,
        /// The end of the extent before it.
        after: u64,
        /// Its first byte.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// An extent without stripes or without targets.
    #[error(
        "extent {index}: expected a stripe of at least a byte and at least one target, got \
         {stripe_bytes} bytes and {targets} targets"
    )]
    Empty {
        /// Its place in the list.
        index: usize,
        /// Its stripe.
        stripe_bytes: u64,
        /// How many targets it has.
        targets: usize,
    },
    /// A target that no store of this size has.
    #[error("extent {index}: expected targets below {max}, got {target}")]
    Target {
        /// Its place in the list.
        index: usize,
        /// The target.
        target: u32,
        /// One more than the highest possible target.
        max: u32,
    },
}

/// Where the bytes of one file are: extents that do not overlap, in offset order. Where it has none, the file's own
/// layout is not known (a part that is not allocated yet), and the gate's layout holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayout {
    extents: Box<[Extent]>,
    /// One more than the highest target.
    targets: u32,
}

impl FileLayout {
    /// The layout with these extents.
    ///
    /// # Errors
    /// If they overlap or are not in order, or one of them has no bytes, no targets, or one from [`TARGETS_MAX`] on.
    pub fn new(extents: Vec<Extent>) -> Result<FileLayout, ExtentError> {
        let (mut after, mut targets) = (0, 0);
        for (index, extent) in extents.iter().enumerate() {
            let Extent { start, end, stripe_bytes, .. } = *extent;
            if start >= end || start < after {
                return Err(ExtentError::Order { index, after, start, end });
            }
            let highest = extent.targets.iter().map(|target| target.0).max();
            let Some(highest) = highest.filter(|_| stripe_bytes > 0) else {
                return Err(ExtentError::Empty { index, stripe_bytes, targets: extent.targets.len() });
            };
            if highest >= TARGETS_MAX {
                return Err(ExtentError::Target { index, target: highest, max: TARGETS_MAX });
            }
            (after, targets) = (end, targets.max(highest + 1));
        }
        Ok(FileLayout { extents: extents.into(), targets })
    }

    /// Its extents, in offset order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// One more than the highest target in it; 0 if it has none.
    pub fn targets(&self) -> u32 {
        self.targets
    }

    /// The target that holds the byte at `offset`, if that is known.
    pub fn target_of(&self, offset: u64) -> Option<TargetId> {
        self.extent_of(offset).ok().map(|extent| extent.target_of(offset))
    }

    /// The extent with the byte at `offset`, or else the end of the gap that it is in.
    fn extent_of(&self, offset: u64) -> Result<&Extent, u64> {
        let index = self.extents.partition_point(|extent| extent.end <= offset);
        match self.extents.get(index) {
            Some(extent) if extent.start <= offset => Ok(extent),
            Some(next) => Err(next.start),
            None => Err(u64::MAX),
        }
    }
}

impl TryFrom<Layout> for FileLayout {
    type Error = ExtentError;

    /// Round robin for the whole file.
    fn try_from(layout: Layout) -> Result<FileLayout, ExtentError> {
        let Layout { first_target, stripe_bytes, targets } = layout;
        let max = TARGETS_MAX;
        if targets > max || first_target >= max {
            return Err(ExtentError::Target { index: 0, target: targets.max(first_target), max });
        }
        let targets = (0..targets).map(|index| TargetId((first_target + index) % targets)).collect();
        FileLayout::new([Extent { start: 0, end: u64::MAX, stripe_bytes, targets }].into())
    }
}

/// What holds for one file in a gate: its own layout, and the gate's where it has none.
pub(crate) struct Holding<'a> {
    pub(crate) own: Option<&'a FileLayout>,
    pub(crate) gate: Layout,
}

impl Holding<'_> {
    /// The target that holds the byte at `offset`.
    #[inline]
    pub(crate) fn target_of(&self, offset: u64) -> TargetId {
        let own = self.own.and_then(|own| own.target_of(offset));
        own.unwrap_or_else(|| self.gate.target_of(offset))
    }

    /// The end of the stripe that contains `offset` (exclusive).
    #[inline]
    pub(crate) fn stripe_end(&self, offset: u64) -> u64 {
        match self.own.map(|own| own.extent_of(offset)) {
            None => self.gate.stripe_end(offset),
            Some(Ok(extent)) => extent.stripe_end(offset),
            Some(Err(gap_end)) => self.gate.stripe_end(offset).min(gap_end),
        }
    }

    /// How many stripes the `bytes` bytes (not zero) from `offset` touch.
    #[inline]
    pub(crate) fn stripes(&self, offset: u64, bytes: u32) -> u64 {
        let Some(own) = self.own else { return self.gate.stripes(offset, bytes) };
        let (mut offset, end, mut stripes) = (offset, offset + u64::from(bytes), 0);
        while offset < end {
            let until = match own.extent_of(offset) {
                Ok(extent) => {
                    let until = extent.end.min(end);
                    stripes += extent.stripes(offset, until);
                    until
                }
                Err(gap_end) => {
                    let until = gap_end.min(end);
                    stripes += self.gate.stripes(offset, (until - offset) as u32);
                    until
                }
            };
            offset = until;
        }
        stripes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_sizes_on_targets_are_those_of_the_file() {
        for (first_target, stripe_bytes, targets) in [(0, 1, 1), (2, 3, 3), (1, 4, 2), (0, 10, 4)] {
            let layout = Layout { first_target, stripe_bytes, targets };
            for size in 0..100 {
                let inner =
                    |target| (0..size).filter(|&at| layout.target_of(at) == TargetId(target)).count() as u64;
                for target in 0..targets {
                    assert_eq!(layout.inner_size(TargetId(target), size), inner(target));
                }
                let outer =
                    (0..targets).map(|target| layout.outer_size(TargetId(target), inner(target))).max();
                assert_eq!(outer, Some(size));
                assert_eq!(layout.outer_offset(layout.target_of(size), layout.inner_offset(size)), size);
            }
        }
    }
}
