//! Max-min fairness by water filling, in whole numbers.

/// The level to which `total` fills the gates: each gets the less of its demand and the level, and together no more than `total`.
/// [`u64::MAX`] if all get what they ask for. Less than one unit a gate is left over. Sorts `demands`: O(n log n).
pub fn level(total: u64, demands: &mut [u64]) -> u64 {
    demands.sort_unstable();
    let mut left = total;
    let mut others = demands.len() as u64;
    for &demand in &*demands {
        // A product takes a fraction of a division's time.
        if u128::from(demand) * u128::from(others) > left.into() {
            return left / others;
        }
        left -= demand;
        others -= 1;
    }
    u64::MAX
}

/// What a class asks of a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its share beside others, at least 1.
    pub weight: u32,
    /// It gets at least this, as far as it asks for it.
    pub floor: u64,
    /// It gets no more than this.
    pub demand: u64,
}

/// To which level a total fills classes by weight, above their floors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// What a class of weight 1 gets, in 2^-16.
    per_weight: u128,
    /// Whether floors alone are more than the total: then they are divided by weight, too.
    is_below_floors: bool,
}

/// Bits of a level below the point.
const BITS: u32 = 16;

impl Level {
    /// All get what they ask for.
    pub const FULL: Level = Level { per_weight: u128::MAX, is_below_floors: false };

    /// The highest at which all together get no more than `total`. O(n) a step, of which there are few.
    pub fn of(total: u64, wants: &[Want]) -> Level {
        let sum = |of: fn(&Want) -> u64| wants.iter().map(|want| u128::from(of(want))).sum::<u128>();
        let all = u128::from(total);
        if sum(|want| want.demand) <= all {
            return Level::FULL;
        }
        let is_below_floors = sum(|want| want.floor.min(want.demand)) > all;
        // Who gets more at a higher level is between the two.
        let bounds = |want: &Want| {
            let floor = want.floor.min(want.demand);
            if is_below_floors { (0, floor) } else { (floor, want.demand) }
        };
        let per_weight = match wants {
            // With one weight for all, whole numbers of bytes are looked at.
            [first, rest @ ..] if first.weight > 0 && rest.iter().all(|want| want.weight == first.weight) => {
                let weight = u128::from(first.weight);
                let each = highest(all, all * weight + 1, 1, |each| {
                    let each = u64::try_from(each).unwrap_or(u64::MAX);
                    let of = |(sum, more): (u128, u128), want: &Want| {
                        let (least, most) = bounds(want);
                        let grows = (least..most).contains(&each);
                        (sum + u128::from(each.min(most).max(least)), more + u128::from(grows))
                    };
                    wants.iter().fold((0, 0), of)
                });
                ((((each + 1) << BITS) - 1) / weight).min(all << BITS)
            }
            _ => highest(all, all << BITS | 1, 1 << BITS, |per_weight| {
                let level = Level { per_weight, is_below_floors };
                let of = |(sum, more): (u128, u128), want: &Want| {
                    let (least, most) = bounds(want);
                    let share = level.share(want.weight);
                    let grows = if (least..most).contains(&share) { want.weight } else { 0 };
                    (sum + u128::from(share.min(most).max(least)), more + u128::from(grows))
                };
                wants.iter().fold((0, 0), of)
            }),
        };
        Level { per_weight, is_below_floors }
    }

    /// What a class of this weight has above nothing.
    fn share(self, weight: u32) -> u64 {
        let share = match u64::try_from(self.per_weight) {
            Ok(per_weight) => (u128::from(per_weight) * u128::from(weight)) >> BITS,
            Err(_) => self.per_weight.saturating_mul(weight.into()) >> BITS,
        };
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// What a class gets.
    pub fn of_want(self, want: &Want) -> u64 {
        let floor = want.floor.min(want.demand);
        let share = self.share(want.weight);
        if self.is_below_floors { share.min(floor) } else { share.min(want.demand).max(floor) }
    }

    /// Whether all get what they ask for.
    pub fn is_full(self) -> bool {
        self == Level::FULL
    }
}

/// Steps straight ahead before what is left is halved.
const STEPS: u32 = 8;

/// The highest number below `end` at which `at` comes to no more than `total`, as it does at 0. `at` says what it comes to, which never
/// falls, and by how much that would grow with each `unit` more, if it went on straight.
fn highest(total: u128, end: u128, unit: u128, at: impl Fn(u128) -> (u128, u128)) -> u128 {
    let (mut low, mut high, mut steps) = (0, end, 0);
    let (mut sum, mut slope) = at(0);
    while high - low > 1 {
        let before = high - low;
        let ahead = (total - sum).saturating_mul(unit).checked_div(slope).filter(|_| steps < STEPS);
        let next = ahead.map_or(low + before / 2, |ahead| low.saturating_add(ahead).clamp(low + 1, high - 1));
        let (comes_to, grows) = at(next);
        if comes_to <= total {
            (low, sum, slope) = (next, comes_to, grows);
        } else {
            high = next;
        }
        steps = if high - low > before / 2 { steps + 1 } else { 0 };
    }
    low
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// By halves, from all that there is.
    fn naive(total: u64, wants: &[Want]) -> Level {
        let fits = |level: Level| {
            let all: u128 = wants.iter().map(|want| u128::from(level.of_want(want))).sum();
            all <= u128::from(total)
        };
        if fits(Level::FULL) {
            return Level::FULL;
        }
        let is_below_floors = !fits(Level { per_weight: 0, is_below_floors: false });
        let (mut low, mut high) = (0u128, u128::from(total) << BITS | 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let halves =
                if fits(Level { per_weight: middle, is_below_floors }) { &mut low } else { &mut high };
            *halves = middle;
        }
        Level { per_weight: low, is_below_floors }
    }

    fn amount() -> impl Strategy<Value = u64> {
        prop_oneof![2 => 0u64..40, 4 => 0u64..400_000, 1 => any::<u64>().prop_map(|any| any >> 8), 1 => any::<u64>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// To the last bit, as what comes later is given by it, too.
        #[test]
        fn a_level_is_what_halving_finds(
            total in amount(),
            weight in prop::option::of(1u32..=10_000),
            wants in prop::collection::vec((1u32..=10_000, prop_oneof![1 => Just(0), 1 => amount()], amount()), 0..12),
        ) {
            let want = |(own, floor, demand)| Want { weight: weight.unwrap_or(own), floor, demand };
            let wants: Vec<Want> = wants.into_iter().map(want).collect();
            prop_assert_eq!(Level::of(total, &wants), naive(total, &wants));
        }
    }
}
