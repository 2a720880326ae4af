//! The event queue: what happens next, in an order that depends on nothing but times and the order of insertion.

use std::collections::VecDeque;

use iogate_core::Time;

/// Events by time; those of one time in the order in which they were added. What is to happen at [`Time::MAX`] never happens.
///
/// A 4-ary heap: with few levels and neighbouring children, about half the cache misses of a binary one. What is to happen at
/// once does not enter it.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    heap: Vec<Entry<E>>,
    now: Time,
    at_once: VecDeque<E>,
    added: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Time,
    /// The order of insertion.
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn before(&self, other: &Entry<E>) -> bool {
        (self.at, self.number) < (other.at, other.number)
    }
}

const ARITY: usize = 4;

impl<E: Copy> EventQueue<E> {
    pub(super) fn new() -> EventQueue<E> {
        EventQueue { heap: Vec::new(), now: Time::ZERO, at_once: VecDeque::new(), added: 0 }
    }

    /// The present time: that of the last event that [`EventQueue::pop_now`] gave.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Adds an event; one in the past happens now.
    pub(super) fn add(&mut self, at: Time, event: E) {
        if at == Time::MAX {
            return;
        }
        if at <= self.now {
            self.at_once.push_back(event);
            return;
        }
        self.added += 1;
        self.heap.push(Entry { at, number: self.added, event });
        self.sift_up(self.heap.len() - 1);
    }

    /// The next event of the present time; `None` if there is none left.
    pub(super) fn pop_now(&mut self) -> Option<E> {
        // What the heap has for this time was added before this time came.
        match self.next_time() {
            Some(at) if at <= self.now => Some(self.pop_heap()),
            _ => self.at_once.pop_front(),
        }
    }

    /// Moves on to the time of the next event, when nothing is left to do at the present time; `None` if there is none.
    pub(super) fn advance(&mut self) -> Option<Time> {
        debug_assert!(self.at_once.is_empty());
        self.now = self.next_time()?;
        Some(self.now)
    }

    /// When the next event happens that does not happen at once.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    fn pop_heap(&mut self) -> E {
        let top = self.heap.swap_remove(0);
        if self.heap.len() > 1 {
            self.sift_down();
        }
        top.event
    }

    fn sift_up(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].before(&entry) {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    fn sift_down(&mut self) {
        let entry = self.heap[0];
        let len = self.heap.len();
        let mut at = 0;
        loop {
            let first = at * ARITY + 1;
            if first >= len {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + ARITY).min(len) {
                if self.heap[child].before(&self.heap[least]) {
                    least = child;
                }
            }
            if entry.before(&self.heap[least]) {
                break;
            }
            self.heap[at] = self.heap[least];
            at = least;
        }
        self.heap[at] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn events_come_by_time_and_then_by_insertion() {
        let mut rng = Rng::new(3, 0);
        let mut queue = EventQueue::new();
        let mut expected: Vec<(u64, u32)> = (0..5_000).map(|i| (1 + rng.below(300), i)).collect();
        for &(at, event) in &expected {
            queue.add(Time::from_nanos(at), event);
        }
        expected.sort_unstable();
        let mut seen = Vec::new();
        while let Some(now) = queue.advance() {
            while let Some(event) = queue.pop_now() {
                seen.push((now.as_nanos(), event));
            }
        }
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_added_for_now_comes_before_time_moves_on() {
        let mut queue = EventQueue::new();
        queue.add(Time::from_nanos(5), 'a');
        queue.add(Time::from_nanos(5), 'b');
        queue.add(Time::from_nanos(6), 'd');
        queue.add(Time::MAX, 'e');
        assert_eq!(queue.advance(), Some(Time::from_nanos(5)));
        assert_eq!(queue.pop_now(), Some('a'));
        queue.add(Time::from_nanos(2), 'c');
        assert_eq!([queue.pop_now(), queue.pop_now(), queue.pop_now()], [Some('b'), Some('c'), None]);
        assert_eq!(queue.advance(), Some(Time::from_nanos(6)));
        assert_eq!((queue.pop_now(), queue.advance()), (Some('d'), None));
    }
}
