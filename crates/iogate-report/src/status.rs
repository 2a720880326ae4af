//! The state of a gate for a terminal: what `iogate status` prints, and the tables of a run.

use std::fmt::Write;

use crate::live::{groups_around, limit, printable};
use crate::table::Table;
use crate::units::{bytes, count, counted, number, time};
use iogate_core::auto::status::{Choice, Considered, Corrected, ExpectedEnd, InTurns, Source};
use iogate_core::stats::summary::{Distribution, Group, Summary};

/// Changes of a chosen scheduler that are listed, beside the last one.
const CHANGES_SHOWN: usize = 4;
/// Schedulers that are listed of those that were considered.
const CONSIDERED_SHOWN: usize = 3;
/// How many times as fast as `fifo` is faster: what is shown has two digits.
const FASTER: f64 = 1.005;

pub(crate) fn dispatches(depth: u32) -> String {
    counted(depth.into(), "dispatch", "dispatches")
}

/// The state of a live gate.
pub fn status(gate: &Summary) -> String {
    let mut out = String::new();
    for (name, value) in &gate.about {
        writeln!(out, "{name:<12}{}", printable(value)).expect("text grows");
    }
    writeln!(out, "{:<12}{}", "scheduler", gate.settings()).expect("text grows");
    writeln!(out, "{:<12}{}", "depth", dispatches(gate.depth)).expect("text grows");
    if let Some(choice) = &gate.choice {
        out.push_str(&choice_lines(choice, ": --all has them"));
    }
    if gate.switches > 0 {
        writeln!(out, "{:<12}{}", "switches", gate.switches).expect("text grows");
    }
    if gate.rejected_full > 0 {
        writeln!(out, "{:<12}{}", "full", counted(gate.rejected_full, "time", "times")).expect("text grows");
    }
    out.push_str(&tables(gate));
    out
}

/// Why the scheduler in force is in force.
pub fn chosen(choice: &Choice) -> String {
    choice_lines(choice, "")
}

/// The same, and where the rest of it is.
fn choice_lines(choice: &Choice, where_all: &str) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").expect("text grows");
    line("chosen", format!("for {}: {}", time(choice.since_ms as f64 * 1e6), choice.why));
    if let Some(held) = &choice.held {
        line("not chosen", held.clone());
    }
    if let Some(prices) = &choice.prices {
        line("prices", prices.clone());
    }
    let before = choice.changes.len().saturating_sub(1);
    for changed in choice.changes[..before].iter().rev().take(CHANGES_SHOWN) {
        line("before", format!("{} ago: {}", time(changed.ago_ms as f64 * 1e6), changed.why));
    }
    if let Some(InTurns { scheduler, slices }) = &choice.turns {
        line("in turns", format!("with {scheduler}: {slices} of 4 slices are over"));
    }
    let error = choice.error_percent.map(|error| format!(", predictions are off by {error:.1} %"));
    line("choices", {
        let switches = counted(choice.switches, "change", "changes");
        let windows = counted(choice.windows, "window", "windows");
        let probes = (choice.probes > 0).then(|| format!(", {}", counted(choice.probes, "probe", "probes")));
        format!("{switches} in {windows}{}{}", probes.unwrap_or_default(), error.unwrap_or_default())
    });
    if choice.ends > 0 {
        line("ends", format!("expected of {}", counted(choice.ends, "application", "applications")));
    }
    // How fast `fifo` is against itself says nothing, nor that others are as fast as it.
    let others: Vec<&Considered> =
        choice.considered.iter().filter(|considered| considered.scheduler != "fifo").collect();
    let mut faster: Vec<&Considered> =
        others.iter().copied().filter(|considered| considered.speed >= FASTER).collect();
    faster.sort_by(|one, other| other.speed.total_cmp(&one.speed));
    faster.truncate(CONSIDERED_SHOWN);
    for Considered { scheduler, speed } in &faster {
        line("considered", format!("{scheduler}: {speed:.2} times as fast as fifo"));
    }
    let rest = others.len() - faster.len();
    match (rest, faster.is_empty()) {
        (0, _) => {}
        (_, true) => line("considered", format!("{rest}, none of them faster than fifo{where_all}")),
        (_, false) => line("considered", format!("{rest} more, none of them faster{where_all}")),
    }
    out
}

/// All that was considered, and what measurements have said beyond it: as `iogate status --all` has it behind the rest.
pub fn considered(choice: &Choice) -> String {
    let mut table = Table::new(["considered", "times as fast as fifo", "corrected by", "measurements"]);
    let corrected = |name: &str| choice.corrected.iter().find(|corrected| corrected.scheduler == name);
    let cells = |corrected: Option<&Corrected>| match corrected {
        Some(Corrected { factor, measured, .. }) => [format!("{factor:.2}"), count((*measured).into())],
        None => ["-".into(), "-".into()],
    };
    for Considered { scheduler, speed } in &choice.considered {
        let row = [scheduler.clone(), format!("{speed:.2}")];
        table.row(row.into_iter().chain(cells(corrected(scheduler))));
    }
    // What was measured, and is not among what was simulated last.
    let is_listed = |name: &str| choice.considered.iter().any(|considered| considered.scheduler == name);
    for corrected in choice.corrected.iter().filter(|corrected| !is_listed(&corrected.scheduler)) {
        let row = [corrected.scheduler.clone(), "-".into()];
        table.row(row.into_iter().chain(cells(Some(corrected))));
    }
    if table.is_empty() { String::new() } else { format!("\n{table}") }
}

/// What applications get now, and what they are entitled to.
fn now(gate: &Summary) -> Table {
    let mut table =
        Table::new(["application", "now", "requests/s", "deferred", "weight", "at least", "at most"]);
    for now in &gate.now {
        let rate =
            |bytes_per_s, requests_per_s| limit(bytes_per_s, requests_per_s).unwrap_or_else(|| "-".into());
        table.row([
            format!("{:indent$}{}", "", printable(&now.name), indent = 2 * groups_around(gate, now).count()),
            format!("{}/s", bytes(now.bytes_per_s as f64)),
            count(now.requests_per_s),
            count(now.deferred.into()),
            now.weight.map_or_else(|| "-".into(), |weight| weight.to_string()),
            rate(now.min, now.min_requests),
            rate(now.max, now.max_requests),
        ]);
    }
    table
}

fn write_groups(out: &mut String, name: &str, groups: &[Group]) {
    let header = [name, "requests", "bytes", "dispatches", "mean waiting", "max waiting", "first to last"];
    let mut table = Table::new(header);
    for group in groups {
        table.row([
            printable(&group.name),
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
}

/// What was counted: operations, sizes, waits, applications.
pub(crate) fn tables(gate: &Summary) -> String {
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
        let skewed = counted(gate.skewed, "request", "requests");
        writeln!(out, "\n{skewed} with an implausible issue time counted by arrival").expect("text grows");
    }

    write_groups(&mut out, "application", &gate.apps);
    let table = now(gate);
    if !table.is_empty() {
        write!(out, "\n{table}").expect("text grows");
    }
    write_groups(&mut out, "file", &gate.files);
    if gate.targets.len() > 1 {
        write_groups(&mut out, "target", &gate.targets);
    }
    let name = |app: u32| {
        let group = gate.apps.iter().find(|group| group.id == Some(app.into()));
        group.map_or_else(|| app.to_string(), |group| printable(&group.name))
    };
    let mut table = Table::new(["application", "its burst", "left of it", "known by"]);
    for ExpectedEnd { app, bytes: all, left, from } in gate.choice.iter().flat_map(|choice| &choice.expected)
    {
        let from = match from {
            Source::Said => "what it says",
            Source::Seen => "the two before",
        };
        table.row([name(app.0), bytes(*all as f64), bytes(*left as f64), from.into()]);
    }
    if !table.is_empty() {
        write!(out, "\n{table}").expect("text grows");
    }
    let mut table = Table::new(["application", "what it does"]);
    for pattern in &gate.patterns {
        table.row([name(pattern.app), pattern.words.clone()]);
    }
    if !table.is_empty() {
        write!(out, "\n{table}").expect("text grows");
    }
    out
}

#[cfg(test)]
mod tests {
    use iogate_core::auto::chooser::{Change, Reason, Status};
    use iogate_core::auto::objective::{Score, ln_ratio};
    use iogate_core::stats::Stats;
    use iogate_core::stats::summary::Numbers;
    use iogate_core::{AppId, SchedulerConfig, Span, Time};
    use serde_json::{Value, json};

    use super::*;

    fn scheduler(name: &str, params: &str) -> SchedulerConfig {
        SchedulerConfig::by_name(name).unwrap().changed(params, 0).unwrap()
    }

    /// Names are users' own: an escape of the terminal, or a line's end, must not reach it.
    #[test]
    fn names_have_no_control_over_the_terminal() {
        let group = |name: &str| Group {
            id: None,
            name: name.into(),
            requests: 1,
            bytes: 1,
            dispatches: 1,
            waiting_mean_ns: 0,
            waiting_max_ns: 0,
            span_ns: 0,
        };
        let mut summary = Summary::new(&Stats::default(), &scheduler("fifo", ""), 4, &Numbers, 8);
        summary.apps = vec![group("job\u{1b}[2J")];
        summary.files = vec![group("a\nb")];
        summary.about = vec![("source".into(), "/a\u{7}".into())];
        let text = status(&summary);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(text.lines().all(|line| !line.starts_with('b')), "{text}");
    }

    /// A choice that has measured two schedulers, and measures a third one.
    fn measuring() -> Status {
        let (fifo, aioli) = (scheduler("fifo", ""), scheduler("aioli", "wait_max=0s"));
        let score = |mean| Score { mean, worst: mean };
        let considered = vec![(fifo.clone(), score(0)), (aioli.clone(), score(ln_ratio(2, 3)))];
        let by = |thousandths: u64| ln_ratio(thousandths, 1_000);
        Status {
            change: Change {
                at: Time::ZERO,
                from: fifo.clone(),
                to: fifo.clone(),
                reason: Reason::Start,
                predicted: 0,
                measured: None,
            },
            considered,
            error: Some(231_049),
            turns: Some((aioli.clone(), 2)),
            corrected: vec![(scheduler("to-agg", ""), by(750), 1), (aioli, by(1_200), 2)],
            switches: 0,
            probes: 3,
            ends: 2,
            windows: 190,
            simulated: 80_000,
            memory_max: 0,
        }
    }

    #[test]
    fn a_choice_says_what_is_tried_in_turns_and_what_measurements_have_corrected() {
        let status = measuring();
        let now = Time::ZERO + Span::from_secs(61);
        let choice = Choice::of(&status, now);
        let lines = "\
chosen      for 61 s: fifo from the beginning
in turns    with aioli(wait_max=0ns): 2 of 4 slices are over
choices     0 changes in 190 windows, 3 probes, predictions are off by 23.1 %
ends        expected of 2 applications
considered  aioli(wait_max=0ns): 1.50 times as fast as fifo
";
        assert_eq!(chosen(&choice), lines);
        let table: Vec<Vec<String>> = considered(&choice)
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('-'))
            .map(|line| {
                line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
            })
            .collect();
        let expected = [
            ["considered", "times as fast as fifo", "corrected by", "measurements"],
            ["fifo", "1.00", "-", "-"],
            ["aioli(wait_max=0ns)", "1.50", "1.20", "2"],
            ["to-agg", "-", "0.75", "1"],
        ];
        assert_eq!(table, expected);

        let value = serde_json::to_value(&choice).unwrap();
        assert_eq!(value["turns"], json!({ "scheduler": "aioli(wait_max=0ns)", "slices": 2 }));
        let corrected = json!([
            { "scheduler": "to-agg", "factor": 0.75, "measured": 1 },
            { "scheduler": "aioli(wait_max=0ns)", "factor": 1.2, "measured": 2 },
        ]);
        assert_eq!(value["corrected"], corrected);
        assert_eq!(serde_json::from_value::<Choice>(value).unwrap(), choice);

        // Where nothing is measured, nothing is said of it.
        let quiet = Choice::of(&Status { turns: None, corrected: Vec::new(), ..status }, now);
        let kept: Vec<&str> = lines.lines().filter(|line| !line.contains("slices")).collect();
        assert_eq!(chosen(&quiet).lines().collect::<Vec<_>>(), kept);
        let value = serde_json::to_value(&quiet).unwrap();
        assert_eq!((value.get("turns"), value.get("corrected")), (None::<&Value>, None));
        assert_eq!(serde_json::from_value::<Choice>(value).unwrap(), quiet);
    }

    #[test]
    fn who_is_expected_to_end_is_listed_with_who_says_so() {
        let end = |app: u32, left, from| ExpectedEnd { app: AppId(app), bytes: 10 << 30, left, from };
        let expected = vec![end(7, 1 << 30, Source::Said), end(9, 0, Source::Seen)];
        let choice = Choice { expected, ..Choice::default() };
        let value = serde_json::to_value(&choice).unwrap();
        let said = json!({ "app": 7, "bytes": 10_u64 << 30, "left": 1 << 30, "from": "said" });
        assert_eq!((&value["expected"][0], &value["expected"][1]["from"]), (&said, &json!("seen")));
        assert_eq!(serde_json::from_value::<Choice>(value).unwrap(), choice);
        let mut summary = Summary::new(&Stats::default(), &scheduler("fifo", ""), 4, &Numbers, 8);
        summary.choice = Some(choice);
        let text = status(&summary);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.contains("its burst"))
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(rows[2], ["7", "10 GiB", "1 GiB", "what it says"]);
        assert_eq!(rows[3], ["9", "10 GiB", "0 B", "the two before"]);
    }

    #[test]
    fn of_many_that_were_considered_the_fastest_are_named() {
        let one = |name: &str, speed| Considered { scheduler: name.into(), speed };
        let considered =
            vec![one("fifo", 1.0), one("a", 0.5), one("b", 1.1), one("c", 0.9), one("d", 1.3), one("e", 0.7)];
        let choice = Choice { considered, ..Choice::default() };
        let lines = chosen(&choice);
        let said: Vec<&str> = lines.lines().filter_map(|line| line.strip_prefix("considered  ")).collect();
        let expected =
            ["d: 1.30 times as fast as fifo", "b: 1.10 times as fast as fifo", "3 more, none of them faster"];
        assert_eq!(said, expected);
        let slower = choice.considered.iter().filter(|considered| considered.speed <= 1.0).cloned();
        let slower = Choice { considered: slower.collect(), ..Choice::default() };
        assert!(chosen(&slower).contains("considered  3, none of them faster than fifo\n"));
        assert_eq!(super::considered(&choice).lines().count(), 1 + 2 + 6);
        assert_eq!(super::considered(&Choice::default()), "");
    }
}
