//! A node with a gate: a client node, a forwarder, or a data server with its device.

use std::collections::VecDeque;

use iogate_core::device::{Device, Placement, Transfer};
use iogate_core::{FileId, Gate, Op, Span, Time};

use super::fault::DeviceFaults;
use crate::result::ServerResult;

/// A node's gate, and what belongs to it.
pub(super) struct Node {
    pub(super) gate: Option<Gate>,
    /// What its clock shows at the start of the run.
    pub(super) clock: Time,
    /// Processor time for each request, and when its processor is free.
    pub(super) overhead: Span,
    pub(super) free_at: Time,
    /// Requests that found the gate full.
    pub(super) outside: VecDeque<u32>,
    pub(super) held_back: u64,
    /// When it will be looked at again because its gate asked for that.
    pub(super) wake: Time,
    /// Whether it is on the list of nodes to look at in this instant.
    pub(super) touched: bool,
    /// Clients: whether a fault has taken it away.
    pub(super) lost: bool,
    /// Forwarders and clients: requests of each dispatch (by its number) that are not complete.
    pub(super) open: Vec<u32>,
    /// Of a data server.
    pub(super) disk: Option<Disk>,
}

impl Node {
    pub(super) fn new(gate: Option<Gate>, clock: Time, overhead: Span, disk: Option<Disk>) -> Node {
        Node {
            gate,
            clock,
            overhead,
            free_at: Time::ZERO,
            outside: VecDeque::new(),
            held_back: 0,
            wake: Time::MAX,
            touched: false,
            lost: false,
            open: Vec::new(),
            disk,
        }
    }

    /// What its clock shows.
    pub(super) fn clock_at(&self, now: Time) -> Time {
        self.clock + now.since(Time::ZERO)
    }

    /// When its clock will show `clock`.
    pub(super) fn when_clock_shows(&self, clock: Time) -> Time {
        if clock == Time::MAX { clock } else { Time::ZERO + clock.since(self.clock) }
    }
}

/// The device of a data server, which serves one transfer after the other.
pub(super) struct Disk {
    device: Box<dyn Device>,
    placement: Placement,
    free_at: Time,
    faults: DeviceFaults,
    busy: Span,
    pub(super) requests: u64,
    dispatches: u64,
    bytes: u64,
    finish: Time,
}

impl Disk {
    pub(super) fn new(device: Box<dyn Device>, placement: Placement, faults: DeviceFaults) -> Disk {
        Disk {
            device,
            placement,
            free_at: Time::ZERO,
            faults,
            busy: Span::ZERO,
            requests: 0,
            dispatches: 0,
            bytes: 0,
            finish: Time::ZERO,
        }
    }

    /// Serves a range of a file after everything that was handed over before: when it begins, and when it has ended; `None` if
    /// it is stopped for good.
    pub(super) fn serve(
        &mut self,
        now: Time,
        file: FileId,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> Option<(Time, Time)> {
        let begin = self.faults.begin(now.max(self.free_at))?;
        let mut span = Span::ZERO;
        self.placement.for_each_extent(file, offset, bytes, |address, bytes| {
            span += self.device.serve(begin + span, Transfer { op, address, bytes });
        });
        span = self.faults.slowed(begin, span);
        self.free_at = begin + span;
        self.busy += span;
        self.dispatches += 1;
        self.bytes += bytes;
        self.finish = self.free_at;
        Some((begin, self.free_at))
    }

    pub(super) fn result(&self) -> ServerResult {
        ServerResult {
            busy: self.busy,
            repositions: self.device.repositions(),
            requests: self.requests,
            dispatches: self.dispatches,
            bytes: self.bytes,
            finish: self.finish,
        }
    }
}
