//! What accounts say of a window of time: the difference of two looks at them.
//!
//! Between two looks an application may have given its account up to the others, and one that slows others down its place among those
//! that are told apart: what was charged before goes over to the others then, and is not of the window.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Account, Cause};
use crate::request::AppId;
use crate::time::Span;

/// What each application waited for between two looks at the accounts of one gate, in the order of the later one. Those that had nothing
/// in the gate meanwhile are left out; those of whom no sample knows have no time. As in an [`Account`], causes sum to the time, and so
/// does the time by application but for what is nobody's.
pub fn window(before: &[Account], after: &[Account]) -> Vec<Account> {
    let of = |accounts: &[Account], app: Option<AppId>| accounts.iter().find(|of| of.app == app).cloned();
    let goes_on = |before: &Account| {
        let is_more = |after: &Account| after.busy >= before.busy && after.dispatches >= before.dispatches;
        after.iter().any(|after| after.app == before.app && is_more(after))
    };
    // Who has given its account up is part of the others, with all that it had before.
    let given_up = before.iter().filter(|of| of.app.is_some() && !goes_on(of));
    let given_up = given_up.map(|of| Account { app: None, ..of.clone() });
    let others = Account::together(of(before, None).into_iter().chain(given_up)).pop();
    let since = |after: &Account| match after.app {
        None => others.as_ref().map_or_else(|| after.clone(), |before| after.since(before)),
        Some(_) => {
            let before = of(before, after.app).filter(goes_on);
            before.map_or_else(|| after.clone(), |before| after.since(&before))
        }
    };
    let is_there = |account: &Account| account.busy > Span::ZERO || account.dispatches > 0;
    after.iter().map(since).filter(is_there).collect()
}

impl Account {
    /// What has come since an earlier look.
    fn since(&self, before: &Account) -> Account {
        let busy = self.busy - before.busy;
        let mut left = busy;
        let mut take = |span: Span| {
            let part = span.min(left);
            left = left - part;
            part
        };
        let mut causes = [Span::ZERO; Cause::ALL.len()];
        for cause in &Cause::ALL[..Cause::Own as usize] {
            let at = *cause as usize;
            causes[at] = take(self.causes[at] - before.causes[at]);
        }
        causes[Cause::Own as usize] = left;

        let was: BTreeMap<_, _> = before.apps.iter().copied().collect();
        let mut apps: BTreeMap<_, _> = self.apps.iter().copied().collect();
        let is_less =
            |(app, was): &(&Option<AppId>, &Span)| app.is_some() && apps.get(app).is_none_or(|now| now < was);
        // Whose place somebody else has now: all that was charged to it is the others'.
        let moved: Span = was.iter().filter(is_less).fold(Span::ZERO, |sum, (_, was)| sum + *was);
        for (app, now) in &mut apps {
            let was = was.get(app).copied().unwrap_or_default();
            *now = match app {
                None => *now - (was + moved),
                Some(_) if *now < was => *now,
                Some(_) => *now - was,
            };
        }
        let mut apps: Vec<_> = apps.into_iter().filter(|(_, span)| *span > Span::ZERO).collect();
        apps.sort_by_key(|(app, span)| (core::cmp::Reverse(*span), *app));
        let mut left = busy;
        for (_, span) in &mut apps {
            *span = (*span).min(left);
            left = left - *span;
        }
        apps.retain(|(_, span)| *span > Span::ZERO);
        let dispatches = self.dispatches.saturating_sub(before.dispatches);
        Account { app: self.app, busy, dispatches, causes, apps }
    }
}
