//! Priority queues of small indices whose keys change.

use alloc::vec::Vec;
use core::cmp::Ordering;

const ABSENT: u32 = u32::MAX;

/// A heap (four children a node: fewer levels) over indices (queues, groups), smallest key first, that knows where each index stands.
/// O(log n) for each change, n the number of indices in it.
#[derive(Debug)]
pub(crate) struct IndexedHeap<K> {
    heap: Vec<(K, u32)>,
    /// Where each index stands.
    places: Vec<u32>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        IndexedHeap { heap: Vec::new(), places: Vec::new() }
    }
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<(K, u32)>() + self.places.capacity() * size_of::<u32>()
    }

    /// How many indices it holds.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether it holds none.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The smallest key and its index; ties go to the smaller index.
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Inserts an index, or changes its key.
    pub(crate) fn set(&mut self, index: u32, key: K) {
        if self.places.len() <= index as usize {
            self.places.resize(index as usize + 1, ABSENT);
        }
        let at = self.places[index as usize];
        if at == ABSENT {
            self.heap.push((key, index));
            self.places[index as usize] = self.heap.len() as u32 - 1;
            self.up(self.heap.len() - 1);
        } else {
            let old = core::mem::replace(&mut self.heap[at as usize].0, key);
            match key.cmp(&old) {
                Ordering::Less => self.up(at as usize),
                Ordering::Equal => {}
                Ordering::Greater => self.down(at as usize),
            }
        }
    }

    /// Removes an index; nothing happens if it is not there.
    pub(crate) fn remove(&mut self, index: u32) {
        let at = self.places.get(index as usize).filter(|at| **at != ABSENT);
        let Some(at) = at.map(|at| *at as usize) else { return };
        self.places[index as usize] = ABSENT;
        self.heap.swap_remove(at);
        if let Some(&(_, moved)) = self.heap.get(at) {
            self.places[moved as usize] = at as u32;
            self.up(at);
            self.down(self.places[moved as usize] as usize);
        }
    }

    fn up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.heap[parent] <= self.heap[at] {
                break;
            }
            self.swap(parent, at);
            at = parent;
        }
    }

    fn down(&mut self, mut at: usize) {
        loop {
            let children = 4 * at + 1..(4 * at + 5).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { return };
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].1 as usize] = a as u32;
        self.places[self.heap[b].1 as usize] = b as u32;
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
