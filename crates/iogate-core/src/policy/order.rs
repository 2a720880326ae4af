//! In which order classes come: where each is to be found by what it waits for, and the way down to who is next.

use alloc::collections::BTreeSet;

use super::arbiter::{Arbiter, ClassId};
use super::nested::InnerId;
use crate::time::Time;

/// Tags are device time in 2^-10 ns, divided by the weight.
const TAG_BITS: u32 = 10;

/// Device time as a tag.
#[inline]
pub(super) fn tag(ns: u64, weight: u32) -> u128 {
    // A division of 128 bits takes several times as long as one of 64, and there are a few for each request; most weights are 1.
    match ns.checked_mul(1 << TAG_BITS) {
        Some(scaled) if weight == 1 => scaled.into(),
        Some(scaled) => u128::from(scaled / u64::from(weight)),
        None => (u128::from(ns) << TAG_BITS) / u128::from(weight),
    }
}

/// What so many `requests` of those that are `admitted` have of what all of them have.
#[inline]
pub(super) fn part(all: u128, requests: u32, admitted: u32) -> u128 {
    let admitted = admitted.max(1);
    if requests == admitted {
        return all;
    }
    match u64::try_from(all).ok().and_then(|all| all.checked_mul(requests.into())) {
        Some(product) => u128::from(product / u64::from(admitted)),
        None => all * u128::from(requests) / u128::from(admitted),
    }
}

/// The first of those that are within nothing.
pub(super) fn first(list: &BTreeSet<(InnerId, Time, ClassId)>) -> Option<(Time, ClassId)> {
    // Nothing is before those.
    let (of, at, id) = list.first()?;
    (*of == InnerId::NONE).then_some((*at, *id))
}

/// The first of those that are within a branch, or within nothing.
fn first_within(list: &BTreeSet<(InnerId, Time, ClassId)>, inner: InnerId) -> Option<(Time, ClassId)> {
    let (of, at, id) = list.range((inner, Time::ZERO, ClassId::default())..).next()?;
    (*of == inner).then_some((*at, *id))
}

/// Moves a class in a list from one key to another.
fn replace(
    list: &mut BTreeSet<(InnerId, Time, ClassId)>,
    within: InnerId,
    key: &mut Option<Time>,
    new: Option<Time>,
    id: ClassId,
) {
    if *key == new {
        return;
    }
    if let Some(old) = key.take() {
        list.remove(&(within, old, id));
    }
    if let Some(new) = new {
        list.insert((within, new, id));
        *key = Some(new);
    }
}

impl Arbiter {
    /// Puts a class where it is to be found, by what it waits for, and then what it is within.
    pub(super) fn rank(&mut self, now: Time, id: ClassId) {
        let mut at = Some(id);
        while let Some(of) = at {
            self.rank_one(now, of);
            at = self.branch_of(of);
        }
    }

    /// What a class is within has been charged: others there may wait.
    pub(super) fn rank_branches(&mut self, now: Time, id: ClassId) {
        if let Some(branch) = self.branch_of(id) {
            self.rank(now, branch);
        }
    }

    fn rank_one(&mut self, now: Time, id: ClassId) {
        self.rank_grown(now, id);
        // Nobody is to be found behind its tag.
        let tag = self.classes[id.index()].start_tag();
        if self.ready_key(id).is_some_and(|key| key > tag) {
            self.put_ready(id, Some(tag));
        }
    }

    /// The same of one whose tag has become no less: where it is found by a lower one that it had, it stays there.
    #[inline(always)]
    pub(super) fn rank_grown(&mut self, now: Time, id: ClassId) {
        let class = &self.classes[id.index()];
        let inner = class.inner;
        // A branch waits if somebody within it does for nothing but the branch.
        let waits = class.waiting > 0 && (inner == InnerId::NONE || self.count_ready(inner) > 0);
        if class.is_limited || inner != InnerId::NONE && !self.due.is_empty() {
            self.rank_limited(now, id, waits);
        } else if waits != self.is_ready(id) {
            let ready = waits.then(|| class.start_tag());
            self.put_ready(id, ready);
        }
    }

    /// The same of one that may have a cap or a floor, or somebody within it a floor.
    #[inline(never)]
    fn rank_limited(&mut self, now: Time, id: ClassId, waits: bool) {
        let class = &self.classes[id.index()];
        let inner = class.inner;
        let limits = &self.limits[id.index()];
        let conforms = limits.conforms_at();
        let is_capped = waits && conforms > now;
        if inner != InnerId::NONE && is_capped != limits.capped.is_some() && !self.toggled.contains(&id) {
            self.toggled.push(id);
        }
        let ready = (waits && !is_capped).then(|| class.start_tag());
        let due = ready.and_then(|_| self.due_at(id));
        self.limits[id.index()].count_capped(now);
        self.put(id, ready, is_capped.then_some(conforms), due);
    }

    /// When the next request of a class, or of one within it, is due by a floor.
    fn due_at(&self, id: ClassId) -> Option<Time> {
        let class = &self.classes[id.index()];
        let own = self.limits[id.index()].floor.due_at(&self.entitlement(id).min);
        let within = match class.inner {
            InnerId::NONE => None,
            inner => first_within(&self.due, inner).map(|(at, _)| at),
        };
        [own, within].into_iter().flatten().min()
    }

    /// Puts a class into the lists that it is to be in, by these keys, and takes it out of the others.
    pub(super) fn put(&mut self, id: ClassId, ready: Option<u128>, capped: Option<Time>, due: Option<Time>) {
        let within = self.classes[id.index()].within;
        self.put_ready(id, ready);
        let limits = &mut self.limits[id.index()];
        replace(&mut self.capped, InnerId::NONE, &mut limits.capped, capped, id);
        replace(&mut self.due, within, &mut limits.due, due, id);
    }

    /// Puts a class among those that may have a lot, by its tag, or takes it out. Each request of somebody within a branch makes the
    /// branch's tag larger while others there wait. Where it is to be found then is looked at when it comes first by the tag that it had
    /// (see `first_ready`), not twice for each request.
    #[inline(never)]
    fn put_ready(&mut self, id: ClassId, tag: Option<u128>) {
        let within = self.classes[id.index()].within;
        match tag {
            Some(tag) => self.ready.lower(within.index(), id.0, tag),
            None => self.ready.remove(within.index(), id.0),
        }
    }

    /// Who has the least tag within a branch, or within nothing, of those that may have a lot.
    #[inline]
    pub(super) fn first_ready(&mut self, inner: InnerId) -> Option<(u128, ClassId)> {
        loop {
            let (key, index) = self.ready.peek(inner.index())?;
            let id = ClassId(index);
            let tag = self.classes[id.index()].start_tag();
            debug_assert!(key <= tag, "nobody is found behind its tag");
            // Tags of those behind are no less than their keys.
            if key == tag {
                return Some((tag, id));
            }
            self.ready.raise_first(inner.index(), tag);
        }
    }

    /// How many of those within a branch, or within nothing, may have a lot.
    pub(super) fn count_ready(&self, inner: InnerId) -> usize {
        self.ready.len(inner.index())
    }

    /// Whether a class waits, and for no cap.
    pub(super) fn is_ready(&self, id: ClassId) -> bool {
        self.ready.has(id.0)
    }

    /// By which tag it is found then: the one that it has, or a lower one that it had before.
    pub(super) fn ready_key(&self, id: ClassId) -> Option<u128> {
        self.ready.key(self.classes[id.index()].within.index(), id.0)
    }

    /// Whether a class has nothing that waits, and no cap is why.
    pub(super) fn is_between_requests(&self, id: ClassId) -> bool {
        !self.is_ready(id) && !self.is_held_back(id)
    }

    /// Whether a class would have the next lot if it had a request.
    pub(super) fn is_first(&mut self, id: ClassId) -> bool {
        let mut at = Some(id);
        while let Some(of) = at {
            let class = &self.classes[of.index()];
            let (within, finish) = (class.within, class.finish);
            if self.first_ready(within).is_some_and(|(tag, rival)| rival != of && tag < finish) {
                return false;
            }
            at = self.branch_of(of);
        }
        true
    }

    /// Whether somebody waits, whatever for.
    pub(crate) fn has_deferred(&self) -> bool {
        self.is_asked() || !self.capped.is_empty()
    }

    /// Whether somebody waits who may have a lot.
    pub(crate) fn is_asked(&self) -> bool {
        self.count_ready(InnerId::NONE) > 0
    }

    /// Who is next: who has the least tag, at each level. There must be somebody.
    pub(super) fn least(&mut self) -> ClassId {
        self.least_within(InnerId::NONE)
    }

    fn least_within(&mut self, mut inner: InnerId) -> ClassId {
        // A branch that is ready has somebody within it who is.
        while let Some((_, id)) = self.first_ready(inner) {
            inner = self.classes[id.index()].inner;
            if inner == InnerId::NONE {
                return id;
            }
        }
        ClassId::default()
    }

    /// Who is next where a floor is due by then: at each level as far as one is who is due, else who has the least tag.
    pub(super) fn due_by(&mut self, by: Time) -> ClassId {
        let mut inner = InnerId::NONE;
        while let Some((_, id)) = first_within(&self.due, inner).filter(|(at, _)| *at <= by) {
            inner = self.classes[id.index()].inner;
            if inner == InnerId::NONE {
                return id;
            }
        }
        self.least_within(inner)
    }
}
