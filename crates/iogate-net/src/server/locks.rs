//! Locks of files among an export's clients, around what decides: [`iogate_core::file_locks`].
//!
//! They are kept where the files are. Elsewhere they are passed on (`passed_locks.rs`).

use std::io;
use std::sync::Mutex;

use iogate_core::Time;
use iogate_core::file_locks::{Asker, Denied, FileLocks};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{GetLock, Lock, SetLock, lock as kinds, locks as among};
use iogate_vfs::Tree;

use super::lock;
use super::passed_locks::PassedLocks;
use super::session::Session;

/// The locks of an export.
pub(super) enum Locks {
    Kept(KeptLocks),
    PassedOn(PassedLocks),
}

/// Those that are kept here.
pub(super) struct KeptLocks {
    table: Mutex<FileLocks>,
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
            Some(Locks::Kept(_)) => among::KEPT,
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
            Locks::Kept(kept) => lock(&kept.table).has(session),
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
        let locks = KeptLocks { table: Mutex::new(table), noting: Mutex::new(()) };
        locks.note(tree, |_| is_noted);
        Ok(locks)
    }

    /// Makes the note durable, if it changes so.
    fn note(&self, tree: &dyn Tree, changes: impl FnOnce(&mut FileLocks) -> bool) {
        let noting = lock(&self.noting);
        let mut table = lock(&self.table);
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
        let table = lock(&self.table);
        let is_over = table.note().is_some() && table.is_empty(now);
        drop(table);
        if is_over && let Err(error) = tree.note_locks(None) {
            tracing::warn!(%error, "the next server will wait for clients that hold locks, though none does");
        }
    }

    fn end_session(&self, tree: &dyn Tree, session: u64) {
        self.note(tree, |table| table.ends(session));
        lock(&self.table).end_session(session);
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
        if set.lock.kind != kinds::NONE && set.again == 0 && !lock(&locks.table).is_grace(now) {
            locks.note(&*self.export.tree, FileLocks::gives);
        }
        let mut table = lock(&locks.table);
        // With the table's lock: a session that has ended has no file, and takes no lock any more.
        let file = self.file(set.handle)?.file.identity();
        let again = (set.again != 0).then_some((set.again, set.session));
        let asker = Asker { session: self.number(), is_forwarder: self.rights.trusted };
        table.set(now, asker, file, &set.lock, again).map_err(|denied| refusal(&denied))
    }

    /// Who has a lock of an open file that is in the way of this one.
    pub(super) fn get_lock(&self, get: &GetLock) -> Result<Lock, Refusal> {
        let locks = match self.locks()? {
            Locks::Kept(kept) => kept,
            Locks::PassedOn(passed) => return passed.get(self, get),
        };
        let table = lock(&locks.table);
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

pub(super) fn refusal(denied: &Denied) -> Refusal {
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
