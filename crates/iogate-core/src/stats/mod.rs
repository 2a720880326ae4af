//! What a gate counts, in bounded memory.
//!
//! Sums of times stay at the largest number once they would be larger, 584 years: see [`Span`]. Counts of requests and bytes are never as
//! large.
//!
//! Totals carry histograms; files, applications and targets carry sums, for at most [`TRACKED_MAX`] of each.

pub mod buckets;
pub mod counters;
mod histogram;
mod now;
pub mod summary;
pub mod top;
mod tracked;

pub use histogram::Histogram;
pub use tracked::Tracked;

use crate::request::{AppId, FileId, Op, TargetId};
use crate::time::{Span, Time};
use crate::units::SECOND;
use crate::wait::WaitReason;

/// How many files, applications and targets are counted one by one; others are counted together: files and targets that come later,
/// applications that were idle for longest.
pub const TRACKED_MAX: usize = 1024;

/// Everything a gate counts.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stats {
    /// Reads and writes, in this order.
    pub ops: [OpStats; 2],
    /// Requests held back for an earlier, conflicting one, by [`Conflict`]: for how long, in ns.
    pub held_ns: [Histogram; 3],
    /// Bytes served of each quantum granted, in percent; above 100 is not possible (aioli, mlf).
    pub quantum_utilisation_percent: Histogram,
    /// Deliberate waits, by [`WaitReason`].
    pub waits: [WaitStats; WaitReason::ALL.len()],
    /// Requests whose issue time was implausible and that counted by their arrival (app-window).
    pub skewed: u64,
    /// Submissions refused because the gate was full.
    pub rejected_full: u64,
    /// Live changes of algorithm.
    pub switches: u64,
    /// Per file.
    pub files: Tracked<FileId>,
    /// Per application, of those that were counted of late.
    pub apps: Tracked<AppId>,
    /// Per target.
    pub targets: Tracked<TargetId>,
    /// Whether nothing is counted but sums over all requests.
    #[cfg_attr(feature = "serde", serde(skip))]
    sums_only: bool,
}

impl Stats {
    /// For a gate of many like it, of which nobody looks at distributions, files, applications and targets: these stay empty.
    pub(crate) fn sums_only() -> Stats {
        let histogram = Histogram::without_buckets;
        let op = || OpStats {
            request_bytes: histogram(),
            dispatch_bytes: histogram(),
            dispatch_requests: histogram(),
            offset_distance_bytes: histogram(),
            waiting_ns: histogram(),
            service_ns: histogram(),
            failed: 0,
        };
        Stats {
            ops: [op(), op()],
            held_ns: [histogram(), histogram(), histogram()],
            quantum_utilisation_percent: histogram(),
            waits: Default::default(),
            skewed: 0,
            rejected_full: 0,
            switches: 0,
            files: Tracked::default(),
            apps: Tracked::default(),
            targets: Tracked::default(),
            sums_only: true,
        }
    }

    pub(crate) fn is_sums_only(&self) -> bool {
        self.sums_only
    }

    /// Counts of one operation.
    pub fn op(&self, op: Op) -> &OpStats {
        &self.ops[op as usize]
    }
}

/// Why a request was held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Conflict {
    /// A read of bytes that an earlier request writes.
    ReadAfterWrite,
    /// A write of bytes that an earlier request reads.
    WriteAfterRead,
    /// A write of bytes that an earlier request writes.
    WriteAfterWrite,
}

impl Conflict {
    /// All of them, in the order of [`Stats::held_ns`].
    pub const ALL: [Conflict; 3] =
        [Conflict::ReadAfterWrite, Conflict::WriteAfterRead, Conflict::WriteAfterWrite];

    pub(crate) fn of(earlier: Op, later: Op) -> Conflict {
        match (earlier, later) {
            (_, Op::Read) => Conflict::ReadAfterWrite,
            (Op::Read, Op::Write) => Conflict::WriteAfterRead,
            (Op::Write, Op::Write) => Conflict::WriteAfterWrite,
        }
    }
}

/// Counts of one operation over all files.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpStats {
    /// Sizes of requests as they arrived (bytes). Its count is the number of requests, its sum their bytes.
    pub request_bytes: Histogram,
    /// Sizes of dispatches as they left (bytes).
    pub dispatch_bytes: Histogram,
    /// Requests (or pieces of split ones) per dispatch.
    pub dispatch_requests: Histogram,
    /// Distance between the end of a dispatch and the start of the next one of this operation to the same file
    /// (bytes): the offset distance of the TWINS thesis, table 3.2.
    pub offset_distance_bytes: Histogram,
    /// From arrival to dispatch (ns), per request or piece.
    pub waiting_ns: Histogram,
    /// From dispatch to completion (ns), per dispatch.
    pub service_ns: Histogram,
    /// Dispatches that the store failed.
    pub failed: u64,
}

/// Deliberate waits of one kind.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WaitStats {
    /// How often.
    pub count: u64,
    /// For how long altogether; it stays at [`Span::MAX`] once that would be longer.
    pub total: Span,
}

/// Sums over the completed requests of one file, application or target.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sums {
    /// Requests (or pieces of split ones).
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches in which they left. One that several applications share counts for each.
    pub dispatches: u64,
    /// Sum of their waiting times; it stays at [`Span::MAX`] once it would be longer.
    pub waiting: Span,
    /// The longest waiting time.
    pub waiting_max: Span,
    /// Arrival of the first; `Time::MAX` if there was none.
    pub first: Time,
    /// Completion of the last.
    pub last: Time,
    /// What was served of late: bytes read, bytes written, requests, and their times from arrival to completion, in ns. Of
    /// applications only.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub recent: Recent<4>,
}

/// What was counted in the second that goes on, and in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent<const N: usize> {
    second: u64,
    this: [u64; N],
    before: [u64; N],
}

impl<const N: usize> Default for Recent<N> {
    fn default() -> Recent<N> {
        Recent { second: 0, this: [0; N], before: [0; N] }
    }
}

impl<const N: usize> Recent<N> {
    pub(crate) fn add(&mut self, now: Time, more: [u64; N]) {
        // Most come in the second of the one before: then there is nothing to move.
        if now.as_nanos() / SECOND > self.second {
            *self = self.at(now);
        }
        self.this.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// What a second has of each, over the last second: what was counted in the one before counts as evenly spread over it.
    pub fn rates(&self, now: Time) -> [u64; N] {
        let Recent { this, before, .. } = self.at(now);
        let left = SECOND - now.as_nanos() % SECOND;
        core::array::from_fn(|index| {
            let before = u128::from(before[index]) * u128::from(left) / u128::from(SECOND);
            this[index].saturating_add(before as u64)
        })
    }

    /// As it is at this time, or at the latest that it has seen.
    fn at(&self, now: Time) -> Recent<N> {
        let second = now.as_nanos() / SECOND;
        match second.saturating_sub(self.second) {
            0 => *self,
            1 => Recent { second, this: [0; N], before: self.this },
            _ => Recent { second, ..Recent::default() },
        }
    }
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            requests: 0,
            bytes: 0,
            dispatches: 0,
            waiting: Span::ZERO,
            waiting_max: Span::ZERO,
            first: Time::MAX,
            last: Time::ZERO,
            recent: Recent::default(),
        }
    }
}

impl Sums {
    /// Counts a dispatch, or what this has of one, that has completed.
    pub(crate) fn add(&mut self, counted: &Counted, completed: Time) {
        self.requests += counted.requests;
        self.bytes += counted.bytes;
        self.dispatches += 1;
        self.waiting += counted.waiting;
        self.waiting_max = self.waiting_max.max(counted.waiting_max);
        self.first = self.first.min(counted.first);
        self.last = self.last.max(completed);
    }

    /// Counts all that another one has, but what was of late.
    pub(crate) fn join(&mut self, more: &Sums) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.dispatches += more.dispatches;
        self.waiting += more.waiting;
        self.waiting_max = self.waiting_max.max(more.waiting_max);
        self.first = self.first.min(more.first);
        self.last = self.last.max(more.last);
    }
}

/// Requests of one dispatch, as [`Sums`] count them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) waiting: Span,
    waiting_max: Span,
    first: Time,
}

impl Counted {
    /// No request.
    pub(crate) const NONE: Counted =
        Counted { requests: 0, bytes: 0, waiting: Span::ZERO, waiting_max: Span::ZERO, first: Time::MAX };

    /// Counts one more, which has waited.
    pub(crate) fn add(&mut self, bytes: u32, arrival: Time, waited: Span) {
        self.requests += 1;
        self.bytes += u64::from(bytes);
        self.waiting += waited;
        self.waiting_max = self.waiting_max.max(waited);
        self.first = self.first.min(arrival);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_second() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut recent = Recent::default();
        assert_eq!(recent.rates(at(10)), [0, 0]);
        // 100 bytes every 10 ms, from 5.0 s to 8.5 s.
        for index in 0..350 {
            recent.add(at(5_000 + index * 10), [100, 1]);
        }
        assert_eq!(recent.rates(at(8_500)), [10_000, 100]);
        assert_eq!(recent.rates(at(9_000)), [5_000, 50], "half of that second was idle");
        assert_eq!(recent.rates(at(9_500)), [2_500, 25]);
        assert_eq!(recent.rates(at(10_000)), [0, 0]);
        // A clock that is late changes nothing.
        assert_eq!(recent.rates(at(8_000)), recent.rates(at(8_000)));
    }
}
