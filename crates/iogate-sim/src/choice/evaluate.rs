//! What the choice made of mixes, against the candidates as fixed schedulers, each carried out in full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Auto, Candidates, Chooser, Meter, Pace, Pricing, Prior};
use iogate_core::device::Device;
use iogate_core::profile::{Profile, Profiled, Refit};
use iogate_core::{SchedulerConfig, SchedulerKind, Span, Time};

use super::mix::{Mix, fifo};
use super::run::{Ran, run, run_with};

/// What an application may take of what it takes with `fifo`.
pub const HARM: f64 = 1.10;

/// From when on, and for how long, another scheduler is in force beside `fifo` where nothing is chosen: about a window.
pub const MOMENT: (Time, Span) = (Time::from_nanos(500_000_000), Span::from_millis(250));

/// How far behind `fifo` an application may be as a guard gives another scheduler up, and as it takes it up again: what it has
/// taken, of what that much takes with `fifo`. It looks so often.
const GUARD: (f64, f64, Span) = (1.08, 1.05, Span::from_millis(5));

/// Those that are in force for a moment.
const MOMENTARY: [SchedulerKind; 5] =
    [SchedulerKind::ToAgg, SchedulerKind::Hbrr, SchedulerKind::Sjf, SchedulerKind::Mlf, SchedulerKind::Aioli];

/// Most requests of a mix of which nobody comes to an end.
pub(super) const ENDLESS_MAX: u64 = 400_000;

/// How long applications took against `fifo`: the logarithm of the ratio of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowdowns(pub Vec<f64>);

impl Slowdowns {
    /// Of `ran`, while `base` is what it was with `fifo`.
    pub fn of(ran: &Ran, base: &Ran) -> Slowdowns {
        Slowdowns::between(&ran.ends, &base.ends)
    }

    /// The same of one round.
    pub fn of_round(ran: &Ran, base: &Ran, round: usize) -> Slowdowns {
        Slowdowns::between(&ran.rounds[round], &base.rounds[round])
    }

    fn between(ends: &[u64], base: &[u64]) -> Slowdowns {
        let ends = ends.iter().zip(base).filter(|(_, base)| **base > 0);
        Slowdowns(ends.map(|(end, base)| (*end as f64 / *base as f64).ln()).collect())
    }

    /// The mean over applications.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// The largest factor.
    pub fn worst(&self) -> f64 {
        self.0.iter().copied().fold(f64::MIN, f64::max).exp()
    }

    /// How many applications are slower than may be.
    pub fn harmed(&self) -> usize {
        self.0.iter().filter(|slowdown| slowdown.exp() > HARM).count()
    }
}

/// What is known of the storage as the choice begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A profile that was measured before.
    Profile,
    /// Nothing but whether it is rotational: prices are learnt meanwhile.
    Nothing,
    /// All that it charges: its own model.
    Model,
}

/// What became of a mix.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The kind of storage.
    pub storage: &'static str,
    /// How long it took with `fifo`, in seconds.
    pub seconds: f64,
    /// Each candidate as a fixed scheduler, `fifo` first.
    pub fixed: Vec<(String, Slowdowns)>,
    /// `fifo`, but for a [`MOMENT`] of another one: nothing is chosen, and nothing is expected of it.
    pub disturbed: Vec<(String, Slowdowns)>,
    /// The choice with a profile, and without one.
    pub chosen: [(Slowdowns, Ran); 2],
    /// Each of them but `fifo`, as long as nobody falls behind: see [`guarded`].
    pub guarded: Vec<(String, Slowdowns)>,
    /// Of each of the fixed ones, whether it makes nobody slower than may be even if nobody comes to an end while the mix takes.
    sustained: Vec<bool>,
}

/// What chooses for `mix`, beginning with `fifo`, where storage is taken to charge as `profile` says.
pub(super) fn chooser(mix: &Mix, profile: Profile) -> Chooser {
    let pricing: Arc<dyn Pricing> =
        Arc::new(move || -> Box<dyn Device> { Box::new(Profiled::new(&profile)) });
    Chooser::new(&mix.config(&fifo()), pricing, Time::ZERO)
}

/// Whether applications that have carried out so much have got less than they may, of what they carry out `with_fifo` in the same time.
pub(super) fn starves(done: &[u64], with_fifo: &[u64]) -> bool {
    done.iter().zip(with_fifo).any(|(done, with_fifo)| (*done as f64) * HARM < *with_fifo as f64)
}

/// A choice for `mix` that begins with `fifo`.
pub fn auto(mix: &Mix, known: Known) -> Auto {
    let pace = Pace::new(REQUESTS_PER_S, Time::ZERO);
    match known {
        // Also a profile goes on learning, as it does beside a gate in real time.
        Known::Profile => {
            let profile = mix.storage.profile();
            let refit = Refit::from_kept(profile.clone());
            Auto::new(chooser(mix, profile).beginning_with(Prior::committed()), pace)
                .learning(Meter::new(refit))
        }
        Known::Model => {
            let chooser = Chooser::new(&mix.config(&fifo()), mix.storage.pricing(), Time::ZERO);
            Auto::new(chooser.beginning_with(Prior::committed()), pace)
        }
        Known::Nothing => {
            let (kind, rotational) = (mix.storage.kind(), mix.storage.is_rotational());
            let chooser = chooser(mix, Profile::assumed(kind, rotational));
            Auto::new(chooser, pace).learning(Meter::new(Refit::from_nothing(kind, rotational)))
        }
    }
}

/// Carries out a mix with `fifo`, but for a [`MOMENT`] of another scheduler.
pub fn disturbed(mix: &Mix, other: &SchedulerConfig) -> Ran {
    let (from, span) = MOMENT;
    let mut next = Some((from, other.clone()));
    run_with(mix, &fifo(), None, u64::MAX, |now, gate, _| {
        if let Some((_, scheduler)) = next.take_if(|(at, _)| now >= *at) {
            gate.switch(now, &scheduler);
            next = (scheduler != fifo()).then(|| (now + span, fifo()));
        }
    })
}

/// Carries out a mix with another scheduler as long as nobody is behind what `fifo` has made of it, `base`, by more than may be, and with
/// `fifo` until it is not so any more.
///
/// Nobody who chooses can know what `fifo` would have made of a load; this does, to the request. It does not know how long applications
/// are.
pub fn guarded(mix: &Mix, other: &SchedulerConfig, base: &Ran) -> Ran {
    let (leave, back, pause) = GUARD;
    let (mut is_on, mut next) = (false, Time::ZERO);
    run_with(mix, &fifo(), None, u64::MAX, |now, gate, ran| {
        if now < next {
            return;
        }
        next = now + pause;
        // By when the next completion of each application would have been.
        let due =
            ran.completions.iter().zip(&base.completions).filter_map(|(done, base)| base.get(done.len()));
        let most = if is_on { leave } else { back };
        let may = due.copied().min().is_none_or(|due| now.as_nanos() as f64 <= due as f64 * most);
        if may != is_on {
            is_on = may;
            gate.switch(now, &if is_on { other.clone() } else { fifo() });
        }
    })
}

impl Judged {
    /// Carries out a mix with everything.
    pub fn new(mix: &Mix) -> Judged {
        let base = run(mix, &fifo(), None, u64::MAX);
        let candidates = Candidates::every();
        let endless = mix.endless_until(Time::from_nanos(base.ends.iter().copied().max().unwrap_or(0)));
        let done: Vec<Vec<u64>> = (candidates.fixed())
            .map(|scheduler| endless.completed(&run(&endless, scheduler, None, ENDLESS_MAX)))
            .collect();
        // The first is `fifo`.
        let sustained = done.iter().map(|of| !starves(of, &done[0])).collect();
        let fixed = candidates.fixed().map(|scheduler| {
            (scheduler.to_string(), Slowdowns::of(&run(mix, scheduler, None, u64::MAX), &base))
        });
        let chosen = [Known::Profile, Known::Nothing].map(|known| {
            let ran = run(mix, &fifo(), Some(&mut auto(mix, known)), u64::MAX);
            (Slowdowns::of(&ran, &base), ran)
        });
        let disturbed = MOMENTARY.map(|kind| {
            let other = SchedulerConfig::new(kind);
            (other.to_string(), Slowdowns::of(&disturbed(mix, &other), &base))
        });
        let guarded = candidates
            .fixed()
            .skip(1)
            .map(|scheduler| (scheduler.to_string(), Slowdowns::of(&guarded(mix, scheduler, &base), &base)));
        let guarded = guarded.collect();
        let seconds = base.ends.iter().copied().max().unwrap_or(0) as f64 / 1e9;
        Judged {
            storage: mix.storage.kind(),
            seconds,
            fixed: fixed.collect(),
            disturbed: disturbed.into(),
            chosen,
            guarded,
            sustained,
        }
    }

    /// The best of the bounded ones that would harm nobody either if no application came to an end.
    ///
    /// Who serves one application before the others harms nobody if that one is over soon, and starves them if it is not: without knowing
    /// how long applications are, nobody can choose that.
    pub fn best_sustained(&self) -> &(String, Slowdowns) {
        let sustained = self.fixed.iter().zip(&self.sustained).filter(|(_, sustained)| **sustained);
        self.best_of(sustained.map(|(of, _)| of))
    }

    /// The best that a guard makes of any candidate without harm, or the best of the sustained ones: what one may hope for who knows all
    /// but how long applications are.
    pub fn best_guarded(&self) -> &(String, Slowdowns) {
        self.best_of(self.guarded.iter().chain([self.best_sustained()]))
    }

    /// The best of these that harm nobody; else `fifo`.
    fn best_of<'a>(&'a self, all: impl Iterator<Item = &'a (String, Slowdowns)>) -> &'a (String, Slowdowns) {
        all.filter(|(_, slowdowns)| slowdowns.harmed() == 0)
            .min_by(|(_, one), (_, other)| one.mean().total_cmp(&other.mean()))
            .unwrap_or(&self.fixed[0])
    }

    /// The best of the fixed ones, by their means; a bounded one makes no application slower than may be.
    pub fn best(&self, bounded: bool) -> &(String, Slowdowns) {
        let may = |slowdowns: &Slowdowns| !bounded || slowdowns.harmed() == 0;
        (self.fixed.iter().filter(|(_, slowdowns)| may(slowdowns)))
            .min_by(|(_, one), (_, other)| one.mean().total_cmp(&other.mean()))
            .unwrap_or(&self.fixed[0])
    }
}

/// Does `work` for all numbers below `count`, on so many threads; the results are in their order. `done` is told how many there are.
pub fn in_parallel<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<T> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let result = work(index);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((index, result));
                    done(results.len());
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
