//! The files that a client has open, so that they can be opened again in a new session.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use super::locks::Locks;
use super::outstanding::Demand;
use crate::file_locks::From;
use crate::refusal::errno;
use crate::wire::{
    Close, Identity, Lock, Open, Opened, PATH_BYTES_MAX, Record, Request, SetLock, below, open,
};

/// What a file is opened again with: it is there, and has been created and truncated as it was to be. One without a name is found by its
/// identity.
const AGAIN: u32 = open::READ | open::WRITE | open::NO_FOLLOW | open::DIRECTORY | open::APPEND;

/// Files by their handles.
#[derive(Debug)]
pub(super) struct Handles<U> {
    by_number: BTreeMap<u32, Handle<U>>,
    /// Both paths of each rename of which nobody knows yet what became of it.
    renames: Vec<[Vec<u8>; 2]>,
    locks: Locks,
    last: u32,
}

#[derive(Debug)]
struct Handle<U> {
    /// After renames by this client.
    path: Vec<u8>,
    flags: u32,
    /// In whose name it is opened.
    caller: U,
    /// Known once it is open.
    identity: Option<Identity>,
    /// What its objects are named by; zeros if it has none.
    object: [u8; 16],
    standing: Standing,
    /// A lock of it is lost: whoever has it open is not to go on as if he had that still, in this session or another one.
    is_lost: bool,
}

/// Whether a handle is of use in this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Fresh,
    /// It is being opened again.
    Reopening {
        /// The file has got another path since.
        has_moved: bool,
    },
    /// It is to be opened again once it is known whether it has been renamed.
    Held,
    /// It could not be opened again, or its path has become too long to be sent.
    Stale,
    /// It was opened again, and its objects are others: what led to those that its user knows is lost. It is to be closed.
    Replaced,
}

impl<U> Default for Handles<U> {
    fn default() -> Handles<U> {
        Handles { by_number: BTreeMap::new(), renames: Vec::new(), locks: Locks::default(), last: 0 }
    }
}

impl<U> Handles<U> {
    /// A number for a file that is to be opened. Numbers come round after 2^32 files; those in use are left out, and 0 is no handle.
    pub(super) fn add(&mut self, path: &[u8], flags: u32, caller: U) -> u32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if let Entry::Vacant(entry) = self.by_number.entry(self.last) {
                entry.insert(Handle {
                    path: path.to_vec(),
                    flags,
                    caller,
                    identity: None,
                    object: [0; 16],
                    standing: Standing::Fresh,
                    is_lost: false,
                });
                return self.last;
            }
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.by_number.remove(&number);
    }

    pub(super) fn path(&self, number: u32) -> Option<&[u8]> {
        self.by_number.get(&number).map(|handle| &handle.path[..])
    }

    /// The paths of files at and below `from` begin with `to` by now; with `exchange`, the other way round, too. Returns the handles that
    /// are to be opened again: those of files that could not be found before.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8], exchange: bool) -> Vec<u32> {
        let moved = |path: &[u8], before: &[u8], after: &[u8]| Some([after, below(path, before)?].concat());
        let mut found = Vec::new();
        for (&number, handle) in &mut self.by_number {
            let back = || if exchange { moved(&handle.path, to, from) } else { None };
            let Some(path) = moved(&handle.path, from, to).or_else(back) else { continue };
            handle.path = path;
            match &mut handle.standing {
                Standing::Fresh | Standing::Held => {}
                Standing::Reopening { has_moved } => *has_moved = true,
                Standing::Stale | Standing::Replaced => found.push(number),
            }
        }
        found
    }

    /// Something is about to be renamed.
    pub(super) fn rename_begins(&mut self, from: &[u8], to: &[u8]) {
        self.renames.push([from.to_vec(), to.to_vec()]);
    }

    /// What became of a rename is known, and noted. Returns the handles that were held for it.
    pub(super) fn rename_ended(&mut self, from: &[u8], to: &[u8]) -> Vec<u32> {
        if let Some(index) = self.renames.iter().position(|paths| *paths == [from, to]) {
            self.renames.swap_remove(index);
        }
        let is_free = |handle: &Handle<U>| handle.standing == Standing::Held && !handle.is_in(&self.renames);
        self.by_number.iter().filter(|(_, handle)| is_free(handle)).map(|(&number, _)| number).collect()
    }

    /// In a copy of the process: nobody waits for what became of any rename, and the locks are the original's.
    pub(super) fn forked(&mut self) {
        self.renames.clear();
        self.locks = Locks::default();
    }

    /// Whether what uses a file has to wait for what became of a rename.
    pub(super) fn is_held(&self, number: u32) -> bool {
        let is_held = |handle: &Handle<U>| handle.standing == Standing::Held;
        !self.renames.is_empty() && self.by_number.get(&number).is_some_and(is_held)
    }

    /// Takes note of what became of a request: the fields of its answer, or an errno. `restores`: it opened a file again. Returns the
    /// errno that the request fails with.
    pub(super) fn settle(
        &mut self,
        demand: &Demand,
        restores: bool,
        outcome: Result<&[u8], i32>,
    ) -> Option<i32> {
        let failed = outcome.err();
        if demand.lock != 0 {
            let file = self.by_number.get(&demand.handle).and_then(|handle| handle.identity);
            self.locks.settle(demand.lock, file, failed.is_none());
        }
        if !demand.opens && failed != Some(errno::EBADF) {
            return failed;
        }
        let Some(handle) = self.by_number.get_mut(&demand.handle) else { return failed };
        if !demand.opens {
            return if handle.standing == Standing::Fresh { failed } else { Some(errno::ESTALE) };
        }
        match outcome.ok().and_then(|fields| Opened::decode(fields).ok()) {
            Some(_) if handle.is_lost => handle.standing = Standing::Replaced,
            Some(opened) if restores && handle.object != opened.attr.object && handle.object != [0; 16] => {
                handle.standing = Standing::Replaced;
            }
            Some(opened) => {
                (handle.identity, handle.object) = (Some(opened.identity), opened.attr.object);
                handle.standing = Standing::Fresh;
            }
            None if !restores => self.remove(demand.handle),
            None if handle.standing == (Standing::Reopening { has_moved: true }) => {}
            None => handle.standing = Standing::Stale,
        }
        failed
    }

    /// A lock is about to be asked for, or given back; returns its number until that is answered.
    pub(super) fn lock_begins(&mut self, number: u32, lock: &Lock) -> u32 {
        let file = self.by_number.get(&number).and_then(|handle| handle.identity);
        self.locks.begin(file, lock)
    }

    /// Calls `again` with what asks for the locks of a file that was opened again, if it was; they are `from` that process of the server,
    /// and that session.
    pub(super) fn lock_again(&mut self, number: u32, from: From, mut again: impl FnMut(Request<'_>, &U)) {
        let Some(handle) = self.by_number.get(&number).filter(|handle| handle.standing == Standing::Fresh)
        else {
            return;
        };
        for lock in handle.identity.map_or_else(Vec::new, |identity| self.locks.again(identity)) {
            again(
                Request::SetLock(SetLock { handle: number, again: from.0, session: from.1, lock }),
                &handle.caller,
            );
        }
    }

    /// One of the locks of a file was not given again: it may have been another's. Calls `again` with what gives back the others, which
    /// are `from` that process and session. Returns the handles of the file that are to be closed.
    pub(super) fn locks_lost(
        &mut self,
        number: u32,
        from: From,
        mut again: impl FnMut(Request<'_>, &U),
    ) -> Vec<u32> {
        let handle = self.by_number.get(&number);
        let Some((handle, identity)) = handle.and_then(|handle| Some((handle, handle.identity?))) else {
            return Vec::new();
        };
        for lock in self.locks.lose(identity) {
            again(
                Request::SetLock(SetLock { handle: number, again: from.0, session: from.1, lock }),
                &handle.caller,
            );
        }
        let mut open = Vec::new();
        for (&number, handle) in
            self.by_number.iter_mut().filter(|(_, handle)| handle.identity == Some(identity))
        {
            handle.is_lost = true;
            if handle.standing == Standing::Fresh {
                handle.standing = Standing::Replaced;
                open.push(number);
            }
        }
        open
    }

    /// Whether a file could not be opened again where it was, and is elsewhere by now.
    pub(super) fn is_elsewhere(&self, number: u32) -> bool {
        let handle = self.by_number.get(&number);
        handle.is_some_and(|handle| handle.standing == Standing::Reopening { has_moved: true })
    }

    /// Calls `close` with what closes a file that was opened again as another one: nobody is to use it.
    pub(super) fn close_replaced(&mut self, number: u32, close: impl FnOnce(Request<'_>, &U)) {
        let handle = self.by_number.get_mut(&number);
        if let Some(handle) = handle.filter(|handle| handle.standing == Standing::Replaced) {
            handle.standing = Standing::Stale;
            close(Request::Close(Close { handle: number }), &handle.caller);
        }
    }

    /// Calls `again` with what opens each file that is open in a new session, in the order of their handles; but for those that are
    /// being renamed.
    pub(super) fn reopen_all(&mut self, mut again: impl FnMut(Request<'_>, &U)) {
        self.locks.begin_session();
        for (&number, handle) in &mut self.by_number {
            if handle.identity.is_some() && handle.is_in(&self.renames) {
                handle.standing = Standing::Held;
            } else {
                handle.reopen(number, &mut again);
            }
        }
    }

    /// Calls `again` with what opens one file.
    pub(super) fn reopen(&mut self, number: u32, again: impl FnOnce(Request<'_>, &U)) {
        if let Some(handle) = self.by_number.get_mut(&number) {
            handle.reopen(number, again);
        }
    }
}

impl<U> Handle<U> {
    /// Whether one of these renames would change its path.
    fn is_in(&self, renames: &[[Vec<u8>; 2]]) -> bool {
        renames.iter().flatten().any(|top| below(&self.path, top).is_some())
    }

    fn reopen(&mut self, number: u32, again: impl FnOnce(Request<'_>, &U)) {
        let Some(identity) = self.identity else { return };
        if self.is_lost {
            self.standing = Standing::Stale;
            return;
        }
        if self.path.len() > PATH_BYTES_MAX {
            // By renames of what is above it. A server cuts off who asks for it, and with it everything else of this client.
            self.standing = Standing::Stale;
            return;
        }
        self.standing = Standing::Reopening { has_moved: false };
        let flags = self.flags & AGAIN | open::AGAIN;
        let open = Open { handle: number, flags, mode: 0, identity, path: &self.path };
        again(Request::Open(open), &self.caller);
    }
}
