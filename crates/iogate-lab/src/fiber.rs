//! Programs that block, of which exactly one runs at a time: threads that hand each other a baton.
//!
//! Whoever runs the world [resumes](Fibers::resume) a fiber, and goes on when that [pauses](pause) or is over. So one seed is one run,
//! however the system schedules its threads. A fiber that blocks on anything else, a lock that a paused one holds for instance, keeps
//! the baton: that is noticed after a while, and is a finding by itself.
//!
//! All of them stay on one processor. Waking a thread on another one takes longer than what most fibers do with the baton.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How long a fiber may run, in real time: much longer than any needs on a busy machine.
const STUCK: Duration = Duration::from_secs(120);
/// Bytes of a fiber's stack.
const STACK_BYTES: usize = 1 << 20;

/// What a fiber says when it gives the baton back.
enum Paused {
    Waits,
    Over,
    Panicked(String),
}

/// Threads of which one runs at a time.
#[derive(Default)]
pub struct Fibers {
    all: Vec<Fiber>,
    /// As long as there are any, whoever runs the world is where they are.
    _one_processor: Option<OneProcessor>,
}

/// Keeps a thread, and those that it starts, on the processor where it is. Where it was allowed to be before, it is again after that.
struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// Nothing where the system does not let it: that costs time only.
    fn begin() -> Option<OneProcessor> {
        let before = sched_getaffinity(None).ok()?;
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).ok()?;
        Some(OneProcessor { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

struct Fiber {
    go: Sender<()>,
    paused: Receiver<Paused>,
    is_over: bool,
}

struct Baton {
    number: usize,
    go: Receiver<()>,
    paused: Sender<Paused>,
}

thread_local! {
    static BATON: RefCell<Option<Baton>> = const { RefCell::new(None) };
}

/// The number of the fiber that runs; `None` outside of any.
pub fn current() -> Option<usize> {
    BATON.with_borrow(|baton| baton.as_ref().map(|baton| baton.number))
}

/// Gives the baton back, and returns when it is given again. Does nothing outside of a fiber.
pub fn pause() {
    BATON.with_borrow(|baton| {
        if let Some(Baton { go, paused, .. }) = baton
            && paused.send(Paused::Waits).is_ok()
        {
            // The other end is gone when nobody waits for this fiber any more.
            let _ = go.recv();
        }
    });
}

/// What somebody panicked with.
fn words(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&'static str>().map(|words| (*words).to_owned());
    literal.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

impl Fibers {
    /// A fiber that does `work` when it is first resumed. Returns its number.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn spawn(&mut self, work: impl FnOnce() + Send + 'static) -> std::io::Result<usize> {
        let number = self.all.len();
        if number == 0 {
            self._one_processor = OneProcessor::begin();
        }
        let (go, when) = channel();
        let (tell, paused) = channel();
        let run = move || {
            if when.recv().is_err() {
                return;
            }
            BATON.set(Some(Baton { number, go: when, paused: tell.clone() }));
            let end = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(()) => Paused::Over,
                Err(panic) => Paused::Panicked(words(panic.as_ref())),
            };
            BATON.set(None);
            let _ = tell.send(end);
        };
        std::thread::Builder::new().name(format!("fiber {number}")).stack_size(STACK_BYTES).spawn(run)?;
        self.all.push(Fiber { go, paused, is_over: false });
        Ok(number)
    }

    /// Lets a fiber run until it pauses or is over.
    ///
    /// # Errors
    /// It panicked, or has blocked on something else than its calls.
    pub fn resume(&mut self, number: usize) -> Result<(), String> {
        let fiber = &mut self.all[number];
        if fiber.is_over {
            return Ok(());
        }
        let _ = fiber.go.send(());
        match fiber.paused.recv_timeout(STUCK) {
            Ok(Paused::Waits) => Ok(()),
            Ok(Paused::Over) => {
                fiber.is_over = true;
                Ok(())
            }
            Ok(Paused::Panicked(why)) => {
                fiber.is_over = true;
                Err(format!("fiber {number} panicked: {why}"))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                fiber.is_over = true;
                Err(format!("fiber {number} blocks on something that is no call: a lock across a call?"))
            }
        }
    }

    /// Lets all of them come to their end: whatever they call fails at once by now.
    pub fn finish(&mut self) {
        for fiber in 0..self.len() {
            for _ in 0..1000 {
                if self.is_over(fiber) || self.resume(fiber).is_err() {
                    break;
                }
            }
        }
    }

    /// Whether a fiber is over.
    pub fn is_over(&self, number: usize) -> bool {
        self.all[number].is_over
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn one_runs_at_a_time_and_a_panic_is_told() {
        let anywhere = sched_getaffinity(None).unwrap();
        let mut fibers = Fibers::default();
        let said = Arc::new(Mutex::new(Vec::new()));
        for name in ["a", "b"] {
            let said = Arc::clone(&said);
            let work = move || {
                for turn in 0..2 {
                    said.lock().unwrap().push(format!("{name}{turn} by {:?}", current()));
                    pause();
                }
            };
            fibers.spawn(work).unwrap();
        }
        let panics = [
            fibers.spawn(|| panic!("for the test")).unwrap(),
            fibers.spawn(|| panic!("{} test", "for the".to_owned())).unwrap(),
        ];
        for number in [1, 0, 0, 1, 1, 0] {
            fibers.resume(number).unwrap();
        }
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        let expected = ["b0 by Some(1)", "a0 by Some(0)", "a1 by Some(0)", "b1 by Some(1)"];
        assert_eq!(*said.lock().unwrap(), expected);
        assert!(fibers.is_over(0) && fibers.is_over(1) && current().is_none());
        for number in panics {
            assert_eq!(fibers.resume(number), Err(format!("fiber {number} panicked: for the test")));
        }
        drop(fibers);
        assert_eq!(sched_getaffinity(None).unwrap(), anywhere);
    }
}
