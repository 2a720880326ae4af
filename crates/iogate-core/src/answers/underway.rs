//! Requests that are being carried out, with the names that each changes: one at a time has a name.
//!
//! What a name led to is looked up before a request's intent is noted. That tells after a kill what became of the request only if no
//! other changed the name in between, so the name is its own from before the look-up until its outcome is noted.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Key;
use crate::hash::HashMap;

/// Requests that are being carried out. `J` is what goes on when one is done.
#[derive(Debug)]
pub(super) struct Underway<J> {
    requests: BTreeMap<Key, One<J>>,
    /// What waits for each name.
    names: HashMap<Box<[u8]>, Vec<J>>,
}

#[derive(Debug)]
struct One<J> {
    names: Vec<Box<[u8]>>,
    waiting: Vec<J>,
}

impl<J> Underway<J> {
    pub(super) fn new() -> Underway<J> {
        Underway { requests: BTreeMap::new(), names: HashMap::default() }
    }

    /// Whether a request is being carried out.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.requests.contains_key(key)
    }

    /// Begins a request that nobody carries out; `false` if another has one of the names.
    pub(super) fn begin(&mut self, key: Key, names: &[Cow<'_, [u8]>]) -> bool {
        if names.iter().any(|name| self.names.contains_key(&**name)) {
            return false;
        }
        for name in names {
            self.names.insert((**name).into(), Vec::new());
        }
        let names = names.iter().map(|name| (**name).into()).collect();
        self.requests.insert(key, One { names, waiting: Vec::new() });
        true
    }

    /// Has `then` go on when the request is done, or the one that has one of the names. Returns it if there is none.
    pub(super) fn wait(&mut self, key: &Key, names: &[Cow<'_, [u8]>], then: J) -> Option<J> {
        let waiting = match self.requests.get_mut(key) {
            Some(one) => Some(&mut one.waiting),
            None => {
                let taken = names.iter().find(|name| self.names.contains_key(&***name));
                taken.and_then(|name| self.names.get_mut(&**name))
            }
        };
        match waiting {
            Some(waiting) => {
                waiting.push(then);
                None
            }
            None => Some(then),
        }
    }

    /// A request is no longer being carried out. Returns what goes on now.
    pub(super) fn end(&mut self, key: &Key) -> Vec<J> {
        let Some(One { names, mut waiting }) = self.requests.remove(key) else { return Vec::new() };
        for name in names {
            waiting.extend(self.names.remove(&name).into_iter().flatten());
        }
        waiting
    }
}
