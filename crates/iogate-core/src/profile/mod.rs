//! What storage charges: a profile, measured or learnt, in integers.
//!
//! | file | what |
//! |---|---|
//! | `mod` | the numbers, and what follows from them |
//! | `costs` | the same as tables that are quick to ask |
//! | `profiled` | a device made from a profile |
//! | `prices` | what deliberate waits need to know of a profile |
//! | `plan` | what to measure |
//! | `streams` | which dispatch goes on where another ended |
//! | `measure` | a model's measurements |
//! | `fit` | measurements to a profile |
//! | `refit` | the same from live traffic, in bounded memory |
//! | `findings` | what was learnt so, without what was assumed: to go on from |
//!
//! A dispatch costs t = a + b bytes, in two intervals of sizes, for each operation and for each of two patterns: going on where the
//! dispatch before it ended, and jumping. A line is kept as the times at both ends of its interval, which cannot be negative.
//! What goes on after others came between costs more than at once, by an amount that depends on how many came. With n in service,
//! a device completes X(n) as many as X(1).

mod costs;
mod findings;
mod fit;
mod measure;
mod plan;
mod prices;
mod profiled;
mod refit;
mod streams;

use alloc::string::String;

use crate::request::Op;
use crate::units::{KIB, MIB};

pub use costs::{Class, Costs};
pub use findings::{Finding, Findings};
pub use fit::{Fit, Sample};
pub use measure::{Places, carry_out, measure};
pub use plan::{Access, Step, steps};
pub use profiled::Profiled;
pub use refit::{Coverage, Refit, Unexplained};
pub use streams::Streams;

/// The ends of the two intervals of sizes.
pub const SIZES: [u64; 3] = [4 * KIB, 64 * KIB, 4 * MIB];
/// How many are in flight where X(n) is known; in between it is interpolated.
pub const IN_FLIGHT: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Which of [`IN_FLIGHT`] a number is nearest to, by ratio; that of 1 is alone.
#[inline]
pub(crate) fn nearest(n: u32) -> usize {
    if n <= 1 {
        return 0;
    }
    // From 1.5 times a power of two on it is the next one.
    let below = n.ilog2() as usize;
    (below + usize::from(n >= 3 << below >> 1)).min(IN_FLIGHT.len() - 1)
}
/// The format that this version reads and writes.
pub const VERSION: u64 = 1;
/// Longest time of a dispatch.
pub(crate) const NS_MAX: u64 = 100_000_000_000;

/// A number, and how far it is to be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number {
    /// The number: nanoseconds, bytes, bytes a second, or thousandths.
    pub value: u64,
    /// How many measurements it comes from; 0 if it is taken from elsewhere, or a default.
    pub count: u32,
    /// How far the middle half of them lies apart, in thousandths of the number.
    pub spread: u32,
}

impl Number {
    /// A number that nobody has measured.
    pub const fn assumed(value: u64) -> Number {
        Number { value, count: 0, spread: 0 }
    }
}

/// The time of a dispatch over an interval of sizes: at its lower end and at its upper end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Nanoseconds at the lower end.
    pub low: Number,
    /// Nanoseconds at the upper end.
    pub high: Number,
}

/// What an operation costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpProfile {
    /// Dispatches that go on where the one before ended: 4 to 64 KiB, 64 KiB to 4 MiB.
    pub sequential: [Line; 2],
    /// Dispatches anywhere.
    pub random: [Line; 2],
    /// What it costs more to go on after 1 to 3, 4 to 15, or more others came between, in nanoseconds.
    pub between: [Number; 3],
    /// X(n) / X(1) in thousandths, of small and of large dispatches, for each of [`IN_FLIGHT`].
    pub speedup: [[Number; 6]; 2],
}

/// A write cache as it shows from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheProfile {
    /// Bytes that it takes at once; 0 for none.
    pub bytes: Number,
    /// Bytes a second while it does.
    pub fill: Number,
    /// Bytes a second that leave it.
    pub drain: Number,
}

/// What a gate costs by itself, a dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateProfile {
    /// Nanoseconds of a dispatch that its own thread carries out.
    pub inline: Number,
    /// Nanoseconds of one that another thread carries out.
    pub handed_over: Number,
}

/// What storage charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What was measured: the kind of device or file system. Profiles of another kind are not to be mixed.
    pub kind: String,
    /// Whether it has an arm.
    pub rotational: bool,
    /// Reads.
    pub read: OpProfile,
    /// Writes that last: with a full cache, if there is one.
    pub write: OpProfile,
    /// The write cache.
    pub cache: CacheProfile,
    /// The gate.
    pub gate: GateProfile,
}

/// Why numbers are no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}: expected {expected}")]
pub struct ProfileError {
    /// The number.
    pub what: String,
    /// What it is.
    pub value: u64,
    /// What it may be.
    pub expected: &'static str,
}

impl Profile {
    /// A profile of which nothing is measured: a plain disk, or plain flash.
    pub fn assumed(kind: &str, rotational: bool) -> Profile {
        let line = |low: u64, high: u64| Line { low: Number::assumed(low), high: Number::assumed(high) };
        let speedup = |most: u64| {
            [most, most.min(4_000)]
                .map(|most| IN_FLIGHT.map(|n| Number::assumed((u64::from(n) * 1_000).min(most))))
        };
        let (sequential, random, between, most) = match rotational {
            // 150 MB/s, 12 ms.
            true => (
                [(40_000, 440_000), (440_000, 28_000_000)],
                [(12_000_000, 12_400_000), (12_400_000, 40_000_000)],
                10_000_000,
                1_000,
            ),
            // 500 MB/s, 80 us.
            false => (
                [(30_000, 150_000), (150_000, 8_400_000)],
                [(80_000, 200_000), (200_000, 8_500_000)],
                20_000,
                8_000,
            ),
        };
        let one = OpProfile {
            sequential: sequential.map(|(low, high)| line(low, high)),
            random: random.map(|(low, high)| line(low, high)),
            between: [Number::assumed(between); 3],
            speedup: speedup(most),
        };
        Profile {
            kind: kind.into(),
            rotational,
            read: one,
            write: one,
            cache: CacheProfile::default(),
            gate: GateProfile { inline: Number::assumed(1_000), handed_over: Number::assumed(10_000) },
        }
    }

    /// What `op` costs.
    pub fn of(&self, op: Op) -> &OpProfile {
        match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
        }
    }

    pub(crate) fn of_mut(&mut self, op: Op) -> &mut OpProfile {
        match op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
        }
    }

    /// The profile as tables.
    pub fn costs(&self) -> Costs {
        Costs::new(self)
    }

    /// Throughput of sequential dispatches over that of random ones of `bytes`, in thousandths.
    pub fn ratio(&self, op: Op, bytes: u64) -> u64 {
        let costs = self.costs();
        costs.alone_ns(op, Class::Jump, bytes) * 1_000 / costs.alone_ns(op, Class::Next, bytes).max(1)
    }

    /// Whether storage can be like that; the first number that cannot be, if not.
    pub fn check(&self) -> Result<(), ProfileError> {
        let within = |what: &str, value: u64, least: u64, most: u64, expected: &'static str| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(ProfileError { what: what.into(), value, expected })
            }
        };
        const TIME: &str = "a time from 1 ns to 100 s, in nanoseconds";
        const EXTRA: &str = "a time of at most 100 s, in nanoseconds";
        const SPEEDUP: &str = "from 1 to 1000 for each in flight (thousandths of X(1)), and 1000 for one";
        const BYTES: &str = "at most 1 TiB";
        const RATE: &str = "from 1000 to 10^12 bytes a second where there is a cache";
        for (name, op) in [("read", &self.read), ("write", &self.write)] {
            for (pattern, lines) in [("sequential", &op.sequential), ("random", &op.random)] {
                for line in lines {
                    let what = alloc::format!("{name}.{pattern}");
                    within(&what, line.low.value, 1, NS_MAX, TIME)?;
                    within(&what, line.high.value, 1, NS_MAX, TIME)?;
                }
            }
            for extra in &op.between {
                within(&alloc::format!("{name}.between"), extra.value, 0, NS_MAX, EXTRA)?;
            }
            for speedups in &op.speedup {
                for (n, speedup) in IN_FLIGHT.iter().zip(speedups) {
                    let least = if *n == 1 { 1_000 } else { 1 };
                    within(
                        &alloc::format!("{name}.speedup"),
                        speedup.value,
                        least,
                        u64::from(*n) * 1_000,
                        SPEEDUP,
                    )?;
                }
            }
        }
        let CacheProfile { bytes, fill, drain } = self.cache;
        within("cache.bytes", bytes.value, 0, 1 << 40, BYTES)?;
        if bytes.value > 0 {
            within("cache.fill", fill.value, 1_000, 1_000_000_000_000, RATE)?;
            within("cache.drain", drain.value, 1_000, 1_000_000_000_000, RATE)?;
        }
        within("gate.inline", self.gate.inline.value, 0, NS_MAX, EXTRA)?;
        within("gate.handed_over", self.gate.handed_over.value, 0, NS_MAX, EXTRA)
    }
}

/// The interval that a size belongs to.
pub(crate) fn interval(bytes: u64) -> usize {
    usize::from(bytes > SIZES[1])
}
