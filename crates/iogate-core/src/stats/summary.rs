//! What one gate did: its statistics with names, as status, replay and demo report them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::counters::Counters;
pub use super::now::{AllNow, AppNow, NOW_MAX};
use super::now::{listed, weigh};
use super::{Conflict, Histogram, OpStats, Stats, Sums, Tracked};
use crate::auto::Choice;
use crate::auto::pattern::Pattern;
use crate::request::{AppId, FileId};
use crate::sched::SchedulerConfig;
use crate::time::Time;
use crate::wait::WaitReason;

/// What a group of all those is called that have none of their own.
const OTHER: &str = "other";

/// What a gate did.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Summary {
    /// The algorithm.
    pub scheduler: String,
    /// Its parameters, all of them.
    pub params: BTreeMap<String, String>,
    /// Most dispatches in service at once.
    pub depth: u32,
    /// What else is to be known of the place that the gate serves, name and value; of a mount: what it shows, and how.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub about: Vec<(String, String)>,
    /// What was read.
    pub read: OpSummary,
    /// What was written.
    pub write: OpSummary,
    /// Requests held back for an earlier one that they conflict with, by conflict.
    pub held: Vec<Counted>,
    /// Deliberate waits by reason.
    pub waits: Vec<Counted>,
    /// Bytes served of each quantum granted, in percent; of quantum schedulers only.
    pub quantum_utilisation_percent: Option<Distribution>,
    /// Requests whose issue time was implausible and that counted by their arrival.
    pub skewed: u64,
    /// Submissions that found the gate full, and had to be made again.
    pub rejected_full: u64,
    /// Live changes of algorithm.
    pub switches: u64,
    /// Per application, most bytes first.
    pub apps: Vec<Group>,
    /// What applications get at this time, where somebody looks: in mounts and servers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub now: Vec<AppNow>,
    /// What all of them get together, with those that there is no room for in `now`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub all_now: Option<AllNow>,
    /// What the arrivals of applications look like, where somebody looks: in mounts and servers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub patterns: Vec<Pattern>,
    /// What chose the scheduler, and why, if it is chosen.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub choice: Option<Choice>,
    /// Per file, most bytes first.
    pub files: Vec<Group>,
    /// Per target, most bytes first.
    pub targets: Vec<Group>,
    /// What metrics have beside this: in mounts and servers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub counters: Option<Counters>,
}

/// One operation over all files.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpSummary {
    /// Requests that arrived.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches that left.
    pub dispatches: u64,
    /// Dispatches that failed.
    pub failed: u64,
    /// Sizes of the requests.
    pub request_bytes: Distribution,
    /// Sizes of the dispatches.
    pub dispatch_bytes: Distribution,
    /// Requests in a dispatch.
    pub requests_per_dispatch: Distribution,
    /// Distance from the end of a dispatch to the start of the next one to the same file.
    pub offset_distance_bytes: Distribution,
    /// From arrival to dispatch.
    pub waiting_ns: Distribution,
    /// From dispatch to completion.
    pub service_ns: Distribution,
    /// How many requests there were of each size.
    pub request_sizes: Vec<SizeClass>,
    /// How many dispatches there were of each size.
    pub dispatch_sizes: Vec<SizeClass>,
}

/// A distribution in a few numbers. Quantiles are at most an eighth above the true value, of sizes at most a ninth below it: round
/// sizes are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[allow(missing_docs, reason = "the names say it")]
pub struct Distribution {
    pub count: u64,
    pub mean: f64,
    pub min: u64,
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
}

/// How many values lie from a power of two up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SizeClass {
    /// The power of two, in bytes.
    pub from_bytes: u64,
    /// How many.
    pub count: u64,
}

/// How often something happened and how long it took altogether.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counted {
    /// What.
    pub name: String,
    /// How often.
    pub count: u64,
    /// For how long altogether.
    pub total_ns: u64,
}

/// The requests of one application, file or target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Group {
    /// Its number; `None` for all that were not counted one by one.
    pub id: Option<u64>,
    /// What it is called.
    pub name: String,
    /// Requests completed.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches in which they left.
    pub dispatches: u64,
    /// Mean time from arrival to dispatch.
    pub waiting_mean_ns: u64,
    /// The longest.
    pub waiting_max_ns: u64,
    /// From the arrival of the first to the completion of the last.
    pub span_ns: u64,
}

/// What applications and files are called.
pub trait Names {
    /// The name of an application.
    fn app(&self, app: AppId) -> String {
        if app.0 == 0 { "unknown".into() } else { app.to_string() }
    }
    /// The name of a file.
    fn file(&self, file: FileId) -> String {
        file.to_string()
    }
}

/// Everything is called by its number.
#[derive(Clone, Copy, Debug)]
pub struct Numbers;

impl Names for Numbers {}

impl Summary {
    /// A summary of a gate's statistics with at most `groups_max` applications, files and targets; the others are
    /// together in a group called `other`.
    pub fn new(
        stats: &Stats,
        scheduler: &SchedulerConfig,
        depth: u32,
        names: &dyn Names,
        groups_max: usize,
    ) -> Summary {
        let counted =
            |name: &str, count, total_ns| (count > 0).then(|| Counted { name: name.into(), count, total_ns });
        let held = Conflict::ALL.into_iter().zip(&stats.held_ns);
        let waits = WaitReason::ALL.into_iter().zip(&stats.waits);
        let utilisation = &stats.quantum_utilisation_percent;
        Summary {
            scheduler: scheduler.kind().name().into(),
            params: scheduler.values().map(|(param, value)| (param.name.into(), value)).collect(),
            depth,
            about: Vec::new(),
            read: OpSummary::new(&stats.ops[0]),
            write: OpSummary::new(&stats.ops[1]),
            held: held
                .filter_map(|(conflict, ns)| counted(conflict_name(conflict), ns.count(), ns.sum()))
                .collect(),
            waits: waits
                .filter_map(|(r, wait)| counted(r.name(), wait.count, wait.total.as_nanos()))
                .collect(),
            quantum_utilisation_percent: (utilisation.count() > 0).then(|| utilisation.into()),
            skewed: stats.skewed,
            rejected_full: stats.rejected_full,
            switches: stats.switches,
            apps: groups(&stats.apps, |app| (app.0.into(), names.app(app)), groups_max),
            now: Vec::new(),
            all_now: None,
            patterns: Vec::new(),
            choice: None,
            files: groups(&stats.files, |file| (file.0, names.file(file)), groups_max),
            targets: groups(&stats.targets, |target| (target.0.into(), target.to_string()), groups_max),
            counters: None,
        }
    }

    /// With what applications get now: those that get or want something, most bytes a second first, then others that the summary has, all
    /// with the classes that they are within; at most [`NOW_MAX`]. What is within a class follows it.
    pub fn set_now(&mut self, mut now: Vec<AppNow>, names: &dyn Names) {
        self.all_now = Some(AllNow::of(&now));
        weigh(&mut now);
        let is_counted = |now: &AppNow| self.apps.iter().any(|group| group.id == Some(now.app.into()));
        now.retain(|now| now.is_branch || now.is_busy() || is_counted(now));
        self.now = listed(now, NOW_MAX);
        let branches: BTreeSet<u32> =
            self.now.iter().filter(|now| now.is_branch).map(|now| now.app).collect();
        for now in &mut self.now {
            now.name = names.app(AppId(now.app));
            if !now.is_branch && branches.contains(&now.app) {
                // Those within it that there is no room to tell apart.
                now.name.insert_str(0, "others of ");
            }
        }
    }

    /// Leaves out the second half of each list, which has less than the first: of applications, files and targets it is together in the
    /// group called `other`. False if there is nothing more to leave out.
    pub fn halve(&mut self) -> bool {
        let mut is_shorter = false;
        for groups in [&mut self.apps, &mut self.files, &mut self.targets] {
            let named = groups.iter().filter(|group| group.id.is_some()).count();
            is_shorter |= named > 0;
            // What is together already stands last.
            let left_out = groups.split_off(named / 2).into_iter();
            if let Some(other) = left_out.reduce(|all, more| all.joined(&more)) {
                groups.push(Group { id: None, name: OTHER.into(), ..other });
            }
        }
        is_shorter |= !self.now.is_empty() || !self.patterns.is_empty();
        let half = self.now.len() / 2;
        self.now = listed(core::mem::take(&mut self.now), half);
        self.patterns.truncate(self.patterns.len() / 2);
        is_shorter
    }

    /// Reads and writes.
    pub fn ops(&self) -> [(&'static str, &OpSummary); 2] {
        [("read", &self.read), ("write", &self.write)]
    }

    /// Requests that arrived, of both operations.
    pub fn requests(&self) -> u64 {
        self.read.requests + self.write.requests
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// Dispatches that left, of both operations.
    pub fn dispatches(&self) -> u64 {
        self.read.dispatches + self.write.dispatches
    }

    /// The algorithm with its parameters.
    pub fn settings(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if params.is_empty() {
            self.scheduler.clone()
        } else {
            format!("{} {}", self.scheduler, params.join(" "))
        }
    }
}

impl OpSummary {
    fn new(op: &OpStats) -> OpSummary {
        OpSummary {
            requests: op.request_bytes.count(),
            bytes: op.request_bytes.sum(),
            dispatches: op.dispatch_bytes.count(),
            failed: op.failed,
            request_bytes: sizes(&op.request_bytes),
            dispatch_bytes: sizes(&op.dispatch_bytes),
            requests_per_dispatch: (&op.dispatch_requests).into(),
            offset_distance_bytes: (&op.offset_distance_bytes).into(),
            waiting_ns: (&op.waiting_ns).into(),
            service_ns: (&op.service_ns).into(),
            request_sizes: size_classes(&op.request_bytes),
            dispatch_sizes: size_classes(&op.dispatch_bytes),
        }
    }
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Distribution {
        Distribution {
            count: histogram.count(),
            mean: histogram.mean(),
            min: histogram.min(),
            p50: histogram.quantile(0.5),
            p95: histogram.quantile(0.95),
            p99: histogram.quantile(0.99),
            max: histogram.max(),
        }
    }
}

/// A distribution of sizes, most of which are round.
fn sizes(histogram: &Histogram) -> Distribution {
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| histogram.round_quantile(q));
    Distribution { p50, p95, p99, ..histogram.into() }
}

fn conflict_name(conflict: Conflict) -> &'static str {
    match conflict {
        Conflict::ReadAfterWrite => "read after write",
        Conflict::WriteAfterRead => "write after read",
        Conflict::WriteAfterWrite => "write after write",
    }
}

fn size_classes(histogram: &Histogram) -> Vec<SizeClass> {
    let mut classes: Vec<SizeClass> = Vec::new();
    for (largest, count) in histogram.iter() {
        let from_bytes = 1 << largest.max(1).ilog2();
        match classes.last_mut() {
            Some(class) if class.from_bytes == from_bytes => {
                class.count = class.count.saturating_add(count);
            }
            _ => classes.push(SizeClass { from_bytes, count }),
        }
    }
    classes
}

fn groups<K: Copy + Eq + core::hash::Hash>(
    tracked: &Tracked<K>,
    name: impl Fn(K) -> (u64, String),
    groups_max: usize,
) -> Vec<Group> {
    let mut by_bytes: Vec<&(K, Sums)> = tracked.iter().collect();
    // Stable: of two with as many bytes, the one that appeared first.
    by_bytes.sort_by_key(|(_, sums)| Reverse(sums.bytes));
    let (shown, rest) = by_bytes.split_at(groups_max.min(by_bytes.len()));
    let mut groups: Vec<Group> = (shown.iter())
        .map(|(key, sums)| {
            let (id, name) = name(*key);
            Group::new(Some(id), name, sums)
        })
        .collect();
    let mut other = *tracked.other();
    rest.iter().for_each(|(_, sums)| other.join(sums));
    if other.requests > 0 {
        groups.push(Group::new(None, OTHER.into(), &other));
    }
    groups
}

impl Group {
    fn new(id: Option<u64>, name: String, sums: &Sums) -> Group {
        let first = if sums.first == Time::MAX { sums.last } else { sums.first };
        Group {
            id,
            name,
            requests: sums.requests,
            bytes: sums.bytes,
            dispatches: sums.dispatches,
            waiting_mean_ns: sums.waiting.as_nanos() / sums.requests.max(1),
            waiting_max_ns: sums.waiting_max.as_nanos(),
            span_ns: sums.last.since(first).as_nanos(),
        }
    }

    /// Both together. When they began and ended is not known any more: the longer of their times is less than all of it.
    fn joined(self, more: &Group) -> Group {
        let requests = self.requests + more.requests;
        let waiting = |group: &Group| u128::from(group.waiting_mean_ns) * u128::from(group.requests);
        Group {
            requests,
            bytes: self.bytes + more.bytes,
            dispatches: self.dispatches + more.dispatches,
            waiting_mean_ns: ((waiting(&self) + waiting(more)) / u128::from(requests.max(1))) as u64,
            waiting_max_ns: self.waiting_max_ns.max(more.waiting_max_ns),
            span_ns: self.span_ns.max(more.span_ns),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::sched::SchedulerKind;

    fn group(id: Option<u64>, requests: u64, waiting_mean_ns: u64) -> Group {
        Group {
            id,
            name: id.map_or(OTHER.into(), |id| id.to_string()),
            requests,
            bytes: requests * 10,
            dispatches: requests,
            waiting_mean_ns,
            waiting_max_ns: waiting_mean_ns * 2,
            span_ns: 7,
        }
    }

    #[test]
    fn what_half_a_summary_leaves_out_is_together() {
        let config = SchedulerConfig::new(SchedulerKind::Fifo);
        let mut summary = Summary::new(&Stats::default(), &config, 8, &Numbers, 32);
        summary.apps = vec![group(Some(1), 9, 1), group(Some(2), 6, 10), group(Some(3), 3, 40)];
        summary.files = vec![group(Some(1), 9, 1), group(Some(2), 8, 1), group(None, 4, 7)];
        summary.now = vec![AppNow::default(); 3];
        assert!(summary.halve());
        assert_eq!(
            summary.apps,
            [group(Some(1), 9, 1), group(None, 9, 20)]
                .map(|group| Group { waiting_max_ns: if group.id.is_some() { 2 } else { 80 }, ..group })
        );
        assert_eq!(summary.files[1], Group { waiting_max_ns: 14, ..group(None, 12, 3) });
        assert_eq!((summary.files.len(), summary.now.len()), (2, 1));
        assert!(summary.halve());
        assert_eq!((summary.apps.len(), summary.apps[0].requests), (1, 18), "{:?}", summary.apps);
        assert!(!summary.halve());
        assert_eq!((summary.apps[0].requests, summary.files[0].requests), (18, 21));
    }
}
