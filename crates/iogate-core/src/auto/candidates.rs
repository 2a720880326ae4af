//! The schedulers that are considered, with their parameters, the simpler ones first.
//!
//! `twins`, `app-window` and `server-window` are never among them: they help at servers that a gate cannot see.

use alloc::vec::Vec;

use crate::sched::SchedulerConfig;

/// The schedulers that are considered. The first is `fifo`, against which all are measured.
#[derive(Clone, Debug)]
pub struct Candidates {
    all: Vec<SchedulerConfig>,
}

const ALL: [&str; 19] = [
    "fifo",
    "to-agg",
    "hbrr",
    "hbrr quantum=2",
    "hbrr quantum=64",
    "sjf",
    "sjf age_max=500ms",
    "sjf age_max=60ms",
    "sjf age_max=8ms",
    "mlf contiguous_wait=0s,wait_max=0s",
    "mlf",
    "mlf age_max=60ms",
    "mlf contiguous_wait=4ms",
    "mlf quantum_base=256KiB,contiguous_wait=4ms",
    "aioli contiguous_wait=0s,wait_max=0s",
    "aioli",
    "aioli age_max=60ms",
    "aioli contiguous_wait=4ms",
    "aioli quantum_base=256KiB,contiguous_wait=4ms",
];

impl Candidates {
    /// All that there are.
    pub fn every() -> Candidates {
        Candidates { all: ALL.into_iter().map(parse).collect() }
    }

    /// Exactly these, after `fifo`.
    pub fn of(others: impl IntoIterator<Item = SchedulerConfig>) -> Candidates {
        let mut all = alloc::vec![parse("fifo")];
        all.extend(others.into_iter().filter(|other| *other != all[0]).collect::<Vec<_>>());
        Candidates { all }
    }

    /// The place of `scheduler`, which is added if it is not among them.
    pub(super) fn place_of(&mut self, scheduler: &SchedulerConfig) -> usize {
        self.all.iter().position(|candidate| candidate == scheduler).unwrap_or_else(|| {
            self.all.push(scheduler.clone());
            self.all.len() - 1
        })
    }

    /// All of them.
    pub fn all(&self) -> &[SchedulerConfig] {
        &self.all
    }
}

fn parse(text: &str) -> SchedulerConfig {
    let (name, params) = text.split_once(' ').unwrap_or((text, ""));
    let config = SchedulerConfig::by_name(name).ok().and_then(|config| config.changed(params, 0).ok());
    config.expect("a candidate is a scheduler with parameters that it has")
}
