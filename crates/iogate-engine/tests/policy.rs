//! A policy above the gate of an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use iogate_core::glob::Glob;
use iogate_core::policy::{Branch, Entitlement, OtherBranches, PathClasses, Policy, Rate};
use iogate_core::{AppId, GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, Span, WaitReason};
use iogate_engine::store::{MemoryStore, OpenMode};
use iogate_engine::{ClassBy, Engine, FileHandle, Origin, PathClass, Store, Transfer};

const PIECE: u32 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

fn engine() -> (Arc<Engine>, FileHandle) {
    let store = Arc::new(MemoryStore::new());
    let file = store.open("file".as_ref(), OpenMode { write: true, create: true }).unwrap();
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 1_000, depth: 4, layout: Layout::SINGLE };
    (Engine::new(&gate, store).unwrap(), file)
}

fn at_most(rate: Rate) -> Policy {
    let capped = Entitlement { max: rate, ..Entitlement::default() };
    Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() }
}

/// Submits a write of `PIECE` bytes, which leaves a message when it is done.
fn submit(engine: &Arc<Engine>, file: &FileHandle, app: u32, index: u64, done: &mpsc::Sender<u64>) {
    // SAFETY: a static is valid for ever, and a write does not change it.
    static MEMORY: [u8; PIECE as usize] = [7; PIECE as usize];
    let transfer = Transfer {
        file: FileHandle::clone(file),
        op: Op::Write,
        offset: index * u64::from(PIECE),
        memory: MEMORY.as_ptr().cast_mut(),
        bytes: PIECE,
        origin: Origin { app: AppId(app), ..Origin::default() },
        extends: false,
    };
    let done = done.clone();
    // SAFETY: as above.
    unsafe {
        engine.submit(transfer, Box::new(move |result| done.send(result.map_or(0, |_| index)).unwrap()))
    }
    .unwrap();
}

/// Nothing else happens in the engine: only a wake-up by the clock lets the next request go.
#[test]
fn a_capped_request_goes_when_its_time_has_come_though_nothing_else_happens() {
    let (engine, file) = engine();
    // 25 pieces a second: 40 ms each, and at most one is ahead.
    let rate = Rate { bytes: (25 * u64::from(PIECE)).try_into().ok(), requests: None };
    engine.set_policy(Some((ClassBy::App, &at_most(rate)))).unwrap();
    let (done, ended) = mpsc::channel();
    let began = Instant::now();
    const PIECES: u64 = 12;
    (0..PIECES).for_each(|index| submit(&engine, &file, 1, index, &done));
    for index in 0..PIECES {
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(index), "it was never woken");
    }
    let least = Duration::from_millis(40 * (PIECES - 2));
    assert!(began.elapsed() >= least, "{:?}, expected at least {least:?}", began.elapsed());
    let waits = engine.with_gate(|gate, _| gate.stats().waits[WaitReason::Cap as usize].total);
    assert!(waits > Span::ZERO);
    engine.shutdown();
}

#[test]
fn the_class_of_a_file_is_found_once_for_each_policy() {
    let (engine, _) = engine();
    let by_path = |globs: &[(&str, u32)]| {
        let globs = globs.iter().map(|(text, app)| (Glob::parse(text).unwrap(), AppId(*app))).collect();
        let policy = Policy { paths: PathClasses { globs, elsewhere: AppId(9) }, ..Policy::default() };
        engine.set_policy(Some((ClassBy::Path, &policy))).unwrap();
    };
    let file = PathClass::default();
    let class = |at: &str| engine.class_by_path(&file, || Some(at.into()));
    by_path(&[("a/**", 1), ("b/**", 2)]);
    assert_eq!((engine.class_by(), class("a/file")), (ClassBy::Path, AppId(1)));
    assert_eq!(class("b/file"), AppId(1), "a rename changes nothing");
    assert_eq!(engine.class_by_path(&PathClass::default(), || None), AppId(9));
    by_path(&[("**/file", 3)]);
    assert_eq!(class("b/file"), AppId(3), "what was found under one policy says nothing of the next");
    let called = [1, 3, 9, 7].map(|class| engine.paths_called(AppId(class)));
    let expected = [Some("path a/**".into()), Some("path **/file".into()), Some("other paths".into()), None];
    assert_eq!(called, expected, "statistics still have those of policies before");
    engine.shutdown();
}

#[test]
fn who_is_placed_under_one_policy_is_placed_anew_under_the_next() {
    let (engine, file) = engine();
    let (user, group, other) = (AppId(1), AppId(1_000_001), AppId(1_000_002));
    assert_eq!(engine.placed(user, group), user, "without a policy nobody is placed");
    let capped =
        Entitlement { max: Rate { bytes: 1.try_into().ok(), requests: None }, ..Entitlement::default() };
    let branch = Branch { entitlement: capped, ..Branch::default() };
    let named = Policy { branches: [(group, branch)].into(), ..Policy::default() };
    let each = OtherBranches { rest: AppId(1_000_003), ..OtherBranches::default() };
    let each = Policy { other_branches: Some(each), ..Policy::default() };
    let within = || {
        let now = engine.with_gate(|gate, now| gate.apps_now(now));
        now.iter().find(|one| one.app == user.0).and_then(|one| one.within)
    };
    let (done, ended) = mpsc::channel();
    engine.set_policy(Some((ClassBy::User, &each))).unwrap();
    submit(&engine, &file, user.0, 0, &done);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(0));
    assert_eq!((engine.placed(user, other), within()), (user, Some(other.0)));
    assert_eq!((engine.placed(user, group), within()), (user, Some(other.0)), "the first answer counts");
    // Three wait for the cap of the group that he is in now, and go when he is in none.
    engine.set_policy(Some((ClassBy::User, &named))).unwrap();
    assert_eq!((engine.placed(user, group), within()), (user, Some(group.0)));
    (1..5).for_each(|index| submit(&engine, &file, user.0, index, &done));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    engine.set_policy(Some((ClassBy::User, &each))).unwrap();
    let mut rest: Vec<u64> = (0..3).map(|_| ended.recv_timeout(PATIENCE).unwrap()).collect();
    rest.sort_unstable();
    assert_eq!(rest, [2, 3, 4], "nothing is lost");
    engine.shutdown();
}

/// A flat policy divides nothing among groups, but is told of them: what waits goes to its group when one comes that does.
#[test]
fn what_waits_below_a_flat_policy_is_in_its_group_when_groups_come() {
    let (engine, file) = engine();
    let (user, group) = (AppId(1), AppId(1_000_001));
    let rate = Rate { bytes: 1.try_into().ok(), requests: None };
    engine.set_policy(Some((ClassBy::User, &at_most(rate)))).unwrap();
    assert_eq!(engine.placed(user, group), user);
    let (done, ended) = mpsc::channel();
    (0..4).for_each(|index| submit(&engine, &file, user.0, index, &done));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(0));
    let capped = Entitlement { max: rate, ..Entitlement::default() };
    let branch = Branch { entitlement: capped, ..Branch::default() };
    let groups = Policy { branches: [(group, branch)].into(), ..Policy::default() };
    engine.set_policy(Some((ClassBy::User, &groups))).unwrap();
    let now = engine.with_gate(|gate, now| gate.apps_now(now));
    assert_eq!(now.iter().find(|one| one.app == user.0).and_then(|one| one.within), Some(group.0));
    // One is within the cap of the group; the others wait for it, until it is gone.
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    engine.set_policy(None).unwrap();
    let mut rest: Vec<u64> = (0..2).map(|_| ended.recv_timeout(PATIENCE).unwrap()).collect();
    rest.sort_unstable();
    assert_eq!(rest, [2, 3], "nothing is lost");
    engine.shutdown();
}

#[test]
fn others_go_on_beside_a_capped_one_and_a_policy_that_goes_lets_it_go() {
    let (engine, file) = engine();
    // One request in about a year, behind the first.
    let rate = Rate { bytes: 1.try_into().ok(), requests: None };
    engine.set_policy(Some((ClassBy::User, &at_most(rate)))).unwrap();
    assert_eq!(engine.class_by(), ClassBy::User);
    let (done, ended) = mpsc::channel();
    (0..4).for_each(|index| submit(&engine, &file, 1, index, &done));
    (4..8).for_each(|index| submit(&engine, &file, 2, index, &done));
    let mut first: Vec<u64> = (0..5).map(|_| ended.recv_timeout(PATIENCE).unwrap()).collect();
    first.sort_unstable();
    assert_eq!(first, [0, 4, 5, 6, 7]);
    let now = engine.with_gate(|gate, now| gate.apps_now(now));
    let of = |app| now.iter().find(|now| now.app == app).unwrap();
    assert_eq!((of(1).deferred, of(1).weight, of(1).max), (3, Some(1), Some(1)));
    assert_eq!((of(2).deferred, of(2).max), (0, None));
    // What cannot be is refused, and changes nothing.
    let wrong = Policy { lot: Some(Span::ZERO), ..Policy::default() };
    assert!(engine.set_policy(Some((ClassBy::Job, &wrong))).is_err());
    assert_eq!(engine.class_by(), ClassBy::User);
    assert!(ended.try_recv().is_err());
    engine.set_policy(None).unwrap();
    assert_eq!(engine.class_by(), ClassBy::App);
    let rest: Vec<u64> = (0..3).map(|_| ended.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(rest.len(), 3);
    engine.shutdown();
}

/// An engine that ends does not keep what is deferred.
#[test]
fn what_is_deferred_is_done_before_the_end() {
    let (engine, file) = engine();
    let rate = Rate { bytes: None, requests: 1.try_into().ok() };
    engine.set_policy(Some((ClassBy::App, &at_most(rate)))).unwrap();
    let (done, ended) = mpsc::channel();
    (0..100).for_each(|index| submit(&engine, &file, 1, index, &done));
    engine.shutdown();
    assert_eq!(ended.try_iter().count(), 100);
}

#[test]
fn a_policy_changes_under_load_and_nothing_is_lost() {
    let (engine, file) = engine();
    let over = AtomicUsize::new(0);
    let fast = Rate { bytes: (1 << 34).try_into().ok(), requests: None };
    thread::scope(|scope| {
        for app in 1..4 {
            let (engine, file, over) = (&engine, &file, &over);
            scope.spawn(move || {
                let origin = Origin { app: AppId(app), ..Origin::default() };
                for index in 0..2_000u64 {
                    let offset = (u64::from(app) << 20) + index % 7 * 512;
                    assert_eq!(engine.write_at(file, origin, offset, &[app as u8; 512]).unwrap(), 512);
                }
                over.fetch_add(1, Ordering::SeqCst);
            });
        }
        let began = Instant::now();
        for round in 0.. {
            if over.load(Ordering::SeqCst) == 3 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "the writers are not done");
            let policy = at_most(fast);
            let policy = [None, Some((ClassBy::App, &policy))][round % 2];
            engine.set_policy(policy).unwrap();
        }
    });
    assert!(engine.with_gate(|gate, _| gate.is_empty()));
    engine.shutdown();
}
