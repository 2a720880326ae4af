//! A device that takes as long as what was recorded did.
//!
//! What a dispatch takes is looked for among those that were like it: of the same application, operation, pattern and size, behind one of
//! the same application or of another one, with as many in service. They are repeated in the order in which they were, so that
//! what lies together stays together. What nobody has seen is taken from what is nearest, or from a profile, and counted: who
//! would have to be believed for that is not.
//!
//! How many a device serves at once is not seen from outside: eight in service that take 8 ms each may be served together, or one after
//! another in 1 ms. So several [`Way`]s are tried, and those count under which dispatches take their times most evenly.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::super::objective::{Ln, ln};
use super::super::pricing::Pricing;
use super::super::window::Window;
use super::recorded::Carried;
use crate::device::{Device, Transfer};
use crate::hash::HashMap;
use crate::profile::{Class, Costs, IN_FLIGHT, Streams, nearest};
use crate::request::{FileId, Op};
use crate::time::{Span, Time};

/// Bytes of the device that a file has for itself.
const FILE_BYTES: u64 = 1 << 44;
/// Dispatches that are enough to go by.
const SEEN_MIN: usize = 16;
/// Differences below this part of a dispatch are no differences.
const NOISE: u64 = 256;
/// The most that a hand-over may take, as long as it is not known what it does.
const HAND_OVER_MAX: u64 = 50_000;
/// Thousandths by which what dispatches of different patterns take may differ where the pattern does not matter.
const ALIKE: u64 = 30;
const ANY: u8 = u8::MAX;
const NOBODY: u32 = u32::MAX;

/// By how much what was seen differs from a profile, in thousandths, by application and operation.
type Ratios = BTreeMap<(u32, u8), u64>;

/// How dispatches share a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// How many are served at once; the others wait for those.
    pub(super) slots: u32,
    /// Whether what they take depends on how many there are.
    pub(super) by_number: bool,
}

impl Way {
    /// All that are tried where so many were in service at most.
    pub(super) fn all(most: u32) -> Vec<Way> {
        let fewer = IN_FLIGHT.into_iter().filter(|slots| *slots < most);
        let mut ways: Vec<Way> = fewer.map(|slots| Way { slots, by_number: false }).collect();
        ways.push(Way { slots: most, by_number: false });
        if most > 1 {
            ways.push(Way { slots: most, by_number: true });
        }
        ways
    }
}

/// Most dispatches in service at once.
pub(super) fn most_in_service(dispatches: &[Carried]) -> u32 {
    let mut ends = Vec::new();
    let mut most = 1;
    for of in dispatches {
        ends.retain(|end| *end > of.began);
        ends.push(of.ended);
        most = most.max(ends.len() as u32);
    }
    most
}

/// What dispatches have in common that take alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    app: u32,
    op: u8,
    class: u8,
    size: u8,
    after_own: u8,
    number: u8,
}

impl Key {
    /// Those among which it is looked for, the nearest first.
    fn seen(self) -> [Key; 3] {
        let after_any = Key { after_own: ANY, ..self };
        [self, after_any, Key { app: NOBODY, ..after_any }]
    }

    /// Those of any pattern, where it does not matter.
    fn any_pattern(self) -> [Key; 2] {
        let any = Key { class: ANY, after_own: ANY, ..self };
        [any, Key { app: NOBODY, ..any }]
    }

    /// Those that are taken where there is nothing like it.
    fn unseen(self) -> [Key; 5] {
        let any_number = Key { after_own: ANY, number: ANY, ..self };
        let any_class = Key { class: ANY, ..any_number };
        let any_app = Key { app: NOBODY, ..any_class };
        let any_size = Key { size: ANY, ..any_app };
        [any_number, any_class, any_app, any_size, Key { op: ANY, ..any_size }]
    }
}

/// The power of two that a size reaches up to.
fn size(bytes: u64) -> u8 {
    bytes.max(1).next_power_of_two().ilog2() as u8
}

#[derive(Debug, Default)]
struct Cell {
    /// What each took, in ns.
    times: Vec<u64>,
    sum: u64,
    bytes: u64,
}

impl Cell {
    fn add(&mut self, ns: u64, bytes: u64) {
        self.times.push(ns);
        self.sum = self.sum.saturating_add(ns);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn mean(&self) -> u64 {
        self.sum / (self.times.len() as u64).max(1)
    }

    /// How far they lie from the mean, on the average.
    fn deviation(&self) -> u64 {
        let mean = self.mean();
        let sum = self.times.iter().fold(0, |sum: u64, ns| sum.saturating_add(ns.abs_diff(mean)));
        sum / (self.times.len() as u64).max(1)
    }
}

/// What was recorded, by what it has in common.
#[derive(Debug)]
pub(super) struct Table {
    way: Way,
    cells: BTreeMap<Key, Cell>,
    /// Whose the files are, by their numbers.
    owners: Vec<u32>,
    hand_over: Span,
    /// The most that it may be.
    hand_over_max: Span,
    /// Of each application: how far its dispatches lie from what such ones take, in thousandths of that.
    uneven: BTreeMap<u32, u64>,
    /// Operations and sizes that take the same whatever the pattern.
    alike: BTreeSet<(u8, u8)>,
    /// By how much what was seen differs from the profile, in thousandths, by application and operation.
    profile: Option<(Costs, Ratios)>,
    /// How evenly they take their times: the logarithm of a mean deviation; less is better.
    pub(super) score: Ln,
}

impl Table {
    /// Bytes of a device's extents, as a window for it has to have them.
    pub(super) const EXTENT_BYTES: u64 = FILE_BYTES;

    /// What dispatches take if they share the device in this way. The window has a file in each extent.
    pub(super) fn new(dispatches: &[Carried], window: &Window, way: Way, profile: Option<Costs>) -> Table {
        let mut of_file: HashMap<FileId, u32> = HashMap::default();
        let mut owners = Vec::new();
        for work in &window.work {
            of_file.entry(work.file).or_insert(work.app);
            let file = (work.address / FILE_BYTES) as usize;
            if owners.len() <= file {
                owners.resize(file + 1, NOBODY);
            }
            owners[file] = work.app;
        }
        let samples = samples(dispatches, way, |file| of_file.get(&file).copied().unwrap_or(NOBODY));
        let hand_over = hand_over(&samples);
        let mut cells: BTreeMap<Key, Cell> = BTreeMap::new();
        for Sample { key, ns, bytes, queued } in &samples {
            let ns = if *queued { ns.saturating_sub(hand_over.unwrap_or(0)) } else { *ns };
            let keys: BTreeSet<Key> =
                key.seen().into_iter().chain(key.any_pattern()).chain(key.unseen()).collect();
            for key in keys {
                cells.entry(key).or_default().add(ns, *bytes);
            }
        }
        let score = score(&cells, &samples);
        let profile = profile.map(|costs| {
            let ratios = ratios(&samples, &costs);
            (costs, ratios)
        });
        let known = hand_over.is_some();
        let hand_over = Span::from_nanos(hand_over.unwrap_or(0));
        let hand_over_max = if known { hand_over } else { Span::from_nanos(hand_over_max(&cells)) };
        let (uneven, alike) = (unevenness(&cells), alike(&cells));
        Table { way, cells, owners, hand_over, hand_over_max, uneven, alike, profile, score }
    }

    /// What a dispatch takes, and whether such ones were seen. `turn` counts how often a cell was asked.
    fn price(
        &self,
        key: Key,
        in_service: u32,
        transfer: &Transfer,
        class: Class,
        turn: impl FnOnce(Key) -> usize,
    ) -> (u64, bool) {
        let enough = |key: &Key| {
            self.cells.get(key).filter(|cell| cell.times.len() >= SEEN_MIN).map(|cell| (*key, cell))
        };
        if let Some((key, cell)) = key.seen().iter().find_map(enough) {
            return (cell.times[turn(key) % cell.times.len()], true);
        }
        if self.alike.contains(&(key.op, key.size))
            && let Some((key, cell)) = key.any_pattern().iter().find_map(enough)
        {
            return (cell.times[turn(key) % cell.times.len()], true);
        }
        if let Some((costs, ratios)) = &self.profile {
            let ns = costs.shared_ns(transfer.op, class, transfer.bytes, in_service as usize);
            let own = ratios.get(&(key.app, key.op)).or_else(|| ratios.get(&(NOBODY, key.op)));
            let ratio = own.or_else(|| ratios.get(&(NOBODY, ANY))).copied().unwrap_or(1_000);
            return ((u128::from(ns) * u128::from(ratio) / 1_000).min(u128::from(u64::MAX)) as u64, true);
        }
        let few = key.seen()[1];
        let near =
            core::iter::once(few).chain(key.unseen()).find_map(|key| Some((key, self.cells.get(&key)?)));
        let ns = near.map_or(1, |(key, cell)| match key.size {
            ANY => (u128::from(cell.sum) * u128::from(transfer.bytes) / u128::from(cell.bytes.max(1))) as u64,
            _ => cell.mean(),
        });
        (ns.max(1), false)
    }
}

struct Sample {
    key: Key,
    ns: u64,
    bytes: u64,
    queued: bool,
}

/// What each dispatch took by itself, if `way` is how they share the device.
fn samples(dispatches: &[Carried], way: Way, owner: impl Fn(FileId) -> u32) -> Vec<Sample> {
    let mut streams = Streams::default();
    // Until when what is served is there, the earliest first.
    let mut ends: Vec<Time> = Vec::new();
    let mut before = NOBODY;
    let each = |of: &Carried| {
        let Carried { began, ended, file, op, offset, bytes, queued } = *of;
        let app = owner(file);
        let class = streams.class(file.0, op, offset, bytes);
        ends.retain(|end| *end > began);
        let mut served = began;
        if ends.len() >= way.slots as usize
            && let Some(first) = (0..ends.len()).min_by_key(|index| ends[*index])
        {
            served = ends.swap_remove(first).max(began);
        }
        let in_service = ends.len() as u32 + 1;
        ends.push(ended);
        let after_own = u8::from(core::mem::replace(&mut before, app) == app);
        let number = if way.by_number { nearest(in_service) as u8 } else { 0 };
        let key = Key { app, op: op as u8, class: class as u8, size: size(bytes), after_own, number };
        Sample { key, ns: ended.since(served).as_nanos().max(1), bytes, queued }
    };
    dispatches.iter().map(each).collect()
}

/// How much longer what has waited in the gate takes than what has not, if both were seen.
fn hand_over(samples: &[Sample]) -> Option<u64> {
    let mut cells: BTreeMap<Key, [Cell; 2]> = BTreeMap::new();
    for Sample { key, ns, bytes, queued } in samples {
        cells.entry(key.seen()[1]).or_default()[usize::from(*queued)].add(*ns, *bytes);
    }
    let (mut sum, mut count) = (0_i128, 0);
    for [at_once, queued] in cells.values() {
        let of = at_once.times.len().min(queued.times.len());
        if of >= SEEN_MIN / 2 {
            sum += (i128::from(queued.mean()) - i128::from(at_once.mean())) * of as i128;
            count += of as i128;
        }
    }
    Some(sum.checked_div(count)?.max(0) as u64)
}

/// The most that a hand-over may take: half of what the least dispatches do.
fn hand_over_max(cells: &BTreeMap<Key, Cell>) -> u64 {
    let enough = cells.iter().filter(|(key, cell)| is_compared(key) && cell.times.len() >= SEEN_MIN);
    enough.map(|(_, cell)| cell.mean() / 2).fold(HAND_OVER_MAX, u64::min)
}

/// Of each application: how far its dispatches lie from what such ones take, in thousandths of that.
fn unevenness(cells: &BTreeMap<Key, Cell>) -> BTreeMap<u32, u64> {
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (key, cell) in cells.iter().filter(|(key, _)| is_compared(key)) {
        let (apart, all) = sums.entry(key.app).or_default();
        *apart = apart.saturating_add(cell.deviation().saturating_mul(cell.times.len() as u64));
        *all = all.saturating_add(cell.sum);
    }
    let part =
        |(apart, all): (u64, u64)| (u128::from(apart) * 1_000 / u128::from(all.max(1))).min(1_000) as u64;
    sums.into_iter().map(|(app, sums)| (app, part(sums))).collect()
}

/// Operations and sizes of which several patterns were seen, that all take the same.
fn alike(cells: &BTreeMap<Key, Cell>) -> BTreeSet<(u8, u8)> {
    let mut ends: BTreeMap<(u8, u8, u8), (u64, u64, u32)> = BTreeMap::new();
    let of_all =
        |key: &Key| key.app == NOBODY && key.after_own == ANY && key.number != ANY && key.class != ANY;
    for (key, cell) in cells.iter().filter(|(key, cell)| of_all(key) && cell.times.len() >= SEEN_MIN) {
        let (least, most, patterns) = ends.entry((key.op, key.size, key.number)).or_insert((u64::MAX, 0, 0));
        (*least, *most, *patterns) = ((*least).min(cell.mean()), (*most).max(cell.mean()), *patterns + 1);
    }
    let differ = |(least, most, _): &(u64, u64, u32)| {
        (most - least).saturating_mul(1_000) > least.saturating_mul(ALIKE)
    };
    let different: BTreeSet<(u8, u8)> =
        ends.iter().filter(|(_, ends)| differ(ends)).map(|((op, size, _), _)| (*op, *size)).collect();
    let several =
        ends.iter().filter(|(_, (_, _, patterns))| *patterns > 1).map(|((op, size, _), _)| (*op, *size));
    several.filter(|of| !different.contains(of)).collect()
}

/// The mean logarithm of how far dispatches lie from their cell's mean; each cell costs what it takes to know that.
fn score(cells: &BTreeMap<Key, Cell>, samples: &[Sample]) -> Ln {
    let all: u64 = samples.iter().map(|sample| sample.ns).fold(0, u64::saturating_add);
    let noise = all / (samples.len() as u64).max(1) / NOISE + 1;
    let (mut sum, mut count, mut known) = (0_i128, 0, 0);
    for (_, cell) in cells.iter().filter(|(key, _)| is_compared(key)) {
        sum += i128::from(ln(cell.deviation() + noise)) * cell.times.len() as i128;
        count += cell.times.len() as i128;
        known += 1;
    }
    let per_cell = i128::from(ln(count as u64));
    ((sum + known * per_cell) / count.max(1)) as Ln
}

/// Whether it is of one application, whatever came before.
fn is_compared(key: &Key) -> bool {
    key.app != NOBODY && key.after_own == ANY && key.number != ANY && key.class != ANY
}

/// What dispatches took of what a profile says, in thousandths.
fn ratios(samples: &[Sample], costs: &Costs) -> Ratios {
    let mut sums: BTreeMap<(u32, u8), (u128, u128)> = BTreeMap::new();
    for Sample { key, ns, bytes, .. } in samples {
        let op = if key.op == Op::Read as u8 { Op::Read } else { Op::Write };
        let class = Class::ALL[usize::from(key.class).min(Class::ALL.len() - 1)];
        let in_service = IN_FLIGHT[usize::from(key.number).min(IN_FLIGHT.len() - 1)];
        let expected = costs.shared_ns(op, class, *bytes, in_service as usize);
        for of in [(key.app, key.op), (NOBODY, key.op), (NOBODY, ANY)] {
            let (seen, said) = sums.entry(of).or_default();
            (*seen, *said) = (*seen + u128::from(*ns), *said + u128::from(expected));
        }
    }
    let ratio = |(seen, said): (u128, u128)| (seen * 1_000 / said.max(1)).clamp(1, 1_000_000) as u64;
    sums.into_iter().map(|(of, sums)| (of, ratio(sums))).collect()
}

/// Time that a device was charged, in ns: all of it, and what was charged for what nobody has seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: AtomicUsize,
    unseen: AtomicUsize,
}

impl Tally {
    /// The part of the time that nobody has seen, in thousandths.
    pub(super) fn unseen(&self) -> u64 {
        let [all, unseen] = [&self.all, &self.unseen].map(|count| count.load(Ordering::Relaxed) as u128);
        (unseen * 1_000).checked_div(all).unwrap_or(0).min(1_000) as u64
    }
}

/// Prices as they were recorded, for one simulation.
pub(super) struct Observed {
    pub(super) table: Arc<Table>,
    pub(super) tally: Arc<Tally>,
    /// Whether all takes as much less as it lies apart, and what is not handed over to another thread by as much as may be.
    pub(super) is_quick: bool,
}

impl Pricing for Observed {
    fn device(&self) -> Box<dyn Device> {
        Box::new(Replayed {
            table: self.table.clone(),
            tally: self.tally.clone(),
            is_quick: self.is_quick,
            turns: HashMap::default(),
            streams: Streams::default(),
            ends: Vec::new(),
            before: NOBODY,
            jumps: 0,
        })
    }

    fn extent_bytes(&self) -> u64 {
        FILE_BYTES
    }
}

struct Replayed {
    table: Arc<Table>,
    tally: Arc<Tally>,
    is_quick: bool,
    /// How often each cell was asked.
    turns: HashMap<Key, usize>,
    streams: Streams,
    ends: Vec<Time>,
    before: u32,
    jumps: u64,
}

impl Replayed {
    /// What a dispatch of an application takes at least, which took `ns`.
    fn quick(&self, app: u32, ns: u64) -> u64 {
        let uneven = self.table.uneven.get(&app).copied().unwrap_or(0);
        let less = (u128::from(ns) * u128::from(uneven) / 1_000) as u64;
        let hand_over = self.table.hand_over_max.as_nanos() - self.table.hand_over.as_nanos();
        ns.saturating_sub(less + hand_over).max(1)
    }
}

impl Device for Replayed {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let Transfer { op, address, bytes } = transfer;
        let class = self.streams.class(address / FILE_BYTES, op, address, bytes);
        self.jumps += u64::from(class == Class::Jump);
        self.ends.retain(|end| *end > now);
        let in_service = self.ends.len() as u32 + 1;
        let app = self.table.owners.get((address / FILE_BYTES) as usize).copied().unwrap_or(NOBODY);
        let after_own = u8::from(core::mem::replace(&mut self.before, app) == app);
        let number = if self.table.way.by_number { nearest(in_service) as u8 } else { 0 };
        let key = Key { app, op: op as u8, class: class as u8, size: size(bytes), after_own, number };
        let turns = &mut self.turns;
        let (ns, is_seen) = self.table.price(key, in_service, &transfer, class, |key| {
            let turn = turns.entry(key).or_insert(0);
            *turn += 1;
            *turn - 1
        });
        let ns = if self.is_quick { self.quick(app, ns) } else { ns };
        self.tally.all.fetch_add(ns as usize, Ordering::Relaxed);
        if !is_seen {
            self.tally.unseen.fetch_add(ns as usize, Ordering::Relaxed);
        }
        let span = Span::from_nanos(ns);
        self.ends.push(now + span);
        span
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn repositions(&self) -> u64 {
        self.jumps
    }

    fn slots(&self) -> u32 {
        self.table.way.slots
    }

    fn hand_over(&self) -> Span {
        if self.is_quick { self.table.hand_over_max } else { self.table.hand_over }
    }
}
