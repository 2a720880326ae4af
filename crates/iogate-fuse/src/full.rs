//! Room that a removed file gives back: the kernel tells a mount that a file is closed and forgotten after it has answered whoever closed
//! and removed it, and until then the source keeps the file's bytes. So a write that finds no room just after a removal is tried again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use iogate_core::Op;

/// How long before each further attempt: the kernel's word comes within a few milliseconds, or the file is open elsewhere.
pub(crate) const PAUSES: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
    Duration::from_millis(100),
];
/// How long a removal may be the reason that there is no room yet, in milliseconds.
const RECENT_MS: u64 = 1000;
/// There was no removal.
const NEVER: u64 = u64::MAX;

/// When something was last removed through a mount.
#[derive(Debug)]
pub(crate) struct Removals {
    begin: Instant,
    /// Milliseconds after the begin.
    last: AtomicU64,
}

impl Removals {
    pub(crate) fn new() -> Removals {
        Removals { begin: Instant::now(), last: AtomicU64::new(NEVER) }
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    pub(crate) fn note(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Whether an operation that finds no room is worth another attempt.
    pub(crate) fn concern(&self, op: Op) -> bool {
        if op != Op::Write {
            return false;
        }
        let last = self.last.load(Ordering::Relaxed);
        last != NEVER && self.now().saturating_sub(last) < RECENT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_after_a_removal_are_tried_again() {
        let removals = Removals::new();
        assert!(!removals.concern(Op::Write));
        removals.note();
        assert!(removals.concern(Op::Write) && !removals.concern(Op::Read));
        let long_ago = Removals { begin: Instant::now() - Duration::from_secs(2), last: AtomicU64::new(0) };
        assert!(!long_ago.concern(Op::Write));
    }
}
