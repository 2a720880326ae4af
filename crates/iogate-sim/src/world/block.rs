//! What lies below the gate (and the cache) of a data server: the block layer and its device.
//!
//! The contract, which an elevator or a command queue keeps as well:
//!
//! - [`Block::submit`] takes a transfer. It is told to nobody when that begins, and it may begin in any order.
//! - [`Block::next`] says what begins now, and is asked until nothing does: after `submit`, and after [`Block::ended`]. Who asks adds the
//!   event of the end.
//! - A device that orders by itself says when it begins something only when that has ended: [`Block::wake`] is when to ask
//!   [`Block::finished`].
//! - [`Block::ended`] is told the end of each transfer, in the order of time, before anything is done about it.
//! - An [`Owner`] hears of each of its transfers once. A transfer of a gate is complete for its requests then; one of a cache is the
//!   cache's own business, and no request is known by it.
//!
//! What is here is the plainest such layer: a device that serves in the order of arrival as many transfers at once as it has slots.

use std::collections::VecDeque;

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{AppId, DispatchId, FileId, Op, Span, Time};

use super::fault::{DeviceClock, DeviceFaults};
use crate::result::ServerResult;
use crate::slab::Slab;

/// Whom the end of a transfer concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The gate, which has dispatched it.
    Dispatch(DispatchId),
    /// The cache, by its number.
    Cache(u32),
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
    /// Requests in it; none in what a cache fetches and writes back.
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

/// The file that is the journal: written round and round, as of 128 MiB (mke2fs for a large file system).
const JOURNAL: FileId = FileId(u64::MAX);
const JOURNAL_BYTES: u64 = 128 << 20;

/// The device of a data server, and what waits for it.
pub(super) struct Block {
    station: Station,
    placement: Placement,
    faults: DeviceFaults,
    submitted: VecDeque<Io>,
    /// Of a device that orders by itself: its clock, what it has, and when it is asked next.
    queueing: Option<(DeviceClock, Slab<Io>)>,
    asked: (Time, Time),
    /// Until when a flush lets nothing begin.
    flushed: Time,
    journal: u64,
    pub(super) requests: u64,
    transfers: u64,
    bytes: u64,
    finish: Time,
}

impl Block {
    pub(super) fn new(mut device: Box<dyn Device>, placement: Placement, faults: DeviceFaults) -> Block {
        Block {
            queueing: device.queueing().is_some().then(|| (DeviceClock::new(&faults), Slab::new())),
            asked: (Time::MAX, Time::MAX),
            station: Station::new(device),
            placement,
            faults,
            submitted: VecDeque::new(),
            flushed: Time::ZERO,
            journal: 0,
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
        if self.queueing.is_some() {
            self.hand_in(now);
            return None;
        }
        let io = self.submitted.pop_front()?;
        let Io { file, op, offset, bytes, handed_over, .. } = io;
        let (start, end) = self.serve(now, op, file, (offset, bytes), handed_over)?;
        self.transfers += 1;
        self.bytes += bytes;
        self.finish = self.finish.max(end);
        Some(Begun { io, start, end })
    }

    /// Serves a range as soon as a slot is free: from when to when, unless the device is stopped for good.
    fn serve(
        &mut self,
        now: Time,
        op: Op,
        file: FileId,
        (offset, bytes): (u64, u64),
        handed_over: bool,
    ) -> Option<(Time, Time)> {
        let start = self.faults.begin(now.max(self.station.free_at()).max(self.flushed))?;
        let mut visit = self.station.begin(start);
        self.placement.for_each_piece(op, file, offset, bytes, |address, bytes| {
            visit.serve(Transfer { op, address, bytes });
        });
        if handed_over {
            visit.hand_over();
        }
        let span = self.faults.slowed(start, visit.span());
        Some((start, visit.end_after(span)))
    }

    /// Gives a device that orders by itself all that there is.
    fn hand_in(&mut self, now: Time) {
        let Some((clock, inside)) = &mut self.queueing else { return };
        while let Some(io) = self.submitted.pop_front() {
            let Io { file, op, offset, bytes, handed_over, .. } = io;
            let mut pieces = Vec::new();
            self.placement.for_each_piece(op, file, offset, bytes, |address, bytes| {
                pieces.push(Transfer { op, address, bytes });
            });
            self.station.submit(clock.at(now), inside.add(io).into(), handed_over, pieces);
        }
    }

    /// When to ask [`Block::finished`], if that is earlier than what was said last.
    pub(super) fn wake(&mut self) -> Option<Time> {
        let (clock, _) = self.queueing.as_ref()?;
        let event = self.station.next_event()?;
        let at = clock.when(event)?;
        let is_earlier = at < self.asked.0;
        if is_earlier {
            self.asked = (at, event);
        }
        is_earlier.then_some(at)
    }

    /// The next transfer that a device that orders by itself has ended by `now`.
    pub(super) fn finished(&mut self, now: Time) -> Option<Begun> {
        let (clock, inside) = self.queueing.as_mut()?;
        let mut device_now = clock.at(now);
        if self.asked.0 <= now {
            device_now = device_now.max(self.asked.1);
            self.asked = (Time::MAX, Time::MAX);
        }
        let ended = self.station.ended(device_now)?;
        let io = inside[ended.id as u32];
        inside.free(ended.id as u32);
        self.transfers += 1;
        self.bytes += io.bytes;
        self.finish = self.finish.max(now);
        let start = clock.when(ended.begin).unwrap_or(now);
        Some(Begun { io, start, end: now })
    }

    /// Writes so many bytes of journal behind all that has begun, and has the device flush: when that has ended. Nothing begins before.
    /// A device that orders by itself gets the journal as one more transfer of `owner`, and is not flushed.
    pub(super) fn flush(&mut self, now: Time, owner: Owner, bytes: u64) -> Option<Time> {
        if self.queueing.is_some() {
            let (file, offset) = (JOURNAL, self.next_of_journal(bytes));
            let app = AppId(0);
            self.submit(Io {
                owner,
                op: Op::Write,
                file,
                offset,
                bytes,
                app,
                requests: 0,
                handed_over: false,
            });
            return None;
        }
        let offset = self.next_of_journal(bytes);
        let (_, end) = self.serve(now, Op::Write, JOURNAL, (offset, bytes), false)?;
        let flush = self.faults.slowed(end, self.station.flush(end));
        self.flushed = end + flush;
        self.finish = self.finish.max(self.flushed);
        Some(self.flushed)
    }

    /// Where in the journal the next bytes go.
    fn next_of_journal(&mut self, bytes: u64) -> u64 {
        let offset = self.journal;
        self.journal = (offset + bytes) % JOURNAL_BYTES;
        offset
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
