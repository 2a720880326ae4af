//! What is expected of candidates, by the windows so far and by what was measured.

use super::Chooser;
use crate::auto::judging::BASE;
use crate::auto::objective::{Ln, Score};

impl Chooser {
    /// What is expected of a candidate beyond what is simulated, against `fifo`.
    pub(super) fn correction(&self, index: usize) -> Ln {
        self.corrections.expected(index, |other| self.candidates.are_alike(index, other))
    }

    /// The score of a candidate over the windows in which it was simulated whole.
    pub(super) fn score(&self, index: usize) -> Score {
        Score::of(self.history.iter().flat_map(|seen| seen.against(index, BASE, self.trusts)))
    }

    /// How much faster a candidate is expected to be than what is in use.
    pub(super) fn gain(&self, index: usize) -> Ln {
        self.simulated_gain(index) + self.correction(index) - self.correction(self.used)
    }

    /// The same as simulated, over the windows in which both were simulated whole.
    fn simulated_gain(&self, index: usize) -> Ln {
        -Score::of(self.history.iter().flat_map(|seen| seen.against(index, self.used, self.trusts))).mean
    }

    /// The same as long as all applications are there: what a change shows at once.
    pub(super) fn gain_at_once(&self, index: usize) -> Ln {
        -Score::of(self.history.iter().flat_map(|seen| seen.against(index, self.used, false))).mean
    }

    /// What is expected of the candidate at this place against `fifo`, and what a gain must exceed for a change; none if no window was
    /// simulated with it as a whole.
    pub fn expected(&self, place: usize) -> Option<(Score, Ln)> {
        let is_seen = self.history.iter().any(|seen| seen.against(place, BASE, self.trusts).next().is_some());
        is_seen.then(|| (self.score(place), self.threshold))
    }
}
