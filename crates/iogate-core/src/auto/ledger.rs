//! What each application has taken, against what it would have taken with `fifo`: the promise of harm to nobody, kept by measurement.
//!
//! A prediction cannot keep it. Who goes first may be over soon, and nobody is harmed; or it goes on, and whoever waits is. Which of
//! both it will be nobody knows, so that an order may be tried, and is given up as soon as somebody is too late.

use alloc::vec::Vec;

use super::judging::Judging;
use super::objective::{Ln, exp_thousandths, ln_ratio};
use super::window::AppPart;
use crate::time::{Span, Time};

/// Of what it would have taken with `fifo`, in percent, and a time, by which an application may be late.
const LATE_PERCENT: u64 = 7;
const LATE: u64 = 300_000_000;
/// Time with `fifo` from which on the past counts half.
const MEMORY: u64 = 30_000_000_000;
/// Applications that are told apart.
const ACCOUNTS_MAX: usize = 64;
/// Completions by which a prediction is corrected.
const COMPLETIONS_MIN: u32 = 4;
/// What is slower than with `fifo` by more than this, in percent, makes late.
const SLOWER_PERCENT: u64 = 2;

/// What applications have taken.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: Vec<Account>,
    /// The end of the last window.
    last: Time,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    key: u64,
    took: u64,
    with_fifo: u64,
    /// How much longer `fifo` is predicted to take than it does; it is known once that was measured.
    bias: Ln,
    is_known: bool,
}

impl Account {
    /// Whether it is late by so many percent of what it may be.
    fn is_late(&self, percent: u64) -> bool {
        let may = self.with_fifo / 100 * LATE_PERCENT + LATE;
        self.took > self.with_fifo + may / 100 * percent
    }
}

/// `span` by a prediction that is too long by `bias`.
fn corrected(span: Span, bias: Ln) -> u64 {
    let corrected = u128::from(span.as_nanos()) * 1_000 / u128::from(exp_thousandths(bias));
    corrected.min(u128::from(MEMORY)) as u64
}

impl Ledger {
    /// A ledger that begins now.
    pub(super) fn new(now: Time) -> Ledger {
        Ledger { accounts: Vec::new(), last: now }
    }

    /// What has been learnt of predictions is not so any more: the load is another one.
    pub(super) fn doubt(&mut self) {
        self.accounts.iter_mut().for_each(|account| account.is_known = false);
    }

    /// Counts a window, in which candidate `used` was in use, up to now. Whether somebody is late, and was slowed down again.
    pub(super) fn note(&mut self, judging: &Judging, used: usize, now: Time) -> bool {
        let times = |index: usize| judging.done.iter().find(|(candidate, _)| *candidate == index);
        let (Some((_, fifo)), Some((_, own))) = (times(0), times(used)) else { return false };
        let window = &judging.window;
        // A window is a sample of the time since the last one.
        let span = window.span.as_nanos().max(1);
        let since = now.since(self.last).as_nanos().max(span);
        self.last = now;
        let mut is_hurt = false;
        for (part, (fifo, own)) in window.apps.iter().zip(fifo.iter().zip(own)) {
            let account = self.account(part.key);
            let measured = part.measured.as_nanos();
            if part.completed >= COMPLETIONS_MIN && own.measured > Span::ZERO && measured > 0 {
                // Until `fifo` has been measured, what is said of it is wrong as what is said of the one in use.
                if used == 0 || !account.is_known {
                    account.bias = ln_ratio(own.measured.as_nanos(), measured);
                    account.is_known = used == 0;
                }
            }
            let with_fifo = if used == 0 { measured } else { corrected(fifo.measured, account.bias) };
            let took = measured.max(waited(part, window.start, window.span, with_fifo, fifo.all));
            let scaled = |time: u64| (u128::from(time) * u128::from(since) / u128::from(span)) as u64;
            account.took += scaled(took);
            account.with_fifo += scaled(with_fifo);
            if account.with_fifo > MEMORY {
                (account.took, account.with_fifo) = (account.took / 2, account.with_fifo / 2);
            }
            is_hurt |= account.is_late(100) && took > with_fifo / 100 * (100 + SLOWER_PERCENT);
        }
        is_hurt
    }

    fn account(&mut self, key: u64) -> &mut Account {
        let index = self.accounts.iter().position(|account| account.key == key).unwrap_or_else(|| {
            if self.accounts.len() == ACCOUNTS_MAX {
                self.accounts.remove(0);
            }
            // Storage that is faster than it is said to be is so for all.
            let count = self.accounts.len().max(1) as Ln;
            let bias = self.accounts.iter().map(|account| account.bias).sum::<Ln>() / count;
            self.accounts.push(Account { key, took: 0, with_fifo: 0, bias, is_known: false });
            self.accounts.len() - 1
        });
        &mut self.accounts[index]
    }

    /// Whether an application is late by more than half of what it may be.
    pub(super) fn is_strained(&self, key: u64) -> bool {
        self.accounts.iter().any(|account| account.key == key && account.is_late(50))
    }
}

/// How long an application of a window has waited without a completion at the end of it, and taken before, if that is long by what `fifo`
/// takes for as many requests as it has in the gate.
fn waited(part: &AppPart, start: Time, span: Span, with_fifo: u64, all: Span) -> u64 {
    let each = match part.completed {
        0 => all.as_nanos() / u64::from(part.requests.max(1)),
        completed => with_fifo / u64::from(completed),
    };
    let present = span.as_nanos().saturating_sub(part.first.since(start).as_nanos());
    let outstanding = u64::from(part.outstanding);
    if outstanding == 0 { 0 } else { present.saturating_sub(each.saturating_mul(2 * outstanding)) }
}
