//! The gate around a model: ordering by byte range, depth, bound, split requests.

use std::collections::BTreeMap;

use iogate_core::sched::{Prices, param};
use iogate_core::{
    Decision, Dispatch, DispatchId, FileId, FileLayout, GateConfig, Part, Rejected, Request, SchedulerConfig,
    SchedulerKind, TargetId, Time,
};

use super::{Choice, Entry, Model, bytes_of, model};

/// What the reference gate has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose issue time was implausible.
    pub skewed: u64,
    /// Submissions refused because the gate was full.
    pub rejected_full: u64,
    /// Requests and parts that have waited for a conflicting one.
    pub held: u64,
    /// Live changes of algorithm.
    pub switches: u64,
}

/// A naive gate: one list of everything in it, and a model that chooses.
pub struct ReferenceGate {
    config: GateConfig,
    model: Box<dyn Model>,
    layouts: BTreeMap<FileId, FileLayout>,
    /// The most targets that a layout has had.
    targets: u32,
    /// Everything submitted and not completed, in sequence order.
    entries: Vec<Entry>,
    /// Sequence numbers of those that wait for a conflicting one.
    held: Vec<u64>,
    /// Dispatches in service; ids are never used again.
    in_service: Vec<(DispatchId, Vec<Entry>)>,
    next_seq: u64,
    next_id: u32,
    draining: bool,
    counts: Counts,
    prices: Prices,
}

impl ReferenceGate {
    /// A gate with nothing in it.
    pub fn new(config: &GateConfig) -> ReferenceGate {
        ReferenceGate {
            config: config.clone(),
            model: model(&config.scheduler),
            layouts: BTreeMap::new(),
            targets: config.layout.targets,
            entries: Vec::new(),
            held: Vec::new(),
            in_service: Vec::new(),
            next_seq: 0,
            next_id: 0,
            draining: false,
            counts: Counts::default(),
            prices: Prices::default(),
        }
    }

    /// Takes a request, or says why not.
    pub fn submit(&mut self, now: Time, request: &Request) -> Result<(), Rejected> {
        if self.draining {
            return Err(Rejected::Closed);
        }
        if request.bytes == 0 || request.offset.checked_add(u64::from(request.bytes)).is_none() {
            return Err(Rejected::Malformed { offset: request.offset, bytes: request.bytes });
        }
        let pieces = self.pieces(request);
        if self.entries.len() + pieces.len() > self.config.queue_max as usize {
            self.counts.rejected_full += 1;
            return Err(Rejected::Full { max: self.config.queue_max });
        }
        for (offset, bytes, target) in pieces {
            let entry = Entry {
                seq: self.next_seq,
                request: request.id,
                file: request.file,
                op: request.op,
                offset,
                bytes,
                app: request.app,
                target,
                arrival: now,
                issued: request.issued,
            };
            self.next_seq += 1;
            self.entries.push(entry.clone());
            if self.blocked(&entry) {
                self.held.push(entry.seq);
            } else {
                self.hand_over(now, entry);
            }
        }
        Ok(())
    }

    /// What a request is queued as: itself, or its stripes.
    fn pieces(&self, request: &Request) -> Vec<(u64, u32, TargetId)> {
        let scheduler = &self.config.scheduler;
        let split = scheduler.kind() == SchedulerKind::Twins && scheduler.is_on(&param::SPLIT);
        if let Some(target) = request.target {
            return vec![(request.offset, request.bytes, target)];
        }
        if !split {
            return vec![(request.offset, request.bytes, self.stripe(request.file, request.offset).0)];
        }
        let mut pieces = Vec::new();
        let mut offset = request.offset;
        while offset < request.end() {
            let (target, end) = self.stripe(request.file, offset);
            let end = request.end().min(end);
            pieces.push((offset, (end - offset) as u32, target));
            offset = end;
        }
        pieces
    }

    /// The target that holds a byte, and where the stripe with it ends.
    fn stripe(&self, file: FileId, offset: u64) -> (TargetId, u64) {
        let gate = self.config.layout;
        let extents = self.layouts.get(&file).map_or(&[][..], FileLayout::extents);
        if let Some(extent) = extents.iter().find(|extent| (extent.start..extent.end).contains(&offset)) {
            let index = offset / extent.stripe_bytes;
            let target = extent.targets[index as usize % extent.targets.len()];
            if extent.targets.len() == 1 {
                return (target, extent.end);
            }
            return (target, ((index + 1) * extent.stripe_bytes).min(extent.end));
        }
        let next = extents.iter().map(|extent| extent.start).filter(|&start| start > offset).min();
        (gate.target_of(offset), gate.stripe_end(offset).min(next.unwrap_or(u64::MAX)))
    }

    fn hand_over(&mut self, now: Time, entry: Entry) {
        self.model.know_targets(self.targets);
        self.model.insert(now, entry);
    }

    /// Whether an earlier, conflicting request has not completed.
    fn blocked(&self, entry: &Entry) -> bool {
        self.entries.iter().any(|earlier| earlier.seq < entry.seq && earlier.conflicts(entry))
    }

    /// What to do now, and the parts of the dispatch if it is one.
    pub fn next(&mut self, now: Time) -> (Decision, Vec<Part>) {
        if self.in_service.len() as u32 >= self.config.depth.min(self.model.depth_max()) {
            return (Decision::Idle, Vec::new());
        }
        self.tell_device();
        let run = match self.model.choose(now, self.draining) {
            Choice::Serve(run) => run,
            Choice::Wait(until, reason) => return (Decision::WaitUntil(until, reason), Vec::new()),
            Choice::Idle => return (Decision::Idle, Vec::new()),
        };
        let id = DispatchId(self.next_id);
        self.next_id += 1;
        let dispatch = Dispatch {
            id,
            file: run[0].file,
            op: run[0].op,
            offset: run[0].offset,
            bytes: bytes_of(&run),
            parts: run.len() as u32,
            target: run[0].target,
            app: run[0].app,
        };
        let part = |entry: &Entry| Part {
            request: entry.request,
            app: entry.app,
            offset: entry.offset,
            bytes: entry.bytes,
            arrival: entry.arrival,
        };
        let parts = run.iter().map(part).collect();
        self.in_service.push((id, run));
        (Decision::Dispatch(dispatch), parts)
    }

    /// Reports that a dispatch has been carried out.
    ///
    /// # Panics
    /// If no such dispatch is in service.
    pub fn complete(&mut self, now: Time, id: DispatchId) {
        let place = self.in_service.iter().position(|(in_service, _)| *in_service == id);
        let (_, run) = self.in_service.remove(place.expect("the dispatch is in service"));
        super::remove(&mut self.entries, &run);
        self.tell_device();
        self.model.completed(now, &run);
        for entry in self.entries.clone() {
            if self.held.contains(&entry.seq) && !self.blocked(&entry) {
                self.held.retain(|&seq| seq != entry.seq);
                self.counts.held += 1;
                self.hand_over(now, entry);
            }
        }
    }

    /// Changes the algorithm.
    pub fn switch(&mut self, now: Time, scheduler: &SchedulerConfig) {
        self.counts.switches += 1;
        self.counts.skewed += self.model.skewed();
        let mut eligible = self.model.take();
        eligible.sort_by_key(|entry| entry.seq);
        self.config.scheduler = scheduler.clone();
        self.model = model(scheduler);
        for entry in eligible {
            self.hand_over(now, entry);
        }
    }

    /// Closes the gate.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Says what the device charges.
    pub fn set_prices(&mut self, prices: Prices) {
        self.prices = prices;
    }

    fn tell_device(&mut self) {
        self.model.know_device(&self.prices, self.in_service.len() as u32, self.config.depth);
    }

    /// Sets a file's own layout.
    pub fn set_layout(&mut self, file: FileId, layout: FileLayout) {
        self.targets = self.targets.max(layout.targets());
        self.layouts.insert(file, layout);
    }

    /// Requests and parts in the gate.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is in the gate.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What it has counted so far.
    pub fn counts(&self) -> Counts {
        Counts { skewed: self.counts.skewed + self.model.skewed(), ..self.counts }
    }
}
