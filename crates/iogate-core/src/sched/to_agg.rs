//! `to-agg`: arrival order with aggregation.
//!
//! Source: AGIOS, section 2.4. The published form walks its one queue for a contiguous request at each arrival,
//! O(n). Here the next dispatch is the run around the oldest request, looking back from it first and then on,
//! within the caps: a request thus joins the queued run that it extends at either end, or bridges two, and the
//! gate's index finds its neighbours. O(1) to insert, O(run) to dispatch a run.
//!
//! The oldest request is always in the next dispatch, so a request waits for what arrived before it and for what
//! is contiguous to that.

use super::arrival::ArrivalList;
use super::{Pick, Scheduler, SchedulerConfig};
use crate::queue::{Pending, RunCap, SlotId};
use crate::time::Time;

pub(super) struct ToAgg {
    cap: RunCap,
    arrivals: ArrivalList,
}

impl ToAgg {
    pub(super) fn new(config: &SchedulerConfig) -> ToAgg {
        ToAgg { cap: config.run_cap(), arrivals: ArrivalList::default() }
    }
}

impl Scheduler for ToAgg {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        self.arrivals.push(pending, slot);
    }

    fn pick(&mut self, _now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        let Some(oldest) = self.arrivals.oldest(pending) else { return Pick::Idle };
        pending.walk_around(oldest, self.cap);
        let arrivals = &mut self.arrivals;
        pending.take_run(|pending, slot| arrivals.remove(pending, slot));
        Pick::Dispatch
    }

    fn allocated_bytes(&self) -> usize {
        self.arrivals.allocated_bytes()
    }
}
