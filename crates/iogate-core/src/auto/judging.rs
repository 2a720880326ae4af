//! A window that is being judged, and what is kept of it.

use alloc::vec::Vec;

use super::objective::{HARM_MAX, Ln, REQUESTS_MIN, Score, Slowdown, ln_ratio};
use super::shadow::{Shadow, Times};
use super::subsets::Subsets;
use super::window::Window;
use crate::time::Span;

/// The fewest requests of which a part of a window is looked at.
pub(super) const PART_MIN: u32 = 96;
/// What harm beyond what may be counts in a part of a window, as a multiple of gains.
const HARM_WEIGHT: Ln = 2;
/// Applications of a window that are kept one by one; of more, the larger ones, and the rest together.
const APPS_MAX: usize = 64;

/// What was simulated of a window as a whole.
pub(super) struct Seen {
    pub(super) apps: Vec<(u64, u32)>,
    pub(super) runs: Vec<(usize, Vec<u64>)>,
    /// The same as long as all are there, where the others are what applications take in all.
    pub(super) at_once: Vec<(usize, Vec<u64>)>,
}

/// In the place of a candidate: `fifo` from the beginning of each application on.
pub(super) const BASE: usize = usize::MAX;

/// A change whose promise is not seen to be kept yet.
pub(super) struct Trial {
    pub(super) from: usize,
    pub(super) promised: Ln,
    /// How much longer the scheduler before was predicted to take than it took.
    pub(super) bias: Ln,
    /// What was simulated of the gain, without any correction.
    pub(super) simulated: Ln,
    /// What it carried out in which time.
    pub(super) rate: Rate,
    /// Which window with it the next one is.
    pub(super) windows: u32,
}

/// What was carried out in a window.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) span: Span,
}

impl Rate {
    pub(super) fn of(window: &Window) -> Rate {
        let (mut requests, mut bytes) = (0, 0);
        for app in &window.apps {
            requests += u64::from(app.completed);
            bytes += app.bytes.iter().sum::<u64>();
        }
        Rate { requests, bytes, span: window.span }
    }

    /// How much faster it is than `before`: the mean of requests and bytes, and the larger of them.
    pub(super) fn against(&self, before: &Rate) -> (Ln, Ln) {
        let longer = ln_ratio(self.span.as_nanos(), before.span.as_nanos());
        let (requests, bytes) =
            (ln_ratio(self.requests, before.requests), ln_ratio(self.bytes, before.bytes));
        ((requests + bytes) / 2 - longer, requests.max(bytes) - longer)
    }
}

pub(super) struct Judging {
    pub(super) window: Window,
    pub(super) stage: Stage,
    /// Candidates of this stage that are to be simulated, and those that have been, with the times of applications.
    pub(super) left: Vec<usize>,
    pub(super) done: Vec<(usize, Vec<Times>)>,
    pub(super) shadow: Option<Shadow>,
    /// How long the device is busy for a request under each of those of which that is known, in ns.
    pub(super) busy: Vec<(usize, u64)>,
    /// The simplest candidate of which most dispatches are such as were never measured.
    pub(super) guess: Option<usize>,
    /// How long a request is in the gate with `fifo`, as simulated in this stage.
    pub(super) wait: Span,
    /// Sets of applications, where it is known when they end.
    pub(super) subsets: Option<Subsets>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Quarter,
    Half,
    Whole,
}

impl Judging {
    /// How many requests of the window this stage looks at.
    fn limit(&self) -> u32 {
        let whole = self.window.len() as u32;
        match self.stage {
            Stage::Quarter => (whole / 4).max(PART_MIN),
            Stage::Half => (whole / 2).max(PART_MIN),
            Stage::Whole => whole,
        }
    }

    /// The window of the applications that are being simulated.
    pub(super) fn part(&self) -> &Window {
        self.subsets.as_ref().map_or(&self.window, |subsets| subsets.window(&self.window))
    }

    /// How many of its requests this stage looks at.
    pub(super) fn part_limit(&self) -> u32 {
        let limit = self.limit();
        self.subsets.as_ref().map_or(limit, |subsets| subsets.limit(&self.window, limit))
    }

    /// Whether all applications of the window are being simulated.
    pub(super) fn is_of_all(&self) -> bool {
        self.subsets.as_ref().is_none_or(|subsets| subsets.now == subsets.full)
    }

    /// All is known of the first of the candidates that were left.
    pub(super) fn finished(&mut self, candidate: usize, times: Vec<Times>) {
        self.done.push((candidate, times));
        self.left.remove(0);
    }

    /// What all are measured against.
    fn base(&self) -> Option<&Vec<Times>> {
        let of = |candidate| self.done.iter().find(|(index, _)| *index == candidate).map(|(_, times)| times);
        of(BASE).or_else(|| of(0))
    }

    /// The candidates of a stage, but `fifo`, the best first: by their means, and by how much more than may be they slow down an
    /// application. A part of a window is too little to say for sure who harms. `correction` is what is measured beyond that.
    pub(super) fn ranked(&self, correction: impl Fn(usize) -> Ln) -> Vec<usize> {
        let Some(base) = self.base() else { return Vec::new() };
        let mut ranked: Vec<(Ln, usize)> = (self.done.iter())
            .filter(|(index, _)| ![0, BASE].contains(index))
            .map(|(index, times)| {
                let score = Score::of(self.window.apps.iter().zip(times.iter().zip(base)).map(
                    |(app, (time, base))| {
                        let (took, with_fifo) = (time.in_all.as_nanos(), base.in_all.as_nanos());
                        Slowdown { key: app.key, requests: app.requests, took, with_fifo }
                    },
                ));
                let mean = score.mean - correction(*index);
                (mean + HARM_WEIGHT * (score.worst - HARM_MAX).max(0), *index)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, index)| index).collect()
    }

    /// What was predicted and what was measured, for the applications of which enough has completed; if there are none, for all.
    pub(super) fn measurable<'a>(&'a self, times: &'a [Times]) -> impl Iterator<Item = (u64, u64)> + 'a {
        let large = self.window.apps.iter().any(|app| app.completed >= REQUESTS_MIN);
        let least = if large { REQUESTS_MIN } else { 1 };
        (self.window.apps.iter().zip(times))
            .filter(move |(app, times)| {
                app.completed >= least && app.measured > Span::ZERO && times.measured > Span::ZERO
            })
            .map(|(app, times)| (times.measured.as_nanos(), app.measured.as_nanos()))
    }

    /// How much faster the window was than it would have been before the change, as far as that can be said.
    pub(super) fn shown(&self, trial: &Trial) -> Option<Ln> {
        let (_, times) = self.done.iter().find(|(index, _)| *index == trial.from)?;
        let apart: Vec<Ln> = self.measurable(times).map(|(before, took)| ln_ratio(before, took)).collect();
        let mean = apart.iter().sum::<Ln>() / (apart.len() as Ln).max(1);
        // Either reading will do: an order that favours some shows in what the one before would have taken; one that serves a client
        // at a time has no others in its window, and shows in what it carries out.
        let (rate, most) = Rate::of(&self.window).against(&trial.rate);
        // But who carries out fewer requests and fewer bytes than before has slowed down somebody, whatever was predicted.
        let shown = if most < -HARM_MAX { most } else { (mean - trial.bias).max(rate) };
        (!apart.is_empty()).then_some(shown)
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let done: usize = self.done.iter().map(|(_, times)| times.capacity() * size_of::<Times>()).sum();
        let done = done + self.subsets.as_ref().map_or(0, Subsets::allocated_bytes);
        self.window.allocated_bytes() + self.shadow.as_ref().map_or(0, Shadow::allocated_bytes) + done
    }
}

impl Seen {
    /// What is kept of a window; `None` if it was not simulated whole.
    pub(super) fn of(judging: &Judging) -> Option<Seen> {
        let apps = &judging.window.apps;
        let mut order: Vec<usize> = (0..apps.len()).collect();
        order.sort_by_key(|&index| core::cmp::Reverse(apps[index].requests));
        let kept = order.len().min(APPS_MAX);
        let rest = &order[kept..];
        let mut sizes: Vec<(u64, u32)> =
            order[..kept].iter().map(|&index| (apps[index].key, apps[index].requests)).collect();
        if !rest.is_empty() {
            sizes.push((u64::MAX, rest.iter().map(|&index| apps[index].requests).sum()));
        }
        let whole = judging.stage == Stage::Whole && judging.left.is_empty();
        let runs = |of: fn(&Times) -> Span| {
            let run = |(candidate, times): &(usize, Vec<Times>)| {
                let took = |index: &usize| of(&times[*index]).as_nanos();
                let mut all: Vec<u64> = order[..kept].iter().map(took).collect();
                if !rest.is_empty() {
                    all.push(rest.iter().map(took).sum());
                }
                (*candidate, all)
            };
            judging.done.iter().map(run).collect::<Vec<_>>()
        };
        let (at_once, runs) = (runs(|times| times.all), runs(|times| times.in_all));
        whole.then_some(Seen { apps: sizes, runs, at_once })
    }

    /// What each application takes under one candidate, and under another in the place of `fifo`, in all; or as long as all are there.
    pub(super) fn against(
        &self,
        index: usize,
        base: usize,
        in_all: bool,
    ) -> impl Iterator<Item = Slowdown> + '_ {
        let runs = if in_all { &self.runs } else { &self.at_once };
        let run = |index: usize| runs.iter().find(move |(candidate, _)| *candidate == index);
        // Where nobody's end is known, there is no other base.
        let base = run(base).or_else(|| run(0).filter(|_| base == BASE));
        run(index).zip(base).into_iter().flat_map(|((_, times), (_, base))| {
            (self.apps.iter().zip(times.iter().zip(base)))
                .map(|(&(key, requests), (&took, &with_fifo))| Slowdown { key, requests, took, with_fifo })
        })
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let runs = self.runs.iter().chain(&self.at_once);
        let runs: usize = runs.map(|(_, times)| times.capacity() * size_of::<u64>()).sum();
        runs + self.apps.capacity() * size_of::<(u64, u32)>()
    }
}
