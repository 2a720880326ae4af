//! Rates, kept: when the next request conforms to them.

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
    fn take(&mut self, now: Time, cost: Span) {
        self.next = self.next.max(now) + cost;
    }

    /// As [`Bucket::take`], but what was missed is made up for, up to `debt`. What goes before its time counts as long as no more than
    /// `ahead` is ahead; beyond that it only delays the next one by itself.
    fn take_due(&mut self, now: Time, cost: Span, debt: Span, ahead: Span) {
        let from = self.next.max(before(now, debt));
        self.next = from.max(from.min(now + ahead) + cost);
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
    fn begin(&mut self, now: Time) {
        self.next = self.next.max(now);
    }
}

impl Rate {
    /// Whether there is none.
    pub(super) fn is_none(&self) -> bool {
        self.bytes.is_none() && self.requests.is_none()
    }
}

/// How long so much takes.
fn cost(amount: u64, rate: NonZeroU64) -> Span {
    let cost = (u128::from(amount) * u128::from(SECOND)).div_ceil(u128::from(rate.get()));
    Span::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX / 4).min(u64::MAX / 4))
}

/// Bytes and requests, each counted by itself: of sizes that differ, some take longest at the one rate and others at the other, and both
/// rates can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buckets {
    pub(super) bytes: Bucket,
    pub(super) requests: Bucket,
}

impl Buckets {
    /// From when on a request may go that no rate is exceeded by, if so much may be ahead of each.
    pub(super) fn conforms_at(&self, burst: Span) -> Time {
        self.bytes.conforms_at(burst).max(self.requests.conforms_at(burst))
    }

    /// When the next request is due by a floor: as soon as one of its rates says so, as both are promised.
    pub(super) fn due_at(&self, floor: &Rate) -> Option<Time> {
        let bytes = floor.bytes.map(|_| self.bytes.next);
        let requests = floor.requests.map(|_| self.requests.next);
        bytes.into_iter().chain(requests).min()
    }

    /// A request goes now that has a cap. What could not be used of one rate because of the other is kept, up to so much; else one that
    /// takes long at the one, and those after it that take long at the other, would take as long as both together.
    pub(super) fn take(&mut self, now: Time, cap: &Rate, bytes: u64, kept: Span) {
        let from = |this: Bucket, other: Bucket| before(now, other.next.since(this.next).min(kept));
        let (from_bytes, from_requests) = (from(self.bytes, self.requests), from(self.requests, self.bytes));
        if let Some(rate) = cap.bytes {
            self.bytes.take(from_bytes, cost(bytes, rate));
        }
        if let Some(rate) = cap.requests {
            self.requests.take(from_requests, cost(1, rate));
        }
    }

    /// A request goes now that has a floor. One that is due counts for both rates, whichever it is due by: that much may be ahead of the
    /// other one, or behind it. One that would have gone anyway does not delay the next one.
    pub(super) fn take_due(&mut self, now: Time, floor: &Rate, bytes: u64, account: Span) {
        let is_due = self.due_at(floor).is_some_and(|at| at <= now);
        let ahead = if is_due { account } else { Span::ZERO };
        if let Some(rate) = floor.bytes {
            self.bytes.take_due(now, cost(bytes, rate), account, ahead);
        }
        if let Some(rate) = floor.requests {
            self.requests.take_due(now, cost(1, rate), account, ahead);
        }
    }

    /// Somebody comes who had nothing to ask for.
    pub(super) fn begin(&mut self, now: Time) {
        self.bytes.begin(now);
        self.requests.begin(now);
    }
}
