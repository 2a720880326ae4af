//! Requests that are being carried out, with the names that each changes: one at a time has a name.
//!
//! What a name led to is looked up before a request's intent is noted. That tells after a kill what became of the request only if no
//! other changed the name in between. So the name is its own from before the look-up until its outcome is noted.
//!
//! A rename of a directory changes all names below it, too. Nothing else does: a directory that is made was not there, and one that is
//! removed is empty, so that what was underway in it has failed, or tells that by itself.
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

/// A name that a request changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The path, whose parts end with `/`; or any bytes that mean the same to all.
    pub path: Cow<'a, [u8]>,
    /// Whether all names below it change as well.
    pub with_below: bool,
}

impl<'a> Name<'a> {
    /// This name alone.
    pub fn alone(path: impl Into<Cow<'a, [u8]>>) -> Name<'a> {
        Name { path: path.into(), with_below: false }
    }

    /// The name, and all that are below it.
    pub fn with_below(path: impl Into<Cow<'a, [u8]>>) -> Name<'a> {
        Name { path: path.into(), with_below: true }
    }

    /// The same name, for as long as it is wanted.
    pub fn into_owned(self) -> Name<'static> {
        Name { path: self.path.into_owned().into(), with_below: self.with_below }
    }
}

/// Requests that are being carried out, and that wait for names. `J` is what goes on when one is done.
#[derive(Debug)]
pub(super) struct Underway<J> {
    /// Those that have their names.
    requests: BTreeMap<Key, One<J>>,
    /// Those that wait for names, by their place in the order.
    queued: BTreeMap<u64, Queued<J>>,
    /// Who wants each name, whether they have it or not.
    names: BTreeMap<Box<[u8]>, Wanted>,
    /// The place of the next one.
    next: u64,
}

/// The places of those who want a name.
#[derive(Debug, Default)]
struct Wanted {
    all: BTreeSet<u64>,
    /// Those who want all that is below it, too.
    with_below: BTreeSet<u64>,
}

#[derive(Debug)]
struct One<J> {
    place: u64,
    names: Vec<Name<'static>>,
    /// It has waited for its names, and not begun yet.
    is_promised: bool,
    waiting: Vec<J>,
}

#[derive(Debug)]
struct Queued<J> {
    key: Key,
    names: Vec<Name<'static>>,
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
    pub(super) fn begin(&mut self, key: Key, names: &[Name<'_>]) -> bool {
        if let Some(one) = self.requests.get_mut(&key) {
            let are_its = one.names == names;
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
    pub(super) fn wait(&mut self, key: &Key, names: &[Name<'_>], then: J) -> Option<J> {
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
    fn enter(&mut self, names: &[Name<'_>]) -> (u64, Vec<Name<'static>>) {
        let place = self.next;
        self.next += 1;
        let names: Vec<Name<'static>> = names.iter().map(|name| name.clone().into_owned()).collect();
        for Name { path, with_below } in &names {
            let wanted = self.names.entry((**path).into()).or_default();
            wanted.all.insert(place);
            if *with_below {
                wanted.with_below.insert(place);
            }
        }
        (place, names)
    }

    fn leave(&mut self, place: u64, names: &[Name<'_>]) {
        for Name { path, .. } in names {
            if let Some(wanted) = self.names.get_mut(&**path) {
                wanted.all.remove(&place);
                wanted.with_below.remove(&place);
                if wanted.all.is_empty() {
                    self.names.remove(&**path);
                }
            }
        }
    }

    /// Who could not have one of these names beside it, and can have all of its own.
    fn firsts(&self, names: &[Name<'_>]) -> BTreeSet<u64> {
        let wanted = names.iter().flat_map(|name| self.related(name));
        let firsts = wanted.filter_map(|places| places.first().copied());
        firsts
            .filter(|place| self.queued.get(place).is_some_and(|one| self.is_first(*place, &one.names)))
            .collect()
    }

    /// Whether somebody wants what nobody can have beside one of these names.
    fn are_wanted(&self, names: &[Name<'_>]) -> bool {
        names.iter().any(|name| self.related(name).next().is_some())
    }

    /// Whether nobody who came before wants what nobody can have beside one of these names.
    fn is_first(&self, place: u64, names: &[Name<'_>]) -> bool {
        let mut wanted = names.iter().flat_map(|name| self.related(name));
        wanted.all(|places| places.first().is_none_or(|first| *first >= place))
    }

    /// Who wants this name, those below it where they are of it, and those above it that have theirs below them: sets of places of
    /// which one at a time can have what it wants.
    fn related<'a>(&'a self, name: &'a Name<'_>) -> impl Iterator<Item = &'a BTreeSet<u64>> {
        let path = &*name.path;
        let same = self.names.get(path).map(|wanted| &wanted.all);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let above = ends.filter_map(|end| Some(&self.names.get(&path[..end])?.with_below));
        let inside = name.with_below.then(|| {
            let first: Box<[u8]> = [path, b"/"].concat().into();
            self.names.range(first..).take_while(move |(other, _)| below(other, path).is_some())
        });
        let inside = inside.into_iter().flatten().map(|(_, wanted)| &wanted.all);
        same.into_iter().chain(above.filter(|places| !places.is_empty())).chain(inside)
    }
}
