//! `iogate sim`: the runs of a scenario, and what they gave.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_report::experiment::TIMELINES_MAX;
use iogate_report::{ExperimentReport, Perfetto, html, perfetto};
use iogate_sim::experiment::Repeats;
use iogate_sim::scenario::Plan;
use iogate_sim::workload;
use iogate_sim::world::{apps, simulate};

use crate::attempt::Attempt;
use crate::cli::{ExperimentOutputs, SimArgs};
use crate::commands::kept_runs::Work;
use crate::commands::progress::Progress;
use crate::commands::scenario::{self, Chosen};
use crate::failure::Failure;
use crate::output::{OutputFile, check_inputs_stay, print, same_file, say};

/// What made a report.
pub(crate) const PROGRAM: &str = concat!("iogate ", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let outputs = &args.outputs;
    outputs.check(args.trace.as_deref(), [("the scenario", args.scenario.scenario.as_path())])?;
    let chosen = scenario::plan(&args.scenario)?;
    outputs.check(args.trace.as_deref(), chosen.inputs())?;
    let Chosen { plan, text, .. } = chosen;
    warn(&plan.warnings());
    // Begun before the work, so that a place that cannot be written costs no time.
    let files = outputs.begin()?;
    let trace = args.trace.as_deref().map(OutputFile::create).transpose()?;
    let recorded = if args.results.is_some() || outputs.html.is_some() || outputs.json.is_some() {
        TIMELINES_MAX
    } else {
        0
    };
    let name = args.scenario.scenario.file_stem().unwrap_or_default().to_string_lossy();
    let repeats = Repeats::among([&plan]);
    let work = Work {
        plan: &plan,
        name: &name,
        text: &text,
        commit: None,
        recorded,
        threads: args.threads,
        repeats: &repeats,
    };
    let report = match (&args.results, args.shard) {
        (Some(folder), Some(shard)) => {
            let progress = Progress::new(shard.runs(plan.runs()).count() as u64);
            make_folder(folder)?;
            work.keep(shard, folder, &progress)?;
            return print(&format!("{}\n", folder.join(shard.file_name(&name)).display()));
        }
        (Some(folder), None) => {
            make_folder(folder)?;
            work.report_kept(folder, &Progress::new(plan.runs()))?
        }
        (None, _) => work.report(&Progress::new(plan.runs()))?,
    };
    let traced = trace.map_or(Ok(()), |out| write_trace(&plan, out, args.trace.as_deref()));
    Failure::of_all([files.finish(&report), traced])
}

/// Says of what is run what comes out otherwise than it would.
pub(crate) fn warn(lines: &[String]) {
    lines.iter().for_each(|line| say(format_args!("warning: {line}")));
}

/// Makes a folder, and those above it, if it is not there yet.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Failure> {
    Ok(fs::create_dir_all(folder)
        .with_context(|| Attempt::make(format_args!("the folder {}", folder.display())))?)
}

/// The first run of the first point once more, with somebody who writes it down.
fn write_trace(plan: &Plan, out: OutputFile, path: Option<&Path>) -> Result<(), Failure> {
    let Some(scenario) = plan.points.first().map(|point| &point.scenario) else { return Ok(()) };
    let apps = apps(scenario, scenario.seed);
    let names = apps.iter().map(|app| (app.id, app.name.clone()));
    let files = apps.iter().flat_map(workload::file_names);
    let mut trace = Perfetto::new(out, names, perfetto::EVENTS_MAX).with_files(files);
    simulate(scenario, scenario.seed, &mut trace)
        .map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
    let path = path.unwrap_or(Path::new("-")).display();
    let written = trace.finish().with_context(|| Attempt::write(path))?;
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
    Html,
}

pub(crate) fn is_standard_output(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Two flags want standard output.
pub(crate) fn both_to_standard_output(one: &str, other: &str) -> Failure {
    Failure::usage(anyhow!("{one} and {other} both write to standard output: name a file for one of them"))
}

impl ExperimentOutputs {
    /// Refuses outputs that would replace each other, or what is read for them.
    pub(crate) fn check<'a>(
        &self,
        trace: Option<&Path>,
        inputs: impl IntoIterator<Item = (&'a str, &'a Path)>,
    ) -> Result<(), Failure> {
        let all = [
            ("--json", self.json.as_deref()),
            ("--csv", self.csv.as_deref()),
            ("--html", self.html.as_deref()),
            ("--trace", trace),
        ];
        for (index, (flag, path)) in all.iter().enumerate() {
            for (other_flag, other) in &all[..index] {
                if is_standard_output(*path) && is_standard_output(*other) {
                    return Err(both_to_standard_output(other_flag, flag));
                }
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
        check_inputs_stay(&all, inputs)
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
        } else if is_standard_output(self.html.as_deref()) {
            Shown::Html
        } else {
            Shown::Table
        };
        Ok(BegunOutputs { json: begin(&self.json)?, csv: begin(&self.csv)?, html: begin(&self.html)?, shown })
    }
}

impl BegunOutputs {
    /// Whether standard output is for people.
    pub(crate) fn shows_table(&self) -> bool {
        self.shown == Shown::Table
    }

    /// Writes everything: where there is no more room for one form, the others have what took hours, perhaps.
    pub(crate) fn finish(self, report: &ExperimentReport) -> Result<(), Failure> {
        let write = |file: Option<OutputFile>, form: &dyn Fn() -> String| {
            file.map_or(Ok(()), |file| file.finish_with(&form()))
        };
        let json = || report.json() + "\n";
        let shown = match self.shown {
            Shown::Table => report.text(),
            Shown::Json => json(),
            Shown::Csv => report.csv(),
            Shown::Html => html::experiment(report),
        };
        Failure::of_all([
            write(self.json, &json),
            write(self.csv, &|| report.csv()),
            write(self.html, &|| html::experiment(report)),
            print(&shown),
        ])
    }
}
