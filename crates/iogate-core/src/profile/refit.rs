//! A profile from live traffic: robust, forgetting, in a few kilobytes.
//!
//! Its cells are those of `fit`; where that has stretches, dispatches are taken [`STRETCH`] at a time.
//! Each cell keeps a location and a scale (Huber's estimator, one step a dispatch): a time moves the location by its distance, but by
//! no more than one scale, over the number of those before it, which counts up to [`MEMORY`]. So a disturbance that is a thousand times as
//! long counts as one that is twice as long, and what was so long ago is forgotten.
//!
//! Dispatches that are alone in service tell what they cost; those that share it tell X(n), by Little's law. Whether the profile
//! explains what it sees is judged by sums of [`BATCH`] dispatches, as single ones of a disk differ by a revolution.

use super::costs::{Class, Costs};
use super::fit::{BINS, Point, Points, assemble, bin, drained, is_cached_read};
use super::{IN_FLIGHT, Number, Profile, Sample, interval};
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
/// Bits after the binary point of a cell's numbers.
const FRACTION: u32 = 8;
/// Thousandths of the time beyond which a profile does not explain what happens.
const UNEXPLAINED: u32 = 300;

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
        let bytes = bytes.min(u64::from(u32::MAX) / 2) as i64;
        self.bytes = (i64::from(self.bytes) + (bytes - i64::from(self.bytes)) / weight.min(64)) as u32;
    }

    fn number(&self) -> Option<Number> {
        let value = (self.location >> FRACTION).max(1) as u64;
        // The middle half of a normal distribution is 1.7 mean deviations wide.
        let spread = ((self.scale >> FRACTION).max(0) as u64 * 1_700 / value).min(1_000_000) as u32;
        (self.count > 0).then_some(Number { value, count: self.count, spread })
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

/// A profile that learns.
#[derive(Clone, Debug)]
pub struct Refit {
    kept: Profile,
    is_kept: bool,
    costs: Costs,
    cells: [[[Cell; BINS]; 5]; 2],
    shared: [[[Cell; 6]; 2]; 2],
    judges: [[Judge; 2]; 2],
    dispatches: u64,
}

impl Refit {
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
            costs: kept.costs(),
            kept,
            is_kept,
            cells: Default::default(),
            shared: Default::default(),
            judges: Default::default(),
            dispatches: 0,
        }
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
        } else if let Some(index) = IN_FLIGHT.iter().position(|n| *n == in_flight) {
            // By which factor it takes longer than alone.
            let alone = self.costs.alone_ns(op, class, bytes);
            let stretch = (ns.min(super::NS_MAX) << 10) / alone.max(1);
            self.shared[op as usize][interval(bytes)][index].add(stretch, bytes, 1);
        }
        let ns = ns.min(super::NS_MAX);
        let expected = self.costs.shared_ns(op, class, bytes, in_flight as usize);
        self.judges[op as usize][usize::from(class == Class::Jump)].add(expected, ns);
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
            for (cells, speedups) in self.shared[op as usize].iter().zip(&mut points.speedup) {
                for ((cell, speedup), n) in cells.iter().zip(speedups).zip(IN_FLIGHT) {
                    *speedup = cell.number().filter(|number| number.count >= 64).map(|stretch| {
                        let value = ((u64::from(n) * 1_000) << 10) / stretch.value.max(1);
                        Number { value: value.clamp(1, u64::from(n) * 1_000), ..stretch }
                    });
                }
            }
            *profile.of_mut(op) = assemble(&points, self.kept.of(op), self.is_kept);
        }
        drained(&mut profile);
        profile
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

    /// How many dispatches it has seen.
    pub fn dispatches(&self) -> u64 {
        self.dispatches
    }
}
