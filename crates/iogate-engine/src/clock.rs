//! Time for gates and coordinators: it never decreases, and counts from the Unix epoch so that windows of different nodes line up.

use std::time::{SystemTime, UNIX_EPOCH};

use iogate_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, moved to the Unix epoch once, when it is made: steps of the wall clock do not reach it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ns: u64,
}

impl Clock {
    /// A clock that agrees with the wall clock now.
    #[expect(clippy::new_without_default, reason = "two of them need not agree")]
    pub fn new() -> Clock {
        let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |wall| wall.as_nanos() as u64);
        Clock { offset_ns: wall_ns.saturating_sub(monotonic_ns()) }
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

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
