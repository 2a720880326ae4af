//! The watch over threads that carry out what they read: when all of them are held up by that, it starts another.
//!
//! As few threads as there are CPUs are fastest: they find the next request waiting and need not be woken for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often it looks again before it goes to sleep when there is a thread that waits.
const CALM_LOOKS: u32 = 8;

/// Counts threads, and what they have read.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// Those that wait for something to read.
    waiting: AtomicUsize,
    all: AtomicUsize,
    reads: AtomicU64,
    thread: OnceLock<Thread>,
    is_awake: AtomicBool,
}

impl Watchdog {
    /// How long all threads may be at the same reads before another thread is started.
    pub const HELD_UP: Duration = Duration::from_millis(2);

    /// Sets the thread that watches. The first call counts.
    pub fn set_thread(&self, thread: &Thread) {
        self.thread.get_or_init(|| thread.clone());
    }

    /// Counts a thread that is to be started, among those that wait. Returns how many there were before.
    pub fn add(&self) -> usize {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst)
    }

    /// Undoes [`Watchdog::add`]: the thread could not be started.
    pub fn remove(&self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// The calling thread has read something.
    pub fn on_busy(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let last = self.waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && !self.is_awake.load(Ordering::SeqCst) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The calling thread has carried out what it has read, and waits.
    pub fn on_idle(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// The calling thread ends, and waited until now. It still counts as one that was started.
    pub fn on_end(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a thread waits.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Threads that do not wait.
    pub fn busy_count(&self) -> usize {
        let waiting = self.waiting.load(Ordering::SeqCst);
        self.all.load(Ordering::SeqCst).saturating_sub(waiting)
    }

    /// Wakes the thread that watches.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Has further threads started while those that there are do not get on; at most `most` in all. Returns when a thread has waited for
    /// a while, or it `has_ended`; or at `until`, if all are busy then.
    pub fn watch(&self, most: usize, until: Option<Instant>, has_ended: impl Fn() -> bool, start: impl Fn()) {
        let mut calm = 0;
        while calm < CALM_LOOKS && !has_ended() {
            let before = self.reads.load(Ordering::Relaxed);
            std::thread::sleep(Self::HELD_UP);
            if self.has_waiting() {
                calm += 1;
                continue;
            }
            calm = 0;
            let is_held_up = self.reads.load(Ordering::Relaxed) == before;
            if is_held_up && self.all.load(Ordering::SeqCst) < most && !has_ended() {
                start();
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
        }
    }

    /// Sleeps until [woken](Watchdog::wake): when it has ended, when all threads have become busy, or after this time.
    pub fn rest(&self, at_most: Option<Duration>, has_ended: impl Fn() -> bool) {
        self.is_awake.store(false, Ordering::SeqCst);
        // A thread may have become busy, and found the watchdog awake, just before.
        if self.has_waiting() && !has_ended() {
            at_most.map_or_else(std::thread::park, std::thread::park_timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// How often a thread is started; `adds`: it then waits.
    fn started(watchdog: &Watchdog, most: usize, looks: u32, adds: bool) -> u32 {
        let (started, left) = (Cell::new(0), Cell::new(looks));
        let has_ended = || left.replace(left.get().saturating_sub(1)) == 0;
        watchdog.watch(most, None, has_ended, || {
            started.set(started.get() + 1);
            if adds {
                watchdog.add();
            }
        });
        started.get()
    }

    #[test]
    fn a_thread_is_started_when_all_are_held_up() {
        let watchdog = Watchdog::default();
        assert_eq!(watchdog.add(), 0);
        assert_eq!(started(&watchdog, 9, 100, true), 0, "it waits");
        watchdog.on_busy();
        assert_eq!((watchdog.busy_count(), watchdog.has_waiting()), (1, false));
        assert_eq!(started(&watchdog, 1, 100, true), 0, "there may be no more");
        assert_eq!(started(&watchdog, 9, 100, true), 1, "the second one waits");
        assert_eq!((watchdog.busy_count(), watchdog.has_waiting()), (1, true));
        watchdog.on_busy();
        watchdog.on_idle();
        assert_eq!(started(&watchdog, 9, 100, true), 0);
    }

    #[test]
    fn it_looks_until_somebody_waits_or_the_time_is_over() {
        let watchdog = Watchdog::default();
        watchdog.add();
        watchdog.on_busy();
        assert_eq!(started(&watchdog, 9, 6, false), 3, "two questions a look");
        let count = Cell::new(0);
        watchdog.watch(9, Some(Instant::now()), || false, || count.set(count.get() + 1));
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn it_rests_only_while_a_thread_waits() {
        let watchdog = Watchdog::default();
        watchdog.set_thread(&std::thread::current());
        watchdog.rest(None, || false);
        watchdog.add();
        watchdog.rest(None, || true);
        watchdog.on_busy();
        watchdog.on_idle();
        let (began, long) = (Instant::now(), Duration::from_secs(60));
        watchdog.rest(Some(long), || false);
        assert!(began.elapsed() < long, "woken by the last that became busy");
    }
}
