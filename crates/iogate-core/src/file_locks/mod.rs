//! Locks of files, among the clients of a server: who has which, and which of them count when the server was started anew.
//!
//! A lock is of bytes, as of `fcntl(2)`, or of an open file, as of `flock(2)`; neither kind knows of the other. It is a client's, under a number
//! that the client chose for whom it has taken it, and lasts until it is given back or the client's session ends.
//!
//! Locks are in memory. When a server is started again while clients may have held locks, there is a grace: for that time a lock is only given to
//! who had it from a process before, and nobody can have had since. Which processes these are is [noted](FileLocks::note): each adds itself when it
//! begins, and is alone once it gives a lock to somebody who had none. A client that comes back later finds its lock lost.
//!
//! Nobody waits here: whoever wants a lock that another one has is told so, and asks again.

mod ranges;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use self::ranges::{ByteRange, Held, Kind, RangeLocks};
use crate::Time;
use crate::wire::{Identity, Lock, lock};

/// Most locks that a session has: each costs some 50 bytes.
const LOCKS_PER_SESSION_MAX: usize = 16_384;

/// Whose a lock is: the session's number, and the client's number for whom it has taken it.
pub type Owner = (u64, u64);

/// Why a lock is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Somebody else has it.
    Held(Held<Owner>),
    /// It is kept for who had it before the server was started anew: ask again.
    Grace,
    /// It was had before, and may have been another's since.
    Lost,
    /// The session has as many as it may.
    TooMany,
    /// There is no such lock.
    Malformed,
}

/// The locks of an export.
#[derive(Clone, Debug, Default)]
pub struct FileLocks {
    files: BTreeMap<(u64, u64), Spaces>,
    /// How many each session has.
    counts: BTreeMap<u64, usize>,
    /// Until when only those who had a lock before are given one.
    grace_ends: Option<Time>,
    /// The processes before that it may be had from.
    before: Vec<u64>,
    /// This process.
    instance: u64,
}

/// Most processes before that are noted: those that have been started one after the other within a grace.
const BEFORE_MAX: usize = 64;

/// A file's locks: of bytes, and of open files.
#[derive(Clone, Debug, Default)]
struct Spaces([RangeLocks<Owner>; 2]);

/// What a [`Lock`] says.
struct Wish {
    space: usize,
    kind: Option<Kind>,
    range: ByteRange,
}

impl Wish {
    fn of(lock: &Lock) -> Option<Wish> {
        let space = usize::from(lock.space);
        let range = ByteRange::new(lock.first, lock.last)?;
        (space < 2).then_some(Wish { space, kind: kind_of(lock)?, range })
    }
}

/// What kind a lock is of, the inner `None`: none. The outer one: it says nothing that is known.
pub(crate) fn kind_of(lock: &Lock) -> Option<Option<Kind>> {
    match lock.kind {
        lock::NONE => Some(None),
        lock::SHARED => Some(Some(Kind::Shared)),
        lock::EXCLUSIVE => Some(Some(Kind::Exclusive)),
        _ => None,
    }
}

impl FileLocks {
    /// No locks, in a process of this number. `noted` is what was [noted](FileLocks::note) last, if anything was: then there is a grace.
    pub fn begin(instance: u64, noted: Option<Vec<u64>>, grace_ends: Time) -> FileLocks {
        let grace_ends = noted.as_ref().map(|_| grace_ends);
        FileLocks { grace_ends, before: noted.unwrap_or_default(), instance, ..FileLocks::default() }
    }

    /// What is to be noted, durably, before clients are told anything: if clients may have held locks, and before a lock is given to somebody
    /// who had none.
    pub fn note(&self, gives: bool) -> Option<Vec<u64>> {
        if gives {
            return Some(Vec::from([self.instance]));
        }
        self.grace_ends?;
        let first = self.before.len().saturating_sub(BEFORE_MAX - 1);
        Some(self.before[first..].iter().copied().chain([self.instance]).collect())
    }

    /// Whether nobody has a lock, and nobody is waited for.
    pub fn is_empty(&self, now: Time) -> bool {
        self.files.is_empty() && !self.is_grace(now)
    }

    /// Whether locks are only given to who had them before.
    pub fn is_grace(&self, now: Time) -> bool {
        self.grace_ends.is_some_and(|end| now < end)
    }

    /// Gives a session a lock, in place of what its owner has of these bytes, or takes these from it. `again`: it had the lock from a process
    /// before, of this number; 0: it had none.
    ///
    /// # Errors
    /// Why not; what the owner has of these bytes stays as it is.
    pub fn set(
        &mut self,
        now: Time,
        session: u64,
        file: Identity,
        lock: &Lock,
        again: u64,
    ) -> Result<(), Denied> {
        let wish = Wish::of(lock).ok_or(Denied::Malformed)?;
        let key = (file.inode, file.generation);
        let Some(kind) = wish.kind else {
            let Some(spaces) = self.files.get_mut(&key) else { return Ok(()) };
            let before = spaces.len();
            spaces.0[wish.space].unlock((session, lock.owner), wish.range);
            let after = spaces.len();
            self.counted(session, before, after);
            self.forget_if_free(key);
            return Ok(());
        };
        match (self.is_grace(now), again) {
            (true, 0) => return Err(Denied::Grace),
            (false, 0) => {}
            (true, before) if self.before.contains(&before) => {}
            _ => return Err(Denied::Lost),
        }
        if self.counts.get(&session).is_some_and(|&count| count >= LOCKS_PER_SESSION_MAX) {
            return Err(Denied::TooMany);
        }
        let spaces = self.files.entry(key).or_default();
        let before = spaces.len();
        let held = Held { owner: (session, lock.owner), kind, range: wish.range, process: lock.process };
        let given = spaces.0[wish.space].lock(held);
        let after = spaces.len();
        self.counted(session, before, after);
        self.forget_if_free(key);
        given.map_err(Denied::Held)
    }

    /// Who has a lock in the way of this one: the first of them.
    ///
    /// # Errors
    /// There is no such lock.
    pub fn holder(&self, session: u64, file: Identity, lock: &Lock) -> Result<Option<Held<Owner>>, Denied> {
        let wish = Wish::of(lock).ok_or(Denied::Malformed)?;
        let Some(kind) = wish.kind else { return Err(Denied::Malformed) };
        let Some(spaces) = self.files.get(&(file.inode, file.generation)) else { return Ok(None) };
        Ok(spaces.0[wish.space].in_the_way((session, lock.owner), kind, wish.range))
    }

    /// A session has ended: what it had is free.
    pub fn end_session(&mut self, session: u64) {
        if self.counts.remove(&session).is_none() {
            return;
        }
        self.files.retain(|_, spaces| {
            spaces.0.iter_mut().for_each(|locks| locks.release(|(of, _)| of == session));
            spaces.len() > 0
        });
    }

    fn counted(&mut self, session: u64, before: usize, after: usize) {
        if before == after {
            return;
        }
        let count = self.counts.entry(session).or_default();
        *count = (*count + after).saturating_sub(before);
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    fn forget_if_free(&mut self, key: (u64, u64)) {
        if self.files.get(&key).is_some_and(|spaces| spaces.len() == 0) {
            self.files.remove(&key);
        }
    }
}

impl Spaces {
    fn len(&self) -> usize {
        self.0.iter().map(RangeLocks::len).sum()
    }
}

#[cfg(test)]
mod tests;
