//! The scheduling point: ordering by byte range, one scheduler, statistics.

mod accounts;
mod admission;
mod comes;
mod deferred;
mod present;
mod service;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::accounts::Rest;
use self::admission::Admission;
pub use self::present::Present;
use self::service::Service;
use crate::blame::{Blame, Place};
use crate::hash::HashMap;
use crate::layout::{FileLayout, Holding, Layout, TARGETS_MAX};
use crate::queue::{NONE, Pending, SlotId};
use crate::request::{AppId, FileId, Op, Request, RequestId, TargetId};
use crate::sched::{Adapter, ConfigError, Own, Pick, Prices, Scheduler, SchedulerConfig};
use crate::stats::{Conflict, Stats};
use crate::time::Time;
use crate::wait::WaitReason;

/// Settings of a [`Gate`].
#[derive(Clone, Debug)]
pub struct GateConfig {
    /// The algorithm and its parameters.
    pub scheduler: SchedulerConfig,
    /// Most requests (pieces of split ones count) that may be in the gate, queued, held back or in service, at once.
    pub queue_max: u32,
    /// Most dispatches in service at once; a scheduler may want fewer (aioli: one).
    pub depth: u32,
    /// Layout of files that have none of their own, and of what is not known of those that have.
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
    /// The request, and whose it is.
    pub request: RequestId,
    /// See `request`.
    pub app: AppId,
    /// First byte of the share.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// When the request came in.
    pub arrival: Time,
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
    /// The bound on requests in the gate is reached; try again after a completion. From an empty gate: the request
    /// would be split into more pieces than the bound.
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
    /// The request names a target that no store of this size has.
    #[error("malformed request: target {target}; expected one below {max}")]
    Target {
        /// The target.
        target: u32,
        /// One more than the highest possible target.
        max: u32,
    },
    /// The gate is draining and takes no more.
    #[error("the gate is closed")]
    Closed,
}

/// The scheduling point: the same type on a client, a forwarder and a data server.
///
/// # Driving it
/// There is one contract, whoever drives it:
///
/// 1. After any mutation ([`submit`](Gate::submit), [`complete`](Gate::complete), [`switch`](Gate::switch),
///    [`drain`](Gate::drain)), call [`next`](Gate::next) until it is no longer [`Decision::Dispatch`].
/// 2. Carry out each dispatch, in any order and at the same time if you like, then `complete` it, failed or not.
/// 3. After [`Decision::WaitUntil`], call `next` again at that time at the latest; after [`Decision::Idle`], only after the next mutation.
///
/// `now` is the driver's clock. It should never decrease; where it does, the gate goes on with the latest it has seen.
///
/// # What it promises
/// Every request that `submit` accepted is in exactly one dispatch (or, where requests are split, each byte of it is). Of
/// two requests to one file that overlap and of which at least one is a write, the earlier completes before the later is
/// dispatched. All else is the scheduler's choice, among the requests that a [policy](Gate::set_policy), if there is one, has admitted. The
/// same calls give the same decisions.
pub struct Gate {
    config: GateConfig,
    scheduler: Box<dyn Scheduler>,
    pending: Pending,
    service: Service,
    layouts: HashMap<FileId, Arc<FileLayout>>,
    /// The latest time seen.
    now: Time,
    /// Arrival number of the next request.
    seq: u64,
    closed: bool,
    /// A deliberate wait that is going on.
    wait: Option<(Time, WaitReason)>,
    /// Requests that a completion may have unblocked.
    released: Vec<SlotId>,
    /// The policy, if there is one, and the requests that it defers.
    admission: Option<Box<Admission>>,
    /// The accounts of who slows whom down, if what happens now is accounted.
    pub(crate) blame: Option<Box<Blame>>,
    /// Accounts of samples, while none is taken, and when a sample begins or ends: never, if all is accounted.
    sampled: Option<Box<Blame>>,
    edge: Time,
    rest: Rest,
}

impl Gate {
    /// A gate with nothing in it.
    ///
    /// # Errors
    /// If `depth`, `queue_max`, or the layout's stripe or number of targets is zero, or there are too many targets.
    pub fn new(config: &GateConfig) -> Result<Gate, ConfigError> {
        let at_least_one = |name: &str, value: u64, max: u64| match value {
            0 => Err(ConfigError::out_of_range(name, value, 1, max)),
            _ if value > max => Err(ConfigError::out_of_range(name, value, 1, max)),
            _ => Ok(()),
        };
        at_least_one("depth", config.depth.into(), u32::MAX.into())?;
        at_least_one("queue_max", config.queue_max.into(), (u32::MAX - 1).into())?;
        at_least_one("stripe_bytes", config.layout.stripe_bytes, u64::MAX)?;
        at_least_one("targets", config.layout.targets.into(), TARGETS_MAX.into())?;
        let mut pending = Pending::new();
        pending.targets = config.layout.targets;
        pending.depth = config.depth;
        Ok(Gate {
            scheduler: config.scheduler.build(),
            config: config.clone(),
            pending,
            service: Service::default(),
            layouts: HashMap::default(),
            now: Time::ZERO,
            seq: 0,
            closed: false,
            wait: None,
            released: Vec::new(),
            admission: None,
            blame: None,
            sampled: None,
            edge: Time::MAX,
            rest: Rest::default(),
        })
    }

    /// The same with a scheduler of the driver's own. The settings keep the algorithm that is named there, which schedules nothing.
    ///
    /// # Errors
    /// As [`Gate::new`].
    pub fn with_own(config: &GateConfig, own: Box<dyn Own>) -> Result<Gate, ConfigError> {
        let mut gate = Gate::new(config)?;
        gate.scheduler = Box::new(Adapter::new(own));
        Ok(gate)
    }

    /// Lets it count no more than sums from now on: [`Gate::stats`] begins anew, and has neither buckets of histograms nor anything of
    /// single files, applications and targets. For many gates that are looked at together.
    pub fn count_sums_only(&mut self) {
        self.pending.stats = Stats::sums_only();
    }

    /// Makes room for so many requests, so that growing does not copy what is there again and again: for who knows that they will come.
    pub fn reserve(&mut self, requests: usize) {
        self.pending.reserve(requests.min(self.config.queue_max as usize));
    }

    /// Takes a request. Its id is handed back in [`Gate::parts`] and must not be reused before the request is done.
    ///
    /// # Errors
    /// Says why not; the request is then the caller's again. A request that would be split is taken whole or not.
    pub fn submit(&mut self, now: Time, request: &Request) -> Result<(), Rejected> {
        let now = self.advance(now);
        if self.closed {
            return Err(Rejected::Closed);
        }
        if request.bytes == 0 || request.offset.checked_add(u64::from(request.bytes)).is_none() {
            return Err(Rejected::Malformed { offset: request.offset, bytes: request.bytes });
        }
        if let Some(TargetId(target)) = request.target
            && target >= TARGETS_MAX
        {
            return Err(Rejected::Target { target, max: TARGETS_MAX });
        }
        let own = self.layouts.get(&request.file).cloned();
        let layout = Holding { own: own.as_deref(), gate: self.config.layout };
        let split = request.target.is_none() && self.scheduler.splits();
        let pieces = if split { layout.stripes(request.offset, request.bytes) } else { 1 };
        if self.pending.len as u64 + pieces > u64::from(self.config.queue_max) {
            self.pending.stats.rejected_full += 1;
            return Err(Rejected::Full { max: self.config.queue_max });
        }
        if self.pending.len == 0 {
            self.account_entry(now);
        }
        let file = self.pending.open(request.file);
        let (mut offset, end) = (request.offset, request.end());
        while offset < end {
            let target = request.target.unwrap_or_else(|| layout.target_of(offset)).0;
            let piece_end = if split { layout.stripe_end(offset).min(end) } else { end };
            let piece = (offset, (piece_end - offset) as u32, target);
            let slot = self.pending.add(now, request, file, self.seq, piece);
            self.seq += 1;
            self.admit(now, slot);
            offset = piece_end;
        }
        if let Some(file) = self.pending.evict_idle() {
            self.scheduler.forget(file);
        }
        self.pending.stats.ops[request.op as usize].request_bytes.record(u64::from(request.bytes));
        Ok(())
    }

    /// What to do now.
    pub fn next(&mut self, now: Time) -> Decision {
        let now = self.advance(now);
        let depth = self.config.depth.min(self.scheduler.depth_max());
        if self.service.len() >= depth {
            self.end_wait(now);
            self.account_full(now);
            return Decision::Idle;
        }
        let mut admits_at = if self.admission.is_some() { self.admit_next(now) } else { None };
        if self.pending.queued == 0 {
            return self.wait_until(now, admits_at);
        }
        self.pending.taken.clear();
        self.pending.in_service = self.service.len();
        loop {
            match self.scheduler.pick(now, !self.closed, &mut self.pending) {
                Pick::Dispatch => {
                    self.end_wait(now);
                    let dispatch = self.service.begin(now, &mut self.pending);
                    self.account_dispatch(now, dispatch.id);
                    self.note_dispatch(now, dispatch.id);
                    return Decision::Dispatch(dispatch);
                }
                // Of those who wait to be admitted, somebody may have something for this window.
                Pick::Window(_, target)
                    if self.admission.is_some() && self.admit_beside(now, target, &mut admits_at) => {}
                Pick::Window(until, _) => {
                    return self.wait_for_either(now, (until, WaitReason::Window), admits_at);
                }
                Pick::WaitUntil(until, reason) => {
                    return self.wait_for_either(now, (until, reason), admits_at);
                }
                Pick::Idle => return self.wait_until(now, admits_at),
            }
        }
    }

    /// The parts of a dispatch in service, in offset order.
    ///
    /// # Panics
    /// If the dispatch is not in service: a mistake of the driver.
    pub fn parts(&self, id: DispatchId) -> impl Iterator<Item = Part> + '_ {
        self.service.slots(id, &self.pending).map(|slot| {
            let part = self.pending.slot(slot);
            Part {
                request: part.id,
                app: part.app,
                offset: part.offset,
                bytes: part.bytes,
                arrival: part.arrival,
            }
        })
    }

    /// Reports that a dispatch has been carried out, and lets run what waited for it.
    ///
    /// # Panics
    /// If the dispatch is not in service: a mistake of the driver.
    pub fn complete(&mut self, now: Time, id: DispatchId, outcome: Outcome) {
        let now = self.advance(now);
        if self.admission.is_some() {
            self.charge(now, id);
        }
        self.account_end(now, id);
        let mut released = core::mem::take(&mut self.released);
        let (queue, end) = self.service.end(now, id, outcome, &mut self.pending, &mut released);
        self.scheduler.completed(now, queue, end, &self.pending);
        released.sort_unstable_by_key(|&slot| self.pending.slot(slot).seq);
        for slot in released.drain(..) {
            match self.blocker(slot) {
                Some(blocker) => self.wait_for(now, slot, blocker),
                None => {
                    self.pending.unhold(slot);
                    let held = self.pending.slot(slot);
                    let waited = now.since(held.arrival);
                    self.pending.stats.held_ns[usize::from(held.conflict)].record(waited.as_nanos());
                    self.enter(now, slot);
                }
            }
        }
        self.released = released;
        if self.pending.len == 0 {
            self.account_exit(now);
        }
    }

    /// Changes the algorithm or its parameters, live: nothing is lost, nothing served twice. What is in service stays
    /// there; everything else goes to the new scheduler, in arrival order. O(n log n).
    pub fn switch(&mut self, now: Time, scheduler: &SchedulerConfig) {
        self.config.scheduler = scheduler.clone();
        self.replace(now, scheduler.build());
    }

    /// The same to a scheduler of the driver's own; [`Gate::scheduler`] says what it said before.
    pub fn switch_to_own(&mut self, now: Time, own: Box<dyn Own>) {
        self.replace(now, Box::new(Adapter::new(own)));
    }

    /// Why the gate dispatches no more, if its scheduler is the driver's own and something is wrong with it.
    pub fn fault(&self) -> Option<&str> {
        self.scheduler.fault()
    }

    fn replace(&mut self, now: Time, scheduler: Box<dyn Scheduler>) {
        let now = self.advance(now);
        self.end_wait(now);
        let queued = self.pending.queued_by_arrival();
        self.pending.clear_queues();
        self.scheduler = scheduler;
        if let Some(admission) = &mut self.admission {
            admission.set_by_target(self.scheduler.has_windows(), &self.pending);
        }
        for slot in queued {
            self.enqueue(now, slot);
        }
        self.pending.stats.switches += 1;
    }

    /// Closes the gate: no more submissions, and no deliberate waits for what is in it.
    pub fn drain(&mut self, now: Time) {
        let now = self.advance(now);
        self.closed = true;
        self.mark_later(now, Time::MAX);
    }

    /// Requests in the gate (pieces of split ones count): queued, held back or in service.
    pub fn len(&self) -> usize {
        self.pending.len
    }

    /// Whether nothing is in the gate.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests that wait for the scheduler.
    pub fn queued(&self) -> usize {
        self.pending.queued
    }

    /// Dispatches in service.
    pub fn in_service(&self) -> u32 {
        self.service.len()
    }

    /// Targets that the layouts know of.
    pub fn targets(&self) -> u32 {
        self.pending.targets
    }

    /// The settings in force.
    pub fn config(&self) -> &GateConfig {
        &self.config
    }

    /// The algorithm in force.
    pub fn scheduler(&self) -> &SchedulerConfig {
        &self.config.scheduler
    }

    /// Gives a file a layout of its own, or takes it away. Holds for requests submitted from now on.
    pub fn set_layout(&mut self, file: FileId, layout: Option<Arc<FileLayout>>) {
        match layout {
            Some(layout) => {
                self.pending.targets = self.pending.targets.max(layout.targets());
                self.layouts.insert(file, layout);
            }
            None => drop(self.layouts.remove(&file)),
        }
    }

    /// Tells the gate what the device charges; outlives changes of the algorithm. Until then nothing is known, and priced waits
    /// are none.
    pub fn set_prices(&mut self, prices: Prices) {
        self.pending.prices = prices;
        self.account_prices(&prices);
        if let Some(admission) = &mut self.admission {
            admission.set_prices(&prices);
        }
    }

    /// What the device charges, as far as the gate was told.
    pub fn prices(&self) -> &Prices {
        &self.pending.prices
    }

    /// What it has counted so far.
    pub fn stats(&self) -> &Stats {
        &self.pending.stats
    }

    /// Bytes of memory in use for requests and their order; statistics and layouts come on top.
    pub fn allocated_bytes(&self) -> usize {
        let admission = self.admission.as_ref().map_or(0, |admission| admission.allocated_bytes());
        self.pending.allocated_bytes()
            + self.service.allocated_bytes()
            + self.scheduler.allocated_bytes()
            + admission
            + self.accounts_bytes()
    }

    #[inline]
    fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        if self.edge < Time::MAX || self.blame.is_some() {
            self.account_up_to_now();
        }
        self.now
    }

    /// Apart, so that those without accounts pay nothing for them.
    #[cold]
    #[inline(never)]
    fn account_up_to_now(&mut self) {
        self.account_until(self.now);
    }

    /// The scheduler waits, and the policy may have something earlier. What the scheduler has waits for nothing of the policy's, unless it
    /// keeps a slot free beside that.
    fn wait_for_either(
        &mut self,
        now: Time,
        waits: (Time, WaitReason),
        admits_at: Option<(Time, WaitReason)>,
    ) -> Decision {
        let (until, reason) = match admits_at.filter(|(at, _)| *at < waits.0) {
            Some((at, kept)) if kept == WaitReason::Share && self.keeps_slot() => (at, kept),
            Some((at, _)) => (at, waits.1),
            None => waits,
        };
        self.wait_until(now, Some((until, reason)))
    }

    fn keeps_slot(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| admission.keeps_slot())
    }

    /// There is nothing to do until then, or until something happens.
    #[inline]
    fn wait_until(&mut self, now: Time, until: Option<(Time, WaitReason)>) -> Decision {
        self.account_rest(now, until.map(|(_, reason)| reason));
        let Some((until, reason)) = until else {
            self.end_wait(now);
            return Decision::Idle;
        };
        if self.wait.is_none_or(|(_, ongoing)| ongoing != reason) {
            self.end_wait(now);
            self.wait = Some((now, reason));
        }
        Decision::WaitUntil(until, reason)
    }

    fn end_wait(&mut self, now: Time) {
        if let Some((since, reason)) = self.wait.take() {
            let waits = &mut self.pending.stats.waits[reason as usize];
            waits.count += 1;
            waits.total += now.since(since);
        }
    }

    /// Lets a new request run, or holds it back.
    fn admit(&mut self, now: Time, slot: SlotId) {
        match self.blocker(slot) {
            None => self.enter(now, slot),
            Some(blocker) => {
                let (earlier, later) = (self.blocker_op(blocker), self.pending.slot(slot).op);
                self.pending.slot_mut(slot).conflict = Conflict::of(earlier, later) as u8;
                self.pending.hold(slot);
                self.wait_for(now, slot, blocker);
            }
        }
    }

    fn enqueue(&mut self, now: Time, slot: SlotId) {
        let this = self.pending.slot_mut(slot);
        (this.flags, this.prev, this.next) = (0, NONE, NONE);
        self.pending.enqueue(slot);
        self.account(now, slot, Place::Queued);
        self.scheduler.insert(now, slot, &mut self.pending);
    }

    /// Something that must complete before this request may run. It waits for one at a time, and looks again when
    /// that has completed; the ones that complete last are found first.
    fn blocker(&self, slot: SlotId) -> Option<Blocker> {
        let waiting = self.pending.blocker(slot).map(Blocker::Request);
        waiting
            .or_else(|| self.service.blocker(self.pending.slot(slot), &self.pending).map(Blocker::Dispatch))
    }

    fn blocker_op(&self, blocker: Blocker) -> Op {
        match blocker {
            Blocker::Request(slot) => self.pending.slot(slot).op,
            Blocker::Dispatch(id) => self.service.op(id),
        }
    }

    fn wait_for(&mut self, now: Time, slot: SlotId, blocker: Blocker) {
        self.pending.slot_mut(slot).prev = match blocker {
            Blocker::Request(blocker) => blocker,
            Blocker::Dispatch(_) => NONE,
        };
        self.mark_awaited(now, slot);
        self.account_hold(now, slot, blocker);
        let waiters = match blocker {
            Blocker::Request(blocker) => &mut self.pending.slot_mut(blocker).waiters,
            Blocker::Dispatch(id) => self.service.waiters(id),
        };
        let next = core::mem::replace(waiters, slot);
        self.pending.slot_mut(slot).next = next;
    }
}

#[derive(Clone, Copy)]
enum Blocker {
    Request(SlotId),
    Dispatch(DispatchId),
}
