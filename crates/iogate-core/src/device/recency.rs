//! Which of a few was used least recently.

use alloc::vec::Vec;

/// Numbers from 0 on in the order of their last use. Those that were never used, or are forgotten, come first, the smallest first.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    order: Vec<u32>,
    /// So many at the beginning are not in use.
    unused: usize,
}

impl Recency {
    /// So many numbers, none of them in use.
    pub(super) fn new(count: u32) -> Recency {
        Recency { order: (0..count).collect(), unused: count as usize }
    }

    /// The one that was used least recently; `None` if there are none at all.
    pub(super) fn least(&self) -> Option<usize> {
        self.order.first().map(|least| *least as usize)
    }

    /// A number is used now.
    pub(super) fn used(&mut self, number: usize) {
        let last = self.order.len() - 1;
        if self.order[last] as usize == number && self.unused <= last {
            return;
        }
        let at = self.place(number);
        self.unused -= usize::from(at < self.unused);
        self.order.copy_within(at + 1.., at);
        self.order[last] = number as u32;
    }

    /// A number is not in use any more.
    pub(super) fn forgotten(&mut self, number: usize) {
        let at = self.place(number);
        if at >= self.unused {
            let to = self.order[..self.unused].partition_point(|other| (*other as usize) < number);
            self.order.copy_within(to..at, to + 1);
            self.order[to] = number as u32;
            self.unused += 1;
        }
    }

    fn place(&self, number: usize) -> usize {
        self.order.iter().position(|other| *other as usize == number).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against times of use, of which the first of the least is taken.
    #[test]
    fn is_the_first_of_those_with_the_least_time_of_use() {
        for count in [1, 2, 5, 16] {
            let (mut recency, mut times) = (Recency::new(count), alloc::vec![0; count as usize]);
            let mut x = u64::from(count);
            for now in 1..20_000u64 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = match (x >> 33) % 3 {
                    0 => (x >> 40) as usize % count as usize,
                    _ => recency.least().expect("there are some"),
                };
                if (x >> 50).is_multiple_of(7) {
                    recency.forgotten(number);
                    times[number] = 0;
                } else {
                    recency.used(number);
                    times[number] = now;
                }
                let least = (0..times.len()).min_by_key(|number| times[*number]);
                assert_eq!(recency.least(), least);
            }
        }
        assert_eq!(Recency::new(0).least(), None);
    }
}
