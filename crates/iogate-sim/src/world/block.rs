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
//! Without an elevator (`lift`) this is the plainest such layer: a device that serves in the order of arrival as many transfers at once
//! as it has slots.

use std::collections::VecDeque;

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{AppId, DispatchId, FileId, Op, Span, Time};

use super::fault::{DeviceClock, DeviceFaults};
use super::lift::Lift;
use crate::elevator::ElevatorConfig;
use crate::result::ServerResult;
use crate::slab::Slab;

/// Whom the end of a transfer concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The request whose thread submits it: a dispatch of the gate, a COMMIT; of no meaning for write-back.
    pub(super) request: u64,
    /// Whether somebody waits for it: not for read-ahead and write-back.
    pub(super) waited_for: bool,
}

/// A transfer that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) io: Io,
    pub(super) start: Time,
    pub(super) end: Time,
}

/// The file that is the journal: written round and round, as of 128 MiB (mke2fs for a large file system).
pub(super) const JOURNAL: FileId = FileId(u64::MAX);
const JOURNAL_BYTES: u64 = 128 << 20;

/// What a device has served before a transfer that begins at some time.
#[derive(Clone, Copy, Debug)]
struct Before {
    begin: Time,
    busy: Span,
    busy_until: Time,
    repositions: u64,
}

/// The device of a data server, and what waits for it.
pub(super) struct Block {
    station: Station,
    placement: Placement,
    faults: DeviceFaults,
    lift: Lift,
    /// Of a device that orders by itself: its clock, what it has, and when it is asked next.
    queueing: Option<(DeviceClock, Slab<Io>)>,
    asked: (Time, Time),
    /// Until when a flush lets nothing begin.
    flushed: Time,
    journal: u64,
    /// Of the transfer that goes to the device, if it had its place before. Empty otherwise, but for its memory.
    placed: Vec<Transfer>,
    pub(super) requests: u64,
    transfers: u64,
    bytes: u64,
    finish: Time,
    /// What there was before transfers that begin later: a device without an order of its own is given all that waits at once.
    later: VecDeque<Before>,
    /// What there was when the last application ended.
    by_the_end: Option<(Span, u64)>,
}

impl Block {
    pub(super) fn new(
        mut device: Box<dyn Device>,
        placement: Placement,
        faults: DeviceFaults,
        elevator: Option<&ElevatorConfig>,
    ) -> Block {
        Block {
            queueing: device.queueing().is_some().then(|| (DeviceClock::new(&faults), Slab::new())),
            asked: (Time::MAX, Time::MAX),
            lift: Lift::new(elevator, device.slots()),
            station: Station::new(device),
            placement,
            faults,
            flushed: Time::ZERO,
            journal: 0,
            placed: Vec::new(),
            requests: 0,
            transfers: 0,
            bytes: 0,
            finish: Time::ZERO,
            later: VecDeque::new(),
            by_the_end: None,
        }
    }

    /// Takes a transfer.
    pub(super) fn submit(&mut self, now: Time, io: Io) {
        self.lift.submit(now, io, &mut self.placement);
    }

    /// The next transfer that begins: now, or as soon as a slot is free. Nothing begins any more on a device that is stopped for good.
    pub(super) fn next(&mut self, now: Time) -> Option<Begun> {
        // It is asked after all that happens, and most often nothing waits.
        if self.lift.is_empty() {
            return None;
        }
        if self.queueing.is_some() {
            self.hand_in(now);
            return None;
        }
        // What an elevator has let go it cannot order any more.
        if self.lift.orders() && now < self.flushed {
            return None;
        }
        let io = self.lift.next(now, &mut self.placed)?;
        self.begin(now, io)
    }

    /// Serves a transfer and counts it.
    fn begin(&mut self, now: Time, io: Io) -> Option<Begun> {
        let (start, end) = self.serve(now, &io)?;
        self.transfers += 1;
        self.bytes += io.bytes;
        self.finish = self.finish.max(end);
        Some(Begun { io, start, end })
    }

    /// Serves a transfer as soon as a slot is free: from when to when, unless the device is stopped for good.
    fn serve(&mut self, now: Time, io: &Io) -> Option<(Time, Time)> {
        let Some(start) = self.faults.begin(now.max(self.station.free_at()).max(self.flushed)) else {
            self.placed.clear();
            return None;
        };
        while self.later.front().is_some_and(|before| before.begin <= now) {
            self.later.pop_front();
        }
        self.note_before(now, start);
        let mut visit = self.station.begin(start);
        if self.placed.is_empty() {
            self.placement.for_each_piece(io.op, io.file, io.offset, io.bytes, |address, bytes| {
                visit.serve(Transfer { op: io.op, address, bytes });
            });
        } else {
            self.placed.drain(..).for_each(|transfer| visit.serve(transfer));
        }
        if io.handed_over {
            visit.hand_over();
        }
        let span = self.faults.slowed(start, visit.span());
        Some((start, visit.end_after(span)))
    }

    /// Notes what there is before something that begins at `begin`, if that is later.
    fn note_before(&mut self, now: Time, begin: Time) {
        if begin > now {
            let (busy, busy_until) = (self.station.busy(), self.station.busy_until());
            let repositions = self.station.device().repositions();
            self.later.push_back(Before { begin, busy, busy_until, repositions });
        }
    }

    /// Gives a device that orders by itself all that there is.
    fn hand_in(&mut self, now: Time) {
        let Some((clock, inside)) = &mut self.queueing else { return };
        while let Some(io) = self.lift.next(now, &mut self.placed) {
            if self.placed.is_empty() {
                self.placement.for_each_piece(io.op, io.file, io.offset, io.bytes, |address, bytes| {
                    self.placed.push(Transfer { op: io.op, address, bytes });
                });
            }
            self.station.submit(clock.at(now), inside.add(io).into(), io.handed_over, self.placed.drain(..));
        }
    }

    /// When to ask [`Block::finished`] and [`Block::next`], if that is earlier than what was said last.
    pub(super) fn wake(&mut self) -> Option<Time> {
        match (self.lift.wake(), self.wake_of_device()) {
            (Some(lift), Some(device)) => Some(lift.min(device)),
            (lift, device) => lift.or(device),
        }
    }

    fn wake_of_device(&mut self) -> Option<Time> {
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
    pub(super) fn flush(&mut self, now: Time, owner: Owner, bytes: u64) -> Option<(Begun, Time)> {
        let offset = self.journal;
        self.journal = (offset + bytes) % JOURNAL_BYTES;
        let io = Io {
            owner,
            op: Op::Write,
            file: JOURNAL,
            offset,
            bytes,
            app: AppId(0),
            requests: 0,
            handed_over: false,
            request: 0,
            waited_for: true,
        };
        if self.queueing.is_some() {
            self.submit(now, io);
            return None;
        }
        let begun = self.begin(now, io)?;
        self.note_before(now, begun.end.max(self.station.busy_until()));
        let slowed = |begin, span| self.faults.slowed(begin, span);
        self.flushed = begun.end + self.station.flush_disturbed(begun.end, slowed);
        self.finish = self.finish.max(self.flushed);
        Some((begun, self.flushed))
    }

    /// A transfer has ended.
    pub(super) fn ended(&mut self, now: Time, owner: Owner) {
        self.lift.ended(now, owner);
    }

    /// A request has been answered: the thread that carried it out is idle.
    pub(super) fn answered(&mut self, request: u64) {
        self.lift.let_go(request);
    }

    /// Whether it matters that a transfer was handed over.
    pub(super) fn hands_over(&self) -> bool {
        self.station.device().hand_over() > Span::ZERO
    }

    /// The last application has ended, or all is cut off: what is still written back is beyond the makespan.
    pub(super) fn end_at(&mut self, now: Time) {
        let device_now = self.queueing.as_ref().map_or(now, |(clock, _)| clock.at(now));
        let first_later = self.later.iter().find(|before| before.begin > now);
        self.by_the_end.get_or_insert(match first_later {
            Some(before) => (before.busy - before.busy_until.since(now), before.repositions),
            None => (self.station.busy_by(device_now), self.station.device().repositions()),
        });
    }

    pub(super) fn result(&self) -> ServerResult {
        let (busy, repositions) = self.by_the_end.unwrap_or_default();
        ServerResult {
            busy,
            repositions,
            requests: self.requests,
            dispatches: self.transfers,
            bytes: self.bytes,
            finish: self.finish,
        }
    }
}
