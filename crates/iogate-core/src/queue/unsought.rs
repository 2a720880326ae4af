//! Deferred requests: where a later one that conflicts is to find them.
//!
//! A request that is held back is in an index of its file, for those that come later and overlap it. But only a write looks for reads, and
//! most files that are read have none in the gate: their deferred reads are in a list, which costs each of them two links. All of them go
//! into the index when the first write comes, so that each is put there once at most.

use super::pending::{NONE, Pending, SlotId, UNSOUGHT};
use crate::request::Op;

/// Its neighbours in the list.
#[derive(Clone, Copy)]
struct Links {
    newer: SlotId,
    older: SlotId,
}

impl Links {
    fn of(note: u64) -> Links {
        Links { newer: (note >> 32) as SlotId, older: note as SlotId }
    }

    fn note(self) -> u64 {
        u64::from(self.newer) << 32 | u64::from(self.older)
    }
}

impl Pending {
    /// The policy defers a request.
    #[inline]
    pub(crate) fn defer(&mut self, slot: SlotId) {
        let this = self.slot_mut(slot);
        let file = this.file as usize;
        if this.op == Op::Write || self.files[file].writes > 0 {
            return self.hold(slot);
        }
        self.slot_mut(slot).flags |= UNSOUGHT;
        let older = core::mem::replace(&mut self.files[file].unsought, slot);
        self.set_note(slot, Links { newer: NONE, older }.note());
        if older != NONE {
            self.link(older, |links| links.newer = slot);
        }
    }

    /// The opposite of `defer`.
    #[inline]
    pub(crate) fn undefer(&mut self, slot: SlotId) {
        let this = self.slot_mut(slot);
        if this.flags & UNSOUGHT == 0 {
            return self.unhold(slot);
        }
        this.flags &= !UNSOUGHT;
        let file = this.file as usize;
        let Links { newer, older } = Links::of(self.note(slot));
        self.set_note(slot, 0);
        match newer {
            NONE => self.files[file].unsought = older,
            newer => self.link(newer, |links| links.older = older),
        }
        if older != NONE {
            self.link(older, |links| links.newer = newer);
        }
    }

    fn link(&mut self, slot: SlotId, change: impl FnOnce(&mut Links)) {
        let mut links = Links::of(self.note(slot));
        change(&mut links);
        self.set_note(slot, links.note());
    }

    /// One more write has come to a file: it is to find all that it conflicts with.
    pub(super) fn writes_more(&mut self, file: u32) {
        let file = file as usize;
        self.files[file].writes += 1;
        let mut slot = core::mem::replace(&mut self.files[file].unsought, NONE);
        while slot != NONE {
            self.slot_mut(slot).flags &= !UNSOUGHT;
            let Links { older, .. } = Links::of(self.note(slot));
            self.set_note(slot, 0);
            self.hold(slot);
            slot = older;
        }
    }
}
