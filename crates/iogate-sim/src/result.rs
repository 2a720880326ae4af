//! What one run did: plain sums, from which all metrics are computed.

use iogate_core::stats::Stats;
use iogate_core::{Span, Time, WaitReason};

use crate::cache::CacheStats;
pub use crate::call_times::CallTimes;
use crate::scenario::App;

/// One run of a scenario with one seed, simulated or real.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RunResult {
    /// Its seed.
    pub seed: u64,
    /// From the start of the first application to the end of the last.
    pub makespan: Span,
    /// The applications, in the order of the scenario.
    pub apps: Vec<AppResult>,
    /// Of a scenario with groups: each group, and behind it the applications in it; then those that are in none.
    pub classes: Vec<ClassResult>,
    /// The data servers.
    pub servers: Vec<ServerResult>,
    /// The gates of each layer, summed: clients (if they have gates), forwarders, servers.
    pub layers: Vec<LayerResult>,
    /// The page caches of each layer that has some, summed: its name, and what they did.
    pub caches: Vec<(String, CacheStats)>,
    /// The network.
    pub network: NetworkResult,
    /// Requests that reached the servers: what the speed of the simulator is counted in.
    pub requests: u64,
    /// Whether the time limit ended it.
    pub cut_off: bool,
}

/// What one application did.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AppResult {
    /// Its name.
    pub name: String,
    /// Its application id.
    pub id: u32,
    /// When it was submitted.
    pub submitted: Time,
    /// When it started.
    pub start: Time,
    /// When its last process ended.
    pub end: Time,
    /// Whether it was lost with a client node.
    pub lost: bool,
    /// How many processes it has.
    pub processes: u32,
    /// Calls that completed.
    pub calls: u64,
    /// Bytes of calls that completed.
    pub bytes: u64,
    /// From call to completion, summed.
    pub call_time: Span,
    /// The longest.
    pub call_time_max: Span,
    /// How long each took; empty where only sums are known, as of real processes.
    pub call_times: CallTimes,
    /// Time between barriers around one call, summed over the calls of rank 0 (with [`crate::scenario::Barrier::Call`]).
    pub step_time: Span,
    /// How many of these.
    pub steps: u64,
    /// The I/O phases: from when the first process began it to when the last had ended it.
    pub phases: Vec<Phase>,
    /// When each server completed its last request of this application; `None` where there was none.
    pub server_finish: Vec<Option<Time>>,
    /// How it came by its turns.
    pub turns: TurnsResult,
    /// How long it ran with nobody else, where that was asked for.
    pub alone: Option<Span>,
}

impl AppResult {
    /// Of an application that starts then, and has done nothing yet.
    pub fn new(app: &App, start: Time) -> AppResult {
        AppResult {
            name: app.name.clone(),
            id: app.id,
            submitted: Time::ZERO + app.start,
            start,
            end: start,
            lost: false,
            processes: app.processes,
            calls: 0,
            bytes: 0,
            call_time: Span::ZERO,
            call_time_max: Span::ZERO,
            call_times: CallTimes::default(),
            step_time: Span::ZERO,
            steps: 0,
            phases: Vec::new(),
            server_finish: Vec::new(),
            turns: TurnsResult::default(),
            alone: None,
        }
    }
}

/// What a group of applications did, or an application where there are groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClassResult {
    /// Its name.
    pub name: String,
    /// The group that it is in.
    pub group: Option<String>,
    /// Whether it is a group.
    pub is_group: bool,
    /// Bytes of calls that completed.
    pub bytes: u64,
    /// From the start of its first application to the end of its last.
    pub time: Span,
    /// What of these bytes it had beside all others: from when each group, and each application that is in none, had begun until the
    /// first of them had ended.
    pub beside_bytes: u64,
    /// What all of them together had in that time; 0: there was none.
    pub beside_bytes_all: u64,
}

/// How an application came by its turns at the I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TurnsResult {
    /// From claims to grants, summed.
    pub waited: Span,
    /// Grants that came because it had waited for too long.
    pub overdue: u64,
    /// Turns that it lost to the end of a lease.
    pub lost: u64,
    /// Probing and backing off, summed.
    pub backoff: Span,
    /// Probes written.
    pub probes: u64,
    /// Their bytes, those that primed them included.
    pub probe_bytes: u64,
    /// Attempts to find the storage quiet.
    pub attempts: Vec<Attempt>,
}

/// One attempt to find the storage quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Attempt {
    /// When it began.
    pub start: Time,
    /// When it had ended.
    pub end: Time,
    /// Throughput of its slowest probe, in bytes per second.
    pub slowest: u64,
}

/// One I/O phase of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Phase {
    /// When the application was ready for it; before `start` where it took a turn, or backed off.
    pub asked: Time,
    /// When the first process began it.
    pub start: Time,
    /// When the last process had ended it.
    pub end: Time,
    /// Bytes of calls that completed in it.
    pub bytes: u64,
}

/// What one data server did.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServerResult {
    /// Time that its device was serving until the last application had ended.
    pub busy: Span,
    /// Times that its device had to reposition until then.
    pub repositions: u64,
    /// Requests that it completed.
    pub requests: u64,
    /// Transfers of its device, with those of its page cache after the last application had ended.
    pub dispatches: u64,
    /// Bytes that it transferred.
    pub bytes: u64,
    /// When it was done.
    pub finish: Time,
}

/// The gates of one layer, summed.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerResult {
    /// `clients`, the name of a layer of forwarders, or `servers`.
    pub name: String,
    /// Its scheduler and parameters, as in `aioli quantum_base=32KiB`; `auto` if it is chosen.
    pub scheduler: String,
    /// Requests that arrived.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches that left.
    pub dispatches: u64,
    /// Their bytes.
    pub dispatched: u64,
    /// Distance in bytes between the end of a dispatch and the start of the next of the same file and operation, mean over all; `None`
    /// where no two are of the same.
    pub offset_distance_mean: Option<f64>,
    /// From arrival to dispatch, mean.
    pub waiting_mean: Span,
    /// Deliberate waits by reason, how many and how long.
    pub waits: Vec<(WaitReason, u64, Span)>,
    /// Requests that found the gate full and came in later.
    pub held_back: u64,
    /// Forwarders that join dispatches: lists that left, and their bytes.
    pub lists: u64,
    /// See `lists`.
    pub list_bytes: u64,
    /// Requests whose issue time was not believed.
    pub skewed: u64,
    /// The statistics of the layer's first gate, whole.
    pub first_gate: Box<Stats>,
    /// If its scheduler is chosen: how often that was changed at all gates together.
    pub changes: Option<u64>,
    /// The last changes of each gate, in the order of their times.
    pub chosen: Vec<Chosen>,
}

/// A change of a gate's scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Chosen {
    /// Which node of the layer.
    pub node: u32,
    /// When.
    pub at: Time,
    /// The scheduler since, with its parameters.
    pub scheduler: String,
    /// Why: `fifo -> aioli: 3.10x predicted, 2.80x measured`.
    pub why: String,
}

impl LayerResult {
    /// The gates of a layer with these statistics, one gate each; `None` if there are none. `held_back`: how many requests found a gate
    /// full, and how long they waited outside, together.
    pub fn of(
        name: String,
        scheduler: String,
        gates: &[&Stats],
        held_back: (u64, Span),
    ) -> Option<LayerResult> {
        let (held_back, outside) = held_back;
        let ops = || gates.iter().flat_map(|stats| &stats.ops);
        let within: u64 = ops().map(|op| op.waiting_ns.sum()).sum();
        let waiting = within.saturating_add(outside.as_nanos());
        let waited: u64 = ops().map(|op| op.waiting_ns.count()).sum();
        let distance: f64 = ops().map(|op| op.offset_distance_bytes.sum() as f64).sum();
        let distances: u64 = ops().map(|op| op.offset_distance_bytes.count()).sum();
        let waits = WaitReason::ALL.into_iter().enumerate().map(|(index, reason)| {
            let count = gates.iter().map(|stats| stats.waits[index].count).sum();
            let total = gates.iter().fold(Span::ZERO, |sum, stats| sum + stats.waits[index].total);
            (reason, count, total)
        });
        Some(LayerResult {
            name,
            scheduler,
            requests: ops().map(|op| op.request_bytes.count()).sum(),
            bytes: ops().map(|op| op.request_bytes.sum()).sum(),
            dispatches: ops().map(|op| op.dispatch_bytes.count()).sum(),
            dispatched: ops().map(|op| op.dispatch_bytes.sum()).sum(),
            offset_distance_mean: (distances > 0).then(|| distance / distances as f64),
            waiting_mean: Span::from_nanos(waiting / waited.max(1)),
            waits: waits.collect(),
            held_back,
            lists: 0,
            list_bytes: 0,
            skewed: gates.iter().map(|stats| stats.skewed).sum(),
            first_gate: Box::new((*gates.first()?).clone()),
            changes: None,
            chosen: Vec::new(),
        })
    }
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NetworkResult {
    /// Messages delivered.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments lost for want of buffer, and sent again: frames of at most 1448 bytes, of which a message has one or more.
    pub lost: u64,
    /// How often a sender noticed a loss only by a time-out.
    pub timeouts: u64,
}
