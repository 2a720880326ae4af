//! Locks of files among an export's clients, around what decides: [`iogate_core::file_locks`].

use std::io;
use std::sync::Mutex;

use iogate_core::Time;
use iogate_core::file_locks::{Denied, FileLocks};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{GetLock, Lock, SetLock, lock as kinds};
use iogate_vfs::Tree;

use super::lock;
use super::session::Session;

/// The locks of an export.
pub(super) struct Locks {
    table: Mutex<FileLocks>,
    /// What the next process finds.
    noted: Mutex<Noted>,
}

#[derive(PartialEq)]
enum Noted {
    Nothing,
    /// Clients may hold locks from processes before.
    Before,
    /// They may hold some from this one only.
    Given,
}

impl Locks {
    /// None yet, in a process of this number: clients that held some from one before may come back until the grace ends.
    pub(super) fn begin(tree: &dyn Tree, instance: u64, grace_ends: Time) -> io::Result<Locks> {
        let table = FileLocks::begin(instance, tree.noted_locks()?, grace_ends);
        let note = table.note(false);
        if note.is_some() {
            tree.note_locks(note.as_deref())?;
        }
        let noted = if note.is_some() { Noted::Before } else { Noted::Nothing };
        Ok(Locks { table: Mutex::new(table), noted: Mutex::new(noted) })
    }

    /// A lock is about to be given to somebody who had none.
    fn note(&self, tree: &dyn Tree) {
        let mut noted = lock(&self.noted);
        if *noted == Noted::Given {
            return;
        }
        let note = lock(&self.table).note(true);
        if let Err(error) = tree.note_locks(note.as_deref()) {
            tracing::warn!(%error, "whoever holds a lock will not have it kept when this server is started again");
        }
        *noted = Noted::Given;
    }

    /// The server ends. What nobody holds is not waited for by the next one.
    pub(super) fn end(&self, tree: &dyn Tree, now: Time) {
        let mut noted = lock(&self.noted);
        if *noted != Noted::Nothing && lock(&self.table).is_empty(now) && tree.note_locks(None).is_ok() {
            *noted = Noted::Nothing;
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
        let (locks, now) = (self.locks()?, self.server.now());
        if set.lock.kind != kinds::NONE && set.again == 0 && !lock(&locks.table).is_grace(now) {
            locks.note(&*self.export.tree);
        }
        let mut table = lock(&locks.table);
        // With the table's lock: a session that has ended has no file, and takes no lock any more.
        let file = self.file(set.handle)?.file.identity();
        table.set(now, self.number(), file, &set.lock, set.again).map_err(|denied| refusal(&denied))
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
