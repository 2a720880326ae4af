//! What is in the gate: requests in slots, files, and per file and operation the requests that may run now, in
//! offset order. Schedulers decide on top of this; they keep no copy of it.

use alloc::vec::Vec;

use super::range_index::{Arena, Cursor, Key, Neighbours, RangeIndex};
use crate::hash::HashMap;
use crate::layout::TARGETS_MAX;
use crate::request::{AppId, FileId, Op, Request, RequestId};
use crate::sched::Prices;
use crate::stats::Stats;
use crate::time::Time;

/// Index of a slot.
pub(crate) type SlotId = u32;
/// No slot.
pub(crate) const NONE: SlotId = u32::MAX;
/// Of `Slot::flags`, before the scheduler has it: another application's request waits for it, or for one that waits for it.
pub(crate) const AWAITED: u8 = 1;
/// The same: a read that is deferred, and that no write is to find (see [`unsought`](super::unsought)).
pub(super) const UNSOUGHT: u8 = 2;
/// Idle files whose history (last offsets, quanta) is kept.
const IDLE_FILES_MAX: usize = 4096;

/// The requests of one file and one operation that may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId(pub(crate) u32);

impl QueueId {
    pub(crate) fn new(file: u32, op: Op) -> QueueId {
        QueueId(file * 2 + op as u32)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn file(self) -> usize {
        self.0 as usize / 2
    }

    pub(crate) fn op(self) -> Op {
        if self.0.is_multiple_of(2) { Op::Read } else { Op::Write }
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is free.
    Free,
    /// Waits for an earlier, conflicting request.
    Held,
    /// May run, and the policy has not admitted it yet.
    Deferred,
    /// May run; the scheduler has it.
    Queued,
    /// In a dispatch.
    Taken,
}

/// One request, or one stripe piece of a split one: one cache line, as each step of its way touches it. Its size bounds what a queued
/// request costs.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) id: RequestId,
    pub(crate) offset: u64,
    /// Arrival number: never used twice.
    pub(crate) seq: u64,
    pub(crate) arrival: Time,
    pub(crate) bytes: u32,
    pub(crate) file: u32,
    pub(crate) app: AppId,
    pub(crate) target: u16,
    /// Of what a policy divides among.
    pub(crate) class: u16,
    /// Links of the one list that the slot is in: free slots, the scheduler's, a blocker's waiters, its class's, a dispatch. Of one that is
    /// held, `prev` is the request that it waits for; none, if that is a dispatch.
    pub(crate) prev: SlotId,
    pub(crate) next: SlotId,
    /// The first of the requests that wait for this one.
    pub(crate) waiters: SlotId,
    pub(crate) op: Op,
    pub(crate) state: State,
    /// The scheduler's own flags; before it has it, [`AWAITED`], [`UNSOUGHT`] or nothing.
    pub(crate) flags: u8,
    /// Which kind of conflict held it back; meaningless otherwise.
    pub(crate) conflict: u8,
}

/// What few ask for.
#[derive(Clone, Copy, Debug)]
struct Aside {
    /// `Time::MAX` where the client did not say.
    issued: Time,
    /// The scheduler's own word; before it has it, until when no cap gives way to it, in nanoseconds (0: one does, or need not). Of one
    /// that is [`UNSOUGHT`], its links.
    note: u64,
}

const _: () = assert!(
    size_of::<Slot>() + size_of::<Aside>() <= 80,
    "a queued request costs at most 128 bytes, its tree entry included"
);
const _: () = assert!(TARGETS_MAX <= 1 << 16, "a target fits its slot");

impl Slot {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }

    pub(crate) fn key(&self) -> Key {
        Key { offset: self.offset, seq: self.seq }
    }

    pub(crate) fn queue(&self) -> QueueId {
        QueueId::new(self.file, self.op)
    }
}

/// A file that has requests in the gate, or had some recently.
pub(crate) struct File {
    pub(crate) id: FileId,
    /// Requests that may run, by operation.
    pub(crate) queued: [RangeIndex; 2],
    /// Requests that are held back, by operation.
    pub(crate) held: [RangeIndex; 2],
    /// Requests in the gate, and how many of them write.
    pub(crate) requests: u32,
    pub(super) writes: u32,
    /// The last of its deferred reads that no write is to find.
    pub(super) unsought: SlotId,
    /// First of its dispatches in service.
    pub(crate) in_service: u32,
    /// End of the last dispatch, by operation, once there was one.
    pub(crate) last_end: [Option<u64>; 2],
    idle_prev: u32,
    idle_next: u32,
}

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunCap {
    pub(crate) bytes: u64,
    pub(crate) requests: u32,
}

/// A chain of queued requests, each starting where the one before it ends; its slots are in `Pending::run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: SlotId,
    pub(crate) last: SlotId,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) requests: u32,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Everything in the gate.
pub(crate) struct Pending {
    slots: Vec<Slot>,
    /// Beside each slot.
    asides: Vec<Aside>,
    free: SlotId,
    arena: Arena,
    pub(crate) files: Vec<File>,
    file_of: HashMap<FileId, u32>,
    free_files: Vec<u32>,
    /// Idle files, least recently used first.
    idle: (u32, u32),
    idle_files: usize,
    /// Requests in slots.
    pub(crate) len: usize,
    /// Requests that the scheduler has.
    pub(crate) queued: usize,
    /// The slots of the run walked last.
    pub(crate) run: Vec<SlotId>,
    /// Whether a queued request may begin where the run walked last ends.
    pub(crate) run_goes_on: bool,
    /// The dispatch being put together.
    pub(crate) taken: Vec<SlotId>,
    /// The neighbours of the request enqueued last.
    pub(crate) near: Neighbours,
    /// The number of targets that the layouts know of.
    pub(crate) targets: u32,
    /// Most dispatches in service at once, and how many there are when the scheduler is asked.
    pub(crate) depth: u32,
    pub(crate) in_service: u32,
    /// What the device charges.
    pub(crate) prices: Prices,
    pub(crate) stats: Stats,
}

impl Pending {
    pub(crate) fn new() -> Pending {
        Pending {
            slots: Vec::new(),
            asides: Vec::new(),
            free: NONE,
            arena: Arena::default(),
            files: Vec::new(),
            file_of: HashMap::default(),
            free_files: Vec::new(),
            idle: (NONE, NONE),
            idle_files: 0,
            len: 0,
            queued: 0,
            run: Vec::new(),
            run_goes_on: false,
            taken: Vec::new(),
            near: Neighbours { before: None, after: None },
            targets: 1,
            depth: 1,
            in_service: 0,
            prices: Prices::default(),
            stats: Stats::default(),
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.asides.capacity() * size_of::<Aside>()
            + self.files.capacity() * size_of::<File>()
            + self.file_of.allocation_size()
            + self.arena.allocated_bytes()
            + (self.run.capacity() + self.taken.capacity() + self.free_files.capacity()) * size_of::<u32>()
    }

    /// Makes room for so many requests.
    pub(crate) fn reserve(&mut self, requests: usize) {
        self.slots.reserve(requests);
        self.asides.reserve(requests);
        self.arena.reserve(requests);
    }

    #[inline]
    pub(crate) fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, slot: SlotId) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// The slots that the scheduler has, in arrival order. For a change of scheduler.
    pub(crate) fn queued_by_arrival(&self) -> Vec<SlotId> {
        let mut slots = self.slots_in(&[State::Queued]);
        slots.sort_unstable_by_key(|&slot| self.slot(slot).seq);
        slots
    }

    /// The slots in one of these states, in no order that means anything.
    pub(crate) fn slots_in(&self, states: &[State]) -> Vec<SlotId> {
        (0..self.slots.len() as u32).filter(|&slot| states.contains(&self.slot(slot).state)).collect()
    }

    /// The same, where no more than so many slots are to be looked at; they are never fewer than the most requests that were here at once.
    pub(crate) fn slots_in_at_most(&self, states: &[State], most: usize) -> Option<Vec<SlotId>> {
        (self.slots.len() <= most).then(|| self.slots_in(states))
    }

    // ---- files -------------------------------------------------------------------------------------------

    /// The file's record, a new one if need be.
    pub(crate) fn open(&mut self, id: FileId) -> u32 {
        if let Some(&file) = self.file_of.get(&id) {
            return file;
        }
        let fresh = File {
            id,
            queued: [RangeIndex::default(); 2],
            held: [RangeIndex::default(); 2],
            requests: 0,
            writes: 0,
            unsought: NONE,
            in_service: NONE,
            last_end: [None; 2],
            idle_prev: NONE,
            idle_next: NONE,
        };
        let file = match self.free_files.pop() {
            Some(file) => {
                self.files[file as usize] = fresh;
                file
            }
            None => {
                self.files.push(fresh);
                self.files.len() as u32 - 1
            }
        };
        self.file_of.insert(id, file);
        self.idle_push(file);
        file
    }

    /// Gives up the record of the least recently used idle file, if there are more of them than are kept.
    pub(crate) fn evict_idle(&mut self) -> Option<u32> {
        if self.idle_files <= IDLE_FILES_MAX {
            return None;
        }
        let file = self.idle.0;
        self.idle_unlink(file);
        self.file_of.remove(&self.files[file as usize].id);
        self.free_files.push(file);
        Some(file)
    }

    fn idle_push(&mut self, file: u32) {
        let tail = self.idle.1;
        let record = &mut self.files[file as usize];
        (record.idle_prev, record.idle_next) = (tail, NONE);
        match self.files.get_mut(tail as usize) {
            Some(tail) => tail.idle_next = file,
            None => self.idle.0 = file,
        }
        self.idle.1 = file;
        self.idle_files += 1;
    }

    fn idle_unlink(&mut self, file: u32) {
        let (prev, next) = (self.files[file as usize].idle_prev, self.files[file as usize].idle_next);
        match self.files.get_mut(prev as usize) {
            Some(prev) => prev.idle_next = next,
            None => self.idle.0 = next,
        }
        match self.files.get_mut(next as usize) {
            Some(next) => next.idle_prev = prev,
            None => self.idle.1 = prev,
        }
        self.idle_files -= 1;
    }

    // ---- slots -------------------------------------------------------------------------------------------

    /// Puts a piece of a request into a slot.
    pub(crate) fn add(
        &mut self,
        now: Time,
        request: &Request,
        file: u32,
        seq: u64,
        piece: (u64, u32, u32),
    ) -> SlotId {
        let (offset, bytes, target) = piece;
        let slot = Slot {
            id: request.id,
            offset,
            seq,
            arrival: now,
            bytes,
            file,
            app: request.app,
            target: target as u16,
            class: 0,
            prev: NONE,
            next: NONE,
            waiters: NONE,
            op: request.op,
            state: State::Held,
            flags: 0,
            conflict: 0,
        };
        if self.files[file as usize].requests == 0 {
            self.idle_unlink(file);
        }
        self.files[file as usize].requests += 1;
        if request.op == Op::Write {
            self.writes_more(file);
        }
        self.len += 1;
        let aside = Aside { issued: request.issued.unwrap_or(Time::MAX), note: 0 };
        if self.free == NONE {
            self.slots.push(slot);
            self.asides.push(aside);
            return self.slots.len() as u32 - 1;
        }
        let index = self.free;
        self.free = self.slot(index).next;
        self.slots[index as usize] = slot;
        self.asides[index as usize] = aside;
        index
    }

    /// When a request was issued, by its client's clock; `Time::MAX` where it did not say.
    pub(crate) fn issued(&self, slot: SlotId) -> Time {
        self.asides[slot as usize].issued
    }

    /// What a scheduler keeps with a request; admission, before the request is the scheduler's.
    pub(crate) fn note(&self, slot: SlotId) -> u64 {
        self.asides[slot as usize].note
    }

    pub(crate) fn set_note(&mut self, slot: SlotId, note: u64) {
        self.asides[slot as usize].note = note;
    }

    /// Frees a slot.
    pub(crate) fn release(&mut self, slot: SlotId) {
        debug_assert_eq!(self.slot(slot).state, State::Taken, "only a dispatched request is freed");
        let free = self.free;
        let freed = self.slot_mut(slot);
        (freed.state, freed.next) = (State::Free, free);
        let (file, op) = (freed.file, freed.op);
        self.free = slot;
        self.len -= 1;
        self.files[file as usize].requests -= 1;
        self.files[file as usize].writes -= u32::from(op == Op::Write);
        if self.files[file as usize].requests == 0 {
            self.idle_push(file);
        }
    }

    /// Lets a request run: puts it into its queue.
    pub(crate) fn enqueue(&mut self, slot: SlotId) {
        self.slots[slot as usize].state = State::Queued;
        self.queued += 1;
        let Slot { bytes, file, op, .. } = self.slots[slot as usize];
        let (key, slots) = (self.slots[slot as usize].key(), &self.slots);
        let tree = &mut self.files[file as usize].queued[op as usize];
        self.near = self.arena.insert(tree, key, bytes, slot, |s| slots[s as usize].seq);
    }

    /// Takes a request out of its queue, into the dispatch being put together.
    pub(crate) fn take(&mut self, slot: SlotId) {
        debug_assert_eq!(self.slot(slot).state, State::Queued, "only a queued request can be taken");
        let (key, slots) = (self.slots[slot as usize].key(), &self.slots);
        let Slot { file, op, .. } = self.slots[slot as usize];
        let tree = &mut self.files[file as usize].queued[op as usize];
        self.arena.remove(tree, key, slot, |s| slots[s as usize].seq);
        let taken = &mut self.slots[slot as usize];
        (taken.state, taken.prev, taken.next) = (State::Taken, NONE, NONE);
        self.queued -= 1;
        self.taken.push(slot);
    }

    /// Empties all queues, for a change of scheduler; the slots stay.
    pub(crate) fn clear_queues(&mut self) {
        for file in &mut self.files {
            for tree in &mut file.queued {
                self.arena.clear(tree);
            }
        }
        self.queued = 0;
    }

    /// Marks a request as held back.
    pub(crate) fn hold(&mut self, slot: SlotId) {
        let (key, slots) = (self.slots[slot as usize].key(), &self.slots);
        let Slot { bytes, file, op, .. } = self.slots[slot as usize];
        let tree = &mut self.files[file as usize].held[op as usize];
        self.arena.insert(tree, key, bytes, slot, |s| slots[s as usize].seq);
    }

    /// The opposite of `hold`.
    pub(crate) fn unhold(&mut self, slot: SlotId) {
        let (key, slots) = (self.slots[slot as usize].key(), &self.slots);
        let Slot { file, op, .. } = self.slots[slot as usize];
        let tree = &mut self.files[file as usize].held[op as usize];
        self.arena.remove(tree, key, slot, |s| slots[s as usize].seq);
    }

    /// A request, queued or held back, that arrived before `slot`, overlaps it and conflicts with it. Held ones
    /// first: they are the last to complete.
    pub(crate) fn blocker(&self, slot: SlotId) -> Option<SlotId> {
        let this = self.slot(slot);
        let file = &self.files[this.file as usize];
        let (offset, end, seq) = (this.offset, this.end(), this.seq);
        let ops: &[usize] = if this.op == Op::Write { &[1, 0] } else { &[1] };
        let trees = ops.iter().map(|&op| &file.held[op]).chain(ops.iter().map(|&op| &file.queued[op]));
        trees
            .filter(|tree| !tree.is_empty())
            .find_map(|tree| self.arena.overlap(tree, offset, end, seq, |s| self.slot(s).seq))
    }

    // ---- queues ------------------------------------------------------------------------------------------

    fn tree(&self, queue: QueueId) -> &RangeIndex {
        &self.files[queue.file()].queued[queue.op() as usize]
    }

    fn place(&self, queue: QueueId, key: Key) -> Cursor {
        self.arena.seek(self.tree(queue), key, |s| self.slot(s).seq)
    }

    /// The first request of a queue in offset order.
    pub(crate) fn first(&self, queue: QueueId) -> Option<SlotId> {
        self.arena.first(self.tree(queue))
    }

    /// The request of a queue that begins at `offset`; the one that arrived first, where there are several.
    pub(crate) fn starting_at(&self, queue: QueueId, offset: u64) -> Option<SlotId> {
        let found = self.arena.at(self.place(queue, Key { offset, seq: 0 }));
        found.filter(|(start, ..)| *start == offset).map(|(.., slot)| slot)
    }

    /// Walks the run that begins at `first`: the next request in offset order joins as long as it starts where the
    /// one before it ends and the caps allow. The slots are left in `self.run`.
    pub(crate) fn walk(&mut self, first: SlotId, cap: RunCap) -> Run {
        let Slot { offset, bytes, .. } = *self.slot(first);
        let place = self.place(self.slot(first).queue(), self.slot(first).key());
        self.walk_from(place, (offset, bytes, first), cap)
    }

    /// The same as a walk along a run of one request, if that is known.
    pub(crate) fn note_run_of_one(&mut self, slot: SlotId, goes_on: bool) {
        self.run.clear();
        self.run.push(slot);
        self.run_goes_on = goes_on;
    }

    /// Walks the first run of a queue.
    pub(crate) fn walk_first(&mut self, queue: QueueId, cap: RunCap) -> Option<Run> {
        let place = self.arena.begin(self.tree(queue));
        let first = self.arena.at(place)?;
        Some(self.walk_from(place, first, cap))
    }

    fn walk_from(&mut self, mut cursor: Cursor, first: (u64, u32, SlotId), cap: RunCap) -> Run {
        let (offset, bytes, first) = first;
        let mut run = Run { first, last: first, offset, bytes: u64::from(bytes), requests: 1 };
        self.run.clear();
        self.run.push(first);
        self.run_goes_on = true;
        while run.requests < cap.requests {
            cursor = self.arena.forward(cursor);
            let Some((offset, bytes, slot)) = self.arena.at(cursor).filter(|next| next.0 <= run.end()) else {
                self.run_goes_on = false;
                break;
            };
            if offset != run.end() || run.bytes + u64::from(bytes) > cap.bytes {
                break;
            }
            run.last = slot;
            run.bytes += u64::from(bytes);
            run.requests += 1;
            self.run.push(slot);
        }
        run
    }

    /// Walks the run that `slot` is in: looking back from it first, then on, within the caps. The slots are left in `self.run`.
    pub(crate) fn walk_around(&mut self, slot: SlotId, cap: RunCap) -> Run {
        let Slot { offset, bytes, .. } = *self.slot(slot);
        let (mut first, mut run_bytes, mut requests) = ((offset, bytes, slot), u64::from(bytes), 1);
        let mut place = self.place(self.slot(slot).queue(), self.slot(slot).key());
        while requests < cap.requests {
            let back = self.arena.back(place);
            let Some(before) = self.arena.at(back) else { break };
            let bytes = u64::from(before.1);
            if before.0 + bytes != first.0 || run_bytes + bytes > cap.bytes {
                break;
            }
            (place, first) = (back, before);
            run_bytes += bytes;
            requests += 1;
        }
        self.walk_from(place, first, cap)
    }

    /// Takes the run walked last; `leave` is told of each request before it goes.
    pub(crate) fn take_run(&mut self, mut leave: impl FnMut(&mut Pending, SlotId)) {
        for index in 0..self.run.len() {
            let slot = self.run[index];
            leave(self, slot);
            self.take(slot);
        }
    }
}
