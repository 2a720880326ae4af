//! The numbers that a table has for places.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

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

    /// A place has one claim less. Returns the places that are forgotten now: their numbers are not given again.
    pub(super) fn leave(&mut self, id: PlaceId) -> Vec<PlaceId> {
        let Some((_, claims)) = self.by_id.get_mut(&id) else { return Vec::new() };
        *claims -= 1;
        self.idle += usize::from(*claims == 0);
        if self.idle <= IDLE_PLACES_MAX {
            return Vec::new();
        }
        self.idle = 0;
        let idle = self.by_id.extract_if(.., |_, (_, claims)| *claims == 0);
        let forgotten = idle.map(|(id, _)| id).collect();
        self.by_name.retain(|_, id| self.by_id.contains_key(id));
        forgotten
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

#[cfg(test)]
mod tests {
    use alloc::format;

    use crate::Time;
    use crate::coord::PlaceId;
    use crate::coord::leader::{Asked, Entering, Leader, LeaderConfig, User};
    use crate::time::Span;
    use crate::wire::{Claim, Release, Request};

    use super::IDLE_PLACES_MAX;

    /// Takes a turn of a place, and ends it.
    fn use_place(leader: &mut Leader, asked: Asked, token: u64, place: &str) {
        let place = place.as_bytes();
        let claim = Claim { bytes: 0, weight: 1, period: 0, place, members: &[], party: &[], label: &[] };
        leader.handle(asked, &Request::Claim(claim));
        leader.decide(asked.now);
        leader.handle(asked, &Request::Release(Release { token, bytes: 0 }));
        leader.decide(asked.now);
        leader.kept(asked.now);
        leader.say(true, |_, _| {});
    }

    #[test]
    fn a_place_that_is_forgotten_leaves_no_limit_behind() {
        let (now, limit) = (Time::ZERO, Span::from_secs(1));
        let turn_max = [("limited".into(), limit)].into();
        let mut leader =
            Leader::new(LeaderConfig { turn_max, ..LeaderConfig::default() }, now, 0, &Default::default());
        let user = User { uid: 1, gid: 1 };
        let client = Entering { connection: 1, shown: [0; 16], fresh: [1; 16], user, name: "client" };
        let session = leader.enter(now, &client).unwrap().session;
        let asked = Asked { now, connection: 1, session, id: 1 };
        use_place(&mut leader, asked, 1, "limited");
        assert_eq!(leader.table.turn_max(PlaceId(1)), limit);
        for number in 2..IDLE_PLACES_MAX as u64 + 2 {
            use_place(&mut leader, asked, number, &format!("place {number}"));
        }
        assert_eq!(leader.places.find("limited"), None);
        assert_eq!(leader.table.turn_max(PlaceId(1)), Span::ZERO);
        use_place(&mut leader, asked, IDLE_PLACES_MAX as u64 + 2, "limited");
        let place = leader.places.find("limited").unwrap();
        assert_eq!(leader.table.turn_max(place), limit, "under its new number");
    }
}
