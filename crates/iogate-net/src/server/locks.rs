//! Locks of files among an export's clients, around what decides: [`iogate_core::file_locks`].

use std::sync::Mutex;

use iogate_core::file_locks::{Denied, FileLocks};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{GetLock, Lock, SetLock, lock as kinds};
use iogate_core::{Span, Time};
use iogate_vfs::Tree;

use super::lock;
use super::session::Session;

/// The locks of an export.
pub(super) struct Locks {
    table: Mutex<FileLocks>,
    /// The next process will know that clients may have held some.
    is_noted: Mutex<bool>,
}

impl Locks {
    /// None yet: clients of an earlier process that held some may come back within a grace from now.
    pub(super) fn new(tree: &dyn Tree, now: Time, grace: Span) -> Locks {
        let is_noted = tree.locks_noted();
        let table = if is_noted { FileLocks::after_restart(now + grace) } else { FileLocks::default() };
        Locks { table: Mutex::new(table), is_noted: Mutex::new(is_noted) }
    }

    /// Has it noted that clients may hold locks, before the first one does.
    fn note(&self, tree: &dyn Tree) {
        let mut is_noted = lock(&self.is_noted);
        if *is_noted {
            return;
        }
        if let Err(error) = tree.note_locks(true) {
            tracing::warn!(%error, "whoever holds a lock will not have it kept when this server is started again");
        }
        *is_noted = true;
    }

    /// The server ends. What nobody holds is not waited for by the next one.
    pub(super) fn end(&self, tree: &dyn Tree, now: Time) {
        let mut is_noted = lock(&self.is_noted);
        if *is_noted && lock(&self.table).is_empty(now) {
            *is_noted = tree.note_locks(false).is_err();
        }
    }

    /// A session is over, and nothing is done in its name any more.
    pub(super) fn end_session(&self, session: u64) {
        lock(&self.table).end_session(session);
    }
}

impl Session {
    /// Takes a lock of an open file, or gives it back.
    pub(super) fn set_lock(&self, set: &SetLock) -> Result<(), Refusal> {
        let locks = self.locks()?;
        if set.lock.kind != kinds::NONE {
            locks.note(&*self.export.tree);
        }
        let mut table = lock(&locks.table);
        // With the table's lock: a session that has ended has no file, and takes no lock any more.
        let file = self.file(set.handle)?.file.identity();
        let now = self.server.now();
        table.set(now, self.number(), file, &set.lock, set.again != 0).map_err(|denied| refusal(&denied))
    }

    /// Who has a lock of an open file that is in the way of this one.
    pub(super) fn get_lock(&self, get: &GetLock) -> Result<Lock, Refusal> {
        let table = lock(&self.locks()?.table);
        let file = self.file(get.handle)?.file.identity();
        let session = self.number();
        let holder = table.holder(session, file, &get.lock).map_err(|denied| refusal(&denied))?;
        let Some(holder) = holder else { return Ok(Lock { kind: kinds::NONE, ..get.lock }) };
        let (of, owner) = holder.owner;
        Ok(Lock {
            kind: holder.kind.number(),
            owner,
            first: holder.range.first(),
            last: holder.range.last(),
            // Numbers of another machine's processes say nothing.
            process: if of == session { holder.process } else { 0 },
            ..get.lock
        })
    }

    fn locks(&self) -> Result<&Locks, Refusal> {
        self.export.locks.get().ok_or_else(|| {
            Refusal::new(libc::EOPNOTSUPP, "locks of this export hold among the programs of one client only")
        })
    }
}

fn refusal(denied: &Denied) -> Refusal {
    match denied {
        Denied::Held(_) => Refusal::new(libc::EAGAIN, ""),
        Denied::Grace => {
            Refusal::new(libc::EBUSY, "locks are kept for who had them before the server was started again")
        }
        Denied::Lost => Refusal::new(libc::ESTALE, "the lock may have been another's meanwhile"),
        Denied::TooMany => Refusal::new(libc::ENOLCK, "the client has as many locks as it may"),
        Denied::Malformed => Refusal::new(libc::EINVAL, "there is no such lock"),
    }
}
