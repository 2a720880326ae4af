//! Threads for what may take long: shared fairly by exports and sessions, so that what hangs stops its own export only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::fair_queue::{FairQueue, Started};

use super::lock;

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for the next job.
const IDLE: Duration = Duration::from_secs(5);

/// Threads, started when needed, gone after a while.
pub(super) struct Workers {
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: FairQueue<Job>,
    threads: usize,
    /// Threads that sleep and have not been woken.
    idle: usize,
    /// Threads that have been woken and have not run yet.
    woken: usize,
}

impl Workers {
    /// At most so many threads, of which each of `groups` has no more than it leaves free, and a member of one `member_max`.
    pub(super) fn new(
        name: &'static str,
        groups: usize,
        threads_max: usize,
        member_max: usize,
    ) -> Arc<Workers> {
        let jobs = FairQueue::new(groups, threads_max, member_max);
        let state = Mutex::new(State { jobs, threads: 0, idle: 0, woken: 0 });
        Arc::new(Workers { name, threads_max, state, wake: Condvar::new() })
    }

    /// Runs a job in another thread when it is its turn. If no thread can be had, in this one. A panic in it ends that job only.
    pub(super) fn run(self: &Arc<Self>, group: usize, member: u64, job: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        state.jobs.push(group, member, Box::new(job));
        let alone = self.see_to_it(state);
        self.carry_out_all(alone);
    }

    /// Runs a job in this thread, which counts as one of these workers' for that time; in another one later if others wait, or if it is not
    /// its turn.
    pub(super) fn run_here(self: &Arc<Self>, group: usize, member: u64, job: Job) {
        if !lock(&self.state).jobs.begin(group, member) {
            return self.run(group, member, job);
        }
        self.carry_out_all(Some(Started { group, member, job }));
    }

    /// In this thread: a job, and those for which there is no other one.
    fn carry_out_all(self: &Arc<Self>, mut next: Option<Started<Job>>) {
        while let Some(started) = next {
            self.carry_out(started);
            // What has ended may have made room for others.
            next = self.see_to_it(lock(&self.state));
        }
    }

    /// Has a thread come for a job that may run now, if there is one. One comes at a time, and has the next one come
    /// when it has taken a job. Returns the job if there is no thread at all.
    fn see_to_it(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Option<Started<Job>> {
        if state.woken > 0 || !state.jobs.has_next() {
            return None;
        }
        if state.idle > 0 {
            state.idle -= 1;
            state.woken += 1;
            // Who is woken would else wait for the lock at once.
            drop(state);
            self.wake.notify_one();
        } else if state.threads < self.threads_max {
            state.threads += 1;
            let workers = Arc::clone(self);
            let started = std::thread::Builder::new().name(self.name.into()).spawn(move || workers.work());
            if let Err(error) = started {
                state.threads -= 1;
                if state.threads == 0 {
                    tracing::warn!(%error, "no worker thread can be started");
                    return state.jobs.next();
                }
            }
        }
        None
    }

    fn work(self: &Arc<Self>) {
        iogate_engine::privileges::limit_thread_or_warn();
        while let Some(started) = self.await_next() {
            self.carry_out(started);
        }
    }

    fn carry_out(&self, Started { group, member, job }: Started<Job>) {
        // The request that it is for is answered when the job is dropped.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a defect in an operation: it fails, and the server goes on");
        }
        lock(&self.state).jobs.ended(group, member);
    }

    /// Waits for a job; `None` when none has come for a while.
    fn await_next(self: &Arc<Self>) -> Option<Started<Job>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(started) = state.jobs.next() {
                // What has ended may have made room for several.
                let alone = self.see_to_it(state);
                debug_assert!(alone.is_none(), "this thread is one");
                return Some(started);
            }
            state.idle += 1;
            let patience = Instant::now() + IDLE;
            while state.woken == 0 {
                let rest = patience.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    state.idle -= 1;
                    state.threads -= 1;
                    return None;
                }
                state = self.wake.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.woken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_runs_a_job_itself_counts_as_a_worker() {
        let workers = Workers::new("test", 1, 8, 1);
        let (sender, said) = mpsc::channel();
        let say = move |what| {
            let sender = sender.clone();
            move || sender.send((what, std::thread::current().id())).unwrap()
        };
        let (inner, own) = (Arc::clone(&workers), std::thread::current().id());
        workers.run_here(
            0,
            1,
            Box::new(move || {
                // The member has its thread: this one.
                inner.run_here(0, 1, Box::new(say("later")));
                say("first")();
            }),
        );
        assert_eq!(said.recv().unwrap(), ("first", own));
        let (what, thread) = said.recv().unwrap();
        assert_eq!(what, "later");
        assert_ne!(thread, own);
    }

    #[test]
    fn what_hangs_leaves_threads_to_others_and_goes_on_later() {
        let workers = Workers::new("test", 3, 6, 6);
        let (door, entered, done) = (Arc::new(Mutex::new(())), mpsc::channel(), mpsc::channel());
        let shut = lock(&door);
        for _ in 0..20 {
            let (door, entered, done) = (Arc::clone(&door), entered.0.clone(), done.0.clone());
            workers.run(0, 1, move || {
                entered.send(()).unwrap();
                drop(lock(&door));
                done.send(()).unwrap();
            });
        }
        (0..3).for_each(|_| entered.1.recv().unwrap());
        for group in [1, 2] {
            let said = done.0.clone();
            workers.run(group, 1, move || said.send(()).unwrap());
            done.1.recv().unwrap();
        }
        assert!(entered.1.try_recv().is_err(), "half of them, and no more");
        workers.run(2, 1, || panic!("of one job"));
        drop(shut);
        (0..20).for_each(|_| done.1.recv().unwrap());
    }
}
