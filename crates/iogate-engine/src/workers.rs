//! Threads for what may take long, so that nothing else waits behind it: started when needed, gone after a while.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What a worker does.
pub type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for the next job.
const IDLE: Duration = Duration::from_secs(5);

/// A pool of threads.
pub struct Workers {
    name: &'static str,
    /// What each thread does first.
    prepare: fn(),
    queue: Mutex<Queue>,
    wake: Condvar,
    threads_max: usize,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    /// A pool of at most `threads_max` threads of that name, each of which calls `prepare` before its first job.
    pub fn new(name: &'static str, threads_max: usize, prepare: fn()) -> Arc<Workers> {
        Arc::new(Workers { name, prepare, queue: Mutex::default(), wake: Condvar::new(), threads_max })
    }

    /// Runs a job soon, in another thread. If no thread can be had, in this one. A panic in it ends that job only.
    pub fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        if let Err((error, job)) = self.run_elsewhere(job) {
            tracing::warn!(%error, "no worker thread can be started");
            job();
        }
    }

    /// As [`Workers::run`], but never in this thread: returns the job, and why, if no thread can be had.
    pub fn run_elsewhere(
        self: &Arc<Self>,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<(), (io::Error, Job)> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.jobs.push_back(Box::new(job));
        if queue.jobs.len() <= queue.idle {
            // Who is woken would else wait for the lock at once.
            drop(queue);
            self.wake.notify_one();
        } else if queue.threads < self.threads_max {
            queue.threads += 1;
            let this = Arc::clone(self);
            let started = std::thread::Builder::new().name(self.name.into()).spawn(move || this.work());
            if let Err(error) = started {
                queue.threads -= 1;
                if queue.threads == 0
                    && let Some(job) = queue.jobs.pop_back()
                {
                    return Err((error, job));
                }
            }
        }
        Ok(())
    }

    fn work(&self) {
        (self.prepare)();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // The request that it carried out is answered when the job is dropped.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a request failed by a defect");
                }
                queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.idle += 1;
            let (woken, timeout) =
                self.wake.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}
