//! What lies below the gate (and the cache) of a data server: the block layer and its device.
//!
//! The contract, which an elevator or a command queue keeps as well:
//!
//! - [`Block::submit`] takes a transfer. It is told to nobody when that begins, and it may begin in any order.
//! - [`Block::next`] says what begins now, and is asked until nothing does: after `submit`, and after [`Block::ended`]. Who asks adds the
//!   event of the end.
//! - [`Block::ended`] is told the end of each transfer, in the order of time, before anything is done about it.
//! - An [`Owner`] hears of each of its transfers once. A transfer of a gate is complete for its requests then; one of a cache is the
//!   cache's own business, and no request is known by it.
//!
//! What is here is the plainest such layer: a device that serves in the order of arrival as many transfers at once as it has slots.

use std::collections::VecDeque;

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{AppId, DispatchId, FileId, Op, Span, Time};

use super::fault::DeviceFaults;
use crate::result::ServerResult;

/// Whom the end of a transfer concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The gate, which has dispatched it.
    Dispatch(DispatchId),
}

/// A transfer between a server and its device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) owner: Owner,
    pub(super) op: Op,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// For whom: the application of the first request.
    pub(super) app: AppId,
    /// Requests in it.
    pub(super) requests: u32,
    /// Whether it waited in a gate, so that another thread carries it out than the one that brought it.
    pub(super) handed_over: bool,
}

/// A transfer that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) io: Io,
    pub(super) start: Time,
    pub(super) end: Time,
}

/// The device of a data server, and what waits for it.
pub(super) struct Block {
    station: Station,
    placement: Placement,
    faults: DeviceFaults,
    submitted: VecDeque<Io>,
    pub(super) requests: u64,
    transfers: u64,
    bytes: u64,
    finish: Time,
}

impl Block {
    pub(super) fn new(device: Box<dyn Device>, placement: Placement, faults: DeviceFaults) -> Block {
        Block {
            station: Station::new(device),
            placement,
            faults,
            submitted: VecDeque::new(),
            requests: 0,
            transfers: 0,
            bytes: 0,
            finish: Time::ZERO,
        }
    }

    /// Takes a transfer.
    pub(super) fn submit(&mut self, io: Io) {
        self.submitted.push_back(io);
    }

    /// The next transfer that begins: now, or as soon as a slot is free. Nothing begins any more on a device that is stopped for good.
    pub(super) fn next(&mut self, now: Time) -> Option<Begun> {
        let io = self.submitted.pop_front()?;
        let Io { file, op, offset, bytes, .. } = io;
        let start = self.faults.begin(now.max(self.station.free_at()))?;
        let mut visit = self.station.begin(start);
        self.placement.for_each_extent(file, offset, bytes, |address, bytes| {
            visit.serve(Transfer { op, address, bytes });
        });
        if io.handed_over {
            visit.hand_over();
        }
        let span = self.faults.slowed(start, visit.span());
        let end = visit.end_after(span);
        self.transfers += 1;
        self.bytes += bytes;
        self.finish = self.finish.max(end);
        Some(Begun { io, start, end })
    }

    /// A transfer has ended. This layer gives each its end when it begins, and has nothing to do.
    pub(super) fn ended(&mut self, _owner: Owner) {}

    /// Whether it matters that a transfer was handed over.
    pub(super) fn hands_over(&self) -> bool {
        self.station.device().hand_over() > Span::ZERO
    }

    pub(super) fn result(&self) -> ServerResult {
        ServerResult {
            busy: self.station.busy(),
            repositions: self.station.device().repositions(),
            requests: self.requests,
            dispatches: self.transfers,
            bytes: self.bytes,
            finish: self.finish,
        }
    }
}
