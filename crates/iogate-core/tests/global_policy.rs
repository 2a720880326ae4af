//! One policy over many gates: what is divided, and that no two gates hold the same byte a second, whatever becomes of messages, gates
//! and the allotter.

#[path = "global_policy/chaos.rs"]
mod chaos;
#[path = "global_policy/groups.rs"]
mod groups;
#[path = "global_policy/late.rs"]
mod late;
#[path = "global_policy/many.rs"]
mod many;
#[path = "global_policy/restart.rs"]
mod restart;

use std::collections::BTreeMap;

use iogate_core::global_policy::{
    Allotter, Demand, GateId, Grant, Holder, Level, Phase, Report, Terms, Usage, Want, level,
};
use iogate_core::policy::{Entitlement, Leaf, Policy, Rate};
use iogate_core::{AppId, Span, Time};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn class(app: u32) -> Leaf {
    AppId(app).into()
}

fn at_most(max: u64) -> Entitlement {
    let max = Rate { bytes: max.try_into().ok(), requests: None };
    Entitlement { max, ..Entitlement::default() }
}

fn capped(caps: &[(u32, u64)]) -> Terms {
    let of = |&(app, max): &(u32, u64)| (AppId(app), at_most(max));
    let policy = Policy { apps: caps.iter().map(of).collect(), ..Policy::default() };
    Terms { policy, ..Terms::default() }
}

/// Gives out one unit after the other, to who has least and wants more.
fn naive(total: u64, demands: &[u64]) -> Vec<u64> {
    let mut got = vec![0; demands.len()];
    for _ in 0..total {
        let poorest = (0..got.len()).filter(|&gate| got[gate] < demands[gate]).min_by_key(|&gate| got[gate]);
        let Some(poorest) = poorest else { break };
        got[poorest] += 1;
    }
    got
}

proptest! {
    #[test]
    fn a_level_is_what_giving_unit_by_unit_comes_to(
        total in 0u64..400,
        demands in proptest::collection::vec(0u64..100, 1..12),
    ) {
        let reference = naive(total, &demands);
        let level = level(total, &mut demands.clone());
        for (demand, expected) in demands.iter().zip(&reference) {
            let got = level.min(*demand);
            // What is less than a unit for each is left over.
            prop_assert!(got == *expected || got + 1 == *expected, "{got} instead of {expected}");
        }
        let sum: u64 = demands.iter().map(|demand| level.min(*demand)).sum();
        prop_assert!(sum <= total);
        prop_assert!(total.min(demands.iter().sum()) - sum < demands.len() as u64);
    }

    /// No class could have more without one that has no more for its weight having less, but for floors.
    #[test]
    fn a_total_is_divided_by_weight_above_floors(
        total in 1u64..1_000_000,
        wants in proptest::collection::vec((1u32..20, 0u64..100_000, 0u64..400_000), 1..12),
    ) {
        let wants: Vec<Want> =
            wants.into_iter().map(|(weight, floor, demand)| Want { weight, floor, demand }).collect();
        let level = Level::of(total, &wants);
        let got: Vec<u64> = wants.iter().map(|want| level.of_want(want)).collect();
        let sum: u64 = got.iter().sum();
        prop_assert!(sum <= total);
        let asked: u64 = wants.iter().map(|want| want.demand).sum();
        let weights: u64 = wants.iter().map(|want| u64::from(want.weight)).sum();
        prop_assert!(sum + weights >= total.min(asked), "{sum} of {total} are given");
        let floors: u64 = wants.iter().map(|want| want.floor.min(want.demand)).sum();
        for (want, got_by) in wants.iter().zip(&got) {
            prop_assert!(*got_by <= want.demand);
            if floors <= total {
                prop_assert!(*got_by >= want.floor.min(want.demand), "a floor does not hold");
            }
            let wish = if floors <= total { want.demand } else { want.floor.min(want.demand) };
            if *got_by >= wish {
                continue;
            }
            // Who wants more has, for its weight, no less than any other that is above its floor.
            for (other, &others) in wants.iter().zip(&got) {
                if others > other.floor || floors > total {
                    let (mine, its) = ((*got_by + 1) * u64::from(other.weight), others * u64::from(want.weight));
                    prop_assert!(mine + u64::from(other.weight) >= its, "{want:?} has {got_by}, {other:?} {others}");
                }
            }
        }
    }
}

/// A gate that reports demands as it is told, and nothing is lost. As a holder does, it leaves out who wants and has nothing.
#[derive(Default)]
struct Exact {
    number: u64,
    part: u32,
    held: BTreeMap<Leaf, u64>,
}

impl Exact {
    fn report(&mut self, allotter: &mut Allotter, now: Time, gate: u64, demands: &[(Leaf, u64)]) {
        self.number += 1;
        let of = |&(leaf, demand): &(Leaf, u64)| Demand {
            leaf,
            demand,
            used: 0,
            held: self.held.get(&leaf).copied().unwrap_or(0),
        };
        let report = Report {
            number: self.number,
            applied: self.number - 1,
            part: self.part,
            leaves: false,
            classes: demands.iter().map(of).filter(|one| one.demand > 0 || one.held > 0).collect(),
        };
        let grant = allotter.report(now, GateId(gate), &report).expect("it is a new report");
        assert_eq!(grant.number, self.number);
        let held: BTreeMap<Leaf, u64> = grant.classes.into_iter().collect();
        let is_lowered = self.held.iter().any(|(leaf, rate)| held.get(leaf).is_none_or(|now| now < rate));
        (self.part, self.held) = (grant.part, held);
        if is_lowered {
            // As a holder does: what it has given up others may have as soon as it has said so.
            self.report(allotter, now, gate, demands);
        }
    }
}

proptest! {
    /// After any demands before: each gate tells of its demand, and two reports later each has what is its due.
    #[test]
    fn two_reports_of_unchanged_demands_are_enough(
        cap in 1_000u64..1_000_000,
        before in proptest::collection::vec(0u64..300_000, 2..24),
        seed in any::<u64>(),
    ) {
        let app = class(1);
        let terms = capped(&[(1, cap)]);
        let mut allotter = Allotter::new(terms, Time::ZERO);
        let mut gates: Vec<Exact> = before.iter().map(|_| Exact::default()).collect();
        let mut now = 0;
        let after: Vec<u64> =
            before.iter().enumerate().map(|(gate, demand)| (demand ^ seed.rotate_left(gate as u32)) % 300_000).collect();
        let round = |allotter: &mut Allotter, gates: &mut [Exact], now: &mut u64, demands: &[u64]| {
            for (gate, demand) in demands.iter().enumerate() {
                *now += 100 / demands.len() as u64 + 1;
                gates[gate].report(allotter, at(*now), gate as u64, &[(app, *demand)]);
                let sum: u64 = gates.iter().map(|gate| gate.held.get(&app).copied().unwrap_or(0)).sum();
                assert!(sum <= cap, "{sum} of {cap}");
            }
        };
        for _ in 0..25 {
            round(&mut allotter, &mut gates, &mut now, &before);
        }
        // In the second round some give up what others get, at the latest in the third. A class of more gates than 16 is divided anew every
        // 20 ms: what the last ones of a round have said may count from the next round on only.
        let rounds = if before.len() > 16 { 4 } else { 3 };
        for _ in 0..rounds {
            round(&mut allotter, &mut gates, &mut now, &after);
        }
        let reference = level(cap, &mut after.clone());
        let slack = gates.len() as u64 + 1;
        for (gate, demand) in after.iter().enumerate() {
            let held = gates[gate].held.get(&app).copied().unwrap_or(0);
            let due = reference.min(*demand);
            prop_assert!(held + slack >= due, "gate {gate} of {after:?} has {held}, its due is {due}");
        }
    }
}

#[test]
fn what_nobody_asks_for_is_spread_and_a_part_is_left() {
    let mut allotter = Allotter::new(capped(&[(1, 1_000)]), Time::ZERO);
    let mut gates = [Exact::default(), Exact::default()];
    for ms in (0..3_000).step_by(100) {
        for (gate, exact) in gates.iter_mut().enumerate() {
            exact.report(&mut allotter, at(ms), gate as u64, &[(class(1), 100)]);
        }
        if ms < 1_010 {
            assert_eq!(gates[0].held[&class(1)], 0, "nothing is granted while old leases may hold");
        }
    }
    // 800 are not asked for: a third to each gate, a third for one that comes.
    assert_eq!(gates.map(|gate| gate.held[&class(1)]), [366, 366]);
}

#[test]
fn a_total_is_divided_among_classes_and_then_over_gates() {
    let weighted = |app: u32, weight| (AppId(app), Entitlement { weight, ..Entitlement::default() });
    let apps = [weighted(1, 1), weighted(2, 3)].into();
    let policy = Policy { apps, total: 8_000.try_into().ok(), ..Policy::default() };
    let terms = Terms { policy, ..Terms::default() };
    let mut allotter = Allotter::new(terms, Time::ZERO);
    let mut gates = [Exact::default(), Exact::default(), Exact::default()];
    // The first class is at all gates, the second at one: shares are of all, not of a gate.
    let demands = [&[(class(1), 9_000)][..], &[(class(1), 9_000)], &[(class(1), 9_000), (class(2), 9_000)]];
    for ms in (0..3_000).step_by(50) {
        for (gate, exact) in gates.iter_mut().enumerate() {
            exact.report(&mut allotter, at(ms), gate as u64, demands[gate]);
            let now: u64 = allotter.allotted(class(1)).committed + allotter.allotted(class(2)).committed;
            assert!(now <= 8_000, "{now}");
        }
    }
    let held =
        |app| gates.iter().map(|gate| gate.held.get(&class(app)).copied().unwrap_or(0)).collect::<Vec<_>>();
    assert_eq!((held(1), held(2)), (vec![666; 3], vec![0, 0, 6_000]));
}

#[test]
fn one_that_begins_anew_keeps_what_gates_may_have_that_it_has_not_heard_of() {
    let terms = capped(&[(1, 1_000)]);
    let demands = [(class(1), 5_000)];
    let mut before = Allotter::new(terms.clone(), at(0));
    let mut gates: Vec<Exact> = (0..4).map(|_| Exact::default()).collect();
    for ms in (0..3_000).step_by(100) {
        for (gate, exact) in gates.iter_mut().enumerate() {
            exact.report(&mut before, at(ms), gate as u64, &demands);
        }
    }
    assert_eq!(gates.iter().map(|gate| gate.part).collect::<Vec<_>>(), [1 << 30; 4]);
    // Only the first gate finds its successor: for a minute it does not get what the others may use.
    let mut after = Allotter::new(terms, at(3_000));
    let mut held = |ms| {
        gates[0].report(&mut after, at(ms), 0, &demands);
        gates[0].held[&class(1)]
    };
    let of_first: Vec<u64> = (3_000..62_900).step_by(100).map(&mut held).collect();
    assert!(of_first.iter().all(|held| *held == 250), "{of_first:?}");
    let at_last = (62_900..64_000).step_by(100).map(&mut held).last();
    assert_eq!(at_last, Some(1_000));
}

#[test]
fn old_and_doubled_reports_are_not_answered() {
    let mut allotter = Allotter::new(capped(&[(1, 1_000)]), Time::ZERO);
    let report = |number| Report { number, ..Report::default() };
    assert!(allotter.report(at(1), GateId(1), &report(2)).is_some());
    assert!(allotter.report(at(2), GateId(1), &report(2)).is_none());
    assert!(allotter.report(at(3), GateId(1), &report(1)).is_none());
    assert!(allotter.report(at(4), GateId(1), &Report { leaves: true, ..report(3) }).is_none());
    assert_eq!(allotter.gates(), 0);
}

#[test]
fn a_report_that_comes_after_the_gate_has_left_does_not_bring_it_back() {
    let mut allotter = Allotter::new(capped(&[(1, 1_000)]), at(0));
    let report = |number, leaves| Report { number, leaves, ..Report::default() };
    assert!(allotter.report(at(0), GateId(1), &report(1, false)).is_some());
    assert_eq!(allotter.report(at(1), GateId(1), &report(3, true)), None);
    // On a connection that the gate had given up.
    assert_eq!(allotter.report(at(2), GateId(1), &report(2, false)), None);
    assert_eq!(allotter.gates(), 0);
    // It may come back by itself.
    assert!(allotter.report(at(3), GateId(1), &report(4, false)).is_some());
    assert_eq!(allotter.gates(), 1);
}

#[test]
fn without_an_answer_a_lease_is_kept_then_the_less_then_the_part() {
    let mut holder = Holder::new(capped(&[(1, 1_000)]), 4, at(0));
    let usage = |admitted| [Usage { leaf: class(1), admitted, capped: Span::ZERO, deferred: 5 }];
    assert_eq!(
        (holder.phase(at(0)), holder.rate(at(0), class(1)), holder.rate(at(0), class(2))),
        (Phase::New, Some(0), None)
    );
    let report = holder.report(at(10), usage(0));
    assert!(report.classes[0].demand > 0 && report.classes[0].held == 0, "{report:?}");
    let grant = Grant {
        number: 1,
        lease: Span::from_secs(1),
        every: Span::from_millis(100),
        part: 1 << 30,
        learns: false,
        classes: vec![(class(1), 900)],
    };
    assert!(!holder.granted(at(20), &Grant { number: 0, ..grant.clone() }));
    assert!(holder.granted(at(20), &grant));
    assert!(!holder.granted(at(21), &grant), "doubled");
    assert_eq!((holder.phase(at(1_009)), holder.rate(at(1_009), class(1))), (Phase::Lease, Some(900)));
    assert_eq!((holder.phase(at(1_010)), holder.rate(at(1_010), class(1))), (Phase::Grace, Some(250)));
    let alone = 1_020 + 3 * 1_010 + 20;
    assert_eq!(holder.changes_at(at(1_010)), at(alone));
    assert_eq!((holder.phase(at(alone)), holder.rate(at(alone), class(1))), (Phase::Alone, Some(250)));
    // One that has never been answered goes by how many there are thought to be.
    let mut new = Holder::new(capped(&[(1, 1_000)]), 4, at(0));
    new.report(at(0), usage(0));
    assert_eq!(new.rate(at(4_100), class(1)), Some(250));
    holder.leave();
    assert_eq!((holder.phase(at(1_020)), holder.due()), (Phase::Left, Time::MAX));
}

#[test]
fn a_gate_that_was_granted_no_part_has_nothing_when_nobody_answers_any_more() {
    let terms = capped(&[(1, 1_000)]);
    let mut allotter = Allotter::new(terms.clone(), at(0));
    let usage = [Usage { leaf: class(1), admitted: 0, capped: Span::ZERO, deferred: 5 }];
    // The first gate is granted all of it as its part; before it has given any of that up, the others are answered, once.
    let mut gates = [0; 3].map(|_| Holder::new(terms.clone(), 3, at(0)));
    for (id, gate) in gates.iter_mut().enumerate() {
        let report = gate.report(at(0), usage);
        let grant = allotter.report(at(0), GateId(id as u64), &report).expect("it is a new report");
        assert!(gate.granted(at(0), &grant));
    }
    assert_eq!(gates.each_ref().map(Holder::part), [u32::MAX, 1, 0]);
    let rates = |ms| gates.each_ref().map(|gate| gate.rate(at(ms), class(1)));
    for ms in (1_000..60_000).step_by(1_000) {
        let sum: u64 = rates(ms).into_iter().flatten().sum();
        assert!(sum <= 1_000, "{sum} at {ms} ms");
    }
    assert_eq!((gates[2].phase(at(10_000)), rates(10_000)[2]), (Phase::Alone, Some(0)));
}
