//! Where what the choice does not gain is lost: the same mixes by those who know more than it can, one step after the other.

use iogate_core::auto::Candidates;
use iogate_core::auto::chooser::GAIN_MIN;
use iogate_core::auto::ring::Limits;
use iogate_core::{SchedulerConfig, Time};

use super::evaluate::{Judged, Known, Slowdowns, auto};
use super::mix::{Mix, Set, fifo};
use super::run::{Ran, run, run_with};

/// What became of a mix.
#[derive(Clone, Debug)]
pub struct Losses {
    /// The kind of storage.
    pub storage: &'static str,
    /// How long it took with `fifo`, in seconds.
    pub seconds: f64,
    /// Each of those who know more, and the choice: its name, and how long applications took.
    pub ways: Vec<(&'static str, Slowdowns)>,
    /// What became of the sustained best in the first window of the choice with a profile.
    pub verdict: Verdict,
}

/// What a first window says of the candidate that is truly the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It gains less than 5 %.
    Little,
    /// There was no window.
    Never,
    /// It was given up after a part of the window.
    Dropped,
    /// It is expected to slow somebody down by more than may be.
    Harms,
    /// Less than 5 % are expected of it.
    Underrated,
    /// What is expected of it could as well be an error.
    Unsure,
    /// More is expected of another one that is to harm nobody.
    Beaten,
    /// It is the best.
    Best,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 8] = [
        Verdict::Little,
        Verdict::Never,
        Verdict::Dropped,
        Verdict::Harms,
        Verdict::Underrated,
        Verdict::Unsure,
        Verdict::Beaten,
        Verdict::Best,
    ];

    /// Of the candidate at place `best`, that gains so much.
    fn of(ran: &Ran, best: usize, gain: f64) -> Verdict {
        if gain < GAIN_MIN as f64 / 1e6 {
            return Verdict::Little;
        }
        let Some(of) = ran.expected.get(best) else { return Verdict::Never };
        let Some((score, threshold)) = of else { return Verdict::Dropped };
        let others = ran.expected.iter().flatten().filter(|(other, _)| other.is_harmless());
        match others.map(|(other, _)| other.mean).min() {
            _ if !score.is_harmless() => Verdict::Harms,
            _ if -score.mean < GAIN_MIN => Verdict::Underrated,
            _ if -score.mean <= *threshold => Verdict::Unsure,
            Some(least) if least < score.mean => Verdict::Beaten,
            _ => Verdict::Best,
        }
    }
}

/// With `fifo` until there is a window of these limits, and from then on with another one.
fn told(mix: &Mix, limits: Limits, other: &SchedulerConfig) -> Ran {
    let mut is_due = true;
    run_with(mix, &fifo(), None, u64::MAX, |now, gate, ran| {
        if is_due && now >= Time::ZERO + limits.shortest {
            let done: usize = ran.completions.iter().map(Vec::len).sum();
            if done >= limits.completions {
                is_due = false;
                gate.switch(now, other);
            }
        }
    })
}

impl Losses {
    /// Carries out the mix with this number.
    pub fn new(set: Set, number: u64) -> Losses {
        let mix = Mix::random(set, number);
        let base = run(&mix, &fifo(), None, u64::MAX);
        let judged = Judged::new(&mix);
        let (bounded, sustained) = (judged.best(true), judged.best_sustained());
        let candidates = Candidates::every();
        let place = |best: &str| judged.fixed.iter().position(|(name, _)| name == best).unwrap_or(0);
        let told = |limits, (best, _): &(String, Slowdowns)| {
            let other = candidates.fixed().nth(place(best)).cloned().unwrap_or_else(fifo);
            Slowdowns::of(&told(&mix, limits, &other), &base)
        };
        let model = run(&mix, &fifo(), Some(&mut auto(&mix, Known::Model)), u64::MAX);
        let [(profile, with_profile), (nothing, _)] = &judged.chosen;
        let ways = vec![
            ("bounded best", bounded.1.clone()),
            ("bounded best, told after 32 completions", told(Limits::EARLY, bounded)),
            ("bounded best, told after a window", told(Limits::USUAL, bounded)),
            ("guarded best", judged.best_guarded().1.clone()),
            ("sustained best", sustained.1.clone()),
            ("sustained best, told after 32 completions", told(Limits::EARLY, sustained)),
            ("sustained best, told after a window", told(Limits::USUAL, sustained)),
            ("auto, the model is known", Slowdowns::of(&model, &base)),
            ("auto with a profile", profile.clone()),
            ("auto without", nothing.clone()),
        ];
        Losses {
            storage: judged.storage,
            seconds: judged.seconds,
            verdict: Verdict::of(with_profile, place(&sustained.0), -sustained.1.mean()),
            ways,
        }
    }
}
