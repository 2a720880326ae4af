//! Time cut into slots of one length, which doubles when a run outgrows them.

/// Slots of a timeline; a picture of a thousand pixels shows no more.
pub(crate) const SLOTS_MAX: u64 = 512;

/// Adds the time from `start_ns` to `end_ns` to the slots that it lies in.
pub(crate) fn add(slots: &mut Vec<u64>, slot_ns: u64, start_ns: u64, end_ns: u64) {
    let mut at = start_ns;
    while at < end_ns {
        let slot = at / slot_ns;
        let end = (slot + 1).saturating_mul(slot_ns).min(end_ns);
        if slots.len() <= slot as usize {
            slots.resize(slot as usize + 1, 0);
        }
        slots[slot as usize] = slots[slot as usize].saturating_add(end - at);
        at = end;
    }
}

/// By what power of two the slots' length must grow for `end_ns` to lie within `max` of them.
pub(crate) fn doublings(slot_ns: u64, max: u64, end_ns: u64) -> u32 {
    (0..64).find(|power| end_ns <= (slot_ns << power).saturating_mul(max)).unwrap_or(63)
}

/// Joins each `2^power` slots to one.
pub(crate) fn join(slots: &mut Vec<u64>, power: u32) {
    if power > 0 {
        *slots = slots
            .chunks(1 << power)
            .map(|joined| joined.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns)))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a trace can be any.
    #[test]
    fn the_last_slot_ends_with_the_last_moment_that_there_is() {
        let slot_ns = 1 << doublings(1, SLOTS_MAX, u64::MAX);
        let mut slots = Vec::new();
        add(&mut slots, slot_ns, u64::MAX - 7, u64::MAX);
        assert_eq!((slots.len() as u64, slots.iter().sum::<u64>()), (SLOTS_MAX, 7));
    }
}
