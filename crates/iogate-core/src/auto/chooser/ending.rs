//! What is known of how much work applications have, and what becomes of it under candidates.

use alloc::vec::Vec;

use super::Chooser;
use crate::auto::bursts::Left;
use crate::auto::ends::Set;
use crate::auto::judging::{BASE, Judging, Stage};
use crate::auto::objective::{HARM_MAX, Ln};
use crate::auto::shadow::Times;
use crate::auto::subsets::Subsets;
use crate::auto::window::Window;
use crate::time::{Span, Time};

/// A constant error of predictions beyond which it is not believed when anybody ends.
const BIAS_MAX: Ln = 250_000;

impl Chooser {
    /// What is left of the bursts that applications have now. To be called before [`Chooser::consider`].
    pub fn tell(&mut self, now: Time, left: impl IntoIterator<Item = Left>) {
        self.ends.tell(now, left, self.used != 0);
    }

    /// The sets of a window's applications that matter, if it is known when enough of them end.
    pub(super) fn subsets(&mut self, window: &Window, now: Time) -> Option<Subsets> {
        self.ends.places(window).map(|places| Subsets::new(now, places))
    }

    /// Whether it is believed when applications end: not where the storage is another one than it is taken for.
    pub(super) fn trusts_ends(&self, judging: &Judging) -> bool {
        judging.subsets.is_some() && self.bias().abs() <= BIAS_MAX
    }

    /// How much longer an application may take with what is chosen: less than it may at all, where that is foretold for long.
    pub(super) fn harm_max(&self) -> Ln {
        if self.trusts { HARM_MAX / 2 } else { HARM_MAX }
    }

    /// A candidate, or a set of applications under it, has been simulated: goes on to the next.
    pub(super) fn simulated(&mut self, judging: &mut Judging, candidate: usize, times: Vec<Times>) {
        let Some(subsets) = &mut judging.subsets else {
            judging.finished(candidate, times);
            return;
        };
        subsets.add(candidate, times);
        if let Err(missing) = self.end(judging, candidate)
            && let Some(subsets) = &mut judging.subsets
        {
            subsets.go_on(&judging.window, missing);
        }
    }

    /// What applications take in all under a candidate.
    fn end(&mut self, judging: &mut Judging, candidate: usize) -> Result<(), Set> {
        let Judging { window, subsets: Some(subsets), stage, .. } = judging else { return Ok(()) };
        let Subsets { at, full, .. } = *subsets;
        let rates = |set: Set| subsets.rates(window, candidate, set);
        let totals = self.ends.totals(at, rates).map_err(|missing| missing & full)?;
        let base = match candidate {
            0 => Some(self.ends.totals_with_fifo(at, full, rates)?),
            _ => None,
        };
        if candidate == 0 && *stage == Stage::Whole {
            for set in subsets.sets(0) {
                self.ends.learn(set, rates(set).unwrap_or_default());
            }
        }
        let times = subsets.whole(candidate).cloned().unwrap_or_default();
        let in_all = |totals: &[u64]| {
            let mut times = times.clone();
            for (times, &place) in times.iter_mut().zip(&subsets.places) {
                // Who may have no end is not to be slower at any time.
                if self.ends.is_known(place) {
                    times.in_all = Span::from_nanos(totals[place]);
                }
            }
            times
        };
        let (times, base) = (in_all(&totals), base.map(|base| in_all(&base)));
        subsets.go_on(window, full);
        if let Some(base) = base {
            judging.done.push((BASE, base));
        }
        judging.finished(candidate, times);
        Ok(())
    }
}
