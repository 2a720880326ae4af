//! Bounds on waiting that follow what requests wait with `fifo`.

use super::Chooser;
use super::proposal::{Because, Proposal};
use crate::auto::objective::exp_thousandths;
use crate::sched::param::AGE_MAX;
use crate::time::Span;

/// By one part in so many what requests wait must have changed before bounds follow it.
const WAIT_STEP: u64 = 8;

impl Chooser {
    /// What requests wait with `fifo` in real time, by what they wait with it as simulated and by how far simulations are off.
    pub(super) fn follow_wait(&mut self, simulated: Span) {
        let real = u128::from(simulated.as_nanos()) * u128::from(exp_thousandths(-self.bias())) / 1_000;
        let real = real.min(u128::from(u64::MAX / 4)) as u64;
        let before = self.wait.as_nanos();
        self.wait = Span::from_nanos(if before == 0 { real } else { (before * 3 + real) / 4 });
    }

    /// What is in use with another bound, where that of what requests wait has changed.
    pub(super) fn adjusted(&self) -> Option<Proposal> {
        if !self.candidates.is_patient(self.used) {
            return None;
        }
        let scheduler = self.candidates.with_wait(self.used, self.wait);
        let (to, from) =
            (scheduler.span(&AGE_MAX).as_nanos(), self.status.change.to.span(&AGE_MAX).as_nanos());
        let is_other = to.abs_diff(from) > from / WAIT_STEP;
        is_other.then_some(Proposal { index: self.used, scheduler, because: Because::Bound })
    }
}
