//! The numbers that a table has for places.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::coord::PlaceId;

/// Learnt names of places that nobody has claims on, before they are forgotten.
const IDLE_PLACES_MAX: usize = 4096;

/// Names of places, and how many claims each has.
#[derive(Default)]
pub(super) struct Places {
    by_name: BTreeMap<Box<str>, PlaceId>,
    by_id: BTreeMap<PlaceId, (Box<str>, usize)>,
    last: u32,
    idle: usize,
}

impl Places {
    /// The number of a place, which gets one more claim.
    pub(super) fn enter(&mut self, name: &str) -> PlaceId {
        if let Some(&id) = self.by_name.get(name) {
            if let Some((_, claims)) = self.by_id.get_mut(&id) {
                self.idle -= usize::from(*claims == 0);
                *claims += 1;
            }
            return id;
        }
        self.last = self.last.wrapping_add(1);
        let id = PlaceId(self.last);
        self.by_name.insert(name.into(), id);
        self.by_id.insert(id, (name.into(), 1));
        id
    }

    /// A place has one claim less.
    pub(super) fn leave(&mut self, id: PlaceId) {
        let Some((_, claims)) = self.by_id.get_mut(&id) else { return };
        *claims -= 1;
        self.idle += usize::from(*claims == 0);
        if self.idle > IDLE_PLACES_MAX {
            self.by_id.retain(|_, (_, claims)| *claims > 0);
            self.by_name.retain(|_, id| self.by_id.contains_key(id));
            self.idle = 0;
        }
    }

    /// The number of a place that has one.
    pub(super) fn find(&self, name: &str) -> Option<PlaceId> {
        self.by_name.get(name).copied()
    }

    /// What a place is called.
    pub(super) fn name(&self, id: PlaceId) -> &str {
        self.by_id.get(&id).map_or("", |(name, _)| name)
    }
}
