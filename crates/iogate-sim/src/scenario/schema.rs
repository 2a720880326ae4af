//! The keys of a scenario, defined once: the reader, its messages and `docs/scenarios.md` have them from here.

use std::fmt;

use super::document::{Data, Value};
use super::units;

/// A table of a scenario.
#[derive(Debug)]
pub struct Schema {
    /// What messages and the documentation call it.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One key of a table.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub takes: Takes,
    /// What holds if it is not there.
    pub default: Absent,
    /// One line on what it means.
    pub help: &'static str,
}

/// What holds if a key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It must be there.
    Required,
    /// This value, as in a file but without quotes.
    Value(&'static str),
    /// What these words say.
    Words(&'static str),
}

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Any text.
    Text,
    /// A list of texts.
    Texts,
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// A number of bytes from the first to the second.
    Bytes(u64, u64),
    /// A time, at least so many nanoseconds.
    Time(u64),
    /// A time that may be negative.
    SignedTime,
    /// Bytes per second.
    Rate,
    /// A number from the first to the second.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these, or `unlimited`.
    OrUnlimited(&'static Takes),
    /// A time, always the same or drawn.
    Distribution,
    /// A list of two values of this kind, or one for both.
    Range(&'static Takes),
    /// A table.
    Table(&'static Schema),
    /// A table that also takes the parameters of its scheduler.
    Gate(&'static Schema),
    /// A table of such tables, each with its name.
    Named(&'static Schema),
    /// A list of such tables.
    List(&'static Schema),
    /// A table with keys of the whole scenario in it.
    Settings,
}

/// The longest time that a key takes, in nanoseconds: a year.
pub(super) const TIME_MAX: u64 = 8_760 * 3_600_000_000_000;

impl Takes {
    /// The value as a number: bytes, nanoseconds, bytes per second, 0 or 1, the index of a word, [`u64::MAX`] for no limit.
    /// `None` if it is of another kind or out of range.
    pub(super) fn number(&self, value: &Value) -> Option<u64> {
        let within = |number: u64, min: u64, max: u64| (min..=max).contains(&number).then_some(number);
        match (*self, &value.data) {
            (Takes::Count(min, max) | Takes::Bytes(min, max), Data::Integer(number)) => {
                within(u64::try_from(*number).ok()?, min, max)
            }
            (Takes::Bytes(min, max), Data::Text(text)) => within(units::bytes(text)?, min, max),
            (Takes::Time(min), Data::Text(text)) => within(units::nanoseconds(text)?, min, TIME_MAX),
            (Takes::Time(0), Data::Integer(0)) => Some(0),
            (Takes::Rate, Data::Text(text)) => within(units::bytes_per_second(text)?, 1, 1 << 60),
            (Takes::Flag, Data::Flag(flag)) => Some((*flag).into()),
            (Takes::Choice(words), Data::Text(text)) => {
                words.iter().position(|word| word == text).map(|index| index as u64)
            }
            (Takes::OrUnlimited(_), Data::Text(text)) if text == "unlimited" => Some(u64::MAX),
            (Takes::OrUnlimited(takes), _) => takes.number(value),
            _ => None,
        }
    }

    /// Whether one value of this kind is itself a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Takes::Texts | Takes::Range(_) | Takes::List(_))
    }
}

impl fmt::Display for Takes {
    /// What is expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Takes::Text => f.write_str("a text"),
            Takes::Texts => f.write_str("a list of texts"),
            Takes::Count(min, max) => write!(f, "a whole number from {min} to {max}"),
            Takes::Bytes(0, _) => f.write_str("bytes, as in 4096 or 32KiB"),
            Takes::Bytes(_, max) if *max == GIB => f.write_str("bytes, as in 4096 or 32KiB, from 1 to 1GiB"),
            Takes::Bytes(..) => f.write_str("bytes, as in 4096 or 32KiB, not 0"),
            Takes::Time(0) => f.write_str("a time with its unit, as in 250ms"),
            Takes::Time(_) => f.write_str("a time with its unit, as in 250ms, not 0"),
            Takes::SignedTime => f.write_str("a time with its unit, as in 250ms or -5ms"),
            Takes::Rate => f.write_str("a rate, as in 125MB/s or 1Gbit/s"),
            Takes::Number(min, max) => write!(f, "a number from {min} to {max}"),
            Takes::Flag => f.write_str("true or false"),
            Takes::Choice(words) => write!(f, "one of: {}", words.join(", ")),
            Takes::OrUnlimited(takes) => write!(f, "{takes}; or unlimited"),
            Takes::Distribution => f.write_str(
                "a time, as in 5ms; or { uniform = [\"1s\", \"2s\"] }; or { exponential = \"5ms\" }",
            ),
            Takes::Range(takes) => write!(f, "two of (or one): {takes}"),
            Takes::Table(schema) => write!(f, "a table ({})", schema.name),
            Takes::Gate(schema) => write!(f, "a table ({}, and the scheduler's parameters)", schema.name),
            Takes::Named(schema) => write!(f, "tables by name ({})", schema.name),
            Takes::List(schema) => write!(f, "a list of tables ({})", schema.name),
            Takes::Settings => f.write_str("a table of keys of the scenario"),
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::Required => f.write_str("required"),
            Absent::Value(text) => write!(f, "`{text}`"),
            Absent::Words(text) => f.write_str(text),
        }
    }
}

impl Schema {
    /// The key with this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The schema of every table, each once.
    pub fn all() -> [&'static Schema; 11] {
        [
            &SCENARIO,
            &CLIENTS,
            &FORWARDERS,
            &SERVERS,
            &GATE,
            &NETWORK,
            &BATCH,
            &JOBS,
            &APP,
            &COLLECTIVE,
            &FAULT,
        ]
    }

    /// The key that a path such as `servers.gate.depth` or `app.*.bytes` names, if it is one of the scenario's.
    pub(super) fn find<'p>(path: impl Iterator<Item = &'p str>) -> Option<&'static Key> {
        let mut schema: Option<&'static Schema> = Some(&SCENARIO);
        let mut path = path;
        let mut found = None;
        while let Some(segment) = path.next() {
            let key = schema?.key(segment)?;
            found = Some(key);
            schema = match key.takes {
                Takes::Table(schema) | Takes::Gate(schema) => Some(schema),
                Takes::Named(schema) | Takes::List(schema) => path.next().map(|_| schema),
                _ => None,
            };
        }
        found
    }

    /// Its keys as a table in Markdown: what the documentation has.
    pub fn markdown(&self) -> String {
        let mut out = String::from("| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in self.keys {
            out += &format!("| `{}` | {} | {} | {} |\n", key.name, key.takes, key.default, key.help);
        }
        out
    }
}

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// What one number of bytes may be at most.
const BYTES_MAX: u64 = 1 << 62;
/// Nodes of a layer of gates.
const NODES_MAX: u64 = 4_096;
/// Processes of an application, and of all together.
pub(super) const PROCESSES_MAX: u64 = 1 << 20;

use Absent::{Required, Value as Is, Words};

const fn key(name: &'static str, takes: Takes, default: Absent, help: &'static str) -> Key {
    Key { name, takes, default, help }
}

/// The whole file.
pub(super) static SCENARIO: Schema = Schema {
    name: "the scenario",
    keys: &[
        key("title", Takes::Text, Required, "what it is called, in a few words"),
        key("notes", Takes::Texts, Words("none"), "what it is for, a sentence each"),
        key(
            "seed",
            Takes::Count(0, 1 << 62),
            Is("1"),
            "where random numbers come from; repetition i has seed + i",
        ),
        key("repetitions", Takes::Count(1, 100_000), Is("8"), "runs of each point, each with another seed"),
        key("confidence", Takes::Number(0.5, 0.9999), Is("0.95"), "confidence level of intervals"),
        key("time_max", Takes::Time(1), Is("24h"), "simulated time after which a run is stopped"),
        key("alone", Takes::Flag, Is("false"), "also run each application alone, for interference factors"),
        key("clients", Takes::Table(&CLIENTS), Required, "where applications run"),
        key("forwarders", Takes::Named(&FORWARDERS), Words("none"), "layers between clients and servers"),
        key("servers", Takes::Table(&SERVERS), Required, "where data lies"),
        key("network", Takes::Table(&NETWORK), Words("no latency and no limit"), "what connects the nodes"),
        key(
            "batch",
            Takes::Table(&BATCH),
            Words("each starts at its time"),
            "a batch scheduler: one application a node",
        ),
        key("jobs", Takes::Table(&JOBS), Words("none"), "applications that are drawn anew for each seed"),
        key("app", Takes::List(&APP), Words("none"), "the applications"),
        key("fault", Takes::List(&FAULT), Words("none"), "what goes wrong"),
        key(
            "sweep",
            Takes::Settings,
            Words("one point"),
            "keys with a list of values each: all combinations are run",
        ),
        key(
            "quick",
            Takes::Settings,
            Words("none"),
            "keys with other values, for a quick form of the scenario",
        ),
    ],
};

/// `[clients]`
static CLIENTS: Schema = Schema {
    name: "clients",
    keys: &[
        key("nodes", Takes::Count(1, 65_536), Required, "how many nodes"),
        key("to", Takes::Text, Is("servers"), "where their requests go: `servers`, or a layer of forwarders"),
        key("gate", Takes::Gate(&GATE), Words("none"), "a gate on each, shared by its processes"),
    ],
};

/// `[forwarders.NAME]`
static FORWARDERS: Schema = Schema {
    name: "forwarders",
    keys: &[
        key("nodes", Takes::Count(1, NODES_MAX), Required, "how many nodes"),
        key("to", Takes::Text, Is("servers"), "where their requests go: `servers`, or another layer"),
        key("gate", Takes::Gate(&GATE), Words("fifo"), "the gate on each"),
        key(
            "spread",
            Takes::Choice(&["client", "file", "target"]),
            Is("client"),
            "which forwarder takes a request: by sending node in blocks, by file, or by the server of its first byte",
        ),
        key(
            "transfer",
            Takes::Bytes(1, GIB),
            Is("1MiB"),
            "longest request that they take; longer ones come in several",
        ),
        key("overhead", Takes::Time(0), Is("0s"), "processor time for each request"),
    ],
};

/// `[servers]`
static SERVERS: Schema = Schema {
    name: "servers",
    keys: &[
        key("nodes", Takes::Count(1, NODES_MAX), Required, "how many nodes"),
        key(
            "device",
            Takes::Text,
            Required,
            "the device of each: a model of `iogate devices`, `unit:TIME`, or `exponential:TIME` for random times of this mean",
        ),
        key("gate", Takes::Gate(&GATE), Words("fifo"), "the gate on each"),
        key(
            "stripe",
            Takes::Bytes(1, TIB),
            Is("64KiB"),
            "bytes of a file on one server before the next has its turn",
        ),
        key(
            "transfer",
            Takes::Bytes(1, GIB),
            Is("1MiB"),
            "longest request that they take; longer ones come in several",
        ),
        key("extent", Takes::Bytes(1, TIB), Is("256MiB"), "bytes of a file that lie together on the device"),
        key("overhead", Takes::Time(0), Is("0s"), "processor time for each request"),
    ],
};

/// Gates of any layer.
pub(super) static GATE: Schema = Schema {
    name: "gate",
    keys: &[
        key(
            "scheduler",
            Takes::Text,
            Is("fifo"),
            "the scheduler (`iogate schedulers`); its parameters are further keys",
        ),
        key(
            "depth",
            Takes::Count(1, 65_536),
            Words("1 on servers, else 16"),
            "most dispatches in service at once",
        ),
        key(
            "queue",
            Takes::Count(1, 16_777_216),
            Is("65536"),
            "most requests in the gate; more wait outside",
        ),
    ],
};

/// `[network]`
static NETWORK: Schema = Schema {
    name: "network",
    keys: &[
        key("latency", Takes::Time(0), Is("0s"), "from one node to another, for the first byte"),
        key("jitter", Takes::Time(0), Is("0s"), "at most so much is added to the latency of each message"),
        key(
            "bandwidth",
            Takes::OrUnlimited(&Takes::Rate),
            Is("unlimited"),
            "of each node's port, in each direction",
        ),
        key(
            "buffer",
            Takes::OrUnlimited(&Takes::Bytes(1, TIB)),
            Is("unlimited"),
            "what the switch holds for each port; what does not fit is lost and sent again",
        ),
        key(
            "retransmit",
            Takes::Time(1),
            Is("200ms"),
            "shortest time until a loss without an answer is noticed",
        ),
        key("header", Takes::Bytes(0, 1 << 20), Is("128"), "bytes of a message besides its data"),
    ],
};

/// `[batch]`
static BATCH: Schema = Schema {
    name: "batch",
    keys: &[key(
        "backfill",
        Takes::Flag,
        Is("true"),
        "a later application may go first where that delays no earlier one",
    )],
};

/// `[jobs]`
static JOBS: Schema = Schema {
    name: "jobs",
    keys: &[
        key("count", Takes::Count(1, 10_000), Required, "how many"),
        key("nodes", Takes::Range(&Takes::Count(1, 65_536)), Required, "client nodes of each"),
        key("processes_per_node", Takes::Count(1, 4_096), Is("1"), "processes on each of its nodes"),
        key("submit", Takes::Range(&Takes::Time(0)), Is("0s"), "when it is submitted"),
        key(
            "iterations",
            Takes::Range(&Takes::Count(1, 1_000_000)),
            Is("1"),
            "how often it computes and writes",
        ),
        key(
            "compute_total",
            Takes::Range(&Takes::Time(0)),
            Required,
            "how long it computes, all iterations together",
        ),
        key(
            "bytes_total",
            Takes::Range(&Takes::Bytes(1, BYTES_MAX)),
            Required,
            "what it writes, all processes and iterations together",
        ),
        key("request", Takes::Bytes(1, GIB), Is("1MiB"), "bytes of a call"),
        key(
            "sharing",
            Takes::Choice(SHARING),
            Is("shared"),
            "one file for all processes of a job, or one each",
        ),
    ],
};

/// The words of `sharing`.
pub(super) const SHARING: &[&str] = &["shared", "per-process"];
/// The words of `pattern`.
pub(super) const PATTERNS: &[&str] = &["contiguous", "strided", "random", "tile", "noncontiguous", "trace"];

/// `[[app]]`
static APP: Schema = Schema {
    name: "app",
    keys: &[
        key("name", Takes::Text, Required, "what it is called: letters, digits, - and _"),
        key("count", Takes::Count(1, 10_000), Is("1"), "so many equal ones, called name-1, name-2, ..."),
        key(
            "id",
            Takes::Count(1, 1 << 31),
            Words("its place in the file"),
            "application id in the gates (of the first)",
        ),
        key(
            "processes",
            Takes::Count(1, PROCESSES_MAX),
            Words("required; for a trace, its clients"),
            "how many processes",
        ),
        key(
            "nodes",
            Takes::Count(1, 65_536),
            Words("all from `first_node` on, at most one a process"),
            "client nodes that it runs on",
        ),
        key(
            "first_node",
            Takes::Count(0, 65_535),
            Is("0"),
            "its first client node (without a batch scheduler)",
        ),
        key(
            "node_step",
            Takes::Count(0, 65_535),
            Is("0"),
            "with `count`: nodes from the first of one to the first of the next",
        ),
        key("start", Takes::Time(0), Is("0s"), "when it starts, or is submitted to the batch scheduler"),
        key(
            "start_step",
            Takes::Time(0),
            Is("0s"),
            "with `count`: time from the start of one to the start of the next",
        ),
        key(
            "walltime",
            Takes::Time(1),
            Words("unknown"),
            "how long it claims to run, for the batch scheduler",
        ),
        key(
            "files",
            Takes::Text,
            Words("its own"),
            "a label: applications with the same label use the same files",
        ),
        key("pattern", Takes::Choice(PATTERNS), Required, "which bytes its processes access (see Patterns)"),
        key(
            "op",
            Takes::Choice(&["read", "write"]),
            Words("required, but for a trace"),
            "what it does with them",
        ),
        key("sharing", Takes::Choice(SHARING), Is("shared"), "one file for all processes, or one each"),
        key(
            "bytes",
            Takes::Bytes(1, BYTES_MAX),
            Words("required where the pattern has it"),
            "of one process in one iteration",
        ),
        key("request", Takes::Bytes(1, GIB), Words("required where the pattern has it"), "bytes of a call"),
        key(
            "file_bytes",
            Takes::Bytes(1, BYTES_MAX),
            Words("as much as is accessed"),
            "length of a file (random)",
        ),
        key("columns", Takes::Count(1, PROCESSES_MAX), Words("required (tile)"), "tiles side by side"),
        key("width", Takes::Count(1, 1 << 30), Words("required (tile)"), "elements of a tile side by side"),
        key("height", Takes::Count(1, 1 << 30), Words("required (tile)"), "rows of a tile"),
        key("element", Takes::Bytes(1, GIB), Words("required (tile)"), "bytes of an element"),
        key("piece", Takes::Bytes(1, GIB), Words("required (noncontiguous)"), "bytes of a piece"),
        key("pieces", Takes::Count(1, 1 << 30), Words("required (noncontiguous)"), "pieces of a call"),
        key(
            "file",
            Takes::Text,
            Words("required (trace)"),
            "a trace as of `iogate replay`, relative to the scenario",
        ),
        key(
            "timed",
            Takes::Flag,
            Is("true"),
            "each row at its time (trace), or as soon as earlier calls permit",
        ),
        key("iterations", Takes::Count(1, 1_000_000_000), Is("1"), "how often it computes and does I/O"),
        key(
            "compute",
            Takes::Distribution,
            Is("0s"),
            "how long it computes before the I/O of each iteration",
        ),
        key("think", Takes::Distribution, Is("0s"), "how long a process waits before each call"),
        key(
            "outstanding",
            Takes::OrUnlimited(&Takes::Count(1, 65_536)),
            Is("1"),
            "calls that a process has in progress at once",
        ),
        key(
            "barrier",
            Takes::Choice(&["none", "phase", "call"]),
            Is("phase"),
            "where processes wait for each other: nowhere, around the I/O of each iteration, after each call too",
        ),
        key(
            "collective",
            Takes::Table(&COLLECTIVE),
            Words("none"),
            "two-phase I/O instead of a call by each process",
        ),
    ],
};

/// `collective` of an application.
static COLLECTIVE: Schema = Schema {
    name: "collective",
    keys: &[
        key("aggregators", Takes::Count(1, PROCESSES_MAX), Required, "processes that do the I/O"),
        key("buffer", Takes::Bytes(1, GIB), Is("16MiB"), "what an aggregator reads or writes in a round"),
    ],
};

/// The words of `kind` of a fault.
pub(super) const FAULTS: &[&str] = &["slow-server", "stopped-server", "lost-client", "delay", "skew"];

/// `[[fault]]`
static FAULT: Schema = Schema {
    name: "fault",
    keys: &[
        key("kind", Takes::Choice(FAULTS), Required, "what goes wrong (see Faults)"),
        key("from", Takes::Time(0), Is("0s"), "from when (not for skew)"),
        key("until", Takes::Time(1), Words("for good"), "until when (not for skew and lost-client)"),
        key("server", Takes::Count(0, NODES_MAX - 1), Words("required (servers)"), "which server, from 0"),
        key(
            "factor",
            Takes::Number(1.0, 1e6),
            Words("required (slow-server)"),
            "how many times as long its device takes",
        ),
        key("layer", Takes::Text, Words("required (skew)"), "`clients`, `servers` or a layer of forwarders"),
        key(
            "node",
            Takes::Count(0, 65_535),
            Words("required (lost-client, skew)"),
            "which node of the layer, from 0",
        ),
        key("extra", Takes::Time(1), Words("required (delay)"), "longest time that is added to each message"),
        key(
            "ahead",
            Takes::SignedTime,
            Words("required (skew)"),
            "how far the node's clock is ahead, or, negative, behind",
        ),
    ],
};
