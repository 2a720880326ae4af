//! Byte ranges in offset order: a B+ tree per queue, all in one arena.
//!
//! Entries are ordered by (offset, arrival). Inner nodes know the largest end below each child, so that "which
//! range overlaps this one?" takes O(log n), and a lower bound of the arrival numbers below it, so that "... and
//! arrived before?" does not walk what came later. Nodes are recycled: a gate in steady state allocates nothing.
//!
//! At a million entries the cost is that of cache misses, so what a search reads is kept apart from what it does not
//! (`Inner` from `Summary`), and a search in a node counts instead of bisecting: its loads do not wait for each other. It counts in two
//! steps, first one offset of each line of the cache, then those of a line: fewer comparisons, and all lines are asked for by the first.

mod node;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::node::{Bounds, INNER, Inner, LEAF, Leaf, Summary, VACANT};

/// A node with fewer entries than this tries to merge with a neighbour.
const LEAF_MIN: usize = LEAF / 4;
const INNER_MIN: usize = INNER / 4;
/// More levels than 2^32 entries can need: two neighbours hold three quarters of a node between them.
const HEIGHT_MAX: usize = 12;
const NONE: u32 = u32::MAX;

/// The key of an entry: first byte, then arrival number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) offset: u64,
    pub(crate) seq: u64,
}

/// One ordered set of byte ranges. Its nodes live in the arena.
#[derive(Clone, Copy)]
pub(crate) struct RangeIndex {
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: u8,
    len: u32,
}

/// The nodes of all trees of a gate.
#[derive(Default)]
pub(crate) struct Arena {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    /// Beside each inner node.
    summaries: Vec<Summary>,
    /// Without entries or neighbours, each of them.
    free_leaves: Vec<u32>,
    free_inners: Vec<u32>,
}

/// A place in a tree; valid until the tree changes.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    leaf: u32,
    index: usize,
}

/// The entries before and after a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbours {
    pub(crate) before: Option<u32>,
    pub(crate) after: Option<u32>,
}

/// The way from the root to a leaf: (inner node, child index) per level.
struct Path {
    steps: [(u32, u32); HEIGHT_MAX],
    len: usize,
}

impl Path {
    /// The steps from the leaf's parent to the root.
    fn up(&self) -> impl Iterator<Item = (u32, usize)> + use<> {
        let steps = self.steps;
        (0..self.len).rev().map(move |level| (steps[level].0, steps[level].1 as usize))
    }
}

impl Default for RangeIndex {
    fn default() -> RangeIndex {
        RangeIndex { root: NONE, height: 0, len: 0 }
    }
}

impl RangeIndex {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Arena {
    /// Bytes of memory in use, for the bound on what a queued request costs.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>()
            + self.inners.capacity() * size_of::<Inner>()
            + self.summaries.capacity() * size_of::<Summary>()
            + (self.free_leaves.capacity() + self.free_inners.capacity()) * size_of::<u32>()
    }

    /// Makes room for so many entries, if each leaf is half full.
    pub(crate) fn reserve(&mut self, entries: usize) {
        let leaves = entries.div_ceil(LEAF / 2);
        self.leaves.reserve(leaves);
        self.free_leaves.reserve(leaves);
    }

    fn new_leaf(&mut self) -> u32 {
        match self.free_leaves.pop() {
            Some(leaf) => leaf,
            None => {
                self.leaves.push(Leaf::empty());
                // So that freeing never allocates.
                self.free_leaves.reserve(self.leaves.len() - self.free_leaves.len());
                (self.leaves.len() - 1) as u32
            }
        }
    }

    fn free_leaf(&mut self, leaf: u32) {
        self.leaf_mut(leaf).vacate();
        self.free_leaves.push(leaf);
    }

    fn new_inner(&mut self) -> u32 {
        match self.free_inners.pop() {
            Some(inner) => {
                self.inners[inner as usize] = Inner::EMPTY;
                inner
            }
            None => {
                self.inners.push(Inner::EMPTY);
                self.summaries.push(Summary::EMPTY);
                self.free_inners.reserve(self.inners.len() - self.free_inners.len());
                (self.inners.len() - 1) as u32
            }
        }
    }

    fn leaf(&self, leaf: u32) -> &Leaf {
        &self.leaves[leaf as usize]
    }

    fn leaf_mut(&mut self, leaf: u32) -> &mut Leaf {
        &mut self.leaves[leaf as usize]
    }

    fn inner(&self, inner: u32) -> &Inner {
        &self.inners[inner as usize]
    }

    fn inner_mut(&mut self, inner: u32) -> &mut Inner {
        &mut self.inners[inner as usize]
    }

    fn summary(&self, inner: u32) -> &Summary {
        &self.summaries[inner as usize]
    }

    fn summary_mut(&mut self, inner: u32) -> &mut Summary {
        &mut self.summaries[inner as usize]
    }

    fn insert_child(&mut self, inner: u32, index: usize, key: Key, bounds: Bounds, child: u32) {
        let len = self.inner(inner).len();
        self.inner_mut(inner).insert(index, key.offset, child);
        self.summary_mut(inner).insert(len, index, key.seq, bounds);
    }

    fn remove_child(&mut self, inner: u32, index: usize) {
        let len = self.inner(inner).len();
        self.inner_mut(inner).remove(index);
        self.summary_mut(inner).remove(len, index);
    }

    /// The index of the child of `inner` in which `key` belongs.
    #[inline]
    fn child_of(&self, inner: u32, key: Key) -> usize {
        let offsets = &self.inner(inner).offsets;
        let mut index = self.inner(inner).last_from(key.offset);
        // Ties are rare, and which child it is cannot be guessed: that is asked first which can.
        while offsets[index] == key.offset && index > 0 && self.summary(inner).ties[index] > key.seq {
            index -= 1;
        }
        index
    }

    /// The leaf in which `key` belongs, and the way there.
    fn descend(&self, tree: &RangeIndex, key: Key) -> (Path, u32) {
        let mut path = Path { steps: [(NONE, 0); HEIGHT_MAX], len: 0 };
        let mut node = tree.root;
        for _ in 0..tree.height {
            let index = self.child_of(node, key);
            path.steps[path.len] = (node, index as u32);
            path.len += 1;
            node = self.inner(node).children[index];
        }
        (path, node)
    }

    fn leaf_of(&self, tree: &RangeIndex, key: Key) -> u32 {
        let child = |node, _| self.inner(node).children[self.child_of(node, key)];
        (0..tree.height).fold(tree.root, child)
    }

    /// Adds an entry; says between which others it stands.
    pub(crate) fn insert(
        &mut self,
        tree: &mut RangeIndex,
        key: Key,
        bytes: u32,
        slot: u32,
        seq_of: impl Fn(u32) -> u64,
    ) -> Neighbours {
        tree.len += 1;
        if tree.root == NONE {
            // What is first and alone, as all are where nothing waits, costs no search.
            tree.root = self.new_leaf();
            self.leaf_mut(tree.root).put_first(key.offset, bytes, slot);
            return Neighbours { before: None, after: None };
        }
        let (path, leaf) = self.descend(tree, key);
        let bounds = Bounds { end: key.offset + u64::from(bytes), seq: key.seq };
        // While the leaf is on its way.
        for (node, index) in path.up() {
            let summary = self.summary_mut(node);
            summary.ends[index] = summary.ends[index].max(bounds.end);
            summary.seqs[index] = summary.seqs[index].min(bounds.seq);
        }
        let index = self.leaf(leaf).lower_bound(key, &seq_of);
        let neighbours = self.neighbours_of_gap(leaf, index);
        if self.leaf(leaf).len() < LEAF {
            self.leaf_mut(leaf).insert(index, key.offset, bytes, slot);
        } else {
            self.insert_splitting(tree, &path, leaf, index, key, bytes, slot, &seq_of);
        }
        neighbours
    }

    fn neighbours_of_gap(&self, leaf: u32, index: usize) -> Neighbours {
        let this = self.leaf(leaf);
        let before = if index > 0 {
            Some(this.slots[index - 1])
        } else {
            (this.prev != NONE).then(|| self.leaf(this.prev)).map(|prev| prev.slots[prev.len() - 1])
        };
        let after = if index < this.len() {
            Some(this.slots[index])
        } else {
            (this.next != NONE).then(|| self.leaf(this.next).slots[0])
        };
        Neighbours { before, after }
    }

    #[allow(clippy::too_many_arguments, reason = "one entry and where it goes")]
    fn insert_splitting(
        &mut self,
        tree: &mut RangeIndex,
        path: &Path,
        leaf: u32,
        index: usize,
        key: Key,
        bytes: u32,
        slot: u32,
        seq_of: &impl Fn(u32) -> u64,
    ) {
        let right = self.new_leaf();
        let next = self.leaf(leaf).next;
        // Appending (sequential arrivals) leaves full nodes behind; elsewhere both halves get room.
        let at = if index == LEAF && next == NONE { LEAF } else { LEAF / 2 };
        let mut moved = Leaf { len: (LEAF - at) as u32, next, prev: leaf, ..Leaf::empty() };
        {
            let left = self.leaf_mut(leaf);
            moved.offsets[..LEAF - at].copy_from_slice(&left.offsets[at..]);
            moved.bytes[..LEAF - at].copy_from_slice(&left.bytes[at..]);
            moved.slots[..LEAF - at].copy_from_slice(&left.slots[at..]);
            left.len = at as u32;
            left.offsets[at..].fill(VACANT);
            left.next = right;
        }
        if next != NONE {
            self.leaf_mut(next).prev = right;
        }
        if index < at {
            self.leaf_mut(leaf).insert(index, key.offset, bytes, slot);
        } else {
            moved.insert(index - at, key.offset, bytes, slot);
        }
        *self.leaf_mut(right) = moved;

        let first = self.leaf(right).slots[0];
        let separator = Key {
            offset: self.leaf(right).offsets[0],
            seq: if first == slot { key.seq } else { seq_of(first) },
        };
        // Reading the arrival number of every entry would cost a cache miss each: what the parent knew of the whole
        // stays a lower bound of both halves.
        let whole = match path.up().next() {
            Some((parent, index)) => self.summary(parent).seqs[index],
            None => self.min_seq(leaf, slot, seq_of).min(self.min_seq(right, slot, seq_of)).min(key.seq),
        };
        let left_bounds = Bounds { end: self.leaf(leaf).max_end(), seq: whole };
        let right_bounds =
            Bounds { end: self.leaf(right).max_end(), seq: if at == LEAF { key.seq } else { whole } };
        self.add_child(tree, path, (leaf, left_bounds), (separator, right, right_bounds));
    }

    /// The smallest arrival number in a leaf, but for the new entry of `slot`.
    fn min_seq(&self, leaf: u32, slot: u32, seq_of: &impl Fn(u32) -> u64) -> u64 {
        let leaf = self.leaf(leaf);
        leaf.slots[..leaf.len()].iter().filter(|s| **s != slot).map(|&s| seq_of(s)).min().unwrap_or(u64::MAX)
    }

    /// Puts a new right sibling beside the child at the end of `path`, splitting upwards as needed.
    fn add_child(
        &mut self,
        tree: &mut RangeIndex,
        path: &Path,
        mut left: (u32, Bounds),
        mut right: (Key, u32, Bounds),
    ) {
        for (node, index) in path.up() {
            let summary = self.summary_mut(node);
            summary.ends[index] = left.1.end;
            summary.seqs[index] = left.1.seq;
            let (key, child, bounds) = right;
            if self.inner(node).len() < INNER {
                self.insert_child(node, index + 1, key, bounds, child);
                return;
            }
            let at = if index + 1 == INNER { INNER - 1 } else { INNER / 2 };
            let sibling = self.new_inner();
            let moved = self.inner_mut(node).split_off(at);
            let mut moved_summary = Summary::EMPTY;
            moved_summary.append(0, self.summary(node), at, INNER - at);
            *self.inner_mut(sibling) = moved;
            *self.summary_mut(sibling) = moved_summary;
            let separator = self.key(sibling, 0);
            if index < at {
                self.insert_child(node, index + 1, key, bounds, child);
            } else {
                self.insert_child(sibling, index + 1 - at, key, bounds, child);
            }
            left = (node, self.bounds(node));
            right = (separator, sibling, self.bounds(sibling));
        }
        let root = self.new_inner();
        self.insert_child(root, 0, Key { offset: 0, seq: 0 }, left.1, left.0);
        self.insert_child(root, 1, right.0, right.2, right.1);
        tree.root = root;
        tree.height += 1;
    }

    fn key(&self, inner: u32, index: usize) -> Key {
        Key { offset: self.inner(inner).offsets[index], seq: self.summary(inner).ties[index] }
    }

    fn bounds(&self, inner: u32) -> Bounds {
        self.summary(inner).bounds(self.inner(inner).len())
    }

    /// Removes the entry of `slot`, which is in the tree under `key`.
    pub(crate) fn remove(&mut self, tree: &mut RangeIndex, key: Key, slot: u32, seq_of: impl Fn(u32) -> u64) {
        if tree.len == 1 {
            debug_assert_eq!(self.first(tree), Some(slot), "the entry is in the tree");
            self.clear(tree);
            return;
        }
        let (path, leaf) = self.descend(tree, key);
        let index = self.leaf(leaf).lower_bound(key, &seq_of);
        debug_assert_eq!(self.leaf(leaf).slots[index], slot, "the entry is where its key says");
        let end = self.leaf(leaf).end(index);
        self.leaf_mut(leaf).remove(index);
        tree.len -= 1;
        self.lower_ends(&path, leaf, end);
        if self.leaf(leaf).len == 0 {
            self.remove_leaf(&path, leaf);
            self.lower_root(tree);
        } else if self.leaf(leaf).len() < LEAF_MIN {
            self.shrink(tree, &path);
        }
    }

    /// Frees the empty leaf at the end of `path`, and the inner nodes that are empty without it.
    fn remove_leaf(&mut self, path: &Path, leaf: u32) {
        let (prev, next) = (self.leaf(leaf).prev, self.leaf(leaf).next);
        if prev != NONE {
            self.leaf_mut(prev).next = next;
        }
        if next != NONE {
            self.leaf_mut(next).prev = prev;
        }
        self.free_leaf(leaf);
        for (node, index) in path.up() {
            self.remove_child(node, index);
            if self.inner(node).len() > 0 {
                break;
            }
            self.free_inners.push(node);
        }
    }

    /// Drops root nodes that only lead on.
    fn lower_root(&mut self, tree: &mut RangeIndex) {
        while tree.height > 0 && self.inner(tree.root).len == 1 {
            let child = self.inner(tree.root).children[0];
            self.free_inners.push(tree.root);
            tree.root = child;
            tree.height -= 1;
        }
    }

    /// An entry that ended at `removed` is gone from `leaf`, at the bottom of `path`.
    fn lower_ends(&mut self, path: &Path, leaf: u32, removed: u64) {
        let mut below = None;
        for (node, index) in path.up() {
            if self.summary(node).ends[index] != removed {
                return;
            }
            let end = below.unwrap_or_else(|| self.leaf(leaf).max_end());
            self.summary_mut(node).ends[index] = end;
            below = Some(self.bounds(node).end);
        }
    }

    /// The node at the end of `path` is thin: merges it with a neighbour under the same parent where both fit in
    /// three quarters of a node, and goes on upwards.
    fn shrink(&mut self, tree: &mut RangeIndex, path: &Path) {
        for level in (0..path.len).rev() {
            let (parent, index) = (path.steps[level].0, path.steps[level].1 as usize);
            let children_are_leaves = level + 1 == path.len;
            let children = self.inner(parent).len();
            let left = if index + 1 < children { index } else { index.wrapping_sub(1) };
            if left >= children {
                break; // an only child has no neighbour
            }
            let (a, b) = (self.inner(parent).children[left], self.inner(parent).children[left + 1]);
            let merged =
                if children_are_leaves { self.merge_leaves(a, b) } else { self.merge_inners(parent, left) };
            if !merged {
                return;
            }
            let summary = self.summary_mut(parent);
            summary.ends[left] = summary.ends[left].max(summary.ends[left + 1]);
            summary.seqs[left] = summary.seqs[left].min(summary.seqs[left + 1]);
            self.remove_child(parent, left + 1);
            if self.inner(parent).len() >= INNER_MIN {
                return;
            }
        }
        self.lower_root(tree);
    }

    fn merge_leaves(&mut self, a: u32, b: u32) -> bool {
        let (n, m) = (self.leaf(a).len(), self.leaf(b).len());
        if n + m > LEAF * 3 / 4 {
            return false;
        }
        let right = core::mem::replace(self.leaf_mut(b), Leaf::empty());
        let left = self.leaf_mut(a);
        left.offsets[n..n + m].copy_from_slice(&right.offsets[..m]);
        left.bytes[n..n + m].copy_from_slice(&right.bytes[..m]);
        left.slots[n..n + m].copy_from_slice(&right.slots[..m]);
        left.len = (n + m) as u32;
        left.next = right.next;
        if right.next != NONE {
            self.leaf_mut(right.next).prev = a;
        }
        self.free_leaf(b);
        true
    }

    fn merge_inners(&mut self, parent: u32, left: usize) -> bool {
        let (a, b) = (self.inner(parent).children[left], self.inner(parent).children[left + 1]);
        let separator = self.key(parent, left + 1);
        let (n, m) = (self.inner(a).len(), self.inner(b).len());
        if n + m > INNER * 3 / 4 {
            return false;
        }
        let mut right = core::mem::replace(self.inner_mut(b), Inner::EMPTY);
        let mut summary = core::mem::replace(self.summary_mut(b), Summary::EMPTY);
        (right.offsets[0], summary.ties[0]) = (separator.offset, separator.seq);
        self.inner_mut(a).append(n, &right, 0);
        self.summary_mut(a).append(n, &summary, 0, m);
        self.free_inners.push(b);
        true
    }

    /// Forgets all entries of a tree.
    pub(crate) fn clear(&mut self, tree: &mut RangeIndex) {
        if tree.root != NONE {
            self.free(tree.root, tree.height);
        }
        *tree = RangeIndex::default();
    }

    fn free(&mut self, node: u32, height: u8) {
        if height == 0 {
            self.free_leaf(node);
            return;
        }
        for index in 0..self.inner(node).len() {
            self.free(self.inner(node).children[index], height - 1);
        }
        self.free_inners.push(node);
    }

    /// The place of the first entry in order.
    pub(crate) fn begin(&self, tree: &RangeIndex) -> Cursor {
        let leaf = (0..tree.height).fold(tree.root, |node, _| self.inner(node).children[0]);
        Cursor { leaf, index: 0 }
    }

    /// The first entry in order.
    pub(crate) fn first(&self, tree: &RangeIndex) -> Option<u32> {
        self.at(self.begin(tree)).map(|(.., slot)| slot)
    }

    /// The place of the first entry whose key is at least `key`.
    pub(crate) fn seek(&self, tree: &RangeIndex, key: Key, seq_of: impl Fn(u32) -> u64) -> Cursor {
        if tree.root == NONE {
            return Cursor { leaf: NONE, index: 0 };
        }
        let leaf = self.leaf_of(tree, key);
        let index = self.leaf(leaf).lower_bound(key, &seq_of);
        if index < self.leaf(leaf).len() {
            return Cursor { leaf, index };
        }
        Cursor { leaf: self.leaf(leaf).next, index: 0 }
    }

    /// The entry at a place: (offset, bytes, slot).
    pub(crate) fn at(&self, cursor: Cursor) -> Option<(u64, u32, u32)> {
        let leaf = self.leaves.get(cursor.leaf as usize)?;
        Some((leaf.offsets[cursor.index], leaf.bytes[cursor.index], leaf.slots[cursor.index]))
    }

    /// The next place.
    pub(crate) fn forward(&self, cursor: Cursor) -> Cursor {
        let leaf = self.leaf(cursor.leaf);
        if cursor.index + 1 < leaf.len() {
            Cursor { leaf: cursor.leaf, index: cursor.index + 1 }
        } else {
            Cursor { leaf: leaf.next, index: 0 }
        }
    }

    /// The place before.
    pub(crate) fn back(&self, cursor: Cursor) -> Cursor {
        if cursor.index > 0 {
            return Cursor { leaf: cursor.leaf, index: cursor.index - 1 };
        }
        let prev = self.leaf(cursor.leaf).prev;
        Cursor { leaf: prev, index: self.leaves.get(prev as usize).map_or(0, |leaf| leaf.len() - 1) }
    }

    /// An entry that overlaps `[offset, end)` and arrived before `seq`; the last one in order, where there are several.
    pub(crate) fn overlap(
        &self,
        tree: &RangeIndex,
        offset: u64,
        end: u64,
        seq: u64,
        seq_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if tree.root == NONE {
            return None;
        }
        self.overlap_below(tree.root, tree.height, offset, end, seq, &seq_of)
    }

    fn overlap_below(
        &self,
        node: u32,
        height: u8,
        offset: u64,
        end: u64,
        seq: u64,
        seq_of: &impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if height == 0 {
            let leaf = self.leaf(node);
            let before = leaf.offsets[..leaf.len()].partition_point(|&start| start < end);
            return (0..before)
                .rev()
                .find(|&i| leaf.end(i) > offset && seq_of(leaf.slots[i]) < seq)
                .map(|i| leaf.slots[i]);
        }
        let (inner, summary) = (self.inner(node), self.summary(node));
        (0..inner.len())
            .rev()
            .filter(|&i| {
                (i == 0 || inner.offsets[i] < end) && summary.ends[i] > offset && summary.seqs[i] < seq
            })
            .find_map(|i| self.overlap_below(inner.children[i], height - 1, offset, end, seq, seq_of))
    }
}
