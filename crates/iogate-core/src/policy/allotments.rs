//! What applications are allotted of caps that many gates share, and what they have used of it.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::Leaf;
use super::arbiter::{Arbiter, CAP_BURST, Class, ClassId};
use crate::global_policy::Usage;
use crate::time::{Span, Time};

impl Class {
    /// From when on its next request may go, as far as its cap is concerned.
    pub(super) fn conforms_at(&self) -> Time {
        if self.is_stopped { Time::MAX } else { self.cap.conforms_at(CAP_BURST) }
    }

    /// For how long it has waited for its cap.
    pub(super) fn capped(&self, now: Time) -> Span {
        self.capped_for + self.capped.map_or(Span::ZERO, |_| now.since(self.counted_until))
    }

    /// For how long it has waited for nothing but its cap in bytes: with more of these it would have gone on.
    pub(super) fn short(&self, now: Time) -> Span {
        let (bytes, requests) = (&self.cap.bytes, self.cap.requests.conforms_at(CAP_BURST));
        let is_short = self.capped.is_some() && (self.is_stopped || bytes.conforms_at(CAP_BURST) > requests);
        let since = self.counted_until.max(requests);
        self.short_for + if is_short { now.since(since) } else { Span::ZERO }
    }

    /// Counts for how long it has waited for its cap up to now, as the cap, what is ahead of it or whether it waits is to be another.
    pub(super) fn count_capped(&mut self, now: Time) {
        if self.capped.is_some() {
            (self.short_for, self.capped_for) = (self.short(now), self.capped(now));
        }
        self.counted_until = self.counted_until.max(now);
    }

    /// What it may have of `cap` is another rate from now on.
    fn set_allotment(&mut self, now: Time, cap: NonZeroU64, rate: u64) {
        let before = self.allotted.unwrap_or(cap);
        // What goes nevertheless, as others wait for it, is paid for at the rate before.
        let after = NonZeroU64::new(rate).unwrap_or(before);
        self.cap.bytes.rescale(now, before, after);
        (self.allotted, self.is_stopped) = (Some(after), rate == 0);
    }
}

impl Arbiter {
    /// A class where it is.
    fn leaf_of(&self, id: ClassId) -> Leaf {
        let name = |id: ClassId| self.classes[id.index()].app;
        Leaf { app: name(id), within: self.branch_of(id).map(name) }
    }

    /// A class goes by what it is allotted where it is.
    pub(super) fn go_by_allotment(&mut self, now: Time, id: ClassId) {
        if !self.policy.is_shared {
            return;
        }
        let leaf = self.leaf_of(id);
        let (cap, rate) = (self.policy.cap_of(leaf), self.allotments.get(&leaf).copied().unwrap_or(0));
        let class = &mut self.classes[id.index()];
        class.count_capped(now);
        match cap {
            Some(cap) => class.set_allotment(now, cap, rate),
            None => (class.allotted, class.is_stopped) = (None, false),
        }
    }

    /// Classes are allotted so much, in bytes a second, and others nothing. O(n log n).
    pub(crate) fn allot(&mut self, now: Time, rates: impl IntoIterator<Item = (Leaf, u64)>) {
        let before = core::mem::take(&mut self.allotments);
        for (leaf, rate) in rates {
            if rate > 0 {
                self.allotments.insert(leaf, rate);
                if before.get(&leaf) != Some(&rate) {
                    self.allotment_changed(now, leaf);
                }
            }
        }
        let gone = before.keys().filter(|leaf| !self.allotments.contains_key(*leaf));
        for leaf in gone.copied().collect::<Vec<_>>() {
            self.allotment_changed(now, leaf);
        }
    }

    fn allotment_changed(&mut self, now: Time, leaf: Leaf) {
        if let Some(id) = self.class_of(leaf.app).filter(|id| self.leaf_of(*id) == leaf) {
            self.go_by_allotment(now, id);
            self.rank(now, id);
        }
    }

    /// What a class is allotted; `None`: nothing limits it.
    pub(crate) fn allotment(&self, leaf: Leaf) -> Option<u64> {
        self.policy.cap_of(leaf).filter(|_| self.policy.is_shared)?;
        Some(self.allotments.get(&leaf).copied().unwrap_or(0))
    }

    /// Whether somebody has come, since this was asked last, who has nothing.
    pub(crate) fn take_lack(&mut self) -> bool {
        core::mem::take(&mut self.has_lack)
    }

    /// What classes have used that are allotted something.
    pub(crate) fn usages(&self, now: Time) -> impl Iterator<Item = Usage> + '_ {
        let ids = (0..self.classes.len()).map(|index| ClassId(index as u16));
        let known = ids.filter(|id| self.class_of(self.classes[id.index()].app) == Some(*id));
        let leaves = known.map(|id| (self.leaf_of(id), &self.classes[id.index()]));
        let allotted = leaves.filter(|(leaf, _)| self.allotment(*leaf).is_some());
        allotted.map(move |(leaf, class)| Usage {
            leaf,
            admitted: class.admitted_bytes,
            capped: class.short(now),
            deferred: class.waiting_bytes,
        })
    }
}
