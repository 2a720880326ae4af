//! What a class has to do with its cap and its floor.

use core::num::NonZeroU64;

use super::arbiter::CAP_BURST;
use super::bucket::Buckets;
use crate::time::{Span, Time};

/// Of a class that may have a cap or a floor. It is not beside what each request asks of a class: most have neither, and theirs is never
/// looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    /// Its key in `capped` and `due` of the arbiter, if it is there.
    pub(super) capped: Option<Time>,
    pub(super) due: Option<Time>,
    pub(super) cap: Buckets,
    pub(super) floor: Buckets,
    /// Where caps are shared: what it is allotted, if that is not nothing; else what it was before.
    pub(super) allotted: Option<NonZeroU64>,
    /// Nothing of it may go: nothing is allotted to it.
    pub(super) is_stopped: bool,
    /// Bytes that were admitted; that wait. Only where caps are shared.
    pub(super) admitted_bytes: u64,
    pub(super) waiting_bytes: u64,
    /// Until when it is counted for how long it has waited for its cap, for how long it has, and in how much of that for nothing but bytes.
    pub(super) counted_until: Time,
    pub(super) capped_for: Span,
    pub(super) short_for: Span,
}

impl Limits {
    /// From when on its next request may go, as far as its cap is concerned.
    pub(super) fn conforms_at(&self) -> Time {
        if self.is_stopped { Time::MAX } else { self.cap.conforms_at(CAP_BURST) }
    }

    /// For how long it has waited for its cap.
    pub(super) fn capped(&self, now: Time) -> Span {
        self.capped_for + self.capped.map_or(Span::ZERO, |_| now.since(self.counted_until))
    }

    /// For how long it has waited for nothing but its cap in bytes: with more of these it would have gone on.
    pub(super) fn short(&self, now: Time) -> Span {
        let (bytes, requests) = (&self.cap.bytes, self.cap.requests.conforms_at(CAP_BURST));
        let is_short = self.capped.is_some() && (self.is_stopped || bytes.conforms_at(CAP_BURST) > requests);
        let since = self.counted_until.max(requests);
        self.short_for + if is_short { now.since(since) } else { Span::ZERO }
    }

    /// Counts for how long it has waited for its cap up to now, as the cap, what is ahead of it or whether it waits is to be another.
    pub(super) fn count_capped(&mut self, now: Time) {
        if self.capped.is_some() {
            (self.short_for, self.capped_for) = (self.short(now), self.capped(now));
        }
        self.counted_until = self.counted_until.max(now);
    }

    /// What it may have of `cap` is another rate from now on.
    pub(super) fn set_allotment(&mut self, now: Time, cap: NonZeroU64, rate: u64) {
        let before = self.allotted.unwrap_or(cap);
        // What goes nevertheless, as others wait for it, is paid for at the rate before.
        let after = NonZeroU64::new(rate).unwrap_or(before);
        self.cap.bytes.rescale(now, before, after);
        (self.allotted, self.is_stopped) = (Some(after), rate == 0);
    }
}
