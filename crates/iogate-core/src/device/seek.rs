//! How long a disk's arm takes over a distance.
//!
//! The shape is that of Ruemmler and Wilkes (An introduction to disk drive modeling, IEEE Computer 27(3),
//! 1994): the square root of the distance for short seeks, on which the arm accelerates and brakes all the
//! way, and linear for long ones, on which it coasts. The curve runs through the three times that a data
//! sheet gives. The knee is at a third of the stroke, which lies between those of the two drives in that
//! article (383 of 1962 and 616 of 1449 cylinders).

use super::divisor::Divisor;
use crate::time::Span;

/// Seek times of a data sheet, settling included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekTimes {
    /// To the next cylinder.
    pub track_to_track: Span,
    /// The average over all pairs of cylinders.
    pub average: Span,
    /// From the first cylinder to the last.
    pub full_stroke: Span,
}

/// Longer times are cut to an hour, so that the arithmetic below fits 64 bits.
const NS_MAX: u64 = 3_600_000_000_000;
/// Bits after the binary point of the slopes.
const FRACTION: u32 = 16;

/// A seek curve of one drive for one operation.
#[derive(Clone, Debug)]
pub(super) struct SeekCurve {
    track_to_track_ns: u64,
    knee: u64,
    knee_ns: u64,
    /// Bits by which a distance up to the knee can be shifted in 32 bits, for a finer square root.
    root_shift: u32,
    /// Nanoseconds for each unit of the scaled square root, as a fixed-point number.
    root_slope: u64,
    /// The same, to divide by. Without any slope each root is in time, as it is with the least.
    per_root: Divisor,
    /// Nanoseconds for each cylinder beyond the knee, as a fixed-point number.
    line_slope: u64,
}

impl SeekCurve {
    /// The curve through `times` on a drive with `cylinders` cylinders.
    pub(super) fn new(times: SeekTimes, cylinders: u64) -> SeekCurve {
        let [first, average, full] = [times.track_to_track, times.average, times.full_stroke]
            .map(|span| i128::from(span.as_nanos().min(NS_MAX)));
        // A distance of x strokes has the weight 2(1-x) among all pairs. With the knee at 1/3, the mean of
        // the curve is 27/135 first + 88/135 knee + 20/135 full; solved here for the time at the knee.
        let knee_ns = ((135 * average - 27 * first - 20 * full) / 88).clamp(first, full.max(first));
        let knee = (cylinders / 3).clamp(2, u64::from(u32::MAX));
        let root_shift = (knee as u32).leading_zeros();
        let root = i128::from(((knee as u32 - 1) << root_shift).isqrt().max(1));
        let rest = cylinders.saturating_sub(1).saturating_sub(knee).max(1);
        let root_slope = (((knee_ns - first) << FRACTION) / root) as u64;
        SeekCurve {
            track_to_track_ns: first as u64,
            knee,
            knee_ns: knee_ns as u64,
            root_shift,
            root_slope,
            per_root: Divisor::new(root_slope.max(1)),
            line_slope: (((full.max(knee_ns) - knee_ns) << FRACTION) / i128::from(rest)) as u64,
        }
    }

    /// The time for a seek over `cylinders`, not zero, in nanoseconds.
    pub(super) fn ns(&self, cylinders: u64) -> u64 {
        if cylinders <= self.knee {
            // The square root of 32 bits is twice as fast as that of 64.
            let root = ((cylinders as u32 - 1) << self.root_shift).isqrt();
            self.track_to_track_ns + ((u64::from(root) * self.root_slope) >> FRACTION)
        } else {
            self.knee_ns + (((cylinders - self.knee) * self.line_slope) >> FRACTION)
        }
    }

    /// Whether a seek over `cylinders`, not zero, takes no longer than `ns`: as [`SeekCurve::ns`] says, without a root.
    pub(super) fn reaches(&self, cylinders: u64, ns: u64) -> bool {
        if cylinders > self.knee || ns >> (u64::BITS - FRACTION - 1) > 0 {
            return self.ns(cylinders) <= ns;
        }
        let Some(rest) = ns.checked_sub(self.track_to_track_ns) else { return false };
        // The largest root that is in time. A root is at most that if its square is less than that of the next number.
        let (root, _) = self.per_root.div_rem(((rest + 1) << FRACTION) - 1);
        let square = u64::from((cylinders as u32 - 1) << self.root_shift);
        root >= u64::from(u16::MAX) || square < (root + 1) * (root + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: SeekTimes = SeekTimes {
        track_to_track: Span::from_micros(800),
        average: Span::from_micros(8_500),
        full_stroke: Span::from_micros(14_700),
    };

    #[test]
    fn runs_through_the_times_of_the_sheet() {
        let cylinders = 90_000;
        let curve = SeekCurve::new(TIMES, cylinders);
        assert_eq!(curve.ns(1), 800_000);
        assert!(curve.ns(cylinders - 1).abs_diff(14_700_000) < 20_000);
        // The sheets' own definition of the average: each distance weighted by the pairs that have it.
        let (sum, weights) = (1..cylinders).fold((0u128, 0u128), |(sum, weights), d| {
            let weight = u128::from(cylinders - d);
            (sum + weight * u128::from(curve.ns(d)), weights + weight)
        });
        assert!(((sum / weights) as u64).abs_diff(8_500_000) < 10_000, "{}", sum / weights);
    }

    #[test]
    fn never_decreases_with_distance() {
        let curve = SeekCurve::new(TIMES, 90_000);
        assert!((2..90_000).all(|d| curve.ns(d) >= curve.ns(d - 1)));
    }

    #[test]
    fn reaches_what_it_takes_no_longer_for() {
        let steep = SeekTimes { track_to_track: Span::ZERO, full_stroke: Span::from_secs(5_000), ..TIMES };
        for (times, cylinders) in [(TIMES, 90_000), (TIMES, 40), (steep, 90_000), (steep, 1 << 33)] {
            let curve = SeekCurve::new(times, cylinders);
            for distance in (1..cylinders).step_by((cylinders / 5_000) as usize + 1) {
                let ns = curve.ns(distance);
                assert!(curve.reaches(distance, ns) && curve.reaches(distance, ns + 1), "{distance}");
                assert!(ns == 0 || !curve.reaches(distance, ns - 1), "{distance}");
                assert!(curve.reaches(distance, u64::MAX) && curve.reaches(distance, NS_MAX * 2));
            }
        }
    }

    #[test]
    fn odd_times_and_tiny_drives_give_a_curve() {
        let zero = SeekTimes { track_to_track: Span::ZERO, average: Span::ZERO, full_stroke: Span::ZERO };
        let backwards = SeekTimes { track_to_track: Span::MAX, average: Span::ZERO, full_stroke: Span::ZERO };
        for cylinders in [0, 1, 2, 3, 4, 1 << 30] {
            assert_eq!(SeekCurve::new(zero, cylinders).ns(1), 0);
            assert_eq!(SeekCurve::new(backwards, cylinders).ns(1), NS_MAX);
        }
    }
}
