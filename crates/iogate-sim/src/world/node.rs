//! A node with a gate: a client node, a forwarder, or a data server with its device.

use std::collections::VecDeque;

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{Dispatch, Gate, Span, Time};

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

/// The device of a data server, which serves as many transfers at once as it has slots.
pub(super) struct Disk {
    station: Station,
    placement: Placement,
    faults: DeviceFaults,
    pub(super) requests: u64,
    dispatches: u64,
    bytes: u64,
    finish: Time,
}

impl Disk {
    pub(super) fn new(device: Box<dyn Device>, placement: Placement, faults: DeviceFaults) -> Disk {
        Disk {
            station: Station::new(device),
            placement,
            faults,
            requests: 0,
            dispatches: 0,
            bytes: 0,
            finish: Time::ZERO,
        }
    }

    /// Serves a dispatch as soon as a slot is free: when it begins, and when it has ended; `None` if it is stopped for good.
    /// One that was queued costs a hand-over.
    pub(super) fn serve(&mut self, now: Time, dispatch: &Dispatch, queued: bool) -> Option<(Time, Time)> {
        let Dispatch { file, op, offset, bytes, .. } = *dispatch;
        let begin = self.faults.begin(now.max(self.station.free_at()))?;
        let mut visit = self.station.begin(begin);
        self.placement.for_each_extent(file, offset, bytes, |address, bytes| {
            visit.serve(Transfer { op, address, bytes });
        });
        if queued {
            visit.hand_over();
        }
        let span = self.faults.slowed(begin, visit.span());
        let end = visit.end_after(span);
        self.dispatches += 1;
        self.bytes += bytes;
        self.finish = self.finish.max(end);
        Some((begin, end))
    }

    /// Whether it matters that a dispatch was queued.
    pub(super) fn hands_over(&self) -> bool {
        self.station.device().hand_over() > Span::ZERO
    }

    pub(super) fn result(&self) -> ServerResult {
        ServerResult {
            busy: self.station.busy(),
            repositions: self.station.device().repositions(),
            requests: self.requests,
            dispatches: self.dispatches,
            bytes: self.bytes,
            finish: self.finish,
        }
    }
}
