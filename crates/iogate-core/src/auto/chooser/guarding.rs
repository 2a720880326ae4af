//! The guard of a chooser: where prices are known, nobody may be behind `fifo` for long.
//!
//! Who would be slowed down by a candidate for good can afford it for a while: others may be done by then, and how long they are nobody
//! knows. So harm is bounded by watching, and not by predicting alone. That takes simulations of `fifo` that are right: where prices are
//! learnt from nothing, nobody may be expected to be slowed down by more than may be, not even for a while.

use super::Chooser;
use crate::auto::judging::Judging;
use crate::auto::objective::{HARM_MAX, Ln, Score};
use crate::time::Time;

/// Who is behind by so much makes it leave what is in use: ln 1.083, as the next window comes later.
const LEAVE: Ln = 80_000;
/// How far behind somebody may be expected to be by the time when that would be seen: ln 1.062.
const TAKE: Ln = 60_000;
/// After how many windows that is.
const WINDOWS_TO_SEE: u64 = 2;

impl Chooser {
    /// Whether it watches who falls behind: all that is simulated is simulated by prices that are known.
    pub(super) fn is_guarded(&self) -> bool {
        self.pricing.coverage().is_none()
    }

    /// A window has been simulated: whether somebody has fallen behind by more than may be with what is in use. Then `fifo` is next: who
    /// went on to another one would change at each window, as each lets somebody else fall behind.
    pub(super) fn is_to_be_left(&mut self, judging: &Judging, now: Time) -> bool {
        if !self.is_guarded() {
            return false;
        }
        let bias = self.bias();
        if self.used == 0 {
            self.bias_of_fifo = Some(bias);
        }
        // What is in use may be simulated worse, or better, than `fifo` is.
        let bias = self.bias_of_fifo.map_or(bias, |of_fifo| (bias + of_fifo) / 2);
        self.ledger.add(judging, self.used, bias, now);
        self.used != 0 && self.ledger.worst() > LEAVE
    }

    /// Whether nobody is slowed down by more than may be while a candidate is in force or, if that is watched, not for long enough; a
    /// window takes so many ns.
    pub(super) fn may_be_in_force(&self, index: usize, window: u64) -> bool {
        // Who is slower than simulated may harm more than is simulated.
        let slower = -self.correction(index).min(0);
        if !self.is_guarded() {
            let score = self.score(index);
            return (Score { worst: score.worst + slower, ..score }).is_harmless();
        }
        let parts = self.history.iter().flat_map(|seen| seen.against(index, 0));
        // What is simulated may be off, and then somebody falls behind sooner.
        let take = (TAKE - self.status.error.unwrap_or(TAKE)).max(0);
        index == 0 || self.ledger.projected(parts, WINDOWS_TO_SEE * window, HARM_MAX - slower) <= take
    }
}
