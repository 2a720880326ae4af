//! Locks of files that are at other servers: they are passed on there, so that they hold among the clients of all forwarders.
//!
//! Who has which, and what is to be given back when a session ends, is decided by [`iogate_core::file_locks::Passed`]. A process of this
//! server knows nothing of the locks of one before: it had them in a session of its own with the other server, and that ends. A client that
//! asks for one again is told that it is lost.

use std::io;
use std::sync::{Arc, Mutex};

use iogate_core::file_locks::{Denied, Outcome, Passed};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{GetLock, Lock, SetLock, lock as kinds};
use iogate_vfs::{Tree, TreeFile};

use super::lock;
use super::locks::refusal;
use super::session::{Session, explained};

/// The locks of an export's clients, passed on through these files. The lock is held for a decision, never while anybody is asked.
#[derive(Default)]
pub(super) struct PassedLocks(Mutex<Passed<Arc<dyn TreeFile>>>);

impl PassedLocks {
    /// The server ends. What is held stays so for a while, as the clients only learn by and by that it is lost.
    pub(super) fn end(&self, tree: &dyn Tree) {
        if !lock(&self.0).is_empty() {
            tree.leave_locks();
        }
    }

    /// Whether a session may have any.
    pub(super) fn has(&self, session: u64) -> bool {
        lock(&self.0).has(session)
    }

    /// A session is over: what it has is given back. Waits for the server that has it.
    pub(super) fn end_session(&self, session: u64) {
        let all = lock(&self.0).end_session(session);
        give_back(all);
    }

    /// Takes a lock of an open file for a session, or gives it back.
    pub(super) fn set(&self, session: &Session, set: &SetLock) -> Result<(), Refusal> {
        if set.again != 0 && set.lock.kind != kinds::NONE {
            return Err(refusal(&Denied::Lost));
        }
        let mut passed = lock(&self.0);
        // With the table's lock: a session that has ended has no file, and takes no lock any more.
        let file = Arc::clone(&session.file(set.handle)?.file);
        let begun = passed.begin(session.number(), file.identity(), &set.lock, &file);
        drop(passed);
        let Some(wish) = begun.map_err(|denied| refusal(&denied))? else { return Ok(()) };
        let answer = file.set_lock(&wish);
        let over = lock(&self.0).settle(&wish, &file, outcome(&wish, &answer));
        give_back(over);
        answer.map_err(|error| explained(&error))
    }

    /// Who has a lock of an open file that is in the way of this one of a session.
    pub(super) fn get(&self, session: &Session, get: &GetLock) -> Result<Lock, Refusal> {
        let file = Arc::clone(&session.file(get.handle)?.file);
        let number = lock(&self.0).number(session.number(), file.identity(), get.lock.owner);
        let wish = Lock { owner: number, ..get.lock };
        let found = file.get_lock(&wish).map_err(|error| explained(&error))?;
        // Only of this server's own session a process is said: another one's number may be the same.
        let own = (found.process != 0).then(|| lock(&self.0).owner(found.owner)).flatten();
        Ok(match own {
            _ if found.kind == kinds::NONE => Lock { kind: kinds::NONE, ..get.lock },
            Some((of, owner)) if of == session.number() => Lock { owner, ..found },
            // Numbers of another machine's processes say nothing.
            _ => Lock { owner: 0, process: 0, ..found },
        })
    }
}

/// What became of a lock that was asked for, or given back.
fn outcome(wish: &Lock, answer: &io::Result<()>) -> Outcome {
    match answer.as_ref().map_err(io::Error::raw_os_error) {
        Ok(()) => Outcome::Done,
        // It may be had through another open file, which was opened after this one was lost.
        Err(_) if wish.kind == kinds::NONE => Outcome::Unknown,
        Err(Some(libc::EAGAIN | libc::EBUSY | libc::ESTALE | libc::ENOLCK | libc::EINVAL)) => {
            Outcome::Refused
        }
        Err(_) => Outcome::Unknown,
    }
}

fn give_back(all: Vec<(Arc<dyn TreeFile>, Lock)>) {
    for (file, none) in all {
        // Where it fails, the session with the other server is over, or the file is lost there: so is the lock.
        if let Err(error) = file.set_lock(&none) {
            tracing::warn!(%error, "a lock of a client that has gone was not given back: the server that has it frees it");
        }
    }
}
