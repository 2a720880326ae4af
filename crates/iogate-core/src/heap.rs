//! Priority queues of small indices whose keys change.

use alloc::vec::Vec;

const ABSENT: u32 = u32::MAX;
/// Children of a node: fewer levels than with two.
const CHILDREN: usize = 4;

/// A heap over indices (queues, groups), smallest key first, that knows where each index stands. O(log n) for each change, n the number
/// of indices in it.
#[derive(Debug)]
pub(crate) struct IndexedHeap<K> {
    heap: Heap<(K, u32)>,
    places: Places,
}

/// Several such heaps over one range of indices, each of which is in one of them at most. Their keys are tags.
#[derive(Debug, Default)]
pub(crate) struct TagHeaps {
    heaps: Vec<Heap<Tagged>>,
    places: Places,
}

/// What a heap is made of: its key and its index, ordered by these.
trait Entry: Copy + Ord {
    fn index(self) -> u32;
}

impl<K: Ord + Copy> Entry for (K, u32) {
    fn index(self) -> u32 {
        self.1
    }
}

/// A tag and an index in one number: four of them are a line of the cache, and a comparison is two instructions without a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tagged(u128);

impl Tagged {
    const INDEX_BITS: u32 = u16::BITS;

    fn new(tag: u128, index: u16) -> Tagged {
        debug_assert!(tag >> (u128::BITS - Tagged::INDEX_BITS) == 0, "no device was busy for so long");
        Tagged(tag << Tagged::INDEX_BITS | u128::from(index))
    }

    fn tag(self) -> u128 {
        self.0 >> Tagged::INDEX_BITS
    }
}

impl Entry for Tagged {
    fn index(self) -> u32 {
        u32::from(self.0 as u16)
    }
}

#[derive(Debug)]
struct Heap<E>(Vec<E>);

/// Where each index stands in its heap.
#[derive(Debug, Default)]
struct Places(Vec<u32>);

impl<E> Default for Heap<E> {
    fn default() -> Self {
        Heap(Vec::new())
    }
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        IndexedHeap { heap: Heap::default(), places: Places::default() }
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
        match self.places.of(index) {
            None => self.heap.insert(&mut self.places, (key, index)),
            Some(at) => self.heap.replace(&mut self.places, at, (key, index)),
        }
    }

    /// Removes an index; nothing happens if it is not there.
    pub(crate) fn remove(&mut self, index: u32) {
        self.heap.remove(&mut self.places, index);
    }
}

impl TagHeaps {
    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let heaps = self.heaps.iter().map(|heap| heap.allocated_bytes() + size_of::<Heap<Tagged>>());
        heaps.sum::<usize>() + self.places.allocated_bytes()
    }

    /// How many indices one of them holds.
    pub(crate) fn len(&self, of: usize) -> usize {
        self.heaps.get(of).map_or(0, |heap| heap.0.len())
    }

    /// The smallest tag and its index of one of them; ties go to the smaller index.
    #[inline]
    pub(crate) fn peek(&self, of: usize) -> Option<(u128, u16)> {
        let first = self.heaps.get(of)?.0.first()?;
        Some((first.tag(), first.index() as u16))
    }

    /// Whether an index is in one of them.
    pub(crate) fn has(&self, index: u16) -> bool {
        self.places.of(index.into()).is_some()
    }

    /// An index's tag, if it is in this one.
    pub(crate) fn key(&self, of: usize, index: u16) -> Option<u128> {
        let at = self.places.of(index.into())?;
        self.heaps.get(of).map(|heap| heap.0[at].tag())
    }

    /// Inserts an index that is in no other one, or makes its tag smaller: one that is no larger stays.
    pub(crate) fn lower(&mut self, of: usize, index: u16, tag: u128) {
        while self.heaps.len() <= of {
            self.heaps.push(Heap::default());
        }
        let (heap, entry) = (&mut self.heaps[of], Tagged::new(tag, index));
        match self.places.of(index.into()) {
            None => heap.insert(&mut self.places, entry),
            Some(at) if entry < heap.0[at] => heap.up(&mut self.places, at, entry),
            Some(_) => {}
        }
    }

    /// Makes the tag of the first of one of them larger.
    #[inline(never)]
    pub(crate) fn raise_first(&mut self, of: usize, tag: u128) {
        let heap = &mut self.heaps[of];
        let first = heap.0[0];
        debug_assert!(first.tag() <= tag, "it grows");
        heap.down(&mut self.places, 0, Tagged::new(tag, first.index() as u16));
    }

    /// Removes an index; nothing happens if it is in none.
    pub(crate) fn remove(&mut self, of: usize, index: u16) {
        if let Some(heap) = self.heaps.get_mut(of) {
            heap.remove(&mut self.places, index.into());
        }
    }

    /// All that one of them holds, in no order.
    pub(crate) fn all(&self, of: usize) -> impl Iterator<Item = u16> + '_ {
        self.heaps.get(of).into_iter().flat_map(|heap| heap.0.iter().map(|entry| entry.index() as u16))
    }

    /// Calls `each` with indices of one of them, none behind one with a larger tag, as long as their tags are no more than what `each`
    /// returned last.
    pub(crate) fn up_to(&self, of: usize, most: u128, each: &mut impl FnMut(u16) -> u128) {
        if let Some(heap) = self.heaps.get(of) {
            heap.up_to(0, &mut { most }, each);
        }
    }
}

impl Places {
    fn allocated_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }

    #[inline]
    fn of(&self, index: u32) -> Option<usize> {
        self.0.get(index as usize).filter(|at| **at != ABSENT).map(|at| *at as usize)
    }
}

impl<E: Entry> Heap<E> {
    fn allocated_bytes(&self) -> usize {
        self.0.capacity() * size_of::<E>()
    }

    /// Inserts an index that is not there.
    fn insert(&mut self, places: &mut Places, entry: E) {
        let index = entry.index() as usize;
        if places.0.len() <= index {
            places.0.resize(index + 1, ABSENT);
        }
        self.0.push(entry);
        self.up(places, self.0.len() - 1, entry);
    }

    /// Puts another key of the same index in its place.
    fn replace(&mut self, places: &mut Places, at: usize, entry: E) {
        if entry < self.0[at] {
            self.up(places, at, entry);
        } else {
            self.down(places, at, entry);
        }
    }

    fn remove(&mut self, places: &mut Places, index: u32) {
        let Some(at) = places.of(index) else { return };
        places.0[index as usize] = ABSENT;
        let Some(last) = self.0.pop() else { return };
        // It is the last one itself, if that is nowhere any more.
        if at < self.0.len() {
            self.replace(places, at, last);
        }
    }

    fn put(&mut self, places: &mut Places, at: usize, entry: E) {
        self.0[at] = entry;
        places.0[entry.index() as usize] = at as u32;
    }

    /// Puts an entry in this place or above it: those that are larger move down, one after the other.
    #[inline]
    fn up(&mut self, places: &mut Places, mut at: usize, entry: E) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            let above = self.0[parent];
            if above <= entry {
                break;
            }
            self.put(places, at, above);
            at = parent;
        }
        self.put(places, at, entry);
    }

    /// Puts an entry in this place or below it: those that are smaller move up, one after the other.
    fn down(&mut self, places: &mut Places, mut at: usize, entry: E) {
        while let Some((least, child)) = self.least_child(at) {
            if entry <= child {
                break;
            }
            self.put(places, at, child);
            at = least;
        }
        self.put(places, at, entry);
    }

    #[inline]
    fn least_child(&self, at: usize) -> Option<(usize, E)> {
        let first = CHILDREN * at + 1;
        let Some(&[a, b, c, d]) = self.0.get(first..first + CHILDREN) else {
            return self.least_of_few(first);
        };
        // Two pairs, then the better of these: which one it is cannot be guessed, so nothing is to branch on it.
        let (ab, cd) = (usize::from(b < a), usize::from(d < c));
        let (left, right) = (if b < a { b } else { a }, if d < c { d } else { c });
        Some(if right < left { (first + 2 + cd, right) } else { (first + ab, left) })
    }

    /// The same of the node that has not all of its children.
    #[inline]
    fn least_of_few(&self, first: usize) -> Option<(usize, E)> {
        let few = self.0.get(first..)?;
        let (mut at, mut least) = (0, *few.first()?);
        for index in 1..few.len() {
            let is_less = few[index] < least;
            (at, least) = (if is_less { index } else { at }, if is_less { few[index] } else { least });
        }
        Some((first + at, least))
    }
}

impl Heap<Tagged> {
    fn up_to(&self, at: usize, most: &mut u128, each: &mut impl FnMut(u16) -> u128) {
        if let Some(entry) = self.0.get(at).filter(|entry| entry.tag() <= *most) {
            *most = each(entry.index() as u16);
            let children = CHILDREN * at + 1..(CHILDREN * (at + 1) + 1).min(self.0.len());
            children.for_each(|child| self.up_to(child, most, each));
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
        let (mut heaps, mut keys, mut x) = (TagHeaps::default(), [None; 50], 1u64);
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (index, key) = ((x >> 33) as u16 % 50, u128::from(x >> 40) % 100);
            let of = usize::from(index) % 3;
            let old = keys[usize::from(index)];
            match x >> 62 {
                0 => {
                    heaps.remove(of, index);
                    keys[usize::from(index)] = None;
                }
                1 => {
                    if let Some((tag, first)) = heaps.peek(of) {
                        heaps.raise_first(of, tag + key);
                        keys[usize::from(first)] = Some(tag + key);
                    }
                }
                _ => {
                    heaps.lower(of, index, key);
                    keys[usize::from(index)] = Some(old.map_or(key, |old| old.min(key)));
                }
            }
            let all: BTreeSet<_> = (0..50)
                .filter(|at| usize::from(*at) % 3 == of)
                .filter_map(|at| Some((keys[usize::from(at)]?, at)))
                .collect();
            assert_eq!((heaps.peek(of), heaps.len(of)), (all.first().copied(), all.len()));
            assert_eq!(heaps.key(of, index), keys[usize::from(index)]);
            assert_eq!(heaps.has(index), keys[usize::from(index)].is_some());
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
