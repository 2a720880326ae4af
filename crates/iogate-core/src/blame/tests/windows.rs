//! What windows of time say, against all the time.

use alloc::vec;

use super::*;

/// One request of an application, alone in the gate for so long.
fn alone(both: &mut Both, app: u32, ns: u64) {
    let slot = both.arrive(app, Place::Queued, 1);
    both.begin(&[slot], 0, 0);
    both.pass(ns);
    both.end(both.dispatches - 1);
}

fn of(accounts: &[Account], app: Option<u32>) -> Option<&Account> {
    accounts.iter().find(|account| account.app == app.map(AppId))
}

fn charged(account: &Account, app: Option<u32>) -> u64 {
    let found = account.apps.iter().find(|(of, _)| *of == app.map(AppId));
    found.map_or(0, |(_, span)| span.as_nanos())
}

/// The application waits, while another one is in service.
fn waits_for(both: &mut Both, app: u32, other: u32, ns: u64) {
    both.blame.stands(both.now, Standing::Full);
    both.naive.standing = Some(Standing::Full);
    let theirs = both.arrive(other, Place::Queued, 1);
    both.begin(&[theirs], 0, 0);
    let slot = both.arrive(app, Place::Queued, 1);
    both.pass(ns);
    both.end(both.dispatches - 1);
    both.begin(&[slot], 0, 0);
    both.end(both.dispatches - 1);
}

#[test]
fn who_has_gone_is_charged_nothing_in_a_window_after_that() {
    let mut both = Both::new(Prices::default());
    alone(&mut both, 1, 10);
    waits_for(&mut both, 1, 2, 1_000);
    let before = both.blame.accounts(both.now);
    assert_eq!(charged(of(&before, Some(1)).unwrap(), Some(2)), 1_000);
    alone(&mut both, 1, 70);
    let now = window(&before, &both.blame.accounts(both.now));
    assert_eq!(now.len(), 1, "2 had nothing in the gate: {now:?}");
    assert_eq!((now[0].busy.as_nanos(), charged(&now[0], Some(2)), charged(&now[0], Some(1))), (70, 0, 70));
}

#[test]
fn a_place_that_somebody_else_has_now_is_not_of_the_window() {
    let mut both = Both::new(Prices::default());
    (1..=16).for_each(|app| alone(&mut both, app, 1));
    waits_for(&mut both, 1, 2, 1_000);
    both.pass(COLUMN_KEPT.as_nanos());
    // 1 and 3 to 16 are not away.
    [1].into_iter().chain(3..=16).for_each(|app| alone(&mut both, app, 1));
    let before = both.blame.accounts(both.now);
    waits_for(&mut both, 1, 17, 30);
    let after = both.blame.accounts(both.now);
    assert_eq!(charged(of(&after, Some(1)).unwrap(), None), 1_000, "17 has the place of 2");
    let now = window(&before, &after);
    let one = of(&now, Some(1)).unwrap();
    assert_eq!((one.busy.as_nanos(), charged(one, Some(17)), charged(one, None)), (30, 30, 0), "{one:?}");
}

#[test]
fn an_account_that_was_given_up_is_not_of_the_window() {
    let mut both = Both::new(Prices::default());
    (1..=APPS_MAX as u32).for_each(|app| alone(&mut both, app, 1_000));
    let before = both.blame.accounts(both.now);
    alone(&mut both, 5_000, 3);
    let after = both.blame.accounts(both.now);
    assert_eq!(of(&after, None).unwrap().busy.as_nanos(), 1_000, "1 is one of the others now");
    assert!(of(&after, Some(1)).is_none());
    let now = window(&before, &after);
    assert_eq!(now.len(), 1, "{now:?}");
    assert_eq!((now[0].app, now[0].busy.as_nanos()), (Some(AppId(5_000)), 3));
    // It comes back, with an account that has less than the one that it had.
    alone(&mut both, 1, 4);
    let now = window(&before, &both.blame.accounts(both.now));
    assert_eq!(of(&now, Some(1)).map(|one| one.busy.as_nanos()), Some(4));
}

#[test]
fn pages_have_all_accounts() {
    let mut both = Both::new(Prices::default());
    (1..=100).for_each(|app| alone(&mut both, app, u64::from(app)));
    let (mut accounts, mut from) = (Vec::new(), Some(0));
    while let Some(next) = from {
        let page = both.blame.page(both.now, next);
        assert_eq!((page.at, page.began), (both.now, Time::ZERO));
        assert!(page.accounts.len() <= PAGE_ACCOUNTS as usize);
        accounts.extend(page.accounts);
        from = page.next;
    }
    assert_eq!(accounts, both.blame.accounts(both.now));
    let beyond = both.blame.page(both.now, u32::MAX);
    assert_eq!((beyond.accounts.len(), beyond.next), (0, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Windows that follow each other have all the time; in each of them causes sum to it.
    #[test]
    fn windows_sum_to_all_the_time(
        steps in prop::collection::vec(step(), 1..200),
        apps in prop::sample::select(vec![3u32, 6, 40]),
        every in 1usize..40,
    ) {
        let mut both = Both::new(Prices::default());
        // All that have one get their place first: what is one's own is not known apart from the others' before.
        (1..=apps.min(16)).for_each(|app| alone(&mut both, app, 10));
        let (mut before, mut began) = (both.blame.accounts(both.now), both.now);
        let mut busy: BTreeMap<Option<AppId>, u64> = BTreeMap::new();
        let mut rows: BTreeMap<(Option<AppId>, Option<AppId>), u64> = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            both.step(step, apps);
            if at % every == 0 {
                let after = both.blame.accounts(both.now);
                for account in window(&before, &after) {
                    let sum = |spans: &mut dyn Iterator<Item = Span>| spans.map(|span| span.as_nanos()).sum::<u64>();
                    let span = both.now.since(began).as_nanos();
                    prop_assert!(account.app.is_none() || account.busy.as_nanos() <= span);
                    prop_assert_eq!(sum(&mut account.causes.iter().copied()), account.busy.as_nanos());
                    prop_assert!(sum(&mut account.apps.iter().map(|(_, of)| *of)) <= account.busy.as_nanos());
                    *busy.entry(account.app).or_default() += account.busy.as_nanos();
                    for (of, span) in &account.apps {
                        *rows.entry((account.app, *of)).or_default() += span.as_nanos();
                    }
                }
                (before, began) = (after, both.now);
            }
        }
        for account in &before {
            let first = if account.app.is_some_and(|app| app.0 <= apps.min(16)) { 10 } else { 0 };
            let sum = busy.get(&account.app).copied().unwrap_or(0);
            prop_assert_eq!(sum + first, account.busy.as_nanos());
            // Positioning is estimated until a dispatch ends.
            if apps <= 6 && before.iter().all(|of| of.causes[Cause::Positioning as usize] == Span::ZERO) {
                for (of, span) in &account.apps {
                    let sum = rows.get(&(account.app, *of)).copied().unwrap_or(0);
                    prop_assert!(sum.abs_diff(span.as_nanos()) <= 256, "{:?} by {of:?}: {sum}, {span}", account.app);
                }
            }
        }
    }
}
