//! What an instant in each place of a gate is charged to, integrated over time.

use super::{COLUMNS, REST};
use crate::time::{Span, Time};

/// A dispatch in service weighs so much.
pub(super) const WHOLE_BITS: u32 = 16;
/// Integrals are in 2^-6 ns: they last for two years of what is accounted, up to [`TOTAL_MAX`].
pub(super) const TIME_BITS: u32 = 6;
/// A clock that jumps further has not shown how long something took.
const SPAN_MAX: u64 = 86_400_000_000_000;
/// Where integrals stop, before they overflow.
const TOTAL_MAX: i64 = i64::MAX / 2;
/// Fractions are of 2^32.
const ONE: u64 = 1 << 32;
/// Of so many an equal part is known without a division.
const KNOWN: usize = 32;

/// An equal part of so many.
const EACH: [u64; KNOWN + 1] = {
    let mut each = [ONE; KNOWN + 1];
    let mut count = 1;
    while count <= KNOWN {
        each[count] = ONE / count as u64;
        count += 1;
    }
    each
};

/// What a request that the scheduler has waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing: the gate will be asked.
    #[default]
    Free,
    /// All slots are taken.
    Full,
    /// The window of another target.
    Window,
    /// A deliberate wait for the application with this column.
    Waits(u8),
}

/// The integrals.
#[derive(Clone)]
pub(super) struct Clocks {
    pub(super) now: Time,
    /// Dispatches in service, and how much of them is whose, by column.
    pub(super) in_service: u32,
    pub(super) weights: [u32; COLUMNS + 1],
    /// How many columns have been given away.
    pub(super) used: usize,
    pub(super) standing: Standing,
    /// All the time.
    pub(super) total: i64,
    /// Of an instant of a dispatch in service, what it takes itself: an equal part of those in service.
    pub(super) own: i64,
    /// Of an instant that a queued request spends, and a deferred one or one in service, what is due to each column.
    pub(super) queued: [i64; COLUMNS + 1],
    pub(super) others: [i64; COLUMNS + 1],
    /// The sum of `others` while something is in service.
    pub(super) others_sum: i64,
    /// How long the gate was full, waited for a window, did so with nothing in service, and waited for an application.
    pub(super) full: i64,
    pub(super) window: i64,
    pub(super) idle_window: i64,
    pub(super) waits: i64,
    /// An equal part of those in service.
    each: u64,
}

impl Clocks {
    pub(super) fn new(now: Time) -> Clocks {
        Clocks {
            now,
            in_service: 0,
            weights: [0; COLUMNS + 1],
            used: 0,
            standing: Standing::Free,
            total: 0,
            own: 0,
            queued: [0; COLUMNS + 1],
            others: [0; COLUMNS + 1],
            others_sum: 0,
            full: 0,
            window: 0,
            idle_window: 0,
            waits: 0,
            each: ONE,
        }
    }

    #[inline]
    pub(super) fn set_in_service(&mut self, count: u32) {
        self.in_service = count;
        self.each = EACH.get(count as usize).copied().unwrap_or_else(|| ONE / u64::from(count));
    }

    /// A span as integrals count it.
    pub(super) fn ticks(span: Span) -> i64 {
        (span.as_nanos().min(SPAN_MAX) << TIME_BITS) as i64
    }

    /// What a dispatch takes itself of such a span, with as many in service as now.
    pub(super) fn own_part(&self, ticks: i64) -> i64 {
        part(ticks, self.each << WHOLE_BITS)
    }

    /// Nothing is in the gate from now on.
    pub(super) fn empty(&mut self) {
        self.weights = [0; COLUMNS + 1];
        self.standing = Standing::Free;
        self.set_in_service(0);
    }

    /// Goes on to `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: Time) {
        let span = Clocks::ticks(now.since(self.now));
        self.now = self.now.max(now);
        if span == 0 || self.total > TOTAL_MAX {
            return;
        }
        self.total += span;
        let is_full = self.standing == Standing::Full && self.in_service > 0;
        match self.standing {
            Standing::Full if is_full => self.full += span,
            Standing::Window => {
                self.window += span;
                self.idle_window += if self.in_service == 0 { span } else { 0 };
            }
            Standing::Waits(column) => {
                self.waits += span;
                self.queued[usize::from(column)] += span;
                if self.in_service == 0 {
                    self.others[usize::from(column)] += span;
                }
            }
            _ => {}
        }
        if self.in_service > 0 {
            self.own += part(span, self.each << WHOLE_BITS);
            for column in (0..self.used).chain([usize::from(REST)]) {
                let weight = u64::from(self.weights[column]);
                if weight > 0 {
                    let equal = part(span, weight * self.each);
                    self.queued[column] += if is_full { equal } else { 0 };
                    self.others[column] += equal;
                    self.others_sum += equal;
                }
            }
        }
    }

    /// A column is for somebody else from now on.
    pub(super) fn give_up_column(&mut self, column: u8) {
        self.weights[usize::from(REST)] += core::mem::take(&mut self.weights[usize::from(column)]);
        if self.standing == Standing::Waits(column) {
            self.standing = Standing::Waits(REST);
        }
    }
}

/// A fraction of a span, in 2^-48.
fn part(span: i64, fraction: u64) -> i64 {
    ((span as u128 * u128::from(fraction)) >> (32 + WHOLE_BITS)) as i64
}
