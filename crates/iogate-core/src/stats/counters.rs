//! What metrics have of a gate beside its summary: what must never decrease, exactly, and how full it is.

use alloc::string::String;
use alloc::vec::Vec;

use super::summary::Names;
use super::top::{AppCounts, TopApps};
use super::{Histogram, OpStats, Stats};
use crate::request::AppId;

/// Upper bounds of the classes of [`Times`], in ns: every second power of two, from a microsecond to 17 s. Each is the last value of a
/// bucket of a [`Histogram`], so that no value is counted in a class that it exceeds.
pub const TIME_BOUNDS_NS: [u64; 13] = {
    let mut bounds = [0; 13];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] = (1 << (10 + 2 * index)) - 1;
        index += 1;
    }
    bounds
};

/// Counters of one gate.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counters {
    /// Which gate: the mount point, or the name of the export.
    pub gate: String,
    /// Requests in the gate that are not dispatched.
    pub queued: u64,
    /// Dispatches in service.
    pub in_service: u64,
    /// Times of reads and of writes.
    pub times: [OpTimes; 2],
    /// The applications with most bytes, in order of their numbers.
    pub apps: Vec<App>,
    /// All others together.
    pub other: AppCounts,
    /// Whether all servers of what the gate serves are connected to and answer; `None`: it is this machine's own.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub is_connected: Option<bool>,
    /// Whether a policy that many gates share goes by a lease here; `None`: there is no such policy.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub has_lease: Option<bool>,
}

/// Times of one operation.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpTimes {
    /// From arrival to dispatch, per request.
    pub waiting: Times,
    /// From dispatch to completion, per dispatch.
    pub service: Times,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Times {
    /// Their sum; it stays at the largest number once it would be larger.
    pub sum_ns: u64,
    /// How many there are.
    pub count: u64,
    /// How many are at most as long as each of [`TIME_BOUNDS_NS`].
    pub up_to: Vec<u64>,
}

impl From<&Histogram> for Times {
    fn from(histogram: &Histogram) -> Times {
        let mut up_to = alloc::vec![0; TIME_BOUNDS_NS.len()];
        for (largest, count) in histogram.iter() {
            let first = TIME_BOUNDS_NS.partition_point(|bound| *bound < largest);
            up_to[first..].iter_mut().for_each(|n| *n = count.saturating_add(*n));
        }
        Times { sum_ns: histogram.sum(), count: histogram.count(), up_to }
    }
}

/// One application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct App {
    /// Its number.
    pub app: u32,
    /// What it is called.
    pub name: String,
    /// What is told of it.
    pub counts: AppCounts,
}

impl Counters {
    /// From what a gate has counted, without names and without how full it is. `top` knows what was told before.
    pub fn of(stats: &Stats, top: &mut TopApps) -> Counters {
        let times =
            |op: &OpStats| OpTimes { waiting: (&op.waiting_ns).into(), service: (&op.service_ns).into() };
        let (apps, other) = top.look(&stats.apps);
        Counters {
            times: [times(&stats.ops[0]), times(&stats.ops[1])],
            apps: (apps.into_iter())
                .map(|(app, counts)| App { app: app.0, name: String::new(), counts })
                .collect(),
            other,
            ..Counters::default()
        }
    }

    /// With the name of the gate, and those of applications.
    pub fn named(mut self, gate: &str, names: &dyn Names) -> Counters {
        self.gate = gate.into();
        self.apps.iter_mut().for_each(|app| app.name = names.app(AppId(app.app)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_times_are_exact() {
        let mut histogram = Histogram::default();
        for bound in TIME_BOUNDS_NS {
            histogram.record(bound);
            histogram.record(bound + 1);
        }
        let times = Times::from(&histogram);
        assert_eq!(times.count, 26);
        // Of each pair the first is in, the second in the next class.
        let expected: Vec<u64> = (0..13).map(|index| 2 * index + 1).collect();
        assert_eq!(times.up_to, expected);
    }
}
