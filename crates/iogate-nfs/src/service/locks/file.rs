//! The locks of one file among the clients: who has which, who waits, who has not said yet that it knows. Nothing is asked or told here.

use std::collections::VecDeque;

use iogate_core::Time;
use iogate_core::file_locks::{ByteRange, Held, Kind, RangeLocks};

use super::hosts::Owner;

/// A lock that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    pub(super) range: ByteRange,
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) wanted: Wanted,
    /// The arguments of the call by which the client is told that it has the lock.
    pub(super) call: Vec<u8>,
}

/// Somebody who has the lock that it has waited for, and has not said that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Untold {
    pub(super) waiting: Waiting,
    pub(super) since: Time,
    /// When it was last tried to tell it.
    pub(super) tried: Time,
}

/// Which ways to open the file somebody denies to others, as DOS has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    owner: Owner,
    denies: u32,
    does: u32,
}

/// The locks of a file.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    held: RangeLocks<Owner>,
    waiting: VecDeque<Waiting>,
    untold: Vec<Untold>,
    shares: Vec<Share>,
}

impl FileLocks {
    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.untold.is_empty() && self.shares.is_empty()
    }

    /// How much an owner has here: locks, waits and shares.
    pub(super) fn count(&self, owner: Owner) -> usize {
        self.held.iter().filter(|held| held.owner == owner).count()
            + self.waiting.iter().filter(|waiting| waiting.wanted.owner == owner).count()
            + self.untold.iter().filter(|untold| untold.waiting.wanted.owner == owner).count()
            + self.shares.iter().filter(|share| share.owner == owner).count()
    }

    /// All owners that have something here; some more than once.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.held
            .iter()
            .map(|held| held.owner)
            .chain(self.waiting.iter().map(|waiting| waiting.wanted.owner))
            .chain(self.untold.iter().map(|untold| untold.waiting.wanted.owner))
            .chain(self.shares.iter().map(|share| share.owner))
    }

    /// A lock of another owner that is in the way of this one.
    pub(super) fn in_the_way(&self, wanted: &Wanted) -> Option<Held<Owner>> {
        self.held.in_the_way(wanted.owner, wanted.kind, wanted.range)
    }

    /// Gives a lock that nothing is in the way of. Who waited for it does not any more.
    pub(super) fn give(&mut self, wanted: &Wanted) {
        let Wanted { owner, kind, range } = *wanted;
        let given = self.held.lock(Held { owner, kind, range, process: 0 });
        debug_assert!(given.is_ok(), "a lock that is in the way of another was given");
        self.cancel(wanted);
    }

    /// Takes from an owner what it has of these bytes. Returns those that nobody has now.
    pub(super) fn give_back(&mut self, owner: Owner, range: ByteRange) -> Vec<ByteRange> {
        self.held.unlock(owner, range);
        // What it gives back it knows that it has.
        self.untold.retain(|untold| {
            let Wanted { owner: of, range: told, .. } = untold.waiting.wanted;
            of != owner || told.first() < range.first() || told.last() > range.last()
        });
        self.gaps(range)
    }

    /// Takes all from an owner. Returns the bytes that nobody has now.
    pub(super) fn release(&mut self, owner: Owner) -> Vec<ByteRange> {
        self.waiting.retain(|waiting| waiting.wanted.owner != owner);
        self.shares.retain(|share| share.owner != owner);
        let ranges: Vec<ByteRange> =
            self.held.iter().filter(|held| held.owner == owner).map(|held| held.range).collect();
        let gaps = ranges.into_iter().flat_map(|range| self.give_back(owner, range)).collect();
        self.untold.retain(|untold| untold.waiting.wanted.owner != owner);
        gaps
    }

    /// The parts of a range that nobody has.
    fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let parts = self.held.together(range).into_iter();
        parts.filter_map(|(kind, part)| kind.is_none().then_some(part)).collect()
    }

    /// Lets somebody wait, behind those who do already. A client asks again from time to time: it keeps its place.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        match self.waiting.iter_mut().find(|known| known.wanted == waiting.wanted) {
            Some(known) => *known = waiting,
            None => self.waiting.push_back(waiting),
        }
    }

    /// Whether somebody waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Somebody does not wait any more. Whether it has been given the lock and does not know.
    pub(super) fn cancel(&mut self, wanted: &Wanted) -> bool {
        self.waiting.retain(|waiting| waiting.wanted != *wanted);
        let count = self.untold.len();
        self.untold.retain(|untold| untold.waiting.wanted != *wanted);
        self.untold.len() < count
    }

    /// The `skip`th of those who wait that none of the others here is in the way of.
    pub(super) fn ready(&self, skip: usize) -> Option<Waiting> {
        let is_ready = |waiting: &&Waiting| self.in_the_way(&waiting.wanted).is_none();
        self.waiting.iter().filter(is_ready).nth(skip).cloned()
    }

    /// Somebody who has waited has the lock, and is to be told.
    pub(super) fn note_untold(&mut self, now: Time, waiting: Waiting) {
        self.untold.push(Untold { waiting, since: now, tried: now });
    }

    /// Those who have not said yet that they have their locks.
    pub(super) fn untold(&mut self) -> &mut [Untold] {
        &mut self.untold
    }

    /// A client says that it has a lock. Whether that was not known.
    pub(super) fn told(&mut self, wanted: &Wanted) -> bool {
        let count = self.untold.len();
        self.untold.retain(|untold| untold.waiting.wanted != *wanted);
        self.untold.len() < count
    }

    /// Denies ways to open the file to others, unless another one does or denies what does not go together with that.
    pub(super) fn share(&mut self, owner: Owner, denies: u32, does: u32) -> bool {
        let conflicts =
            |share: &Share| share.owner != owner && (share.denies & does != 0 || share.does & denies != 0);
        if self.shares.iter().any(conflicts) {
            return false;
        }
        self.shares.retain(|share| share.owner != owner);
        self.shares.push(Share { owner, denies, does });
        true
    }

    /// Denies nothing any more.
    pub(super) fn unshare(&mut self, owner: Owner) {
        self.shares.retain(|share| share.owner != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> ByteRange {
        ByteRange::new(first, last).unwrap()
    }

    fn wanted(owner: Owner, first: u64, last: u64) -> Wanted {
        Wanted { owner, kind: Kind::Exclusive, range: range(first, last) }
    }

    fn shared(owner: Owner, first: u64, last: u64) -> Wanted {
        Wanted { kind: Kind::Shared, ..wanted(owner, first, last) }
    }

    #[test]
    fn what_is_given_back_is_free_where_nobody_else_has_it() {
        let mut locks = FileLocks::default();
        locks.give(&shared(1, 0, 99));
        locks.give(&shared(2, 10, 19));
        locks.give(&shared(3, 15, 29));
        locks.give(&shared(4, u64::MAX - 1, u64::MAX));
        assert_eq!(locks.give_back(1, range(5, 49)), [range(5, 9), range(30, 49)]);
        assert_eq!(locks.count(1), 2);
        assert_eq!(locks.give_back(4, range(50, u64::MAX)), [range(100, u64::MAX)]);
        assert_eq!(locks.release(1), [range(0, 4), range(50, 99)]);
        assert_eq!(locks.give_back(9, range(10, 29)), []);
        assert_eq!([locks.release(2), locks.release(3)], [vec![range(10, 14)], vec![range(15, 29)]]);
        assert!(locks.is_empty());
    }

    #[test]
    fn who_waits_is_ready_in_the_order_in_which_it_came() {
        let mut locks = FileLocks::default();
        locks.give(&wanted(1, 0, 9));
        for waiting in [wanted(2, 0, 9), wanted(3, 20, 29), shared(4, 5, 5), wanted(2, 0, 9)] {
            locks.wait(Waiting { wanted: waiting, call: Vec::new() });
        }
        assert_eq!(locks.count(2), 1);
        assert_eq!(locks.ready(0).map(|waiting| waiting.wanted), Some(wanted(3, 20, 29)));
        assert_eq!(locks.ready(1), None);
        locks.give(&shared(1, 0, 9));
        assert_eq!(locks.ready(1).map(|waiting| waiting.wanted), Some(shared(4, 5, 5)));
        locks.give_back(1, range(0, 9));
        assert_eq!(locks.ready(0).map(|waiting| waiting.wanted), Some(wanted(2, 0, 9)));
    }

    #[test]
    fn who_gives_a_lock_back_knows_that_it_had_it() {
        let mut locks = FileLocks::default();
        for owner in [1, 2] {
            let waiting = Waiting { wanted: wanted(owner, owner * 10, owner * 10 + 5), call: Vec::new() };
            locks.give(&waiting.wanted);
            locks.note_untold(Time::ZERO, waiting);
        }
        locks.give_back(1, range(0, 100));
        assert_eq!(locks.untold().len(), 1);
        assert!(!locks.told(&wanted(1, 10, 15)));
        assert!(locks.told(&wanted(2, 20, 25)) && !locks.told(&wanted(2, 20, 25)));
    }
}
