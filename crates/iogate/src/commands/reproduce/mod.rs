//! `iogate reproduce`: the papers' experiments in the simulator, and their figures beside ours.
//!
//! A paper is a file or a folder here: it names its scenarios (in `scenarios/`), picks the figures from their results,
//! and says what agrees, what differs and why.

mod agios;
mod aioli;
mod auto;
mod checkpoint;
mod claims;
mod coordination;
mod real;
mod twins;

use std::fs;
use std::io::IsTerminal;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use iogate_report::experiment::{Axis, ExperimentReport, Measured, Point};
use iogate_report::html::lines::{Lines, Series};
use iogate_sim::metrics::Unit;

use crate::cli::{Paper, ReproduceArgs};
use crate::commands::{scenario, sim};
use crate::failure::Failure;
use crate::output::{OutputFile, print};

/// Where pages go: those of the quick form are nobody's results, and must not replace any.
const PAGES: &str = "docs/reproduction";
const QUICK_PAGES: &str = "target/reproduction-quick";

pub(crate) fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    let default = if args.quick { QUICK_PAGES } else { PAGES };
    let out = args.out.as_deref().unwrap_or(Path::new(default));
    let lab = Lab { quick: args.quick, threads: args.threads, results: args.results.as_deref() };
    for folder in [Some(out), lab.results].into_iter().flatten() {
        fs::create_dir_all(folder)
            .with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    }
    let all = if args.real { &Paper::REAL[..] } else { &Paper::ALL };
    let papers = if args.papers.is_empty() { all } else { &args.papers };
    let rig = args.real.then(real::rig).transpose()?;
    for paper in papers {
        let begin = Instant::now();
        let (name, mut page) = match (paper, &rig) {
            (Paper::Coordination, Some(rig)) => ("coordination-real", real::coordination::page(&lab, rig)?),
            (Paper::Twins, Some(rig)) => ("twins-real", real::twins::page(&lab, rig)?),
            (Paper::Checkpoint, Some(_)) => ("checkpoint-real", real::checkpoint::page(&lab)?),
            (Paper::Aioli | Paper::Agios | Paper::Auto, Some(_)) => {
                let error = anyhow::anyhow!("--real: expected coordination, twins or checkpoint");
                return Err(Failure::usage(error).hint("`iogate bench` runs other scenarios for real"));
            }
            (Paper::Aioli, None) => ("aioli", aioli::page(&lab)?),
            (Paper::Agios, None) => ("agios", agios::page(&lab)?),
            (Paper::Coordination, None) => ("coordination", coordination::page(&lab)?),
            (Paper::Twins, None) => ("twins", twins::page(&lab)?),
            (Paper::Checkpoint, None) => ("checkpoint", checkpoint::page(&lab)?),
            (Paper::Auto, None) => {
                let (page, rows) = auto::page(&lab);
                keep(out, "auto.csv", &rows)?;
                ("auto", page)
            }
        };
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
        eprintln!("{name}: {:.0} s", begin.elapsed().as_secs_f64());
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
}

impl Lab<'_> {
    /// Runs a scenario that is built in, unless its results have been kept.
    fn experiment(&self, name: &str) -> Result<Experiment, Failure> {
        let form = if self.quick { "-quick" } else { "" };
        let Some(kept) = self.results.map(|folder| folder.join(format!("{name}{form}.json"))) else {
            return self.carry_out(name);
        };
        match fs::read_to_string(&kept) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(report) => Ok(Experiment(report)),
                Err(error) => Err(Failure::usage(
                    anyhow::Error::new(error).context(format!("{} has no results", kept.display())),
                )
                .hint("remove it, and the scenario is run again")),
            },
            Err(_) => {
                let experiment = self.carry_out(name)?;
                OutputFile::create(&kept)?.finish_with(&experiment.0.json())?;
                Ok(experiment)
            }
        }
    }

    fn carry_out(&self, name: &str) -> Result<Experiment, Failure> {
        let plan = scenario::built_in_plan(name, self.quick)?;
        if std::io::stderr().is_terminal() {
            eprintln!("{name}: {} points, {} runs", plan.points.len(), plan.runs());
        }
        let mut report = sim::experiment_report(&plan, "", self.threads, 0)?;
        report.commit = commit();
        Ok(Experiment(report))
    }
}

/// The commit that is checked out here, with a `+` if something of the program or its scenarios has changed since.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", "crates", "scenarios"])?;
    Some(if changed.is_empty() { commit } else { commit + "+" })
}

/// The results of a scenario, found by their settings.
struct Experiment(ExperimentReport);

/// Settings of a point: keys and values.
type Settings<'a> = [(&'a str, &'a str)];

impl Experiment {
    /// The values of a key that was varied.
    fn values(&self, key: &str) -> &[String] {
        self.axis(key).map_or(&[], |axis| &axis.values)
    }

    fn axis(&self, key: &str) -> Option<&Axis> {
        self.0.axes.iter().find(|axis| axis.key == key)
    }

    fn point(&self, settings: &Settings<'_>) -> Option<&Point> {
        let is = |point: &&Point| {
            settings.iter().all(|(key, value)| point.settings.get(*key).is_some_and(|set| set == value))
        };
        self.0.points.iter().find(is)
    }

    fn measured(&self, settings: &Settings<'_>, metric: &str) -> Option<&Measured> {
        self.point(settings)?.metric(metric)
    }

    fn mean(&self, settings: &Settings<'_>, metric: &str) -> Option<f64> {
        Some(self.measured(settings, metric)?.estimate.mean)
    }

    /// A metric of the whole run with its interval; `-` where there is none.
    fn shown(&self, settings: &Settings<'_>, metric: &str) -> String {
        self.measured(settings, metric).map_or("-".into(), Measured::shown)
    }

    /// A metric of one application.
    fn app<'a>(&'a self, settings: &Settings<'_>, app: &str, metric: &str) -> Option<&'a Measured> {
        self.point(settings)?.app(app)?.metric(metric)
    }

    /// A metric of one layer of gates with its interval; `-` where there is none.
    fn layer(&self, settings: &Settings<'_>, layer: &str, metric: &str) -> String {
        shown(self.point(settings).and_then(|point| point.layer(layer)?.metric(metric)))
    }

    /// By how many percent a metric is lower with `settings` than with `base`.
    fn reduction(&self, settings: &Settings<'_>, base: &Settings<'_>, metric: &str) -> Option<f64> {
        Some(100.0 * (1.0 - self.mean(settings, metric)? / self.mean(base, metric)?))
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

/// A factor, as in `3.5x`.
fn factor(value: Option<f64>) -> String {
    value.map_or(
        "-".into(),
        |value| {
            if value < 9.95 { format!("{value:.1}x") } else { format!("{value:.0}x") }
        },
    )
}

/// Percent without decimals.
fn percent(value: Option<f64>) -> String {
    // Adding 0 makes 0 of -0.
    value.map_or("-".into(), |value| format!("{:.0} %", value.round() + 0.0))
}

/// What the figures say of themselves, from the lowest to the highest.
fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| {
        Some(range.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
    })
}
