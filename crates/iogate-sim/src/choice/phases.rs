//! A change of phase: all applications do something else from one moment on.

use iogate_core::auto::Candidates;
use iogate_core::{SchedulerConfig, Span, Time};

use super::evaluate::{HARM, Known, auto};
use super::mix::{Mix, Set, fifo};
use super::run::{Ran, SLICE, run};

/// How long each phase is.
const PHASE: Span = Span::from_secs(10);
/// Requests of both phases with `fifo`, above which a mix is too much to be simulated so often.
const REQUESTS_MAX: u64 = 120_000;

/// The times since the change that are told apart, in slices: up to 0.5, 1, 2, 4 and 10 s.
pub const PERIODS: [(usize, usize); 5] = [(0, 2), (2, 4), (4, 8), (8, 16), (16, 40)];

/// How fast applications went on after a change, as a part of the best fixed candidate of that phase: of the same time since.
#[derive(Clone, Debug)]
pub struct Change {
    /// With `fifo`, with the choice with a profile, and without one: in each period.
    pub shares: [[f64; PERIODS.len()]; 3],
}

impl Change {
    /// Carries out a mix with everything; `None` if it has too many requests, or too few.
    pub fn new(set: Set, number: u64) -> Option<Change> {
        let change = Time::ZERO + PHASE;
        let mix = Mix::random_change(set, number, change, change + PHASE);
        let base = run(&mix, &fifo(), None, REQUESTS_MAX);
        let total: u64 = base.requests.iter().map(|done| u64::from(*done)).sum();
        // Four of each application in a slice, or numbers say nothing.
        let rates = rates(&base, PERIODS[4]);
        if total >= REQUESTS_MAX || rates.iter().any(|rate| *rate < 4.0) {
            return None;
        }
        // To their ends, as the choices: who is faster has more requests in the same time.
        let with = |scheduler: &SchedulerConfig| run(&mix, scheduler, None, u64::MAX);
        let fixed: Vec<Ran> = Candidates::every().fixed().map(with).collect();
        let best = (fixed.iter())
            .filter(|ran| share(ran, &base, PERIODS[4]).1 <= HARM)
            .max_by(|one, other| {
                share(one, &base, PERIODS[4]).0.total_cmp(&share(other, &base, PERIODS[4]).0)
            })
            .unwrap_or(&base);
        let chosen = [Known::Profile, Known::Nothing]
            .map(|known| run(&mix, &fifo(), Some(&mut auto(&mix, known)), u64::MAX));
        let of = |ran: &Ran| PERIODS.map(|period| share(ran, best, period).0);
        Some(Change { shares: [of(&base), of(&chosen[0]), of(&chosen[1])] })
    }
}

/// Completions of each application in a slice of a period after the change, on the average.
fn rates(ran: &Ran, (from, to): (usize, usize)) -> Vec<f64> {
    let begin = (PHASE.as_nanos() / SLICE.as_nanos()) as usize;
    let mut sums = vec![0.0; ran.ends.len()];
    for slice in ran.progress.iter().take(begin + to).skip(begin + from) {
        sums.iter_mut().zip(slice).for_each(|(sum, done)| *sum += f64::from(*done));
    }
    sums.iter().map(|sum| sum / (to - from) as f64).collect()
}

/// How fast applications went on, against `other`: the geometric mean, and by which factor the slowest is slower.
fn share(ran: &Ran, other: &Ran, period: (usize, usize)) -> (f64, f64) {
    let slices = (period.1 - period.0) as f64;
    // Half a completion more, so that none is not nothing.
    let ratios: Vec<f64> = (rates(ran, period).iter().zip(rates(other, period)))
        .map(|(one, other)| (one * slices + 0.5) / (other * slices + 0.5))
        .collect();
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64;
    (mean.exp(), 1.0 / ratios.iter().copied().fold(f64::INFINITY, f64::min))
}
