//! The ids of the open files of a directory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use iogate_core::FileId;

/// The ids of open files: the inode number, or on another device than the root's a hash of both. Two files must
/// never share an id (their requests would be aggregated), so what is taken is left alone; and a file keeps its id for as long as
/// it is open (else its requests would not be ordered).
#[derive(Debug)]
pub(super) struct Ids {
    device: u64,
    used: Mutex<Used>,
}

/// A device and an inode number.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Used {
    by_file: HashMap<Key, InUse>,
    by_id: HashMap<u64, Key>,
}

#[derive(Debug)]
struct InUse {
    id: u64,
    handles: usize,
}

impl Ids {
    /// For the files below a directory on this device.
    pub(super) fn new(device: u64) -> Ids {
        Ids { device, used: Mutex::default() }
    }

    /// The id of a file that is opened.
    pub(super) fn claim(&self, device: u64, inode: u64) -> FileId {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Used { by_file, by_id } = &mut *used;
        let file = by_file.entry((device, inode)).or_insert_with(|| {
            let mut id = self.wanted(device, inode);
            while by_id.contains_key(&id) {
                id = id.wrapping_add(1 << 63 | 1);
            }
            by_id.insert(id, (device, inode));
            InUse { id, handles: 0 }
        });
        file.handles += 1;
        FileId(file.id)
    }

    fn wanted(&self, device: u64, inode: u64) -> u64 {
        // Fibonacci hashing: neighbouring device numbers end up far apart.
        inode ^ device.wrapping_sub(self.device).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// A file is closed.
    pub(super) fn release(&self, id: FileId) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&key) = used.by_id.get(&id.0) else { return };
        if let Entry::Occupied(mut file) = used.by_file.entry(key) {
            file.get_mut().handles -= 1;
            if file.get().handles > 0 {
                return;
            }
            file.remove();
        }
        used.by_id.remove(&id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_id_while_it_is_open() {
        let ids = Ids::new(7);
        // A file of another device whose hash is the number of one of this device.
        let (here, away) = ((7, ids.wanted(8, 1234)), (8, 1234));
        let first = ids.claim(here.0, here.1);
        let second = ids.claim(away.0, away.1);
        assert_ne!(first, second);
        ids.release(first);
        assert_eq!(ids.claim(away.0, away.1), second, "what it wanted first has become free");
        let again = ids.claim(here.0, here.1);
        assert_eq!(again, first);
        ids.release(second);
        ids.release(again);
        assert_eq!(ids.claim(away.0, away.1), second, "one handle was left");
        ids.release(second);
        ids.release(second);
        assert!(ids.used.lock().unwrap().by_file.is_empty() && ids.used.lock().unwrap().by_id.is_empty());
        assert_eq!(ids.claim(7, 99), FileId(99));
    }
}
