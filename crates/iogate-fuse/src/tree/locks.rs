//! Locks of a tree's files, where they hold among all who use the tree.

use iogate_core::wire::{Lock, lock};
use rustix::io::Errno;

use super::FileSystem;
use crate::abi::{FileLock, LkIn};
use crate::file_system::errno_of;
use crate::locks::{found_of, wish};
use crate::operations::Locks;

impl Locks for FileSystem {
    fn set_lock(&self, arg: LkIn) -> Result<(), Errno> {
        let open = self.files.get(arg.fh)?;
        let wish = wish(&arg)?;
        if wish.space == lock::BYTES && wish.kind != lock::NONE {
            // Even if it is not given: whether an attempt that failed for the network was carried out is not known.
            self.lockers().insert((open.node.id, wish.owner));
        }
        open.file.set_lock(&wish).map_err(|error| errno_of(&error))
    }

    fn get_lock(&self, arg: LkIn) -> Result<FileLock, Errno> {
        let open = self.files.get(arg.fh)?;
        let found = open.file.get_lock(&wish(&arg)?).map_err(|error| errno_of(&error))?;
        Ok(found_of(&found))
    }

    fn unlock_bytes(&self, handle: u64, owner: u64) {
        if !self.agreed.shares_locks || self.lockers().is_empty() {
            return;
        }
        let Ok(open) = self.files.get(handle) else { return };
        if self.lockers().remove(&(open.node.id, owner)) && !self.unlock(handle, lock::BYTES, owner) {
            // This handle may be of no use any more, and the next one that is closed be.
            self.lockers().insert((open.node.id, owner));
        }
    }

    fn unlock_file(&self, handle: u64, owner: u64) {
        self.unlock(handle, lock::FILE, owner);
    }
}

impl FileSystem {
    /// Gives back all that an owner has of a file. Returns whether that was done.
    fn unlock(&self, handle: u64, space: u8, owner: u64) -> bool {
        let all = Lock::all_back(space, owner);
        let unlocked = self.files.get(handle).map(|open| open.file.set_lock(&all));
        if let Ok(Err(error)) = unlocked {
            tracing::warn!(%error, "a lock is not given back before the connection to the server ends");
            return false;
        }
        true
    }
}
