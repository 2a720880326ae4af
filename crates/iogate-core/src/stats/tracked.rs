//! Sums per file, application or target, for a bounded number of them.

use alloc::vec::Vec;
use core::hash::Hash;

use super::Sums;
use crate::hash::HashMap;

/// Sums for the first [`TRACKED_MAX`](super::TRACKED_MAX) keys one by one, for all others together.
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
}

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
        Tracked { entries: listed.entries, index, other: listed.other }
    }
}

impl<K> Default for Tracked<K> {
    fn default() -> Tracked<K> {
        Tracked { entries: Vec::new(), index: HashMap::default(), other: Sums::default() }
    }
}

impl<K: Copy + Eq + Hash> Tracked<K> {
    /// The keys in order of appearance, with their sums.
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

    pub(crate) fn sums(&mut self, key: K) -> &mut Sums {
        match self.index.get(&key) {
            Some(&index) => &mut self.entries[index as usize].1,
            None if self.entries.len() < super::TRACKED_MAX => {
                self.index.insert(key, self.entries.len() as u32);
                self.entries.push((key, Sums::default()));
                &mut self.entries.last_mut().expect("just pushed").1
            }
            None => &mut self.other,
        }
    }
}
