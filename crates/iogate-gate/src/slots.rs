//! The requests in an engine, found without a lock: who brings them in writes a slot, who carries one out reads it, who completes it
//! frees it.
//!
//! A slot's word says its generation and its state; which are free is the intake's to know, which gives out handles before anything is
//! in their slots: who submits touches none. Blocks of slots are made as they are needed, and stay where they are.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::slab::after;
use crate::types::CDone;

/// Slots of a block.
const BLOCK: usize = 1024;

/// Nothing is in it, or not yet.
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

/// In a line of the cache of its own.
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

    /// The handle of the first request in a slot.
    pub(crate) fn first(index: u32) -> u64 {
        1 << 32 | u64::from(index)
    }

    /// The handle of the request in a slot, or, where that is free, of the next one.
    pub(crate) fn handle(&self, index: u32) -> u64 {
        let generation = self.slot(index).word.load(Ordering::Relaxed) >> 32;
        generation << 32 | u64::from(index)
    }

    /// Puts the request of a handle into its slot.
    ///
    /// # Safety
    /// The handle has been given out, this once, and nothing is in its slot yet.
    pub(crate) unsafe fn put(&self, handle: u64, kept: Kept) {
        let (index, generation) = (handle as u32, (handle >> 32) as u32);
        let slot = self.slot(index);
        // SAFETY: the caller's promise: nobody else has it.
        unsafe { *slot.kept.get() = Some(kept) };
        let (free, queued) = (word(generation, FREE), word(generation, QUEUED));
        // Else it has been cancelled on its way.
        let _ = slot.word.compare_exchange(free, queued, Ordering::AcqRel, Ordering::Acquire);
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
        let mut now = slot.word.load(Ordering::Acquire);
        let next = word(after((now >> 32) as u32), FREE);
        if now as u32 == QUEUED {
            // Never handed out: somebody may be about to cancel it.
            now = slot.word.swap(next, Ordering::AcqRel);
        } else {
            slot.word.store(next, Ordering::Release);
        }
        (kept, now as u32 == CANCELLED)
    }

    /// Cancels a request that has not been handed out. `is_on_its_way` says of a handle whether it has been given out and its request is
    /// not over.
    pub(crate) fn cancel(&self, handle: u64, is_on_its_way: impl Fn(u64) -> bool) -> Cancel {
        let (index, generation) = (handle as u32, (handle >> 32) as u32);
        if index as usize / BLOCK >= self.blocks.len() {
            return Cancel::Over;
        }
        let slot = self.slot(index);
        loop {
            let now = slot.word.load(Ordering::Acquire);
            if (now >> 32) as u32 != generation {
                return Cancel::Over;
            }
            match now as u32 {
                CANCELLED => return Cancel::Before,
                BEGUN => return Cancel::Begun,
                FREE if !is_on_its_way(handle) => return Cancel::Over,
                _ => {}
            }
            let cancelled = word(generation, CANCELLED);
            if slot.word.compare_exchange(now, cancelled, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Cancel::Done;
            }
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
        let (index, handle) = (1, Slots::first(1));
        let cancel = |handle| slots.cancel(handle, |_| false);
        // SAFETY: free, and this thread's alone; and below.
        unsafe { slots.put(handle, NOTHING) };
        assert_eq!(cancel(handle), Cancel::Done);
        assert_eq!(cancel(handle), Cancel::Before);
        // SAFETY: in use, by this thread alone; and below.
        unsafe {
            assert!(slots.begin(index).is_none());
            assert!(slots.free(index).1);
        }
        assert_eq!(cancel(handle), Cancel::Over);
        let next = slots.handle(index);
        assert_ne!(next, handle);
        // SAFETY: as above.
        unsafe {
            slots.put(next, NOTHING);
            assert_eq!(slots.begin(index).map(|(handle, _)| handle), Some(next));
            assert_eq!(cancel(next), Cancel::Begun);
            assert_eq!(cancel(handle), Cancel::Over);
            assert!(slots.begin(index).is_some(), "a share that is repeated");
            assert!(!slots.free(index).1);
            // It ends without having been handed out.
            let last = slots.handle(index);
            slots.put(last, NOTHING);
            assert_eq!(cancel(last), Cancel::Done);
            assert!(slots.free(index).1);
        }
        assert_eq!(cancel(u64::MAX), Cancel::Over);
        assert_eq!(cancel(0), Cancel::Over);
    }

    #[test]
    fn a_request_on_its_way_can_be_cancelled_and_one_that_never_was_cannot() {
        let (slots, handle) = (Slots::new(1), Slots::first(0));
        assert_eq!(slots.cancel(handle, |_| false), Cancel::Over);
        assert_eq!(slots.cancel(handle, |_| true), Cancel::Done);
        // SAFETY: free, and this thread's alone; and below.
        unsafe {
            slots.put(handle, NOTHING);
            assert!(slots.begin(0).is_none());
            assert!(slots.free(0).1);
        }
        assert_eq!(slots.cancel(handle, |_| true), Cancel::Over);
    }

    #[test]
    fn who_cancels_while_others_bring_in_and_hand_out_is_told_what_happens() {
        const REQUESTS: usize = 20_000;
        let (slots, given) = (Slots::new(1), AtomicU64::new(0));
        let (said, happened) = std::thread::scope(|scope| {
            let cancels = scope.spawn(|| {
                let cancel = |index: u64| {
                    while given.load(Ordering::Acquire) <= index {
                        std::hint::spin_loop();
                    }
                    slots.cancel((index + 1) << 32, |_| true)
                };
                (0..REQUESTS as u64).map(cancel).collect::<Vec<_>>()
            });
            let mut happened = Vec::new();
            for index in 0..REQUESTS as u64 {
                let handle = slots.handle(0);
                assert_eq!(handle, (index + 1) << 32);
                given.store(index + 1, Ordering::Release);
                // SAFETY: free, and but for cancelling this thread's alone.
                happened.push(unsafe {
                    slots.put(handle, NOTHING);
                    (slots.begin(0).is_some(), slots.free(0).1)
                });
            }
            (cancels.join().unwrap(), happened)
        });
        for (said, (begun, cancelled)) in said.into_iter().zip(happened) {
            assert_eq!((said == Cancel::Done, begun), (cancelled, !cancelled));
        }
    }
}
