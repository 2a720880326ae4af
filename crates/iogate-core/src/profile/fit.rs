//! From measurements to a profile.
//!
//! A cell is an operation, a class and a doubling of sizes. Where a read may hit a cache, its time is the mean of the middle half of
//! what was measured. All others come in stretches: most are quick, as a cache takes them or has read ahead, and then one waits for
//! all of these. There it is the mean of a half, a little below the middle, of the means of [`BATCHES`] stretches, which has such
//! waits, and not what disturbs one dispatch now and then.
//!
//! The line of an interval goes through those two of its cells that make the sum of the relative errors at all of them the least. No
//! stream is faster than the best of the large sizes. What has no measurements comes from a kept profile, or else from its
//! neighbours: the assumed line, as many times as long as the nearest measured one is than assumed.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::costs::Class;
use super::{CacheProfile, IN_FLIGHT, Line, NS_MAX, Number, OpProfile, Profile, SIZES, interval};
use crate::request::Op;

/// Doublings of sizes from 4 KiB to 4 MiB.
pub(super) const BINS: usize = 11;
/// Stretches of a cell.
const BATCHES: usize = 16;
/// Most thousandths that a cell counts which a line misses: storage that changes its ways in between has cells that no line meets.
const MISSED: u64 = 300;
/// Fewest dispatches that a cell is believed with.
const COUNT_MIN: u32 = 8;

/// One dispatch that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Read or write.
    pub op: Op,
    /// Where it was, compared with those before it.
    pub class: Class,
    /// Its length.
    pub bytes: u64,
    /// How many were in service, itself included.
    pub in_flight: u32,
    /// How long it took.
    pub ns: u64,
}

/// A cell: so many bytes took so long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    pub(super) bytes: u64,
    pub(super) ns: Number,
}

/// All that is known of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Points {
    pub(super) cells: [[Option<Point>; BINS]; 5],
    /// X(n) / X(1) in thousandths, by interval and n.
    pub(super) speedup: [[Option<Number>; 6]; 2],
}

/// The doubling that a size belongs to.
#[inline]
pub(super) fn bin(bytes: u64) -> usize {
    let log2 = 64 - bytes.saturating_sub(1).leading_zeros() as usize;
    log2.clamp(12, 12 + BINS - 1) - 12
}

/// Measurements on their way to a profile.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    cells: BTreeMap<(u8, u8, u8, u32), Vec<u64>>,
    /// Bytes of all samples of a cell, whatever its n.
    bytes: BTreeMap<(u8, u8, u8), (u64, u64)>,
    cache: CacheProfile,
}

impl Fit {
    /// Adds a measurement.
    pub fn add(&mut self, sample: Sample) {
        let (op, class, bin) = (sample.op as u8, sample.class as u8, bin(sample.bytes) as u8);
        self.cells.entry((op, class, bin, sample.in_flight)).or_default().push(sample.ns.min(NS_MAX));
        let (bytes, count) = self.bytes.entry((op, class, bin)).or_default();
        *bytes += sample.bytes.min(1 << 30);
        *count += 1;
    }

    /// Adds what filled the write cache, in order: bytes and nanoseconds of each write. What comes before the rate drops to the
    /// lasting one was cached.
    pub fn fill(&mut self, writes: &[(u64, u64)]) {
        let ns_per_mib = |(bytes, ns): &(u64, u64)| ((*ns).min(NS_MAX) << 20) / (*bytes).max(1);
        let rate = |writes: &[(u64, u64)]| {
            let mut ns_per_mib: Vec<u64> =
                writes.iter().map(|(bytes, ns)| (ns << 20) / (*bytes).max(1)).collect();
            middle(&mut ns_per_mib)
        };
        let (Some(lasting), last) = (rate(&writes[writes.len() / 2..]), writes.len() / 2) else { return };
        // Fast writes may be interrupted by some that wait; the cache is full where half of the next eight are slow.
        let is_fast = |write: &(u64, u64)| ns_per_mib(write) < lasting.value / 4 * 3;
        let fast =
            (0..last).find(|at| writes[*at..].iter().take(8).filter(|write| is_fast(write)).count() < 4);
        let cached = &writes[..fast.unwrap_or(0)];
        let Some(filling) = rate(cached).filter(|_| cached.len() >= 2) else { return };
        let per_s = |number: Number| Number {
            value: ((1_000_000_000 << 20) / number.value.max(1)).clamp(1_000, 1_000_000_000_000),
            ..number
        };
        let (fill, drain) = (per_s(filling), per_s(lasting));
        let taken: u64 = cached.iter().map(|write| write.0).sum();
        let ns: u64 = cached.iter().map(|write| write.1).sum();
        let drained = (u128::from(ns) * u128::from(drain.value) / 1_000_000_000) as u64;
        let bytes = Number { value: taken.saturating_sub(drained), count: cached.len() as u32, spread: 0 };
        self.cache = CacheProfile { bytes, fill, drain };
    }

    /// The profile. What was not measured comes from `kept`, or is assumed.
    pub fn finish(&self, kind: &str, rotational: bool, kept: Option<&Profile>) -> Profile {
        let mut profile = match kept {
            Some(kept) => Profile { kind: kind.into(), ..kept.clone() },
            None => Profile::assumed(kind, rotational),
        };
        if self.cache.bytes.value > 0 {
            profile.cache = self.cache;
        }
        for op in [Op::Read, Op::Write] {
            let points = self.points(op);
            *profile.of_mut(op) = assemble(&points, profile.of(op), kept.is_some());
        }
        drained(&mut profile);
        profile
    }

    fn points(&self, op: Op) -> Points {
        let mut points = Points::default();
        let cell = |class: Class, bin: usize, n: u32| self.cells.get(&(op as u8, class as u8, bin as u8, n));
        for class in Class::ALL {
            for (bin, point) in points.cells[class as usize].iter_mut().enumerate() {
                let Some(times) = cell(class, bin, 1) else { continue };
                let (bytes, count) = self.bytes[&(op as u8, class as u8, bin as u8)];
                let ns = match is_cached_read(op, class) {
                    true => middle(&mut without_hits(times)),
                    false => stretches(times),
                };
                *point = ns.map(|ns| Point { bytes: bytes / count, ns });
            }
        }
        for bin in 0..BINS {
            let Some(alone) = cell(Class::Jump, bin, 1).and_then(|times| fenced(times)) else { continue };
            for (index, n) in IN_FLIGHT.into_iter().enumerate() {
                if let Some(shared) = cell(Class::Jump, bin, n).and_then(|times| fenced(times)) {
                    let value = u64::from(n) * 1_000 * alone.value / shared.value.max(1);
                    let number = Number { value: value.clamp(1, u64::from(n) * 1_000), ..shared };
                    points.speedup[usize::from(bin > 4)][index] = Some(number);
                }
            }
        }
        points
    }
}

/// Whether single dispatches may be served from a cache of what was read before.
#[inline]
pub(super) fn is_cached_read(op: Op, class: Class) -> bool {
    op == Op::Read && class == Class::Jump
}

/// Without what takes less than an eighth of the median: it came from a cache.
fn without_hits(times: &[u64]) -> Vec<u64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let least = sorted.get(sorted.len() / 2).map_or(0, |median| median / 8);
    sorted.retain(|ns| *ns >= least);
    sorted
}

/// The mean of half of the means of stretches: a little below the middle, as disturbances only make them longer.
fn stretches(times: &[u64]) -> Option<Number> {
    let length = (times.len() / BATCHES).max(1);
    let mut means: Vec<u64> =
        times.chunks_exact(length).map(|part| part.iter().sum::<u64>() / length as u64).collect();
    let number = middle(&mut means)?;
    let half = &means[means.len() / 8..(means.len() * 5).div_ceil(8)];
    let value = half.iter().sum::<u64>().checked_div(half.len() as u64)?.max(1);
    Some(Number { value, count: times.len() as u32, ..number })
}

/// The mean of the middle half, and how far that half lies apart.
fn middle(times: &mut [u64]) -> Option<Number> {
    times.sort_unstable();
    let (from, to) = (times.len() / 4, times.len() - times.len() / 4);
    let half = &times[from..to];
    let value = half.iter().sum::<u64>().checked_div(half.len() as u64)?.max(1);
    let spread = (half[half.len() - 1] - half[0]) * 1_000 / value;
    Some(Number { value, count: times.len() as u32, spread: spread.min(1_000_000) as u32 })
}

/// The mean of what lies no more than three times the middle half's width outside of it (Tukey): for skewed times, whose rate is wanted.
fn fenced(times: &[u64]) -> Option<Number> {
    let mut times = times.to_vec();
    let number = middle(&mut times)?;
    let (low, high) = (times[times.len() / 4], times[times.len() - 1 - times.len() / 4]);
    let width = 3 * (high - low);
    let kept: Vec<u64> =
        times.into_iter().filter(|ns| (low.saturating_sub(width)..=high + width).contains(ns)).collect();
    Some(Number { value: (kept.iter().sum::<u64>() / kept.len().max(1) as u64).max(1), ..number })
}

/// What leaves a write cache is what large writes in sequence take.
pub(super) fn drained(profile: &mut Profile) {
    if profile.cache.bytes.value > 0 {
        let drain = profile.cache.drain.value.max(streamed(&profile.write.sequential[1]));
        profile.cache.drain.value = drain.clamp(1_000, 1_000_000_000_000);
    }
}

/// The highest rate of large dispatches in sequence, in bytes a second.
fn streamed(large: &Line) -> u64 {
    let rate = |bytes: u64| bytes * 1_000_000_000 / at(large, 1, bytes);
    [SIZES[1], 4 * SIZES[1], 16 * SIZES[1], SIZES[2]].into_iter().map(rate).max().unwrap_or(1).max(1)
}

/// What an operation costs by `points`, and by `other` where there are none: a kept profile, or an assumed one.
pub(super) fn assemble(points: &Points, other: &OpProfile, is_kept: bool) -> OpProfile {
    let next = if is_kept { points.cells[Class::Next as usize] } else { going_on(points, other) };
    let mut sequential = lines(&next, &other.sequential, is_kept);
    // Small dispatches are taken by a cache for longer than anybody measures; what leaves it bounds them.
    let rate = streamed(&sequential[1]);
    let small = &mut sequential[0];
    for (number, bytes) in [(&mut small.low, SIZES[0]), (&mut small.high, SIZES[1])] {
        number.value = number.value.max(bytes * 1_000_000_000 / rate).min(NS_MAX);
    }
    let random = lines(&points.cells[Class::Jump as usize], &other.random, is_kept);
    let known = [Class::After1, Class::After4, Class::After16].map(|class| {
        let counted = |point: &&Point| point.ns.count >= COUNT_MIN;
        let most = points.cells[class as usize]
            .iter()
            .flatten()
            .filter(counted)
            .max_by_key(|point| point.ns.count)?;
        let next = at(&sequential[interval(most.bytes)], interval(most.bytes), most.bytes);
        Some(Number { value: most.ns.value.saturating_sub(next), ..most.ns })
    });
    let jump = at(&random[0], 0, SIZES[1] / 4).saturating_sub(at(&sequential[0], 0, SIZES[1] / 4));
    let neighbour = known.iter().flatten().next().map_or(jump, |near| near.value);
    let is_like_other = is_kept || points.cells.iter().flatten().flatten().next().is_none();
    let assumed =
        |index: usize| if is_like_other { other.between[index] } else { Number::assumed(neighbour) };
    let between = [0, 1, 2].map(|index| known[index].unwrap_or(assumed(index)));
    let mut speedup = other.speedup;
    for (kept, known) in speedup.iter_mut().flatten().zip(points.speedup.iter().flatten()) {
        *kept = known.unwrap_or(*kept);
    }
    for of in &mut speedup {
        // Alone is alone, however it was measured; and what differs by less than measurements do is no speedup.
        let mean = of.iter().map(|number| number.value).sum::<u64>() / of.len() as u64;
        let is_noise =
            (850..=1_150).contains(&mean) && of.iter().all(|number| (800..=1_200).contains(&number.value));
        let last = if is_noise { of.len() } else { 1 };
        of[..last].iter_mut().for_each(|number| number.value = 1_000);
    }
    OpProfile { sequential, random, between, speedup }
}

/// What going on costs, by sizes: of those that none went on with at once, by what it took after others had come between, less what
/// that costs. Without these each further byte would be taken to cost as much as those seen, which hides what larger dispatches save.
fn going_on(points: &Points, other: &OpProfile) -> [Option<Point>; BINS] {
    let counted = |point: &Point| point.ns.count >= COUNT_MIN;
    let mut next = points.cells[Class::Next as usize].map(|point| point.filter(counted));
    let known = next;
    // Nobody knows what it costs at once: it is assumed to be cheap, and tried.
    if known.iter().flatten().next().is_none() {
        return next;
    }
    for (index, class) in [Class::After1, Class::After4, Class::After16].into_iter().enumerate() {
        let after = points.cells[class as usize].map(|point| point.filter(counted));
        let both = known.iter().zip(&after).find_map(|(next, after)| next.zip(*after));
        let between = both.map(|(next, after)| after.ns.value.saturating_sub(next.ns.value));
        for (next, after) in next.iter_mut().zip(&after) {
            let Some(after) = after.filter(|_| next.is_none()) else { continue };
            // Something is transferred, however much is assumed for what came between.
            let between = between.unwrap_or(other.between[index].value).min(after.ns.value / 10 * 9);
            let ns = Number { value: after.ns.value - between, ..after.ns };
            *next = Some(Point { ns, ..after });
        }
    }
    next
}

/// The time of so many bytes on a line.
fn at(line: &Line, interval: usize, bytes: u64) -> u64 {
    let (from, to) = (i128::from(SIZES[interval]), i128::from(SIZES[interval + 1]));
    let (low, high) = (i128::from(line.low.value), i128::from(line.high.value));
    let ns = low + (high - low) * (i128::from(bytes) - from) / (to - from);
    ns.clamp(1, i128::from(NS_MAX)) as u64
}

fn lines(cells: &[Option<Point>; BINS], other: &[Line; 2], is_kept: bool) -> [Line; 2] {
    // 64 KiB belong to both intervals.
    let of = |bins: core::ops::Range<usize>| -> Vec<Point> {
        cells[bins].iter().flatten().filter(|point| point.ns.count >= COUNT_MIN).copied().collect()
    };
    let fitted = [line(&of(0..5), 0, &other[0]), line(&of(4..BINS), 1, &other[1])];
    match fitted {
        [Some(small), Some(large)] => [small, large],
        [Some(small), None] if !is_kept => [small, scaled(&other[1], small.high.value, other[0].high.value)],
        [None, Some(large)] if !is_kept => [scaled(&other[0], large.low.value, other[1].low.value), large],
        [small, large] => [small.unwrap_or(other[0]), large.unwrap_or(other[1])],
    }
}

/// A line that is so many times as long as another, and is not measured itself.
fn scaled(line: &Line, longer: u64, than: u64) -> Line {
    let scale = |number: Number| {
        let value = u128::from(number.value) * u128::from(longer) / u128::from(than.max(1));
        Number::assumed(value.clamp(1, u128::from(NS_MAX)) as u64)
    };
    Line { low: scale(line.low), high: scale(line.high) }
}

/// The line through the cells of an interval; where they are too near each other for a slope, the other line through them.
fn line(points: &[Point], interval: usize, other: &Line) -> Option<Line> {
    let count = points.iter().fold(0, |sum: u32, point| sum.saturating_add(point.ns.count));
    let spread = points.iter().map(|point| point.ns.spread).max()?;
    let measured = |line: Line| {
        let number = |of: Number| Number { count, spread, ..of };
        Line { low: number(line.low), high: number(line.high) }
    };
    let mut best: Option<(u64, Line)> = None;
    for (index, one) in points.iter().enumerate() {
        for two in points[index + 1..].iter().filter(|two| two.bytes >= 4 * one.bytes) {
            let per = i128::from(two.bytes - one.bytes);
            let rise = i128::from(two.ns.value) - i128::from(one.ns.value);
            let end = |bytes: u64| {
                let ns = i128::from(one.ns.value) + rise * (i128::from(bytes) - i128::from(one.bytes)) / per;
                Number::assumed(ns.clamp(1, i128::from(NS_MAX)) as u64)
            };
            let line = Line { low: end(SIZES[interval]), high: end(SIZES[interval + 1]) };
            let error = |point: &Point| {
                at(&line, interval, point.bytes).abs_diff(point.ns.value) * 1_000 / point.ns.value
            };
            let missed = points.iter().map(|point| error(point).min(MISSED)).sum();
            if best.as_ref().is_none_or(|(least, _)| missed < *least) {
                best = Some((missed, line));
            }
        }
    }
    if let Some((_, line)) = best {
        return Some(measured(line));
    }
    let most = points.iter().max_by_key(|point| point.ns.count)?;
    Some(measured(scaled(other, most.ns.value, at(other, interval, most.bytes))))
}
