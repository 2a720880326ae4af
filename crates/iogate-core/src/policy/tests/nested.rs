//! Classes within classes: at each level, what a flat policy promises.

use super::*;
use crate::hash::HashMap;

const PHYSICS: AppId = AppId(1_000_001);
const CHEMISTRY: AppId = AppId(1_000_002);
const OPTICS: AppId = AppId(1_000_003);

fn weight(weight: u32) -> Entitlement {
    Entitlement { weight, ..Entitlement::default() }
}

fn branch(entitlement: Entitlement, within: Option<AppId>) -> Branch {
    Branch { entitlement, within, ..Branch::default() }
}

/// Applications 1 and 2 in optics in physics, 3 in physics, 4 in chemistry, 5 in none.
fn institute() -> Policy {
    Policy {
        apps: [(AppId(1), weight(2)), (AppId(3), weight(3)), (AppId(5), weight(2))].into(),
        branches: [
            (PHYSICS, branch(weight(4), None)),
            (OPTICS, branch(weight(1), Some(PHYSICS))),
            (CHEMISTRY, branch(weight(2), None)),
        ]
        .into(),
        within: [(AppId(1), OPTICS), (AppId(2), OPTICS), (AppId(3), PHYSICS), (AppId(4), CHEMISTRY)].into(),
        ..Policy::default()
    }
}

fn world(policy: Policy) -> World {
    World { policy, scheduler: SchedulerKind::Fifo, depth: 1, jump: 0, prices: None }
}

/// Weight, and a floor and a cap in MiB/s, in requests a second or in both, none of which need be there.
fn entitlements() -> impl Strategy<Value = Entitlement> {
    let (mib, requests) = (1u64..8, 50u64..500);
    let floor = prop_oneof![
        3 => Just((0, 0)),
        1 => (mib.clone(), Just(0)),
        1 => (Just(0), requests.clone()),
        1 => (mib, requests),
    ];
    let (mib, requests) = (20u64..60, 900u64..4_000);
    let cap = prop_oneof![
        2 => Just((0, 0)),
        1 => (mib.clone(), Just(0)),
        1 => (Just(0), requests.clone()),
        1 => (mib, requests),
    ];
    let of = |(mib, requests): (u64, u64)| Rate {
        bytes: NonZeroU64::new(mib << 20),
        requests: NonZeroU64::new(requests),
    };
    (1u32..6, floor, cap).prop_map(move |(weight, min, max)| Entitlement {
        weight,
        min: of(min),
        max: of(max),
    })
}

/// Up to three groups, the last of which may be within the first, and up to six applications in them or beside them, some without a name.
pub(super) fn groups() -> impl Strategy<Value = Policy> {
    let branches = prop::collection::vec((entitlements(), entitlements()), 1..4);
    let apps = prop::collection::vec((0usize..4, prop::option::of(entitlements())), 1..7);
    let lot = prop::option::of((1u64..8).prop_map(Span::from_millis));
    (branches, apps, any::<bool>(), entitlements(), lot).prop_map(|(branches, apps, is_deep, others, lot)| {
        let number = |at: usize| AppId(1_000_000 + at as u32);
        let mut policy = Policy { others, lot, ..Policy::default() };
        for (at, (entitlement, others)) in branches.iter().enumerate() {
            let within = (is_deep && at == 2).then(|| number(0));
            policy.branches.insert(number(at), Branch { entitlement: *entitlement, others: *others, within });
        }
        for (at, (within, named)) in apps.iter().enumerate() {
            let app = AppId(at as u32 + 1);
            if let Some(entitlement) = named {
                policy.apps.insert(app, *entitlement);
            }
            if *within < branches.len() {
                policy.within.insert(app, number(*within));
            }
        }
        if policy.check().is_err() {
            // Floors that are together more than their branch has are nothing that a gate takes.
            policy.branches.values_mut().for_each(|branch| branch.entitlement.min = Rate::default());
            policy.branches.values_mut().for_each(|branch| branch.entitlement.max = Rate::default());
        }
        policy
    })
}

/// What each class at each level has of an 8th of the time: worked out by hand.
#[test]
fn each_level_is_divided_by_its_weights() {
    let busy = App::greedy(8, 64 * 1024);
    let idle = App { from: u64::MAX, ..busy };
    for (loads, eighths_by_12) in [
        // Physics has 4 of 8, of which optics has a quarter.
        ([busy; 5], [8, 4, 36, 24, 24]),
        // What optics does not use is first physics's.
        ([idle, idle, busy, busy, busy], [0, 0, 48, 24, 24]),
        ([busy, idle, busy, busy, busy], [12, 0, 36, 24, 24]),
        // And what physics does not use is everybody's, by their weights.
        ([idle, idle, idle, busy, busy], [0, 0, 0, 48, 48]),
    ] {
        let until = 4_000 * MS;
        let used = used(&world(institute()).run(&loads, until), 5);
        for (used, share) in used.iter().zip(eighths_by_12) {
            let expected = until * share / 96;
            assert!(used.abs_diff(expected) < 40 * MS, "{used:?}, expected {expected} of {loads:?}");
        }
    }
}

/// A tree of up to three levels: what each branch is within, what each application is within, and weights.
fn trees() -> impl Strategy<Value = Policy> {
    let branches = prop::collection::vec((any::<prop::sample::Index>(), 1u32..6), 1..5);
    let apps = prop::collection::vec((any::<prop::sample::Index>(), 1u32..6), 2..7);
    (branches, apps).prop_map(|(branches, apps)| {
        let number = |at: usize| AppId(1_000_000 + at as u32);
        let mut policy = Policy::default();
        for (at, (within, heavy)) in branches.iter().enumerate() {
            // Within one of those before, or within none.
            let within = within.index(at + 1);
            let within = (within > 0).then(|| number(within));
            policy.branches.insert(number(at + 1), branch(weight(*heavy), within));
        }
        for (at, (within, heavy)) in apps.iter().enumerate() {
            let app = AppId(at as u32 + 1);
            policy.apps.insert(app, weight(*heavy));
            let within = within.index(branches.len() + 1);
            if within > 0 {
                policy.within.insert(app, number(within));
            }
        }
        policy
    })
}

/// What each class has used, and all branches with somebody within them.
fn used_at_each_level(policy: &Policy, used: &[u64]) -> HashMap<Option<AppId>, Vec<(AppId, u64)>> {
    let mut sums: BTreeMap<AppId, u64> = BTreeMap::new();
    for (at, used) in used.iter().enumerate() {
        let mut class = Some(AppId(at as u32 + 1));
        while let Some(of) = class {
            *sums.entry(of).or_default() += used;
            class = within(policy, of);
        }
    }
    let mut levels: HashMap<Option<AppId>, Vec<(AppId, u64)>> = HashMap::default();
    sums.into_iter()
        .for_each(|(class, used)| levels.entry(within(policy, class)).or_default().push((class, used)));
    levels
}

fn within(policy: &Policy, class: AppId) -> Option<AppId> {
    policy.within.get(&class).copied().or_else(|| policy.branches.get(&class)?.within)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Of two that are within the same, and always have requests: the bound of start-time fair queueing.
    #[test]
    fn shares_are_those_of_the_weights_at_each_level(
        kind in prop::sample::select(SchedulerKind::ALL.to_vec()),
        policy in trees(),
        kib in prop::collection::vec(1u32..128, 6),
    ) {
        let loads: Vec<App> =
            policy.apps.keys().zip(&kib).map(|(_, kib)| App::greedy(16, kib * 1024)).collect();
        let done = World { scheduler: kind, ..world(policy.clone()) }.run(&loads, 1_500 * MS);
        let slack = 3 * MS + 24 * LONGEST;
        for at in (0..done.len()).step_by(97) {
            for classes in used_at_each_level(&policy, &used(&done[..at], loads.len())).into_values() {
                for (one, its) in &classes {
                    for (other, others) in &classes {
                        let (a, b) = (u64::from(policy.of(*one).weight), u64::from(policy.of(*other).weight));
                        prop_assert!(
                            (its / a).abs_diff(others / b) <= slack / a + slack / b,
                            "{kind:?}: {one} has {its}, {other} has {others} of {policy:?}"
                        );
                    }
                }
            }
        }
    }

    /// One branch around everybody changes nothing, whatever its weight: each request goes as by the flat policy.
    #[test]
    fn a_branch_around_everybody_changes_nothing(
        kind in prop::sample::select(SchedulerKind::ALL.to_vec()),
        apps in prop::collection::vec((1u32..8, 1u32..24, 1u32..128, 0u64..2_000_000, 0u64..200), 2..5),
        jump in prop_oneof![Just(0u64), 1_000u64..400_000],
        depth in 1u32..4,
        heavy in 1u32..9,
        cap in prop::option::of(1u64..64),
    ) {
        let mut policy = weights(&apps.iter().map(|app| app.0).collect::<Vec<_>>());
        if let Some(first) = policy.apps.get_mut(&AppId(1)) {
            first.max = cap.map_or(Rate::default(), |mib| rate(mib << 20));
        }
        let loads: Vec<App> = apps
            .iter()
            .map(|app| App { think: app.3, from: app.4 * MS, ..App::greedy(app.1, app.2 * 1024) })
            .collect();
        let nested = Policy {
            branches: [(PHYSICS, branch(weight(heavy), None))].into(),
            within: policy.apps.keys().map(|app| (*app, PHYSICS)).collect(),
            ..policy.clone()
        };
        let of = |policy| World { policy, scheduler: kind, depth, jump, prices: (jump > 0).then(|| jumps_of(jump)) };
        let flat = of(policy).run(&loads, 600 * MS);
        let nested = of(nested).run(&loads, 600 * MS);
        let told = |done: &[Done]| done.iter().map(|one| (one.app, one.began, one.ended)).collect::<Vec<_>>();
        prop_assert_eq!(told(&flat), told(&nested));
    }

    /// The cap of a branch holds for all within it together, in every window; those elsewhere have the rest.
    #[test]
    fn a_branchs_cap_holds_in_every_window(
        kind in prop::sample::select(SchedulerKind::ALL.to_vec()),
        kib in 4u32..256,
        mib in 1u64..40,
        depth in 1u32..4,
    ) {
        let (bytes, cap) = (kib * 1024, mib << 20);
        let mut policy = institute();
        policy.branches.insert(PHYSICS, branch(Entitlement { max: rate(cap), ..weight(4) }, None));
        let world = World { scheduler: kind, depth, ..world(policy) };
        let done = world.run(&[App::greedy(8, bytes); 5], 1_000 * MS);
        let mut sums: Vec<(u64, u64)> = alloc::vec![(0, 0)];
        for one in done.iter().filter(|one| one.app < 3) {
            let sum = sums.last().unwrap().1 + one.bytes;
            sums.push((one.ended, sum));
        }
        // What is ahead, and what is on its way at the beginning of the window.
        let ahead = cap / 200 + u64::from(bytes) * (1 + u64::from(depth)) + 8 * u64::from(bytes);
        for (index, &(from, before)) in sums.iter().enumerate() {
            for &(to, sum) in sums[index..].iter().step_by(7) {
                let most = (u128::from(to - from) * u128::from(cap) / 1_000_000_000) as u64 + ahead;
                prop_assert!(sum - before <= most, "{} bytes in {} ns, at most {most}", sum - before, to - from);
            }
        }
        // The others go on meanwhile.
        let busy: u64 = used(&done, 5).iter().sum();
        prop_assert!(depth > 1 || busy > 900 * MS, "busy for {busy} ns of 1 s");
    }

    /// Whatever tree, cap or change: each request is carried out once.
    #[test]
    fn nothing_is_lost_whatever_the_tree(
        kind in prop::sample::select(SchedulerKind::ALL.to_vec()),
        mut policies in prop::collection::vec((trees(), prop::collection::vec(prop::option::of(1u64..20), 5)), 1..5),
        requests in prop::collection::vec((1u32..9, 0u64..8, 1u32..4, any::<bool>(), 0u8..12), 1..200),
    ) {
        for (policy, caps) in &mut policies {
            for (branch, cap) in policy.branches.values_mut().zip(caps) {
                branch.entitlement.max = cap.map_or(Rate::default(), |kib| rate(kib << 10));
                branch.entitlement.min = cap.map_or(Rate::default(), |_| rate(1 << 10));
            }
            // Floors of branches within one may be more than that has.
            if policy.check().is_err() {
                policy.branches.values_mut().for_each(|branch| branch.entitlement.min = Rate::default());
            }
        }
        let config = GateConfig {
            scheduler: SchedulerConfig::new(kind),
            queue_max: 1_000,
            depth: 2,
            layout: Layout::SINGLE,
        };
        let mut gate = Gate::new(&config).unwrap();
        let (mut now, mut done, mut serving) = (0, alloc::vec![0; requests.len()], VecDeque::new());
        let mut go = |gate: &mut Gate, now: &mut u64, to_the_end: bool| {
            for round in 0.. {
                assert!(round < 100_000, "it never ends");
                match gate.next(Time::from_nanos(*now)) {
                    Decision::Dispatch(dispatch) => serving.push_back(dispatch.id),
                    Decision::WaitUntil(at, _) if serving.is_empty() && to_the_end => *now = at.as_nanos(),
                    _ => {
                        let Some(id) = serving.pop_front() else { return };
                        gate.parts(id).for_each(|part| done[part.request.0 as usize] += 1);
                        *now += 50_000;
                        gate.complete(Time::from_nanos(*now), id, Outcome::Done { bytes: 0 });
                        if !to_the_end {
                            return;
                        }
                    }
                }
            }
        };
        for (id, &(app, block, blocks, writes, then)) in requests.iter().enumerate() {
            let policy = &policies[id % policies.len()].0;
            match then {
                0 => gate.set_policy(Time::from_nanos(now), Some(policy)).unwrap(),
                1 => gate.set_policy(Time::from_nanos(now), None).unwrap(),
                2 | 3 => {
                    let branch = AppId(1_000_000 + u32::from(then) - 1);
                    prop_assert_eq!(gate.place(Time::from_nanos(now), AppId(app), branch), AppId(app));
                }
                _ => {}
            }
            let request = Request {
                id: RequestId(id as u64),
                file: FileId(1),
                op: if writes { Op::Write } else { Op::Read },
                offset: block * 4096,
                bytes: blocks * 4096,
                app: AppId(app),
                client: crate::ClientId(0),
                target: None,
                issued: None,
            };
            gate.submit(Time::from_nanos(now), &request).unwrap();
            if then % 3 == 0 {
                go(&mut gate, &mut now, false);
            }
        }
        go(&mut gate, &mut now, true);
        prop_assert!(gate.is_empty());
        prop_assert!(done.iter().all(|times| *times == 1), "{done:?}");
    }
}

/// The floor of a branch is for all within it: beside a hundred greedy ones, two that share it have it together.
#[test]
fn a_branchs_floor_holds_beside_a_hundred_greedy_ones() {
    let floored = Entitlement { min: rate(8 << 20), ..weight(1) };
    let policy = Policy {
        branches: [(PHYSICS, branch(weight(1), None)), (OPTICS, branch(floored, Some(PHYSICS)))].into(),
        within: [(AppId(1), OPTICS), (AppId(2), OPTICS)].into(),
        ..Policy::default()
    };
    let mut apps = [App::greedy(16, 64 * 1024); 102];
    apps[..2].fill(App::greedy(16, 16 * 1024));
    let of = |policy| World { depth: 4, ..world(policy) }.run(&apps, 2_000 * MS);
    let bytes = |done: &[Done], app: usize| -> u64 {
        done.iter().filter(|one| one.app == app && one.ended > 100 * MS).map(|one| one.bytes).sum()
    };
    let done = of(policy);
    let (one, other) = (bytes(&done, 0), bytes(&done, 1));
    assert!(one + other >= (8 << 20) * 19 / 10 - 64 * 1024, "{one} and {other}");
    assert!(one.abs_diff(other) < 256 * 1024, "{one} and {other}");
    let flat = of(Policy::default());
    assert!(bytes(&flat, 0) + bytes(&flat, 1) < 8 << 20, "their shares are less");
}

#[test]
fn who_comes_is_placed_and_its_branch_is_told_of() {
    let mut gate = one_at_a_time();
    let mut policy = institute();
    policy.branches.insert(OPTICS, branch(Entitlement { max: rate(4096), ..weight(1) }, Some(PHYSICS)));
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate.place(Time::ZERO, AppId(77), OPTICS);
    gate.place(Time::ZERO, AppId(78), AppId(4711));
    for id in 0..4 {
        gate.submit(Time::ZERO, &block(id, if id == 3 { 78 } else { 77 })).unwrap();
    }
    let mut served = Vec::new();
    while let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) {
        served.push(dispatch.app.0);
        gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: 4096 });
    }
    assert_eq!(served, [77, 78], "the cap of what it is within holds for one that nobody has named");
    let now = gate.apps_now(Time::from_nanos(250 * MS));
    let of = |app: u32| now.iter().rfind(|one| one.app == app).unwrap();
    let had = |app: u32| (of(app).served_requests, of(app).served_bytes, of(app).capped_ns / MS);
    // Each request is counted wherever it is within; the wait for a cap where the cap is.
    assert_eq!(had(77), (1, 4096, 0));
    assert_eq!(had(OPTICS.0), (1, 4096, 250));
    assert_eq!(had(PHYSICS.0), (1, 4096, 0));
    // A second policy that has the branch keeps who is in it, and who waits for it.
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    // Who says that he is called like a branch is one more within it.
    gate.submit(Time::ZERO, &block(9, OPTICS.0)).unwrap();
    let now = gate.apps_now(Time::ZERO);
    let of = |app: u32| now.iter().rfind(|one| one.app == app).unwrap();
    assert_eq!((of(77).within, of(78).within), (Some(OPTICS.0), None));
    assert_eq!((of(OPTICS.0).within, of(PHYSICS.0).within), (Some(PHYSICS.0), None));
    assert_eq!((of(OPTICS.0).deferred, of(PHYSICS.0).deferred), (of(77).deferred + 1, of(77).deferred + 1));
    assert_eq!((of(OPTICS.0).max, of(77).max), (Some(4096), None));
    assert_eq!(of(PHYSICS.0).requests_per_s, of(77).requests_per_s, "what is within it counts");
    assert!(of(77).deferred > 0);
    gate.set_policy(Time::ZERO, None).unwrap();
    let mut served = 0;
    while let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) {
        served += gate.parts(dispatch.id).count();
        gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: 4096 });
    }
    assert_eq!((served, gate.len()), (3, 0), "nothing is lost");
}

#[test]
fn what_is_no_tree_is_refused() {
    let with = |change: fn(&mut Policy)| {
        let mut policy = institute();
        change(&mut policy);
        alloc::format!("{}", policy.check().unwrap_err())
    };
    assert!(institute().check().is_ok());
    let circle = with(|policy| {
        policy.branches.insert(PHYSICS, branch(weight(1), Some(OPTICS)));
    });
    assert!(circle.contains("within itself"), "{circle}");
    let unknown = with(|policy| {
        policy.within.insert(AppId(3), AppId(4711));
    });
    assert!(unknown.contains("there is no branch 4711"), "{unknown}");
    let floors = with(|policy| {
        policy.branches.insert(PHYSICS, branch(Entitlement { min: rate(10), ..weight(1) }, None));
        policy.apps.insert(AppId(3), Entitlement { min: rate(6), ..weight(1) });
        policy.branches.insert(OPTICS, branch(Entitlement { min: rate(5), ..weight(1) }, Some(PHYSICS)));
    });
    assert!(floors.contains("11 together, above its own 10"), "{floors}");
    let others = with(|policy| {
        let others = Entitlement { min: rate(11), ..weight(1) };
        let entitlement = Entitlement { max: rate(10), ..weight(1) };
        policy.branches.insert(PHYSICS, Branch { entitlement, others, within: None });
    });
    assert!(others.contains("11 together, above its own 10"), "those that are not named count: {others}");
    let deep = with(|policy| {
        for at in 0..DEPTH_MAX as u32 {
            let within = if at == 0 { OPTICS } else { AppId(2_000_000 + at - 1) };
            policy.branches.insert(AppId(2_000_000 + at), branch(weight(1), Some(within)));
        }
    });
    assert!(deep.contains("more than 8"), "{deep}");
}

/// Serves what may go at once, and returns of which applications.
fn served(gate: &mut Gate) -> Vec<u32> {
    let mut served = Vec::new();
    while let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) {
        served.push(dispatch.app.0);
        gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: 4096 });
    }
    served
}

/// Who waits for a cap of his own is in his branch as soon as there are branches, whether he was named before or not; and those whose
/// branches there are not leave room for those that there are.
#[test]
fn who_waits_below_a_flat_policy_is_in_his_branch_when_branches_come() {
    let capped = Entitlement { max: rate(1), ..weight(1) };
    let flat = Policy { apps: [(AppId(7), capped)].into(), others: capped, ..Policy::default() };
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&flat)).unwrap();
    for (id, app) in [7, 8, 9, 7, 8, 9].into_iter().enumerate() {
        gate.place(Time::ZERO, AppId(app), if app == 9 { AppId(4711) } else { PHYSICS });
        gate.submit(Time::ZERO, &block(id as u64, app)).unwrap();
    }
    assert_eq!(served(&mut gate), [7, 8, 9], "each has one block ahead");
    gate.set_policy(
        Time::ZERO,
        Some(&Policy { branches: [(PHYSICS, branch(capped, None))].into(), ..Policy::default() }),
    )
    .unwrap();
    let now = gate.apps_now(Time::ZERO);
    let of = |app: u32| now.iter().rfind(|one| one.app == app).unwrap();
    assert_eq!([7, 8, 9].map(|app| of(app).within), [Some(PHYSICS.0), Some(PHYSICS.0), None]);
    assert_eq!(of(PHYSICS.0).deferred + of(9).deferred, 2, "one was alone, and is admitted");
    assert_eq!(served(&mut gate).len(), 2, "one block is within the cap of both");
    assert_eq!(gate.len(), 1);
    // As many as may be placed are in no branch. Who is in one is told apart nevertheless.
    for app in 10..10 + (1 << 16) {
        gate.place(Time::ZERO, AppId(app), AppId(4711));
    }
    let last = AppId(900_000);
    assert_eq!(gate.place(Time::ZERO, last, PHYSICS), last);
}

#[test]
fn nobody_escapes_a_cap_as_one_of_too_many() {
    let capped = Branch { entitlement: Entitlement { max: rate(4096), ..weight(1) }, ..Branch::default() };
    let policy = Policy { branches: [(PHYSICS, capped)].into(), ..Policy::default() };
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    let placed = (1..=1 << 16).all(|app| gate.place(Time::ZERO, AppId(app), PHYSICS) == AppId(app));
    assert!(placed, "there is room for each");
    let too_many = [100_001, 100_002].map(|app| gate.place(Time::ZERO, AppId(app), PHYSICS));
    assert_eq!(too_many, [PHYSICS; 2]);
    for (id, app) in [too_many[0], too_many[1], AppId(7)].into_iter().enumerate() {
        gate.submit(Time::ZERO, &block(id as u64, app.0)).unwrap();
    }
    assert_eq!(served(&mut gate), [PHYSICS.0], "one block is within the cap of all");
}

#[test]
fn who_is_placed_takes_what_waits_along() {
    let mut policy = Policy {
        branches: [(PHYSICS, Branch { others: weight(3), ..branch(Entitlement::default(), None) })].into(),
        ..Policy::default()
    };
    let others = Entitlement { max: rate(4096), ..weight(2) };
    policy.other_branches = Some(OtherBranches { entitlement: others, rest: AppId(4_000_000) });
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    // Nobody is known yet; two go to one branch that nobody has named, one to the named one.
    for id in 0..6 {
        gate.submit(Time::ZERO, &block(id, 1 + (id % 3) as u32)).unwrap();
    }
    gate.place(Time::ZERO, AppId(1), CHEMISTRY);
    gate.place(Time::ZERO, AppId(2), CHEMISTRY);
    gate.place(Time::ZERO, AppId(3), PHYSICS);
    let now = gate.apps_now(Time::ZERO);
    let of = |app: u32| now.iter().rfind(|one| one.app == app).unwrap();
    assert_eq!([1, 2, 3].map(|app| of(app).within), [CHEMISTRY, CHEMISTRY, PHYSICS].map(|of| Some(of.0)));
    assert_eq!([3, CHEMISTRY.0, PHYSICS.0].map(|app| of(app).weight), [3, 2, 1].map(Some));
    assert_eq!(of(CHEMISTRY.0).max, Some(4096));
    let mut went = served(&mut gate);
    went.sort_unstable();
    // One was admitted before it was placed, another one is within the cap.
    assert!(went == [1, 1, 3, 3] || went == [1, 2, 3, 3], "{went:?}");
    // And back, into what is named: all goes.
    let had = |gate: &Gate| {
        let now = gate.apps_now(Time::ZERO);
        [CHEMISTRY, PHYSICS]
            .map(|branch| now.iter().rfind(|one| one.app == branch.0).unwrap().served_requests)
    };
    let [chemistry, physics] = had(&gate);
    gate.place(Time::ZERO, AppId(1), PHYSICS);
    gate.place(Time::ZERO, AppId(2), PHYSICS);
    assert_eq!((served(&mut gate).len(), gate.len()), (2, 0));
    assert_eq!(had(&gate), [chemistry, physics + 2], "what was served before stays where it was");
    // More branches than there may be have one together.
    for app in 10_000..10_000 + 2 * BRANCHES_MAX as u32 {
        gate.place(Time::ZERO, AppId(app), AppId(app + 1_000_000));
    }
    gate.submit(Time::ZERO, &block(90, 10_000 + 2 * BRANCHES_MAX as u32 - 1)).unwrap();
    let now = gate.apps_now(Time::ZERO);
    assert_eq!(now.iter().filter(|one| one.is_branch).count(), BRANCHES_MAX + 1);
    assert!(now.iter().any(|one| one.app > 10_000 && one.within == Some(4_000_000)));
}

#[test]
fn a_class_takes_little_memory() {
    assert!(size_of::<crate::policy::arbiter::Class>() <= 256);
}
