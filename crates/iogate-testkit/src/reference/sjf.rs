//! sjf: the queue with the fewest queued bytes, its first run; what has waited too long goes before.

use iogate_core::sched::param;
use iogate_core::{SchedulerConfig, Time};

use super::{Caps, Choice, Entry, Model, aged, bytes_of, oldest, queue_of, remove, walk};

pub(super) struct Sjf {
    caps: Caps,
    age_max_ns: u64,
    entries: Vec<Entry>,
}

impl Sjf {
    pub(super) fn new(config: &SchedulerConfig) -> Sjf {
        Sjf { caps: Caps::of(config), age_max_ns: config.value(&param::AGE_MAX), entries: Vec::new() }
    }
}

impl Model for Sjf {
    fn insert(&mut self, _now: Time, entry: Entry) {
        self.entries.push(entry);
    }

    fn choose(&mut self, now: Time, _draining: bool) -> Choice {
        let Some(eldest) = oldest(&self.entries).cloned() else { return Choice::Idle };
        let run = if aged(&eldest, now, self.age_max_ns) {
            let queue = queue_of(&self.entries, eldest.file, eldest.op);
            let first = queue.iter().position(|entry| entry.seq == eldest.seq).expect("it is in its queue");
            walk(&queue, first, self.caps)
        } else {
            let shortest = (self.entries.iter())
                .map(|entry| queue_of(&self.entries, entry.file, entry.op))
                .min_by_key(|queue| (bytes_of(queue), oldest(queue).map(|entry| entry.seq)))
                .expect("something is queued");
            walk(&shortest, 0, self.caps)
        };
        remove(&mut self.entries, &run);
        Choice::Serve(run)
    }

    fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }
}
