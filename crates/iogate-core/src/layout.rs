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
