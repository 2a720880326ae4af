//! Dispatches in service.

use alloc::vec::Vec;

use super::{Dispatch, DispatchId, Outcome};
use crate::policy::Served;
use crate::queue::{NONE, Pending, QueueId, Slot, SlotId};
use crate::request::{Op, TargetId};
use crate::stats::{Counted, Sums};
use crate::time::Time;

/// The dispatches that the driver is carrying out.
#[derive(Default)]
pub(super) struct Service {
    records: Vec<Record>,
    free: Vec<u32>,
    /// How many of them write.
    writes: u32,
    /// Whether device time is divided among dispatches.
    is_charged: bool,
    /// What a dispatch would have been charged that was in service all the time, in 2^-4 ns, and until when that was added up.
    charge: u64,
    charged_until: Time,
}

/// Of a part of a dispatch that has ended, or several of one class: the class, the requests, and what they took of the device's time.
pub(super) struct Charge {
    pub(super) class: u16,
    pub(super) served: Served,
}

struct Record {
    file: u32,
    op: Op,
    offset: u64,
    end: u64,
    target: TargetId,
    began: Time,
    /// [`Service::charge`] when it began.
    charge: u64,
    /// Its parts.
    counted: Counted,
    /// Its parts, through `Slot::next`; `NONE`: the record is free.
    first: SlotId,
    /// Held requests that overlap it.
    waiters: SlotId,
    /// The file's other dispatches in service.
    prev: u32,
    next: u32,
}

impl Service {
    pub(super) fn len(&self) -> u32 {
        (self.records.len() - self.free.len()) as u32
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>() + self.free.capacity() * size_of::<u32>()
    }

    fn record(&self, id: DispatchId) -> &Record {
        let record = self.records.get(id.0 as usize).filter(|record| record.first != NONE);
        record.expect("a dispatch that is in service")
    }

    /// Puts what the scheduler has taken into service.
    pub(super) fn begin(&mut self, now: Time, pending: &mut Pending) -> Dispatch {
        self.add_charge(now);
        let (first, parts) = (pending.taken[0], pending.taken.len() as u32);
        let Slot { offset, file, app, op, target, .. } = *pending.slot(first);
        let target = TargetId(target.into());
        let mut counted = Counted::NONE;
        let mut next = NONE;
        for index in (0..pending.taken.len()).rev() {
            let this = pending.taken[index];
            let slot = pending.slot_mut(this);
            let waited = now.since(slot.arrival);
            slot.next = core::mem::replace(&mut next, this);
            counted.add(slot.bytes, slot.arrival, waited);
            pending.stats.ops[op as usize].waiting_ns.record(waited.as_nanos());
        }
        let end = offset + counted.bytes;
        let record = Record {
            file,
            op,
            offset,
            end,
            target,
            began: now,
            charge: self.charge,
            counted,
            first,
            waiters: NONE,
            prev: NONE,
            next: pending.files[file as usize].in_service,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.records[id as usize] = record;
                id
            }
            None => {
                self.records.push(record);
                self.free.reserve(self.records.len());
                self.records.len() as u32 - 1
            }
        };
        let file = &mut pending.files[file as usize];
        if let Some(next) = self.records.get_mut(file.in_service as usize) {
            next.prev = id;
        }
        file.in_service = id;
        let last_end = file.last_end[op as usize].replace(end);
        self.writes += u32::from(op == Op::Write);

        let stats = &mut pending.stats.ops[op as usize];
        stats.dispatch_bytes.record(counted.bytes);
        stats.dispatch_requests.record(counted.requests);
        if let Some(last_end) = last_end {
            stats.offset_distance_bytes.record(last_end.abs_diff(offset));
        }
        Dispatch { id: DispatchId(id), file: file.id, op, offset, bytes: counted.bytes, parts, target, app }
    }

    /// The slots of a dispatch, in offset order.
    pub(super) fn slots(&self, id: DispatchId, pending: &Pending) -> impl Iterator<Item = SlotId> {
        core::iter::successors(Some(self.record(id).first), |&slot| {
            Some(pending.slot(slot).next).filter(|next| *next != NONE)
        })
    }

    /// All slots in service, dispatch by dispatch, each with the time when its dispatch began.
    pub(super) fn for_each(&self, pending: &Pending, mut slot: impl FnMut(Time, SlotId)) {
        for (id, record) in self.records.iter().enumerate() {
            if record.first != NONE {
                self.slots(DispatchId(id as u32), pending).for_each(|part| slot(record.began, part));
            }
        }
    }

    /// The dispatches in service.
    pub(super) fn ids(&self) -> impl Iterator<Item = DispatchId> + '_ {
        let records = self.records.iter().zip(0..).filter(|(record, _)| record.first != NONE);
        records.map(|(_, id)| DispatchId(id))
    }

    /// A dispatch's first slot, file, operation, and where it begins and ends.
    pub(super) fn range(&self, id: DispatchId) -> (SlotId, u32, Op, [u64; 2]) {
        let Record { first, file, op, offset, end, .. } = *self.record(id);
        (first, file, op, [offset, end])
    }

    pub(super) fn op(&self, id: DispatchId) -> Op {
        self.record(id).op
    }

    /// The head of the list of requests that wait for this dispatch.
    pub(super) fn waiters(&mut self, id: DispatchId) -> &mut SlotId {
        &mut self.records[id.0 as usize].waiters
    }

    /// A dispatch in service that overlaps this request and conflicts with it. O(dispatches of the file in service).
    pub(super) fn blocker(&self, slot: &Slot, pending: &Pending) -> Option<DispatchId> {
        // Only what writes can hold up a read.
        if slot.op == Op::Read && self.writes == 0 {
            return None;
        }
        let mut id = pending.files[slot.file as usize].in_service;
        while let Some(record) = self.records.get(id as usize) {
            if record.op.conflicts(slot.op) && record.offset < slot.end() && slot.offset < record.end {
                return Some(DispatchId(id));
            }
            id = record.next;
        }
        None
    }

    /// From now on device time is divided among dispatches, or is not.
    pub(super) fn set_charged(&mut self, now: Time, is_charged: bool) {
        (self.is_charged, self.charged_until) = (is_charged, now);
    }

    /// While m dispatches are in service, each is charged the m-th part of the time.
    fn add_charge(&mut self, now: Time) {
        if self.is_charged {
            let since = now.since(core::mem::replace(&mut self.charged_until, now)).as_nanos();
            // Only differences count.
            let each = (since.min(u64::MAX >> 4) << 4) / u64::from(self.len().max(1));
            self.charge = self.charge.wrapping_add(each);
        }
    }

    /// What is to be charged for a dispatch that ends now, shared by bytes. To be asked just before it [ends](Service::end).
    pub(super) fn charges(
        &mut self,
        now: Time,
        id: DispatchId,
        pending: &Pending,
        charges: &mut Vec<Charge>,
    ) {
        self.add_charge(now);
        let Record { charge, counted, began, .. } = *self.record(id);
        let lasted = now.since(began);
        let (took, bytes) = (u128::from(self.charge.wrapping_sub(charge) >> 4), u128::from(counted.bytes));
        for slot in self.slots(id, pending) {
            let &Slot { class, bytes: own, .. } = pending.slot(slot);
            // Most dispatches are one request.
            let is_all = u128::from(own) == bytes;
            let ns = if is_all { took as u64 } else { (took * u128::from(own) / bytes) as u64 };
            match charges.last_mut().filter(|last| last.class == class) {
                Some(Charge { served, .. }) => {
                    served.ns += ns;
                    served.bytes += u64::from(own);
                    served.requests += 1;
                }
                None => {
                    let served = Served { requests: 1, bytes: own.into(), ns, lasted };
                    charges.push(Charge { class, served });
                }
            }
        }
    }

    /// Ends a dispatch: frees its slots, counts it, and collects the requests that waited for it. Returns its queue, and where it ended.
    pub(super) fn end(
        &mut self,
        now: Time,
        id: DispatchId,
        outcome: Outcome,
        pending: &mut Pending,
        released: &mut Vec<SlotId>,
    ) -> (QueueId, u64) {
        let Record { file, op, end, target, began, counted, first, waiters, prev, next, .. } =
            *self.record(id);
        collect(waiters, pending, released);
        let counts_each = !pending.stats.is_sums_only();
        let (mut slot, mut of_app, mut app) = (first, Counted::NONE, pending.slot(first).app);
        while slot != NONE {
            let part = pending.slot(slot);
            let (next, waiters) = (part.next, part.waiters);
            if counts_each {
                let (bytes, arrival, of) = (part.bytes, part.arrival, part.app);
                if of != app {
                    count(pending.stats.apps.sums_of_late(app), &of_app, now, began, op);
                    (app, of_app) = (of, Counted::NONE);
                }
                of_app.add(bytes, arrival, began.since(arrival));
            }
            collect(waiters, pending, released);
            pending.release(slot);
            slot = next;
        }

        if let Some(next) = self.records.get_mut(next as usize) {
            next.prev = prev;
        }
        match self.records.get_mut(prev as usize) {
            Some(prev) => prev.next = next,
            None => pending.files[file as usize].in_service = next,
        }
        self.records[id.0 as usize].first = NONE;
        self.free.push(id.0);
        self.writes -= u32::from(op == Op::Write);

        let queue = QueueId::new(file, op);
        let file = pending.files[file as usize].id;
        let stats = &mut pending.stats;
        if counts_each {
            count(stats.apps.sums_of_late(app), &of_app, now, began, op);
            stats.files.sums(file).add(&counted, now);
            stats.targets.sums(target).add(&counted, now);
        }
        stats.ops[op as usize].service_ns.record(now.since(began).as_nanos());
        stats.ops[op as usize].failed += u64::from(outcome == Outcome::Failed);
        (queue, end)
    }
}

/// Adds what an application has of a dispatch that ends.
fn count(of_app: &mut Sums, part: &Counted, now: Time, began: Time, op: Op) {
    of_app.add(part, now);
    let served = now.since(began).as_nanos().saturating_mul(part.requests);
    let latency = part.waiting.as_nanos().saturating_add(served);
    let [read, written] = match op {
        Op::Read => [part.bytes, 0],
        Op::Write => [0, part.bytes],
    };
    of_app.recent.add(now, [read, written, part.requests, latency]);
}

/// Appends a list of waiting requests.
fn collect(mut slot: SlotId, pending: &Pending, released: &mut Vec<SlotId>) {
    while slot != NONE {
        released.push(slot);
        slot = pending.slot(slot).next;
    }
}
