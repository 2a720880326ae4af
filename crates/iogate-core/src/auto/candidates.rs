//! The schedulers that are considered, with their parameters, the simpler ones first.
//!
//! Who serves what is near or short first lets others wait, for ever if nothing bounds it. So each such scheduler is considered with bounds
//! that follow the load, too: nobody waits longer than a share of what requests wait with `fifo`, on the average. A closed-loop application
//! then gets on about as fast as with `fifo` at least, however greedy the others are.
//!
//! `twins`, `app-window` and `server-window` are never among them: they help at servers that a gate cannot see.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::pricing::Pricing;
use crate::sched::param::AGE_MAX;
use crate::sched::{SchedulerConfig, SchedulerKind};
use crate::time::Span;

/// The least rate with one transfer in flight, in thousandths of that with as many as the gate lets through, at which serving one
/// dispatch at a time can pay.
const ONE_AT_A_TIME: u64 = 970;

/// The schedulers that are considered. The first is `fifo`, against which all are measured.
#[derive(Clone, Debug)]
pub struct Candidates {
    all: Vec<Candidate>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Candidate {
    scheduler: SchedulerConfig,
    suits: Suits,
    /// Its `age_max` is this many thousandths of what requests wait with `fifo`.
    patience: Option<u64>,
}

impl Candidate {
    /// For any storage, whatever the load.
    fn plain(scheduler: SchedulerConfig) -> Candidate {
        Candidate { scheduler, suits: Suits::Any, patience: None }
    }
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
/// Those that are considered with bounds, and the bounds, in thousandths of what requests wait with `fifo`.
const PATIENT: [(&str, Suits); 5] = [
    ("sjf", Suits::Any),
    ("mlf contiguous_wait=0s,wait_max=0s", Suits::Many),
    ("mlf", Suits::Many),
    ("aioli contiguous_wait=0s,wait_max=0s", Suits::One),
    ("aioli", Suits::One),
];
const PATIENCE: [u64; 4] = [1_150, 1_060, 950, 500];

impl Candidates {
    /// All that there are.
    pub fn every() -> Candidates {
        let groups = [(&COMMON[..], Suits::Any), (&ONE[..], Suits::One), (&MANY[..], Suits::Many)];
        let plain =
            groups.into_iter().flat_map(|(texts, suits)| texts.iter().map(move |text| (*text, suits, None)));
        let patient = PATIENT
            .into_iter()
            .flat_map(|(text, suits)| PATIENCE.map(|patience| (text, suits, Some(patience))));
        let candidate = |(text, suits, patience)| Candidate { scheduler: parse(text), suits, patience };
        Candidates { all: plain.chain(patient).map(candidate).collect() }
    }

    /// Exactly these, after `fifo`, whatever the storage.
    pub fn of(others: impl IntoIterator<Item = SchedulerConfig>) -> Candidates {
        let fifo = parse("fifo");
        let others = others.into_iter().filter(|other| *other != fifo).collect::<Vec<_>>();
        Candidates { all: core::iter::once(fifo.clone()).chain(others).map(Candidate::plain).collect() }
    }

    /// What the one at this place is, for people.
    pub fn name(&self, index: usize) -> String {
        let Candidate { scheduler, patience, .. } = &self.all[index];
        match patience {
            Some(patience) => format!("{scheduler} with age_max of {patience} thousandths of a wait"),
            None => scheduler.to_string(),
        }
    }

    /// The place of `scheduler`, which is added if it is not among them.
    pub(super) fn place_of(&mut self, scheduler: &SchedulerConfig) -> usize {
        let is_it = |other: &Candidate| other.patience.is_none() && other.scheduler == *scheduler;
        self.all.iter().position(is_it).unwrap_or_else(|| {
            self.all.push(Candidate::plain(scheduler.clone()));
            self.all.len() - 1
        })
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "`fifo` is always one of them")]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether one is worth a simulation, where one dispatch at a time costs nothing, or does.
    pub(super) fn suits(&self, index: usize, one_at_a_time: bool) -> bool {
        self.all[index].suits != if one_at_a_time { Suits::Many } else { Suits::One }
    }

    /// Whether two are the same scheduler, with different parameters.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        self.all[one].scheduler.kind() == self.all[other].scheduler.kind()
    }

    /// Whether one only joins what is queued, and lets nobody wait for what may come.
    pub(super) fn is_gentle(&self, index: usize) -> bool {
        matches!(self.all[index].scheduler.kind(), SchedulerKind::ToAgg | SchedulerKind::Hbrr)
    }

    /// Whether the settings of one depend on what requests wait with `fifo`.
    pub(super) fn is_patient(&self, index: usize) -> bool {
        self.all[index].patience.is_some()
    }

    /// The settings of one where requests wait for `wait` with `fifo`, on the average, their service included.
    pub(super) fn with_wait(&self, index: usize, wait: Span) -> SchedulerConfig {
        let Candidate { scheduler, patience, .. } = &self.all[index];
        let mut scheduler = scheduler.clone();
        if let Some(patience) = patience {
            let age = u128::from(wait.as_nanos()) * u128::from(*patience) / 1_000;
            scheduler.set_value(&AGE_MAX, three_digits(age.clamp(1, 1 << 62) as u64));
        }
        scheduler
    }

    /// Those whose settings do not depend on the load.
    pub fn fixed(&self) -> impl Iterator<Item = &SchedulerConfig> {
        self.all.iter().filter(|candidate| candidate.patience.is_none()).map(|candidate| &candidate.scheduler)
    }
}

/// Whether storage that charges as `pricing` says, behind a gate that lets `depth` dispatches through, loses nothing by one at a
/// time, as `aioli` serves it.
pub(super) fn one_at_a_time(pricing: &dyn Pricing, depth: u32) -> bool {
    pricing.rate(1) * 1_000 >= pricing.rate(depth) * ONE_AT_A_TIME
}

/// `value` with its first three digits only: more of them say nothing, and are hard to read.
fn three_digits(value: u64) -> u64 {
    let least = 10_u64.pow(value.max(1).ilog10().saturating_sub(2));
    value / least * least
}

fn parse(text: &str) -> SchedulerConfig {
    let (name, params) = text.split_once(' ').unwrap_or((text, ""));
    let config = SchedulerConfig::by_name(name).ok().and_then(|config| config.changed(params, 0).ok());
    config.expect("a candidate is a scheduler with parameters that it has")
}
