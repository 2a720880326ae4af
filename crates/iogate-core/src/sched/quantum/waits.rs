//! What is waited for, and for how long: fixed times, or prices.

use super::{Discipline, Quantum, Turn, WAITED_BETTER, WAITED_SHIFT};
use crate::queue::{Pending, QueueId};
use crate::sched::Pick;
use crate::time::{Span, Time};
use crate::wait::WaitReason;

impl<D: Discipline> Quantum<D> {
    /// Why the first run of a queue should be waited for, if it should.
    pub(super) fn reason_to_wait(&self, queue: QueueId, pending: &Pending) -> Option<WaitReason> {
        let this = &self.queues[queue.index()];
        let (run, last) = (this.run?.run, this.last?);
        if (self.wait_max == Span::ZERO && self.priced.is_none()) || run.offset <= last.end {
            return None;
        }
        let waited = pending.slot(run.first).flags;
        let shift = this.before_last.is_some_and(|before| last.offset < before);
        if shift && waited & WAITED_SHIFT == 0 {
            Some(WaitReason::Shift)
        } else if run.bytes < last.bytes && waited & WAITED_BETTER == 0 {
            Some(WaitReason::BetterRun)
        } else {
            None
        }
    }

    /// Until when the first run of a queue is to wait for this reason; marks it as having waited.
    pub(super) fn hold(
        &mut self,
        now: Time,
        queue: QueueId,
        reason: WaitReason,
        pending: &mut Pending,
    ) -> Option<Time> {
        let this = &self.queues[queue.index()];
        let (run, last) = (this.run?.run, this.last?);
        let flags = &mut pending.slot_mut(run.first).flags;
        let Some(priced) = &mut self.priced else {
            *flags |= if reason == WaitReason::Shift { WAITED_SHIFT } else { WAITED_BETTER };
            return Some(now + self.wait_max);
        };
        *flags |= WAITED_SHIFT | WAITED_BETTER;
        priced.look(now, queue, last.end, &run);
        let others = self.ready.len() > 1 || !self.growing.is_empty();
        let loss = if others { 0 } else { pending.prices.idle_loss(pending.in_service) };
        priced.hold(now, queue, loss, &pending.prices)
    }

    /// Until when a turn stays open whose dispatch begins now; `Time::MAX`: until it is known when that has completed.
    pub(super) fn deadline(&self, now: Time) -> Time {
        if D::SYNCHRONOUS || self.priced.is_some() { Time::MAX } else { now + self.contiguous_wait }
    }

    /// Until when the open turn of the last dispatch stays open without its continuation.
    pub(super) fn patience(&self, now: Time, queue: QueueId, turn: &Turn, pending: &Pending) -> Option<Time> {
        let open = Some(turn.deadline).filter(|deadline| *deadline > now);
        match (&self.priced, self.queues[queue.index()].last) {
            (None, _) => open.filter(|_| turn.sequential),
            (Some(priced), Some(last)) if D::SYNCHRONOUS => {
                priced.wait(now, queue, last.end, self.by_age.len() as u32, pending).map(|(until, _)| until)
            }
            _ => open,
        }
    }

    /// Keeps free slots for continuations that are worth it (asynchronous discipline, priced waits).
    pub(super) fn keep_slots(&mut self, now: Time, pending: &Pending) -> Option<Pick> {
        let queues = &self.queues;
        let turn = |queue: QueueId| {
            let this = queues.get(queue.index()).filter(|this| this.turn.is_some())?;
            Some(this.last?.end)
        };
        let waits = self.priced.as_ref()?.waits(now, self.by_age.len() as u32, pending, turn);
        for (until, queue) in waits.iter() {
            if let Some(turn) = &mut self.queues[queue.index()].turn
                && turn.deadline < until
            {
                turn.deadline = until;
                self.turns.set(queue.0, until);
            }
        }
        let until = waits.iter().map(|(until, _)| until).min()?;
        Some(Pick::WaitUntil(until, WaitReason::Contiguous))
    }

    /// Until when this queue, that would wait until `deadline`, is still to do so where all that is left waits.
    pub(super) fn hold_on(
        &self,
        now: Time,
        queue: QueueId,
        deadline: Time,
        pending: &Pending,
    ) -> Option<Time> {
        let Some(priced) = &self.priced else { return Some(deadline) };
        let loss = pending.prices.idle_loss(pending.in_service);
        Some(priced.hold(now, queue, loss, &pending.prices)?.min(deadline))
    }
}
