//! Sums per file, application or target, for a bounded number of them.

use alloc::vec::Vec;
use core::hash::Hash;

use super::Sums;
use crate::hash::HashMap;
use crate::time::Time;

/// Sums for at most [`TRACKED_MAX`](super::TRACKED_MAX) keys one by one, for all others together: the first ones, or those that were
/// counted of late.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(from = "Listed<K>", into = "Listed<K>", bound(serialize = "K: Clone + serde::Serialize")),
    serde(bound(deserialize = "K: Copy + Eq + Hash + serde::Deserialize<'de>"))
)]
pub struct Tracked<K> {
    entries: Vec<(K, Sums)>,
    index: HashMap<K, u32>,
    other: Sums,
    /// Entries that were idle for longest at the last look at all, the longest last, and how many requests each had then.
    idle: Vec<(u32, u64)>,
}

/// Entries that one look at all finds idle for longest, so that a place costs a few of them.
const IDLE_FOUND: usize = super::TRACKED_MAX / 8;

/// The sums as they are written: the index follows from the entries.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Listed<K> {
    entries: Vec<(K, Sums)>,
    other: Sums,
}

#[cfg(feature = "serde")]
impl<K> From<Tracked<K>> for Listed<K> {
    fn from(tracked: Tracked<K>) -> Listed<K> {
        Listed { entries: tracked.entries, other: tracked.other }
    }
}

#[cfg(feature = "serde")]
impl<K: Copy + Eq + Hash> From<Listed<K>> for Tracked<K> {
    fn from(listed: Listed<K>) -> Tracked<K> {
        let index = listed.entries.iter().zip(0..).map(|((key, _), index)| (*key, index)).collect();
        Tracked { entries: listed.entries, index, other: listed.other, idle: Vec::new() }
    }
}

impl<K> Default for Tracked<K> {
    fn default() -> Tracked<K> {
        Tracked { entries: Vec::new(), index: HashMap::default(), other: Sums::default(), idle: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash> Tracked<K> {
    /// The keys with their sums, in order of appearance until one takes the place of another.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(K, Sums)> {
        self.entries.iter()
    }

    /// How many keys are tracked one by one.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sums of one key, if it is tracked.
    pub fn get(&self, key: K) -> Option<&Sums> {
        self.index.get(&key).map(|&index| &self.entries[index as usize].1)
    }

    /// The sums of all keys that are not tracked one by one.
    pub fn other(&self) -> &Sums {
        &self.other
    }

    /// The sums of a key; those of all others, if it is none of the first ones.
    pub(crate) fn sums(&mut self, key: K) -> &mut Sums {
        match self.place(key) {
            Some(index) => &mut self.entries[index].1,
            None => &mut self.other,
        }
    }

    /// The sums of a key. Where all places are taken, one that is idle for longest is among all others from now on, and begins anew when
    /// it comes back.
    pub(crate) fn sums_of_late(&mut self, key: K) -> &mut Sums {
        let index = match self.place(key) {
            Some(index) => index,
            None => {
                let index = self.give_up_idle();
                self.index.insert(key, index as u32);
                self.entries[index].0 = key;
                index
            }
        };
        &mut self.entries[index].1
    }

    fn place(&mut self, key: K) -> Option<usize> {
        if let Some(&index) = self.index.get(&key) {
            return Some(index as usize);
        }
        (self.entries.len() < super::TRACKED_MAX).then(|| {
            self.index.insert(key, self.entries.len() as u32);
            self.entries.push((key, Sums::default()));
            self.entries.len() - 1
        })
    }

    /// An entry that was not counted since a look found it among those idle for longest. O(1) on average: each that a look finds is given
    /// up, or was counted since.
    #[cold]
    fn give_up_idle(&mut self) -> usize {
        let index = loop {
            match self.idle.pop() {
                Some((index, requests)) if self.entries[index as usize].1.requests == requests => {
                    break index as usize;
                }
                Some(_) => {}
                None => self.find_idle(),
            }
        };
        let (key, sums) = &mut self.entries[index];
        self.index.remove(key);
        self.other.join(&core::mem::take(sums));
        index
    }

    fn find_idle(&mut self) {
        // When they were counted last is copied once: to sort entries by it would look into each again and again.
        let times = self.entries.iter().zip(0..).map(|((_, sums), index)| (sums.last, index));
        let mut all: Vec<(Time, u32)> = times.collect();
        if all.len() > IDLE_FOUND {
            all.select_nth_unstable(IDLE_FOUND);
            all.truncate(IDLE_FOUND);
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        let found = all.into_iter().map(|(_, index)| (index, self.entries[index as usize].1.requests));
        self.idle = found.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counted, TRACKED_MAX};
    use super::*;
    use crate::time::Span;

    fn count(sums: &mut Sums, at: u64) {
        let mut counted = Counted::NONE;
        counted.add(10, Time::from_nanos(at), Span::from_nanos(7));
        sums.add(&counted, Time::from_nanos(at));
    }

    #[test]
    fn who_comes_late_takes_the_place_of_the_one_idle_for_longest() {
        let mut tracked = Tracked::default();
        let last = 10 * TRACKED_MAX as u64;
        for at in 1..=last {
            // The first one goes on, all others come once.
            for key in [1, at] {
                count(tracked.sums_of_late(key), at);
            }
        }
        assert_eq!(tracked.len(), TRACKED_MAX);
        assert_eq!(tracked.get(1).map(|sums| sums.requests), Some(last + 1));
        let others = last - TRACKED_MAX as u64 + 2..=last;
        assert!(others.clone().all(|key| tracked.get(key).is_some_and(|sums| sums.requests == 1)));
        assert_eq!(tracked.other().requests, last - 1 - others.count() as u64);
        assert_eq!(tracked.other().waiting, Span::from_nanos(7 * tracked.other().requests));
        assert_eq!(tracked.other().first, Time::from_nanos(2));
        // Who comes back begins anew, and nothing is lost.
        count(tracked.sums_of_late(2), last + 1);
        assert_eq!(tracked.get(2).map(|sums| sums.requests), Some(1));
        let sum: u64 = tracked.iter().map(|(_, sums)| sums.requests).sum();
        assert_eq!(sum + tracked.other().requests, 2 * last + 1);
    }

    #[test]
    fn of_files_the_first_ones_keep_their_places() {
        let mut tracked = Tracked::default();
        (1..=2_000).for_each(|key| count(tracked.sums(key), key));
        assert_eq!(tracked.len(), TRACKED_MAX);
        assert!(tracked.get(1).is_some() && tracked.get(2_000).is_none());
        assert_eq!(tracked.other().requests, 2_000 - TRACKED_MAX as u64);
    }
}
