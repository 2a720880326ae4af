//! The scheduler of an engine is chosen while it works.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::status::Source;
use iogate_core::auto::{Choice, Storage};
use iogate_core::device::{Device, Placement, Transfer, Unit};
use iogate_core::profile::measure;
use iogate_core::{
    AppId, BurstSize, ClientId, Extent, FileLayout, GateConfig, Layout, SchedulerConfig, SchedulerKind, Span,
    TargetId, Time,
};
use iogate_engine::store::{MemoryStore, ModelledStore, NullStore, OpenMode};
use iogate_engine::{Engine, Origin, Store};

const CREATE: OpenMode = OpenMode { write: true, create: true };
const PIECE: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: they measure, and count threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn engine(store: Arc<dyn Store>, depth: u32, targets: u32) -> Arc<Engine> {
    let layout = Layout { first_target: 0, stripe_bytes: 1 << 20, targets };
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 1_000, depth, layout };
    Engine::new(&gate, store).unwrap()
}

fn in_force(engine: &Engine) -> String {
    engine.with_gate(|gate, _| gate.scheduler().to_string())
}

/// An arm: 3 ms to go elsewhere, and next to nothing to go on.
#[derive(Debug, Default)]
struct Arm {
    end: u64,
}

impl Device for Arm {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        let seek = if transfer.address == self.end { 0 } else { 3_000 };
        self.end = transfer.address + transfer.bytes;
        Span::from_micros(seek + transfer.bytes / 1_000)
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    fn capacity(&self) -> u64 {
        1 << 40
    }

    fn repositions(&self) -> u64 {
        0
    }
}

/// Two applications of `THREADS` clients each read a file of their own, every client its stride, until `over` says so of the choice.
fn read_strided(engine: &Arc<Engine>, store: &dyn Store, over: impl Fn(&Choice) -> bool) -> Choice {
    const THREADS: u64 = 4;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for app in 0..2 {
            for client in 0..THREADS {
                let (engine, stop) = (engine, &stop);
                let file = store.open(format!("{app}").as_ref(), CREATE).unwrap();
                scope.spawn(move || {
                    let number = app * THREADS + client + 1;
                    let origin = Origin {
                        app: AppId(app as u32 + 1),
                        client: ClientId(number as u32),
                        ..Origin::default()
                    };
                    let mut memory = vec![0; PIECE as usize];
                    for round in 0.. {
                        if stop.load(Ordering::SeqCst) {
                            break;
                        }
                        let offset = (round * THREADS + client) * PIECE;
                        engine.read_at(&file, origin, offset, &mut memory).unwrap();
                    }
                });
            }
        }
        let began = Instant::now();
        let choice = loop {
            let choice = engine.choice().unwrap();
            if over(&choice) || began.elapsed() > PATIENCE {
                break choice;
            }
            thread::sleep(Duration::from_millis(20));
        };
        stop.store(true, Ordering::SeqCst);
        choice
    })
}

#[test]
fn two_strided_readers_of_a_disk_leave_fifo() {
    let _alone = alone();
    let store =
        ModelledStore::new(Arc::new(NullStore::new()), Box::new(Arm::default()), Placement::new(1 << 30));
    let store: Arc<dyn Store> = Arc::new(store.unwrap());
    let engine = engine(store.clone(), 4, 1);
    let profile = measure(Box::new(Arm::default()), 1).finish("arm", true, None);
    engine.know(Storage::modelled(profile, Arc::new(|| Box::new(Arm::default()) as Box<dyn Device>)));
    assert!(engine.with_gate(|gate, _| gate.prices().saving[0][0] > Span::from_millis(1)), "prices are told");
    engine.choose(REQUESTS_PER_S).unwrap();
    let choice =
        read_strided(&engine, &*store, |choice| choice.switches > 0 && !choice.considered.is_empty());
    assert!(choice.switches > 0, "{choice:?}");
    // By what others gained at first, or by what is simulated.
    let reasons = ["predicted", "in situations like this one"];
    let first = choice.changes.first().map_or("", |change| &change.why);
    assert!(first.starts_with("fifo -> ") && reasons.iter().any(|of| first.contains(of)), "{choice:?}");
    assert!(choice.considered.len() > 2, "{choice:?}");
    assert_ne!(in_force(&engine), "fifo");
}

/// Two applications have the same bursts again and again, a pause between them: from the third one on it is known when each ends.
#[test]
fn the_ends_of_bursts_that_come_again_are_expected() {
    let _alone = alone();
    let unit = || Box::new(Unit::new(Span::from_millis(1))) as Box<dyn Device>;
    let store = ModelledStore::new(Arc::new(NullStore::new()), unit(), Placement::new(1 << 30)).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let engine = engine(store.clone(), 1, 1);
    engine.know(Storage::modelled(measure(unit(), 1).finish("unit", false, None), Arc::new(unit)));
    engine.choose(REQUESTS_PER_S).unwrap();
    let burst = || {
        thread::scope(|scope| {
            // One has three times as many requests as the other.
            for client in 0..8 {
                let (engine, store) = (&engine, &store);
                scope.spawn(move || {
                    let (app, count) = if client < 4 { (1, 300) } else { (2, 100) };
                    let file = store.open(format!("{app}").as_ref(), CREATE).unwrap();
                    let origin =
                        Origin { app: AppId(app), client: ClientId(client + 1), ..Origin::default() };
                    let mut memory = [0; 4_096];
                    for round in 0..count {
                        engine.read_at(&file, origin, round * 4_096, &mut memory).unwrap();
                    }
                });
            }
            let began = Instant::now();
            let mut most = 0;
            while began.elapsed() < Duration::from_millis(1_500) {
                most = most.max(engine.choice().unwrap().ends);
                thread::sleep(Duration::from_millis(20));
            }
            most
        })
    };
    // A busy machine may make one burst of two, or two of one.
    let seen: Vec<u64> = (0..12)
        .map(|_| {
            let ends = burst();
            thread::sleep(Duration::from_millis(1_300));
            ends
        })
        .take_while(|ends| *ends == 0)
        .collect();
    assert!((2..12).contains(&seen.len()), "{seen:?}");
}

/// Two applications say how much they move: their ends are expected in the first burst, by what they say.
#[test]
fn the_ends_of_those_who_say_how_much_they_move_are_expected_at_once() {
    let _alone = alone();
    let unit = || Box::new(Unit::new(Span::from_millis(1))) as Box<dyn Device>;
    let store = ModelledStore::new(Arc::new(NullStore::new()), unit(), Placement::new(1 << 30)).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let engine = engine(store.clone(), 1, 1);
    engine.know(Storage::modelled(measure(unit(), 1).finish("unit", false, None), Arc::new(unit)));
    engine.choose(REQUESTS_PER_S).unwrap();
    let stop = AtomicBool::new(false);
    let choice = thread::scope(|scope| {
        for client in 0..8 {
            let (engine, store, stop) = (&engine, &store, &stop);
            scope.spawn(move || {
                let app = 1 + client % 2;
                let file = store.open(format!("{app}").as_ref(), CREATE).unwrap();
                // Processes of one application say different things: the most counts.
                let burst = BurstSize::of(u64::from(client) << 30);
                let origin =
                    Origin { app: AppId(app), client: ClientId(client + 1), burst, ..Origin::default() };
                let mut memory = [0; 4_096];
                for round in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    engine.read_at(&file, origin, round * 4_096, &mut memory).unwrap();
                }
            });
        }
        let began = Instant::now();
        let choice = loop {
            let choice = engine.choice().unwrap();
            if choice.ends == 2 || began.elapsed() > PATIENCE {
                break choice;
            }
            thread::sleep(Duration::from_millis(5));
        };
        stop.store(true, Ordering::SeqCst);
        choice
    });
    assert_eq!(choice.ends, 2, "{choice:?}");
    let said: Vec<_> = choice.expected.iter().map(|end| (end.app, end.bytes, end.from)).collect();
    assert_eq!(said.len(), 2, "{choice:?}");
    for end in [(AppId(1), 6 << 30, Source::Said), (AppId(2), 7 << 30, Source::Said)] {
        assert!(said.contains(&end), "{choice:?}");
    }
}

#[test]
fn random_reads_of_memory_stay_with_fifo() {
    let _alone = alone();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), 32, 1);
    engine.choose(REQUESTS_PER_S).unwrap();
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let mut memory = [0; 4_096];
    let (mut place, began) = (1_u64, Instant::now());
    let choice = loop {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (place >> 40) * 4_096;
        engine.read_at(&file, Origin::default(), offset, &mut memory).unwrap();
        let choice = engine.choice().unwrap();
        if choice.windows >= 3 || choice.held.is_some() || began.elapsed() > PATIENCE {
            break choice;
        }
    };
    // A machine that is busy with other things may vary too much for any prediction, which is an answer, too.
    assert!(choice.windows >= 3 || choice.held.is_some(), "{choice:?}");
    assert_eq!((choice.switches, in_force(&engine).as_str()), (0, "fifo"), "{choice:?}");
}

/// How often the threads that choose have gone to sleep so far, of as many as there are.
fn sleeps() -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let chooses = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "iogate-auto")
    };
    let count = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        let line = text.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    tasks.filter(chooses).filter_map(count).collect()
}

#[test]
fn nothing_wakes_what_chooses_while_nothing_comes() {
    let _alone = alone();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), 4, 1);
    engine.choose(REQUESTS_PER_S).unwrap();
    // A window begins, and is never ripe.
    let file = store.open("file".as_ref(), CREATE).unwrap();
    engine.read_at(&file, Origin::default(), 0, &mut [0; 512]).unwrap();
    // It sleeps now and then before it waits: for a lock, for memory. What polls never sleeps once in so long a time.
    let began = Instant::now();
    let is_quiet = || {
        let before = sleeps();
        thread::sleep(Duration::from_millis(600));
        before.len() == 1 && before[0] > 0 && sleeps() == before
    };
    while !is_quiet() {
        assert!(began.elapsed() < PATIENCE, "{:?}", sleeps());
    }
    engine.set("scheduler=fifo", 0).unwrap();
    drop(engine);
    // The kernel shows a thread for a moment after it has been joined.
    let began = Instant::now();
    while !sleeps().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:?}", sleeps());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn pinning_and_choosing_under_load_loses_nothing() {
    let _alone = alone();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = engine(store.clone(), 4, 1);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in 0..4_u64 {
            let (engine, store, stop, rounds) = (&engine, &store, &stop, &rounds);
            scope.spawn(move || {
                let file = store.open(format!("{}", client % 2).as_ref(), CREATE).unwrap();
                let origin = Origin { app: AppId(client as u32), ..Origin::default() };
                let mut round = 0;
                while !stop.load(Ordering::SeqCst) {
                    let offset = (round % 500 * 4 + client) * 700;
                    let bytes = vec![(round * 4 + client) as u8; 700];
                    assert_eq!(engine.write_at(&file, origin, offset, &bytes).unwrap(), 700);
                    let mut back = vec![0; 700];
                    assert_eq!(engine.read_at(&file, origin, offset, &mut back).unwrap(), 700);
                    assert!(back == bytes, "client {client}, round {round}");
                    round += 1;
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let began = Instant::now();
        let wait = |over: &dyn Fn() -> bool| {
            while !over() && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(1));
            }
        };
        for turn in 0..40 {
            let settings =
                ["scheduler=auto", "scheduler=aioli", "scheduler=auto", "scheduler=sjf age_max=1s"][turn % 4];
            engine.set(settings, 0).unwrap();
            assert_eq!(engine.choice().is_some(), settings == "scheduler=auto");
            let until = rounds.load(Ordering::SeqCst) + 300;
            wait(&|| rounds.load(Ordering::SeqCst) >= until);
            if turn == 20 {
                // What has begun to think is pinned, too.
                wait(&|| engine.choice().is_some_and(|choice| choice.windows > 0 || choice.held.is_some()));
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(engine.with_gate(|gate, _| gate.is_empty()));
    engine.set("scheduler=auto", 0).unwrap();
    engine.shutdown();
    assert_eq!(engine.choice(), None);
}

#[test]
fn without_a_budget_nothing_is_simulated_and_nothing_changes() {
    let _alone = alone();
    let store =
        ModelledStore::new(Arc::new(NullStore::new()), Box::new(Arm::default()), Placement::new(1 << 30));
    let store: Arc<dyn Store> = Arc::new(store.unwrap());
    let engine = engine(store.clone(), 4, 1);
    let profile = measure(Box::new(Arm::default()), 1).finish("arm", true, None);
    engine.know(Storage::modelled(profile, Arc::new(|| Box::new(Arm::default()) as Box<dyn Device>)));
    engine.choose(0).unwrap();
    let choice = read_strided(&engine, &*store, |choice| choice.windows >= 2);
    assert_eq!((choice.windows >= 2, choice.switches, choice.simulated), (true, 0, 0), "{choice:?}");
}

#[test]
fn several_targets_keep_what_is_there_and_say_so() {
    let _alone = alone();
    let two = engine(Arc::new(NullStore::new()), 4, 2);
    two.set("scheduler=auto", 0).unwrap();
    let choice = two.choice().unwrap();
    assert!(choice.held.unwrap().contains("several targets"));
    assert_eq!((choice.scheduler.as_str(), sleeps().len()), ("fifo", 0));

    // So does a file with several, when it comes.
    let store = NullStore::new();
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let one = engine(Arc::new(store), 4, 1);
    one.set("scheduler=auto", 0).unwrap();
    assert_eq!(one.choice().unwrap().held, None);
    let targets = [TargetId(0), TargetId(1)].into();
    let extent = Extent { start: 0, end: u64::MAX, stripe_bytes: 1 << 20, targets };
    one.set_layout(file.id(), Some(Arc::new(FileLayout::new(vec![extent]).unwrap())));
    assert!(one.choice().unwrap().held.is_some());
    one.set("scheduler=aioli", 0).unwrap();
    assert_eq!((one.choice(), in_force(&one).as_str()), (None, "aioli"));
}

#[test]
fn parameters_beside_auto_are_refused() {
    let engine = engine(Arc::new(NullStore::new()), 4, 1);
    let error = engine.set("scheduler=auto,age_max=1s", 0).unwrap_err();
    assert_eq!(
        error,
        "'age_max=1s' and scheduler=auto: what chooses a scheduler chooses its parameters, too"
    );
    assert_eq!(engine.choice(), None);
    assert!(engine.set("scheduler=autos", 0).is_err());
}
