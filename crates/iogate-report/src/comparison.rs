//! Runs for a terminal: one in full, several side by side.

use std::fmt::Write;

use iogate_sim::metrics::Better;

use crate::run::{Report, Run};
use crate::status::{chosen, dispatches, tables};
use crate::table::Table;
use crate::units::{bytes, count, counted, rate, time};

/// One run in full: settings, totals, operations, waits, applications.
pub fn run(run: &Run) -> String {
    let gate = &run.gate;
    let mut out = String::new();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").expect("text grows");
    line("scheduler", gate.settings());
    line("device", format!("{}, at most {} in flight", run.device, dispatches(gate.depth)));
    line("requests", format!("{} ({})", count(gate.requests()), bytes(gate.bytes() as f64)));
    line("dispatches", count(gate.dispatches()));
    line("makespan", format!("{} ({})", time(run.makespan_ns as f64), rate(gate.bytes(), run.makespan_ns)));
    let repositions = counted(run.repositions, "reposition", "repositions");
    line("busy", format!("{}, {repositions}", time(run.device_busy_ns as f64)));
    if run.held_back > 0 {
        let total = time(run.held_back_ns as f64);
        let held_back = counted(run.held_back, "request", "requests");
        line("held back", format!("{held_back} that found the gate full, {total} altogether"));
    }
    if let Some(choice) = &gate.choice {
        out.push_str(&chosen(choice));
    }
    out.push_str(&tables(gate));
    out
}

/// What is compared between runs: a name, and its value in one run.
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) shown: Vec<String>,
    /// By what factor the last run is better than the first.
    pub(crate) better_by: Option<f64>,
}

/// The rows of a comparison.
pub(crate) fn compared(report: &Report) -> Vec<Compared> {
    let mut rows = Vec::new();
    let mut row =
        |name: String, better: Better, value: &dyn Fn(&Run) -> Option<f64>, unit: fn(f64) -> String| {
            let values: Vec<Option<f64>> = report.runs.iter().map(value).collect();
            let shown = values.iter().map(|value| value.map_or("-".into(), unit)).collect();
            let better_by = match (values.as_slice(), better) {
                ([Some(first), .., Some(last)], Better::Lower) if *last > 0.0 => Some(first / last),
                ([Some(first), .., Some(last)], Better::Higher) if *first > 0.0 => Some(last / first),
                _ => None,
            };
            rows.push(Compared { name, shown, better_by });
        };
    let apps = report.runs.first().map(|run| run.apps.as_slice()).unwrap_or_default();
    for app in apps {
        let of = |run: &Run| {
            run.apps.iter().find(|other| other.name == app.name).map(|app| app.completion_ns as f64)
        };
        row(format!("{} done after", app.name), Better::Lower, &of, time);
    }
    row("all done after".into(), Better::Lower, &|run| Some(run.makespan_ns as f64), time);
    let throughput =
        |run: &Run| (run.makespan_ns > 0).then(|| run.gate.bytes() as f64 * 1e9 / run.makespan_ns as f64);
    row("throughput".into(), Better::Higher, &throughput, |value| format!("{}/s", bytes(value)));
    row("requests in".into(), Better::Neither, &|run| Some(run.gate.requests() as f64), |n| count(n as u64));
    row("dispatches out".into(), Better::Lower, &|run| Some(run.gate.dispatches() as f64), |n| {
        count(n as u64)
    });
    let mean = |run: &Run, n: u64| (n > 0).then(|| run.gate.bytes() as f64 / n as f64);
    row("mean request size in".into(), Better::Neither, &|run| mean(run, run.gate.requests()), bytes);
    row("mean dispatch size out".into(), Better::Higher, &|run| mean(run, run.gate.dispatches()), bytes);
    let repositions = |run: &Run| Some(run.repositions as f64);
    row("device repositions (seeks)".into(), Better::Lower, &repositions, |n| count(n as u64));
    row("device busy".into(), Better::Lower, &|run| Some(run.device_busy_ns as f64), time);
    rows
}

/// Several runs side by side: completion times, throughput, sizes, seeks, and how much better the last one is.
pub fn comparison(report: &Report) -> String {
    let labels = report.runs.iter().map(|run| format!("{} ({})", run.label, run.gate.scheduler));
    let mut table = Table::new(std::iter::once(String::new()).chain(labels).chain(["better by".into()]));
    for row in compared(report) {
        let better_by = row.better_by.map_or(String::new(), |factor| format!("{factor:.2}x"));
        table.row(std::iter::once(row.name).chain(row.shown).chain([better_by]));
    }
    table.to_string()
}
