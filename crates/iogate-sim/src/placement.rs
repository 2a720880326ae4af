//! Where a file lies on a device.

use std::collections::HashMap;

use iogate_core::FileId;

/// Files as a fresh file system lays them out: in extents, each taken from the device's start onwards when its
/// first byte is touched. A file no longer than an extent is contiguous; past the device's end it wraps around.
///
/// Left out: fragmentation within an extent, metadata, free space of an aged file system.
#[derive(Debug, Default)]
pub struct Placement {
    extents: HashMap<(FileId, u64), u64>,
}

impl Placement {
    /// Bytes per extent.
    pub const EXTENT_BYTES: u64 = 256 << 20;

    /// The device address of a file's byte.
    pub fn address(&mut self, file: FileId, offset: u64) -> u64 {
        let next = self.extents.len() as u64;
        let extent = *self.extents.entry((file, offset / Self::EXTENT_BYTES)).or_insert(next);
        // Wraps as the device itself does, should a trace touch 2^64 bytes.
        extent.wrapping_mul(Self::EXTENT_BYTES).wrapping_add(offset % Self::EXTENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_contiguous_within_an_extent_and_apart_from_each_other() {
        let mut placement = Placement::default();
        assert_eq!(placement.address(FileId(7), 100), 100);
        assert_eq!(placement.address(FileId(3), 0), Placement::EXTENT_BYTES);
        assert_eq!(placement.address(FileId(7), Placement::EXTENT_BYTES), 2 * Placement::EXTENT_BYTES);
        assert_eq!(placement.address(FileId(7), 101), 101);
    }
}
