//! Locks of files among an export's clients, around what decides: [`iogate_core::file_locks`].
//!
//! They are kept where the files are, and taken on these, too ([`TakenLocks`]). Elsewhere they are passed on (`passed_locks.rs`).

use std::io;
use std::sync::{Arc, Mutex};

use iogate_core::Time;
use iogate_core::file_locks::{Asker, Denied, FileLocks};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{GetLock, Lock, SetLock, lock as kinds, locks as among};
use iogate_vfs::Tree;
use iogate_vfs::taken_locks::{NotTaken, TakenLocks};

use super::lock;
use super::passed_locks::PassedLocks;
use super::session::{Session, explained};

/// The locks of an export.
pub(super) enum Locks {
    Kept(KeptLocks),
    PassedOn(PassedLocks),
}

/// Those that are kept here.
pub(super) struct KeptLocks {
    taken: TakenLocks,
    /// Held while the table's note is made durable, so that they follow each other.
    noting: Mutex<()>,
}

impl Locks {
    /// None yet, in a process of this number: clients that held some from one before may come back until the grace ends. `None`: locks hold
    /// among each client's programs only.
    pub(super) fn begin(tree: &dyn Tree, instance: u64, grace_ends: Time) -> io::Result<Option<Locks>> {
        if tree.keeps_locks() {
            return KeptLocks::begin(tree, instance, grace_ends).map(|kept| Some(Locks::Kept(kept)));
        }
        Ok(tree.shares_locks().then(|| Locks::PassedOn(PassedLocks::default())))
    }

    /// Among whom they hold, as clients are told: see [`iogate_core::wire::locks`].
    pub(super) fn among(locks: Option<&Locks>) -> u8 {
        match locks {
            None => among::NONE,
            Some(Locks::Kept(_)) => among::TAKEN,
            Some(Locks::PassedOn(_)) => among::PASSED_ON,
        }
    }

    /// The server ends.
    pub(super) fn end(&self, tree: &dyn Tree, now: Time) {
        match self {
            Locks::Kept(kept) => kept.end(tree, now),
            Locks::PassedOn(passed) => passed.end(tree),
        }
    }

    /// Whether a session has any.
    pub(super) fn has(&self, session: u64) -> bool {
        match self {
            Locks::Kept(kept) => kept.taken.table().has(session),
            Locks::PassedOn(passed) => passed.has(session),
        }
    }

    /// A session is over, and nothing is done in its name any more: what it has is free.
    pub(super) fn end_session(&self, tree: &dyn Tree, session: u64) {
        match self {
            Locks::Kept(kept) => kept.end_session(tree, session),
            Locks::PassedOn(passed) => passed.end_session(session),
        }
    }
}

impl KeptLocks {
    fn begin(tree: &dyn Tree, instance: u64, grace_ends: Time) -> io::Result<KeptLocks> {
        let table = FileLocks::begin(instance, tree.noted_locks()?, grace_ends);
        let is_noted = table.note().is_some();
        let locks = KeptLocks { taken: TakenLocks::new(table), noting: Mutex::new(()) };
        locks.note(tree, |_| is_noted);
        Ok(locks)
    }

    /// Makes the note durable, if it changes so.
    fn note(&self, tree: &dyn Tree, changes: impl FnOnce(&mut FileLocks) -> bool) {
        let noting = lock(&self.noting);
        let mut table = self.taken.table();
        if !changes(&mut table) {
            return;
        }
        let note = table.note().cloned();
        drop(table);
        if let Err(error) = tree.note_locks(note.as_ref()) {
            tracing::warn!(%error, "who has which lock may not be known when this server is started again");
        }
        drop(noting);
    }

    /// What nobody holds is not waited for by the next server.
    fn end(&self, tree: &dyn Tree, now: Time) {
        let _noting = lock(&self.noting);
        let table = self.taken.table();
        let is_over = table.note().is_some() && table.is_empty(now);
        drop(table);
        if is_over && let Err(error) = tree.note_locks(None) {
            tracing::warn!(%error, "the next server will wait for clients that hold locks, though none does");
        }
    }

    fn end_session(&self, tree: &dyn Tree, session: u64) {
        self.note(tree, |table| table.ends(session));
        self.taken.end_session(session);
    }
}

impl Session {
    /// Takes a lock of an open file, or gives it back.
    pub(super) fn set_lock(&self, set: &SetLock) -> Result<(), Refusal> {
        let locks = match self.locks()? {
            Locks::Kept(kept) => kept,
            Locks::PassedOn(passed) => return passed.set(self, set),
        };
        let now = self.server.now();
        if set.lock.kind != kinds::NONE && set.again == 0 && !locks.taken.table().is_grace(now) {
            locks.note(&*self.export.tree, FileLocks::gives);
        }
        let file = Arc::clone(&self.file(set.handle)?.file);
        let again = (set.again != 0).then_some((set.again, set.session));
        let asker = Asker { session: self.number(), is_forwarder: self.rights.trusted };
        // A session that has ended has no file, and takes no lock any more.
        let is_open = || self.file(set.handle).is_ok();
        locks.taken.set(now, asker, &*file, &set.lock, again, is_open).map_err(not_taken)
    }

    /// Who has a lock of an open file that is in the way of this one.
    pub(super) fn get_lock(&self, get: &GetLock) -> Result<Lock, Refusal> {
        let locks = match self.locks()? {
            Locks::Kept(kept) => kept,
            Locks::PassedOn(passed) => return passed.get(self, get),
        };
        let file = Arc::clone(&self.file(get.handle)?.file);
        locks.taken.get(self.number(), &*file, &get.lock).map_err(not_taken)
    }

    fn locks(&self) -> Result<&Locks, Refusal> {
        self.export.locks.get().ok_or_else(|| {
            Refusal::new(libc::EOPNOTSUPP, "locks of this export hold among the programs of one client only")
        })
    }
}

fn not_taken(why: NotTaken) -> Refusal {
    match why {
        NotTaken::Denied(denied) => refusal(&denied),
        NotTaken::Failed(error) => explained(&error),
    }
}

pub(super) fn refusal(denied: &Denied) -> Refusal {
    let why = match denied {
        Denied::Held(_) | Denied::Outside => "",
        Denied::Grace => "locks are kept for who had them before the server was started again",
        Denied::Lost => "the lock may have been another's meanwhile",
        Denied::TooMany => "the client has as many locks as it may",
        Denied::Malformed => "there is no such lock",
    };
    Refusal::new(denied.errno(), why)
}
