//! Threads for what may take long, so that nothing else waits behind it: started when needed, gone after a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for the next job.
const IDLE: Duration = Duration::from_secs(5);

/// A pool of threads.
pub(crate) struct Workers {
    queue: Mutex<Queue>,
    wake: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    pub(crate) fn new(threads_max: usize) -> Arc<Workers> {
        Arc::new(Workers { queue: Mutex::default(), wake: Condvar::new(), threads_max })
    }

    /// Runs a job soon, in another thread. If no thread can be had, in this one.
    pub(crate) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.jobs.push_back(Box::new(job));
        if queue.jobs.len() <= queue.idle {
            self.wake.notify_one();
        } else if queue.threads < self.threads_max {
            queue.threads += 1;
            let this = Arc::clone(self);
            let started =
                std::thread::Builder::new().name("iogate-net-work".into()).spawn(move || this.work());
            if let Err(error) = started {
                queue.threads -= 1;
                if queue.threads == 0 {
                    tracing::warn!(%error, "no worker thread can be started");
                    let job = queue.jobs.pop_back();
                    drop(queue);
                    if let Some(job) = job {
                        job();
                    }
                }
            }
        }
    }

    fn work(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // The request that it carried out is answered when the job is dropped.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a defect in an operation: it fails, and the server goes on");
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
