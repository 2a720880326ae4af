//! Queued requests in arrival order.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::queue::{NONE, Pending, SlotId, State};
use crate::time::{Span, Time};

/// The slot is in the list's heap, not linked.
const LATE: u8 = 1;
/// Flags from this one on are the scheduler's.
pub(super) const FLAG_FREE: u8 = 2;

/// A list in arrival order through the slots' own links. Requests come in arrival order but for those that were
/// held back: these wait in a small heap beside it, so that each operation stays O(log n).
///
/// The heap may still name requests that have left; they are recognised by their arrival number.
#[derive(Debug)]
pub(super) struct ArrivalList {
    head: SlotId,
    tail: SlotId,
    late: BinaryHeap<Reverse<(u64, SlotId)>>,
}

impl Default for ArrivalList {
    fn default() -> ArrivalList {
        ArrivalList { head: NONE, tail: NONE, late: BinaryHeap::new() }
    }
}

impl ArrivalList {
    /// Adds a queued request.
    pub(super) fn push(&mut self, pending: &mut Pending, slot: SlotId) {
        let seq = pending.slot(slot).seq;
        let tail = self.tail;
        if tail != NONE && pending.slot(tail).seq > seq {
            pending.slot_mut(slot).flags |= LATE;
            self.late.push(Reverse((seq, slot)));
            return;
        }
        let this = pending.slot_mut(slot);
        (this.prev, this.next) = (tail, NONE);
        this.flags &= !LATE;
        self.tail = slot;
        if tail == NONE {
            self.head = slot;
        } else {
            pending.slot_mut(tail).next = slot;
        }
    }

    /// Removes a request that is in the list.
    pub(super) fn remove(&mut self, pending: &mut Pending, slot: SlotId) {
        let this = pending.slot_mut(slot);
        if this.flags & LATE != 0 {
            this.flags &= !LATE;
            return;
        }
        let (prev, next) = (this.prev, this.next);
        if prev == NONE {
            self.head = next;
        } else {
            pending.slot_mut(prev).next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            pending.slot_mut(next).prev = prev;
        }
    }

    /// Bytes of memory in use beside the slots.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.late.capacity() * size_of::<Reverse<(u64, SlotId)>>()
    }

    /// The request that arrived first.
    pub(super) fn oldest(&mut self, pending: &Pending) -> Option<SlotId> {
        while let Some(&Reverse((seq, slot))) = self.late.peek() {
            let late = pending.slot(slot);
            if late.seq != seq || late.flags & LATE == 0 || late.state != State::Queued {
                self.late.pop();
            } else if self.head == NONE || seq < pending.slot(self.head).seq {
                return Some(slot);
            } else {
                break;
            }
        }
        (self.head != NONE).then_some(self.head)
    }

    /// The request that arrived first, if it has waited for `age_max`; never, if that is zero.
    pub(super) fn aged(&mut self, age_max: Span, now: Time, pending: &Pending) -> Option<SlotId> {
        let oldest = self.oldest(pending)?;
        let waited = now.since(pending.slot(oldest).arrival);
        (age_max > Span::ZERO && waited >= age_max).then_some(oldest)
    }
}
