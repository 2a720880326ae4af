//! Accounts of who slows whom down, if they are kept.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::service::Service;
use super::{Blocker, Dispatch, DispatchId, Gate};
use crate::blame::{Account, Blame, Page, PartOf, Place, Range, Standing};
use crate::queue::{NONE, Pending, QueueId, SlotId, State};
use crate::sched::Prices;
use crate::time::Time;
use crate::wait::WaitReason;

impl Gate {
    /// Keeps accounts of who slows whom down from now on, by what the device charges as far as that is known, or keeps none. What is in
    /// the gate counts from now. O(n).
    pub fn set_accounting(&mut self, now: Time, prices: Option<&Prices>) {
        let now = self.advance(now);
        self.blame = prices.map(|prices| Box::new(Blame::new(now, prices)));
        let waiting = self.pending.slots_in(&[State::Queued, State::Deferred]);
        for slot in waiting {
            let place = match self.pending.slot(slot).state {
                State::Deferred => Place::Deferred,
                _ => Place::Queued,
            };
            self.account(now, slot, place);
        }
        for id in self.service.ids().collect::<Vec<_>>() {
            for slot in self.service.slots(id, &self.pending).collect::<Vec<_>>() {
                self.account(now, slot, Place::Queued);
            }
            self.account_begin(now, id);
        }
        for slot in self.pending.slots_in(&[State::Held]) {
            self.account_hold(now, slot, self.blocker(slot));
        }
        self.account_caps(now);
    }

    /// The accounts so far, in the order in which applications came; none, if none are kept.
    pub fn accounts(&self, now: Time) -> Option<Vec<Account>> {
        self.blame.as_ref().map(|blame| blame.accounts(now.max(self.now)))
    }

    /// Some of the accounts so far, without names: those from number `from` on. None, if none are kept. O([`PAGE_ACCOUNTS`] + n).
    ///
    /// [`PAGE_ACCOUNTS`]: crate::blame::PAGE_ACCOUNTS
    pub fn accounts_page(&self, now: Time, from: u32) -> Option<Page> {
        self.blame.as_ref().map(|blame| blame.page(now.max(self.now), from))
    }

    /// Whether accounts are kept.
    pub fn keeps_accounts(&self) -> bool {
        self.blame.is_some()
    }

    /// A request has come, or goes to another place.
    #[inline]
    pub(super) fn account(&mut self, now: Time, slot: SlotId, place: Place) {
        if let Some(blame) = &mut self.blame {
            blame.place(now, slot, self.pending.slot(slot).app, place);
        }
    }

    pub(super) fn account_hold(&mut self, now: Time, slot: SlotId, blocker: Option<Blocker>) {
        if self.blame.is_none() {
            return;
        }
        let first = match blocker {
            Some(Blocker::Request(blocker)) => blocker,
            Some(Blocker::Dispatch(id)) => self.service.slots(id, &self.pending).next().unwrap_or(NONE),
            None => NONE,
        };
        self.account(now, slot, Place::Held(first));
    }

    /// What the gate has decided.
    #[inline]
    pub(super) fn account_rest(&mut self, now: Time, waits: Option<WaitReason>) {
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
        if let Some(blame) = &mut self.blame {
            blame.stands(now, Standing::Full);
        }
    }

    #[inline]
    pub(super) fn account_dispatch(&mut self, now: Time, dispatch: &Dispatch) {
        if self.blame.is_some() {
            self.account_begin(now, dispatch.id);
        }
    }

    #[cold]
    fn account_begin(&mut self, now: Time, id: DispatchId) {
        let Some(blame) = &mut self.blame else { return };
        let mut parts = core::mem::take(&mut blame.parts);
        parts_of(&self.service, &self.pending, id, &mut parts);
        let Some(first) = parts.first() else { return };
        let slot = self.pending.slot(first.slot);
        let bytes: u64 = parts.iter().map(|part| u64::from(part.bytes)).sum();
        let range = Range {
            queue: QueueId::new(slot.file, slot.op).0,
            offset: slot.offset,
            end: slot.offset + bytes,
            jump: blame.jump(slot.op),
        };
        blame.begins(now, id.0, &range, &parts);
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
