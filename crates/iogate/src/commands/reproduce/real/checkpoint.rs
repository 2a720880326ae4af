//! Checkpoint coordination for real: jobs that take turns, or back off, and jobs that do neither.

use iogate_report::Table;
use iogate_report::reproduction::{Page, Section};

use super::{Reduced, machine, makespans_near};
use crate::cli::{BenchStore, BenchWay};
use crate::commands::bench::runner::Runner;
use crate::commands::bench::{BY, REAL, SIMULATION};
use crate::commands::reproduce::checkpoint::{BACKOFF, BOTH, CASE, LOCK, NONE, timelines_of};
use crate::commands::reproduce::{Experiment, Lab, percents};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

const CASES: [&str; 4] = [NONE, BACKOFF, LOCK, BOTH];
/// A tenth of the thesis's times and bytes, or less: processes are real, and so are seconds.
const PAIR: [&str; 7] = [
    "repetitions=3",
    "app.job.processes=4",
    "app.job.bytes=24MiB",
    "app.job.compute=3s",
    "coordination.backoff.probes=1",
    "coordination.backoff.sleep_unit=200ms",
    "coordination.backoff.sleep_fixed=100ms",
];
const JOBS: [&str; 11] = [
    "repetitions=2",
    "jobs.count=[6]",
    "clients.nodes=10",
    "jobs.processes_per_node=2",
    "jobs.submit=[0s, 2s]",
    "jobs.iterations=[2, 4]",
    "jobs.compute_total=[7s, 9s]",
    "jobs.bytes_total=[60MiB, 120MiB]",
    "coordination.backoff.probes=1",
    "coordination.backoff.sleep_unit=200ms",
    "coordination.backoff.sleep_fixed=100ms",
];
const QUICK_PAIR: [&str; 7] = [
    "repetitions=1",
    "app.job.processes=2",
    "app.job.bytes=1MiB",
    "app.job.compute=100ms",
    "coordination.backoff.probes=1",
    "coordination.backoff.sleep_unit=20ms",
    "coordination.backoff.sleep_fixed=10ms",
];
const QUICK_JOBS: [&str; 11] = [
    "repetitions=1",
    "jobs.count=[2]",
    "clients.nodes=10",
    "jobs.processes_per_node=2",
    "jobs.submit=[0s, 100ms]",
    "jobs.iterations=[1, 2]",
    "jobs.compute_total=[100ms, 200ms]",
    "jobs.bytes_total=[1MiB, 2MiB]",
    "coordination.backoff.probes=1",
    "coordination.backoff.sleep_unit=20ms",
    "coordination.backoff.sleep_fixed=10ms",
];

pub(in super::super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let runner = Runner::new(BenchStore::Modelled, None, Some(BenchWay::Mount))?;
    let keep = [(CASE, &CASES[..])];
    let (pair_set, jobs_set) = if lab.quick { (&QUICK_PAIR, &QUICK_JOBS) } else { (&PAIR, &JOBS) };
    let run = |scenario, set| {
        let called = scenario;
        lab.side_by_side(&runner, &Reduced { scenario, called, set, keep: &keep, files: &[] })
    };
    let (pair, jobs) = (run("checkpoint-pair", pair_set)?, run("checkpoint-jobs", jobs_set)?);
    Ok(Page {
        title: "Checkpoint coordination for real: jobs that take turns".into(),
        notes: vec![
            format!(
"Scenarios of [checkpoint.md](checkpoint.md) with real processes on {}, at about a tenth of \
             their size: each task is a process that writes real files through a mount, behind which lies the gate of the data server \
             and, in memory, a store in the time of a modelled disk. Jobs get their nodes (numbers, here) from the batch scheduler of \
             the simulator, first come, first served with backfilling. Turns come from an `iogate coord serve` process over a Unix \
             socket, with its journal; who backs off writes and flushes real probes in the mount, calibrated before each run. Both go \
             the way of any job: the library of [docs/turns.md](../turns.md).",
machine()
),
            "Every point is simulated too, with the time that a request spent outside of gate and device in the real run. All points \
             have their first repetition before any has its second, so that what else runs hits all alike. \u{b1} is the 95 % confidence \
             interval."
                .into(),
        ],
        sections: vec![
            section(
                &pair,
                "Figures 4.1 to 4.3: two identical jobs",
                "checkpoint-pair",
                pair_set,
                "The thesis's jobs are larger; its figures are in checkpoint.md.",
            ),
            section(
                &jobs,
                "Figures 4.7 and 4.8: generated jobs",
                "checkpoint-jobs",
                jobs_set,
                "The thesis's jobs are longer and write more; its figures are in checkpoint.md.",
            ),
        ],
        program: PROGRAM.into(),
    })
}

fn section(results: &Experiment, title: &str, scenario: &str, set: &[&str], thesis: &str) -> Section {
    let mut table = Table::new([
        "",
        "I/O time of all: simulated",
        "real",
        "lower by: simulated",
        "real",
        "makespan: simulated",
        "real",
        "seeks: simulated",
        "real",
    ]);
    const IO: &str = "io_time_sum";
    for case in CASES {
        let at = |case, by| [(CASE, case), (BY, by)];
        let both = |metric| [SIMULATION, REAL].map(|by| results.shown(&at(case, by), metric));
        let lower = [SIMULATION, REAL].map(|by| match case {
            NONE => "-".into(),
            _ => percents(results.lower(&at(case, by), &at(NONE, by), IO)),
        });
        let cells = [both(IO), lower, both("makespan"), both("seeks")];
        table.row([case.to_owned()].into_iter().chain(cells.into_iter().flatten()));
    }
    let real: Vec<(Vec<(&str, &str)>, String)> =
        [NONE, BACKOFF, LOCK].map(|case| (vec![(CASE, case), (BY, REAL)], format!("{case}, real"))).into();
    Section {
        title: title.into(),
        scenarios: vec![scenario.into()],
        paper: format!("{thesis} Set in the scenario: `{}`.", set.join("`, `")),
        tables: vec![(String::new(), table)],
        pictures: timelines_of(results, &real),
        verdict: makespans_near(results, &[]),
    }
}
