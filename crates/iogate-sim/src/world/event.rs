//! The event queue: what happens next, in an order that depends on nothing but times and the order of insertion.

use std::cmp::Reverse;
use std::collections::VecDeque;

use iogate_core::Time;

/// Events by time; those of one time in the order in which they were added. What is to happen at [`Time::MAX`] never happens.
///
/// A calendar queue: a ring of short stretches of time, a list each, so that adding is linking. Only the events of the present
/// stretch are in order: those that were there when it came are sorted at once, those that have come since are in a small heap;
/// those beyond the ring wait in a heap as well. What is to happen at once enters none of them.
///
/// Lists need no numbers to keep the order of insertion: what is beyond the ring comes into it before anything can be added there.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    now: Time,
    at_once: VecDeque<E>,
    added: u64,
    /// Number of the present stretch.
    present: u64,
    /// What is left of those that were there when it came: the next one last.
    near: Vec<(Time, E)>,
    /// Those of it that were added later, by their time within it and the order of insertion.
    late: Heap<u64, E>,
    /// For each stretch the first of a list of slots, of which the last added is the first.
    ring: Box<[u32]>,
    slots: Vec<Slot<E>>,
    free: u32,
    /// A bit for each list of the ring that is not empty.
    filled: [u64; RING / 64],
    far: Heap<(Time, u64), E>,
}

/// Stretches of 8.2 us, and 4096 of them: what networks and devices cause lies within.
const STRETCH_NS_LOG2: u32 = 13;
const RING: usize = 4096;

/// An event in the ring. Slots are used again last in, first out: what is touched is what is cached. None lies across two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Slot<E> {
    at: Time,
    event: E,
    /// The next of its list, or of the free slots.
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Bits of the order of insertion beside a time within a stretch: more than any run adds.
const NUMBER_BITS: u32 = u64::BITS - STRETCH_NS_LOG2;

fn stretch_of(at: Time) -> u64 {
    at.as_nanos() >> STRETCH_NS_LOG2
}

impl<E: Copy> EventQueue<E> {
    pub(super) fn new() -> EventQueue<E> {
        EventQueue {
            now: Time::ZERO,
            at_once: VecDeque::new(),
            added: 0,
            present: 0,
            near: Vec::new(),
            late: Heap(Vec::new()),
            ring: vec![NONE; RING].into(),
            slots: Vec::new(),
            free: NONE,
            filled: [0; RING / 64],
            far: Heap(Vec::new()),
        }
    }

    /// Makes room for so many more events.
    pub(super) fn reserve(&mut self, more: usize) {
        self.slots.reserve(more);
    }

    /// The present time: that which [`EventQueue::go_on_to`] was told last.
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
        self.place(at, event);
    }

    /// The next event of the present time; `None` if there is none left.
    pub(super) fn pop_now(&mut self) -> Option<E> {
        // What was there when its stretch came was added before what came later, and that before this time came.
        if let Some(&(at, event)) = self.near.last()
            && at <= self.now
        {
            self.near.pop();
            return Some(event);
        }
        match self.next_late() {
            Some(at) if at <= self.now => self.late.pop().map(|(_, event)| event),
            _ => self.at_once.pop_front(),
        }
    }

    /// When the next event happens that does not happen at once.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        if self.near.is_empty() && self.late.first().is_none() {
            self.turn();
        }
        match (self.near.last(), self.next_late()) {
            (Some((near, _)), Some(late)) => Some(late.min(*near)),
            (Some((near, _)), None) => Some(*near),
            (None, late) => late,
        }
    }

    /// When the first of those happens that were added to the present stretch.
    fn next_late(&self) -> Option<Time> {
        let (key, _) = self.late.first()?;
        Some(Time::from_nanos((self.present << STRETCH_NS_LOG2) + (key >> NUMBER_BITS)))
    }

    /// Moves on to the [time of the next event](EventQueue::next_time), when nothing is left to do at the present time.
    pub(super) fn go_on_to(&mut self, next: Time) {
        debug_assert!(self.at_once.is_empty());
        self.now = next;
    }

    fn place(&mut self, at: Time, event: E) {
        let stretch = stretch_of(at);
        if stretch > self.present && stretch - self.present < RING as u64 {
            let index = stretch as usize % RING;
            let next = std::mem::replace(&mut self.ring[index], self.free);
            let slot = Slot { at, event, next };
            match self.slots.get_mut(self.free as usize) {
                Some(free) => self.free = std::mem::replace(free, slot).next,
                None => {
                    self.ring[index] = self.slots.len() as u32;
                    self.slots.push(slot);
                }
            }
            self.filled[index / 64] |= 1 << (index % 64);
            return;
        }
        self.added += 1;
        if stretch <= self.present {
            // What is added happens after the present time, which is in the present stretch.
            debug_assert_eq!(stretch, self.present);
            self.late.push(at.as_nanos() << NUMBER_BITS | self.added, event);
        } else {
            self.far.push((at, self.added), event);
        }
    }

    /// Goes on to the next stretch in which something happens.
    fn turn(&mut self) {
        let here = self.present as usize % RING;
        self.present = match self.next_filled(here) {
            Some(index) => self.present + ((index + RING - here) % RING) as u64,
            None => match self.far.first() {
                Some(&((at, _), _)) => stretch_of(at),
                None => return,
            },
        };
        let index = self.present as usize % RING;
        self.filled[index / 64] &= !(1 << (index % 64));
        let mut at = std::mem::replace(&mut self.ring[index], NONE);
        while let Some(slot) = self.slots.get_mut(at as usize) {
            self.near.push((slot.at, slot.event));
            let next = std::mem::replace(&mut slot.next, self.free);
            self.free = std::mem::replace(&mut at, next);
        }
        // The list has the last added first, and so it stays among those of one time. Most often there is one.
        if self.near.len() > 1 {
            self.near.sort_by_key(|(at, _)| Reverse(*at));
        }
        while let Some(&((at, _), event)) = self.far.first()
            && stretch_of(at) - self.present < RING as u64
        {
            self.far.pop();
            self.place(at, event);
        }
    }

    /// The first list of the ring after `here` that is not empty.
    fn next_filled(&self, here: usize) -> Option<usize> {
        let (word, bit) = (here / 64, here % 64);
        let later = self.filled[word] & (!0 << bit);
        if later != 0 {
            return Some(word * 64 + later.trailing_zeros() as usize);
        }
        // Once around, and the part of the first word before `here` at last.
        let words = (1..=RING / 64).map(|step| (word + step) % (RING / 64));
        words
            .map(|word| (word, self.filled[word]))
            .find(|(_, bits)| *bits != 0)
            .map(|(word, bits)| word * 64 + bits.trailing_zeros() as usize)
    }
}

/// A 4-ary heap by keys of which no two are equal: fewer levels than a binary one, and children that lie together.
#[derive(Debug)]
struct Heap<K, E>(Vec<(K, E)>);

const ARITY: usize = 4;

impl<K: Ord + Copy, E: Copy> Heap<K, E> {
    fn first(&self) -> Option<&(K, E)> {
        self.0.first()
    }

    fn push(&mut self, key: K, event: E) {
        let mut at = self.0.len();
        self.0.push((key, event));
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.0[parent].0 < key {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = (key, event);
    }

    fn pop(&mut self) -> Option<(K, E)> {
        let last = self.0.pop()?;
        let Some(&first) = self.0.first() else { return Some(last) };
        let heap = &mut self.0[..];
        let mut at = 0;
        loop {
            let child = at * ARITY + 1;
            let least = match heap.get(child..child + ARITY) {
                // Compared in pairs: which one is least nobody can foresee, and so there is nothing to mispredict.
                Some([a, b, c, d]) => {
                    let left = if b.0 < a.0 { (b.0, 1) } else { (a.0, 0) };
                    let right = if d.0 < c.0 { (d.0, 3) } else { (c.0, 2) };
                    child + if right.0 < left.0 { right.1 } else { left.1 }
                }
                _ => match (child..heap.len()).min_by_key(|other| heap[*other].0) {
                    Some(least) => least,
                    None => break,
                },
            };
            if last.0 < heap[least].0 {
                break;
            }
            heap[at] = heap[least];
            at = least;
        }
        heap[at] = last;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn advance<E: Copy>(queue: &mut EventQueue<E>) -> Option<Time> {
        let next = queue.next_time()?;
        queue.go_on_to(next);
        Some(next)
    }

    /// Events added at the start and on the way come by time and then by insertion, however far apart they are.
    #[test]
    fn events_come_by_time_and_then_by_insertion() {
        for reach in [300, 100_000, 40_000_000, 10_000_000_000_000] {
            let mut rng = Rng::new(3, reach);
            let mut queue = EventQueue::new();
            let mut expected: Vec<(u64, u32)> = Vec::new();
            let mut add = |queue: &mut EventQueue<u32>, at: u64| {
                let event = expected.len() as u32;
                expected.push((at, event));
                queue.add(Time::from_nanos(at), event);
                expected.len()
            };
            for _ in 0..2_000 {
                add(&mut queue, 1 + rng.below(reach));
            }
            let mut seen = Vec::new();
            let mut all = 2_000;
            while let Some(now) = advance(&mut queue) {
                while let Some(event) = queue.pop_now() {
                    seen.push((now.as_nanos(), event));
                    if all < 5_000 {
                        all = add(&mut queue, now.as_nanos() + 1 + rng.below(reach));
                    }
                }
            }
            expected.sort_unstable();
            assert_eq!(seen, expected, "up to {reach} ns ahead");
        }
    }

    #[test]
    fn what_is_added_for_now_comes_before_time_moves_on() {
        let mut queue = EventQueue::new();
        queue.add(Time::from_nanos(5), 'a');
        queue.add(Time::from_nanos(5), 'b');
        queue.add(Time::from_nanos(6), 'd');
        queue.add(Time::MAX, 'e');
        assert_eq!(advance(&mut queue), Some(Time::from_nanos(5)));
        assert_eq!(queue.pop_now(), Some('a'));
        queue.add(Time::from_nanos(2), 'c');
        assert_eq!([queue.pop_now(), queue.pop_now(), queue.pop_now()], [Some('b'), Some('c'), None]);
        assert_eq!(advance(&mut queue), Some(Time::from_nanos(6)));
        assert_eq!((queue.pop_now(), advance(&mut queue)), (Some('d'), None));
    }
}
