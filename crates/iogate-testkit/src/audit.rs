//! What must hold for every scheduler, checked on the record of a script.

use std::collections::BTreeMap;

use iogate_core::{Decision, Dispatch, DispatchId, Op, Part, Request, RequestId};

use crate::harness::{Event, Record};
use crate::script::Script;

/// An accepted request and the ranges of it that have left and completed.
struct Progress {
    request: Request,
    dispatched: Vec<(u64, u64)>,
    completed: Vec<(u64, u64)>,
}

/// Totals of a record, to compare with a gate's statistics. Reads and writes, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests accepted.
    pub requests: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
    /// Dispatches.
    pub dispatches: [u64; 2],
    /// Parts in them.
    pub parts: [u64; 2],
    /// Refusals because the gate was full.
    pub full: u64,
}

/// Checks a record:
/// each accepted request leaves and completes exactly once, byte for byte; a dispatch is what its parts say;
/// conflicting requests complete in arrival order; the depth holds; a wait ends in the future, and there is none
/// in a drained gate; a gate with something in it and nothing in service never rests for good; in the end it
/// is empty.
pub fn check(script: &Script, log: &[Record]) -> Result<Totals, String> {
    let mut auditor = Auditor::default();
    for record in log {
        auditor.note(script, record).map_err(|why| format!("{why}\nat {record}"))?;
    }
    auditor.finish()
}

#[derive(Default)]
struct Auditor {
    /// In arrival order: ids grow.
    accepted: BTreeMap<RequestId, Progress>,
    in_service: BTreeMap<DispatchId, Vec<Part>>,
    rest: Option<Decision>,
    drained: bool,
    left: usize,
    totals: Totals,
}

impl Auditor {
    fn note(&mut self, script: &Script, record: &Record) -> Result<(), String> {
        match &record.event {
            Event::Submitted(request, Ok(())) => {
                self.totals.requests[class(request.op)] += 1;
                self.totals.bytes[class(request.op)] += u64::from(request.bytes);
                let progress = Progress { request: *request, dispatched: Vec::new(), completed: Vec::new() };
                self.accepted.insert(request.id, progress);
            }
            Event::Submitted(_, Err(iogate_core::Rejected::Full { .. })) => self.totals.full += 1,
            Event::Submitted(_, Err(_)) => {}
            Event::Dispatched(dispatch, parts) => {
                self.shape(dispatch, parts)?;
                parts.iter().try_for_each(|part| self.order(part))?;
                parts.iter().try_for_each(|part| self.leave(part))?;
                self.totals.dispatches[class(dispatch.op)] += 1;
                self.totals.parts[class(dispatch.op)] += parts.len() as u64;
                self.in_service.insert(dispatch.id, parts.clone());
                if self.in_service.len() > script.config.depth as usize {
                    return Err(format!("{} dispatches in service", self.in_service.len()));
                }
            }
            Event::Rested(Decision::WaitUntil(until, _)) if *until <= record.now => {
                return Err("the wait ends in the past".into());
            }
            Event::Rested(Decision::WaitUntil(..)) if self.drained => {
                return Err("a drained gate waits".into());
            }
            Event::Rested(decision) => self.rest = Some(*decision),
            Event::Completed(id, _) => {
                for part in self.in_service.remove(id).ok_or("completed twice")? {
                    let progress = self.accepted.get_mut(&part.request).ok_or("unknown request")?;
                    progress.completed.push(range(&part));
                }
            }
            Event::Drained => self.drained = true,
            Event::Holds(count) => {
                self.left = *count;
                let stuck = self.rest == Some(Decision::Idle) && self.in_service.is_empty();
                if *count > 0 && stuck {
                    return Err("idle with requests and nothing in service".into());
                }
            }
        }
        Ok(())
    }

    /// A dispatch is the concatenation of its parts, all of its file and operation.
    fn shape(&self, dispatch: &Dispatch, parts: &[Part]) -> Result<(), String> {
        let mut end = dispatch.offset;
        for part in parts {
            let progress = self.accepted.get(&part.request).ok_or("a part of an unknown request")?;
            let request = &progress.request;
            if (request.file, request.op) != (dispatch.file, dispatch.op) || part.offset != end {
                return Err(format!("part of #{} does not belong here", part.request));
            }
            end += u64::from(part.bytes);
        }
        if parts.is_empty()
            || dispatch.parts as usize != parts.len()
            || dispatch.bytes != end - dispatch.offset
        {
            return Err("the dispatch is not the sum of its parts".into());
        }
        let first = &self.accepted[&parts[0].request].request;
        if dispatch.app != first.app {
            return Err(format!("application {} of the first request expected", first.app));
        }
        match first.target {
            Some(target) if target != dispatch.target => Err(format!("target {target} expected")),
            _ => Ok(()),
        }
    }

    /// What conflicts with a part and was accepted before its request has completed.
    fn order(&self, part: &Part) -> Result<(), String> {
        let (start, end) = range(part);
        let of = &self.accepted[&part.request].request;
        for (id, earlier) in self.accepted.range(..part.request) {
            if earlier.request.file != of.file || !earlier.request.op.conflicts(of.op) {
                continue;
            }
            let overlap = common((start, end), (earlier.request.offset, earlier.request.end()));
            let done: u64 = earlier.completed.iter().map(|&piece| common((start, end), piece)).sum();
            if done < overlap {
                return Err(format!("#{} leaves before #{id} has completed", part.request));
            }
        }
        Ok(())
    }

    /// No byte of a request leaves twice, and none that is not its own.
    fn leave(&mut self, part: &Part) -> Result<(), String> {
        let progress = self.accepted.get_mut(&part.request).ok_or("a part of an unknown request")?;
        let own = common(range(part), (progress.request.offset, progress.request.end()));
        let again: u64 = progress.dispatched.iter().map(|&piece| common(range(part), piece)).sum();
        if own != u64::from(part.bytes) || again > 0 || part.bytes == 0 {
            return Err(format!("#{}: bytes that left before or are not its own", part.request));
        }
        progress.dispatched.push(range(part));
        Ok(())
    }

    fn finish(self) -> Result<Totals, String> {
        for (id, progress) in &self.accepted {
            let done: u64 = progress.completed.iter().map(|(start, end)| end - start).sum();
            if done != u64::from(progress.request.bytes) {
                return Err(format!(
                    "#{id}: {done} of {} bytes completed in the end",
                    progress.request.bytes
                ));
            }
        }
        match self.left {
            0 => Ok(self.totals),
            left => Err(format!("{left} left in the gate in the end")),
        }
    }
}

fn class(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
    }
}

fn range(part: &Part) -> (u64, u64) {
    (part.offset, part.offset + u64::from(part.bytes))
}

fn common(a: (u64, u64), b: (u64, u64)) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}
