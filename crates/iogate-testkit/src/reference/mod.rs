//! A naive gate and naive schedulers, written from the rules.
//!
//! They are made to be obviously right: a list of requests, scanned from its head each time. Nothing in here is
//! fast, and nothing in here is shared with the real gate but its vocabulary (requests, decisions, settings) and
//! the readings below.
//!
//! # Precise rules
//!
//! Where a rule can be read in more than one way, this table says how it is read here.
//!
//! | rule | reading |
//! |---|---|
//! | refusals | checked in this order: closed, malformed, full |
//! | held | a request waits while an earlier, overlapping, conflicting one has not completed; parts of a request have their own sequence numbers and do not overlap each other |
//! | released | requests released by one completion become eligible in sequence order, at the time of the completion |
//! | depth | at the limit `next` is `Idle` and changes nothing: no step, no turn ends |
//! | outcome | how a dispatch ended changes statistics only, never a decision |
//! | queue | eligible requests of a (file, operation), by (offset, sequence) |
//! | run | a walk from a first request: the next in the queue joins if it begins at the end and the caps allow; the first that does not ends it |
//! | to-agg | the next dispatch is the run around the oldest request: the walk goes back from it while the request before it in the queue ends where it begins and the caps allow, then forward from there |
//! | hbrr, end of a turn | decided after each dispatch: an emptied file leaves the ring at once, and comes back at its end with a whole quantum |
//! | app-window, skew | judged against the arrival; counted when a request is handed to the scheduler |
//! | twins, targets | the most of all layouts that the gate has had, or one more than the highest target of the requests handed to this scheduler instance; noticed when it is handed one |
//! | twins, start | the time at which this scheduler instance is handed its first request |
//! | twins, aged | the oldest request of all goes out of turn once it has waited `age_max` |
//! | quanta, formed run | walked anew at each insertion and dispatch in its queue. The same requests: unchanged. Longer at its end: those that joined bring their own quanta. Anything else (other first request, shorter, another order): the sum of the own quanta |
//! | quanta, step | each pick that is not a continuation or aged makes one, and more while no queue is ready; queues that wait step too |
//! | quanta, deliberate wait ends | at its deadline, when the formed run changes in any way, when the queue is served, or when the gate drains; `WaitUntil` has the earliest deadline, of equal ones with the first reason in the order of [`WaitReason`] |
//! | quanta, aged | the oldest request of all has waited `age_max`: once open turns have gone on, the run that begins at it is served. It is granted nothing: no turn, no change of the factor |
//! | quanta, history | every dispatch counts, continuations and aged ones included |
//! | quanta, turn | begins with a dispatch that leaves some of its quantum. Its deadline is the dispatch plus `contiguous_wait` (aioli: from completion on, the completion plus `contiguous_wait`), anew with each continuation |
//! | quanta, continuation | what begins at the end of what was served, if any such request became eligible no later than the deadline; of several the smallest sequence number. It keeps the caps of a run, and is cut to what is left |
//! | quanta, end of a turn | nothing left; a continuation that does not fit; a pick that finds none, unless the last dispatch began where the queue's dispatch before it ended, the deadline is still to come and the gate is not draining; another dispatch of its queue |
//! | aioli, open turn | nothing else is picked; `Idle` where nothing is eligible: nobody is kept waiting |
//! | mlf, open turn | holds up nobody, not even its own queue. Open turns go on before a pick: first that of the last dispatch, then in the order in which the continuations became eligible |
//! | mlf, ticket | a new one with each dispatch that is not a continuation |
//! | quanta, priced waits | as at the head of `crates/iogate-core/src/sched/priced.rs`; the queue that is asked again when all wait is the one with the earliest deadline, of equal ones the first reason, then the queue that came first |
//! | quanta, history of idle queues | never forgotten here: scripts use few files |

mod allotter;
mod coord;
mod fifo;
mod gate;
mod hbrr;
mod priced;
mod quantum;
mod sjf;
mod to_agg;
mod twins;
mod windows;

use iogate_core::sched::{Prices, param};
use iogate_core::{AppId, FileId, Op, RequestId, SchedulerConfig, SchedulerKind, TargetId, Time, WaitReason};

pub use allotter::ReferenceAllotter;
pub use coord::ReferenceTable;
pub use gate::{Counts, ReferenceGate};
pub use priced::Counts as ThinkCounts;

/// A request, or a part of one, in the reference gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Arrival order over all requests and parts.
    pub seq: u64,
    /// The request it belongs to.
    pub request: RequestId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Its application.
    pub app: AppId,
    /// The target of its first byte.
    pub target: TargetId,
    /// When it was submitted.
    pub arrival: Time,
    /// When the client issued it.
    pub issued: Option<Time>,
}

impl Entry {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }

    /// Whether the two must complete in arrival order.
    pub fn conflicts(&self, other: &Entry) -> bool {
        self.file == other.file
            && (self.op == Op::Write || other.op == Op::Write)
            && self.offset < other.end()
            && other.offset < self.end()
    }
}

/// What a scheduler model wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Serve these, in offset order, as one dispatch.
    Serve(Vec<Entry>),
    /// Ask again then.
    Wait(Time, WaitReason),
    /// Nothing to serve.
    Idle,
}

/// A model of a scheduler. It is only given requests that may run now.
pub trait Model {
    /// A request becomes eligible.
    fn insert(&mut self, now: Time, entry: Entry);
    /// What to serve now. `draining`: no deliberate waits.
    fn choose(&mut self, now: Time, draining: bool) -> Choice;
    /// A dispatch has been carried out.
    fn completed(&mut self, _now: Time, _run: &[Entry]) {}
    /// What the device charges, and how much is in service; told before each `choose` and `completed`.
    fn know_device(&mut self, _prices: &Prices, _in_service: u32, _depth: u32) {}
    /// The most targets that a layout has had; told before each `insert`.
    fn know_targets(&mut self, _targets: u32) {}
    /// Gives up what has not been served, for the next scheduler.
    fn take(&mut self) -> Vec<Entry>;
    /// Most dispatches in service, if it wants fewer than the gate.
    fn depth_max(&self) -> u32 {
        u32::MAX
    }
    /// How many requests had an implausible issue time.
    fn skewed(&self) -> u64 {
        0
    }
}

/// A fresh model of a scheduler.
pub fn model(config: &SchedulerConfig) -> Box<dyn Model> {
    match config.kind() {
        SchedulerKind::Fifo => Box::new(fifo::Fifo::default()),
        SchedulerKind::ToAgg => Box::new(to_agg::ToAgg::new(config)),
        SchedulerKind::Sjf => Box::new(sjf::Sjf::new(config)),
        SchedulerKind::Mlf | SchedulerKind::Aioli => Box::new(quantum::Quantum::new(config)),
        SchedulerKind::Hbrr => Box::new(hbrr::Hbrr::new(config)),
        SchedulerKind::AppWindow => Box::new(windows::AppWindow::new(config)),
        SchedulerKind::ServerWindow => Box::new(windows::ServerWindow::new(config)),
        SchedulerKind::Twins => Box::new(twins::Twins::new(config)),
    }
}

/// The caps of a run.
#[derive(Clone, Copy, Debug)]
struct Caps {
    requests: u64,
    bytes: u64,
}

impl Caps {
    fn of(config: &SchedulerConfig) -> Caps {
        Caps { requests: config.value(&param::RUN_REQUESTS_MAX), bytes: config.value(&param::RUN_BYTES_MAX) }
    }
}

/// The requests of one (file, operation), by (offset, sequence).
fn queue_of(entries: &[Entry], file: FileId, op: Op) -> Vec<Entry> {
    let mut queue: Vec<Entry> =
        entries.iter().filter(|entry| entry.file == file && entry.op == op).cloned().collect();
    queue.sort_by_key(|entry| (entry.offset, entry.seq));
    queue
}

/// The run that begins at `queue[first]`.
fn walk(queue: &[Entry], first: usize, caps: Caps) -> Vec<Entry> {
    let mut run = vec![queue[first].clone()];
    for next in &queue[first + 1..] {
        let contiguous = next.offset == run[run.len() - 1].end();
        let bytes = bytes_of(&run) + u64::from(next.bytes);
        if !contiguous || run.len() as u64 == caps.requests || bytes > caps.bytes {
            break;
        }
        run.push(next.clone());
    }
    run
}

fn bytes_of(run: &[Entry]) -> u64 {
    run.iter().map(|entry| u64::from(entry.bytes)).sum()
}

fn oldest(entries: &[Entry]) -> Option<&Entry> {
    entries.iter().min_by_key(|entry| entry.seq)
}

/// Whether ageing is on and the request has waited that long.
fn aged(entry: &Entry, now: Time, age_max_ns: u64) -> bool {
    age_max_ns > 0 && now.since(entry.arrival).as_nanos() >= age_max_ns
}

/// Takes the entries of `run` out of `entries`.
fn remove(entries: &mut Vec<Entry>, run: &[Entry]) {
    entries.retain(|entry| run.iter().all(|taken| taken.seq != entry.seq));
}
