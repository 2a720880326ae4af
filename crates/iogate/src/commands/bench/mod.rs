//! `iogate bench`: a scenario on this machine, with real processes, real gates and real stores, beside its simulation.
//!
//! | file | part |
//! |---|---|
//! | `fit` | what one machine can do |
//! | `work`, `script` | what each process does, written out |
//! | `stage` | stores, gates and mounts |
//! | `crowd` | the processes, from their start to their end |
//! | `worker`, `pool` | what is in one process |
//! | `gather` | from measurements to the result of a run |
//! | `compare` | simulation and reality side by side |

mod compare;
mod crowd;
mod fit;
mod gather;
mod pool;
mod script;
mod stage;
mod work;
pub(crate) mod worker;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use iogate_core::{Span, Time};
use iogate_report::{ExperimentReport, Recording, units};
use iogate_sim::experiment::{self, PointResult};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{Plan, Point, Scenario};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::{BenchArgs, BenchStore};
use crate::commands::scenario::{self, Chosen};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;
use crate::output::print;
use compare::Row;
use stage::Stage;
use work::Work;

/// The axis that tells simulation from reality in the report.
const BY: &str = "by";

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let Chosen { mut plan, text } = scenario::plan(&args.scenario)?;
    let Some(first) = plan.points.first().map(|point| point.scenario.clone()) else { return Ok(()) };
    for point in &mut plan.points {
        fit::check(&point.scenario)?;
        fit::adapt(&mut point.scenario);
    }
    args.outputs.check(None)?;
    // Begun before the work, so that a place that cannot be written costs no time.
    let files = args.outputs.begin()?;
    let bench = Bench { args, interrupted: Arc::default(), simulating: Arc::default() };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // While it simulates there is nothing to clean up.
        signal_hook::flag::register_conditional_shutdown(signal, 1, bench.simulating.clone())
            .and_then(|_| signal_hook::flag::register(signal, bench.interrupted.clone()))
            .context("signals cannot be handled")?;
    }
    let mut report = ExperimentReport::new(&first.title, PROGRAM, first.confidence);
    report.scenario = text;
    report.notes.clone_from(&first.notes);
    report.notes.push(how(args.store, &first));
    report.notes.extend(fit::notes(&first));
    let show = |text: String| if files.shows_table() { print(&text) } else { Ok(()) };
    show(report.notes.iter().map(|note| format!("{note}\n")).collect::<String>() + "\n")?;
    for point in plan.points {
        let label = point.label();
        let (real, path) = bench.point(&point.scenario, &mut report.notes)?;
        let add = |report: &mut ExperimentReport, by: &str, result: PointResult<Recording>| {
            let by = (BY.to_owned(), by.to_owned());
            report.add(point.settings.iter().cloned().chain([by]).collect(), &result.runs, result.observer);
        };
        if !args.no_sim {
            let simulated = bench.simulate(&point, path)?;
            let rows = compare::compare(&simulated.runs, &real.runs, first.confidence);
            show(shown(&label, path, &rows))?;
            add(&mut report, "simulation", simulated);
        }
        add(&mut report, "real run", real);
    }
    files.finish(&report)
}

/// How it was done.
fn how(store: BenchStore, scenario: &Scenario) -> String {
    let store = match store {
        BenchStore::Modelled => {
            format!("in the time of a modelled device ({})", scenario.cluster.servers.device)
        }
        BenchStore::Directory => "on this machine's own device, past its page cache".into(),
        BenchStore::Memory => "in memory".into(),
    };
    format!("Real processes read and write real files through a mount for each server, {store}.")
}

/// The comparison of a point, for a terminal.
fn shown(label: &str, path: Span, rows: &[Row]) -> String {
    let label = if label.is_empty() { String::new() } else { format!("{label}\n\n") };
    let path = units::time(path.as_nanos() as f64);
    let mut out = format!("{label}{}", compare::text(rows));
    for (mark, meaning) in compare::MARKS {
        if rows.iter().any(|row| row.mark() == mark) {
            out += &format!("{mark} {meaning}\n");
        }
    }
    format!("{out}A request spent {path} outside of gate and device, in the simulation too\n\n")
}

/// Runs scenarios for real.
struct Bench<'a> {
    args: &'a BenchArgs,
    interrupted: Arc<AtomicBool>,
    simulating: Arc<AtomicBool>,
}

impl Bench<'_> {
    /// The same in the simulator, with the time that requests spent between processes and gates.
    fn simulate(&self, point: &Point, path: Span) -> Result<PointResult<Recording>, Failure> {
        let mut point = point.clone();
        fit::add_path(&mut point.scenario, path);
        let plan = Plan { axes: Vec::new(), points: vec![point] };
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        self.simulating.store(true, Ordering::SeqCst);
        let results = experiment::run(&plan, threads, &|_| Some(Recording::new(Time::ZERO)), &|_| ());
        self.simulating.store(false, Ordering::SeqCst);
        let results = results.map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
        Ok(results.into_iter().next().context("the simulation gave no result")?)
    }

    /// All runs of a point, and what a request spent outside of gate and device, mean over all runs.
    fn point(
        &self,
        scenario: &Scenario,
        notes: &mut Vec<String>,
    ) -> Result<(PointResult<Recording>, Span), Failure> {
        let mut result = PointResult { runs: Vec::new(), observer: None };
        let mut paths = 0;
        for repetition in 0..scenario.repetitions {
            let seed = scenario.seed.saturating_add(repetition.into());
            let mut recording = (repetition == 0).then(|| Recording::new(Time::ZERO));
            let (mut run, path) = self.once(scenario, seed, recording.as_mut(), notes)?;
            paths += path.as_nanos();
            if scenario.alone {
                for app in &scenario.apps {
                    let single = Scenario { apps: vec![app.clone()], ..scenario.clone() };
                    let (alone, _) = self.once(&single, seed, None, notes)?;
                    let took = alone.apps.first().map(|result| result.end.since(result.start));
                    if let Some(result) = run.apps.iter_mut().find(|result| result.id == app.id) {
                        result.alone = took;
                    }
                }
            }
            result.runs.push(run);
            result.observer = result.observer.or(recording);
        }
        Ok((result, Span::from_nanos(paths / u64::from(scenario.repetitions.max(1)))))
    }

    /// One run, and what a request spent outside of gate and device.
    fn once(
        &self,
        scenario: &Scenario,
        seed: u64,
        recording: Option<&mut Recording>,
        notes: &mut Vec<String>,
    ) -> Result<(RunResult, Span), Failure> {
        let servers = scenario.cluster.servers.nodes;
        let mut stage = Stage::new(self.args.store, self.args.dir.as_deref(), servers)?;
        let folders: Vec<_> = (0..servers).map(|server| stage.mountpoint(server)).collect();
        let work = Work::plan(scenario, seed, &folders)?;
        let throttled =
            "Some processes want more requests in progress than there may be threads: the others wait.";
        if work.is_throttled && !notes.iter().any(|note| note == throttled) {
            notes.push(throttled.into());
        }
        stage.create_files(&work)?;
        let scripts = work.write_scripts(seed, stage.folder())?;
        stage.open(scenario, seed)?;
        let outcome = crowd::run(&work, &scripts, seed, scenario.time_max, &self.interrupted);
        let outcome = match outcome {
            Err(_) if self.interrupted.load(Ordering::SeqCst) => {
                return Err(Failure::failed(anyhow!("interrupted")));
            }
            outcome => outcome?,
        };
        let measures = stage.measures();
        if let Some(recording) = recording {
            gather::show(&work, &outcome, &measures, recording);
        }
        Ok((gather::result(&work, seed, &outcome, &measures), gather::path_time(&work, &outcome, &measures)))
    }
}
