//! From a tree of values to a checked [`Scenario`].

mod app;
mod cluster;
mod coordination;
mod fault;
mod global;
mod jobs;
mod shares;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::document::Value;
use super::problem::Problem;
use super::schema::{PROCESSES_MAX, SCENARIO};
use super::table::{Problems, Table};
use super::{App, Barrier, Batch, Coordination, Network, Scenario, room};
use crate::trace::Row;

/// What is said of names that a terminal would obey, or tables fall apart with.
pub(super) const ONE_LINE: &str = "expected one line, without control characters";

/// The rows of a trace, by process.
type Rows = Arc<Vec<Vec<Row>>>;

/// Opens the files that a scenario names, each once.
pub(super) struct Files<'a> {
    open: &'a dyn Fn(&str) -> Result<String, String>,
    traces: RefCell<HashMap<String, Result<Rows, String>>>,
}

impl<'a> Files<'a> {
    /// `open` gives the content of a file, or says why it cannot.
    pub(super) fn new(open: &'a dyn Fn(&str) -> Result<String, String>) -> Files<'a> {
        Files { open, traces: RefCell::default() }
    }
}

/// Reads a scenario without its sweep and its quick form.
pub(super) fn scenario(root: &Value, files: &Files<'_>) -> Result<Scenario, Vec<Problem>> {
    let problems = Problems::default();
    let scenario = read(root, files, &problems);
    match scenario {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ => Err(problems.into_inner()),
    }
}

fn read(root: &Value, files: &Files<'_>, problems: &Problems) -> Option<Scenario> {
    let root = Table::new(root, String::new(), &SCENARIO, problems, false);
    let title = root.text("title");
    if title.contains(char::is_control) {
        root.unfit("title", format!("title = {title:?}: {ONE_LINE}"));
    }
    let cluster = cluster::read(&root, files);
    let network = network(&root.table_or_default("network"));
    let batch = root.table("batch").map(|table| Batch { backfill: table.flag("backfill") });
    let (cluster, network) = (cluster?, network);
    let groups = shares::Groups::read(&root, &cluster);
    let apps = app::read(&root, &cluster, &groups, batch.is_some(), files);
    let jobs = root.table("jobs").map(|table| jobs::read(&table, &cluster));
    let coordination = coordination::read(&root.table_or_default("coordination"));
    let global = global::read(&root, &cluster);
    let groups = groups.checked(&apps);
    let faults = fault::read(&root, &cluster, global.as_ref());
    let scenario = Scenario {
        title,
        notes: root.texts("notes"),
        seed: root.number("seed"),
        repetitions: root.small("repetitions"),
        confidence: root.float("confidence"),
        time_max: root.span("time_max"),
        alone: root.flag("alone"),
        cluster,
        network,
        batch,
        apps,
        jobs,
        coordination,
        global,
        groups,
        faults,
    };
    if problems.is_empty() {
        check(&root, &scenario);
    }
    Some(scenario)
}

fn network(table: &Table<'_>) -> Network {
    if !table.has("buffer") {
        table.refuse(&["retransmit"], "a network without buffer");
    }
    let network = Network {
        latency: table.span("latency"),
        jitter: table.span("jitter"),
        bandwidth: table.optional("bandwidth"),
        buffer: table.optional("buffer"),
        retransmit: table.span("retransmit"),
        header: table.small("header"),
    };
    if network.buffer.is_some() && network.bandwidth.is_none() {
        let text = "network.buffer: nothing waits for a port without a bandwidth: give network.bandwidth, or remove it";
        table.unfit("buffer", text.into());
    }
    network
}

/// What concerns the whole.
fn check(root: &Table<'_>, scenario: &Scenario) {
    if scenario.apps.is_empty() && scenario.jobs.is_none() {
        root.unfit("app", "nothing runs: expected an application ([[app]]) or [jobs]".into());
    }
    let processes: u64 = scenario.apps.iter().map(|app| u64::from(app.processes)).sum();
    if processes > PROCESSES_MAX {
        root.unfit(
            "app",
            format!(
                "the applications have {processes} processes: expected at most {PROCESSES_MAX}; simulate fewer"
            ),
        );
    }
    room::check(root, scenario);
    let never_meet = |app: &&App| app.workload.barrier == Barrier::None;
    if let (true, Some(app)) =
        (scenario.coordination != Coordination::default(), scenario.apps.iter().find(never_meet))
    {
        let name = &app.name;
        root.unfit(
            "coordination",
            format!("the processes of {name} take a turn together: give it barrier = \"phase\" or \"call\""),
        );
    }
    if scenario.jobs.is_some() && scenario.batch.is_none() {
        root.unfit("jobs", "jobs need nodes of their own: add [batch], which gives them nodes".into());
    }
    if let (Some(_), Some(app)) =
        (&scenario.jobs, scenario.apps.iter().find(|app| app.name.starts_with("job-")))
    {
        let name = &app.name;
        root.unfit(
            "app",
            format!("an application called {name}: names with job- are those of [jobs]; give it another"),
        );
    }
    if scenario.jobs.is_some() && scenario.alone {
        root.unfit(
            "alone",
            "alone = true: jobs that are drawn cannot run alone; remove it, or [jobs]".into(),
        );
    }
}
