//! Time for the gate: it never decreases, and counts from the Unix epoch so that windows of different nodes line up.

use std::time::{SystemTime, UNIX_EPOCH};

use iogate_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, moved to the Unix epoch once, when it is made: steps of the wall clock do not reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset_ns: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |wall| wall.as_nanos() as u64);
        Clock { offset_ns: wall_ns.saturating_sub(monotonic_ns()) }
    }

    pub(crate) fn now(self) -> Time {
        Time::from_nanos(self.offset_ns + monotonic_ns())
    }
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
