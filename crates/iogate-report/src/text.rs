//! Results for a terminal.

use std::fmt::Write;

use iogate_core::auto::Choice;
use iogate_core::stats::summary::{Distribution, Group, Summary};
use iogate_sim::metrics::Better;

use crate::run::{Report, Run};
use crate::table::Table;
use crate::units::{bytes, count, number, rate, time};

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
    line("busy", format!("{}, {} repositions", time(run.device_busy_ns as f64), count(run.repositions)));
    if run.held_back > 0 {
        let total = time(run.held_back_ns as f64);
        line(
            "held back",
            format!("{} requests that found the gate full, {total} altogether", count(run.held_back)),
        );
    }
    out.push_str(&tables(gate));
    out
}

fn dispatches(depth: u32) -> String {
    if depth == 1 { "1 dispatch".into() } else { format!("{depth} dispatches") }
}

/// The state of a live gate.
pub fn status(gate: &Summary) -> String {
    let mut out = String::new();
    for (name, value) in &gate.about {
        writeln!(out, "{name:<12}{value}").expect("text grows");
    }
    writeln!(out, "{:<12}{}", "scheduler", gate.settings()).expect("text grows");
    writeln!(out, "{:<12}{}", "depth", dispatches(gate.depth)).expect("text grows");
    if let Some(choice) = &gate.choice {
        out.push_str(&chosen(choice));
    }
    if gate.switches > 0 {
        writeln!(out, "{:<12}{}", "switches", gate.switches).expect("text grows");
    }
    if gate.rejected_full > 0 {
        writeln!(out, "{:<12}{} times", "full", count(gate.rejected_full)).expect("text grows");
    }
    out.push_str(&tables(gate));
    out
}

/// Why the scheduler in force is in force.
pub fn chosen(choice: &Choice) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").expect("text grows");
    line("chosen", format!("for {}: {}", time(choice.since_ms as f64 * 1e6), choice.why));
    if let Some(held) = &choice.held {
        line("not chosen", held.clone());
    }
    let error = choice.error_percent.map(|error| format!(", predictions are off by {error:.1} %"));
    line("choices", {
        let (switches, windows) = (count(choice.switches), count(choice.windows));
        format!("{switches} changes in {windows} windows{}", error.unwrap_or_default())
    });
    for considered in &choice.considered {
        line(
            "considered",
            format!("{}: {:.2} times as fast as fifo", considered.scheduler, considered.speed),
        );
    }
    out
}

fn tables(gate: &Summary) -> String {
    let mut out = String::new();
    let mut add = |table: &Table| {
        if !table.is_empty() {
            write!(out, "\n{table}").expect("text grows");
        }
    };
    let ops: Vec<_> = gate.ops().into_iter().filter(|(_, op)| op.requests > 0).collect();
    let mut table = Table::new(["", "requests", "bytes", "dispatches", "failed"]);
    for (name, op) in &ops {
        table.row([
            (*name).into(),
            count(op.requests),
            bytes(op.bytes as f64),
            count(op.dispatches),
            count(op.failed),
        ]);
    }
    add(&table);

    let mut table = Table::new(["", "mean", "p50", "p95", "p99", "max"]);
    for (name, op) in &ops {
        let mut row = |what: &str, d: &Distribution, unit: fn(f64) -> String| {
            let quantiles = [d.p50, d.p95, d.p99, d.max].map(|value| unit(value as f64));
            table.row([format!("{name}: {what}"), unit(d.mean)].into_iter().chain(quantiles));
        };
        row("request size", &op.request_bytes, bytes);
        row("dispatch size", &op.dispatch_bytes, bytes);
        row("requests per dispatch", &op.requests_per_dispatch, number);
        row("offset distance", &op.offset_distance_bytes, bytes);
        row("waiting", &op.waiting_ns, time);
        row("service", &op.service_ns, time);
    }
    if let Some(d) = &gate.quantum_utilisation_percent {
        let percent = |value: f64| format!("{} %", number(value));
        let quantiles = [d.p50, d.p95, d.p99, d.max].map(|value| percent(value as f64));
        table.row(["quantum used".into(), percent(d.mean)].into_iter().chain(quantiles));
    }
    add(&table);

    let mut table = Table::new(["waited for", "times", "altogether"]);
    for wait in &gate.waits {
        table.row([wait.name.clone(), count(wait.count), time(wait.total_ns as f64)]);
    }
    for held in &gate.held {
        table.row([format!("order ({})", held.name), count(held.count), time(held.total_ns as f64)]);
    }
    add(&table);
    if gate.skewed > 0 {
        let (skewed, what) =
            (count(gate.skewed), "requests with an implausible issue time counted by their arrival");
        writeln!(out, "\n{skewed} {what}").expect("text grows");
    }

    let mut add = |name: &str, groups: &[Group]| {
        let header =
            [name, "requests", "bytes", "dispatches", "mean waiting", "max waiting", "first to last"];
        let mut table = Table::new(header);
        for group in groups {
            table.row([
                group.name.clone(),
                count(group.requests),
                bytes(group.bytes as f64),
                count(group.dispatches),
                time(group.waiting_mean_ns as f64),
                time(group.waiting_max_ns as f64),
                time(group.span_ns as f64),
            ]);
        }
        if !table.is_empty() {
            write!(out, "\n{table}").expect("text grows");
        }
    };
    add("application", &gate.apps);
    add("file", &gate.files);
    if gate.targets.len() > 1 {
        add("target", &gate.targets);
    }
    let mut table = Table::new(["application", "what it does"]);
    for pattern in &gate.patterns {
        let group = gate.apps.iter().find(|group| group.id == Some(pattern.app.into()));
        let name = group.map_or_else(|| pattern.app.to_string(), |group| group.name.clone());
        table.row([name, pattern.words.clone()]);
    }
    if !table.is_empty() {
        write!(out, "\n{table}").expect("text grows");
    }
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
