//! Who gets what of caps that many gates share, written from the rules: what gates have said and were offered is one list, and all else is
//! counted anew from it with every report.
//!
//! Only what may be older than the list is kept: how far a class, and what is around classes, was filled when it was divided last.

use std::collections::{BTreeMap, BTreeSet};

use iogate_core::global_policy::{GateId, Grant, Level, Report, Terms, WHOLE, Want, level};
use iogate_core::policy::Leaf;
use iogate_core::{AppId, Span, Time};

/// Divides caps over gates, slowly.
#[derive(Debug)]
pub struct ReferenceAllotter {
    terms: Terms,
    began: Time,
    now: Time,
    gates: BTreeMap<GateId, Gate>,
    left: Vec<(Time, GateId, u64)>,
    parts_unknown: Option<u64>,
    /// By what is around classes: how it was divided last, and what each gets beyond its demand.
    pools: BTreeMap<Option<AppId>, (Level, u64)>,
    divided_at: Option<Time>,
    filled: BTreeMap<Leaf, Filled>,
}

#[derive(Debug, Default)]
struct Gate {
    number: u64,
    heard: Time,
    latest: Option<(u64, Time)>,
    applied: Option<(u64, Time)>,
    part_held: u64,
    part_offered: u64,
    places: BTreeMap<Leaf, Place>,
}

impl Gate {
    fn part(&self) -> u64 {
        self.part_held.max(self.part_offered)
    }
}

/// A class at a gate.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    demand: u64,
    used: u64,
    held: u64,
    offered: u64,
}

/// How a class was divided last.
#[derive(Clone, Copy, Debug)]
struct Filled {
    at: Time,
    usable: u64,
    level: u64,
    spare: u64,
    is_stale: bool,
}

/// What is not divided anew at once waits so long.
const PAUSE: Span = Span::from_millis(20);
/// A class of no more gates is.
const FEW: usize = 16;

impl ReferenceAllotter {
    /// One that knows nothing of what gates hold.
    pub fn new(terms: Terms, now: Time) -> ReferenceAllotter {
        ReferenceAllotter {
            terms,
            began: now,
            now,
            gates: BTreeMap::new(),
            left: Vec::new(),
            parts_unknown: None,
            pools: BTreeMap::new(),
            divided_at: None,
            filled: BTreeMap::new(),
        }
    }

    /// Classes at gates: at how many each is, and what those ask for, use and may hold, in bytes a second.
    pub fn classes(&self) -> BTreeMap<Leaf, [u128; 4]> {
        let mut classes: BTreeMap<Leaf, [u128; 4]> = BTreeMap::new();
        for (leaf, place) in self.gates.values().flat_map(|gate| &gate.places) {
            let sums = classes.entry(*leaf).or_default();
            let more = [1, place.demand, place.used, place.held.max(place.offered)];
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += u128::from(more));
        }
        classes
    }

    /// What a report is answered; as [`Allotter::report`](iogate_core::global_policy::Allotter::report).
    pub fn report(&mut self, now: Time, id: GateId, report: &Report) -> Option<Grant> {
        self.go_on(now);
        let is_old = match self.gates.get(&id) {
            Some(gate) => gate.number >= report.number,
            None => self.left.iter().any(|(_, gone, number)| *gone == id && *number >= report.number),
        };
        if is_old {
            return None;
        }
        if report.leaves {
            if let Some(gate) = self.gates.remove(&id) {
                gate.places.into_keys().for_each(|leaf| self.change(leaf));
            }
            self.left.push((self.now, id, report.number));
            return None;
        }
        self.hear(id, report);
        self.divide();
        let classes = report.classes.iter().filter_map(|demand| self.offer(id, demand.leaf)).collect();
        let part = self.offer_part(id);
        self.gates.entry(id).or_default().latest = Some((report.number, self.now));
        let Terms { lease, every, .. } = self.terms;
        let learns = self.now < self.began + self.once();
        Some(Grant { number: report.number, lease, every, part, learns, classes })
    }

    fn once(&self) -> Span {
        self.terms.lease + self.terms.skew
    }

    /// Leases run out, gates are forgotten.
    fn go_on(&mut self, now: Time) {
        self.now = self.now.max(now);
        let (now, once, absent_max) = (self.now, self.once(), self.terms.absent_max);
        let mut changed = BTreeSet::new();
        for gate in self.gates.values_mut() {
            if gate.latest.is_some_and(|(_, sent)| now >= sent + once)
                || now >= gate.heard + once + absent_max
            {
                changed.extend(std::mem::take(&mut gate.places).into_keys());
            }
        }
        self.gates.retain(|_, gate| now < gate.heard + once + absent_max);
        self.left.retain(|(at, ..)| *at + absent_max > now);
        changed.into_iter().for_each(|leaf| self.change(leaf));
    }

    /// A class at a gate has come, gone, or wants something else.
    fn change(&mut self, leaf: Leaf) {
        if self.gates.values().any(|gate| gate.places.contains_key(&leaf)) {
            self.filled.entry(leaf).and_modify(|filled| filled.is_stale = true);
        } else {
            self.filled.remove(&leaf);
        }
    }

    fn hear(&mut self, id: GateId, report: &Report) {
        if !self.gates.contains_key(&id) && report.part > 0 {
            let parts: u64 = self.gates.values().map(Gate::part).sum();
            let unknown = self.parts_unknown.get_or_insert(WHOLE.saturating_sub(parts));
            *unknown = unknown.saturating_sub(report.part.into());
        }
        let gate = self.gates.entry(id).or_default();
        (gate.number, gate.heard) = (report.number, self.now);
        (gate.part_held, gate.part_offered) = (report.part.into(), 0);
        let answers = [gate.latest, gate.applied];
        gate.applied = answers.into_iter().flatten().find(|(number, _)| *number == report.applied);
        gate.latest = None;
        let before = gate.places.clone();
        // What it was offered before is void. Who comes stands beside those who go.
        gate.places.values_mut().for_each(|place| place.offered = 0);
        let mut named = BTreeSet::new();
        for demand in &report.classes {
            let leaf = demand.leaf;
            let Some(cap) = self.terms.cap_of(leaf) else { continue };
            if self.has_pools() && self.around(leaf).into_iter().any(|around| !self.is_in_use(around)) {
                self.divided_at = None;
            }
            let place =
                Place { demand: demand.demand.min(cap), used: demand.used, held: demand.held, offered: 0 };
            let old = self.gates.entry(id).or_default().places.insert(leaf, place);
            named.insert(leaf);
            if old.is_none_or(|old| old.demand != place.demand) {
                self.change(leaf);
            }
        }
        for leaf in before.into_keys().filter(|leaf| !named.contains(leaf)) {
            self.gates.entry(id).or_default().places.remove(&leaf);
            self.change(leaf);
        }
    }

    /// Whether more than caps of classes is divided.
    fn has_pools(&self) -> bool {
        self.terms.policy.total.is_some() || self.terms.policy.is_nested()
    }

    /// What is around a class, from the inside out, at last all that there is.
    fn around(&self, leaf: Leaf) -> Vec<Option<AppId>> {
        self.terms.policy.branches_around(leaf.within).map(Some).chain([None]).collect()
    }

    fn is_in_use(&self, around: Option<AppId>) -> bool {
        self.classes().into_keys().any(|leaf| self.around(leaf).contains(&around))
    }

    /// So much of a cap is not kept for gates that may use their parts of it.
    fn usable(&self, cap: u64) -> u64 {
        let once = self.once();
        let is_absent = |gate: &&Gate| gate.applied.is_none_or(|(_, sent)| self.now >= sent + once);
        let absent: u64 = self.gates.values().filter(is_absent).map(Gate::part).sum();
        let kept = u128::from(cap) * u128::from(absent + self.unknown());
        cap.saturating_sub(u64::try_from(kept.div_ceil(u128::from(WHOLE))).unwrap_or(u64::MAX))
    }

    fn unknown(&self) -> u64 {
        let is_early = self.now < self.began + self.terms.absent_max;
        self.parts_unknown.filter(|_| is_early).unwrap_or(0)
    }

    /// Divides the total and the caps of branches, if it is time. What nobody asks for is spread, and one share of it left for who comes.
    fn divide(&mut self) {
        if !self.has_pools() || self.divided_at.is_some_and(|at| self.now.since(at) < PAUSE) {
            return;
        }
        self.divided_at = Some(self.now);
        self.pools.clear();
        self.divide_within(None, u64::MAX);
    }

    fn divide_within(&mut self, around: Option<AppId>, budget: u64) {
        let budget = budget.min(self.most(around));
        let wants = self.wants_within(around);
        let asked = wants.iter().fold(0u64, |sum, (_, want)| sum.saturating_add(want.demand));
        let wanted: Vec<Want> = wants.iter().map(|(_, want)| *want).collect();
        let level = Level::of(budget, &wanted);
        let spare = if level.is_full() { budget.saturating_sub(asked) / (wants.len() as u64 + 1) } else { 0 };
        self.pools.insert(around, (level, spare));
        for (branch, want) in wants {
            if branch.is_some() {
                self.divide_within(branch, level.of_want(&want).saturating_add(spare));
            }
        }
    }

    fn most(&self, around: Option<AppId>) -> u64 {
        self.terms.policy.cap_around(around).map_or(u64::MAX, |cap| self.usable(cap.get()))
    }

    /// What is asked of a branch, or of all that there is, by each branch and class that is directly within it.
    fn wants_within(&self, around: Option<AppId>) -> Vec<(Option<AppId>, Want)> {
        let classes = self.classes();
        let policy = &self.terms.policy;
        let is_here = |branch: &AppId| policy.branches_around(Some(*branch)).nth(1) == around;
        let branches: BTreeSet<AppId> = classes
            .keys()
            .flat_map(|leaf| policy.branches_around(leaf.within).collect::<Vec<_>>())
            .filter(is_here)
            .collect();
        let of_branches = branches.into_iter().map(|branch| (Some(branch), self.want_of_branch(branch)));
        let leaves = classes.keys().filter(|leaf| leaf.within == around);
        let of_leaves: Vec<_> = leaves.map(|leaf| (None, self.want(*leaf))).collect();
        of_branches.chain(of_leaves).collect()
    }

    /// A branch asks for what is asked of it, and is promised what that is promised, or its own floor.
    fn want_of_branch(&self, branch: AppId) -> Want {
        let entitlement = self.terms.policy.branch(branch).unwrap_or_default().entitlement;
        let wants = self.wants_within(Some(branch));
        let sum =
            |of: fn(&Want) -> u64| wants.iter().fold(0u64, |sum, (_, want)| sum.saturating_add(of(want)));
        let floor =
            entitlement.min.bytes.map_or(0, |min| min.get()).max(sum(|want| want.floor.min(want.demand)));
        let demand = sum(|want| want.demand).min(self.most(Some(branch)));
        Want { weight: entitlement.weight, floor, demand }
    }

    fn want(&self, leaf: Leaf) -> Want {
        let entitlement = self.terms.policy.of(leaf);
        let all = self.demands(leaf).into_iter().map(u128::from).sum::<u128>();
        let cap = self.terms.cap_of(leaf).unwrap_or(0);
        let floor = entitlement.min.bytes.map_or(0, |min| min.get());
        Want { weight: entitlement.weight, floor, demand: u64::try_from(all).unwrap_or(u64::MAX).min(cap) }
    }

    fn demands(&self, leaf: Leaf) -> Vec<u64> {
        self.gates.values().filter_map(|gate| gate.places.get(&leaf)).map(|place| place.demand).collect()
    }

    /// What gates may hold of all classes of which this is so.
    fn committed(&self, is_meant: impl Fn(Leaf) -> bool) -> u64 {
        let meant = self.classes().into_iter().filter(|(leaf, _)| is_meant(*leaf));
        u64::try_from(meant.map(|(_, [.., committed])| committed).sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// Offers a gate what it is to have of a class, but no more beyond what it holds than nobody holds.
    fn offer(&mut self, id: GateId, leaf: Leaf) -> Option<(Leaf, u64)> {
        let cap = self.terms.cap_of(leaf)?;
        let usable = self.usable(cap);
        let filled = self.fill(leaf, usable);
        let mut free = usable.saturating_sub(self.committed(|other| other == leaf));
        if self.has_pools() {
            for around in self.around(leaf) {
                if let Some(cap) = self.terms.policy.cap_around(around) {
                    let committed = self.committed(|other| self.around(other).contains(&around));
                    free = free.min(self.usable(cap.get()).saturating_sub(committed));
                }
            }
        }
        let learns = self.now < self.began + self.once();
        let place = self.gates.get_mut(&id)?.places.get_mut(&leaf)?;
        let target = match place.demand {
            0 => 0,
            demand => demand.min(filled.level).saturating_add(filled.spare),
        };
        place.offered = if learns { place.held } else { target.min(place.held.saturating_add(free)) };
        Some((leaf, place.offered))
    }

    /// How far a class is filled: anew, if it is time.
    fn fill(&mut self, leaf: Leaf, usable: u64) -> Filled {
        let demands = self.demands(leaf);
        if let Some(filled) = self.filled.get(&leaf) {
            let is_time = demands.len() <= FEW || self.now.since(filled.at) >= PAUSE;
            let is_due = filled.usable != usable
                || self.divided_at.is_some_and(|at| at > filled.at)
                || filled.is_stale && is_time;
            if !is_due {
                return *filled;
            }
        }
        let share = match self.pools.get(&leaf.within) {
            Some((level, spare)) => level.of_want(&self.want(leaf)).saturating_add(*spare),
            None if self.has_pools() => 0,
            None => usable,
        };
        let budget = usable.min(share);
        let mut asking: Vec<u64> = demands.into_iter().filter(|demand| *demand > 0).collect();
        let to = level(budget, &mut asking);
        let asked: u64 = asking.iter().fold(0, |sum, demand| sum.saturating_add(*demand));
        let spare = if to == u64::MAX { budget.saturating_sub(asked) / (asking.len() as u64 + 1) } else { 0 };
        let filled = Filled { at: self.now, usable, level: to, spare, is_stale: false };
        self.filled.insert(leaf, filled);
        filled
    }

    /// Offers a gate its part of all caps: the same for each, as far as others have given it up.
    fn offer_part(&mut self, id: GateId) -> u32 {
        let parts: u64 = self.gates.values().map(Gate::part).sum();
        let free = WHOLE.saturating_sub(parts + self.unknown());
        let each = WHOLE / self.gates.len().max(1) as u64;
        let Some(gate) = self.gates.get_mut(&id) else { return 0 };
        gate.part_offered = each.min(gate.part_held + free).min(u32::MAX.into());
        gate.part_offered as u32
    }
}
