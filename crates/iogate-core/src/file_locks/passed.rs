//! Locks that a server passes on to the one that keeps them: whose they are here, and under which number of an owner there.
//!
//! A forwarder is one client of the server that has the names. So each owner of each of its clients has a number of its own there, for each
//! file, that is never used again. What the owner may have is noted here, to be given back when the client's session ends: all that was
//! given, and what was asked for when nobody can say any more what became of it. Who has a lock is decided there alone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Denied, Held, LOCKS_PER_SESSION_MAX, RangeLocks, asked};
use crate::wire::{Identity, Lock, lock};

/// A session, a file, and the client's number for whom it locks.
type Key = (u64, (u64, u64), u64);

/// The locks of a server's clients that it has passed on; `F` is what they are passed on through, an open file.
#[derive(Debug)]
pub struct Passed<F> {
    owners: BTreeMap<Key, Owner<F>>,
    by_number: BTreeMap<u64, Key>,
    /// How many locks each session may have.
    counts: BTreeMap<u64, usize>,
    last: u64,
}

#[derive(Debug)]
struct Owner<F> {
    /// Whom the locks are passed on for.
    number: u64,
    through: F,
    /// What it may have: of bytes, and of the open file.
    may_have: [RangeLocks<()>; 2],
    /// Passed on, and not answered.
    underway: u32,
    /// Several were underway at once, so that nobody knows which was carried out last.
    is_mixed: bool,
    /// Its session has ended.
    is_over: bool,
}

/// What became of a lock that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not, and the owner has what it had.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl<F> Default for Passed<F> {
    fn default() -> Passed<F> {
        Passed { owners: BTreeMap::new(), by_number: BTreeMap::new(), counts: BTreeMap::new(), last: 0 }
    }
}

impl<F: Clone> Passed<F> {
    /// A session asks for a lock, or gives it back. Returns what is to be passed on, which is then to be [settled](Passed::settle); `None`:
    /// its owner has nothing to give back.
    ///
    /// # Errors
    /// There is no such lock, or the session has too many.
    pub fn begin(
        &mut self,
        session: u64,
        file: Identity,
        wish: &Lock,
        through: &F,
    ) -> Result<Option<Lock>, Denied> {
        let (_, kind, _) = asked(wish).ok_or(Denied::Malformed)?;
        let key = (session, (file.inode, file.generation), wish.owner);
        if kind.is_none() && !self.owners.contains_key(&key) {
            return Ok(None);
        }
        if kind.is_some() && self.counts.get(&session).is_some_and(|&count| count >= LOCKS_PER_SESSION_MAX) {
            return Err(Denied::TooMany);
        }
        let Passed { owners, by_number, last, .. } = self;
        let owner = owners.entry(key).or_insert_with(|| {
            *last += 1;
            by_number.insert(*last, key);
            Owner {
                number: *last,
                through: through.clone(),
                may_have: Default::default(),
                underway: 0,
                is_mixed: false,
                is_over: false,
            }
        });
        owner.is_mixed |= owner.underway > 0;
        owner.underway += 1;
        Ok(Some(Lock { owner: owner.number, ..*wish }))
    }

    /// What became of what was passed on through this file. Returns what is to be given back: the session has ended meanwhile.
    pub fn settle(&mut self, passed: &Lock, through: &F, outcome: Outcome) -> Vec<(F, Lock)> {
        let Some(&key) = self.by_number.get(&passed.owner) else { return Vec::new() };
        let (Some(owner), Some((space, kind, range))) = (self.owners.get_mut(&key), asked(passed)) else {
            return Vec::new();
        };
        let before = owner.len();
        match kind {
            Some(kind) if outcome != Outcome::Refused => {
                // Nobody else's are here, so that nothing is in the way.
                let _ = owner.may_have[space].lock(Held { owner: (), kind, range, process: 0 });
                // One from before may be of no use any more.
                owner.through = through.clone();
            }
            None if outcome == Outcome::Done && !owner.is_mixed => owner.may_have[space].unlock((), range),
            _ => {}
        }
        let after = owner.len();
        owner.underway -= 1;
        owner.is_mixed &= owner.underway > 0;
        let (is_idle, is_over) = (owner.underway == 0, owner.is_over);
        self.counted(key.0, before, after);
        match is_idle && (is_over || after == 0) {
            true => self.remove(key, is_over),
            false => Vec::new(),
        }
    }

    /// A session has ended, and asks for nothing any more. Returns what is to be given back; what is underway, is when it is
    /// [settled](Passed::settle).
    pub fn end_session(&mut self, session: u64) -> Vec<(F, Lock)> {
        let of_session = (session, (0, 0), 0)..=(session, (u64::MAX, u64::MAX), u64::MAX);
        let mut idle = Vec::new();
        for (&key, owner) in self.owners.range_mut(of_session) {
            owner.is_over = true;
            if owner.underway == 0 {
                idle.push(key);
            }
        }
        idle.into_iter().flat_map(|key| self.remove(key, true)).collect()
    }

    /// The number under which an owner's locks are passed on; 0: it has none.
    pub fn number(&self, session: u64, file: Identity, owner: u64) -> u64 {
        let key = (session, (file.inode, file.generation), owner);
        self.owners.get(&key).map_or(0, |owner| owner.number)
    }

    /// The session, and its number, of an owner whose locks are passed on under this one.
    pub fn owner(&self, number: u64) -> Option<super::Owner> {
        self.by_number.get(&number).map(|&(session, _, owner)| (session, owner))
    }

    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether a session may have any.
    pub fn has(&self, session: u64) -> bool {
        let of_session = (session, (0, 0), 0)..=(session, (u64::MAX, u64::MAX), u64::MAX);
        self.owners.range(of_session).next().is_some()
    }

    /// Forgets an owner; returns what it may have, to be given back.
    fn remove(&mut self, key: Key, gives_back: bool) -> Vec<(F, Lock)> {
        let Some(owner) = self.owners.remove(&key) else { return Vec::new() };
        self.by_number.remove(&owner.number);
        self.counted(key.0, owner.len(), 0);
        let spaces =
            (lock::BYTES..).zip(&owner.may_have).filter(|(_, locks)| gives_back && !locks.is_empty());
        spaces.map(|(space, _)| (owner.through.clone(), Lock::all_back(space, owner.number))).collect()
    }

    fn counted(&mut self, session: u64, before: usize, after: usize) {
        super::count(&mut self.counts, session, before, after);
    }
}

impl<F> Owner<F> {
    fn len(&self) -> usize {
        self.may_have.iter().map(RangeLocks::len).sum()
    }
}

#[cfg(test)]
mod tests;
