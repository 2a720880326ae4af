//! The locks that a client has, so that it can ask for them again when the server was started anew.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::file_locks::{ByteRange, Held, RangeLocks, kind_of};
use crate::wire::{Identity, Lock, lock};

/// The [`Demand::lock`](super::Demand::lock) of what asks for a lock again.
pub(super) const AGAIN: u32 = u32::MAX;

/// By file: they are an owner's, through whatever handle.
#[derive(Debug, Default)]
pub(super) struct Locks {
    files: BTreeMap<(u64, u64), Spaces>,
    /// Asked for or given back, and not answered yet.
    begun: BTreeMap<u32, Lock>,
    last: u32,
}

/// A file's locks: of bytes, and of open files.
#[derive(Debug, Default)]
struct Spaces([RangeLocks<u64>; 2]);

impl Locks {
    /// Something is asked for: it counts once it is [settled](Locks::settle).
    pub(super) fn begin(&mut self, lock: &Lock) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let is_free = self.last != 0 && self.last != AGAIN && !self.begun.contains_key(&self.last);
            if is_free {
                self.begun.insert(self.last, *lock);
                return self.last;
            }
        }
    }

    /// What was begun is answered, of this file: done, or not.
    pub(super) fn settle(&mut self, number: u32, file: Option<Identity>, is_done: bool) {
        let (Some(lock), Some(file)) = (self.begun.remove(&number), file) else { return };
        let (Some(kind), Some(range)) = (kind_of(&lock), ByteRange::new(lock.first, lock.last)) else {
            return;
        };
        // What is given back is not asked for again, whatever the server says.
        if !is_done && kind.is_some() || lock.space > lock::FILE {
            return;
        }
        let key = (file.inode, file.generation);
        let spaces = self.files.entry(key).or_default();
        let held = &mut spaces.0[usize::from(lock.space)];
        match kind {
            // The server has seen to it that nobody else is in the way; another owner here may be, until its answer has come, too.
            Some(kind) => {
                let wanted = Held { owner: lock.owner, kind, range, process: lock.process };
                while let Err(other) = held.lock(wanted) {
                    held.unlock(other.owner, range);
                }
            }
            None => held.unlock(lock.owner, range),
        }
        if spaces.0.iter().all(RangeLocks::is_empty) {
            self.files.remove(&key);
        }
    }

    /// A file's locks are lost.
    pub(super) fn forget(&mut self, file: Identity) {
        self.files.remove(&(file.inode, file.generation));
    }

    /// All that a file has.
    pub(super) fn of(&self, file: Identity) -> Vec<Lock> {
        let mut all = Vec::new();
        let spaces = self.files.get(&(file.inode, file.generation));
        for (space, locks) in spaces.into_iter().flat_map(|spaces| (lock::BYTES..).zip(&spaces.0)) {
            all.extend(locks.iter().map(|held| Lock {
                space,
                kind: held.kind.number(),
                owner: held.owner,
                first: held.range.first(),
                last: held.range.last(),
                process: held.process,
            }));
        }
        all
    }
}

#[cfg(test)]
mod tests;
