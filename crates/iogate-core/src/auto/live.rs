//! A chooser beside a gate in real time. What comes and what completes is noted in a [`Log`] under the gate's lock; a [`Live`] thinks
//! about it outside of that lock, in a thread that sleeps while there is nothing to think about.
//!
//! What the storage charges is learnt from the dispatches of the same windows, unless it is known. As long as that does not explain
//! what the dispatches take, nothing is changed, and what was chosen before is given up after a few windows.
//!
//! Where seeks are assumed to cost, it may have begun with a scheduler that spares them, one dispatch at a time. That hides what
//! several at a time would gain, so it goes back to `fifo` as soon as what is learnt says that seeks cost little.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::bursts::Left;
use super::candidates::one_at_a_time;
use super::chooser::{Change, Chooser, Reason, Status};
use super::driver::Pace;
use super::meter::{DISPATCHES_MIN, Learnt};
use super::pricing::Pricing;
use super::prior::Prior;
use super::ring::{Limits, Ring, SPAN_MIN};
use super::status::{Changes, Choice};
use crate::gate::{GateConfig, Present};
use crate::profile::{Class, Findings, Profile, Refit, Sample, Streams};
use crate::request::{ClientId, Op, Request, RequestId};
use crate::sched::param::CONTIGUOUS_WAIT;
use crate::sched::{Prices, SchedulerConfig, SchedulerKind};
use crate::time::{Span, Time};

pub use super::ring::Served;

/// Dispatches of a window that are learnt from.
const SERVED_MAX: usize = 4_096;
/// Requests that are simulated at a time.
const STEP: u64 = 1_024;
/// How long one waits for more that may be simulated.
const PAUSE: Span = Span::from_millis(50);
/// How long before a window may begin one notes what is served, to warm up devices with. Before that it would cost each request something.
const WARMING: Span = Span::from_millis(50);
/// Jumps by which it is judged whether seeks cost, and the largest that count: of others the transfer hides the seek.
const JUMPS_MIN: u32 = 16;
const JUMP_BYTES_MAX: u64 = 1 << 20;
/// Windows that are not explained after which what was chosen before is not believed, either.
const DOUBTS_MAX: u32 = 4;
const DOUBT: &str = "what the storage charges varies too much to predict anything by it";

/// What is noted under a gate's lock; between windows, the last dispatches only.
#[derive(Debug)]
pub struct Log {
    ring: Ring,
    served: Vec<Served>,
    /// The earliest beginning of the next window; none while one is noted.
    next: Option<Time>,
    /// How much that is to be of.
    limits: Limits,
}

impl Default for Log {
    fn default() -> Log {
        let served = Vec::with_capacity(SERVED_MAX);
        Log { ring: Ring::new(), served, next: Some(Time::ZERO), limits: Limits::USUAL }
    }
}

impl Log {
    /// One whose first window is of so much.
    pub fn new(limits: Limits) -> Log {
        Log { limits, ..Log::default() }
    }

    /// Whether a window begins with what has just arrived. What is then in the gate, this included, is to be told by [`Log::begin`].
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Begins a window.
    pub fn begin(&mut self, now: Time, present: impl IntoIterator<Item = (Present, ClientId)>) {
        self.served.clear();
        self.ring.begin(now, self.limits, present);
        self.next = None;
    }

    /// A request has come into the gate.
    #[inline]
    pub fn arrived(&mut self, now: Time, request: &Request) {
        self.ring.arrived(now, request);
    }

    /// `bytes` of a request have been carried out.
    #[inline]
    pub fn completed(&mut self, now: Time, id: RequestId, bytes: u32) {
        self.ring.completed(now, id, bytes);
    }

    /// A dispatch has been carried out; `served` says which, if that is of use.
    #[inline]
    pub fn served(&mut self, now: Time, served: impl FnOnce() -> Served) {
        if self.next.is_some_and(|next| now + WARMING < next) {
            return;
        }
        let served = served();
        self.ring.served(&served);
        if self.ring.is_open() && self.served.len() < SERVED_MAX {
            self.served.push(served);
        }
    }

    /// Whether it is to be looked at.
    #[inline]
    pub fn is_ripe(&self, now: Time) -> bool {
        self.next.is_none() && self.ring.is_ripe(now)
    }

    /// Puts what it has into `taken`, for a look at it, and goes on.
    pub fn take(&mut self, taken: &mut Log) {
        core::mem::swap(self, taken);
        self.ring.follow(&taken.ring);
        self.served.clear();
        self.next = None;
    }

    /// What was taken is not enough: it goes on from there, until it is of so much.
    pub fn give_back(&mut self, taken: &mut Log, limits: Limits) {
        self.ring.put_behind(&mut taken.ring);
        self.ring.go_on(limits);
    }

    /// Notes nothing until [`Log::rest`].
    pub fn pause(&mut self) {
        self.ring.stop();
        self.served.clear();
    }

    /// Notes nothing until the next window, which begins with the first arrival a while after this one began, and is of so much.
    pub fn rest(&mut self, limits: Limits) {
        self.limits = limits;
        self.next = Some(self.ring.began() + SPAN_MIN);
        self.pause();
    }

    /// Bytes of memory in use.
    pub fn allocated_bytes(&self) -> usize {
        self.ring.allocated_bytes() + self.served.capacity() * size_of::<Served>()
    }
}

/// What is known of the storage behind a gate.
#[derive(Clone)]
pub struct Storage {
    profile: Profile,
    is_kept: bool,
    pricing: Option<Arc<dyn Pricing>>,
    /// What was learnt of it before, under another load.
    learnt: Option<Arc<Refit>>,
    /// Where that comes from, for people.
    told: String,
}

impl Storage {
    /// Nothing is known but whether it has an arm.
    pub fn unknown(kind: &str, rotational: bool) -> Storage {
        let profile = Profile::assumed(kind, rotational);
        Storage { profile, is_kept: false, pricing: None, learnt: None, told: String::new() }
    }

    /// It has been measured before.
    pub fn kept(profile: Profile) -> Storage {
        Storage { profile, is_kept: true, pricing: None, learnt: None, told: "measured".into() }
    }

    /// It is a device of which more can be made; `profile` was measured of it.
    pub fn modelled(profile: Profile, pricing: Arc<dyn Pricing>) -> Storage {
        Storage { pricing: Some(pricing), told: "those of the model".into(), ..Storage::kept(profile) }
    }

    /// Some of what it charges was learnt before. All else is as if nothing was known: it is assumed, and probed for.
    #[must_use]
    pub fn with_findings(self, findings: &Findings) -> Storage {
        let refit = Refit::from_findings(&self.profile.kind, self.profile.rotational, findings);
        Storage { profile: refit.profile(), learnt: Some(Arc::new(refit)), ..self }
    }

    /// With the words for people that say where its prices come from.
    #[must_use]
    pub fn told(self, told: impl Into<String>) -> Storage {
        Storage { told: told.into(), ..self }
    }

    /// What a choice begins with in front of it, behind a gate that lets `depth` dispatches through: `aioli` where a seek costs more
    /// than that waits to spare one, and one dispatch at a time loses nothing; else `fifo`.
    pub fn first(&self, depth: u32) -> SchedulerConfig {
        let prices = self.profile.prices();
        // Of an operation whose jumps nobody has measured they are only assumed to cost what those of a disk do.
        let is_measured =
            |op: &Op| self.profile.of(*op).random.iter().any(|line| line.low.count.max(line.high.count) > 0);
        let both = [Op::Read, Op::Write];
        let is_any = both.iter().any(is_measured);
        let mut asked = both.into_iter().filter(|op| !is_any || is_measured(op));
        let spares = asked.any(|op| prices.saving(op, 0) > longest_wait());
        let spares = spares && one_at_a_time(&*self.pricing(), depth);
        SchedulerConfig::new(if spares { SchedulerKind::Aioli } else { SchedulerKind::Fifo })
    }

    /// What deliberate waits need to know, if it has been measured.
    pub fn prices(&self) -> Option<Prices> {
        let is_learnt = self.learnt.as_ref().is_some_and(|refit| refit.dispatches() >= DISPATCHES_MIN);
        (self.is_kept || is_learnt).then(|| self.profile.prices())
    }

    /// What goes on learning what it charges.
    fn refit(&self) -> Refit {
        match &self.learnt {
            Some(learnt) => Refit::clone(learnt),
            None if self.is_kept => Refit::from_kept(self.profile.clone()),
            None => Refit::from_nothing(&self.profile.kind, self.profile.rotational),
        }
    }

    fn pricing(&self) -> Arc<dyn Pricing> {
        let coverage = self.learnt.as_ref().map(|learnt| learnt.coverage());
        let learnt = || Arc::new(Learnt { profile: self.profile.clone(), coverage }) as Arc<dyn Pricing>;
        self.pricing.clone().unwrap_or_else(learnt)
    }
}

/// The longest wait of `aioli` for what follows.
fn longest_wait() -> Span {
    SchedulerConfig::new(SchedulerKind::Aioli).span(&CONTIGUOUS_WAIT)
}

/// Dispatches that were alone, small, and did not go on where the one before had ended; and those of them that took no longer than a
/// sequential one of a disk and the longest wait.
#[derive(Clone, Copy, Default)]
struct Jumps {
    all: u32,
    cheap: u32,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More of the same.
    More,
    /// More, after a pause.
    Pause(Span),
    /// Nothing: the window has been judged.
    Over,
}

/// What thinks about a [`Log`].
pub struct Live {
    chooser: Chooser,
    gate: GateConfig,
    storage: Storage,
    refit: Refit,
    streams: Streams,
    pace: Pace,
    /// Windows one after another that were not explained.
    doubts: u32,
    /// There were too few dispatches to learn from when it last looked.
    few: bool,
    /// The last changes, of all choosers.
    changes: Changes,
    /// What jumps were like, as long as it is only assumed that they cost what a wait would spare.
    assumed: Option<Jumps>,
    /// What is to be given up, for what, and why.
    giving_up: Option<(SchedulerConfig, Reason)>,
    /// That what was in use with the chooser before this one was given up.
    given_up: Option<Change>,
}

impl Live {
    /// One for a gate with these settings, in front of such a storage, that simulates at `pace`.
    pub fn new(gate: &GateConfig, storage: &Storage, pace: Pace, now: Time) -> Live {
        let chooser = Chooser::new(gate, storage.pricing(), now);
        Live {
            chooser: match storage.is_kept && pace.is_any() {
                true => chooser.beginning_with(Prior::committed()),
                false => chooser,
            },
            gate: gate.clone(),
            storage: storage.clone(),
            refit: storage.refit(),
            streams: Streams::default(),
            pace,
            doubts: 0,
            few: false,
            changes: Changes::default(),
            assumed: (!storage.is_kept && gate.scheduler.kind() == SchedulerKind::Aioli).then(Jumps::default),
            giving_up: None,
            given_up: None,
        }
    }

    /// What is left of the bursts that applications have now. To be said before [`Live::consider`].
    pub fn tell(&mut self, now: Time, left: impl IntoIterator<Item = Left>) {
        self.chooser.tell(now, left);
    }

    /// Takes a window out of a log, if it has enough of one; else the log is to go on.
    pub fn consider(&mut self, log: &mut Log, now: Time) -> bool {
        let seen = self.learn(&mut log.served);
        // What it has begun with is to be left as soon as it can be: that is not asked a second time.
        if matches!(self.giving_up, Some((_, Reason::Refuted))) {
            return true;
        }
        // What is asked first goes by what was measured before, and not by a few dispatches.
        let is_early = self.chooser.limits() == Limits::EARLY;
        if self.storage.pricing.is_none() && !is_early {
            self.few = !self.storage.is_kept && self.refit.dispatches() < DISPATCHES_MIN;
            if self.few {
                return true;
            }
            if self.is_refuted() {
                self.giving_up = Some((SchedulerConfig::new(SchedulerKind::Fifo), Reason::Refuted));
                return true;
            }
            if self.is_unexplained(seen) {
                self.doubts = self.doubts.saturating_add(1);
                self.chooser.give_up_turns();
                if self.doubts >= DOUBTS_MAX && self.chooser.status().change.reason != Reason::Start {
                    self.giving_up = Some((self.gate.scheduler.clone(), Reason::Doubt));
                }
                return true;
            }
            self.chooser.set_pricing(Arc::new(Learnt::of(&self.refit)));
        }
        (self.doubts, self.giving_up) = (0, None);
        let budget = self.pace.granted(now);
        self.chooser.consider(&log.ring, now, budget)
    }

    /// Learns from dispatches; how many were reads and writes.
    fn learn(&mut self, served: &mut Vec<Served>) -> [usize; 2] {
        let mut seen = [0; 2];
        let costs = self.storage.profile.costs();
        let wait = longest_wait().as_nanos();
        served.sort_by_key(|served| served.began);
        for (index, dispatch) in served.iter().enumerate() {
            let Served { began, ended, file, offset, bytes, op } = *dispatch;
            seen[op as usize] += 1;
            let class = self.streams.class(file.0, op, offset, bytes);
            // No more are looked at than a device is asked for at once.
            let before = served[index.saturating_sub(64)..index].iter().filter(|other| other.ended > began);
            let followed = served.get(index + 1).is_some_and(|next| next.began < ended);
            // Who was alone and then had company is neither.
            let in_flight = (before.count() as u32 + 1).max(1 + u32::from(followed));
            let ns = ended.since(began).as_nanos();
            self.refit.add(Sample { op, class, bytes, in_flight, ns });
            let jumps = class != Class::Next && in_flight == 1 && bytes <= JUMP_BYTES_MAX;
            if let Some(assumed) = self.assumed.as_mut().filter(|_| jumps) {
                let cheap = ns.saturating_sub(costs.alone_ns(op, Class::Next, bytes)) <= wait;
                *assumed = Jumps { all: assumed.all + 1, cheap: assumed.cheap + u32::from(cheap) };
            }
        }
        served.clear();
        seen
    }

    /// Whether it has begun with what spares seeks, and those that it has seen cost too little for that.
    fn is_refuted(&mut self) -> bool {
        let Some(jumps) = self.assumed.as_ref().filter(|jumps| jumps.all >= JUMPS_MIN) else { return false };
        let refuted = jumps.cheap * 2 > jumps.all;
        self.assumed = None;
        refuted && self.pace.is_any()
    }

    /// Whether what has been learnt does not explain what at least a tenth of the dispatches takes.
    fn is_unexplained(&self, seen: [usize; 2]) -> bool {
        let all = seen[0] + seen[1];
        self.refit.unexplained().any(|unexplained| seen[unexplained.op as usize] * 10 >= all.max(1))
    }

    /// Simulates for a moment.
    pub fn step(&mut self, now: Time) -> Next {
        if !self.chooser.has_work() || !self.pace.is_any() {
            return Next::Over;
        }
        let granted = self.pace.granted(now).min(STEP);
        let simulated = self.chooser.step(now, granted);
        self.pace.spend(simulated);
        self.changes.note(&self.chooser.status().change);
        match simulated {
            0 => Next::Pause(PAUSE),
            _ if self.chooser.has_work() => Next::More,
            _ => Next::Over,
        }
    }

    /// What the gate should be switched to, and by [`Live::settled`] be said to have been.
    pub fn proposal(&self) -> Option<&SchedulerConfig> {
        self.giving_up.as_ref().map(|(scheduler, _)| scheduler).or_else(|| self.chooser.proposal())
    }

    /// The proposal was applied, or could not be.
    pub fn settled(&mut self, now: Time, applied: bool) {
        let Some((to, reason)) = self.giving_up.clone() else {
            self.chooser.settled(now, applied);
            self.changes.note(&self.chooser.status().change);
            return;
        };
        if applied {
            let from = self.chooser.status().change.to.clone();
            let change = Change { at: now, from, to: to.clone(), reason, predicted: 0, measured: None };
            self.changes.note(&change);
            (self.given_up, self.giving_up) = (Some(change), None);
            self.gate.scheduler = to;
            let chooser = Chooser::new(&self.gate, self.storage.pricing(), now);
            self.chooser = chooser.counting_on(self.chooser.status());
        }
    }

    /// What deliberate waits need to know, once there is something to know.
    pub fn prices(&self) -> Option<Prices> {
        match &self.storage.pricing {
            Some(_) => self.storage.prices(),
            None => {
                let known = self.storage.is_kept || self.refit.dispatches() >= DISPATCHES_MIN;
                known.then(|| self.refit.profile().prices())
            }
        }
    }

    /// What has been learnt of the storage, and what was known of that before; none where all of it was measured, or is a model.
    pub fn findings(&self) -> Option<Findings> {
        (!self.storage.is_kept).then(|| self.refit.findings())
    }

    /// Where prices come from, for people.
    fn told(&self) -> String {
        match &*self.storage.told {
            "" if self.refit.dispatches() < DISPATCHES_MIN => "assumed".into(),
            "" => "learnt here".into(),
            told => told.into(),
        }
    }

    /// How much the next window is to be of.
    pub fn limits(&self) -> Limits {
        self.chooser.limits()
    }

    /// How much it may still simulate.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// What is in use, and why.
    pub fn status(&self) -> &Status {
        self.chooser.status()
    }

    /// The same for people.
    pub fn choice(&self, now: Time) -> Choice {
        let status = match &self.given_up {
            Some(change) if self.status().change.reason == Reason::Start => {
                &Status { change: change.clone(), ..self.status().clone() }
            }
            _ => self.status(),
        };
        let mut choice = Choice::of(status, now).with(&self.changes, now);
        choice.prices = Some(self.told());
        choice.held = match self.few {
            true => Some(format!("too few dispatches yet: {} of {DISPATCHES_MIN}", self.refit.dispatches())),
            false => (self.doubts > 0).then(|| String::from(DOUBT)),
        };
        choice
    }

    /// Bytes of memory in use, those of simulated devices left out.
    pub fn allocated_bytes(&self) -> usize {
        size_of::<Live>() + self.chooser.allocated_bytes()
    }
}
