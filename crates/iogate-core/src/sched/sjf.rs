//! `sjf`: the queue with the fewest queued bytes first, and from it the first run in offset order.
//!
//! Source: AGIOS, section 2.3, which walks all queues to select, O(q); a heap of queues makes it O(log q).
//! Between queues of equal size, the one whose oldest request arrived first.
//!
//! As published it can starve a long queue. `age_max` bounds that: once the oldest request of all has waited that
//! long, the run that begins at it goes first. So a request waits at most `age_max`, plus the service of what has
//! aged before it and of what is in service. `age_max = 0` is the published algorithm.

use alloc::vec::Vec;

use super::arrival::ArrivalList;
use super::{Pick, Scheduler, SchedulerConfig, param};
use crate::heap::IndexedHeap;
use crate::queue::{Pending, QueueId, RunCap, SlotId};
use crate::time::{Span, Time};

pub(super) struct Sjf {
    cap: RunCap,
    age_max: Span,
    queues: Vec<Queue>,
    /// By (queued bytes, oldest arrival).
    by_bytes: IndexedHeap<(u64, u64)>,
    by_age: IndexedHeap<u64>,
}

#[derive(Default)]
struct Queue {
    bytes: u64,
    arrivals: ArrivalList,
}

impl Sjf {
    pub(super) fn new(config: &SchedulerConfig) -> Sjf {
        Sjf {
            cap: config.run_cap(),
            age_max: config.span(&param::AGE_MAX),
            queues: Vec::new(),
            by_bytes: IndexedHeap::default(),
            by_age: IndexedHeap::default(),
        }
    }

    fn rank(&mut self, queue: QueueId, pending: &Pending) {
        let this = &mut self.queues[queue.index()];
        match this.arrivals.oldest(pending).map(|oldest| pending.slot(oldest).seq) {
            Some(oldest) => {
                self.by_bytes.set(queue.0, (this.bytes, oldest));
                self.by_age.set(queue.0, oldest);
            }
            None => {
                self.by_bytes.remove(queue.0);
                self.by_age.remove(queue.0);
            }
        }
    }

    /// The oldest request of all, if it has waited for `age_max`.
    fn aged(&mut self, now: Time, pending: &Pending) -> Option<SlotId> {
        let (_, queue) = self.by_age.peek()?;
        self.queues[queue as usize].arrivals.aged(self.age_max, now, pending)
    }
}

impl Scheduler for Sjf {
    fn insert(&mut self, _now: Time, slot: SlotId, pending: &mut Pending) {
        let queue = pending.slot(slot).queue();
        if self.queues.len() <= queue.index() {
            self.queues.resize_with(queue.index() + 1, Queue::default);
        }
        let this = &mut self.queues[queue.index()];
        this.bytes += u64::from(pending.slot(slot).bytes);
        this.arrivals.push(pending, slot);
        self.rank(queue, pending);
    }

    fn pick(&mut self, now: Time, _patience: bool, pending: &mut Pending) -> Pick {
        let run = match self.aged(now, pending) {
            Some(aged) => pending.walk(aged, self.cap),
            None => {
                let Some((_, queue)) = self.by_bytes.peek() else { return Pick::Idle };
                pending.walk_first(QueueId(queue), self.cap).expect("a ranked queue has a request")
            }
        };
        let queue = pending.slot(run.first).queue();
        let this = &mut self.queues[queue.index()];
        this.bytes -= run.bytes;
        pending.take_run(|pending, slot| this.arrivals.remove(pending, slot));
        self.rank(queue, pending);
        Pick::Dispatch
    }

    fn allocated_bytes(&self) -> usize {
        self.queues.capacity() * size_of::<Queue>()
            + self.queues.iter().map(|queue| queue.arrivals.allocated_bytes()).sum::<usize>()
            + self.by_bytes.allocated_bytes()
            + self.by_age.allocated_bytes()
    }
}
