//! Locks of files, for clients that lock by NLM. They hold among all clients, and among whoever else uses the files: what the clients of
//! this server have together is taken on the file, too ([`OutsideLocks`]).
//!
//! | module | purpose |
//! |---|---|
//! | `calls` | what each call does |
//! | `telling` | who is told that it has a lock, or that the server was started again |
//! | `file` | who has which lock of a file; who waits |
//! | `hosts` | the clients, and their owners of locks |
//! | `kept` | which clients had locks, for a server that is started again |
//!
//! The order of locks here is: a file's, then that of the hosts. A file's is held while its locks are taken outside, as these must follow
//! each other in the order in which they were decided; nothing but other locks of that file waits for it.

mod calls;
mod file;
mod hosts;
mod kept;
mod telling;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use iogate_core::file_locks::ByteRange;
use iogate_core::{Span, Time};
use iogate_engine::lock;
use iogate_vfs::Clock;
use iogate_vfs::held::HeldTree;
use iogate_vfs::outside::OutsideLocks;

use self::file::{FileLocks, Waiting, Wanted};
use self::hosts::{HostName, Hosts, Owner};
use self::kept::Kept;
use super::objects::Object;
use crate::wire::{FileHandle, LockStatus};

/// How long locks are kept for who had them, after a server is started again: time to be told, and to ask.
const GRACE: Span = Span::from_secs(45);
/// How long somebody has to say that it knows that it has the lock it has waited for. A client that was not reached asks again after 30 s.
const UNTOLD: Span = Span::from_secs(40);
/// How often it is tried to tell somebody something.
const AGAIN: Span = Span::from_secs(5);
/// How often it is looked whether a lock can be had that somebody who is no client here has.
const LOOK: Span = Span::from_millis(100);
/// How long a client is kept that has no lock any more.
const KEPT: Span = Span::from_secs(60);

/// Calls of the server's to its clients. They may take some seconds, and fail.
pub trait Callbacks: Send + Sync {
    /// Tells a client that it has a lock, by these arguments; what it says to that.
    ///
    /// # Errors
    /// If it cannot be reached.
    fn granted(&self, client: IpAddr, arguments: &[u8]) -> io::Result<LockStatus>;

    /// Tells a client's machine that this server was started again.
    ///
    /// # Errors
    /// If it cannot be reached.
    fn restarted(&self, client: IpAddr) -> io::Result<()>;

    /// Somebody waits for a lock, or is to be told something: [`Front::look_at_locks`](super::Front::look_at_locks) is called soon.
    fn wants_look(&self);
}

/// A file that has locks.
struct Locked<H> {
    locks: FileLocks,
    /// Held as long as it has locks, so that the file is there to be unlocked.
    object: Arc<Object<H>>,
    outside: Option<OutsideLocks>,
    /// It is in the table no more.
    is_gone: bool,
}

impl<H> Locked<H> {
    /// Takes a lock that no client is in the way of, unless somebody outside is.
    fn take(&mut self, wanted: &Wanted) -> io::Result<bool> {
        let is_free = match &self.outside {
            Some(outside) => outside.set(Some(wanted.kind), wanted.range)?,
            None => true,
        };
        if is_free {
            self.locks.give(wanted);
        }
        Ok(is_free)
    }

    /// Gives back outside what no client has any more.
    fn give_back_outside(&self, gaps: impl IntoIterator<Item = ByteRange>) {
        let Some(outside) = &self.outside else { return };
        for gap in gaps {
            if let Err(error) = outside.set(None, gap) {
                tracing::warn!(%error, inode = self.object.identity.inode, "a lock that was given back is still taken on its file");
            }
        }
    }
}

type Files<H> = HashMap<FileHandle, Arc<Mutex<Locked<H>>>>;

/// The locks of an export.
pub(super) struct Locks<T: HeldTree> {
    clock: Clock,
    hosts: Mutex<Hosts>,
    files: Mutex<Files<T::Held>>,
    kept: Option<Kept>,
    /// The clients that the file has. Held while it is written.
    noted: Mutex<BTreeSet<HostName>>,
    /// Those that had locks of a server before.
    before: BTreeSet<HostName>,
    grace_ends: Time,
    /// Whose machines have not been told yet that the server was started again, and when to try it.
    to_tell: Mutex<Vec<(IpAddr, Time)>>,
}

impl<T: HeldTree> Locks<T> {
    /// None yet; what clients had of a server before is in the folder, if there is one.
    pub(super) fn new(clock: Clock, folder: Option<OwnedFd>) -> Locks<T> {
        let kept = folder.map(Kept::new);
        let before = kept.as_ref().map(Kept::read).unwrap_or_else(|| Ok(BTreeSet::new()));
        let before = before.unwrap_or_else(|error| {
            tracing::warn!(%error, "which clients had locks is not known: they are not told that the server was started again");
            BTreeSet::new()
        });
        let now = clock.now();
        let addresses: BTreeSet<IpAddr> = before.iter().map(|host| host.address).collect();
        Locks {
            grace_ends: if before.is_empty() { now } else { now + GRACE },
            clock,
            hosts: Mutex::default(),
            files: Mutex::default(),
            kept,
            noted: Mutex::new(before.clone()),
            before,
            to_tell: Mutex::new(addresses.into_iter().map(|address| (address, now)).collect()),
        }
    }

    /// The file, if it has locks.
    fn known(&self, handle: &FileHandle) -> Option<Arc<Mutex<Locked<T::Held>>>> {
        lock(&self.files).get(handle).map(Arc::clone)
    }

    /// Does something with the locks of a file in the name of an owner. Those who get locks by it are returned, too.
    fn with<R>(
        &self,
        handle: &FileHandle,
        owner: Owner,
        file: &Mutex<Locked<T::Held>>,
        act: impl FnOnce(&mut Locked<T::Held>) -> R,
    ) -> Option<(R, Vec<Waiting>)> {
        let mut locked = lock(file);
        if locked.is_gone {
            return None;
        }
        let now = self.clock.now();
        let before = locked.locks.count(owner);
        let result = act(&mut locked);
        let after = locked.locks.count(owner);
        lock(&self.hosts).change(now, owner, before, after);
        let given = self.wake(now, &mut locked);
        self.let_go(handle, &mut locked);
        Some((result, given))
    }

    /// Gives locks to those who wait, and can have them. Returns whom to tell.
    fn wake(&self, now: Time, locked: &mut Locked<T::Held>) -> Vec<Waiting> {
        let (mut given, mut skip) = (Vec::new(), 0);
        while let Some(waiting) = locked.locks.ready(skip) {
            let owner = waiting.wanted.owner;
            let before = locked.locks.count(owner);
            match locked.take(&waiting.wanted) {
                Ok(true) => {
                    locked.locks.note_untold(now, waiting.clone());
                    lock(&self.hosts).change(now, owner, before, locked.locks.count(owner));
                    given.push(waiting);
                }
                // Somebody outside has it: who waits behind may want another part.
                Ok(false) => skip += 1,
                Err(error) => {
                    tracing::warn!(%error, "a lock that somebody waits for cannot be taken");
                    skip += 1;
                }
            }
        }
        given
    }

    /// A file that has no locks any more is closed.
    fn let_go(&self, handle: &FileHandle, locked: &mut Locked<T::Held>) {
        if locked.locks.is_empty() {
            locked.is_gone = true;
            lock(&self.files).remove(handle);
        }
    }

    /// Notes durably that a client may have locks.
    fn note(&self, host: &HostName) -> io::Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let mut noted = lock(&self.noted);
        if noted.insert(host.clone())
            && let Err(error) = kept.write(&noted)
        {
            noted.remove(host);
            return Err(error);
        }
        Ok(())
    }

    /// Forgets clients that have had no locks for a while.
    fn forget(&self, now: Time) {
        // Who had locks before may still ask for them.
        if now < self.grace_ends {
            return;
        }
        let mut noted = lock(&self.noted);
        let mut hosts = lock(&self.hosts);
        hosts.forget(Time::from_nanos(now.as_nanos().saturating_sub(KEPT.as_nanos())));
        let left: BTreeSet<HostName> = hosts.all().filter(|host| noted.contains(host)).cloned().collect();
        drop(hosts);
        if left.len() < noted.len()
            && let Some(kept) = &self.kept
        {
            match kept.write(&left) {
                Ok(()) => *noted = left,
                Err(error) => {
                    tracing::warn!(%error, "clients are told of the next start, though they have no locks any more");
                }
            }
        }
    }
}
