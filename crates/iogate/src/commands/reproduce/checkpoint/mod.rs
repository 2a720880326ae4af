//! Checkpoint coordination (Sreenivasa: I/O Coordination for Co-Running Scientific Applications to Improve Parallel I/O Performance,
//! North Carolina State University, 2012): chapter 4, and all mechanisms against each other.

mod below;
mod figures;
mod jobs;
mod mechanisms;
mod rates;
mod spread;

use iogate_report::experiment::PointTimeline;
use iogate_report::html::turns::turns;
use iogate_report::reproduction::Pictures;

use super::figure::Reproduced;
use super::{Experiment, Lab};
use crate::failure::Failure;

/// The mechanisms of a scenario, by their labels.
pub(super) const CASE: &str = "case";
pub(super) const NONE: &str = "none";
pub(super) const BACKOFF: &str = "backoff";
pub(super) const LOCK: &str = "lock";
pub(super) const BOTH: &str = "lock+backoff";
/// A scheduler that sorts below, without and with turns.
const SORTED: &str = "aioli";
const LOCK_SORTED: &str = "lock, aioli";

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let results = Results {
        pair: lab.experiment("checkpoint-pair")?,
        mix: lab.experiment("checkpoint-mix")?,
        jobs: lab.experiment("checkpoint-jobs")?,
        forwarders: lab.experiment("checkpoint-forwarders")?,
        devices: lab.experiment("checkpoint-devices")?,
        large: lab.experiment("checkpoint-jobs-large")?,
        backoff: lab.experiment("checkpoint-backoff")?,
        alone: lab.experiment("checkpoint-alone")?,
    };
    let (pair_below, mix_below) =
        (lab.experiment("checkpoint-pair-below")?, lab.experiment("checkpoint-mix-below")?);
    let jobs_below = lab.experiment("checkpoint-jobs-below")?;
    let rates = ["pair", "mix", "jobs"].map(|name| lab.experiment(&format!("checkpoint-{name}-rates")));
    let [pair_rates, mix_rates, jobs_rates] = rates;
    let (pair_rates, mix_rates, jobs_rates) = (pair_rates?, mix_rates?, jobs_rates?);
    let jobs_spread = lab.experiment("checkpoint-jobs-spread")?;
    let sleeps_spread = lab.experiment("checkpoint-jobs-sleeps")?;
    let large_spread = lab.experiment("checkpoint-jobs-large-spread")?;
    let backoff_chosen = lab.experiment("checkpoint-backoff-chosen")?;
    let figures = vec![
        figures::pair(&results.pair)?,
        figures::devices(&results.devices)?,
        figures::mix(&results.mix)?,
        below::figure(&pair_below, &mix_below)?,
        jobs::figure(&results.jobs)?,
        spread::figure(&jobs_spread, &sleeps_spread)?,
        below::jobs(&jobs_below)?,
        rates::figure(&pair_rates, &mix_rates, &jobs_rates)?,
        jobs::large(&results.large, &large_spread)?,
        jobs::backoff(&results.backoff, &backoff_chosen, &results.jobs)?,
        figures::alone(&results.alone)?,
        mechanisms::figure(&results)?,
    ];
    let title = "Checkpoint coordination: one job at a time does its I/O";
    Ok(Reproduced::new("iogate reproduce checkpoint", title, NOTES.map(String::from).into(), figures))
}

const NOTES: [&str; 3] = [
    "The thesis's cluster: nodes of 16 cores, one NFS server with disks of 12 TB together on gigabit Ethernet, jobs made of IOR. Ours: \
     clients of 16 tasks, one server with the model of a disk of the time (`graphene`: Deskstar 7K1000.C, 125 MB/s), requests of 1 \
     MiB, as Linux 2.6.32 negotiates them, calls of 256 KiB, IOR's default, on a shared file. The thesis says neither the \
     disks nor the length of the calls; both matter, and are varied below. What is in parentheses, or after \u{b1}, is the 95 % \
     confidence interval over the seeds, of reductions over pairs of runs with the same seed.",
    "The coordinator decides by the very table, and the jobs back off by the very rules, that the programs use. An attempt to find the \
     storage quiet is three probes of 3 MiB, 2 s apart (which makes an attempt take the thesis's 4 s), 256 KiB before each; the \
     threshold is 0.85 of the quiet throughput, measured before the run. The thesis does not say how long its jobs sleep: here 1 s \
     and a random number of seconds below 2, 4, 8..., eight attempts at most.",
    "I/O time is from when a job has computed until its last task has written: waiting for a turn, probing and backing off included. \
     Without coordination the server serves requests in order of arrival (`fifo`). The thesis's NFS server had an elevator, which \
     sorts; where `aioli` stands for it, turns are compared with `aioli` alone, not with `fifo`.",
];

/// The experiments.
struct Results {
    pair: Experiment,
    mix: Experiment,
    jobs: Experiment,
    forwarders: Experiment,
    devices: Experiment,
    large: Experiment,
    backoff: Experiment,
    alone: Experiment,
}

/// The first runs with these mechanisms as pictures on one time scale.
fn timelines(results: &Experiment, figures: &[(&str, &str)]) -> Pictures {
    let figures: Vec<_> =
        figures.iter().map(|(case, name)| (vec![(CASE, *case)], format!("{name}: {case}"))).collect();
    timelines_of(results, &figures)
}

/// The first runs of some points, each with a title, as pictures on one time scale.
pub(super) fn timelines_of(results: &Experiment, points: &[(Vec<(&str, &str)>, String)]) -> Pictures {
    let found: Vec<(&String, &PointTimeline)> = (points.iter())
        .filter_map(|(at, title)| Some((title, results.point(at)?.timeline.as_ref()?)))
        .collect();
    let end_ns = found.iter().map(|(_, timeline)| timeline.end_ns).max().unwrap_or(1);
    found.into_iter().map(|(title, timeline)| (title.clone(), turns(title, timeline, end_ns))).collect()
}
