//! Applications and their processes as they run.

use iogate_core::{FileId, Span, Time};

use super::turns::Turn;
use crate::result::{CallTimes, Phase, TurnsResult};
use crate::workload::Program;

/// What a process is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiting {
    /// Until fewer calls are in progress than it may have.
    Room,
    /// Until none of its calls is in progress.
    Calls,
    /// Until so many messages have come in.
    Messages(u64),
    /// Until what it has written is durable.
    Close,
    /// For the application's turn.
    Turn,
    /// For the other processes.
    Barrier,
    /// Nothing: it has been told when to go on.
    Running,
    /// It has ended, or was lost.
    Ended,
}

impl Waiting {
    /// The same for people.
    pub(super) fn what(self) -> &'static str {
        match self {
            Waiting::Room | Waiting::Calls | Waiting::Close => "for requests to be answered",
            Waiting::Messages(_) => "for messages of other processes",
            Waiting::Turn => "for a turn",
            Waiting::Barrier => "at a barrier",
            Waiting::Running => "for its time to go on",
            Waiting::Ended => "for nothing",
        }
    }
}

/// One process of an application.
pub(super) struct Process {
    pub(super) app: u32,
    pub(super) rank: u32,
    /// Its client node.
    pub(super) node: u32,
    pub(super) program: Program,
    pub(super) waiting: Waiting,
    /// Calls in progress.
    pub(super) calls: u32,
    /// Messages that have come in.
    pub(super) messages: u64,
    /// I/O phases begun; whether it is in one; when what it does now (I/O or not) began.
    pub(super) phases: u32,
    pub(super) in_phase: bool,
    pub(super) since: Time,
    /// Files that it has opened in this phase through its node's cache, and whether it has written to them; those being closed.
    pub(super) opened: Vec<(FileId, bool)>,
    pub(super) closing: u32,
    /// When the call of this step was issued, where there is a barrier after each.
    pub(super) step: Option<Time>,
}

/// One application.
pub(super) struct AppRun {
    /// Numbers of its processes: a range.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Processes that have not ended.
    pub(super) alive: u32,
    /// Processes at the barrier.
    pub(super) arrived: u32,
    pub(super) submitted: Time,
    pub(super) start: Option<Time>,
    pub(super) end: Option<Time>,
    pub(super) lost: bool,
    pub(super) calls: u64,
    pub(super) bytes: u64,
    pub(super) call_time: Span,
    pub(super) call_time_max: Span,
    pub(super) call_times: CallTimes,
    pub(super) step_time: Span,
    pub(super) steps: u64,
    pub(super) phases: Vec<Phase>,
    pub(super) server_finish: Vec<Option<Time>>,
    pub(super) turn: Turn,
    pub(super) turns: TurnsResult,
}

impl AppRun {
    pub(super) fn new(first: u32, count: u32, submitted: Time, servers: usize) -> AppRun {
        AppRun {
            first,
            count,
            alive: count,
            arrived: 0,
            submitted,
            start: None,
            end: None,
            lost: false,
            calls: 0,
            bytes: 0,
            call_time: Span::ZERO,
            call_time_max: Span::ZERO,
            call_times: CallTimes::default(),
            step_time: Span::ZERO,
            steps: 0,
            phases: Vec::new(),
            server_finish: vec![None; servers],
            turn: Turn::default(),
            turns: TurnsResult::default(),
        }
    }

    /// The I/O phase with this number, as far as it is known.
    pub(super) fn phase(&mut self, number: u32, now: Time) -> &mut Phase {
        let number = number as usize;
        if self.phases.len() <= number {
            self.phases.resize(number + 1, Phase { asked: now, start: now, end: now, bytes: 0 });
        }
        &mut self.phases[number]
    }
}
