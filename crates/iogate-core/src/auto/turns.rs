//! Two schedulers measured in turns, A B B A, where the gain that is expected could as well be an error of the prediction.
//!
//! A slice is a window's length, and nothing is simulated of it. What counts is *reference work*, each request at what it costs anywhere
//! on the storage, a second of the gate not empty: bytes depend on whose turn it was, and to count only busy devices would make waits free.
//!
//! A slice in which an application gets less than it may, or all together clearly less, is the last one with B. Who ends in between
//! spoils the measurement, and then nothing is learnt.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::correction::Measured;
use super::objective::{HARM_MAX, Ln, REQUESTS_MIN, ln_ratio};
use super::pricing::Pricing;
use super::reference::Reference;
use super::ring::{SPAN_MAX, SPAN_MIN};
use super::window::Window;
use crate::sched::SchedulerConfig;
use crate::time::{Span, Time};

/// Which slices are with B.
const WITH_B: [bool; 4] = [false, true, true, false];
/// The share of time, as one part in so many, that may be spent with B.
pub(super) const SHARE: u64 = 100;
/// The least gain for which it is worth trying what may as well lose.
pub(super) const WORTH: Ln = 100_000;
/// A slice with B takes no longer than so many times the one with A before it, however little completes.
const LONGER: u64 = 2;

/// What was done in some slices with one of the two.
#[derive(Clone, Debug, Default)]
struct Done {
    work: u64,
    busy: Span,
    /// Of the applications that count: their requests, and their work.
    apps: Vec<(u32, u64)>,
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.work += other.work;
        self.busy += other.busy;
        self.apps.resize(other.apps.len(), (0, 0));
        for (sum, one) in self.apps.iter_mut().zip(&other.apps) {
            *sum = (sum.0 + one.0, sum.1.saturating_add(one.1));
        }
    }

    /// How much faster it was than `base`: all together, the mean over applications, and by how much more than may be, and than can be
    /// chance, one of them was slower.
    fn against(&self, base: &Done) -> (Ln, Ln, Ln) {
        let longer = ln_ratio(self.busy.as_nanos(), base.busy.as_nanos());
        let (mut sum, mut harm) = (0, Ln::MIN);
        for ((_, work), (requests, before)) in self.apps.iter().zip(&base.apps) {
            let faster = ln_ratio(*work, *before) - longer;
            sum += faster;
            // Of n requests, about the root of n more or less is chance.
            harm = harm.max(-faster - HARM_MAX - 1_000_000 / Ln::from(requests.isqrt().max(1)));
        }
        (ln_ratio(self.work, base.work) - longer, sum / (self.apps.len() as Ln).max(1), harm)
    }
}

/// What follows from a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Another slice.
    More,
    /// How much faster B is, and whether that is enough to change to it.
    Over(Ln, bool),
    /// Nothing can be said.
    Spoilt,
}

/// Two schedulers that are measured in turns.
#[derive(Debug)]
pub(super) struct Turns {
    /// The candidate B, its settings, and the gain that is expected of it.
    pub(super) index: usize,
    pub(super) scheduler: SchedulerConfig,
    pub(super) expected: Ln,
    simulated: Ln,
    reference: Reference,
    /// How long a slice may take.
    pub(super) longest: Span,
    /// The applications that count, in the order of each slice's.
    keys: Vec<u64>,
    slices: Vec<Done>,
}

/// How long it may be with what is only tried, as one part of the time in so many, and how long it has been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    since: Time,
    share: u64,
    spent: Span,
}

impl Allowance {
    pub(super) fn new(share: u64, now: Time) -> Allowance {
        Allowance { since: now, share, spent: Span::ZERO }
    }

    /// How long it may still be.
    pub(super) fn left(&self, now: Time) -> Span {
        Span::from_nanos(now.since(self.since).as_nanos() / self.share) - self.spent
    }

    pub(super) fn spend(&mut self, span: Span) {
        self.spent += span;
    }
}

impl Turns {
    /// They begin with what `window` says of A; none if nothing could be said by it.
    pub(super) fn new(
        (index, scheduler): (usize, SchedulerConfig),
        (simulated, expected): (Ln, Ln),
        window: &Window,
        pricing: &dyn Pricing,
    ) -> Option<Box<Turns>> {
        let large = window.apps.iter().filter(|app| app.completed >= REQUESTS_MIN);
        let keys: Vec<u64> = large.map(|app| app.key).collect();
        let (reference, slices) = (Reference::of(pricing), Vec::with_capacity(WITH_B.len()));
        let longest = Span::from_nanos(window.span.max(SPAN_MIN).as_nanos() * LONGER).min(SPAN_MAX);
        let mut turns = Turns { index, scheduler, expected, simulated, reference, longest, keys, slices };
        turns.slices.push(turns.done(window)?);
        (!turns.keys.is_empty()).then(|| Box::new(turns))
    }

    /// Whether the next slice is with B.
    pub(super) fn is_with_b(&self) -> bool {
        WITH_B.get(self.slices.len()).copied().unwrap_or(false)
    }

    /// Slices so far.
    pub(super) fn slices(&self) -> usize {
        self.slices.len()
    }

    /// What was done in a slice; none if nothing was, or if an application is gone.
    fn done(&self, window: &Window) -> Option<Done> {
        let of = |key: &u64| window.apps.iter().find(|app| app.key == *key);
        let apps = (self.keys.iter())
            .map(|key| of(key).map(|app| (app.completed, self.reference.work(app))))
            .collect::<Option<Vec<_>>>()?;
        let work = window.apps.iter().map(|app| self.reference.work(app)).sum::<u64>();
        let busy = window.span - window.empty;
        (work > 0 && busy > Span::ZERO).then_some(Done { work, busy, apps })
    }

    /// A slice is over.
    pub(super) fn add(&mut self, window: &Window, least: Ln) -> Verdict {
        let Some(done) = self.done(window) else { return Verdict::Spoilt };
        self.slices.push(done);
        let (a, b) = (self.all(false), self.all(true));
        let (work, mean, harm) = b.against(&a);
        // An order that favours some shows in the mean over applications, one that saves time in the work; either will do, but who
        // does less of it has slowed down somebody.
        let harms = harm > 0 || work < -HARM_MAX;
        let shown = if work < -HARM_MAX { work } else { work.max(mean) };
        if harms {
            return Verdict::Over(shown, false);
        }
        if self.slices.len() < WITH_B.len() {
            return Verdict::More;
        }
        let apart = |one: usize, other: usize| self.slices[one].against(&self.slices[other]).0.abs() / 2;
        let chance = apart(0, 3).max(apart(1, 2));
        Verdict::Over(shown, shown > least.max(chance))
    }

    /// What was done with A, or with B, so far.
    fn all(&self, with_b: bool) -> Done {
        let mut sum = Done::default();
        let slices = self.slices.iter().zip(WITH_B).filter(|(_, which)| *which == with_b);
        slices.for_each(|(slice, _)| sum.add(slice));
        sum
    }

    /// What has been measured, from the candidate A on.
    pub(super) fn measured(&self, from: usize, shown: Ln) -> Measured {
        Measured { from, to: self.index, simulated: self.simulated, shown }
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        let slices: usize =
            self.slices.iter().map(|done| done.apps.capacity() * size_of::<(u32, u64)>()).sum();
        slices + self.keys.capacity() * size_of::<u64>()
    }
}
