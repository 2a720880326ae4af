//! Which of two outcomes is better: the least mean, over applications, of the logarithm of their slowdown against `fifo`, and no
//! application far beyond `fifo`. Makespans would ruin small applications for the sake of large ones.

use alloc::vec::Vec;

/// A logarithm to the base e, in millionths: 10,000 is 1 %.
pub type Ln = i64;

/// What an application may take, of what it takes with `fifo`: ln 1.10.
pub const HARM_MAX: Ln = 95_310;
/// Requests below which an application's slowdown is noise, and bounds nothing.
pub const REQUESTS_MIN: u32 = 16;
/// Windows from which on it counts all the same: who is starved has few requests.
const WINDOWS_MIN: u32 = 4;
const LN_2: u64 = 693_147;
const FRACTION_BITS: u32 = 24;

/// ln `x`; of 0 as of 1.
pub fn ln(x: u64) -> Ln {
    let x = x.max(1);
    let whole = x.ilog2();
    // From 1 up to 2, with 32 bits behind the point; each squaring gives a bit of the logarithm.
    let mut mantissa = if whole > 32 { x >> (whole - 32) } else { x << (32 - whole) };
    let mut log2 = u64::from(whole);
    for _ in 0..FRACTION_BITS {
        mantissa = ((u128::from(mantissa) * u128::from(mantissa)) >> 32) as u64;
        log2 <<= 1;
        if mantissa >= 2 << 32 {
            mantissa >>= 1;
            log2 |= 1;
        }
    }
    ((log2 * LN_2) >> FRACTION_BITS) as Ln
}

/// ln (`a` / `b`).
pub fn ln_ratio(a: u64, b: u64) -> Ln {
    ln(a) - ln(b)
}

/// e to the power of `ln`, in thousandths, for people: of 95,310 it is 1,100.
pub fn exp_thousandths(ln: Ln) -> u64 {
    // The smallest number of thousandths whose logarithm is not below: a bisection needs no second series.
    let (mut low, mut high) = (1, 1_000_000_000);
    while low < high {
        let middle = (low + high) / 2;
        if ln_ratio(middle, 1_000) >= ln { high = middle } else { low = middle + 1 }
    }
    low
}

/// What an application took, with `fifo` and otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowdown {
    /// Which application.
    pub key: u64,
    /// Its requests.
    pub requests: u32,
    /// From its first arrival to the last completion of its work, in ns.
    pub took: u64,
    /// The same with `fifo`.
    pub with_fifo: u64,
}

/// How good an outcome is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// The mean slowdown against `fifo`; negative is faster.
    pub mean: Ln,
    /// The largest slowdown of an application of at least [`REQUESTS_MIN`] requests, or that is in several windows.
    pub worst: Ln,
}

impl Score {
    /// The score of what several windows gave: each application's times are summed over them.
    pub fn of(parts: impl IntoIterator<Item = Slowdown>) -> Score {
        let mut sums: Vec<(Slowdown, u32)> = parts.into_iter().map(|part| (part, 1)).collect();
        sums.sort_unstable_by_key(|(part, _)| part.key);
        sums.dedup_by(|(part, _), (sum, windows)| {
            let same = part.key == sum.key;
            if same {
                sum.requests = sum.requests.saturating_add(part.requests);
                sum.took = sum.took.saturating_add(part.took);
                sum.with_fifo = sum.with_fifo.saturating_add(part.with_fifo);
                *windows += 1;
            }
            same
        });
        let (mut total, mut worst) = (0, Ln::MIN);
        for (part, windows) in &sums {
            let slowdown = ln_ratio(part.took, part.with_fifo);
            total += slowdown;
            if part.requests >= REQUESTS_MIN || *windows >= WINDOWS_MIN {
                worst = worst.max(slowdown);
            }
        }
        let worst = if worst == Ln::MIN { 0 } else { worst };
        Score { mean: total / (sums.len().max(1) as Ln), worst }
    }

    /// Whether nobody is slower than may be.
    pub fn is_harmless(&self) -> bool {
        self.worst <= HARM_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_a_few_millionths() {
        for x in [1_u64, 2, 3, 10, 999, 1_000_000, u64::from(u32::MAX), 1 << 40, u64::MAX / 3, u64::MAX] {
            let exact = (x as f64).ln() * 1e6;
            assert!((ln(x) as f64 - exact).abs() < 50.0, "{x}: {} {exact}", ln(x));
        }
        assert_eq!(ln(0), 0);
        assert_eq!(exp_thousandths(0), 1_000);
        assert!((1_099..=1_101).contains(&exp_thousandths(HARM_MAX)));
    }

    #[test]
    fn applications_count_alike_and_are_summed_over_windows() {
        let part = |key, requests, took, with_fifo| Slowdown { key, requests, took, with_fifo };
        // A large one is 10 % slower, a small one twice as fast: that is better, and nobody is harmed too much.
        let score = Score::of([part(1, 1_000, 109, 100), part(2, 20, 50, 100)]);
        assert!(score.mean < -300_000 && score.is_harmless(), "{score:?}");
        // Neither window alone harms it, both together do not either; a third one does.
        assert!(!Score::of([part(1, 10, 300, 100), part(1, 10, 100, 100)]).is_harmless());
        assert!(Score::of([part(1, 10, 120, 100), part(1, 10, 90, 100)]).is_harmless());
        // Two requests a window are what is left of an application that is starved.
        assert!(!Score::of([part(1, 2, 300, 100); 4]).is_harmless());
        // Too few requests to judge by.
        assert!(Score::of([part(1, 15, 300, 100)]).is_harmless());
        assert_eq!(Score::of([]), Score::default());
    }
}
