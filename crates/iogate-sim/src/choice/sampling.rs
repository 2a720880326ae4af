//! What accounts of samples say of a mix, beside exact ones of the same time.

use iogate_core::blame::{Accounting, Sampled};
use iogate_core::{Gate, Span, Time};

use super::gains::{Known, blamed};
use super::mix::{Mix, fifo};
use super::run::run_with;

/// What one application is charged with by another one, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Charged {
    /// Who waits, and for whom.
    pub app: u32,
    /// See `app`.
    pub by: u32,
    /// For how long the application had something in the gate.
    pub busy: f64,
    /// What exact accounts charge.
    pub exact: f64,
    /// What those of samples do, and how far they say that may be off.
    pub sampled: f64,
    /// See `sampled`.
    pub plus_minus: f64,
}

/// Carries out a mix of which nobody comes to an end, with `fifo`, and looks at its accounts at these times: of each all pairs.
pub fn charged(mix: &Mix, known: Known, looks: &[Time]) -> Vec<Vec<Charged>> {
    let last = looks.iter().copied().max().unwrap_or_default();
    let mix = mix.endless_until(last + Span::from_millis(100));
    let prices = known.prices(&mix);
    let look = |how: Accounting| {
        let (mut is_on, mut seen) = (false, Vec::new());
        run_with(&mix, &fifo(), None, u64::MAX, |now: Time, gate: &mut Gate, _| {
            if !std::mem::replace(&mut is_on, true) {
                gate.set_accounting(Time::ZERO, Some((how, &prices)));
            }
            while looks.get(seen.len()).is_some_and(|at| *at <= now) {
                let page = gate.accounts_page(now, 0);
                seen.push(page.map(|page| (page.accounts, page.sampled)).unwrap_or_default());
            }
        });
        seen
    };
    let (exact, sampled) = (look(Accounting::Exact), look(Accounting::Sampled));
    let both = exact.into_iter().zip(sampled).map(|((exact, _), (accounts, sampled))| {
        let sampled: Sampled = sampled.unwrap_or_default();
        let scaled: Vec<_> = accounts.iter().map(|account| sampled.scaled(account)).collect();
        let pair = |app: u32, by: u32| {
            let amount = blamed(&scaled, app, by);
            let plus_minus = sampled.plus_minus(Span::from_nanos((amount * 1e9) as u64)).as_secs_f64();
            let account = exact.iter().find(|of| of.app.is_some_and(|of| of.0 == app));
            let busy = account.map_or(0.0, |account| account.busy.as_secs_f64());
            Charged { app, by, busy, exact: blamed(&exact, app, by), sampled: amount, plus_minus }
        };
        let apps = 1..=mix.apps();
        let pairs = apps.clone().flat_map(|app| apps.clone().map(move |by| (app, by)));
        pairs.filter(|(app, by)| app != by).map(|(app, by)| pair(app, by)).collect()
    });
    both.collect()
}
