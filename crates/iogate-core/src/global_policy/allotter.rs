//! Who gets what of a class's cap, and of the caps around it: gates, leases, parts.
//!
//! What becomes of a report, in this order:
//!
//! 1. `hear`: what it says of the gate, its part and by which answer it goes.
//! 2. `take_in`: what it says of each class goes to that [`Class`], which adds up what its gates want and hold.
//! 3. `divide`, if it is time: the total and the caps of branches are divided among what is within them, by the [`Division`].
//! 4. `answer`: each class of the report is filled with its share, if that or a demand differs, and offers the gate its own of it, as far
//!    as nobody else may still hold it.
//!
//! Classes and what is around them have numbers and stay where they are in lists. A gate keeps those of its last report, as the next one
//! tells of the same ones in the same order, as a rule: then nothing is looked up by name.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::class::Class;
use super::division::Division;
use super::{Demand, Grant, Report, Terms, WHOLE};
use crate::hash::HashMap;
use crate::policy::Leaf;
use crate::request::AppId;
use crate::time::{Span, Time};

/// Names a gate to an allotter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(pub u64);

/// A class of more gates than a few is divided anew so often, at most, and what is around classes among them.
const PAUSE: Span = Span::from_millis(20);
/// Most gates that it knows; others are not answered.
const GATES_MAX: usize = 1 << 16;
/// Most answers that the next report of a gate may be the first to tell of.
const ANSWERS: usize = 2;

/// So many classes more than half of the list may be vacant.
const VACANT: usize = 64;

/// Gates that have left and are remembered, at most: a report that was under way comes soon, or never.
const LEFT_MAX: usize = 1 << 12;

/// Divides caps of classes and branches, and a total, over gates. `report` is O(classes of the report), and what is divided anew.
///
/// Time is the driver's, and never decreases. A driver that knows that a gate is gone for good says so with a report that leaves.
#[derive(Debug)]
pub struct Allotter {
    terms: Terms,
    began: Time,
    now: Time,
    gates: BTreeMap<GateId, Gate>,
    /// When something of a gate changes by itself.
    alarms: BTreeSet<(Time, GateId)>,
    /// Gates that have left lately: when, which, and the number of the report that said so.
    left: VecDeque<(Time, GateId, u64)>,
    /// Classes by number; those without a gate are vacant, no more than some of them than others.
    classes: Vec<Class>,
    vacant: Vec<u32>,
    numbers: HashMap<Leaf, u32>,
    /// Parts of all gates; of those of them that are absent; of those that nobody has heard of since the allotter began.
    parts: u64,
    parts_absent: u64,
    parts_unknown: Option<u64>,
    /// What is around classes that are here, and how and when it was divided, if more than caps of classes is.
    division: Division,
    divided_at: Option<Time>,
    /// For demands of a class while it is divided, and for what the next report tells of.
    demands: Vec<u64>,
    spare: Vec<Known>,
}

/// A class of a gate's report: its number, and where the gate was among its gates.
#[derive(Clone, Copy, Debug)]
struct Known {
    leaf: Leaf,
    class: u32,
    place: u32,
}

#[derive(Debug)]
struct Gate {
    /// Of its latest report.
    number: u64,
    heard: Time,
    /// The latest answers: to which report, and when.
    answers: [Option<(u64, Time)>; ANSWERS],
    /// When the answer was sent by which it goes.
    anchor: Option<Time>,
    /// Whether it may use its part instead of a lease.
    is_absent: bool,
    /// Whether it may have a lease.
    has_lease: bool,
    part_held: u64,
    part_offered: u64,
    /// Classes that it has something of, in the order of its report.
    known: Vec<Known>,
    alarm: Time,
}

impl Gate {
    fn part(&self) -> u64 {
        self.part_held.max(self.part_offered)
    }
}

/// What there is of one class, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allotted {
    /// Gates that have a demand of it, or hold something.
    pub gates: u32,
    /// What all of them ask for, use, and hold at most, in bytes a second.
    pub demand: u64,
    /// What they use.
    pub used: u64,
    /// What they may hold.
    pub committed: u64,
}

impl Allotted {
    fn of(class: &Class) -> Allotted {
        Allotted {
            gates: class.gates().len() as u32,
            demand: narrow(class.demand()),
            used: narrow(class.used()),
            committed: narrow(class.committed()),
        }
    }
}

fn narrow(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

impl Allotter {
    /// One that knows nothing of what gates hold.
    pub fn new(terms: Terms, now: Time) -> Allotter {
        Allotter {
            terms,
            began: now,
            now,
            gates: BTreeMap::new(),
            alarms: BTreeSet::new(),
            left: VecDeque::new(),
            classes: Vec::new(),
            vacant: Vec::new(),
            numbers: HashMap::default(),
            parts: 0,
            parts_absent: 0,
            parts_unknown: None,
            division: Division::default(),
            divided_at: None,
            demands: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// What it goes by.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Since when there is this one.
    pub fn began(&self) -> Time {
        self.began
    }

    /// Gates that it knows.
    pub fn gates(&self) -> usize {
        self.gates.len()
    }

    /// What there is of a class.
    pub fn allotted(&self, leaf: Leaf) -> Allotted {
        self.numbers
            .get(&leaf)
            .map_or(Allotted::default(), |class| Allotted::of(&self.classes[*class as usize]))
    }

    /// What there is of each class, in no order.
    pub fn classes(&self) -> impl Iterator<Item = (Leaf, Allotted)> + '_ {
        self.numbers.iter().map(|(leaf, class)| (*leaf, Allotted::of(&self.classes[*class as usize])))
    }

    /// What those within each branch have together, by number. O(classes at gates).
    pub fn branches(&self) -> BTreeMap<AppId, Allotted> {
        let mut branches: BTreeMap<AppId, (Allotted, BTreeSet<GateId>)> = BTreeMap::new();
        for (leaf, class) in &self.numbers {
            let class = &self.classes[*class as usize];
            let Allotted { demand, used, committed, .. } = Allotted::of(class);
            for branch in self.terms.policy.branches_around(leaf.within) {
                let (sum, gates) = branches.entry(branch).or_default();
                sum.demand = sum.demand.saturating_add(demand);
                sum.used = sum.used.saturating_add(used);
                sum.committed = sum.committed.saturating_add(committed);
                gates.extend(class.gates());
            }
        }
        let counted = |(branch, (sum, gates)): (AppId, (Allotted, BTreeSet<GateId>))| {
            (branch, Allotted { gates: gates.len() as u32, ..sum })
        };
        branches.into_iter().map(counted).collect()
    }

    /// A gate has reported. `None`: there is nothing to answer, as it is an older report than one that has come, or the gate leaves.
    pub fn report(&mut self, now: Time, id: GateId, report: &Report) -> Option<Grant> {
        self.go_on(now);
        if self.vacant.len() > self.numbers.len() + VACANT {
            self.close_ranks();
        }
        let is_old = match self.gates.get(&id) {
            Some(gate) => gate.number >= report.number,
            // One that was under way, on a connection that the gate has given up, must not bring it back.
            None => self.left.iter().any(|(_, gone, number)| *gone == id && *number >= report.number),
        };
        if is_old {
            return None;
        }
        if report.leaves {
            self.forget(id);
            self.left.truncate(LEFT_MAX - 1);
            self.left.push_front((self.now, id, report.number));
            return None;
        }
        if self.gates.len() >= GATES_MAX && !self.gates.contains_key(&id) {
            return None;
        }
        self.hear(id, report);
        self.take_in(id, report);
        Some(self.answer(id, report))
    }

    /// Goes on to `now`: leases run out, gates become absent and are forgotten.
    fn go_on(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(&(at, id)) = self.alarms.first().filter(|(at, _)| *at <= self.now) {
            self.alarms.remove(&(at, id));
            self.expire(id);
        }
        let (now, absent_max) = (self.now, self.terms.absent_max);
        while self.left.pop_back_if(|(at, ..)| *at + absent_max <= now).is_some() {}
    }

    fn once(&self) -> Span {
        self.terms.lease + self.terms.skew
    }

    /// What becomes of a gate by itself.
    fn expire(&mut self, id: GateId) {
        let (now, once, absent_max) = (self.now, self.once(), self.terms.absent_max);
        let Some(gate) = self.gates.get_mut(&id) else { return };
        if now >= gate.heard + once + absent_max {
            return self.forget(id);
        }
        let is_absent = gate.anchor.is_none_or(|anchor| now >= anchor + once);
        if is_absent && !gate.is_absent {
            gate.is_absent = true;
            self.parts_absent += gate.part();
        }
        let lease_end = gate.answers[0].map_or(now, |(_, sent)| sent + once);
        if gate.has_lease && now >= lease_end {
            gate.has_lease = false;
            let known = core::mem::take(&mut gate.known);
            known.into_iter().for_each(|known| self.clear(known.class, id, None));
        }
        self.plan(id);
    }

    /// Sets the alarm of a gate.
    fn plan(&mut self, id: GateId) {
        let (once, absent_max) = (self.once(), self.terms.absent_max);
        let Some(gate) = self.gates.get_mut(&id) else { return };
        let forgotten = gate.heard + once + absent_max;
        let absent = gate.anchor.filter(|_| !gate.is_absent).map(|anchor| anchor + once);
        let ends = gate.answers[0].filter(|_| gate.has_lease).map(|(_, sent)| sent + once);
        let at = [absent, ends].into_iter().flatten().fold(forgotten, Time::min);
        self.alarms.remove(&(gate.alarm, id));
        gate.alarm = at;
        self.alarms.insert((at, id));
    }

    /// A gate holds nothing, and has no part.
    fn forget(&mut self, id: GateId) {
        let Some(gate) = self.gates.remove(&id) else { return };
        self.alarms.remove(&(gate.alarm, id));
        self.parts -= gate.part();
        if gate.is_absent {
            self.parts_absent -= gate.part();
        }
        gate.known.into_iter().for_each(|known| self.clear(known.class, id, None));
    }

    fn clear(&mut self, number: u32, id: GateId, report: Option<u64>) {
        let class = &mut self.classes[number as usize];
        if class.gates().len() == 0 {
            return;
        }
        let before = class.committed();
        class.clear(id, report);
        let (after, is_gone, leaf, pool) =
            (class.committed(), class.gates().len() == 0, class.leaf, class.pool);
        self.division.commit(pool, before, after);
        if is_gone {
            self.numbers.remove(&leaf);
            self.vacant.push(number);
            pool.into_iter().for_each(|pool| self.division.leave(pool));
        }
    }

    /// Classes without a gate go, and others have their numbers: the list is as long as what is there. O(classes, and those of gates).
    fn close_ranks(&mut self) {
        let (mut after, mut stay) = (Vec::with_capacity(self.classes.len()), 0);
        for class in &self.classes {
            after.push(stay);
            stay += u32::from(class.gates().len() > 0);
        }
        self.classes.retain(|class| class.gates().len() > 0);
        self.classes.shrink_to_fit();
        self.numbers.shrink_to_fit();
        self.vacant = Vec::new();
        let known =
            self.gates.values_mut().flat_map(|gate| gate.known.iter_mut().map(|known| &mut known.class));
        known.chain(self.numbers.values_mut()).for_each(|number| *number = after[*number as usize]);
    }

    /// The number of a class, a new one if need be; `None`: it has no cap.
    fn open(&mut self, leaf: Leaf) -> Option<u32> {
        if let Some(number) = self.numbers.get(&leaf) {
            return Some(*number);
        }
        let cap = self.terms.cap_of(leaf)?;
        let pool = self.terms.has_pools().then(|| {
            let (pool, is_new) = self.division.enter(&self.terms.policy, leaf.within);
            if is_new {
                // Who waits for it does not wait for the next division.
                self.divided_at = None;
            }
            pool
        });
        let class = Class::new(leaf, cap, pool, self.terms.want(leaf, 0));
        let number = match self.vacant.pop() {
            Some(number) => {
                self.classes[number as usize] = class;
                number
            }
            None => {
                self.classes.push(class);
                self.classes.len() as u32 - 1
            }
        };
        self.numbers.insert(leaf, number);
        Some(number)
    }

    /// What a report says of its gate.
    fn hear(&mut self, id: GateId, report: &Report) {
        let (now, once) = (self.now, self.once());
        let part = u64::from(report.part);
        if !self.gates.contains_key(&id) {
            if part > 0 {
                // It was here in an earlier life of the allotter. So were others, who have the rest.
                let unknown = self.parts_unknown.get_or_insert(WHOLE.saturating_sub(self.parts));
                *unknown = unknown.saturating_sub(part);
            }
            self.gates.insert(
                id,
                Gate {
                    number: 0,
                    heard: now,
                    answers: [None; ANSWERS],
                    anchor: None,
                    is_absent: true,
                    has_lease: false,
                    part_held: 0,
                    part_offered: 0,
                    known: Vec::new(),
                    alarm: now,
                },
            );
        }
        let Some(gate) = self.gates.get_mut(&id) else { return };
        let before = gate.part();
        let absent_before = if gate.is_absent { before } else { 0 };
        (gate.number, gate.heard) = (report.number, now);
        (gate.part_held, gate.part_offered) = (part, 0);
        let applied = gate.answers.iter().flatten().find(|(number, _)| *number == report.applied);
        gate.anchor = applied.map(|(_, sent)| *sent);
        gate.answers = [None, applied.copied()];
        gate.is_absent = gate.anchor.is_none_or(|anchor| now >= anchor + once);
        self.parts = self.parts - before + part;
        self.parts_absent = self.parts_absent - absent_before + if gate.is_absent { part } else { 0 };
    }

    /// What it says of classes. A gate tells of the same ones as before, in the same order, as a rule.
    fn take_in(&mut self, id: GateId, report: &Report) {
        let Some(gate) = self.gates.get_mut(&id) else { return };
        let (mut old, mut new) = (core::mem::take(&mut gate.known), core::mem::take(&mut self.spare));
        let (mut at, mut again) = (0, 0);
        for Demand { leaf, demand, used, held } in report.classes.iter().copied() {
            while old.get(at).is_some_and(|known| known.leaf < leaf) {
                at += 1;
            }
            let mut known = match old.get(at).filter(|known| known.leaf == leaf) {
                Some(known) => {
                    (at, again) = (at + 1, again + 1);
                    *known
                }
                None => match self.open(leaf) {
                    Some(class) => Known { leaf, class, place: 0 },
                    None => continue,
                },
            };
            let class = &mut self.classes[known.class as usize];
            let before = class.committed();
            let place = class.report((id, known.place as usize), report.number, [demand, used, held]);
            self.division.commit(class.pool, before, class.committed());
            known.place = place as u32;
            new.push(known);
        }
        if again < old.len() {
            for known in &old {
                self.clear(known.class, id, Some(report.number));
            }
        }
        old.clear();
        self.spare = old;
        if let Some(gate) = self.gates.get_mut(&id) {
            gate.known = new;
        }
    }

    /// How much of every cap is kept for gates that may use their parts of it.
    fn kept(&self) -> Kept {
        let is_early = self.now < self.began + self.terms.absent_max;
        let unknown = self.parts_unknown.filter(|_| is_early).unwrap_or(0);
        Kept(u128::from(self.parts_absent + unknown))
    }

    /// Divides the total and the caps of branches among what is in them, if it is time.
    fn divide(&mut self) {
        if !self.terms.has_pools() {
            return;
        }
        let pause = Span::from_micros(self.classes.len() as u64).max(PAUSE);
        if self.divided_at.is_some_and(|at| self.now.since(at) < pause) {
            return;
        }
        self.division.begin();
        for class in self.classes.iter().filter(|class| class.gates().len() > 0) {
            if let Some(pool) = class.pool {
                self.division.want(pool, class.want());
            }
        }
        let kept = self.kept();
        self.division.finish(|cap| kept.usable(cap));
        self.divided_at = Some(self.now);
    }

    fn answer(&mut self, id: GateId, report: &Report) -> Grant {
        let (now, kept) = (self.now, self.kept());
        let learns = now < self.began + self.once();
        self.divide();
        let mut demands = core::mem::take(&mut self.demands);
        let mut granted = Vec::with_capacity(report.classes.len());
        for known in self.gates.get(&id).into_iter().flat_map(|gate| &gate.known) {
            let class = &mut self.classes[known.class as usize];
            let usable = kept.usable(class.cap);
            if class.is_due(now, usable, self.divided_at, PAUSE) {
                let share = class.pool.map_or(usable, |pool| self.division.share(pool, &class.want()));
                class.fill(now, usable, share, &mut demands);
            }
            let before = class.committed();
            // How much may be given that nobody holds: of the class, and of all that it is within.
            let own = usable.saturating_sub(narrow(before));
            let free = own.min(self.division.free(class.pool, |cap| kept.usable(cap)));
            granted.push((known.leaf, class.offer((id, known.place as usize), free, learns)));
            self.division.commit(class.pool, before, class.committed());
        }
        self.demands = demands;
        let part = self.offer_part(id);
        if let Some(gate) = self.gates.get_mut(&id) {
            gate.answers[0] = Some((report.number, now));
            gate.has_lease = true;
        }
        self.plan(id);
        Grant {
            number: report.number,
            lease: self.terms.lease,
            every: self.terms.every,
            part,
            learns,
            classes: granted,
        }
    }

    /// Offers a gate its part of all caps: the same for each, as far as others have given it up.
    fn offer_part(&mut self, id: GateId) -> u32 {
        let is_early = self.now < self.began + self.terms.absent_max;
        let unknown = self.parts_unknown.filter(|_| is_early).unwrap_or(0);
        let free = WHOLE.saturating_sub(self.parts + unknown);
        let each = WHOLE / self.gates.len().max(1) as u64;
        let Some(gate) = self.gates.get_mut(&id) else { return 0 };
        let before = gate.part();
        gate.part_offered = each.min(gate.part_held + free).min(u32::MAX.into());
        let more = gate.part() - before;
        self.parts += more;
        if gate.is_absent {
            self.parts_absent += more;
        }
        gate.part_offered as u32
    }
}

/// Parts that are kept for gates that may use them, together, in 2^-32.
#[derive(Clone, Copy)]
struct Kept(u128);

impl Kept {
    /// So much of a cap is not.
    fn usable(self, cap: u64) -> u64 {
        let kept = (u128::from(cap) * self.0).div_ceil(u128::from(WHOLE));
        cap.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX))
    }
}
