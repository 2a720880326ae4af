//! `fifo` (alias `to`): arrival order, one request a dispatch.
//!
//! The baseline of all the papers. O(1). A request waits for what arrived before it, and for nothing else.

use super::arrival::ArrivalList;
use super::{Pick, Scheduler};
use crate::queue::{Pending, SlotId};
use crate::time::Time;

#[derive(Default)]
pub(super) struct Fifo {
    arrivals: ArrivalList,
}

impl Scheduler for Fifo {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        self.arrivals.push(pending, slot);
    }

    fn pick(&mut self, _now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        let Some(oldest) = self.arrivals.oldest(pending) else { return Pick::Idle };
        self.arrivals.remove(pending, oldest);
        pending.take(oldest);
        Pick::Dispatch
    }

    fn allocated_bytes(&self) -> usize {
        self.arrivals.allocated_bytes()
    }
}
