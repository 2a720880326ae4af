//! A histogram of fixed size with a stated error.

use super::buckets;

/// There are 8 buckets for each power of two.
const BITS: u32 = 3;
const BUCKETS: usize = buckets::count::<BITS>();

/// Counts of 64-bit values in buckets of relative width 1/8: a quantile is at most 12.5 % above the true value,
/// and never below it. Values under 8, the count, the sum and the extremes are exact. 4 KiB, allocated once; nothing, where
/// nobody asks for quantiles.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Filled", try_from = "Filled"))]
pub struct Histogram {
    buckets: alloc::boxed::Box<[u64]>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

/// A histogram as it is written: the filled buckets, by number.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Filled {
    buckets: alloc::vec::Vec<(usize, u64)>,
    sum: u64,
    min: u64,
    max: u64,
}

#[cfg(feature = "serde")]
impl From<Histogram> for Filled {
    fn from(histogram: Histogram) -> Filled {
        let buckets = histogram.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        let Histogram { sum, min, max, .. } = histogram;
        Filled { buckets: buckets.collect(), sum, min, max }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Filled> for Histogram {
    type Error = &'static str;

    fn try_from(filled: Filled) -> Result<Histogram, &'static str> {
        let Filled { buckets, sum, min, max } = filled;
        let mut histogram = Histogram { sum, min, max, ..Histogram::default() };
        for (bucket, count) in buckets {
            *histogram.buckets.get_mut(bucket).ok_or("a histogram has no such bucket")? = count;
            histogram.count = histogram.count.saturating_add(count);
        }
        Ok(histogram)
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: alloc::vec![0; BUCKETS].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// The error of a quantile, relative to the true value.
    pub const RELATIVE_ERROR: f64 = 1.0 / (1 << BITS) as f64;

    /// One without buckets: it has no quantiles, all else is exact.
    pub(super) fn without_buckets() -> Histogram {
        Histogram { buckets: [].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        // Without buckets it need not be known which one it would be.
        if !self.buckets.is_empty()
            && let Some(bucket) = self.buckets.get_mut(buckets::bucket_of::<BITS>(value))
        {
            *bucket += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum. It stays at the largest number once it would be larger: of times in ns that is 584 years altogether.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest; 0 if none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest; 0 if none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 if none. At least so much, where the [sum](Histogram::sum) would be larger.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The smallest value that at least the fraction `q` (0 to 1) of all values do not exceed, rounded up to the
    /// end of its bucket; 0 if none.
    pub fn quantile(&self, q: f64) -> u64 {
        let bucket = self.bucket_at(q);
        bucket.map_or(0, |bucket| buckets::end_of::<BITS>(bucket).clamp(self.min(), self.max))
    }

    /// The same rounded down to the beginning of its bucket: exact for round values, as most sizes are.
    pub fn round_quantile(&self, q: f64) -> u64 {
        let start =
            |bucket: usize| bucket.checked_sub(1).map_or(0, |before| buckets::end_of::<BITS>(before) + 1);
        self.bucket_at(q).map_or(0, |bucket| start(bucket).clamp(self.min(), self.max))
    }

    /// The bucket that has the value of this rank; `None` if there are no values.
    fn bucket_at(&self, q: f64) -> Option<usize> {
        let rank = buckets::rank(self.count, q);
        let mut seen = 0;
        self.buckets.iter().position(|&n| {
            // Counts may come from another program.
            seen = n.saturating_add(seen);
            seen >= rank
        })
    }

    /// The filled buckets in ascending order: (largest value of the bucket, count).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(bucket, &n)| (buckets::end_of::<BITS>(bucket), n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sums_that_are_too_large_stay_at_the_largest_number() {
        let mut histogram = Histogram::default();
        for value in [u64::MAX, u64::MAX, 3] {
            histogram.record(value);
        }
        assert_eq!((histogram.sum(), histogram.count(), histogram.quantile(0.1)), (u64::MAX, 3, 3));
        assert_eq!(histogram.mean(), u64::MAX as f64 / 3.0);
        // As what a program says whose clock has jumped, or that is not ours.
        let most = Histogram { buckets: alloc::vec![u64::MAX; BUCKETS].into(), count: u64::MAX, ..histogram };
        for q in [0.0, 0.5, 1.0] {
            most.quantile(q);
        }
        let times = super::super::counters::Times::from(&most);
        assert_eq!(times.up_to.last(), Some(&u64::MAX));
    }

    #[test]
    fn every_value_is_at_most_an_eighth_below_the_end_of_its_bucket() {
        for value in
            (0..2_000).chain((0..64).flat_map(|s| [1 << s, (1u64 << s) + 1, (1u64 << s) - 1, u64::MAX >> s]))
        {
            let bound = buckets::end_of::<BITS>(buckets::bucket_of::<BITS>(value));
            assert!(bound >= value, "{value} is above its bucket, which ends at {bound}");
            assert!(
                (bound - value) as f64 <= value as f64 * Histogram::RELATIVE_ERROR,
                "{value} ends at {bound}"
            );
        }
    }

    #[test]
    fn few_values_hide_no_outlier() {
        let mut h = Histogram::default();
        [0, 0, 0, 0, 0, 1000].into_iter().for_each(|v| h.record(v));
        // Five of six are 83 %: what 95 % do not exceed is the sixth.
        assert_eq!([0.5, 0.83, 0.95, 0.99].map(|q| h.quantile(q)), [0, 0, 1000, 1000]);
        let mut h = Histogram::default();
        (1..=20).for_each(|v| h.record(u64::from(v > 11)));
        assert_eq!((h.quantile(0.55), h.quantile(0.56)), (0, 1));
    }

    #[test]
    fn a_round_value_is_its_own_quantile() {
        for round in [0, 7, 4096, 4608, 288 << 10, 1 << 40, 15 << 60] {
            let mut h = Histogram::default();
            (0..100).for_each(|_| h.record(round));
            h.record(u64::MAX);
            assert_eq!([0.5, 0.95, 0.99].map(|q| h.round_quantile(q)), [round; 3]);
        }
        assert_eq!(Histogram::default().round_quantile(0.5), 0);
        let mut h = Histogram::default();
        (1..=100).for_each(|v| h.record(v));
        assert_eq!((h.round_quantile(0.5), h.round_quantile(1.0)), (48, 96));
    }

    #[test]
    fn quantiles_of_a_hundred() {
        let mut h = Histogram::default();
        (1..=100).for_each(|v| h.record(v));
        assert_eq!((h.min(), h.max(), h.count(), h.sum()), (1, 100, 100, 5050));
        assert!((50..=56).contains(&h.quantile(0.5)), "{}", h.quantile(0.5));
        assert_eq!(h.quantile(1.0), 100);
        assert_eq!(h.iter().map(|(_, n)| n).sum::<u64>(), 100);
    }
}
