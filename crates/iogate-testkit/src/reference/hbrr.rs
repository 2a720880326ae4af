//! hbrr: a ring of files, each served up to a quantum of requests in its turn.

use iogate_core::sched::param;
use iogate_core::{FileId, SchedulerConfig, Time};

use super::{Caps, Choice, Entry, Model, aged, oldest, queue_of, remove, walk};

pub(super) struct Hbrr {
    caps: Caps,
    age_max_ns: u64,
    quantum: u64,
    entries: Vec<Entry>,
    /// Files with something queued; the first one has the turn.
    ring: Vec<FileId>,
    /// Requests served in this turn.
    used: u64,
}

impl Hbrr {
    pub(super) fn new(config: &SchedulerConfig) -> Hbrr {
        Hbrr {
            caps: Caps::of(config),
            age_max_ns: config.value(&param::AGE_MAX),
            quantum: config.value(&param::QUANTUM),
            entries: Vec::new(),
            ring: Vec::new(),
            used: 0,
        }
    }
}

impl Model for Hbrr {
    fn insert(&mut self, _now: Time, entry: Entry) {
        if !self.ring.contains(&entry.file) {
            self.ring.push(entry.file);
        }
        self.entries.push(entry);
    }

    fn choose(&mut self, now: Time, _draining: bool) -> Choice {
        let Some(&file) = self.ring.first() else { return Choice::Idle };
        let of_file: Vec<Entry> = self.entries.iter().filter(|entry| entry.file == file).cloned().collect();
        let eldest = oldest(&of_file).expect("a file in the ring has something queued");
        let lowest = of_file.iter().min_by_key(|entry| (entry.offset, entry.seq));
        let first = if aged(eldest, now, self.age_max_ns) { eldest } else { lowest.expect("as above") };

        let queue = queue_of(&of_file, file, first.op);
        let at = queue.iter().position(|entry| entry.seq == first.seq).expect("it is in its queue");
        let mut run = walk(&queue, at, self.caps);
        run.truncate((self.quantum - self.used) as usize);
        remove(&mut self.entries, &run);
        self.used += run.len() as u64;

        let emptied = self.entries.iter().all(|entry| entry.file != file);
        if emptied || self.used == self.quantum {
            self.ring.remove(0);
            self.used = 0;
        }
        if !emptied && !self.ring.contains(&file) {
            self.ring.push(file);
        }
        Choice::Serve(run)
    }

    fn take(&mut self) -> Vec<Entry> {
        self.ring.clear();
        std::mem::take(&mut self.entries)
    }
}
