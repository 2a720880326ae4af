//! Requests in groups, the groups in order of a key (window, then application or target), each group in arrival order.

use alloc::vec::Vec;

use super::Pick;
use super::arrival::ArrivalList;
use crate::hash::HashMap;
use crate::heap::IndexedHeap;
use crate::queue::{Pending, SlotId};

/// Window index, then the id that is served one at a time within it.
pub(super) type GroupKey = (u64, u32);

/// O(1) a request, O(log g) for each group that comes or goes; groups are recycled.
#[derive(Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    free: Vec<u32>,
    group_of: HashMap<GroupKey, u32>,
    order: IndexedHeap<GroupKey>,
}

#[derive(Default)]
struct Group {
    len: u32,
    arrivals: ArrivalList,
}

impl Groups {
    /// Adds a queued request.
    pub(super) fn push(&mut self, key: GroupKey, slot: SlotId, pending: &mut Pending) {
        let group = *self.group_of.entry(key).or_insert_with(|| {
            let group = self.free.pop().unwrap_or_else(|| {
                self.groups.push(Group::default());
                self.free.reserve(self.groups.len());
                self.groups.len() as u32 - 1
            });
            self.order.set(group, key);
            group
        });
        let this = &mut self.groups[group as usize];
        this.len += 1;
        this.arrivals.push(pending, slot);
    }

    /// Takes the first request of the first group.
    pub(super) fn pick(&mut self, pending: &mut Pending) -> Pick {
        let Some((key, group)) = self.order.peek() else { return Pick::Idle };
        let this = &mut self.groups[group as usize];
        let Some(oldest) = this.arrivals.oldest(pending) else { return Pick::Idle };
        this.arrivals.remove(pending, oldest);
        pending.take(oldest);
        this.len -= 1;
        if this.len == 0 {
            self.order.remove(group);
            self.group_of.remove(&key);
            self.free.push(group);
        }
        Pick::Dispatch
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
            + self.groups.iter().map(|group| group.arrivals.allocated_bytes()).sum::<usize>()
            + self.free.capacity() * size_of::<u32>()
            + self.group_of.allocation_size()
            + self.order.allocated_bytes()
    }
}
