//! The calls of NLM: what each does to the locks of a file.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use iogate_core::file_locks::{ByteRange, Kind};
use iogate_core::hash::IdHasher;
use iogate_engine::lock;
use iogate_vfs::held::HeldTree;
use iogate_vfs::outside::OutsideLocks;
use rustix::fs::Access;

use super::super::{Named, Service};
use super::Locked;
use super::file::{FileLocks, Waiting, Wanted};
use super::hosts::{CallKey, HostName, Owner, OwnerName};
use crate::rpc::Call;
use crate::wire::{
    FileHandle, FileLock, Holder, Kind as FileKind, LockReply, LockRequest, LockStatus, Opaque, Share, Status,
};

/// Which bytes a client means.
fn range(offset: u64, length: u64) -> Result<ByteRange, LockStatus> {
    let last = match length {
        0 => u64::MAX,
        length => offset.checked_add(length - 1).ok_or(LockStatus::FBig)?,
    };
    if offset > i64::MAX as u64 {
        return Err(LockStatus::FBig);
    }
    // No file is longer: a client that says so means its end.
    let last = if last >= i64::MAX as u64 { u64::MAX } else { last };
    ByteRange::new(offset, last).ok_or(LockStatus::FBig)
}

fn kind(exclusive: bool) -> Kind {
    if exclusive { Kind::Exclusive } else { Kind::Shared }
}

/// What a range is called in an answer.
fn bytes(range: ByteRange) -> (u64, u64) {
    let length = match range.last() {
        u64::MAX => 0,
        last => last - range.first() + 1,
    };
    (range.first(), length)
}

/// What somebody wants to know of a file that it cannot have locks of.
fn status(status: Status) -> LockStatus {
    match status {
        Status::Stale | Status::BadHandle | Status::NoEnt => LockStatus::Stale,
        Status::RoFs => LockStatus::RoFs,
        Status::Jukebox | Status::NoSpc => LockStatus::NoLocks,
        _ => LockStatus::Failed,
    }
}

fn of_error(error: &io::Error) -> LockStatus {
    tracing::debug!(%error, "a lock cannot be taken on its file");
    match error.raw_os_error() {
        Some(libc::ENOLCK | libc::EMFILE | libc::ENFILE | libc::ENOMEM) => LockStatus::NoLocks,
        Some(libc::EOVERFLOW | libc::EINVAL) => LockStatus::FBig,
        Some(libc::ESTALE) => LockStatus::Stale,
        _ => LockStatus::Failed,
    }
}

impl<T: HeldTree> Service<T> {
    /// Carries out a call of NLM, and appends its results. Those who get a lock by it are told in other threads.
    pub(in crate::service) fn lock_call(
        self: &Arc<Self>,
        client: IpAddr,
        call: &Call,
        record: &[u8],
        request: &LockRequest<'_>,
        out: &mut Vec<u8>,
    ) {
        let done = |cookie, status| LockReply::Done { cookie, status };
        match *request {
            // A client's, and of all exports: whoever answers for these looks after that.
            LockRequest::Null | LockRequest::Granted { .. } | LockRequest::FreeAll { .. } => {}
            LockRequest::Test { cookie, exclusive, lock } => {
                let found = self.test_lock(client, call, &lock, kind(exclusive));
                let reply = match &found {
                    Ok(None) => LockReply::Tested { cookie, result: Ok(()) },
                    Ok(Some((name, kind, range))) => {
                        let (offset, length) = bytes(*range);
                        let (process, owner) =
                            name.as_ref().map_or((0, &[][..]), |name| (name.process, &name.owner));
                        let exclusive = *kind == Kind::Exclusive;
                        let holder = Holder { exclusive, process, owner: Opaque(owner), offset, length };
                        LockReply::Tested { cookie, result: Err(holder) }
                    }
                    Err(status) => done(cookie, *status),
                };
                reply.put(out);
            }
            LockRequest::Lock { cookie, lock, .. } => {
                let status =
                    self.once(client, call, record, &lock, || self.take_lock(client, call, request, &lock));
                done(cookie, status).put(out);
            }
            LockRequest::Cancel { cookie, exclusive, lock, .. } => {
                let cancel = |locked: &mut Locked<T::Held>, owner, range| {
                    // What it was given and does not know it does not want.
                    if locked.locks.cancel(&Wanted { owner, kind: kind(exclusive), range }) {
                        let gaps = locked.locks.give_back(owner, range);
                        locked.give_back_outside(gaps);
                    }
                };
                let status = self.once(client, call, record, &lock, || self.give_up(client, &lock, cancel));
                done(cookie, status).put(out);
            }
            LockRequest::Unlock { cookie, lock } => {
                let unlock = |locked: &mut Locked<T::Held>, owner, range| {
                    let gaps = locked.locks.give_back(owner, range);
                    locked.give_back_outside(gaps);
                };
                let status = self.once(client, call, record, &lock, || self.give_up(client, &lock, unlock));
                done(cookie, status).put(out);
            }
            LockRequest::Share { cookie, share, reclaim } => {
                let status = self.share(client, call, &share, reclaim);
                LockReply::Shared { cookie, status }.put(out);
            }
            LockRequest::Unshare { cookie, share, .. } => {
                let unshare = |locked: &mut Locked<T::Held>, owner, _| locked.locks.unshare(owner);
                let status = self.give_up(client, &all_of(&share), unshare);
                LockReply::Shared { cookie, status }.put(out);
            }
        }
    }

    /// Carries a call out unless it has been: its answer is given again. A late copy of a call would undo what its client did since.
    fn once(
        &self,
        client: IpAddr,
        call: &Call,
        record: &[u8],
        lock_: &FileLock<'_>,
        carry_out: impl FnOnce() -> LockStatus,
    ) -> LockStatus {
        let host = host_of(client, lock_.host);
        let mut hasher = IdHasher::default();
        hasher.write(record);
        let key = CallKey { xid: call.xid, procedure: call.procedure, sum: hasher.finish() };
        if let Some(status) = lock(&self.locks.hosts).answered(&host, key) {
            return status;
        }
        let status = carry_out();
        lock(&self.locks.hosts).answer(&host, key, status);
        status
    }

    /// Who is in the way of a lock, if somebody is.
    fn test_lock(
        &self,
        client: IpAddr,
        call: &Call,
        lock_: &FileLock<'_>,
        kind: Kind,
    ) -> Result<Option<(Option<OwnerName>, Kind, ByteRange)>, LockStatus> {
        let range = range(lock_.offset, lock_.length)?;
        if self.locks.clock.now() < self.locks.grace_ends {
            return Err(LockStatus::Grace);
        }
        let named = self.lockable(call, &lock_.file)?;
        let name = owner_of(client, lock_);
        let owner = lock(&self.locks.hosts).begin(&name);
        let found = match self.locks.known(&lock_.file) {
            Some(file) => {
                let locked = lock(&file);
                let held = locked.locks.in_the_way(&Wanted { owner, kind, range });
                let outside = || match &locked.outside {
                    Some(outside) => outside.in_the_way(kind, range),
                    None => Ok(None),
                };
                match held {
                    Some(held) => {
                        let name = lock(&self.locks.hosts).name(held.owner).cloned();
                        Ok(Some((name, held.kind, held.range)))
                    }
                    None => outside().map(|found| found.map(|(kind, range)| (None, kind, range))),
                }
            }
            None => self.outside(&named).and_then(|outside| match outside {
                Some(outside) => {
                    Ok(outside.in_the_way(kind, range)?.map(|(kind, range)| (None, kind, range)))
                }
                None => Ok(None),
            }),
        };
        lock(&self.locks.hosts).end(owner);
        found.map_err(|error| of_error(&error))
    }

    fn outside(&self, named: &Named<T::Held>) -> io::Result<Option<OutsideLocks>> {
        self.export.tree.outside_locks(&named.object.held)
    }

    /// A file that the caller may have locks of: who may read or write it, and its owner.
    fn lockable(&self, call: &Call, handle: &FileHandle) -> Result<Named<T::Held>, LockStatus> {
        let named = self.named(handle).map_err(status)?;
        if named.attr.kind != FileKind::Regular {
            return Err(LockStatus::Failed);
        }
        let caller = self.caller(call);
        let asked = Access::READ_OK | Access::WRITE_OK;
        let may = caller.uid == named.known.attr.uid
            || self.export.tree.permitted(caller, &named.object.held, asked).is_ok_and(|may| !may.is_empty());
        if may { Ok(named) } else { Err(LockStatus::Failed) }
    }

    /// The locks of a file, which may have none yet.
    fn locked(&self, named: &Named<T::Held>, handle: &FileHandle) -> io::Result<Arc<Mutex<Locked<T::Held>>>> {
        if let Some(file) = self.locks.known(handle) {
            return Ok(file);
        }
        let outside = self.outside(named)?;
        let object = Arc::clone(&named.object);
        let new = Locked { locks: FileLocks::default(), object, outside, is_gone: false };
        let mut files = lock(&self.locks.files);
        Ok(Arc::clone(files.entry(*handle).or_insert_with(|| Arc::new(Mutex::new(new)))))
    }

    /// Whether the client may have a lock now, which is the first thing to be known.
    fn admit(self: &Arc<Self>, host: &HostName, reclaim: bool, state: u32) -> Result<(), LockStatus> {
        let (locks, now) = (&self.locks, self.locks.clock.now());
        let is_grace = now < locks.grace_ends;
        if reclaim != is_grace {
            return Err(LockStatus::Grace);
        }
        if reclaim && !locks.before.contains(host) {
            return Err(LockStatus::Denied);
        }
        if lock(&locks.hosts).has_restarted(host, state) {
            self.free(host);
        }
        if !lock(&locks.hosts).admit(now, host, state) {
            return Err(LockStatus::NoLocks);
        }
        locks.note(host).map_err(|error| {
            tracing::warn!(%error, client = %host.address, "a client gets no locks, as it could not be told of the next start of this server");
            LockStatus::NoLocks
        })
    }

    fn take_lock(
        self: &Arc<Self>,
        client: IpAddr,
        call: &Call,
        request: &LockRequest<'_>,
        lock_: &FileLock<'_>,
    ) -> LockStatus {
        let LockRequest::Lock { cookie, block, exclusive, reclaim, state, .. } = *request else {
            return LockStatus::Failed;
        };
        let take = || -> Result<LockStatus, LockStatus> {
            let (range, kind) = (range(lock_.offset, lock_.length)?, kind(exclusive));
            self.admit(&host_of(client, lock_.host), reclaim, state)?;
            let named = self.lockable(call, &lock_.file)?;
            if exclusive && self.export.read_only {
                return Err(LockStatus::RoFs);
            }
            let act = |locked: &mut Locked<T::Held>, owner| -> Result<LockStatus, LockStatus> {
                let wanted = Wanted { owner, kind, range };
                if locked.locks.told(&wanted) {
                    return Ok(LockStatus::Granted);
                }
                let is_free = locked.locks.in_the_way(&wanted).is_none();
                if is_free && locked.take(&wanted).map_err(|error| of_error(&error))? {
                    return Ok(LockStatus::Granted);
                }
                if !block {
                    return Ok(LockStatus::Denied);
                }
                let mut call = Vec::new();
                LockRequest::Granted { cookie, exclusive, lock: *lock_ }.put(&mut call);
                locked.locks.wait(Waiting { wanted, call });
                Ok(LockStatus::Blocked)
            };
            let done = self.take_of(client, &named, lock_, act)?;
            if done == Ok(LockStatus::Blocked)
                && let Some(callbacks) = self.callbacks.get()
            {
                callbacks.wants_look();
            }
            done
        };
        take().unwrap_or_else(|status| status)
    }

    /// Takes something of a file, which may have no locks yet, in the name of an owner.
    fn take_of<R>(
        self: &Arc<Self>,
        client: IpAddr,
        named: &Named<T::Held>,
        lock_: &FileLock<'_>,
        act: impl Fn(&mut Locked<T::Held>, Owner) -> R,
    ) -> Result<R, LockStatus> {
        let owner = lock(&self.locks.hosts).begin(&owner_of(client, lock_));
        let done = loop {
            let file = match self.locked(named, &lock_.file) {
                Ok(file) => file,
                Err(error) => break Err(of_error(&error)),
            };
            // Its last lock may have been given back just now: then it is to be opened again.
            if let Some(done) = self.with(&lock_.file, owner, &file, |locked| act(locked, owner)) {
                break Ok(done);
            }
        };
        lock(&self.locks.hosts).end(owner);
        done
    }

    /// Does something with the locks of a file in the name of an owner, and has those told who get locks by it. `None`: the file has none
    /// any more.
    pub(super) fn with<R>(
        self: &Arc<Self>,
        handle: &FileHandle,
        owner: Owner,
        file: &Mutex<Locked<T::Held>>,
        act: impl FnOnce(&mut Locked<T::Held>) -> R,
    ) -> Option<R> {
        let (done, given) = self.locks.with(handle, owner, file, act)?;
        self.tell(handle, given);
        Some(done)
    }

    /// Gives back something, if there is anything: that is always granted.
    fn give_up(
        self: &Arc<Self>,
        client: IpAddr,
        lock_: &FileLock<'_>,
        act: impl Fn(&mut Locked<T::Held>, Owner, ByteRange),
    ) -> LockStatus {
        let range = match range(lock_.offset, lock_.length) {
            Ok(range) => range,
            Err(status) => return status,
        };
        let Some(file) = self.locks.known(&lock_.file) else { return LockStatus::Granted };
        let owner = lock(&self.locks.hosts).begin(&owner_of(client, lock_));
        self.with(&lock_.file, owner, &file, |locked| act(locked, owner, range));
        lock(&self.locks.hosts).end(owner);
        LockStatus::Granted
    }

    fn share(self: &Arc<Self>, client: IpAddr, call: &Call, share: &Share<'_>, reclaim: bool) -> LockStatus {
        let take = || -> Result<LockStatus, LockStatus> {
            self.admit(&host_of(client, share.host), reclaim, 0)?;
            let named = self.lockable(call, &share.file)?;
            let act =
                |locked: &mut Locked<T::Held>, owner| locked.locks.share(owner, share.denies, share.does);
            let is_free = self.take_of(client, &named, &all_of(share), act)?;
            Ok(if is_free { LockStatus::Granted } else { LockStatus::Denied })
        };
        take().unwrap_or_else(|status| status)
    }

    /// A client's machine was started again: what it had is free.
    pub(in crate::service) fn machine_restarted(self: &Arc<Self>, client: IpAddr, name: &[u8]) {
        let meant = lock(&self.locks.hosts).meant(client, name);
        if let Some(host) = meant {
            tracing::info!(client = %host.address, "a client was started again: its locks are free");
            self.free(&host);
        }
    }

    /// A client has no locks any more.
    pub(in crate::service) fn free_all(self: &Arc<Self>, client: IpAddr, name: Opaque<'_>) {
        self.free(&host_of(client, name));
    }

    /// Takes all that a client has.
    fn free(self: &Arc<Self>, host: &HostName) {
        let owners = lock(&self.locks.hosts).owners_of(host);
        let files: Vec<_> =
            lock(&self.locks.files).iter().map(|(at, file)| (*at, Arc::clone(file))).collect();
        for (handle, file) in files {
            let has: BTreeSet<Owner> =
                lock(&file).locks.owners().filter(|owner| owners.contains(owner)).collect();
            for owner in has {
                let release = |locked: &mut Locked<T::Held>| {
                    let gaps = locked.locks.release(owner);
                    locked.give_back_outside(gaps);
                };
                self.with(&handle, owner, &file, release);
            }
        }
    }
}

/// What a share is of, as a lock: all of a file, for no process.
fn all_of<'a>(share: &Share<'a>) -> FileLock<'a> {
    let Share { host, file, owner, .. } = *share;
    FileLock { host, file, owner, process: 0, offset: 0, length: 0 }
}

fn host_of(client: IpAddr, name: Opaque<'_>) -> HostName {
    HostName { address: client, name: name.0.to_vec() }
}

fn owner_of(client: IpAddr, lock_: &FileLock<'_>) -> OwnerName {
    let host = host_of(client, lock_.host);
    OwnerName { host, process: lock_.process, owner: lock_.owner.0.to_vec() }
}
