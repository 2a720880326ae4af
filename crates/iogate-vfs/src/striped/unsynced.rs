//! Objects that this process has written and not synced, of files that it has closed.
//!
//! A loss is told of by the object's open file, which compares verifiers. A machine that crashes may lose the object with all that is in
//! it, and then there is nothing to open: whoever opens the file again and syncs it learns here that there was something.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iogate_core::wire::Identity;
use iogate_core::{Span, Time};

use crate::object_id::ObjectId;

/// Most files that are remembered.
const FILES_MAX: usize = 65_536;
/// For how long after the close: servers have written it back by then.
const REMEMBERED: Span = Span::from_secs(60);

/// Of files, by the name of their objects.
#[derive(Default)]
pub(super) struct Unsynced(Mutex<HashMap<ObjectId, Closed>>);

struct Closed {
    /// By target; `None`: nothing that matters.
    objects: Box<[Option<Identity>]>,
    at: Time,
}

impl Unsynced {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Closed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is closed, of which these objects are not durable.
    pub(super) fn closed(&self, id: ObjectId, objects: Box<[Option<Identity>]>, now: Time) {
        if objects.iter().all(Option::is_none) {
            return;
        }
        let mut known = self.lock();
        if known.len() >= FILES_MAX {
            known.retain(|_, closed| now.since(closed.at) <= REMEMBERED);
            if known.len() >= FILES_MAX {
                return;
            }
        }
        let closed = known.entry(id).or_insert_with(|| Closed { objects: objects.clone(), at: now });
        closed.at = now;
        for (known, object) in closed.objects.iter_mut().zip(objects) {
            *known = object.or(*known);
        }
    }

    /// The object of a file on a target that was not durable when it was closed, which is forgotten.
    pub(super) fn take(&self, id: ObjectId, target: usize) -> Option<Identity> {
        let mut known = self.lock();
        let closed = known.get_mut(&id)?;
        let object = closed.objects[target].take();
        if closed.objects.iter().all(Option::is_none) {
            known.remove(&id);
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn id(number: u32) -> ObjectId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        ObjectId(bytes)
    }

    fn object(inode: u64) -> Option<Identity> {
        Some(Identity { inode, generation: 1 })
    }

    #[test]
    fn an_object_is_known_until_it_is_asked_for() {
        let unsynced = Unsynced::default();
        unsynced.closed(id(1), [None, object(5)].into(), at(0));
        unsynced.closed(id(1), [object(4), None].into(), at(0));
        unsynced.closed(id(2), [None, None].into(), at(0));
        assert_eq!((unsynced.take(id(1), 1), unsynced.take(id(1), 1)), (object(5), None));
        assert_eq!((unsynced.take(id(1), 0), unsynced.take(id(2), 0)), (object(4), None));
        assert!(unsynced.lock().is_empty());
    }

    #[test]
    fn of_many_files_those_go_that_were_closed_long_ago() {
        let unsynced = Unsynced::default();
        let half = FILES_MAX as u32 / 2;
        (0..half).for_each(|number| unsynced.closed(id(number), [object(1)].into(), at(0)));
        (half..2 * half).for_each(|number| unsynced.closed(id(number), [object(1)].into(), at(30)));
        unsynced.closed(id(u32::MAX), [object(1)].into(), at(31));
        assert_eq!(unsynced.take(id(u32::MAX), 0), None, "there is no room");
        assert_eq!(unsynced.lock().len(), FILES_MAX);
        unsynced.closed(id(u32::MAX), [object(1)].into(), at(61));
        assert_eq!(unsynced.lock().len() as u32, half + 1);
        assert_eq!((unsynced.take(id(0), 0), unsynced.take(id(half), 0)), (None, object(1)));
    }
}
