//! Memory of data underway: page-aligned, in a few sizes, used again, and never more than the server may use, with what is kept to be
//! used again. Of those that share it, each has no more than it leaves free.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use iogate_core::fair_queue::may_take;
use iogate_core::wire::PAYLOAD_BYTES_MAX;
use iogate_engine::{PAGE_BYTES, PageMemory, lock};

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
    /// Bytes that are kept to be used again.
    kept: AtomicUsize,
    max: usize,
    /// Somebody has found no room.
    short: AtomicBool,
    /// Called when there is room again.
    room: Box<dyn Fn() + Send + Sync>,
}

/// What one of those that share a pool has of it.
#[derive(Debug, Default)]
pub(super) struct Share {
    used: AtomicUsize,
}

/// Bytes of a pool that are taken; given back when dropped.
pub(super) struct Charge {
    bytes: usize,
    share: Arc<Share>,
    pool: Arc<Pool>,
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
        let (used, kept, short) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Pool { classes: Default::default(), used, kept, max, short, room: Box::new(room) })
    }

    /// A buffer for `bytes` bytes, at most [`PAYLOAD_BYTES_MAX`]; `None` when there is no room: `room` will be called.
    pub(super) fn take(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Option<Buffer> {
        let class = (0..CLASSES).find(|&class| bytes <= class_bytes(class))?;
        let charge = self.charged(share, class_bytes(class))?;
        let memory = self.take_kept(class).unwrap_or_else(|| {
            self.make_room();
            PageMemory::new(class_bytes(class))
        });
        Some(Buffer { memory: Some(memory), class, charge })
    }

    fn take_kept(&self, class: usize) -> Option<PageMemory> {
        let mut of_class = lock(&self.classes[class]);
        let memory = of_class.kept.pop()?;
        of_class.spare = of_class.spare.min(of_class.kept.len());
        self.kept.fetch_sub(class_bytes(class), Ordering::SeqCst);
        Some(memory)
    }

    /// Keeps memory to be used again, if what is in use, this included, leaves room for what is kept.
    fn keep(&self, class: usize, memory: PageMemory) {
        if self.is_full() {
            return;
        }
        let mut of_class = lock(&self.classes[class]);
        of_class.kept.push(memory);
        self.kept.fetch_add(class_bytes(class), Ordering::SeqCst);
    }

    /// Whether more is in use and kept than the server may use.
    fn is_full(&self) -> bool {
        self.used.load(Ordering::SeqCst) + self.kept.load(Ordering::SeqCst) > self.max
    }

    /// Frees what is kept of other sizes, the largest first, until what is in use fits.
    fn make_room(&self) {
        for class in (0..CLASSES).rev() {
            while self.is_full() && self.take_kept(class).is_some() {}
        }
    }

    /// Takes bytes without the memory: for what is allocated elsewhere. Otherwise as [`Pool::take`].
    pub(super) fn charge(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Option<Charge> {
        let charge = self.charged(share, bytes)?;
        self.make_room();
        Some(charge)
    }

    fn charged(self: &Arc<Self>, share: &Arc<Share>, bytes: usize) -> Option<Charge> {
        if !self.reserve(share, bytes) {
            self.ask_for_room();
            // What came back before that was seen calls nobody.
            if !self.reserve(share, bytes) {
                return None;
            }
        }
        Some(Charge { bytes, share: Arc::clone(share), pool: Arc::clone(self) })
    }

    fn reserve(&self, share: &Share, bytes: usize) -> bool {
        // Two threads of one share may both find room: that much more than its part it may have.
        let own = share.used.load(Ordering::SeqCst);
        let fits = |used| (used == 0 || may_take(own, used, self.max, bytes)).then_some(used + bytes);
        let taken = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok();
        if taken {
            share.used.fetch_add(bytes, Ordering::SeqCst);
        }
        taken
    }

    /// Whether there is room for something small.
    pub(super) fn has_room_for(&self, share: &Share) -> bool {
        let (own, used) = (share.used.load(Ordering::SeqCst), self.used.load(Ordering::SeqCst));
        used == 0 || may_take(own, used, self.max, PAGE_BYTES)
    }

    /// Has `room` called when the next buffer comes back.
    pub(super) fn ask_for_room(&self) {
        self.short.store(true, Ordering::SeqCst);
    }

    /// Whether somebody has found no room, and `room` has not been called since.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::SeqCst)
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Frees what has not been needed since this was called before.
    pub(super) fn trim(&self) {
        for (class, of_class) in self.classes.iter().enumerate() {
            let mut of_class = lock(of_class);
            let spare = of_class.spare.min(of_class.kept.len());
            let rest = of_class.kept.len() - spare;
            let freed = of_class.kept.split_off(rest);
            self.kept.fetch_sub(freed.len() * class_bytes(class), Ordering::SeqCst);
            of_class.kept.shrink_to_fit();
            of_class.spare = rest;
            drop(of_class);
            drop(freed);
        }
    }
}

/// A piece of page-aligned memory that goes back to its pool when dropped.
pub(super) struct Buffer {
    memory: Option<PageMemory>,
    class: usize,
    charge: Charge,
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
        self.charge.pool.keep(self.class, memory);
    }
}

impl Charge {
    /// Gives back what is more than `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        self.give_back(rest);
    }

    fn give_back(&self, bytes: usize) {
        self.share.used.fetch_sub(bytes, Ordering::SeqCst);
        self.pool.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.pool.short.load(Ordering::SeqCst) && self.pool.short.swap(false, Ordering::SeqCst) {
            (self.pool.room)();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.bytes);
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
        let shares: Vec<Arc<Share>> = (0..3).map(|_| Arc::default()).collect();
        let large = pool.take(&shares[0], 1 << 20).expect("one of any size");
        assert!(pool.take(&shares[1], 1).is_none());
        drop(large);
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let three: Vec<_> = shares.iter().map(|share| pool.take(share, PAGE_BYTES).unwrap()).collect();
        assert!(pool.take(&shares[0], 1).is_none());
        assert_eq!(pool.used(), 3 * PAGE_BYTES);
        drop(three);
        assert_eq!((told.load(Ordering::SeqCst), pool.used()), (2, 0));
        drop(pool.take(&shares[0], 1));
        assert_eq!(told.load(Ordering::SeqCst), 2, "nobody waits");
    }

    #[test]
    fn one_leaves_as_much_to_others_as_it_has() {
        let pool = Pool::new(8 * PAGE_BYTES, || {});
        let (greedy, other) = (Arc::default(), Arc::default());
        let mut had: Vec<_> = std::iter::from_fn(|| pool.take(&greedy, 1)).collect();
        assert_eq!(had.len(), 4);
        let mut charge = pool.charge(&other, 2 * PAGE_BYTES).unwrap();
        assert!(pool.charge(&other, 2 * PAGE_BYTES).is_none());
        charge.shrink(PAGE_BYTES);
        assert_eq!(pool.used(), 5 * PAGE_BYTES);
        had.clear();
        drop(charge);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn what_is_not_needed_is_freed() {
        let pool = Pool::new(1 << 20, || {});
        let share = Arc::default();
        drop([pool.take(&share, 1), pool.take(&share, 1), pool.take(&share, 1)]);
        let kept = || pool.classes[0].lock().unwrap().kept.len();
        pool.trim();
        assert_eq!(kept(), 3, "in use just now");
        drop(pool.take(&share, 1));
        pool.trim();
        assert_eq!(kept(), 1);
        pool.trim();
        assert_eq!((kept(), pool.kept.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn what_is_kept_and_what_is_used_is_no_more_than_allowed() {
        let pool = Pool::new(64 * PAGE_BYTES, || {});
        let share = Arc::default();
        let held = || pool.used.load(Ordering::SeqCst) + pool.kept.load(Ordering::SeqCst);
        for bytes in [PAGE_BYTES, 4 * PAGE_BYTES, 16 * PAGE_BYTES, PAGE_BYTES] {
            let taken: Vec<_> = std::iter::from_fn(|| pool.take(&share, bytes)).collect();
            assert!(!taken.is_empty() && held() <= 64 * PAGE_BYTES, "{bytes}: {}", held());
            drop(taken);
            assert!(held() <= 64 * PAGE_BYTES, "{bytes}: {}", held());
        }
        let charge = pool.charge(&share, 32 * PAGE_BYTES).unwrap();
        assert!(held() <= 64 * PAGE_BYTES, "{}", held());
        drop(charge);
        // One of any size, and nothing of it is kept.
        let large = pool.take(&share, 256 * PAGE_BYTES).unwrap();
        assert_eq!(held(), 256 * PAGE_BYTES);
        drop(large);
        assert_eq!(held(), 0);
    }
}
