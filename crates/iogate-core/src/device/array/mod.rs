//! RAID-5 and RAID-6: rows of chunks with parity over several disks, behind a controller.
//!
//! **Charged:** a read goes to the disks that have its chunks. A write of a whole row writes data and parity; of a part of a row, it
//! first reads what the new parity is computed from, the fewer of two: the old data and parity (2 + 2 accesses for a small
//! write on RAID-5, 3 + 3 on RAID-6), or the rest of the row. Each disk is a device of its own, with a queue and, if it is a disk, a phase
//! of its own. A controller with a battery has a write-back cache: a write is over when that has it, whole rows go to the disks at once,
//! parts of rows when half of the cache is full, in sweeps over the addresses; what finds no room waits. Writes longer than half of
//! the cache go past it. A flush is nothing with a battery.
//!
//! **Left out:** failed disks and rebuilding, the controller's own time but for a rate and a cost of each command, locks of rows (two
//! partial writes of one row at a time each read for themselves), reads that find only a part in the cache, reading ahead by the
//! controller, a cache of data that was read. Rows that are read whole are read in one pass of each disk, parity included, as the
//! platter goes over it anyway.
//!
//! **Sources:** Patterson, Gibson and Katz, A case for redundant arrays of inexpensive disks, SIGMOD 1988 (2 + 2); Chen et al., RAID:
//! high-performance, reliable secondary storage, ACM Computing Surveys 26(2), 1994 (reconstruct writes, left-symmetric parity); Linux
//! md for the choice between the two ways. Values are rows of [`super::PARAMETERS`].

mod plan;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::plan::{Geometry, Part};
use super::write_cache::WriteCache;
use super::{Device, Queueing, Station, Transfer, for_each_piece, serve_alone, transfer_ns};
use crate::request::Op;
use crate::time::{Span, Time};

/// Ranges that a controller's cache holds at most.
const RANGES_MAX: usize = 4_096;

/// Pieces that leave the cache at once, for each disk: as many as keep it busy.
const EMPTYING: usize = 4;

/// What an array is made of, besides its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayConfig {
    /// Parity chunks of a row: 1 (RAID-5) or 2 (RAID-6).
    pub parity: u32,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Bytes of the write-back cache; 0 for none.
    pub cache_bytes: u64,
    /// Rate between host and controller.
    pub bus_bytes_per_s: u64,
    /// What each command costs the controller.
    pub command: Span,
}

/// RAID-5 or RAID-6 over any devices. Each counts with the capacity of the smallest.
pub struct Array {
    config: ArrayConfig,
    geometry: Geometry,
    members: Vec<Station>,
    capacity: u64,
    slots: u32,
    /// What the disks are at, by number, and numbers that are free.
    tasks: Vec<Task>,
    free: Vec<u32>,
    cache: WriteCache,
    /// How far the sweep over the cache has come, and what of it is on its way to the disks.
    swept: u64,
    /// Where the last write went: only there can a row have become whole.
    written: u64,
    leaving: u64,
    /// Pieces that are on their way there.
    emptying: usize,
    /// Writes that wait for room in the cache.
    stalled: VecDeque<(u64, u64, u64)>,
    /// Answered from the cache: when, in that order.
    answers: VecDeque<(Time, u64)>,
    bus_free: Time,
    clock: Time,
}

/// Something that the disks do: for a command, or for the cache.
#[derive(Debug, Default)]
struct Task {
    tag: Option<u64>,
    /// Accesses that have not ended.
    open: u32,
    /// What follows when they have.
    then: Vec<Part>,
    /// Bytes that leave the cache.
    leaving: u64,
}

impl Array {
    /// An idle array; none if there are not at least two data chunks in a row, or the chunk has no bytes.
    pub fn new(members: Vec<Box<dyn Device>>, config: ArrayConfig) -> Option<Array> {
        let parity = config.parity.clamp(1, 2) as usize;
        let smallest = members.iter().map(Device::capacity).min()?;
        let chunk = config.chunk.min(smallest);
        let rows = smallest.checked_div(chunk)?;
        let data = members.len().checked_sub(parity).filter(|data| *data >= 2)?;
        let row = chunk.checked_mul(data as u64)?;
        let capacity = row * rows.min(u64::MAX / row);
        let slots = members.iter().map(|member| member.slots().clamp(16, 1 << 10)).sum();
        Some(Array {
            geometry: Geometry { members: members.len(), parity, chunk },
            config: ArrayConfig { bus_bytes_per_s: config.bus_bytes_per_s.max(1_000_000), ..config },
            members: members.into_iter().map(Station::new).collect(),
            capacity,
            slots,
            tasks: Vec::new(),
            free: Vec::new(),
            cache: WriteCache::with_ranges(config.cache_bytes, RANGES_MAX),
            swept: 0,
            written: 0,
            leaving: 0,
            emptying: 0,
            stalled: VecDeque::new(),
            answers: VecDeque::new(),
            bus_free: Time::ZERO,
            clock: Time::ZERO,
        })
    }

    /// Lets the disks begin with `first`, and go on with `then`.
    fn begin(&mut self, now: Time, tag: Option<u64>, first: Vec<Part>, then: Vec<Part>, leaving: u64) {
        let (first, then) = if first.is_empty() { (then, Vec::new()) } else { (first, then) };
        let task = Task { tag, open: first.len() as u32, then, leaving };
        let number = match self.free.pop() {
            Some(number) => {
                self.tasks[number as usize] = task;
                number
            }
            None => {
                self.tasks.push(task);
                self.tasks.len() as u32 - 1
            }
        };
        self.hand_over(now, number, first);
    }

    fn hand_over(&mut self, now: Time, number: u32, parts: Vec<Part>) {
        for Part { member, transfer } in parts {
            self.members[member].submit(now, number.into(), false, [transfer]);
        }
    }

    /// An access of a task has ended; the command that is over with it.
    fn go_on(&mut self, now: Time, number: u32) -> Option<u64> {
        let task = &mut self.tasks[number as usize];
        task.open -= 1;
        if task.open > 0 {
            return None;
        }
        let then = core::mem::take(&mut task.then);
        task.open = then.len() as u32;
        if !then.is_empty() {
            self.hand_over(now, number, then);
            return None;
        }
        let Task { tag, leaving, .. } = core::mem::take(task);
        self.free.push(number);
        if leaving > 0 {
            self.leaving -= leaving;
            self.emptying -= 1;
            self.take_in(now);
            self.empty(now);
        }
        tag
    }

    /// When the bus has moved `bytes`, after all before it.
    fn move_over_bus(&mut self, now: Time, bytes: u64) -> Time {
        let moved = Span::from_nanos(transfer_ns(bytes, self.config.bus_bytes_per_s));
        self.bus_free = self.bus_free.max(now) + self.config.command + moved;
        self.bus_free
    }

    /// Takes writes into the cache that it has room for.
    fn take_in(&mut self, now: Time) {
        while let Some(&(tag, address, end)) = self.stalled.front() {
            if !self.cache.has_room((end - address).saturating_add(self.leaving)) {
                return;
            }
            self.stalled.pop_front();
            self.cache.insert(address, end);
            self.written = address;
            let over = self.move_over_bus(now, end - address);
            self.answers.push_back((over, tag));
        }
    }

    /// Sends what has to leave the cache to the disks: whole rows, and parts of rows while more than half of it is full or
    /// somebody waits.
    fn empty(&mut self, now: Time) {
        while self.emptying < EMPTYING * self.members.len() {
            let crowded = !self.stalled.is_empty() || self.cache.is_half_full();
            let Some((address, end)) = self.next_piece(crowded) else { return };
            self.cache.remove(address, end);
            self.swept = end;
            self.leaving += end - address;
            self.emptying += 1;
            let (reads, writes) = self.geometry.write(address, end);
            self.begin(now, None, reads, writes, end - address);
        }
    }

    /// What leaves the cache next: from the end of the sweep on, a whole row, or, if it is crowded, any part of one.
    fn next_piece(&self, crowded: bool) -> Option<(u64, u64)> {
        let row = self.geometry.row_bytes();
        let piece = |&(address, end): &(u64, u64)| {
            let (first, last) = (address.next_multiple_of(row), end - end % row);
            match (first < last, crowded) {
                (true, _) => Some((first, first + row)),
                (false, true) => Some((address, (address - address % row + row).min(end))),
                (false, false) => None,
            }
        };
        let ranges = self.cache.ranges();
        if !crowded {
            return self.cache.range_at(self.written).and_then(|index| piece(&ranges[index]));
        }
        let after = ranges.partition_point(|range| range.1 <= self.swept);
        ranges[after..].iter().find_map(piece).or_else(|| ranges[..after].iter().find_map(piece))
    }

    /// The member whose next event is first, and when that is.
    fn next_member(&mut self) -> Option<(Time, usize)> {
        let events = self.members.iter_mut().enumerate();
        events.filter_map(|(index, member)| Some((member.next_event()?, index))).min()
    }

    /// What the disks have done by `now`; the first command that is over with it.
    fn advance(&mut self, now: Time) -> Option<(u64, Time)> {
        loop {
            let answered = self.answers.front().map(|(at, _)| *at);
            let member = self.next_member();
            let is_first = |at: Time| member.is_none_or(|(event, _)| at <= event);
            if let Some(at) = answered.filter(|at| is_first(*at)) {
                if at > now {
                    return None;
                }
                self.clock = self.clock.max(at);
                return self.answers.pop_front().map(|(at, tag)| (tag, at));
            }
            let (at, index) = member.filter(|(at, _)| *at <= now)?;
            self.clock = self.clock.max(at);
            if let Some(ended) = self.members[index].ended(at)
                && let Some(tag) = self.go_on(ended.end, ended.id as u32)
            {
                return Some((tag, ended.end));
            }
        }
    }
}

impl Queueing for Array {
    fn submit(&mut self, now: Time, tag: u64, transfer: Transfer) {
        let now = now.max(self.clock);
        self.clock = now;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let (mut pieces, mut count) = ([(0, 0); 2], 0);
        for_each_piece(self.capacity, transfer, |address, end| {
            pieces[count] = (address, end);
            count += 1;
        });
        let (address, end) = pieces[0];
        let is_cached = count == 1 && self.config.cache_bytes > 0;
        match transfer.op {
            Op::Read if is_cached && self.cache.contains(address, end) => {
                let over = self.move_over_bus(now, end - address);
                self.answers.push_back((over, tag));
                return;
            }
            Op::Write if is_cached && end - address <= self.config.cache_bytes / 2 => {
                self.stalled.push_back((tag, address, end));
                self.take_in(now);
                self.empty(now);
                return;
            }
            _ => {}
        }
        for &(address, end) in &pieces[..count] {
            match transfer.op {
                Op::Read => reads.extend(self.geometry.read(address, end)),
                Op::Write => {
                    self.cache.remove(address, end);
                    let (first, then) = self.geometry.write(address, end);
                    reads.extend(first);
                    writes.extend(then);
                }
            }
        }
        let from = self.move_over_bus(now, transfer.bytes.min(self.capacity));
        let from = if transfer.op == Op::Write { from } else { now + self.config.command };
        self.begin(from, Some(tag), reads, writes, 0);
    }

    fn next_event(&mut self) -> Option<Time> {
        let answer = self.answers.front().map(|(at, _)| *at);
        let member = self.next_member().map(|(at, _)| at);
        answer.into_iter().chain(member).min()
    }

    fn ended(&mut self, now: Time) -> Option<(u64, Time)> {
        self.advance(now)
    }
}

impl Device for Array {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        serve_alone(self, now, transfer)
    }

    /// With a battery, nothing; else what the disks need.
    fn flush(&mut self, now: Time) -> Span {
        if self.config.cache_bytes > 0 {
            return self.config.command;
        }
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

    fn queueing(&mut self) -> Option<&mut dyn Queueing> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
