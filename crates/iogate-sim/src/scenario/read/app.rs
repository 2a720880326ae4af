//! The applications and what they do.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iogate_core::{Op, Span, Time};

use super::cluster::is_name;
use super::shares::{Groups, entitlement};
use super::{Files, Rows};
use crate::rng::Distribution;
use crate::scenario::schema::BYTES_MAX;
use crate::scenario::table::Table;
use crate::scenario::{App, Barrier, Cluster, Collective, Pattern, Sharing, Workload};
use crate::trace::TraceReader;

/// Most bytes of one call.
const CALL_MAX: u64 = 1 << 30;

/// Keys that only some patterns have.
const KEYS: [&str; 14] = [
    "op",
    "sharing",
    "bytes",
    "request",
    "file_bytes",
    "columns",
    "width",
    "height",
    "element",
    "piece",
    "pieces",
    "file",
    "timed",
    "iterations",
];

pub(super) fn read(
    root: &Table<'_>,
    cluster: &Cluster,
    groups: &Groups<'_>,
    batch: bool,
    files: &Files<'_>,
) -> Vec<App> {
    let mut apps: Vec<App> = Vec::new();
    let mut labels: HashMap<String, u32> = HashMap::new();
    let (mut names, mut ids) = (HashSet::new(), HashMap::new());
    let mut numbers = 0;
    for (_, table) in root.tables("app") {
        let label = table.optional_text("files");
        let (mut first, count) = (app(&table, cluster, batch, files), table.small("count"));
        first.group = groups.named(&table, cluster);
        check_place(&table, &first, count, cluster, batch);
        let (node_step, start_step) = (table.small("node_step"), table.number("start_step"));
        let place = apps.len() as u32 + 1;
        let first_id = table.optional("id").map_or(place, |id| id as u32);
        for index in 0..count {
            let mut next = || {
                numbers += 1;
                numbers - 1
            };
            let number = match &label {
                Some(label) => *labels.entry(label.clone()).or_insert_with(next),
                None => next(),
            };
            let name =
                if table.has("count") { format!("{}-{}", first.name, index + 1) } else { first.name.clone() };
            let start = first.start.as_nanos().saturating_add(start_step.saturating_mul(index.into()));
            let app = App {
                name,
                id: first_id.saturating_add(index),
                first_node: first.first_node.saturating_add(node_step.saturating_mul(index)),
                start: Span::from_nanos(start),
                files: number,
                ..first.clone()
            };
            check_unique(&table, &app, &mut names, &mut ids);
            apps.push(app);
        }
    }
    apps
}

fn app(table: &Table<'_>, cluster: &Cluster, batch: bool, files: &Files<'_>) -> App {
    let name = table.text("name");
    if table.has("name") && !is_name(&name) {
        table.unfit("name", format!("name = {name}: expected letters, digits, - and _, at least one letter"));
    }
    let pattern_name = table.choice("pattern");
    let is_trace = pattern_name == "trace";
    let rows = is_trace.then(|| rows(table, files)).flatten();
    let processes = match &rows {
        Some(rows) if !table.has("processes") => rows.len() as u32,
        // What is wrong with the trace has been said.
        None if is_trace && !table.has("processes") => 1,
        _ => table.needed_small("processes"),
    };
    if let Some(rows) = &rows
        && rows.len() != processes as usize
    {
        let clients = rows.len();
        table.unfit(
            "processes",
            format!("processes = {processes}, but the trace has {clients} clients; remove it"),
        );
    }
    let first_node = table.small("first_node");
    match batch {
        true => table.refuse(&["first_node", "node_step"], "an application of a batch scheduler"),
        false => table.refuse(&["walltime"], "an application without a batch scheduler ([batch])"),
    }
    if !table.has("count") {
        table.refuse(&["node_step", "start_step"], "an application without count");
    }
    let nodes = match table.optional("nodes") {
        Some(nodes) => nodes as u32,
        None => cluster.clients.nodes.saturating_sub(first_node).min(processes).max(1),
    };
    let workload = workload(table, pattern_name, processes, rows);
    App {
        name,
        id: 0,
        processes,
        first_node,
        nodes,
        start: table.span("start"),
        walltime: table.optional("walltime").map(Span::from_nanos),
        files: 0,
        entitlement: entitlement(table, cluster),
        group: None,
        workload,
    }
}

fn check_place(table: &Table<'_>, first: &App, count: u32, cluster: &Cluster, batch: bool) {
    let steps = u64::from(table.small("node_step")) * u64::from(count - 1);
    let last = if batch { 0 } else { u64::from(first.first_node) + steps } + u64::from(first.nodes);
    let nodes = cluster.clients.nodes;
    if last > u64::from(nodes) && table.problems().is_empty() {
        let key = if table.has("nodes") { "nodes" } else { "first_node" };
        let name = &first.name;
        table.unfit(
            key,
            format!(
                "app {name} runs on client nodes up to {}, but there are {nodes} (0 to {})",
                last - 1,
                nodes - 1
            ),
        );
    }
    if first.nodes > first.processes && table.problems().is_empty() {
        let (name, nodes, processes) = (&first.name, first.nodes, first.processes);
        table.unfit(
            "nodes",
            format!("app {name} has {nodes} nodes for {processes} processes: expected no more nodes"),
        );
    }
}

fn check_unique(table: &Table<'_>, app: &App, names: &mut HashSet<String>, ids: &mut HashMap<u32, String>) {
    if !names.insert(app.name.clone()) {
        table.unfit("name", format!("a second application called {}: give it another name", app.name));
    } else if let Some(other) = ids.insert(app.id, app.name.clone()) {
        let key = if table.has("id") { "id" } else { "name" };
        let (id, one) = (app.id, &app.name);
        table.unfit(
            key,
            format!("{one} and {other} both have the application id {id}: give one of them another id"),
        );
    }
}

fn workload(table: &Table<'_>, pattern_name: &str, processes: u32, rows: Option<Rows>) -> Workload {
    let uses: &[&str] = match pattern_name {
        "contiguous" => &["op", "iterations", "sharing", "bytes", "request"],
        "strided" => &["op", "iterations", "bytes", "request"],
        "random" => &["op", "iterations", "sharing", "bytes", "request", "file_bytes"],
        "tile" => &["op", "iterations", "columns", "width", "height", "element"],
        "noncontiguous" => &["op", "iterations", "bytes", "piece", "pieces"],
        _ => &["file", "timed"],
    };
    let others: Vec<_> = KEYS.into_iter().filter(|key| !uses.contains(key)).collect();
    table.refuse(&others, &format!("the pattern {pattern_name}"));
    let iterations = table.small("iterations");
    let op =
        if pattern_name != "trace" && table.needed_choice("op") == "write" { Op::Write } else { Op::Read };
    let pattern = pattern(table, pattern_name, processes, iterations, rows);
    let (think, outstanding) = pace(table, pattern_name);
    Workload {
        pattern,
        op,
        iterations,
        compute: table.distribution("compute"),
        think,
        outstanding,
        barrier: match table.choice("barrier") {
            "none" => Barrier::None,
            "call" => Barrier::Call,
            _ => Barrier::Phase,
        },
        collective: table.table("collective").map(|inner| collective(table, &inner, pattern_name, processes)),
    }
}

/// What a process waits before each call, and how many it has in progress at most: one that calls by the clock waits for no answer.
fn pace(table: &Table<'_>, pattern: &str) -> (Distribution, Option<u32>) {
    if !table.has("arrivals") {
        if table.choice("barrier") == "call" && table.optional("outstanding") != Some(1) {
            let text = "outstanding: with barrier = call each call waits for the one before; remove it, or choose barrier = phase or none";
            table.unfit("outstanding", text.into());
        }
        return (table.distribution("think"), table.optional("outstanding").map(|calls| calls as u32));
    }
    table.refuse(&["think", "outstanding", "collective"], "an open loop (arrivals)");
    if pattern == "trace" {
        table.unfit("arrivals", "arrivals: a trace has times of its own; remove it".into());
    }
    if table.choice("barrier") == "call" {
        let text =
            "barrier = call: in an open loop (arrivals) no call waits for another; expected none or phase";
        table.unfit("barrier", text.into());
    }
    let between = table.distribution("arrivals");
    if between.is_zero() {
        table.unfit("arrivals", "arrivals = 0s: expected a time between calls that is not 0".into());
    }
    (between, None)
}

fn pattern(table: &Table<'_>, name: &str, processes: u32, iterations: u32, rows: Option<Rows>) -> Pattern {
    let all = u128::from(processes) * u128::from(iterations);
    let total = |key: &str, bytes: u128| {
        if bytes.saturating_mul(all) > BYTES_MAX.into() {
            let text = format!(
                "{processes} processes with {iterations} iterations of {bytes} bytes: expected at most 2^62 bytes in all"
            );
            table.unfit(key, text);
        }
    };
    let amount = || {
        let bytes = table.needed("bytes");
        total("bytes", bytes.into());
        bytes
    };
    match name {
        "contiguous" => Pattern::Contiguous {
            sharing: sharing(table),
            bytes: amount(),
            request: table.needed_small("request"),
        },
        "strided" => Pattern::Strided { bytes: amount(), request: table.needed_small("request") },
        "random" => {
            let (sharing, bytes, request) = (sharing(table), amount(), table.needed_small("request"));
            let users = if sharing == Sharing::Shared { all } else { iterations.into() };
            let accessed = u64::try_from(users * u128::from(bytes)).unwrap_or(u64::MAX);
            let file_bytes = table.optional("file_bytes").unwrap_or(accessed);
            if file_bytes < u64::from(request) {
                let text =
                    format!("a file of {file_bytes} bytes: expected at least one request ({request} bytes)");
                table.unfit("file_bytes", text);
            }
            Pattern::Random { sharing, bytes, request, file_bytes }
        }
        "tile" => {
            let columns = table.needed_small("columns");
            let (width, height) = (table.needed_small("width"), table.needed_small("height"));
            let element = table.needed_small("element");
            if !processes.is_multiple_of(columns) {
                let text = format!(
                    "columns = {columns}: expected a divisor of the {processes} processes, one tile each"
                );
                table.unfit("columns", text);
            }
            let row = u128::from(width) * u128::from(element);
            if row > CALL_MAX.into() {
                table.unfit("width", format!("a row of a tile has {row} bytes: expected at most 1GiB"));
            }
            total("height", row * u128::from(height));
            Pattern::Tile { columns, width, height, element }
        }
        "noncontiguous" => {
            let (bytes, piece, pieces) =
                (amount(), table.needed_small("piece"), table.needed_small("pieces"));
            let call = u64::from(piece) * u64::from(pieces);
            if call > CALL_MAX {
                table.unfit("pieces", format!("a call has {call} bytes: expected at most 1GiB"));
            }
            if bytes % u64::from(piece.max(1)) != 0 {
                table
                    .unfit("bytes", format!("bytes = {bytes}: expected a multiple of piece ({piece} bytes)"));
            }
            Pattern::Noncontiguous { bytes, piece, pieces }
        }
        _ => Pattern::Trace { rows: rows.unwrap_or_default(), timed: table.flag("timed") },
    }
}

pub(super) fn sharing(table: &Table<'_>) -> Sharing {
    if table.choice("sharing") == "shared" { Sharing::Shared } else { Sharing::PerProcess }
}

fn collective(app: &Table<'_>, table: &Table<'_>, pattern: &str, processes: u32) -> Collective {
    let aggregators = table.small("aggregators");
    if aggregators > processes {
        let text =
            format!("{aggregators} aggregators of {processes} processes: expected no more than processes");
        table.unfit("aggregators", text);
    }
    if ["trace", "random"].contains(&pattern) || sharing(app) == Sharing::PerProcess {
        let text = "collective I/O needs a shared file that is accessed without holes: remove it, or choose another \
                    pattern than random and trace, and sharing = \"shared\"";
        app.unfit("collective", text.into());
    }
    Collective { aggregators, buffer: table.small("buffer") }
}

/// The rows of a trace by client, counted from its first.
fn rows(table: &Table<'_>, files: &Files<'_>) -> Option<Rows> {
    if !table.has("file") {
        table.needed_text("file");
        return None;
    }
    let name = table.text("file");
    let mut traces = files.traces.borrow_mut();
    let trace =
        traces.entry(name.clone()).or_insert_with(|| (files.open)(&name).and_then(|text| by_client(&text)));
    match trace {
        Ok(rows) => Some(rows.clone()),
        Err(message) => {
            table.unfit("file", format!("the trace {name}: {message}"));
            None
        }
    }
}

fn by_client(text: &str) -> Result<Rows, String> {
    let mut trace = TraceReader::new(text.as_bytes()).map_err(|error| error.to_string())?;
    let (mut clients, mut rows) = (HashMap::new(), Vec::<Vec<_>>::new());
    let mut first = None;
    while let Some(mut row) = trace.next_row().map_err(|error| error.to_string())? {
        if row.offset.saturating_add(row.bytes.into()) > BYTES_MAX {
            return Err(format!("row {} ends beyond 2^62 bytes", row.number));
        }
        let first = *first.get_or_insert(row.time);
        row.time = Time::ZERO + row.time.since(first);
        row.issued = row.issued.map(|issued| Time::ZERO + issued.since(first));
        // Each job of a trace may number its clients from 1 on.
        let index = *clients.entry((row.app, row.client)).or_insert_with(|| {
            rows.push(Vec::new());
            rows.len() - 1
        });
        rows[index].push(row);
    }
    if rows.is_empty() { Err("it has no rows".into()) } else { Ok(Arc::new(rows)) }
}
