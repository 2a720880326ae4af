//! Accounts of who slows whom down, if they are kept.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::service::Service;
use super::{Blocker, DispatchId, Gate};
use crate::blame::{Account, Accounting, Blame, Page, PartOf, Place, Range, Standing, sampling};
use crate::queue::{NONE, Pending, QueueId, SlotId, State};
use crate::sched::Prices;
use crate::time::{Span, Time};
use crate::wait::WaitReason;

/// What the gate waited for when it was asked last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Rest {
    #[default]
    Nothing,
    Slots,
    Until(WaitReason),
}

impl Gate {
    /// Keeps accounts of who slows whom down from now on, by what the device charges as far as that is known, or keeps none. What is in
    /// the gate counts from now. O(n).
    pub fn set_accounting(&mut self, now: Time, kept: Option<(Accounting, &Prices)>) {
        let now = self.advance(now);
        (self.blame, self.sampled, self.edge) = (None, None, Time::MAX);
        let Some((how, prices)) = kept else { return };
        while self.cap_over(now).is_some() {
            self.account_uncapped(now);
        }
        let mut blame = Box::new(Blame::new(now, how, prices));
        if !self.is_empty() {
            blame.enters(now);
        }
        self.blame = Some(blame);
        for id in self.service.ids().collect::<Vec<_>>() {
            self.account_note(now, id);
        }
        match how {
            Accounting::Exact => self.account_all(now),
            Accounting::Sampled => {
                self.close_books(now, 1);
                // The sample that is being taken is not one as a whole.
                let window = sampling::window_at(now);
                let is_begun = sampling::begin(window) < now;
                self.edge = sampling::begin(if is_begun { window + 1 } else { window });
            }
        }
    }

    /// Books all that is in the gate.
    fn account_all(&mut self, now: Time) {
        // Those that are held come in as if they were not, as who waits may be waited for.
        for slot in self.pending.slots_in(&[State::Queued, State::Deferred, State::Held]) {
            let place = match self.pending.slot(slot).state {
                State::Deferred => Place::Deferred,
                _ => Place::Queued,
            };
            self.account(now, slot, place);
        }
        self.account_caps(now);
        let in_service: Vec<_> = self.service.ids().collect();
        for &id in &in_service {
            for slot in self.service.slots(id, &self.pending).collect::<Vec<_>>() {
                self.account(now, slot, Place::Queued);
            }
            self.account_begin(now, id);
        }
        for slot in self.pending.slots_in(&[State::Queued, State::Deferred, State::Held, State::Taken]) {
            self.account_waiters(now, self.pending.slot(slot).waiters, Blocker::Request(slot));
        }
        for id in in_service {
            let waiters = *self.service.waiters(id);
            self.account_waiters(now, waiters, Blocker::Dispatch(id));
        }
        match self.rest {
            Rest::Nothing => {}
            Rest::Slots => self.account_full(now),
            Rest::Until(reason) => self.account_rest(now, Some(reason)),
        }
    }

    fn account_waiters(&mut self, now: Time, mut waiter: SlotId, blocker: Blocker) {
        while waiter != NONE {
            self.account_hold(now, waiter, blocker);
            waiter = self.pending.slot(waiter).next;
        }
    }

    /// Accounts what nobody has asked for until now: samples begin and end, and so do waits for caps, in their order.
    #[inline]
    pub(super) fn account_until(&mut self, now: Time) {
        while let Some(at) = self.cap_over(now) {
            if at >= self.edge {
                self.cross_edges(at);
            }
            self.account_uncapped(now);
        }
        if now >= self.edge {
            self.cross_edges(now);
        }
    }

    /// One or more edges of samples lie before now, and nothing has happened since the first of them.
    #[cold]
    fn cross_edges(&mut self, now: Time) {
        if self.blame.is_some() {
            self.close_books(self.edge, 1);
            self.edge = sampling::begin_after(self.edge);
            if now < self.edge {
                return;
            }
        }
        let (first, next) = (self.edge.window(sampling::WINDOW), sampling::window_at(now));
        let over = next.saturating_sub(first);
        // In all of those that are over the same was in the gate: one is as long as they are together.
        if over > 0 && !self.is_empty() {
            let at = self.edge;
            self.open_books(at);
            let samples = Span::from_nanos(over.saturating_mul(sampling::SAMPLE.as_nanos()));
            self.close_books(at + samples, over);
        }
        self.edge = sampling::begin(next);
        if self.edge <= now {
            self.open_books(self.edge);
            self.edge = self.edge + sampling::SAMPLE;
        }
    }

    fn open_books(&mut self, at: Time) {
        let Some(mut blame) = self.sampled.take() else { return };
        blame.opens(at);
        self.blame = Some(blame);
        self.account_all(at);
    }

    fn close_books(&mut self, at: Time, samples: u64) {
        let Some(mut blame) = self.blame.take() else { return };
        blame.closes(at, samples);
        self.sampled = Some(blame);
    }

    /// The books, open or not.
    fn books(&self) -> Option<&Blame> {
        self.blame.as_deref().or(self.sampled.as_deref())
    }

    pub(super) fn books_mut(&mut self) -> Option<&mut Blame> {
        self.blame.as_deref_mut().or(self.sampled.as_deref_mut())
    }

    /// The accounts so far, in the order in which applications came; none, if none are kept. Those of samples are not scaled.
    pub fn accounts(&mut self, now: Time) -> Option<Vec<Account>> {
        let now = self.advance(now);
        self.books().map(|blame| blame.accounts(now))
    }

    /// Some of the accounts so far, without names: those from number `from` on. None, if none are kept. O([`PAGE_ACCOUNTS`] + n).
    ///
    /// [`PAGE_ACCOUNTS`]: crate::blame::PAGE_ACCOUNTS
    pub fn accounts_page(&mut self, now: Time, from: u32) -> Option<Page> {
        let now = self.advance(now);
        self.books().map(|blame| blame.page(now, from))
    }

    /// How accounts are kept, if they are.
    pub fn accounting(&self) -> Option<Accounting> {
        self.books().map(Blame::how)
    }

    pub(super) fn account_prices(&mut self, prices: &Prices) {
        let now = self.now;
        if let Some(blame) = self.books_mut() {
            blame.set_prices(now, prices);
        }
    }

    pub(super) fn accounts_bytes(&self) -> usize {
        self.books().map_or(0, Blame::allocated_bytes)
    }

    /// Something is in the gate from now on.
    #[inline]
    pub(super) fn account_entry(&mut self, now: Time) {
        if let Some(blame) = self.books_mut() {
            blame.enters(now);
        }
    }

    /// Nothing is in the gate any more.
    #[inline]
    pub(super) fn account_exit(&mut self, now: Time) {
        if let Some(blame) = self.books_mut() {
            blame.leaves(now);
        }
    }

    /// A request has come, or goes to another place.
    #[inline]
    pub(super) fn account(&mut self, now: Time, slot: SlotId, place: Place) {
        if let Some(blame) = &mut self.blame {
            blame.place(now, slot, self.pending.slot(slot).app, place);
        }
    }

    /// A request is held; of a dispatch, it waits for the first part that it overlaps.
    pub(super) fn account_hold(&mut self, now: Time, slot: SlotId, blocker: Blocker) {
        if self.blame.is_none() {
            return;
        }
        let this = self.pending.slot(slot);
        let overlaps = |part: &SlotId| {
            let part = self.pending.slot(*part);
            part.offset < this.end() && this.offset < part.end()
        };
        let of = match blocker {
            Blocker::Request(blocker) => blocker,
            Blocker::Dispatch(id) => self.service.slots(id, &self.pending).find(overlaps).unwrap_or(NONE),
        };
        self.account(now, slot, Place::Held(of));
    }

    /// What the gate has decided.
    #[inline]
    pub(super) fn account_rest(&mut self, now: Time, waits: Option<WaitReason>) {
        self.rest = waits.map_or(Rest::Nothing, Rest::Until);
        let Some(blame) = &mut self.blame else { return };
        match waits {
            None | Some(WaitReason::Cap) => blame.stands(now, Standing::Free),
            Some(WaitReason::Window) => blame.stands(now, Standing::Window),
            Some(WaitReason::Share) => {
                let of = self.admission.as_ref().and_then(|admission| admission.lot_of());
                blame.waits(now, of);
            }
            Some(_) => blame.waits(now, None),
        }
    }

    #[inline]
    pub(super) fn account_full(&mut self, now: Time) {
        self.rest = Rest::Slots;
        if let Some(blame) = &mut self.blame {
            blame.stands(now, Standing::Full);
        }
    }

    #[inline]
    pub(super) fn account_dispatch(&mut self, now: Time, id: DispatchId) {
        if self.books().is_some() {
            self.account_note(now, id);
        }
        if self.blame.is_some() {
            self.account_begin(now, id);
        }
    }

    /// What is to be known of a dispatch when a sample begins while it is in service.
    fn account_note(&mut self, now: Time, id: DispatchId) {
        let Some(blame) = self.blame.as_deref_mut().or(self.sampled.as_deref_mut()) else { return };
        let (first, file, op, [offset, end]) = self.service.range(id);
        let queue = QueueId::new(file, op).0;
        let range = Range { queue, offset, end, jump: blame.jump(op) };
        blame.notes(now, id.0, self.pending.slot(first).app, first, &range);
    }

    #[cold]
    fn account_begin(&mut self, now: Time, id: DispatchId) {
        let Some(blame) = &mut self.blame else { return };
        let mut parts = core::mem::take(&mut blame.parts);
        parts_of(&self.service, &self.pending, id, &mut parts);
        blame.begins(now, id.0, &parts);
        blame.parts = parts;
    }

    #[inline]
    pub(super) fn account_end(&mut self, now: Time, id: DispatchId) {
        if let Some(blame) = &mut self.blame {
            let mut parts = core::mem::take(&mut blame.parts);
            parts_of(&self.service, &self.pending, id, &mut parts);
            blame.ends(now, id.0, &parts);
            blame.parts = parts;
        }
    }
}

fn parts_of(service: &Service, pending: &Pending, id: DispatchId, parts: &mut Vec<PartOf>) {
    parts.clear();
    parts.extend(service.slots(id, pending).map(|slot| PartOf { slot, bytes: pending.slot(slot).bytes }));
}
