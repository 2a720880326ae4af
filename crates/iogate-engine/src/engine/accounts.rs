//! Accounts of who slows whom down.

use core::fmt;

use iogate_core::blame::{Accounting, Page};
use iogate_core::stats::summary::Names;

use super::Engine;

/// Whether accounts of who slows whom down are kept. They cost each request some time (docs/performance-gate.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounts {
    /// No.
    #[default]
    Off,
    /// Of samples.
    Sampled,
    /// Of all the time.
    On,
}

impl Accounts {
    /// All of them.
    pub const ALL: [Accounts; 3] = [Accounts::Sampled, Accounts::On, Accounts::Off];

    /// Its name, in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Accounts::Off => "off",
            Accounts::Sampled => "sampled",
            Accounts::On => "on",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Accounts> {
        Accounts::ALL.into_iter().find(|accounts| accounts.name() == name)
    }

    const fn accounting(self) -> Option<Accounting> {
        match self {
            Accounts::Off => None,
            Accounts::Sampled => Some(Accounting::Sampled),
            Accounts::On => Some(Accounting::Exact),
        }
    }
}

impl fmt::Display for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Engine {
    /// Says whether accounts of who slows whom down are kept. Those that are kept like this already go on; others begin now.
    pub fn keep_accounts(&self, accounts: Accounts) {
        let now = self.shared.clock.now();
        let gate = &mut self.shared.lock().gate;
        let kept = accounts.accounting();
        if gate.accounting() != kept {
            let prices = *gate.prices();
            gate.set_accounting(now, kept.map(|how| (how, &prices)));
        }
    }

    /// Some of the accounts so far, with the names of applications: those from number `from` on. None, if none are kept.
    pub fn accounts(&self, from: u32, names: &dyn Names) -> Option<Page> {
        let now = self.shared.clock.now();
        let mut page = self.shared.lock().gate.accounts_page(now, from)?;
        let apps = page.accounts.iter().filter_map(|account| account.app);
        page.names = apps.map(|app| (app, short(names.app(app)))).collect();
        Some(page)
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
