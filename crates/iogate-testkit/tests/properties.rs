//! What must hold for every scheduler, whatever it decides.

use std::hash::Hash;

use iogate_core::stats::Tracked;
use iogate_core::{AppId, FileId, Gate, GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, Span, Time};
use iogate_testkit::audit::{Totals, check};
use iogate_testkit::generate::{any_scheduler, cases, scheduler, script};
use iogate_testkit::harness::{Event, Record, compare, play};
use iogate_testkit::script::{Action, Arrival, Ending, Script};
use proptest::prelude::*;

fn tracked<K: Copy + Eq + Hash>(sums: &Tracked<K>) -> u64 {
    sums.iter().map(|(_, sums)| sums.bytes).sum::<u64>() + sums.other().bytes
}

/// Requests leave and complete once, in order where they conflict, in whole; the gate ends empty; it counts right.
fn holds(script: &Script) -> Result<Gate, TestCaseError> {
    let (gate, log) = play::<Gate>(script);
    let totals = check(script, &log).map_err(TestCaseError::fail)?;
    let stats = gate.stats();
    let counted = Totals {
        requests: [0, 1].map(|op| stats.ops[op].request_bytes.count()),
        bytes: [0, 1].map(|op| stats.ops[op].request_bytes.sum()),
        dispatches: [0, 1].map(|op| stats.ops[op].dispatch_bytes.count()),
        parts: [0, 1].map(|op| stats.ops[op].dispatch_requests.sum()),
        full: stats.rejected_full,
    };
    prop_assert_eq!(counted, totals);
    for op in &stats.ops {
        prop_assert_eq!(op.request_bytes.sum(), op.dispatch_bytes.sum(), "bytes in and out");
        prop_assert_eq!(op.service_ns.count(), op.dispatch_bytes.count());
    }
    let bytes: u64 = totals.bytes.iter().sum();
    prop_assert_eq!(tracked(&stats.files), bytes);
    prop_assert_eq!(tracked(&stats.apps), bytes);
    prop_assert_eq!(tracked(&stats.targets), bytes);
    Ok(gate)
}

#[test]
fn nothing_is_lost_doubled_or_reordered() {
    for kind in SchedulerKind::ALL {
        proptest!(cases(200), |(script in script(scheduler(kind), false, 150))| {
            holds(&script)?;
        });
    }
}

#[test]
fn switches_under_load_lose_nothing() {
    proptest!(cases(800), |(script in script(any_scheduler(), true, 200))| {
        let gate = holds(&script)?;
        let switches = script.actions.iter().filter(|(_, action)| matches!(action, Action::Switch(_))).count();
        prop_assert_eq!(gate.stats().switches, switches as u64);
    });
}

#[test]
fn a_switch_between_any_two_schedulers_loses_nothing() {
    for from in SchedulerKind::ALL {
        for to in SchedulerKind::ALL {
            let at_halftime = (script(scheduler(from), false, 80), scheduler(to));
            proptest!(cases(15), |((script, to) in at_halftime)| {
                let mut script = script;
                let half = script.actions.len() / 2;
                script.actions.insert(half, (Span::ZERO, Action::Switch(to)));
                holds(&script)?;
            });
        }
    }
}

/// Hundreds of requests pile up before the first completes.
#[test]
fn long_queues() {
    proptest!(cases(100), |(script in script(any_scheduler(), false, 1200))| {
        let mut script = script;
        script.actions.retain(|(_, action)| !matches!(action, Action::Complete(..)));
        holds(&script)?;
    });
}

/// At the end of the largest file, in requests of up to 4 GiB, at the end of time.
#[test]
fn extremes() {
    proptest!(cases(500), |(script in script(any_scheduler(), true, 100), late in any::<bool>())| {
        let mut script = script;
        if late {
            script.start = Time::from_nanos(u64::MAX - 60_000_000_000);
        }
        for (_, action) in &mut script.actions {
            if let Action::Submit(arrival) = action {
                arrival.offset = arrival.offset.saturating_add(u64::MAX - (1 << 34));
                arrival.bytes = arrival.bytes.saturating_mul(100_000);
            }
        }
        holds(&script)?;
    });
}

/// More files than a gate remembers while they are idle, and some of them come back.
#[test]
fn many_files() {
    for kind in SchedulerKind::ALL {
        let mut actions = Vec::new();
        for round in 0..9_000u64 {
            let file = if round % 7 == 0 { round / 500 } else { round };
            let (offset, bytes) = (round % 7 * 4096, 4096);
            let op = if round % 11 == 0 { Op::Write } else { Op::Read };
            let (app, target, issued_ns) = (AppId(round as u32 % 5), None, None);
            let arrival = Arrival { file: FileId(file), op, offset, bytes, app, target, issued_ns };
            actions.push((Span::from_micros(20), Action::Submit(arrival)));
            if round > 20 {
                actions.push((Span::from_micros(20), Action::Complete(0, Ending::Whole)));
            }
        }
        let (scheduler, layout) = (SchedulerConfig::new(kind), Layout::SINGLE);
        let config = GateConfig { scheduler, queue_max: 100_000, depth: 2, layout };
        holds(&Script { config, start: Time::ZERO, actions }).unwrap();
    }
}

#[test]
fn a_drained_gate_empties_without_a_wait() {
    proptest!(cases(500), |(script in script(any_scheduler(), false, 100))| {
        let mut script = script;
        script.actions.push((Span::ZERO, Action::Drain));
        let (_, log) = play::<Gate>(&script);
        check(&script, &log).map_err(TestCaseError::fail)?;
        let drained = log.iter().rposition(|record| record.event == Event::Drained).unwrap_or_default();
        let (late, end) = (log[drained].now, log[log.len() - 1].now);
        let completions = log[drained..].iter().filter(|record| matches!(record.event, Event::Completed(..)));
        prop_assert_eq!(end.since(late), Span::from_micros(10 * completions.count() as u64));
    });
}

#[test]
fn the_same_calls_give_the_same_answers() {
    proptest!(cases(500), |(script in script(any_scheduler(), true, 120))| {
        compare::<Gate, Gate>(&script).map_err(TestCaseError::fail)?;
    });
}

/// A request that other requests would go before for ever: they are smaller, of a lower offset, of a busier target
/// or of an application with a smaller number, and never fewer than seven of them are in the gate.
mod starvation {
    use super::*;
    use iogate_core::TargetId;

    const SERVICE: Span = Span::from_micros(100);
    const ROUNDS: u64 = 4_000;
    const VICTIM: usize = 8;

    fn rival(round: u64) -> Arrival {
        let same_file = round.is_multiple_of(2);
        Arrival {
            file: FileId(if same_file { 0 } else { 1 + round % 3 }),
            op: Op::Read,
            offset: round * 37 % 1000 * 8192,
            bytes: 4096,
            app: AppId(1),
            target: Some(TargetId(if same_file { 0 } else { 1 })),
            issued_ns: None,
        }
    }

    /// How long the victim waits for its dispatch, if it gets one at all.
    fn victim_waits(scheduler: &SchedulerConfig) -> Option<Span> {
        let victim =
            Arrival { offset: 1 << 40, bytes: 1 << 20, app: AppId(9), target: Some(TargetId(3)), ..rival(0) };
        let mut actions: Vec<(Span, Action)> =
            (0..VICTIM as u64).map(|round| (Span::ZERO, Action::Submit(rival(round)))).collect();
        actions.push((Span::ZERO, Action::Submit(victim)));
        for round in 0..ROUNDS {
            actions.push((Span::ZERO, Action::Submit(rival(round))));
            actions.push((SERVICE, Action::Complete(0, Ending::Whole)));
        }
        let layout = Layout { first_target: 0, stripe_bytes: 1 << 30, targets: 4 };
        let config = GateConfig { scheduler: scheduler.clone(), queue_max: 100_000, depth: 1, layout };
        let start = Time::from_nanos(1_000_000_007);
        let script = Script { config, start, actions };
        let (_, log) = play::<Gate>(&script);
        check(&script, &log).expect("nothing is lost");
        let left = |record: &&Record| match &record.event {
            Event::Dispatched(_, parts) => parts.iter().any(|part| part.request.0 == VICTIM as u64),
            _ => false,
        };
        let dispatched = log.iter().find(left).filter(|record| record.action < script.actions.len())?;
        Some(dispatched.now.since(start))
    }

    fn config(kind: SchedulerKind, settings: &[(&str, &str)]) -> SchedulerConfig {
        let mut config = SchedulerConfig::new(kind);
        for (name, value) in settings {
            config.set(name, value).expect("valid settings");
        }
        config
    }

    /// What is allowed on top of the bound of each scheduler: serving what was there before, twice over.
    const BEFORE: Span = Span::from_millis(2);

    #[test]
    fn each_scheduler_keeps_its_bound() {
        let age = ("age_max", "50ms");
        let window = ("window", "20ms");
        let ms = Span::from_millis;
        let bounds = [
            // Its turn comes with its place in the arrival order.
            (config(SchedulerKind::Fifo, &[]), ms(0)),
            (config(SchedulerKind::ToAgg, &[]), ms(0)),
            // It goes first when it has aged.
            (config(SchedulerKind::Sjf, &[age]), ms(50)),
            (config(SchedulerKind::Mlf, &[age]), ms(50)),
            (config(SchedulerKind::Aioli, &[age]), ms(50)),
            // It has aged, and the turns of the other files (8 requests of each) are over.
            (config(SchedulerKind::Hbrr, &[age]), ms(50) + Span::from_micros(4 * 8 * 100)),
            // Its window has passed, so that all that comes now is later.
            (config(SchedulerKind::AppWindow, &[window]), ms(20) + ms(20)),
            (config(SchedulerKind::ServerWindow, &[window]), ms(20) + ms(20)),
            // Each target has had its window.
            (config(SchedulerKind::Twins, &[window]), ms(4 * 20)),
        ];
        for (scheduler, bound) in bounds {
            let waited = victim_waits(&scheduler).unwrap_or(Span::MAX);
            assert!(waited <= bound + BEFORE, "{scheduler}: waited {waited}, bound {bound}");
        }
    }

    #[test]
    fn without_ageing_it_starves() {
        for kind in [SchedulerKind::Sjf, SchedulerKind::Hbrr] {
            let scheduler = config(kind, &[("age_max", "0ms")]);
            assert_eq!(
                victim_waits(&scheduler),
                None,
                "{scheduler}: the load is not hard enough to test ageing"
            );
        }
    }
}
