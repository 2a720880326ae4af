//! Seeded random numbers: the same seed gives the same numbers on every machine.

use iogate_core::Span;

/// A random source: xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// A length of time that may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Always this long.
    Constant(Span),
    /// Anything from the first to the second, equally likely.
    Uniform(Span, Span),
    /// Exponential with this mean.
    Exponential(Span),
}

impl Rng {
    /// The source for `seed` and `stream`. Streams of a seed are independent, so that who draws first changes nothing.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut x = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(x)
        });
        Rng { state }
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of at most n / 2^64 is far below what any experiment can see.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// A number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A length of time.
    pub fn span(&mut self, distribution: Distribution) -> Span {
        match distribution {
            Distribution::Constant(span) => span,
            Distribution::Uniform(low, high) => {
                Span::from_nanos(self.between(low.as_nanos(), high.as_nanos().max(low.as_nanos())))
            }
            Distribution::Exponential(mean) => {
                Span::from_nanos((mean.as_nanos() as f64 * -(1.0 - self.unit()).ln()) as u64)
            }
        }
    }
}

/// Spreads numbers that are close together over all 64 bits: the finalizer of SplitMix64.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Distribution {
    /// No time at all.
    pub const ZERO: Distribution = Distribution::Constant(Span::ZERO);

    /// The mean.
    pub fn mean(&self) -> Span {
        match *self {
            Distribution::Constant(span) | Distribution::Exponential(span) => span,
            Distribution::Uniform(low, high) => Span::from_nanos(low.as_nanos() / 2 + high.as_nanos() / 2),
        }
    }

    /// Whether it is always nothing.
    pub fn is_zero(&self) -> bool {
        *self == Distribution::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_streams_are_apart_and_repeatable() {
        let draw = |seed, stream| Rng::new(seed, stream).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(1, 0), draw(1, 1));
    }

    #[test]
    fn means_are_what_they_should_be() {
        let mut rng = Rng::new(7, 0);
        for distribution in [
            Distribution::Constant(Span::from_micros(10)),
            Distribution::Uniform(Span::from_micros(5), Span::from_micros(15)),
            Distribution::Exponential(Span::from_micros(10)),
        ] {
            let n = 100_000;
            let sum: u64 = (0..n).map(|_| rng.span(distribution).as_nanos()).sum();
            let mean = sum as f64 / f64::from(n);
            assert!((mean - 10_000.0).abs() < 150.0, "{distribution:?}: {mean}");
        }
    }
}
