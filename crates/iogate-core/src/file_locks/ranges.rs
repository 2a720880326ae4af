//! Locks of one file's bytes, as POSIX has them: a further lock of an owner replaces what it has of those bytes.

use alloc::vec::Vec;

use crate::wire::lock;

/// Bytes from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// All bytes.
    pub const ALL: ByteRange = ByteRange { first: 0, last: u64::MAX };

    /// From `first` to `last`; `None` if that is before it.
    pub fn new(first: u64, last: u64) -> Option<ByteRange> {
        (first <= last).then_some(ByteRange { first, last })
    }

    /// Its first byte.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Its last byte.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// What both have.
    pub(crate) fn common(&self, other: &ByteRange) -> Option<ByteRange> {
        ByteRange::new(self.first.max(other.first), self.last.min(other.last))
    }

    fn overlaps(&self, other: &ByteRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether one goes on where the other ends, or they overlap.
    fn touches(&self, other: &ByteRange) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// What is left of it, before and behind the other one.
    fn without(&self, other: &ByteRange) -> [Option<ByteRange>; 2] {
        let before =
            other.first.checked_sub(1).and_then(|last| ByteRange::new(self.first, last.min(self.last)));
        let behind =
            other.last.checked_add(1).and_then(|first| ByteRange::new(first.max(self.first), self.last));
        [before, behind]
    }
}

/// Whether others may have a lock, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Others may share it.
    Shared,
    /// Nobody else has one.
    Exclusive,
}

impl Kind {
    /// Its number in the protocol.
    pub fn number(self) -> u8 {
        match self {
            Kind::Shared => lock::SHARED,
            Kind::Exclusive => lock::EXCLUSIVE,
        }
    }
}

/// A lock that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<O> {
    /// Whose it is.
    pub owner: O,
    /// Whether others may share it.
    pub kind: Kind,
    /// Of which bytes.
    pub range: ByteRange,
    /// The process that has taken it, for people.
    pub process: u32,
}

/// The locks of a file. No two of one owner overlap, and no two of one owner and kind touch.
#[derive(Clone, Debug)]
pub struct RangeLocks<O> {
    /// By their first bytes.
    held: Vec<Held<O>>,
}

impl<O> Default for RangeLocks<O> {
    fn default() -> RangeLocks<O> {
        RangeLocks { held: Vec::new() }
    }
}

impl<O: Copy + PartialEq> RangeLocks<O> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// All of them, by their first bytes.
    pub fn iter(&self) -> impl Iterator<Item = &Held<O>> {
        self.held.iter()
    }

    /// The first lock of somebody else that such a one would not go together with.
    pub fn in_the_way(&self, owner: O, kind: Kind, range: ByteRange) -> Option<Held<O>> {
        let conflicts = |held: &&Held<O>| {
            held.owner != owner
                && held.range.overlaps(&range)
                && (kind == Kind::Exclusive || held.kind == Kind::Exclusive)
        };
        self.held.iter().take_while(|held| held.range.first <= range.last).find(conflicts).copied()
    }

    /// Gives a lock, in place of what its owner has of these bytes.
    ///
    /// # Errors
    /// A lock that is in the way. Nothing is changed then.
    pub fn lock(&mut self, mut wanted: Held<O>) -> Result<(), Held<O>> {
        if let Some(held) = self.in_the_way(wanted.owner, wanted.kind, wanted.range) {
            return Err(held);
        }
        self.unlock(wanted.owner, wanted.range);
        // What touches it on either side becomes one with it.
        self.held.retain(|held| {
            let joins =
                held.owner == wanted.owner && held.kind == wanted.kind && held.range.touches(&wanted.range);
            if joins {
                wanted.range.first = wanted.range.first.min(held.range.first);
                wanted.range.last = wanted.range.last.max(held.range.last);
            }
            !joins
        });
        self.insert(wanted);
        Ok(())
    }

    /// Takes what an owner has of these bytes from it.
    pub fn unlock(&mut self, owner: O, range: ByteRange) {
        let mut left = Vec::new();
        self.held.retain(|held| {
            let is_cut = held.owner == owner && held.range.overlaps(&range);
            if is_cut {
                left.extend(
                    held.range.without(&range).into_iter().flatten().map(|range| Held { range, ..*held }),
                );
            }
            !is_cut
        });
        left.into_iter().for_each(|held| self.insert(held));
    }

    /// What all of them have together of a range, part by part from its first byte to its last: the stronger kind that anybody has, or
    /// `None`. Neighbours differ.
    pub fn together(&self, range: ByteRange) -> Vec<(Option<Kind>, ByteRange)> {
        // Where one begins, and where one is over.
        let mut changes: Vec<(u64, Kind, bool)> = Vec::new();
        for held in
            self.held.iter().filter_map(|held| Some(Held { range: held.range.common(&range)?, ..*held }))
        {
            changes.push((held.range.first, held.kind, true));
            changes.extend(held.range.last.checked_add(1).map(|next| (next, held.kind, false)));
        }
        changes.sort_unstable_by_key(|&(at, ..)| at);
        let mut parts: Vec<(Option<Kind>, ByteRange)> = Vec::new();
        let (mut first, mut shared, mut exclusive) = (range.first, 0_usize, 0_usize);
        let mut part = |first: u64, last: u64, shared: usize, exclusive: usize| {
            let kind = match (shared, exclusive) {
                (0, 0) => None,
                (_, 0) => Some(Kind::Shared),
                _ => Some(Kind::Exclusive),
            };
            match parts.last_mut() {
                Some((before, range)) if *before == kind => range.last = last,
                _ => parts.push((kind, ByteRange { first, last })),
            }
        };
        for (at, kind, begins) in changes {
            if at > range.last {
                break;
            }
            if at > first {
                part(first, at - 1, shared, exclusive);
                first = at;
            }
            let count = if kind == Kind::Shared { &mut shared } else { &mut exclusive };
            if begins { *count += 1 } else { *count -= 1 }
        }
        part(first, range.last, shared, exclusive);
        parts
    }

    /// Takes all that these owners have.
    pub fn release(&mut self, is_one: impl Fn(O) -> bool) {
        self.held.retain(|held| !is_one(held.owner));
    }

    fn insert(&mut self, held: Held<O>) {
        let index = self.held.partition_point(|other| other.range.first <= held.range.first);
        self.held.insert(index, held);
    }
}
