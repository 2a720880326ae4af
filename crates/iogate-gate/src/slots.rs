//! The requests in an engine, found without a lock: who submits writes a slot, who carries it out reads it, who completes it frees it.
//!
//! A slot's word says its generation and its state; which are free is the intake's to know. Blocks of slots are made as they are needed,
//! and stay where they are.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::slab::after;
use crate::types::CDone;

/// Slots of a block.
const BLOCK: usize = 1024;

const FREE: u32 = 0;
const QUEUED: u32 = 1;
const BEGUN: u32 = 2;
const CANCELLED: u32 = 3;

/// What is kept of a request.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) user: *mut c_void,
    pub(crate) memory: *mut c_void,
    pub(crate) done: Option<CDone>,
}

/// In a line of the cache of its own: who submits writes it while who brings in reads others.
#[repr(align(64))]
struct Slot {
    /// Its generation above its state.
    word: AtomicU64,
    kept: UnsafeCell<Option<Kept>>,
}

// SAFETY: `kept` is written while the slot is in nobody else's hands, and read between then and when it is freed; the engine's lock
// is in between. The pointers are the program's.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

/// Whether a request was there to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    Done,
    Before,
    Begun,
    Over,
}

pub(crate) struct Slots {
    blocks: Vec<OnceLock<Box<[Slot]>>>,
}

impl Slots {
    /// Slots for at most so many requests.
    pub(crate) fn new(max: u32) -> Slots {
        let blocks = (max as usize).div_ceil(BLOCK);
        Slots { blocks: (0..blocks).map(|_| OnceLock::new()).collect() }
    }

    fn slot(&self, index: u32) -> &Slot {
        let block = self.blocks[index as usize / BLOCK].get_or_init(|| {
            let slot = |_| Slot { word: AtomicU64::new(word(1, FREE)), kept: UnsafeCell::new(None) };
            (0..BLOCK).map(slot).collect()
        });
        &block[index as usize % BLOCK]
    }

    /// Puts a request into a slot, and returns its handle.
    ///
    /// # Safety
    /// The slot is free, and nobody else's to fill.
    pub(crate) unsafe fn put(&self, index: u32, kept: Kept) -> u64 {
        let slot = self.slot(index);
        // SAFETY: the caller's promise: nobody else has it.
        unsafe { *slot.kept.get() = Some(kept) };
        let generation = (slot.word.load(Ordering::Relaxed) >> 32) as u32;
        slot.word.store(word(generation, QUEUED), Ordering::Release);
        u64::from(generation) << 32 | u64::from(index)
    }

    /// Marks a request as handed out, and returns its handle and what is kept of it; none if it was cancelled.
    ///
    /// # Safety
    /// The slot is in use, and nobody frees it meanwhile.
    pub(crate) unsafe fn begin(&self, index: u32) -> Option<(u64, Kept)> {
        let slot = self.slot(index);
        let now = slot.word.load(Ordering::Acquire);
        let generation = (now >> 32) as u32;
        // A share that is repeated, or the second piece of a request, has begun before.
        if now as u32 == QUEUED {
            let begun = word(generation, BEGUN);
            let _ = slot.word.compare_exchange(now, begun, Ordering::AcqRel, Ordering::Acquire);
        }
        if slot.word.load(Ordering::Acquire) as u32 == CANCELLED {
            return None;
        }
        // SAFETY: in use, and written before the engine had it.
        let kept = unsafe { *slot.kept.get() }?;
        Some((u64::from(generation) << 32 | u64::from(index), kept))
    }

    /// Frees a slot: what was kept, and whether it was cancelled.
    ///
    /// # Safety
    /// The slot is in use, and nobody uses it any more.
    pub(crate) unsafe fn free(&self, index: u32) -> (Option<Kept>, bool) {
        let slot = self.slot(index);
        // SAFETY: nobody else has it.
        let kept = unsafe { (*slot.kept.get()).take() };
        // Who cancels may still change the state, but not after this.
        let before = slot.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            Some(word(after((now >> 32) as u32), FREE))
        });
        (kept, before.is_ok_and(|before| before as u32 == CANCELLED))
    }

    /// Cancels a request that has not been handed out.
    pub(crate) fn cancel(&self, handle: u64) -> Cancel {
        let (index, generation) = (handle as u32, (handle >> 32) as u32);
        let Some(block) = self.blocks.get(index as usize / BLOCK).and_then(OnceLock::get) else {
            return Cancel::Over;
        };
        let (queued, cancelled) = (word(generation, QUEUED), word(generation, CANCELLED));
        let slot = &block[index as usize % BLOCK];
        match slot.word.compare_exchange(queued, cancelled, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Cancel::Done,
            Err(now) if now == cancelled => Cancel::Before,
            Err(now) if now == word(generation, BEGUN) => Cancel::Begun,
            Err(_) => Cancel::Over,
        }
    }
}

fn word(generation: u32, state: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    const NOTHING: Kept = Kept { user: ptr::null_mut(), memory: ptr::null_mut(), done: None };

    #[test]
    fn a_request_is_handed_out_or_cancelled_and_its_handle_is_not_the_next_ones() {
        let slots = Slots::new(2);
        let index = 1;
        // SAFETY: free, and this thread's alone; and below.
        let handle = unsafe { slots.put(index, NOTHING) };
        assert_eq!(slots.cancel(handle), Cancel::Done);
        assert_eq!(slots.cancel(handle), Cancel::Before);
        // SAFETY: in use, by this thread alone; and below.
        unsafe {
            assert!(slots.begin(index).is_none());
            assert!(slots.free(index).1);
        }
        assert_eq!(slots.cancel(handle), Cancel::Over);
        // SAFETY: as above.
        let next = unsafe { slots.put(index, NOTHING) };
        assert_ne!(next, handle);
        // SAFETY: as above.
        unsafe {
            assert_eq!(slots.begin(index).map(|(handle, _)| handle), Some(next));
            assert_eq!(slots.cancel(next), Cancel::Begun);
            assert_eq!(slots.cancel(handle), Cancel::Over);
            assert!(slots.begin(index).is_some(), "a share that is repeated");
            assert!(!slots.free(index).1);
        }
        assert_eq!(slots.cancel(u64::MAX), Cancel::Over);
        assert_eq!(slots.cancel(0), Cancel::Over);
    }
}
