//! The loop: what the gate says is carried out, and what comes back is told to the gate.

use std::io;
use std::mem;
use std::sync::Arc;

use iogate_core::auto::features::Features;
use iogate_core::recording::Recordings;
use iogate_core::{Decision, Dispatch, Gate, Rejected, Request, RequestId, Span, Time};

use super::abort::AbortOnUnwind;
use super::choosing::{Choosing, Thinking};
use super::entitled::InForce;
use super::flight::{self, Flight, Flights, Share, Step};
use super::frame::{self, List, Work};
use super::over::take_ends;
use super::pool::Pool;
use super::sharing::{Lack, Sharing};
use super::table::{Done, Pending, Table};
use super::{SubmitError, Transfer};
use crate::clock::Clock;
use crate::store::{Io, Segment, Store};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError, thread};

/// A submitting thread that finds further work when it has carried out its own goes on with it while that costs
/// less than handing it to another thread would: dispatches that take less than this, and at most so many.
const HAND_OVER: Span = Span::from_micros(20);
const DISPATCHES_IN_A_ROW_MAX: u32 = 16;

/// Dispatches of a store that does not block are told to the gate together, so that its lock is taken once for all of them: at most so
/// many, and so many bytes, as the first waits for the last.
pub(super) const TOGETHER_MAX: usize = 32;
pub(super) const TOGETHER_BYTES_MAX: u64 = 256 << 10;

/// What the engine's threads share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// A request has left the gate, or the gate has closed: for submitters that found it full.
    pub(super) room: Condvar,
    /// The gate has closed, and its last request or the last completion is over: for `shutdown`.
    pub(super) emptied: Condvar,
    /// Completions that are due or running.
    pub(super) calls: AtomicUsize,
    pub(super) closed: AtomicBool,
    /// For the thread that chooses: there is something to look at, or it is to end.
    pub(super) ripe: Condvar,
    pub(super) clock: Clock,
    pub(super) class_by: InForce,
    pub(super) sharing: std::sync::Mutex<Option<Sharing>>,
    pub(super) store: Arc<dyn Store>,
    pub(super) pool: Pool,
}

pub(super) struct State {
    pub(super) gate: Gate,
    /// What arrivals look like, where somebody wants to know. It is told of each: what continues what cannot be told from samples. The
    /// lock is held anyway.
    pub(super) seen: Option<Box<Features>>,
    pub(super) recordings: Recordings,
    /// What chooses the scheduler is told of all that comes and completes, if there is something that does.
    pub(super) choosing: Choosing,
    pub(super) thinking: Thinking,
    pub(super) table: Table,
    /// Who is told that somebody waits to whom a shared policy allots nothing.
    pub(super) lack: Option<Lack>,
    /// The earliest wake-up that has been asked for and has not come yet.
    armed: Time,
    /// Submitters that wait for room.
    pub(super) waiting: usize,
}

impl State {
    /// Asks the gate until it says to wait. Returns the time of a wake-up that has to be arranged.
    pub(super) fn drain(&mut self, now: Time, list: &mut List) -> Option<Time> {
        if let Some(lack) = &self.lack
            && self.gate.take_lack()
        {
            lack.tell();
        }
        loop {
            match self.gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    let flight = self.prepare(&dispatch, now);
                    list.push_back(Work::Begin(flight));
                }
                Decision::WaitUntil(time, _) if time < self.armed => {
                    self.armed = time;
                    return Some(time);
                }
                // An earlier wake-up is on its way, and asks again.
                Decision::WaitUntil(..) | Decision::Idle => return None,
            }
        }
    }

    /// Puts a transfer into the gate, or gives it back.
    pub(super) fn offer(
        &mut self,
        now: Time,
        transfer: Transfer,
        done: Done,
    ) -> Result<(), (Rejected, Transfer, Done)> {
        let request = Request {
            id: self.table.vacant(),
            file: transfer.file.id(),
            op: transfer.op,
            offset: transfer.offset,
            bytes: transfer.bytes,
            app: transfer.origin.app,
            client: transfer.origin.client,
            target: None,
            issued: transfer.origin.issued,
        };
        if let Err(rejected) = self.gate.submit(now, &request) {
            return Err((rejected, transfer, done));
        }
        if let Some(seen) = &mut self.seen {
            seen.arrived(now, &request);
        }
        self.recordings.arrived(now, &request);
        let burst = transfer.origin.burst;
        self.table.insert(Pending::new(transfer, done));
        if let Choosing::On(noting) = &mut self.choosing
            && !noting.arrived(now, &request, burst)
        {
            self.begin_window(now);
        }
        Ok(())
    }

    fn prepare(&mut self, dispatch: &Dispatch, now: Time) -> Box<Flight> {
        let mut flight = flight::spare();
        let mut segments = flight.segments();
        let (mut first, mut extends) = (None, false);
        for part in self.gate.parts(dispatch.id) {
            let pending = self.table.get(part.request);
            first.get_or_insert_with(|| (pending.handle(part.bytes), pending.origin, pending.extends));
            extends |= pending.extends;
            let memory = pending.memory.wrapping_add((part.offset - pending.offset) as usize);
            let segment = Segment { memory, bytes: part.bytes as usize };
            segments.push(segment);
            let (request, offset) = (part.request, part.offset);
            flight.shares.push(Share { request, offset, segment, got: 0, error: None });
        }
        let (file, origin, first_extends) = first.expect("a dispatch has a part");
        let (op, offset, target) = (dispatch.op, dispatch.offset, dispatch.target);
        let io = Io { file, op, offset, target, origin, extends: first_extends, segments };
        // Each that extends its file is refused or not by itself.
        let together = !extends || flight.shares.len() == 1;
        flight.begin(dispatch.id, io, now, together);
        flight
    }
}

impl Shared {
    pub(super) fn new(gate: Gate, store: Arc<dyn Store>) -> Shared {
        let state = State {
            gate,
            seen: None,
            recordings: Recordings::default(),
            choosing: Choosing::default(),
            thinking: Thinking::default(),
            table: Table::default(),
            lack: None,
            armed: Time::MAX,
            waiting: 0,
        };
        Shared {
            state: Mutex::new(state),
            room: Condvar::new(),
            emptied: Condvar::new(),
            calls: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            ripe: Condvar::new(),
            clock: Clock::new(),
            class_by: InForce::default(),
            sharing: std::sync::Mutex::new(None),
            store,
            pool: Pool::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a transfer into the gate, waiting for room, and collects what the gate then says. Returns the time.
    pub(super) fn accept(
        self: &Arc<Self>,
        transfer: Transfer,
        done: Done,
        list: &mut List,
    ) -> Result<Time, SubmitError> {
        let _guard = AbortOnUnwind::new();
        let mut now = self.clock.now();
        let (state, admitted) = self.admit(self.lock(), &mut now, transfer, done, &|| true, list);
        admitted.map_err(|(error, _)| error)?;
        self.settle(state, now, list);
        Ok(now)
    }

    /// As [`Shared::accept`] for several, which the gate has all seen before the first of them is carried out. Returns
    /// the time, and those that were not taken.
    pub(super) fn accept_all(
        self: &Arc<Self>,
        batch: impl Iterator<Item = (Transfer, Done)>,
        is_wanted: &dyn Fn() -> bool,
        list: &mut List,
    ) -> (Time, Vec<(SubmitError, Done)>) {
        let _guard = AbortOnUnwind::new();
        let mut refused = Vec::new();
        let mut now = self.clock.now();
        let mut state = self.lock();
        let wanted = is_wanted();
        for (transfer, done) in batch {
            let admitted;
            if !wanted || matches!(refused.last(), Some((SubmitError::Unwanted, _))) {
                refused.push((SubmitError::Unwanted, done));
                continue;
            }
            (state, admitted) = self.admit(state, &mut now, transfer, done, is_wanted, list);
            if let Err(refusal) = admitted {
                refused.push(refusal);
            }
        }
        self.settle(state, now, list);
        (now, refused)
    }

    /// Collects what the gate says, and lets go of it.
    pub(super) fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: Time, list: &mut List) {
        let wake_at = state.drain(now, list);
        drop(state);
        if let Some(time) = wake_at {
            self.pool.arm(self, time);
        }
    }

    /// Puts a transfer into the gate, waiting for room.
    fn admit<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        now: &mut Time,
        transfer: Transfer,
        done: Done,
        is_wanted: &dyn Fn() -> bool,
        list: &mut List,
    ) -> (MutexGuard<'a, State>, Result<(), (SubmitError, Done)>) {
        let (mut transfer, mut done) = (transfer, done);
        loop {
            match state.offer(*now, transfer, done) {
                Ok(()) => return (state, Ok(())),
                Err((Rejected::Full { .. }, again, waits)) if !state.gate.is_empty() => {
                    (transfer, done) = (again, waits);
                }
                Err((rejected, _, done)) => return (state, Err((rejected.into(), done))),
            }
            // Room comes when what is in service completes. This thread may have some of that in its hands (when it
            // submits a batch, or from a completion): others must carry it out while this one waits.
            let wake_at = state.drain(*now, list);
            if wake_at.is_some() || !list.is_empty() || frame::has_work(Arc::as_ptr(self)) {
                drop(state);
                if let Some(time) = wake_at {
                    self.pool.arm(self, time);
                }
                let mut left = self.pool.push(self, mem::take(list));
                self.work(&mut left, None);
                self.part_with_frame();
                state = self.lock();
            } else {
                state.waiting += 1;
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
            }
            *now = self.clock.now();
            if !is_wanted() {
                if state.waiting > 0 {
                    // There may be room, which another one takes.
                    self.room.notify_one();
                }
                return (state, Err((SubmitError::Unwanted, done)));
            }
        }
    }

    /// Gives the work in this thread's open frames to the pool.
    pub(super) fn part_with_frame(self: &Arc<Self>) {
        let mut refused = self.pool.push(self, frame::take(Arc::as_ptr(self)));
        self.work(&mut refused, None);
    }

    /// Asks the gate at a time that it named, and carries out what it says.
    pub(super) fn fire(self: &Arc<Self>) {
        let mut list = frame::list();
        self.ask(&mut list, |state, _| state.armed = Time::MAX);
        self.work(&mut list, None);
        frame::recycle(list);
    }

    /// Changes something, and collects what the gate then says.
    fn ask<R>(self: &Arc<Self>, list: &mut List, change: impl FnOnce(&mut State, Time) -> R) -> R {
        let _guard = AbortOnUnwind::new();
        let now = self.clock.now();
        let mut state = self.lock();
        let changed = change(&mut state, now);
        let wake_at = state.drain(now, list);
        drop(state);
        if let Some(time) = wake_at {
            self.pool.arm(self, time);
        }
        changed
    }

    /// As [`Shared::ask`], but others carry out what the gate says.
    pub(super) fn kick<R>(self: &Arc<Self>, change: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut list = List::new();
        let changed = self.ask(&mut list, change);
        let mut refused = self.pool.push(self, list);
        self.work(&mut refused, None);
        changed
    }

    /// Carries out one piece of work and what follows from it, as a thread that has nothing else to do.
    pub(super) fn work_off(self: &Arc<Self>, work: Work) {
        let mut list = frame::list();
        list.push_back(work);
        self.work(&mut list, None);
        frame::recycle(list);
    }

    /// Carries out what is in the list and what follows from it. A thread that came to submit (at the time
    /// `submitted`) soon leaves the rest to others; a thread of the engine or of the store does not.
    pub(super) fn work(self: &Arc<Self>, list: &mut List, submitted: Option<Time>) {
        if list.is_empty() {
            return;
        }
        let _guard = AbortOnUnwind::new();
        let blocks = self.store.blocks();
        let together_in_a_frame = !blocks && self.store.submits();
        let mut before = submitted;
        let mut carried_out = 0;
        let mut over = flight::over();
        let (mut together, mut bytes) = (0, 0);
        while let Some(work) = list.pop_front() {
            match work {
                Work::End(flight) => over.flights.push(flight),
                Work::Begin(flight) if together_in_a_frame => {
                    self.begin_several(flight, list, &mut over.flights);
                }
                Work::Begin(flight) => {
                    // Dispatches that the gate wants in service together must not wait for each other.
                    if blocks && !list.is_empty() {
                        *list = self.pool.push(self, mem::take(list));
                    }
                    let Some(flight) = self.begin(flight, list) else { continue };
                    if list.is_empty() || blocks {
                        over.flights.push(flight);
                    } else {
                        // Behind the others, and in the list: a store that submits may have to part with it.
                        together += 1;
                        bytes += flight.bytes();
                        list.push_back(Work::End(flight));
                        if together < TOGETHER_MAX && bytes < TOGETHER_BYTES_MAX {
                            continue;
                        }
                        take_ends(list, &mut over.flights);
                    }
                }
            }
            while over.flights.len() < TOGETHER_MAX
                && let Some(Work::End(flight)) = list.pop_front_if(|next| matches!(next, Work::End(_)))
            {
                over.flights.push(flight);
            }
            (together, bytes) = (0, 0);
            if over.flights.is_empty() {
                continue;
            }
            carried_out += over.flights.len() as u32;
            let now = self.end(&mut over, list);
            if let Some(earlier) = before {
                before = Some(now);
                let slow = now.since(earlier) >= HAND_OVER || carried_out >= DISPATCHES_IN_A_ROW_MAX;
                if slow && !list.is_empty() {
                    *list = self.pool.push(self, mem::take(list));
                }
            }
        }
        flight::recycle_over(over);
    }

    /// Hands a flight to the store. Returns it if the store carried it out at once. What turns up meanwhile, because the store submits or
    /// completes, is handled behind it, or it would nest.
    fn begin(self: &Arc<Self>, flight: Box<Flight>, list: &mut List) -> Option<Box<Flight>> {
        let submits = self.store.submits();
        if submits {
            frame::open(Arc::as_ptr(self), mem::take(list));
        }
        let carried_out = self.run(flight);
        if !submits && carried_out.is_err() {
            frame::open(Arc::as_ptr(self), mem::take(list));
        }
        let carried_out = carried_out.map_err(|flight| self.start(flight)).ok();
        if submits || carried_out.is_none() {
            *list = frame::close();
        }
        carried_out
    }

    /// As [`Shared::begin`], and goes on with those that follow, where the store submits (without waiting) and does not block: what turns
    /// up is looked at once for all.
    fn begin_several(self: &Arc<Self>, first: Box<Flight>, list: &mut List, over: &mut Flights) {
        frame::open(Arc::as_ptr(self), frame::list());
        let (mut next, mut bytes) = (Some(Work::Begin(first)), 0);
        while let Some(Work::Begin(flight)) = next {
            match self.run(flight) {
                Ok(flight) => {
                    bytes += flight.bytes();
                    over.push(flight);
                }
                Err(flight) => self.start(flight),
            }
            let is_next = |work: &mut Work| {
                matches!(work, Work::Begin(_)) && over.len() < TOGETHER_MAX && bytes < TOGETHER_BYTES_MAX
            };
            next = list.pop_front_if(is_next);
        }
        let mut turned_up = frame::close();
        list.append(&mut turned_up);
        frame::recycle(turned_up);
    }

    /// Has the store carry a flight out at once; it is given back as an error if the store does not.
    fn run(&self, flight: Box<Flight>) -> Result<Box<Flight>, Box<Flight>> {
        self.carry_out_by(flight, |io| self.refused(io).or_else(|| self.store.run(io)))
    }

    /// As [`Shared::run`], by `run`.
    pub(super) fn carry_out_by(
        &self,
        mut flight: Box<Flight>,
        run: impl Fn(&Io) -> Option<io::Result<u64>>,
    ) -> Result<Box<Flight>, Box<Flight>> {
        while let Some(result) = run(flight.io()) {
            match flight.settle(result) {
                Step::Finished => return Ok(flight),
                Step::Retry(request) => self.retarget(&mut flight, request),
            }
        }
        Err(flight)
    }

    /// Has the store begin a flight.
    fn start(self: &Arc<Self>, mut flight: Box<Flight>) {
        let engine = Arc::clone(self);
        let io = flight.part_with_io();
        self.store.start(io, Box::new(move |io, result| engine.landed(flight, io, result)));
    }

    /// Refuses to extend a file that has been extended, but by the write itself. Nothing that overlaps the write is underway.
    fn refused(&self, io: &Io) -> Option<io::Result<u64>> {
        if !io.extends || self.store.asks_afar() {
            return None;
        }
        match self.store.size(&io.file) {
            Ok(size) if size > io.offset && !self.has(io) => {
                Some(Err(io::Error::from_raw_os_error(libc::EEXIST)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether the file has the bytes that are to be written, or the first of them and nothing behind: the write has been sent before,
    /// and its answer was lost when the process was killed. It may be carried out again.
    fn has(&self, io: &Io) -> bool {
        let (mut there, mut offset) = ([0; 4096], io.offset);
        for segment in &io.segments {
            // SAFETY: the segments are valid and ours until the dispatch is done: the promise of `Engine::submit`.
            let bytes = unsafe { std::slice::from_raw_parts(segment.memory, segment.bytes) };
            for piece in bytes.chunks(there.len()) {
                match self.store.peek(&io.file, offset, &mut there[..piece.len()]) {
                    Ok(count) if there[..count] != piece[..count] => return false,
                    Ok(count) if count < piece.len() => return true,
                    Ok(count) => offset += count as u64,
                    Err(_) => return false,
                }
            }
        }
        true
    }

    /// Takes the answer of a store that did not carry a flight out at once.
    fn landed(self: &Arc<Self>, mut flight: Box<Flight>, io: Io, result: io::Result<u64>) {
        flight.take_back(io);
        let work = match flight.settle(result) {
            Step::Finished => Work::End(flight),
            Step::Retry(request) => {
                self.retarget(&mut flight, request);
                Work::Begin(flight)
            }
        };
        if let Some(work) = frame::put(Arc::as_ptr(self), work) {
            self.work_off(work);
        }
    }

    /// A share alone goes through its own request's handle; a dispatch's first may have brought it along.
    fn retarget(&self, flight: &mut Flight, request: RequestId) {
        let mut state = self.lock();
        let pending = state.table.get(request);
        let io = flight.io_mut();
        io.extends = pending.extends;
        if let Some(file) = &pending.file {
            io.file = file.clone();
        }
    }

    pub(super) fn shutdown(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        self.kick(|state, now| state.gate.drain(now));
        self.room.notify_all();
        if frame::is_open(Arc::as_ptr(self)) {
            // In a completion, which must return before the last completion can be over.
            let engine = Arc::clone(self);
            if let Err(error) = thread::Builder::new().spawn(move || engine.finish()) {
                tracing::warn!(%error, "the engine's threads stay until the process ends");
            }
        } else {
            self.finish();
        }
    }

    /// Waits until the closed gate is empty and every result has been given, and stops the threads.
    fn finish(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.table.is_empty() || self.calls.load(Ordering::SeqCst) > 0 {
            state = self.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.stop_choosing();
        self.stop_sharing();
        self.pool.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{self, Command};
    use std::time::{Duration, Instant};

    use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};

    use super::*;
    use crate::store::NullStore;

    const INNER: &str = "IOGATE_TEST_PANIC_UNDER_THE_LOCK";

    #[test]
    fn a_panic_under_the_gates_lock_ends_the_process() {
        if std::env::var_os(INNER).is_some() {
            let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
            let gate = GateConfig { scheduler, queue_max: 10, depth: 1, layout: Layout::SINGLE };
            let shared = Arc::new(Shared::new(Gate::new(&gate).unwrap(), Arc::new(NullStore::new())));
            let _ = thread::spawn(move || shared.kick(|_, _| panic!("a defect of the gate"))).join();
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "engine::shared::tests::a_panic_under_the_gates_lock_ends_the_process"])
            .env(INNER, "1")
            .stdout(process::Stdio::null())
            .stderr(process::Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > Duration::from_secs(20) => {
                    let _ = child.kill();
                    panic!("the process goes on");
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
    }
}
