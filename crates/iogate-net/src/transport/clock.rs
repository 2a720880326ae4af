//! How far a server's clock is from this one's: issue times and windows go by them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::system::unix_now;

/// A server's clock as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// How far it is ahead of this one, in ns; negative if it is behind.
    pub ahead: i64,
    /// How much `ahead` may be wrong, in ns.
    pub within: u64,
}

/// A question on its way to a server, whose answer says the server's time.
pub(super) struct Question {
    /// In ns since the Unix epoch.
    time: u64,
    since: Instant,
}

impl Question {
    pub(super) fn asked_now() -> Question {
        Question { time: unix_now(), since: Instant::now() }
    }

    /// What the server's time, in ns since the Unix epoch, means that has arrived now.
    pub(super) fn answered(&self, server: u64) -> ClockOffset {
        let half = u64::try_from(self.since.elapsed().as_nanos() / 2).unwrap_or(u64::MAX);
        let ahead = i128::from(server) - i128::from(self.time) - i128::from(half);
        ClockOffset { ahead: ahead.clamp(i64::MIN.into(), i64::MAX.into()) as i64, within: half }
    }
}

impl ClockOffset {
    /// Whether the clocks differ by more than so much, for certain.
    pub fn exceeds(&self, tolerance: Duration) -> bool {
        u128::from(self.ahead.unsigned_abs().saturating_sub(self.within)) > tolerance.as_nanos()
    }
}

impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.ahead < 0 { "behind" } else { "ahead" };
        let digits = if self.ahead.unsigned_abs() < 1_000_000_000 { (1e6, "ms") } else { (1e9, "s") };
        write!(f, "{:.1} {} {side}", self.ahead.unsigned_abs() as f64 / digits.0, digits.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_of_the_answer_is_allowed_for() {
        let question = Question { time: 1_000_000_000, since: Instant::now() - Duration::from_millis(200) };
        let offset = question.answered(1_300_000_000);
        assert!(offset.ahead <= 200_000_000 && offset.within >= 100_000_000, "{offset:?}");
        assert!(offset.exceeds(Duration::from_millis(1)) && !offset.exceeds(Duration::from_millis(100)));
        let behind = question.answered(0);
        assert!(behind.ahead < 0 && behind.exceeds(Duration::from_millis(900)), "{behind:?}");
        assert!(question.answered(u64::MAX).exceeds(Duration::from_secs(3600)));
    }

    #[test]
    fn people_read_which_side_it_is_on() {
        let text = |ahead| ClockOffset { ahead, within: 0 }.to_string();
        assert_eq!(text(-12_340_000), "12.3 ms behind");
        assert_eq!(text(3_600_000_000_000), "3600.0 s ahead");
    }
}
