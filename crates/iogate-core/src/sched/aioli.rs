//! `aioli`: growing quanta, arrival order between queues, one dispatch at a time.
//!
//! Sources: aIOLi, section 3.4; AGIOS, section 2.1. Which queue: among those whose first run is ready, the one whose
//! oldest request arrived first. The next decision is made when the dispatch has completed, which gives runs time to
//! grow; the rest of a turn holds the gate for the file's next piece, which keeps a disk's head where it is.
//!
//! O(log q) to insert and to select, q the number of queues; the published form walks the queue to insert and all queues to select.
//!
//! A request waits at most `age_max`, plus the service of what has aged before it and of the turn in service (which goes on to
//! 1024 x `quantum_base` bytes and the dispatch that reaches them at most, each piece of it waited for at most `contiguous_wait`).

use super::SchedulerConfig;
use super::quantum::{Discipline, Quantum};

pub(super) struct Aioli;

impl Discipline for Aioli {
    const SYNCHRONOUS: bool = true;
    const FIRST_COME: bool = true;
}

pub(super) fn new(config: &SchedulerConfig) -> Quantum<Aioli> {
    Quantum::new(config)
}
