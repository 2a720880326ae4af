//! Think times, and how long it is worth to wait for the next piece.
//!
//! With `t` gone since the last piece was completed, a wait until `w` is worth
//!
//! ```text
//! G(w) = J F(w | t) - u * integral from t to w of (1 - F(x | t)) dx
//! ```
//!
//! J is what the piece saves if it comes, F the distribution of think times, u the share of the device that idles meanwhile. Within a
//! bin think times are taken to be spread evenly; the hazard then only grows inside a bin, so that the best `w` is an edge of one.
//! One looks at edges up to a bound, and waits if the best of them is worth more than nothing. All sums are exact.

use super::prices::WHOLE;
use crate::time::Span;

/// How many bins there are: up to 2.048 us, and so on by powers of two up to 67 ms. What is later counts as never.
pub const BINS: usize = 16;
/// Logarithm of the first bin's edge, in nanoseconds.
const FIRST_LOG2: u32 = 11;
/// At so many chances all counts are halved: what was long ago counts less.
const HALVED_AT: u32 = 256;

/// The end of a bin.
pub const fn edge(bin: usize) -> Span {
    Span::from_nanos(1 << (FIRST_LOG2 + bin as u32))
}

/// A histogram of think times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    came: [u16; BINS],
    never: u16,
}

/// A wait that is worth its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long, from the completion on.
    pub until: Span,
    /// What it is expected to save, in nanoseconds of the device times 65,536.
    pub gain: u64,
}

impl Think {
    /// Counts a chance: the next piece came after this time, or never.
    pub fn record(&mut self, think: Option<Span>) {
        match think.and_then(|think| self.came.get_mut(bin_of(think))) {
            Some(count) => *count += 1,
            None => self.never += 1,
        }
        if self.chances() >= HALVED_AT {
            self.came.iter_mut().for_each(|count| *count /= 2);
            self.never /= 2;
        }
    }

    /// Chances that count.
    pub fn chances(&self) -> u32 {
        self.came.iter().chain([&self.never]).map(|&count| u32::from(count)).sum()
    }

    /// The best wait with `gone` already past: for what saves `saving`, while `loss` of [`WHOLE`] idles, `longest` at most. `None`
    /// if none is worth it.
    pub fn best_wait(&self, gone: Span, saving: Span, loss: u32, longest: Span) -> Option<Wait> {
        let (first, gone) = (bin_of(gone), gone.as_nanos());
        let passes = self.came.get(first)?;
        // Of the chances that are still open, the share of the bin that `gone` lies in has the bin's width as denominator.
        let width = width_log2(first);
        let later: u32 = self.came[first + 1..].iter().map(|&count| u32::from(count)).sum();
        let open = (u64::from(later) + u64::from(self.never)) << width;
        let open = open + u64::from(*passes) * (edge(first).as_nanos() - gone);
        let (saving, loss) = (i128::from(saving.as_nanos()), i128::from(loss));
        let (mut from, mut left, mut twice_idle) = (gone, open, 0);
        let mut best: Option<(i128, u64)> = None;
        for bin in first..BINS {
            let to = edge(bin).as_nanos();
            if to > longest.as_nanos() {
                break;
            }
            let after = if bin == first {
                left - u64::from(*passes) * (to - gone)
            } else {
                left - (u64::from(self.came[bin]) << width)
            };
            twice_idle += i128::from(left + after) * i128::from(to - from);
            let worth = 2 * i128::from(WHOLE) * saving * i128::from(open - after) - loss * twice_idle;
            if worth > best.map_or(0, |(worth, _)| worth) {
                best = Some((worth, to));
            }
            (from, left) = (to, after);
        }
        let (worth, until) = best?;
        Some(Wait { until: Span::from_nanos(until), gain: (worth / (2 * i128::from(open))) as u64 })
    }
}

/// The bin of a think time; [`BINS`] if it is later than all.
fn bin_of(think: Span) -> usize {
    let log2 = think.as_nanos().max(1).ilog2();
    (log2 + 1).saturating_sub(FIRST_LOG2).min(BINS as u32) as usize
}

fn width_log2(bin: usize) -> u32 {
    FIRST_LOG2 + (bin as u32).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Span {
        Span::from_micros(us)
    }

    fn of(thinks: &[(u64, usize)]) -> Think {
        let mut think = Think::default();
        for &(ns, times) in thinks {
            (0..times).for_each(|_| think.record((ns != 0).then_some(Span::from_nanos(ns))));
        }
        think
    }

    #[test]
    fn bins_are_powers_of_two() {
        for bin in 0..BINS {
            assert_eq!(bin_of(edge(bin)), bin + 1);
            assert_eq!(bin_of(Span::from_nanos(edge(bin).as_nanos() - 1)), bin);
        }
        assert_eq!((bin_of(Span::ZERO), bin_of(Span::MAX)), (0, BINS));
    }

    #[test]
    fn counts_are_halved() {
        let think = of(&[(100, 200), (1 << 40, 50), (0, 5)]);
        assert_eq!(think.chances(), 255);
        let mut halved = think;
        halved.record(None);
        assert_eq!((halved.came[0], halved.never), (100, 28));
    }

    #[test]
    fn a_reader_that_comes_soon_is_waited_for_on_a_disk_only() {
        let reader = of(&[(100_000, 60), (0, 4)]);
        let wait = reader.best_wait(Span::ZERO, us(8_000), WHOLE, us(16_000)).unwrap();
        assert_eq!(wait.until, edge(6)); // 131 us
        assert_eq!(
            reader.best_wait(us(120), us(8_000), WHOLE, us(16_120)).map(|wait| wait.until),
            Some(edge(6))
        );
        // It had its time, and so has this: nobody comes so late.
        assert_eq!(reader.best_wait(us(132), us(8_000), WHOLE, us(16_132)), None);
        assert_eq!(reader.best_wait(Span::ZERO, us(50), WHOLE, us(100)), None);
        assert_eq!(reader.best_wait(Span::ZERO, Span::ZERO, 0, Span::MAX), None);
        // An idle slot that costs nothing is waited in for anybody.
        assert!(reader.best_wait(Span::ZERO, us(50), 0, us(200)).is_some());
    }

    #[test]
    fn nobody_is_waited_for_who_never_comes() {
        assert_eq!(of(&[(0, 100)]).best_wait(Span::ZERO, us(8_000), 0, us(16_000)), None);
        assert_eq!(Think::default().best_wait(Span::ZERO, us(8_000), 0, us(16_000)), None);
        assert_eq!(of(&[(100_000, 60)]).best_wait(Span::MAX, us(8_000), WHOLE, Span::MAX), None);
    }
}
