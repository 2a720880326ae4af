//! What a scenario says: a cluster, a network, the applications, what goes wrong, and how often to repeat it.
//!
//! These are plain values, checked and complete: defaults are filled in, units are bytes and nanoseconds. `docs/scenarios.md`
//! documents the file format, [`Plan`] reads it.

mod built_in;
mod document;
mod path;
mod plan;
mod problem;
mod read;
pub(crate) mod room;
pub mod schema;
pub(crate) mod shares;
mod table;

use std::num::NonZeroU64;
use std::sync::Arc;

use iogate_core::coord::CoordConfig;
use iogate_core::coord::backoff::BackoffConfig;
use iogate_core::device::{Placement, Rules};
use iogate_core::policy::Entitlement;
use iogate_core::profile::Profile;
use iogate_core::sched::SchedulerConfig;
use iogate_core::{Op, Span};

use crate::cache::CacheConfig;
use crate::elevator::ElevatorConfig;
use crate::rng::Distribution;

pub use built_in::{BUILT_IN, built_in};
pub use plan::{Axis, POINTS_MAX, Plan, Point, Source};
pub use problem::{PROBLEMS_MAX, Place, Problem, ProblemKind, ScenarioError};
pub use shares::Group;

/// One scenario, with one value for each key.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called, in a few words.
    pub title: String,
    /// What it is for: a sentence each.
    pub notes: Vec<String>,
    /// Where all random numbers come from. Repetition `i` uses `seed + i`.
    pub seed: u64,
    /// How often it is run, each time with another seed; at least 1.
    pub repetitions: u32,
    /// Confidence level of intervals, as in 0.95.
    pub confidence: f64,
    /// Simulated time after which a run is stopped as one that does not end.
    pub time_max: Span,
    /// Whether each application is also run alone, for its interference factor.
    pub alone: bool,
    /// The nodes.
    pub cluster: Cluster,
    /// What connects them.
    pub network: Network,
    /// How applications come to run; `None`: each at its start time, on nodes that may be shared.
    pub batch: Option<Batch>,
    /// The applications.
    pub apps: Vec<App>,
    /// Applications that are drawn anew for each seed.
    pub jobs: Option<Jobs>,
    /// Which of them does its I/O when.
    pub coordination: Coordination,
    /// One policy over all gates of a layer.
    pub global: Option<GlobalSpec>,
    /// Groups of applications, at gates that are fair.
    pub groups: Vec<Group>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// One policy over all gates of a layer: caps of applications are of all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalSpec {
    /// The layer, as an index: 0 clients, 1.. forwarders, last servers. Its gates are fair.
    pub layer: u32,
    /// What all applications at all gates may have together, in bytes a second; it is divided by weights.
    pub total: Option<NonZeroU64>,
    /// How long a grant counts.
    pub lease: Span,
    /// How long from a gate's report to the next.
    pub every: Span,
    /// By how much clocks may differ in how long five leases take.
    pub skew: Span,
    /// For how long the part of a gate is kept that is not heard of.
    pub absent: Span,
}

/// The nodes, and the gates on them.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where applications run.
    pub clients: Clients,
    /// Layers between clients and servers, the clients' side first; often none.
    pub forwarders: Vec<Forwarders>,
    /// Where data lies.
    pub servers: Servers,
}

impl Cluster {
    /// The gates of the layers, the clients' side first; `None`: none there.
    pub fn gates(&self) -> impl Iterator<Item = Option<&GateSpec>> {
        let below = self.forwarders.iter().map(|layer| &layer.gate).chain([&self.servers.gate]);
        std::iter::once(self.clients.gate.as_ref()).chain(below.map(Some))
    }
}

/// Client nodes.
#[derive(Clone, Debug)]
pub struct Clients {
    /// How many; at least 1.
    pub nodes: u32,
    /// A gate on each, shared by its processes.
    pub gate: Option<GateSpec>,
    /// A page cache on each, as a client of NFS has it; `None`: all calls go to the servers.
    pub cache: Option<CacheConfig>,
    /// Most requests of each that are unanswered; `None`: no limit.
    pub slots: Option<u32>,
}

/// One layer of forwarders: nodes that do the I/O of clients (or of another layer) through a gate.
#[derive(Clone, Debug)]
pub struct Forwarders {
    /// What the layer is called.
    pub name: String,
    /// How many; at least 1.
    pub nodes: u32,
    /// The gate on each.
    pub gate: GateSpec,
    /// Which forwarder takes a request.
    pub spread: Spread,
    /// Longest request that it takes, in bytes: longer ones come in several.
    pub transfer: u32,
    /// What its processor takes for a request.
    pub processor: ProcessorSpec,
    /// Whether it joins dispatches to lists; `None`: each goes by itself.
    pub lists: Option<ListSpec>,
}

/// What the processor of a node takes to take in a request, or a list of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorSpec {
    /// A read.
    pub read: Span,
    /// A write.
    pub write: Span,
    /// And for each connection that is open.
    pub connection: Span,
    /// A dispatch of its gate to what is below, of a server.
    pub dispatch: Span,
}

impl ProcessorSpec {
    /// So much for each request.
    pub fn each(overhead: Span) -> ProcessorSpec {
        ProcessorSpec { read: overhead, write: overhead, ..ProcessorSpec::default() }
    }
}

/// How a forwarder joins dispatches of its gate to lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListSpec {
    /// Most requests of a list; at least 1.
    pub requests: u32,
    /// Lists in service at once; at least 1.
    pub calls: u32,
}

/// Which node of a layer takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// By the node that sends it, in blocks: the first nodes to the first forwarder.
    Client,
    /// By its file.
    File,
    /// By the server of its first byte.
    Target,
}

/// Data servers. Server `i` holds stripes `i`, `i + nodes`, ... of every file, as one file of its own.
#[derive(Clone, Debug)]
pub struct Servers {
    /// How many; at least 1.
    pub nodes: u32,
    /// The gate on each.
    pub gate: GateSpec,
    /// The device of each, as `iogate devices` names it; also `exponential:T`, which takes exponentially distributed times of mean T,
    /// and `profile:FILE`.
    pub device: String,
    /// The profile in that file.
    pub profile: Option<Arc<Profile>>,
    /// Bytes of a file that lie on one server before the next has its turn.
    pub stripe: u64,
    /// Longest request that it takes, in bytes: longer ones come in several.
    pub transfer: u32,
    /// Bytes of a file that lie together on the device.
    pub extent: u64,
    /// Whose rules give files their blocks, if not that of extents alone.
    pub allocation: Option<Rules>,
    /// What its processor takes for a request.
    pub processor: ProcessorSpec,
    /// The page cache of each, below its gate; `None`: a bare device.
    pub cache: Option<ServerCache>,
    /// What orders the transfers to the device of each; `None`: nothing.
    pub elevator: Option<ElevatorConfig>,
}

/// The page cache of a server.
#[derive(Clone, Debug)]
pub struct ServerCache {
    /// The cache.
    pub config: CacheConfig,
    /// Whether a COMMIT is answered only when the data is on the device (`sync` in exports(5)), or at once (`async`).
    pub commits: bool,
}

impl Servers {
    /// Where files lie on the device of each.
    pub fn placement(&self) -> Placement {
        match self.allocation {
            Some(rules) => Placement::by_rules(rules, self.extent),
            None => Placement::new(self.extent),
        }
    }
}

/// What the name of a scheduler begins with that is the caller's own.
pub const OWN: &str = "own:";

/// A gate: its scheduler, and how much it lets through.
#[derive(Clone, Debug)]
pub struct GateSpec {
    /// The algorithm and its parameters; with `auto`, what it begins with.
    pub scheduler: SchedulerConfig,
    /// Whether the scheduler is chosen from then on.
    pub auto: bool,
    /// The name of the caller's own scheduler that it has instead ([`crate::world::Lent`]), if the scenario says `own:NAME`.
    pub own: Option<String>,
    /// Most dispatches in service at once.
    pub depth: u32,
    /// Most requests in it; more wait outside.
    pub queue: u32,
    /// Whether it divides device time among applications by what they are entitled to.
    pub fair: bool,
    /// Of such a gate: how much device time one gets at once, if not by what the device charges.
    pub lot: Option<Span>,
}

/// The network: a switch with one port to each node.
#[derive(Clone, Debug)]
pub struct Network {
    /// From a node's port to another's, for the first byte.
    pub latency: Span,
    /// At most so much is added to the latency of each message, drawn anew for each; messages of a pair of nodes stay in order.
    pub jitter: Span,
    /// Bytes per second in each direction of each port; `None`: no limit.
    pub bandwidth: Option<u64>,
    /// Bytes that the switch can hold for each port. What does not fit is lost and sent again (incast); `None`: no limit.
    pub buffer: Option<u64>,
    /// How long a sender waits at least before it sends again what was lost.
    pub retransmit: Span,
    /// Bytes of a message besides its data.
    pub header: u32,
}

/// A batch scheduler that gives nodes to applications: one application a node.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Whether a later application may go first where that delays no earlier one.
    pub backfill: bool,
}

/// What an application does before the I/O of each iteration, so that others are not in its way. Neither: nothing. Both: it takes
/// its turn, and then waits for quiet storage, for there may be others who take no turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coordination {
    /// It takes a turn from a coordinator with these rules.
    pub lock: Option<CoordConfig>,
    /// It probes the servers and backs off while they are busy. A quiet throughput of 0 is measured before the run.
    pub backoff: Option<BackoffConfig>,
}

/// An application: processes that all run the same program, each with its rank.
#[derive(Clone, Debug)]
pub struct App {
    /// What it is called.
    pub name: String,
    /// Its application id in the gates, not 0.
    pub id: u32,
    /// How many processes; at least 1.
    pub processes: u32,
    /// Its first client node (without a batch scheduler).
    pub first_node: u32,
    /// How many client nodes it runs on, process `r` on the `r % nodes`-th; at least 1.
    pub nodes: u32,
    /// When it starts, or is submitted to the batch scheduler.
    pub start: Span,
    /// How long it claims to run, for the batch scheduler.
    pub walltime: Option<Span>,
    /// Numbers its files: applications with the same number use the same files.
    pub files: u32,
    /// What it gets at gates that are fair.
    pub entitlement: Entitlement,
    /// The group of whose share that is a part, as an index.
    pub group: Option<u32>,
    /// What its processes do.
    pub workload: Workload,
}

/// What the processes of an application do: so many iterations of computing, then I/O.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Which bytes.
    pub pattern: Pattern,
    /// Read or write.
    pub op: Op,
    /// How often it computes and does I/O; at least 1. Each iteration has its own part of the files.
    pub iterations: u32,
    /// How long it computes before the I/O of each iteration: the same for all processes.
    pub compute: Distribution,
    /// How long a process waits before each call: drawn for each.
    pub think: Distribution,
    /// Calls that a process has in progress at once; 1 is synchronous I/O, `None` has no limit.
    pub outstanding: Option<u32>,
    /// Where the processes wait for each other.
    pub barrier: Barrier,
    /// Two-phase I/O instead of a call by each process.
    pub collective: Option<Collective>,
}

/// Where the processes of an application wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// Nowhere.
    None,
    /// Before and after the I/O of each iteration.
    Phase,
    /// After each call, too.
    Call,
}

/// Which bytes a process accesses in an iteration. `bytes` is what one process accesses in one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One range after the other, from the start of the process's file or of its part of the shared file.
    Contiguous {
        /// One file for all, or one each.
        sharing: Sharing,
        /// Bytes of a process in an iteration.
        bytes: u64,
        /// Bytes of a call.
        request: u32,
    },
    /// Call `i` of process `r` of `p` is the `i * p + r`-th piece of the shared file.
    Strided {
        /// Bytes of a process in an iteration.
        bytes: u64,
        /// Bytes of a call.
        request: u32,
    },
    /// Calls at random multiples of their length in a file.
    Random {
        /// One file for all, or one each.
        sharing: Sharing,
        /// Bytes of a process in an iteration.
        bytes: u64,
        /// Bytes of a call.
        request: u32,
        /// Length of a file.
        file_bytes: u64,
    },
    /// A two-dimensional array in row order, cut into tiles, one a process (as mpi-tile-io). A call is one tile: a range a row.
    Tile {
        /// Tiles side by side.
        columns: u32,
        /// Elements of a tile side by side.
        width: u32,
        /// Rows of a tile.
        height: u32,
        /// Bytes of an element.
        element: u32,
    },
    /// Pieces of all processes by turns, many to a call (as the noncontig benchmark): call `i` of process `r` of `p` has
    /// `pieces` pieces of `piece` bytes, `p * piece` bytes apart.
    Noncontiguous {
        /// Bytes of a process in an iteration.
        bytes: u64,
        /// Bytes of a piece.
        piece: u32,
        /// Pieces of a call.
        pieces: u32,
    },
    /// What a trace says, in the form of `iogate replay`: one process for each of its clients.
    Trace {
        /// The rows of each process.
        rows: std::sync::Arc<Vec<Vec<crate::trace::Row>>>,
        /// Whether each row is issued at its time, or as soon as the process's earlier calls permit.
        timed: bool,
    },
}

/// One file for all processes, or one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One file; process `r` has the `r`-th part of it.
    Shared,
    /// A file each.
    PerProcess,
}

/// Two-phase I/O: some processes read or write large pieces, and all exchange with them over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Processes that do the I/O; at least 1.
    pub aggregators: u32,
    /// Bytes that an aggregator reads or writes in a round.
    pub buffer: u32,
}

/// Applications with random sizes, drawn for each seed: checkpointing jobs, as in the checkpoint-coordination thesis, 4.1.2.
/// Each value is drawn uniformly from its range, both ends included.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// How many.
    pub count: u32,
    /// Client nodes of each.
    pub nodes: (u64, u64),
    /// Processes per node.
    pub processes_per_node: u32,
    /// When they are submitted.
    pub submit: (Span, Span),
    /// How often each writes.
    pub iterations: (u64, u64),
    /// How long each computes, all iterations together.
    pub compute_total: (Span, Span),
    /// Bytes that each writes, all processes and all iterations together.
    pub bytes_total: (u64, u64),
    /// Bytes of a call.
    pub request: u32,
    /// One file for all processes of a job, or one each.
    pub sharing: Sharing,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// From when.
    pub from: Span,
    /// Until when; `None`: for good.
    pub until: Option<Span>,
    /// What.
    pub kind: FaultKind,
}

impl Fault {
    /// Whether it holds so long after the start of the run.
    pub fn holds_at(&self, at: Span) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A server's device takes so many times as long for what it begins then. Factors at the same time are multiplied.
    SlowServer {
        /// Which.
        server: u32,
        /// How many times as long; at least 1.
        factor: f64,
    },
    /// A server begins no transfer (what it has begun it finishes). It keeps what it has accepted.
    StoppedServer {
        /// Which.
        server: u32,
    },
    /// A client node is lost for good: applications with processes there end, without a word, and so do those that start there
    /// later; a batch scheduler starts none there. What they have sent is served.
    LostClient {
        /// Which.
        node: u32,
    },
    /// Messages take longer, by a time drawn from 0 to this for each. Delays at the same time add up.
    Delay {
        /// At most.
        extra: Span,
    },
    /// The clock of a node is ahead of (or, negative, behind) the true time, from the start.
    Skew {
        /// Of which layer: `clients`, `servers` or the name of a layer of forwarders, as an index: 0 clients, 1.. forwarders, last servers.
        layer: u32,
        /// Which node of it.
        node: u32,
        /// By how much, in nanoseconds.
        ahead_ns: i64,
    },
    /// The coordinator of a policy over many gates is gone, and knows nothing when it is back.
    LostCoordinator,
    /// No message goes between a gate and that coordinator.
    CutGate {
        /// Which node of the layer whose gates have the policy.
        node: u32,
    },
}
