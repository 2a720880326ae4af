//! How many requests an engine has: those that find it full wait here, where who may not wait is told so.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long to sleep where room is not noticed otherwise: a program may keep the rest in service.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Room for so many requests.
pub(crate) struct Room {
    max: usize,
    /// Who waits is woken when only so much is taken: to be woken for each request costs more than the request.
    low: usize,
    taken: AtomicUsize,
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Room {
    pub(crate) fn new(max: u32) -> Room {
        Room {
            max: max as usize,
            low: max as usize - (max as usize / 4).max(1),
            taken: AtomicUsize::new(0),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// How much is taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Takes room for one, if there is some.
    pub(crate) fn try_take(&self) -> bool {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes room for one, when there is some.
    pub(crate) fn take(&self) {
        if self.try_take() {
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Seen by whoever gives some back after the look that finds none.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.try_take() {
            guard = self.freed.wait_timeout(guard, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives room for one back.
    pub(crate) fn give(&self) {
        let left = self.taken.fetch_sub(1, Ordering::SeqCst) - 1;
        if left == self.low && self.waiting.load(Ordering::SeqCst) > 0 {
            // Who has looked in vain sleeps by then.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.freed.notify_all();
        }
    }
}
