//! What a gate counts, in bounded memory.
//!
//! Totals carry histograms; files, applications and targets carry sums, for at most [`TRACKED_MAX`] of each
//! (those that come later are counted together, under `other`).

mod histogram;

use alloc::vec::Vec;

pub use histogram::Histogram;

use crate::gate::WaitReason;
use crate::request::{AppId, FileId, TargetId};
use crate::time::{Span, Time};

/// How many files, applications and targets are counted one by one.
pub const TRACKED_MAX: usize = 1024;

/// Everything a gate counts.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Reads and writes, in this order.
    pub ops: [OpStats; 2],
    /// Requests that had to wait for an earlier, conflicting one, and for how long (ns).
    pub held_ns: Histogram,
    /// Bytes served of each quantum granted, in percent (aioli, mlf).
    pub quantum_utilisation_percent: Histogram,
    /// Deliberate waits, by reason.
    pub waits: Vec<WaitStats>,
    /// Requests whose issue time was implausible and that counted by their arrival (app-window).
    pub skewed: u64,
    /// Submissions refused because the gate was full.
    pub rejected_full: u64,
    /// Live changes of algorithm.
    pub switches: u64,
    /// Per file.
    pub files: Vec<(FileId, Sums)>,
    /// Per application.
    pub apps: Vec<(AppId, Sums)>,
    /// Per target.
    pub targets: Vec<(TargetId, Sums)>,
}

/// Counts of one operation over all files.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    /// Sizes of requests as they arrived (bytes). Its count is the number of requests, its sum their bytes.
    pub request_bytes: Histogram,
    /// Sizes of dispatches as they left (bytes).
    pub dispatch_bytes: Histogram,
    /// Requests per dispatch.
    pub dispatch_requests: Histogram,
    /// Distance between the end of a dispatch and the start of the next one to the same file (bytes): the
    /// "offset distance" of the TWINS thesis, table 3.2.
    pub offset_distance_bytes: Histogram,
    /// From arrival to dispatch (ns).
    pub waiting_ns: Histogram,
    /// From dispatch to completion (ns), per dispatch.
    pub service_ns: Histogram,
    /// Requests in dispatches that the store failed.
    pub failed: u64,
}

/// Deliberate waits of one kind.
#[derive(Clone, Copy, Debug)]
pub struct WaitStats {
    /// Why.
    pub reason: WaitReason,
    /// How often.
    pub count: u64,
    /// For how long altogether.
    pub total: Span,
}

/// Sums over the requests of one file, application or target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Requests completed.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches that they left in.
    pub dispatches: u64,
    /// Sum of their waiting times.
    pub waiting: Span,
    /// The longest waiting time.
    pub waiting_max: Span,
    /// Arrival of the first.
    pub first: Time,
    /// Completion of the last.
    pub last: Time,
}
