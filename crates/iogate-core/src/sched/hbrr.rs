//! `hbrr`: handle-based round robin: up to `quantum` requests of a file in offset order, then the next file.
//!
//! Source: TWINS thesis, section 3.1 (after Ohta et al.), the scheduler of the IOFSL forwarder. Both operations of a
//! file share its turn; contiguous requests of one operation leave as runs, cut to what is left of the quantum.
//! O(1) to insert and to select.
//!
//! A file waits for a round: `quantum` requests of each other file. Within its turn the lowest offset goes first,
//! which alone could starve a high one: a request that has waited for `age_max` is what its file's turn begins with.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::arrival::ArrivalList;
use super::{Pick, Scheduler, SchedulerConfig, param};
use crate::queue::{Pending, QueueId, RunCap, SlotId};
use crate::request::Op;
use crate::time::{Span, Time};

pub(super) struct Hbrr {
    cap: RunCap,
    quantum: u32,
    age_max: Span,
    files: Vec<File>,
    /// Files that have something queued; the first one has its turn.
    ring: VecDeque<u32>,
    /// What is left of that turn.
    left: u32,
}

#[derive(Default)]
struct File {
    queued: u32,
    arrivals: ArrivalList,
}

impl Hbrr {
    pub(super) fn new(config: &SchedulerConfig) -> Hbrr {
        let quantum = config.value(&param::QUANTUM) as u32;
        Hbrr {
            cap: config.run_cap(),
            quantum,
            age_max: config.span(&param::AGE_MAX),
            files: Vec::new(),
            ring: VecDeque::new(),
            left: quantum,
        }
    }

    /// Where the turn's next dispatch begins: at an aged request, else at the lowest offset.
    fn front(&mut self, file: u32, now: Time, pending: &Pending) -> Option<SlotId> {
        if let Some(aged) = self.files[file as usize].arrivals.aged(self.age_max, now, pending) {
            return Some(aged);
        }
        let first = |op| pending.first(QueueId::new(file, op));
        let both = [first(Op::Read), first(Op::Write)];
        both.into_iter().flatten().min_by_key(|&slot| pending.slot(slot).key())
    }
}

impl Scheduler for Hbrr {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        let file = pending.slot(slot).file;
        if self.files.len() <= file as usize {
            self.files.resize_with(file as usize + 1, File::default);
        }
        let this = &mut self.files[file as usize];
        this.arrivals.push(pending, slot);
        this.queued += 1;
        if this.queued == 1 {
            self.ring.push_back(file);
        }
    }

    fn pick(&mut self, now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        let Some(&file) = self.ring.front() else { return Pick::Idle };
        let Some(first) = self.front(file, now, pending) else { return Pick::Idle };
        let run = pending.walk(first, RunCap { requests: self.cap.requests.min(self.left), ..self.cap });
        let this = &mut self.files[file as usize];
        pending.take_run(|pending, slot| this.arrivals.remove(pending, slot));
        this.queued -= run.requests;
        self.left -= run.requests;
        if this.queued == 0 {
            self.ring.pop_front();
            self.left = self.quantum;
        } else if self.left == 0 {
            self.ring.pop_front();
            self.ring.push_back(file);
            self.left = self.quantum;
        }
        Pick::Dispatch
    }

    fn allocated_bytes(&self) -> usize {
        self.files.capacity() * size_of::<File>()
            + self.files.iter().map(|file| file.arrivals.allocated_bytes()).sum::<usize>()
            + self.ring.capacity() * size_of::<u32>()
    }
}
