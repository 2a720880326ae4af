//! An experiment for terminals, as JSON, and as CSV.

use std::fmt::Write;

use super::{ExperimentReport, Measured, Point};
use crate::table::Table;
use crate::units;

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

impl ExperimentReport {
    /// The points as rows, the main metrics as columns, with their intervals.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n\n{}", self.title, self.table(&MAIN));
        let seeds = |point: &Point| point.seeds.len();
        let (least, most) = (
            self.points.iter().map(seeds).min().unwrap_or(0),
            self.points.iter().map(seeds).max().unwrap_or(0),
        );
        let runs = if least == most { format!("{most}") } else { format!("{least} to {most}") };
        let interval =
            format!("\u{b1} is the {} % confidence interval", units::number(self.confidence * 100.0));
        writeln!(out, "\n{} points, {runs} runs each; {interval}", self.points.len()).expect("text grows");
        let cut_off: u64 = self.points.iter().map(|point| point.cut_off).sum();
        if cut_off > 0 {
            writeln!(out, "{cut_off} runs were ended by the time limit").expect("text grows");
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
            let settings =
                axes.iter().map(|axis| point.settings.get(&axis.key).cloned().unwrap_or_else(|| "-".into()));
            let values = shown.iter().map(|name| point.metric(name).map_or("-".into(), Measured::shown));
            table.row(name.into_iter().chain(settings).chain(values));
        }
        table
    }

    /// Everything, for programs; on one line, as timelines are long lists of numbers.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys can be written")
    }

    /// A line for each metric of each point, for spreadsheets and plots: the settings, then `of` (`run`, `app` or
    /// `layer`), `name` (of the application or layer), `metric`, `unit`, `n`, `mean`, `stddev`, `ci_low`, `ci_high`.
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
            point.layers.iter().for_each(|layer| add("layer", &layer.name, &layer.metrics));
        }
        crate::run::csv(lines)
    }
}

impl Measured {
    /// For people: the mean with its interval and its unit.
    pub fn shown(&self) -> String {
        units::estimate(&self.estimate, self.unit)
    }
}
