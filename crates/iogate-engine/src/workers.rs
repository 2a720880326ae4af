//! Threads for what may take long, so that nothing else waits behind it: started when needed, gone after a while.
//!
//! Where several share them ([`Workers::shared`]), what hangs holds up its own group only.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::fair_queue::{FairQueue, Started};

use crate::lock::lock;

/// What a worker does.
pub type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for the next job.
const IDLE: Duration = Duration::from_secs(5);

/// A pool of threads.
pub struct Workers {
    name: &'static str,
    /// What each thread does first.
    prepare: fn(),
    threads_max: usize,
    state: Mutex<State>,
    wake: Condvar,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("name", &self.name).finish_non_exhaustive()
    }
}

struct State {
    jobs: FairQueue<Job>,
    threads: usize,
    /// Threads that sleep and have not been woken.
    idle: usize,
    /// Threads that have been woken and have not run yet.
    woken: usize,
    /// Whether a thread has been started that has not run yet.
    is_starting: bool,
}

/// A job for which there is no thread at all, and why.
type Alone = (io::Error, Started<Job>);

impl Workers {
    /// A pool of at most `threads_max` threads of that name, each of which calls `prepare` before its first job.
    pub fn new(name: &'static str, threads_max: usize, prepare: fn()) -> Arc<Workers> {
        // A group leaves as much free as it takes: of twice as many, one alone may have all that there are.
        Workers::over(FairQueue::new(1, 2 * threads_max, threads_max), name, threads_max, prepare)
    }

    /// A pool that `groups` share: each of them has no more than it leaves free, and a member of one `member_max`.
    pub fn shared(
        name: &'static str,
        groups: usize,
        threads_max: usize,
        member_max: usize,
        prepare: fn(),
    ) -> Arc<Workers> {
        Workers::over(FairQueue::new(groups, threads_max, member_max), name, threads_max, prepare)
    }

    fn over(jobs: FairQueue<Job>, name: &'static str, threads_max: usize, prepare: fn()) -> Arc<Workers> {
        let state = Mutex::new(State { jobs, threads: 0, idle: 0, woken: 0, is_starting: false });
        Arc::new(Workers { name, prepare, threads_max, state, wake: Condvar::new() })
    }

    /// Runs a job soon, in another thread. If no thread can be had, in this one. A panic in it ends that job only.
    pub fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        self.run_for(0, 0, job);
    }

    /// As [`Workers::run`], when it is the turn of that member of a group.
    pub fn run_for(self: &Arc<Self>, group: usize, member: u64, job: impl FnOnce() + Send + 'static) {
        let alone = self.push(group, member, Box::new(job));
        self.carry_out_all(alone);
    }

    /// Runs a job in this thread, which counts as one of these workers' for that time; in another one later if others wait, or if it is not
    /// its turn.
    pub fn run_here(self: &Arc<Self>, group: usize, member: u64, job: Job) {
        if !lock(&self.state).jobs.begin(group, member) {
            return self.run_for(group, member, job);
        }
        self.carry_out(Started { group, member, job });
        self.carry_out_all(self.see_to_it(lock(&self.state)));
    }

    /// As [`Workers::run`], but never in this thread: returns the job, and why, if no thread can be had.
    pub fn run_elsewhere(
        self: &Arc<Self>,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), (io::Error, Job)> {
        match self.push(0, 0, Box::new(job)) {
            None => Ok(()),
            Some((error, Started { group, member, job })) => {
                lock(&self.state).jobs.ended(group, member);
                Err((error, job))
            }
        }
    }

    fn push(self: &Arc<Self>, group: usize, member: u64, job: Job) -> Option<Alone> {
        let mut state = lock(&self.state);
        state.jobs.push(group, member, job);
        self.see_to_it(state)
    }

    /// In this thread: the jobs for which there is no other one.
    fn carry_out_all(self: &Arc<Self>, mut next: Option<Alone>) {
        while let Some((error, started)) = next {
            tracing::warn!(%error, "no worker thread can be started");
            self.carry_out(started);
            // What has ended may have made room for others.
            next = self.see_to_it(lock(&self.state));
        }
    }

    /// Has a thread come for a job that may run now, if there is one. One comes at a time, and has the next one come
    /// when it has taken a job. Returns the job if there is no thread at all.
    fn see_to_it(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Option<Alone> {
        if state.woken > 0 || !state.jobs.has_next() {
            return None;
        }
        if state.idle > 0 {
            state.idle -= 1;
            state.woken += 1;
            // Who is woken would else wait for the lock at once.
            drop(state);
            self.wake.notify_one();
        } else if !state.is_starting && state.threads < self.threads_max {
            (state.threads, state.is_starting) = (state.threads + 1, true);
            let this = Arc::clone(self);
            let started = std::thread::Builder::new().name(self.name.into()).spawn(move || this.work());
            if let Err(error) = started {
                (state.threads, state.is_starting) = (state.threads - 1, false);
                if state.threads == 0 {
                    return state.jobs.next().map(|job| (error, job));
                }
            }
        }
        None
    }

    fn work(self: &Arc<Self>) {
        (self.prepare)();
        // Whoever takes a job has the next thread come.
        lock(&self.state).is_starting = false;
        while let Some(started) = self.await_next() {
            self.carry_out(started);
        }
    }

    fn carry_out(&self, Started { group, member, job }: Started<Job>) {
        // The request that it is for is answered when the job is dropped.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a defect in an operation: it fails, and the others go on");
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
        let workers = Workers::shared("test", 1, 8, 1, || {});
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
    fn one_that_shares_with_nobody_has_all_threads() {
        let workers = Workers::new("test", 3, || {});
        let (door, entered, done) = (Arc::new(Mutex::new(())), mpsc::channel(), mpsc::channel());
        let shut = lock(&door);
        for number in 0..5 {
            let (door, entered, done) = (Arc::clone(&door), entered.0.clone(), done.0.clone());
            workers.run(move || {
                entered.send(number).unwrap();
                drop(lock(&door));
                done.send(()).unwrap();
            });
        }
        let mut inside: Vec<i32> = (0..3).map(|_| entered.1.recv().unwrap()).collect();
        inside.sort_unstable();
        assert_eq!(inside, [0, 1, 2]);
        assert!(entered.1.try_recv().is_err(), "as many as there may be, and no more");
        drop(shut);
        (0..5).for_each(|_| done.1.recv().unwrap());
    }

    #[test]
    fn what_hangs_leaves_threads_to_others_and_goes_on_later() {
        let workers = Workers::shared("test", 3, 6, 6, || {});
        let (door, entered, done) = (Arc::new(Mutex::new(())), mpsc::channel(), mpsc::channel());
        let shut = lock(&door);
        for _ in 0..20 {
            let (door, entered, done) = (Arc::clone(&door), entered.0.clone(), done.0.clone());
            workers.run_for(0, 1, move || {
                entered.send(()).unwrap();
                drop(lock(&door));
                done.send(()).unwrap();
            });
        }
        (0..3).for_each(|_| entered.1.recv().unwrap());
        for group in [1, 2] {
            let said = done.0.clone();
            workers.run_for(group, 1, move || said.send(()).unwrap());
            done.1.recv().unwrap();
        }
        assert!(entered.1.try_recv().is_err(), "half of them, and no more");
        workers.run_for(2, 1, || panic!("of one job"));
        drop(shut);
        (0..20).for_each(|_| done.1.recv().unwrap());
    }
}
