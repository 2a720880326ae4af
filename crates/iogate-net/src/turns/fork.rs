//! A process that forks: the child leaves its parent's connections alone, and makes its own.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Connections that a child closes. What is over that stays open in the child, unused, until it ends.
const SLOTS: usize = 64;

static GENERATION: AtomicU64 = AtomicU64::new(1);
static DESCRIPTORS: [AtomicI32; SLOTS] = [const { AtomicI32::new(NONE) }; SLOTS];
static WATCH: Once = Once::new();
const NONE: i32 = -1;

/// Changes when a process becomes its own child by `fork`: what another generation has made belongs to a parent.
pub fn generation() -> u64 {
    WATCH.call_once(|| {
        // SAFETY: the handler only touches atomics and closes descriptors, which a child may do at once.
        // It fails for want of memory alone; then children have what their parents have.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for descriptor in &DESCRIPTORS {
        let fd = descriptor.swap(NONE, Ordering::Relaxed);
        if fd != NONE {
            // SAFETY: a connection's, which nobody uses in this generation. Otherwise a coordinator would take the parent for
            // connected as long as the child lives.
            unsafe { libc::close(fd) };
        }
    }
}

/// A descriptor that children close.
#[derive(Debug)]
pub(super) struct Watched {
    generation: u64,
    slot: Option<usize>,
}

impl Watched {
    pub(super) fn new(fd: i32) -> Watched {
        let generation = generation();
        let take =
            |slot: &AtomicI32| slot.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        Watched { generation, slot: DESCRIPTORS.iter().position(take) }
    }

    /// Whether it is this process's.
    pub(super) fn is_own(&self) -> bool {
        self.generation == generation()
    }

    /// Before the descriptor is closed.
    pub(super) fn forget(&self) {
        if let Some(slot) = self.slot
            && self.is_own()
        {
            DESCRIPTORS[slot].store(NONE, Ordering::Relaxed);
        }
    }
}
