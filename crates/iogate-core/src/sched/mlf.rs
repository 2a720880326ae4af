//! `mlf`: growing quanta as in `aioli`, without waiting for completions, round over the queues.
//!
//! Sources: AGIOS, section 2.2; aIOLi, section 3.4. Which queue: among those whose first run is ready, the one that was
//! served longest ago. The published form selects in O(1) by taking the next ready queue of a round; the heap of
//! ready queues here is O(log q) and does not walk over queues that are not ready. A turn's continuation goes ahead of
//! the round but holds nobody up.
//!
//! A request waits at most `age_max`, plus the service of what has aged before it and of the turns that are open (as with `aioli`).

use super::SchedulerConfig;
use super::quantum::{Discipline, Quantum};

pub(super) struct Mlf;

impl Discipline for Mlf {
    const SYNCHRONOUS: bool = false;
    const FIRST_COME: bool = false;
}

pub(super) fn new(config: &SchedulerConfig) -> Quantum<Mlf> {
    Quantum::new(config)
}
