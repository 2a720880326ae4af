//! Whether files fit the servers' devices, and whether they lie there as real ones would.
//!
//! Files get their extents when these are first touched ([`iogate_core::device::Placement`]). What is accessed at random, and
//! seldom, so lies closer together than in a file that was there before, and a disk's arm moves less than it would: that is said,
//! and not mended, as it would change what all earlier results were measured with.

use iogate_core::device::Transfer;
use iogate_core::{Op, Time, units};

use super::table::Table;
use super::{App, Pattern, Scenario, Sharing};
use crate::striping::Striping;
use crate::workload;
use crate::world::server_device;

/// Of so many requests to each extent of a file those that come before all are touched are few: their seeks are all but right.
const TOUCHES: u64 = 16;
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

impl Scenario {
    /// What to say of applications whose random accesses are faster here than on a disk with the same files: a line each.
    pub fn sparse(&self) -> Vec<String> {
        let servers = &self.cluster.servers;
        let Ok(mut device) = server_device(servers, 0, self.seed) else { return Vec::new() };
        // Where no arm moves it does not matter where a file lies.
        for address in [0, device.capacity() / 2] {
            device.serve(Time::ZERO, Transfer { op: Op::Read, address, bytes: 4096 });
        }
        if device.repositions() == 0 {
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
        let whole = part.checked_next_power_of_two().unwrap_or(EXTENT_MAX).min(EXTENT_MAX);
        Some(format!(
            "{}: random accesses are faster here than on a disk: a server has {} of a file in {extents} extents and gets {requests} requests \
             for them, and extents lie together in the order of first use; servers.extent = \"{}\" puts them where they are in the file",
            app.name,
            units::format_size(part),
            units::format_size(whole),
        ))
    }
}

/// A device's size: of one that is no round number, whole GiB.
fn size(bytes: u64) -> String {
    if bytes < 10 << 30 { units::format_size(bytes) } else { units::format_size(bytes >> 30 << 30) }
}

fn striping(scenario: &Scenario) -> Striping {
    let servers = &scenario.cluster.servers;
    Striping { stripe: servers.stripe, servers: servers.nodes.into() }
}
