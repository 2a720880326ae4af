//! Locks of files, among the clients of a server: who has which, and which of them count when the server was started anew.
//!
//! A lock is of bytes, as of `fcntl(2)`, or of an open file, as of `flock(2)`; neither kind knows of the other. It is a client's, under a
//! number that the client chose for whom it has taken it, and lasts until it is given back or the client's session ends.
//!
//! Locks are in memory. When a server is started again while clients may have held locks, there is a grace: for that time a lock is only
//! given to who had it from a process before, and nobody can have had since: what is [noted](Note) says which processes and sessions these
//! are. A client that comes back later finds its lock lost.
//!
//! Nobody waits here: whoever wants a lock that another one has is told so, and asks again.
//!
//! Others may use the files, too, past the server. A shell that takes on a file what its clients have of it [together](FileLocks::together)
//! asks whether they [may](FileLocks::may) have a lock, takes it there, and has it given then.
//!
//! A server whose files are at another one keeps no locks: it [passes](Passed) those of its clients on.

mod passed;
mod ranges;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use self::passed::{Outcome, Passed};
pub use self::ranges::{ByteRange, Held, Kind, RangeLocks};
use crate::Time;
use crate::refusal::errno;
use crate::wire::{Identity, Lock, lock};

/// Most locks that a session has: each costs some 50 bytes.
const LOCKS_PER_SESSION_MAX: usize = 16_384;
/// Of one that has them for others: a forwarder's.
const LOCKS_PER_FORWARDER_MAX: usize = 16 * LOCKS_PER_SESSION_MAX;

/// Whose a lock is: the session's number, and the client's number for whom it has taken it.
pub type Owner = (u64, u64);

/// Who asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The session's number.
    pub session: u64,
    /// It has locks for others, and may have more.
    pub is_forwarder: bool,
}

impl core::convert::From<u64> for Asker {
    fn from(session: u64) -> Asker {
        Asker { session, is_forwarder: false }
    }
}

/// Why a lock is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Somebody else has it.
    Held(Held<Owner>),
    /// Somebody has it who uses the file past this server.
    Outside,
    /// It is kept for who had it before the server was started anew: ask again.
    Grace,
    /// It was had before, and may have been another's since.
    Lost,
    /// The session has as many as it may.
    TooMany,
    /// There is no such lock.
    Malformed,
}

impl Denied {
    /// What a [`SetLock`](crate::wire::SetLock) fails with.
    pub fn errno(&self) -> i32 {
        match self {
            Denied::Held(_) | Denied::Outside => errno::EAGAIN,
            Denied::Grace => errno::EBUSY,
            Denied::Lost => errno::ESTALE,
            Denied::TooMany => errno::ENOLCK,
            Denied::Malformed => errno::EINVAL,
        }
    }
}

/// The locks of an export.
#[derive(Clone, Debug, Default)]
pub struct FileLocks {
    /// By inode and generation.
    files: BTreeMap<(u64, u64), Spaces>,
    /// How many each session has.
    counts: BTreeMap<u64, usize>,
    /// Until when only those who had a lock before are given one.
    grace_ends: Option<Time>,
    /// From whom a lock may have been had before.
    before: Note,
    /// What the next process is to find, once a lock was given or there was such a note.
    note: Option<Note>,
    /// This process.
    instance: u64,
}

/// Where a client has had its locks: the number of the server's process, and of the session.
pub type From = (u64, u64);

/// What a process of a server finds of those before. It is durable before clients are told anything that it would not allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The processes that a lock may be had from: each adds itself when it begins, and is alone once it gives a lock to somebody who had
    /// none.
    pub processes: Vec<u64>,
    /// The sessions whose locks were free before the process ended.
    pub ended: Vec<u64>,
}

/// Most processes and ended sessions that are noted. With more, nobody is given a lock again.
const NOTED_MAX: usize = 16_384;

impl Note {
    fn has(&self, (process, session): From) -> bool {
        self.processes.contains(&process) && !self.ended.contains(&session)
    }

    fn add(&mut self, process: Option<u64>, ended: Option<u64>) {
        self.processes.extend(process);
        self.ended.extend(ended);
        if self.processes.len() + self.ended.len() > NOTED_MAX {
            *self = Note::default();
        }
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = [self.processes.len() as u64];
        let all = count.iter().chain(&self.processes).chain(&self.ended);
        all.flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Of bytes. Others than [`Note::to_bytes`] makes allow nobody anything.
    pub fn from_bytes(bytes: &[u8]) -> Note {
        let mut numbers = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        let count = numbers.next().unwrap_or(0).min(NOTED_MAX as u64) as usize;
        Note { processes: numbers.by_ref().take(count).collect(), ended: numbers.collect() }
    }
}

/// A file's locks: of bytes, and of open files.
#[derive(Clone, Debug, Default)]
struct Spaces([RangeLocks<Owner>; 2]);

/// What a lock is of ([`lock::BYTES`], [`lock::FILE`]), of which kind (`None`: it is given back), and of which bytes; the outer `None`:
/// there is no such lock.
pub fn asked(lock: &Lock) -> Option<(usize, Option<Kind>, ByteRange)> {
    let kind = match lock.kind {
        lock::NONE => None,
        lock::SHARED => Some(Kind::Shared),
        lock::EXCLUSIVE => Some(Kind::Exclusive),
        _ => return None,
    };
    let range = ByteRange::new(lock.first, lock.last)?;
    (lock.space <= lock::FILE).then_some((lock.space.into(), kind, range))
}

impl FileLocks {
    /// No locks, in a process of this number. `before` is what is noted, if anything is: then there is a grace, and
    /// [`FileLocks::note`] is to be noted.
    pub fn begin(instance: u64, before: Option<Note>, grace_ends: Time) -> FileLocks {
        let grace_ends = before.as_ref().map(|_| grace_ends);
        let note = before.clone().map(|mut note| {
            note.add(Some(instance), None);
            note
        });
        FileLocks { grace_ends, before: before.unwrap_or_default(), note, instance, ..FileLocks::default() }
    }

    /// What is to be noted.
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// A lock is about to be given to somebody who had none. Returns whether [`FileLocks::note`] has changed.
    pub fn gives(&mut self) -> bool {
        let alone = [self.instance];
        if self.note.as_ref().is_some_and(|note| note.processes == alone || note.processes.is_empty()) {
            return false;
        }
        let ended = self.note.take().map(|note| note.ended).unwrap_or_default();
        self.note = Some(Note { processes: Vec::from(alone), ended });
        true
    }

    /// Whether a session has any.
    pub fn has(&self, session: u64) -> bool {
        self.counts.contains_key(&session)
    }

    /// A session is about to end while its client does not know. Returns whether [`FileLocks::note`] has changed.
    pub fn ends(&mut self, session: u64) -> bool {
        let has_locks = self.has(session);
        if let Some(note) = self.note.as_mut().filter(|_| has_locks) {
            note.add(None, Some(session));
        }
        has_locks
    }

    /// Whether nobody has a lock, and nobody is waited for.
    pub fn is_empty(&self, now: Time) -> bool {
        self.files.is_empty() && !self.is_grace(now)
    }

    /// Whether locks are only given to who had them before.
    pub fn is_grace(&self, now: Time) -> bool {
        self.grace_ends.is_some_and(|end| now < end)
    }

    /// Whether a session may have a lock now, or give it back, as of [`FileLocks::set`].
    ///
    /// # Errors
    /// Why not.
    pub fn may(
        &self,
        now: Time,
        who: impl Into<Asker>,
        file: Identity,
        lock: &Lock,
        again: Option<From>,
    ) -> Result<(), Denied> {
        let who = who.into();
        let Some((space, kind, range)) = self.admits(now, who, lock, again)? else { return Ok(()) };
        let owner = (who.session, lock.owner);
        let in_the_way = self.of(file).and_then(|spaces| spaces.0[space].in_the_way(owner, kind, range));
        in_the_way.map_or(Ok(()), |held| Err(Denied::Held(held)))
    }

    /// Gives a session a lock, in place of what its owner has of these bytes, or takes these from it. `again`: it had the lock from a
    /// process before.
    ///
    /// # Errors
    /// Why not; what the owner has of these bytes stays as it is.
    pub fn set(
        &mut self,
        now: Time,
        who: impl Into<Asker>,
        file: Identity,
        lock: &Lock,
        again: Option<From>,
    ) -> Result<(), Denied> {
        let who = who.into();
        self.admits(now, who, lock, again)?;
        let (space, kind, range) = asked(lock).ok_or(Denied::Malformed)?;
        let owner = (who.session, lock.owner);
        let spaces = self.files.entry((file.inode, file.generation)).or_default();
        let (before, locks) = (spaces.len(), &mut spaces.0[space]);
        let set = match kind {
            Some(kind) => locks.lock(Held { owner, kind, range, process: lock.process }),
            None => {
                locks.unlock(owner, range);
                Ok(())
            }
        };
        let after = spaces.len();
        count(&mut self.counts, who.session, before, after);
        if after == 0 {
            self.files.remove(&(file.inode, file.generation));
        }
        set.map_err(Denied::Held)
    }

    /// Who has a lock in the way of this one: the first of them.
    ///
    /// # Errors
    /// There is no such lock.
    pub fn holder(&self, session: u64, file: Identity, lock: &Lock) -> Result<Option<Held<Owner>>, Denied> {
        let Some((space, Some(kind), range)) = asked(lock) else { return Err(Denied::Malformed) };
        let Some(spaces) = self.of(file) else { return Ok(None) };
        Ok(spaces.0[space].in_the_way((session, lock.owner), kind, range))
    }

    /// A session has ended: what it had is free. Returns the files of which it had something.
    pub fn end_session(&mut self, session: u64) -> Vec<Identity> {
        if self.counts.remove(&session).is_none() {
            return Vec::new();
        }
        let mut freed = Vec::new();
        self.files.retain(|&(inode, generation), spaces| {
            let before = spaces.len();
            spaces.0.iter_mut().for_each(|locks| locks.release(|(of, _)| of == session));
            if spaces.len() < before {
                freed.push(Identity { inode, generation });
            }
            spaces.len() > 0
        });
        freed
    }

    /// Whether nobody has a lock of a file.
    pub fn is_free(&self, file: Identity) -> bool {
        self.of(file).is_none()
    }

    /// What all sessions have together of a file's bytes, or (`space`) of the open file: see [`RangeLocks::together`].
    pub fn together(&self, file: Identity, space: usize, range: ByteRange) -> Vec<(Option<Kind>, ByteRange)> {
        let free = || Vec::from([(None, range)]);
        self.of(file).map_or_else(free, |spaces| spaces.0[space].together(range))
    }

    /// What a session asks for, if it may ask for that now, whoever has it; `None`: it gives something back.
    fn admits(
        &self,
        now: Time,
        who: Asker,
        lock: &Lock,
        again: Option<From>,
    ) -> Result<Option<(usize, Kind, ByteRange)>, Denied> {
        let (space, kind, range) = asked(lock).ok_or(Denied::Malformed)?;
        let Some(kind) = kind else { return Ok(None) };
        match (self.is_grace(now), again) {
            (true, None) => return Err(Denied::Grace),
            (false, None) => {}
            (true, Some(from)) if self.before.has(from) => {}
            _ => return Err(Denied::Lost),
        }
        let most = if who.is_forwarder { LOCKS_PER_FORWARDER_MAX } else { LOCKS_PER_SESSION_MAX };
        match self.counts.get(&who.session) {
            Some(&count) if count >= most => Err(Denied::TooMany),
            _ => Ok(Some((space, kind, range))),
        }
    }

    fn of(&self, file: Identity) -> Option<&Spaces> {
        self.files.get(&(file.inode, file.generation))
    }
}

/// A session has so many locks where it had so many before.
fn count(counts: &mut BTreeMap<u64, usize>, session: u64, before: usize, after: usize) {
    if before == after {
        return;
    }
    let count = counts.entry(session).or_default();
    *count = (*count + after).saturating_sub(before);
    if *count == 0 {
        counts.remove(&session);
    }
}

impl Spaces {
    fn len(&self) -> usize {
        self.0.iter().map(RangeLocks::len).sum()
    }
}

#[cfg(test)]
mod tests;
