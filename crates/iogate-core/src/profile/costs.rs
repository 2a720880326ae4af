//! A profile as tables: what a dispatch costs in a few multiplications, for who asks often.

use super::{IN_FLIGHT, Line, NS_MAX, Number, Profile, SIZES, interval};
use crate::request::Op;

/// Where a dispatch is, compared with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Where the dispatch before it ended.
    Next,
    /// Where one ended after which 1 to 3 others came.
    After1,
    /// The same, 4 to 15.
    After4,
    /// The same, more.
    After16,
    /// Anywhere.
    Jump,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 5] = [Class::Next, Class::After1, Class::After4, Class::After16, Class::Jump];

    /// The class of a dispatch that goes on where another ended after which `others` came.
    pub fn after(others: u64) -> Class {
        match others {
            0 => Class::Next,
            1..=3 => Class::After1,
            4..=15 => Class::After4,
            _ => Class::After16,
        }
    }
}

/// Bits after the binary point of a slope. A line of 100 s then fits 64 bits for 64 MiB.
const FRACTION: u32 = 16;
/// Longest dispatch that is charged; longer ones cost as much.
const BYTES_MAX: u64 = 64 << 20;
/// Bits after the binary point of a stretch.
const STRETCH: u32 = 10;
const IN_FLIGHT_MAX: usize = IN_FLIGHT[IN_FLIGHT.len() - 1] as usize;

#[derive(Clone, Copy, Debug, Default)]
struct Slope {
    base_ns: i64,
    per_byte: i64,
    least_ns: u64,
}

impl Slope {
    fn new(line: &Line, interval: usize, extra_ns: u64) -> Slope {
        let (from, to) = (SIZES[interval] as i64, SIZES[interval + 1] as i64);
        let [low, high] = [line.low, line.high].map(|end| end.value.min(NS_MAX) as i64);
        let per_byte = ((high - low) << FRACTION) / (to - from);
        Slope {
            base_ns: low - ((per_byte * from) >> FRACTION) + extra_ns.min(NS_MAX) as i64,
            per_byte,
            // Below the interval a line may become nothing; half of its less end is as far as it is believed.
            least_ns: (low.min(high) / 2).max(1) as u64,
        }
    }

    fn at(self, bytes: u64) -> u64 {
        let ns = self.base_ns + ((self.per_byte * bytes.min(BYTES_MAX) as i64) >> FRACTION);
        (ns.max(0) as u64).max(self.least_ns)
    }
}

/// A profile as tables.
#[derive(Clone, Debug)]
pub struct Costs {
    slopes: [[[Slope; 2]; 5]; 2],
    /// X(n) / X(1) in thousandths, by operation, interval and n.
    speedup: [[[u32; IN_FLIGHT_MAX + 1]; 2]; 2],
    /// How much longer a dispatch takes with n in service, as a fixed-point number.
    stretch: [[[u32; IN_FLIGHT_MAX + 1]; 2]; 2],
}

impl Costs {
    pub(super) fn new(profile: &Profile) -> Costs {
        let mut costs = Costs {
            slopes: Default::default(),
            speedup: [[[1_000; IN_FLIGHT_MAX + 1]; 2]; 2],
            stretch: [[[1 << STRETCH; IN_FLIGHT_MAX + 1]; 2]; 2],
        };
        for op in [Op::Read, Op::Write] {
            let of = profile.of(op);
            for class in Class::ALL {
                let (lines, extra_ns) = match class {
                    Class::Next => (&of.sequential, 0),
                    Class::Jump => (&of.random, 0),
                    Class::After1 => (&of.sequential, of.between[0].value),
                    Class::After4 => (&of.sequential, of.between[1].value),
                    Class::After16 => (&of.sequential, of.between[2].value),
                };
                for (interval, line) in lines.iter().enumerate() {
                    costs.slopes[op as usize][class as usize][interval] =
                        Slope::new(line, interval, extra_ns);
                }
            }
            for (interval, known) in of.speedup.iter().enumerate() {
                for n in 1..=IN_FLIGHT_MAX {
                    let speedup = between(known, n as u64).clamp(1, n as u64 * 1_000);
                    costs.speedup[op as usize][interval][n] = speedup as u32;
                    costs.stretch[op as usize][interval][n] =
                        (((n as u64) * 1_000) << STRETCH).div_ceil(speedup) as u32;
                }
            }
        }
        costs
    }

    /// Nanoseconds of a dispatch with nothing else in service: c(0) for [`Class::Next`], and so on.
    #[inline]
    pub fn alone_ns(&self, op: Op, class: Class, bytes: u64) -> u64 {
        self.slopes[op as usize][class as usize][interval(bytes)].at(bytes)
    }

    /// The same with `n` in service, itself included: by Little's law, n times as long over X(n) / X(1).
    #[inline]
    pub fn shared_ns(&self, op: Op, class: Class, bytes: u64, n: usize) -> u64 {
        let stretch = self.stretch[op as usize][interval(bytes)][n.clamp(1, IN_FLIGHT_MAX)];
        ((u128::from(self.alone_ns(op, class, bytes)) * u128::from(stretch)) >> STRETCH) as u64
    }

    /// X(n) / X(1) in thousandths.
    pub fn speedup(&self, op: Op, bytes: u64, n: usize) -> u32 {
        self.speedup[op as usize][interval(bytes)][n.clamp(1, IN_FLIGHT_MAX)]
    }

    /// What an idle slot loses while `n` are in service: 1 - X(n) / X(n + 1) in thousandths; all of it with none.
    pub fn idle_loss(&self, op: Op, bytes: u64, n: usize) -> u32 {
        if n == 0 {
            return 1_000;
        }
        let [now, more] = [n, n + 1].map(|n| u64::from(self.speedup(op, bytes, n)));
        1_000 - (now * 1_000 / more.max(1)).min(1_000) as u32
    }

    /// The fewest in service that come within 2 % of the highest rate.
    pub fn slots(&self) -> u32 {
        let enough = |speedups: &[u32; IN_FLIGHT_MAX + 1]| {
            let most = speedups.iter().skip(1).copied().max().unwrap_or(1_000);
            (1..IN_FLIGHT_MAX).find(|n| speedups[*n] * 50 >= most * 49).unwrap_or(IN_FLIGHT_MAX)
        };
        self.speedup.iter().flatten().map(enough).max().unwrap_or(1) as u32
    }
}

/// X(n) / X(1), interpolated between those that are known.
fn between(known: &[Number; 6], n: u64) -> u64 {
    let above = IN_FLIGHT.iter().position(|at| u64::from(*at) >= n).unwrap_or(IN_FLIGHT.len() - 1);
    let (to, high) = (u64::from(IN_FLIGHT[above]), known[above].value);
    if above == 0 || to == n {
        return high;
    }
    let (from, low) = (u64::from(IN_FLIGHT[above - 1]), known[above - 1].value);
    (low * (to - n) + high * (n - from)) / (to - from)
}
