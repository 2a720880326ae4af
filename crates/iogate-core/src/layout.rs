//! Which target of a striped store holds a byte.

use crate::request::TargetId;

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
