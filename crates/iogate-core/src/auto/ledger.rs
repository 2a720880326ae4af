//! How long applications have been in the gate, and how long what they have got carried out takes with `fifo`.
//!
//! The latter is simulated, and corrected by how far simulations of what is in use are off. Time between windows counts as the window
//! after it does. What is long ago counts less, so that nobody can be stopped for long who was there for long.

use alloc::vec::Vec;

use super::judging::Judging;
use super::objective::{Ln, Slowdown, exp_thousandths, ln_ratio};
use crate::time::Time;

/// Applications that are followed; of more, those that were seen last.
const APPS_MAX: usize = 64;
/// Windows without it after which an application that comes back begins anew.
const ABSENT_MAX: u32 = 8;
/// What is kept of each is halved when it is of more than so many ns.
const HORIZON: u64 = 64_000_000_000;
/// Time that a window may stand for, as a multiple of its own: beyond that nobody knows what was there.
const STANDS_FOR_MAX: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    took: u64,
    with_fifo: u64,
    /// Windows since it was in one.
    absent: u32,
}

/// What each application took, and would have taken.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Who was seen last is the first.
    entries: Vec<Entry>,
    /// Until when it is known.
    at: Time,
}

impl Ledger {
    /// Nobody has been there before `now`.
    pub(super) fn new(now: Time) -> Ledger {
        Ledger { entries: Vec::new(), at: now }
    }

    /// A window was carried out with `used`, and simulated with `fifo`; predictions are too long by `bias`.
    pub(super) fn add(&mut self, judging: &Judging, used: usize, bias: Ln, now: Time) {
        let Some((_, fifo)) = judging.done.iter().find(|(index, _)| *index == 0) else { return };
        let span = judging.window.span.as_nanos().max(1);
        let all = now
            .since(core::mem::replace(&mut self.at, now))
            .as_nanos()
            .clamp(span, span.saturating_mul(STANDS_FOR_MAX));
        let off = exp_thousandths(-bias);
        self.entries.iter_mut().for_each(|entry| entry.absent += 1);
        for (app, times) in judging.window.apps.iter().zip(fifo) {
            // Who has got nothing has waited all the time.
            let took = if app.completed == 0 { span } else { app.measured.as_nanos() };
            let with_fifo = match (used, app.completed) {
                (0, _) => took,
                (_, 0) => 0,
                _ => part(times.measured.as_nanos(), off, 1_000),
            };
            self.note(app.key, part(took, all, span), part(with_fifo, all, span));
        }
        self.entries.retain(|entry| entry.absent < ABSENT_MAX);
    }

    fn note(&mut self, key: u64, took: u64, with_fifo: u64) {
        let place = self.entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
            self.entries.truncate(APPS_MAX - 1);
            self.entries.push(Entry { key, ..Entry::default() });
            self.entries.len() - 1
        });
        self.entries[..=place].rotate_right(1);
        let entry = &mut self.entries[0];
        let (took, with_fifo) = (entry.took.saturating_add(took), entry.with_fifo.saturating_add(with_fifo));
        let halvings = (took / HORIZON).checked_ilog2().map_or(0, |log2| log2 + 1);
        *entry = Entry { key, took: took >> halvings, with_fifo: with_fifo >> halvings, absent: 0 };
    }

    /// By how much who is most behind is so, of those in the last window.
    pub(super) fn worst(&self) -> Ln {
        let present = self.entries.iter().filter(|entry| entry.absent == 0);
        present.map(|entry| ln_ratio(entry.took, entry.with_fifo)).max().unwrap_or(0)
    }

    /// The same after `dwell` ns more with what these parts were simulated with, of those whom that slows down by more than `harm`.
    pub(super) fn projected(&self, parts: impl Iterator<Item = Slowdown>, dwell: u64, harm: Ln) -> Ln {
        let mut sums: Vec<(u64, u64, u64)> = Vec::new();
        for Slowdown { key, took, with_fifo, .. } in parts {
            match sums.iter_mut().find(|(other, ..)| *other == key) {
                Some(sum) => *sum = (key, sum.1.saturating_add(took), sum.2.saturating_add(with_fifo)),
                None => sums.push((key, took, with_fifo)),
            }
        }
        let slowed = sums.into_iter().filter(|(_, took, with_fifo)| ln_ratio(*took, *with_fifo) > harm);
        let behind = slowed.map(|(key, took, with_fifo)| {
            let known = self.entries.iter().find(|entry| entry.key == key);
            let (before, base) = known.map_or((0, 0), |entry| (entry.took, entry.with_fifo));
            ln_ratio(before.saturating_add(dwell), base.saturating_add(part(dwell, with_fifo, took.max(1))))
        });
        behind.max().unwrap_or(0)
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// `of` times `some` over `all`.
fn part(of: u64, some: u64, all: u64) -> u64 {
    (u128::from(of) * u128::from(some) / u128::from(all)).min(u128::from(u64::MAX / 4)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn simulated(key: u64, took: u64, with_fifo: u64) -> Slowdown {
        Slowdown { key, requests: 100, took, with_fifo }
    }

    #[test]
    fn who_is_behind_is_known_until_it_has_caught_up() {
        let mut ledger = Ledger::new(Time::ZERO);
        assert_eq!(ledger.worst(), 0);
        ledger.note(1, 1_000 * MS, 1_000 * MS);
        ledger.note(2, 100 * MS, 90 * MS);
        assert!(ledger.worst() > 105_000, "{ledger:?}");
        // What it gains makes good what it has lost.
        ledger.note(2, 100 * MS, 110 * MS);
        assert_eq!(ledger.worst(), 0);
        // Who is not there any more is not waited for.
        ledger.note(2, 500 * MS, 0);
        ledger.entries[0].absent = 1;
        assert_eq!(ledger.worst(), 0);
    }

    #[test]
    fn who_has_been_there_for_longer_can_be_slowed_down_for_longer() {
        let mut ledger = Ledger::new(Time::ZERO);
        ledger.note(1, 5_000 * MS, 5_000 * MS);
        ledger.note(2, 500 * MS, 500 * MS);
        // Three times as slow for 300 ms: 200 ms are lost.
        let after = |key, harm| ledger.projected([simulated(key, 30, 10)].into_iter(), 300 * MS, harm);
        assert!((38_000..40_000).contains(&after(1, 0)), "{}", after(1, 0));
        assert!(after(2, 0) > 280_000 && after(3, 0) > 1_000_000, "{} {}", after(2, 0), after(3, 0));
        // That is nothing to speak of for who may be slowed down by so much anyway.
        assert_eq!(after(3, 1_100_000), 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut ledger = Ledger::new(Time::ZERO);
        (0..1_000).for_each(|_| ledger.note(1, 10_000 * MS, 10_000 * MS));
        assert!(ledger.entries[0].took <= HORIZON);
        ledger.note(1, u64::MAX, 1);
        assert!(ledger.entries[0].took <= HORIZON);
        (0..1_000).for_each(|key| ledger.note(key, MS, MS));
        assert_eq!(ledger.entries.len(), APPS_MAX);
    }
}
