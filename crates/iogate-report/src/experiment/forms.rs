//! An experiment for terminals, as JSON, and as CSV.

use std::fmt::Write;

use iogate_sim::metrics::CLASS;

use super::{ExperimentReport, Measured, Point};
use crate::table::Table;
use crate::units::{self, counted};

/// The metrics that a table of points shows, as far as they were measured.
pub(crate) const MAIN: [&str; 8] = [
    "makespan",
    "completion_mean",
    "io_time_mean",
    "bandwidth",
    "server_finish_spread",
    "interference_mean",
    "dispatch_bytes",
    "seeks",
];

/// Rows of a point's classes. Where there are more, groups alone are shown, and applications that are in none.
const CLASSES_MAX: usize = 24;

impl ExperimentReport {
    /// The points as rows, the main metrics as columns, with their intervals; then groups and what is in them, where there are some.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n\n{}", self.title, self.table(&MAIN));
        if let Some(classes) = self.classes() {
            write!(out, "\n{classes}").expect("text grows");
        }
        let seeds = |point: &Point| point.seeds.len();
        let (least, most) = (
            self.points.iter().map(seeds).min().unwrap_or(0),
            self.points.iter().map(seeds).max().unwrap_or(0),
        );
        let runs = if least == most {
            counted(most as u64, "run", "runs")
        } else {
            format!("{least} to {most} runs")
        };
        let interval = match most {
            0 | 1 => "one alone has no interval: take more seeds".to_owned(),
            _ => format!("\u{b1} is the {} % confidence interval", units::number(self.confidence * 100.0)),
        };
        let points = counted(self.points.len() as u64, "point", "points");
        writeln!(out, "\n{points}, {runs} each; {interval}").expect("text grows");
        let cut_off: u64 = self.points.iter().map(|point| point.cut_off).sum();
        if cut_off > 0 {
            let were = counted(cut_off, "run was", "runs were");
            writeln!(out, "{were} ended by the time limit").expect("text grows");
        }
        out
    }

    /// The points as rows and these metrics of the whole run as columns, as far as any point has them.
    pub fn table(&self, metrics: &[&str]) -> Table {
        let measured = |name: &str| self.points.iter().any(|point| point.metric(name).is_some());
        let shown: Vec<&str> = metrics.iter().copied().filter(|name| measured(name)).collect();
        let axes: Vec<_> = self.varied().collect();
        let keys = axes.iter().map(|axis| axis.short());
        // The first column is to the left: without axes it is a name.
        let first = if axes.is_empty() { vec![""] } else { Vec::new() };
        let mut table = Table::new(first.into_iter().chain(keys).chain(shown.iter().copied()));
        for point in &self.points {
            let name = axes.is_empty().then(|| self.label(point));
            let settings = axes.iter().map(|axis| setting(point, &axis.key));
            let values = shown.iter().map(|name| point.metric(name).map_or("-".into(), Measured::shown));
            table.row(name.into_iter().chain(settings).chain(values));
        }
        table
    }

    /// Groups and applications of each point as rows, their metrics as columns; `None`: no point has groups.
    fn classes(&self) -> Option<Table> {
        let axes: Vec<_> = self.varied().collect();
        let metrics = CLASS.iter().map(|metric| metric.name);
        let keys = axes.iter().map(|axis| axis.short());
        let mut table = Table::new(["group"].into_iter().chain(keys).chain(metrics.clone()));
        for point in &self.points {
            let all = point.classes.len() <= CLASSES_MAX;
            for class in point.classes.iter().filter(|class| all || class.group.is_none()) {
                let name = match (class.is_group, &class.group) {
                    (true, _) => class.name.clone(),
                    (false, Some(_)) => format!("  {}", class.name),
                    (false, None) => format!("{} (in no group)", class.name),
                };
                let settings = axes.iter().map(|axis| setting(point, &axis.key));
                let values =
                    metrics.clone().map(|name| class.metric(name).map_or("-".into(), Measured::shown));
                table.row([name].into_iter().chain(settings).chain(values));
            }
        }
        (!table.is_empty()).then_some(table)
    }

    /// Everything, for programs; on one line, as timelines are long lists of numbers.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys can be written")
    }

    /// A line for each metric of each point, for spreadsheets and plots: the settings, then `of` (`run`, `app`, `group`, `class` or
    /// `layer`), `name` (of the application, the group, the application where there are groups, or the layer), `metric`, `unit`, `n`,
    /// `mean`, `stddev`, `ci_low`, `ci_high`.
    pub fn csv(&self) -> String {
        let mut lines = vec![
            (self.axes.iter().map(|axis| axis.key.clone()))
                .chain(
                    ["of", "name", "metric", "unit", "n", "mean", "stddev", "ci_low", "ci_high"]
                        .map(String::from),
                )
                .collect::<Vec<_>>(),
        ];
        for point in &self.points {
            let settings: Vec<String> = self
                .axes
                .iter()
                .map(|axis| point.settings.get(&axis.key).cloned().unwrap_or_default())
                .collect();
            let mut add = |of: &str, name: &str, metrics: &[Measured]| {
                for Measured { name: metric, unit, estimate, .. } in metrics {
                    let optional =
                        |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                    let interval = |end: f64| optional(estimate.half_width.map(|_| end));
                    let cells = [
                        of.into(),
                        name.into(),
                        metric.clone(),
                        unit.symbol().into(),
                        estimate.n.to_string(),
                        estimate.mean.to_string(),
                        optional(estimate.stddev),
                        interval(estimate.low()),
                        interval(estimate.high()),
                    ];
                    lines.push(settings.iter().cloned().chain(cells).collect());
                }
            };
            add("run", "", &point.metrics);
            point.apps.iter().for_each(|app| add("app", &app.name, &app.metrics));
            for class in &point.classes {
                add(if class.is_group { "group" } else { "class" }, &class.name, &class.metrics);
            }
            point.layers.iter().for_each(|layer| add("layer", &layer.name, &layer.metrics));
        }
        crate::run::csv(lines)
    }
}

/// What a point has of an axis.
fn setting(point: &Point, key: &str) -> String {
    point.settings.get(key).cloned().unwrap_or_else(|| "-".into())
}

impl Measured {
    /// For people: the mean with its interval and its unit.
    pub fn shown(&self) -> String {
        units::estimate(&self.estimate, self.unit)
    }
}
