//! How long calls took: counts by length, fine enough to compare runs with.
//!
//! The gate's own histogram has buckets of an eighth, for it records with every dispatch and is allocated once. What two runs differ in is
//! often less, so these buckets are 32 times as fine, and take memory only for lengths that occur.

/// Buckets per power of two.
const FINE: u64 = 256;
const FINE_BITS: u32 = FINE.trailing_zeros();
/// Values below `FINE`, then one group for each power of two from there.
#[cfg(any(test, feature = "serde"))]
const GROUPS: usize = (64 - FINE_BITS + 1) as usize;

/// Counts of times in nanoseconds, in buckets of relative width 1/256: what a quantile says is at most 0.4 % above the true value, and
/// never below it. Times under 256 ns and the longest are exact. 2 KiB for each power of two that occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Filled", try_from = "Filled"))]
pub struct CallTimes {
    /// Groups of `FINE` buckets, up to the last that was needed; empty where nothing has been counted.
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
            if bucket >= GROUPS * FINE as usize {
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
        *self.bucket(bucket_of(nanos)) += 1;
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
        // Less the rounding of the product, which must not lift a whole rank to the next.
        let rank = count as f64 * q * (1.0 - f64::EPSILON);
        let mut seen = 0;
        let (bucket, _) = self.buckets().find(|(_, count)| {
            seen += count;
            seen as f64 >= rank
        })?;
        Some(upper_end(bucket).min(self.max))
    }

    #[inline]
    fn bucket(&mut self, bucket: usize) -> &mut u64 {
        &mut self.group(bucket / FINE as usize)[bucket % FINE as usize]
    }

    #[inline]
    fn group(&mut self, group: usize) -> &mut [u64] {
        if group >= self.groups.len() {
            self.groups.resize(group + 1, Box::default());
        }
        let group = &mut self.groups[group];
        if group.is_empty() {
            *group = vec![0; FINE as usize].into();
        }
        group
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let groups = self.groups.iter().enumerate();
        let all = groups.flat_map(|(group, counts)| (group * FINE as usize..).zip(counts.iter().copied()));
        all.filter(|(_, count)| *count > 0)
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    // Values of one power of two are told apart by the bits behind the first.
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(FINE_BITS + 1);
    match value < FINE {
        true => value as usize,
        false => ((u64::from(shift) + 1) * FINE + ((value >> shift) & (FINE - 1))) as usize,
    }
}

fn upper_end(bucket: usize) -> u64 {
    let (group, place) = (bucket as u64 / FINE, bucket as u64 % FINE);
    match group.checked_sub(1) {
        None => place,
        // The last bucket ends at the last value: 2^64 - 1.
        Some(shift) => ((FINE + place) << shift).wrapping_add((1 << shift) - 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_one_another_from_the_first_to_the_last_value() {
        assert_eq!([0, 1, 255, 256, 257, 511, 512, 514].map(bucket_of), [0, 1, 255, 256, 257, 511, 512, 513]);
        assert_eq!(bucket_of(u64::MAX), GROUPS * FINE as usize - 1);
        assert_eq!(upper_end(GROUPS * FINE as usize - 1), u64::MAX);
        for bucket in 1..GROUPS * FINE as usize {
            assert_eq!(bucket_of(upper_end(bucket - 1) + 1), bucket);
        }
    }

    proptest! {
        #[test]
        fn a_bucket_ends_at_most_a_256th_above_what_is_in_it(value: u64) {
            let end = upper_end(bucket_of(value));
            prop_assert!(end >= value && (end - value) as f64 <= value as f64 / FINE as f64);
        }

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
                prop_assert!(quantile >= exact && (quantile - exact) as f64 <= exact as f64 / FINE as f64);
            }
            prop_assert_eq!(times.quantile(1.0), values.last().copied());
        }
    }
}
