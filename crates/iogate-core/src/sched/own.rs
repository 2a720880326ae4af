//! Schedulers of a driver's own: a contract that needs nothing of the gate's inside, and the adapter that holds them to it.
//!
//! What such a scheduler picks is checked before anything is dispatched: each request waits at this gate and is picked once, and those
//! of one dispatch are a run. The first mistake, of the scheduler or of what it is written in, ends its part: the gate then dispatches
//! no more and says why ([`Gate::fault`](crate::Gate::fault)), until the driver switches to another scheduler. Costs are O(1) for each
//! request on top of the scheduler's own.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Pick, Scheduler};
use crate::hash::HashMap;
use crate::queue::{Pending, QueueId, Slot, SlotId};
use crate::request::{AppId, FileId, Op, RequestId, TargetId};
use crate::time::Time;
use crate::wait::WaitReason;

/// A request (or a stripe of one that the gate has split) that may run, as a scheduler of a driver's own sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What the scheduler picks it by: its arrival number at this gate, which is never used twice.
    pub number: u64,
    /// The driver's name for it.
    pub request: RequestId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, not zero.
    pub bytes: u32,
    /// The application that it belongs to.
    pub app: AppId,
    /// The target of its first byte.
    pub target: TargetId,
    /// When it came in.
    pub arrival: Time,
    /// When the client issued it, on the client's clock.
    pub issued: Option<Time>,
}

/// What a scheduler of a driver's own wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Carry out what it has picked, together: one request, or a run in ascending order.
    Dispatch,
    /// Nothing before this time, which is in the future, unless something arrives or completes.
    WaitUntil(Time, WaitReason),
    /// Nothing, until something arrives or completes.
    Idle,
}

/// A scheduler of a driver's own. An error is one line for people, and the last that is asked of it.
pub trait Own: Send {
    /// A request may run now.
    ///
    /// # Errors
    /// Whatever went wrong in it.
    fn insert(&mut self, now: Time, request: &Waiting) -> Result<(), String>;

    /// Says what is to be dispatched next, and puts the numbers of its requests into `picked`, which is empty. Asked only while something
    /// waits. Without `patience` (the gate is draining) it should not wait for what may still come.
    ///
    /// # Errors
    /// As [`Own::insert`].
    fn pick(&mut self, now: Time, patience: bool, picked: &mut Vec<u64>) -> Result<Choice, String>;

    /// A dispatch of this file and operation that ended at the byte `end` has completed.
    ///
    /// # Errors
    /// As [`Own::insert`].
    fn completed(&mut self, now: Time, file: FileId, op: Op, end: u64) -> Result<(), String> {
        let _ = (now, file, op, end);
        Ok(())
    }

    /// Most dispatches that it wants in service at once, at least one.
    fn depth_max(&self) -> u32 {
        u32::MAX
    }
}

/// Holds a scheduler of a driver's own to its contract.
pub(crate) struct Adapter {
    own: Box<dyn Own>,
    /// What it has and has not picked yet.
    waiting: HashMap<u64, SlotId>,
    picked: Vec<u64>,
    /// The slots of these.
    slots: Vec<SlotId>,
    fault: Option<String>,
}

impl Adapter {
    pub(crate) fn new(own: Box<dyn Own>) -> Adapter {
        Adapter { own, waiting: HashMap::default(), picked: Vec::new(), slots: Vec::new(), fault: None }
    }

    /// Takes what was picked, all of it, or nothing if something is wrong with it.
    fn take(&mut self, pending: &mut Pending) -> Result<(), String> {
        let Some(&first) = self.picked.first() else {
            return Err("it picked no requests: expected at least one, a time to wait until, or none".into());
        };
        let (mut before, mut at) = (None, 0);
        self.slots.clear();
        for &number in &self.picked {
            let Some(slot) = self.waiting.remove(&number) else {
                return Err(alloc::format!(
                    "it picked request {number}, which does not wait here: expected one that was inserted, and each once"
                ));
            };
            let this = pending.slot(slot);
            let shown = Shown(this, pending);
            match before {
                Some(queue) if queue != this.queue() || at != this.offset => {
                    return Err(alloc::format!(
                        "it picked {shown} behind request {first}: expected the same file and operation, and offset {at}"
                    ));
                }
                _ => (before, at) = (Some(this.queue()), this.end()),
            }
            self.slots.push(slot);
        }
        self.slots.iter().for_each(|&slot| pending.take(slot));
        Ok(())
    }
}

struct Shown<'a>(&'a Slot, &'a Pending);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(Slot { seq, offset, bytes, file, op, .. }, pending) = self;
        let file = pending.files[*file as usize].id;
        write!(f, "request {seq} ({} of file {file}, {bytes} bytes at offset {offset})", op.letter())
    }
}

impl Scheduler for Adapter {
    fn insert(&mut self, now: Time, slot: SlotId, pending: &mut Pending) {
        let Slot { id, offset, seq, arrival, bytes, file, app, target, op, .. } = *pending.slot(slot);
        self.waiting.insert(seq, slot);
        if self.fault.is_some() {
            return;
        }
        let waiting = Waiting {
            number: seq,
            request: id,
            file: pending.files[file as usize].id,
            op,
            offset,
            bytes,
            app,
            target: TargetId(target.into()),
            arrival,
            issued: Some(pending.issued(slot)).filter(|issued| *issued != Time::MAX),
        };
        self.fault = self.own.insert(now, &waiting).err();
    }

    fn pick(&mut self, now: Time, patience: bool, pending: &mut Pending) -> Pick {
        if self.fault.is_some() {
            return Pick::Idle;
        }
        self.picked.clear();
        let done = match self.own.pick(now, patience, &mut self.picked) {
            Ok(Choice::Dispatch) => self.take(pending).map(|()| Pick::Dispatch),
            Ok(_) if !self.picked.is_empty() => {
                Err("it picked requests, and did not want them dispatched".into())
            }
            Ok(Choice::WaitUntil(until, _)) if until <= now => Err(alloc::format!(
                "it waits until {} s: expected a time after now, {} s",
                until.since(Time::ZERO).as_secs_f64(),
                now.since(Time::ZERO).as_secs_f64()
            )),
            Ok(Choice::WaitUntil(until, WaitReason::Window)) => Ok(Pick::Window(until, None)),
            Ok(Choice::WaitUntil(until, reason)) => Ok(Pick::WaitUntil(until, reason)),
            Ok(Choice::Idle) => Ok(Pick::Idle),
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|fault| {
            self.fault = Some(fault);
            Pick::Idle
        })
    }

    fn completed(&mut self, now: Time, queue: QueueId, end: u64, pending: &Pending) {
        if self.fault.is_none() {
            let file = pending.files[queue.file()].id;
            self.fault = self.own.completed(now, file, queue.op(), end).err();
        }
    }

    fn depth_max(&self) -> u32 {
        self.own.depth_max().max(1)
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn allocated_bytes(&self) -> usize {
        self.waiting.allocation_size()
            + self.picked.capacity() * size_of::<u64>()
            + self.slots.capacity() * size_of::<SlotId>()
    }
}
