//! What a [`Refit`](super::Refit) has learnt, as it outlives it: only what was measured, cell by cell, and nothing of what it began with.
//!
//! A finding says what dispatches of one kind took: so many bytes, of this class, so many in service. Of those beside others it is their
//! share of the time, by Little's law, and not a part of an assumed line: what is assumed may be another thing in another version.

use alloc::collections::BTreeMap;

use super::costs::Class;
use super::fit::{BINS, bin};
use super::{IN_FLIGHT, NS_MAX, Number, interval};
use crate::request::Op;

/// The widest spread of a number.
pub(super) const SPREAD_MAX: u32 = 1_000_000;
/// The most bytes of a dispatch that are told apart.
pub(super) const BYTES_MAX: u64 = u32::MAX as u64 / 2;

/// What dispatches of one kind took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Read or write.
    pub op: Op,
    /// Where they were; beside others either [`Class::Jump`] or [`Class::Next`], which is all that go on.
    pub class: Class,
    /// How many were in service: one of [`IN_FLIGHT`].
    pub in_flight: u32,
    /// How many bytes they had, the mean of the last ones.
    pub bytes: u64,
    /// Nanoseconds of one alone, or with n in service an n-th of what one takes, with how many dispatches that comes from.
    pub ns: Number,
}

/// Operation, class, how many in service, and the doubling of sizes, or the interval of them.
type Key = (u8, u8, u32, u8);

impl Finding {
    fn key(&self) -> Key {
        let size = if self.in_flight == 1 { bin(self.bytes) } else { interval(self.bytes) };
        (self.op as u8, self.class as u8, self.in_flight, size as u8)
    }

    /// Whether anything can have been measured so.
    fn is_possible(&self) -> bool {
        let Finding { class, in_flight, bytes, ns, .. } = *self;
        let alone = in_flight == 1;
        (alone || matches!(class, Class::Jump | Class::Next))
            && IN_FLIGHT.contains(&in_flight)
            && bytes <= BYTES_MAX
            && (1..=NS_MAX).contains(&ns.value)
            && ns.count > 0
            && ns.spread <= SPREAD_MAX
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    cells: BTreeMap<Key, Finding>,
    /// Dispatches beside others, by operation and doubling of sizes.
    beside: [[u32; BINS]; 2],
}

impl Findings {
    /// Adds a finding, in place of one of the same kind; whether it can be one.
    pub fn add(&mut self, finding: Finding) -> bool {
        let is_possible = finding.is_possible();
        if is_possible {
            self.cells.insert(finding.key(), finding);
        }
        is_possible
    }

    /// So many dispatches of about this size were seen beside others.
    pub fn set_beside(&mut self, op: Op, bytes: u64, dispatches: u32) {
        self.beside[op as usize][bin(bytes)] = dispatches;
    }

    /// What was found, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.cells.values()
    }

    /// How many dispatches were seen beside others: operation, the largest bytes of a doubling, dispatches.
    pub fn beside(&self) -> impl Iterator<Item = (Op, u64, u32)> + '_ {
        let of = |op: Op| {
            let counts = self.beside[op as usize].iter().enumerate();
            counts.map(move |(bin, count)| (op, 4_096 << bin, *count)).filter(|(_, _, count)| *count > 0)
        };
        of(Op::Read).chain(of(Op::Write))
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Dispatches behind all of it.
    pub fn dispatches(&self) -> u64 {
        self.cells.values().map(|finding| u64::from(finding.ns.count)).sum()
    }

    /// What is to be kept, where `kept` is there by now, and these are the findings of one that began with `start`: what it has measured
    /// since is its own, whoever else has, and all else stays as somebody else may have found it meanwhile.
    #[must_use]
    pub fn onto(&self, kept: &Findings, start: &Findings) -> Findings {
        let mut all = kept.clone();
        let measured = self.cells.iter().filter(|(key, finding)| start.cells.get(*key) != Some(*finding));
        all.cells.extend(measured.map(|(key, finding)| (*key, *finding)));
        for (all, seen) in all.beside.iter_mut().flatten().zip(self.beside.iter().flatten()) {
            *all = (*all).max(*seen);
        }
        all
    }
}
