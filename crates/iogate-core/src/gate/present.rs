//! What is in a gate at a moment, for whoever thinks through what could be done with it.

use alloc::vec::Vec;

use super::Gate;
use crate::queue::{SlotId, State};
use crate::request::{AppId, FileId, Op, RequestId};
use crate::time::Time;

/// One request (or one piece of a split one) that is in a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The driver's name for it.
    pub id: RequestId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// The application that it belongs to.
    pub app: AppId,
    /// When it came.
    pub arrival: Time,
    /// Since when it has been in service, if it is.
    pub in_service: Option<Time>,
}

impl Gate {
    /// At most `most` requests that are in the gate: those in service first, each dispatch in offset order, then the others in
    /// arrival order. O(n).
    pub fn present(&self, most: usize) -> Vec<Present> {
        let mut present = Vec::with_capacity(self.len().min(most));
        self.service.for_each(&self.pending, |began, slot| {
            if present.len() < most {
                present.push(self.present_slot(slot, Some(began)));
            }
        });
        // Places are taken again: the one before in the list need not be the one before in service. Stable, for the parts of a dispatch.
        present.sort_by_key(|present| present.in_service);
        let mut waiting = self.pending.slots_in(&[State::Queued, State::Held, State::Deferred]);
        let room = most - present.len();
        let by_arrival = |slot: &SlotId| self.pending.slot(*slot).seq;
        if room < waiting.len() {
            // Under the gate's lock: what is not wanted need not be sorted.
            waiting.select_nth_unstable_by_key(room, by_arrival);
            waiting.truncate(room);
        }
        waiting.sort_unstable_by_key(by_arrival);
        present.extend(waiting.into_iter().map(|slot| self.present_slot(slot, None)));
        present
    }

    fn present_slot(&self, slot: SlotId, in_service: Option<Time>) -> Present {
        let slot = self.pending.slot(slot);
        let file = self.pending.files[slot.file as usize].id;
        let (id, op, offset, bytes, app, arrival) =
            (slot.id, slot.op, slot.offset, slot.bytes, slot.app, slot.arrival);
        Present { id, file, op, offset, bytes, app, arrival, in_service }
    }
}
