//! Means with confidence intervals.

use std::f64::consts::FRAC_PI_2;

/// The mean of independent values, and how far from the true mean it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Estimate {
    /// How many values.
    pub n: u64,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation; `None` of a single value.
    pub stddev: Option<f64>,
    /// Half the width of the confidence interval around the mean; `None` of a single value.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Of `values`, with an interval at confidence `level` (as in 0.95); `None` if there are none.
    pub fn of(values: &[f64], level: f64) -> Option<Estimate> {
        let mean = mean(values)?;
        let n = values.len() as u64;
        let stddev = stddev(values);
        let half_width = stddev.map(|stddev| t_quantile(level, n - 1) * stddev / (n as f64).sqrt());
        Some(Estimate { n, mean, stddev, half_width })
    }

    /// The lower end of the interval; the mean where there is no interval.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width.unwrap_or(0.0)
    }

    /// The upper end of the interval; the mean where there is no interval.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width.unwrap_or(0.0)
    }

    /// Whether the two intervals have a value in common: no difference has been shown then.
    pub fn overlaps(&self, other: &Estimate) -> bool {
        self.low() <= other.high() && other.low() <= self.high()
    }
}

/// Half the width of the confidence interval at `level` of what is computed from n samples together, by what it is with each of them left
/// out in turn: the jackknife (Tukey, 1958). `None` of fewer than two. Of a mean it is an [`Estimate`]'s; of a median, or the largest of
/// many, it is rough.
pub fn half_width_left_out(without: &[f64], level: f64) -> Option<f64> {
    let freedom = without.len() as f64 - 1.0;
    let stddev = stddev(without)?;
    Some(t_quantile(level, freedom as u64) * stddev * freedom / (without.len() as f64).sqrt())
}

/// The mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation; `None` of fewer than two values.
pub fn stddev(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() >= 2)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The median, halfway between the two middle values of an even number; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(lower + (upper - lower) / 2.0)
}

/// Student's t for a two-sided interval: a variable of `freedom` (at least 1) degrees of freedom lies between minus
/// and plus this with probability `level`, which is taken as at least 0 and below 1.
pub fn t_quantile(level: f64, freedom: u64) -> f64 {
    let level = level.clamp(0.0, 1.0 - 1e-9);
    let freedom = freedom.max(1);
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    // Each step halves the interval: after these a double has no more digits.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if t_probability(middle, freedom) < level {
            low = middle;
        } else {
            high = middle;
        }
    }
    low.tan() * (freedom as f64).sqrt()
}

/// The probability between minus and plus t, with t given as the angle atan(t / sqrt(freedom)): the finite sums of
/// Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
fn t_probability(angle: f64, freedom: u64) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let terms = freedom / 2;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = 0.0;
    for k in 1..=terms {
        sum += term;
        let k = k as f64;
        term *= cos * cos * if odd { 2.0 * k / (2.0 * k + 1.0) } else { (2.0 * k - 1.0) / (2.0 * k) };
    }
    if odd { (angle + sin * sum) / FRAC_PI_2 } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the usual printed table: degrees of freedom, then t at 80, 90, 95, 99 and 99.9 %.
    const TABLE: [(u64, [f64; 5]); 9] = [
        (1, [3.078, 6.314, 12.706, 63.657, 636.619]),
        (2, [1.886, 2.920, 4.303, 9.925, 31.599]),
        (3, [1.638, 2.353, 3.182, 5.841, 12.924]),
        (7, [1.415, 1.895, 2.365, 3.499, 5.408]),
        (9, [1.383, 1.833, 2.262, 3.250, 4.781]),
        (10, [1.372, 1.812, 2.228, 3.169, 4.587]),
        (29, [1.311, 1.699, 2.045, 2.756, 3.659]),
        (120, [1.289, 1.658, 1.980, 2.617, 3.373]),
        // The normal distribution.
        (1_000_000, [1.282, 1.645, 1.960, 2.576, 3.291]),
    ];

    #[test]
    fn t_is_that_of_the_printed_tables() {
        for (freedom, row) in TABLE {
            for (level, printed) in [0.80, 0.90, 0.95, 0.99, 0.999].into_iter().zip(row) {
                let t = t_quantile(level, freedom);
                assert!((t - printed).abs() <= 0.000_51, "{freedom} at {level}: {t}, printed {printed}");
            }
        }
    }

    #[test]
    fn levels_that_make_no_sense_give_numbers() {
        assert_eq!(t_quantile(-1.0, 5), 0.0);
        assert!(t_quantile(1.0, 5).is_finite() && t_quantile(2.0, 0).is_finite());
    }

    #[test]
    fn an_estimate_worked_by_hand() {
        let estimate = Estimate::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], 0.95).unwrap();
        assert_eq!((estimate.n, estimate.mean), (8, 5.0));
        // Squares sum to 32; 32 / 7 under the root; 2.3646 of it over the root of 8.
        assert!((estimate.stddev.unwrap() - 2.138_09).abs() < 1e-5);
        assert!((estimate.half_width.unwrap() - 1.787_49).abs() < 1e-4);
        let other = Estimate { mean: 7.0, half_width: Some(0.1), ..estimate };
        assert!(!estimate.overlaps(&other) && !other.overlaps(&estimate));
        assert!(estimate.overlaps(&Estimate { mean: 6.8, ..other }));
    }

    #[test]
    fn one_value_has_no_interval() {
        let estimate = Estimate::of(&[3.0], 0.95).unwrap();
        assert_eq!((estimate.n, estimate.stddev, estimate.half_width), (1, None, None));
        assert_eq!((estimate.low(), estimate.high()), (3.0, 3.0));
        assert_eq!(Estimate::of(&[], 0.95), None);
        assert_eq!(Estimate::of(&[3.0, 3.0], 0.95).unwrap().half_width, Some(0.0));
    }

    #[test]
    fn what_is_left_out_gives_a_mean_the_interval_of_an_estimate() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let without = |left_out: usize| {
            let others = values.iter().enumerate().filter(|(place, _)| *place != left_out);
            others.map(|(_, value)| *value).collect::<Vec<_>>()
        };
        let means: Vec<f64> = (0..8).filter_map(|place| mean(&without(place))).collect();
        let half = half_width_left_out(&means, 0.95).unwrap();
        assert!((half - Estimate::of(&values, 0.95).unwrap().half_width.unwrap()).abs() < 1e-9, "{half}");
        assert_eq!(half_width_left_out(&[3.0], 0.95), None);
        assert_eq!(half_width_left_out(&[3.0, 3.0], 0.95), Some(0.0));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(
            [median(&[]), median(&[5.0, 1.0, 2.0]), median(&[4.0, 1.0])],
            [None, Some(2.0), Some(2.5)]
        );
    }
}
