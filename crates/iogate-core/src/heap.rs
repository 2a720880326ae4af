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

/// Several such heaps over one range of indices, each of which is in one of them at most.
#[derive(Debug)]
pub(crate) struct IndexedHeaps<K> {
    heaps: Vec<Heap<K>>,
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

impl<K> Default for IndexedHeaps<K> {
    fn default() -> Self {
        IndexedHeaps { heaps: Vec::new(), places: Places::default() }
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

impl<K: Ord + Copy> IndexedHeaps<K> {
    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let heaps = self.heaps.iter().map(|heap| heap.allocated_bytes() + size_of::<Heap<K>>());
        heaps.sum::<usize>() + self.places.allocated_bytes()
    }

    /// How many indices one of them holds.
    pub(crate) fn len(&self, of: usize) -> usize {
        self.heaps.get(of).map_or(0, |heap| heap.0.len())
    }

    /// The smallest key and its index of one of them; ties go to the smaller index.
    pub(crate) fn peek(&self, of: usize) -> Option<(K, u32)> {
        self.heaps.get(of)?.0.first().copied()
    }

    /// An index's key, if it is in this one.
    pub(crate) fn key(&self, of: usize, index: u32) -> Option<K> {
        let at = self.places.of(index)?;
        self.heaps.get(of).map(|heap| heap.0[at].0)
    }

    /// Inserts an index that is in no other one, or changes its key.
    pub(crate) fn set(&mut self, of: usize, index: u32, key: K) {
        while self.heaps.len() <= of {
            self.heaps.push(Heap(Vec::new()));
        }
        self.heaps[of].set(&mut self.places, index, key);
    }

    /// Removes an index; nothing happens if it is in none.
    pub(crate) fn remove(&mut self, of: usize, index: u32) {
        if let Some(heap) = self.heaps.get_mut(of) {
            heap.remove(&mut self.places, index);
        }
    }

    /// All that one of them holds, in no order.
    pub(crate) fn all(&self, of: usize) -> impl Iterator<Item = u32> + '_ {
        self.heaps.get(of).into_iter().flat_map(|heap| heap.0.iter().map(|(_, index)| *index))
    }

    /// Calls `each` with indices of one of them, none behind one with a larger key, as long as their keys are no more than what `each`
    /// returned last.
    pub(crate) fn up_to(&self, of: usize, most: K, each: &mut impl FnMut(u32) -> K) {
        if let Some(heap) = self.heaps.get(of) {
            heap.up_to(0, &mut { most }, each);
        }
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

    fn up_to(&self, at: usize, most: &mut K, each: &mut impl FnMut(u32) -> K) {
        if let Some(&(_, index)) = self.0.get(at).filter(|(key, _)| key <= most) {
            *most = each(index);
            (4 * at + 1..(4 * at + 5).min(self.0.len())).for_each(|child| self.up_to(child, most, each));
        }
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

    #[test]
    fn several_agree_with_sorted_sets() {
        let (mut heaps, mut keys, mut x) = (IndexedHeaps::default(), [None; 50], 1u64);
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (index, key) = ((x >> 33) as u32 % 50, (x >> 40) % 100);
            let of = index as usize % 3;
            keys[index as usize] = (x >> 62 != 0).then_some(key);
            match keys[index as usize] {
                Some(key) => heaps.set(of, index, key),
                None => heaps.remove(of, index),
            }
            let all: BTreeSet<_> = (0..50)
                .filter(|at| at % 3 == of as u32)
                .filter_map(|at| Some((keys[at as usize]?, at)))
                .collect();
            assert_eq!((heaps.peek(of), heaps.len(of)), (all.first().copied(), all.len()));
            assert_eq!(heaps.key(of, index), keys[index as usize]);
            let mut found = BTreeSet::new();
            heaps.up_to(of, 40, &mut |index| {
                found.insert(index);
                40
            });
            assert_eq!(found, all.iter().filter(|(key, _)| *key <= 40).map(|(_, index)| *index).collect());
            assert_eq!(heaps.all(of).collect::<BTreeSet<_>>(), all.iter().map(|(_, index)| *index).collect());
        }
    }
}
