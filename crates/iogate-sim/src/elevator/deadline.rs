//! `deadline`: offset order in batches, reads before writes, and nobody waits much longer than a deadline.
//!
//! What it charges: nothing; it only orders. Reads and writes are sorted by place, each with a queue by age. A batch is up to 16 requests
//! of one direction in ascending order. A new one is of reads, unless there are none or writes have been passed over twice; it goes on
//! from where the batch before ended, but begins with the oldest request where that has waited for longer than its deadline (500 ms for
//! reads, 5 s for writes), where nothing lies further on, and where the direction changes.
//!
//! So a write is behind at most three batches of reads once it is the oldest, and a request that is past its deadline is behind those
//! that are older and one batch for each.
//!
//! Left out: `front_merges`, moving what was merged.
//!
//! Sources: Linux 2.6.18 to 2.6.28: `block/deadline-iosched.c`; Documentation/block/deadline-iosched.txt.

use std::collections::BTreeMap;

use iogate_core::{Op, Span, Time};

use super::parameters::value;
use super::{Choice, Elevator, Entry};

/// Where a request is in the order of places: those at one place by age.
type Place = (u64, u64);

/// Requests of one direction.
#[derive(Debug, Default)]
struct Direction {
    sorted: BTreeMap<Place, (u32, Time)>,
    /// Places by age.
    by_age: BTreeMap<u64, Place>,
    expire: Span,
    /// What follows the last one that began, if the batch was of this direction.
    next: Option<Place>,
}

/// The elevator.
#[derive(Debug)]
pub struct Deadline {
    reads: Direction,
    writes: Direction,
    added: u64,
    /// Of the present batch.
    is_read: bool,
    batched: u64,
    /// Batches of reads while there were writes.
    starved: u64,
    batch: u64,
    starved_most: u64,
}

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline::new()
    }
}

impl Deadline {
    /// With nothing in it.
    pub fn new() -> Deadline {
        let direction = |name| Direction { expire: Span::from_millis(value(name)), ..Direction::default() };
        Deadline {
            reads: direction("deadline.read_ms"),
            writes: direction("deadline.write_ms"),
            added: 0,
            is_read: true,
            batched: 0,
            starved: 0,
            batch: value("deadline.batch"),
            starved_most: value("deadline.starved"),
        }
    }

    fn direction(&mut self, is_read: bool) -> &mut Direction {
        if is_read { &mut self.reads } else { &mut self.writes }
    }

    /// Which direction the next batch has.
    fn choose(&mut self) -> bool {
        let has_writes = !self.writes.sorted.is_empty();
        if self.reads.sorted.is_empty() || (has_writes && self.starved >= self.starved_most) {
            self.starved = 0;
            return false;
        }
        self.starved += u64::from(has_writes);
        true
    }
}

impl Direction {
    /// With which request a new batch begins.
    fn first(&self, now: Time) -> Option<Place> {
        let oldest = self.by_age.values().next().copied()?;
        let has_expired = self.sorted.get(&oldest).is_some_and(|(_, added)| now.since(*added) >= self.expire);
        if has_expired { Some(oldest) } else { self.next.or(Some(oldest)) }
    }

    /// Takes it out.
    fn take(&mut self, place: Place) -> Option<u32> {
        let (id, _) = self.sorted.remove(&place)?;
        self.by_age.remove(&place.1);
        self.next = self.sorted.range(place..).next().map(|(place, _)| *place);
        Some(id)
    }
}

impl Elevator for Deadline {
    fn add(&mut self, now: Time, entry: Entry) {
        self.added += 1;
        let place = (entry.address, self.added);
        let direction = self.direction(entry.op == Op::Read);
        direction.sorted.insert(place, (entry.id, now));
        direction.by_age.insert(place.1, place);
    }

    fn next(&mut self, now: Time) -> Choice {
        if self.reads.sorted.is_empty() && self.writes.sorted.is_empty() {
            return Choice::Idle;
        }
        let mut place = self.direction(self.is_read).next.filter(|_| self.batched < self.batch);
        if place.is_none() {
            self.is_read = self.choose();
            self.batched = 0;
            place = self.direction(self.is_read).first(now);
        }
        self.batched += 1;
        self.direction(!self.is_read).next = None;
        let id = place.and_then(|place| self.direction(self.is_read).take(place));
        id.map_or(Choice::Idle, Choice::Begin)
    }

    fn ended(&mut self, _now: Time, _entry: &Entry) {}
}
