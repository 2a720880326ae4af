//! Whether files fit the servers' devices, and whether they lie there as real ones would.
//!
//! Files get their extents when these are first touched ([`iogate_core::device::Placement`]). What is accessed at random, and
//! seldom, so lies closer together than in a file that was there before, and a disk's arm moves less than it would: that is said,
//! and not mended, as it would change what all earlier results were measured with.

use std::collections::BTreeSet;

use iogate_core::device::{Device, Transfer};
use iogate_core::{Op, Time, units};

use super::table::Table;
use super::{App, Pattern, Plan, Scenario, Sharing};
use crate::striping::Striping;
use crate::workload;
use crate::world::server_device;

/// Of so many requests to each extent of a file those that come before all are touched are few: their seeks are all but right.
pub(crate) const TOUCHES: u64 = 16;
/// Most points of a sweep that are looked at, and most lines that are said.
const POINTS_MAX: usize = 16;
const LINES_MAX: usize = 3;
/// The longest that `servers.extent` takes.
const EXTENT_MAX: u64 = 1 << 40;

/// Refuses files that are larger than what is to hold them.
pub(super) fn check(root: &Table<'_>, scenario: &Scenario) {
    let servers = &scenario.cluster.servers;
    // A profile is of a device whose size is not in it.
    let Ok(device) = server_device(servers, 0, scenario.seed) else { return };
    let capacity = device.capacity();
    for app in &scenario.apps {
        let Some(end) = workload::file_end(app) else { continue };
        let part = striping(scenario).part_end(0, end);
        if part > capacity {
            let text = format!(
                "{} has a file of {}, of which a server gets {}: its device ('{}') has {}; take a shorter file, more servers or a larger device",
                app.name,
                units::format_size(end),
                units::format_size(part),
                servers.device,
                size(capacity),
            );
            root.unfit("app", text);
            return;
        }
    }
}

impl Plan {
    /// What whoever runs it is to be told, a line each: [`Scenario::sparse`] of its points, each line once, and not of all points of a
    /// long sweep.
    pub fn warnings(&self) -> Vec<String> {
        let points = self.points.iter().take(POINTS_MAX);
        let lines: BTreeSet<String> = points.flat_map(|point| point.scenario.sparse()).collect();
        told(lines)
    }
}

/// As many lines as somebody reads, with where it is explained.
pub(crate) fn told(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    lines.into_iter().take(LINES_MAX).map(|line| format!("{line} (docs/devices.md)")).collect()
}

impl Scenario {
    /// What to say of applications whose random accesses are faster here than on a disk with the same files: a line each.
    pub fn sparse(&self) -> Vec<String> {
        let servers = &self.cluster.servers;
        if !server_device(servers, 0, self.seed).is_ok_and(|mut device| has_arm(&mut *device)) {
            return Vec::new();
        }
        self.apps.iter().filter_map(|app| self.sparse_app(app)).collect()
    }

    fn sparse_app(&self, app: &App) -> Option<String> {
        let Pattern::Random { sharing, bytes, request, file_bytes } = app.workload.pattern else {
            return None;
        };
        let (servers, striping) = (&self.cluster.servers, striping(self));
        let part = striping.part_end(0, file_bytes);
        let extents = part.div_ceil(servers.extent);
        let processes = if sharing == Sharing::Shared { u64::from(app.processes) } else { 1 };
        let calls = bytes.div_ceil(u64::from(request).max(1)).saturating_mul(app.workload.iterations.into());
        let stripes = u64::from(request).div_ceil(striping.stripe).min(striping.servers);
        let requests = calls.saturating_mul(processes).saturating_mul(stripes) / striping.servers;
        if extents <= 1 || requests >= extents.saturating_mul(TOUCHES) {
            return None;
        }
        let helps = format!("servers.extent = \"{}\" puts them", units::format_size(whole(part)));
        Some(sparse(&app.name, "a server", part, extents, requests, &helps))
    }
}

/// Whether it matters where on a device a file lies, as an arm moves.
pub(crate) fn has_arm(device: &mut dyn Device) -> bool {
    for address in [0, device.capacity() / 2] {
        device.serve(Time::ZERO, Transfer { op: Op::Read, address, bytes: 4096 });
    }
    device.repositions() > 0
}

/// An extent that has all of a file.
pub(crate) fn whole(part: u64) -> u64 {
    part.checked_next_power_of_two().unwrap_or(EXTENT_MAX).min(EXTENT_MAX)
}

/// That random accesses are too fast: of whom, to which part of a file, and what `helps`.
pub(crate) fn sparse(who: &str, holder: &str, part: u64, extents: u64, requests: u64, helps: &str) -> String {
    format!(
        "{who}: random accesses are faster here than on a disk: {holder} has {} of a file in {extents} extents and gets {requests} requests \
         for them, and extents lie together in the order of first use; {helps} where they are in the file",
        units::format_size(part),
    )
}

/// A device's size: of one that is no round number, whole GiB.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 10 << 30 { units::format_size(bytes) } else { units::format_size(bytes >> 30 << 30) }
}

fn striping(scenario: &Scenario) -> Striping {
    let servers = &scenario.cluster.servers;
    Striping { stripe: servers.stripe, servers: servers.nodes.into() }
}
