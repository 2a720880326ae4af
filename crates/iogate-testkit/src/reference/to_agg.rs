//! to-agg: arrival order, where a request is served with the queued requests that it extends or connects.

use iogate_core::{SchedulerConfig, Time};

use super::{Caps, Choice, Entry, Model, bytes_of, oldest, queue_of, remove, walk};

pub(super) struct ToAgg {
    caps: Caps,
    entries: Vec<Entry>,
}

impl ToAgg {
    pub(super) fn new(config: &SchedulerConfig) -> ToAgg {
        ToAgg { caps: Caps::of(config), entries: Vec::new() }
    }
}

impl Model for ToAgg {
    fn insert(&mut self, _now: Time, entry: Entry) {
        self.entries.push(entry);
    }

    fn choose(&mut self, _now: Time, _draining: bool) -> Choice {
        let Some(eldest) = oldest(&self.entries) else { return Choice::Idle };
        let queue = queue_of(&self.entries, eldest.file, eldest.op);
        let at = queue.iter().position(|entry| entry.seq == eldest.seq).expect("it is in its queue");
        let mut first = at;
        while first > 0 && queue[first - 1].end() == queue[first].offset {
            let longer = &queue[first - 1..=at];
            if longer.len() as u64 > self.caps.requests || bytes_of(longer) > self.caps.bytes {
                break;
            }
            first -= 1;
        }
        let run = walk(&queue, first, self.caps);
        remove(&mut self.entries, &run);
        Choice::Serve(run)
    }

    fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }
}
