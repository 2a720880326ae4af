//! An experiment: what was measured at each point of a sweep, over several runs with different seeds.
//!
//! | module | purpose |
//! |---|---|
//! | `measure` | from the results of runs to means with intervals |
//! | `best` | which scheduler is best in which situation |
//! | `forms` | the same for terminals, as JSON and as CSV |

mod best;
mod forms;
mod measure;

use std::collections::BTreeMap;

use iogate_core::units;
use iogate_sim::metrics::{APP, Better, CLASS, LAYER, Metric, RUN, Unit};
use iogate_sim::result::RunResult;
use iogate_sim::stat::Estimate;
use serde::{Deserialize, Serialize};

use crate::recording::Recording;
use iogate_core::stats::summary::SizeClass;

pub use best::{Best, Situations};
pub(crate) use best::{combinations, label};

/// The form of [`ExperimentReport`] in JSON. Fields may be added without a new version.
pub const VERSION: u32 = 1;

/// Points whose timeline is kept: at more of them nobody needs to look on.
pub const TIMELINES_MAX: usize = 16;
/// Of those the applications and the I/O phases of each.
const TIMELINE_APPS_MAX: usize = 32;
const TIMELINE_PHASES_MAX: usize = 256;
const TIMELINE_CHOICES_MAX: usize = 256;

/// A whole experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// [`VERSION`].
    pub version: u32,
    /// What was done, in a few words.
    pub title: String,
    /// How and why: a sentence each.
    pub notes: Vec<String>,
    /// The program that made it, with its version.
    pub program: String,
    /// The commit of the project that it was made with, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// In results that are kept to be used again: what they are of, and what made them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The scenario, as it was written.
    pub scenario: String,
    /// Confidence level of all intervals, as in 0.95.
    pub confidence: f64,
    /// What the points differ in, in the order in which it appeared.
    pub axes: Vec<Axis>,
    /// What the metrics mean.
    pub metrics: Vec<Definition>,
    /// The points, in the order in which they were added.
    pub points: Vec<Point>,
}

/// What tells results from those of another scenario, or of another program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What tells the scenario with all its settings and seeds from others.
    pub plan: String,
    /// What tells this build of the program from others.
    pub build: String,
}

/// One thing in which points differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Which setting.
    pub key: String,
    /// Its values, in the order in which they appeared.
    pub values: Vec<String>,
}

/// What a metric means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// What it is measured of.
    pub of: Of,
    /// Its name.
    pub name: String,
    /// What its values count.
    pub unit: Unit,
    /// What it says, in a line.
    pub meaning: String,
    /// Which values are better.
    pub better: Better,
}

/// What something is measured of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// A whole run.
    Run,
    /// One application.
    App,
    /// A group of applications, or one application where there are groups.
    Class,
    /// The gates of one layer.
    Layer,
}

/// One combination of settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The value of each axis.
    pub settings: BTreeMap<String, String>,
    /// The seeds of its runs.
    pub seeds: Vec<u64>,
    /// How many of its runs the time limit ended.
    pub cut_off: u64,
    /// Metrics of the whole run.
    pub metrics: Vec<Measured>,
    /// The applications, in order of appearance.
    pub apps: Vec<AppPoint>,
    /// Where a scenario has groups: each group, and behind it the applications in it; then those that are in none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassPoint>,
    /// The layers of gates, the clients' side first.
    pub layers: Vec<LayerPoint>,
    /// Its first run; kept for the first points only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<PointTimeline>,
}

/// A metric over all runs of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// What its values count.
    pub unit: Unit,
    /// Its mean over the runs in which it could be measured.
    pub estimate: Estimate,
    /// Its value in each run, in the order of the point's seeds, to compare points seed by seed; empty where a run has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
}

/// One application at a point, over all runs that have one of this name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppPoint {
    /// Its name.
    pub name: String,
    /// Its metrics.
    pub metrics: Vec<Measured>,
}

/// One group of applications at a point, or one application where there are groups, over all runs that have one of this name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassPoint {
    /// Its name.
    pub name: String,
    /// The group that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether it is a group.
    pub is_group: bool,
    /// Its metrics.
    pub metrics: Vec<Measured>,
}

/// One layer of gates at a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerPoint {
    /// Its name.
    pub name: String,
    /// Its scheduler and parameters.
    pub scheduler: String,
    /// Its metrics, with two for each reason for deliberate waits: `waits:REASON` and `wait_time:REASON`.
    pub metrics: Vec<Measured>,
    /// Sizes of requests at its first gate, all runs together.
    pub request_sizes: Vec<SizeClass>,
    /// Sizes of dispatches of its first gate, all runs together.
    pub dispatch_sizes: Vec<SizeClass>,
    /// Times from arrival to dispatch at its first gate, all runs together.
    pub waiting_times: Vec<TimeClass>,
}

/// How many times lie from a power of two (in ns) up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeClass {
    /// The power of two, in ns.
    pub from_ns: u64,
    /// How many.
    pub count: u64,
}

/// The first run of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointTimeline {
    /// Its seed.
    pub seed: u64,
    /// What all times count from.
    pub origin_ns: u64,
    /// From the origin to the end of the last application.
    pub end_ns: u64,
    /// The applications; the first 32.
    pub apps: Vec<AppTimeline>,
    /// Who was served when.
    pub recording: Option<Recording>,
    /// What gates chose, where the scheduler is chosen; of each gate the last changes, and of all the first 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChangedScheduler>,
}

/// A change of a gate's scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedScheduler {
    /// The layer of gates.
    pub layer: String,
    /// Which node of it.
    pub node: u32,
    /// When, from [`PointTimeline::origin_ns`].
    pub at_ns: u64,
    /// The scheduler since, with its parameters.
    pub scheduler: String,
    /// Why, with the gain that was predicted and measured.
    pub why: String,
}

/// One application of a run. Times count from [`PointTimeline::origin_ns`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppTimeline {
    /// Its application id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its I/O phases; the first 256.
    pub phases: Vec<IoPhase>,
    /// When its attempts to find the storage quiet began; the first 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts_ns: Vec<u64>,
}

/// One I/O phase of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPhase {
    /// When the application was ready for it, if it then waited for its turn or for quiet storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_ns: Option<u64>,
    /// When it began.
    pub start_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
    /// Bytes moved in it.
    pub bytes: u64,
}

impl ExperimentReport {
    /// An experiment without points; its notes and its scenario are for the caller to fill in.
    pub fn new(title: impl Into<String>, program: impl Into<String>, confidence: f64) -> ExperimentReport {
        fn definitions<T>(of: Of, table: &[Metric<T>]) -> impl Iterator<Item = Definition> {
            table.iter().map(move |metric| Definition {
                of,
                name: metric.name.into(),
                unit: metric.unit,
                meaning: metric.meaning.into(),
                better: metric.better,
            })
        }
        ExperimentReport {
            version: VERSION,
            title: title.into(),
            notes: Vec::new(),
            program: program.into(),
            commit: None,
            origin: None,
            scenario: String::new(),
            confidence,
            axes: Vec::new(),
            metrics: definitions(Of::Run, RUN)
                .chain(definitions(Of::App, APP))
                .chain(definitions(Of::Class, CLASS))
                .chain(definitions(Of::Layer, LAYER))
                .collect(),
            points: Vec::new(),
        }
    }

    /// Adds a point: its settings (the same keys at every point), its runs, and who was served when in the first of
    /// them. Of more than 16 points the timelines of the first 16 are kept.
    pub fn add(&mut self, settings: Vec<(String, String)>, runs: &[RunResult], recording: Option<Recording>) {
        for (key, value) in &settings {
            let axis = match self.axes.iter_mut().find(|axis| axis.key == *key) {
                Some(axis) => axis,
                None => {
                    self.axes.push(Axis { key: key.clone(), values: Vec::new() });
                    self.axes.last_mut().expect("one was just added")
                }
            };
            if !axis.values.contains(value) {
                axis.values.push(value.clone());
            }
        }
        let mut point = Point::new(settings.into_iter().collect(), runs, self.confidence);
        if self.points.len() < TIMELINES_MAX {
            point.timeline = runs.first().map(|run| PointTimeline::new(run, recording));
        }
        self.points.push(point);
    }

    /// The axes that have more than one value.
    pub fn varied(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().filter(|axis| axis.values.len() > 1)
    }

    /// What distinguishes a point from the others, in a few words: `aioli, processes 8`.
    pub fn label(&self, point: &Point) -> String {
        let words: Vec<String> =
            (self.varied()).filter_map(|axis| Some(axis.word(point.settings.get(&axis.key)?))).collect();
        if words.is_empty() { "all runs".into() } else { words.join(", ") }
    }

    /// What a metric of a whole run means.
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.metrics.iter().find(|metric| metric.of == Of::Run && metric.name == name)
    }
}

impl Axis {
    /// The last word of its key: `processes` of `apps.processes`.
    pub fn short(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or(&self.key)
    }

    /// A value as part of a label: a number needs to be told of what.
    pub fn word(&self, value: &str) -> String {
        if number(value).is_some() || matches!(value, "true" | "false") {
            format!("{} {value}", self.short())
        } else {
            value.into()
        }
    }

    /// Its values as numbers, if all of them are: plain, bytes, or seconds.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|value| number(value)).collect()
    }
}

/// `8`, `0.5`, `32KiB` (in bytes) and `250ms` (in seconds) as numbers.
fn number(text: &str) -> Option<f64> {
    let plain = || text.parse().ok().filter(|value: &f64| value.is_finite());
    let bytes = || units::parse_size(text).map(|bytes| bytes as f64);
    let seconds = || units::parse_time(text).map(|nanoseconds| nanoseconds as f64 / 1e9);
    plain().or_else(bytes).or_else(seconds)
}

impl Point {
    /// A metric of the whole run.
    pub fn metric(&self, name: &str) -> Option<&Measured> {
        measured(&self.metrics, name)
    }

    /// One of its applications.
    pub fn app(&self, name: &str) -> Option<&AppPoint> {
        self.apps.iter().find(|app| app.name == name)
    }

    /// One of its layers of gates.
    pub fn layer(&self, name: &str) -> Option<&LayerPoint> {
        self.layers.iter().find(|layer| layer.name == name)
    }
}

impl AppPoint {
    /// One of its metrics.
    pub fn metric(&self, name: &str) -> Option<&Measured> {
        measured(&self.metrics, name)
    }
}

impl ClassPoint {
    /// One of its metrics.
    pub fn metric(&self, name: &str) -> Option<&Measured> {
        measured(&self.metrics, name)
    }
}

impl LayerPoint {
    /// One of its metrics.
    pub fn metric(&self, name: &str) -> Option<&Measured> {
        measured(&self.metrics, name)
    }
}

fn measured<'a>(metrics: &'a [Measured], name: &str) -> Option<&'a Measured> {
    metrics.iter().find(|measured| measured.name == name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_and_times_are_numbers_and_names_are_not() {
        let texts = ["8", "0.5", "32KiB", "1 MiB", "250ms", "aioli", "", "4x", "inf", "hdd:1"];
        let numbers = texts.map(super::number);
        let some = [8.0, 0.5, 32768.0, 1048576.0, 0.25].map(Some);
        assert_eq!(numbers[..5], some);
        assert_eq!(numbers[5..], [None; 5]);
    }
}
