//! A policy above the scheduler: requests that may run, and wait until they are admitted.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::comes::Comes;
use super::deferred::Deferred;
use super::service::Charge;
use super::{DispatchId, Gate};
use crate::blame::{Blame, Place};
use crate::global_policy::Usage;
use crate::hash::HashMap;
use crate::policy::{Arbiter, ClassId, Entitlement, Leaf, Next, Policy, Standing, Work};
use crate::queue::{AWAITED, NONE, Pending, Slot, SlotId, State};
use crate::request::AppId;
use crate::sched::{ConfigError, Prices};
use crate::stats::Sums;
use crate::stats::summary::AppNow;
use crate::time::Time;
use crate::wait::WaitReason;

/// Who decides, and the requests that are deferred.
pub(super) struct Admission {
    arbiter: Arbiter,
    deferred: Deferred,
    /// Held requests that a cap would hold if nothing else did, and that no other cap gives way to: until when (their notes say so), their
    /// arrival numbers, and which they are.
    later: BTreeSet<(Time, u64, SlotId)>,
    charges: Vec<Charge>,
    comes: Comes,
}

impl Admission {
    fn new(policy: &Policy, prices: &Prices, by_target: bool) -> Admission {
        let comes = Comes::default();
        let arbiter = Arbiter::new(policy, comes.jump(prices));
        let deferred = Deferred::new(by_target);
        Admission { arbiter, deferred, later: BTreeSet::new(), charges: Vec::new(), comes }
    }

    pub(super) fn set_prices(&mut self, prices: &Prices) {
        self.arbiter.set_jump(self.comes.jump(prices));
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_of::<Admission>()
            + self.arbiter.allocated_bytes()
            + self.deferred.allocated_bytes()
            + self.later.len() * size_of::<(Time, u64, SlotId)>()
    }

    /// For whom the device is kept.
    pub(super) fn lot_of(&self) -> Option<AppId> {
        self.arbiter.lot_of()
    }

    /// Whether a slot is kept free for whoever has the lot.
    pub(super) fn keeps_slot(&self) -> bool {
        self.arbiter.keeps_slot()
    }

    /// Another scheduler is asked for from now on.
    pub(super) fn set_by_target(&mut self, by_target: bool, pending: &Pending) {
        self.deferred.set_by_target(by_target, pending);
    }

    /// Whether somebody has something for this target (`None`: for any) and waits for no cap.
    fn is_asked_for(&self, target: Option<u16>) -> bool {
        let is_let = |id| !self.arbiter.is_held_back(id);
        self.arbiter.is_asked() && target.is_none_or(|target| self.deferred.classes_for(target).any(is_let))
    }

    /// When to look again, where nobody is to be admitted: as the policy says, or when a cap gives way to somebody who waits.
    fn waits(&self, next: Next) -> Option<(Time, WaitReason)> {
        // What is waited for is deferred, or the scheduler has it: then something happens before.
        let later = self.later.first().map(|(at, ..)| *at).filter(|_| self.arbiter.has_deferred());
        let soonest = match next {
            // What the policy waits for stays so where it is only looked at earlier.
            Next::Wait(at, reason) => Some((later.map_or(at, |later| later.min(at)), reason)),
            // Nobody waits for a cap: others are served first.
            _ => later.map(|at| (at, WaitReason::Share)),
        };
        // Who is stopped goes on when something is allotted to it.
        soonest.filter(|(at, _)| *at < Time::MAX)
    }
}

/// Requests that are looked at to count those of each application.
const LOOKED_AT_MAX: usize = 65_536;

/// The last ones are branches: each has what those within it have.
fn sum_up(found: &mut [AppNow], branches: usize) {
    let (apps, branches) = found.split_at_mut(found.len() - branches);
    let at: HashMap<u32, usize> = branches.iter().enumerate().map(|(at, branch)| (branch.app, at)).collect();
    for app in apps {
        let mut within = app.within;
        while let Some(branch) = within.and_then(|within| at.get(&within)).map(|at| &mut branches[*at]) {
            branch.bytes_per_s = branch.bytes_per_s.saturating_add(app.bytes_per_s);
            branch.read_bytes_per_s = branch.read_bytes_per_s.saturating_add(app.read_bytes_per_s);
            branch.written_bytes_per_s = branch.written_bytes_per_s.saturating_add(app.written_bytes_per_s);
            branch.requests_per_s = branch.requests_per_s.saturating_add(app.requests_per_s);
            branch.queued = branch.queued.zip(app.queued).map(|(sum, queued)| sum.saturating_add(queued));
            within = branch.within;
        }
    }
}

/// Notes what a class is entitled to, what it is within, what it waits for and what it has had.
fn entitle(now: &mut AppNow, to: &Entitlement, within: Option<AppId>, standing: Standing) {
    let Entitlement { weight, min, max } = *to;
    let number = |rate: Option<NonZeroU64>| rate.map(NonZeroU64::get);
    now.weight = Some(weight);
    now.deferred = standing.deferred;
    now.device_ns_per_s = Some(standing.ns_per_s);
    now.capped_ns = standing.capped.as_nanos();
    (now.min, now.min_requests) = (number(min.bytes), number(min.requests));
    (now.max, now.max_requests) = (number(max.bytes), number(max.requests));
    now.within = within.map(|branch| branch.0);
}

fn note_cap(blame: &mut Blame, arbiter: &mut Arbiter, now: Time, id: ClassId) {
    if !arbiter.is_branch(id) {
        let (app, is_capped) = arbiter.is_capped(id);
        blame.capped(now, app, is_capped);
    }
    arbiter.take_toggled(|app, is_capped| blame.capped(now, app, is_capped));
}

impl Gate {
    /// Says who is entitled to what; `None`: nobody to more than others, and the scheduler alone decides. Live: nothing is lost; what is
    /// admitted stays so, and debts are forgotten. O(n log n).
    ///
    /// # Errors
    /// As [`Policy::check`]; the policy before it stays.
    pub fn set_policy(&mut self, now: Time, policy: Option<&Policy>) -> Result<(), ConfigError> {
        policy.map_or(Ok(()), Policy::check)?;
        let now = self.advance(now);
        let mut deferred = self.pending.slots_in(&[State::Deferred]);
        deferred.sort_unstable_by_key(|&slot| self.pending.slot(slot).seq);
        for &slot in &deferred {
            self.pending.undefer(slot);
        }
        let later = self.admission.as_ref().map(|admission| admission.later.clone()).unwrap_or_default();
        later.iter().for_each(|(.., slot)| self.pending.set_note(*slot, 0));
        let placed = self.admission.as_mut().map(|admission| admission.arbiter.take_placed());
        let by_target = self.scheduler.has_windows();
        // Nobody is charged for what others have admitted.
        self.admission =
            policy.map(|policy| Box::new(Admission::new(policy, &self.pending.prices, by_target)));
        if let (Some(admission), Some(placed)) = (&mut self.admission, placed) {
            admission.arbiter.keep_placed(placed);
        }
        for slot in self.pending.slots_in(&[State::Queued, State::Taken]) {
            let app = self.pending.slot(slot).app;
            let class = self.admission.as_mut().map_or(0, |admission| admission.arbiter.adopt(now, app).0);
            self.pending.slot_mut(slot).class = class;
        }
        self.service.set_charged(now, policy.is_some());
        if let Some(blame) = self.books_mut() {
            blame.nobody_capped(now);
        }
        for slot in deferred {
            self.enter(now, slot);
        }
        later.into_iter().for_each(|(.., slot)| self.mark_awaited(now, slot));
        Ok(())
    }

    /// The policy in force.
    pub fn policy(&self) -> Option<&Policy> {
        self.admission.as_ref().map(|admission| admission.arbiter.policy())
    }

    /// An application is within a branch of the policy from now on, with what it has in the gate; where there is no such branch, within
    /// nothing. Where the policy names it, that stays. A policy that comes later has it in its branch of that number, for those that
    /// have something in the gate then.
    ///
    /// Returns what its requests are to have as their application from now on: itself, or, once 65,536 are placed, the branch, in which
    /// all that come later are one class. As after any mutation, the gate is to be asked then.
    pub fn place(&mut self, now: Time, app: AppId, branch: AppId) -> AppId {
        let now = self.advance(now);
        match &mut self.admission {
            Some(admission) => {
                let called = admission.arbiter.place(now, app, branch);
                if let Some(id) = admission.arbiter.class_of(app) {
                    self.account_cap(now, id);
                }
                self.mark_later(now, Time::MAX);
                called
            }
            None => app,
        }
    }

    /// Of a policy whose caps many gates share: classes may have so much here from now on, in bytes a second, and all others that are
    /// allotted anything nothing. As after any mutation, the gate is to be asked then.
    pub fn allot(&mut self, now: Time, rates: impl IntoIterator<Item = (Leaf, u64)>) {
        let now = self.advance(now);
        if let Some(admission) = &mut self.admission {
            admission.arbiter.allot(now, rates);
            self.account_caps(now);
            self.mark_later(now, Time::MAX);
        }
    }

    /// What a class is allotted here, in bytes a second; `None`: its policy has nothing to allot.
    pub fn allotment(&self, leaf: Leaf) -> Option<u64> {
        self.admission.as_ref()?.arbiter.allotment(leaf)
    }

    /// Whether somebody has come, since this was asked last, to whom nothing is allotted.
    pub fn take_lack(&mut self) -> bool {
        self.admission.as_mut().is_some_and(|admission| admission.arbiter.take_lack())
    }

    /// What classes have used and asked for that are allotted something, for a [`Holder`](crate::global_policy::Holder).
    pub fn usages(&self, now: Time) -> impl Iterator<Item = Usage> + '_ {
        let now = now.max(self.now);
        self.admission.iter().flat_map(move |admission| admission.arbiter.usages(now))
    }

    /// What each application gets, and waits for, at this time. O(applications), and O(requests) where there are up to `LOOKED_AT_MAX`.
    pub fn apps_now(&self, now: Time) -> Vec<AppNow> {
        let now = now.max(self.now);
        let queued = self.queued_by_app();
        let of = |(app, sums): (AppId, Sums)| {
            let [read_bytes_per_s, written_bytes_per_s, requests_per_s, latency_ns] = sums.recent.rates(now);
            let mut found = AppNow {
                app: app.0,
                bytes_per_s: read_bytes_per_s.saturating_add(written_bytes_per_s),
                read_bytes_per_s,
                written_bytes_per_s,
                requests_per_s,
                latency_ns: latency_ns.checked_div(requests_per_s),
                queued: queued.as_ref().map(|queued| queued.get(&app).copied().unwrap_or_default()),
                served_requests: sums.requests,
                served_bytes: sums.bytes,
                ..AppNow::default()
            };
            if let Some(Admission { arbiter, .. }) = self.admission.as_deref() {
                let (entitlement, within) = arbiter.entitled(app);
                let standing = arbiter.class_of(app).map(|id| arbiter.standing(now, id));
                entitle(&mut found, entitlement, within, standing.unwrap_or_default());
            }
            found
        };
        // Who waits for its first request has not been counted yet.
        let known = &self.stats().apps;
        let new = queued.iter().flat_map(|queued| queued.keys().copied());
        let mut new: Vec<AppId> = new.filter(|app| known.get(*app).is_none()).collect();
        new.sort_unstable();
        let new = new.into_iter().map(|app| (app, Sums::default()));
        let mut found: Vec<AppNow> = known.iter().copied().chain(new).map(of).collect();
        if let Some(Admission { arbiter, .. }) = self.admission.as_deref() {
            let apps = found.len();
            found.extend(arbiter.branches().map(|branch| {
                let mut found = AppNow {
                    app: branch.app.0,
                    is_branch: true,
                    queued: queued.as_ref().map(|_| 0),
                    served_requests: branch.requests,
                    served_bytes: branch.bytes,
                    ..AppNow::default()
                };
                entitle(&mut found, branch.entitlement, branch.within, arbiter.standing(now, branch.id));
                found
            }));
            let branches = found.len() - apps;
            sum_up(&mut found, branches);
        }
        found
    }

    /// Requests of each application that are not dispatched; `None` where looking at all of them would take too long.
    fn queued_by_app(&self) -> Option<HashMap<AppId, u32>> {
        let waiting = [State::Held, State::Deferred, State::Queued];
        let mut queued = HashMap::default();
        for slot in self.pending.slots_in_at_most(&waiting, LOOKED_AT_MAX)? {
            *queued.entry(self.pending.slot(slot).app).or_insert(0) += 1;
        }
        Some(queued)
    }

    /// A request that conflicts with nothing any more goes to the scheduler, or waits until it is admitted.
    #[inline]
    pub(super) fn enter(&mut self, now: Time, slot: SlotId) {
        if self.admission.is_none() || !self.defers(now, slot) {
            self.enqueue(now, slot);
        }
    }

    /// Whether the policy defers a request.
    #[inline(never)]
    fn defers(&mut self, now: Time, slot: SlotId) -> bool {
        if self.pending.note(slot) > 0 {
            self.forget_later(slot);
        }
        let Some(admission) = &mut self.admission else { return false };
        let this = self.pending.slot(slot);
        if admission.comes.count(this.op) {
            admission.set_prices(&self.pending.prices);
        }
        let (app, bytes, is_awaited) = (this.app, u64::from(this.bytes), this.flags & AWAITED != 0);
        let (id, is_admitted) = admission.arbiter.arrives(now, app, bytes);
        self.pending.slot_mut(slot).class = id.0;
        let is_deferred = !is_admitted && !is_awaited;
        if is_deferred {
            self.pending.defer(slot);
            admission.deferred.push(&mut self.pending, id, slot);
            self.account(now, slot, Place::Deferred);
        } else if !is_admitted {
            admission.arbiter.admit(now, id, bytes);
        }
        // One that goes may be the last that a cap has room for, be it the cap of those that wait already.
        self.account_cap(now, id);
        is_deferred
    }

    /// A request that one of another application waits for, or one that waits for that, is not deferred any longer; else who may run would
    /// wait for who may not. Those of one application wait as they would if they did not overlap, or it would have no cap. Nor is one let
    /// go for one that a cap would hold itself, until it would no more: else two that wait for each other's in turn would have none. Each
    /// request is marked once: those that one waits for that is marked are marked already.
    pub(super) fn mark_awaited(&mut self, now: Time, waiter: SlotId) {
        let Slot { app, flags, prev: mut at, .. } = *self.pending.slot(waiter);
        if self.pending.note(waiter) > 0 {
            self.forget_later(waiter);
        }
        if at == NONE
            || flags & AWAITED == 0 && (app == self.pending.slot(at).app || self.is_later(now, waiter))
        {
            return;
        }
        while at != NONE {
            let this = self.pending.slot_mut(at);
            match this.state {
                State::Held if this.flags & AWAITED == 0 => {
                    this.flags |= AWAITED;
                    let marked = core::mem::replace(&mut at, this.prev);
                    if self.pending.note(marked) > 0 {
                        self.forget_later(marked);
                    }
                }
                State::Deferred => return self.admit_deferred(now, at),
                _ => return,
            }
        }
    }

    /// Whether caps do not give way to a request that waits for another one, as they would hold it itself. Then it is looked at again when
    /// they would no more.
    fn is_later(&mut self, now: Time, waiter: SlotId) -> bool {
        let Some(admission) = self.admission.as_ref().filter(|_| !self.closed) else { return false };
        let Slot { app, prev, .. } = *self.pending.slot(waiter);
        // For what the scheduler has no cap has to give way.
        if !matches!(self.pending.slot(prev).state, State::Held | State::Deferred) {
            return false;
        }
        let at = admission.arbiter.may_go_at(app);
        if at > now {
            self.look_at(waiter, at);
        }
        at > now
    }

    /// What a held request waits for is to be let go for it at this time, if nothing happens before.
    #[cold]
    fn look_at(&mut self, slot: SlotId, at: Time) {
        self.forget_later(slot);
        let Some(Admission { later, .. }) = self.admission.as_deref_mut() else { return };
        self.pending.set_note(slot, at.as_nanos());
        later.insert((at, self.pending.slot(slot).seq, slot));
    }

    /// A held request is not looked at again by itself.
    #[cold]
    fn forget_later(&mut self, slot: SlotId) {
        let before = self.pending.note(slot);
        self.pending.set_note(slot, 0);
        if let Some(Admission { later, .. }) = self.admission.as_deref_mut().filter(|_| before > 0) {
            later.remove(&(Time::from_nanos(before), self.pending.slot(slot).seq, slot));
        }
    }

    /// Looks again at requests that caps would have held, those that they would until then at most.
    pub(super) fn mark_later(&mut self, now: Time, until: Time) {
        let Some(admission) = &self.admission else { return };
        let due: Vec<_> =
            admission.later.iter().take_while(|(at, ..)| *at <= until).map(|(.., slot)| *slot).collect();
        due.into_iter().for_each(|slot| self.mark_awaited(now, slot));
    }

    /// Admits those whose turn it is. Returns when to look again, if nothing happens before.
    #[inline(never)]
    pub(super) fn admit_next(&mut self, now: Time) -> Option<(Time, WaitReason)> {
        if let Some(admission) = self.admission.as_mut().filter(|_| self.blame.is_none()) {
            admission.arbiter.forget_toggled();
        }
        if self.admission.as_ref().is_some_and(|admission| !admission.later.is_empty()) {
            self.mark_later(now, now);
        }
        loop {
            let admission = self.admission.as_mut()?;
            let work = if self.pending.queued > 0 { Work::Here } else { Work::Nothing };
            match admission.arbiter.next(now, work) {
                Next::Admit(id) => self.admit_of(now, id),
                Next::Wait(at, _) if self.closed && at > now => {
                    // Nothing is waited for any more.
                    let id = admission.arbiter.anybody()?;
                    let first = admission.deferred.first(id);
                    self.admit_deferred(now, first);
                }
                next => return admission.waits(next),
            }
        }
    }

    /// Nothing that the scheduler has may go in this target's window: admits what others have for it, as if the scheduler had nothing. True
    /// if it is to be asked again; else it is known when to look again, if nothing happens before.
    #[cold]
    pub(super) fn admit_beside(
        &mut self,
        now: Time,
        target: Option<u16>,
        again: &mut Option<(Time, WaitReason)>,
    ) -> bool {
        let Some(admission) = self.admission.as_mut().filter(|admission| admission.is_asked_for(target))
        else {
            return false;
        };
        let work = if self.service.len() > 0 { Work::Nothing } else { Work::OtherWindow };
        let Admission { arbiter, deferred, .. } = &mut **admission;
        let next = match target {
            Some(target) => arbiter.next_of(now, work, Some(&|id| deferred.first_for(target, id).is_some())),
            None => arbiter.next(now, work),
        };
        match (next, target) {
            (Next::Admit(id), Some(target)) => self.admit_for(now, id, target),
            (Next::Admit(id), None) => self.admit_of(now, id),
            (next, _) => {
                *again = admission.waits(next);
                return false;
            }
        }
        true
    }

    /// Admits requests of a class that is next in this target's window: what it has for that, a lot's worth.
    fn admit_for(&mut self, now: Time, id: ClassId, target: u16) {
        let next = |gate: &Gate| gate.admission.as_ref().and_then(|all| all.deferred.first_for(target, id));
        let Some(mut slot) = next(self) else { return self.admit_of(now, id) };
        loop {
            self.admit_deferred(now, slot);
            let goes_on = self.admission.as_ref().is_some_and(|admission| admission.arbiter.goes_on(id));
            match next(self).filter(|_| goes_on) {
                Some(next) => slot = next,
                None => break,
            }
        }
        // Its oldest goes, too, whatever it is for: in case no window of its target is ever come across, it grows old in the scheduler.
        let Some(Admission { arbiter, deferred, .. }) = self.admission.as_deref() else { return };
        let oldest = deferred.first(id);
        if oldest != NONE && arbiter.has_lot(id) && !arbiter.is_held_back(id) {
            self.admit_deferred(now, oldest);
        }
    }

    /// Admits requests of a class that is next: a lot's worth, or what a slot is lent for.
    fn admit_of(&mut self, now: Time, id: ClassId) {
        while let Some(admission) = &self.admission {
            let first = admission.deferred.first(id);
            let follows = self.is_followed(first, self.pending.slot(first).next);
            self.admit_deferred(now, first);
            let goes_on = |Admission { arbiter, .. }: &Admission| {
                arbiter.goes_on(id) || follows && arbiter.lends_on(id)
            };
            if !self.admission.as_deref().is_some_and(goes_on) {
                return;
            }
        }
    }

    /// Whether a deferred request goes on where the one before it ends, and the scheduler takes both at once.
    fn is_followed(&self, slot: SlotId, next: SlotId) -> bool {
        if next == NONE || !self.scheduler().kind().takes_runs() {
            return false;
        }
        let (this, next) = (self.pending.slot(slot), self.pending.slot(next));
        (this.file, this.op, this.end()) == (next.file, next.op, next.offset)
    }

    fn admit_deferred(&mut self, now: Time, slot: SlotId) {
        let Some(admission) = &mut self.admission else { return };
        admission.deferred.unlink(&mut self.pending, slot);
        self.pending.undefer(slot);
        let this = self.pending.slot(slot);
        let id = ClassId(this.class);
        admission.arbiter.admit(now, id, this.bytes.into());
        self.enqueue(now, slot);
        self.account_cap(now, id);
    }

    /// Whether a class waits for its cap may have changed, and with it whether others within the same do.
    #[inline]
    fn account_cap(&mut self, now: Time, id: ClassId) {
        if let (Some(blame), Some(admission)) = (&mut self.blame, &mut self.admission) {
            note_cap(blame, &mut admission.arbiter, now, id);
        }
    }

    /// Of all classes. O(classes).
    pub(super) fn account_caps(&mut self, now: Time) {
        if let (Some(blame), Some(admission)) = (&mut self.blame, &mut self.admission) {
            admission.arbiter.caps().for_each(|(app, is_capped)| blame.capped(now, app, is_capped));
            admission.arbiter.forget_toggled();
        }
    }

    /// When the first of the caps is over that are by now.
    #[inline]
    pub(super) fn cap_over(&self, now: Time) -> Option<Time> {
        self.admission.as_ref()?.arbiter.first_over(now).map(|(at, _)| at)
    }

    /// Who waited for the first of them waits for others since then, whether the gate was asked then or not.
    pub(super) fn account_uncapped(&mut self, now: Time) {
        let Some(admission) = &mut self.admission else { return };
        let Some((at, id)) = admission.arbiter.release_one(now) else { return };
        match &mut self.blame {
            Some(blame) => note_cap(blame, &mut admission.arbiter, at, id),
            None => admission.arbiter.forget_toggled(),
        }
    }

    /// Who decides.
    #[cfg(test)]
    pub(crate) fn arbiter(&self) -> Option<&Arbiter> {
        self.admission.as_ref().map(|admission| &admission.arbiter)
    }

    /// How many requests caps do not give way to yet.
    #[cfg(test)]
    pub(crate) fn later(&self) -> usize {
        self.admission.as_ref().map_or(0, |admission| admission.later.len())
    }

    /// A dispatch begins.
    #[inline]
    pub(super) fn note_dispatch(&mut self, now: Time, id: DispatchId) {
        let Some(admission) = &mut self.admission else { return };
        let (first, file, _, range) = self.service.range(id);
        let class = ClassId(self.pending.slot(first).class);
        admission.arbiter.dispatched(now, class, file, range);
    }

    /// Charges a dispatch that ends to those whose requests it has.
    #[inline(never)]
    pub(super) fn charge(&mut self, now: Time, id: DispatchId) {
        let Some(admission) = &mut self.admission else { return };
        let mut charges = core::mem::take(&mut admission.charges);
        self.service.charges(now, id, &self.pending, &mut charges);
        for &Charge { class, served } in &charges {
            admission.arbiter.completed(now, ClassId(class), served);
        }
        if self.blame.is_some() {
            charges.iter().for_each(|charge| self.account_cap(now, ClassId(charge.class)));
        }
        charges.clear();
        if let Some(admission) = &mut self.admission {
            admission.charges = charges;
        }
    }
}
