//! A bounded map that lets go what has not been used for longest, near enough.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    value: V,
    /// Used since the hand, or a sweep, was here.
    is_used: bool,
}

/// A bounded map: the hand of a clock goes round, and takes what was not used since it came by.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    most: usize,
    slots: Vec<Slot<K, V>>,
    places: HashMap<K, usize>,
    hand: usize,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// Of at most so many values.
    pub(super) fn new(most: usize) -> Lru<K, V> {
        Lru { most: most.max(1), slots: Vec::new(), places: HashMap::new(), hand: 0 }
    }

    /// Finds a value, and uses it.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        let slot = &mut self.slots[*self.places.get(key)?];
        slot.is_used = true;
        Some(&slot.value)
    }

    /// Puts a value in the place of the one with that key, if there is one. Returns what has to go for it.
    pub(super) fn put(&mut self, key: K, value: V) -> Option<V> {
        if let Some(&place) = self.places.get(&key) {
            let slot = &mut self.slots[place];
            slot.is_used = true;
            return Some(std::mem::replace(&mut slot.value, value));
        }
        let gone = if self.slots.len() >= self.most { self.take_oldest() } else { None };
        self.places.insert(key.clone(), self.slots.len());
        self.slots.push(Slot { key, value, is_used: true });
        gone
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let place = *self.places.get(key)?;
        Some(self.take(place))
    }

    /// Takes out all that `goes`.
    pub(super) fn remove_if(&mut self, goes: impl Fn(&K) -> bool) -> Vec<V> {
        let going: Vec<K> = self.places.keys().filter(|key| goes(key)).cloned().collect();
        going.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// As [`Lru::remove_if`], by the values.
    pub(super) fn remove_if_value(&mut self, goes: impl Fn(&V) -> bool) -> Vec<V> {
        let going: Vec<K> =
            self.slots.iter().filter(|slot| goes(&slot.value)).map(|slot| slot.key.clone()).collect();
        going.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Takes out what was not used since the last sweep.
    pub(super) fn sweep(&mut self) -> Vec<V> {
        let mut gone = Vec::new();
        let mut place = 0;
        while place < self.slots.len() {
            if std::mem::take(&mut self.slots[place].is_used) {
                place += 1;
            } else {
                gone.push(self.take(place));
            }
        }
        gone
    }

    fn take_oldest(&mut self) -> Option<V> {
        loop {
            let place = self.hand % self.slots.len();
            self.hand = place + 1;
            if !std::mem::take(&mut self.slots[place].is_used) {
                return Some(self.take(place));
            }
        }
    }

    fn take(&mut self, place: usize) -> V {
        let slot = self.slots.swap_remove(place);
        self.places.remove(&slot.key);
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.key.clone(), place);
        }
        slot.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes_when_it_is_full() {
        let mut map = Lru::new(3);
        for key in 0..3 {
            assert_eq!(map.put(key, key * 10), None);
        }
        // All were used when they came: the first one goes.
        assert_eq!(map.put(3, 30), Some(0));
        assert_eq!(map.get(&1), Some(&10));
        assert_eq!(map.put(3, 31), Some(30));
        assert_eq!(map.sweep(), [20], "not used since the hand came by");
        assert_eq!(map.get(&1), Some(&10));
        assert_eq!(map.sweep(), [31]);
        assert_eq!((map.remove(&1), map.remove(&1)), (Some(10), None));
        assert_eq!(map.put(5, 50), None);
        assert_eq!(map.put(6, 60), None);
        assert_eq!(map.remove_if(|key| *key == 5), [50]);
        assert_eq!(map.get(&5), None);
        assert_eq!(map.get(&6), Some(&60));
    }
}
