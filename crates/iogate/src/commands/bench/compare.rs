//! Simulation and reality side by side.

use iogate_report::{Table, units};
use iogate_sim::metrics::{self, Unit};
use iogate_sim::result::RunResult;
use iogate_sim::stat;
use serde::Serialize;

/// From which difference on a metric is marked, in percent.
pub(super) const MARKED_PERCENT: f64 = 15.0;

/// A metric, as it was simulated and as it was measured: means over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// Its name; of one application, with the application's.
    pub(super) metric: String,
    pub(super) unit: Unit,
    pub(super) simulated: f64,
    pub(super) real: f64,
    /// By how much the real one is larger; `None` where only the simulated one is 0.
    pub(super) difference_percent: Option<f64>,
}

impl Row {
    fn new(metric: String, unit: Unit, simulated: f64, real: f64) -> Row {
        let difference_percent = match (simulated, real) {
            (0.0, 0.0) => Some(0.0),
            (0.0, _) => None,
            _ => Some(100.0 * (real / simulated - 1.0)),
        };
        Row { metric, unit, simulated, real, difference_percent }
    }

    /// Whether simulation and reality disagree.
    pub(super) fn is_marked(&self) -> bool {
        self.difference_percent.is_none_or(|percent| percent.abs() > MARKED_PERCENT)
    }
}

/// Compares the runs of a point.
pub(super) fn compare(simulated: &[RunResult], real: &[RunResult]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: String, unit, of: &dyn Fn(&RunResult) -> Option<f64>| {
        let mean = |runs: &[RunResult]| stat::mean(&runs.iter().filter_map(of).collect::<Vec<_>>());
        if let (Some(simulated), Some(real)) = (mean(simulated), mean(real)) {
            rows.push(Row::new(name, unit, simulated, real));
        }
    };
    let of_runs = ["makespan", "completion_mean", "call_time_mean", "dispatch_bytes", "seeks"];
    for metric in of_runs.iter().filter_map(|name| metrics::find(metrics::RUN, name)) {
        add(metric.name.into(), metric.unit, &|run| metric.of(run));
    }
    let busy = |run: &RunResult| Some(run.servers.iter().map(|server| server.busy.as_secs_f64()).sum());
    add("device_busy_time".into(), Unit::Seconds, &busy);
    let names = real.first().map_or(&[][..], |run| &run.apps);
    for name in names.iter().map(|app| &app.name) {
        let completion = metrics::find(metrics::APP, "completion");
        let of = |run: &RunResult| completion?.of(run.apps.iter().find(|app| app.name == *name)?);
        add(format!("completion of {name}"), Unit::Seconds, &of);
    }
    rows
}

/// The comparison for a terminal.
pub(super) fn text(rows: &[Row]) -> String {
    let mut table = Table::new(["metric", "simulated", "real", "difference", ""]);
    for row in rows {
        let difference = row.difference_percent.map_or("-".into(), |percent| format!("{percent:+.1} %"));
        let mark = if row.is_marked() { "!" } else { "" };
        table.row([
            row.metric.clone(),
            units::quantity(row.simulated, row.unit),
            units::quantity(row.real, row.unit),
            difference,
            mark.into(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_marked_from_fifteen_percent_on() {
        let row = |simulated, real| Row::new("seeks".into(), Unit::Count, simulated, real);
        assert_eq!(row(10.0, 11.0).difference_percent.map(f64::round), Some(10.0));
        for (simulated, real, marked) in
            [(10.0, 11.0, false), (10.0, 12.0, true), (10.0, 8.0, true), (0.0, 0.0, false), (0.0, 1.0, true)]
        {
            assert_eq!(row(simulated, real).is_marked(), marked, "{simulated} {real}");
        }
        let shown = text(&[row(100.0, 120.0), row(100.0, 100.0)]);
        assert!(shown.contains("+20.0 %  !") && !shown.contains("+0.0 %  !"), "{shown}");
    }
}
