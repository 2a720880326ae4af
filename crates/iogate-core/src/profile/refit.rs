//! A profile from live traffic: robust, forgetting, in a few kilobytes.
//!
//! Its cells are those of `fit`; where that has stretches, dispatches are taken [`STRETCH`] at a time.
//! Each cell keeps a location and a scale (Huber's estimator, one step a dispatch): a time moves the location by its distance, but by
//! no more than one scale, over the number of those before it, which counts up to [`MEMORY`]. So a disturbance that is a thousand times as
//! long counts as one that is twice as long, and what was so long ago is forgotten.
//!
//! Dispatches that are alone in service tell what they cost; those that share it tell X(n), by Little's law: each an nth of its time,
//! as a part of what the profile of the beginning says that it takes alone. Numbers in flight between two of [`IN_FLIGHT`] count under
//! the nearer one. Where an operation was never alone and nothing is kept, the lines are as many times as long as assumed as makes
//! the assumed X(n) true that was seen most. Whether the profile
//! explains what it sees is judged by sums of [`BATCH`] dispatches, as single ones of a disk differ by a revolution.

use super::costs::{Class, Costs};
use super::findings::{BYTES_MAX, Finding, Findings, SPREAD_MAX};
use super::fit::{BINS, Point, Points, assemble, bin, drained, is_cached_read};
use super::{IN_FLIGHT, Number, OpProfile, Profile, Sample, interval, nearest};
use crate::request::Op;

/// How many dispatches a cell remembers, about.
const MEMORY: u32 = 512;
/// Dispatches of a stretch.
const STRETCH: u32 = 16;
/// Dispatches of a cell that count in full, as nothing is known yet.
const FIRST: u32 = 8;
/// Dispatches whose sum is compared with what was expected.
const BATCH: u32 = 16;
/// Dispatches between two looks at what the cells say.
const REFRESH: u64 = 4_096;
/// Dispatches beside others by which X(n) is believed.
const SHARED_MIN: u32 = 64;
/// How many values a cell alone in service has at most that was learnt before: what comes now says more of what the storage is now.
const BEFORE_MAX: u32 = 16;
/// One part in so many of what was learnt before that it may be off by now, at least: what always took the same may be another thing.
const BEFORE_OFF: i64 = 16;
/// Bits after the binary point of the part of a dispatch's time that one beside others takes.
const PART: u32 = 20;
/// Bits after the binary point of a cell's numbers.
const FRACTION: u32 = 8;
/// Thousandths of the time beyond which a profile does not explain what happens.
const UNEXPLAINED: u32 = 300;

/// The middle half of a normal distribution is so many thousandths of a mean deviation wide.
const MIDDLE_HALF: u64 = 1_700;

/// A location and a scale.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    location: i64,
    scale: i64,
    bytes: u32,
    count: u32,
    /// The stretch that is not complete yet.
    sum: u64,
    summed: u32,
}

impl Cell {
    /// Adds one of a stretch. Disturbances only make it longer, so it is the lower quartile that is looked for.
    #[inline]
    fn add_to_stretch(&mut self, value: u64, bytes: u64) {
        self.sum += value.min(super::NS_MAX);
        self.summed += 1;
        if self.summed == STRETCH {
            self.add(self.sum / u64::from(STRETCH), bytes, 3);
            (self.sum, self.summed) = (0, 0);
        }
    }

    /// Adds a value. The location is where `down` times as many are above as below.
    #[inline]
    fn add(&mut self, value: u64, bytes: u64, down: i64) {
        let value = (value.min(super::NS_MAX) as i64) << FRACTION;
        self.count = self.count.saturating_add(1);
        let weight = i64::from(self.count.min(MEMORY));
        let distance = value - self.location;
        if self.count <= FIRST {
            self.location += distance / weight;
            self.scale += (distance.abs() - self.scale) / weight;
        } else {
            let scale = self.scale.max(1);
            // A power of two for the division, once it is reached.
            let step = distance.clamp(-scale, scale);
            let step = if step < 0 { step * down } else { step };
            let apart = distance.abs().min(4 * scale);
            (self.location, self.scale) = match weight == i64::from(MEMORY) {
                true => (
                    self.location + step / i64::from(MEMORY),
                    self.scale + (apart - scale) / i64::from(MEMORY),
                ),
                false => (self.location + 2 * step / weight, self.scale + (apart - scale) / weight),
            };
        }
        let bytes = bytes.min(BYTES_MAX) as i64;
        self.bytes = (i64::from(self.bytes) + (bytes - i64::from(self.bytes)) / weight.min(64)) as u32;
    }

    fn number(&self) -> Option<Number> {
        let value = (self.location >> FRACTION).max(1) as u64;
        let spread = (self.scale >> FRACTION).max(0) as u64 * MIDDLE_HALF / value;
        let spread = spread.min(SPREAD_MAX.into()) as u32;
        (self.count > 0).then_some(Number { value, count: self.count, spread })
    }

    /// One of which that was known before, by no more values than `count_max`.
    fn known(number: Number, bytes: u64, count_max: u32) -> Cell {
        let location = (number.value.min(super::NS_MAX) as i64) << FRACTION;
        let spread = i128::from(number.spread.min(SPREAD_MAX));
        let scale = (i128::from(location) * spread / i128::from(MIDDLE_HALF)) as i64;
        let scale = scale.max(location / BEFORE_OFF);
        let (bytes, count) = (bytes.min(BYTES_MAX) as u32, number.count.min(count_max));
        Cell { location, scale, bytes, count, ..Cell::default() }
    }
}

/// What a profile does not explain of an operation's dispatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexplained {
    /// Read or write.
    pub op: Op,
    /// Those that jump, or those that go on.
    pub jumps: bool,
    /// Thousandths of their time.
    pub share: u32,
}

/// Sums of a batch, and of all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Judge {
    expected: u64,
    measured: u64,
    dispatches: u32,
    off: u64,
    time: u64,
}

impl Judge {
    #[inline]
    fn add(&mut self, expected: u64, measured: u64) {
        self.expected += expected;
        self.measured += measured;
        self.dispatches += 1;
        if self.dispatches == BATCH {
            // Halved now and then, as by a memory of about 32 batches.
            self.off = self.off - self.off / 32 + self.expected.abs_diff(self.measured);
            self.time = self.time - self.time / 32 + self.measured.max(self.expected);
            (self.expected, self.measured, self.dispatches) = (0, 0, 0);
        }
    }
}

/// Which dispatches were measured: by operation and doubling of sizes, whether alone in service and whether beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage([[[bool; 2]; BINS]; 2]);

impl Coverage {
    /// Whether enough of about this size were measured, alone or not.
    pub fn has(&self, op: Op, bytes: u64, in_flight: usize) -> bool {
        self.0[op as usize][bin(bytes)][usize::from(in_flight > 1)]
    }
}

/// A profile that learns.
#[derive(Clone, Debug)]
pub struct Refit {
    kept: Profile,
    is_kept: bool,
    /// What the profile of the beginning says, and what is believed now.
    reference: Costs,
    costs: Costs,
    cells: [[[Cell; BINS]; 5]; 2],
    /// By operation, whether it jumps, interval and number in flight.
    shared: [[[[Cell; 6]; 2]; 2]; 2],
    judges: [[Judge; 2]; 2],
    /// Dispatches by operation and doubling of sizes, alone and beside others.
    counts: [[[u32; 2]; BINS]; 2],
    dispatches: u64,
    /// Dispatches behind what was learnt before.
    before: u64,
}

impl Refit {
    /// Whether it started from a kept profile.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// One that starts from a kept profile.
    pub fn from_kept(kept: Profile) -> Refit {
        Refit::new(kept, true)
    }

    /// One that knows nothing but whether the storage has an arm.
    pub fn from_nothing(kind: &str, rotational: bool) -> Refit {
        Refit::new(Profile::assumed(kind, rotational), false)
    }

    fn new(kept: Profile, is_kept: bool) -> Refit {
        Refit {
            reference: kept.costs(),
            costs: kept.costs(),
            kept,
            is_kept,
            cells: Default::default(),
            shared: Default::default(),
            judges: Default::default(),
            counts: Default::default(),
            dispatches: 0,
            before: 0,
        }
    }

    /// One that goes on where another one has ended, which had begun with nothing: what that has not seen is assumed, and of what it has
    /// seen no more counts than its last dispatches.
    pub fn from_findings(kind: &str, rotational: bool, findings: &Findings) -> Refit {
        let mut refit = Refit::from_nothing(kind, rotational);
        for &Finding { op, class, in_flight, bytes, ns } in findings.iter() {
            if in_flight == 1 {
                let of_stretch = if is_cached_read(op, class) { 1 } else { STRETCH };
                let count = &mut refit.counts[op as usize][bin(bytes)][0];
                *count = count.saturating_add(ns.count);
                let ns = Number { count: ns.count.div_ceil(of_stretch), ..ns };
                refit.cells[op as usize][class as usize][bin(bytes)] = Cell::known(ns, bytes, BEFORE_MAX);
            } else {
                let part = (ns.value << PART).div_ceil(refit.reference.alone_ns(op, class, bytes).max(1));
                let part = Cell::known(Number { value: part, ..ns }, bytes, SHARED_MIN);
                let jumps = usize::from(class == Class::Jump);
                refit.shared[op as usize][jumps][interval(bytes)][nearest(in_flight)] = part;
            }
        }
        for (op, bytes, dispatches) in findings.beside() {
            refit.counts[op as usize][bin(bytes)][1] = dispatches;
        }
        refit.before = findings.dispatches();
        refit.costs = refit.profile().costs();
        refit
    }

    /// What it has learnt, and what it knew of that before.
    pub fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        for op in [Op::Read, Op::Write] {
            for class in Class::ALL {
                let of_stretch = if is_cached_read(op, class) { 1 } else { STRETCH };
                for cell in &self.cells[op as usize][class as usize] {
                    let Some(ns) = cell.number() else { continue };
                    let ns = Number { count: ns.count.saturating_mul(of_stretch), ..ns };
                    findings.add(Finding { op, class, in_flight: 1, bytes: cell.bytes.into(), ns });
                }
            }
            for (class, cells) in [Class::Next, Class::Jump].into_iter().zip(&self.shared[op as usize]) {
                for (in_flight, cell) in cells.iter().flat_map(|cells| IN_FLIGHT.into_iter().zip(cells)) {
                    let Some(part) = cell.number() else { continue };
                    let bytes = u64::from(cell.bytes);
                    let alone = self.reference.alone_ns(op, class, bytes);
                    let value = (u128::from(part.value) * u128::from(alone)) >> PART;
                    let value = value.clamp(1, u128::from(super::NS_MAX)) as u64;
                    findings.add(Finding { op, class, in_flight, bytes, ns: Number { value, ..part } });
                }
            }
            for (bin, count) in self.counts[op as usize].iter().enumerate() {
                findings.set_beside(op, 4_096 << bin, count[1]);
            }
        }
        findings
    }

    /// A dispatch took so long.
    #[inline]
    pub fn add(&mut self, sample: Sample) {
        let Sample { op, class, bytes, in_flight, ns } = sample;
        if in_flight <= 1 {
            let cell = &mut self.cells[op as usize][class as usize][bin(bytes)];
            match is_cached_read(op, class) {
                true => cell.add(ns, bytes, 1),
                false => cell.add_to_stretch(ns, bytes),
            }
        } else {
            let alone = self.reference.alone_ns(op, class, bytes);
            let part = (ns.min(super::NS_MAX) << PART) / (u64::from(in_flight) * alone.max(1));
            let jumps = usize::from(class == Class::Jump);
            self.shared[op as usize][jumps][interval(bytes)][nearest(in_flight)].add(part, bytes, 1);
        }
        let ns = ns.min(super::NS_MAX);
        let expected = self.costs.shared_ns(op, class, bytes, in_flight as usize);
        self.judges[op as usize][usize::from(class == Class::Jump)].add(expected, ns);
        let count = &mut self.counts[op as usize][bin(bytes)][usize::from(in_flight > 1)];
        *count = count.saturating_add(1);
        self.dispatches += 1;
        if self.dispatches.is_multiple_of(REFRESH)
            || (self.dispatches < REFRESH && self.dispatches.is_power_of_two())
        {
            self.costs = self.profile().costs();
        }
    }

    /// The profile as it is now.
    pub fn profile(&self) -> Profile {
        let mut profile = self.kept.clone();
        for op in [Op::Read, Op::Write] {
            let mut points = Points::default();
            for (cell, point) in
                self.cells[op as usize].iter().flatten().zip(points.cells.iter_mut().flatten())
            {
                *point = cell.number().map(|ns| Point { bytes: cell.bytes.into(), ns });
            }
            for class in Class::ALL.into_iter().filter(|class| !is_cached_read(op, *class)) {
                for point in points.cells[class as usize].iter_mut().flatten() {
                    point.ns.count = point.ns.count.saturating_mul(STRETCH);
                }
            }
            let other = if self.is_kept { *self.kept.of(op) } else { self.scaled(op, &points) };
            let alone = assemble(&points, &other, self.is_kept);
            points.speedup = self.speedups(op, &alone);
            *profile.of_mut(op) = assemble(&points, &other, self.is_kept);
        }
        drained(&mut profile);
        profile
    }

    /// The cells of those that jump, or do not, by n, with enough in them.
    fn seen(&self, op: Op, jumps: usize, interval: usize) -> impl Iterator<Item = (usize, &Cell)> {
        self.shared[op as usize][jumps][interval]
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.count >= SHARED_MIN)
    }

    /// What is assumed of an operation, its lines as many times as long as what was never alone shows.
    fn scaled(&self, op: Op, points: &Points) -> OpProfile {
        let mut other = *self.kept.of(op);
        let alone = |classes: &[Class]| {
            classes.iter().any(|class| points.cells[*class as usize].iter().flatten().next().is_some())
        };
        let is_alone = [alone(&Class::ALL[..4]), alone(&[Class::Jump])];
        for jumps in [0, 1] {
            if is_alone[jumps] {
                continue;
            }
            let most = |interval: usize| {
                let (n, cell) = self.seen(op, jumps, interval).max_by_key(|(_, cell)| cell.count)?;
                let part = (cell.location >> FRACTION).max(1) as u64;
                Some(part * other.speedup[interval][n].value / 1_000)
            };
            let found = [most(0), most(1)];
            let lines = if jumps == 1 { &mut other.random } else { &mut other.sequential };
            for (line, factor) in lines.iter_mut().zip([found[0].or(found[1]), found[1].or(found[0])]) {
                let Some(factor) = factor else { continue };
                for end in [&mut line.low, &mut line.high] {
                    let scaled = (u128::from(end.value) * u128::from(factor)) >> PART;
                    end.value = scaled.clamp(1, u128::from(super::NS_MAX)) as u64;
                }
            }
        }
        other
    }

    /// X(n) / X(1) as far as it was seen, where a dispatch alone takes what `alone` says; what is only assumed lies between its neighbours.
    fn speedups(&self, op: Op, alone: &OpProfile) -> [[Option<Number>; 6]; 2] {
        let mut now = self.kept.clone();
        *now.of_mut(op) = *alone;
        let costs = now.costs();
        let mut speedups = [[None; 6]; 2];
        for (interval, speedups) in speedups.iter_mut().enumerate() {
            let mut counts = [0; 6];
            for (jumps, class) in [(1, Class::Jump), (0, Class::Next)] {
                for (index, cell) in self.seen(op, jumps, interval) {
                    let Some(number) = cell.number().filter(|number| number.count > counts[index]) else {
                        continue;
                    };
                    counts[index] = number.count;
                    let (bytes, n) = (u64::from(cell.bytes), u64::from(IN_FLIGHT[index]));
                    let [now, then] = [&costs, &self.reference].map(|costs| costs.alone_ns(op, class, bytes));
                    let value = ((u128::from(now) * 1_000) << PART)
                        / (u128::from(then.max(1)) * u128::from(number.value));
                    let value = value.clamp(1, u128::from(n) * 1_000) as u64;
                    speedups[index] = Some(Number { value, ..number });
                }
            }
            for index in 1..speedups.len() {
                let assumed = self.kept.of(op).speedup[interval][index];
                if speedups[index].is_some() || assumed.count > 0 {
                    continue;
                }
                let below = (1..index).rev().find_map(|below| speedups[below].filter(|of| of.count > 0));
                let above = speedups[index + 1..].iter().flatten().find(|of| of.count > 0);
                let least = below.map_or(1_000.min(above.map_or(1_000, |of| of.value)), |of| of.value);
                let most = above.map_or(u64::MAX, |of| of.value).max(least);
                if below.is_some() || above.is_some() {
                    speedups[index] = Some(Number::assumed(assumed.value.clamp(least, most)));
                }
            }
        }
        speedups
    }

    /// Where more than 30 % of the time is not explained, by sums of 16 dispatches.
    pub fn unexplained(&self) -> impl Iterator<Item = Unexplained> + '_ {
        [Op::Read, Op::Write].into_iter().flat_map(move |op| {
            self.judges[op as usize].iter().enumerate().filter_map(move |(jumps, judge)| {
                let share = (judge.off.saturating_mul(1_000) / judge.time.max(1)) as u32;
                (share > UNEXPLAINED).then_some(Unexplained { op, jumps: jumps == 1, share })
            })
        })
    }

    /// Of which dispatches it has seen as many as it believes.
    pub fn coverage(&self) -> Coverage {
        Coverage(self.counts.map(|bins| bins.map(|[alone, shared]| [alone >= STRETCH, shared >= SHARED_MIN])))
    }

    /// How many dispatches it has seen, with those behind what was learnt before.
    pub fn dispatches(&self) -> u64 {
        self.before.saturating_add(self.dispatches)
    }
}
