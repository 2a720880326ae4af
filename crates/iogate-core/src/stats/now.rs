//! What applications get at this time, and which of them there is room to tell of.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::policy::DEPTH_MAX;

/// Applications in [`Summary::now`](super::summary::Summary::now), with the classes that they are within.
pub const NOW_MAX: usize = 24;

/// What an application gets and waits for, and what it is entitled to, where there is a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AppNow {
    /// Its number, as in [`Group::id`](super::summary::Group::id).
    pub app: u32,
    /// What it is called.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: String,
    /// Bytes served in the last second.
    pub bytes_per_s: u64,
    /// Those that were read.
    #[cfg_attr(feature = "serde", serde(default))]
    pub read_bytes_per_s: u64,
    /// Those that were written.
    #[cfg_attr(feature = "serde", serde(default))]
    pub written_bytes_per_s: u64,
    /// Requests served in the last second.
    pub requests_per_s: u64,
    /// Mean time of these from arrival to completion; `None`: there were none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub latency_ns: Option<u64>,
    /// Requests in the gate that are not dispatched; `None`: not counted, as there are very many.
    #[cfg_attr(feature = "serde", serde(default))]
    pub queued: Option<u32>,
    /// Requests that the policy does not let run yet.
    pub deferred: u32,
    /// Its weight; `None`: there is no policy.
    pub weight: Option<u32>,
    /// The weights of all that get or want something within the same class, or within none as it is; `None`: there is no policy.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub weights_beside: Option<u64>,
    /// Device time that it was charged in the last second; `None`: there is no policy.
    #[cfg_attr(feature = "serde", serde(default))]
    pub device_ns_per_s: Option<u64>,
    /// Requests completed so far; of a class with others within it, since the policy came.
    #[cfg_attr(feature = "serde", serde(default))]
    pub served_requests: u64,
    /// Their bytes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub served_bytes: u64,
    /// For how long it has waited for its own cap since the policy came.
    #[cfg_attr(feature = "serde", serde(default))]
    pub capped_ns: u64,
    /// The class that it is within, by its number; `None`: it is within none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub within: Option<u32>,
    /// It is a class with others within it, and has what these have together.
    #[cfg_attr(feature = "serde", serde(default))]
    pub is_branch: bool,
    /// It gets at least so many bytes a second.
    pub min: Option<u64>,
    /// It gets at least so many requests a second.
    pub min_requests: Option<u64>,
    /// It gets at most so many bytes a second.
    pub max: Option<u64>,
    /// It gets at most so many requests a second.
    pub max_requests: Option<u64>,
}

impl AppNow {
    /// Whether it gets or wants something.
    pub fn is_busy(&self) -> bool {
        self.requests_per_s > 0 || self.queued.is_some_and(|queued| queued > 0)
    }
}

/// What all applications get together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AllNow {
    /// Bytes read in the last second.
    pub read_bytes_per_s: u64,
    /// Bytes written in the last second.
    pub written_bytes_per_s: u64,
    /// Requests served in the last second.
    pub requests_per_s: u64,
    /// Device time that all were charged in the last second; none, where there is no policy.
    pub device_ns_per_s: u64,
}

impl AllNow {
    /// Of classes that are all there are: what is within others is not counted twice.
    pub fn of<'a>(now: impl IntoIterator<Item = &'a AppNow>) -> AllNow {
        let leaves = now.into_iter().filter(|now| !now.is_branch);
        leaves.fold(AllNow::default(), |all, now| AllNow {
            read_bytes_per_s: all.read_bytes_per_s.saturating_add(now.read_bytes_per_s),
            written_bytes_per_s: all.written_bytes_per_s.saturating_add(now.written_bytes_per_s),
            requests_per_s: all.requests_per_s.saturating_add(now.requests_per_s),
            device_ns_per_s: all.device_ns_per_s.saturating_add(now.device_ns_per_s.unwrap_or_default()),
        })
    }
}

/// Notes the weights beside each one, of classes that are all there are.
pub(super) fn weigh(now: &mut [AppNow]) {
    let mut sums: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for busy in now.iter().filter(|now| now.is_busy()) {
        *sums.entry(busy.within).or_default() += u64::from(busy.weight.unwrap_or_default());
    }
    for now in now {
        now.weights_beside = now.weight.map(|_| sums.get(&now.within).copied().unwrap_or_default());
    }
}

/// At most so many of classes: branches that get or want something first, up to half, so that one with many in it hides no other one; then
/// leaves, those that get or want something before others, each with what it is within. Each branch has what is within it behind it.
pub(super) fn listed(mut classes: Vec<AppNow>, most: usize) -> Vec<AppNow> {
    classes.sort_by_key(|now| Reverse((now.is_busy(), now.bytes_per_s, now.queued)));
    let (branches, leaves): (Vec<usize>, Vec<usize>) =
        (0..classes.len()).partition(|&index| classes[index].is_branch);
    let number: BTreeMap<u32, usize> = branches.iter().map(|&index| (classes[index].app, index)).collect();
    let around = |index: usize| classes[index].within.and_then(|within| number.get(&within).copied());
    let mut chosen = BTreeSet::new();
    let mut choose = |index: usize, room: usize| {
        let with = core::iter::successors(Some(index), |&index| around(index)).take(1 + DEPTH_MAX);
        let more: Vec<usize> = with.filter(|index| !chosen.contains(index)).collect();
        if chosen.len() + more.len() <= room {
            chosen.extend(more);
        }
    };
    let busy = branches.into_iter().filter(|&index| classes[index].is_busy());
    busy.for_each(|index| choose(index, most / 2));
    leaves.into_iter().for_each(|index| choose(index, most));
    as_tree(
        classes
            .into_iter()
            .zip(0..)
            .filter(|(_, index)| chosen.contains(index))
            .map(|(now, _)| now)
            .collect(),
    )
}

/// Each class with what is within it behind it, in the order that they have.
fn as_tree(classes: Vec<AppNow>) -> Vec<AppNow> {
    let mut within: BTreeMap<Option<u32>, Vec<AppNow>> = BTreeMap::new();
    classes.into_iter().rev().for_each(|now| within.entry(now.within).or_default().push(now));
    let mut next = within.remove(&None).unwrap_or_default();
    let mut tree = Vec::new();
    while let Some(now) = next.pop() {
        if now.is_branch {
            next.extend(within.remove(&Some(now.app)).unwrap_or_default());
        }
        tree.push(now);
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::super::Stats;
    use super::super::summary::{Numbers, Summary};
    use super::*;
    use crate::sched::{SchedulerConfig, SchedulerKind};

    fn leaf(app: u32, within: u32, bytes_per_s: u64) -> AppNow {
        AppNow {
            app,
            within: Some(within),
            bytes_per_s,
            read_bytes_per_s: bytes_per_s,
            requests_per_s: 1,
            weight: Some(1),
            device_ns_per_s: Some(10),
            ..AppNow::default()
        }
    }

    fn branch(app: u32, within: Option<u32>) -> AppNow {
        AppNow { is_branch: true, within, read_bytes_per_s: 0, ..leaf(app, 0, 1_000) }
    }

    fn summary(now: Vec<AppNow>) -> Summary {
        let config = SchedulerConfig::new(SchedulerKind::Fifo);
        let mut summary = Summary::new(&Stats::default(), &config, 8, &Numbers, 32);
        summary.set_now(now, &Numbers);
        summary
    }

    fn numbers(now: &[AppNow]) -> Vec<u32> {
        now.iter().map(|now| now.app).collect()
    }

    #[test]
    fn a_branch_with_many_in_it_hides_no_other_one() {
        let mut now: Vec<AppNow> = (1..=30).map(|app| leaf(app, 100, 500)).collect();
        now.extend((31..=60).map(|app| leaf(app, 200, 5)));
        now.extend([branch(100, None), AppNow { bytes_per_s: 150, ..branch(200, None) }]);
        let mut summary = summary(now);
        assert_eq!(summary.now.len(), NOW_MAX);
        let expected: Vec<u32> = [100].into_iter().chain(1..=22).chain([200]).collect();
        assert_eq!(numbers(&summary.now), expected);
        let all = AllNow {
            read_bytes_per_s: 30 * 500 + 30 * 5,
            requests_per_s: 60,
            device_ns_per_s: 600,
            ..AllNow::default()
        };
        assert_eq!(summary.all_now, Some(all));
        assert!(summary.now.iter().all(|now| now.weights_beside == Some(if now.is_branch { 2 } else { 30 })));
        // Where there is less room, both are still there, and the sums stay.
        summary.halve();
        let expected: Vec<u32> = [100].into_iter().chain(1..=10).chain([200]).collect();
        assert_eq!((numbers(&summary.now), summary.all_now), (expected, Some(all)));
    }

    #[test]
    fn many_branches_leave_room_for_leaves_and_each_stands_below_what_it_is_within() {
        // A branch around forty others, each with one in it; idle ones are not told of.
        let mut now: Vec<AppNow> = (1..=40).map(|app| leaf(app, 100 + app, app.into())).collect();
        now.push(branch(100, None));
        now.extend((1..=41).map(|app| AppNow {
            requests_per_s: u64::from(app <= 40),
            bytes_per_s: app.into(),
            ..branch(100 + app, Some(100))
        }));
        let told = summary(now).now;
        let expected: Vec<u32> =
            [100].into_iter().chain((30..=40).rev().flat_map(|app| [100 + app, app])).collect();
        assert_eq!(
            numbers(&told),
            expected,
            "half of the room is for branches, and one more needs two places"
        );
        assert!(told.iter().all(|now| now.is_busy()), "{told:?}");
    }
}
