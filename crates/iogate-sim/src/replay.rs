//! The virtual-time driver of a gate: arrivals from a trace, service times from modelled devices.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::BufRead;
use std::sync::Arc;

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Auto, Choice, Chooser, Pace, Pricing};
use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::sched::ConfigError;
use iogate_core::{
    ClientId, Decision, Dispatch, DispatchId, FileId, Gate, GateConfig, Layout, Op, Outcome, Rejected,
    Request, RequestId, Span, Time, units,
};

use self::room::{Room, TooLong};
use crate::trace::{Row, TraceError, TraceReader};

mod room;

/// What serves the dispatches.
pub struct Backend {
    targets: Vec<Target>,
    layout: Layout,
    /// A device that serves all that are in flight, however many, and for how long it did.
    overlap: Option<(Box<dyn Device>, Span)>,
    /// Whether the devices order by themselves: an end is known only when it is there.
    queueing: bool,
    room: Room,
    /// In such devices: pieces that have not ended, and when the first began.
    open: HashMap<DispatchId, (u32, Time)>,
}

struct Target {
    station: Station,
    placement: Placement,
}

impl Backend {
    /// One device for each target of `layout`, each serving as many transfers at once as it has slots; a dispatch that spans targets
    /// is split at stripe boundaries, served by all of them at once, and ends when the last has ended.
    ///
    /// # Panics
    /// If there are not as many devices as the layout has targets: a mistake in the program, not in its input.
    pub fn striped(devices: Vec<Box<dyn Device>>, layout: Layout) -> Backend {
        assert_eq!(devices.len(), layout.targets as usize, "a device for each target");
        let room = Room::of(&devices, layout);
        let mut queueing = false;
        let target = |mut device: Box<dyn Device>| {
            queueing |= device.queueing().is_some();
            Target { station: Station::new(device), placement: Placement::default() }
        };
        let targets = devices.into_iter().map(target).collect();
        Backend { targets, layout, overlap: None, queueing, room, open: HashMap::new() }
    }

    /// Has it say whose random accesses come out too fast ([`Replay::warnings`]), if they can: `device` is one more of the same kind.
    pub fn watch_extents(&mut self, mut device: Box<dyn Device>) {
        self.room.try_out(&mut *device);
    }

    /// One device that serves each dispatch as a whole, and all that are in flight at the same time.
    pub fn overlapping(device: Box<dyn Device>) -> Backend {
        let overlap = Some((device, Span::ZERO));
        Backend {
            targets: Vec::new(),
            layout: Layout::SINGLE,
            overlap,
            queueing: false,
            room: Room::default(),
            open: HashMap::new(),
        }
    }

    /// Serves a dispatch handed over at `now`: when the service begins and ends, if that is known; else [`Backend::ended`] tells. One that
    /// was queued costs a hand-over.
    fn serve(
        &mut self,
        now: Time,
        dispatch: &Dispatch,
        own_target: bool,
        queued: bool,
    ) -> Option<(Time, Time)> {
        let (file, op) = (dispatch.file, dispatch.op);
        if let Some((device, busy)) = &mut self.overlap {
            let span = device.serve(now, Transfer { op, address: dispatch.offset, bytes: dispatch.bytes });
            *busy += span;
            return Some((now, now + span));
        }
        let mut pieces: Vec<Option<(u64, u64)>> = vec![None; self.targets.len()];
        if own_target || self.layout.targets == 1 {
            let target = dispatch.target.0 as usize % self.targets.len();
            pieces[target] = Some((dispatch.offset, dispatch.bytes));
        } else {
            let (mut offset, end) = (dispatch.offset, dispatch.offset + dispatch.bytes);
            while offset < end {
                let stripe_end = self.layout.stripe_end(offset).min(end);
                let local = self.local_offset(offset);
                let piece = pieces[self.layout.target_of(offset).0 as usize].get_or_insert((local, 0));
                // The stripes of a contiguous range that share a target follow each other on it.
                piece.1 += stripe_end - offset;
                offset = stripe_end;
            }
        }
        let (mut first, mut last, mut count) = (Time::MAX, now, 0);
        for (target, piece) in pieces.into_iter().enumerate() {
            let Some((offset, bytes)) = piece else { continue };
            let Target { station, placement } = &mut self.targets[target];
            let transfer = |address, bytes| Transfer { op, address, bytes };
            count += 1;
            if self.queueing {
                let mut transfers = Vec::new();
                placement
                    .for_each_piece(op, file, offset, bytes, |at, bytes| transfers.push(transfer(at, bytes)));
                station.submit(now, dispatch.id.0.into(), queued, transfers);
                continue;
            }
            let mut visit = station.begin(now);
            placement.for_each_piece(op, file, offset, bytes, |at, bytes| visit.serve(transfer(at, bytes)));
            if queued {
                visit.hand_over();
            }
            first = first.min(visit.begin());
            last = last.max(visit.end());
        }
        if self.queueing {
            self.open.insert(dispatch.id, (count, Time::MAX));
            return None;
        }
        Some((first, last))
    }

    /// When a device that orders by itself may have ended something.
    fn next_event(&mut self) -> Option<Time> {
        if !self.queueing {
            return None;
        }
        self.targets.iter_mut().filter_map(|target| target.station.next_event()).min()
    }

    /// The next dispatch that such devices have ended by `now`: when it began, and when it ended.
    fn ended(&mut self, now: Time) -> Option<(DispatchId, Time, Time)> {
        while self.queueing {
            let ended = self.targets.iter_mut().find_map(|target| target.station.ended(now))?;
            let id = DispatchId(ended.id as u32);
            let (left, first) = self.open.get_mut(&id)?;
            *left -= 1;
            *first = (*first).min(ended.begin);
            if *left == 0 {
                let (_, first) = self.open.remove(&id)?;
                return Some((id, first, ended.end));
            }
        }
        None
    }

    /// Where a byte of a file lies in the part of the file that its target holds.
    fn local_offset(&self, offset: u64) -> u64 {
        let Layout { stripe_bytes, targets, .. } = self.layout;
        offset / stripe_bytes / u64::from(targets) * stripe_bytes + offset % stripe_bytes
    }

    fn busy(&self) -> Span {
        let overlap = self.overlap.as_ref().map_or(Span::ZERO, |(_, busy)| *busy);
        self.targets.iter().fold(overlap, |sum, target| sum + target.station.busy())
    }

    fn repositions(&self) -> u64 {
        let overlap = self.overlap.as_ref().map_or(0, |(device, _)| device.repositions());
        overlap + self.targets.iter().map(|target| target.station.device().repositions()).sum::<u64>()
    }
}

/// What the devices of a backend charge, for [`Replay::choose`]: `device` makes one of them. Like [`Backend::overlapping`], an
/// `overlapping` one serves all that are in flight.
pub fn pricing(
    device: impl Fn() -> Box<dyn Device> + Send + Sync + 'static,
    overlapping: bool,
) -> Arc<dyn Pricing> {
    Arc::new(move || -> Box<dyn Device> {
        match overlapping {
            true => Box::new(Wide(device())),
            false => device(),
        }
    })
}

struct Wide(Box<dyn Device>);

impl Device for Wide {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        self.0.serve(now, transfer)
    }

    fn flush(&mut self, now: Time) -> Span {
        self.0.flush(now)
    }

    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn repositions(&self) -> u64 {
        self.0.repositions()
    }

    fn slots(&self) -> u32 {
        u32::MAX
    }
}

/// One dispatch as it was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// When a device began it.
    pub start: Time,
    /// When it was complete.
    pub end: Time,
    /// The application of its first request.
    pub app: iogate_core::AppId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The rows that it carries, in the order in which they stand in the run. A row that the gate split is in
    /// several dispatches.
    pub ids: Vec<u64>,
}

/// What a replay counts beside the gate's own statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows submitted.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches served.
    pub dispatches: u64,
    /// From the first arrival to the last completion.
    pub makespan: Span,
    /// Time that devices spent serving, summed over the devices.
    pub device_busy: Span,
    /// Times that devices had to reposition.
    pub repositions: u64,
    /// Rows that found the gate full and came in later.
    pub held_back: u64,
    /// For how long, altogether.
    pub held_back_total: Span,
}

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace was refused.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The scheduler's settings were refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The gate refused a row.
    #[error("row {row}: {source}")]
    Rejected {
        /// The row, from 1.
        row: u64,
        /// The gate's reason.
        source: Rejected,
    },
    /// A row reaches further than its device.
    #[error(
        "row {row} reaches to {}, of which a target gets {}: its device has {capacity}; take a larger device, or more targets",
        units::format_size(*.end),
        units::format_size(*.part)
    )]
    TooLong {
        /// The row, from 1.
        row: u64,
        /// Where it ends in its file.
        end: u64,
        /// How much a target gets of a file that ends there.
        part: u64,
        /// The device's size, for people.
        capacity: String,
    },
    /// A row that the scheduler splits has more pieces than the gate takes.
    #[error(
        "row {row} is {pieces} requests once it is split at stripe boundaries, and the gate holds at most {queue_max}; \
         raise that, use longer stripes, or do not split"
    )]
    TooManyPieces {
        /// The row, from 1.
        row: u64,
        /// Its pieces, one a stripe.
        pieces: u64,
        /// Most requests in the gate.
        queue_max: u32,
    },
    /// The gate holds requests and nothing is left that would make it dispatch them.
    #[error(
        "the scheduler stopped at {at_us} us with {held} requests undispatched; this is a defect of the scheduler"
    )]
    Stalled {
        /// Virtual time.
        at_us: u64,
        /// Requests in the gate.
        held: usize,
    },
}

/// A row between its arrival and its completion.
struct Flying {
    bytes_left: u64,
    own_target: bool,
    client: ClientId,
}

/// A replay in progress. [`Replay::next_dispatch`] advances virtual time to the next dispatch.
///
/// At equal times completions come first, then all arrivals of that instant, then the gate is asked until it has
/// nothing more to dispatch.
pub struct Replay<R> {
    trace: TraceReader<R>,
    ahead: Option<Row>,
    gate: Gate,
    /// Chooses the gate's scheduler.
    auto: Option<Auto>,
    backend: Backend,
    now: Time,
    /// When the gate wants to be asked again; `None` after `Idle`.
    deadline: Option<Time>,
    in_flight: BinaryHeap<Reverse<(Time, u64, DispatchId)>>,
    /// Handed over to devices that order by themselves; and what these have ended.
    handed_over: HashMap<DispatchId, Dispatched>,
    ended: VecDeque<Dispatched>,
    /// By request id, which is the row's number.
    flying: HashMap<u64, Flying>,
    full: bool,
    first_arrival: Option<Time>,
    last_end: Time,
    totals: Totals,
}

impl<R: BufRead> Replay<R> {
    /// A replay that has not begun.
    pub fn new(
        mut trace: TraceReader<R>,
        gate: &GateConfig,
        backend: Backend,
    ) -> Result<Replay<R>, ReplayError> {
        trace.set_targets(gate.layout.targets);
        let ahead = trace.next_row()?;
        Ok(Replay {
            ahead,
            trace,
            gate: Gate::new(gate)?,
            auto: None,
            backend,
            now: Time::ZERO,
            deadline: None,
            in_flight: BinaryHeap::new(),
            handed_over: HashMap::new(),
            ended: VecDeque::new(),
            flying: HashMap::new(),
            full: false,
            first_arrival: None,
            last_end: Time::ZERO,
            totals: Totals::default(),
        })
    }

    /// Lets the scheduler be chosen, for storage that charges as `pricing` says, with the pace of an engine.
    pub fn choose(&mut self, pricing: Arc<dyn Pricing>) {
        let chooser = Chooser::new(self.gate.config(), pricing, Time::ZERO);
        self.auto = Some(Auto::new(chooser, Pace::new(REQUESTS_PER_S, Time::ZERO)));
    }

    /// What was chosen, and why, if it was to be.
    pub fn choice(&self) -> Option<Choice> {
        self.auto.as_ref().map(|auto| auto.choice(self.now))
    }

    /// The trace, for the names of its files.
    pub fn trace(&self) -> &TraceReader<R> {
        &self.trace
    }

    /// What to say of files whose random accesses were faster than on a disk with the same files, if [`Backend::watch_extents`] was
    /// called: a line each.
    pub fn warnings(&self) -> Vec<String> {
        self.backend.room.sparse(|file| self.trace.files().name(file).into_owned())
    }

    /// The gate, for its statistics.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// When the first row arrived; the start of time if none has.
    pub fn first_arrival(&self) -> Time {
        self.first_arrival.unwrap_or(Time::ZERO)
    }

    /// What has been counted so far.
    pub fn totals(&self) -> Totals {
        Totals {
            makespan: self.last_end.since(self.first_arrival.unwrap_or(self.last_end)),
            device_busy: self.backend.busy(),
            repositions: self.backend.repositions(),
            ..self.totals
        }
    }

    /// The next dispatch, in dispatch order, or in the order of the ends where devices order by themselves; `None` when everything has
    /// been served.
    pub fn next_dispatch(&mut self) -> Result<Option<Dispatched>, ReplayError> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Ok(Some(ended));
            }
            if let Some(auto) = &mut self.auto {
                let client = |id: RequestId| self.flying.get(&id.0).map_or(ClientId(0), |row| row.client);
                auto.look(self.now, &mut self.gate, client);
            }
            match self.gate.next(self.now) {
                Decision::Dispatch(dispatch) => match self.serve(&dispatch) {
                    Some(dispatched) => return Ok(Some(dispatched)),
                    None => continue,
                },
                Decision::WaitUntil(deadline, _) if deadline > self.now => self.deadline = Some(deadline),
                Decision::WaitUntil(..) => return Err(self.stalled()),
                Decision::Idle => self.deadline = None,
            }
            let completion =
                self.in_flight.peek().map(|Reverse((end, ..))| *end).or(self.backend.next_event());
            // While the gate is full only a completion can let the next row in.
            let arrival = self.ahead.filter(|_| !self.full).map(|row| row.time.max(self.now));
            let Some(at) = [completion, arrival, self.deadline].into_iter().flatten().min() else {
                return if self.gate.is_empty() && self.ahead.is_none() {
                    Ok(None)
                } else {
                    Err(self.stalled())
                };
            };
            self.now = at;
            self.complete_until_now();
            self.submit_until_now()?;
        }
    }

    fn stalled(&self) -> ReplayError {
        ReplayError::Stalled { at_us: self.now.as_nanos() / 1_000, held: self.gate.len() }
    }

    fn serve(&mut self, dispatch: &Dispatch) -> Option<Dispatched> {
        let mut ids = Vec::with_capacity(dispatch.parts as usize);
        let (mut own_target, mut queued) = (false, false);
        for part in self.gate.parts(dispatch.id) {
            queued |= part.arrival < self.now;
            ids.push(part.request.0);
            if let Some(flying) = self.flying.get(&part.request.0) {
                own_target |= flying.own_target;
            }
        }
        if let Some(auto) = &mut self.auto {
            auto.dispatched(self.now, dispatch);
        }
        let service = self.backend.serve(self.now, dispatch, own_target, queued);
        self.totals.dispatches += 1;
        let (start, end) = service.unwrap_or((self.now, self.now));
        let Dispatch { app, file, op, offset, bytes, .. } = *dispatch;
        let dispatched = Dispatched { start, end, app, file, op, offset, bytes, ids };
        if service.is_none() {
            self.handed_over.insert(dispatch.id, dispatched);
            return None;
        }
        self.last_end = self.last_end.max(end);
        self.in_flight.push(Reverse((end, self.totals.dispatches, dispatch.id)));
        Some(dispatched)
    }

    fn complete_until_now(&mut self) {
        while let Some(&Reverse((end, _, id))) = self.in_flight.peek()
            && end <= self.now
        {
            self.in_flight.pop();
            self.complete(id);
        }
        while let Some((id, start, end)) = self.backend.ended(self.now) {
            self.last_end = self.last_end.max(end);
            let dispatched = self.handed_over.remove(&id);
            self.ended.extend(dispatched.map(|dispatched| Dispatched { start, end, ..dispatched }));
            self.complete(id);
        }
    }

    fn complete(&mut self, id: DispatchId) {
        if let Some(auto) = &mut self.auto {
            auto.ended(self.now, id);
        }
        let mut bytes = 0;
        for part in self.gate.parts(id) {
            bytes += u64::from(part.bytes);
            if let Some(auto) = &mut self.auto {
                auto.completed(self.now, part.request, part.app, part.bytes);
            }
            let std::collections::hash_map::Entry::Occupied(mut entry) = self.flying.entry(part.request.0)
            else {
                continue;
            };
            entry.get_mut().bytes_left -= u64::from(part.bytes);
            if entry.get().bytes_left == 0 {
                entry.remove();
            }
        }
        self.gate.complete(self.now, id, Outcome::Done { bytes });
        self.full = false;
    }

    fn submit_until_now(&mut self) -> Result<(), ReplayError> {
        while let Some(row) = self.ahead
            && row.time <= self.now
            && !self.full
        {
            let request = Request {
                id: RequestId(row.number),
                file: row.file,
                op: row.op,
                offset: row.offset,
                bytes: row.bytes,
                app: row.app,
                client: row.client,
                target: row.target,
                issued: row.issued,
            };
            self.backend.room.check(&row).map_err(|TooLong { end, part, capacity }| {
                ReplayError::TooLong { row: row.number, end, part, capacity }
            })?;
            match self.gate.submit(self.now, &request) {
                Ok(()) => {
                    self.backend.room.note(&row);
                    if let Some(auto) = &mut self.auto {
                        auto.arrived(self.now, &request);
                    }
                }
                // Nothing is left to complete: the row would wait for ever.
                Err(Rejected::Full { max: queue_max }) if self.gate.is_empty() => {
                    let pieces = self.gate.config().layout.stripes(row.offset, row.bytes);
                    return Err(ReplayError::TooManyPieces { row: row.number, pieces, queue_max });
                }
                // Back-pressure: the row waits outside until a completion.
                Err(Rejected::Full { .. }) => {
                    self.full = true;
                    break;
                }
                Err(source) => return Err(ReplayError::Rejected { row: row.number, source }),
            }
            self.first_arrival.get_or_insert(row.time);
            self.totals.requests += 1;
            self.totals.bytes += u64::from(row.bytes);
            if row.time < self.now {
                self.totals.held_back += 1;
                self.totals.held_back_total += self.now.since(row.time);
            }
            let own_target = row.target.is_some();
            self.flying
                .insert(row.number, Flying { bytes_left: row.bytes.into(), own_target, client: row.client });
            self.ahead = self.trace.next_row()?;
        }
        Ok(())
    }
}
