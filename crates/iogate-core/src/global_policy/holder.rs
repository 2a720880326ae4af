//! A gate's side: what it holds, until when, and what it has when nobody answers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::division::{Division, PoolId};
use super::fill::Want;
use super::meter::{Meter, Usage};
use super::{Demand, Grant, Report, Terms, TooManyClasses, WHOLE};
use crate::policy::Leaf;
use crate::time::{Span, Time};
use crate::wire::CLASSES_MAX;

/// By what a gate goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has had no grant yet: it has nothing, for the length of a lease and the grace; then as [`Phase::Alone`].
    New,
    /// It holds a lease.
    Lease,
    /// The lease has run out, those of others may not have: the less of the lease and its part.
    Grace,
    /// Its part.
    Alone,
    /// It has left: nothing.
    Left,
}

/// What one gate may use of caps that all gates share. Times are by the gate's own clock.
#[derive(Debug)]
pub struct Holder {
    terms: Terms,
    /// How many gates are expected, where nobody has ever said how many there are.
    expected: u32,
    /// The latest report, and when it was sent; whether its answer has not come.
    number: u64,
    sent: Time,
    is_asking: bool,
    /// Whether the latest report was without classes, as there were too many.
    is_bare: bool,
    /// The report whose grant it goes by, and until when; 0: none.
    applied: u64,
    until: Time,
    /// From when on it has its part without a lease.
    alone_from: Time,
    /// The end of what it went by before allotters that learnt went on with that.
    known_until: Time,
    /// When to report next.
    due: Time,
    every: Span,
    part: u64,
    has_left: bool,
    classes: BTreeMap<Leaf, Held>,
    /// How its part of the total and of caps of branches is divided, if there are any.
    division: Division,
}

#[derive(Debug)]
struct Held {
    cap: u64,
    /// What it is within, if more than caps of classes is divided, and what it asks of that but for its demand.
    pool: Option<PoolId>,
    claim: Want,
    /// By the lease, and by the one before.
    granted: u64,
    before: u64,
    /// Without one.
    alone: u64,
    meter: Meter,
    /// Whether the gate still knows the class.
    is_seen: bool,
}

impl Held {
    fn new(cap: u64, pool: Option<PoolId>, claim: Want) -> Held {
        let meter = Meter::default();
        Held { cap, pool, claim, granted: 0, before: 0, alone: 0, meter, is_seen: false }
    }

    /// What it asks of what it is within, where the gate has this part of every cap.
    fn want(&self, part: u64) -> Want {
        Want { demand: self.meter.demand().min(part_of(self.cap, part)), ..self.claim }
    }
}

/// The answer to a report is given up after so many times the time between reports.
const PATIENCE: u64 = 4;

impl Holder {
    /// One that holds nothing. `expected`: how many gates there are thought to be where no allotter has ever answered; 0: such a gate gets
    /// nothing.
    pub fn new(terms: Terms, expected: u32, now: Time) -> Holder {
        Holder {
            every: terms.every,
            alone_from: now + terms.lease + terms.grace(),
            terms,
            expected,
            number: 0,
            sent: now,
            is_asking: false,
            is_bare: false,
            applied: 0,
            until: now,
            known_until: now,
            due: now,
            part: 0,
            has_left: false,
            classes: BTreeMap::new(),
            division: Division::default(),
        }
    }

    /// By what it goes at `now`.
    pub fn phase(&self, now: Time) -> Phase {
        match now {
            _ if self.has_left => Phase::Left,
            _ if self.applied > 0 && now < self.until => Phase::Lease,
            _ if now >= self.alone_from => Phase::Alone,
            _ if self.applied == 0 => Phase::New,
            _ => Phase::Grace,
        }
    }

    /// What a class may use at `now`, in bytes a second; `None`: as much as it likes, as it has no cap.
    pub fn rate(&self, now: Time, leaf: Leaf) -> Option<u64> {
        match self.classes.get(&leaf) {
            Some(held) => Some(self.rate_of(self.phase(now), held)),
            None => self.terms.cap_of(leaf).map(|_| 0),
        }
    }

    fn rate_of(&self, phase: Phase, held: &Held) -> u64 {
        let alone = || if held.pool.is_some() { held.alone } else { part_of(held.cap, self.part_in_use()) };
        match phase {
            Phase::Lease => held.granted,
            Phase::Grace => held.granted.min(alone()),
            Phase::Alone => alone(),
            Phase::New | Phase::Left => 0,
        }
    }

    /// Its part of every cap, in 2^-32, for when nobody answers.
    pub fn part(&self) -> u32 {
        u32::try_from(self.part).unwrap_or(u32::MAX)
    }

    /// What each class that has something may use at `now`: for [`Gate::allot`](crate::Gate::allot).
    pub fn rates(&self, now: Time) -> impl Iterator<Item = (Leaf, u64)> + '_ {
        let phase = self.phase(now);
        self.classes.iter().map(move |(leaf, held)| (*leaf, self.rate_of(phase, held)))
    }

    /// When rates next change by themselves.
    pub fn changes_at(&self, now: Time) -> Time {
        match self.phase(now) {
            Phase::Lease => self.until,
            Phase::New | Phase::Grace => self.alone_from,
            Phase::Alone | Phase::Left => Time::MAX,
        }
    }

    /// When it wants to report: [`Holder::report`] is to be called then.
    pub fn due(&self) -> Time {
        if self.has_left { Time::MAX } else { self.due }
    }

    /// A class waits that has nothing: a report is due at once, unless one is on its way.
    pub fn urge(&mut self, now: Time) {
        if !self.is_asking {
            self.due = self.due.min(now);
        }
    }

    /// Why it goes by its part although it is answered, if it does.
    pub fn excess(&self) -> Option<TooManyClasses> {
        self.is_bare.then_some(TooManyClasses)
    }

    /// What to send at `now`, as the gate has counted this up to now of all classes that it knows. Whatever was sent before is void.
    ///
    /// Of more classes than a report takes it has none, unless a lease still goes on: what the gate holds by it is nobody else's. Such a
    /// gate is known, but absent: its part is kept for it.
    pub fn report(&mut self, now: Time, usages: impl IntoIterator<Item = Usage>) -> Report {
        self.observe(now, usages);
        let phase = self.phase(now);
        let of = |(leaf, held): (&Leaf, &Held)| Demand {
            leaf: *leaf,
            demand: held.meter.demand(),
            used: held.meter.used(),
            held: self.rate_of(phase, held),
        };
        let has_something = |demand: &Demand| demand.demand > 0 || demand.held > 0;
        let mut classes: Vec<Demand> = self.classes.iter().map(of).filter(has_something).collect();
        self.is_bare = classes.len() > CLASSES_MAX && phase != Phase::Lease;
        if self.is_bare {
            classes.clear();
        }
        self.number += 1;
        (self.sent, self.is_asking) = (now, true);
        self.due = now + Span::from_nanos(self.every.as_nanos().saturating_mul(PATIENCE));
        Report {
            number: self.number,
            applied: if phase == Phase::Lease { self.applied } else { 0 },
            part: self.part(),
            leaves: false,
            classes,
        }
    }

    /// The gate ends: it uses nothing any more, and says so.
    pub fn leave(&mut self) -> Report {
        self.has_left = true;
        self.classes.clear();
        self.division = Division::default();
        self.number += 1;
        Report { number: self.number, leaves: true, ..Report::default() }
    }

    /// A grant has come. False: it answers no report, or an earlier one than the latest, or its lease is over, or the one that the report
    /// told of is.
    pub fn granted(&mut self, now: Time, grant: &Grant) -> bool {
        if self.has_left || !self.is_asking || grant.number != self.number {
            return false;
        }
        self.is_asking = false;
        self.every = grant.every;
        let until = self.sent + grant.lease;
        // The answer leaves the gate some of what the report says that it holds. If the lease by which it held that has run out meanwhile,
        // the allotter may have given it to others before the report came.
        let has_run_out = self.sent < self.until && self.until <= now;
        if now >= until || has_run_out {
            self.due = now;
            return false;
        }
        if self.is_bare {
            self.take_part(now, grant);
            return true;
        }
        let has_lease = self.phase(now) == Phase::Lease;
        let mut was_lowered = !has_lease;
        for held in self.classes.values_mut() {
            // What is not named is nothing.
            (held.before, held.granted) = (held.granted, 0);
        }
        for (leaf, rate) in &grant.classes {
            if let Some(held) = self.classes.get_mut(leaf) {
                held.granted = *rate;
            }
        }
        was_lowered |= self.classes.values().any(|held| held.granted < held.before);
        was_lowered |= u64::from(grant.part) < self.part;
        let goes_on = grant.learns && has_lease;
        self.known_until = if goes_on { self.known_until } else { until };
        let until = until.min(self.known_until + self.terms.goes_on());
        (self.applied, self.until, self.part) = (grant.number, until, grant.part.into());
        // The allotter takes it for present for a lease from its answer on, which may have come late, if the gate tells it of that.
        self.alone_from = now + self.terms.lease + self.terms.grace();
        // What it has given up somebody else may have as soon as it has said so.
        self.due = if was_lowered { now } else { (self.sent + self.every).max(now) };
        true
    }

    /// The answer to a report without classes. Of a larger part than before others may have a lease until the grace is over.
    fn take_part(&mut self, now: Time, grant: &Grant) {
        let part = u64::from(grant.part);
        if self.applied == 0 || part > self.part {
            let phase = self.phase(now);
            let rates: Vec<u64> = self.classes.values().map(|held| self.rate_of(phase, held)).collect();
            self.classes.values_mut().zip(rates).for_each(|(held, rate)| held.granted = rate);
            (self.applied, self.until) = (grant.number, now);
            self.alone_from = now + self.terms.grace();
        } else if self.phase(now) == Phase::Alone {
            // What its lease had does not count any more, and keeps no class here that is gone.
            self.classes.values_mut().for_each(|held| held.granted = 0);
        }
        self.part = part;
        self.divide_part();
        self.due = (self.sent + self.every).max(now);
    }

    fn observe(&mut self, now: Time, usages: impl IntoIterator<Item = Usage>) {
        self.classes.values_mut().for_each(|held| held.is_seen = false);
        for usage in usages {
            let rate = self.rate(now, usage.leaf);
            let held = match self.classes.get_mut(&usage.leaf) {
                Some(held) => held,
                None => {
                    let Some(new) = self.open(usage.leaf) else { continue };
                    self.classes.entry(usage.leaf).or_insert(new)
                }
            };
            held.meter.observe(now, &usage, rate.unwrap_or(0), self.every);
            held.is_seen = true;
        }
        let division = &mut self.division;
        self.classes.retain(|_, held| {
            let stays = held.is_seen || held.granted > 0;
            held.pool.filter(|_| !stays).into_iter().for_each(|pool| division.leave(pool));
            stays
        });
        for (leaf, held) in self.classes.iter_mut().filter(|(_, held)| !held.is_seen) {
            held.meter.observe(now, &Usage { leaf: *leaf, ..Usage::default() }, held.granted, self.every);
        }
        self.divide_part();
    }

    /// A class that it has not had; `None`: it has no cap.
    fn open(&mut self, leaf: Leaf) -> Option<Held> {
        let cap = self.terms.cap_of(leaf)?;
        let enter = || self.division.enter(&self.terms.policy, leaf.within).0;
        let pool = self.terms.has_pools().then(enter);
        Some(Held::new(cap, pool, self.terms.want(leaf, 0)))
    }

    /// Its part of every cap, in 2^-32, as it is to be used without a lease.
    fn part_in_use(&self) -> u64 {
        match self.applied {
            0 => WHOLE.checked_div(self.expected.into()).unwrap_or(0),
            // 0, too: others have not given up yet what is to be its part.
            _ => self.part,
        }
    }

    /// Its part of a total, and of the caps of branches, is divided among its classes as the allotter divides all of it.
    fn divide_part(&mut self) {
        if !self.terms.has_pools() {
            return;
        }
        let part = self.part_in_use();
        self.division.begin();
        for held in self.classes.values() {
            if let Some(pool) = held.pool {
                self.division.want(pool, held.want(part));
            }
        }
        self.division.finish(|cap| part_of(cap, part));
        for held in self.classes.values_mut() {
            let share = held.pool.map_or(0, |pool| self.division.share(pool, &held.want(part)));
            held.alone = share.min(part_of(held.cap, part));
        }
    }
}

fn part_of(cap: u64, part: u64) -> u64 {
    (u128::from(cap) * u128::from(part) / u128::from(WHOLE)) as u64
}
