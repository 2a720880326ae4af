//! The locks that a client has, so that it can ask for them again when the server was started anew.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::file_locks::{Held, Kind, RangeLocks, asked};
use crate::wire::{Identity, Lock, lock};

/// The [`Demand::lock`](super::Demand::lock) of what asks for a lock again.
pub(super) const AGAIN: u32 = u32::MAX;

/// By file: they are an owner's, through whatever handle.
#[derive(Debug, Default)]
pub(super) struct Locks {
    files: BTreeMap<(u64, u64), Spaces>,
    /// Of which they have been asked for again in this session, or need not be.
    asked_again: BTreeSet<(u64, u64)>,
    /// Asked for or given back, and not answered yet.
    begun: BTreeMap<u32, Begun>,
    last: u32,
}

/// A file's locks: of bytes, and of open files.
#[derive(Debug, Default)]
struct Spaces([RangeLocks<u64>; 2]);

/// What is asked for, and not answered yet.
#[derive(Debug)]
struct Begun {
    file: Option<Identity>,
    lock: Lock,
    /// Had alone before, and shared if that is answered so: others may share it from when it is asked for.
    alone: Vec<Held<u64>>,
}

impl Locks {
    /// Something is asked for of a file: what is given up by that, is so from now on; what is taken counts once it is
    /// [settled](Locks::settle). Returns its number.
    pub(super) fn begin(&mut self, file: Option<Identity>, lock: &Lock) -> u32 {
        let mut alone = Vec::new();
        if let (Some(file), Some((space, kind, range))) = (file, asked(lock))
            && let Some(spaces) = self.files.get_mut(&(file.inode, file.generation))
        {
            let held = &mut spaces.0[space];
            match kind {
                None => held.unlock(lock.owner, range),
                Some(Kind::Exclusive) => {}
                Some(Kind::Shared) => {
                    let parts =
                        held.iter().filter(|held| held.owner == lock.owner && held.kind == Kind::Exclusive);
                    let parts =
                        parts.filter_map(|held| Some(Held { range: held.range.common(&range)?, ..*held }));
                    alone = parts.collect();
                    for &part in &alone {
                        let _ = held.lock(Held { kind: Kind::Shared, ..part });
                    }
                }
            }
            self.forget_if_free(file);
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let is_free = self.last != 0 && self.last != AGAIN && !self.begun.contains_key(&self.last);
            if is_free {
                self.begun.insert(self.last, Begun { file, lock: *lock, alone });
                return self.last;
            }
        }
    }

    /// What was begun is answered, of this file: done, or not.
    pub(super) fn settle(&mut self, number: u32, file: Option<Identity>, is_done: bool) {
        let (Some(Begun { lock, alone, .. }), Some(file)) = (self.begun.remove(&number), file) else {
            return;
        };
        let Some((space, kind, range)) = asked(&lock) else { return };
        let spaces = self.files.entry((file.inode, file.generation)).or_default();
        let held = &mut spaces.0[space];
        let taken = match kind {
            // It may have been taken since this was begun, and answered before.
            None => {
                held.unlock(lock.owner, range);
                Vec::new()
            }
            Some(kind) if is_done => {
                Vec::from([Held { owner: lock.owner, kind, range, process: lock.process }])
            }
            Some(_) => alone,
        };
        for taken in taken {
            // The server has seen to it that nobody else is in the way; another owner here may be, until its answer has come, too.
            while let Err(other) = held.lock(taken) {
                held.unlock(other.owner, taken.range);
            }
        }
        self.forget_if_free(file);
    }

    fn forget_if_free(&mut self, file: Identity) {
        let key = (file.inode, file.generation);
        if self.files.get(&key).is_some_and(|spaces| spaces.0.iter().all(RangeLocks::is_empty)) {
            self.files.remove(&key);
        }
    }

    /// A file's locks are lost. Returns what gives back those that were given again all the same.
    pub(super) fn lose(&mut self, file: Identity) -> Vec<Lock> {
        let spaces = self.files.remove(&(file.inode, file.generation));
        self.forget_alone(file);
        let mut all = Vec::new();
        for (space, locks) in spaces.iter().flat_map(|spaces| (lock::BYTES..).zip(&spaces.0)) {
            let owners: BTreeSet<u64> = locks.iter().map(|held| held.owner).collect();
            all.extend(owners.into_iter().map(|owner| Lock::all_back(space, owner)));
        }
        all
    }

    fn forget_alone(&mut self, file: Identity) {
        let of_file = self.begun.values_mut().filter(|begun| begun.file == Some(file));
        of_file.for_each(|begun| begun.alone.clear());
    }

    /// A new session begins.
    pub(super) fn begin_session(&mut self) {
        self.asked_again.clear();
    }

    /// All that a file has, to be asked for again, once in a session. What was had alone and is to be shared is shared from then on,
    /// whatever is answered: it is asked for as such.
    pub(super) fn again(&mut self, file: Identity) -> Vec<Lock> {
        self.forget_alone(file);
        let mut all = Vec::new();
        if !self.asked_again.insert((file.inode, file.generation)) {
            return all;
        }
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
