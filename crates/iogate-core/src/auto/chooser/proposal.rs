//! What a chooser wants to be in force, and what for.

use super::{Chooser, TIE};
use crate::auto::judging::{Judging, Rate, Trial};
use crate::auto::objective::Ln;
use crate::auto::status::Reason;
use crate::sched::SchedulerConfig;

/// What the gate should be switched to.
pub(super) struct Proposal {
    pub(super) index: usize,
    pub(super) scheduler: SchedulerConfig,
    pub(super) because: Because,
}

#[derive(Clone, Copy)]
pub(super) enum Because {
    /// The bound of what is in use follows the load.
    Bound,
    /// It is the turn of what is tried, or that of what is in use again.
    Turn,
    /// A change: how much faster it should be, and was in turns.
    Change(Reason, Ln, Option<Ln>),
}

impl Chooser {
    /// Wants a change, and notes what it is measured by.
    pub(super) fn try_out(&mut self, index: usize, reason: Reason, bias: Ln, judging: &Judging) {
        self.set_proposal(index, reason, self.gain(index));
        let (simulated, rate) = (self.gain_at_once(index), Rate::of(&judging.window));
        let promised = match reason {
            Reason::Gain => simulated + self.correction(index) - self.correction(self.used),
            // Nothing is to be faster, but nothing slower either.
            Reason::Thrift => -2 * TIE,
            _ => Ln::MIN / 2,
        };
        self.trial = Some(Trial { from: self.used, promised, bias, simulated, rate, windows: 1 });
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::sync::Arc;

    use super::*;
    use crate::device::{Device, Unit};
    use crate::gate::GateConfig;
    use crate::layout::Layout;
    use crate::time::{Span, Time};

    #[test]
    fn what_is_taken_back_is_so_as_soon_as_it_can_be() {
        let scheduler = SchedulerConfig::by_name("fifo").unwrap();
        let config = GateConfig { scheduler, queue_max: 1_000, depth: 1, layout: Layout::SINGLE };
        let unit = || -> Box<dyn Device> { Box::new(Unit::new(Span::from_millis(1))) };
        let mut chooser = Chooser::new(&config, Arc::new(unit), Time::ZERO);
        chooser.set_proposal(1, Reason::Reverted, 0);
        let wanted = chooser.proposal().cloned();
        for _ in 0..2 {
            chooser.settled(Time::ZERO, false);
            assert_eq!(chooser.proposal().cloned(), wanted);
        }
        chooser.settled(Time::ZERO, true);
        assert_eq!((chooser.proposal(), chooser.status().change.reason), (None, Reason::Reverted));
        // A gain is found again if it lasts.
        chooser.set_proposal(2, Reason::Gain, 100_000);
        chooser.settled(Time::ZERO, false);
        assert_eq!(chooser.proposal(), None);
    }
}
