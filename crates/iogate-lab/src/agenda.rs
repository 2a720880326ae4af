//! What all simulated worlds share: units of time, events in their order, and what happened before a finding.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Nanoseconds of a microsecond.
pub const US: u64 = 1_000;
/// Of a millisecond.
pub const MS: u64 = 1_000 * US;
/// Of a second.
pub const SECOND: u64 = 1_000 * MS;

/// Events to come: by their time, and at the same time as they were planned.
pub struct Agenda<E> {
    events: BinaryHeap<Reverse<Due<E>>>,
    planned: u64,
}

struct Due<E> {
    at: (u64, u64),
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Due<E>) -> bool {
        self.at == other.at
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Due<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Due<E>) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { events: BinaryHeap::new(), planned: 0 }
    }
}

impl<E> Agenda<E> {
    /// Plans an event for a time in nanoseconds.
    pub fn plan(&mut self, time: u64, event: E) {
        self.planned += 1;
        self.events.push(Reverse(Due { at: (time, self.planned), event }));
    }

    /// The next event, and its time.
    pub fn take_next(&mut self) -> Option<(u64, E)> {
        self.events.pop().map(|Reverse(Due { at: (time, _), event })| (time, event))
    }
}

/// When something arrives that would arrive at `at`: behind what arrives at `last`, as nothing overtakes on a connection.
pub fn behind(last: &mut u64, at: u64) -> u64 {
    *last = (*last).max(at) + 1;
    *last
}

/// The last things that happened, a line each.
pub struct Trail {
    lines: VecDeque<String>,
    most: usize,
}

impl Trail {
    /// Of at most so many lines.
    pub fn new(most: usize) -> Trail {
        Trail { lines: VecDeque::new(), most }
    }

    /// Adds what happens at a time.
    pub fn note(&mut self, time: u64, what: &str) {
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(line(time, what));
    }

    /// All lines, which are forgotten here.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines).into()
    }
}

/// A line of a trail, or of a finding.
pub fn line(time: u64, what: &str) -> String {
    format!("{:>12.6} s  {what}", time as f64 / SECOND as f64)
}
