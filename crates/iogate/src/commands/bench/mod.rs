//! `iogate bench`: a scenario on this machine, with real processes, real gates and real stores, beside its simulation.
//!
//! | file | part |
//! |---|---|
//! | `feasibility` | what one machine can do |
//! | `runner` | runs, and their simulation |
//! | `work`, `script` | what each process does, written out |
//! | `testbed` | stores, gates and mounts |
//! | `nodes` | data servers and forwarders as processes, instead |
//! | `turns` | whose turn it is, where the scenario has turns |
//! | `launcher` | the processes, from their start to their end |
//! | `worker`, `pool`, `target`, `nfs_client` | what is in one process |
//! | `collect`, `statuses` | from measurements to the result of a run |
//! | `compare` | simulation and reality side by side |

mod collect;
mod compare;
mod feasibility;
mod launcher;
mod nfs_client;
mod nodes;
mod pool;
pub(crate) mod runner;
mod script;
mod statuses;
mod target;
mod testbed;
mod turns;
mod work;
pub(crate) mod worker;

use anyhow::Result;
use iogate_core::{Span, Time};
use iogate_report::{ExperimentReport, Recording, units};
use iogate_sim::experiment::PointResult;
use iogate_sim::scenario::Scenario;

use crate::cli::{BenchArgs, BenchStore, BenchWay};
use crate::commands::scenario::{self, Chosen};
use crate::commands::sim::{PROGRAM, warn};
use crate::failure::Failure;
use crate::output::print;
use compare::Row;
use runner::Runner;

/// The axis that tells simulation from reality in the report.
pub(crate) const BY: &str = "by";
/// Its values.
pub(crate) const SIMULATION: &str = "simulation";
pub(crate) const REAL: &str = "real run";

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    args.outputs.check(None, [("the scenario", args.scenario.scenario.as_path())])?;
    let chosen = scenario::plan(&args.scenario)?;
    args.outputs.check(None, chosen.inputs())?;
    let Chosen { mut plan, text, .. } = chosen;
    let Some(first) = plan.points.first().map(|point| point.scenario.clone()) else { return Ok(()) };
    let runner = Runner::new(args.store, args.dir.clone(), args.through)?;
    for point in &mut plan.points {
        runner.fit(&mut point.scenario)?;
    }
    // A device of this machine is as it is; the simulation beside it has a model's.
    if args.store == BenchStore::Modelled || !args.no_sim {
        warn(&plan.warnings());
    }
    let way = feasibility::way(&first, args.through, args.store)?;
    // Begun before the work, so that a place that cannot be written costs no time.
    let files = args.outputs.begin()?;
    let mut report = ExperimentReport::new(&first.title, PROGRAM, first.confidence);
    report.scenario = text;
    report.notes.clone_from(&first.notes);
    report.notes.push(how(args.store, way, &first));
    report.notes.extend(feasibility::notes(&first));
    let show = |text: String| if files.shows_table() { print(&text) } else { Ok(()) };
    show(report.notes.iter().map(|note| format!("{note}\n")).collect::<String>() + "\n")?;
    for point in plan.points {
        let label = point.label();
        let mut real = PointResult { runs: Vec::new(), observer: None };
        let mut paths = Vec::new();
        for repetition in 0..point.scenario.repetitions {
            let mut recording = (repetition == 0).then(|| Recording::new(Time::ZERO));
            let (run, path) =
                runner.repetition(&point.scenario, repetition, recording.as_mut(), &mut report.notes)?;
            real.runs.push(run);
            real.observer = real.observer.or(recording);
            paths.push(path);
        }
        let path = runner::mean(&paths);
        let add = |report: &mut ExperimentReport, by: &str, result: PointResult<Recording>| {
            let by = (BY.to_owned(), by.to_owned());
            report.add(point.settings.iter().cloned().chain([by]).collect(), &result.runs, result.observer);
        };
        if !args.no_sim {
            let simulated = runner.simulate(&point, path)?;
            let rows = compare::compare(&simulated.runs, &real.runs, first.confidence);
            show(shown(&label, path, &rows, compare::unlike(&real.runs)))?;
            add(&mut report, SIMULATION, simulated);
        }
        add(&mut report, REAL, real);
    }
    files.finish(&report)
}

/// How it was done.
fn how(store: BenchStore, way: BenchWay, scenario: &Scenario) -> String {
    let store = match store {
        BenchStore::Modelled => {
            format!("in the time of a modelled device ({})", scenario.cluster.servers.device)
        }
        BenchStore::Directory => "on this machine's own device, past its page cache".into(),
        BenchStore::Memory => "in memory".into(),
    };
    let way = match (way, scenario.cluster.forwarders.first()) {
        (BenchWay::Mount, _) => "a mount for each server",
        (BenchWay::Network, None) => "sockets, with a process for each server",
        (BenchWay::Nfs, _) => "NFS, with a process for each server",
        (BenchWay::Network, Some(_)) => "sockets, with a process for each forwarder and each server",
    };
    format!("Real processes read and write real files through {way}, {store}.")
}

/// The comparison of a point, for a terminal.
fn shown(label: &str, path: Span, rows: &[Row], unlike: Option<String>) -> String {
    let label = if label.is_empty() { String::new() } else { format!("{label}\n\n") };
    let path = units::time(path.as_nanos() as f64);
    let mut out = format!("{label}{}", compare::text(rows));
    for (mark, meaning) in compare::MARKS {
        if rows.iter().any(|row| row.mark() == mark) {
            out += &format!("{mark} {meaning}\n");
        }
    }
    let unlike = unlike.map_or(String::new(), |line| format!("{line}\n"));
    format!("{out}A request spent {path} outside of gate and device, in the simulation too\n{unlike}\n")
}
