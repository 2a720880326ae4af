//! A count of calls that are underway, and one who waits until none is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Somebody waits; below it the number of calls.
const AWAITED: u64 = 1 << 63;

/// In a line of the cache of its own: each call changes it twice.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Underway {
    calls: AtomicU64,
    over: Mutex<bool>,
    changed: Condvar,
}

/// A call, until it is dropped.
pub(crate) struct Call<'a>(&'a Underway);

impl Underway {
    pub(crate) fn begin(&self) -> Call<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Call(self)
    }

    /// Waits, once, until no call is underway. None may begin any more but within another one.
    pub(crate) fn wait(&self) {
        if self.calls.fetch_or(AWAITED, Ordering::Acquire) == 0 {
            return;
        }
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = self.changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::AcqRel) == AWAITED + 1 {
            *self.0.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn who_waits_goes_on_when_the_last_call_is_over() {
        let underway = Underway::default();
        let first = underway.begin();
        let second = underway.begin();
        let is_last = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                underway.wait();
                assert!(is_last.load(Ordering::Relaxed));
            });
            while underway.calls.load(Ordering::Relaxed) & AWAITED == 0 {
                std::thread::yield_now();
            }
            drop(first);
            is_last.store(true, Ordering::Relaxed);
            drop(second);
            waits.join().unwrap();
        });
        Underway::default().wait();
    }
}
