//! What a gate has of caps that many gates share: classes go by what they are allotted where they are.

use super::*;
use crate::global_policy::Usage;

const PHYSICS: AppId = AppId(1_000_001);
const CHEMISTRY: AppId = AppId(1_000_002);

/// A gate of a policy in which the groups have caps.
fn gate() -> Gate {
    let max = rate(1 << 20);
    let branch = Branch { entitlement: Entitlement { max, ..Entitlement::default() }, ..Branch::default() };
    let policy = Policy {
        branches: [(PHYSICS, branch), (CHEMISTRY, branch)].into(),
        is_shared: true,
        ..Policy::default()
    };
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate
}

/// All that may go now goes; whose it was.
fn served(gate: &mut Gate) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) {
        let parts: Vec<u64> = gate.parts(dispatch.id).map(|part| part.request.0).collect();
        ids.extend(parts);
        gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: 4096 });
    }
    ids
}

fn deferred(gate: &Gate) -> Vec<(Leaf, u64)> {
    let waits = |usage: &Usage| usage.deferred > 0;
    gate.usages(Time::ZERO).filter(waits).map(|usage| (usage.leaf, usage.deferred)).collect()
}

#[test]
fn a_class_goes_by_what_it_is_allotted_in_its_group() {
    let mut gate = gate();
    let user = |branch| Leaf { app: AppId(1), within: Some(branch) };
    gate.place(Time::ZERO, AppId(1), PHYSICS);
    gate.submit(Time::ZERO, &block(1, 1)).unwrap();
    // Who is in no group has no cap.
    gate.submit(Time::ZERO, &block(2, 2)).unwrap();
    assert_eq!(served(&mut gate), [2]);
    assert_eq!(deferred(&gate), [(user(PHYSICS), 4096)]);
    assert!(gate.take_lack() && !gate.take_lack());
    // What he is allotted elsewhere is nothing here.
    gate.allot(Time::ZERO, [(user(CHEMISTRY), 1 << 20), (Leaf::from(AppId(1)), 1 << 20)]);
    assert_eq!((served(&mut gate), gate.allotment(user(PHYSICS))), (Vec::new(), Some(0)));
    gate.allot(Time::ZERO, [(user(PHYSICS), 1 << 20)]);
    assert_eq!(served(&mut gate), [1]);
    assert_eq!(gate.allotment(Leaf::from(AppId(2))), None);
}

#[test]
fn who_comes_into_another_group_has_nothing_of_the_one_before() {
    let mut gate = gate();
    let user = |branch| Leaf { app: AppId(1), within: Some(branch) };
    gate.place(Time::ZERO, AppId(1), PHYSICS);
    gate.submit(Time::ZERO, &block(1, 1)).unwrap();
    assert!(gate.take_lack());
    gate.place(Time::ZERO, AppId(1), CHEMISTRY);
    gate.allot(Time::ZERO, [(user(PHYSICS), 1 << 20)]);
    assert!(served(&mut gate).is_empty());
    assert_eq!(deferred(&gate), [(user(CHEMISTRY), 4096)]);
    assert!(gate.take_lack());
    gate.allot(Time::ZERO, [(user(CHEMISTRY), 1 << 20)]);
    assert_eq!(served(&mut gate), [1]);
    // In no group there is no cap.
    gate.allot(Time::ZERO, []);
    gate.submit(Time::ZERO, &block(2, 1)).unwrap();
    assert!(served(&mut gate).is_empty());
    gate.place(Time::ZERO, AppId(1), AppId(4711));
    assert_eq!(served(&mut gate), [2]);
}

#[test]
fn those_that_are_not_told_apart_are_a_class_of_their_group() {
    let mut gate = gate();
    gate.submit(Time::ZERO, &block(1, PHYSICS.0)).unwrap();
    let many = Leaf { app: PHYSICS, within: Some(PHYSICS) };
    assert_eq!(deferred(&gate), [(many, 4096)]);
    gate.allot(Time::ZERO, [(many, 1 << 20)]);
    assert_eq!(served(&mut gate), [1]);
}
