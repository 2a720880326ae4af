//! The calls that a process makes by itself in an iteration, in order.

use std::sync::Arc;

use iogate_core::{FileId, Op, Span, Time};

use super::Call;
use super::division::Division;
use super::files::{file_id, trace_file_id};
use crate::rng::Rng;
use crate::scenario::{App, Pattern, Sharing};
use crate::trace::Row;

/// The calls of one process, iteration by iteration.
#[derive(Clone, Debug)]
pub(super) struct Accesses {
    calls: Calls,
    file: FileId,
    op: Op,
    /// Calls of this process in an iteration.
    own: u64,
    /// The most calls that any process of the application makes in an iteration.
    most: u64,
    /// The next call.
    index: u64,
    /// Where the iteration's part of the file begins, and how long it is.
    base: u64,
    total: u64,
}

#[derive(Clone, Debug)]
enum Calls {
    /// `bytes` from `first` on, in calls of `request`.
    Range { first: u64, bytes: u64, request: u32 },
    /// `height` pieces from `first` on, `step` bytes from one to the next, `lines` to a call; then one of `tail` bytes, if not 0.
    Pieces { first: u64, width: u32, step: u64, height: u64, lines: u32, tail_first: u64, tail: u32 },
    /// `bytes` in calls of `request`, each at one of `slots` places.
    Random { bytes: u64, request: u32, slots: u64, rng: Rng },
    /// The rows of process `rank`.
    Trace { rows: Arc<Vec<Vec<Row>>>, rank: usize, timed: bool, files: u32 },
}

impl Accesses {
    /// Those of process `rank`, with its random source for places.
    pub(super) fn new(app: &App, rank: u32, rng: Rng) -> Accesses {
        let division = Division::of(&app.workload.pattern, app.processes);
        let (calls, own, most) = calls(app, rank, &division, rng);
        let file = match app.workload.pattern {
            Pattern::Contiguous { sharing: Sharing::PerProcess, .. }
            | Pattern::Random { sharing: Sharing::PerProcess, .. } => rank,
            _ => 0,
        };
        Accesses {
            calls,
            file: file_id(app.files, file),
            op: app.workload.op,
            own,
            most,
            index: 0,
            base: 0,
            total: division.total,
        }
    }

    /// Starts over, in the part of the file that belongs to `iteration`.
    pub(super) fn begin(&mut self, iteration: u32) {
        self.index = 0;
        self.base = u64::from(iteration) * self.total;
    }

    /// Whether this process has another call in this iteration.
    pub(super) fn more(&self) -> bool {
        self.index < self.own
    }

    /// Passes over a call that some other process has in this iteration, but not this one; false if none has.
    pub(super) fn pass(&mut self) -> bool {
        let others_go_on = self.index < self.most;
        self.index += u64::from(others_go_on);
        others_go_on
    }

    /// When the next call may be issued, counted from the application's start, if it has a time.
    pub(super) fn not_before(&self) -> Option<Span> {
        match &self.calls {
            Calls::Trace { rows, rank, timed: true, .. } => {
                Some(rows.get(*rank)?.get(self.index as usize)?.time.since(Time::ZERO))
            }
            _ => None,
        }
    }

    /// The next call of this iteration.
    #[inline]
    pub(super) fn next_call(&mut self) -> Option<Call> {
        if !self.more() {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let (offset, bytes) = match &mut self.calls {
            Calls::Range { first, bytes, request } => {
                let at = index * u64::from(*request);
                (*first + at, (*bytes - at).min((*request).into()) as u32)
            }
            Calls::Pieces { first, width, step, height, lines, tail_first, tail } => {
                let line = index * u64::from(*lines);
                if line < *height {
                    let count = (*height - line).min((*lines).into()) as u32;
                    let stride = if count == 1 { u64::from(*width) } else { *step };
                    let offset = self.base + *first + line * *step;
                    return Some(Call { file: self.file, op: self.op, offset, bytes: *width, stride, count });
                }
                (*tail_first, *tail)
            }
            Calls::Random { bytes, request, slots, rng } => {
                let at = index * u64::from(*request);
                let offset = rng.below(*slots) * u64::from(*request);
                (offset, (*bytes - at).min((*request).into()) as u32)
            }
            Calls::Trace { rows, rank, files, .. } => {
                let row = rows.get(*rank)?.get(index as usize)?;
                let file = trace_file_id(*files, row.file);
                return Some(Call { op: row.op, ..range(file, self.op, row.offset, row.bytes) });
            }
        };
        Some(range(self.file, self.op, self.base + offset, bytes))
    }
}

/// A call of one range.
pub(super) fn range(file: FileId, op: Op, offset: u64, bytes: u32) -> Call {
    Call { file, op, offset, bytes, stride: bytes.into(), count: 1 }
}

/// The calls of process `rank`, how many it has in an iteration, and how many the process with the most has.
fn calls(app: &App, rank: u32, division: &Division, rng: Rng) -> (Calls, u64, u64) {
    let same = |calls, n| (calls, n, n);
    match app.workload.pattern {
        Pattern::Contiguous { sharing, bytes, request } => {
            let request = request.max(1);
            let first = match sharing {
                Sharing::Shared => u64::from(rank) * bytes,
                Sharing::PerProcess => 0,
            };
            same(Calls::Range { first, bytes, request }, bytes.div_ceil(request.into()))
        }
        Pattern::Strided { .. } => pieces(division, rank, 1),
        Pattern::Noncontiguous { pieces: lines, .. } => pieces(division, rank, lines),
        Pattern::Tile { height, .. } => pieces(division, rank, height),
        Pattern::Random { bytes, request, file_bytes, .. } => {
            let request = request.max(1);
            let slots = file_bytes / u64::from(request);
            same(Calls::Random { bytes, request, slots, rng }, bytes.div_ceil(request.into()))
        }
        Pattern::Trace { ref rows, timed } => {
            let processes = rows.iter().take(app.processes as usize);
            let most = processes.map(Vec::len).max().unwrap_or(0) as u64;
            let own = rows.get(rank as usize).map_or(0, Vec::len) as u64;
            let calls = Calls::Trace { rows: Arc::clone(rows), rank: rank as usize, timed, files: app.files };
            (calls, own, most)
        }
    }
}

/// The calls of process `rank` in a grid, `lines` pieces to a call.
fn pieces(division: &Division, rank: u32, lines: u32) -> (Calls, u64, u64) {
    let (lines, rank) = (lines.max(1), u64::from(rank));
    let Division { body, tail, .. } = *division;
    // The scenario's reader refuses pieces that no call can have.
    let width = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let height = if body.width == 0 { 0 } else { body.height };
    let own = height.div_ceil(lines.into()) + u64::from(tail.width > 0);
    let calls = Calls::Pieces {
        first: body.first(rank),
        width: width(body.width),
        step: body.line(),
        height,
        lines,
        tail_first: tail.first(rank),
        tail: width(tail.width),
    };
    (calls, own, own)
}
