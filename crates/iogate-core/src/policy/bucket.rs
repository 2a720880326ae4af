//! One rate, kept: when the next request conforms to it.

use core::num::NonZeroU64;

use super::Rate;
use crate::time::{Span, Time};
use crate::units::SECOND;

/// When the next request conforms to a rate (the generic cell rate algorithm of ITU-T I.371, in nanoseconds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    next: Time,
}

fn before(time: Time, span: Span) -> Time {
    Time::from_nanos(time.as_nanos().saturating_sub(span.as_nanos()))
}

impl Bucket {
    /// From when on a request may go, if so much may be ahead of the rate.
    pub(super) fn conforms_at(&self, burst: Span) -> Time {
        before(self.next, burst)
    }

    /// A request goes now. Rate that was not used is not kept.
    pub(super) fn take(&mut self, now: Time, cost: Span) {
        self.next = self.next.max(now) + cost;
    }

    /// As [`Bucket::take`], but what went before its time does not delay the next one, and what was missed is made up for, as far as that
    /// is no more than `debt`.
    pub(super) fn take_due(&mut self, now: Time, cost: Span, debt: Span) {
        self.next = self.next.clamp(before(now, debt), now) + cost;
    }

    /// The rate is another one: what is ahead of it is so many bytes as before.
    pub(super) fn rescale(&mut self, now: Time, before: NonZeroU64, after: NonZeroU64) {
        let ahead =
            u128::from(self.next.since(now).as_nanos()) * u128::from(before.get()) / u128::from(after.get());
        if ahead > 0 {
            self.next = now + Span::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX));
        }
    }

    /// Somebody comes who had nothing to ask for.
    pub(super) fn begin(&mut self, now: Time) {
        self.next = self.next.max(now);
    }
}

impl Rate {
    /// Whether there is none.
    pub(super) fn is_none(&self) -> bool {
        self.bytes.is_none() && self.requests.is_none()
    }

    /// How long a request takes at the slower of the two rates; none, if there is no rate.
    pub(super) fn cost(&self, bytes: u64) -> Span {
        let at = |amount: u64, rate: Option<core::num::NonZeroU64>| {
            rate.map_or(0, |rate| {
                let cost = (u128::from(amount) * u128::from(SECOND)).div_ceil(u128::from(rate.get()));
                u64::try_from(cost).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
            })
        };
        Span::from_nanos(at(bytes, self.bytes).max(at(1, self.requests)))
    }
}
