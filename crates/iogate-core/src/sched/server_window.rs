//! `server-window` (SW): within a window of arrival time, one target at a time.
//!
//! Source: TWINS thesis, section 4.2 and its algorithm 1. The key of a request is (arrival / window, target, arrival),
//! smallest first. The published form walks its list to insert, O(n); ours is O(log g), g the number of
//! (window, target) pairs queued.
//!
//! A request waits for what earlier windows hold, and for lower targets of its own.

use super::groups::Groups;
use super::{Pick, Scheduler, SchedulerConfig, param};
use crate::queue::{Pending, SlotId};
use crate::time::{Span, Time};

pub(super) struct ServerWindow {
    window: Span,
    groups: Groups,
}

impl ServerWindow {
    pub(super) fn new(config: &SchedulerConfig) -> ServerWindow {
        ServerWindow { window: config.span(&param::WINDOW), groups: Groups::default() }
    }
}

impl Scheduler for ServerWindow {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        let request = pending.slot(slot);
        self.groups.push((request.arrival.window(self.window), u32::from(request.target)), slot, pending);
    }

    fn pick(&mut self, _now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        self.groups.pick(pending)
    }

    fn allocated_bytes(&self) -> usize {
        self.groups.allocated_bytes()
    }
}
