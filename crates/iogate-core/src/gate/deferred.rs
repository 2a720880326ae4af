//! Requests that may run and that the policy defers: of each class a list by arrival, through `Slot::prev` and `Slot::next`.
//!
//! Above a scheduler that asks for one target's, they are kept by target, too: O(log n) a request.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::policy::ClassId;
use crate::queue::{NONE, Pending, SlotId, State};

#[derive(Default)]
pub(super) struct Deferred {
    lists: Vec<(SlotId, SlotId)>,
    /// By target, class and arrival number; `None`: nobody asks for a target's.
    of_targets: Option<BTreeSet<(u16, ClassId, u64, SlotId)>>,
}

impl Deferred {
    /// Nothing is deferred. Whether somebody will ask for one target's.
    pub(super) fn new(by_target: bool) -> Deferred {
        Deferred { lists: Vec::new(), of_targets: by_target.then(BTreeSet::new) }
    }

    /// Whether somebody will ask for one target's from now on. O(n log n).
    pub(super) fn set_by_target(&mut self, by_target: bool, pending: &Pending) {
        let all = || pending.slots_in(&[State::Deferred]).into_iter();
        self.of_targets = by_target.then(|| all().map(|slot| of_target(pending, slot)).collect());
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.lists.capacity() * size_of::<(SlotId, SlotId)>()
            + self.of_targets.as_ref().map_or(0, |all| all.len() * size_of::<(u16, ClassId, u64, SlotId)>())
    }

    /// One more is deferred, the last of this class.
    pub(super) fn push(&mut self, pending: &mut Pending, id: ClassId, slot: SlotId) {
        if self.lists.len() <= id.index() {
            self.lists.resize(id.index() + 1, (NONE, NONE));
        }
        let (first, last) = &mut self.lists[id.index()];
        let before = core::mem::replace(last, slot);
        if before == NONE {
            *first = slot;
        } else {
            pending.slot_mut(before).next = slot;
        }
        let this = pending.slot_mut(slot);
        (this.prev, this.next, this.state) = (before, NONE, State::Deferred);
        if let Some(of_targets) = &mut self.of_targets {
            of_targets.insert(of_target(pending, slot));
        }
    }

    /// One is deferred no more.
    pub(super) fn unlink(&mut self, pending: &mut Pending, slot: SlotId) {
        if let Some(of_targets) = &mut self.of_targets {
            of_targets.remove(&of_target(pending, slot));
        }
        let this = pending.slot(slot);
        let (prev, next, id) = (this.prev, this.next, ClassId(this.class));
        let (first, last) = &mut self.lists[id.index()];
        match prev {
            NONE => *first = next,
            prev => pending.slot_mut(prev).next = next,
        }
        match next {
            NONE => *last = prev,
            next => pending.slot_mut(next).prev = prev,
        }
    }

    /// The oldest of a class; `NONE`: it has none.
    pub(super) fn first(&self, id: ClassId) -> SlotId {
        self.lists.get(id.index()).map_or(NONE, |(first, _)| *first)
    }

    /// The oldest that a class has for a target.
    pub(super) fn first_for(&self, target: u16, id: ClassId) -> Option<SlotId> {
        let mut from = self.of_targets.as_ref()?.range((target, id, 0, 0)..);
        from.next().filter(|(of, class, ..)| (*of, *class) == (target, id)).map(|(.., slot)| *slot)
    }

    /// The classes that have some for a target.
    pub(super) fn classes_for(&self, target: u16) -> impl Iterator<Item = ClassId> + '_ {
        let after = move |from: (u16, ClassId, u64, SlotId)| {
            let next = self.of_targets.as_ref()?.range(from..).next();
            next.map(|(of, class, ..)| (*of, *class)).filter(|(of, _)| *of == target)
        };
        let first = after((target, ClassId::default(), 0, 0));
        let classes =
            core::iter::successors(first, move |(_, class)| after((target, *class, u64::MAX, NONE)));
        classes.map(|(_, class)| class)
    }
}

fn of_target(pending: &Pending, slot: SlotId) -> (u16, ClassId, u64, SlotId) {
    let this = pending.slot(slot);
    (this.target, ClassId(this.class), this.seq, slot)
}
