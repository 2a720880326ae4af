//! to-agg: arrival order, where an arriving request may join queued runs that it extends. Runs are objects here:
//! what has been joined stays joined.

use iogate_core::{SchedulerConfig, Time};

use super::{Caps, Choice, Entry, Model, bytes_of, queue_of};

pub(super) struct ToAgg {
    caps: Caps,
    runs: Vec<Vec<Entry>>,
}

impl ToAgg {
    pub(super) fn new(config: &SchedulerConfig) -> ToAgg {
        ToAgg { caps: Caps::of(config), runs: Vec::new() }
    }

    fn fits(&self, requests: usize, bytes: u64) -> bool {
        requests as u64 <= self.caps.requests && bytes <= self.caps.bytes
    }

    fn run_with(&self, seq: u64) -> usize {
        self.runs.iter().position(|run| run.iter().any(|entry| entry.seq == seq)).expect("it is queued")
    }
}

impl Model for ToAgg {
    fn insert(&mut self, _now: Time, entry: Entry) {
        let all: Vec<Entry> = self.runs.iter().flatten().cloned().collect();
        let queue = queue_of(&all, entry.file, entry.op);
        let place = (entry.offset, entry.seq);
        let predecessor = queue.iter().rfind(|other| (other.offset, other.seq) < place);
        let successor = queue.iter().find(|other| (other.offset, other.seq) > place);

        let before = predecessor.filter(|p| p.end() == entry.offset).map(|p| (self.run_with(p.seq), p.seq));
        let before = before.filter(|&(run, p)| self.runs[run].last().is_some_and(|last| last.seq == p));
        let after = successor.filter(|s| s.offset == entry.end()).map(|s| (self.run_with(s.seq), s.seq));
        let after = after.filter(|&(run, s)| self.runs[run].first().is_some_and(|first| first.seq == s));

        let with_entry = |run: &Vec<Entry>| (run.len() + 1, bytes_of(run) + u64::from(entry.bytes));
        let can_join = |&(run, _): &(usize, u64)| {
            let (requests, bytes) = with_entry(&self.runs[run]);
            self.fits(requests, bytes)
        };
        let before = before.filter(can_join);
        let after = after.filter(can_join);
        match (before, after) {
            (Some((p, _)), Some((s, _))) => {
                let (requests, bytes) = with_entry(&self.runs[p]);
                if self.fits(requests + self.runs[s].len(), bytes + bytes_of(&self.runs[s])) {
                    let tail = std::mem::take(&mut self.runs[s]);
                    self.runs[p].push(entry);
                    self.runs[p].extend(tail);
                    self.runs.remove(s);
                } else {
                    self.runs[p].push(entry);
                }
            }
            (Some((p, _)), None) => self.runs[p].push(entry),
            (None, Some((s, _))) => self.runs[s].insert(0, entry),
            (None, None) => self.runs.push(vec![entry]),
        }
    }

    fn choose(&mut self, _now: Time, _draining: bool) -> Choice {
        let place = |run: &Vec<Entry>| run.iter().map(|entry| entry.seq).min();
        match (0..self.runs.len()).min_by_key(|&run| place(&self.runs[run])) {
            Some(first) => Choice::Serve(self.runs.remove(first)),
            None => Choice::Idle,
        }
    }

    fn take(&mut self) -> Vec<Entry> {
        self.runs.drain(..).flatten().collect()
    }
}
