//! `app-window`: within a window of issue time, one application at a time.
//!
//! Source: server coordination, sections 3.1 and 4.1. The key of a request is (issue time / window, application,
//! arrival), smallest first, so data servers that never talk to each other serve applications in the same order. The
//! paper packs the key into one integer with a factor of 32768; ours is a tuple, so larger ids work. The default
//! window suits a seeking device; 250 ms suits flash (the paper's figures 5 to 8).
//!
//! Issue times come from many clocks. One in the future of the gate's clock, or further in the past than
//! `skew_max`, is not believed: the request counts by its arrival, and the gate counts such requests.
//!
//! A request waits for what earlier windows hold, and for lower application ids of its own. O(log g), g the number of
//! (window, application) pairs queued.

use super::groups::Groups;
use super::{Pick, Scheduler, SchedulerConfig};
use crate::queue::{Pending, SlotId};
use crate::time::{Span, Time};

pub(super) struct AppWindow {
    window: Span,
    skew_max: Span,
    groups: Groups,
}

impl AppWindow {
    pub(super) fn new(config: &SchedulerConfig) -> AppWindow {
        AppWindow {
            window: config.span("window"),
            skew_max: config.span("skew_max"),
            groups: Groups::default(),
        }
    }
}

impl Scheduler for AppWindow {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        let request = pending.slot(slot);
        let (arrival, app, mut issued) = (request.arrival, request.app.0, request.issued);
        if issued == Time::MAX {
            issued = arrival;
        } else if issued > arrival || arrival.since(issued) > self.skew_max {
            issued = arrival;
            pending.stats.skewed += 1;
        }
        self.groups.push((issued.window(self.window), app), slot, pending);
    }

    fn pick(&mut self, _now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        self.groups.pick(pending)
    }

    fn allocated_bytes(&self) -> usize {
        self.groups.allocated_bytes()
    }
}
