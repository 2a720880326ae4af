//! The allotter answers every report as the naive one does, which counts all of it anew: whatever gates say, and in whatever order.

use std::collections::BTreeMap;

use iogate_core::global_policy::{
    Allotted, Allotter, Demand, GateId, Grant, Holder, Report, Terms, Usage, WHOLE,
};
use iogate_core::policy::{Branch, Entitlement, Leaf, OtherBranches, Policy, Rate};
use iogate_core::{AppId, Span, Time};
use iogate_testkit::generate::cases;
use iogate_testkit::reference::ReferenceAllotter;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Numbers as a seed says.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// An amount of any size.
    fn amount(&mut self) -> u64 {
        match self.below(12) {
            0..=2 => 0,
            3..=5 => self.below(20),
            6..=10 => self.below(400_000),
            _ => u64::MAX >> self.below(40),
        }
    }

    fn rate(&mut self, below: u64) -> Rate {
        Rate { bytes: self.below(below).try_into().ok(), requests: None }
    }

    /// Not one that the check of a policy takes, each time: an allotter takes any.
    fn entitlement(&mut self) -> Entitlement {
        let min = if self.one_in(2) { Rate::default() } else { self.rate(50_000) };
        let max = if self.one_in(3) { Rate::default() } else { self.rate(500_000) };
        let weight = if self.one_in(2) { 1 } else { 1 + self.below(5) as u32 };
        Entitlement { weight, min, max }
    }

    fn policy(&mut self) -> Policy {
        let mut policy = Policy { is_shared: true, ..Policy::default() };
        policy.apps = (1..=APPS / 2).map(|app| (AppId(app), self.entitlement())).collect();
        if self.one_in(2) {
            policy.others = self.entitlement();
        }
        if self.one_in(2) {
            policy.total = self.rate(1_500_000).bytes;
        }
        if self.one_in(3) {
            return policy;
        }
        for branch in 0..self.below(BRANCHES.into()) as u32 {
            let within =
                if branch == 0 || self.one_in(2) { None } else { Some(self.below(branch.into()) as u32) };
            let within = within.map(|within| AppId(100 + within));
            let branch_of = Branch { entitlement: self.entitlement(), others: self.entitlement(), within };
            policy.branches.insert(AppId(100 + branch), branch_of);
        }
        if self.one_in(2) {
            policy.other_branches = Some(OtherBranches { entitlement: self.entitlement(), rest: AppId(199) });
        }
        policy
    }

    fn terms(&mut self) -> Terms {
        Terms { policy: self.policy(), ..Terms::default() }
    }

    fn leaf(&mut self) -> Leaf {
        let within = (!self.one_in(3)).then(|| AppId(100 + self.below(BRANCHES.into()) as u32));
        Leaf { app: AppId(1 + self.below(APPS.into()) as u32), within }
    }
}

/// Applications and branches that there are, named or not.
const APPS: u32 = 8;
const BRANCHES: u32 = 5;

/// A gate: a holder, or somebody who says anything.
enum Gate {
    Holder(Box<Holder>),
    Anybody(Anybody),
}

#[derive(Default)]
struct Anybody {
    report: Report,
    granted: Grant,
}

impl Anybody {
    /// Much the same as before, as a rule: classes come and go, and what it says it holds is what it was granted last.
    fn report(&mut self, random: &mut Random) -> Report {
        let report = &mut self.report;
        report.number += 1;
        report.applied = match random.below(8) {
            0 => 0,
            1 => report.number.saturating_sub(random.below(4)),
            _ => self.granted.number,
        };
        report.part = if random.one_in(8) { random.below(WHOLE / 4) as u32 } else { self.granted.part };
        for _ in 0..random.below(4) {
            let demand =
                Demand { leaf: random.leaf(), demand: random.amount(), used: random.amount(), held: 0 };
            let at = random.below(report.classes.len() as u64 + 1) as usize;
            match random.below(6) {
                0 | 1 => {
                    report.classes.push(demand);
                    report.classes.sort_by_key(|demand| demand.leaf);
                    report.classes.dedup_by_key(|demand| demand.leaf);
                }
                // In no order, and more than once.
                2 if random.one_in(4) => report.classes.insert(at, demand),
                2 | 3 if at < report.classes.len() => _ = report.classes.remove(at),
                _ => {
                    if let Some(old) = report.classes.get_mut(at) {
                        (old.demand, old.used) = (demand.demand, demand.used);
                    }
                }
            }
        }
        for demand in &mut report.classes {
            let granted = self.granted.classes.iter().find(|(leaf, _)| *leaf == demand.leaf);
            demand.held = granted.map_or(0, |(_, rate)| *rate);
            if random.one_in(20) {
                demand.held = random.amount();
            }
        }
        report.clone()
    }
}

enum Letter {
    Up(GateId, Report),
    Down(GateId, Grant),
}

struct World {
    random: Random,
    now: u64,
    terms: Terms,
    allotter: Allotter,
    naive: ReferenceAllotter,
    gates: BTreeMap<GateId, Gate>,
    gates_max: u64,
    mail: Vec<(u64, Letter)>,
    /// Reports that were answered.
    answered: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let terms = random.terms();
        let gates_max = [2, 6, 30][random.below(3) as usize];
        World {
            now: 0,
            allotter: Allotter::new(terms.clone(), Time::ZERO),
            naive: ReferenceAllotter::new(terms.clone(), Time::ZERO),
            gates: BTreeMap::new(),
            gates_max,
            mail: Vec::new(),
            answered: 0,
            random,
            terms,
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now * MS)
    }

    /// Messages are lost, late, doubled and out of order.
    fn post(&mut self, letter: &Letter) {
        let copies = match self.random.below(12) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = match self.random.below(30) {
                0 => self.random.below(3_000),
                1..=3 => self.random.below(300),
                _ => self.random.below(4),
            };
            let letter = match letter {
                Letter::Up(gate, report) => Letter::Up(*gate, report.clone()),
                Letter::Down(gate, grant) => Letter::Down(*gate, grant.clone()),
            };
            self.mail.push((self.now + delay, letter));
        }
    }

    fn step(&mut self) {
        self.now += match self.random.below(400) {
            0 => self.random.below(70_000),
            1..=4 => self.random.below(1_500),
            _ => self.random.below(12),
        };
        match self.random.below(600) {
            // Another policy, or the same one from the beginning.
            0 => {
                if self.random.one_in(2) {
                    self.terms = self.random.terms();
                }
                self.allotter = Allotter::new(self.terms.clone(), self.time());
                self.naive = ReferenceAllotter::new(self.terms.clone(), self.time());
            }
            1..=3 => {
                let id = GateId(self.random.below(self.gates_max));
                let number = match self.gates.remove(&id) {
                    Some(Gate::Holder(mut holder)) => Some(holder.leave()),
                    Some(Gate::Anybody(gate)) => {
                        Some(Report { number: gate.report.number + 1, leaves: true, ..Report::default() })
                    }
                    None => None,
                };
                number.into_iter().for_each(|report| self.post(&Letter::Up(id, report)));
            }
            _ => {}
        }
        let id = GateId(self.random.below(self.gates_max));
        let (time, terms) = (self.time(), &self.terms);
        let random = &mut self.random;
        let gate = self.gates.entry(id).or_insert_with(|| match random.below(2) {
            0 => Gate::Holder(Box::new(Holder::new(terms.clone(), 4, time))),
            _ => Gate::Anybody(Anybody::default()),
        });
        let report = match gate {
            Gate::Anybody(gate) => gate.report(random),
            Gate::Holder(holder) => {
                let usages: Vec<Usage> = (0..random.below(8))
                    .map(|_| Usage {
                        leaf: random.leaf(),
                        admitted: random.below(3) * self.now * 100,
                        capped: Span::from_nanos(random.below(3) * self.now * MS),
                        deferred: random.below(2) * random.below(100_000),
                    })
                    .collect();
                holder.report(time, usages)
            }
        };
        self.post(&Letter::Up(id, report));
        let due = |(at, _): &mut (u64, Letter)| *at <= self.now;
        let letters: Vec<(u64, Letter)> = self.mail.extract_if(.., due).collect();
        letters.into_iter().for_each(|(_, letter)| self.deliver(letter));
    }

    fn deliver(&mut self, letter: Letter) {
        let now = self.time();
        match letter {
            Letter::Up(id, report) => {
                let grant = self.allotter.report(now, id, &report);
                assert_eq!(grant, self.naive.report(now, id, &report), "to {report:?} of {id:?} at {now:?}");
                self.compare();
                if let Some(grant) = grant {
                    self.answered += 1;
                    self.post(&Letter::Down(id, grant));
                }
            }
            Letter::Down(id, grant) => match self.gates.get_mut(&id) {
                Some(Gate::Holder(holder)) => _ = holder.granted(now, &grant),
                Some(Gate::Anybody(gate)) => gate.granted = grant,
                None => {}
            },
        }
    }

    fn compare(&self) {
        let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        let of = |[gates, demand, used, committed]: [u128; 4]| Allotted {
            gates: gates as u32,
            demand: narrow(demand),
            used: narrow(used),
            committed: narrow(committed),
        };
        let naive: BTreeMap<Leaf, Allotted> =
            self.naive.classes().into_iter().map(|(leaf, sums)| (leaf, of(sums))).collect();
        assert_eq!(self.allotter.classes().collect::<BTreeMap<_, _>>(), naive);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn every_report_is_answered_as_by_the_naive_one(seed in any::<u64>()) {
        let mut world = World::new(seed);
        for _ in 0..500 {
            world.step();
        }
        prop_assert!(world.answered > 100, "{} reports were answered", world.answered);
    }
}
