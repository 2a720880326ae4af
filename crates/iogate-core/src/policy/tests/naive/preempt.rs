//! Lots that are preempted, naively.

use super::*;

impl Naive {
    /// Who is next and may come in the midst of the open lot.
    pub(super) fn preempts(&mut self, now: u64) -> Option<usize> {
        let last = self.last.filter(|_| self.is_asked(now))?;
        let is_open = self.classes[last].budget > 0 || self.classes[last].serves > 0;
        let class = self.descend(now, false);
        if class == last || !is_open || !self.classes[class].may_preempt {
            return None;
        }
        // Where their branches part: it had no more than whoever has the lot, and would still not if it went.
        let takes = self.classes[class].estimate.max(2 * self.jump);
        let pairs = || {
            self.chain(class).into_iter().flat_map(|at| self.chain(last).into_iter().map(move |of| (at, of)))
        };
        let (at, of) =
            pairs().find(|(at, of)| at != of && self.classes[*at].within == self.classes[*of].within)?;
        if self.key(at) + tag(takes, self.classes[at].entitlement.weight) > self.classes[of].finish {
            return None;
        }
        self.charge_kept(now, last);
        for at in self.chain(class) {
            self.classes[at].finish = self.key(at);
        }
        self.classes[class].has_preempted = true;
        self.preempted_by = Some((class, false));
        Some(class)
    }

    /// A request is dispatched.
    pub(super) fn dispatched(&mut self, class: usize, file: u32, [offset, end]: [u64; 2]) {
        if self.last == Some(class) {
            let goes_on = self.reach == Some((file, offset));
            self.reach = Some((file, end));
            if let Some((by, true)) = self.preempted_by {
                self.preempted_by = None;
                if goes_on {
                    self.charge_instead(by, self.jump);
                }
            }
        } else if self.preempted_by.is_some_and(|(by, _)| by == class) {
            self.preempted_by = Some((class, true));
        }
    }

    /// Charges to a class what the requests of the lot will take.
    pub(super) fn charge_instead(&mut self, class: usize, ns: u64) {
        let Some(last) = self.last.filter(|last| *last != class) else { return };
        self.classes[last].credit += ns;
        for at in self.chain(class) {
            let weight = self.classes[at].entitlement.weight;
            self.classes[at].finish += tag(ns, weight);
        }
    }
}
