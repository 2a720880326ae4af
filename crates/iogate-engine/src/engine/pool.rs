//! The engine's own threads: they carry out what no other thread should, and one of them watches the clock.
//!
//! Leader and followers: idle workers sleep on one condition variable, and whichever finds a deadline that nobody
//! watches sleeps until it. When it wakes it carries out what the gate then says itself, without a hand-over;
//! another worker (a new one, if none is idle) watches the next deadline meanwhile. So a slow store never delays a
//! wake-up. There are never more workers than dispatches in service, and the watcher. Nothing polls.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use iogate_core::Time;

use super::Shared;
use super::frame::{List, Work};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Work>,
    /// Workers that sleep (or have been woken and have not run yet).
    idle: usize,
    /// When the gate wants to be asked again; `Time::MAX` is never.
    deadline: Time,
    /// The earliest deadline that some sleeping worker will wake at.
    watched: Time,
    stop: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Default for State {
    fn default() -> State {
        State {
            jobs: VecDeque::new(),
            idle: 0,
            deadline: Time::MAX,
            watched: Time::MAX,
            stop: false,
            threads: Vec::new(),
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the first worker.
    pub(super) fn start(&self, engine: &Arc<Shared>) -> io::Result<()> {
        spawn(engine, &mut self.lock())
    }

    /// Gives jobs to the workers. Those that no worker can take (no thread can be started) come back.
    pub(super) fn push(&self, engine: &Arc<Shared>, jobs: List) -> List {
        let (mut refused, mut wakes) = (List::new(), 0);
        let mut state = self.lock();
        for job in jobs {
            if state.jobs.len() < state.idle {
                wakes += 1;
            } else if let Err(error) = spawn(engine, &mut state) {
                tracing::warn!(%error, "no thread for a dispatch: carried out where it was found");
                refused.push_back(job);
                continue;
            }
            state.jobs.push_back(job);
        }
        // Who is woken would else wait for the lock at once.
        drop(state);
        (0..wakes).for_each(|_| self.changed.notify_one());
        refused
    }

    /// Asks for a wake-up at `time`, or earlier.
    pub(super) fn arm(&self, engine: &Arc<Shared>, time: Time) {
        let mut state = self.lock();
        state.deadline = state.deadline.min(time);
        self.watch(engine, &mut state);
    }

    /// Sees to it that somebody watches the deadline.
    fn watch(&self, engine: &Arc<Shared>, state: &mut State) {
        if state.deadline >= state.watched || state.stop {
            return;
        }
        if state.idle > 0 {
            self.changed.notify_one();
        } else if let Err(error) = spawn(engine, state) {
            // A worker that is busy now looks at the deadline when it is done.
            tracing::warn!(%error, "no thread for a deadline: it may be late");
        }
    }

    /// Ends the workers when they have nothing left to do, and waits for them.
    pub(super) fn stop(&self) {
        let threads = {
            let mut state = self.lock();
            state.stop = true;
            std::mem::take(&mut state.threads)
        };
        self.changed.notify_all();
        for thread in threads {
            // The last reference to an engine may go in one of its workers; that one ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn spawn(engine: &Arc<Shared>, state: &mut State) -> io::Result<()> {
    let weak = Arc::downgrade(engine);
    let thread = thread::Builder::new().name("iogate-engine".into()).spawn(move || worker(&weak))?;
    state.threads.push(thread);
    Ok(())
}

fn worker(engine: &Weak<Shared>) {
    // The engine is alive for as long as its pool has not been stopped.
    let Some(engine) = engine.upgrade() else { return };
    if cfg!(not(feature = "shuttle")) {
        crate::clock::precise_sleep();
        crate::privileges::limit_thread_or_warn();
    }
    let pool = &engine.pool;
    let mut state = pool.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            pool.watch(&engine, &mut state);
            drop(state);
            engine.work_off(job);
            state = pool.lock();
            continue;
        }
        if state.stop {
            return;
        }
        let now = engine.clock.now();
        if state.deadline <= now {
            state.deadline = Time::MAX;
            drop(state);
            engine.fire();
            state = pool.lock();
            continue;
        }
        state.idle += 1;
        let mine = (state.deadline < state.watched).then_some(state.deadline);
        state = match mine {
            Some(deadline) => {
                state.watched = deadline;
                let timeout = deadline.since(now).into();
                let (state, _) =
                    pool.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner);
                state
            }
            None => pool.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.idle -= 1;
        if mine == Some(state.watched) {
            state.watched = Time::MAX;
        }
    }
}
