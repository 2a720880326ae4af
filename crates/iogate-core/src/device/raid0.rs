//! RAID-0: chunks dealt out over other devices in turn.
//!
//! **Modelled:** a transfer is split over the members, which work at the same time; it is done when the
//! slowest is. Neighbouring chunks of a member are neighbours on it, so each member gets one piece. Each member has a queue
//! of its own in the controller, so that transfers for different members do not wait for each other.
//!
//! **Left out:** the controller's own time and cache, and the bus that the members share. A controller's
//! write-back cache can be given to the members, as the `suno` preset does.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Device, Station, Transfer, for_each_piece};
use crate::time::{Span, Time};

/// Transfers that the controller takes for each member, at least: its queue, which the members of one slot need to be busy together.
const QUEUE: u32 = 16;

/// RAID-0 over any devices. Each counts with the capacity of the smallest.
pub struct Raid0 {
    members: Vec<Station>,
    chunk: u64,
    capacity: u64,
    slots: u32,
}

impl Raid0 {
    /// Stripes over `members` in chunks of `chunk` bytes (smaller if the members are smaller than a chunk).
    /// None if there are no members, or the chunk has no bytes.
    pub fn new(members: Vec<Box<dyn Device>>, chunk: u64) -> Option<Raid0> {
        let smallest = members.iter().map(Device::capacity).min()?;
        let chunk = chunk.min(smallest);
        let rows = smallest.checked_div(chunk)?;
        // Whole rows of chunks, as many as fit 64 bits.
        let row = chunk.checked_mul(members.len() as u64)?;
        let capacity = row * rows.min(u64::MAX / row);
        let slots = members.iter().fold(0, |sum: u32, member| sum.saturating_add(member.slots().max(QUEUE)));
        Some(Raid0 { members: members.into_iter().map(Station::new).collect(), chunk, capacity, slots })
    }

    /// How many of the volume's first `end` bytes are on member `index`.
    fn on_member(&self, index: u64, end: u64) -> u64 {
        let row = self.chunk * self.members.len() as u64;
        let (rows, rest) = (end / row, end % row);
        rows * self.chunk + rest.saturating_sub(index * self.chunk).min(self.chunk)
    }
}

impl Device for Raid0 {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let mut slowest = Span::ZERO;
        for_each_piece(self.capacity, transfer, |address, end| {
            for index in 0..self.members.len() {
                let start = self.on_member(index as u64, address);
                let bytes = self.on_member(index as u64, end) - start;
                if bytes > 0 {
                    let mut visit = self.members[index].begin(now);
                    visit.serve(Transfer { op: transfer.op, address: start, bytes });
                    slowest = slowest.max(visit.end().since(now));
                }
            }
        });
        slowest
    }

    fn flush(&mut self, now: Time) -> Span {
        self.members.iter_mut().map(|member| member.flush(now)).max().unwrap_or_default()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn repositions(&self) -> u64 {
        self.members.iter().map(|member| member.device().repositions()).sum()
    }

    fn slots(&self) -> u32 {
        self.slots
    }
}
