//! Where on a device the bytes of files are taken to lie, in bounded memory.

use crate::device::Placement;
use crate::hash::HashMap;
use crate::request::FileId;

/// Extents that are remembered; then all is forgotten, and distances between files are others from then on.
const EXTENTS_MAX: usize = 8_192;

/// Addresses as [`Placement`] gives them, the same in all windows for as long as there are not too many.
#[derive(Debug)]
pub(super) struct Addresses {
    extent_bytes: u64,
    extents: HashMap<(FileId, u64), u64>,
    next: u64,
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses::new(Placement::EXTENT_BYTES)
    }
}

impl Addresses {
    /// No files yet; `extent_bytes` is not zero.
    pub(super) fn new(extent_bytes: u64) -> Addresses {
        Addresses { extent_bytes, extents: HashMap::default(), next: 0 }
    }

    pub(super) fn of(&mut self, file: FileId, offset: u64) -> u64 {
        let bytes = self.extent_bytes;
        let key = (file, offset / bytes);
        let extent = match self.extents.get(&key) {
            Some(extent) => *extent,
            None => {
                if self.extents.len() >= EXTENTS_MAX {
                    self.extents.clear();
                }
                let extent = self.next;
                self.next += 1;
                self.extents.insert(key, extent);
                extent
            }
        };
        // Wraps as a device does.
        extent.wrapping_mul(bytes).wrapping_add(offset % bytes)
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.extents.allocation_size()
    }
}
