//! app-window and server-window: the smallest key, one request at a time.

use iogate_core::sched::param;
use iogate_core::{SchedulerConfig, Span, Time};

use super::{Choice, Entry, Model, remove};

pub(super) struct AppWindow {
    window: Span,
    skew_max: Span,
    permuted: Option<u32>,
    entries: Vec<Entry>,
    skewed: u64,
}

impl AppWindow {
    pub(super) fn new(config: &SchedulerConfig) -> AppWindow {
        AppWindow {
            window: config.span(&param::WINDOW),
            skew_max: config.span(&param::SKEW_MAX),
            permuted: (config.value(&param::ORDER) == param::AppOrder::Permuted as u64)
                .then(|| config.value(&param::NODE) as u32),
            entries: Vec::new(),
            skewed: 0,
        }
    }

    fn plausible(&self, entry: &Entry, issued: Time) -> bool {
        issued <= entry.arrival && entry.arrival.since(issued) <= self.skew_max
    }

    fn key(&self, entry: &Entry) -> (u64, u32, u64) {
        let issue = entry.issued.filter(|&issued| self.plausible(entry, issued)).unwrap_or(entry.arrival);
        let app = self.permuted.map_or(entry.app.0, |node| permuted(entry.app.0, node));
        (issue.as_nanos() / self.window.as_nanos(), app, entry.seq)
    }
}

/// The finish of MurmurHash3 over the id and the node.
fn permuted(app: u32, node: u32) -> u32 {
    let steps = [(16, 0x85eb_ca6bu64), (13, 0xc2b2_ae35), (16, 1)];
    steps.iter().fold(app ^ (u64::from(node) * 0x9e37_79b9) as u32, |mixed, (shift, factor)| {
        (u64::from(mixed ^ (mixed >> shift)) * factor) as u32
    })
}

impl Model for AppWindow {
    fn insert(&mut self, _now: Time, entry: Entry) {
        if entry.issued.is_some_and(|issued| !self.plausible(&entry, issued)) {
            self.skewed += 1;
        }
        self.entries.push(entry);
    }

    fn choose(&mut self, _now: Time, _draining: bool) -> Choice {
        match self.entries.iter().min_by_key(|entry| self.key(entry)).cloned() {
            Some(first) => serve_one(&mut self.entries, first),
            None => Choice::Idle,
        }
    }

    fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    fn skewed(&self) -> u64 {
        self.skewed
    }
}

pub(super) struct ServerWindow {
    window: Span,
    entries: Vec<Entry>,
}

impl ServerWindow {
    pub(super) fn new(config: &SchedulerConfig) -> ServerWindow {
        ServerWindow { window: config.span(&param::WINDOW), entries: Vec::new() }
    }

    fn key(&self, entry: &Entry) -> (u64, u32, u64) {
        (entry.arrival.as_nanos() / self.window.as_nanos(), entry.target.0, entry.seq)
    }
}

impl Model for ServerWindow {
    fn insert(&mut self, _now: Time, entry: Entry) {
        self.entries.push(entry);
    }

    fn choose(&mut self, _now: Time, _draining: bool) -> Choice {
        match self.entries.iter().min_by_key(|entry| self.key(entry)).cloned() {
            Some(first) => serve_one(&mut self.entries, first),
            None => Choice::Idle,
        }
    }

    fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }
}

fn serve_one(entries: &mut Vec<Entry>, first: Entry) -> Choice {
    let run = vec![first];
    remove(entries, &run);
    Choice::Serve(run)
}
