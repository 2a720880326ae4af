//! The choice: what is simulated of a window, when that is reason enough to change, and what became of a change.
//!
//! Of a window, `fifo` and the scheduler in use are simulated whole; of the others a quarter, of the better half of them a half, and
//! the best of these whole. The scheduler in use is also its own judge: how far the prediction was from what was measured bounds
//! what is believed of the others, and what changes that were taken back have not kept of their promises counts against the next ones,
//! for a while.
//!
//! What measurements say of a change is kept, for each kind of load, and corrects what is simulated of it from then on (`correction`). A
//! gain that could as well be an error is measured in turns with what is in use before anything is changed (`turns`).
//!
//! Before all that, after the first completions, a prior may say what to begin with (`prior`). Dispatches that have never been measured are
//! tried for a moment (`probing`).
//!
//! A change has `TRIAL_WINDOWS` to show itself, unless less is carried out than before: then it is taken back at once. One that shows
//! less than half of what it promised, and too little to be a reason for it, is taken back, and not tried again for a while that
//! doubles each time. Where nothing promises to be faster, what spares the device is taken (`thrift`). What is in use with a bound that
//! follows the load is given a new bound where the load has changed.

mod beginning;
mod bounds;
mod ending;
mod expecting;
mod probing;
mod proposal;
mod thrift;
mod turning;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::candidates::{Candidates, one_at_a_time};
use super::correction::{Corrections, Measured};
use super::ends::Ends;
use super::judging::{BASE, Judging, PART_MIN, Seen, Stage, Trial};
use super::objective::{HARM_MAX, Ln, Score, ln_ratio};
use super::pricing::Pricing;
use super::prior::{Prior, Traits};
use super::ring::Ring;
use super::shadow::Shadow;
use super::turns::{self, Allowance, Turns};
use super::window::{Reader, Reading, Window};
use crate::gate::GateConfig;
use crate::sched::SchedulerConfig;
use crate::time::{Span, Time};

pub use super::status::{Change, Reason, Status};

use probing::Probing;
use proposal::{Because, Proposal};

/// Requests that may be queued while a scheduler is changed.
pub const QUEUED_MAX: usize = 65_536;
/// Windows over which outcomes are summed.
pub const WINDOWS: usize = 8;
/// Windows after which one lucky, or unlucky, one does not decide any more.
const WINDOWS_SURE: usize = 3;
/// The least gain for which anything is changed.
pub const GAIN_MIN: Ln = 50_000;
/// What is as good as equal.
const TIE: Ln = 20_000;
/// Requests of a window that are looked at, at least and at most: more of them would cost windows.
const REQUESTS_OF_WINDOW: [u64; 2] = [512, 1_024];
/// Simulated requests for each request of a window, about.
const COST: u64 = 20;
/// A constant error of predictions counts by one part in so many: it concerns all candidates alike, or nearly.
const BIAS_PART: Ln = 3;
/// A constant error beyond which nothing is believed: ln 2.5.
const BIAS_MAX: Ln = 916_291;
/// Windows after which a change must have shown what it promised; one that makes things worse is taken back after the first.
const TRIAL_WINDOWS: u32 = 4;
/// What a change that was taken back has not kept of its promise fades by one part in so many with each window.
const FADE: Ln = 32;
/// The longest time, in windows, for which a candidate that has not kept its promise is barred.
const BAR_MAX: u64 = 1 << 20;

/// Chooses a scheduler for one gate.
///
/// Whoever drives it lets a [`Ring`] begin when [`Chooser::wants_window`] says so, hands it over by [`Chooser::consider`] when it is
/// ripe, gives it requests to simulate by [`Chooser::step`], switches the gate to [`Chooser::proposal`], and says so by
/// [`Chooser::settled`].
pub struct Chooser {
    config: GateConfig,
    pricing: Arc<dyn Pricing>,
    /// Whether the storage loses nothing by one dispatch at a time.
    one: bool,
    candidates: Candidates,
    /// The candidate in use.
    used: usize,
    reader: Reader,
    history: VecDeque<Seen>,
    errors: VecDeque<Apart>,
    bars: Vec<Bar>,
    trial: Option<Trial>,
    judging: Option<Box<Judging>>,
    proposal: Option<Proposal>,
    /// How long a request is in the gate with `fifo`, in real time.
    wait: Span,
    /// By how much changes that were taken back have shown less than they promised; it fades.
    miss: Ln,
    /// What a gain had to exceed in the last window.
    threshold: Ln,
    corrections: Corrections,
    turns: Option<Box<Turns>>,
    allowance: Allowance,
    probing: Probing,
    /// When applications end, and whether that is believed.
    ends: Ends,
    trusts: bool,
    /// What says what to begin with, until it has, and what it was told.
    prior: Option<Prior>,
    traits: Option<Traits>,
    /// What was best in the last window, if it was not what is in use.
    favourite: Option<usize>,
    /// Windows since the load became what it is, and since the last change; changes for a gain that count.
    age: u64,
    dwelt: u64,
    gains: u32,
    status: Status,
}

/// How far the predictions of a window were from what was measured: their mean, and the mean square around that.
#[derive(Clone, Copy)]
struct Apart {
    bias: Ln,
    around: Ln,
}

#[derive(Clone, Copy, Default)]
struct Bar {
    /// The first window in which it may be tried again, and for how long it will be barred the next time.
    until: u64,
    next: u64,
}

impl Chooser {
    /// A chooser for a gate with these settings, in front of storage that charges as `pricing` says.
    pub fn new(config: &GateConfig, pricing: Arc<dyn Pricing>, now: Time) -> Chooser {
        Chooser::with_candidates(config, pricing, Candidates::every(), now)
    }

    /// As [`Chooser::new`], with these candidates.
    pub fn with_candidates(
        config: &GateConfig,
        pricing: Arc<dyn Pricing>,
        mut candidates: Candidates,
        now: Time,
    ) -> Chooser {
        let used = candidates.place_of(&config.scheduler);
        let (from, to) = (config.scheduler.clone(), config.scheduler.clone());
        let change = Change { at: now, from, to, reason: Reason::Start, predicted: 0, measured: None };
        let (considered, error) = (Vec::new(), None);
        Chooser {
            config: config.clone(),
            one: one_at_a_time(&*pricing, config.depth),
            reader: Reader::new(pricing.extent_bytes()),
            pricing,
            bars: alloc::vec![Bar::default(); candidates.len()],
            candidates,
            used,
            history: VecDeque::with_capacity(WINDOWS),
            errors: VecDeque::with_capacity(WINDOWS),
            trial: None,
            judging: None,
            proposal: None,
            wait: Span::ZERO,
            miss: 0,
            threshold: 0,
            corrections: Corrections::default(),
            turns: None,
            allowance: Allowance::new(turns::SHARE, now),
            probing: Probing::new(now),
            ends: Ends::default(),
            trusts: false,
            prior: None,
            traits: None,
            favourite: None,
            age: 0,
            dwelt: 0,
            gains: 0,
            status: Status {
                change,
                considered,
                error,
                turns: None,
                corrected: Vec::new(),
                switches: 0,
                probes: 0,
                ends: 0,
                windows: 0,
                simulated: 0,
                memory_max: 0,
            },
        }
    }

    /// What the storage charges, as far as it is known now: for all windows that are considered from here on.
    pub fn set_pricing(&mut self, pricing: Arc<dyn Pricing>) {
        self.one = one_at_a_time(&*pricing, self.config.depth);
        self.pricing = pricing;
    }

    /// Whether it waits for a window.
    pub fn wants_window(&self) -> bool {
        self.judging.is_none() && self.proposal.is_none()
    }

    /// Whether it has something to simulate.
    pub fn has_work(&self) -> bool {
        self.judging.is_some()
    }

    /// Takes a window out of `ring`, if it is enough of one; else `ring` is to go on. `budget` is how many requests may be simulated
    /// for it, more or less.
    pub fn consider(&mut self, ring: &Ring, now: Time, budget: u64) -> bool {
        // What was to change has not yet.
        if self.proposal.is_some() {
            return true;
        }
        if let Some(prior) = self.prior.take() {
            self.begin_with(&prior, ring);
            // Without a change what has been noted is the beginning of the first window.
            return self.proposal.is_some();
        }
        if self.end_probe(ring, now) {
            return true;
        }
        if let Some(turns) = self.turns.take() {
            self.slice(turns, ring, now);
            return true;
        }
        let fresh = self.age < WINDOWS as u64 || self.trial.is_some();
        // While nothing changes windows are half as large, down to the smallest: the more is left for a change.
        let most = (if fresh { budget } else { budget / 2 } / COST)
            .clamp(REQUESTS_OF_WINDOW[0], REQUESTS_OF_WINDOW[1]);
        let window = match self.reader.read(ring, now, most as usize) {
            Reading::Window(window) => window,
            Reading::NotYet => return false,
            Reading::Nothing => return true,
        };
        self.has_read(&window);
        let left = self.contenders();
        let whole = window.len() as u32;
        let stage = if whole / 4 >= PART_MIN && left.len() > 4 { Stage::Quarter } else { Stage::Whole };
        let left = if stage == Stage::Whole { self.with_certain(left) } else { self.with_fifo(left) };
        let (done, wait, subsets) = (Vec::new(), Span::ZERO, self.subsets(&window, now));
        self.judging = Some(Box::new(Judging {
            window,
            stage,
            left,
            done,
            shadow: None,
            busy: Vec::new(),
            guess: None,
            wait,
            subsets,
        }));
        true
    }

    /// There is another window.
    fn has_read(&mut self, window: &Window) {
        if window.changed {
            self.history.clear();
            self.errors.clear();
            self.trial = None;
            self.probing.forget();
            self.ends.forget();
            (self.age, self.miss) = (0, 0);
            // What changes soon after a change of its own may be its own effect.
            self.gains -= u32::from(self.gains > 0 && self.dwelt >= WINDOWS as u64);
        }
        (self.age, self.dwelt) = (self.age + 1, self.dwelt + 1);
        self.status.windows += 1;
        self.corrections.seen(self.reader.kind());
        self.tell_corrections();
    }

    fn learn(&mut self, measured: Measured) {
        self.corrections.learn(measured);
        self.tell_corrections();
    }

    fn tell_corrections(&mut self) {
        let corrected = self.corrections.now().iter();
        self.status.corrected = corrected
            .map(|of| (self.candidates.with_wait(of.index, self.wait), of.by, of.measured))
            .collect();
    }

    /// Candidates that may be tried now.
    fn contenders(&self) -> Vec<usize> {
        (1..self.candidates.len())
            .filter(|&index| index != self.used && self.bars[index].until <= self.status.windows)
            .filter(|&index| self.candidates.suits(index, self.one))
            .collect()
    }

    fn with_fifo(&self, others: Vec<usize>) -> Vec<usize> {
        core::iter::once(0).chain(others.into_iter().filter(|&other| other != 0)).collect()
    }

    /// With those that are always simulated whole.
    fn with_certain(&self, others: Vec<usize>) -> Vec<usize> {
        let mut all = alloc::vec![0];
        let before = self.trial.as_ref().map(|trial| trial.from);
        for index in core::iter::once(self.used).chain(before).chain(self.favourite).chain(others) {
            if !all.contains(&index) {
                all.push(index);
            }
        }
        all
    }

    /// Simulates about `budget` requests; how many it were. Nothing happens without a budget.
    pub fn step(&mut self, now: Time, budget: u64) -> u64 {
        let Some(mut judging) = self.judging.take() else { return 0 };
        let mut used = 0;
        let mut over = false;
        while used < budget && !over {
            over = self.step_once(&mut judging, budget - used, &mut used);
        }
        self.status.simulated += used;
        if over {
            self.conclude(&judging, now);
        } else {
            self.judging = Some(judging);
        }
        used
    }

    /// One candidate, or a part of it; whether the window has been judged.
    fn step_once(&mut self, judging: &mut Judging, budget: u64, used: &mut u64) -> bool {
        let Some(&candidate) = judging.left.first() else { return self.next_stage(judging) };
        let mut shadow = match judging.shadow.take() {
            Some(shadow) => shadow,
            None => {
                let scheduler = self.candidates.with_wait(candidate, judging.wait);
                let (window, limit) = (judging.part(), judging.part_limit());
                match Shadow::new(window, &self.config, &scheduler, &*self.pricing, limit) {
                    Ok(shadow) => shadow,
                    // Settings that no gate takes.
                    Err(_) => return true,
                }
            }
        };
        let (simulated, over) = shadow.run(judging.part(), budget);
        let bytes = self.allocated_bytes() + judging.allocated_bytes() + shadow.allocated_bytes();
        self.status.memory_max = self.status.memory_max.max(bytes);
        // What simulates nothing costs something too, so that this ends.
        *used += simulated.max(1);
        if over {
            if candidate == 0 && judging.is_of_all() {
                judging.wait = shadow.mean_wait();
            }
            if judging.is_of_all() && !shadow.is_guess() {
                judging.busy.push((candidate, shadow.busy_ns()));
            }
            if judging.is_of_all() && shadow.is_guess() && self.candidates.is_gentle(candidate) {
                judging.guess = Some(judging.guess.map_or(candidate, |other| other.min(candidate)));
            }
            let times = shadow.times(judging.part()).collect();
            self.simulated(judging, candidate, times);
        } else {
            judging.shadow = Some(shadow);
        }
        false
    }

    /// Goes on with those that were best; whether there is nothing to go on to.
    fn next_stage(&self, judging: &mut Judging) -> bool {
        let keep = |ranked: &[usize], count: usize| ranked.iter().copied().take(count).collect::<Vec<_>>();
        let ranked = judging.ranked(|index| self.correction(index));
        match judging.stage {
            Stage::Whole => return true,
            Stage::Quarter => {
                judging.stage = Stage::Half;
                judging.left = self.with_fifo(keep(&ranked, ranked.len().div_ceil(2)));
            }
            Stage::Half => {
                judging.stage = Stage::Whole;
                judging.left = self.with_certain(keep(&ranked, 4));
            }
        }
        judging.done.clear();
        judging.busy.clear();
        if let Some(subsets) = &mut judging.subsets {
            subsets.begin_again();
        }
        false
    }

    /// A window has been simulated under all that could be best: what follows from it.
    fn conclude(&mut self, judging: &Judging, now: Time) {
        let Some(seen) = Seen::of(judging) else { return };
        self.history.truncate(WINDOWS - 1);
        self.history.push_front(seen);
        let bias = self.judge_itself(judging);
        self.trusts = self.trusts_ends(judging);
        self.status.ends = if self.trusts { self.ends.known() as u64 } else { 0 };
        self.follow_wait(judging.wait);
        self.status.considered = (judging.done.iter().filter(|(index, _)| *index != BASE))
            .map(|(index, _)| {
                let score = self.score(*index);
                let mean = score.mean - self.correction(*index);
                (self.candidates.with_wait(*index, self.wait), Score { mean, ..score })
            })
            .collect();
        self.miss -= self.miss / FADE;
        if let Some(trial) = self.trial.take() {
            if let Some(shown) = judging.shown(&trial) {
                if trial.windows < TRIAL_WINDOWS && shown < trial.promised / 2 && shown > -GAIN_MIN {
                    // Some orders take a while to form the runs that they gain by.
                    self.trial = Some(Trial { windows: trial.windows + 1, ..trial });
                    return;
                }
                self.status.change.measured = Some(shown);
                let (from, to, simulated) = (trial.from, self.used, trial.simulated);
                self.learn(Measured { from, to, simulated, shown });
                // What is less than half, but itself reason enough for a change, stays.
                let enough = GAIN_MIN.max(2 * self.status.error.unwrap_or(0));
                if shown < (trial.promised / 2).min(enough) {
                    if trial.promised > 0 {
                        self.miss = self.miss.max(trial.promised - shown);
                    }
                    self.bar(self.used);
                    self.set_proposal(trial.from, Reason::Reverted, 0);
                    return;
                }
                self.bars[self.used] = Bar::default();
            } else {
                self.trial = Some(trial);
                return;
            }
        }
        if let Some(bias) = bias.filter(|_| self.bias().abs() <= BIAS_MAX) {
            self.propose(judging, now, bias);
        }
        if self.proposal.is_none() {
            self.proposal = self.adjusted();
        }
        if self.proposal.is_none() && self.turns.is_none() {
            self.begin_probe(judging, now);
        }
    }

    fn set_proposal(&mut self, index: usize, reason: Reason, predicted: Ln) {
        let scheduler = self.candidates.with_wait(index, self.wait);
        let because = Because::Change(reason, predicted, None);
        self.proposal = Some(Proposal { index, scheduler, because });
    }

    /// What is better than what is in use by more than can be an error.
    fn propose(&mut self, judging: &Judging, now: Time, bias: Ln) {
        let error = self.status.error.unwrap_or(0);
        let window = judging.window.span.max(Span::from_millis(1)).as_nanos();
        let dwell = now.since(self.status.change.at).as_nanos().max(window);
        // Ordering the queue anew, and what a cold scheduler loses: in millionths of the time that it will be in use.
        let queued = judging.window.len() as u64;
        let cost = ((1_000_000 + queued * 200).saturating_mul(1_000_000) / dwell) as Ln;
        self.threshold = GAIN_MIN.max(2 * error).max(2 * self.miss).max(cost);
        let mut in_use = self.score(self.used);
        // One window can be a lucky one; where there is only one yet, it must do.
        let seen = |index| {
            self.history.iter().filter(|seen| seen.against(index, BASE, false).next().is_some()).count()
        };
        let sure = self.history.len().min(WINDOWS_SURE);
        let mut best: Option<(usize, Ln)> = None;
        let mut sure_best = best;
        for &(index, _) in judging.done.iter().filter(|(index, _)| *index != BASE) {
            // Who is slower than simulated may harm more than is simulated.
            let worst = self.score(index).worst - self.correction(index).min(0);
            // Nothing is better for who is late already.
            let is_back = self.trusts && index == 0;
            if index == self.used || worst > self.harm_max() && !is_back {
                continue;
            }
            let gain = self.gain(index);
            let simpler = |(other, most): &(usize, Ln)| {
                gain > most + TIE || (gain >= most - TIE && index < *other && gain > self.threshold)
            };
            if best.as_ref().is_none_or(simpler) {
                best = Some((index, gain));
            }
            if seen(index) >= sure && sure_best.as_ref().is_none_or(simpler) {
                sure_best = Some((index, gain));
            }
        }
        // What applications take in all is what they have taken, for the most part.
        if !self.trusts {
            in_use.worst -= error.min(HARM_MAX) + self.correction(self.used).min(0);
        }
        self.favourite = best.map(|(index, _)| index);
        if !self.trusts && in_use.is_harmless() && sure_best.is_none_or(|(_, gain)| gain <= self.threshold) {
            let sure = judging.done.iter().map(|(index, _)| *index).filter(|index| seen(*index) >= sure);
            if let Some(index) = self.thriftiest(judging, window, sure) {
                return self.try_out(index, Reason::Thrift, bias, judging);
            }
        }
        let Some((index, gain)) = sure_best else { return };
        // While the load stays the same, each further change must be waited for twice as long.
        let waited = self.trusts || self.dwelt >= (1 << self.gains.min(40)) / 4;
        let reason = match in_use.is_harmless() {
            // Who serves one client after the other harms the others in any one window.
            false if self.trusts || seen(self.used) >= WINDOWS_SURE => Reason::Harm,
            _ if gain > self.threshold && waited => Reason::Gain,
            _ if gain > GAIN_MIN.max(cost) && waited => {
                return self.begin_turns(index, gain, &judging.window, now);
            }
            _ => return,
        };
        self.try_out(index, reason, bias, judging);
    }

    /// Compares what was predicted for what is in use with what was measured; the mean of that, if it can be compared.
    fn judge_itself(&mut self, judging: &Judging) -> Option<Ln> {
        let (_, times) = judging.done.iter().find(|(index, _)| *index == self.used)?;
        let apart: Vec<Ln> =
            judging.measurable(times).map(|(predicted, took)| ln_ratio(predicted, took)).collect();
        if apart.is_empty() {
            return None;
        }
        let count = apart.len() as Ln;
        let bias = apart.iter().sum::<Ln>() / count;
        let around = apart.iter().map(|ln| square(ln - bias)).sum::<Ln>() / count;
        self.errors.truncate(WINDOWS - 1);
        self.errors.push_front(Apart { bias, around });
        let mean = self.bias();
        let each = self.errors.iter().map(|apart| apart.around + square(apart.bias - mean));
        let square = each.sum::<Ln>() / self.errors.len() as Ln + square(mean / BIAS_PART);
        self.status.error = Some(square.max(0).isqrt());
        Some(bias)
    }

    /// How much too long predictions are, the mean of the last windows.
    fn bias(&self) -> Ln {
        self.errors.iter().map(|apart| apart.bias).sum::<Ln>() / self.errors.len().max(1) as Ln
    }

    fn bar(&mut self, index: usize) {
        let bar = &mut self.bars[index];
        bar.next = (bar.next * 2).clamp(1, BAR_MAX);
        bar.until = self.status.windows + 1 + bar.next;
    }

    /// What the gate should be switched to, and by [`Chooser::settled`] be said to have been.
    pub fn proposal(&self) -> Option<&SchedulerConfig> {
        self.proposal.as_ref().map(|proposal| &proposal.scheduler)
    }

    /// The proposal was applied, or could not be (there was too much in the queue).
    pub fn settled(&mut self, now: Time, applied: bool) {
        let Some(proposal) = self.proposal.take() else { return };
        let (reason, predicted, measured) = match proposal.because {
            Because::Bound => {
                if applied {
                    self.status.change.to = proposal.scheduler;
                }
                return;
            }
            Because::Turn if applied => return,
            Because::Turn => return self.turn_refused(proposal),
            Because::Change(reason, ..) if !applied => {
                self.trial = None;
                // Nothing would say once more that it is to be left.
                self.proposal = (reason == Reason::Reverted).then_some(proposal);
                return;
            }
            Because::Change(reason, predicted, measured) => (reason, predicted, measured),
        };
        let Proposal { index, scheduler, .. } = proposal;
        let from = core::mem::replace(&mut self.status.change.to, scheduler.clone());
        self.status.change = Change { at: now, from, to: scheduler, reason, predicted, measured };
        self.status.switches += 1;
        self.gains += u32::from(reason == Reason::Gain);
        (self.used, self.dwelt) = (index, 0);
        // How well the one before was predicted says little about this one.
        self.errors.clear();
    }

    /// What is in use, and why.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Bytes of memory in use, those of simulated devices left out.
    pub fn allocated_bytes(&self) -> usize {
        let judging = self.judging.as_ref().map_or(0, |judging| judging.allocated_bytes());
        let history: usize = self.history.iter().map(Seen::allocated_bytes).sum();
        let turns = self.turns.as_ref().map_or(0, |turns| turns.allocated_bytes());
        let known = self.corrections.allocated_bytes() + self.ends.allocated_bytes();
        self.reader.allocated_bytes() + judging + history + turns + known
    }
}

fn square(ln: Ln) -> Ln {
    ln.saturating_mul(ln)
}
