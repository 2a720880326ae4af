//! Memory of data underway: page-aligned, in a few sizes, used again, and never more than the server may use.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::wire::PAYLOAD_BYTES_MAX;
use iogate_engine::{PAGE_BYTES, PageMemory};

/// Sizes are powers of four, from one page to the largest payload.
const CLASSES: usize = 7;
const _: () = assert!(class_bytes(CLASSES - 1) == PAYLOAD_BYTES_MAX as usize);

const fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << (2 * class)
}

/// The memory for data underway.
pub(super) struct Pool {
    classes: [Mutex<Class>; CLASSES],
    used: AtomicUsize,
    max: usize,
    /// Somebody has found no room.
    short: AtomicBool,
    /// Called when there is room again.
    room: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Class {
    kept: Vec<PageMemory>,
    /// The fewest that were kept since the last [`Pool::trim`].
    spare: usize,
}

impl Pool {
    /// A pool of at most `max` bytes, and of one buffer of any size. It calls `room` when a buffer comes back after
    /// one was not to be had.
    pub(super) fn new(max: usize, room: impl Fn() + Send + Sync + 'static) -> Arc<Pool> {
        let (used, short) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Pool { classes: Default::default(), used, max, short, room: Box::new(room) })
    }

    /// A buffer for `bytes` bytes, at most [`PAYLOAD_BYTES_MAX`]; `None` when there is no room: `room` will be called.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        let class = (0..CLASSES).find(|&class| bytes <= class_bytes(class))?;
        if !self.reserve(class_bytes(class)) {
            self.ask_for_room();
            // What came back before that was seen calls nobody.
            if !self.reserve(class_bytes(class)) {
                return None;
            }
        }
        let mut kept = self.classes[class].lock().unwrap_or_else(PoisonError::into_inner);
        let memory = kept.kept.pop();
        kept.spare = kept.spare.min(kept.kept.len());
        drop(kept);
        let memory = memory.unwrap_or_else(|| PageMemory::new(class_bytes(class)));
        Some(Buffer { memory: Some(memory), class, pool: Arc::clone(self) })
    }

    fn reserve(&self, bytes: usize) -> bool {
        let fits = |used| (used == 0 || used + bytes <= self.max).then_some(used + bytes);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Has `room` called when the next buffer comes back.
    pub(super) fn ask_for_room(&self) {
        self.short.store(true, Ordering::SeqCst);
    }

    /// Whether `room` has been called since somebody found no room.
    pub(super) fn has_room(&self) -> bool {
        !self.short.load(Ordering::SeqCst)
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Frees what has not been needed since this was called before.
    pub(super) fn trim(&self) {
        for class in &self.classes {
            let mut class = class.lock().unwrap_or_else(PoisonError::into_inner);
            let spare = class.spare.min(class.kept.len());
            let rest = class.kept.len() - spare;
            let freed = class.kept.split_off(rest);
            class.kept.shrink_to_fit();
            class.spare = rest;
            drop(class);
            drop(freed);
        }
    }
}

/// A piece of page-aligned memory that goes back to its pool when dropped.
pub(super) struct Buffer {
    memory: Option<PageMemory>,
    class: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    fn memory(&mut self) -> &mut PageMemory {
        self.memory.as_mut().expect("there until dropped")
    }

    /// The first byte.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory().as_mut_ptr()
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.memory.as_ref().expect("there until dropped").as_slice()
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory().as_mut_slice()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = self.memory.take().expect("dropped once");
        let bytes = memory.bytes();
        self.pool.classes[self.class].lock().unwrap_or_else(PoisonError::into_inner).kept.push(memory);
        self.pool.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.pool.short.load(Ordering::SeqCst) && self.pool.short.swap(false, Ordering::SeqCst) {
            (self.pool.room)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_allowed_is_used_and_room_is_told() {
        let told = Arc::new(AtomicUsize::new(0));
        let tell = Arc::clone(&told);
        let pool = Pool::new(3 * PAGE_BYTES, move || {
            tell.fetch_add(1, Ordering::SeqCst);
        });
        let large = pool.take(1 << 20).expect("one of any size");
        assert!(pool.take(1).is_none());
        drop(large);
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let three: Vec<_> = (0..3).map(|_| pool.take(PAGE_BYTES).unwrap()).collect();
        assert!(pool.take(1).is_none());
        assert_eq!(pool.used(), 3 * PAGE_BYTES);
        drop(three);
        assert_eq!((told.load(Ordering::SeqCst), pool.used()), (2, 0));
        drop(pool.take(1));
        assert_eq!(told.load(Ordering::SeqCst), 2, "nobody waits");
    }

    #[test]
    fn what_is_not_needed_is_freed() {
        let pool = Pool::new(1 << 20, || {});
        drop([pool.take(1), pool.take(1), pool.take(1)]);
        let kept = || pool.classes[0].lock().unwrap().kept.len();
        pool.trim();
        assert_eq!(kept(), 3, "in use just now");
        drop(pool.take(1));
        pool.trim();
        assert_eq!(kept(), 1);
        pool.trim();
        assert_eq!(kept(), 0);
    }
}
