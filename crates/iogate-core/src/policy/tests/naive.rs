//! Trees of classes by the rules of the module's head alone: no list is kept, everything is looked up anew each time. The arbiter must do
//! the same, step by step.

use super::nested::groups;
use super::*;
use crate::policy::arbiter::{Arbiter, ClassId, Next, Served};

/// The arbiter's tags are device time in 2^-10 ns, divided by the weight.
fn tag(ns: u64, weight: u32) -> u128 {
    (u128::from(ns) << 10) / u128::from(weight)
}

/// A class, or a branch, in the order in which they have come.
#[derive(Clone, Debug, Default)]
struct Class {
    app: AppId,
    is_branch: bool,
    within: Option<usize>,
    entitlement: Entitlement,
    /// Of a branch: the start tag of the last lot within it, and the largest tag of a completion.
    virtual_time: u128,
    finish_max: u128,
    finish: u128,
    since: u128,
    /// Tags in `finish` that are estimates.
    outstanding: u128,
    /// When the next request is within the cap, and when it is due by the floor.
    cap: u64,
    floor: u64,
    budget: u64,
    estimate: u64,
    think: u64,
    idle_since: u64,
    /// Bytes of those that wait; requests in service. A branch has neither of its own.
    waits: VecDeque<u64>,
    serves: u32,
    /// All that it was charged, by completions.
    had: u64,
}

struct Naive {
    policy: Policy,
    lot: u64,
    one_at_a_time: bool,
    classes: Vec<Class>,
    /// Outside of all: the virtual time and the largest tag.
    top: (u128, u128),
    last: Option<usize>,
    /// In which branches applications were placed that have not come yet.
    placed: BTreeMap<AppId, AppId>,
}

impl Naive {
    fn new(policy: &Policy, jump: u64) -> Naive {
        let lot = policy.lot.map_or(if jump > 0 { 20 * jump } else { 2 * MS }, Span::as_nanos);
        let mut naive = Naive {
            policy: policy.clone(),
            lot,
            one_at_a_time: jump > 0,
            classes: Vec::new(),
            top: (0, 0),
            last: None,
            placed: BTreeMap::new(),
        };
        for (app, branch) in &policy.branches {
            naive.classes.push(Class {
                app: *app,
                is_branch: true,
                entitlement: branch.entitlement,
                ..Class::default()
            });
        }
        for (at, branch) in policy.branches.values().enumerate() {
            naive.classes[at].within = branch.within.and_then(|within| naive.find(within));
        }
        naive
    }

    fn find(&self, app: AppId) -> Option<usize> {
        self.classes.iter().position(|class| class.app == app)
    }

    /// It and all that it is within, from the inside.
    fn chain(&self, class: usize) -> Vec<usize> {
        core::iter::successors(Some(class), |at| self.classes[*at].within).collect()
    }

    /// Those that are directly within a branch, or within nothing.
    fn within(&self, branch: Option<usize>) -> Vec<usize> {
        (0..self.classes.len()).filter(|at| self.classes[*at].within == branch).collect()
    }

    fn waiting(&self, class: usize) -> usize {
        let within: usize = match self.classes[class].is_branch {
            true => self.within(Some(class)).into_iter().map(|one| self.waiting(one)).sum(),
            false => 0,
        };
        self.classes[class].waits.len() + within
    }

    fn serving(&self, class: usize) -> u32 {
        let within: u32 = match self.classes[class].is_branch {
            true => self.within(Some(class)).into_iter().map(|one| self.serving(one)).sum(),
            false => 0,
        };
        self.classes[class].serves + within
    }

    fn conforms_at(&self, class: usize) -> u64 {
        self.classes[class].cap.saturating_sub(5 * MS)
    }

    /// Whether a lot could be opened for it, but for its own cap.
    fn asks(&self, now: u64, class: usize) -> bool {
        match self.classes[class].is_branch {
            true => self.within(Some(class)).into_iter().any(|one| self.is_ready(now, one)),
            false => !self.classes[class].waits.is_empty(),
        }
    }

    fn is_ready(&self, now: u64, class: usize) -> bool {
        self.asks(now, class) && self.conforms_at(class) <= now
    }

    fn is_capped(&self, now: u64, class: usize) -> bool {
        self.asks(now, class) && self.conforms_at(class) > now
    }

    fn is_held_back(&self, now: u64, class: usize) -> bool {
        self.chain(class).into_iter().any(|at| self.is_capped(now, at))
    }

    fn is_asked(&self, now: u64) -> bool {
        self.within(None).into_iter().any(|one| self.is_ready(now, one))
    }

    /// When somebody of it is due.
    fn due(&self, now: u64, class: usize) -> Option<u64> {
        if !self.is_ready(now, class) {
            return None;
        }
        let own = Some(self.classes[class].floor).filter(|_| has_rate(self.classes[class].entitlement.min));
        let within = match self.classes[class].is_branch {
            true => self.within(Some(class)).into_iter().filter_map(|one| self.due(now, one)).min(),
            false => None,
        };
        own.into_iter().chain(within).min()
    }

    fn key(&self, class: usize) -> u128 {
        self.classes[class].finish.max(self.classes[class].since)
    }

    /// The virtual time where a class is.
    fn time_around(&self, class: usize) -> u128 {
        self.classes[class].within.map_or(self.top.0, |branch| self.classes[branch].virtual_time)
    }

    fn begin_lot(&mut self, class: usize) {
        self.classes[class].budget = self.lot;
        for at in self.chain(class) {
            let start = self.key(at);
            self.classes[at].finish = start;
            let time = match self.classes[at].within {
                Some(branch) => &mut self.classes[branch].virtual_time,
                None => &mut self.top.0,
            };
            *time = start.max(*time);
        }
        self.last = Some(class);
    }

    fn take(&mut self, now: u64, class: usize, bytes: u64) {
        let Class { estimate, budget, .. } = self.classes[class];
        let used = if estimate == 0 { budget } else { estimate };
        self.classes[class].budget = budget.saturating_sub(used.max(1));
        self.classes[class].serves += 1;
        for at in self.chain(class) {
            let one = &mut self.classes[at];
            let Entitlement { weight, min, max } = one.entitlement;
            one.outstanding += tag(estimate, weight);
            one.finish += tag(estimate, weight);
            if has_rate(max) {
                one.cap = one.cap.max(now) + cost(max, bytes);
            }
            if has_rate(min) {
                one.floor = one.floor.min(now) + cost(min, bytes);
            }
        }
    }

    fn charge_wait(&mut self, now: u64, class: usize) {
        if !self.one_at_a_time || self.last != Some(class) || !self.is_asked(now) {
            return;
        }
        let waited = (now - self.classes[class].idle_since).min(self.classes[class].budget);
        self.classes[class].budget -= waited;
        for at in self.chain(class) {
            let weight = self.classes[at].entitlement.weight;
            self.classes[at].finish += tag(waited, weight);
        }
    }

    fn come(&mut self, class: usize) {
        for at in self.chain(class) {
            if self.waiting(at) == 0 {
                self.classes[at].since = self.time_around(at);
            }
        }
    }

    /// Who has nothing that waits keeps its lot while it is not away: to its end, and for as long as it would have the next one.
    fn keeps_lot(&self, now: u64, class: usize) -> bool {
        let one = &self.classes[class];
        let is_near = one.serves > 0 || one.think < 8 * MS && one.idle_since + 2 * one.think > now;
        let is_before = |rival: &usize, at: usize| {
            *rival != at && self.is_ready(now, *rival) && self.key(*rival) < self.classes[at].finish
        };
        let is_behind =
            |at: &usize| self.within(self.classes[*at].within).iter().any(|rival| is_before(rival, *at));
        is_near && (one.budget > 0 || !self.chain(class).iter().any(is_behind))
    }

    /// A request comes. True if it is admitted at once.
    fn arrives(&mut self, now: u64, app: AppId, bytes: u64) -> bool {
        let class = self.find(app).unwrap_or_else(|| {
            let within = self.policy.within.get(&app).or_else(|| self.placed.get(&app));
            let within = within.and_then(|branch| self.find(*branch));
            let entitlement = self.entitlement(app, within);
            self.classes.push(Class { app, within, entitlement, ..Class::default() });
            self.classes.len() - 1
        });
        if self.waiting(class) == 0 && self.serving(class) == 0 {
            self.charge_wait(now, class);
            let one = &mut self.classes[class];
            if one.estimate > 0 {
                let thought = (now - one.idle_since).min(16 * MS);
                one.think = if one.think == 0 { thought } else { (one.think * 7 + thought) / 8 };
            }
        }
        let others = (0..self.classes.len()).filter(|at| *at != class).any(|at| self.classes[at].serves > 0);
        let one = &self.classes[class];
        let ahead = one.estimate * u64::from(one.serves);
        let may_begin =
            !others && !self.is_asked(now) && (one.serves == 0 || one.estimate > 0 && ahead < self.lot);
        let conforms = self.chain(class).into_iter().all(|at| self.conforms_at(at) <= now);
        if one.waits.is_empty() && conforms && (one.budget > 0 || may_begin) {
            if one.budget == 0 {
                self.come(class);
                self.begin_lot(class);
            }
            self.take(now, class, bytes);
            return true;
        }
        if self.classes[class].waits.is_empty() {
            self.come(class);
        }
        for at in self.chain(class) {
            if self.waiting(at) == 0 {
                self.classes[at].floor = self.classes[at].floor.max(now);
            }
        }
        self.classes[class].waits.push_back(bytes);
        false
    }

    /// An application that has no name goes to another branch with all that it has; what it was charged stays behind.
    fn place(&mut self, now: u64, app: AppId, branch: AppId) {
        if self.policy.apps.contains_key(&app) || self.policy.within.contains_key(&app) {
            return;
        }
        self.placed.insert(app, branch);
        let (Some(class), to) = (self.find(app), self.find(branch)) else { return };
        if self.classes[class].within == to {
            return;
        }
        let before: Vec<usize> = self.chain(class)[1..].to_vec();
        let served: Vec<u32> = before.iter().map(|at| self.serving(*at)).collect();
        let waits = core::mem::take(&mut self.classes[class].waits);
        let serves = core::mem::take(&mut self.classes[class].serves);
        for (at, served) in before.into_iter().zip(served) {
            let is_idle = self.serving(at) == 0 && self.waiting(at) == 0;
            let one = &mut self.classes[at];
            let estimated = one.outstanding * u128::from(serves) / u128::from(served.max(1));
            one.outstanding -= estimated;
            one.finish = one.finish.saturating_sub(estimated);
            if is_idle {
                one.idle_since = now;
                one.virtual_time = one.virtual_time.max(one.finish_max);
            }
        }
        self.classes[class].within = to;
        self.classes[class].entitlement = self.entitlement(app, to);
        self.classes[class].finish = 0;
        self.classes[class].since = self.time_around(class);
        for at in self.chain(class).split_off(1) {
            if !waits.is_empty() && self.waiting(at) == 0 {
                self.classes[at].since = self.time_around(at);
                self.classes[at].floor = self.classes[at].floor.max(now);
            }
        }
        (self.classes[class].waits, self.classes[class].serves) = (waits, serves);
    }

    fn entitlement(&self, app: AppId, within: Option<usize>) -> Entitlement {
        let others = within
            .map_or(self.policy.others, |branch| self.policy.branches[&self.classes[branch].app].others);
        self.policy.apps.get(&app).copied().unwrap_or(others)
    }

    /// Whose request to admit, or until when to wait.
    fn next(&mut self, now: u64, to_do: bool) -> Result<usize, Option<u64>> {
        let all = 0..self.classes.len();
        let due = self.within(None).into_iter().filter_map(|one| self.due(now, one)).min();
        if due.is_some_and(|at| at <= now) {
            return Ok(self.descend(now, true));
        }
        let capped = all.filter(|at| self.is_capped(now, *at)).map(|at| self.conforms_at(at)).min();
        let soonest = capped.into_iter().chain(due).min();
        if to_do {
            return Err(soonest);
        }
        let is_between = |last: &usize| !self.is_ready(now, *last) && !self.is_held_back(now, *last);
        if let Some(last) = self.last.filter(is_between) {
            let one = &self.classes[last];
            if self.one_at_a_time && one.budget > 0 {
                let back = one.idle_since + 2 * one.think;
                if one.serves > 0 {
                    return Err(soonest);
                }
                if one.think < one.estimate.min(8 * MS) && back > now && self.is_asked(now) {
                    return Err(Some(soonest.map_or(back, |at| at.min(back))));
                }
                self.charge_wait(now, last);
            }
            if !self.one_at_a_time && self.is_asked(now) && self.keeps_lot(now, last) {
                let lent = self.descend(now, false);
                for at in self.chain(lent) {
                    self.classes[at].finish = self.key(at);
                }
                return Ok(lent);
            }
            self.classes[last].budget = 0;
        }
        if !self.is_asked(now) {
            return Err(soonest);
        }
        let class = self.descend(now, false);
        self.begin_lot(class);
        Ok(class)
    }

    /// From the top: who is due first, as long as somebody is, else who has the least tag. Who came first, if they are alike.
    fn descend(&self, now: u64, mut by_floor: bool) -> usize {
        let mut branch = None;
        loop {
            let ready: Vec<usize> =
                self.within(branch).into_iter().filter(|one| self.is_ready(now, *one)).collect();
            let due = |one: &usize| self.due(now, *one).filter(|at| *at <= now);
            let first = ready.iter().filter(|one| due(one).is_some()).min_by_key(|one| due(one));
            by_floor &= first.is_some();
            let first = first.filter(|_| by_floor).or_else(|| ready.iter().min_by_key(|one| self.key(**one)));
            let first = *first.unwrap();
            if !self.classes[first].is_branch {
                return first;
            }
            branch = Some(first);
        }
    }

    fn admit(&mut self, now: u64, class: usize) -> u64 {
        let bytes = self.classes[class].waits.pop_front().unwrap();
        self.take(now, class, bytes);
        bytes
    }

    fn goes_on(&self, now: u64, class: usize) -> bool {
        let one = &self.classes[class];
        one.budget > 0 && !one.waits.is_empty() && !self.is_held_back(now, class)
    }

    fn completed(&mut self, now: u64, class: usize, took: u64) {
        let one = &mut self.classes[class];
        let each = took.max(1);
        one.estimate = if one.estimate == 0 { each } else { (one.estimate * 7 + each).div_ceil(8) };
        let chain = self.chain(class);
        let served: Vec<u32> = chain.iter().map(|at| self.serving(*at)).collect();
        self.classes[class].serves -= 1;
        for (at, served) in chain.into_iter().zip(served) {
            let is_idle = self.serving(at) == 0 && self.waiting(at) == 0;
            let one = &mut self.classes[at];
            one.had += took;
            let estimated = one.outstanding / u128::from(served);
            one.outstanding -= estimated;
            one.finish = (one.finish + tag(took, one.entitlement.weight)).saturating_sub(estimated);
            if is_idle {
                one.idle_since = now;
                one.virtual_time = one.virtual_time.max(one.finish_max);
            }
            let (finish, within) = (one.finish, one.within);
            let finish_max = match within {
                Some(branch) => &mut self.classes[branch].finish_max,
                None => &mut self.top.1,
            };
            *finish_max = finish.max(*finish_max);
        }
        if self.within(None).into_iter().all(|at| self.serving(at) == 0 && self.waiting(at) == 0) {
            self.top.0 = self.top.0.max(self.top.1);
        }
    }
}

fn has_rate(rate: Rate) -> bool {
    rate.bytes.is_some() || rate.requests.is_some()
}

fn cost(rate: Rate, bytes: u64) -> u64 {
    let of = |amount: u64, rate: Option<NonZeroU64>| {
        rate.map_or(0, |rate| (amount * 1_000_000_000).div_ceil(rate.get()))
    };
    of(bytes, rate.bytes).max(of(1, rate.requests))
}

/// An arbiter and the naive one, and a device that has so many requests in service, of which each takes as long as it says.
struct Pair {
    real: Arbiter,
    naive: Naive,
    depth: usize,
    now: u64,
    /// Admitted, by class; then in service, with their ends.
    queue: VecDeque<(usize, ClassId, u64)>,
    serving: Vec<(u64, usize, ClassId, u64)>,
}

impl Pair {
    fn class(&self, naive: usize) -> Option<&crate::policy::arbiter::Class> {
        let id = *self.real.of_app.get(&self.naive.classes[naive].app)?;
        Some(&self.real.classes[id.index()])
    }

    /// Admits and dispatches what may go now. Returns when to ask again.
    fn go(&mut self) -> Result<Option<u64>, TestCaseError> {
        let at = Time::from_nanos(self.now);
        loop {
            while self.serving.len() < self.depth
                && let Some((class, id, took)) = self.queue.pop_front()
            {
                self.serving.push((self.now + took, class, id, took));
            }
            let to_do = !self.queue.is_empty() || self.serving.len() == self.depth;
            let (real, naive) = (self.real.next(at, to_do), self.naive.next(self.now, to_do));
            match (real, naive) {
                (Next::Admit(id), Ok(class)) => {
                    let (app, expected) = (self.real.is_capped(id).0, self.naive.classes[class].app);
                    prop_assert_eq!(app, expected, "admitted at {}", self.now);
                    loop {
                        let bytes = self.naive.admit(self.now, class);
                        self.real.admit(at, id, bytes);
                        self.queue.push_back((class, id, bytes));
                        let goes_on = self.naive.goes_on(self.now, class);
                        prop_assert_eq!(self.real.goes_on(id), goes_on, "{} at {}", app, self.now);
                        if !goes_on {
                            break;
                        }
                    }
                }
                (Next::Wait(until, _), Err(Some(expected))) => {
                    prop_assert_eq!(until.as_nanos(), expected, "it waits at {}", self.now);
                    return Ok(Some(expected));
                }
                (Next::Idle, Err(None)) => return Ok(None),
                (real, naive) => prop_assert!(false, "{real:?}, expected {naive:?} at {}", self.now),
            }
        }
    }

    fn arrives(&mut self, app: AppId, bytes: u64) -> Result<(), TestCaseError> {
        let (id, is_admitted) = self.real.arrives(Time::from_nanos(self.now), app, bytes);
        let expected = self.naive.arrives(self.now, app, bytes);
        prop_assert_eq!(is_admitted, expected, "{} at {}", app, self.now);
        if expected {
            let class = self.naive.find(app).unwrap();
            self.queue.push_back((class, id, bytes));
        }
        Ok(())
    }

    /// What ends first is completed. False if nothing is in service.
    fn complete(&mut self, until: u64) -> bool {
        let ends = self.serving.iter().enumerate().filter(|(_, one)| one.0 <= until);
        let Some((place, _)) = ends.min_by_key(|(_, one)| one.0) else { return false };
        let (end, class, id, took) = self.serving.remove(place);
        self.now = end;
        self.real.completed(Time::from_nanos(end), id, Served { requests: 1, bytes: 1, ns: took });
        self.naive.completed(end, class, took);
        true
    }

    /// Both say the same of each class.
    fn agree(&self) -> Result<(), TestCaseError> {
        for (at, naive) in self.naive.classes.iter().enumerate() {
            let real = self.class(at).unwrap();
            let said = (real.finish, real.since, real.waiting as usize, real.admitted);
            let expected = (naive.finish, naive.since, self.naive.waiting(at), self.naive.serving(at));
            prop_assert_eq!(said, expected, "{} at {}", naive.app, self.now);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever comes when, and is placed where: the same requests are admitted at the same time, for the same reasons, and all is
    /// charged once, to each level.
    #[test]
    fn a_tree_is_divided_as_naively(
        policy in groups(),
        jump in prop_oneof![Just(0u64), 1_000u64..200_000],
        depth in 1usize..4,
        arrivals in prop::collection::vec((1u32..9, 1u64..128, 1usize..6, prop_oneof![Just(0u64), 1u64..4_000_000], prop::option::weighted(0.2, 0u32..3)), 1..80),
    ) {
        let mut pair = Pair {
            real: Arbiter::new(&policy, Span::from_nanos(jump)),
            naive: Naive::new(&policy, jump),
            depth,
            now: 0,
            queue: VecDeque::new(),
            serving: Vec::new(),
        };
        let mut comes = 0;
        for arrival in arrivals.iter().map(Some).chain([None]) {
            comes = arrival.map_or(u64::MAX, |arrival| comes + arrival.3);
            // Until the next one comes.
            loop {
                let wake = pair.go()?;
                pair.agree()?;
                let end = pair.serving.iter().map(|one| one.0).min();
                let Some(next) = wake.into_iter().chain(end).min().filter(|next| *next <= comes) else { break };
                pair.now = next;
                pair.complete(next);
            }
            if let Some(&(app, kib, requests, _, branch)) = arrival {
                pair.now = comes;
                pair.go()?;
                let branch = branch.map(|branch| AppId(1_000_000 + branch)).filter(|one| policy.branches.contains_key(one));
                if let Some(branch) = branch {
                    pair.real.place(Time::from_nanos(comes), AppId(app), branch);
                    pair.naive.place(comes, AppId(app), branch);
                    pair.agree()?;
                    // What is waited for elsewhere is asked for anew, as after each change.
                    pair.go()?;
                }
                for _ in 0..requests {
                    pair.arrives(AppId(app), kib * 1024)?;
                }
            }
        }
        let apps = pair.naive.classes.iter().filter(|one| !one.is_branch);
        let all: u64 = apps.map(|one| one.had).sum();
        let asked: u64 = arrivals.iter().map(|one| one.1 * 1024 * one.2 as u64).sum();
        prop_assert_eq!(all, asked, "each request was charged once");
        for (at, branch) in pair.naive.classes.iter().enumerate().filter(|(_, class)| class.is_branch) {
            let within: u64 = pair.naive.within(Some(at)).into_iter().map(|one| pair.naive.classes[one].had).sum();
            let moved = arrivals.iter().any(|one| one.4.is_some());
            prop_assert!(moved || branch.had == within, "{} of {within}", branch.had);
            let real = pair.class(at).unwrap();
            prop_assert!(real.is_idle() && real.ready.is_none() && real.capped.is_none() && real.due.is_none());
        }
    }
}
