//! Where what the choice does not gain is lost: the same mixes by those who know more than it can, one step after the other.

use iogate_core::auto::Candidates;
use iogate_core::{SchedulerConfig, Span, Time};

use super::evaluate::{ENDLESS_MAX, Known, Slowdowns, auto, guarded, starves};
use super::mix::{Mix, Set, fifo};
use super::run::{Ran, run, run_with};

/// From when on somebody is told what is best: so many completions, and so much time.
pub const EARLY: (u64, Span) = (32, Span::ZERO);
/// The same as the first window is over.
pub const WINDOW: (u64, Span) = (128, Span::from_millis(250));

/// What became of a mix.
#[derive(Clone, Debug)]
pub struct Losses {
    /// The kind of storage.
    pub storage: &'static str,
    /// How long it took with `fifo`, in seconds.
    pub seconds: f64,
    /// The place of the best of the fixed ones that harms nobody, and of the best that would not either if nobody came to an end.
    pub best: [usize; 2],
    /// Each of those who know more, and the choice: its name, and how long applications took.
    pub ways: Vec<(&'static str, Slowdowns)>,
    /// What became of the best of the second kind in the first window of the choice with a profile.
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
        const LEAST: i64 = 50_000;
        if gain < 0.05 {
            return Verdict::Little;
        }
        let Some(of) = ran.expected.get(best) else { return Verdict::Never };
        let Some((score, threshold)) = of else { return Verdict::Dropped };
        let others = ran.expected.iter().flatten().filter(|(other, _)| other.is_harmless());
        match others.map(|(other, _)| other.mean).min() {
            _ if !score.is_harmless() => Verdict::Harms,
            _ if -score.mean < LEAST => Verdict::Underrated,
            _ if -score.mean <= *threshold => Verdict::Unsure,
            Some(least) if least < score.mean => Verdict::Beaten,
            _ => Verdict::Best,
        }
    }
}

/// With `fifo` at first, and from then on with another one.
fn told(mix: &Mix, (completions, span): (u64, Span), other: &SchedulerConfig) -> Ran {
    let mut is_due = true;
    run_with(mix, &fifo(), None, u64::MAX, |now, gate, ran| {
        if is_due && now >= Time::ZERO + span {
            let done: usize = ran.completions.iter().map(Vec::len).sum();
            if done as u64 >= completions {
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
        let candidates = Candidates::every();
        let fixed: Vec<&SchedulerConfig> = candidates.fixed().collect();
        let of = |ran: &Ran| Slowdowns::of(ran, &base);
        let outcomes: Vec<Slowdowns> = fixed.iter().map(|one| of(&run(&mix, one, None, u64::MAX))).collect();
        let mut order: Vec<usize> = (0..fixed.len()).filter(|at| outcomes[*at].harmed() == 0).collect();
        order.sort_by(|one, other| outcomes[*one].mean().total_cmp(&outcomes[*other].mean()));
        let endless = mix.endless_until(Time::from_nanos(base.ends.iter().copied().max().unwrap_or(0)));
        let done = |one: &SchedulerConfig| endless.completed(&run(&endless, one, None, ENDLESS_MAX));
        let with_fifo = if order[0] == 0 { Vec::new() } else { done(fixed[0]) };
        let best = order[0];
        let sustained =
            order.iter().copied().find(|&at| at == 0 || !starves(&done(fixed[at]), &with_fifo)).unwrap_or(0);
        let guarded = (fixed.iter().skip(1).map(|one| of(&guarded(&mix, one, &base))))
            .chain([outcomes[sustained].clone()])
            .filter(|of| of.harmed() == 0)
            .min_by(|one, other| one.mean().total_cmp(&other.mean()));
        let chosen = [Known::Model, Known::Profile, Known::Nothing]
            .map(|known| run(&mix, &fifo(), Some(&mut auto(&mix, known)), u64::MAX));
        let [model, profile, nothing] = &chosen;
        let ways = vec![
            ("bounded best", outcomes[best].clone()),
            ("bounded best, told after 32 completions", of(&told(&mix, EARLY, fixed[best]))),
            ("bounded best, told after a window", of(&told(&mix, WINDOW, fixed[best]))),
            ("guarded best", guarded.unwrap_or_default()),
            ("sustained best", outcomes[sustained].clone()),
            ("sustained best, told after 32 completions", of(&told(&mix, EARLY, fixed[sustained]))),
            ("sustained best, told after a window", of(&told(&mix, WINDOW, fixed[sustained]))),
            ("auto, the model is known", of(model)),
            ("auto with a profile", of(profile)),
            ("auto without", of(nothing)),
        ];
        Losses {
            storage: mix.storage.kind(),
            seconds: base.ends.iter().copied().max().unwrap_or(0) as f64 / 1e9,
            best: [best, sustained],
            ways,
            verdict: Verdict::of(profile, sustained, -outcomes[sustained].mean()),
        }
    }
}
