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

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use iogate_core::{Span, Time};
use iogate_report::{ExperimentReport, Recording, html, units};
use iogate_sim::experiment::{self, PointResult};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{Plan, Point, Scenario};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::{BenchArgs, BenchStore};
use crate::commands::scenario;
use crate::failure::Failure;
use crate::output::{OutputFile, print};
use compare::Row;
use stage::Stage;
use work::Work;

/// The axis that tells simulation from reality in the report.
const BY: &str = "by";

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut plan = scenario::plan(&args.scenario)?;
    let mut notes = Vec::new();
    for point in &mut plan.points {
        fit::check(&point.scenario)?;
        notes = fit::notes(&point.scenario);
        fit::adapt(&mut point.scenario);
    }
    // Begun now, so that a file that cannot be written is known before the work, not after it.
    let mut json = args.json.as_deref().map(OutputFile::create).transpose()?;
    let mut page = args.html.as_deref().map(OutputFile::create).transpose()?;

    let bench = Bench { args, interrupted: Arc::default(), simulating: Arc::default() };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // While it simulates there is nothing to clean up.
        signal_hook::flag::register_conditional_shutdown(signal, 1, bench.simulating.clone())
            .and_then(|_| signal_hook::flag::register(signal, bench.interrupted.clone()))
            .context("signals cannot be handled")?;
    }
    let Some(first) = plan.points.first().map(|point| point.scenario.clone()) else { return Ok(()) };
    notes.splice(0..0, first.notes.iter().cloned());
    notes.push(how(args.store, &first));

    let mut report =
        ExperimentReport::new(&first.title, concat!("iogate ", env!("CARGO_PKG_VERSION")), first.confidence);
    let mut comparisons = Vec::new();
    print(&format!(
        "{}\n{}\n",
        first.title,
        notes.iter().map(|note| format!("  {note}\n")).collect::<String>()
    ))?;
    for point in plan.points {
        let (real, path) = bench.point(&point.scenario, &mut notes)?;
        let add = |report: &mut ExperimentReport, by: &str, result: &PointResult<Recording>| {
            let by = (BY.to_owned(), by.to_owned());
            let settings = point.settings.iter().cloned().chain([by]).collect();
            report.add(settings, &result.runs, result.observer.clone());
        };
        let mut rows = Vec::new();
        if !args.no_sim {
            let simulated = bench.simulate(&point, path)?;
            rows = compare::compare(&simulated.runs, &real.runs);
            add(&mut report, "simulation", &simulated);
        }
        add(&mut report, "real run", &real);
        print(&shown(&point.label(), &real.runs, path, &rows))?;
        let settings: BTreeMap<_, _> = point.settings.into_iter().collect();
        comparisons.push(json!({ "settings": settings, "path_ns": path.as_nanos(), "metrics": rows }));
    }
    report.notes = notes;
    if let Some(out) = json.take() {
        let report = serde_json::to_value(&report).context("the report")?;
        let both = json!({ "comparisons": comparisons, "report": report });
        out.finish_with(&format!("{both:#}\n"))?;
    }
    if let Some(mut out) = page.take() {
        out.write_all(html::experiment(&report).as_bytes()).context("the report cannot be written")?;
        out.finish()?;
    }
    Ok(())
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

/// What a point gave, for a terminal.
fn shown(label: &str, runs: &[RunResult], path: Span, rows: &[Row]) -> String {
    let mut out = if label.is_empty() { String::new() } else { format!("{label}\n") };
    out += &format!(
        "A request spent {} outside of gate and device, mean over all.\n\n",
        units::time(path.as_nanos() as f64)
    );
    let makespans: Vec<f64> = runs.iter().map(|run| run.makespan.as_nanos() as f64).collect();
    if rows.is_empty() {
        let mean = makespans.iter().sum::<f64>() / makespans.len().max(1) as f64;
        return out + &format!("makespan {}\n\n", units::time(mean));
    }
    out += &compare::text(rows);
    let marked = rows.iter().filter(|row| row.is_marked()).count();
    if marked > 0 {
        out += &format!("! differs by more than {} %\n", compare::MARKED_PERCENT);
    }
    out + "\n"
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
        Ok((gather::result(&work, seed, &outcome, &measures), gather::path_time(&outcome, &measures)))
    }
}
