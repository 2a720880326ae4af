//! The real gate and the naive one give the same answers to the same random operations.

use std::cell::Cell;

use iogate_core::{AppId, Gate, Op, SchedulerKind, Span, WaitReason};
use iogate_testkit::generate::{any_scheduler, cases, prices, scheduler, script};
use iogate_testkit::harness::compare;
use iogate_testkit::reference::ReferenceGate;
use iogate_testkit::script::Action;
use proptest::prelude::*;

fn agrees(kind: SchedulerKind) {
    proptest!(cases(800), |(script in script(scheduler(kind), false, 100))| {
        let (gate, reference) = compare::<Gate, ReferenceGate>(&script).map_err(TestCaseError::fail)?;
        let counts = reference.counts();
        prop_assert_eq!(gate.stats().skewed, counts.skewed);
        prop_assert_eq!(gate.stats().rejected_full, counts.rejected_full);
        prop_assert_eq!(gate.stats().held_ns.iter().map(|held| held.count()).sum::<u64>(), counts.held);
    });
}

#[test]
fn fifo() {
    agrees(SchedulerKind::Fifo);
}

#[test]
fn to_agg() {
    agrees(SchedulerKind::ToAgg);
}

#[test]
fn sjf() {
    agrees(SchedulerKind::Sjf);
}

#[test]
fn mlf() {
    agrees(SchedulerKind::Mlf);
}

#[test]
fn aioli() {
    agrees(SchedulerKind::Aioli);
}

#[test]
fn hbrr() {
    agrees(SchedulerKind::Hbrr);
}

#[test]
fn app_window() {
    agrees(SchedulerKind::AppWindow);
}

#[test]
fn server_window() {
    agrees(SchedulerKind::ServerWindow);
}

#[test]
fn twins() {
    agrees(SchedulerKind::Twins);
}

#[test]
fn any_scheduler_and_switches() {
    proptest!(cases(1200), |(script in script(any_scheduler(), true, 100))| {
        let (gate, reference) = compare::<Gate, ReferenceGate>(&script).map_err(TestCaseError::fail)?;
        prop_assert_eq!(gate.stats().switches, reference.counts().switches);
    });
}

/// Hundreds of requests pile up, mostly reads that nothing holds back.
#[test]
fn long_queues() {
    proptest!(cases(60), |(script in script(any_scheduler(), false, 700))| {
        let mut script = script;
        script.actions.retain(|(_, action)| !matches!(action, Action::Complete(..) | Action::Drain));
        compare::<Gate, ReferenceGate>(&script).map_err(TestCaseError::fail)?;
    });
}

/// One application reads two files under waits that are priced, often where it has read before: long enough to be known.
#[test]
fn priced_waits() {
    for kind in [SchedulerKind::Mlf, SchedulerKind::Aioli] {
        let priced = scheduler(kind).prop_map(|mut config| {
            config.set("waits", "priced").expect("it has that");
            config
        });
        let waits = Cell::new([0; WaitReason::ALL.len()]);
        proptest!(cases(250), |(script in script(priced.boxed(), false, 400), prices in prices())| {
            let mut script = script;
            script.actions.insert(0, (Span::ZERO, Action::SetPrices(prices)));
            for (_, action) in &mut script.actions {
                if let Action::Submit(arrival) = action {
                    (arrival.op, arrival.file.0, arrival.app) = (Op::Read, arrival.file.0 % 2, AppId(arrival.app.0 % 2));
                }
            }
            let (gate, _) = compare::<Gate, ReferenceGate>(&script).map_err(TestCaseError::fail)?;
            let counts = gate.stats().waits;
            waits.set(std::array::from_fn(|reason| waits.get()[reason] + counts[reason].count));
        });
        // Waits for shifts and better runs are seldom; some hundred for a next piece are expected.
        let counts = waits.get();
        assert!(counts[WaitReason::Contiguous as usize] > 20, "{kind:?} waited too seldom: {counts:?}");
    }
}
