//! Policies, schedulers, allotments and accounts change while requests are in the gate, at any time that a clock can show: nothing is lost,
//! nothing is served twice, and accounts add up.

use std::collections::{BTreeMap, VecDeque};

use iogate_core::blame::Accounting;
use iogate_core::policy::{Branch, Entitlement, Leaf, OtherBranches, Policy, Rate};
use iogate_core::sched::Prices;
use iogate_core::{
    AppId, ClientId, Decision, DispatchId, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId,
    SchedulerConfig, SchedulerKind, Span, TargetId, Time,
};

const SECOND: u64 = 1_000_000_000;

/// Random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn rate(&mut self) -> Rate {
        let bytes = self.one(&[0, 0, 0, 1, 4_096, 1 << 20, u64::MAX]).try_into().ok();
        Rate { bytes, requests: self.one(&[0, 0, 0, 1, 1_000, u64::MAX]).try_into().ok() }
    }

    fn entitlement(&mut self) -> Entitlement {
        let (min, max) = match self.below(3) {
            0 => (self.rate(), Rate::default()),
            1 => (Rate::default(), self.rate()),
            _ => (Rate::default(), Rate::default()),
        };
        Entitlement { weight: self.one(&[1, 1, 3, 10_000]), min, max }
    }

    fn policy(&mut self) -> Policy {
        let mut policy = Policy { others: self.entitlement(), ..Policy::default() };
        for app in 1..1 + self.below(4) as u32 {
            policy.apps.insert(AppId(app), self.entitlement());
        }
        if self.below(2) == 0 {
            let of = |random: &mut Random, within| {
                let max = random.entitlement().max;
                Branch {
                    entitlement: Entitlement { max, ..Entitlement::default() },
                    within,
                    ..Branch::default()
                }
            };
            policy.branches.insert(AppId(100), of(self, None));
            policy.branches.insert(AppId(101), of(self, Some(AppId(100))));
            policy.within.insert(AppId(2), AppId(101));
            policy.apps.remove(&AppId(2));
            if self.below(2) == 0 {
                policy.other_branches = Some(OtherBranches { rest: AppId(199), ..OtherBranches::default() });
            }
        }
        policy.is_shared = self.below(4) == 0;
        policy.lot = self.one(&[None, None, Some(Span::from_nanos(1)), Some(Span::MAX)]);
        policy
    }

    fn scheduler(&mut self) -> SchedulerConfig {
        let mut scheduler = SchedulerConfig::new(self.one(&SchedulerKind::ALL));
        if scheduler.kind() == SchedulerKind::Twins && self.below(2) == 0 {
            scheduler.set("split", "true").unwrap();
        }
        scheduler
    }
}

/// A gate, and what its driver knows.
struct World {
    random: Random,
    gate: Gate,
    now: u64,
    wake: Option<u64>,
    serving: VecDeque<DispatchId>,
    /// Of each request, how many of its bytes are not served.
    left: BTreeMap<u64, u64>,
    numbers: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let layout = Layout { targets: 1 + random.below(4) as u32, ..Layout::SINGLE };
        let (scheduler, depth) = (random.scheduler(), 1 + random.below(4) as u32);
        let gate = Gate::new(&GateConfig { scheduler, queue_max: 64, depth, layout }).unwrap();
        let now = random.one(&[0, 0, SECOND, 1 << 60]);
        let (serving, left) = (VecDeque::new(), BTreeMap::new());
        World { random, gate, now, wake: None, serving, left, numbers: 0 }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn submit(&mut self) {
        let random = &mut self.random;
        let bytes = random.one(&[1, 512, 4_096, 4_096, 1 << 20, u32::MAX]);
        let offset = match random.below(20) {
            0 => u64::MAX - u64::from(bytes),
            _ => random.below(16) * 2_048,
        };
        let request = Request {
            id: RequestId(self.numbers),
            file: FileId(random.below(3)),
            op: random.one(&[Op::Read, Op::Write]),
            offset,
            bytes,
            app: AppId(random.below(7) as u32),
            client: ClientId(0),
            target: random.one(&[None, None, Some(TargetId(0)), Some(TargetId(7))]),
            issued: None,
        };
        if self.gate.submit(Time::from_nanos(self.now), &request).is_ok() {
            self.left.insert(self.numbers, bytes.into());
        }
        self.numbers += 1;
    }

    fn ask(&mut self) {
        loop {
            match self.gate.next(self.time()) {
                Decision::Dispatch(dispatch) => {
                    let bytes: u64 = self.gate.parts(dispatch.id).map(|part| u64::from(part.bytes)).sum();
                    assert_eq!(bytes, dispatch.bytes);
                    self.serving.push_back(dispatch.id);
                }
                Decision::WaitUntil(at, _) => {
                    self.wake = Some(at.as_nanos());
                    return;
                }
                Decision::Idle => {
                    self.wake = None;
                    return;
                }
            }
        }
    }

    fn complete(&mut self) {
        let at = self.random.below(self.serving.len().max(1) as u64) as usize;
        let Some(id) = self.serving.remove(at) else { return };
        for part in self.gate.parts(id) {
            let left = self.left.get_mut(&part.request.0).expect("a request that is not done");
            *left = left.checked_sub(part.bytes.into()).expect("no byte is served twice");
        }
        self.left.retain(|_, left| *left > 0);
        self.gate.complete(self.time(), id, Outcome::Done { bytes: 0 });
    }

    fn change(&mut self) {
        let now = self.time();
        match self.random.below(6) {
            0 => {
                let policy = self.random.policy();
                let policy = (self.random.below(4) > 0).then_some(&policy);
                let _ = self.gate.set_policy(now, policy);
            }
            1 => {
                let scheduler = self.random.scheduler();
                self.gate.switch(now, &scheduler);
            }
            2 => {
                let (app, branch) = (self.random.below(7) as u32, self.random.one(&[100, 101, 102]));
                self.gate.place(now, AppId(app), AppId(branch));
            }
            3 => {
                let rate = self.random.one(&[0, 1, 4_096, u64::MAX]);
                let within = self.random.one(&[None, Some(AppId(100)), Some(AppId(101))]);
                let leaf = Leaf { app: AppId(self.random.below(7) as u32), within };
                self.gate.allot(now, [(leaf, rate)]);
                self.gate.usages(now).for_each(drop);
            }
            4 => {
                let prices = Prices::default();
                let how = self.random.one(&[None, Some(Accounting::Exact), Some(Accounting::Sampled)]);
                self.gate.set_accounting(now, how.map(|how| (how, &prices)));
            }
            _ => drop(self.gate.apps_now(now)),
        }
    }

    fn pass(&mut self) {
        let by = match self.random.below(40) {
            0 => self.random.one(&[SECOND, 3_600 * SECOND, 1 << 55, 1 << 62, u64::MAX]),
            1..10 => self.wake.map_or(0, |wake| wake.saturating_sub(self.now)),
            _ => self.random.below(2_000_000),
        };
        self.now = self.now.saturating_add(by);
    }

    fn check(&mut self) {
        for account in self.gate.accounts(self.time()).into_iter().flatten() {
            let sum = account.causes.iter().fold(0u64, |sum, span| sum + span.as_nanos());
            assert_eq!(sum, account.busy.as_nanos(), "{account:?}");
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.below(12) {
                0 => self.change(),
                1..6 => self.submit(),
                6..9 => self.complete(),
                _ => self.pass(),
            }
            self.ask();
            if self.random.below(16) == 0 {
                self.check();
            }
        }
        self.gate.drain(self.time());
        for _ in 0..10_000 {
            self.ask();
            self.check();
            if self.gate.is_empty() {
                break;
            }
            self.complete();
        }
        assert_eq!((self.gate.len(), self.left.len(), self.serving.len()), (0, 0, 0));
    }
}

#[test]
fn nothing_is_lost_whatever_changes_when() {
    // With the last one requests are in service for centuries.
    for seed in (0..200).chain([1_052]) {
        let result = std::panic::catch_unwind(|| World::new(seed).run(400));
        assert!(result.is_ok(), "seed {seed}");
    }
}
