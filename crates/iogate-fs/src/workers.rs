//! Threads for what may take long, so that nothing else waits behind it: started when needed, gone after a while.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for the next job.
const IDLE: Duration = Duration::from_secs(5);

/// A pool of threads, each prepared to act in the callers' names.
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
        let mut queue = self.queue.lock().expect("jobs run outside the lock");
        queue.jobs.push_back(Box::new(job));
        if queue.jobs.len() <= queue.idle {
            self.wake.notify_one();
        } else if queue.threads < self.threads_max {
            queue.threads += 1;
            let this = self.clone();
            let started = std::thread::Builder::new().name("iogate-worker".into()).spawn(move || this.work());
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
        super::session::prepare_thread();
        let mut queue = self.queue.lock().expect("jobs run outside the lock");
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                super::session::guarded(job);
                queue = self.queue.lock().expect("jobs run outside the lock");
                continue;
            }
            queue.idle += 1;
            let (woken, timeout) = self.wake.wait_timeout(queue, IDLE).expect("jobs run outside the lock");
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}
