//! Accounts of who slows whom down, of an engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::stats::summary::Numbers;
use iogate_core::{AppId, GateConfig, Layout, SchedulerConfig, SchedulerKind, Span};
use iogate_engine::store::{MemoryStore, OpenMode};
use iogate_engine::{Accounts, Engine, Origin, Store};

#[test]
fn accounts_are_kept_from_when_that_is_said_until_it_is_not() {
    let store = Arc::new(MemoryStore::new());
    let file = store.open("file".as_ref(), OpenMode { write: true, create: true }).unwrap();
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 1_000, depth: 1, layout: Layout::SINGLE };
    let engine = Engine::new(&gate, store).unwrap();
    let write = |app: u32| {
        let origin = Origin { app: AppId(app), ..Origin::default() };
        engine.write_at(&file, origin, u64::from(app) << 20, &[7; 4096]).unwrap();
    };
    write(1);
    assert_eq!(engine.accounts(0, &Numbers), None);
    engine.keep_accounts(Accounts::On);
    write(2);
    let first = engine.accounts(0, &Numbers).unwrap();
    let apps = |page: &iogate_core::blame::Page| -> Vec<u32> {
        page.accounts.iter().map(|account| account.app.unwrap().0).collect()
    };
    assert_eq!(apps(&first), [2], "1 was before: {first:?}");
    assert_eq!(first.names, [(AppId(2), "2".to_owned())]);
    // Asked for again, they go on.
    engine.keep_accounts(Accounts::On);
    std::thread::scope(|scope| {
        for app in 3..7 {
            let write = &write;
            scope.spawn(move || (0..50).for_each(|_| write(app)));
        }
    });
    let page = engine.accounts(0, &Numbers).unwrap();
    assert_eq!(page.began, first.began);
    let mut all = apps(&page);
    all.sort_unstable();
    assert_eq!(all, [2, 3, 4, 5, 6]);
    for account in &page.accounts {
        let causes = account.causes.iter().fold(Span::ZERO, |sum, span| sum + *span);
        assert_eq!(causes, account.busy);
        assert!(account.busy <= page.at.since(page.began));
    }
    engine.keep_accounts(Accounts::Off);
    assert_eq!(engine.accounts(0, &Numbers), None);
    // Of samples they are kept likewise; who was there between them only is known all the same.
    engine.keep_accounts(Accounts::Sampled);
    let begun = engine.accounts(0, &Numbers).unwrap();
    assert_eq!((begun.accounts.len(), begun.sampled.map(|sampled| sampled.samples)), (0, Some(0)));
    let end = Instant::now() + Duration::from_secs(60);
    let page = loop {
        write(2);
        let page = engine.accounts(0, &Numbers).unwrap();
        if page.sampled.is_some_and(|sampled| sampled.samples >= 3) || Instant::now() > end {
            break page;
        }
    };
    assert_eq!((apps(&page), page.began), (vec![2], begun.began));
    let sampled = page.sampled.unwrap();
    assert!(sampled.samples >= 3 && sampled.sampled < sampled.occupied, "{sampled:?}");
    assert!(
        page.accounts[0].busy == sampled.sampled && page.accounts[0].dispatches > sampled.samples,
        "{page:?}"
    );
    engine.keep_accounts(Accounts::On);
    let exact = engine.accounts(0, &Numbers).unwrap();
    assert!(exact.sampled.is_none() && exact.accounts.is_empty() && exact.began > page.began);
}
