//! What a class at a gate asks for, from what it has used and what has waited.

use crate::policy::Leaf;
use crate::time::{Span, Time};
use crate::units::SECOND;

/// What a gate has counted of a class, since it knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The class.
    pub leaf: Leaf,
    /// Bytes of requests that were admitted.
    pub admitted: u64,
    /// How long requests waited for nothing but its cap in bytes.
    pub capped: Span,
    /// Bytes of requests that wait to be admitted.
    pub deferred: u64,
}

/// Windows of which the mean is what a class uses that is not held up.
const WINDOWS: usize = 4;

/// Windows of which people are told the mean: with one alone, which is often shorter than the time from a request to the next, what a
/// class uses would be nothing now and twice its cap then.
const MEMORY: u64 = 10;

/// Follows one class.
///
/// One that its cap has held up for half of the time asks for twice what it has, and for what waits: so what it does not use of that is
/// less than it has, and is given back with the next report. One that is not held up asks for what it uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    since: Time,
    admitted: u64,
    capped: Span,
    /// Bytes a second in the last windows.
    used: [u64; WINDOWS],
    windows: usize,
    /// What people are told: the mean of about the last [`MEMORY`] windows.
    shown: u64,
    demand: u64,
    is_known: bool,
}

impl Meter {
    /// Takes in what a gate has counted up to now. What is shorter than `window` is counted with what follows.
    pub(super) fn observe(&mut self, now: Time, usage: &Usage, held: u64, window: Span) {
        if !self.is_known {
            self.is_known = true;
            (self.since, self.admitted, self.capped) = (now, usage.admitted, usage.capped);
        }
        let took = now.since(self.since);
        let per_s = |bytes: u64, took: Span| {
            let rate = u128::from(bytes) * u128::from(SECOND) / u128::from(took.as_nanos().max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let waiting = per_s(usage.deferred, window);
        if took.as_nanos() < window.as_nanos() / 2 {
            if held == 0 {
                // Nothing of it goes on before it is allotted something.
                self.demand = self.demand.max(waiting);
            }
            return;
        }
        // A gate that has forgotten a class counts from nothing again.
        let used = per_s(usage.admitted.saturating_sub(self.admitted), took);
        let capped = usage.capped - self.capped;
        (self.since, self.admitted, self.capped) = (now, usage.admitted, usage.capped);
        self.used[self.windows % WINDOWS] = used;
        self.windows += 1;
        self.shown = match self.windows {
            1 => used,
            _ => self.shown - self.shown.div_ceil(MEMORY) + used / MEMORY,
        };
        let is_held_up = capped.as_nanos() >= took.as_nanos() / 2 || held == 0 && usage.deferred > 0;
        self.demand = if is_held_up {
            used.max(held).saturating_mul(2).saturating_add(waiting)
        } else if used == 0 && usage.deferred == 0 {
            0
        } else {
            let windows = self.windows.min(WINDOWS);
            let mean = self.used[..windows].iter().fold(0u64, |sum, used| sum.saturating_add(*used))
                / windows as u64;
            let most = mean.max(used);
            most.saturating_add(most / 64 + 1)
        };
    }

    pub(super) fn demand(&self) -> u64 {
        self.demand
    }

    /// Bytes a second in about the last [`MEMORY`] windows.
    pub(super) fn used(&self) -> u64 {
        self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_uses_is_told_over_several_windows() {
        let window = Span::from_millis(100);
        let mut meter = Meter::default();
        let mut observe = |ms: u64, admitted| {
            let usage = Usage { admitted, ..Usage::default() };
            meter.observe(Time::ZERO + Span::from_millis(ms), &usage, 1 << 21, window);
            meter.used()
        };
        // 256 KiB each 125 ms are 2 MiB a second.
        let near = (3 << 19)..(5 << 19);
        for window in 0..100 {
            let used = observe(window * 100, window * 100 / 125 * (256 << 10));
            assert!(window < 20 || near.contains(&used), "{used} after {window} windows");
        }
        // Nothing more comes.
        let last = (100..250).map(|window| observe(window * 100, 99 * 100 / 125 * (256 << 10))).last();
        assert_eq!(last, Some(0));
    }
}
