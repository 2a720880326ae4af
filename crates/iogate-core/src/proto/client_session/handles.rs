//! The files that a client has open, so that they can be opened again in a new session.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use super::outstanding::Demand;
use crate::refusal::errno;
use crate::wire::{Identity, Open, Opened, Record, open};

/// What a file is opened again with: it is there, and has been created and truncated as it was to be.
const AGAIN: u32 = open::READ | open::WRITE | open::NO_FOLLOW | open::DIRECTORY | open::APPEND;

/// Files by their handles.
#[derive(Debug)]
pub(super) struct Handles<U> {
    by_number: BTreeMap<u32, Handle<U>>,
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
    /// It could not be opened again in a new session.
    is_stale: bool,
}

impl<U> Default for Handles<U> {
    fn default() -> Handles<U> {
        Handles { by_number: BTreeMap::new(), last: 0 }
    }
}

impl<U> Handles<U> {
    /// A number for a file that is to be opened. Numbers come round after 2^32 files; those in use are left out, and 0 is no handle.
    pub(super) fn add(&mut self, path: &[u8], flags: u32, caller: U) -> u32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if let Entry::Vacant(entry) = self.by_number.entry(self.last) {
                entry.insert(Handle { path: path.to_vec(), flags, caller, identity: None, is_stale: false });
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

    /// The paths of files at and below `from` begin with `to` by now; with `exchange`, the other way round, too.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8], exchange: bool) {
        let moved = |path: &[u8], before: &[u8], after: &[u8]| match path.strip_prefix(before) {
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => Some([after, rest].concat()),
            _ => None,
        };
        for handle in self.by_number.values_mut() {
            let back = || if exchange { moved(&handle.path, to, from) } else { None };
            if let Some(path) = moved(&handle.path, from, to).or_else(back) {
                handle.path = path;
            }
        }
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
        if !demand.opens && failed != Some(errno::EBADF) {
            return failed;
        }
        let Some(handle) = self.by_number.get_mut(&demand.handle) else { return failed };
        if !demand.opens {
            return if handle.is_stale { Some(errno::ESTALE) } else { failed };
        }
        match outcome.ok().and_then(|fields| Opened::decode(fields).ok()) {
            Some(opened) => handle.identity = Some(opened.identity),
            None if restores => handle.is_stale = true,
            None => self.remove(demand.handle),
        }
        failed
    }

    /// Has `again` called for each file that a new session is to open again, in the order of their handles. Those without a name
    /// are lost with the session.
    pub(super) fn reopen(&mut self, mut again: impl FnMut(Open<'_>, &U)) {
        for (&number, handle) in &mut self.by_number {
            let Some(identity) = handle.identity else { continue };
            handle.is_stale = handle.flags & open::TEMPORARY != 0;
            if !handle.is_stale {
                let flags = handle.flags & AGAIN | open::AGAIN;
                let open = Open { handle: number, flags, mode: 0, identity, path: &handle.path };
                again(open, &handle.caller);
            }
        }
    }
}
