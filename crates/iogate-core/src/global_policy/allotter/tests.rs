//! What an allotter keeps of classes that are gone.

use core::num::NonZeroU64;

use super::*;
use crate::policy::{Entitlement, Policy, Rate};

fn report(number: u64, apps: core::ops::Range<u32>) -> Report {
    let demand = |app| Demand { leaf: AppId(app).into(), demand: u64::from(app), used: 0, held: 0 };
    Report { number, classes: apps.map(demand).collect(), ..Report::default() }
}

/// Classes come in some thousands at some gates and go, and what stays has what it had.
#[test]
fn what_is_gone_is_forgotten() {
    let max = Rate { bytes: NonZeroU64::new(1_000_000), requests: None };
    let others = Entitlement { max, ..Entitlement::default() };
    let policy = Policy { others, total: NonZeroU64::new(1 << 40), is_shared: true, ..Policy::default() };
    let mut allotter = Allotter::new(Terms { policy, ..Terms::default() }, Time::ZERO);
    let now = Time::ZERO + Span::from_secs(5);
    for gate in 0..10 {
        let of = 1 + gate * 1_000..1_001 + gate * 1_000;
        allotter.report(now, GateId(gate.into()), &report(1, of));
    }
    assert_eq!(allotter.numbers.len(), 10_000);
    // All gates but the one in the middle tell of a few classes of their own, and of one that all have.
    for gate in (0..10).filter(|gate| *gate != 5) {
        let mut next = report(2, 9_000 * gate + 100_000..9_000 * gate + 100_010);
        next.classes.insert(0, Demand { leaf: AppId(5_500).into(), demand: 7, ..Demand::default() });
        allotter.report(now, GateId(gate.into()), &next);
    }
    let grant = allotter.report(now, GateId(5), &report(2, 5_001..6_001)).expect("it is a new report");
    assert_eq!(allotter.numbers.len(), 1_090);
    assert!(allotter.classes.len() <= 2 * 1_090 + VACANT, "{}", allotter.classes.len());
    assert_eq!(grant.classes.len(), 1_000);
    for (leaf, rate) in grant.classes {
        let Allotted { gates, demand, .. } = allotter.allotted(leaf);
        let (among, others) = if leaf.app.0 == 5_500 { (10, 9 * 7) } else { (1, 0) };
        assert_eq!((gates, demand), (among, u64::from(leaf.app.0) + others), "{leaf:?}");
        // Of the one that all have others may hold it all yet.
        assert!(rate >= u64::from(leaf.app.0) || others > 0, "{leaf:?}");
    }
    for gate in 0..10 {
        allotter.report(now, GateId(gate), &Report { leaves: true, ..report(3, 0..0) });
    }
    allotter.report(now, GateId(11), &report(1, 1..2));
    assert!(allotter.classes.len() <= 1 + VACANT && allotter.allotted(AppId(1).into()).gates == 1);
}
