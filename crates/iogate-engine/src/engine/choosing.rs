//! The choice of the scheduler: what is noted for it under the gate's lock, and the thread that thinks about it.
//!
//! The thread sleeps on a condition variable of the engine's lock until a window is ripe, which a completion sees. It looks at what has
//! been noted without the lock, and takes it again to switch the gate. Without requests nothing wakes it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use iogate_core::auto::bursts::Left;
use iogate_core::auto::chooser::QUEUED_MAX;
use iogate_core::auto::live::{Next, Served};
use iogate_core::auto::ring::PRESENT_MAX;
use iogate_core::auto::{Bursts, Choice, Live, Log, Pace, Storage};
use iogate_core::profile::Findings;
use iogate_core::{AppId, BurstSize, FileId, FileLayout, Request, RequestId, SchedulerConfig, Time};

use super::flight::Flight;
use super::shared::{Shared, State};
use crate::sync::atomic::Ordering;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{MutexGuard, PoisonError};

const SEVERAL: &str = "the gate has several targets, and what is chosen here is for one";
const DEFECT: &str = "a defect of what chooses: it has ended, and the scheduler stays as it is";

/// Whether a gate's scheduler is chosen.
#[derive(Default)]
pub(super) enum Choosing {
    /// It is not: somebody has said which it is.
    #[default]
    Off,
    /// It is.
    On(Box<Noting>),
    /// It is to be, but cannot.
    Held(&'static str),
}

/// What is noted for the thread that chooses.
pub(super) struct Noting {
    log: Log,
    bursts: Bursts,
    /// The thread has been told that there is something to look at.
    told: bool,
    choice: Choice,
    /// When it said so.
    said: Time,
    /// What was in force before anything was chosen.
    start: SchedulerConfig,
    thread: u64,
}

/// What outlives a choice.
#[derive(Default)]
pub(super) struct Thinking {
    storage: Option<Storage>,
    /// What has been learnt of it.
    findings: Option<Box<Findings>>,
    /// How much may still be simulated: who turns the choice off and on does not get more.
    pace: Option<Pace>,
    /// Of the thread that was started last.
    number: u64,
    handle: Option<JoinHandle<()>>,
}

impl Noting {
    /// A request has come in; false if a window is to begin with what is in the gate now.
    #[inline]
    pub(super) fn arrived(&mut self, now: Time, request: &Request, burst: BurstSize) -> bool {
        self.bursts.arrived(now, request.app, request.bytes);
        if let Some(bytes) = burst.bytes() {
            self.bursts.declare(request.app, bytes);
        }
        self.log.arrived(now, request);
        !self.log.is_due(now)
    }

    #[inline]
    pub(super) fn completed(&mut self, now: Time, request: RequestId, app: AppId, bytes: u32) {
        self.bursts.completed(now, app, bytes);
        self.log.completed(now, request, bytes);
    }

    /// A flight is over; whether the thread is to be woken.
    #[inline]
    pub(super) fn served(&mut self, now: Time, flight: &Flight) -> bool {
        let (Some(first), Some(last)) = (flight.shares.first(), flight.shares.last()) else { return false };
        self.log.served(now, || {
            let bytes = last.offset + u64::from(last.bytes()) - first.offset;
            let (file, op, offset) = (flight.io().file.id(), flight.io().op, first.offset);
            Served { began: flight.began, ended: now, file, offset, bytes, op }
        });
        let wakes = !self.told && self.log.is_ripe(now);
        self.told |= wakes;
        wakes
    }
}

impl State {
    /// A window begins with what is in the gate.
    #[cold]
    pub(super) fn begin_window(&mut self, now: Time) {
        let Choosing::On(noting) = &mut self.choosing else { return };
        let present = self.gate.present(PRESENT_MAX);
        let table = &mut self.table;
        noting.log.begin(
            now,
            present.into_iter().map(|present| {
                let client = table.get(present.id).origin.client;
                (present, client)
            }),
        );
    }

    /// What is noted for the thread of this number, if it is still the one that chooses.
    fn noting(&mut self, thread: u64) -> Option<&mut Noting> {
        match &mut self.choosing {
            Choosing::On(noting) if noting.thread == thread => Some(noting),
            _ => None,
        }
    }

    /// Nothing can be chosen any more.
    fn hold(&mut self, why: &'static str) {
        self.choosing = Choosing::Held(why);
    }
}

impl Shared {
    pub(super) fn know(&self, storage: Storage) {
        let mut state = self.lock();
        if let Some(prices) = storage.prices() {
            state.gate.set_prices(prices);
        }
        state.thinking.storage = Some(storage);
    }

    pub(super) fn findings(&self) -> Option<Findings> {
        self.lock().thinking.findings.as_deref().cloned()
    }

    /// Puts in force what is made of the scheduler that is, and chooses none.
    pub(super) fn pin<E>(
        self: &Arc<Self>,
        change: impl FnOnce(&SchedulerConfig) -> Result<SchedulerConfig, E>,
    ) -> Result<(), E> {
        self.kick(|state, now| {
            let scheduler = change(state.gate.scheduler())?;
            state.choosing = Choosing::Off;
            state.gate.switch(now, &scheduler);
            Ok(())
        })?;
        self.ripe.notify_all();
        Ok(())
    }

    pub(super) fn set_layout(self: &Arc<Self>, file: FileId, layout: Option<Arc<FileLayout>>) {
        let several = layout.as_ref().is_some_and(|layout| layout.targets() > 1);
        let mut state = self.lock();
        state.gate.set_layout(file, layout);
        if !several || !matches!(state.choosing, Choosing::On(_)) {
            return;
        }
        drop(state);
        self.kick(|state, now| {
            // Somebody may have said meanwhile which scheduler it is to be.
            if let Choosing::On(noting) = &state.choosing {
                state.gate.switch(now, &noting.start);
                state.hold(SEVERAL);
            }
        });
        self.ripe.notify_all();
    }

    pub(super) fn choice(&self) -> Option<Choice> {
        let now = self.clock.now();
        let state = self.lock();
        match &state.choosing {
            Choosing::Off => None,
            Choosing::Held(why) => Some(Choice::held(state.gate.scheduler(), why)),
            Choosing::On(noting) => {
                let choice = noting.choice.clone().later(now.since(noting.said));
                Some(choice.expecting(noting.bursts.left(now)))
            }
        }
    }

    pub(super) fn choose(self: &Arc<Self>, budget: u64) -> io::Result<()> {
        let mut state = self.lock();
        if matches!(state.choosing, Choosing::On(_)) || self.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        if state.gate.targets() > 1 {
            state.hold(SEVERAL);
            return Ok(());
        }
        let now = self.clock.now();
        let unknown = || Storage::unknown("unknown", false);
        let storage = state.thinking.storage.get_or_insert_with(unknown).clone();
        // What was learnt before somebody turned it off.
        let storage = match &state.thinking.findings {
            Some(findings) => storage.with_findings(findings),
            None => storage,
        };
        let pace = state.thinking.pace.map_or(Pace::new(budget, now), |pace| pace.at(budget));
        let live = Live::new(state.gate.config(), &storage, pace, now);
        state.thinking.number += 1;
        let number = state.thinking.number;
        let noting = Noting {
            log: Log::new(live.limits()),
            bursts: Bursts::default(),
            told: false,
            choice: live.choice(now),
            said: now,
            start: state.gate.scheduler().clone(),
            thread: number,
        };
        let shared = Arc::clone(self);
        let thread =
            thread::Builder::new().name("iogate-auto".into()).spawn(move || run(&shared, live, number))?;
        state.choosing = Choosing::On(Box::new(noting));
        let before = state.thinking.handle.replace(thread);
        drop(state);
        // It ends by itself, soon; two of them at a time are enough.
        join(before);
        Ok(())
    }

    /// Ends the thread that chooses, and waits for it.
    pub(super) fn stop_choosing(&self) {
        let mut state = self.lock();
        state.choosing = Choosing::Off;
        let handle = state.thinking.handle.take();
        drop(state);
        self.ripe.notify_all();
        join(handle);
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, time: Option<Duration>) -> MutexGuard<'a, State> {
        match time {
            Some(time) => self.ripe.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
            None => self.ripe.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    // The last reference to an engine may go in this thread; it ends by itself.
    if let Some(thread) = thread
        && thread.thread().id() != thread::current().id()
    {
        let _ = thread.join();
    }
}

fn run(shared: &Arc<Shared>, mut live: Live, thread: u64) {
    if cfg!(not(feature = "shuttle")) {
        crate::privileges::limit_thread_or_warn();
    }
    // A defect here must not cost anybody a request.
    let ended = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut taken = Log::default();
        while look(shared, &mut live, &mut taken, thread).is_some() {}
    }));
    if ended.is_err() {
        tracing::error!("{DEFECT}");
        let mut state = shared.lock();
        if state.noting(thread).is_some() {
            state.hold(DEFECT);
        }
    }
}

/// Waits for a window, thinks about it, and switches the gate if that is what follows. Nothing if it is over.
fn look(shared: &Arc<Shared>, live: &mut Live, taken: &mut Log, thread: u64) -> Option<()> {
    let mut state = shared.lock();
    while !state.noting(thread)?.told {
        state = shared.sleep(state, None);
    }
    let now = shared.clock.now();
    let noting = state.noting(thread)?;
    noting.log.take(taken);
    let left: Vec<Left> = noting.bursts.left(now).collect();
    drop(state);
    live.tell(now, left);
    let is_window = live.consider(taken, now);
    let mut state = shared.lock();
    let noting = state.noting(thread)?;
    if !is_window {
        noting.log.give_back(taken, live.limits());
        noting.told = false;
        return Some(());
    }
    noting.log.pause();
    drop(state);
    loop {
        let pause = match live.step(shared.clock.now()) {
            Next::Over => break,
            Next::More => None,
            Next::Pause(span) => Some(span.into()),
        };
        let mut state = shared.lock();
        state.noting(thread)?;
        if pause.is_some() {
            state = shared.sleep(state, pause);
        }
        drop(state);
    }
    apply(shared, live, thread)
}

/// Does what has been decided, and lets the next window begin.
fn apply(shared: &Arc<Shared>, live: &mut Live, thread: u64) -> Option<()> {
    if let Some(scheduler) = live.proposal().cloned() {
        let (now, applied) = shared.kick(|state, now| {
            state.noting(thread)?;
            let applied = state.gate.queued() <= QUEUED_MAX;
            if applied {
                state.gate.switch(now, &scheduler);
            }
            Some((now, applied))
        })?;
        live.settled(now, applied);
    }
    let now = shared.clock.now();
    let (prices, choice, findings) = (live.prices(), live.choice(now), live.findings().map(Box::new));
    let mut state = shared.lock();
    let noting = state.noting(thread)?;
    (noting.choice, noting.said, noting.told) = (choice, now, false);
    noting.log.rest(live.limits());
    state.thinking.pace = Some(live.pace());
    let before = std::mem::replace(&mut state.thinking.findings, findings);
    if let Some(prices) = prices {
        state.gate.set_prices(prices);
    }
    // What frees memory does so without the lock.
    drop(state);
    drop(before);
    Some(())
}
