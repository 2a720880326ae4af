//! What deliberate waits need to know of a profile.

use super::{Class, Profile};
use crate::request::Op;
use crate::sched::Prices;
use crate::time::Span;

/// The size of a dispatch that is priced: the end of one interval of a profile and the beginning of the other.
const BYTES: u64 = super::SIZES[1];

impl Profile {
    /// What a dispatch of 64 KiB saves by going on where another ended, and the rate of reads with so many in service.
    pub fn prices(&self) -> Prices {
        let costs = self.costs();
        let saving = [Op::Read, Op::Write].map(|op| {
            let jump = costs.alone_ns(op, Class::Jump, BYTES);
            [Class::Next, Class::After1, Class::After4]
                .map(|class| Span::from_nanos(jump.saturating_sub(costs.alone_ns(op, class, BYTES))))
        });
        let rate = self.read.speedup[0].map(|speedup| u32::try_from(speedup.value).unwrap_or(u32::MAX));
        Prices { saving, rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_saves_a_seek_by_the_very_next_and_little_by_what_comes_later() {
        let prices = Profile::assumed("disk", true).prices();
        let [next, after_1, _] = prices.saving[Op::Read as usize];
        assert_eq!(next, Span::from_micros(12_400 - 440));
        assert_eq!(after_1, Span::from_micros(12_400 - 10_440));
        // One arm: a slot beside a busy one loses nothing.
        assert_eq!(prices.idle_loss(1), 0);
        assert!(Profile::assumed("flash", false).prices().idle_loss(1) > 0);
    }
}
