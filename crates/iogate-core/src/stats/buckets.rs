//! Buckets of a width relative to what is in them, for histograms of any fineness.

/// The bucket of a value, where each power of two has `1 << BITS` of them, and each value below that one of its own.
#[inline]
pub const fn bucket_of<const BITS: u32>(value: u64) -> usize {
    if value < 1 << BITS {
        return value as usize;
    }
    // Values of one power of two are told apart by the bits behind the first.
    let shift = 63 - value.leading_zeros() - BITS;
    let place = (value >> shift) as usize & ((1 << BITS) - 1);
    ((shift as usize + 1) << BITS) + place
}

/// The largest value of a bucket: at most the `1 << BITS`-th part of it above the smallest.
pub const fn end_of<const BITS: u32>(bucket: usize) -> u64 {
    let (group, place) = (bucket >> BITS, bucket as u64 & ((1 << BITS) - 1));
    if group == 0 {
        return place;
    }
    let shift = group - 1;
    // The last bucket ends at the last value: 2^64 - 1.
    (((1 << BITS) + place) << shift).wrapping_add((1 << shift) - 1)
}

/// How many buckets there are.
pub const fn count<const BITS: u32>() -> usize {
    (64 - BITS as usize + 1) << BITS
}

/// How many of `count` values, the smallest first, are at least the fraction `q` (0 to 1) of all; at least one.
pub fn rank(count: u64, q: f64) -> u64 {
    // Less the rounding of the product, which must not lift 0.55 of 100 to the 56th.
    let exact = count as f64 * q.clamp(0.0, 1.0) * (1.0 - f64::EPSILON);
    let rank = (exact as u64).saturating_add(u64::from((exact as u64 as f64) < exact));
    rank.clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_one_another_from_the_first_to_the_last_value() {
        assert_eq!(
            [0, 1, 255, 256, 257, 511, 512, 514].map(bucket_of::<8>),
            [0, 1, 255, 256, 257, 511, 512, 513]
        );
        assert_eq!((bucket_of::<8>(u64::MAX), end_of::<8>(count::<8>() - 1)), (count::<8>() - 1, u64::MAX));
        assert_eq!((bucket_of::<3>(u64::MAX), end_of::<3>(count::<3>() - 1)), (count::<3>() - 1, u64::MAX));
        (1..count::<8>()).for_each(|bucket| assert_eq!(bucket_of::<8>(end_of::<8>(bucket - 1) + 1), bucket));
        (1..count::<3>()).for_each(|bucket| assert_eq!(bucket_of::<3>(end_of::<3>(bucket - 1) + 1), bucket));
    }

    proptest! {
        #[test]
        fn a_bucket_ends_at_most_a_256th_above_what_is_in_it(value: u64) {
            let end = end_of::<8>(bucket_of::<8>(value));
            prop_assert!(end >= value && (end - value) as f64 <= value as f64 / 256.0);
        }
    }
}
