//! All tables and their keys, but those of faults.

use super::Absent::{Required, Value as Is, Words};
use super::faults::{FAULT, GLOBAL, GROUP};
use super::{Absent, Key, Schema, Takes};

pub(super) const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// What one number of bytes, and all that an application accesses, may be at most.
pub(in crate::scenario) const BYTES_MAX: u64 = 1 << 62;
/// Nodes of a layer of gates.
pub(super) const NODES_MAX: u64 = 4_096;
/// Processes of an application, and of all together.
pub(in crate::scenario) const PROCESSES_MAX: u64 = 1 << 20;

pub(super) const fn key(name: &'static str, takes: Takes, default: Absent, help: &'static str) -> Key {
    Key { name, takes, default, help }
}

/// The whole file.
pub(in crate::scenario) static SCENARIO: Schema = Schema {
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
        key(
            "alone",
            Takes::Flag,
            Is("false"),
            "also run each application alone, for interference factors; not with `jobs`",
        ),
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
        key(
            "jobs",
            Takes::Table(&JOBS),
            Words("none"),
            "applications that are drawn anew for each seed; needs `batch`",
        ),
        key("coordination", Takes::Table(&COORDINATION), Words("none"), "turns at the I/O: who does it when"),
        key("global", Takes::Table(&GLOBAL), Words("none"), "one policy over all gates of a layer"),
        key(
            "group",
            Takes::Named(&GROUP),
            Words("none"),
            "applications that have a share together (see Shares)",
        ),
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
pub(super) static CLIENTS: Schema = Schema {
    name: "clients",
    keys: &[
        key("nodes", Takes::Count(1, 65_536), Required, "how many nodes"),
        key("to", Takes::Text, Is("servers"), "where their requests go: `servers`, or a layer of forwarders"),
        key("gate", Takes::Gate(&GATE), Words("none"), "a gate on each, shared by its processes"),
        key(
            "cache",
            Takes::Table(&CACHE),
            Words("none: each call goes to the servers"),
            "a page cache on each, as a client of NFS has it; not with a gate (see Caches)",
        ),
        key(
            "slots",
            Takes::OrUnlimited(&Takes::Count(1, 65_536)),
            Is("unlimited"),
            "most unanswered requests of each: 16 for NFS (RPC_DEF_SLOT_TABLE)",
        ),
    ],
};

/// `[forwarders.NAME]`
pub(super) static FORWARDERS: Schema = Schema {
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
        key(
            "processor",
            Takes::Table(&PROCESSOR),
            Words("as `overhead` has it"),
            "processor time by kind of request, and for open connections",
        ),
        key(
            "batch",
            Takes::Count(1, 64),
            Words("each by itself"),
            "most requests of a file, adjacent or not, that go on in one call (see Lists)",
        ),
        key("batch_calls", Takes::Count(1, 65_536), Is("16"), "with `batch`: calls in service at once"),
    ],
};

/// `[servers]`
pub(super) static SERVERS: Schema = Schema {
    name: "servers",
    keys: &[
        key("nodes", Takes::Count(1, NODES_MAX), Required, "how many nodes"),
        key(
            "device",
            Takes::Text,
            Required,
            "the device of each: a model of `iogate devices`, `unit:TIME`, `linear:TIME:RATE`, `profile:FILE` for a measured one, or `exponential:TIME` for random times of this mean",
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
        key(
            "allocation",
            Takes::Choice(&["ext3", "ext4", "xfs"]),
            Words("in extents"),
            "whose rules give the files that are written their blocks on the device",
        ),
        key(
            "device_queue",
            Takes::Count(1, 64),
            Words("as the device has it"),
            "commands that a disk holds and orders by itself, as in `hdd:queue=31`",
        ),
        key("overhead", Takes::Time(0), Is("0s"), "processor time for each request"),
        key(
            "processor",
            Takes::Table(&PROCESSOR),
            Words("as `overhead` has it"),
            "processor time by kind of request, and for open connections",
        ),
        key(
            "cache",
            Takes::Table(&CACHE),
            Words("none: a bare device"),
            "the page cache of each, below its gate (see Caches)",
        ),
        key(
            "elevator",
            Takes::Choice(&["none", "deadline", "slices"]),
            Is("none"),
            "what orders the transfers to the device of each (see Elevators)",
        ),
        key(
            "elevator_threads",
            Takes::Choice(&["request", "file"]),
            Is("request"),
            "slices: which thread submits a request's transfers: one of a pool, or one for each file",
        ),
        key(
            "elevator_idle",
            Takes::Time(0),
            Is("8ms"),
            "slices: how long a device waits for a thread's next request; 0s: not at all",
        ),
    ],
};

/// Processors of forwarders and servers.
pub(super) static PROCESSOR: Schema = Schema {
    name: "processor",
    keys: &[
        key("read", Takes::Time(0), Required, "what it takes to take in a read"),
        key("write", Takes::Time(0), Required, "what it takes to take in a write"),
        key(
            "connection",
            Takes::Time(0),
            Is("0s"),
            "and, with each of them, for every connection that is open",
        ),
        key(
            "dispatch",
            Takes::Time(0),
            Is("0s"),
            "servers: what a call for what the gate dispatches takes, joined or not",
        ),
    ],
};

/// Page caches of servers and clients.
pub(super) static CACHE: Schema = Schema {
    name: "cache",
    keys: &[
        key("kernel", Takes::Choice(&["rhel5", "2.6.28", "modern"]), Required, "whose rules and numbers"),
        key("memory", Takes::Bytes(4_096, 1 << 50), Required, "of the machine"),
        key("size", Takes::Bytes(4_096, 1 << 50), Words("all of it"), "memory that the cache can have"),
        key(
            "background",
            Takes::Count(1, 100),
            Words("the kernel's"),
            "percent of dirty memory from which on it is written back",
        ),
        key(
            "limit",
            Takes::Count(1, 100),
            Words("the kernel's"),
            "percent of dirty memory from which on writers wait",
        ),
        key(
            "expire",
            Takes::Time(1),
            Words("the kernel's"),
            "how old dirty memory is when it is written back in any case; not of an ordered cache",
        ),
        key(
            "read_ahead",
            Takes::Bytes(0, GIB),
            Words("the kernel's"),
            "what a stream of reads is ahead at most",
        ),
        key("in_flight", Takes::Count(1, 65_536), Words("the kernel's"), "transfers of write-back at a time"),
        key(
            "ordered",
            Takes::Flag,
            Words("the kernel's"),
            "whether a sync writes back all files, as on ext3",
        ),
        key(
            "export",
            Takes::Choice(&["sync", "async"]),
            Is("sync"),
            "servers: whether a COMMIT waits for the device",
        ),
    ],
};

/// Gates of any layer.
pub(in crate::scenario) static GATE: Schema = Schema {
    name: "gate",
    keys: &[
        key(
            "scheduler",
            Takes::Text,
            Is("fifo"),
            "the scheduler (`iogate schedulers`); its parameters are further keys; or auto, of a gate with one target",
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
        key(
            "fair",
            Takes::Flag,
            Is("false"),
            "whether device time is divided among applications, by their weight, min and max",
        ),
        key(
            "lot",
            Takes::Time(1),
            Words("20 jumps of the device; 2ms where it charges nothing for them"),
            "how much device time one of them gets at once (fair)",
        ),
    ],
};

/// `[network]`
pub(super) static NETWORK: Schema = Schema {
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
            "what the switch holds for each port of some bandwidth; what does not fit is lost and sent again",
        ),
        key(
            "retransmit",
            Takes::Time(1),
            Is("200ms"),
            "with `buffer`: shortest time until a loss without an answer is noticed",
        ),
        key("header", Takes::Bytes(0, 1 << 20), Is("128"), "bytes of a message besides its data"),
    ],
};

/// `[batch]`
pub(super) static BATCH: Schema = Schema {
    name: "batch",
    keys: &[key(
        "backfill",
        Takes::Flag,
        Is("true"),
        "a later application may go first where that delays no earlier one",
    )],
};

/// `[jobs]`
pub(super) static JOBS: Schema = Schema {
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

/// `[coordination]`
pub(super) static COORDINATION: Schema = Schema {
    name: "coordination",
    keys: &[
        key(
            "mechanism",
            Takes::Choice(&["none", "lock", "backoff", "lock+backoff"]),
            Is("none"),
            "what an application does before the I/O of an iteration (see Turns)",
        ),
        key("rules", Takes::Text, Is("order=fcfs"), "of the coordinator (lock), as its daemon has them"),
        key("backoff", Takes::Table(&BACKOFF), Words("its defaults"), "how to probe, and how to back off"),
    ],
};

/// `coordination.backoff`
pub(super) static BACKOFF: Schema = Schema {
    name: "coordination.backoff",
    keys: &[
        key("probe", Takes::Bytes(1, GIB), Is("3MiB"), "bytes of a probe"),
        key(
            "probes",
            Takes::Count(1, 1_000),
            Is("3"),
            "probes of an attempt, of which the slowest counts; the first slow one ends it",
        ),
        key("pause", Takes::Time(0), Is("100ms"), "between two of them"),
        key("prime", Takes::Bytes(0, GIB), Is("256KiB"), "bytes written before each probe, and not timed"),
        key(
            "quiet",
            Takes::Rate,
            Words("measured before each run"),
            "throughput of a probe of quiet storage",
        ),
        key(
            "threshold",
            Takes::Number(0.001, 1.0),
            Is("0.85"),
            "share of the quiet throughput from which on the storage counts as quiet",
        ),
        key("attempts", Takes::Count(1, 100_000), Is("8"), "attempts after which it begins nevertheless"),
        key("base", Takes::Count(1, 1_000), Is("2"), "of the random number's range: base^exponent"),
        key("exponent", Takes::Count(0, 60), Is("1"), "after the first attempt; it grows by one with each"),
        key("sleep_unit", Takes::Time(0), Is("1s"), "what the random number multiplies"),
        key("sleep_fixed", Takes::Time(0), Is("1s"), "what each sleep has besides"),
    ],
};

/// The words of `sharing`.
const SHARING: &[&str] = &["shared", "per-process"];
/// The words of `pattern`.
const PATTERNS: &[&str] = &["contiguous", "strided", "random", "tile", "noncontiguous", "trace"];

/// `[[app]]`
pub(super) static APP: Schema = Schema {
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
        key(
            "weight",
            Takes::Count(1, 10_000),
            Is("1"),
            "its share at a gate that is fair, beside others that want more",
        ),
        key(
            "min",
            Takes::Rate,
            Words("none"),
            "the rate that it gets at least at each gate that is fair, or of a total (see One policy over many gates)",
        ),
        key(
            "max",
            Takes::Rate,
            Words("none"),
            "the rate that it gets at most at each gate that is fair, or at all that share a policy",
        ),
        key("group", Takes::Text, Words("none"), "the group whose share it has a part of, by its weight"),
        key("think", Takes::Distribution, Is("0s"), "how long a process waits before each call"),
        key(
            "arrivals",
            Takes::Distribution,
            Words("each call waits for the one before"),
            "an open loop: from one call of a process to its next by the clock (see Open loops)",
        ),
        key(
            "outstanding",
            Takes::OrUnlimited(&Takes::Count(1, 65_536)),
            Is("1"),
            "calls that a process has in progress at once; with barrier = call one",
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
            "two-phase I/O instead of a call by each process: shared file, neither random nor a trace",
        ),
    ],
};

/// `collective` of an application.
pub(super) static COLLECTIVE: Schema = Schema {
    name: "collective",
    keys: &[
        key("aggregators", Takes::Count(1, PROCESSES_MAX), Required, "processes that do the I/O"),
        key("buffer", Takes::Bytes(1, GIB), Is("16MiB"), "what an aggregator reads or writes in a round"),
    ],
};
