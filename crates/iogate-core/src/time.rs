//! Time as the core sees it: whole nanoseconds, handed in by the driver.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since an epoch that the driver chooses: the Unix epoch in real time (so
/// that windows of different nodes line up), the start of the run in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(u64);

/// A length of time, in nanoseconds. Sums of such stay at [`Span::MAX`], 584 years, once they would be longer, and differences at
/// nothing: no statistics of clocks that jump wrap around or end a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span(u64);

impl Time {
    /// The driver's epoch.
    pub const ZERO: Time = Time(0);
    /// Later than any time that a driver can name.
    pub const MAX: Time = Time(u64::MAX);

    /// The time `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The index of the window of length `window` (not zero) that contains this time.
    pub const fn window(self, window: Span) -> u64 {
        self.0 / window.0
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Span {
        Span(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Span {
        Span(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds, for people; never fed back into a decision.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// [`Span::MAX`] for what is longer.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Span {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
            if ns >= unit_ns {
                return if ns.is_multiple_of(unit_ns) {
                    write!(f, "{}{unit}", ns / unit_ns)
                } else {
                    write!(f, "{:.3}{unit}", ns as f64 / unit_ns as f64)
                };
            }
        }
        write!(f, "{ns}ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_that_no_span_can_hold_is_the_longest_span() {
        let longest = Duration::from_nanos(u64::MAX);
        assert_eq!((Span::from(longest), Duration::from(Span::MAX)), (Span::MAX, longest));
        assert_eq!(Span::from(longest + Duration::from_nanos(1)), Span::MAX);
        assert_eq!(Span::from(Duration::MAX), Span::MAX);
        assert_eq!(Span::from(Duration::from_millis(2)), Span::from_millis(2));
    }
}
