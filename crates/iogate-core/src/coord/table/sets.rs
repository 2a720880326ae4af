//! The sets of [`Order::Sets`](crate::coord::Order::Sets), and what each may use.
//!
//! A set holds the periods that are nearest, as a ratio, to the same power of ten seconds.

use crate::time::Span;

/// The smallest and the largest set: all periods that a [`Span`] can name.
const RANGE: core::ops::RangeInclusive<i8> = -9..=10;
/// Of claims whose period is not known: a quarter of an hour or so, as checkpoints are often written.
const UNKNOWN: i8 = 3;

/// log10 of the period in seconds, rounded.
pub(super) fn set_of(period: Span) -> i8 {
    if period == Span::ZERO {
        return UNKNOWN;
    }
    // The square root of ten parts two sets.
    let is_beyond = |set: &i8| {
        let power = 10u128.pow(u32::from(set.abs_diff(*RANGE.start())));
        u128::from(period.as_nanos()) * 1_000_000_000 >= power * 3_162_277_661
    };
    RANGE.take_while(is_beyond).last().map_or(*RANGE.start(), |set| (set + 1).min(*RANGE.end()))
}

/// Thousandths of the throughput for `set` beside `others` (which may name it too): each set's part is 10^-set. At least 1.
pub(super) fn share(set: i8, others: impl Iterator<Item = i8>) -> u32 {
    let part = |set: i8| 10u128.pow(u32::from(RANGE.end().abs_diff(set)));
    let all: u128 = others.filter(|other| *other != set).map(part).sum::<u128>() + part(set);
    ((part(set) * 1000 + all / 2) / all).max(1) as u32
}
