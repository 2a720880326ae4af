//! What applications are allotted of caps that many gates share, and what they have used of it.

use alloc::vec::Vec;

use super::Leaf;
use super::arbiter::{Arbiter, ClassId};
use crate::global_policy::Usage;
use crate::time::Time;

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
        let limits = &mut self.limits[id.index()];
        limits.count_capped(now);
        match cap {
            Some(cap) => limits.set_allotment(now, cap, rate),
            None => (limits.allotted, limits.is_stopped) = (None, false),
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
        let leaves = known.map(|id| (self.leaf_of(id), &self.limits[id.index()]));
        let allotted = leaves.filter(|(leaf, _)| self.allotment(*leaf).is_some());
        allotted.map(move |(leaf, limits)| Usage {
            leaf,
            admitted: limits.admitted_bytes,
            capped: limits.short(now),
            deferred: limits.waiting_bytes,
        })
    }
}
