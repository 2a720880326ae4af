//! Locks of files that a table decides about, and that are taken on the files, too: they hold among those whom the table knows, and among
//! whoever else uses the files, as far as the file system carries them.
//!
//! The order of locks here is: a file's, then the table's. A file's is held while its locks are taken on it, as these must follow each
//! other in the order in which they were decided; nothing but other locks of that file waits for it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use iogate_core::Time;
use iogate_core::file_locks::{Asker, ByteRange, Denied, FileLocks, From, Kind, asked};
use iogate_core::wire::{Identity, Lock, lock as kinds};
use iogate_engine::lock;

use crate::TreeFile;
use crate::outside::OutsideLocks;

/// An open file that can be locked.
pub trait Lockable {
    /// Which file it is.
    fn identity(&self) -> Identity;

    /// See [`TreeFile::outside_locks`].
    ///
    /// # Errors
    /// If it cannot be opened for that.
    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>>;
}

impl Lockable for dyn TreeFile {
    fn identity(&self) -> Identity {
        TreeFile::identity(self)
    }

    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>> {
        TreeFile::outside_locks(self)
    }
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// It was decided so.
    Denied(Denied),
    /// The file system has failed.
    Failed(io::Error),
}

impl std::convert::From<Denied> for NotTaken {
    fn from(denied: Denied) -> NotTaken {
        NotTaken::Denied(denied)
    }
}

impl std::convert::From<io::Error> for NotTaken {
    fn from(error: io::Error) -> NotTaken {
        NotTaken::Failed(error)
    }
}

impl std::convert::From<NotTaken> for io::Error {
    /// As [`SetLock`](iogate_core::wire::SetLock) fails.
    fn from(why: NotTaken) -> io::Error {
        match why {
            NotTaken::Failed(error) => error,
            NotTaken::Denied(denied) => io::Error::from_raw_os_error(denied.errno()),
        }
    }
}

/// The locks of a tree's files.
#[derive(Debug, Default)]
pub struct TakenLocks {
    table: Mutex<FileLocks>,
    /// Those that somebody has locks of, by inode and generation.
    files: Mutex<Files>,
}

type Files = HashMap<(u64, u64), Arc<Mutex<Taken>>>;

/// What is taken on a file that somebody has locks of.
#[derive(Debug)]
struct Taken {
    /// `None`: there are no locks past this program.
    outside: Option<OutsideLocks>,
    /// It is in the table no more.
    is_gone: bool,
}

impl TakenLocks {
    /// Those of a table, which has none yet.
    pub fn new(table: FileLocks) -> TakenLocks {
        TakenLocks { table: Mutex::new(table), files: Mutex::default() }
    }

    /// What decides about them.
    pub fn table(&self) -> MutexGuard<'_, FileLocks> {
        lock(&self.table)
    }

    /// Takes a lock of an open file, or gives it back, as [`FileLocks::set`]; waits for the file system, and for nobody who has the lock.
    /// `is_open` is asked with the table's lock: of what is closed by then no lock is taken.
    ///
    /// # Errors
    /// Why not; what the owner has of these bytes stays as it is. An open file's lock that is shared, and that somebody else keeps from
    /// becoming exclusive, can be lost by that as of `flock(2)`.
    pub fn set(
        &self,
        now: Time,
        who: Asker,
        file: &(impl Lockable + ?Sized),
        wish: &Lock,
        again: Option<From>,
        is_open: impl Fn() -> bool,
    ) -> Result<(), NotTaken> {
        let (space, kind, range) = asked(wish).ok_or(Denied::Malformed)?;
        let identity = file.identity();
        let give = |kind: Kind, locked: &Taken| -> Result<(), NotTaken> {
            self.table().may(now, who, identity, wish, again)?;
            // Somebody else may have had it there meanwhile, and another server has told nobody of it.
            if again.is_some() && locked.outside.as_ref().is_some_and(OutsideLocks::reaches_afar) {
                return Err(Denied::Lost.into());
            }
            if !locked.take(space, Some(kind), range)? {
                // `flock(2)` has given up what there was before it was refused.
                if !self.take_together(identity, space, range, locked) {
                    let lost = Lock { kind: kinds::NONE, ..*wish };
                    self.table().set(now, who, identity, &lost, None)?;
                }
                return Err(Denied::Outside.into());
            }
            let mut table = self.table();
            let given = match is_open() {
                true => table.set(now, who, identity, wish, again),
                false => Err(Denied::Lost),
            };
            drop(table);
            if given.is_err() {
                self.take_together(identity, space, range, locked);
            }
            Ok(given?)
        };
        match kind {
            Some(kind) => {
                let open = || file.outside_locks();
                self.with(identity, open, |locked| give(kind, locked))?
            }
            None => {
                self.table().set(now, who, identity, wish, None)?;
                self.with_known(identity, |locked| {
                    self.take_together(identity, space, range, locked);
                });
                Ok(())
            }
        }
    }

    /// A lock that such a one of an owner of a session would not go together with; of no kind: there is none. Of another session's, and of
    /// those past this program, it is not said whose it is.
    ///
    /// # Errors
    /// There is no such lock, or the file system has failed.
    pub fn get(&self, session: u64, file: &(impl Lockable + ?Sized), wish: &Lock) -> Result<Lock, NotTaken> {
        let holder = self.table().holder(session, file.identity(), wish)?;
        let found = |kind: Kind, range: ByteRange| Lock {
            kind: kind.number(),
            first: range.first(),
            last: range.last(),
            owner: 0,
            process: 0,
            ..*wish
        };
        if let Some(holder) = holder {
            let (of, owner) = holder.owner;
            // Numbers of another machine's processes say nothing.
            let process = if of == session { holder.process } else { 0 };
            return Ok(Lock { owner, process, ..found(holder.kind, holder.range) });
        }
        let outside = match asked(wish) {
            Some((space, Some(kind), range)) if space == usize::from(kinds::BYTES) => {
                let known = self.with_known(file.identity(), |locked| locked.in_the_way(kind, range));
                match known {
                    Some(found) => found?,
                    None => match file.outside_locks()? {
                        Some(outside) => outside.in_the_way(kind, range)?,
                        None => None,
                    },
                }
            }
            _ => None,
        };
        Ok(match outside {
            Some((kind, range)) => found(kind, range),
            None => Lock { kind: kinds::NONE, ..*wish },
        })
    }

    /// A session is over, and nothing is done in its name any more: what it has is free.
    pub fn end_session(&self, session: u64) {
        let freed = self.table().end_session(session);
        for file in freed {
            self.with_known(file, |locked| {
                for space in [kinds::BYTES, kinds::FILE] {
                    self.take_together(file, space.into(), ByteRange::ALL, locked);
                }
            });
        }
    }

    /// Takes on a file what all have of it together. Whether nobody has come in between.
    fn take_together(&self, file: Identity, space: usize, range: ByteRange, locked: &Taken) -> bool {
        let together = self.table().together(file, space, range);
        let taken = |(kind, part)| {
            locked.take(space, kind, part).unwrap_or_else(|error| {
                tracing::warn!(%error, inode = file.inode, "what is locked of a file is not what is locked on it");
                true
            })
        };
        // No file has the bytes beyond.
        let is_there = |part: &ByteRange| i64::try_from(part.first()).is_ok();
        let parts = together.into_iter().filter(|(_, part)| is_there(part));
        // Each of them, whatever came of the others.
        parts.filter(|part| !taken(*part)).count() == 0
    }

    /// Does something with a file's locks; opens it, if nobody has any.
    fn with<R>(
        &self,
        file: Identity,
        open: impl Fn() -> io::Result<Option<OutsideLocks>>,
        act: impl FnOnce(&Taken) -> R,
    ) -> io::Result<R> {
        let key = (file.inode, file.generation);
        let mut act = Some(act);
        loop {
            if let Some(result) = self.with_known(file, |locked| act.take().map(|act| act(locked))).flatten()
            {
                return Ok(result);
            }
            // Without a lock: this may wait for the file system.
            let new = Taken { outside: open()?, is_gone: false };
            lock(&self.files).entry(key).or_insert_with(|| Arc::new(Mutex::new(new)));
        }
    }

    /// Does something with a file's locks, if there are any. A file that has none any more is closed.
    fn with_known<R>(&self, file: Identity, act: impl FnOnce(&Taken) -> R) -> Option<R> {
        let key = (file.inode, file.generation);
        let known = lock(&self.files).get(&key).map(Arc::clone)?;
        let mut locked = lock(&known);
        if locked.is_gone {
            return None;
        }
        let result = act(&locked);
        if self.table().is_free(file) {
            // Closing it might not do: who has opened it may have it open still.
            if let Some(Err(error)) = locked.outside.as_ref().map(OutsideLocks::give_all_back) {
                tracing::warn!(%error, inode = file.inode, "a file that nobody has locked any more may still be locked");
            }
            locked.is_gone = true;
            lock(&self.files).remove(&key);
        }
        Some(result)
    }
}

impl Taken {
    /// Takes a lock, or gives it back; whether nobody past this program is in the way.
    fn take(&self, space: usize, kind: Option<Kind>, range: ByteRange) -> io::Result<bool> {
        match &self.outside {
            Some(outside) if space == usize::from(kinds::FILE) => outside.set_whole(kind),
            Some(outside) => outside.set(kind, range),
            None => Ok(true),
        }
    }

    fn in_the_way(&self, kind: Kind, range: ByteRange) -> io::Result<Option<(Kind, ByteRange)>> {
        self.outside.as_ref().map_or(Ok(None), |outside| outside.in_the_way(kind, range))
    }
}

#[cfg(test)]
mod tests;
