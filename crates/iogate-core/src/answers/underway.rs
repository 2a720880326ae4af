//! Requests that are being carried out, with the names that each changes: one at a time has a name, and what is above and below it.
//!
//! What a name led to is looked up before a request's intent is noted. That tells after a kill what became of the request only if no
//! other changed the name, or a directory above it, in between. So the name is its own from before the look-up until its outcome is noted.
//!
//! Names are given in the order in which requests came, so that nobody waits for ever: neither a rename of a directory in which files are
//! always being made, nor one of a thousand that make the same file. Who has waited has its names when it goes on.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Key;
use crate::wire::below;

/// Requests that are being carried out, and that wait for names. `J` is what goes on when one is done.
#[derive(Debug)]
pub(super) struct Underway<J> {
    /// Those that have their names.
    requests: BTreeMap<Key, One<J>>,
    /// Those that wait for names, by their place in the order.
    queued: BTreeMap<u64, Queued<J>>,
    /// The places of all those that want a name, whether they have it or not.
    names: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    /// The place of the next one.
    next: u64,
}

#[derive(Debug)]
struct One<J> {
    place: u64,
    names: Vec<Box<[u8]>>,
    /// It has waited for its names, and not begun yet.
    is_promised: bool,
    waiting: Vec<J>,
}

#[derive(Debug)]
struct Queued<J> {
    key: Key,
    names: Vec<Box<[u8]>>,
    then: J,
}

impl<J> Underway<J> {
    pub(super) fn new() -> Underway<J> {
        Underway { requests: BTreeMap::new(), queued: BTreeMap::new(), names: BTreeMap::new(), next: 0 }
    }

    /// Whether a request is being carried out.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.requests.get(key).is_some_and(|one| !one.is_promised)
    }

    /// Begins a request that nobody carries out; `false` if another has, or is to have, one of the names, or if it has waited for others.
    pub(super) fn begin(&mut self, key: Key, names: &[Cow<'_, [u8]>]) -> bool {
        if let Some(one) = self.requests.get_mut(&key) {
            let are_its = one.names.iter().map(|name| &**name).eq(names.iter().map(|name| &**name));
            one.is_promised &= !are_its;
            return are_its;
        }
        if self.are_wanted(names) {
            return false;
        }
        let (place, names) = self.enter(names);
        self.requests.insert(key, One { place, names, is_promised: false, waiting: Vec::new() });
        true
    }

    /// Has `then` go on when the request is done that is being carried out, or when one that waits can have its names. Returns it if
    /// neither is so.
    pub(super) fn wait(&mut self, key: &Key, names: &[Cow<'_, [u8]>], then: J) -> Option<J> {
        if let Some(one) = self.requests.get_mut(key) {
            one.waiting.push(then);
            return None;
        }
        if !self.are_wanted(names) {
            return Some(then);
        }
        let (place, names) = self.enter(names);
        self.queued.insert(place, Queued { key: *key, names, then });
        None
    }

    /// A request is no longer being carried out. Returns what goes on now: all that wait for it, and who can have its names.
    pub(super) fn end(&mut self, key: &Key) -> Vec<J> {
        let Some(One { place, names, waiting: mut woken, .. }) = self.requests.remove(key) else {
            return Vec::new();
        };
        let mut left = Vec::from([(place, names)]);
        while let Some((place, names)) = left.pop() {
            self.leave(place, &names);
            for place in self.firsts(&names) {
                let Some(Queued { key, names, then }) = self.queued.remove(&place) else { continue };
                woken.push(then);
                match self.requests.entry(key) {
                    Entry::Vacant(entry) => {
                        entry.insert(One { place, names, is_promised: true, waiting: Vec::new() });
                    }
                    // It came twice, with other names of the same file.
                    Entry::Occupied(_) => left.push((place, names)),
                }
            }
        }
        woken
    }

    /// As [`Underway::end`], of one that has waited for its names and has not begun.
    pub(super) fn give_up(&mut self, key: &Key) -> Vec<J> {
        let is_promised = self.requests.get(key).is_some_and(|one| one.is_promised);
        if is_promised { self.end(key) } else { Vec::new() }
    }

    /// Gives a request a place in the order.
    fn enter(&mut self, names: &[Cow<'_, [u8]>]) -> (u64, Vec<Box<[u8]>>) {
        let place = self.next;
        self.next += 1;
        let names: Vec<Box<[u8]>> = names.iter().map(|name| (**name).into()).collect();
        for name in &names {
            self.names.entry(name.clone()).or_default().insert(place);
        }
        (place, names)
    }

    fn leave(&mut self, place: u64, names: &[Box<[u8]>]) {
        for name in names {
            if let Some(places) = self.names.get_mut(name) {
                places.remove(&place);
                if places.is_empty() {
                    self.names.remove(name);
                }
            }
        }
    }

    /// Who waits for one of these names, or what is above or below it, and can have all of its own.
    fn firsts(&self, names: &[Box<[u8]>]) -> BTreeSet<u64> {
        let wanted = names.iter().flat_map(|name| self.related(name));
        let firsts = wanted.filter_map(|places| places.first().copied());
        firsts
            .filter(|place| self.queued.get(place).is_some_and(|one| self.is_first(*place, &one.names)))
            .collect()
    }

    /// Whether somebody wants one of these names, or what is above or below it.
    fn are_wanted(&self, names: &[Cow<'_, [u8]>]) -> bool {
        names.iter().any(|name| self.related(name).next().is_some())
    }

    /// Whether nobody who came before wants one of the names.
    fn is_first(&self, place: u64, names: &[Box<[u8]>]) -> bool {
        let mut wanted = names.iter().flat_map(|name| self.related(name));
        wanted.all(|places| places.first().is_none_or(|first| *first >= place))
    }

    /// Who wants this name, and each that is above or below it.
    fn related<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a BTreeSet<u64>> {
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let above = ends.chain([name.len()]).filter_map(|end| self.names.get(&name[..end]));
        let first: Box<[u8]> = [name, b"/"].concat().into();
        let those_below =
            self.names.range(first..).take_while(move |(other, _)| below(other, name).is_some());
        above.chain(those_below.map(|(_, places)| places))
    }
}
