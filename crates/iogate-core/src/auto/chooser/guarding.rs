//! The guard of a chooser: nobody may be behind `fifo` for long.
//!
//! Who would be slowed down by a candidate for good can afford it for a while, as long as it is over soon: others may be done by then, and
//! how long they are nobody knows. So harm is bounded by watching, and not by predicting alone.

use super::{Chooser, GAIN_MIN};
use crate::auto::judging::Judging;
use crate::auto::objective::{HARM_MAX, Ln};
use crate::time::{Span, Time};

/// Who is behind by so much makes it leave what is in use: ln 1.083, as the next window comes later.
const LEAVE: Ln = 80_000;
/// How far behind somebody may be expected to be by the time when that would be seen: ln 1.062.
const TAKE: Ln = 60_000;
/// After how many windows that is.
const WINDOWS_TO_SEE: u64 = 2;

impl Chooser {
    /// A window has been simulated: whether somebody has fallen behind by more than may be with what is in use.
    pub(super) fn is_to_be_left(&mut self, judging: &Judging, now: Time) -> bool {
        let bias = self.bias();
        if self.used == 0 {
            self.bias_of_fifo = Some(bias);
        }
        let bias = self.bias_of_fifo.map_or(bias, |of_fifo| (bias + of_fifo) / 2);
        self.ledger.add(judging, self.used, bias, now);
        self.used != 0 && self.ledger.worst() > LEAVE
    }

    /// What to go to as somebody has fallen behind: the best that slows down nobody for long, else `fifo`.
    pub(super) fn best_for_all(&self, judging: &Judging) -> usize {
        let window = judging.window.span.max(Span::from_millis(1)).as_nanos();
        let others =
            judging.done.iter().map(|(index, _)| *index).filter(|&index| index != 0 && index != self.used);
        let may = others.filter(|&index| self.may_be_in_force(index, window));
        let gains = may.map(|index| (self.correction(index) - self.score(index).mean, index));
        gains.filter(|(gain, _)| *gain > GAIN_MIN).max().map_or(0, |(_, index)| index)
    }

    /// Whether nobody is slowed down by more than may be while a candidate is in force, or not for long enough; a window takes so many ns.
    pub(super) fn may_be_in_force(&self, index: usize, window: u64) -> bool {
        let parts = self.history.iter().flat_map(|seen| seen.against(index, 0));
        // Who is slower than simulated may harm more than is simulated.
        let harm = HARM_MAX + self.correction(index).min(0);
        // What is simulated may be off, and then somebody falls behind sooner. By how much is not known where prices are not.
        let is_priced = self.pricing.coverage().is_none();
        let take = if is_priced { TAKE - self.status.error.unwrap_or(TAKE) } else { 0 };
        index == 0 || self.ledger.projected(parts, WINDOWS_TO_SEE * window, harm) <= take.max(0)
    }
}
