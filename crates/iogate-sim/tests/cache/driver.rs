//! Drives a cache before a device that does one thing after the other at a rate.

use std::collections::VecDeque;

use iogate_core::{FileId, Op, Span, Time};
use iogate_sim::cache::{Access, Cache, CacheConfig, PAGE, Step, Transfer};

/// What lies below the cache, or has come out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    Transfer(Transfer),
    Flush(u32),
}

pub(crate) struct Driver {
    pub(crate) cache: Cache,
    pub(crate) now: Time,
    /// Nanoseconds for each page, and for a flush.
    page_ns: u64,
    flush_ns: u64,
    below: VecDeque<Below>,
    /// When the first of them ends.
    ends: Option<Time>,
    /// What is complete, and when.
    pub(crate) done: Vec<(u64, Time)>,
    /// All that was ever handed below, and when.
    pub(crate) seen: Vec<(Below, Time)>,
}

impl Driver {
    /// A device that takes so long for a page.
    pub(crate) fn new(config: &CacheConfig, page_ns: u64) -> Driver {
        Driver {
            cache: Cache::new(config),
            now: Time::ZERO,
            page_ns,
            flush_ns: 1_000_000,
            below: VecDeque::new(),
            ends: None,
            done: Vec::new(),
            seen: Vec::new(),
        }
    }

    pub(crate) fn read(&mut self, token: u64, file: u64, first: u64, pages: u64, file_pages: u64) {
        self.cache.read(access(token, file, first, pages), file_pages * PAGE);
    }

    pub(crate) fn write(&mut self, token: u64, file: u64, first: u64, pages: u64) {
        self.cache.write(self.now, access(token, file, first, pages));
    }

    /// Goes on until `token` is complete: when.
    pub(crate) fn run_until(&mut self, token: u64) -> Time {
        loop {
            self.ask();
            if let Some((_, at)) = self.done.iter().find(|(done, _)| *done == token) {
                return *at;
            }
            assert!(self.step(), "{token} is never complete");
        }
    }

    /// Goes on until nothing can happen.
    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    /// Asks the cache, then lets the next thing happen; whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        let wake = self.ask();
        if self.ends.is_none()
            && let Some(first) = self.below.front()
        {
            let ns = match first {
                Below::Transfer(transfer) => transfer.bytes / PAGE * self.page_ns,
                Below::Flush(_) => self.flush_ns,
            };
            self.ends = Some(self.now + Span::from_nanos(ns));
        }
        match (self.ends, wake) {
            (Some(end), wake) if wake.is_none_or(|wake| end <= wake) => {
                self.now = end;
                self.ends = None;
                match self.below.pop_front() {
                    Some(Below::Transfer(Transfer { io, .. }) | Below::Flush(io)) => {
                        self.cache.completed(end, io);
                    }
                    None => unreachable!("it has ended"),
                }
            }
            (_, Some(wake)) => self.now = wake,
            (None, None) => return false,
            (Some(_), None) => unreachable!("the first case"),
        }
        self.ask();
        true
    }

    /// Asks the cache until it waits: until when.
    pub(crate) fn ask(&mut self) -> Option<Time> {
        loop {
            let below = match self.cache.next(self.now) {
                Step::Transfer(transfer) => Below::Transfer(transfer),
                Step::Flush { io, .. } => Below::Flush(io),
                Step::Done(token) => {
                    self.done.push((token, self.now));
                    continue;
                }
                Step::WaitUntil(at) => {
                    assert!(at > self.now, "it waits for what is over");
                    return Some(at);
                }
                Step::Idle => return None,
            };
            self.below.push_back(below);
            self.seen.push((below, self.now));
        }
    }

    /// The transfers of one kind so far, in pages: file, first, how many.
    pub(crate) fn transfers(&self, op: Op) -> Vec<(u64, u64, u64)> {
        let transfers = self.seen.iter().filter_map(|(below, _)| match below {
            Below::Transfer(transfer) if transfer.op == op => Some(transfer),
            _ => None,
        });
        transfers.map(|t| (t.file.0, t.offset / PAGE, t.bytes / PAGE)).collect()
    }
}

/// Whole pages.
pub(crate) fn access(token: u64, file: u64, first: u64, pages: u64) -> Access {
    Access { token, whom: 1, stream: 0, file: FileId(file), offset: first * PAGE, bytes: pages * PAGE }
}
