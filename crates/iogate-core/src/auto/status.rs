//! What a choice says of itself, in words.

use core::fmt;

use super::chooser::{Change, Reason, Status};
use super::objective::{Ln, exp_thousandths};

/// How many times as fast, as in `3.1x`.
struct Times(Ln);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (exp_thousandths(self.0) + 5) / 10;
        write!(f, "{}.{:02}x", hundredths / 100, hundredths % 100)
    }
}

impl fmt::Display for Change {
    /// `fifo -> aioli: 3.10x predicted, 2.80x measured`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { from, to, reason, predicted, measured, .. } = self;
        match reason {
            Reason::Start => return write!(f, "{to} from the beginning"),
            Reason::Gain => write!(f, "{from} -> {to}: {} predicted", Times(*predicted))?,
            Reason::Harm => write!(f, "{from} -> {to}: an application was slowed down too much")?,
            Reason::Reverted => write!(f, "{from} -> {to}: it did not show what it promised")?,
        }
        match measured {
            Some(measured) => write!(f, ", {} measured", Times(*measured)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Status {
    /// Two or three lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { change, considered, error, switches, windows, .. } = self;
        writeln!(f, "chosen: {} ({change})", change.to)?;
        write!(f, "changes: {switches}, windows: {windows}, predictions were off by ")?;
        match error {
            Some(error) => writeln!(f, "{}.{} %", error / 10_000, error / 1_000 % 10)?,
            None => writeln!(f, "what is not known yet")?,
        }
        for (scheduler, score) in considered {
            writeln!(f, "considered: {scheduler}, {} as fast as fifo", Times(-score.mean))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::sched::SchedulerConfig;
    use crate::time::Time;

    #[test]
    fn a_change_says_what_was_promised_and_what_was_kept() {
        let named = |name| SchedulerConfig::by_name(name).unwrap();
        let change = Change {
            at: Time::ZERO,
            from: named("to-agg"),
            to: named("aioli"),
            reason: Reason::Gain,
            predicted: 1_131_402,
            measured: Some(1_029_619),
        };
        assert_eq!(change.to_string(), "to-agg -> aioli: 3.10x predicted, 2.80x measured");
        let start = Change { reason: Reason::Start, ..change };
        assert_eq!(start.to_string(), "aioli from the beginning");
    }
}
