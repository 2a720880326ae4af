//! `iogate reproduce --real`: the experiments of four papers at one machine's size, and mechanisms on its own device, real and
//! simulated side by side.

pub(super) mod aioli;
pub(super) mod checkpoint;
pub(super) mod coordination;
pub(super) mod mechanisms;
pub(super) mod twins;

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use iogate_core::{Span, Time};
use iogate_report::claims::Interval;
use iogate_report::experiment::Origin;
use iogate_report::{ExperimentReport, Recording, experiment, units};
use iogate_sim::experiment::PointResult;
use iogate_sim::metrics::{self, Unit};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::Plan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Experiment, Lab, Settings, check_origin};
use crate::attempt::Attempt;
use crate::cli::{BenchStore, BenchWay};
use crate::commands::bench::runner::{self, Runner};
use crate::commands::bench::{BY, REAL, SIMULATION};
use crate::commands::sim::PROGRAM;
use crate::commands::{kept_runs, scenario};
use crate::failure::Failure;
use crate::output::{OutputFile, say};

/// A scenario at one machine's size.
struct Reduced<'a> {
    scenario: &'a str,
    /// What its results are kept as.
    called: &'a str,
    /// What is set in it.
    set: &'a [&'a str],
    /// The values of axes that are run.
    keep: &'a [(&'a str, &'a [&'a str])],
    /// What files that are set have in them.
    files: &'a [(&'a str, String)],
}

impl Reduced<'_> {
    /// The points that are run.
    fn plan(&self) -> Result<Plan, Failure> {
        let mut plan = scenario::plan_with(self.scenario, self.set, self.files)?;
        plan.points.retain(|point| self.keeps(&point.settings));
        Ok(plan)
    }

    fn keeps(&self, settings: &[(String, String)]) -> bool {
        let is = |key: &str, values: &[&str]| {
            settings.iter().any(|(set, value)| set == key && values.contains(&value.as_str()))
        };
        self.keep.iter().all(|(key, values)| is(key, values))
    }
}

/// What was measured, real and simulated.
#[derive(Default, Serialize, Deserialize)]
struct Results {
    /// What it was made of, where it is kept.
    origin: Option<Origin>,
    points: Vec<Point>,
}

/// One point of a sweep.
#[derive(Serialize, Deserialize)]
struct Point {
    settings: BTreeMap<String, String>,
    /// A value for each run, by metric; those of a layer as `ion/request_bytes`.
    simulated: BTreeMap<String, Vec<f64>>,
    real: BTreeMap<String, Vec<f64>>,
    /// Nanoseconds that a request spent outside of gates and devices, mean.
    path_ns: u64,
}

/// Real runs without mounts, so that direct and forwarded ones go the same way.
pub(super) fn runner() -> Result<Runner, Failure> {
    Runner::new(BenchStore::Modelled, None, Some(BenchWay::Network))
}

/// A point that has been run, for real and simulated.
struct Ran {
    settings: Vec<(String, String)>,
    confidence: f64,
    real: Vec<RunResult>,
    /// What an onlooker saw of the first repetition.
    recording: Option<Recording>,
    simulated: PointResult<Recording>,
    /// What a request spent outside of gates and devices, mean.
    path: Span,
}

/// Runs all points of a plan for real, and simulates them. All points have their first repetition before any has its second: what else
/// the machine does hits all alike.
fn carry_out(runner: &Runner, called: &str, plan: Plan) -> Result<Vec<Ran>, Failure> {
    let mut points = plan.points;
    for point in &mut points {
        runner.fit(&mut point.scenario)?;
    }
    let repetitions = points.first().map_or(0, |point| point.scenario.repetitions);
    let mut runs: Vec<Vec<RunResult>> = points.iter().map(|_| Vec::new()).collect();
    let mut paths: Vec<Vec<Span>> = points.iter().map(|_| Vec::new()).collect();
    let mut recordings: Vec<Option<Recording>> = points.iter().map(|_| None).collect();
    for repetition in 0..repetitions {
        if std::io::stderr().is_terminal() {
            say(format_args!("{called}: repetition {} of {repetitions}", repetition + 1));
        }
        for (index, point) in points.iter().enumerate() {
            let mut recording = (repetition == 0).then(|| Recording::new(Time::ZERO));
            let (run, path) =
                runner.repetition(&point.scenario, repetition, recording.as_mut(), &mut Vec::new())?;
            runs[index].push(run);
            paths[index].push(path);
            recordings[index] = recordings[index].take().or(recording);
        }
    }
    let mut ran = Vec::new();
    for (((point, real), paths), recording) in points.into_iter().zip(runs).zip(paths).zip(recordings) {
        let path = runner::mean(&paths);
        let simulated = runner.simulate(&point, path)?;
        let confidence = point.scenario.confidence;
        ran.push(Ran { settings: point.settings, confidence, real, recording, simulated, path });
    }
    Ok(ran)
}

/// What the results are called that have real and simulated runs side by side.
const BY_FORM: &str = "by.json";

/// Where results are kept, and of what they are.
struct Kept {
    path: PathBuf,
    origin: Origin,
}

impl Lab<'_> {
    /// The file that results of a form are kept in.
    fn kept_form(&self, called: &str, form: &str) -> Option<PathBuf> {
        self.results.map(|folder| folder.join(format!("{}-{form}", self.called(called))))
    }

    /// The same, of a plan's results.
    fn kept_results(&self, called: &str, form: &str, plan: &Plan) -> Result<Option<Kept>, Failure> {
        let kept = |path| Ok(Kept { path, origin: kept_runs::origin(plan)? });
        self.kept_form(called, form).map(kept).transpose()
    }

    /// Runs a scenario for real and simulates it, unless its results have been kept: the values of each metric.
    fn real(&self, runner: &Runner, reduced: &Reduced<'_>) -> Result<Results, Failure> {
        let plan = reduced.plan()?;
        let kept = self.kept_results(reduced.called, "real.json", &plan)?;
        if let Some(kept) = &kept
            && let Some(results) = kept.read(|results: &Results| results.origin.as_ref())?
        {
            return Ok(results);
        }
        let points = carry_out(runner, reduced.called, plan)?.into_iter().map(|ran| Point {
            settings: ran.settings.into_iter().collect(),
            simulated: measured(&ran.simulated.runs),
            real: measured(&ran.real),
            path_ns: ran.path.as_nanos(),
        });
        let mut results = Results { origin: None, points: points.collect() };
        if let Some(Kept { path, origin }) = kept {
            results.origin = Some(origin);
            let text = serde_json::to_string(&results).context("results as JSON")?;
            OutputFile::create(&path)?.finish_with(&text)?;
        }
        Ok(results)
    }

    /// The same as an experiment, in which real and simulated are two values of the axis [`BY`].
    fn side_by_side(&self, runner: &Runner, reduced: &Reduced<'_>) -> Result<Experiment, Failure> {
        let plan = reduced.plan()?;
        let kept = self.kept_results(reduced.called, BY_FORM, &plan)?;
        if let Some(kept) = &kept
            && let Some(report) = kept.read(|report: &ExperimentReport| report.origin.as_ref())?
        {
            return Ok(Experiment::whole(reduced.called, self.quick, report));
        }
        let points = carry_out(runner, reduced.called, plan)?;
        let confidence = points.first().map_or(LEVEL, |ran| ran.confidence);
        let mut report = ExperimentReport::new(reduced.called, PROGRAM, confidence);
        for Ran { settings, real, recording, simulated, .. } in points {
            let by = |by: &str| {
                let by = (BY.to_owned(), by.to_owned());
                settings.iter().cloned().chain([by]).collect()
            };
            report.add(by(SIMULATION), &simulated.runs, simulated.observer);
            report.add(by(REAL), &real, recording);
        }
        if let Some(Kept { path, origin }) = kept {
            report.origin = Some(origin);
            OutputFile::create(&path)?.finish_with(&report.json())?;
        }
        Ok(Experiment::whole(reduced.called, self.quick, report))
    }
}

impl Kept {
    /// What is there; it must be of what it would be taken for. `origin`: of what it is.
    fn read<T: DeserializeOwned>(
        &self,
        origin: impl Fn(&T) -> Option<&Origin>,
    ) -> Result<Option<T>, Failure> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| Attempt::read(self.path.display()))?,
        };
        let results = serde_json::from_str(&text).map_err(|error| {
            Failure::usage(anyhow!("{} has no results that can be read: {error}", self.path.display()))
                .hint("remove it and the scenario is run again, or give another --results")
        })?;
        check_origin(&self.path, origin(&results), &self.origin)?;
        Ok(Some(results))
    }
}

fn measured(runs: &[RunResult]) -> BTreeMap<String, Vec<f64>> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in runs {
        for metric in metrics::RUN {
            values.entry(metric.name.into()).or_default().extend(metric.of(run));
        }
        for layer in &run.layers {
            for metric in metrics::LAYER {
                values.entry(format!("{}/{}", layer.name, metric.name)).or_default().extend(metric.of(layer));
            }
        }
    }
    values
}

/// What the runs share.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    format!("one machine with {}", units::counted(processors, "processor", "processors"))
}

/// The confidence level of intervals.
const LEVEL: f64 = 0.95;
/// Real and simulated ones are near each other up to the first factor, and not far up to the second.
const CLOSE: f64 = 1.15;
const FAR: f64 = 2.0;

/// In how many of the points with these settings the makespan is as simulated.
fn makespans_near(results: &Experiment, of: &Settings<'_>) -> String {
    let with = |by| -> Vec<(&str, &str)> { of.iter().copied().chain([(BY, by)]).collect() };
    let mean = |point: &experiment::Point| Some(point.metric("makespan")?.estimate.mean);
    let ratios: Vec<f64> = (results.points(&with(REAL)))
        .filter_map(|real| {
            let is_twin = |point: &&experiment::Point| {
                real.settings.iter().all(|(key, value)| key == BY || point.settings.get(key) == Some(value))
            };
            Some(mean(real)? / mean(results.points(&with(SIMULATION)).find(is_twin)?)?)
        })
        .collect();
    let close = ratios.iter().filter(|ratio| (1.0 / CLOSE..=CLOSE).contains(*ratio)).count();
    format!(
        "Of {} points, real and simulated makespans are within {:.0} % of each other in {close}.",
        ratios.len(),
        100.0 * (CLOSE - 1.0)
    )
}

/// How a point was run.
#[derive(Clone, Copy)]
enum How {
    Simulated,
    Real,
}

impl Results {
    fn point(&self, settings: &Settings<'_>) -> Option<&Point> {
        let is = |point: &&Point| {
            settings.iter().all(|(key, value)| point.settings.get(*key).is_some_and(|set| set == value))
        };
        self.points.iter().find(is)
    }

    /// The values of a key, in the order of the sweep.
    fn values(&self, key: &str) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for value in self.points.iter().filter_map(|point| point.settings.get(key)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        values
    }

    /// All runs' values, sorted.
    fn sorted(&self, settings: &Settings<'_>, metric: &str, how: How) -> Vec<f64> {
        let values = self.point(settings).and_then(|point| match how {
            How::Simulated => point.simulated.get(metric),
            How::Real => point.real.get(metric),
        });
        let mut values = values.cloned().unwrap_or_default();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, settings: &Settings<'_>, metric: &str, how: How) -> Option<f64> {
        let values = self.sorted(settings, metric, how);
        let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
        Some((low + high) / 2.0)
    }

    /// The median, with the least and the most in parentheses.
    fn shown(&self, settings: &Settings<'_>, metric: &str, unit: Unit, how: How) -> String {
        let values = self.sorted(settings, metric, how);
        match (self.median(settings, metric, how), values.first(), values.last()) {
            (Some(median), Some(&least), Some(&most)) => {
                let text = |value| units::quantity(value, unit);
                if text(least) == text(most) {
                    return text(median);
                }
                format!("{} ({} to {})", text(median), text(least), text(most))
            }
            _ => "-".into(),
        }
    }

    /// By how many percent `ours` is below `base`, repetition by repetition.
    fn lower(&self, ours: &Settings<'_>, base: &Settings<'_>, metric: &str, how: How) -> Option<Interval> {
        let values = |settings| {
            let point = self.point(settings)?;
            match how {
                How::Simulated => point.simulated.get(metric),
                How::Real => point.real.get(metric),
            }
        };
        let (ours, base) = (values(ours)?, values(base)?);
        let pairs: Vec<(f64, f64)> = ours.iter().copied().zip(base.iter().copied()).collect();
        let paired = ours.len() == base.len();
        let ratio = Interval::of_ratios(&pairs, LEVEL).filter(|_| paired)?;
        Some(ratio.map(|ratio| 100.0 * (1.0 - ratio)))
    }

    /// In how many points real and simulated medians of a metric are near each other.
    fn agreement(&self, metric: &str) -> String {
        let median = |values: Option<&Vec<f64>>| {
            let mut values = values.cloned().unwrap_or_default();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let ratios: Vec<f64> = (self.points.iter())
            .filter_map(|point| Some(median(point.real.get(metric))? / median(point.simulated.get(metric))?))
            .collect();
        let within = |factor: f64| ratios.iter().filter(|r| (1.0 / factor..=factor).contains(*r)).count();
        format!(
            "Of {} points, real and simulated medians are within {:.0} % of each other in {}, within a factor of {FAR} in {}.",
            ratios.len(),
            100.0 * (CLOSE - 1.0),
            within(CLOSE),
            within(FAR)
        )
    }

    /// The time outside of gates and devices, from the shortest to the longest of all points.
    fn paths(&self) -> String {
        let paths = || self.points.iter().map(|point| point.path_ns);
        let text = |path: Option<u64>| units::time(path.unwrap_or(0) as f64);
        format!("{} to {}", text(paths().min()), text(paths().max()))
    }
}
