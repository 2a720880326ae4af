//! Values by handles that are not taken for those of later values: a slot's index below its generation.

/// Values by handles. No handle is 0.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

/// The slot of a handle.
pub(crate) fn index(handle: u64) -> usize {
    (handle & u64::from(u32::MAX)) as usize
}

/// A slot's next generation, which is not 0.
pub(crate) fn after(generation: u32) -> u32 {
    generation.checked_add(1).unwrap_or(1)
}

impl<T> Slab<T> {
    /// The handle that the next [`Slab::insert`] gives.
    pub(crate) fn vacant(&self) -> u64 {
        let index = *self.free.last().unwrap_or(&(self.slots.len() as u32));
        let generation = self.slots.get(index as usize).map_or(1, |slot| slot.generation);
        u64::from(generation) << 32 | u64::from(index)
    }

    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let handle = self.vacant();
        match self.free.pop() {
            Some(index) => self.slots[index as usize].value = Some(value),
            None => self.slots.push(Slot { generation: 1, value: Some(value) }),
        }
        handle
    }

    pub(crate) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(index(handle))?;
        if u64::from(slot.generation) != handle >> 32 {
            return None;
        }
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        self.get_mut(handle)?;
        let slot = &mut self.slots[index(handle)];
        slot.generation = after(slot.generation);
        self.free.push(index(handle) as u32);
        slot.value.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_handle_is_nobodys() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_ne!(first, 0);
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        let second = slab.insert('b');
        assert_eq!(index(first), index(second));
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get_mut(second).copied(), Some('b'));
        assert_eq!(slab.get_mut(u64::MAX), None);
        slab.slots[0].generation = u32::MAX;
        let last = slab.vacant() | u64::from(u32::MAX) << 32;
        slab.remove(last & !u64::from(u32::MAX));
        assert_eq!(slab.slots[0].generation, 1, "generation 0 would make handle 0");
    }
}
