//! `iogate sim`: the runs of a scenario, and what they gave.

use std::io::IsTerminal;
use std::num::NonZero;
use std::path::Path;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iogate_core::Time;
use iogate_report::{ExperimentReport, Perfetto, Recording, html, perfetto};
use iogate_sim::experiment;
use iogate_sim::scenario::Plan;
use iogate_sim::world::simulate;

use crate::cli::{ExperimentOutputs, SimArgs};
use crate::commands::scenario::{self, Chosen};
use crate::failure::Failure;
use crate::output::{OutputFile, print, same_file};

/// What made a report.
pub(crate) const PROGRAM: &str = concat!("iogate ", env!("CARGO_PKG_VERSION"));
/// Points that are looked on at: as many as a report keeps timelines of.
const RECORDED_MAX: usize = 16;

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let Chosen { plan, text } = scenario::plan(&args.scenario)?;
    let outputs = &args.outputs;
    outputs.check(args.trace.as_deref())?;
    // Begun before the work, so that a place that cannot be written costs no time.
    let files = outputs.begin()?;
    let trace = args.trace.as_deref().map(OutputFile::create).transpose()?;
    let recorded = if outputs.html.is_some() || outputs.json.is_some() { RECORDED_MAX } else { 0 };
    let report = experiment_report(&plan, &text, args.threads, recorded)?;
    if let Some(out) = trace {
        write_trace(&plan, out)?;
    }
    files.finish(&report)
}

/// Runs a plan, with a progress bar, and measures it.
pub(crate) fn experiment_report(
    plan: &Plan,
    text: &str,
    threads: Option<NonZero<usize>>,
    recorded: usize,
) -> Result<ExperimentReport, Failure> {
    let threads =
        threads.unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN));
    let bar = progress(plan.runs());
    let observe = |point: usize| (point < recorded).then(|| Recording::new(Time::ZERO));
    let results = experiment::run(plan, threads, &observe, &|_| bar.inc(1));
    bar.finish_and_clear();
    let results = results.map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
    let Some(first) = plan.points.first() else {
        return Err(Failure::failed(anyhow!("the plan has no points")));
    };
    let mut report = ExperimentReport::new(&first.scenario.title, PROGRAM, first.scenario.confidence);
    report.notes.clone_from(&first.scenario.notes);
    report.scenario = text.to_owned();
    for (point, result) in plan.points.iter().zip(results) {
        report.add(point.settings.clone(), &result.runs, result.observer);
    }
    Ok(report)
}

fn progress(runs: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("[{bar:40}] {pos} of {len} runs  {elapsed}, {eta} to go")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
}

/// The first run of the first point once more, with somebody who writes it down.
fn write_trace(plan: &Plan, out: OutputFile) -> Result<(), Failure> {
    let Some(scenario) = plan.points.first().map(|point| &point.scenario) else { return Ok(()) };
    let names = scenario.apps.iter().map(|app| (app.id, app.name.clone()));
    let mut trace = Perfetto::new(out, names, perfetto::EVENTS_MAX);
    simulate(scenario, scenario.seed, &mut trace)
        .map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
    let written = trace
        .finish()
        .map_err(|error| Failure::failed(anyhow::Error::new(error).context("the trace cannot be written")))?;
    written.finish()
}

/// Outputs that have been begun.
pub(crate) struct BegunOutputs {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    html: Option<OutputFile>,
    /// What goes to standard output.
    shown: Shown,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Table,
    Json,
    Csv,
}

fn is_standard_output(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

impl ExperimentOutputs {
    /// Refuses outputs that would replace each other.
    pub(crate) fn check(&self, trace: Option<&Path>) -> Result<(), Failure> {
        let all = [
            ("--json", self.json.as_deref()),
            ("--csv", self.csv.as_deref()),
            ("--html", self.html.as_deref()),
            ("--trace", trace),
        ];
        for (index, (flag, path)) in all.iter().enumerate() {
            for (other_flag, other) in &all[..index] {
                if let (Some(path), Some(other)) = (path, other)
                    && (path == other || same_file(path, other))
                {
                    let path = path.display();
                    return Err(Failure::usage(anyhow!(
                        "{flag} {path} would replace what {other_flag} writes: expected another file"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Begins the files.
    pub(crate) fn begin(&self) -> Result<BegunOutputs, Failure> {
        let begin = |path: &Option<std::path::PathBuf>| match path {
            Some(path) if path != Path::new("-") => OutputFile::create(path).map(Some),
            _ => Ok(None),
        };
        let shown = if is_standard_output(self.json.as_deref()) {
            Shown::Json
        } else if is_standard_output(self.csv.as_deref()) {
            Shown::Csv
        } else {
            Shown::Table
        };
        Ok(BegunOutputs { json: begin(&self.json)?, csv: begin(&self.csv)?, html: begin(&self.html)?, shown })
    }
}

impl BegunOutputs {
    /// Writes everything.
    pub(crate) fn finish(self, report: &ExperimentReport) -> Result<(), Failure> {
        if let Some(file) = self.json {
            file.finish_with(&(report.json() + "\n"))?;
        }
        if let Some(file) = self.csv {
            file.finish_with(&report.csv())?;
        }
        if let Some(file) = self.html {
            file.finish_with(&html::experiment(report))?;
        }
        print(&match self.shown {
            Shown::Table => report.text(),
            Shown::Json => report.json() + "\n",
            Shown::Csv => report.csv(),
        })
    }
}
