//! The event queue: what happens next, in an order that depends on nothing but times and the order of insertion.

use std::cmp::Reverse;
use std::collections::VecDeque;

use iogate_core::Time;

/// Events by time; those of one time in the order in which they were added. What is to happen at [`Time::MAX`] never happens.
///
/// A calendar queue: a ring of short stretches of time, a list each, so that adding is writing behind the last. Only the events of the
/// present stretch are in order: those that were there when it came are sorted at once, those that have come since are in a small heap;
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
    /// Those of it that were added later.
    late: Heap<E>,
    /// For each stretch the place of the event that was added last.
    ring: Box<[u32]>,
    /// What is in the ring, in chunks of places that follow each other: to read a list does not mean to wait for one event after the other.
    places: Vec<(Time, E)>,
    /// For each chunk the last place of the one before it in its list.
    before: Vec<u32>,
    /// Chunks are used again last in, first out: what is touched is what is cached.
    free: Vec<u32>,
    /// A bit for each list of the ring that is not empty.
    filled: [u64; RING / 64],
    far: Heap<E>,
}

/// Stretches of 8.2 us, and 4096 of them: what networks and devices cause lies within.
const STRETCH_NS_LOG2: u32 = 13;
const RING: usize = 4096;

/// Places of a chunk.
const CHUNK: u32 = 4;
const NONE: u32 = u32::MAX;

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
            places: Vec::new(),
            before: Vec::new(),
            free: Vec::new(),
            filled: [0; RING / 64],
            far: Heap(Vec::new()),
        }
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
        match self.late.first() {
            Some(entry) if entry.at <= self.now => self.late.pop().map(|entry| entry.event),
            _ => self.at_once.pop_front(),
        }
    }

    /// When the next event happens that does not happen at once.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        if self.near.is_empty() && self.late.first().is_none() {
            self.turn();
        }
        match (self.near.last(), self.late.first()) {
            (Some((near, _)), Some(late)) => Some(late.at.min(*near)),
            (Some((near, _)), None) => Some(*near),
            (None, late) => late.map(|entry| entry.at),
        }
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
            let last = self.ring[index];
            let mut place = last.wrapping_add(1);
            if place.is_multiple_of(CHUNK) {
                place = self.new_chunk(last, (at, event));
            }
            self.places[place as usize] = (at, event);
            self.ring[index] = place;
            self.filled[index / 64] |= 1 << (index % 64);
            return;
        }
        self.added += 1;
        let entry = Entry { at, number: self.added, event };
        if stretch <= self.present { self.late.push(entry) } else { self.far.push(entry) }
    }

    /// The first place of a chunk that goes on behind `last`. A new one has copies of `event`, until others take their places.
    fn new_chunk(&mut self, last: u32, event: (Time, E)) -> u32 {
        let chunk = self.free.pop().unwrap_or_else(|| {
            self.places.resize(self.places.len() + CHUNK as usize, event);
            self.before.push(NONE);
            self.before.len() as u32 - 1
        });
        self.before[chunk as usize] = last;
        chunk * CHUNK
    }

    /// Goes on to the next stretch in which something happens.
    fn turn(&mut self) {
        let here = self.present as usize % RING;
        self.present = match self.next_filled(here) {
            Some(index) => self.present + ((index + RING - here) % RING) as u64,
            None => match self.far.first() {
                Some(entry) => stretch_of(entry.at),
                None => return,
            },
        };
        let index = self.present as usize % RING;
        self.filled[index / 64] &= !(1 << (index % 64));
        let mut last = std::mem::replace(&mut self.ring[index], NONE);
        while last != NONE {
            let chunk = last / CHUNK;
            let places = (chunk * CHUNK) as usize..=last as usize;
            self.near.extend(self.places[places].iter().rev());
            self.free.push(chunk);
            last = self.before[chunk as usize];
        }
        // The last added is the first, and so it stays among those of one time. Most often there is one.
        if self.near.len() > 1 {
            self.near.sort_by_key(|(at, _)| Reverse(*at));
        }
        while let Some(entry) = self.far.first()
            && stretch_of(entry.at) - self.present < RING as u64
        {
            let Entry { at, event, .. } = *entry;
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

/// A 4-ary heap: fewer levels than a binary one, and children that lie together.
#[derive(Debug)]
struct Heap<E>(Vec<Entry<E>>);

const ARITY: usize = 4;

impl<E: Copy> Heap<E> {
    fn first(&self) -> Option<&Entry<E>> {
        self.0.first()
    }

    fn push(&mut self, entry: Entry<E>) {
        let mut at = self.0.len();
        self.0.push(entry);
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.0[parent].before(&entry) {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = entry;
    }

    fn pop(&mut self) -> Option<Entry<E>> {
        let last = self.0.pop()?;
        let Some(&first) = self.0.first() else { return Some(last) };
        let len = self.0.len();
        let mut at = 0;
        loop {
            let child = at * ARITY + 1;
            if child >= len {
                break;
            }
            let mut least = child;
            for other in child + 1..(child + ARITY).min(len) {
                if self.0[other].before(&self.0[least]) {
                    least = other;
                }
            }
            if last.before(&self.0[least]) {
                break;
            }
            self.0[at] = self.0[least];
            at = least;
        }
        self.0[at] = last;
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
