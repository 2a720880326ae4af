//! One request in the midst of somebody else's lot.
//!
//! No lot is kept for clients that think for long (longer than an arm needs to go there and back), so that they have one request in each.
//! Where a device has an arm lots are long. Who asks for one request now and then would wait for whole lots of others, again and again, and
//! have a small part of its share. So such a request preempts the open lot, as soon as whoever has the lot has had as much more of its
//! share as the request takes, with the way there and back; then the lot goes on. (CFQ and BFQ in Linux let a process that wakes up preempt
//! others for the same reason.)
//!
//! Who preempts pays for the way there and back, not those whose lot it is. On the way there its request is the first that the arm goes
//! for: it takes at least a jump, or as long as it was in service if that is less (it came from a buffer). The way back has been gone when
//! the lot goes on where it was. Both are charged by the price of a jump, as requests that are in service at once cannot be told apart by
//! how long they take.

use super::arbiter::{Arbiter, Class, ClassId, Served};
use super::order::tag;
use crate::time::Time;

/// Who preempted the open lot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preemption {
    pub(super) by: ClassId,
    /// Whether its request has been dispatched.
    has_begun: bool,
}

/// Where a dispatch ended: the file, and the offset in bytes.
pub(super) type Reach = (u32, u64);

impl Arbiter {
    /// Who comes next, if its request may preempt the open lot.
    #[inline(never)]
    pub(super) fn preempts(&mut self, now: Time) -> Option<ClassId> {
        let last = self.last.filter(|_| self.may_preempt > 0 && self.is_asked())?;
        let Class { budget, admitted, .. } = self.classes[last.index()];
        let id = self.least();
        let class = &self.classes[id.index()];
        if id == last || !class.may_preempt || budget == 0 && admitted == 0 {
            return None;
        }
        let there_and_back = self.jump.as_nanos().saturating_mul(2);
        if !self.is_behind(id, last, class.estimate.max(there_and_back)) {
            return None;
        }
        self.charge_kept(now, last);
        self.start(id);
        self.lent = self.jump.as_nanos();
        self.classes[id.index()].has_preempted = true;
        self.preemption = Some(Preemption { by: id, has_begun: false });
        Some(id)
    }

    /// Whether a class would have had no more of its share than another one if it had so much device time now, where their branches part.
    fn is_behind(&self, id: ClassId, other: ClassId, ns: u64) -> bool {
        let mut at = Some(id);
        while let Some(of) = at {
            let class = &self.classes[of.index()];
            let mut beside = Some(other);
            while let Some(rival) = beside {
                let it = &self.classes[rival.index()];
                if it.within == class.within && rival != of {
                    return class.start_tag() + tag(ns, class.weight.into()) <= it.finish;
                }
                beside = self.branch_of(rival);
            }
            at = self.branch_of(of);
        }
        false
    }

    /// A class's requests are dispatched. O(1), and nothing of note but for the first ones of a lot that goes on.
    pub(crate) fn dispatched(&mut self, now: Time, id: ClassId, file: u32, range: [u64; 2]) {
        let [offset, end] = range;
        if self.last != Some(id) {
            if let Some(preemption) = self.preemption.as_mut().filter(|one| one.by == id) {
                preemption.has_begun = true;
            }
            return;
        }
        let before = self.reach.replace((file, end));
        if let Some(Preemption { by, .. }) = self.preemption.take_if(|one| one.has_begun)
            && before == Some((file, offset))
        {
            self.charge_instead(now, by, self.jump.as_nanos());
        }
    }

    /// What is to be charged for requests that are completed: more than they took for the one that has preempted a lot, and less for
    /// whoever had the lot.
    pub(super) fn charge_preemption(&mut self, now: Time, id: ClassId, served: &Served) -> u64 {
        let class = &mut self.classes[id.index()];
        if core::mem::take(&mut class.has_preempted) {
            let there = served.lasted.min(self.jump).as_nanos();
            self.charge_instead(now, id, there.saturating_sub(served.ns));
            return served.ns;
        }
        let credit = served.ns.min(class.credit.into()) as u32;
        class.credit -= credit;
        served.ns - u64::from(credit)
    }

    /// What dispatches of the open lot take longer is charged to whoever has preempted it.
    fn charge_instead(&mut self, now: Time, id: ClassId, ns: u64) {
        let Some(last) = self.last.filter(|last| *last != id) else { return };
        let credit = &mut self.classes[last.index()].credit;
        *credit = credit.saturating_add(ns.min(u32::MAX.into()) as u32);
        self.classes[id.index()].recent.add(now, [ns]);
        self.charge_more(now, id, ns);
    }

    /// Another lot is opened.
    pub(super) fn forget_preemption(&mut self) {
        (self.preemption, self.reach) = (None, None);
    }
}
