//! What each application of a mix gains without another one, and what the accounts of a gate say of that.

use iogate_core::blame::{Account, Accounting};
use iogate_core::sched::Prices;
use iogate_core::{AppId, Time};

use super::mix::{Mix, fifo};
use super::run::{Ran, run, run_with};

/// One application, and another one that may have slowed it down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Who is slowed down, and by whom.
    pub app: u32,
    /// See `app`.
    pub by: u32,
    /// How long it took, in seconds.
    pub took: f64,
    /// How much earlier it ends without the other one, in seconds; negative if later.
    pub gain: f64,
    /// What its account says, in seconds.
    pub blamed: f64,
}

impl Pair {
    /// Whether the account says about what is gained: within 15 % where that is at least 5 % of the time, else within 2 % of the time.
    pub fn agrees(&self) -> bool {
        let off = (self.blamed - self.gain).abs();
        if self.is_large() { off <= 0.15 * self.gain } else { off <= 0.02 * self.took }
    }

    /// Whether the gain is at least 5 % of the time.
    pub fn is_large(&self) -> bool {
        self.gain >= 0.05 * self.took
    }
}

/// What the accounts of a gate know of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its profile.
    Profile,
    /// Nothing.
    Nothing,
}

impl Known {
    /// What they take the storage of a mix to charge.
    pub(super) fn prices(self, mix: &Mix) -> Prices {
        match self {
            Known::Profile => mix.storage.profile().prices(),
            Known::Nothing => Prices::default(),
        }
    }
}

/// What the account of an application charges another one with, in seconds.
pub(super) fn blamed(accounts: &[Account], app: u32, by: u32) -> f64 {
    let account = accounts.iter().find(|account| account.app == Some(AppId(app)));
    let of = account.and_then(|account| account.apps.iter().find(|(of, _)| *of == Some(AppId(by))));
    of.map_or(0.0, |(_, span)| span.as_secs_f64())
}

/// Carries out a mix with `fifo`, and without each of its applications, with the same seeds: all pairs.
pub fn pairs(mix: &Mix, known: Known) -> Vec<Pair> {
    let prices = known.prices(mix);
    let mut is_on = false;
    let base = run_with(mix, &fifo(), None, u64::MAX, |_, gate, _| {
        if !std::mem::replace(&mut is_on, true) {
            gate.set_accounting(Time::ZERO, Some((Accounting::Exact, &prices)));
        }
    });
    let apps = 1..=mix.apps();
    let without: Vec<Ran> = apps.clone().map(|app| run(&mix.without(app), &fifo(), None, u64::MAX)).collect();
    let seconds = |ns: u64| ns as f64 / 1e9;
    let pair = |app: u32, by: u32| {
        let end = |ran: &Ran| seconds(ran.ends[app as usize - 1]);
        let blamed = blamed(&base.accounts, app, by);
        Pair { app, by, took: end(&base), gain: end(&base) - end(&without[by as usize - 1]), blamed }
    };
    apps.clone()
        .flat_map(|app| apps.clone().filter(move |by| *by != app).map(move |by| pair(app, by)))
        .collect()
}
