//! What the choice made of mixes, against the candidates as fixed schedulers, each carried out in full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Auto, Candidates, Chooser, Meter, Pace, Pricing};
use iogate_core::device::Device;
use iogate_core::profile::{Profile, Profiled, Refit};
use iogate_core::{Span, Time};

use super::mix::{Mix, fifo};
use super::run::{Ran, SLICE, run, run_with};

/// What an application may take of what it takes with `fifo`.
pub const HARM: f64 = 1.10;

/// How long a choice that knows everything goes on with `fifo` before it takes the best: as long as a first window is.
pub const FIRST: Span = Span::from_millis(250);

/// How long applications took against `fifo`: the logarithm of the ratio of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowdowns(pub Vec<f64>);

impl Slowdowns {
    /// Of `ran`, while `base` is what it was with `fifo`.
    pub fn of(ran: &Ran, base: &Ran) -> Slowdowns {
        let ends = ran.ends.iter().zip(&base.ends).filter(|(_, base)| **base > 0);
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
    /// Each candidate after `fifo` for [`FIRST`], and whether no application was late meanwhile, at any time.
    pub late: Vec<(Slowdowns, bool)>,
    /// The choice with a profile, and without one.
    pub chosen: [(Slowdowns, Ran); 2],
}

/// A choice for `mix` that begins with `fifo`.
pub fn auto(mix: &Mix, known: Known) -> Auto {
    let (kind, rotational) = (mix.storage.kind(), mix.storage.is_rotational());
    let profile = match known {
        Known::Profile => mix.storage.profile(),
        Known::Nothing => Profile::assumed(kind, rotational),
    };
    let prices = profile.clone();
    let pricing: Arc<dyn Pricing> = Arc::new(move || -> Box<dyn Device> { Box::new(Profiled::new(&prices)) });
    let chooser = Chooser::new(&mix.config(&fifo()), pricing, Time::ZERO);
    let auto = Auto::new(chooser, Pace::new(REQUESTS_PER_S, Time::ZERO));
    match known {
        Known::Profile => auto,
        Known::Nothing => auto.learning(Meter::new(Refit::from_nothing(kind, rotational))),
    }
}

impl Judged {
    /// Carries out a mix with everything.
    pub fn new(mix: &Mix) -> Judged {
        let base = run(mix, &fifo(), None, u64::MAX);
        let candidates = Candidates::every();
        let fixed = candidates.all().iter().map(|scheduler| {
            (scheduler.to_string(), Slowdowns::of(&run(mix, scheduler, None, u64::MAX), &base))
        });
        let late = candidates.all().iter().map(|scheduler| {
            let mut is_switched = false;
            let ran = run_with(mix, &fifo(), None, u64::MAX, |now, gate| {
                if !is_switched && now >= Time::ZERO + FIRST {
                    is_switched = true;
                    gate.switch(now, scheduler);
                }
            });
            (Slowdowns::of(&ran, &base), is_never_late(&ran, &base))
        });
        let late: Vec<_> = late.collect();
        let chosen = [Known::Profile, Known::Nothing].map(|known| {
            let ran = run(mix, &fifo(), Some(&mut auto(mix, known)), u64::MAX);
            (Slowdowns::of(&ran, &base), ran)
        });
        let seconds = base.ends.iter().copied().max().unwrap_or(0) as f64 / 1e9;
        Judged { storage: mix.storage.kind(), seconds, fixed: fixed.collect(), late, chosen }
    }

    /// The best of the fixed ones, by their means; a bounded one makes no application slower than may be.
    pub fn best(&self, bounded: bool) -> &(String, Slowdowns) {
        let may = |slowdowns: &Slowdowns| !bounded || slowdowns.harmed() == 0;
        (self.fixed.iter().filter(|(_, slowdowns)| may(slowdowns)))
            .min_by(|(_, one), (_, other)| one.mean().total_cmp(&other.mean()))
            .unwrap_or(&self.fixed[0])
    }

    /// The best that makes no application slower than may be, after a first window with `fifo`; if it does not know how much any
    /// application has before it, none may be late at any time: it could be over then.
    pub fn ceiling(&self, knows_ends: bool) -> &Slowdowns {
        (self.late.iter().filter(|(slowdowns, timely)| slowdowns.harmed() == 0 && (knows_ends || *timely)))
            .map(|(slowdowns, _)| slowdowns)
            .min_by(|one, other| one.mean().total_cmp(&other.mean()))
            .unwrap_or(&self.late[0].0)
    }
}

/// Whether each application had at any time, from one second on, what it had with `fifo` by a time of which this is not more than [`HARM`]
/// times as much, to a slice.
fn is_never_late(ran: &Ran, base: &Ran) -> bool {
    let from = (1_000_000_000 / SLICE.as_nanos()) as usize;
    (0..base.ends.len()).all(|app| {
        let (mut had, mut has, mut at) = (0_u64, 0_u64, 0);
        base.progress.iter().enumerate().all(|(slice, done)| {
            had += u64::from(done[app]);
            while has < had && at < ran.progress.len() {
                has += u64::from(ran.progress[at][app]);
                at += 1;
            }
            let by = ((slice + 1) as f64 * HARM) as usize + 1;
            slice < from || (has >= had && at <= by)
        })
    })
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
