//! The schedulers that are considered, with their parameters, the simpler ones first.
//!
//! `twins`, `app-window` and `server-window` are never among them: they help at servers that a gate cannot see.

use alloc::vec::Vec;

use super::shadow::Pricing;
use crate::sched::SchedulerConfig;

/// The least rate with one transfer in flight, in thousandths of that with as many as the gate lets through, at which serving one
/// dispatch at a time can pay.
const ONE_AT_A_TIME: u64 = 970;

/// The schedulers that are considered. The first is `fifo`, against which all are measured.
#[derive(Clone, Debug)]
pub struct Candidates(Vec<SchedulerConfig>);

const COMMON: [&str; 8] = [
    "fifo",
    "to-agg",
    "hbrr",
    "hbrr quantum=64",
    "sjf",
    "sjf age_max=500ms",
    "mlf contiguous_wait=0s,wait_max=0s",
    "mlf",
];
const ONE: [&str; 4] = [
    "aioli contiguous_wait=0s,wait_max=0s",
    "aioli",
    "aioli contiguous_wait=4ms",
    "aioli quantum_base=256KiB,contiguous_wait=4ms",
];
const MANY: [&str; 2] = ["mlf contiguous_wait=4ms", "mlf quantum_base=256KiB,contiguous_wait=4ms"];

impl Candidates {
    /// Those for storage that charges as `pricing` says, behind a gate that lets `depth` dispatches through. `aioli` serves one
    /// dispatch at a time, and is among them only where that costs nothing.
    pub fn new(pricing: &dyn Pricing, depth: u32) -> Candidates {
        let one = pricing.rate(1) * 1_000 >= pricing.rate(depth) * ONE_AT_A_TIME;
        let others: &[&str] = if one { &ONE } else { &MANY };
        Candidates(COMMON.iter().chain(others).map(|text| parse(text)).collect())
    }

    /// Exactly these, after `fifo`.
    pub fn of(others: impl IntoIterator<Item = SchedulerConfig>) -> Candidates {
        let mut all = alloc::vec![parse("fifo")];
        all.extend(others.into_iter().filter(|other| *other != all[0]).collect::<Vec<_>>());
        Candidates(all)
    }

    /// The place of `scheduler`, which is added if it is not among them.
    pub(super) fn place_of(&mut self, scheduler: &SchedulerConfig) -> usize {
        self.0.iter().position(|candidate| candidate == scheduler).unwrap_or_else(|| {
            self.0.push(scheduler.clone());
            self.0.len() - 1
        })
    }

    /// All of them.
    pub fn all(&self) -> &[SchedulerConfig] {
        &self.0
    }
}

fn parse(text: &str) -> SchedulerConfig {
    let (name, params) = text.split_once(' ').unwrap_or((text, ""));
    let config = SchedulerConfig::by_name(name).ok().and_then(|config| config.changed(params, 0).ok());
    config.expect("a candidate is a scheduler with parameters that it has")
}
