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

use std::io::Write;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use iogate_core::Time;
use iogate_report::{ExperimentReport, Recording, html, units};
use iogate_sim::experiment::{self, PointResult};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{Plan, Scenario};
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

    let simulated = if args.no_sim { None } else { Some(simulate(&plan)?) };
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone()).context("signals cannot be handled")?;
    }
    let bench = Bench { args, interrupted };
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
    for (index, point) in plan.points.iter().enumerate() {
        let real = bench.point(&point.scenario, &mut notes)?;
        let settings = |by: &str| {
            let axis = args.no_sim.then_some(()).is_none().then(|| (BY.to_owned(), by.to_owned()));
            point.settings.iter().cloned().chain(axis).collect::<Vec<_>>()
        };
        let mut rows = Vec::new();
        if let Some(simulated) = &simulated {
            let PointResult { runs, observer } = &simulated[index];
            rows = compare::compare(runs, &real.runs);
            report.add(settings("simulation"), runs, observer.clone());
        }
        report.add(settings("real run"), &real.runs, real.observer.clone());
        print(&shown(&point.label(), &real.runs, &rows))?;
        comparisons.push(json!({ "settings": point.settings, "metrics": rows }));
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

fn simulate(plan: &Plan) -> Result<Vec<PointResult<Recording>>, Failure> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    experiment::run(plan, threads, &|_| Some(Recording::new(Time::ZERO)), &|_| ())
        .map_err(|error| Failure::failed(anyhow::Error::new(error)))
}

/// What a point gave, for a terminal.
fn shown(label: &str, runs: &[RunResult], rows: &[Row]) -> String {
    let mut out = if label.is_empty() { String::new() } else { format!("{label}\n\n") };
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
}

impl Bench<'_> {
    /// All runs of a point.
    fn point(&self, scenario: &Scenario, notes: &mut Vec<String>) -> Result<PointResult<Recording>, Failure> {
        let mut result = PointResult { runs: Vec::new(), observer: None };
        for repetition in 0..scenario.repetitions {
            let seed = scenario.seed.saturating_add(repetition.into());
            let mut recording = (repetition == 0).then(|| Recording::new(Time::ZERO));
            let mut run = self.once(scenario, seed, recording.as_mut(), notes)?;
            if scenario.alone {
                for app in &scenario.apps {
                    let single = Scenario { apps: vec![app.clone()], ..scenario.clone() };
                    let alone = self.once(&single, seed, None, notes)?;
                    let took = alone.apps.first().map(|result| result.end.since(result.start));
                    if let Some(result) = run.apps.iter_mut().find(|result| result.id == app.id) {
                        result.alone = took;
                    }
                }
            }
            result.runs.push(run);
            result.observer = result.observer.or(recording);
        }
        Ok(result)
    }

    /// One run.
    fn once(
        &self,
        scenario: &Scenario,
        seed: u64,
        recording: Option<&mut Recording>,
        notes: &mut Vec<String>,
    ) -> Result<RunResult, Failure> {
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
        let outcome = crowd::run(&work, &scripts, scenario.time_max, &self.interrupted);
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
        Ok(gather::result(&work, seed, &outcome, &measures))
    }
}
