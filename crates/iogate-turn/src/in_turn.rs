//! Whether this process writes in a turn just now, its own or one that another process has taken for it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Turns that this process has.
static HELD: AtomicU32 = AtomicU32::new(0);
/// Enters without their leaves.
static ENTERED: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

/// Whether the process is in a turn. A few nanoseconds: for every write of a program.
#[inline]
pub fn is_inside() -> bool {
    HELD.load(Relaxed) != 0 || ENTERED.load(Relaxed) != 0
}

/// From here on the process counts as in a turn, until [`leave`] has been called as often.
pub fn enter() {
    ENTERED.fetch_add(1, Relaxed);
}

/// Takes one [`enter`] back; without one it does nothing.
pub fn leave() {
    let _ = ENTERED.fetch_update(Relaxed, Relaxed, |entered| entered.checked_sub(1));
}

/// Counts a turn of this process as long as it lives.
#[derive(Debug)]
pub(crate) struct Inside {
    generation: u64,
}

impl Inside {
    pub(crate) fn new() -> Inside {
        WATCH.call_once(|| {
            // SAFETY: the handler changes an atomic. If it cannot be had for want of memory, a child counts as in its parent's turn.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        HELD.fetch_add(1, Relaxed);
        Inside { generation: iogate_net::turns::generation() }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.generation == iogate_net::turns::generation() {
            HELD.fetch_sub(1, Relaxed);
        }
    }
}

/// A child has none of its parent's turns: they end without it.
extern "C" fn in_child() {
    HELD.store(0, Relaxed);
}
