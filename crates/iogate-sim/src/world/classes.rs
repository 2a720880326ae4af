//! What groups of applications have had beside each other, and beside applications that are in none.

use iogate_core::Time;

use super::process::AppRun;
use crate::result::ClassResult;
use crate::scenario::{App, Group};

/// Groups, and applications that are in none, of a scenario that has groups.
#[derive(Default)]
pub(super) struct Classes {
    units: Vec<Unit>,
    /// Bytes of each application when somebody of each unit had begun, and when all of one had ended.
    begun: Option<Vec<u64>>,
    ended: Option<Vec<u64>>,
}

/// A group, or an application that is in none.
struct Unit {
    group: Option<String>,
    /// Its applications, by their places in the world.
    apps: Vec<usize>,
}

impl Classes {
    pub(super) fn new(groups: &[Group], specs: &[App]) -> Classes {
        if groups.is_empty() {
            return Classes::default();
        }
        let named = |group: &Group| Unit { group: Some(group.name.clone()), apps: Vec::new() };
        let mut units: Vec<Unit> = groups.iter().map(named).collect();
        for (app, spec) in specs.iter().enumerate() {
            match spec.group {
                Some(group) => units[group as usize].apps.push(app),
                None => units.push(Unit { group: None, apps: vec![app] }),
            }
        }
        Classes { units, ..Classes::default() }
    }

    /// An application has begun.
    pub(super) fn app_begun(&mut self, runs: &[AppRun]) {
        let has_begun = |unit: &Unit| unit.apps.iter().any(|app| runs[*app].start.is_some());
        if self.begun.is_none() && self.units.iter().all(has_begun) {
            self.begun = Some(bytes(runs));
        }
    }

    /// An application has ended.
    pub(super) fn app_ended(&mut self, runs: &[AppRun]) {
        let has_ended = |unit: &Unit| unit.apps.iter().all(|app| runs[*app].end.is_some());
        if self.ended.is_none() && self.units.iter().any(has_ended) {
            self.ended = Some(bytes(runs));
        }
    }

    /// Each group, and behind it its applications; then those that are in none. The run has ended, or is cut off, now.
    pub(super) fn results(&self, specs: &[App], runs: &[AppRun], now: Time) -> Vec<ClassResult> {
        let ended = self.ended.clone().unwrap_or_else(|| bytes(runs));
        // If one has ended before another one has begun, nobody has anything in between.
        let begun = self.begun.as_ref().unwrap_or(&ended);
        let beside: Vec<u64> =
            ended.iter().zip(begun).map(|(ended, begun)| ended.saturating_sub(*begun)).collect();
        let all = beside.iter().sum();
        let class = |name: &str, group: Option<&String>, is_group: bool, apps: &[usize]| {
            let start = apps.iter().filter_map(|app| runs[*app].start).min().unwrap_or(now);
            let end = apps.iter().map(|app| runs[*app].end.unwrap_or(now)).max().unwrap_or(now);
            ClassResult {
                name: name.into(),
                group: group.cloned(),
                is_group,
                bytes: apps.iter().map(|app| runs[*app].bytes).sum(),
                time: end.since(start),
                beside_bytes: apps.iter().map(|app| beside[*app]).sum(),
                beside_bytes_all: all,
            }
        };
        let mut results = Vec::new();
        for Unit { group, apps } in &self.units {
            results.extend(group.as_ref().map(|name| class(name, None, true, apps)));
            results.extend(apps.iter().map(|app| class(&specs[*app].name, group.as_ref(), false, &[*app])));
        }
        results
    }
}

fn bytes(runs: &[AppRun]) -> Vec<u64> {
    runs.iter().map(|run| run.bytes).collect()
}
