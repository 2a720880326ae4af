//! What mounts and servers tell monitoring: each series once, with its type, unit and meaning. The text of a scrape and
//! `docs/metrics.md` come from this table.

mod class;
mod text;

use iogate_core::stats::counters::{Counters, Times};
use iogate_core::stats::summary::{AppNow, Counted, OpSummary, Summary};
use iogate_core::stats::top::AppCounts;

pub use text::{Form, text};

/// What there is to tell.
#[derive(Debug, Default)]
pub struct Exposed {
    /// Gates, with their counters: of a mount one, of a server one for each export.
    pub gates: Vec<Summary>,
    /// The server, if it is one.
    pub server: Option<Server>,
}

/// What there is to tell of a server beside its gates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    /// How long it has been running, in ms.
    pub up_ms: u64,
    /// Sessions, those that wait for their client included.
    pub sessions: u64,
    /// Connections.
    pub connections: u64,
    /// Requests that are not answered yet.
    pub underway: u64,
    /// Bytes of memory for data underway.
    pub memory_bytes: u64,
}

/// How a series behaves, in OpenMetrics' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of values up to some bounds, and their sum.
    Histogram,
    /// Always 1: what it says is in the labels.
    Info,
}

/// What a series is measured in. Its name ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, which the name says.
    None,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// One line of the table.
#[derive(Debug)]
pub struct Series {
    /// Its name, without what its kind adds (`_total`, `_info`).
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
    read: fn(&Exposed) -> Vec<Sample>,
}

/// One value with its labels' values, in the order of [`Series::labels`].
struct Sample {
    labels: Vec<String>,
    value: Value,
}

enum Value {
    Number(u64),
    Nanoseconds(u64),
    Times(Times),
}

const BY_GATE: &[&str] = &["gate"];
const BY_OP: &[&str] = &["gate", "op"];
const BY_REASON: &[&str] = &["gate", "reason"];
const BY_CONFLICT: &[&str] = &["gate", "conflict"];
const BY_APP: &[&str] = &["gate", "app"];
const BY_CLASS: &[&str] = &["gate", "class"];
const BY_GROUP: &[&str] = &["gate", "group"];

/// All of them.
pub const SERIES: &[Series] = &[
    Series {
        name: "iogate_scheduler",
        kind: Kind::Info,
        unit: Unit::None,
        labels: &["gate", "scheduler", "params"],
        help: "The scheduler in force, with its parameters.",
        read: |exposed| {
            per_gate(exposed, |summary, _| {
                let params: Vec<_> = summary.params.iter().map(|(name, v)| format!("{name}={v}")).collect();
                vec![(vec![summary.scheduler.clone(), params.join(" ")], Value::Number(1))]
            })
        },
    },
    Series {
        name: "iogate_scheduler_switches",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Changes of the scheduler while the gate was in use.",
        read: |exposed| one(exposed, |summary, _| summary.switches),
    },
    Series {
        name: "iogate_depth",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Most dispatches in service at once.",
        read: |exposed| one(exposed, |summary, _| summary.depth.into()),
    },
    Series {
        name: "iogate_queued_requests",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Requests in the gate that are not dispatched yet.",
        read: |exposed| one(exposed, |_, counters| counters.queued),
    },
    Series {
        name: "iogate_in_service_dispatches",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Dispatches that the storage is at.",
        read: |exposed| one(exposed, |_, counters| counters.in_service),
    },
    Series {
        name: "iogate_requests",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_OP,
        help: "Requests that arrived.",
        read: |exposed| per_op(exposed, |op| op.requests),
    },
    Series {
        name: "iogate_request_bytes",
        kind: Kind::Counter,
        unit: Unit::Bytes,
        labels: BY_OP,
        help: "Bytes of the requests that arrived.",
        read: |exposed| per_op(exposed, |op| op.bytes),
    },
    Series {
        name: "iogate_dispatches",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_OP,
        help: "Dispatches that left for the storage, each with one or more requests.",
        read: |exposed| per_op(exposed, |op| op.dispatches),
    },
    Series {
        name: "iogate_failed_dispatches",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_OP,
        help: "Dispatches that the storage failed.",
        read: |exposed| per_op(exposed, |op| op.failed),
    },
    Series {
        name: "iogate_waiting_seconds",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        labels: BY_OP,
        help: "Time from a request's arrival to its dispatch.",
        read: |exposed| per_op_times(exposed, |counters, op| counters.times[op].waiting.clone()),
    },
    Series {
        name: "iogate_service_seconds",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        labels: BY_OP,
        help: "Time from a dispatch to its completion.",
        read: |exposed| per_op_times(exposed, |counters, op| counters.times[op].service.clone()),
    },
    Series {
        name: "iogate_waits",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_REASON,
        help: "Deliberate waits of the gate: it had requests and dispatched none.",
        read: |exposed| counted(exposed, |summary| &summary.waits, |wait| Value::Number(wait.count)),
    },
    Series {
        name: "iogate_wait_seconds",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        labels: BY_REASON,
        help: "Time that the gate waited deliberately.",
        read: |exposed| counted(exposed, |summary| &summary.waits, |wait| Value::Nanoseconds(wait.total_ns)),
    },
    Series {
        name: "iogate_held_requests",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_CONFLICT,
        help: "Requests held back for an earlier one to the same bytes.",
        read: |exposed| counted(exposed, |summary| &summary.held, |held| Value::Number(held.count)),
    },
    Series {
        name: "iogate_held_seconds",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        labels: BY_CONFLICT,
        help: "Time that requests were held back for an earlier one to the same bytes.",
        read: |exposed| counted(exposed, |summary| &summary.held, |held| Value::Nanoseconds(held.total_ns)),
    },
    Series {
        name: "iogate_full",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Submissions that found the gate full, and had to be made again.",
        read: |exposed| one(exposed, |summary, _| summary.rejected_full),
    },
    Series {
        name: "iogate_connected",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Whether all servers of a mount of servers, or of a forwarder, are connected to and answer within a second: 1 or 0.",
        read: |exposed| whether(exposed, |counters| counters.is_connected),
    },
    Series {
        name: "iogate_policy_granted",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Whether a policy that many gates share goes by what its coordinator has granted for now: 1, or 0 when it is not reached.",
        read: |exposed| whether(exposed, |counters| counters.has_lease),
    },
    Series {
        name: "iogate_skewed_requests",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_GATE,
        help: "Requests whose issue time was implausible and that counted by their arrival.",
        read: |exposed| one(exposed, |summary, _| summary.skewed),
    },
    Series {
        name: "iogate_app",
        kind: Kind::Info,
        unit: Unit::None,
        labels: &["gate", "app", "name"],
        help: "What an application is called.",
        read: |exposed| {
            per_gate(exposed, |_, counters| {
                let named = |app: &iogate_core::stats::counters::App| {
                    (vec![app.app.to_string(), app.name.clone()], Value::Number(1))
                };
                counters.apps.iter().map(named).collect()
            })
        },
    },
    Series {
        name: "iogate_app_requests",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_APP,
        help: "Completed requests of an application.",
        read: |exposed| per_app(exposed, |counts| Value::Number(counts.requests)),
    },
    Series {
        name: "iogate_app_request_bytes",
        kind: Kind::Counter,
        unit: Unit::Bytes,
        labels: BY_APP,
        help: "Bytes of an application's completed requests.",
        read: |exposed| per_app(exposed, |counts| Value::Number(counts.bytes)),
    },
    Series {
        name: "iogate_app_dispatches",
        kind: Kind::Counter,
        unit: Unit::None,
        labels: BY_APP,
        help: "Dispatches with requests of an application; one that several share counts for each.",
        read: |exposed| per_app(exposed, |counts| Value::Number(counts.dispatches)),
    },
    Series {
        name: "iogate_app_waiting_seconds",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        labels: BY_APP,
        help: "Time that an application's completed requests waited for their dispatch.",
        read: |exposed| per_app(exposed, |counts| Value::Nanoseconds(counts.waiting_ns)),
    },
    Series {
        name: "iogate_class",
        kind: Kind::Info,
        unit: Unit::None,
        labels: &["gate", "class", "name", "group"],
        help: "What a class of a policy is called, and the group that it is in.",
        read: |exposed| {
            per_gate(exposed, |summary, _| {
                let named = |now: &AppNow| {
                    let group = now.within.map(|group| group.to_string()).unwrap_or_default();
                    (vec![now.app.to_string(), now.name.clone(), group], Value::Number(1))
                };
                entitled(summary, false).map(named).collect()
            })
        },
    },
    of_classes(("iogate_class_weight", Kind::Gauge, Unit::None), "Weight of a class.", |exposed| {
        per_class(exposed, class::weight)
    }),
    of_classes(
        ("iogate_class_floor_bytes_per_second", Kind::Gauge, Unit::None),
        "Bytes a second that a class gets at least.",
        |exposed| per_class(exposed, class::floor_bytes),
    ),
    of_classes(
        ("iogate_class_floor_requests_per_second", Kind::Gauge, Unit::None),
        "Requests a second that a class gets at least.",
        |exposed| per_class(exposed, class::floor_requests),
    ),
    of_classes(
        ("iogate_class_cap_bytes_per_second", Kind::Gauge, Unit::None),
        "Bytes a second that a class gets at most.",
        |exposed| per_class(exposed, class::cap_bytes),
    ),
    of_classes(
        ("iogate_class_cap_requests_per_second", Kind::Gauge, Unit::None),
        "Requests a second that a class gets at most.",
        |exposed| per_class(exposed, class::cap_requests),
    ),
    of_classes(
        ("iogate_class_requests", Kind::Counter, Unit::None),
        "Completed requests of a class.",
        |exposed| per_class(exposed, class::served_requests),
    ),
    of_classes(
        ("iogate_class_request_bytes", Kind::Counter, Unit::Bytes),
        "Bytes of the completed requests of a class.",
        |exposed| per_class(exposed, class::served_bytes),
    ),
    of_classes(
        ("iogate_class_queued_requests", Kind::Gauge, Unit::None),
        "Requests of a class that are not dispatched yet.",
        |exposed| per_class(exposed, class::queued),
    ),
    of_classes(
        ("iogate_class_deferred_requests", Kind::Gauge, Unit::None),
        "Requests of a class that the policy does not let run yet.",
        |exposed| per_class(exposed, class::deferred),
    ),
    of_classes(
        ("iogate_class_capped_seconds", Kind::Counter, Unit::Seconds),
        "Time that requests of a class waited for its cap since the policy came.",
        |exposed| per_class(exposed, class::capped),
    ),
    Series {
        name: "iogate_group",
        kind: Kind::Info,
        unit: Unit::None,
        labels: &["gate", "group", "name"],
        help: "What a group of classes is called.",
        read: |exposed| {
            per_gate(exposed, |summary, _| {
                let named = |now: &AppNow| (vec![now.app.to_string(), now.name.clone()], Value::Number(1));
                entitled(summary, true).map(named).collect()
            })
        },
    },
    of_groups(("iogate_group_weight", Kind::Gauge, Unit::None), "Weight of a group.", |exposed| {
        per_group(exposed, class::weight)
    }),
    of_groups(
        ("iogate_group_floor_bytes_per_second", Kind::Gauge, Unit::None),
        "Bytes a second that a group gets at least.",
        |exposed| per_group(exposed, class::floor_bytes),
    ),
    of_groups(
        ("iogate_group_floor_requests_per_second", Kind::Gauge, Unit::None),
        "Requests a second that a group gets at least.",
        |exposed| per_group(exposed, class::floor_requests),
    ),
    of_groups(
        ("iogate_group_cap_bytes_per_second", Kind::Gauge, Unit::None),
        "Bytes a second that a group gets at most.",
        |exposed| per_group(exposed, class::cap_bytes),
    ),
    of_groups(
        ("iogate_group_cap_requests_per_second", Kind::Gauge, Unit::None),
        "Requests a second that a group gets at most.",
        |exposed| per_group(exposed, class::cap_requests),
    ),
    of_groups(
        ("iogate_group_requests", Kind::Counter, Unit::None),
        "Completed requests of a group since the policy came.",
        |exposed| per_group(exposed, class::served_requests),
    ),
    of_groups(
        ("iogate_group_request_bytes", Kind::Counter, Unit::Bytes),
        "Bytes of the completed requests of a group since the policy came.",
        |exposed| per_group(exposed, class::served_bytes),
    ),
    of_groups(
        ("iogate_group_queued_requests", Kind::Gauge, Unit::None),
        "Requests of a group that are not dispatched yet.",
        |exposed| per_group(exposed, class::queued),
    ),
    of_groups(
        ("iogate_group_deferred_requests", Kind::Gauge, Unit::None),
        "Requests of a group that the policy does not let run yet.",
        |exposed| per_group(exposed, class::deferred),
    ),
    of_groups(
        ("iogate_group_capped_seconds", Kind::Counter, Unit::Seconds),
        "Time that requests of a group waited for its cap since the policy came.",
        |exposed| per_group(exposed, class::capped),
    ),
    Series {
        name: "iogate_server_up_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        labels: &[],
        help: "How long the server has been running.",
        read: |exposed| {
            of_server(exposed, |server| Value::Nanoseconds(server.up_ms.saturating_mul(1_000_000)))
        },
    },
    Series {
        name: "iogate_server_sessions",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: &[],
        help: "Sessions of the server, those that wait for their client included.",
        read: |exposed| of_server(exposed, |server| Value::Number(server.sessions)),
    },
    Series {
        name: "iogate_server_connections",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: &[],
        help: "Connections of the server.",
        read: |exposed| of_server(exposed, |server| Value::Number(server.connections)),
    },
    Series {
        name: "iogate_server_underway_requests",
        kind: Kind::Gauge,
        unit: Unit::None,
        labels: &[],
        help: "Requests that the server has not answered yet.",
        read: |exposed| of_server(exposed, |server| Value::Number(server.underway)),
    },
    Series {
        name: "iogate_server_memory_bytes",
        kind: Kind::Gauge,
        unit: Unit::Bytes,
        labels: &[],
        help: "Memory of the server for data underway.",
        read: |exposed| of_server(exposed, |server| Value::Number(server.memory_bytes)),
    },
];

/// A series of each class of a policy.
const fn of_classes(
    (name, kind, unit): (&'static str, Kind, Unit),
    help: &'static str,
    read: fn(&Exposed) -> Vec<Sample>,
) -> Series {
    Series { name, kind, unit, labels: BY_CLASS, help, read }
}

/// A series of each group of classes.
const fn of_groups(
    of: (&'static str, Kind, Unit),
    help: &'static str,
    read: fn(&Exposed) -> Vec<Sample>,
) -> Series {
    Series { labels: BY_GROUP, ..of_classes(of, help, read) }
}

/// Samples of each gate, whose name is put before the other labels.
fn per_gate(
    exposed: &Exposed,
    read: impl Fn(&Summary, &Counters) -> Vec<(Vec<String>, Value)>,
) -> Vec<Sample> {
    let gates = exposed.gates.iter().filter_map(|gate| Some((gate, gate.counters.as_ref()?)));
    let samples = gates.flat_map(|(summary, counters)| {
        read(summary, counters).into_iter().map(|(mut labels, value)| {
            labels.insert(0, counters.gate.clone());
            Sample { labels, value }
        })
    });
    samples.collect()
}

/// 1 or 0 of each gate that has an answer.
fn whether(exposed: &Exposed, read: impl Fn(&Counters) -> Option<bool>) -> Vec<Sample> {
    per_gate(exposed, |_, counters| {
        read(counters).map(|is_so| (Vec::new(), Value::Number(is_so.into()))).into_iter().collect()
    })
}

fn one(exposed: &Exposed, read: impl Fn(&Summary, &Counters) -> u64) -> Vec<Sample> {
    per_gate(exposed, |summary, counters| vec![(Vec::new(), Value::Number(read(summary, counters)))])
}

fn per_op(exposed: &Exposed, read: impl Fn(&OpSummary) -> u64) -> Vec<Sample> {
    per_gate(exposed, |summary, _| {
        summary.ops().into_iter().map(|(name, op)| (vec![name.into()], Value::Number(read(op)))).collect()
    })
}

fn per_op_times(exposed: &Exposed, read: impl Fn(&Counters, usize) -> Times) -> Vec<Sample> {
    per_gate(exposed, |summary, counters| {
        let names = summary.ops().into_iter().zip(0..);
        names.map(|((name, _), op)| (vec![name.into()], Value::Times(read(counters, op)))).collect()
    })
}

fn counted(
    exposed: &Exposed,
    list: impl Fn(&Summary) -> &Vec<Counted>,
    read: impl Fn(&Counted) -> Value,
) -> Vec<Sample> {
    per_gate(exposed, |summary, _| {
        list(summary).iter().map(|counted| (vec![counted.name.clone()], read(counted))).collect()
    })
}

fn per_app(exposed: &Exposed, read: impl Fn(&AppCounts) -> Value) -> Vec<Sample> {
    per_gate(exposed, |_, counters| {
        let apps = counters.apps.iter().map(|app| (vec![app.app.to_string()], read(&app.counts)));
        apps.chain([(vec!["other".into()], read(&counters.other))]).collect()
    })
}

/// What each class of a policy has of something that not all have.
fn per_class(exposed: &Exposed, read: impl Fn(&AppNow) -> Option<Value>) -> Vec<Sample> {
    per_entitled(exposed, false, read)
}

/// Likewise each group.
fn per_group(exposed: &Exposed, read: impl Fn(&AppNow) -> Option<Value>) -> Vec<Sample> {
    per_entitled(exposed, true, read)
}

fn per_entitled(exposed: &Exposed, groups: bool, read: impl Fn(&AppNow) -> Option<Value>) -> Vec<Sample> {
    per_gate(exposed, |summary, _| {
        let entitled = entitled(summary, groups);
        entitled.filter_map(|now| Some((vec![now.app.to_string()], read(now)?))).collect()
    })
}

/// The classes of a policy, or its groups.
fn entitled(summary: &Summary, groups: bool) -> impl Iterator<Item = &AppNow> {
    summary.now.iter().filter(move |now| now.weight.is_some() && now.is_branch == groups)
}

fn of_server(exposed: &Exposed, read: impl Fn(&Server) -> Value) -> Vec<Sample> {
    exposed.server.iter().map(|server| Sample { labels: Vec::new(), value: read(server) }).collect()
}
