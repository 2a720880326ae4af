//! Who waits for the targets of one place, and who holds them.
//!
//! Waiting claims for the same targets form a *class*: what blocks one of them blocks all that come after it, so only the first of a
//! class, its *head*, stands in line at its targets. A whole place is a line of its own, that of the class without members.
//!
//! The board also says who is to be looked at again when something changes (`woken`): whoever could hold its targets now and could not
//! before is among them. Costs are O(m log n) for n waiting claims and a claim for m targets, but for a whole place that becomes
//! free, which wakes the first in line of each target.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use super::order::Rank;
use crate::coord::{Admission, Claim, ClaimId, CoordConfig, Passing};
use crate::time::Time;

/// Claims that wait and are to be looked at, in the order in which they are served; each with the target, if it was one, that
/// has become free: the next in line there may have it if this one may not. Some may not wait any more.
pub(super) type Woken = BTreeSet<(Rank, Option<u32>)>;

/// What counts as one among the holders of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Party(u64),
    /// A claim of no party.
    Alone(ClaimId),
}

impl Holder {
    pub(super) fn of(claim: &Claim, id: ClaimId) -> Holder {
        if claim.party == 0 { Holder::Alone(id) } else { Holder::Party(claim.party) }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    /// The claims that wait, by their targets.
    classes: BTreeMap<Vec<u32>, Class>,
    /// The head of each class.
    heads: BTreeSet<Rank>,
    /// Targets that somebody waits for or holds, other than as part of the whole place.
    targets: BTreeMap<u32, Target>,
    /// Those who hold the whole place, each with the number of its claims that do.
    whole: BTreeMap<Holder, u32>,
    /// How many targets are held by so many holders; those that nobody holds are not counted.
    crowds: BTreeMap<usize, usize>,
    /// Those who hold anything.
    turns: BTreeMap<Holder, Turn>,
    /// Waiting claims of parties: party, target (`None`: the whole place), rank.
    joiners: BTreeSet<(u64, Option<u32>, Rank)>,
}

/// Waiting claims for the same targets; there is always one.
#[derive(Clone, Debug)]
struct Class {
    head: Rank,
    others: BTreeSet<Rank>,
}

#[derive(Clone, Debug, Default)]
struct Target {
    /// The heads of the classes with this target.
    line: BTreeSet<Rank>,
    /// Each with the number of its claims that hold this target.
    holders: BTreeMap<Holder, u32>,
}

#[derive(Clone, Debug)]
struct Turn {
    /// When the first of its claims was granted.
    since: Time,
    claims: u32,
}

impl Board {
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.turns.is_empty()
    }

    /// A claim gets in line.
    pub(super) fn wait(&mut self, claim: &Claim, rank: Rank, woken: &mut Woken) {
        let members = &claim.targets.members;
        self.each_joiner(claim, rank, |joiners, entry| {
            joiners.insert(entry);
        });
        woken.insert((rank, None));
        let Some(class) = self.classes.get_mut(members) else {
            self.classes.insert(members.clone(), Class { head: rank, others: BTreeSet::new() });
            self.put_head(members, rank);
            return;
        };
        if class.head < rank {
            class.others.insert(rank);
            return;
        }
        let old = core::mem::replace(&mut class.head, rank);
        class.others.insert(old);
        self.take_head(members, old);
        self.put_head(members, rank);
    }

    /// A claim is no longer in line.
    pub(super) fn leave(&mut self, claim: &Claim, rank: Rank, woken: &mut Woken) {
        let members = &claim.targets.members;
        self.each_joiner(claim, rank, |joiners, entry| {
            joiners.remove(&entry);
        });
        let Some(class) = self.classes.get_mut(members) else { return };
        if class.head != rank {
            class.others.remove(&rank);
            return;
        }
        self.take_head(members, rank);
        match self.classes.get_mut(members).and_then(|class| {
            class.head = class.others.pop_first()?;
            Some(class.head)
        }) {
            Some(head) => self.put_head(members, head),
            None => {
                self.classes.remove(members);
            }
        }
        if members.is_empty() {
            // Those between it and the next in its line do not wait for the whole place any more.
            let next = self.whole_head();
            let freed = self.heads.range(rank..).take_while(|head| next.is_none_or(|next| **head <= next));
            woken.extend(freed.map(|head| (*head, None)));
        }
        members.iter().for_each(|member| self.wake(*member, woken));
        woken.extend(self.whole_head().map(|head| (head, None)));
        self.tidy(members);
    }

    /// A claim (that does not wait) begins to hold its targets.
    pub(super) fn hold(&mut self, now: Time, claim: &Claim, id: ClaimId, woken: &mut Woken) {
        let holder = Holder::of(claim, id);
        let turn = self.turns.entry(holder).or_insert(Turn { since: now, claims: 0 });
        // What is restored does not come in the order in which it was granted.
        turn.since = turn.since.min(now);
        turn.claims += 1;
        let members = &claim.targets.members;
        let mut is_new = false;
        for member in members {
            let target = self.targets.entry(*member).or_default();
            let claims = target.holders.entry(holder).or_default();
            *claims += 1;
            if *claims == 1 {
                let crowd = target.holders.len();
                self.recount(crowd - 1, crowd);
                is_new = true;
                self.wake_joiners(holder, Some(*member), woken);
            }
        }
        if members.is_empty() {
            let claims = self.whole.entry(holder).or_default();
            *claims += 1;
            is_new = *claims == 1;
        }
        if let (true, Holder::Party(party)) = (is_new && members.is_empty(), holder) {
            let every = (party, None, Rank::FIRST)..=(party, Some(u32::MAX), Rank::LAST);
            woken.extend(self.joiners.range(every).map(|(_, _, rank)| (*rank, None)));
        } else if is_new {
            self.wake_joiners(holder, None, woken);
        }
    }

    /// A claim no longer holds its targets.
    pub(super) fn release(&mut self, claim: &Claim, id: ClaimId, woken: &mut Woken) {
        let holder = Holder::of(claim, id);
        let members = &claim.targets.members;
        for member in members {
            let Some(target) = self.targets.get_mut(member) else { continue };
            if take_one(&mut target.holders, holder) {
                let crowd = target.holders.len();
                self.recount(crowd + 1, crowd);
                self.wake(*member, woken);
            }
        }
        if members.is_empty() && take_one(&mut self.whole, holder) {
            self.targets.keys().for_each(|member| self.wake(*member, woken));
        }
        woken.extend(self.whole_head().map(|head| (head, None)));
        if let Some(turn) = self.turns.get_mut(&holder) {
            turn.claims -= 1;
            if turn.claims == 0 {
                self.turns.remove(&holder);
            }
        }
        self.tidy(members);
    }

    /// Whether a waiting claim may hold its targets now, and as what.
    pub(super) fn admits(
        &self,
        rules: &CoordConfig,
        now: Time,
        claim: &Claim,
        rank: Rank,
    ) -> Option<Admission> {
        let holder = Holder::of(claim, rank.id);
        let turn = self.turns.get(&holder);
        let may_join = turn.is_some_and(|turn| now.since(turn.since) < rules.join);
        // Nobody passes one that waits for the very same.
        let is_relaxed = rules.passing == Passing::Relaxed && self.heads.contains(&rank);
        let slots = rules.slots.max(1) as usize;
        let members = &claim.targets.members;
        if members.is_empty() {
            let is_own = self.whole.contains_key(&holder);
            let is_first = self.heads.first() == Some(&rank);
            let is_in = is_own && may_join
                || is_first && !self.others_fill(Some(holder), slots)
                || is_relaxed && !self.others_fill(None, slots);
            return is_in.then_some(if is_own { Admission::Joined } else { Admission::InTurn });
        }
        let whole_head = self.whole_head();
        let mut is_all_own = true;
        for member in members {
            let target = self.targets.get(member);
            let is_own = turn.is_some() && self.owns(holder, target);
            is_all_own &= is_own;
            if is_own && may_join {
                continue;
            }
            let is_free = self.crowd(target) < slots;
            let is_first = target.and_then(|target| target.line.first()) == Some(&rank)
                && whole_head.is_none_or(|head| rank < head);
            if !(is_free && is_relaxed || is_first && (is_free || is_own)) {
                return None;
            }
        }
        Some(if is_all_own { Admission::Joined } else { Admission::InTurn })
    }

    /// With [`Passing::Relaxed`]: the one after a claim that may not hold its targets, at the one that has become free, if it still is.
    pub(super) fn wake_next(&self, rules: &CoordConfig, rank: Rank, member: u32, woken: &mut Woken) {
        let Some(target) = self.targets.get(&member) else { return };
        if self.crowd(Some(target)) < rules.slots.max(1) as usize {
            let next = target.line.range((Excluded(rank), Unbounded)).next();
            woken.extend(next.map(|next| (*next, Some(member))));
        }
    }

    /// Whether anybody holds one of these targets (none: any target).
    pub(super) fn is_held(&self, members: &[u32]) -> bool {
        if members.is_empty() {
            return !self.turns.is_empty();
        }
        let is_held = |member| self.targets.get(member).is_some_and(|target| !target.holders.is_empty());
        !self.whole.is_empty() || members.iter().any(is_held)
    }

    /// Holders of a target, whether of it or of the whole place.
    fn crowd(&self, target: Option<&Target>) -> usize {
        let Some(target) = target else { return self.whole.len() };
        let is_elsewhere = |holder: &&Holder| !target.holders.contains_key(holder);
        target.holders.len() + self.whole.keys().filter(is_elsewhere).count()
    }

    fn owns(&self, holder: Holder, target: Option<&Target>) -> bool {
        self.whole.contains_key(&holder) || target.is_some_and(|target| target.holders.contains_key(&holder))
    }

    /// Whether some target has as many holders as there may be, and `holder` is not one of them.
    fn others_fill(&self, holder: Option<Holder>, slots: usize) -> bool {
        let owns_whole = holder.is_some_and(|holder| self.whole.contains_key(&holder));
        if owns_whole {
            return false;
        }
        if self.whole.len() >= slots {
            return true;
        }
        let largest = self.crowds.last_key_value().map_or(0, |(crowd, _)| *crowd);
        if largest + self.whole.len() < slots {
            return false;
        }
        let turn = holder.and_then(|holder| self.turns.get(&holder));
        if turn.is_none() && self.whole.is_empty() {
            return true;
        }
        self.targets.values().any(|target| {
            !target.holders.is_empty()
                && self.crowd(Some(target)) >= slots
                && !holder.is_some_and(|holder| target.holders.contains_key(&holder))
        })
    }

    fn whole_head(&self) -> Option<Rank> {
        self.classes.get(&[][..]).map(|class| class.head)
    }

    fn put_head(&mut self, members: &[u32], head: Rank) {
        self.heads.insert(head);
        for member in members {
            self.targets.entry(*member).or_default().line.insert(head);
        }
    }

    fn take_head(&mut self, members: &[u32], head: Rank) {
        self.heads.remove(&head);
        for member in members {
            if let Some(target) = self.targets.get_mut(member) {
                target.line.remove(&head);
            }
        }
    }

    fn wake(&self, member: u32, woken: &mut Woken) {
        let first = self.targets.get(&member).and_then(|target| target.line.first());
        woken.extend(first.map(|first| (*first, Some(member))));
    }

    fn wake_joiners(&self, holder: Holder, member: Option<u32>, woken: &mut Woken) {
        if let Holder::Party(party) = holder {
            let range = (party, member, Rank::FIRST)..=(party, member, Rank::LAST);
            woken.extend(self.joiners.range(range).map(|(_, _, rank)| (*rank, None)));
        }
    }

    fn each_joiner(
        &mut self,
        claim: &Claim,
        rank: Rank,
        mut act: impl FnMut(&mut BTreeSet<(u64, Option<u32>, Rank)>, (u64, Option<u32>, Rank)),
    ) {
        if claim.party == 0 {
            return;
        }
        if claim.targets.members.is_empty() {
            act(&mut self.joiners, (claim.party, None, rank));
        }
        for member in &claim.targets.members {
            act(&mut self.joiners, (claim.party, Some(*member), rank));
        }
    }

    fn recount(&mut self, before: usize, after: usize) {
        if let Some(targets) = self.crowds.get_mut(&before) {
            *targets -= 1;
            if *targets == 0 {
                self.crowds.remove(&before);
            }
        }
        if after > 0 {
            *self.crowds.entry(after).or_default() += 1;
        }
    }

    /// Forgets those of these targets that nobody waits for or holds.
    fn tidy(&mut self, members: &[u32]) {
        for member in members {
            let is_idle = |target: &Target| target.line.is_empty() && target.holders.is_empty();
            if self.targets.get(member).is_some_and(is_idle) {
                self.targets.remove(member);
            }
        }
    }
}

/// Takes one from a holder's count; returns whether that was the last.
fn take_one(holders: &mut BTreeMap<Holder, u32>, holder: Holder) -> bool {
    let Some(claims) = holders.get_mut(&holder) else { return false };
    *claims -= 1;
    if *claims == 0 {
        holders.remove(&holder);
    }
    !holders.contains_key(&holder)
}
