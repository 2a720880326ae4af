//! Where nothing promises to be faster: what does as much, and keeps the device busy for less long.
//!
//! Over several servers with stripes of the same files a client waits for all of them. One of them alone gains nothing by a better order
//! that would make all of them several times as fast, and so none of them would begin. Time of the device that is saved also serves
//! whoever else uses that device.

use super::{BASE, Chooser, Judging, TIE};
use crate::auto::objective::Ln;

/// What is saved must be more than one part in so many of the time that the device is busy now.
const SAVED_PART: u64 = 4;
/// And that must be more than one part in so many of all time.
const BUSY_PART: u128 = 2;

impl Chooser {
    /// The candidate that keeps the device busy for the least time, by more than can be an error, if that slows down nobody; of
    /// `candidates`, which were simulated often enough.
    pub(super) fn thriftiest(
        &self,
        judging: &Judging,
        window_ns: u64,
        candidates: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        let busy = |index| judging.busy.iter().find(|(other, _)| *other == index).map(|(_, ns)| *ns);
        let used = busy(self.used)?;
        let requests: u64 = judging.window.apps.iter().map(|app| u64::from(app.completed)).sum();
        if u128::from(used) * u128::from(requests) * BUSY_PART <= u128::from(window_ns) {
            return None;
        }
        let (least, index) = candidates
            .filter(|index| ![BASE, self.used].contains(index) && self.slows_nobody(*index))
            .filter_map(|index| Some((busy(index)?, index)))
            .min()?;
        (least < used - used / SAVED_PART).then_some(index)
    }

    /// Whether all get on as they do with what is in use, and with `fifo`, but for what is as good as equal.
    fn slows_nobody(&self, index: usize) -> bool {
        let worst: Ln = self.score(index).worst - self.correction(index).min(0);
        worst <= TIE && self.gain(index) > -TIE
    }
}
