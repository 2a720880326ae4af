//! twins: one target has the window; the others wait for theirs.

use iogate_core::sched::param;
use iogate_core::{SchedulerConfig, Time, WaitReason};

use super::{Choice, Entry, Model, aged, oldest, remove};

pub(super) struct Twins {
    window_ns: u64,
    from_start: bool,
    skip: bool,
    node: u64,
    targets: u64,
    age_max_ns: u64,
    start: Option<Time>,
    entries: Vec<Entry>,
}

impl Twins {
    pub(super) fn new(config: &SchedulerConfig) -> Twins {
        Twins {
            window_ns: config.value(&param::WINDOW),
            from_start: config.value(&param::ALIGN) == param::Align::Start as u64,
            skip: config.value(&param::IDLE) == param::Idle::Skip as u64,
            node: config.value(&param::NODE),
            targets: 1,
            age_max_ns: config.value(&param::AGE_MAX),
            start: None,
            entries: Vec::new(),
        }
    }

    fn oldest_of(&self, target: u64) -> Option<Entry> {
        let queue: Vec<Entry> =
            self.entries.iter().filter(|entry| u64::from(entry.target.0) == target).cloned().collect();
        oldest(&queue).cloned()
    }
}

impl Model for Twins {
    fn insert(&mut self, now: Time, entry: Entry) {
        self.start.get_or_insert(now);
        self.targets = self.targets.max(1 + u64::from(entry.target.0));
        self.entries.push(entry);
    }

    fn know_targets(&mut self, targets: u32) {
        self.targets = self.targets.max(u64::from(targets));
    }

    fn choose(&mut self, now: Time, draining: bool) -> Choice {
        let (Some(start), false) = (self.start, self.entries.is_empty()) else { return Choice::Idle };
        if let Some(eldest) = oldest(&self.entries).filter(|eldest| aged(eldest, now, self.age_max_ns)) {
            let run = vec![eldest.clone()];
            remove(&mut self.entries, &run);
            return Choice::Serve(run);
        }
        let origin = if self.from_start { start } else { Time::ZERO };
        let index = now.since(origin).as_nanos() / self.window_ns;
        let current = (index + self.node) % self.targets;
        let turns = if self.skip || draining { self.targets } else { 1 };
        for turn in 0..turns {
            if let Some(first) = self.oldest_of((current + turn) % self.targets) {
                let run = vec![first];
                remove(&mut self.entries, &run);
                return Choice::Serve(run);
            }
        }
        let next_window_ns = origin.as_nanos().saturating_add((index + 1).saturating_mul(self.window_ns));
        let eldest = oldest(&self.entries).filter(|_| self.age_max_ns > 0);
        let ages_ns = eldest.map_or(u64::MAX, |eldest| eldest.arrival.as_nanos() + self.age_max_ns);
        Choice::Wait(Time::from_nanos(next_window_ns.min(ages_ns)), WaitReason::Window)
    }

    fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }
}
