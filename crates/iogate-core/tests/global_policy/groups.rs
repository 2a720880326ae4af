//! Groups: what a total and caps of branches are divided to, held against a division by hand, unit by unit.

use iogate_core::policy::{Branch, WEIGHT_MAX};

use super::*;

/// What is given at once by hand.
const UNIT: u64 = 20;

/// A branch, or a class, of a random policy: weight, floor, cap, and in which of the branches before it it is.
type Drawn = (u32, u64, Option<u64>, Option<usize>);

fn drawn(weight_max: u32) -> impl Strategy<Value = Drawn> {
    let max = proptest::option::of(20_000u64..150_000);
    (1..=weight_max, 0u64..1_500, max, proptest::option::of(0usize..4))
}

fn entitlement(weight: u32, min: u64, max: Option<u64>) -> Entitlement {
    let rate =
        |bytes: Option<u64>| Rate { bytes: bytes.and_then(|bytes| bytes.try_into().ok()), requests: None };
    Entitlement { weight, min: rate(Some(min)), max: rate(max) }
}

fn branch(index: usize) -> AppId {
    AppId(100 + index as u32)
}

/// A policy, and its classes.
fn policy(total: Option<u64>, branches: &[Drawn], leaves: &[Drawn]) -> (Policy, Vec<Leaf>) {
    let mut policy =
        Policy { total: total.and_then(|total| total.try_into().ok()), is_shared: true, ..Policy::default() };
    for (index, (weight, _, max, within)) in branches.iter().enumerate() {
        let within = within.filter(|within| *within < index).map(branch);
        let entitlement = entitlement(*weight, 0, *max);
        policy.branches.insert(branch(index), Branch { entitlement, within, ..Branch::default() });
    }
    let mut classes = Vec::new();
    for (app, (weight, min, max, within)) in (1..).map(AppId).zip(leaves) {
        let within = within.filter(|within| *within < branches.len()).map(branch);
        policy.apps.insert(app, entitlement(*weight, *min, *max));
        policy.within.extend(within.map(|within| (app, within)));
        let leaf = Leaf { app, within };
        // Others are not allotted.
        classes.extend(policy.cap_of(leaf).map(|_| leaf));
    }
    assert_eq!(policy.check(), Ok(()));
    (policy, classes)
}

/// What there is is given to children of one branch unit by unit, to who has least for its weight: first to those below their floors.
fn share_out(budget: u64, children: &[(u32, u64, u64)]) -> Vec<u64> {
    let mut got = vec![0; children.len()];
    let mut left = budget / UNIT;
    for is_floor in [true, false] {
        while left > 0 {
            let most =
                |(_, floor, demand): (u32, u64, u64)| if is_floor { floor.min(demand) } else { demand };
            let wants = (0..got.len()).filter(|&child| got[child] < most(children[child]));
            let per_weight = |child: usize| got[child] * u64::from(WEIGHT_MAX) / u64::from(children[child].0);
            let Some(child) = wants.min_by_key(|&child| per_weight(child)) else { break };
            got[child] += UNIT;
            left -= 1;
        }
    }
    got.iter().zip(children).map(|(got, (_, _, demand))| *got.min(demand)).collect()
}

/// What all that is within a branch, or within nothing, would have, and what it is promised, if there were enough.
fn wanted(policy: &Policy, around: Option<AppId>, demands: &[(Leaf, u64)]) -> (u64, u64) {
    let children = children(policy, around, demands);
    let demand: u64 = children.iter().map(|(_, (_, _, demand))| demand).sum();
    let floors = children.iter().map(|(_, (_, floor, demand))| floor.min(demand)).sum();
    (demand.min(policy.cap_around(around).map_or(u64::MAX, |cap| cap.get())), floors)
}

enum Child {
    Branch(AppId),
    Leaf(Leaf),
}

/// What is within a branch, or within nothing: weight, floor and demand of each.
fn children(
    policy: &Policy,
    around: Option<AppId>,
    demands: &[(Leaf, u64)],
) -> Vec<(Child, (u32, u64, u64))> {
    let branches =
        policy.branches.iter().filter(|(_, branch)| branch.within == around).map(|(app, branch)| {
            let (demand, floors) = wanted(policy, Some(*app), demands);
            (Child::Branch(*app), (branch.entitlement.weight, floors, demand))
        });
    let leaves = demands.iter().filter(|(leaf, _)| leaf.within == around).map(|(leaf, demand)| {
        let Entitlement { weight, min, max } = policy.of(*leaf);
        let demand = max.bytes.map_or(*demand, |max| max.get().min(*demand));
        (Child::Leaf(*leaf), (weight, min.bytes.map_or(0, |min| min.get()), demand))
    });
    branches.chain(leaves).collect()
}

/// What each class is due of so much, by hand.
fn by_hand(
    policy: &Policy,
    around: Option<AppId>,
    budget: u64,
    demands: &[(Leaf, u64)],
    due: &mut BTreeMap<Leaf, u64>,
) {
    let children = children(policy, around, demands);
    let wants: Vec<(u32, u64, u64)> = children.iter().map(|(_, want)| *want).collect();
    for ((child, _), got) in children.iter().zip(share_out(budget, &wants)) {
        match child {
            Child::Branch(app) => by_hand(policy, Some(*app), got, demands, due),
            Child::Leaf(leaf) => {
                due.insert(*leaf, got);
            }
        }
    }
}

/// Gates that report, and what they hold.
struct Cluster {
    allotter: Allotter,
    gates: Vec<Exact>,
    leaves: Vec<Leaf>,
    now: u64,
}

impl Cluster {
    fn held(&self, leaf: Leaf) -> u64 {
        self.gates.iter().map(|gate| gate.held.get(&leaf).copied().unwrap_or(0)).sum()
    }

    /// All gates report once, and at no time is there more than a cap.
    fn round(&mut self, demands: &[Vec<u64>]) {
        for (gate, demands) in demands.iter().enumerate() {
            self.now += 100 / self.gates.len() as u64 + 1;
            let demands: Vec<(Leaf, u64)> =
                self.leaves.iter().copied().zip(demands.iter().copied()).collect();
            self.gates[gate].report(&mut self.allotter, at(self.now), gate as u64, &demands);
            self.check();
        }
    }

    fn check(&self) {
        let policy = &self.allotter.terms().policy;
        let mut sums: BTreeMap<Option<AppId>, u64> = BTreeMap::new();
        for &leaf in &self.leaves {
            let held = self.held(leaf);
            assert!(policy.of(leaf).max.bytes.is_none_or(|max| held <= max.get()), "{leaf:?} has {held}");
            for around in policy.branches_around(leaf.within).map(Some).chain([None]) {
                *sums.entry(around).or_default() += held;
            }
        }
        for (around, sum) in sums {
            assert!(policy.cap_around(around).is_none_or(|cap| sum <= cap.get()), "{around:?} has {sum}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// After any demands before: four reports of each gate later each class has at all gates together what it is due of its group, of the
    /// groups around that and of the total, and no cap is exceeded on the way.
    #[test]
    fn shares_come_to_a_division_by_hand(
        total in proptest::option::of(50_000u64..300_000),
        branches in proptest::collection::vec(drawn(5), 0..5),
        leaves in proptest::collection::vec(drawn(5), 1..9),
        gates in 1usize..6,
        seed in any::<u64>(),
    ) {
        let (policy, leaves) = policy(total, &branches, &leaves);
        let terms = Terms { policy: policy.clone(), ..Terms::default() };
        let mut seed = seed;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut draw = || -> Vec<Vec<u64>> {
            let mut demand = || match random(4) {
                0 => 0,
                size => [0, 2_000, 60_000][size as usize - 1] + random(1_000),
            };
            (0..gates).map(|_| (0..leaves.len()).map(|_| demand()).collect()).collect()
        };
        let (before, between, after) = (draw(), draw(), draw());
        let mut cluster = Cluster {
            allotter: Allotter::new(terms, Time::ZERO),
            gates: (0..gates).map(|_| Exact::default()).collect(),
            leaves: leaves.clone(),
            now: 0,
        };
        for _ in 0..25 {
            cluster.round(&before);
        }
        // Classes and groups go, and others come in their places.
        for _ in 0..5 {
            cluster.round(&between);
        }
        for _ in 0..4 {
            cluster.round(&after);
        }
        let all = |leaf: usize| after.iter().map(|demands| demands[leaf]).sum();
        let demands: Vec<(Leaf, u64)> = leaves.iter().enumerate().map(|(at, leaf)| (*leaf, all(at))).collect();
        let mut due = BTreeMap::new();
        by_hand(&policy, None, total.unwrap_or(10_000_000), &demands, &mut due);
        for (leaf, demand) in demands {
            let (held, due) = (cluster.held(leaf), due[&leaf]);
            // A unit by hand, and less than one for each of those that something is divided among, at each level.
            let slack = 4 * UNIT + 60;
            prop_assert!(held + slack >= due, "{leaf:?} has {held}, its due is {due} of {demand}: {policy:?}");
            // What is beyond is what nobody asks for.
            prop_assert!(held <= due + slack || due + slack >= demand, "{leaf:?} has {held}, its due is {due} of {demand}: {policy:?}");
        }
    }
}

#[test]
fn a_group_has_its_share_and_its_cap_whatever_its_users_do() {
    let weighted = |weight, max| Entitlement { weight, ..at_most(max) };
    let group = |weight, max| Branch { entitlement: weighted(weight, max), ..Branch::default() };
    let branches = [(AppId(100), group(3, 6_000)), (AppId(200), group(1, 0))].into();
    let policy = Policy { branches, total: 10_000.try_into().ok(), ..Policy::default() };
    let terms = Terms { policy, ..Terms::default() };
    let mut allotter = Allotter::new(terms, Time::ZERO);
    let mut gates = [Exact::default(), Exact::default()];
    let user = |app, within| (Leaf { app: AppId(app), within: Some(AppId(within)) }, 9_000);
    // One of the first group, at both gates, and two of the second one, one at each.
    let demands = [[user(1, 100), user(2, 200)], [user(1, 100), user(3, 200)]];
    for ms in (0..3_000).step_by(50) {
        for (gate, exact) in gates.iter_mut().enumerate() {
            exact.report(&mut allotter, at(ms), gate as u64, &demands[gate]);
        }
    }
    let held = |gate: usize| demands[gate].map(|(leaf, _)| gates[gate].held[&leaf]);
    assert_eq!((held(0), held(1)), ([3_000, 2_000], [3_000, 2_000]), "of 7,500 it may have 6,000");
    let of_groups: Vec<_> =
        allotter.branches().into_iter().map(|(app, of)| (app.0, of.gates, of.committed)).collect();
    assert_eq!(of_groups, [(100, 2, 6_000), (200, 2, 4_000)]);
}

#[test]
fn without_an_answer_a_gate_divides_its_part_of_a_group_among_its_users() {
    let policy = Policy {
        branches: [(AppId(100), Branch { entitlement: at_most(1_000), ..Branch::default() })].into(),
        ..Policy::default()
    };
    let mut holder = Holder::new(Terms { policy, ..Terms::default() }, 4, at(0));
    let users = [1, 2].map(|app| Leaf { app: AppId(app), within: Some(AppId(100)) });
    let usage = |leaf| Usage { leaf, admitted: 0, capped: Span::ZERO, deferred: 500 };
    holder.report(at(0), users.map(usage));
    assert_eq!(users.map(|leaf| holder.rate(at(4_100), leaf)), [Some(125); 2]);
}
