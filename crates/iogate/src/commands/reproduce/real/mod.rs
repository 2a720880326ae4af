//! `iogate reproduce --real`: the experiments of four papers at one machine's size, and mechanisms on its own device, real and
//! simulated side by side.

pub(super) mod aioli;
pub(super) mod checkpoint;
pub(super) mod coordination;
pub(super) mod mechanisms;
pub(super) mod twins;

use std::collections::BTreeMap;
use std::io::IsTerminal;

use anyhow::Context;
use iogate_core::{Span, Time};
use iogate_report::claims::Interval;
use iogate_report::{ExperimentReport, Recording, units};
use iogate_sim::metrics::{self, Unit};
use iogate_sim::result::RunResult;
use serde::{Deserialize, Serialize};

use super::{Experiment, Lab, Settings};
use crate::cli::{BenchStore, BenchWay};
use crate::commands::bench::runner::{self, Runner};
use crate::commands::bench::{BY, REAL, SIMULATION};
use crate::commands::scenario;
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;
use crate::output::OutputFile;

/// A scenario at one machine's size.
struct Reduced<'a> {
    scenario: &'a str,
    /// What its results are kept as.
    called: &'a str,
    /// What is set in it.
    set: &'a [&'a str],
    /// The values of axes that are run.
    keep: &'a [(&'a str, &'a [&'a str])],
}

impl Reduced<'_> {
    fn keeps(&self, settings: &[(String, String)]) -> bool {
        let is = |key: &str, values: &[&str]| {
            settings.iter().any(|(set, value)| set == key && values.contains(&value.as_str()))
        };
        self.keep.iter().all(|(key, values)| is(key, values))
    }
}

/// What was measured, real and simulated.
#[derive(Default, Serialize, Deserialize)]
struct Results(Vec<Point>);

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

impl Lab<'_> {
    /// Runs a scenario for real and simulates it, unless its results have been kept. All points have their first
    /// repetition before any has its second: what else the machine does hits all alike.
    fn real(&self, runner: &Runner, reduced: &Reduced<'_>) -> Result<Results, Failure> {
        let form = if self.quick { "-quick" } else { "" };
        let kept = self.results.map(|folder| folder.join(format!("{}-real{form}.json", reduced.called)));
        if let Some(text) = kept.as_ref().and_then(|kept| std::fs::read_to_string(kept).ok()) {
            return Ok(serde_json::from_str(&text).context("kept results that cannot be read")?);
        }
        let mut points = scenario::built_in_plan_with(reduced.scenario, reduced.set)?.points;
        points.retain(|point| reduced.keeps(&point.settings));
        for point in &mut points {
            runner.fit(&mut point.scenario)?;
        }
        let repetitions = points.first().map_or(0, |point| point.scenario.repetitions);
        let mut runs: Vec<Vec<RunResult>> = points.iter().map(|_| Vec::new()).collect();
        let mut paths: Vec<Vec<Span>> = points.iter().map(|_| Vec::new()).collect();
        for repetition in 0..repetitions {
            if std::io::stderr().is_terminal() {
                eprintln!("{}: repetition {} of {repetitions}", reduced.called, repetition + 1);
            }
            for (index, point) in points.iter().enumerate() {
                let (run, path) = runner.repetition(&point.scenario, repetition, None, &mut Vec::new())?;
                runs[index].push(run);
                paths[index].push(path);
            }
        }
        let mut results = Results::default();
        for ((point, runs), paths) in points.iter().zip(&runs).zip(&paths) {
            let path = runner::mean(paths);
            results.0.push(Point {
                settings: point.settings.iter().cloned().collect(),
                simulated: measured(&runner.simulate(point, path)?.runs),
                real: measured(runs),
                path_ns: path.as_nanos(),
            });
        }
        if let Some(kept) = kept {
            let text = serde_json::to_string(&results).context("results as JSON")?;
            OutputFile::create(&kept)?.finish_with(&text)?;
        }
        Ok(results)
    }

    /// Runs a scenario for real and simulates it, unless its results have been kept: two values of the axis
    /// [`BY`].
    fn side_by_side(&self, runner: &Runner, reduced: &Reduced<'_>) -> Result<Experiment, Failure> {
        let form = if self.quick { "-quick" } else { "" };
        let kept = self.results.map(|folder| folder.join(format!("{}-by{form}.json", reduced.called)));
        if let Some(text) = kept.as_ref().and_then(|kept| std::fs::read_to_string(kept).ok()) {
            let report =
                serde_json::from_str(&text).map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
            return Ok(Experiment::whole(reduced.called, self.quick, report));
        }
        let mut points = scenario::built_in_plan_with(reduced.scenario, reduced.set)?.points;
        points.retain(|point| reduced.keeps(&point.settings));
        for point in &mut points {
            runner.fit(&mut point.scenario)?;
        }
        let repetitions = points.first().map_or(0, |point| point.scenario.repetitions);
        let mut runs: Vec<Vec<RunResult>> = points.iter().map(|_| Vec::new()).collect();
        let mut paths: Vec<Vec<_>> = points.iter().map(|_| Vec::new()).collect();
        let mut recordings: Vec<Option<Recording>> = points.iter().map(|_| None).collect();
        for repetition in 0..repetitions {
            for (index, point) in points.iter().enumerate() {
                let mut recording = (repetition == 0).then(|| Recording::new(Time::ZERO));
                let (run, path) =
                    runner.repetition(&point.scenario, repetition, recording.as_mut(), &mut Vec::new())?;
                runs[index].push(run);
                paths[index].push(path);
                recordings[index] = recordings[index].take().or(recording);
            }
        }
        let confidence = points.first().map_or(0.95, |point| point.scenario.confidence);
        let mut report = ExperimentReport::new(reduced.called, PROGRAM, confidence);
        for (((point, runs), paths), recording) in points.iter().zip(&runs).zip(&paths).zip(recordings) {
            let simulated = runner.simulate(point, runner::mean(paths))?;
            let by = |by: &str| {
                let by = (BY.to_owned(), by.to_owned());
                point.settings.iter().cloned().chain([by]).collect()
            };
            report.add(by(SIMULATION), &simulated.runs, simulated.observer);
            report.add(by(REAL), runs, recording);
        }
        if let Some(kept) = kept {
            OutputFile::create(&kept)?.finish_with(&report.json())?;
        }
        Ok(Experiment::whole(reduced.called, self.quick, report))
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

/// The confidence level of intervals.
const LEVEL: f64 = 0.95;
/// Real and simulated ones are near each other up to the first factor, and not far up to the second.
const CLOSE: f64 = 1.15;
const FAR: f64 = 2.0;

/// In how many points makespans are as simulated, of which these are the ratios of real ones to simulated ones.
fn makespans_near(ratios: &[f64]) -> String {
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
        self.0.iter().find(is)
    }

    /// The values of a key, in the order of the sweep.
    fn values(&self, key: &str) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for value in self.0.iter().filter_map(|point| point.settings.get(key)) {
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
        let ratios: Vec<f64> = (self.0.iter())
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
        let paths = || self.0.iter().map(|point| point.path_ns);
        let text = |path: Option<u64>| units::time(path.unwrap_or(0) as f64);
        format!("{} to {}", text(paths().min()), text(paths().max()))
    }
}
