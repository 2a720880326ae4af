//! fifo: the smallest sequence number, one request at a time.

use iogate_core::Time;

use super::{Choice, Entry, Model, oldest, remove};

#[derive(Default)]
pub(super) struct Fifo {
    entries: Vec<Entry>,
}

impl Model for Fifo {
    fn insert(&mut self, _now: Time, entry: Entry) {
        self.entries.push(entry);
    }

    fn choose(&mut self, _now: Time, _draining: bool) -> Choice {
        let Some(first) = oldest(&self.entries).cloned() else { return Choice::Idle };
        let run = vec![first];
        remove(&mut self.entries, &run);
        Choice::Serve(run)
    }

    fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }
}
