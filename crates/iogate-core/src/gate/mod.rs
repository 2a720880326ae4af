//! The scheduling point: ordering by byte range, one scheduler, statistics.

use alloc::vec::Vec;

use crate::layout::Layout;
use crate::request::{AppId, FileId, Op, Request, RequestId, TargetId};
use crate::sched::{ConfigError, SchedulerConfig};
use crate::time::Time;

/// Settings of a [`Gate`].
#[derive(Clone, Debug)]
pub struct GateConfig {
    /// The algorithm and its parameters.
    pub scheduler: SchedulerConfig,
    /// Most requests that may be in the gate (queued, held back or in service) at once.
    pub queue_max: u32,
    /// Most dispatches in service at once; a scheduler may want fewer (aioli: one).
    pub depth: u32,
    /// Layout of files that have none of their own.
    pub layout: Layout,
}

/// Names a dispatch between [`Gate::next`] and [`Gate::complete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId(pub u32);

/// What to carry out at once: one request, or one run of contiguous requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// For [`Gate::parts`] and [`Gate::complete`].
    pub id: DispatchId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// How many parts it has.
    pub parts: u32,
    /// The target of its first byte.
    pub target: TargetId,
    /// The application of its first request.
    pub app: AppId,
}

/// A request's share of a dispatch: all of it, or one stripe of it where the gate has split it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The request.
    pub request: RequestId,
    /// First byte of the share.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u32,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Carry this out, then call [`Gate::complete`].
    Dispatch(Dispatch),
    /// Ask again at this time, or after the next `submit` or `complete`.
    WaitUntil(Time, WaitReason),
    /// Ask again after the next `submit` or `complete`.
    Idle,
}

/// Why a gate that has requests dispatches none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum WaitReason {
    /// aioli, mlf: what follows the last dispatch is expected to arrive (a synchronous reader).
    Contiguous,
    /// aioli, mlf: a new strided front was seen, and the piece before the next run is expected.
    Shift,
    /// aioli, mlf: longer runs were seen recently, and this one is expected to grow.
    BetterRun,
    /// twins: the window belongs to another target.
    Window,
}

/// How the store carried out a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store answered, with at most the bytes asked for.
    Done {
        /// Bytes transferred.
        bytes: u64,
    },
    /// The store failed.
    Failed,
}

/// Why a gate did not take a request. The request is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The bound on requests in the gate is reached; try again after a completion.
    #[error("the gate holds {max} requests, its bound; retry when one completes")]
    Full {
        /// The bound.
        max: u32,
    },
    /// The request has no bytes, or its range does not fit 64 bits.
    #[error(
        "malformed request: {bytes} bytes at offset {offset}; expected at least one byte, ending below 2^64"
    )]
    Malformed {
        /// Its offset.
        offset: u64,
        /// Its length.
        bytes: u32,
    },
    /// The gate is draining and takes no more.
    #[error("the gate is closed")]
    Closed,
}

/// The scheduling point. (Placeholder: plain arrival order; the real one replaces it behind the same methods.)
pub struct Gate {
    config: GateConfig,
    queue: alloc::collections::VecDeque<Request>,
    flying: Vec<Option<Request>>,
    in_flight: u32,
    closed: bool,
    stats: crate::stats::Stats,
}

impl Gate {
    /// A gate with nothing in it.
    pub fn new(config: &GateConfig) -> Result<Gate, ConfigError> {
        Ok(Gate {
            config: config.clone(),
            queue: Default::default(),
            flying: Vec::new(),
            in_flight: 0,
            closed: false,
            stats: Default::default(),
        })
    }
    /// Takes a request, or says why not. The id of a request in the gate must not be reused meanwhile.
    pub fn submit(&mut self, _now: Time, request: &Request) -> Result<(), Rejected> {
        if self.closed {
            return Err(Rejected::Closed);
        }
        if self.len() >= self.config.queue_max as usize {
            return Err(Rejected::Full { max: self.config.queue_max });
        }
        self.queue.push_back(*request);
        Ok(())
    }
    /// What to do now. To be called after any mutation until it is not `Dispatch`.
    pub fn next(&mut self, _now: Time) -> Decision {
        if self.in_flight == self.config.depth {
            return Decision::Idle;
        }
        let Some(request) = self.queue.pop_front() else { return Decision::Idle };
        let id = self.flying.iter().position(Option::is_none).unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        self.flying[id] = Some(request);
        self.in_flight += 1;
        Decision::Dispatch(Dispatch {
            id: DispatchId(id as u32),
            file: request.file,
            op: request.op,
            offset: request.offset,
            bytes: u64::from(request.bytes),
            parts: 1,
            target: self.config.layout.target_of(request.offset),
            app: request.app,
        })
    }
    /// The parts of a dispatch in service, in offset order.
    pub fn parts(&self, id: DispatchId) -> impl Iterator<Item = Part> + '_ {
        self.flying[id.0 as usize].iter().map(|request| Part {
            request: request.id,
            offset: request.offset,
            bytes: request.bytes,
        })
    }
    /// Reports that a dispatch has been carried out.
    pub fn complete(&mut self, _now: Time, id: DispatchId, _outcome: Outcome) {
        self.flying[id.0 as usize] = None;
        self.in_flight -= 1;
    }
    /// Changes the algorithm, live: nothing is lost, nothing served twice.
    pub fn switch(&mut self, _now: Time, scheduler: &SchedulerConfig) -> Result<(), ConfigError> {
        self.config.scheduler = scheduler.clone();
        Ok(())
    }
    /// Closes the gate: no more submissions, and no deliberate waits for what is in it.
    pub fn drain(&mut self, _now: Time) {
        self.closed = true;
    }
    /// Requests in the gate: queued, held back or in service.
    pub fn len(&self) -> usize {
        self.queue.len() + self.in_flight as usize
    }
    /// Whether nothing is in the gate.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The settings in force.
    pub fn scheduler(&self) -> &SchedulerConfig {
        &self.config.scheduler
    }
    /// Sets a file's own layout.
    pub fn set_layout(&mut self, _file: FileId, _layout: Layout) {}
    /// What it has counted so far.
    pub fn stats(&self) -> &crate::stats::Stats {
        &self.stats
    }
}
