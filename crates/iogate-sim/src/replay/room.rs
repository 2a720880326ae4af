//! Whether what a trace does fits the devices, and whether its files lie there as real ones would: what `scenario/room.rs` asks of a
//! scenario, of what is only known row by row.

use std::collections::HashMap;

use iogate_core::device::{Device, Placement};
use iogate_core::{AppId, ClientId, FileId, Layout, units};

use crate::scenario::room::{self, TOUCHES};
use crate::striping::Striping;
use crate::trace::Row;

/// Of rows at random about half begin before where the one before them ended. Of those in order none do, by however many
/// processes they are; one in so many may, as where a file is read twice.
const BACK_MIN: u64 = 4;

/// What is known of the devices, and of what was asked of them.
#[derive(Default)]
pub(super) struct Room {
    /// Of the smallest device.
    capacity: Option<u64>,
    striping: Option<Striping>,
    /// Whether it matters where files lie.
    has_arm: bool,
    files: HashMap<FileId, Use>,
    /// Where the last row of a client's application to a file ended.
    ends: HashMap<(FileId, AppId, ClientId), u64>,
}

/// What was asked of a file.
#[derive(Clone, Copy, Default)]
struct Use {
    end: u64,
    requests: u64,
    back: u64,
    /// Its rows name their targets: each has a file of its own.
    has_targets: bool,
}

/// A row that no device has room for.
pub(super) struct TooLong {
    pub(super) end: u64,
    pub(super) part: u64,
    pub(super) capacity: String,
}

impl Room {
    /// Of devices behind a layout.
    pub(super) fn of(devices: &[Box<dyn Device>], layout: Layout) -> Room {
        Room {
            capacity: devices.iter().map(|device| device.capacity()).min(),
            striping: Some(Striping { stripe: layout.stripe_bytes, servers: layout.targets.into() }),
            ..Room::default()
        }
    }

    /// A device of the same kind, of which it is found out whether an arm moves.
    pub(super) fn try_out(&mut self, device: &mut dyn Device) {
        self.has_arm = room::has_arm(device);
    }

    /// Refuses a row that reaches further than its device.
    pub(super) fn check(&self, row: &Row) -> Result<(), TooLong> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        let end = row.offset.saturating_add(row.bytes.into());
        let part = self.part(end, row.target.is_some());
        if part <= capacity { Ok(()) } else { Err(TooLong { end, part, capacity: room::size(capacity) }) }
    }

    /// How much of a file a target gets, at most.
    fn part(&self, end: u64, has_targets: bool) -> u64 {
        self.striping.filter(|_| !has_targets).map_or(end, |striping| striping.part_end(0, end))
    }

    /// Notes a row that was taken.
    pub(super) fn note(&mut self, row: &Row) {
        if !self.has_arm {
            return;
        }
        let end = row.offset.saturating_add(row.bytes.into());
        let before = self.ends.insert((row.file, row.app, row.client), end);
        let file = self.files.entry(row.file).or_default();
        file.end = file.end.max(end);
        file.requests += 1;
        file.back += u64::from(before.is_some_and(|before| row.offset < before));
        file.has_targets |= row.target.is_some();
    }

    /// What to say of files whose random accesses are faster here than on a disk with the same files, of those with most rows first.
    pub(super) fn sparse(&self, name: impl Fn(FileId) -> String) -> Vec<String> {
        let mut files: Vec<(&FileId, &Use)> = self.files.iter().collect();
        files.sort_by_key(|(file, used)| (std::cmp::Reverse(used.requests), **file));
        room::told(files.into_iter().filter_map(|(file, used)| self.sparse_file(&name(*file), used)))
    }

    fn sparse_file(&self, name: &str, used: &Use) -> Option<String> {
        let part = self.part(used.end, used.has_targets);
        let extents = part.div_ceil(Placement::EXTENT_BYTES);
        let requests = used.requests.div_ceil(self.striping.map_or(1, |striping| striping.servers));
        let is_random = used.back.saturating_mul(BACK_MIN) >= used.requests;
        if extents <= 1 || !is_random || requests >= extents.saturating_mul(TOUCHES) {
            return None;
        }
        let whole = units::format_size(room::whole(part));
        let helps = format!("in a scenario that plays the trace, servers.extent = \"{whole}\" puts them");
        Some(room::sparse(name, "a target", part, extents, requests, &helps))
    }
}
