//! What a gate has of caps that many gates share: classes go by what they are allotted where they are.

use super::*;
use crate::global_policy::{Allotter, GateId, Holder, Terms, Usage};

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

/// One gate of several that share the cap of application 1, and its clients, which ask for as much as they get.
struct Greedy {
    gate: Gate,
    holder: Holder,
    number: u64,
    outstanding: u64,
    served: u64,
    /// When it is to be asked again.
    wake: Option<u64>,
}

impl Greedy {
    fn new(terms: &Terms, requests: Option<u64>) -> Greedy {
        let mut policy = Policy { is_shared: true, ..terms.policy.clone() };
        for entitlement in policy.apps.values_mut() {
            entitlement.max.requests = requests.and_then(NonZeroU64::new);
        }
        let mut gate = one_at_a_time();
        gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
        let holder = Holder::new(terms.clone(), 2, Time::ZERO);
        Greedy { gate, holder, number: 0, outstanding: 0, served: 0, wake: None }
    }

    /// Serves in no time what may go now.
    fn go(&mut self, now: Time) {
        self.gate.allot(now, self.holder.rates(now).collect::<Vec<_>>());
        loop {
            while self.outstanding < 8 {
                (self.outstanding, self.number) = (self.outstanding + 1, self.number + 1);
                self.gate.submit(now, &block(self.number, 1)).unwrap();
            }
            match self.gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    self.served += dispatch.bytes;
                    self.outstanding -= u64::from(dispatch.parts);
                    self.gate.complete(now, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
                }
                Decision::WaitUntil(at, _) => return self.wake = Some(at.as_nanos()),
                Decision::Idle => return self.wake = None,
            }
        }
    }

    fn report(&mut self, now: Time, number: u64, allotter: &mut Allotter) {
        let usages: Vec<Usage> = self.gate.usages(now).collect();
        let report = self.holder.report(now, usages);
        if let Some(grant) = allotter.report(now, GateId(number), &report) {
            self.holder.granted(now, &grant);
        }
    }
}

/// Two gates share a cap, and the requests of one of them are limited: what that leaves of the bytes is the other one's.
#[test]
fn who_waits_for_requests_is_not_short_of_bytes() {
    const CAP: u64 = 10 << 20;
    let capped = Entitlement { max: rate(CAP), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
    let terms = Terms { policy, ..Terms::default() };
    let mut allotter = Allotter::new(terms.clone(), Time::ZERO);
    // 50 requests of 4 KiB a second, and as many as it likes.
    let mut gates = [Greedy::new(&terms, Some(50)), Greedy::new(&terms, None)];
    let (mut now, mut report_at, mut before) = (0, 0, [0; 2]);
    let (from, until) = (5_000 * MS, 10_000 * MS);
    while now < until {
        if now >= report_at {
            report_at += 100 * MS;
            (0..)
                .zip(&mut gates)
                .for_each(|(at, gate)| gate.report(Time::from_nanos(now), at, &mut allotter));
        }
        gates.iter_mut().for_each(|gate| gate.go(Time::from_nanos(now)));
        let next = gates.iter().filter_map(|gate| gate.wake).min().unwrap_or(u64::MAX).min(report_at);
        if now < from && next >= from {
            before = [gates[0].served, gates[1].served];
        }
        now = next;
    }
    let [limited, greedy] = [0, 1].map(|at| (gates[at].served - before[at]) / 5);
    assert!(limited >= 49 * 4096, "{limited} bytes a second of {} that its requests are", 50 * 4096);
    assert!(greedy >= (CAP - limited) / 100 * 98, "{greedy} bytes a second of {}", CAP - limited);
    let now = gates[0].gate.apps_now(Time::from_nanos(until));
    assert!(now[0].capped_ns > 9_000 * MS, "it waits for its cap nevertheless: {} ns", now[0].capped_ns);
}
