//! Time for gates and coordinators: it never decreases, and counts from the Unix epoch so that windows of different nodes line up.

use std::time::{SystemTime, UNIX_EPOCH};

use iogate_core::Time;

/// The monotonic clock, moved to the Unix epoch once, when it is made: steps of the wall clock do not reach it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ns: u64,
}

impl Clock {
    /// A clock that agrees with the wall clock now.
    #[expect(clippy::new_without_default, reason = "two of them need not agree")]
    pub fn new() -> Clock {
        Clock { offset_ns: unix_now().saturating_sub(monotonic_ns()) }
    }

    /// What time it is, in nanoseconds since the Unix epoch.
    pub fn now(self) -> Time {
        Time::from_nanos(self.offset_ns + monotonic_ns())
    }

    /// What it adds to the monotonic clock, in nanoseconds: times of two clocks of one boot differ by this.
    pub fn offset_ns(self) -> u64 {
        self.offset_ns
    }
}

/// What the wall clock says, in nanoseconds since the Unix epoch.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Asks the kernel to wake this thread when its sleep is over, not up to 50 us later.
pub(crate) fn precise_sleep() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and affects this thread's timers only.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// In a test of interleavings: a microsecond later at each look, so that the time does not depend on the machine.
#[cfg(feature = "shuttle")]
fn monotonic_ns() -> u64 {
    static LOOKS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    1000 * LOOKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(not(feature = "shuttle"))]
fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The C library's: rustix looks for the kernel's function itself, where valgrind hides it, and programs crash there.
    // SAFETY: it writes the time, and cannot fail: there is such a clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
