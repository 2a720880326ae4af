//! What is computed from all situations together, and its interval: by what it is without each of the seeds.

use iogate_report::claims::Interval;

use super::selection::{self, Selection};
use super::situations::Situations;
use super::trees::{self, Learnt};

/// Situations, what is learnt from them, and who selects.
pub(super) struct Outcome {
    pub(super) situations: Situations,
    pub(super) trees: Vec<Learnt>,
    pub(super) selections: Vec<Selection>,
}

impl Outcome {
    fn new(situations: Situations, dealings: u64) -> Outcome {
        let trees = trees::learn(&situations, dealings);
        let selections = selection::all(&situations, &trees);
        Outcome { situations, trees, selections }
    }

    pub(super) fn tree(&self, name: &str) -> Option<&Learnt> {
        self.trees.iter().find(|tree| tree.name == name)
    }

    pub(super) fn selection(&self, name: &str) -> Option<&Selection> {
        self.selections.iter().find(|selection| selection.name == name)
    }
}

/// All seeds together, and all but each of them: table III, the trees and the selections are made anew each time.
pub(super) struct Samples {
    pub(super) whole: Outcome,
    without: Vec<Outcome>,
    level: f64,
}

impl Samples {
    pub(super) fn new(situations: Situations) -> Samples {
        let seeds = Some(situations.seeds()).filter(|seeds| *seeds > 1).unwrap_or(0);
        // Nothing of ten folds is asked for without a seed.
        let without = (0..seeds).map(|seed| Outcome::new(situations.without(seed), 0)).collect();
        let level = situations.level();
        Samples { whole: Outcome::new(situations, trees::DEALINGS), without, level }
    }

    /// Something of all of them, with its interval over the seeds. What is not there without one of the seeds has no interval that could
    /// be told, and is not there at all.
    pub(super) fn interval(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Option<Interval> {
        let without: Option<Vec<f64>> = self.without.iter().map(&of).collect();
        Some(Interval::left_out(of(&self.whole)?, &without?, self.level))
    }

    /// The same of a share in percent, which is between none and all whatever the seeds say.
    pub(super) fn share(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Option<Interval> {
        Some(self.interval(of)?.within(0.0, 100.0))
    }
}
