//! Which accesses of which disks a read or a write of an array is.

use alloc::vec::Vec;

use crate::device::Transfer;
use crate::request::Op;

/// How chunks lie on the disks: in rows, the parity of each row one disk further to the left (left-symmetric).
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) members: usize,
    pub(super) parity: usize,
    pub(super) chunk: u64,
}

/// An access of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) member: usize,
    pub(super) transfer: Transfer,
}

impl Geometry {
    fn data(&self) -> usize {
        self.members - self.parity
    }

    /// Bytes of data in a row.
    pub(super) fn row_bytes(&self) -> u64 {
        self.chunk * self.data() as u64
    }

    /// The disk with the first parity of a row; the second is on the next, and data begin behind.
    fn parity_of(&self, row: u64) -> usize {
        self.members - 1 - (row % self.members as u64) as usize
    }

    fn data_member(&self, row: u64, index: usize) -> usize {
        (self.parity_of(row) + self.parity + index) % self.members
    }

    fn is_parity(&self, row: u64, member: usize) -> bool {
        (member + self.members - self.parity_of(row)) % self.members < self.parity
    }

    /// Rows that `address..end` has a part of, and those that it has wholly.
    fn rows(&self, address: u64, end: u64) -> (core::ops::Range<u64>, core::ops::Range<u64>) {
        let row = self.row_bytes();
        let whole = address.div_ceil(row)..(end / row).max(address.div_ceil(row));
        (address / row..end.div_ceil(row), whole)
    }

    /// Rows that `address..end` has only a part of: at most two.
    fn partial(&self, address: u64, end: u64) -> impl Iterator<Item = u64> + use<> {
        let (touched, whole) = self.rows(address, end);
        let (first, last) = (touched.start, touched.end - 1);
        let one = (!whole.contains(&first)).then_some(first);
        let other = (last != first && !whole.contains(&last)).then_some(last);
        one.into_iter().chain(other)
    }

    /// What `address..end` has of each data chunk of a row, within the chunk; none of it is an empty range.
    fn touched(&self, row: u64, address: u64, end: u64) -> Vec<(u64, u64)> {
        let start = row * self.row_bytes();
        (0..self.data() as u64)
            .map(|index| {
                let chunk = start + index * self.chunk;
                let within = |byte: u64| byte.clamp(chunk, chunk + self.chunk) - chunk;
                (within(address), within(end))
            })
            .collect()
    }

    fn part(&self, op: Op, member: usize, row: u64, (from, to): (u64, u64)) -> Option<Part> {
        let transfer = Transfer { op, address: row * self.chunk + from, bytes: to - from };
        (from < to).then_some(Part { member, transfer })
    }

    /// The accesses of a read.
    pub(super) fn read(&self, address: u64, end: u64) -> Vec<Part> {
        let (_, whole) = self.rows(address, end);
        let mut parts = Vec::new();
        for row in self.partial(address, end) {
            let ranges = self.touched(row, address, end);
            let ranges = ranges.into_iter().enumerate();
            parts.extend(
                ranges.filter_map(|(index, range)| {
                    self.part(Op::Read, self.data_member(row, index), row, range)
                }),
            );
        }
        let rows = whole.end - whole.start;
        for member in 0..self.members {
            // A single row is read without its parity, several in one pass.
            if rows > 1 || rows == 1 && !self.is_parity(whole.start, member) {
                parts.extend(self.part(Op::Read, member, whole.start, (0, rows * self.chunk)));
            }
        }
        merged(parts)
    }

    /// The accesses of a write: what is read before, and what is written then.
    pub(super) fn write(&self, address: u64, end: u64) -> (Vec<Part>, Vec<Part>) {
        let (_, whole) = self.rows(address, end);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for row in self.partial(address, end) {
            let ranges = self.touched(row, address, end);
            let from =
                ranges.iter().filter(|range| range.0 < range.1).map(|range| range.0).min().unwrap_or(0);
            let to =
                ranges.iter().map(|range| if range.0 < range.1 { range.1 } else { 0 }).max().unwrap_or(0);
            let parity = || (0..self.parity).map(|index| (self.parity_of(row) + index) % self.members);
            let touched = ranges.iter().filter(|range| range.0 < range.1).count();
            let covered = ranges.iter().filter(|range| range.0 <= from && range.1 >= to).count();
            for (index, range) in ranges.iter().enumerate() {
                let member = self.data_member(row, index);
                writes.extend(self.part(Op::Write, member, row, *range));
                if touched + self.parity <= self.data() - covered {
                    reads.extend(self.part(Op::Read, member, row, *range));
                } else if range.0 > from || range.1 < to {
                    // The rest of the row, as far as the parity changes.
                    reads.extend(self.part(Op::Read, member, row, (from, to)));
                }
            }
            writes.extend(parity().filter_map(|member| self.part(Op::Write, member, row, (from, to))));
            if touched + self.parity <= self.data() - covered {
                reads.extend(parity().filter_map(|member| self.part(Op::Read, member, row, (from, to))));
            }
        }
        for member in 0..self.members {
            let rows = (0, (whole.end - whole.start) * self.chunk);
            writes.extend(self.part(Op::Write, member, whole.start, rows));
        }
        (merged(reads), merged(writes))
    }
}

/// Neighbours on a disk become one access.
fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable_by_key(|part| (part.member, part.transfer.address));
    let mut merged: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        match merged.last_mut() {
            Some(last)
                if last.member == part.member
                    && last.transfer.address + last.transfer.bytes >= part.transfer.address =>
            {
                let end = (last.transfer.address + last.transfer.bytes)
                    .max(part.transfer.address + part.transfer.bytes);
                last.transfer.bytes = end - last.transfer.address;
            }
            _ => merged.push(part),
        }
    }
    merged
}
