//! The machinery of `aioli` and `mlf`: quanta that grow, and deliberate waits.
//!
//! Sources: aIOLi, sections 3.4.1 and 3.4.2; AGIOS, sections 2.1 and 2.2. A queue is one file and one operation.
//!
//! 1. A request has a quantum of its own, 0 when it comes. At each scheduling step it grows by the queue's
//!    increment, `quantum_base` times the queue's factor.
//! 2. The first run of a queue (in offset order) is *formed*: its quantum is the sum of its requests', and from then
//!    on it grows as one, by one increment a step; a request that joins its end brings its own quantum along. So a
//!    run of n pieces needs n steps, small requests go first, and a run has time to grow. When anything else about
//!    the first run changes, it is formed anew from its requests' own quanta.
//! 3. A run is *ready* when its quantum has reached its bytes. Where none is, steps pass until one is: they are free.
//!    Clocks are kept per queue, so a step costs nothing per request.
//! 4. What a dispatch leaves of its quantum is its *turn*: it may be spent on what follows contiguously. After a
//!    dispatch that itself continued the one before it (a sequential reader), that is also waited for, at most
//!    `contiguous_wait`.
//! 5. After its turn, the queue's factor doubles if at least 3/4 of the quantum was used, halves if less than 1/4 was,
//!    and the queue's history is forgotten if less than 1/50 was: the file has ended.
//! 6. A run that begins beyond the end of the queue's last dispatch waits, at most `wait_max`: once if that dispatch
//!    went back in the file (a new strided front: what lies between is probably on its way), and once if the last
//!    dispatch was longer (better runs were seen recently).
//!
//! With `waits=priced` neither `contiguous_wait` nor `wait_max` is used: what 4 and 6 wait for, and how long, is decided by what it
//! is expected to save (the rules are at the head of `priced`), for any turn that has quantum left. Rule 6 then waits once. In
//! `mlf` such a wait keeps a slot free, and a turn stays open for 2 J after its completion.
//!
//! Starvation: once the oldest request of all has waited for `age_max`, the run that begins at it goes next, after turns that are open. A
//! turn is as long as its quantum, which grows at each step: after a crowd, of whom each is a step, by as many increments. So one that has
//! had the largest increment, 1024 x `quantum_base`, ends where somebody has aged. The waits are bounded by `contiguous_wait` and
//! `wait_max`, or by the longest think time that counts, 67 ms.

mod waits;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::arrival::{ArrivalList, FLAG_FREE};
use super::priced::Priced;
use super::{Pick, Scheduler, SchedulerConfig, param};
use crate::heap::IndexedHeap;
use crate::queue::{Pending, QueueId, Run, RunCap, SlotId};
use crate::time::{Span, Time};
use crate::wait::WaitReason;

/// Flags of a run, kept on its first request: it has waited already.
const WAITED_SHIFT: u8 = FLAG_FREE;
const WAITED_BETTER: u8 = FLAG_FREE << 1;

const FACTOR_LOG2_MIN: i8 = -3;
const FACTOR_LOG2_MAX: i8 = 10;

/// What tells `aioli` and `mlf` apart.
pub(super) trait Discipline: Send {
    /// Serve one dispatch at a time, and hold the gate for the turn's continuation. Else nobody waits for anybody.
    const SYNCHRONOUS: bool;
    /// Among ready queues: the one whose oldest request came first. Else a round over the queues.
    const FIRST_COME: bool;
}

/// A quantum scheduler.
pub(super) struct Quantum<D> {
    cap: RunCap,
    base: u64,
    contiguous_wait: Span,
    wait_max: Span,
    age_max: Span,
    step: u64,
    /// The next place in the round.
    ticket: u64,
    queues: Vec<Queue>,
    /// Queues whose first run is not ready, by the step at which it will be.
    growing: IndexedHeap<u64>,
    /// Queues whose first run is ready, by rank.
    ready: IndexedHeap<u64>,
    /// Queues whose first run waits deliberately, by deadline and reason.
    waiting: IndexedHeap<(Time, WaitReason)>,
    /// All queues that have something, by their oldest request.
    by_age: IndexedHeap<u64>,
    /// Open turns by deadline (asynchronous discipline only).
    turns: IndexedHeap<Time>,
    /// The queue of the last dispatch, while its turn is open.
    current: Option<u32>,
    /// Queues whose open turn has got its continuation (asynchronous discipline only), first come first served.
    continued: VecDeque<u32>,
    /// What prices its waits, if they are not of a fixed length.
    priced: Option<Box<Priced>>,
    discipline: PhantomData<D>,
}

#[derive(Default)]
struct Queue {
    arrivals: ArrivalList,
    factor_log2: i8,
    /// What a request that was there from the beginning would have as its quantum, at step `clock_step`.
    clock: u64,
    clock_step: u64,
    run: Option<Formed>,
    wait: Option<WaitReason>,
    ticket: u64,
    last: Option<Served>,
    /// Where the dispatch before the last one began.
    before_last: Option<u64>,
    turn: Option<Turn>,
}

/// The first run of a queue.
#[derive(Clone, Copy)]
struct Formed {
    run: Run,
    /// Its quantum when the queue's clock stood at `clock`.
    quantum: u64,
    clock: u64,
    /// Whether a request may begin where it ends, as far as a walk would say.
    goes_on: bool,
}

#[derive(Clone, Copy)]
struct Served {
    offset: u64,
    end: u64,
    bytes: u64,
}

/// What a dispatch has left of its quantum.
#[derive(Clone, Copy)]
struct Turn {
    granted: u64,
    served: u64,
    /// It continued the dispatch before it, so its own continuation is worth a wait.
    sequential: bool,
    /// Until when it is waited for, once that is known.
    deadline: Time,
    /// Its continuation may be queued.
    goes_on: bool,
}

impl Queue {
    fn increment(&self, base: u64) -> u64 {
        if self.factor_log2 >= 0 { base << self.factor_log2 } else { (base >> -self.factor_log2).max(1) }
    }

    fn clock_at(&self, step: u64, base: u64) -> u64 {
        self.clock.saturating_add((step - self.clock_step).saturating_mul(self.increment(base)))
    }

    fn advance(&mut self, step: u64, base: u64) {
        self.clock = self.clock_at(step, base);
        self.clock_step = step;
    }
}

impl Formed {
    fn quantum_at(&self, clock: u64) -> u64 {
        self.quantum.saturating_add(clock - self.clock)
    }
}

impl<D: Discipline> Quantum<D> {
    pub(super) fn new(config: &SchedulerConfig) -> Quantum<D> {
        Quantum {
            cap: config.run_cap(),
            base: config.value(&param::QUANTUM_BASE),
            contiguous_wait: config.span(&param::CONTIGUOUS_WAIT),
            wait_max: config.span(&param::WAIT_MAX),
            age_max: config.span(&param::AGE_MAX),
            step: 0,
            ticket: 0,
            queues: Vec::new(),
            growing: IndexedHeap::default(),
            ready: IndexedHeap::default(),
            waiting: IndexedHeap::default(),
            by_age: IndexedHeap::default(),
            turns: IndexedHeap::default(),
            current: None,
            continued: VecDeque::new(),
            priced: (config.value(&param::WAITS) == param::Waits::Priced as u64).then(Box::default),
            discipline: PhantomData,
        }
    }

    // ---- runs --------------------------------------------------------------------------------------------

    /// Forms the first run anew from its requests' own quanta, and ranks the queue. A run that is as it was, or has
    /// only got longer (what came between has left), keeps its quantum.
    fn form(&mut self, queue: QueueId, pending: &mut Pending) {
        let this = &mut self.queues[queue.index()];
        this.advance(self.step, self.base);
        let before = this.run;
        this.run = pending.walk_first(queue, self.cap).map(|run| {
            let kept = before.filter(|before| {
                before.run.first == run.first
                    && pending.run.get(before.run.requests as usize - 1) == Some(&before.run.last)
            });
            let (quantum, joined) =
                kept.map_or((0, 0), |before| (before.quantum_at(this.clock), before.run.requests as usize));
            let quantum = quantum.saturating_add(own_quanta(pending, &pending.run[joined..], this.clock));
            Formed { run, quantum, clock: this.clock, goes_on: pending.run_goes_on }
        });
        self.rank(queue, pending);
    }

    /// The queue has a new request right behind its first run: lets it join, and what follows it.
    fn extend(&mut self, queue: QueueId, slot: SlotId, pending: &mut Pending) {
        let this = &mut self.queues[queue.index()];
        this.advance(self.step, self.base);
        let Some(formed) = &mut this.run else { return };
        let rest = RunCap {
            bytes: self.cap.bytes.saturating_sub(formed.run.bytes),
            requests: self.cap.requests - formed.run.requests,
        };
        let more = pending.walk(slot, rest);
        formed.quantum =
            formed.quantum_at(this.clock).saturating_add(own_quanta(pending, &pending.run, this.clock));
        formed.clock = this.clock;
        formed.run.last = more.last;
        formed.run.bytes += more.bytes;
        formed.run.requests += more.requests;
        formed.goes_on = pending.run_goes_on;
        self.rank(queue, pending);
    }

    /// Puts the queue where it belongs, after its first run or its oldest request has changed. A deliberate wait
    /// ends: the run is not what it was.
    fn rank(&mut self, queue: QueueId, pending: &Pending) {
        let this = &mut self.queues[queue.index()];
        this.wait = None;
        self.waiting.remove(queue.0);
        let (Some(formed), Some(oldest)) = (this.run, this.arrivals.oldest(pending)) else {
            self.growing.remove(queue.0);
            self.ready.remove(queue.0);
            self.by_age.remove(queue.0);
            return;
        };
        let oldest = pending.slot(oldest).seq;
        self.by_age.set(queue.0, oldest);
        let missing = formed.run.bytes.saturating_sub(formed.quantum_at(this.clock_at(self.step, self.base)));
        if missing == 0 {
            self.growing.remove(queue.0);
            self.ready.set(queue.0, if D::FIRST_COME { oldest } else { this.ticket });
        } else {
            self.ready.remove(queue.0);
            self.growing.set(queue.0, self.step + missing.div_ceil(this.increment(self.base)));
        }
    }

    /// Moves the queues whose runs have become ready by the current step.
    fn ripen(&mut self, pending: &Pending) {
        while let Some((step, queue)) = self.growing.peek()
            && step <= self.step
        {
            self.growing.remove(queue);
            let this = &mut self.queues[queue as usize];
            let oldest = this.arrivals.oldest(pending).map_or(0, |slot| pending.slot(slot).seq);
            self.ready.set(queue, if D::FIRST_COME { oldest } else { this.ticket });
        }
    }

    // ---- selection ---------------------------------------------------------------------------------------

    /// The oldest request of all, if that has waited for `age_max`.
    fn aged(&mut self, now: Time, pending: &Pending) -> Option<SlotId> {
        let (_, queue) = self.by_age.peek()?;
        self.queues[queue as usize].arrivals.aged(self.age_max, now, pending)
    }

    /// The next queue by the rules, its run ready and not waiting; or until when all of them wait.
    fn select(&mut self, now: Time, patience: bool, pending: &mut Pending) -> Result<QueueId, Pick> {
        self.step += 1;
        while let Some(((deadline, _), queue)) = self.waiting.peek()
            && (deadline <= now || !patience)
        {
            self.rank(QueueId(queue), pending);
        }
        loop {
            self.ripen(pending);
            if let Some((_, queue)) = self.ready.peek() {
                let queue = QueueId(queue);
                let Some(reason) = self.reason_to_wait(queue, pending).filter(|_| patience) else {
                    return Ok(queue);
                };
                let Some(until) = self.hold(now, queue, reason, pending) else { return Ok(queue) };
                self.queues[queue.index()].wait = Some(reason);
                self.ready.remove(queue.0);
                self.waiting.set(queue.0, (until, reason));
            } else if let Some((step, _)) = self.growing.peek() {
                self.step = step;
            } else if let Some(((deadline, reason), queue)) = self.waiting.peek() {
                match self.hold_on(now, QueueId(queue), deadline, pending) {
                    Some(until) => return Err(Pick::WaitUntil(until, reason)),
                    None => self.rank(QueueId(queue), pending),
                }
            } else {
                return Err(Pick::Idle);
            }
        }
    }

    /// Dispatches the run walked last, with the quantum granted to it.
    fn dispatch(&mut self, now: Time, run: Run, granted: u64, pending: &mut Pending) {
        let queue = pending.slot(run.first).queue();
        self.close_turn(queue, pending);
        let deadline = self.deadline(now);
        let this = &mut self.queues[queue.index()];
        let sequential = this.last.is_some_and(|last| last.end == run.offset);
        this.turn = (granted > run.bytes).then_some(Turn {
            granted,
            served: run.bytes,
            sequential,
            deadline,
            goes_on: pending.run_goes_on,
        });
        if let Some(turn) = this.turn {
            self.await_turn(queue, turn.deadline);
        } else {
            self.adapt(queue, run.bytes, granted, pending);
        }
        self.ticket += 1;
        self.queues[queue.index()].ticket = self.ticket;
        self.serve(queue, run, pending);
    }

    /// Takes the run walked last out of its queue.
    fn serve(&mut self, queue: QueueId, run: Run, pending: &mut Pending) {
        if !self.continued.is_empty() {
            self.continued.retain(|other| *other != queue.0);
        }
        let (app, end) = (pending.slot(run.first).app, run.end());
        let this = &mut self.queues[queue.index()];
        pending.take_run(|pending, slot| this.arrivals.remove(pending, slot));
        if let Some(last) = this.last {
            this.before_last = Some(last.offset);
        }
        this.last = Some(Served { offset: run.offset, end: run.end(), bytes: run.bytes });
        let open = this.turn.is_some_and(|turn| turn.served < turn.granted);
        let follows = (!D::SYNCHRONOUS && open) || self.priced.is_some();
        let follows = follows && pending.starting_at(queue, end).is_some();
        if !D::SYNCHRONOUS && open && follows {
            self.continued.push_back(queue.0);
        }
        if let Some(priced) = &mut self.priced {
            priced.dispatched(queue, end, app, follows);
        }
        self.form(queue, pending);
    }

    // ---- turns -------------------------------------------------------------------------------------------

    /// The queue's turn is the open one now; only the asynchronous discipline can have others beside it.
    fn await_turn(&mut self, queue: QueueId, deadline: Time) {
        self.current = Some(queue.0);
        if !D::SYNCHRONOUS {
            self.turns.set(queue.0, deadline);
        }
    }

    /// Serves what continues an open turn, if it is there and fits.
    fn continue_turn(&mut self, now: Time, queue: QueueId, pending: &mut Pending) -> bool {
        let this = &self.queues[queue.index()];
        let (Some(turn), Some(last)) = (this.turn, this.last) else { return false };
        if !turn.goes_on {
            return false;
        }
        let Some(first) = pending.starting_at(queue, last.end) else { return false };
        let left = turn.granted - turn.served;
        let is_long = turn.served >= self.base.saturating_mul(1 << FACTOR_LOG2_MAX);
        if u64::from(pending.slot(first).bytes) > left || is_long && self.aged(now, pending).is_some() {
            self.close_turn(queue, pending);
            return false;
        }
        let run = pending.walk(first, RunCap { bytes: self.cap.bytes.min(left), ..self.cap });
        let deadline = self.deadline(now);
        let served = turn.served + run.bytes;
        let spent = served == turn.granted;
        let this = &mut self.queues[queue.index()];
        this.turn = Some(Turn { served, sequential: true, deadline, goes_on: pending.run_goes_on, ..turn });
        self.await_turn(queue, deadline);
        self.serve(queue, run, pending);
        if spent {
            self.close_turn(queue, pending);
        }
        true
    }

    /// Ends a queue's open turn, and learns from it.
    fn close_turn(&mut self, queue: QueueId, pending: &mut Pending) {
        let Some(turn) = self.queues[queue.index()].turn.take() else { return };
        self.turns.remove(queue.0);
        if self.current == Some(queue.0) {
            self.current = None;
        }
        let factor = self.queues[queue.index()].factor_log2;
        self.adapt(queue, turn.served, turn.granted, pending);
        let this = &self.queues[queue.index()];
        if this.factor_log2 != factor && this.wait.is_none() {
            self.rank(queue, pending); // its first run grows at another pace now
        }
    }

    fn adapt(&mut self, queue: QueueId, served: u64, granted: u64, pending: &mut Pending) {
        if granted == 0 {
            return;
        }
        pending.stats.quantum_utilisation_percent.record(served.saturating_mul(100) / granted);
        let this = &mut self.queues[queue.index()];
        this.advance(self.step, self.base);
        let (served, granted) = (u128::from(served), u128::from(granted));
        if served * 50 < granted {
            (this.factor_log2, this.last, this.before_last) = (0, None, None);
        } else if served * 4 < granted {
            this.factor_log2 = (this.factor_log2 - 1).max(FACTOR_LOG2_MIN);
        } else if served * 4 >= granted * 3 {
            this.factor_log2 = (this.factor_log2 + 1).min(FACTOR_LOG2_MAX);
        }
    }

    /// Goes on with open turns. `Some` if that decides what to do.
    fn turns(&mut self, now: Time, patience: bool, pending: &mut Pending) -> Option<Pick> {
        if let Some(queue) = self.current
            && let Some(turn) = self.queues[queue as usize].turn
        {
            // What came in time goes on, even if the gate was busy until after the deadline.
            let in_time = turn.deadline >= now || self.continued.contains(&queue);
            if in_time && self.continue_turn(now, QueueId(queue), pending) {
                return Some(Pick::Dispatch);
            }
            let until = self.patience(now, QueueId(queue), &turn, pending).filter(|_| patience);
            match until {
                // Whoever is not worth waiting for has had its turn.
                None => self.close_turn(QueueId(queue), pending),
                Some(until) if D::SYNCHRONOUS && self.queues[queue as usize].turn.is_some() => {
                    return Some(Pick::WaitUntil(until, WaitReason::Contiguous));
                }
                Some(_) => {}
            }
        }
        self.current = None;
        while let Some(queue) = self.continued.pop_front() {
            if self.continue_turn(now, QueueId(queue), pending) {
                return Some(Pick::Dispatch);
            }
        }
        while let Some((deadline, queue)) = self.turns.peek()
            && (deadline <= now || !patience)
        {
            self.close_turn(QueueId(queue), pending);
        }
        None
    }
}

/// The sum of the requests' own quanta.
fn own_quanta(pending: &Pending, slots: &[SlotId], clock: u64) -> u64 {
    slots.iter().fold(0, |sum: u64, &slot| sum.saturating_add(clock - pending.note(slot)))
}

impl<D: Discipline> Scheduler for Quantum<D> {
    fn insert(&mut self, now: Time, slot: SlotId, pending: &mut Pending) {
        let queue = pending.slot(slot).queue();
        if self.queues.len() <= queue.index() {
            self.queues.resize_with(queue.index() + 1, Queue::default);
        }
        let this = &mut self.queues[queue.index()];
        if this.run.is_none() {
            self.ticket += 1;
            this.ticket = self.ticket;
            // Nobody's quantum hangs on the clock now: keeps it from ever overflowing.
            (this.clock, this.clock_step) = (0, self.step);
        }
        this.advance(self.step, self.base);
        pending.set_note(slot, this.clock);
        this.arrivals.push(pending, slot);
        let (offset, key) = (pending.slot(slot).offset, pending.slot(slot).key());
        if let Some(priced) = &mut self.priced {
            priced.came(now, queue, offset);
        }
        if let (Some(turn), Some(last)) = (&mut this.turn, this.last)
            && last.end == offset
        {
            turn.goes_on = true;
            if !D::SYNCHRONOUS && now <= turn.deadline {
                self.continued.push_back(queue.0);
            }
        }
        match &mut this.run {
            Some(formed) if key > pending.slot(formed.run.last).key() => {
                formed.goes_on |= offset <= formed.run.end();
                let joins = offset == formed.run.end()
                    && pending.near.before == Some(formed.run.last)
                    && formed.run.requests < self.cap.requests
                    && formed.run.bytes + u64::from(pending.slot(slot).bytes) <= self.cap.bytes;
                if joins {
                    self.extend(queue, slot, pending);
                } else if this.arrivals.oldest(pending) == Some(slot) {
                    // It was held back for long, and is now the queue's oldest.
                    if this.wait.is_none() {
                        self.rank(queue, pending);
                    } else {
                        self.by_age.set(queue.0, pending.slot(slot).seq);
                    }
                }
            }
            _ => self.form(queue, pending),
        }
    }

    fn pick(&mut self, now: Time, patience: bool, pending: &mut Pending) -> Pick {
        if let Some(pick) = self.turns(now, patience, pending) {
            return pick;
        }
        if let Some(aged) = self.aged(now, pending) {
            let run = pending.walk(aged, self.cap);
            self.dispatch(now, run, 0, pending);
            return Pick::Dispatch;
        }
        if !D::SYNCHRONOUS
            && patience
            && let Some(pick) = self.keep_slots(now, pending)
        {
            return pick;
        }
        match self.select(now, patience, pending) {
            Ok(queue) => {
                let this = &mut self.queues[queue.index()];
                this.advance(self.step, self.base);
                let Some(formed) = this.run else { return Pick::Idle };
                let granted = formed.quantum_at(this.clock);
                if formed.run.requests == 1 {
                    // Most often it is one request, which is known.
                    debug_assert_eq!(
                        pending.walk_first(queue, self.cap),
                        Some(formed.run),
                        "as a walk finds it"
                    );
                    debug_assert_eq!(pending.run_goes_on, formed.goes_on, "as a walk finds it");
                    pending.note_run_of_one(formed.run.first, formed.goes_on);
                } else {
                    let run = pending.walk_first(queue, self.cap);
                    debug_assert_eq!(run, Some(formed.run), "the formed run is what a walk finds");
                }
                self.dispatch(now, formed.run, granted, pending);
                Pick::Dispatch
            }
            Err(pick) => pick,
        }
    }

    fn completed(&mut self, now: Time, queue: QueueId, end: u64, pending: &Pending) {
        if let Some(priced) = &mut self.priced {
            priced.completed(now, queue, end);
            if !D::SYNCHRONOUS
                && let Some(this) = self.queues.get_mut(queue.index())
                && let (Some(turn), Some(last)) = (&mut this.turn, this.last)
                && last.end == end
                && turn.deadline == Time::MAX
            {
                let saving = pending.prices.saving(queue.op(), 0);
                turn.deadline = now + saving + saving;
                self.turns.set(queue.0, turn.deadline);
            }
        } else if D::SYNCHRONOUS
            && let Some(queue) = self.current
            && let Some(turn) = &mut self.queues[queue as usize].turn
        {
            turn.deadline = now + self.contiguous_wait;
        }
    }

    fn depth_max(&self) -> u32 {
        if D::SYNCHRONOUS { 1 } else { u32::MAX }
    }

    fn forget(&mut self, file: u32) {
        for queue in [file * 2, file * 2 + 1] {
            if let Some(this) = self.queues.get_mut(queue as usize) {
                *this = Queue::default();
                this.clock_step = self.step;
                self.turns.remove(queue);
                if let Some(priced) = &mut self.priced {
                    priced.forget(QueueId(queue));
                }
                self.current = self.current.filter(|current| *current != queue);
            }
        }
    }

    fn allocated_bytes(&self) -> usize {
        self.queues.capacity() * size_of::<Queue>()
            + self.queues.iter().map(|queue| queue.arrivals.allocated_bytes()).sum::<usize>()
            + (self.growing.allocated_bytes() + self.ready.allocated_bytes() + self.by_age.allocated_bytes())
            + (self.waiting.allocated_bytes() + self.turns.allocated_bytes())
            + self.continued.capacity() * size_of::<u32>()
            + self.priced.as_ref().map_or(0, |priced| priced.allocated_bytes())
    }
}
