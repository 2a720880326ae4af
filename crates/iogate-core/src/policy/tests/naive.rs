//! Trees of classes by the rules of the module's head alone: no list is kept, everything is looked up anew each time. The arbiter must do
//! the same, step by step.

mod pair;
mod preempt;

use super::*;

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
    /// When the next request is within the cap, and when it is due by the floor: by bytes and by requests.
    cap: [u64; 2],
    floor: [u64; 2],
    budget: u64,
    estimate: u64,
    think: u64,
    idle_since: u64,
    /// Bytes of those that wait; requests in service. A branch has neither of its own.
    waits: VecDeque<u64>,
    serves: u32,
    /// Its oldest that waits may preempt a lot; one that has is in service.
    may_preempt: bool,
    has_preempted: bool,
    /// What others were charged instead of it, and its requests will take.
    credit: u64,
    /// All that its requests took.
    had: u64,
}

/// What becomes of a slot.
enum Gap {
    Kept(Option<u64>),
    Lent,
}

struct Naive {
    policy: Policy,
    lot: u64,
    jump: u64,
    classes: Vec<Class>,
    /// Outside of all: the virtual time and the largest tag.
    top: (u128, u128),
    last: Option<usize>,
    /// Since when a slot is kept free for that one.
    kept_since: Option<u64>,
    /// Who preempted that one's lot, and whether its request was dispatched since; where the lot's last dispatch ended.
    preempted_by: Option<(usize, bool)>,
    reach: Option<(u32, u64)>,
    /// In which branches applications were placed that have not come yet.
    placed: BTreeMap<AppId, AppId>,
}

impl Naive {
    fn new(policy: &Policy, jump: u64) -> Naive {
        let mut naive = Naive {
            policy: policy.clone(),
            lot: 0,
            jump: 0,
            classes: Vec::new(),
            top: (0, 0),
            last: None,
            kept_since: None,
            preempted_by: None,
            reach: None,
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
        naive.set_jump(jump);
        naive
    }

    fn set_jump(&mut self, jump: u64) {
        self.lot = self.policy.lot.map_or(if jump > 0 { 20 * jump } else { 2 * MS }, Span::as_nanos);
        self.jump = jump;
        if let Some(last) = self.last {
            self.classes[last].budget = self.classes[last].budget.min(self.lot);
        }
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
        self.classes[class].cap.into_iter().max().unwrap().saturating_sub(5 * MS)
    }

    /// From when on an application's next request is within all caps.
    fn may_go_at(&self, app: AppId) -> u64 {
        let within = self.policy.within.get(&app).or_else(|| self.placed.get(&app));
        let class = self.find(app).or_else(|| within.and_then(|branch| self.find(*branch)));
        let chain = class.map(|class| self.chain(class)).unwrap_or_default();
        chain.into_iter().map(|at| self.conforms_at(at)).max().unwrap_or(0)
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

    /// When its own floor says so: that of its rates that is behind.
    fn own_due(&self, class: usize) -> Option<u64> {
        let Class { floor, entitlement, .. } = &self.classes[class];
        let costs = costs(entitlement.min, 0);
        floor.iter().zip(costs).filter(|(_, cost)| cost.is_some()).map(|(at, _)| *at).min()
    }

    /// When somebody of it is due.
    fn due(&self, now: u64, class: usize) -> Option<u64> {
        if !self.is_ready(now, class) {
            return None;
        }
        let own = self.own_due(class);
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
        (self.last, self.kept_since) = (Some(class), None);
        (self.preempted_by, self.reach) = (None, None);
    }

    fn take(&mut self, now: u64, class: usize, bytes: u64) {
        let Class { estimate, budget, .. } = self.classes[class];
        let used = if estimate == 0 { budget } else { estimate };
        self.classes[class].budget = budget.saturating_sub(used.max(1));
        self.classes[class].serves += 1;
        let account = self.lot.max(100 * MS);
        for at in self.chain(class) {
            let is_due = self.own_due(at).is_some_and(|at| at <= now);
            let one = &mut self.classes[at];
            let Entitlement { weight, min, max } = one.entitlement;
            one.outstanding += tag(estimate, weight);
            one.finish += tag(estimate, weight);
            let [of_bytes, of_requests] = one.cap;
            for ((at, cost), other) in one.cap.iter_mut().zip(costs(max, bytes)).zip([of_requests, of_bytes])
            {
                // In this time the other rate was the one that held it back.
                let kept = other.saturating_sub(*at).min(100 * MS);
                *at = cost.map_or(*at, |cost| now.saturating_sub(kept).max(*at) + cost);
            }
            for (at, cost) in one.floor.iter_mut().zip(costs(min, bytes)) {
                let Some(cost) = cost else { continue };
                let from = now.saturating_sub(account).max(*at);
                // One that is due counts in full, as long as that is no more than the account; else it is ahead by itself alone.
                let ahead = if is_due { now + account } else { now };
                *at = if from <= ahead { from + cost } else { from.max(ahead + cost) };
            }
        }
    }

    /// A slot that is kept free is the time of whom it is kept for.
    fn charge_kept(&mut self, now: u64, class: usize) {
        if self.last != Some(class) {
            return;
        }
        let Some(since) = self.kept_since.take() else { return };
        let kept = (now - since).min(self.classes[class].budget);
        self.classes[class].budget -= kept;
        for at in self.chain(class) {
            let weight = self.classes[at].entitlement.weight;
            self.classes[at].finish += tag(kept, weight);
        }
    }

    fn come(&mut self, class: usize) {
        for at in self.chain(class) {
            if self.waiting(at) == 0 {
                self.classes[at].since = self.time_around(at);
            }
        }
    }

    /// Whether it would have the next lot if it had a request.
    fn is_first(&self, now: u64, class: usize) -> bool {
        let is_before = |rival: &usize, at: usize| {
            *rival != at && self.is_ready(now, *rival) && self.key(*rival) < self.classes[at].finish
        };
        let is_behind =
            |at: &usize| self.within(self.classes[*at].within).iter().any(|rival| is_before(rival, *at));
        !self.chain(class).iter().any(is_behind)
    }

    /// Who thinks for as long loses its lot.
    fn kept_for(&self, class: usize) -> u64 {
        let back_and_forth = self.classes[class].estimate.max(self.jump);
        if self.jump < MS { 8 * MS } else { back_and_forth.min(8 * MS) }
    }

    /// What becomes of a slot that whoever has the lot leaves free: it is kept, until then at most; is lent; or (`None`) the lot is over.
    fn gap(&mut self, now: u64, class: usize, work: Work) -> Option<Gap> {
        let one = self.classes[class].clone();
        let is_asked = self.is_asked(now);
        let is_near =
            one.serves > 0 || one.think < self.kept_for(class) && one.idle_since + one.think + 8 * MS > now;
        if self.jump < MS {
            let is_its = one.budget > 0 || self.is_first(now, class);
            return (is_near && is_asked && is_its).then_some(Gap::Lent);
        }
        if one.budget == 0 {
            return None;
        }
        // What is for another window keeps no slot from those who have something for this one.
        let is_beside = work == Work::OtherWindow;
        if one.serves > 0 {
            return Some(if is_beside && is_asked { Gap::Lent } else { Gap::Kept(None) });
        }
        // It is back before going to somebody else and back were worth it.
        let worth = self.kept_for(class);
        let back = one.idle_since + one.think + worth;
        if is_asked && one.think < worth && back > now {
            let serves = self.classes.iter().any(|one| one.serves > 0);
            self.kept_since = self.kept_since.or((!serves).then_some(now));
            return Some(Gap::Kept(Some(back)));
        }
        self.charge_kept(now, class);
        if !is_asked || !is_near || self.classes[class].budget == 0 {
            return None;
        }
        let is_lent = self.classes.iter().any(|one| one.serves > 0);
        Some(if is_lent && !is_beside { Gap::Kept(None) } else { Gap::Lent })
    }

    /// What is lent is owed up to four lots.
    fn bound_claim(&mut self, now: u64, class: usize) {
        for at in self.chain(class) {
            let around = self.classes[at].within;
            let ready = self.within(around).into_iter().filter(|one| self.is_ready(now, *one));
            let Some(first) = ready.min_by_key(|one| self.key(*one)).filter(|first| *first != at) else {
                continue;
            };
            let claim = tag(4 * self.lot, self.classes[at].entitlement.weight);
            let least = self.key(first).saturating_sub(claim);
            match around {
                Some(branch) => {
                    self.classes[branch].virtual_time = self.classes[branch].virtual_time.max(least);
                }
                None => self.top.0 = self.top.0.max(least),
            }
        }
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
        let mut may_preempt = false;
        if self.waiting(class) == 0 && self.serving(class) == 0 {
            self.charge_kept(now, class);
            let kept_for = self.kept_for(class);
            let one = &mut self.classes[class];
            may_preempt = true;
            if one.estimate > 0 {
                let thought = (now - one.idle_since).min(16 * MS);
                one.think = if one.think == 0 { thought } else { (one.think * 7 + thought) / 8 };
                may_preempt = thought >= kept_for || one.think >= kept_for;
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
            self.classes[class].may_preempt = may_preempt;
            self.come(class);
        }
        for at in self.chain(class) {
            if self.waiting(at) == 0 {
                self.classes[at].floor = self.classes[at].floor.map(|at| at.max(now));
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
                self.classes[at].floor = self.classes[at].floor.map(|at| at.max(now));
            }
        }
        (self.classes[class].waits, self.classes[class].serves) = (waits, serves);
    }

    fn entitlement(&self, app: AppId, within: Option<usize>) -> Entitlement {
        let others = within
            .map_or(self.policy.others, |branch| self.policy.branches[&self.classes[branch].app].others);
        self.policy.apps.get(&app).copied().unwrap_or(others)
    }

    /// Whose request to admit, or until when to wait. Where there is a window: of those that have something for it.
    fn next(
        &mut self,
        now: u64,
        work: Work,
        has: Option<&dyn Fn(u64) -> bool>,
    ) -> Result<usize, Option<u64>> {
        let all = 0..self.classes.len();
        let due = self.within(None).into_iter().filter_map(|one| self.due(now, one)).min();
        if due.is_some_and(|at| at <= now) {
            return Ok(self.descend(now, true));
        }
        let capped = all.filter(|at| self.is_capped(now, *at)).map(|at| self.conforms_at(at)).min();
        let soonest = capped.into_iter().chain(due).min();
        if let Some(class) = self.preempts(now) {
            return Ok(class);
        }
        if work == Work::Here {
            return Err(soonest);
        }
        let first = has.map(|has| self.first_with(now, None, has));
        if first == Some(None) {
            return Err(soonest);
        }
        let first = first.flatten().map(|(_, leaf)| leaf);
        let is_between = |last: &usize| !self.is_ready(now, *last) && !self.is_held_back(now, *last);
        if let Some(last) = self.last.filter(is_between) {
            match self.gap(now, last, work) {
                Some(Gap::Kept(back)) => return Err(soonest.into_iter().chain(back).min()),
                Some(Gap::Lent) => {
                    self.bound_claim(now, last);
                    let lent = first.unwrap_or_else(|| self.descend(now, false));
                    for at in self.chain(lent) {
                        self.classes[at].finish = self.key(at);
                    }
                    return Ok(lent);
                }
                None => {}
            }
            self.classes[last].budget = 0;
        }
        if !self.is_asked(now) {
            return Err(soonest);
        }
        let class = first.unwrap_or_else(|| self.descend(now, false));
        if let Some(last) = self.last.filter(|last| first.is_some() && *last != class) {
            self.classes[last].budget = 0;
        }
        self.begin_lot(class);
        Ok(class)
    }

    /// Who has the least tag of those that have something for the window, and whoever of it is next. But nobody is passed over to whom
    /// more than four lots are owed.
    fn first_with(
        &self,
        now: u64,
        branch: Option<usize>,
        has: &dyn Fn(u64) -> bool,
    ) -> Option<(usize, usize)> {
        let ready = || self.within(branch).into_iter().filter(|one| self.is_ready(now, *one));
        let leaf = |one: usize, has: &dyn Fn(u64) -> bool| match self.classes[one].is_branch {
            true => self.first_with(now, Some(one), has).map(|(_, leaf)| leaf),
            false => self.classes[one].waits.iter().any(|bytes| has(*bytes)).then_some(one),
        };
        let those = ready().filter_map(|one| Some((one, leaf(one, has)?)));
        let found = those.min_by_key(|(one, _)| self.key(*one))?;
        let least = ready().min_by_key(|one| self.key(*one))?;
        let owed = self.key(found.0) - self.key(least);
        if owed > tag(4 * self.lot, self.classes[least].entitlement.weight) {
            return Some((least, leaf(least, &|_| true)?));
        }
        Some(found)
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

    /// Admits its first request, of those for the window if it has one.
    fn admit(&mut self, now: u64, class: usize, has: Option<&dyn Fn(u64) -> bool>) -> u64 {
        self.classes[class].may_preempt = false;
        let waits = &mut self.classes[class].waits;
        let at = has.and_then(|has| waits.iter().position(|bytes| has(*bytes))).unwrap_or(0);
        let bytes = waits.remove(at).unwrap();
        self.take(now, class, bytes);
        bytes
    }

    fn goes_on(&self, now: u64, class: usize) -> bool {
        let one = &self.classes[class];
        one.budget > 0 && !one.waits.is_empty() && !self.is_held_back(now, class)
    }

    fn completed(&mut self, now: u64, class: usize, took: u64, lasted: u64) {
        let mut charged = took;
        if self.classes[class].has_preempted {
            self.classes[class].has_preempted = false;
            self.charge_instead(class, lasted.min(self.jump).saturating_sub(took));
        } else {
            charged -= self.classes[class].credit.min(took);
            self.classes[class].credit -= took - charged;
        }
        let one = &mut self.classes[class];
        let each = charged.max(1);
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
            one.finish = (one.finish + tag(charged, one.entitlement.weight)).saturating_sub(estimated);
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

/// How long a request takes at each of two rates, as far as there is one.
fn costs(rate: Rate, bytes: u64) -> [Option<u64>; 2] {
    let of = |amount: u64, rate: Option<NonZeroU64>| {
        rate.map(|rate| (amount * 1_000_000_000).div_ceil(rate.get()))
    };
    [of(bytes, rate.bytes), of(1, rate.requests)]
}
