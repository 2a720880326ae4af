//! Accounts of who slows whom down.

use core::fmt;

use iogate_core::blame::Page;
use iogate_core::stats::summary::Names;
use iogate_core::{Span, Time};

use super::Engine;
use super::shared::State;

/// How long accounts that began because somebody asked go on when nobody asks again.
const ASKED_FOR: Span = Span::from_secs(600);

/// Whether accounts of who slows whom down are kept. They cost each request some time (docs/performance-gate.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounts {
    /// No.
    #[default]
    Off,
    /// From when somebody asks for them until nobody has asked for ten minutes.
    Asked,
    /// Always.
    On,
}

impl Accounts {
    /// All of them.
    pub const ALL: [Accounts; 3] = [Accounts::On, Accounts::Off, Accounts::Asked];

    /// Its name, in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Accounts::Off => "off",
            Accounts::Asked => "asked",
            Accounts::On => "on",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Accounts> {
        Accounts::ALL.into_iter().find(|accounts| accounts.name() == name)
    }
}

impl fmt::Display for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The setting in force.
pub(super) struct Keeping {
    accounts: Accounts,
    /// When nobody will have asked for long.
    until: Time,
}

impl Default for Keeping {
    fn default() -> Keeping {
        Keeping { accounts: Accounts::Off, until: Time::MAX }
    }
}

impl Engine {
    /// Says whether accounts of who slows whom down are kept. Those that are kept already go on, unless they are to end.
    pub fn keep_accounts(&self, accounts: Accounts) {
        let now = self.shared.clock.now();
        let state = &mut *self.shared.lock();
        let is_kept = state.gate.keeps_accounts();
        let until = if accounts == Accounts::Asked && is_kept { now + ASKED_FOR } else { Time::MAX };
        state.keeping = Keeping { accounts, until };
        match accounts {
            Accounts::Off if is_kept => state.gate.set_accounting(now, None),
            Accounts::On if !is_kept => state.begin_accounts(now),
            _ => {}
        }
    }

    /// Some of the accounts so far, with the names of applications: those from number `from` on. None, if none are kept. Where they are
    /// kept when somebody asks, they are from now on.
    pub fn accounts(&self, from: u32, names: &dyn Names) -> Option<Page> {
        let now = self.shared.clock.now();
        let mut page = {
            let state = &mut *self.shared.lock();
            if state.keeping.accounts == Accounts::Asked {
                state.keeping.until = now + ASKED_FOR;
                if !state.gate.keeps_accounts() {
                    state.begin_accounts(now);
                }
            }
            state.gate.accounts_page(now, from)?
        };
        let apps = page.accounts.iter().filter_map(|account| account.app);
        page.names = apps.map(|app| (app, short(names.app(app)))).collect();
        Some(page)
    }
}

impl State {
    fn begin_accounts(&mut self, now: Time) {
        let prices = *self.gate.prices();
        self.gate.set_accounting(now, Some(&prices));
    }

    /// Ends accounts for which nobody has asked for long.
    #[inline]
    pub(super) fn end_accounts(&mut self, now: Time) {
        if now >= self.keeping.until {
            self.keeping.until = Time::MAX;
            self.gate.set_accounting(now, None);
        }
    }
}

/// A name, as much as has room in a page.
fn short(mut name: String) -> String {
    const BYTES_MAX: usize = 100;
    if name.len() > BYTES_MAX {
        name.truncate((0..=BYTES_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(short("session 17".into()), "session 17");
        assert_eq!(short("ä".repeat(60)), "ä".repeat(50));
        assert_eq!(short(format!("a{}", "ä".repeat(60))), format!("a{}", "ä".repeat(49)));
    }
}
