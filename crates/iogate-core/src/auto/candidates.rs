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
pub struct Candidates {
    all: Vec<SchedulerConfig>,
    suits: Vec<Suits>,
}

/// Which storage a candidate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suits {
    Any,
    /// Storage that loses nothing by one dispatch at a time.
    One,
    /// All other storage.
    Many,
}

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
    /// All that there are.
    pub fn every() -> Candidates {
        let groups = [(&COMMON[..], Suits::Any), (&ONE[..], Suits::One), (&MANY[..], Suits::Many)];
        let each =
            groups.into_iter().flat_map(|(texts, suits)| texts.iter().map(move |text| (parse(text), suits)));
        let (all, suits) = each.unzip();
        Candidates { all, suits }
    }

    /// Exactly these, after `fifo`, whatever the storage.
    pub fn of(others: impl IntoIterator<Item = SchedulerConfig>) -> Candidates {
        let mut all = alloc::vec![parse("fifo")];
        all.extend(others.into_iter().filter(|other| *other != all[0]).collect::<Vec<_>>());
        Candidates { suits: alloc::vec![Suits::Any; all.len()], all }
    }

    /// The place of `scheduler`, which is added if it is not among them.
    pub(super) fn place_of(&mut self, scheduler: &SchedulerConfig) -> usize {
        self.all.iter().position(|candidate| candidate == scheduler).unwrap_or_else(|| {
            self.all.push(scheduler.clone());
            self.suits.push(Suits::Any);
            self.all.len() - 1
        })
    }

    /// Whether one is worth a simulation, where one dispatch at a time costs nothing, or does.
    pub(super) fn suits(&self, index: usize, one_at_a_time: bool) -> bool {
        self.suits[index] != if one_at_a_time { Suits::Many } else { Suits::One }
    }

    /// All of them.
    pub fn all(&self) -> &[SchedulerConfig] {
        &self.all
    }
}

/// Whether storage that charges as `pricing` says, behind a gate that lets `depth` dispatches through, loses nothing by one at a
/// time, as `aioli` serves it.
pub(super) fn one_at_a_time(pricing: &dyn Pricing, depth: u32) -> bool {
    pricing.rate(1) * 1_000 >= pricing.rate(depth) * ONE_AT_A_TIME
}

fn parse(text: &str) -> SchedulerConfig {
    let (name, params) = text.split_once(' ').unwrap_or((text, ""));
    let config = SchedulerConfig::by_name(name).ok().and_then(|config| config.changed(params, 0).ok());
    config.expect("a candidate is a scheduler with parameters that it has")
}
