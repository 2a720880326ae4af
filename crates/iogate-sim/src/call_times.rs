//! How long calls took: counts by length, fine enough to compare runs with.
//!
//! The gate's own histogram has buckets of an eighth, for it records with every dispatch and is allocated once. What two runs differ in is
//! often less, so these buckets are 32 times as fine, and take memory only for lengths that occur.

use iogate_core::stats::buckets;

/// There are 256 buckets for each power of two: a group of them. The first group has the values below.
const BITS: u32 = 8;
const GROUP: usize = 1 << BITS;

/// Counts of times in nanoseconds, in buckets of relative width 1/256: what a quantile says is at most 0.4 % above the true value, and
/// never below it. Times under 256 ns and the longest are exact. 2 KiB for each power of two that occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Filled", try_from = "Filled"))]
pub struct CallTimes {
    /// Groups of buckets, up to the last that was needed; empty where nothing has been counted.
    groups: Vec<Box<[u64]>>,
    max: u64,
}

/// As they are written: (bucket, count) of those that have some.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Filled {
    buckets: Vec<(usize, u64)>,
    max: u64,
}

#[cfg(feature = "serde")]
impl From<CallTimes> for Filled {
    fn from(times: CallTimes) -> Filled {
        Filled { buckets: times.buckets().collect(), max: times.max }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Filled> for CallTimes {
    type Error = &'static str;

    fn try_from(filled: Filled) -> Result<CallTimes, &'static str> {
        let mut times = CallTimes { groups: Vec::new(), max: filled.max };
        for (bucket, count) in filled.buckets {
            if bucket >= buckets::count::<BITS>() {
                return Err("call times have no such bucket");
            }
            *times.bucket(bucket) = count;
        }
        Ok(times)
    }
}

impl CallTimes {
    /// Counts a call that took so many nanoseconds.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        *self.bucket(buckets::bucket_of::<BITS>(nanos)) += 1;
        self.max = self.max.max(nanos);
    }

    /// Counts those of `other`, too.
    pub fn add(&mut self, other: &CallTimes) {
        for (group, counts) in other.groups.iter().enumerate().filter(|(_, counts)| !counts.is_empty()) {
            let own = self.group(group).iter_mut();
            own.zip(counts).for_each(|(own, count)| *own += count);
        }
        self.max = self.max.max(other.max);
    }

    /// The shortest time that at least the fraction `q` (0 to 1) of all calls do not exceed, rounded up to the end of its bucket;
    /// `None` if there are none.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count: u64 = self.groups.iter().flatten().sum();
        let rank = buckets::rank(count, q);
        let mut seen = 0;
        let (bucket, _) = self.buckets().find(|(_, count)| {
            seen += count;
            seen >= rank
        })?;
        Some(buckets::end_of::<BITS>(bucket).min(self.max))
    }

    #[inline]
    fn bucket(&mut self, bucket: usize) -> &mut u64 {
        &mut self.group(bucket / GROUP)[bucket % GROUP]
    }

    #[inline]
    fn group(&mut self, group: usize) -> &mut [u64] {
        if group >= self.groups.len() {
            self.groups.resize(group + 1, Box::default());
        }
        let group = &mut self.groups[group];
        if group.is_empty() {
            *group = vec![0; GROUP].into();
        }
        group
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let groups = self.groups.iter().enumerate();
        let all = groups.flat_map(|(group, counts)| (group * GROUP..).zip(counts.iter().copied()));
        all.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(0u64..1 << 40, 0..50),
            others in prop::collection::vec(0u64..1 << 20, 0..50),
            percent in 0usize..=100,
        ) {
            let [mut times, mut other] = [&values, &others].map(|values| {
                let mut times = CallTimes::default();
                values.iter().for_each(|value| times.record(*value));
                times
            });
            other.add(&CallTimes::default());
            times.add(&other);
            values.extend(others);
            values.sort_unstable();
            let rank = (values.len() * percent).div_ceil(100);
            let exact = values.get(rank.saturating_sub(1)).copied();
            let quantile = times.quantile(percent as f64 / 100.0);
            prop_assert_eq!(quantile.is_some(), exact.is_some());
            if let (Some(quantile), Some(exact)) = (quantile, exact) {
                prop_assert!(quantile >= exact && (quantile - exact) as f64 <= exact as f64 / GROUP as f64);
            }
            prop_assert_eq!(times.quantile(1.0), values.last().copied());
        }
    }
}
