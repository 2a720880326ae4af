//! Division by a number that is known beforehand, several times faster than the processor's.

/// A divisor, not zero, with its reciprocal.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    divisor: u64,
    /// `2^64 / divisor`, less a remainder of at most 1.
    reciprocal: u64,
}

impl Divisor {
    /// With its reciprocal; the divisor is not zero.
    pub const fn new(divisor: u64) -> Divisor {
        Divisor { divisor, reciprocal: u64::MAX / divisor }
    }

    /// The divisor.
    pub const fn get(self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder.
    #[inline]
    pub const fn div_rem(self, dividend: u64) -> (u64, u64) {
        // The reciprocal is too small by at most 1, so this quotient is too, and one correction is enough.
        let quotient = ((dividend as u128 * self.reciprocal as u128) >> 64) as u64;
        let remainder = dividend - quotient * self.divisor;
        if remainder >= self.divisor {
            (quotient + 1, remainder - self.divisor)
        } else {
            (quotient, remainder)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn divides_as_the_processor(dividend: u64, bits in 0u32..64, wide: u64) {
            let divisor = (wide >> bits).max(1);
            for dividend in [dividend, u64::MAX, divisor - 1, divisor, dividend / divisor * divisor] {
                prop_assert_eq!(
                    Divisor::new(divisor).div_rem(dividend),
                    (dividend / divisor, dividend % divisor)
                );
            }
        }
    }
}
