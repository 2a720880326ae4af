//! Max-min fairness by water filling, in whole numbers.

/// The level to which `total` fills the gates: each gets the less of its demand and the level, and together no more than `total`.
/// [`u64::MAX`] if all get what they ask for. Less than one unit a gate is left over. Sorts `demands`: O(n log n).
pub fn level(total: u64, demands: &mut [u64]) -> u64 {
    demands.sort_unstable();
    let mut left = total;
    let mut others = demands.len() as u64;
    for &demand in &*demands {
        let each = left / others;
        if demand > each {
            return each;
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

    /// The highest at which all together get no more than `total`. O(n log total).
    pub fn of(total: u64, wants: &[Want]) -> Level {
        let fits = |level: Level| {
            let all: u128 = wants.iter().map(|want| u128::from(level.of_want(want))).sum();
            all <= u128::from(total)
        };
        if fits(Level::FULL) {
            return Level::FULL;
        }
        let is_below_floors = !fits(Level { per_weight: 0, is_below_floors: false });
        let (mut low, mut high) = (0u128, u128::from(total) << BITS | 1);
        // It fits at `low`. At `high` a class of weight 1 alone has it all.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(Level { per_weight: middle, is_below_floors }) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Level { per_weight: low, is_below_floors }
    }

    /// What a class gets.
    pub fn of_want(self, want: &Want) -> u64 {
        let floor = want.floor.min(want.demand);
        let share = self.per_weight.saturating_mul(want.weight.into()) >> BITS;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        if self.is_below_floors { share.min(floor) } else { share.min(want.demand).max(floor) }
    }

    /// Whether all get what they ask for.
    pub fn is_full(self) -> bool {
        self == Level::FULL
    }
}
