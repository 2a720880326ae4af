//! `twins`: server time windows: one target for the length of a window, then the next.
//!
//! Source: TWINS thesis, section 4.3 and its algorithm 2. A queue per target in arrival order; while a window lasts,
//! only its target is served, waiting if it has nothing queued. Node i of the forwarding layer begins at target i, so
//! nodes work on different targets.
//!
//! As published, windows begin when a node starts (`align = start`), so nodes drift. With `align = epoch` the index of a
//! window is the time since the epoch over its length, and its target (index + node) mod targets: nodes whose clocks
//! agree never meet on a target as long as there are no more nodes than targets. With more, they are spread evenly.
//!
//! `idle = skip` gives the rest of an empty target's window to the first target after it that has something queued.
//! `split` cuts requests at stripe boundaries, so that each piece waits for its own target.
//!
//! The number of targets t is that of the gate's layout, or one more than the highest seen. O(log t), and O(t / 64) to
//! skip.
//!
//! A target's turn comes every t windows. But a store whose dispatches last longer than a window can miss turns, and
//! could miss the same target's for ever: once the oldest request of all has waited for `age_max`, it goes out of turn.

use alloc::vec::Vec;

use super::arrival::ArrivalList;
use super::{Pick, Scheduler, SchedulerConfig, param};
use crate::heap::IndexedHeap;
use crate::queue::{Pending, SlotId};
use crate::time::{Span, Time};

pub(super) struct Twins {
    window: Span,
    /// When the first window began: the epoch, or the first request.
    start: Option<Time>,
    skip: bool,
    split: bool,
    node: u64,
    age_max: Span,
    targets: Vec<ArrivalList>,
    /// Targets that have something queued, by their oldest request.
    by_age: IndexedHeap<u64>,
    /// A bit per target that has something queued.
    busy: Vec<u64>,
}

impl Twins {
    pub(super) fn new(config: &SchedulerConfig) -> Twins {
        Twins {
            window: config.span(&param::WINDOW),
            start: (config.value(&param::ALIGN) == param::Align::Epoch as u64).then_some(Time::ZERO),
            skip: config.value(&param::IDLE) == param::Idle::Skip as u64,
            split: config.is_on(&param::SPLIT),
            node: config.value(&param::NODE),
            age_max: config.span(&param::AGE_MAX),
            targets: Vec::new(),
            by_age: IndexedHeap::default(),
            busy: Vec::new(),
        }
    }

    fn grow(&mut self, targets: usize) {
        if self.targets.len() < targets {
            self.targets.resize_with(targets, ArrivalList::default);
            self.busy.resize(targets.div_ceil(64), 0);
        }
    }

    fn rank(&mut self, target: usize, pending: &Pending) {
        match self.targets[target].oldest(pending) {
            Some(oldest) => {
                self.by_age.set(target as u32, pending.slot(oldest).seq);
                self.busy[target / 64] |= 1 << (target % 64);
            }
            None => {
                self.by_age.remove(target as u32);
                self.busy[target / 64] &= !(1 << (target % 64));
            }
        }
    }

    /// When the oldest request of all will have waited for `age_max`, and its target; `None`: never.
    fn ages(&mut self, pending: &Pending) -> Option<(Time, usize)> {
        let target = self.by_age.peek()?.1 as usize;
        let oldest = self.targets[target].oldest(pending).filter(|_| self.age_max > Span::ZERO)?;
        Some((pending.slot(oldest).arrival + self.age_max, target))
    }

    /// The first target from `from` on, around the circle, that has something queued.
    fn busy_from(&self, from: usize) -> Option<usize> {
        let words = self.busy.len();
        (0..=words).find_map(|step| {
            let word = (from / 64 + step) % words;
            let mask = match step {
                0 => u64::MAX << (from % 64),
                _ if step == words => !(u64::MAX << (from % 64)),
                _ => u64::MAX,
            };
            let bits = self.busy[word] & mask;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

impl Scheduler for Twins {
    fn insert(&mut self, now: Time, slot: SlotId, pending: &mut Pending) {
        self.start.get_or_insert(now);
        let target = usize::from(pending.slot(slot).target);
        self.grow((pending.targets as usize).max(target + 1));
        self.targets[target].push(pending, slot);
        self.rank(target, pending);
    }

    fn pick(&mut self, now: Time, patience: bool, pending: &mut Pending) -> Pick {
        let start = self.start.unwrap_or(now);
        let index = now.since(start).as_nanos() / self.window.as_nanos();
        let targets = self.targets.len() as u64;
        if targets == 0 {
            return Pick::Idle;
        }
        let mut target = ((index % targets + self.node % targets) % targets) as usize;
        let ages = self.ages(pending);
        if let Some((_, aged)) = ages.filter(|(at, _)| *at <= now) {
            target = aged;
        } else if self.busy[target / 64] >> (target % 64) & 1 == 0 {
            let Some(other) = self.busy_from(target) else { return Pick::Idle };
            if patience && !self.skip {
                let next = start + Span::from_nanos((index + 1).saturating_mul(self.window.as_nanos()));
                let until = ages.map_or(next, |(at, _)| next.min(at));
                return Pick::Window(until, Some(target as u16));
            }
            target = other;
        }
        let Some(oldest) = self.targets[target].oldest(pending) else { return Pick::Idle };
        self.targets[target].remove(pending, oldest);
        self.rank(target, pending);
        pending.take(oldest);
        Pick::Dispatch
    }

    fn splits(&self) -> bool {
        self.split
    }

    fn has_windows(&self) -> bool {
        true
    }

    fn allocated_bytes(&self) -> usize {
        self.targets.capacity() * size_of::<ArrivalList>()
            + self.targets.iter().map(ArrivalList::allocated_bytes).sum::<usize>()
            + self.by_age.allocated_bytes()
            + self.busy.capacity() * size_of::<u64>()
    }
}
