//! Turns at the I/O: a coordinator, probing, backing off.

use iogate_core::coord::CoordConfig;
use iogate_core::coord::backoff::BackoffConfig;
use iogate_core::{Op, Span, Time};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Barrier, Coordination, Fault, FaultKind, Scenario};

use super::common::{app, scenario};
use super::observe::{run, watch};

const PIECE: u32 = 65_536;

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

/// So many applications on a node each: a second of computing, then 100 pieces of a millisecond each, twice.
fn writers(count: u32, coordination: Coordination) -> Scenario {
    let mut s = scenario(1, "unit:1000", "fifo");
    s.cluster.clients.nodes = count;
    s.network.latency = Span::from_micros(50);
    for id in 1..=count {
        let mut app = app(id, 4, 25 * u64::from(PIECE), PIECE);
        app.first_node = id - 1;
        app.workload.op = Op::Write;
        app.workload.iterations = 2;
        app.workload.compute = Distribution::Constant(Span::from_secs(1));
        app.workload.barrier = Barrier::Phase;
        s.apps.push(app);
    }
    s.coordination = coordination;
    s
}

fn lock() -> Coordination {
    Coordination { lock: Some(CoordConfig::default()), backoff: None }
}

/// Three probes of a piece each, 20 ms apart.
fn backoff() -> Coordination {
    let config = BackoffConfig {
        probe_bytes: PIECE.into(),
        prime_bytes: 4_096,
        pause: ms(20),
        sleep_unit: ms(50),
        sleep_fixed: ms(10),
        ..BackoffConfig::default()
    };
    Coordination { lock: None, backoff: Some(config) }
}

/// The I/O phases of all applications, in order of time.
fn phases(s: &Scenario) -> Vec<(Time, Time)> {
    let result = run(s);
    let mut phases: Vec<_> =
        result.apps.iter().flat_map(|app| &app.phases).map(|phase| (phase.start, phase.end)).collect();
    phases.sort_unstable();
    phases
}

#[test]
fn a_free_turn_costs_a_way_there_and_back() {
    let result = run(&writers(1, lock()));
    for phase in &result.apps[0].phases {
        assert_eq!(phase.start.since(phase.asked), Span::from_micros(100), "{phase:?}");
    }
    assert_eq!(result.apps[0].turns.waited, Span::from_micros(200));
}

#[test]
fn who_takes_turns_is_alone() {
    let overlaps = |s: &Scenario| phases(s).windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
    assert!(overlaps(&writers(3, Coordination::default())) > 0);
    assert_eq!(overlaps(&writers(3, lock())), 0);
    let both = Coordination { backoff: backoff().backoff, ..lock() };
    assert_eq!(overlaps(&writers(3, both)), 0);
}

#[test]
fn all_that_was_to_be_written_is_written_in_turns_and_probes_do_not_count() {
    for coordination in [lock(), backoff()] {
        let result = run(&writers(3, coordination));
        for app in &result.apps {
            assert_eq!((app.calls, app.bytes), (200, 200 * u64::from(PIECE)));
            assert!(app.phases.iter().all(|phase| phase.bytes == 100 * u64::from(PIECE)));
        }
    }
}

#[test]
fn slots_let_as_many_in_at_once() {
    let at_once = |slots| {
        let rules = CoordConfig { slots, ..CoordConfig::default() };
        let phases = phases(&writers(4, Coordination { lock: Some(rules), backoff: None }));
        let others = |at: Time| phases.iter().filter(|(start, end)| *start <= at && at < *end).count();
        phases.iter().map(|(start, _)| others(*start)).max()
    };
    assert_eq!([1, 2, 4].map(at_once), [Some(1), Some(2), Some(4)]);
}

#[test]
fn quiet_storage_is_probed_once_and_found_quiet() {
    let (result, seen) = watch(&writers(1, backoff()));
    let turns = &result.apps[0].turns;
    assert_eq!((turns.attempts.len(), turns.probes), (2, 6), "an attempt before each phase");
    assert_eq!(turns.probe_bytes, 6 * (u64::from(PIECE) + 4_096));
    // 6 to prime, 6 to time, and the pieces.
    assert_eq!(seen.served.len(), 12 + 200);
    for phase in &result.apps[0].phases {
        // Two pauses, and six writes of a millisecond and a way there and back.
        assert_eq!(phase.start.since(phase.asked), ms(2 * 20) + Span::from_micros(6 * 1_100), "{phase:?}");
    }
}

#[test]
fn who_finds_the_storage_busy_backs_off() {
    let result = run(&writers(3, backoff()));
    let attempts: usize = result.apps.iter().map(|app| app.turns.attempts.len()).sum();
    assert!(attempts > 6, "{attempts} attempts");
    let quickest = |app: &iogate_sim::result::AppResult| {
        app.turns.attempts.iter().map(|attempt| attempt.slowest).max().unwrap_or(0)
    };
    // A piece in 1.1 ms.
    assert!(result.apps.iter().all(|app| quickest(app) > 59_000_000), "{result:?}");
}

#[test]
fn storage_that_is_never_quiet_is_used_after_so_many_attempts() {
    let mut coordination = backoff();
    if let Some(config) = &mut coordination.backoff {
        (config.quiet, config.attempts_max) = (u64::MAX / 2, 5);
    }
    let turns = run(&writers(1, coordination)).apps.remove(0).turns;
    // The first slow probe of an attempt settles it.
    assert_eq!((turns.attempts.len(), turns.probes), (10, 10));
}

#[test]
fn the_turn_of_a_holder_that_dies_ends_with_its_lease() {
    let mut s = writers(2, lock());
    let rules = CoordConfig { lease: Span::from_secs(3), ..CoordConfig::default() };
    s.coordination.lock = Some(rules);
    s.faults = vec![Fault { from: ms(1_050), until: None, kind: FaultKind::LostClient { node: 0 } }];
    let result = run(&s);
    let [dead, other] = &result.apps[..] else { panic!("two applications") };
    assert!(dead.lost && dead.turns.lost == 1, "{dead:?}");
    assert!(!other.lost && other.turns.lost == 0 && other.phases.len() == 2);
    // It had its turn at 1 s, and never renewed it.
    let waited = other.phases[0].start.since(Time::ZERO);
    assert!(waited >= ms(4_000) && waited < ms(4_010), "{waited:?}");
}

#[test]
fn a_long_turn_is_renewed() {
    let mut s = writers(2, lock());
    s.coordination.lock = Some(CoordConfig { lease: ms(30), ..CoordConfig::default() });
    let result = run(&s);
    assert!(result.apps.iter().all(|app| app.turns.lost == 0 && app.phases.len() == 2), "{result:?}");
}

/// Two applications that begin together, and two long after them: how these back off does not hang on whether the others are there.
#[test]
fn without_another_application_its_sleeps_are_the_same() {
    let mut s = writers(4, backoff());
    for app in &mut s.apps[2..] {
        app.start = Span::from_secs(1_000);
    }
    let with = run(&s).apps;
    assert!(with[2..].iter().any(|app| app.turns.attempts.len() > 2), "they get in each other's way");
    s.apps.drain(..2);
    let without = run(&s).apps;
    assert_eq!(
        format!("{:?}", with[2..].iter().map(|app| (&app.turns, &app.phases)).collect::<Vec<_>>()),
        format!("{:?}", without.iter().map(|app| (&app.turns, &app.phases)).collect::<Vec<_>>())
    );
}

#[test]
fn the_seed_decides() {
    let text = |seed| {
        format!(
            "{:?}",
            iogate_sim::world::simulate(&writers(4, backoff()), seed, &mut ()).expect("it ends").apps
        )
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}
