//! Priority queues of small indices whose keys change.

use alloc::vec::Vec;
use core::cmp::Ordering;

const ABSENT: u32 = u32::MAX;

/// A heap (four children a node: fewer levels) over indices (queues, groups), smallest key first, that knows where each index stands.
/// O(log n) for each change, n the number of indices in it.
#[derive(Debug)]
pub(crate) struct IndexedHeap<K> {
    heap: Heap<K>,
    places: Places,
}

#[derive(Debug)]
struct Heap<K>(Vec<(K, u32)>);

/// Where each index stands in its heap.
#[derive(Debug, Default)]
struct Places(Vec<u32>);

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        IndexedHeap { heap: Heap(Vec::new()), places: Places::default() }
    }
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.heap.allocated_bytes() + self.places.allocated_bytes()
    }

    /// How many indices it holds.
    pub(crate) fn len(&self) -> usize {
        self.heap.0.len()
    }

    /// Whether it holds none.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.0.is_empty()
    }

    /// The smallest key and its index; ties go to the smaller index.
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.heap.0.first().copied()
    }

    /// Inserts an index, or changes its key.
    pub(crate) fn set(&mut self, index: u32, key: K) {
        self.heap.set(&mut self.places, index, key);
    }

    /// Removes an index; nothing happens if it is not there.
    pub(crate) fn remove(&mut self, index: u32) {
        self.heap.remove(&mut self.places, index);
    }
}

impl Places {
    fn allocated_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }

    fn of(&self, index: u32) -> Option<usize> {
        self.0.get(index as usize).filter(|at| **at != ABSENT).map(|at| *at as usize)
    }
}

impl<K: Ord + Copy> Heap<K> {
    fn allocated_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(K, u32)>()
    }

    fn set(&mut self, places: &mut Places, index: u32, key: K) {
        if places.0.len() <= index as usize {
            places.0.resize(index as usize + 1, ABSENT);
        }
        let at = places.0[index as usize];
        if at == ABSENT {
            self.0.push((key, index));
            places.0[index as usize] = self.0.len() as u32 - 1;
            self.up(places, self.0.len() - 1);
        } else {
            let old = core::mem::replace(&mut self.0[at as usize].0, key);
            match key.cmp(&old) {
                Ordering::Less => self.up(places, at as usize),
                Ordering::Equal => {}
                Ordering::Greater => self.down(places, at as usize),
            }
        }
    }

    fn remove(&mut self, places: &mut Places, index: u32) {
        let Some(at) = places.of(index) else { return };
        places.0[index as usize] = ABSENT;
        self.0.swap_remove(at);
        if let Some(&(_, moved)) = self.0.get(at) {
            places.0[moved as usize] = at as u32;
            self.up(places, at);
            self.down(places, places.0[moved as usize] as usize);
        }
    }

    fn up(&mut self, places: &mut Places, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.0[parent] <= self.0[at] {
                break;
            }
            self.swap(places, parent, at);
            at = parent;
        }
    }

    fn down(&mut self, places: &mut Places, mut at: usize) {
        loop {
            let children = 4 * at + 1..(4 * at + 5).min(self.0.len());
            let Some(least) = children.min_by_key(|&child| self.0[child]) else { return };
            if self.0[at] <= self.0[least] {
                return;
            }
            self.swap(places, at, least);
            at = least;
        }
    }

    fn swap(&mut self, places: &mut Places, a: usize, b: usize) {
        self.0.swap(a, b);
        places.0[self.0[a].1 as usize] = a as u32;
        places.0[self.0[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_sorted_set() {
        let (mut heap, mut keys, mut set) = (IndexedHeap::default(), [None; 50], BTreeSet::new());
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (index, key) = ((x >> 33) as u32 % 50, (x >> 40) % 100);
            if let Some(old) = keys[index as usize].take() {
                set.remove(&(old, index));
            }
            if x >> 62 == 0 {
                heap.remove(index);
            } else {
                heap.set(index, key);
                keys[index as usize] = Some(key);
                set.insert((key, index));
            }
            assert_eq!(heap.peek(), set.first().copied());
        }
    }
}
