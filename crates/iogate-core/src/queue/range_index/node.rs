//! The nodes of the trees: leaves with entries, inner nodes with children.

use core::array::from_fn;

use super::{Key, NONE};

/// Entries of a leaf: 512 bytes, whole cache lines.
pub(super) const LEAF: usize = 31;
/// Children of an inner node: 256 bytes for what a search reads.
pub(super) const INNER: usize = 20;
/// In place of the offset of an entry that is not there: no range begins there.
pub(super) const VACANT: u64 = u64::MAX;
#[repr(align(64))]
pub(super) struct Leaf {
    pub(super) len: u32,
    pub(super) next: u32,
    pub(super) prev: u32,
    pub(super) offsets: [u64; LEAF],
    pub(super) bytes: [u32; LEAF],
    pub(super) slots: [u32; LEAF],
}

/// The part of an inner node that a search reads.
#[repr(align(64))]
pub(super) struct Inner {
    pub(super) len: u32,
    /// A lower bound of the offsets below each child; the first child's is not read.
    pub(super) offsets: [u64; INNER],
    pub(super) children: [u32; INNER],
}

/// The other part.
pub(super) struct Summary {
    /// The arrival number that goes with each lower bound, for entries of equal offset.
    pub(super) ties: [u64; INNER],
    /// The largest end below each child, exact.
    pub(super) ends: [u64; INNER],
    /// A lower bound of the arrival numbers below each child.
    pub(super) seqs: [u64; INNER],
}

/// What a node tells its parent about itself.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) end: u64,
    pub(super) seq: u64,
}

/// Offsets of a leaf that are in a line of the cache.
const BLOCK: usize = 8;
const _: () = assert!(LEAF == 4 * BLOCK - 1 && INNER.is_multiple_of(5), "whole blocks");

/// How many there are, without a branch.
#[inline]
fn count<const N: usize>(values: [u64; N], is: impl Fn(u64) -> bool) -> usize {
    values.into_iter().map(|value| usize::from(is(value))).sum()
}

/// Inserts into the first `len` elements of an array.
fn insert_at<T: Copy>(array: &mut [T], len: usize, index: usize, value: T) {
    array.copy_within(index..len, index + 1);
    array[index] = value;
}

impl Leaf {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn empty() -> Leaf {
        Leaf {
            len: 0,
            next: NONE,
            prev: NONE,
            offsets: [VACANT; LEAF],
            bytes: [0; LEAF],
            slots: [NONE; LEAF],
        }
    }

    /// Forgets all entries and neighbours.
    pub(super) fn vacate(&mut self) {
        let len = self.len();
        self.offsets[..len].fill(VACANT);
        (self.len, self.next, self.prev) = (0, NONE, NONE);
    }

    /// The only entry of a leaf that has none.
    pub(super) fn put_first(&mut self, offset: u64, bytes: u32, slot: u32) {
        debug_assert_eq!(self.len, 0, "the leaf is empty");
        (self.offsets[0], self.bytes[0], self.slots[0]) = (offset, bytes, slot);
        self.len = 1;
    }

    pub(super) fn insert(&mut self, index: usize, offset: u64, bytes: u32, slot: u32) {
        let len = self.len();
        insert_at(&mut self.offsets, len, index, offset);
        insert_at(&mut self.bytes, len, index, bytes);
        insert_at(&mut self.slots, len, index, slot);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, index: usize) {
        let len = self.len();
        self.offsets.copy_within(index + 1..len, index);
        self.offsets[len - 1] = VACANT;
        self.bytes.copy_within(index + 1..len, index);
        self.slots.copy_within(index + 1..len, index);
        self.len -= 1;
    }

    pub(super) fn end(&self, index: usize) -> u64 {
        self.offsets[index] + u64::from(self.bytes[index])
    }

    pub(super) fn max_end(&self) -> u64 {
        (0..self.len()).map(|i| self.end(i)).max().unwrap_or(0)
    }

    /// Index of the first entry whose key is at least `key`.
    pub(super) fn lower_bound(&self, key: Key, seq_of: &impl Fn(u32) -> u64) -> usize {
        let ends = [BLOCK - 1, 2 * BLOCK - 1, 3 * BLOCK - 1];
        let block = BLOCK * count(ends.map(|end| self.offsets[end]), |offset| offset < key.offset);
        let rest: [u64; BLOCK - 1] = from_fn(|index| self.offsets[block + index]);
        let mut index = block + count(rest, |offset| offset < key.offset);
        while index < self.len() && self.offsets[index] == key.offset && seq_of(self.slots[index]) < key.seq {
            index += 1;
        }
        index
    }
}

impl Inner {
    pub(super) const EMPTY: Inner = Inner { len: 0, offsets: [VACANT; INNER], children: [NONE; INNER] };

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn insert(&mut self, index: usize, offset: u64, child: u32) {
        let len = self.len();
        insert_at(&mut self.offsets, len, index, offset);
        insert_at(&mut self.children, len, index, child);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, index: usize) {
        let len = self.len();
        self.offsets.copy_within(index + 1..len, index);
        self.offsets[len - 1] = VACANT;
        self.children.copy_within(index + 1..len, index);
        self.len -= 1;
    }

    /// Index of the last child whose lower bound is at most `offset`; the first, whose bound is not read, where there is none.
    #[inline]
    pub(super) fn last_from(&self, offset: u64) -> usize {
        const BLOCK: usize = INNER / 5;
        let begins: [u64; 4] = from_fn(|index| self.offsets[BLOCK * (index + 1)]);
        let block = BLOCK * count(begins, |begin| begin <= offset);
        let rest: [u64; BLOCK - 1] = from_fn(|index| self.offsets[block + 1 + index]);
        block + count(rest, |begin| begin <= offset)
    }

    /// Moves the children from `at` on into an empty node.
    pub(super) fn split_off(&mut self, at: usize) -> Inner {
        let mut right = Inner::EMPTY;
        right.append(0, self, at);
        self.offsets[at..].fill(VACANT);
        self.len = at as u32;
        right
    }

    /// Puts the children of `other` from `at` on behind the first `len`.
    pub(super) fn append(&mut self, len: usize, other: &Inner, at: usize) {
        let more = other.len() - at;
        self.offsets[len..len + more].copy_from_slice(&other.offsets[at..at + more]);
        self.children[len..len + more].copy_from_slice(&other.children[at..at + more]);
        self.len = (len + more) as u32;
    }
}

impl Summary {
    pub(super) const EMPTY: Summary = Summary { ties: [0; INNER], ends: [0; INNER], seqs: [0; INNER] };

    pub(super) fn insert(&mut self, len: usize, index: usize, tie: u64, bounds: Bounds) {
        insert_at(&mut self.ties, len, index, tie);
        insert_at(&mut self.ends, len, index, bounds.end);
        insert_at(&mut self.seqs, len, index, bounds.seq);
    }

    pub(super) fn remove(&mut self, len: usize, index: usize) {
        self.ties.copy_within(index + 1..len, index);
        self.ends.copy_within(index + 1..len, index);
        self.seqs.copy_within(index + 1..len, index);
    }

    pub(super) fn append(&mut self, len: usize, other: &Summary, at: usize, more: usize) {
        self.ties[len..len + more].copy_from_slice(&other.ties[at..at + more]);
        self.ends[len..len + more].copy_from_slice(&other.ends[at..at + more]);
        self.seqs[len..len + more].copy_from_slice(&other.seqs[at..at + more]);
    }

    /// Over the first `len` children.
    pub(super) fn bounds(&self, len: usize) -> Bounds {
        Bounds {
            end: self.ends[..len].iter().copied().max().unwrap_or(0),
            seq: self.seqs[..len].iter().copied().min().unwrap_or(u64::MAX),
        }
    }
}
