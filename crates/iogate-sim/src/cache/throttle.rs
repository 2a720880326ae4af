//! Who has written too much waits: until 3.1 it writes back itself, since 3.2 it is slowed down.
//!
//! - [`Throttle::WriteBack`] (`balance_dirty_pages` of 2.6.18 and 2.6.28): a writer that finds more than the limit waits until there is
//!   less, or until a chunk of 6 MiB has been written back for it; writers wait in the order in which they came.
//! - [`Throttle::Slow`] (of 5.4): half way between the two limits writers begin to pause after each write, so that the rate of all
//!   follows that of the device (IO-less dirty throttling; Wu, 2011). Each 200 ms the rate of a writer is set anew from what was
//!   dirtied and written back.
//!
//! Left out: that a writer is looked at only every 32 KiB to 4 MiB, limits for each device and each control group, and the steps in which
//! the rate is smoothed.

use std::collections::{BTreeSet, VecDeque};

use iogate_core::{Span, Time};

use super::kernel::{Kernel, PAGE};

/// How far dirty memory is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Pages that are dirty or being written back.
    pub(super) pages: u64,
    pub(super) background: u64,
    pub(super) limit: u64,
}

/// Writers that wait.
#[derive(Debug)]
pub(super) enum Throttle {
    WriteBack {
        /// In the order in which they came.
        waiting: VecDeque<u64>,
        /// Pages that were written back for the first of them.
        done: u64,
        chunk: u64,
    },
    Slow(Slow),
}

/// The rate of writers, and those that pause.
#[derive(Debug)]
pub(super) struct Slow {
    pausing: BTreeSet<(Time, u64)>,
    pause_max: Span,
    /// Pages a second: of the device, of one writer.
    device: f64,
    writer: f64,
    since: Time,
    dirtied: u64,
    written: u64,
}

/// Pages a second that are supposed at first (INIT_BW of `mm/page-writeback.c`: 100 MiB/s).
const FIRST_RATE: f64 = (100 << 20) as f64 / PAGE as f64;
/// How often the rates are set anew (BANDWIDTH_INTERVAL).
const INTERVAL: Span = Span::from_millis(200);
/// Over what time the device's is averaged (`wb_update_write_bandwidth`).
const PERIOD_S: f64 = 3.0;

impl Throttle {
    pub(super) fn new(kernel: Kernel) -> Throttle {
        if kernel.writers_write_back() {
            let chunk = kernel.value("chunk_pages");
            return Throttle::WriteBack { waiting: VecDeque::new(), done: 0, chunk };
        }
        Throttle::Slow(Slow {
            pausing: BTreeSet::new(),
            pause_max: Span::from_millis(kernel.value("pause_max_ms")),
            device: FIRST_RATE,
            writer: FIRST_RATE,
            since: Time::ZERO,
            dirtied: 0,
            written: 0,
        })
    }

    /// A writer has dirtied so many pages. Whether it has to wait; it is then named by [`Throttle::released`].
    pub(super) fn wrote(&mut self, now: Time, writer: u64, pages: u64, level: Level) -> bool {
        match self {
            Throttle::WriteBack { waiting, .. } => {
                let waits = level.pages > level.limit;
                if waits {
                    waiting.push_back(writer);
                }
                waits
            }
            Throttle::Slow(slow) => {
                slow.dirtied += pages;
                slow.measure(now);
                if level.pages <= (level.background + level.limit) / 2 {
                    return false;
                }
                slow.pausing.insert((now + slow.pause(pages, level), writer));
                true
            }
        }
    }

    /// So many pages have been written back.
    pub(super) fn written(&mut self, now: Time, pages: u64) {
        match self {
            Throttle::WriteBack { waiting, done, .. } => {
                if !waiting.is_empty() {
                    *done += pages;
                }
            }
            Throttle::Slow(slow) => {
                slow.written += pages;
                slow.measure(now);
            }
        }
    }

    /// The next writer that goes on.
    pub(super) fn released(&mut self, now: Time, level: Level) -> Option<u64> {
        match self {
            // With nobody waiting, nothing counts as done.
            Throttle::WriteBack { waiting, .. } if waiting.is_empty() => None,
            Throttle::WriteBack { waiting, done, chunk } => {
                if level.pages > level.limit && *done < *chunk {
                    return None;
                }
                *done = 0;
                waiting.pop_front()
            }
            Throttle::Slow(slow) => {
                while let Some(&(at, writer)) = slow.pausing.first()
                    && at <= now
                {
                    slow.pausing.pop_first();
                    if level.pages <= level.limit {
                        return Some(writer);
                    }
                    slow.pausing.insert((now + slow.pause_max, writer));
                }
                None
            }
        }
    }

    /// When it must be asked again, though nothing has happened.
    pub(super) fn wake(&self) -> Option<Time> {
        match self {
            Throttle::WriteBack { .. } => None,
            Throttle::Slow(slow) => slow.pausing.first().map(|(at, _)| *at),
        }
    }

    /// Pages that the device writes back in half a second, where that is known.
    pub(super) fn half_second(&self) -> u64 {
        match self {
            Throttle::WriteBack { .. } => 0,
            Throttle::Slow(slow) => (slow.device / 2.0) as u64,
        }
    }
}

impl Slow {
    /// How long who has dirtied so many pages pauses.
    fn pause(&self, pages: u64, level: Level) -> Span {
        let rate = self.writer * position(level);
        let ns = pages as f64 / rate.max(1.0) * 1e9;
        Span::from_nanos(ns as u64).min(self.pause_max)
    }

    /// Sets the rates anew, if it is time.
    fn measure(&mut self, now: Time) {
        let passed = now.since(self.since);
        if passed < INTERVAL {
            return;
        }
        let seconds = passed.as_secs_f64();
        // After a time without writing nothing is known.
        if self.written > 0 && self.dirtied > 0 {
            let share = (seconds / PERIOD_S).min(1.0);
            self.device += (self.written as f64 / seconds - self.device) * share;
            let balanced = self.writer * self.device / (self.dirtied as f64 / seconds);
            self.writer = balanced.min(self.device).max(1.0);
        }
        (self.since, self.dirtied, self.written) = (now, 0, 0);
    }
}

/// How the rate depends on how far dirty memory is: 1 between where slowing begins and the limit, more before, 0 at the limit
/// (`pos_ratio_polynom`).
fn position(level: Level) -> f64 {
    let begin = (level.background + level.limit) / 2;
    let set = (begin + level.limit) as f64 / 2.0;
    let x = (set - level.pages as f64) / (level.limit as f64 - set).max(1.0);
    (1.0 + x * x * x).clamp(0.0, 2.0)
}
