//! `iogate reproduce`: the papers' experiments in the simulator, and their figures beside ours.
//!
//! A paper is a file or a folder here: it names its scenarios (in `scenarios/`), picks the figures from their results,
//! and says what agrees, what differs and why.

mod agios;
mod aioli;
mod auto;
#[cfg(test)]
mod built;
mod checkpoint;
mod claims;
mod coordination;
mod coverage;
mod figure;
mod headlines;
mod mechanisms;
#[cfg(test)]
mod prose;
mod real;
mod sensitivity;
mod sets;
mod shards;
mod twins;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow};
use iogate_report::Table;
use iogate_report::claims::Interval;
use iogate_report::experiment::{Axis, ExperimentReport, Measured, Origin, Point};
use iogate_report::html::lines::{Lines, Series};
use iogate_report::partial::Shard;
use iogate_sim::experiment::Repeats;
use iogate_sim::metrics::Unit;
use iogate_sim::scenario::Plan;

use self::figure::Reproduced;
use crate::cli::{Paper, ReproduceArgs};
use crate::commands::kept_runs::{Work, origin};
use crate::commands::progress::Progress;
use crate::commands::{scenario, sim};
use crate::failure::Failure;
use crate::output::{OutputFile, print, say};

/// Where pages go: those of the quick form are nobody's results, and must not replace any.
const PAGES: &str = "docs/reproduction";
const QUICK_PAGES: &str = "target/reproduction-quick";

pub(crate) fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let default = if args.quick { QUICK_PAGES } else { PAGES };
    let out = args.out.as_deref().unwrap_or(Path::new(default));
    for folder in [Some(out), args.results.as_deref()].into_iter().flatten() {
        sim::make_folder(folder)?;
    }
    let all = if args.real { &Paper::REAL[..] } else { &Paper::ALL };
    let papers = if args.papers.is_empty() { all } else { &args.papers };
    if let Some(shard) = args.shard {
        return shards::run(args, shard);
    }
    if args.real && papers.iter().any(|paper| !Paper::REAL.contains(paper)) {
        return Err(not_for_real());
    }
    let runner = args.real.then(real::runner).transpose()?;
    for paper in papers {
        let begin = Instant::now();
        let lab = Lab::new(args, paper)?;
        let (name, reproduced) = match (paper, &runner) {
            (Paper::Coordination, Some(runner)) => {
                ("coordination-real", Reproduced::beyond(real::coordination::page(&lab, runner)?))
            }
            (Paper::Twins, Some(runner)) => {
                ("twins-real", Reproduced::beyond(real::twins::page(&lab, runner)?))
            }
            (Paper::Aioli, Some(_)) => ("aioli-real", Reproduced::beyond(real::aioli::page(&lab)?)),
            (Paper::Mechanisms, Some(_)) => {
                ("mechanisms-real", Reproduced::beyond(real::mechanisms::page(&lab)?))
            }
            (Paper::Checkpoint, Some(_)) => {
                ("checkpoint-real", Reproduced::beyond(real::checkpoint::page(&lab)?))
            }
            (Paper::Agios | Paper::Sensitivity | Paper::Sets | Paper::Auto | Paper::Coverage, Some(_)) => {
                return Err(not_for_real());
            }
            (Paper::Aioli, None) => ("aioli", aioli::page(&lab)?),
            (Paper::Agios, None) => ("agios", agios::page(&lab)?),
            (Paper::Coordination, None) => ("coordination", coordination::page(&lab)?),
            (Paper::Twins, None) => ("twins", twins::page(&lab)?),
            (Paper::Checkpoint, None) => ("checkpoint", checkpoint::page(&lab)?),
            (Paper::Mechanisms, None) => ("mechanisms", mechanisms::page(&lab)?),
            (Paper::Sensitivity, None) => ("sensitivity", sensitivity::page(&lab)?),
            (Paper::Sets, None) => ("sets", sets::page(&lab)?),
            (Paper::Auto, None) => {
                let (page, rows) = auto::page(&lab)?;
                keep(out, "auto.csv", &rows)?;
                ("auto", Reproduced::beyond(page))
            }
            (Paper::Coverage, None) => {
                keep(out, coverage::PAGE, &coverage::page(out, args.quick)?)?;
                continue;
            }
        };
        let Reproduced { mut page, record } = reproduced;
        if args.quick {
            page.notes.push(
                "This is the quick form: smaller files and fewer seeds. It shows that everything runs; its figures are not the \
                 paper's experiments."
                    .into(),
            );
        }
        for (ending, text) in [("md", page.markdown()), ("html", page.html())] {
            keep(out, &format!("{name}.{ending}"), &text)?;
        }
        if let Some(record) = record {
            let text = serde_json::to_string_pretty(&record).context("a record as JSON")?;
            keep(out, &coverage::record_name(name), &(text + "\n"))?;
        }
        say(format_args!("{name}: {:.0} s", begin.elapsed().as_secs_f64()));
    }
    Ok(())
}

fn keep(out: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = out.join(name);
    OutputFile::create(&path)?.finish_with(text)?;
    print(&format!("{}\n", path.display()))
}

/// Carries out experiments.
struct Lab<'a> {
    quick: bool,
    threads: Option<NonZero<usize>>,
    /// Where results are kept.
    results: Option<&'a Path>,
    progress: Progress,
    /// What scenarios of the paper have in common.
    repeats: Repeats,
}

impl<'a> Lab<'a> {
    /// For the experiments of a paper.
    fn new(args: &'a ReproduceArgs, paper: &Paper) -> Result<Lab<'a>, Failure> {
        let mut lab = Lab {
            quick: args.quick,
            threads: args.threads,
            results: args.results.as_deref(),
            progress: Progress::new(0),
            repeats: Repeats::default(),
        };
        let mut plans = Vec::new();
        for name in scenario::of_paper(paper.name()).filter(|_| !args.real) {
            if !lab.kept(name).is_some_and(|kept| kept.exists()) {
                plans.push(scenario::built_in_plan(name, lab.quick)?);
            }
        }
        lab.progress = Progress::new(plans.iter().map(Plan::runs).sum());
        lab.repeats = Repeats::among(&plans);
        Ok(lab)
    }

    /// Runs a scenario that is built in, unless its results have been kept.
    fn experiment(&self, name: &str) -> Result<Experiment, Failure> {
        let full_axes = scenario::built_in_plan(name, false)?.axes;
        let full_axes = full_axes.into_iter().map(|axis| Axis { key: axis.key, values: axis.values });
        let report = self.report(name)?;
        Ok(Experiment { name: name.into(), quick: self.quick, full_axes: full_axes.collect(), report })
    }

    /// Runs one with keys set, always.
    fn experiment_with(&self, name: &str, settings: &[String]) -> Result<Experiment, Failure> {
        let plan = scenario::built_in_plan_of(name, settings, self.quick)?;
        let report = self.work(name, &plan, |work| work.report(&Progress::new(plan.runs())))?;
        Ok(Experiment::whole(name, self.quick, report))
    }

    /// What a scenario's results are called.
    fn called(&self, name: &str) -> String {
        format!("{name}{}", if self.quick { "-quick" } else { "" })
    }

    /// Where all of a scenario's results are kept.
    fn kept(&self, name: &str) -> Option<PathBuf> {
        self.results.map(|folder| folder.join(format!("{}.json", self.called(name))))
    }

    fn report(&self, name: &str) -> Result<ExperimentReport, Failure> {
        let plan = scenario::built_in_plan(name, self.quick)?;
        let (Some(folder), Some(kept)) = (self.results, self.kept(name)) else {
            self.progress.begin(name);
            return self.work(name, &plan, |work| work.report(&self.progress));
        };
        if let Some(report) = self.read(&kept, &plan)? {
            return Ok(report);
        }
        self.progress.begin(name);
        let report = self.work(name, &plan, |work| work.report_kept(folder, &self.progress))?;
        let report = ExperimentReport { origin: Some(origin(&plan)?), ..report };
        OutputFile::create(&kept)?.finish_with(&report.json())?;
        // What is in the report need not be kept twice; a file that stays does no harm.
        let _ = fs::remove_file(folder.join(Shard::WHOLE.file_name(&self.called(name))));
        Ok(report)
    }

    /// Results that were kept, unless they are not all there.
    fn read(&self, kept: &Path, plan: &Plan) -> Result<Option<ExperimentReport>, Failure> {
        let Ok(text) = fs::read_to_string(kept) else { return Ok(None) };
        let Ok(report) = serde_json::from_str::<ExperimentReport>(&text) else {
            self.progress
                .say(&format!("{} is broken off, or no results: its runs are done again", kept.display()));
            return Ok(None);
        };
        check_origin(kept, report.origin.as_ref(), &origin(plan)?)?;
        Ok(Some(report))
    }

    fn work<T>(&self, name: &str, plan: &Plan, done: impl FnOnce(&Work<'_>) -> T) -> T {
        let name = &self.called(name);
        let (threads, repeats) = (self.threads, &self.repeats);
        done(&Work { plan, name, text: "", commit: commit(), recorded: 0, threads, repeats })
    }
}

fn not_for_real() -> Failure {
    Failure::usage(anyhow!("--real: expected aioli, coordination, twins, checkpoint or mechanisms"))
        .hint("`iogate bench` runs other scenarios for real")
}

/// Refuses results that are not of what they would be taken for.
fn check_origin(kept: &Path, found: Option<&Origin>, ours: &Origin) -> Result<(), Failure> {
    let what = match found {
        Some(found) if found == ours => return Ok(()),
        Some(found) if found.plan == ours.plan => "was made by another build of the program",
        Some(_) => "is of another form of the scenario: other settings, sizes or seeds",
        None => "does not say which program made it",
    };
    Err(Failure::usage(anyhow!("{} {what}", kept.display()))
        .hint("remove it and the scenario is run again, or give another --results"))
}

/// The commit that this program was built from, with a `+` if it is not quite that; `None` where `build.rs` could not tell.
fn commit() -> Option<String> {
    option_env!("IOGATE_COMMIT").map(str::to_owned)
}

/// The results of a scenario, found by their settings.
struct Experiment {
    name: String,
    quick: bool,
    /// The axes of the full form, which the quick form has fewer values of.
    full_axes: Vec<Axis>,
    report: ExperimentReport,
}

/// Settings of a point: keys and values.
type Settings<'a> = [(&'a str, &'a str)];

impl Experiment {
    /// Results that are all there is.
    fn whole(name: &str, quick: bool, report: ExperimentReport) -> Experiment {
        Experiment { name: name.into(), quick, full_axes: report.axes.clone(), report }
    }

    /// The values of a key that was varied.
    fn values(&self, key: &str) -> &[String] {
        self.axis(key).map_or(&[], |axis| &axis.values)
    }

    fn axis(&self, key: &str) -> Option<&Axis> {
        self.report.axes.iter().find(|axis| axis.key == key)
    }

    /// The points with these settings.
    fn points<'a>(&'a self, settings: &'a Settings<'_>) -> impl Iterator<Item = &'a Point> {
        let is = |point: &&Point| {
            settings.iter().all(|(key, value)| point.settings.get(*key).is_some_and(|set| set == value))
        };
        self.report.points.iter().filter(is)
    }

    fn point(&self, settings: &Settings<'_>) -> Option<&Point> {
        let is = |point: &&Point| {
            settings.iter().all(|(key, value)| point.settings.get(*key).is_some_and(|set| set == value))
        };
        self.report.points.iter().find(is)
    }

    fn measured(&self, settings: &Settings<'_>, metric: &str) -> Option<&Measured> {
        self.point(settings)?.metric(metric)
    }

    /// A metric of the whole run with its interval; `-` where there is none.
    fn shown(&self, settings: &Settings<'_>, metric: &str) -> String {
        shown(self.measured(settings, metric))
    }

    /// A metric of one application.
    fn app<'a>(&'a self, settings: &Settings<'_>, app: &str, metric: &str) -> Option<&'a Measured> {
        self.point(settings)?.app(app)?.metric(metric)
    }

    /// A metric of one layer of gates with its interval; `-` where there is none.
    fn layer(&self, settings: &Settings<'_>, layer: &str, metric: &str) -> String {
        shown(self.point(settings).and_then(|point| point.layer(layer)?.metric(metric)))
    }

    /// By how many percent a metric is lower with `settings` than with `base`, seed by seed; none where there are no such points.
    fn lower(&self, settings: &Settings<'_>, base: &Settings<'_>, metric: &str) -> Option<Interval> {
        self.cell(settings, metric).ok()?.lower(&self.cell(base, metric).ok()?)
    }

    /// By which factor a metric is higher with `settings` than with `base`, seed by seed.
    fn factor(&self, settings: &Settings<'_>, base: &Settings<'_>, metric: &str) -> Option<Interval> {
        self.cell(settings, metric).ok()?.by(&self.cell(base, metric).ok()?)
    }

    /// A metric over the values of `key`, at otherwise equal settings, as a line.
    fn series(&self, name: &str, key: &str, settings: &Settings<'_>, metric: &str) -> Series {
        let points = self.values(key).iter().zip(self.numbers(key)).filter_map(|(value, x)| {
            let at: Vec<(&str, &str)> = settings.iter().copied().chain([(key, value.as_str())]).collect();
            let estimate = self.measured(&at, metric)?.estimate;
            Some((x, estimate.mean, estimate.half_width.unwrap_or(0.0)))
        });
        Series { name: name.into(), points: points.collect() }
    }

    fn numbers(&self, key: &str) -> Vec<f64> {
        self.axis(key).and_then(Axis::numbers).unwrap_or_default()
    }

    /// A picture of lines over the values of `key`.
    fn lines(&self, title: &str, key: &str, x_label: &str, unit: Unit, series: Vec<Series>) -> Lines {
        Lines {
            title: title.into(),
            x_label: x_label.into(),
            x_ticks: self.numbers(key).into_iter().zip(self.values(key).iter().cloned()).collect(),
            y_label: String::new(),
            unit,
            series,
        }
    }
}

/// A measured value with its interval; `-` where there is none.
fn shown(measured: Option<&Measured>) -> String {
    measured.map_or("-".into(), Measured::shown)
}

/// A factor with its interval, as in `3.5x (3.4 to 3.6)`.
fn factor(value: Option<Interval>) -> String {
    value.map_or("-".into(), |Interval { low, mean, high }| {
        let text = |value: f64| if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
        let [low, mean, high] = [low, mean, high].map(text);
        if low == high { format!("{mean}x") } else { format!("{mean}x ({low} to {high})") }
    })
}

/// Percent without decimals.
fn percent(value: Option<f64>) -> String {
    // Adding 0 makes 0 of -0.
    value.map_or("-".into(), |value| format!("{:.0} %", value.round() + 0.0))
}

/// Percent with their interval, without decimals: `53 % (51 to 55)`.
fn percents(value: Option<Interval>) -> String {
    value.map_or("-".into(), |Interval { low, mean, high }| {
        let [low, mean, high] = [low, mean, high].map(|value| value.round() + 0.0);
        if low == high { format!("{mean} %") } else { format!("{mean} % ({low} to {high})") }
    })
}

/// How evenly applications were served, and how long calls took: a row for each point.
fn shares(results: &Experiment, points: &[(String, Vec<(&str, &str)>)]) -> (String, Table) {
    const METRICS: [(&str, &str); 6] = [
        ("fairness", "fairness"),
        ("slowdown, mean", "slowdown_mean"),
        ("slowdown, worst", "slowdown_max"),
        ("calls: half within", "call_time_p50"),
        ("99 %", "call_time_p99"),
        ("99.9 %", "call_time_p999"),
    ];
    let any = |metric: &str| points.iter().any(|(_, at)| results.measured(at, metric).is_some());
    let shown: Vec<_> = METRICS.iter().filter(|(_, metric)| any(metric)).collect();
    let mut table = Table::new(std::iter::once("").chain(shown.iter().map(|(name, _)| *name)));
    for (name, at) in points {
        let cells = shown.iter().map(|(_, metric)| results.shown(at, metric));
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    let caption = "How evenly: Jain's index of the applications' rates (one is equal), slowdown against running alone, and how long \
                   calls take";
    (caption.into(), table)
}

/// What the figures say of themselves, from the lowest to the highest.
fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| {
        Some(range.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
    })
}
