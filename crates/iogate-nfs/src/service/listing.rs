//! READDIR and READDIRPLUS. Cookies are the file system's own positions, so that a directory that changes meanwhile is no error.

use iogate_vfs::Caller;
use iogate_vfs::held::HeldTree;

use super::attr::status;
use super::{Named, Service};
use crate::wire::{FileHandle, Listing, PlainEntry, PlusEntry, Reply, Status, entry_bytes, plus_entry_bytes};

/// Most bytes of an answer, however many a client would take.
const BYTES_MAX: usize = 128 << 10;
/// Bytes of an answer around its entries: status, attributes, verifier, and the marks of the end.
const FRAME_BYTES: usize = 4 + 88 + 8 + 8;

impl<T: HeldTree> Service<T> {
    pub(super) fn read_dir(&self, caller: Caller, dir: &FileHandle, cookie: u64, count: u32) -> Reply {
        let named = match self.named_dir(dir) {
            Ok(named) => named,
            Err((status, dir)) => return Reply::ReadDir { result: Err(status), dir },
        };
        let most = (count as usize).min(BYTES_MAX).saturating_sub(FRAME_BYTES);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let listed = self.export.tree.list_held(caller, &named.object.held, cookie, false, &mut |found| {
            bytes += entry_bytes(found.name);
            if bytes > most {
                return false;
            }
            let fileid = self.number(&named, found.name, found.inode);
            entries.push(PlainEntry { fileid, name: found.name.to_vec(), cookie: found.next });
            true
        });
        let result = match listed {
            Err(error) => Err(status(&error)),
            Ok(false) if entries.is_empty() => Err(Status::TooSmall),
            Ok(is_end) => Ok(Listing { verifier: [0; 8], entries, is_end }),
        };
        Reply::ReadDir { result, dir: self.look(&named.object) }
    }

    pub(super) fn read_dir_plus(
        &self,
        caller: Caller,
        dir: &FileHandle,
        cookie: u64,
        dir_count: u32,
        count: u32,
    ) -> Reply {
        let named = match self.named_dir(dir) {
            Ok(named) => named,
            Err((status, dir)) => return Reply::ReadDirPlus { result: Err(status), dir },
        };
        let most = (count as usize).min(BYTES_MAX).saturating_sub(FRAME_BYTES);
        let (mut entries, mut bytes, mut name_bytes) = (Vec::new(), 0, 0);
        let listed = self.export.tree.list_held(caller, &named.object.held, cookie, true, &mut |found| {
            // What the caller may not look at, or lies on another file system, is a name only.
            let held = found.held.as_ref().and_then(|(fd, known)| {
                let handle = self.objects.handle_of_entry(fd, known, &named.object, found.name).ok()?;
                Some((handle, self.attr_of(known)))
            });
            bytes += plus_entry_bytes(found.name, held.as_ref().map(|(handle, _)| handle));
            name_bytes += entry_bytes(found.name);
            // Some clients ask for no bytes of names, and mean none in particular.
            if bytes > most || dir_count > 0 && !entries.is_empty() && name_bytes > dir_count as usize {
                return false;
            }
            let fileid = self.number(&named, found.name, found.inode);
            let entry = PlainEntry { fileid, name: found.name.to_vec(), cookie: found.next };
            entries.push(PlusEntry {
                entry,
                attr: held.map(|(_, attr)| attr),
                file: held.map(|(file, _)| file),
            });
            true
        });
        let result = match listed {
            Err(error) => Err(status(&error)),
            Ok(false) if entries.is_empty() => Err(Status::TooSmall),
            Ok(is_end) => Ok(Listing { verifier: [0; 8], entries, is_end }),
        };
        Reply::ReadDirPlus { result, dir: self.look(&named.object) }
    }

    /// The number of an entry: above the root there is the root.
    fn number(&self, dir: &Named<T::Held>, name: &[u8], inode: u64) -> u64 {
        let root = self.objects.root();
        if name == b".." && dir.object.identity == root.identity { root.identity.inode } else { inode }
    }
}
