//! Simulation and reality side by side.

use iogate_report::{Table, units};
use iogate_sim::metrics::{self, Unit};
use iogate_sim::result::RunResult;
use iogate_sim::stat::Estimate;

/// From which difference on a metric is marked, in percent.
const MARKED_PERCENT: f64 = 15.0;
/// A difference that is shown, and one that may be chance.
const SHOWN: &str = "!";
const CHANCE: &str = "?";

/// Of each layer, where there are several.
const LAYER_METRICS: [&str; 4] = ["request_bytes", "dispatch_bytes", "offset_distance", "waiting_mean"];

/// The marks with their meanings.
pub(super) const MARKS: [(&str, &str); 2] = [
    (SHOWN, "differs by more than 15 %"),
    (CHANCE, "differs by more than 15 %, but the intervals overlap: more seeds (--seeds) would tell"),
];

/// A metric, as it was simulated and as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Its name; of one application, with the application's.
    metric: String,
    unit: Unit,
    simulated: Estimate,
    real: Estimate,
}

impl Row {
    /// By how many percent the real one is larger; `None` where only the simulated one is 0.
    fn difference_percent(&self) -> Option<f64> {
        match (self.simulated.mean, self.real.mean) {
            (0.0, 0.0) => Some(0.0),
            (0.0, _) => None,
            (simulated, real) => Some(100.0 * (real / simulated - 1.0)),
        }
    }

    /// How it is marked; empty where simulation and reality agree.
    pub(super) fn mark(&self) -> &'static str {
        let agrees = self.difference_percent().is_some_and(|percent| percent.abs() <= MARKED_PERCENT);
        match agrees {
            true => "",
            false if self.simulated.overlaps(&self.real) => CHANCE,
            false => SHOWN,
        }
    }
}

/// Compares the runs of a point.
pub(super) fn compare(simulated: &[RunResult], real: &[RunResult], confidence: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: String, unit, of: &dyn Fn(&RunResult) -> Option<f64>| {
        let estimate =
            |runs: &[RunResult]| Estimate::of(&runs.iter().filter_map(of).collect::<Vec<_>>(), confidence);
        if let (Some(simulated), Some(real)) = (estimate(simulated), estimate(real)) {
            rows.push(Row { metric: name, unit, simulated, real });
        }
    };
    let of_runs = ["makespan", "completion_mean", "call_time_mean", "dispatch_bytes", "seeks"];
    for metric in of_runs.iter().filter_map(|name| metrics::find(metrics::RUN, name)) {
        add(metric.name.into(), metric.unit, &|run| metric.of(run));
    }
    let layers = real.first().map_or(&[][..], |run| &run.layers);
    for name in layers.iter().map(|layer| &layer.name).filter(|_| layers.len() > 1) {
        for metric in LAYER_METRICS.iter().filter_map(|metric| metrics::find(metrics::LAYER, metric)) {
            let of = |run: &RunResult| metric.of(run.layers.iter().find(|layer| layer.name == *name)?);
            add(format!("{} of {name}", metric.name), metric.unit, &of);
        }
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

/// Requests of one application that are so many times as long as another's are not delayed alike.
const UNLIKE: f64 = 4.0;

/// What is said where the simulation's one delay for all requests is the mean of unlike ones: a large request is copied for longer than
/// a small one, so the delay of small ones is too long in the simulation, and of large ones too short.
pub(super) fn unlike(real: &[RunResult]) -> Option<String> {
    let apps = real.first()?.apps.iter().filter(|app| app.calls > 0);
    let sizes: Vec<_> = apps.map(|app| (app.bytes as f64 / app.calls as f64, app.name.as_str())).collect();
    unlike_sizes(&sizes)
}

fn unlike_sizes(sizes: &[(f64, &str)]) -> Option<String> {
    let by_size = |a: &&(f64, &str), b: &&(f64, &str)| a.0.total_cmp(&b.0);
    let (small, large) = (sizes.iter().min_by(by_size)?, sizes.iter().max_by(by_size)?);
    (large.0 >= UNLIKE * small.0.max(1.0)).then(|| {
        format!(
            "That is one mean for all, and calls are unlike: {} of {}, {} of {}. Simulated times of single applications are off by that; \
             compare each by itself",
            units::bytes(small.0),
            small.1,
            units::bytes(large.0),
            large.1
        )
    })
}

/// The comparison for a terminal.
pub(super) fn text(rows: &[Row]) -> String {
    let mut table = Table::new(["metric", "simulated", "real", "difference", ""]);
    for row in rows {
        table.row([
            row.metric.clone(),
            units::estimate(&row.simulated, row.unit),
            units::estimate(&row.real, row.unit),
            row.difference_percent().map_or("-".into(), |percent| format!("{percent:+.1} %")),
            row.mark().into(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_delay_for_unlike_calls_is_said() {
        assert_eq!(unlike_sizes(&[(65536.0, "a"), (131072.0, "b")]), None);
        assert_eq!(unlike_sizes(&[(4096.0, "alone")]), None);
        let said = unlike_sizes(&[(65536.0, "a"), (1048576.0, "ckpt"), (4096.0, "logger")]).unwrap();
        assert!(said.contains("4 KiB of logger, 1 MiB of ckpt"), "{said}");
    }

    #[test]
    fn differences_are_marked_from_fifteen_percent_on() {
        let row = |simulated: &[f64], real: &[f64]| {
            let of = |values| Estimate::of(values, 0.95).unwrap();
            Row { metric: "seeks".into(), unit: Unit::Count, simulated: of(simulated), real: of(real) }
        };
        for (simulated, real, mark) in
            [(10.0, 11.0, ""), (10.0, 12.0, "!"), (10.0, 8.0, "!"), (0.0, 0.0, ""), (0.0, 1.0, "!")]
        {
            assert_eq!(row(&[simulated], &[real]).mark(), mark, "{simulated} {real}");
        }
        let wide = row(&[10.0, 10.0], &[10.0, 20.0]);
        assert_eq!(wide.mark(), "?");
        let shown = text(&[row(&[100.0], &[120.0]), wide]);
        assert!(shown.contains("+20.0 %  !") && shown.contains("+50.0 %  ?"), "{shown}");
    }
}
