//! Sums per file, application or target, for a bounded number of them.

use alloc::vec::Vec;
use core::hash::Hash;

use super::Sums;
use crate::hash::HashMap;

/// Sums for the first [`TRACKED_MAX`](super::TRACKED_MAX) keys one by one, for all others together.
#[derive(Clone, Debug)]
pub struct Tracked<K> {
    entries: Vec<(K, Sums)>,
    index: HashMap<K, u32>,
    other: Sums,
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
