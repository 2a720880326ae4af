//! Who gets what of a class's cap, and of the caps around it: gates, leases, parts.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::class::Class;
use super::division::Division;
use super::fill::Want;
use super::{Grant, Report, Terms, WHOLE};
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
    classes: HashMap<Leaf, Class>,
    /// What is around classes that are here: branches, and (`None`) all that there is.
    pools: HashMap<Option<AppId>, Pool>,
    /// Parts of all gates; of those of them that are absent; of those that nobody has heard of since the allotter began.
    parts: u64,
    parts_absent: u64,
    parts_unknown: Option<u64>,
    /// How pools were divided, and when, if there are any that have a cap.
    division: Division,
    divided_at: Option<Time>,
    /// Demands of a class while it is divided.
    demands: Vec<u64>,
}

/// What all classes in it have.
#[derive(Debug)]
struct Pool {
    cap: Option<u64>,
    /// What all gates may hold of them together.
    committed: u128,
    /// How many there are.
    classes: usize,
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
    /// Classes that it has something of.
    leaves: Vec<Leaf>,
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
            classes: HashMap::default(),
            pools: HashMap::default(),
            parts: 0,
            parts_absent: 0,
            parts_unknown: None,
            division: Division::default(),
            divided_at: None,
            demands: Vec::new(),
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
        self.classes.get(&leaf).map_or(Allotted::default(), Allotted::of)
    }

    /// What there is of each class, in no order.
    pub fn classes(&self) -> impl Iterator<Item = (Leaf, Allotted)> + '_ {
        self.classes.iter().map(|(leaf, class)| (*leaf, Allotted::of(class)))
    }

    /// What those within each branch have together, by number. O(classes at gates).
    pub fn branches(&self) -> BTreeMap<AppId, Allotted> {
        let mut branches: BTreeMap<AppId, (Allotted, BTreeSet<GateId>)> = BTreeMap::new();
        for (leaf, class) in &self.classes {
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
            let leaves = core::mem::take(&mut gate.leaves);
            leaves.into_iter().for_each(|leaf| self.clear(leaf, id, None));
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
        gate.leaves.into_iter().for_each(|leaf| self.clear(leaf, id, None));
    }

    fn clear(&mut self, leaf: Leaf, id: GateId, number: Option<u64>) {
        let Some(class) = self.classes.get_mut(&leaf) else { return };
        let before = class.committed();
        class.clear(id, number);
        let (after, is_gone) = (class.committed(), class.gates().len() == 0);
        self.commit(leaf, before, after);
        if is_gone {
            self.classes.remove(&leaf);
            for around in around(&self.terms, leaf) {
                let Some(pool) = self.pools.get_mut(&around) else { continue };
                pool.classes -= 1;
                if pool.classes == 0 {
                    self.pools.remove(&around);
                }
            }
        }
    }

    /// Gates may hold another sum of a class than before.
    fn commit(&mut self, leaf: Leaf, before: u128, after: u128) {
        for around in around(&self.terms, leaf) {
            if let Some(pool) = self.pools.get_mut(&around) {
                pool.committed = pool.committed - before + after;
            }
        }
    }

    /// A class is here, with this cap.
    fn open(&mut self, leaf: Leaf, cap: u64) {
        if self.classes.contains_key(&leaf) {
            return;
        }
        self.classes.insert(leaf, Class::new(cap));
        for around in around(&self.terms, leaf) {
            let cap = self.terms.policy.cap_around(around);
            let pool = self.pools.entry(around).or_insert_with(|| {
                // Who waits for it does not wait for the next division.
                self.divided_at = None;
                Pool { cap: cap.map(NonZeroU64::get), committed: 0, classes: 0 }
            });
            pool.classes += 1;
        }
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
                    leaves: Vec::new(),
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

    /// What it says of classes.
    fn take_in(&mut self, id: GateId, report: &Report) {
        let mut leaves = Vec::with_capacity(report.classes.len());
        for demand in &report.classes {
            let leaf = demand.leaf;
            let Some(cap) = self.terms.cap_of(leaf) else { continue };
            self.open(leaf, cap);
            let Some(class) = self.classes.get_mut(&leaf) else { continue };
            let before = class.committed();
            class.report(id, report.number, [demand.demand, demand.used, demand.held]);
            let after = class.committed();
            self.commit(leaf, before, after);
            leaves.push(leaf);
        }
        let Some(gate) = self.gates.get_mut(&id) else { return };
        let old = core::mem::replace(&mut gate.leaves, leaves);
        for leaf in old {
            self.clear(leaf, id, Some(report.number));
        }
    }

    /// So much of a cap is not kept for gates that may use their parts of it.
    fn usable(&self, cap: u64) -> u64 {
        let is_early = self.now < self.began + self.terms.absent_max;
        let unknown = self.parts_unknown.filter(|_| is_early).unwrap_or(0);
        let kept = u128::from(cap) * u128::from(self.parts_absent + unknown);
        cap.saturating_sub(u64::try_from(kept.div_ceil(u128::from(WHOLE))).unwrap_or(u64::MAX))
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
        let wants = self.classes.iter().map(|(leaf, class)| (*leaf, self.want(*leaf, class)));
        self.division = Division::of(&self.terms.policy, |cap| self.usable(cap), wants);
        self.divided_at = Some(self.now);
    }

    fn want(&self, leaf: Leaf, class: &Class) -> Want {
        self.terms.want(leaf, narrow(class.demand()).min(class.cap))
    }

    /// How much of a class may be given that nobody holds: of it, and of all that it is within.
    fn free(&self, leaf: Leaf, class: &Class) -> u64 {
        let left = |cap: u64, committed: u128| self.usable(cap).saturating_sub(narrow(committed));
        let pools = around(&self.terms, leaf).filter_map(|around| self.pools.get(&around));
        let around = pools.filter_map(|pool| Some(left(pool.cap?, pool.committed)));
        around.fold(left(class.cap, class.committed()), u64::min)
    }

    fn answer(&mut self, id: GateId, report: &Report) -> Grant {
        let now = self.now;
        let learns = now < self.began + self.once();
        self.divide();
        let mut demands = core::mem::take(&mut self.demands);
        let mut granted = Vec::with_capacity(report.classes.len());
        for demand in &report.classes {
            let leaf = demand.leaf;
            let Some(class) = self.classes.get(&leaf) else { continue };
            let usable = self.usable(class.cap);
            let share = match self.terms.has_pools() {
                true => self.division.share(leaf, &self.want(leaf, class)),
                false => usable,
            };
            let free = self.free(leaf, class);
            let Some(class) = self.classes.get_mut(&leaf) else { continue };
            if class.is_due(now, usable, self.divided_at, PAUSE) {
                class.fill(now, usable, share, &mut demands);
            }
            let before = class.committed();
            granted.push((leaf, class.offer(id, free, learns)));
            let after = class.committed();
            self.commit(leaf, before, after);
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

/// What is around a class, from the inside out, at last all that there is; nothing, where only caps of classes are divided.
fn around(terms: &Terms, leaf: Leaf) -> impl Iterator<Item = Option<AppId>> + '_ {
    let has_pools = terms.has_pools();
    terms.policy.branches_around(leaf.within).map(Some).chain([None]).take_while(move |_| has_pools)
}
