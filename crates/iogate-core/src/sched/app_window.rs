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
//! `order = permuted` is a control for experiments: the ids are put through a permutation that is another one on each node, so that
//! each server still serves one application at a time, but not the same one as the others.
//!
//! A request waits for what earlier windows hold, and for lower application ids of its own. O(log g), g the number of
//! (window, application) pairs queued.

use super::groups::Groups;
use super::{Pick, Scheduler, SchedulerConfig, param};
use crate::queue::{Pending, SlotId};
use crate::time::{Span, Time};

pub(super) struct AppWindow {
    window: Span,
    skew_max: Span,
    /// Of which node the order is, if each has its own.
    permuted: Option<u32>,
    groups: Groups,
}

impl AppWindow {
    pub(super) fn new(config: &SchedulerConfig) -> AppWindow {
        AppWindow {
            window: config.span(&param::WINDOW),
            skew_max: config.span(&param::SKEW_MAX),
            permuted: (config.value(&param::ORDER) == param::AppOrder::Permuted as u64)
                .then(|| config.value(&param::NODE) as u32),
            groups: Groups::default(),
        }
    }
}

impl Scheduler for AppWindow {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        let request = pending.slot(slot);
        let (arrival, app, mut issued) = (request.arrival, request.app.0, pending.issued(slot));
        if issued == Time::MAX {
            issued = arrival;
        } else if issued > arrival || arrival.since(issued) > self.skew_max {
            issued = arrival;
            pending.stats.skewed += 1;
        }
        let rank = self.permuted.map_or(app, |node| permute(app, node));
        self.groups.push((issued.window(self.window), rank), slot, pending);
    }

    fn pick(&mut self, _now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        self.groups.pick(pending)
    }

    fn allocated_bytes(&self) -> usize {
        self.groups.allocated_bytes()
    }
}

/// One of 2^32 permutations of the ids: what MurmurHash3 ends with, which no two ids share a result of.
fn permute(app: u32, node: u32) -> u32 {
    let mut mixed = app ^ node.wrapping_mul(0x9e37_79b9);
    mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::permute;

    #[test]
    fn each_node_has_an_order_of_its_own_in_which_nobody_is_lost() {
        let order = |node| {
            let mut apps: Vec<u32> = (1..=10).collect();
            apps.sort_by_key(|app| permute(*app, node));
            apps
        };
        let mut orders: Vec<Vec<u32>> = (0..64).map(order).collect();
        for apps in &mut orders.clone() {
            apps.sort_unstable();
            assert_eq!(*apps, (1..=10).collect::<Vec<_>>());
        }
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 64);
    }
}
