//! Locks that programs ask for, where they hold among several machines: each is tried until it is given.
//!
//! Who has a lock does not know who waits for it, so it is asked for again, at first after a millisecond. One thread does that for all, so
//! that no number of waiting programs keeps those threads that give locks back.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::wire::{Lock, lock as kinds};
use rustix::io::Errno;

use crate::abi::{FileLock, LK_FLOCK, LkIn};

/// Between two attempts for a lock that somebody has: the first one, doubled from one to the next, and the longest.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// How long the thread stays without anything to do.
const IDLE: Duration = Duration::from_secs(1);
/// Most interrupts that are remembered of requests that are not known: another thread has just read them.
const EARLY_MAX: usize = 256;

/// What the kernel asks for, as a tree has it.
pub(crate) fn wish(arg: &LkIn) -> Result<Lock, Errno> {
    let kind = match i32::try_from(arg.lk.kind) {
        Ok(libc::F_RDLCK) => kinds::SHARED,
        Ok(libc::F_WRLCK) => kinds::EXCLUSIVE,
        Ok(libc::F_UNLCK) => kinds::NONE,
        _ => return Err(Errno::INVAL),
    };
    let space = if arg.lk_flags & LK_FLOCK != 0 { kinds::FILE } else { kinds::BYTES };
    let FileLock { start, end, pid, .. } = arg.lk;
    Ok(Lock { space, kind, owner: arg.owner, first: start, last: end, process: pid })
}

/// What a tree has found in the way, as the kernel is told.
pub(crate) fn found_of(found: &Lock) -> FileLock {
    let kind = match found.kind {
        kinds::SHARED => libc::F_RDLCK,
        kinds::EXCLUSIVE => libc::F_WRLCK,
        _ => libc::F_UNLCK,
    };
    FileLock { start: found.first, end: found.last, kind: kind as u32, pid: found.process }
}

/// What is asked for, and not given yet.
#[derive(Default)]
pub(crate) struct Asked(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Request>,
    /// Signals for those who wait for what was not, or not just then, among these.
    early: VecDeque<u64>,
    has_thread: bool,
}

/// A lock that a program waits for.
struct Request {
    unique: u64,
    /// Whether it waits for who has the lock.
    waits: bool,
    attempt: Box<dyn Fn() -> Result<(), Errno> + Send>,
    answer: Box<dyn FnOnce(Result<(), Errno>) + Send>,
    next: Instant,
    pause: Duration,
}

impl Asked {
    /// Has `attempt` made until it is done, or fails; `EBUSY` is a failure for a while, and so is `EAGAIN` for who `waits`. Tells `answer`.
    pub(crate) fn start(
        &self,
        unique: u64,
        waits: bool,
        attempt: impl Fn() -> Result<(), Errno> + Send + 'static,
        answer: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let mut state = self.0.lock();
        if state.is_interrupted(unique) {
            drop(state);
            return answer(Err(Errno::INTR));
        }
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("iogate-locks".into()).spawn(move || shared.run());
            if let Err(error) = started {
                tracing::warn!(%error, "no thread that asks for locks");
                drop(state);
                return answer(Err(Errno::NOLCK));
            }
            state.has_thread = true;
        }
        let (attempt, answer) = (Box::new(attempt), Box::new(answer));
        state.waiting.push(Request { unique, waits, attempt, answer, next: Instant::now(), pause: PAUSE });
        drop(state);
        self.0.changed.notify_one();
    }

    /// Who waits for the answer to a request has got a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.0.lock();
        if let Some(at) = state.waiting.iter().position(|request| request.unique == unique) {
            let request = state.waiting.swap_remove(at);
            drop(state);
            return (request.answer)(Err(Errno::INTR));
        }
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    /// A lock was given back here: somebody may wait for just that.
    pub(crate) fn try_again(&self) {
        let mut state = self.0.lock();
        if state.waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        state.waiting.iter_mut().for_each(|request| (request.next, request.pause) = (now, PAUSE));
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let due: Vec<Request> = state.waiting.extract_if(.., |request| request.next <= now).collect();
            if due.is_empty() {
                let next = state.waiting.iter().map(|request| request.next).min();
                let pause = next.map_or(IDLE, |next| next.saturating_duration_since(now));
                let woken = self.changed.wait_timeout(state, pause);
                let timeout;
                (state, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
                if timeout.timed_out() && state.waiting.is_empty() {
                    state.has_thread = false;
                    return;
                }
                continue;
            }
            drop(state);
            due.into_iter().for_each(|request| self.attempt(request));
            state = self.lock();
        }
    }

    fn attempt(&self, request: Request) {
        let pause = match (request.attempt)() {
            Err(Errno::AGAIN) if request.waits => request.pause,
            Err(Errno::BUSY) => PAUSE_MAX,
            result => return (request.answer)(result),
        };
        let mut state = self.lock();
        if state.is_interrupted(request.unique) {
            drop(state);
            return (request.answer)(Err(Errno::INTR));
        }
        let (next, pause) = (Instant::now() + pause, (2 * pause).min(PAUSE_MAX));
        state.waiting.push(Request { next, pause, ..request });
    }
}

impl State {
    /// Whether a signal has come before the request was here.
    fn is_interrupted(&mut self, unique: u64) -> bool {
        let at = self.early.iter().position(|early| *early == unique);
        at.and_then(|at| self.early.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Asks for a lock that is given by the `given`-th attempt, which fail with this until then.
    fn ask(
        asked: &Asked,
        unique: u64,
        waits: bool,
        given: u32,
        errno: Errno,
    ) -> mpsc::Receiver<Result<(), Errno>> {
        let (sender, answer) = mpsc::channel();
        let attempts = AtomicU32::new(0);
        let attempt = move || match attempts.fetch_add(1, Ordering::Relaxed) + 1 >= given {
            true => Ok(()),
            false => Err(errno),
        };
        asked.start(unique, waits, attempt, move |result| sender.send(result).unwrap());
        answer
    }

    #[test]
    fn who_waits_is_given_it_in_the_end_and_who_does_not_is_told() {
        let asked = Asked::default();
        let waits = ask(&asked, 1, true, 5, Errno::AGAIN);
        let does_not = ask(&asked, 2, false, 5, Errno::AGAIN);
        // After a restart nobody is told that somebody has it.
        let restarted = ask(&asked, 3, false, 3, Errno::BUSY);
        assert_eq!(does_not.recv_timeout(PATIENCE), Ok(Err(Errno::AGAIN)));
        assert_eq!(waits.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(restarted.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(ask(&asked, 4, true, 2, Errno::IO).recv_timeout(PATIENCE), Ok(Err(Errno::IO)));
    }

    #[test]
    fn a_signal_ends_a_wait_whenever_it_comes() {
        let asked = Asked::default();
        let waits = ask(&asked, 7, true, u32::MAX, Errno::AGAIN);
        let another = ask(&asked, 8, true, u32::MAX, Errno::AGAIN);
        asked.interrupt(7);
        assert_eq!(waits.recv_timeout(PATIENCE), Ok(Err(Errno::INTR)));
        // Before the request is known.
        asked.interrupt(9);
        assert_eq!(ask(&asked, 9, true, u32::MAX, Errno::AGAIN).recv_timeout(PATIENCE), Ok(Err(Errno::INTR)));
        assert!(another.try_recv().is_err());
        asked.interrupt(8);
        assert_eq!(another.recv_timeout(PATIENCE), Ok(Err(Errno::INTR)));
    }
}
