//! Plays scripts on gates and compares what the gates answer.

use std::fmt::{self, Write};

use iogate_core::sched::Prices;
use iogate_core::{
    Decision, Dispatch, DispatchId, FileId, FileLayout, Gate, GateConfig, Outcome, Part, Rejected, Request,
    RequestId, SchedulerConfig, Span, Time,
};

use crate::reference::ReferenceGate;
use crate::script::{Action, Ending, Script};

/// Anything that answers like a gate.
pub trait Subject {
    /// One with nothing in it.
    fn with(config: &GateConfig) -> Self;
    /// As [`Gate::submit`].
    fn submit(&mut self, now: Time, request: &Request) -> Result<(), Rejected>;
    /// As [`Gate::next`], with the parts of the dispatch if it is one.
    fn next(&mut self, now: Time) -> (Decision, Vec<Part>);
    /// As [`Gate::complete`].
    fn complete(&mut self, now: Time, id: DispatchId, outcome: Outcome);
    /// As [`Gate::switch`].
    fn switch(&mut self, now: Time, scheduler: &SchedulerConfig);
    /// As [`Gate::drain`].
    fn drain(&mut self, now: Time);
    /// As [`Gate::set_layout`].
    fn set_layout(&mut self, file: FileId, layout: FileLayout);
    /// As [`Gate::set_prices`].
    fn set_prices(&mut self, prices: Prices);
    /// As [`Gate::len`].
    fn count(&self) -> usize;
}

impl Subject for Gate {
    fn with(config: &GateConfig) -> Gate {
        Gate::new(config).expect("scripts have valid settings")
    }
    fn submit(&mut self, now: Time, request: &Request) -> Result<(), Rejected> {
        Gate::submit(self, now, request)
    }
    fn next(&mut self, now: Time) -> (Decision, Vec<Part>) {
        let decision = Gate::next(self, now);
        let parts = match decision {
            Decision::Dispatch(dispatch) => self.parts(dispatch.id).collect(),
            _ => Vec::new(),
        };
        (decision, parts)
    }
    fn complete(&mut self, now: Time, id: DispatchId, outcome: Outcome) {
        Gate::complete(self, now, id, outcome);
    }
    fn switch(&mut self, now: Time, scheduler: &SchedulerConfig) {
        Gate::switch(self, now, scheduler);
    }
    fn drain(&mut self, now: Time) {
        Gate::drain(self, now);
    }
    fn set_layout(&mut self, file: FileId, layout: FileLayout) {
        Gate::set_layout(self, file, Some(layout.into()));
    }
    fn set_prices(&mut self, prices: Prices) {
        Gate::set_prices(self, prices);
    }
    fn count(&self) -> usize {
        self.len()
    }
}

impl Subject for ReferenceGate {
    fn with(config: &GateConfig) -> ReferenceGate {
        ReferenceGate::new(config)
    }
    fn submit(&mut self, now: Time, request: &Request) -> Result<(), Rejected> {
        ReferenceGate::submit(self, now, request)
    }
    fn next(&mut self, now: Time) -> (Decision, Vec<Part>) {
        ReferenceGate::next(self, now)
    }
    fn complete(&mut self, now: Time, id: DispatchId, _outcome: Outcome) {
        ReferenceGate::complete(self, now, id);
    }
    fn switch(&mut self, now: Time, scheduler: &SchedulerConfig) {
        ReferenceGate::switch(self, now, scheduler);
    }
    fn drain(&mut self, _now: Time) {
        ReferenceGate::drain(self);
    }
    fn set_layout(&mut self, file: FileId, layout: FileLayout) {
        ReferenceGate::set_layout(self, file, layout);
    }
    fn set_prices(&mut self, prices: Prices) {
        ReferenceGate::set_prices(self, prices);
    }
    fn count(&self) -> usize {
        self.len()
    }
}

/// What happened, without names that a gate may choose freely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was submitted.
    Submitted(Request, Result<(), Rejected>),
    /// The gate dispatched. The id is the dispatch's place in the order of dispatches.
    Dispatched(Dispatch, Vec<Part>),
    /// The gate waits or is idle.
    Rested(Decision),
    /// The dispatch with this id was completed with this outcome.
    Completed(DispatchId, Outcome),
    /// The gate was closed.
    Drained,
    /// So much is in the gate after an action and the decisions that followed.
    Holds(usize),
}

/// An event, when it happened, and the action that it belongs to (beyond the last: when the rest is completed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index of the action.
    pub action: usize,
    /// The time.
    pub now: Time,
    /// The event.
    pub event: Event,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:4} t={} ", self.action, self.now.as_nanos())?;
        match &self.event {
            Event::Submitted(request, Ok(())) => write!(f, "submitted #{}", request.id),
            Event::Submitted(request, Err(why)) => write!(f, "refused #{}: {why}", request.id),
            Event::Dispatched(dispatch, parts) => {
                let Dispatch { id, file, op, offset, bytes, target, app, .. } = dispatch;
                write!(f, "dispatch {} {} file {file} {offset}+{bytes}", id.0, op.letter())?;
                write!(f, " target {target} app {app} of")?;
                parts.iter().try_for_each(|p| write!(f, " #{}:{}+{}", p.request, p.offset, p.bytes))
            }
            Event::Rested(Decision::WaitUntil(until, why)) => {
                write!(f, "wait until t={} {why:?}", until.as_nanos())
            }
            Event::Rested(decision) => write!(f, "{decision:?}"),
            Event::Completed(id, outcome) => write!(f, "completed {} {outcome:?}", id.0),
            Event::Drained => f.write_str("drained"),
            Event::Holds(count) => write!(f, "holds {count}"),
        }
    }
}

/// How many completions and waits may follow the last action before the rest counts as stuck.
const FINISH_MAX: usize = 10_000;

/// A subject at work on a script.
struct Player<S> {
    subject: S,
    depth: usize,
    now: Time,
    /// Index of the action under way.
    action: usize,
    /// The subject's id, ours, and the bytes of each dispatch in service, oldest first.
    in_service: Vec<(DispatchId, DispatchId, u64)>,
    dispatches: u32,
    last: Decision,
    log: Vec<Record>,
}

impl<S: Subject> Player<S> {
    fn note(&mut self, event: Event) {
        self.log.push(Record { action: self.action, now: self.now, event });
    }

    fn perform(&mut self, action: &Action) {
        match action {
            Action::Submit(arrival) => {
                let request = arrival.request(RequestId(self.action as u64), self.now);
                let answer = self.subject.submit(self.now, &request);
                self.note(Event::Submitted(request, answer));
            }
            Action::Complete(place, ending) => self.complete(*place, *ending),
            Action::Ask => {}
            Action::Wake => self.wake(),
            Action::Switch(scheduler) => self.subject.switch(self.now, scheduler),
            Action::SetLayout(file, layout) => self.subject.set_layout(*file, layout.clone()),
            Action::SetPrices(prices) => self.subject.set_prices(*prices),
            Action::Drain => {
                self.subject.drain(self.now);
                self.note(Event::Drained);
            }
        }
        self.decide();
    }

    fn complete(&mut self, place: usize, ending: Ending) {
        if self.in_service.is_empty() {
            return;
        }
        let (id, ours, bytes) = self.in_service.remove(place % self.in_service.len());
        let outcome = ending.outcome(bytes);
        self.subject.complete(self.now, id, outcome);
        self.note(Event::Completed(ours, outcome));
    }

    fn wake(&mut self) {
        if let Decision::WaitUntil(until, _) = self.last {
            self.now = self.now.max(until);
        }
    }

    /// Asks until the subject rests (or has broken its depth, which the audit reports).
    fn decide(&mut self) {
        while self.in_service.len() <= self.depth {
            let (decision, parts) = self.subject.next(self.now);
            self.last = decision;
            let Decision::Dispatch(dispatch) = decision else {
                self.note(Event::Rested(decision));
                break;
            };
            let ours = DispatchId(self.dispatches);
            self.dispatches += 1;
            self.in_service.push((dispatch.id, ours, dispatch.bytes));
            self.note(Event::Dispatched(Dispatch { id: ours, ..dispatch }, parts));
        }
        self.note(Event::Holds(self.subject.count()));
    }
}

/// Performs a script, then completes and waits until the gate is empty or makes no progress.
///
/// Returns the subject and everything that happened.
pub fn play<S: Subject>(script: &Script) -> (S, Vec<Record>) {
    let mut player = Player {
        subject: S::with(&script.config),
        depth: script.config.depth as usize,
        now: script.start,
        action: 0,
        in_service: Vec::new(),
        dispatches: 0,
        last: Decision::Idle,
        log: Vec::new(),
    };
    for (index, (delay, action)) in script.actions.iter().enumerate() {
        player.action = index;
        player.now = player.now + *delay;
        player.perform(action);
    }
    player.action = script.actions.len();
    for _ in 0..FINISH_MAX {
        let waits = matches!(player.last, Decision::WaitUntil(until, _) if until > player.now);
        if !player.in_service.is_empty() {
            player.now = player.now + Span::from_micros(10);
            player.complete(0, Ending::Whole);
        } else if waits {
            player.wake();
        } else {
            break;
        }
        player.decide();
    }
    (player.subject, player.log)
}

/// Plays a script on two subjects; they must answer the same. The error shows the first difference and what
/// came before it.
pub fn compare<A: Subject, B: Subject>(script: &Script) -> Result<(A, B), String> {
    let (a, a_log) = play::<A>(script);
    let (b, b_log) = play::<B>(script);
    let same = a_log.iter().zip(&b_log).take_while(|(a, b)| a == b).count();
    if same == a_log.len() && same == b_log.len() {
        return Ok((a, b));
    }
    let mut message = String::from("first difference:\n");
    for record in &a_log[same.saturating_sub(12)..same] {
        let _ = writeln!(message, "      {record}");
    }
    for (name, log) in [("left ", &a_log), ("right", &b_log)] {
        let _ = match log.get(same) {
            Some(record) => writeln!(message, "{name} {record}"),
            None => writeln!(message, "{name} (nothing)"),
        };
    }
    Err(message)
}
