//! A chooser beside a gate, for drivers in virtual time: what is chosen is in force at once.

use alloc::sync::Arc;

use super::bursts::Bursts;
use super::chooser::{Chooser, QUEUED_MAX, Status};
use super::meter::Meter;
use super::prior::Traits;
use super::ring::{Limits, PRESENT_MAX, Ring, SPAN_MIN, Served};
use super::status::{Changes, Choice};
use crate::gate::{Dispatch, DispatchId, Gate};
use crate::hash::HashMap;
use crate::profile::Findings;
use crate::request::{AppId, ClientId, Request, RequestId};
use crate::time::Time;

/// Simulated requests a second that a chooser is given: about 1 % of a core.
pub const REQUESTS_PER_S: u64 = 12 * 1_024;
/// What is saved of them for a change of the load: about 100 ms of a core.
pub const SAVED_MAX: u64 = 160_000;

/// How many requests may be simulated: so many a second, and some saved.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    per_s: u64,
    saved: u64,
    at: Time,
}

impl Pace {
    /// A pace of `per_s` simulated requests a second, all saved that can be.
    pub const fn new(per_s: u64, now: Time) -> Pace {
        Pace { per_s, saved: if per_s == 0 { 0 } else { SAVED_MAX }, at: now }
    }

    /// How many it may be now.
    pub fn granted(&mut self, now: Time) -> u64 {
        let earned = u128::from(now.since(self.at).as_nanos()) * u128::from(self.per_s) / 1_000_000_000;
        if earned > 0 {
            // What is earned in part stays in the time that has not been paid for.
            self.at = now;
            self.saved = SAVED_MAX.min(self.saved.saturating_add(earned as u64));
        }
        self.saved
    }

    /// The same at another rate, with what is saved. Without a rate there is nothing to spend, either.
    pub fn at(self, per_s: u64) -> Pace {
        Pace { per_s, saved: if per_s == 0 { 0 } else { self.saved }, ..self }
    }

    /// Whether anything may be simulated, ever.
    pub const fn is_any(&self) -> bool {
        self.per_s > 0
    }

    /// So many were simulated.
    pub fn spend(&mut self, requests: u64) {
        self.saved = self.saved.saturating_sub(requests);
    }
}

/// A chooser, the ring that it reads, and its pace.
pub struct Auto {
    chooser: Chooser,
    ring: Ring,
    pace: Pace,
    /// Learns what the storage charges.
    meter: Option<Meter>,
    /// Dispatches in service.
    flying: HashMap<DispatchId, Served>,
    noting: bool,
    /// The earliest beginning of the next window.
    next: Time,
    changes: Changes,
    /// How much work applications have; not where that is to be left alone.
    bursts: Option<Bursts>,
}

impl Auto {
    /// Lets `chooser` simulate at `pace`.
    pub fn new(chooser: Chooser, pace: Pace) -> Auto {
        Auto {
            chooser,
            ring: Ring::new(),
            pace,
            meter: None,
            flying: HashMap::default(),
            noting: false,
            next: Time::ZERO,
            changes: Changes::default(),
            bursts: Some(Bursts::default()),
        }
    }

    /// Lets it learn what the storage charges, from what `meter` knows on.
    pub fn learning(mut self, meter: Meter) -> Auto {
        if let Some(pricing) = meter.pricing() {
            self.chooser.set_pricing(Arc::new(pricing));
        }
        self.meter = Some(meter);
        self
    }

    /// Lets it expect no application's end, whatever bursts it has had: to see what that is worth.
    pub fn expecting_no_ends(self) -> Auto {
        Auto { bursts: None, ..self }
    }

    /// What it has learnt of what the storage charges, if it learns.
    pub fn findings(&self) -> Option<Findings> {
        self.meter.as_ref().map(|meter| meter.refit().findings())
    }

    /// A dispatch has been handed over.
    pub fn dispatched(&mut self, now: Time, dispatch: &Dispatch) {
        if let Some(meter) = &mut self.meter {
            meter.begun(now, dispatch);
        }
        let Dispatch { id, file, op, offset, bytes, .. } = *dispatch;
        self.flying.insert(id, Served { began: now, ended: now, file, offset, bytes, op });
    }

    /// A dispatch has been carried out, all of it.
    pub fn ended(&mut self, now: Time, id: DispatchId) {
        if let Some(meter) = &mut self.meter {
            meter.ended(now, id);
        }
        if let Some(served) = self.flying.remove(&id) {
            self.ring.served(&Served { ended: now, ..served });
        }
    }

    /// A request has come into the gate.
    pub fn arrived(&mut self, now: Time, request: &Request) {
        if let Some(bursts) = &mut self.bursts {
            bursts.arrived(now, request.app, request.bytes);
        }
        self.ring.arrived(now, request);
    }

    /// An application of which something has arrived says how many bytes it moves in its burst, in all.
    pub fn declare(&mut self, app: AppId, bytes: u64) {
        if let Some(bursts) = &mut self.bursts {
            bursts.declare(app, bytes);
        }
    }

    /// `bytes` of a request of this application have been carried out.
    pub fn completed(&mut self, now: Time, id: RequestId, app: AppId, bytes: u32) {
        if let Some(bursts) = &mut self.bursts {
            bursts.completed(now, app, bytes);
        }
        self.ring.completed(now, id, bytes);
    }

    /// Thinks, and switches the gate. To be called before the gate is asked; `client` says whose a request in the gate is.
    pub fn look(&mut self, now: Time, gate: &mut Gate, client: impl Fn(RequestId) -> ClientId) {
        if self.noting && self.ring.is_ripe(now) {
            self.noting = !self.consider(now);
            if self.noting { self.ring.go_on(self.chooser.limits()) } else { self.ring.stop() }
        }
        if self.chooser.has_work() {
            let granted = self.pace.granted(now);
            self.pace.spend(self.chooser.step(now, granted));
            // Of the last change it may be known only now what became of it.
            self.changes.note(&self.chooser.status().change);
        }
        if let Some(scheduler) = self.chooser.proposal() {
            let applied = gate.queued() <= QUEUED_MAX;
            if applied {
                gate.switch(now, scheduler);
            }
            self.chooser.settled(now, applied);
            self.changes.note(&self.chooser.status().change);
        }
        if !self.noting && now >= self.next && self.chooser.wants_window() && !gate.is_empty() {
            let present = gate.present(PRESENT_MAX);
            let present = present.into_iter().map(|present| (present, client(present.id)));
            self.ring.begin(now, self.chooser.limits(), present);
            (self.noting, self.next) = (true, now + SPAN_MIN);
        }
    }

    /// Takes a window out of the ring, if it has enough of one; else the ring is to go on.
    fn consider(&mut self, now: Time) -> bool {
        match self.meter.as_ref().map(|meter| (meter.pricing(), meter.refit().is_kept())) {
            Some((Some(pricing), _)) => self.chooser.set_pricing(Arc::new(pricing)),
            // What was given to it is only assumed. A prior goes by what was measured before, and not by a few dispatches.
            Some((None, false)) if self.chooser.limits() != Limits::EARLY => return true,
            _ => {}
        }
        if let Some(bursts) = &self.bursts {
            self.chooser.tell(now, bursts.left(now));
        }
        let budget = self.pace.granted(now);
        self.chooser.consider(&self.ring, now, budget)
    }

    /// What a prior was told, once it was.
    pub fn traits(&self) -> Option<&Traits> {
        self.chooser.traits()
    }

    /// What chooses.
    pub fn chooser(&self) -> &Chooser {
        &self.chooser
    }

    /// What is in use, and why.
    pub fn status(&self) -> &Status {
        self.chooser.status()
    }

    /// The last changes.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// What is in use, and why, for people and programs.
    pub fn choice(&self, now: Time) -> Choice {
        let choice = Choice::of(self.status(), now).with(&self.changes, now);
        match &self.bursts {
            Some(bursts) => choice.expecting(bursts.left(now)),
            None => choice,
        }
    }

    /// Bytes of memory in use, those of simulated devices left out.
    pub fn allocated_bytes(&self) -> usize {
        let bursts = self.bursts.as_ref().map_or(0, Bursts::allocated_bytes);
        self.chooser.allocated_bytes() + self.ring.allocated_bytes() + bursts
    }
}
