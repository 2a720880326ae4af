//! Waits by their price: counts in a list, sums over it for each edge, all in exact fractions.
//! (The rules: the head of `crates/iogate-core/src/sched/priced.rs`.)

use std::collections::BTreeMap;

use iogate_core::sched::{Prices, WHOLE};
use iogate_core::{AppId, Op, Span, Time};

/// Edges of the bins of think times, in ns.
const EDGES: [u64; 16] = {
    let mut edges = [2048; 16];
    let mut bin = 1;
    while bin < 16 {
        edges[bin] = edges[bin - 1] * 2;
        bin += 1;
    }
    edges
};
/// What shares of a bin are counted in: the widest bin.
const UNIT: i128 = 1 << 25;

/// Counts of think times, by bin; the last one is never.
#[derive(Clone, Default)]
pub struct Counts([u64; 17]);

impl Counts {
    /// Counts one; at 256 all are halved.
    pub fn record(&mut self, think: Option<Span>) {
        let bin = think.and_then(|think| EDGES.iter().position(|&edge| think.as_nanos() < edge));
        self.0[bin.unwrap_or(16)] += 1;
        if self.0.iter().sum::<u64>() >= 256 {
            self.0.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// How many count.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The counts, by bin.
    pub fn counts(&self) -> [u64; 17] {
        self.0
    }

    /// How many come later than this, in fractions of [`UNIT`].
    fn later(&self, time: u64) -> i128 {
        let of_bin = |bin: usize| {
            let (from, to) = (if bin == 0 { 0 } else { EDGES[bin - 1] }, EDGES[bin]);
            let left = to - time.clamp(from, to);
            i128::from(self.0[bin]) * i128::from(left) * (UNIT / i128::from(to - from))
        };
        (0..16).map(of_bin).sum::<i128>() + i128::from(self.0[16]) * UNIT
    }

    /// The edge up to which it is best to wait, and what that is worth: for each edge, from the beginning.
    pub fn best(&self, gone: u64, saving: u64, loss: u32, longest: u64) -> Option<(u64, u64)> {
        let open = self.later(gone);
        let worth = |edge: u64| {
            let mut points: Vec<u64> = EDGES.iter().copied().filter(|&at| gone < at && at < edge).collect();
            points.insert(0, gone);
            points.push(edge);
            let idle: i128 = (points.windows(2))
                .map(|of| (self.later(of[0]) + self.later(of[1])) * i128::from(of[1] - of[0]))
                .sum();
            2 * i128::from(saving) * i128::from(WHOLE) * (open - self.later(edge)) - i128::from(loss) * idle
        };
        let edges = EDGES.iter().copied().filter(|&edge| gone < edge && edge <= longest);
        let (worth, edge) = edges.map(|edge| (worth(edge), edge)).rev().max_by_key(|(worth, _)| *worth)?;
        (worth > 0).then(|| (edge, (worth / (2 * open)) as u64))
    }
}

struct Chance {
    end: u64,
    since: Option<Time>,
}

struct Hold {
    from: u64,
    start: u64,
    /// Until it is completed.
    end: Option<u64>,
    since: Time,
}

#[derive(Default)]
struct Stream {
    chances: Vec<Chance>,
    next: Counts,
    hold: Option<Hold>,
    holds: Counts,
    app: AppId,
}

/// What is known of each queue.
#[derive(Default)]
pub(super) struct Priced {
    streams: BTreeMap<usize, Stream>,
    apps: BTreeMap<AppId, (Counts, Counts)>,
    begun: Vec<(usize, u64, Time)>,
    /// The queues of all dispatches.
    dispatches: Vec<usize>,
    pub(super) prices: Prices,
    pub(super) in_service: u32,
    pub(super) depth: u32,
}

impl Priced {
    fn count(&mut self, queue: usize, think: Option<Span>) {
        let stream = self.streams.entry(queue).or_default();
        stream.next.record(think);
        self.apps.entry(stream.app).or_default().0.record(think);
    }

    fn count_hold(&mut self, queue: usize, think: Option<Span>) {
        let stream = self.streams.entry(queue).or_default();
        stream.holds.record(think);
        self.apps.entry(stream.app).or_default().1.record(think);
    }

    /// Ends the chance at this offset.
    fn close(&mut self, queue: usize, end: u64) -> Option<Chance> {
        let chances = &mut self.streams.entry(queue).or_default().chances;
        let place = chances.iter().position(|chance| chance.end == end)?;
        Some(chances.remove(place))
    }

    pub(super) fn came(&mut self, now: Time, queue: usize, offset: u64) {
        if let Some(Chance { since: Some(since), .. }) = self.close(queue, offset) {
            self.count(queue, Some(now.since(since)));
        }
        let stream = self.streams.entry(queue).or_default();
        if let Some(hold) = &stream.hold
            && ((hold.from <= offset && offset < hold.start) || hold.end == Some(offset))
        {
            let think = now.since(hold.since);
            stream.hold = None;
            self.count_hold(queue, Some(think));
        }
    }

    pub(super) fn dispatched(&mut self, queue: usize, end: u64, app: AppId, follows: bool) {
        self.dispatches.push(queue);
        self.streams.entry(queue).or_default().app = app;
        if follows {
            return;
        }
        let mut replaced = self.close(queue, end);
        let chances = &mut self.streams.entry(queue).or_default().chances;
        if chances.len() == 4 {
            replaced = Some(chances.remove(0));
        }
        chances.push(Chance { end, since: None });
        if replaced.is_some_and(|chance| chance.since.is_some()) {
            self.count(queue, None);
        }
    }

    pub(super) fn completed(&mut self, now: Time, queue: usize, end: u64) {
        let stream = self.streams.entry(queue).or_default();
        if let Some(hold) = &mut stream.hold
            && hold.end == Some(end)
        {
            hold.end = None;
        }
        let open = |chance: &&mut Chance| chance.end == end && chance.since.is_none();
        let Some(chance) = stream.chances.iter_mut().find(open) else { return };
        chance.since = Some(now);
        while let Some(&(old, end, since)) = self.begun.first()
            && (self.begun.len() >= 256 || now.since(since).as_nanos() >= EDGES[15])
        {
            self.begun.remove(0);
            let chances = &self.streams[&old].chances;
            if chances.iter().any(|chance| chance.end == end && chance.since == Some(since)) {
                self.close(old, end);
                self.count(old, None);
            }
        }
        self.begun.push((queue, end, now));
    }

    fn think<'a>(&'a self, stream: &'a Stream, hold: bool) -> Option<&'a Counts> {
        let of = |next: &'a Counts, holds: &'a Counts| if hold { holds } else { next };
        let own = of(&stream.next, &stream.holds);
        let app = self.apps.get(&stream.app).map(|(next, holds)| of(next, holds));
        Some(own).filter(|own| own.total() >= 8).or(app.filter(|app| app.total() >= 8))
    }

    /// Until when the piece at `end` is worth a wait, and how much.
    pub(super) fn wait(&self, now: Time, queue: usize, op: Op, end: u64, ahead: u32) -> Option<(Time, u64)> {
        let stream = self.streams.get(&queue)?;
        let since = stream.chances.iter().find(|chance| chance.end == end)?.since?;
        let between = self.dispatches.iter().rev().take_while(|&&other| other != queue).count();
        let others = self.in_service.max(between.min(16) as u32);
        let saving = self.prices.saving(op, others) - self.prices.saving(op, others + ahead);
        let saving = saving.as_nanos();
        let gone = now.since(since).as_nanos();
        let loss = self.prices.idle_loss(self.in_service);
        let (until, gain) = self.think(stream, false)?.best(gone, saving, loss, gone + 2 * saving)?;
        Some((since + Span::from_nanos(until), gain))
    }

    /// The last queues that dispatched, each once, latest first.
    pub(super) fn recent(&self) -> Vec<usize> {
        let mut recent = Vec::new();
        for &queue in self.dispatches.iter().rev().take(16) {
            if !recent.contains(&queue) {
                recent.push(queue);
            }
        }
        recent
    }

    pub(super) fn look(&mut self, now: Time, queue: usize, from: u64, start: u64, end: u64) {
        let stream = self.streams.entry(queue).or_default();
        if stream.hold.as_ref().is_some_and(|hold| (hold.from, hold.start) == (from, start)) {
            return;
        }
        if stream.hold.replace(Hold { from, start, end: Some(end), since: now }).is_some() {
            self.count_hold(queue, None);
        }
    }

    pub(super) fn hold(&self, now: Time, queue: usize, op: Op, loss: u32) -> Option<Time> {
        let stream = self.streams.get(&queue)?;
        let since = stream.hold.as_ref()?.since;
        let saving = self.prices.saving(op, 0).as_nanos();
        let (until, _) = self.think(stream, true)?.best(now.since(since).as_nanos(), saving, loss, saving)?;
        Some(since + Span::from_nanos(until))
    }
}
