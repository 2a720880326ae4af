//! Accounts of samples: which parts of the time are accounted, what that says of all of it, and how surely.

use super::{Account, Cause};
use crate::time::{Span, Time};

/// Time is cut into windows of this length, and in each one part is a sample.
pub const WINDOW: Span = Span::from_millis(25);
/// Parts of a window.
pub const PARTS: u64 = 64;
/// A sample's length.
pub const SAMPLE: Span = Span::from_nanos(WINDOW.as_nanos() / PARTS);
/// Squares are of 2^6 ns: they last for centuries.
const SQUARE_BITS: u32 = 6;
/// Standard deviations to each side in which 19 of 20 lie.
const DEVIATIONS: f64 = 2.0;

/// When the sample of a window begins.
pub(crate) fn begin(window: u64) -> Time {
    // A splitmix step: what comes again and again at the same time in each window meets other parts of it each time.
    let mut mixed = window.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let into = (mixed ^ (mixed >> 31)) % PARTS * SAMPLE.as_nanos();
    Time::from_nanos(window.saturating_mul(WINDOW.as_nanos()).saturating_add(into))
}

/// The first window whose sample is not over.
pub(crate) fn window_at(now: Time) -> u64 {
    let window = now.window(WINDOW);
    if begin(window) + SAMPLE <= now { window + 1 } else { window }
}

/// When the sample begins that comes after one that ends then: the last part of a window ends where the next window begins.
pub(crate) fn begin_after(end: Time) -> Time {
    let last = Time::from_nanos(end.as_nanos().saturating_sub(1));
    begin(last.window(WINDOW) + 1)
}

/// How accounts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// Of all the time.
    Exact,
    /// Of samples.
    Sampled,
}

/// What part of the time in which something was in the gate accounts are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sampled {
    /// For how long there was something in the gate.
    pub occupied: Span,
    /// For how long of that in samples.
    pub sampled: Span,
    /// In how many samples.
    pub samples: u64,
    /// The sum over them of how long, squared, in 2^12 ns^2.
    pub squares: u64,
}

impl Sampled {
    /// What has come since an earlier look.
    pub fn since(&self, before: &Sampled) -> Sampled {
        Sampled {
            occupied: self.occupied - before.occupied,
            sampled: self.sampled - before.sampled,
            samples: self.samples.saturating_sub(before.samples),
            squares: self.squares.saturating_sub(before.squares),
        }
    }

    /// What an account of samples says of all the time. As before causes sum to the application's time exactly.
    pub fn scaled(&self, account: &Account) -> Account {
        let scale = |span: Span| {
            let all = u128::from(span.as_nanos()) * u128::from(self.occupied.as_nanos());
            Span::from_nanos((all / u128::from(self.sampled.as_nanos().max(1))) as u64)
        };
        let busy = scale(account.busy);
        let mut causes = account.causes.map(scale);
        causes[Cause::Own as usize] = Span::ZERO;
        let others = causes.iter().fold(Span::ZERO, |sum, span| sum + *span);
        causes[Cause::Own as usize] = busy - others;
        let apps = account.apps.iter().map(|(app, span)| (*app, scale(*span))).collect();
        Account { busy, causes, apps, ..*account }
    }

    /// How far a scaled amount may lie from what it is of, to each side, for about 19 of 20. As if each sample had been the amount's or
    /// not, as a whole: amounts that vary less between samples are surer than that.
    pub fn plus_minus(&self, amount: Span) -> Span {
        let (occupied, sampled) = (self.occupied.as_nanos() as f64, self.sampled.as_nanos() as f64);
        if self.sampled == Span::ZERO {
            return self.occupied;
        }
        // As many samples of equal length would say as much.
        let squares = self.squares.max(1) as f64 * f64::from(1 << (2 * SQUARE_BITS));
        let samples = (sampled * sampled / squares).min(self.samples as f64);
        // Two more of each kind, so that few that are all alike are not taken for certain.
        let more = DEVIATIONS * DEVIATIONS;
        let part = (amount.as_nanos() as f64 / occupied.max(1.0)).clamp(0.0, 1.0);
        let part = (part * samples + more / 2.0) / (samples + more);
        let variance = part * (1.0 - part) / (samples + more);
        // The core has no square root but that of integers.
        let one = f64::from(1 << 30);
        let root = ((variance * one * one) as u64).isqrt() as f64 / one;
        Span::from_nanos((DEVIATIONS * root * occupied) as u64)
    }
}

/// When something is in the gate, over all and in samples.
#[derive(Clone, Default)]
pub(super) struct Presence {
    /// Since when something is in the gate.
    since: Option<Time>,
    /// The sample that is being taken: how much of it is over in which something was in the gate, and since when something is.
    part: Span,
    from: Option<Time>,
    /// Without what is going on.
    sampled: Sampled,
}

impl Presence {
    pub(super) fn enters(&mut self, now: Time, is_sample: bool) {
        self.since = Some(now);
        self.from = is_sample.then_some(now);
    }

    pub(super) fn leaves(&mut self, now: Time) {
        let Some(since) = self.since.take() else { return };
        self.sampled.occupied += now.since(since);
        if let Some(from) = self.from.take() {
            self.part += now.since(from);
        }
    }

    pub(super) fn opens(&mut self, at: Time) {
        self.from = self.since.map(|_| at);
    }

    /// So many samples end, which were all alike.
    pub(super) fn closes(&mut self, at: Time, samples: u64) {
        self.sampled = self.with_part(at, samples);
        (self.part, self.from) = (Span::ZERO, None);
    }

    fn with_part(&self, at: Time, samples: u64) -> Sampled {
        let part = self.part + self.from.map_or(Span::ZERO, |from| at.since(from));
        let each = (part.as_nanos() / samples) >> SQUARE_BITS;
        let before = &self.sampled;
        Sampled {
            occupied: before.occupied,
            sampled: before.sampled + part,
            samples: before.samples + if part > Span::ZERO { samples } else { 0 },
            squares: before.squares.saturating_add(samples.saturating_mul(each.saturating_mul(each))),
        }
    }

    /// Up to now.
    pub(super) fn sampled(&self, now: Time) -> Sampled {
        let since = self.since.map_or(Span::ZERO, |since| now.since(since));
        let sampled = self.with_part(now, 1);
        Sampled { occupied: sampled.occupied + since, ..sampled }
    }
}
