//! Classes by their tags: a heap for each class that others are within, all over one range of indices.
//!
//! Each dispatch takes the first out of one of these heaps, and each arrival may put one in. So an entry is one number, a tag with an index
//! behind it, and the four children of an entry are one line of the cache. Which child is the least cannot be guessed: nothing branches on
//! it, and where there are fewer than four, the others are larger than all that there are.

use alloc::vec::Vec;

const ABSENT: u32 = u32::MAX;
/// Children of an entry.
const CHILDREN: usize = 4;

/// Several heaps, smallest tag first, that know where each index stands. An index is in one of them at most. O(log n) for each change, n
/// the number of indices in the heap.
#[derive(Debug, Default)]
pub(super) struct TagHeaps {
    heaps: Vec<TagHeap>,
    places: Places,
}

/// A tag and an index: ordered by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

/// The children of an entry.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([Entry; CHILDREN]);

/// The children of the entry `at`, from `4 * at + 1` on, are line `at + 1`; the first entry is the last of line 0, which has no other one.
#[derive(Debug, Default)]
struct TagHeap {
    len: usize,
    lines: Vec<Line>,
}

/// Where each index stands in its heap.
#[derive(Debug, Default)]
struct Places(Vec<u32>);

impl Entry {
    /// In place of one that is not there.
    const VACANT: Entry = Entry(u128::MAX);

    fn new(tag: u128, index: u16) -> Entry {
        debug_assert!(tag >> (u128::BITS - u16::BITS) == 0, "no device was busy for so long");
        Entry(tag << u16::BITS | u128::from(index))
    }

    fn tag(self) -> u128 {
        self.0 >> u16::BITS
    }

    fn index(self) -> u16 {
        self.0 as u16
    }
}

impl TagHeaps {
    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        let heaps = self.heaps.iter().map(|heap| heap.lines.capacity() * size_of::<Line>());
        heaps.sum::<usize>()
            + self.heaps.capacity() * size_of::<TagHeap>()
            + self.places.0.capacity() * size_of::<u32>()
    }

    /// How many indices one of them holds.
    #[inline]
    pub(super) fn len(&self, of: usize) -> usize {
        self.heaps.get(of).map_or(0, |heap| heap.len)
    }

    /// The smallest tag and its index of one of them; ties go to the smaller index.
    #[inline]
    pub(super) fn peek(&self, of: usize) -> Option<(u128, u16)> {
        // The number of entries says whether there is one: an entry that was just written in halves is not there as a whole to be compared.
        let first = self.heaps.get(of).filter(|heap| heap.len > 0)?.entry(0);
        Some((first.tag(), first.index()))
    }

    /// Whether an index is in one of them.
    #[inline]
    pub(super) fn has(&self, index: u16) -> bool {
        self.places.of(index).is_some()
    }

    /// An index's tag, if it is in this one.
    pub(super) fn key(&self, of: usize, index: u16) -> Option<u128> {
        let at = self.places.of(index)?;
        self.heaps.get(of).map(|heap| heap.entry(at).tag())
    }

    /// Inserts an index that is in no other one, or makes its tag smaller: one that is no larger stays.
    pub(super) fn lower(&mut self, of: usize, index: u16, tag: u128) {
        while self.heaps.len() <= of {
            self.heaps.push(TagHeap::default());
        }
        let (heap, entry) = (&mut self.heaps[of], Entry::new(tag, index));
        match self.places.of(index) {
            None => heap.insert(&mut self.places, entry),
            Some(at) if entry < heap.entry(at) => heap.up(&mut self.places, at, entry),
            Some(_) => {}
        }
    }

    /// Makes the tag of an index smaller, if it is in this one: one that is no larger stays.
    pub(super) fn lower_there(&mut self, of: usize, index: u16, tag: u128) {
        if let (Some(heap), Some(at)) = (self.heaps.get_mut(of), self.places.of(index)) {
            let entry = Entry::new(tag, index);
            if entry < heap.entry(at) {
                heap.up(&mut self.places, at, entry);
            }
        }
    }

    /// Makes the tag of the first of one of them larger.
    #[inline(never)]
    pub(super) fn raise_first(&mut self, of: usize, tag: u128) {
        let heap = &mut self.heaps[of];
        let first = heap.entry(0);
        debug_assert!(first.tag() <= tag, "it grows");
        heap.down(&mut self.places, 0, Entry::new(tag, first.index()));
    }

    /// Removes an index; nothing happens if it is in none.
    pub(super) fn remove(&mut self, of: usize, index: u16) {
        if let (Some(heap), Some(at)) = (self.heaps.get_mut(of), self.places.of(index)) {
            self.places.0[usize::from(index)] = ABSENT;
            heap.remove(&mut self.places, at);
        }
    }

    /// All that one of them holds, in no order.
    pub(super) fn all<'a>(&'a self, of: usize) -> impl Iterator<Item = u16> + 'a {
        let all = |heap: &'a TagHeap| (0..heap.len).map(|at| heap.entry(at).index());
        self.heaps.get(of).into_iter().flat_map(all)
    }

    /// Calls `each` with indices of one of them, none behind one with a larger tag, as long as their tags are no more than what `each`
    /// returned last.
    pub(super) fn up_to(&self, of: usize, most: u128, each: &mut impl FnMut(u16) -> u128) {
        if let Some(heap) = self.heaps.get(of) {
            heap.up_to(0, &mut { most }, each);
        }
    }
}

impl Places {
    #[inline]
    fn of(&self, index: u16) -> Option<usize> {
        self.0.get(usize::from(index)).filter(|at| **at != ABSENT).map(|at| *at as usize)
    }
}

impl Line {
    /// The least one, and which it is.
    #[inline]
    fn least(&self) -> (usize, Entry) {
        let [a, b, c, d] = self.0;
        let (left, ab) = (a.min(b), usize::from(b < a));
        let (right, cd) = (c.min(d), 2 + usize::from(d < c));
        (if right < left { cd } else { ab }, left.min(right))
    }
}

impl TagHeap {
    /// In which line the entry `at` is, and where there.
    #[inline]
    fn spot(at: usize) -> (usize, usize) {
        let behind = at + CHILDREN - 1;
        (behind / CHILDREN, behind % CHILDREN)
    }

    #[inline]
    fn entry(&self, at: usize) -> Entry {
        let (line, lane) = TagHeap::spot(at);
        self.lines[line].0[lane]
    }

    fn put(&mut self, places: &mut Places, at: usize, entry: Entry) {
        let (line, lane) = TagHeap::spot(at);
        self.lines[line].0[lane] = entry;
        places.0[usize::from(entry.index())] = at as u32;
    }

    /// Inserts an index that is not there.
    fn insert(&mut self, places: &mut Places, entry: Entry) {
        let (index, at) = (usize::from(entry.index()), self.len);
        if places.0.len() <= index {
            places.0.resize(index + 1, ABSENT);
        }
        if TagHeap::spot(at).0 >= self.lines.len() {
            self.lines.push(Line([Entry::VACANT; CHILDREN]));
        }
        self.len += 1;
        self.up(places, at, entry);
    }

    /// Takes out what is in this place: the last one takes it over, unless it is that one itself. Lines stay for those that come.
    fn remove(&mut self, places: &mut Places, at: usize) {
        self.len -= 1;
        let (line, lane) = TagHeap::spot(self.len);
        let last = core::mem::replace(&mut self.lines[line].0[lane], Entry::VACANT);
        if at == self.len {
            return;
        }
        if last < self.entry(at) {
            self.up(places, at, last);
        } else {
            self.down(places, at, last);
        }
    }

    /// Puts an entry in this place or above it: those that are larger move down, one after the other.
    fn up(&mut self, places: &mut Places, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            let above = self.entry(parent);
            if above < entry {
                break;
            }
            self.put(places, at, above);
            at = parent;
        }
        self.put(places, at, entry);
    }

    /// Puts an entry in this place or below it: those that are smaller move up, one after the other.
    fn down(&mut self, places: &mut Places, mut at: usize, entry: Entry) {
        while let Some(children) = self.lines.get(at + 1) {
            let (child, least) = children.least();
            if entry < least {
                break;
            }
            self.put(places, at, least);
            at = CHILDREN * at + 1 + child;
        }
        self.put(places, at, entry);
    }

    fn up_to(&self, at: usize, most: &mut u128, each: &mut impl FnMut(u16) -> u128) {
        if at < self.len && self.entry(at).tag() <= *most {
            *most = each(self.entry(at).index());
            (1..=CHILDREN).for_each(|child| self.up_to(CHILDREN * at + child, most, each));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn heaps_agree_with_sorted_sets() {
        let (mut heaps, mut keys, mut x) = (TagHeaps::default(), [None; 50], 1u64);
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (index, tag) = ((x >> 33) as u16 % 50, u128::from(x >> 40) % 100);
            let of = usize::from(index) % 3;
            match x >> 62 {
                0 => {
                    heaps.remove(of, index);
                    keys[usize::from(index)] = None;
                }
                1 => {
                    if let Some((least, first)) = heaps.peek(of) {
                        heaps.raise_first(of, least + tag);
                        keys[usize::from(first)] = Some(least + tag);
                    }
                }
                _ => {
                    heaps.lower(of, index, tag);
                    let key = &mut keys[usize::from(index)];
                    *key = Some(key.map_or(tag, |before: u128| before.min(tag)));
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
