//! Checkpoint coordination (Sreenivasa: I/O Coordination for Co-Running Scientific Applications to Improve Parallel I/O Performance,
//! North Carolina State University, 2012): chapter 4, and all mechanisms against each other.

mod figures;
mod jobs;
mod mechanisms;

use iogate_report::experiment::PointTimeline;
use iogate_report::html::turns::turns;
use iogate_report::reproduction::{Page, Pictures};

use super::{Experiment, Lab};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

/// The mechanisms of a scenario, by their labels.
pub(super) const CASE: &str = "case";
pub(super) const NONE: &str = "none";
pub(super) const BACKOFF: &str = "backoff";
pub(super) const LOCK: &str = "lock";
pub(super) const BOTH: &str = "lock+backoff";

pub(super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let results = Results {
        pair: lab.experiment("checkpoint-pair")?,
        mix: lab.experiment("checkpoint-mix")?,
        jobs: lab.experiment("checkpoint-jobs")?,
        forwarders: lab.experiment("checkpoint-forwarders")?,
    };
    let sections = vec![
        figures::pair(&results.pair),
        figures::devices(lab)?,
        figures::mix(&results.mix),
        jobs::section(&results.jobs),
        jobs::large(lab)?,
        jobs::backoff(lab, &results.jobs)?,
        figures::alone(lab)?,
        mechanisms::section(&results),
    ];
    Ok(Page {
        title: "Checkpoint coordination: one job at a time does its I/O".into(),
        notes: NOTES.map(String::from).into(),
        sections,
        program: PROGRAM.into(),
    })
}

const NOTES: [&str; 3] = [
    "The thesis's cluster: nodes of 16 cores, one NFS server with disks of 12 TB together on gigabit Ethernet, jobs made of IOR. Ours: \
     clients of 16 tasks, one server with the model of a disk of the time (`graphene`: Deskstar 7K1000.C, 125 MB/s), requests of 1 \
     MiB, as Linux 2.6.32 negotiates them, calls of 256 KiB, IOR's default, on a shared file. The thesis says neither the \
     disks nor the length of the calls; both matter, and are varied below. \u{b1} is the 95 % confidence interval over the seeds.",
    "The coordinator decides by the very table, and the jobs back off by the very rules, that the programs use. An attempt to find the \
     storage quiet is three probes of 3 MiB, 2 s apart (which makes an attempt take the thesis's 4 s), 256 KiB before each; the \
     threshold is 0.85 of the quiet throughput, measured before the run. The thesis does not say how long its jobs sleep: here 1 s \
     and a random number of seconds below 2, 4, 8..., eight attempts at most.",
    "I/O time is from when a job has computed until its last task has written: waiting for a turn, probing and backing off included. \
     Without coordination the server serves requests in order of arrival.",
];

/// The experiments that more than one section has figures of.
struct Results {
    pair: Experiment,
    mix: Experiment,
    jobs: Experiment,
    forwarders: Experiment,
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

/// Percent by which a metric is lower than with no mechanism, with two decimals as in the thesis.
fn lower(results: &Experiment, at: &[(&str, &str)], case: &str, metric: &str) -> String {
    let with = |case| at.iter().copied().chain([(CASE, case)]).collect::<Vec<_>>();
    let reduction = results.reduction(&with(case), &with(NONE), metric);
    reduction.map_or("-".into(), |percent| format!("{percent:.1} %"))
}
