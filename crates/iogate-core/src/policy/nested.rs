//! Classes within classes: the tree of a policy.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::arbiter::{Arbiter, Class, ClassId};
use super::order::part;
use super::{BRANCHES_MAX, Branch, DEPTH_MAX, Entitlement, Leaf, Policy, Rate, TreeError};
use crate::hash::HashMap;
use crate::request::AppId;
use crate::time::Time;

/// Applications that are placed, at most; those beyond are a class together, in each branch.
const PLACED_MAX: usize = 1 << 16;

/// What classes are within: nothing, or a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InnerId(u16);

impl InnerId {
    /// Nothing.
    pub(super) const NONE: InnerId = InnerId(0);

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A branch for those who look.
pub(crate) struct OfBranch<'a> {
    pub(crate) id: ClassId,
    pub(crate) app: AppId,
    /// What those within it are entitled to together.
    pub(crate) entitlement: &'a Entitlement,
    pub(crate) within: Option<AppId>,
    /// Requests that are completed, and their bytes.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

/// The queue of those that are within one branch, or within nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Inner {
    /// The start tag of the lot that was opened last.
    pub(super) virtual_time: u128,
    /// The largest tag that a completion has led to: the virtual time when nobody asks for anything any more.
    finish_max: u128,
    /// The branch.
    pub(super) class: ClassId,
    /// Requests of the branch that are completed, and their bytes.
    requests: u64,
    bytes: u64,
    /// What the branch is entitled to, and each application within it that is not named.
    entitlement: Entitlement,
    others: Entitlement,
    /// The class within it of all applications that there is no room to tell apart, or to remember the place of.
    many: ClassId,
}

impl Inner {
    /// What is within nothing.
    pub(super) fn around(others: Entitlement) -> Inner {
        Inner { others, ..Inner::default() }
    }

    /// A lot with this start tag is opened.
    pub(super) fn opened(&mut self, start: u128) {
        self.virtual_time = self.virtual_time.max(start);
    }

    /// A completion has led to this tag.
    pub(super) fn finished(&mut self, finish: u128) {
        self.finish_max = self.finish_max.max(finish);
    }

    /// Requests of the branch are completed.
    pub(super) fn served(&mut self, requests: u32, bytes: u64) {
        self.requests += u64::from(requests);
        self.bytes += bytes;
    }

    /// Nobody asks for anything any more.
    pub(super) fn catch_up(&mut self) {
        self.virtual_time = self.virtual_time.max(self.finish_max);
    }
}

impl Arbiter {
    /// All branches that the policy has.
    pub(super) fn open_branches(&mut self) {
        let branches: Vec<(AppId, Branch)> =
            self.policy.branches.iter().map(|(app, branch)| (*app, *branch)).collect();
        for (app, _) in &branches {
            self.open_branch(*app);
        }
        for (app, branch) in branches {
            let within = branch.within.map_or(InnerId::NONE, |within| self.inner_of(within));
            let id = self.of_app[&app];
            self.classes[id.index()].within = within;
        }
        if let Some(others) = self.policy.other_branches {
            self.open_branch(others.rest);
        }
    }

    /// A branch that is within nothing, unless there is no room for it.
    fn open_branch(&mut self, app: AppId) {
        let Some(Branch { entitlement, others, .. }) = self.policy.branch(app) else { return };
        let Some(id) = self.vacant(app) else { return };
        let Some(many) = self.vacant(app) else { return self.free.push(id) };
        let inner = InnerId(self.inners.len() as u16);
        self.inners.push(Inner { class: id, entitlement, others, many, ..Inner::default() });
        self.classes[id.index()].inner = inner;
        self.classes[many.index()].within = inner;
        self.entitle(id);
        self.entitle(many);
        self.of_app.insert(app, id);
        self.go_by_allotment(Time::ZERO, many);
    }

    fn inner_of(&self, branch: AppId) -> InnerId {
        self.of_app.get(&branch).map_or(InnerId::NONE, |id| self.classes[id.index()].inner)
    }

    /// What a class is entitled to.
    pub(super) fn entitlement(&self, id: ClassId) -> &Entitlement {
        let class = &self.classes[id.index()];
        match class.inner {
            InnerId::NONE => {
                let others = || &self.inners[class.within.index()].others;
                self.policy.apps.get(&class.app).unwrap_or_else(others)
            }
            inner => &self.inners[inner.index()].entitlement,
        }
    }

    /// Notes with a class what it is entitled to, as far as each request asks.
    pub(super) fn entitle(&mut self, id: ClassId) {
        let entitlement = self.entitlement(id);
        let weight = u16::try_from(entitlement.weight).unwrap_or(u16::MAX);
        let is_named = self.is_branch(id) || self.policy.apps.contains_key(&self.classes[id.index()].app);
        let is_limited = match is_named {
            true => self.policy.is_shared || entitlement.is_limited(),
            // Where it is may change, and what it asked for before goes on counting.
            false => self.are_others_limited,
        };
        let class = &mut self.classes[id.index()];
        (class.weight, class.is_limited) = (weight, is_limited);
    }

    /// The class of those within a branch, or within nothing, that are not told apart.
    pub(super) fn many_of(&self, inner: InnerId) -> ClassId {
        self.inners[inner.index()].many
    }

    /// What an application is within.
    pub(super) fn place_of(&self, app: AppId) -> InnerId {
        if self.inners.len() == 1 {
            return InnerId::NONE;
        }
        let branch = self.policy.within.get(&app);
        let placed = || self.placed.get(&app).filter(|_| !self.policy.apps.contains_key(&app));
        branch.or_else(placed).map_or(InnerId::NONE, |branch| self.inner_of(*branch))
    }

    /// The branch that is called so, or the one for all that there is no room for; `None`: the policy has none.
    fn branch_called(&mut self, app: AppId) -> Option<AppId> {
        if self.inner_of(app) != InnerId::NONE {
            return Some(app);
        }
        let others = self.policy.other_branches?;
        // The first one is no branch, and the rest is one more.
        if self.inners.len() < BRANCHES_MAX + 2 && !self.of_app.contains_key(&app) {
            self.open_branch(app);
        }
        Some(if self.inner_of(app) == InnerId::NONE { others.rest } else { app })
    }

    /// An application is within a branch, with all that it has in the gate; where there is no such branch, that is remembered for the
    /// policy that comes after this one. Returns what its requests are to have as their application: the branch, where there is no room to
    /// remember one more.
    pub(crate) fn place(&mut self, now: Time, app: AppId, branch: AppId) -> AppId {
        let is_named = self.policy.apps.contains_key(&app) || self.policy.within.contains_key(&app);
        let called = if is_named { None } else { self.branch_called(branch) };
        if self.placed.len() >= PLACED_MAX && !self.placed.contains_key(&app) {
            match called {
                None => return app,
                Some(called) if !self.forget_beside() => return called,
                Some(_) => {}
            }
        }
        self.has_beside |= called.is_none();
        self.placed.insert(app, called.unwrap_or(branch));
        let within = self.place_of(app);
        if let Some(id) = self.of_app.get(&app).copied().filter(|id| !self.is_branch(*id))
            && self.classes[id.index()].within != within
        {
            self.relocate(now, id, within);
        }
        app
    }

    /// Forgets who was placed in what is no branch of this policy. True if that makes room. O(placed).
    fn forget_beside(&mut self) -> bool {
        if core::mem::take(&mut self.has_beside) {
            let mut placed = core::mem::take(&mut self.placed);
            placed.retain(|_, branch| self.inner_of(*branch) != InnerId::NONE);
            self.placed = placed;
        }
        self.placed.len() < PLACED_MAX
    }

    /// Takes a class elsewhere, with its requests. What it has had where it was is nobody's business there.
    fn relocate(&mut self, now: Time, id: ClassId, within: InnerId) {
        let Class { waiting, admitted, .. } = self.classes[id.index()];
        if self.classes[id.index()].is_limited {
            self.limits[id.index()].count_capped(now);
        }
        self.put(id, None, None, None);
        let before = self.branch_of(id);
        let mut at = before;
        while let Some(of) = at {
            let branch = &mut self.classes[of.index()];
            let estimated = part(branch.outstanding, admitted, branch.admitted);
            branch.outstanding -= estimated;
            branch.finish = branch.finish.saturating_sub(estimated);
            branch.waiting -= waiting;
            branch.admitted -= admitted;
            if branch.is_idle() {
                branch.idle_since = now;
                self.inners[branch.inner.index()].catch_up();
            }
            at = self.branch_of(of);
        }
        if let Some(before) = before {
            self.rank(now, before);
        }
        let class = &mut self.classes[id.index()];
        (class.within, class.finish) = (within, 0);
        class.since = self.inners[within.index()].virtual_time;
        self.entitle(id);
        self.go_by_allotment(now, id);
        self.has_lack |= waiting > 0 && self.limits[id.index()].is_stopped;
        let mut at = self.branch_of(id);
        while let Some(of) = at {
            let branch = &mut self.classes[of.index()];
            if branch.waiting == 0 && waiting > 0 {
                branch.since = self.inners[branch.within.index()].virtual_time;
                self.limits[of.index()].floor.begin(now);
            }
            branch.waiting += waiting;
            branch.admitted += admitted;
            at = self.branch_of(of);
        }
        self.rank(now, id);
    }

    /// Where applications were placed that have something in the gate, for the policy that comes after this one.
    pub(crate) fn take_placed(&mut self) -> HashMap<AppId, AppId> {
        self.placed.retain(|app, _| self.of_app.contains_key(app));
        core::mem::take(&mut self.placed)
    }

    /// Takes over where applications were placed: what is called as before is the same branch.
    pub(crate) fn keep_placed(&mut self, mut placed: HashMap<AppId, AppId>) {
        for branch in placed.values_mut() {
            let called = self.branch_called(*branch);
            self.has_beside |= called.is_none();
            *branch = called.unwrap_or(*branch);
        }
        self.placed = placed;
    }

    /// The class that requests of an application are in, if it has one.
    pub(crate) fn class_of(&self, app: AppId) -> Option<ClassId> {
        match self.of_app.get(&app) {
            Some(id) if self.is_branch(*id) => Some(self.many_of(self.classes[id.index()].inner)),
            None if app == AppId::default() => Some(ClassId::default()),
            found => found.copied(),
        }
    }

    /// What an application is entitled to, and what it is within.
    pub(crate) fn entitled(&self, app: AppId) -> (&Entitlement, Option<AppId>) {
        let inner = match self.class_of(app) {
            Some(id) => self.classes[id.index()].within,
            None => self.place_of(app),
        };
        let others = &self.inners[inner.index()].others;
        let within = (inner != InnerId::NONE).then(|| self.inners[inner.index()].class);
        let within = within.map(|branch| self.classes[branch.index()].app);
        (self.policy.apps.get(&app).unwrap_or(others), within)
    }

    /// All branches.
    pub(crate) fn branches(&self) -> impl Iterator<Item = OfBranch<'_>> {
        self.inners[1..].iter().map(|inner| OfBranch {
            id: inner.class,
            app: self.classes[inner.class.index()].app,
            entitlement: &inner.entitlement,
            within: self.branch_of(inner.class).map(|branch| self.classes[branch.index()].app),
            requests: inner.requests,
            bytes: inner.bytes,
        })
    }

    /// The branch that a class is within.
    pub(super) fn branch_of(&self, id: ClassId) -> Option<ClassId> {
        match self.classes[id.index()].within {
            InnerId::NONE => None,
            within => Some(self.inners[within.index()].class),
        }
    }

    pub(crate) fn is_branch(&self, id: ClassId) -> bool {
        self.classes[id.index()].inner != InnerId::NONE
    }

    /// From when on the next request of a class may go, as far as its cap and those of what it is within are concerned.
    pub(super) fn all_conform_at(&self, id: ClassId) -> Time {
        let class = &self.classes[id.index()];
        let own = if class.is_limited { self.limits[id.index()].conforms_at() } else { Time::ZERO };
        self.branch_of(id).map_or(own, |branch| own.max(self.all_conform_at(branch)))
    }

    /// The same of an application's next request, whether it has a class yet or not.
    pub(crate) fn may_go_at(&self, app: AppId) -> Time {
        let within = self.place_of(app);
        let many = || (!self.has_room()).then(|| self.many_of(within));
        if let Some(id) = self.class_of(app).or_else(many) {
            return self.all_conform_at(id);
        }
        let around = (within != InnerId::NONE).then(|| self.inners[within.index()].class);
        let leaf = Leaf { app, within: around.map(|branch| self.classes[branch.index()].app) };
        if self.allotment(leaf) == Some(0) {
            return Time::MAX;
        }
        around.map_or(Time::ZERO, |branch| self.all_conform_at(branch))
    }

    /// Whether a class waits for its cap, or for that of what it is within.
    pub(crate) fn is_held_back(&self, id: ClassId) -> bool {
        let is_or_branch = |id: ClassId| {
            self.limits[id.index()].capped.is_some()
                || self.branch_of(id).is_some_and(|branch| self.is_held_back(branch))
        };
        !self.capped.is_empty() && is_or_branch(id)
    }

    /// Applications that have come to wait for the cap of a branch since this was asked last, or wait for none any more.
    pub(crate) fn take_toggled(&mut self, mut each: impl FnMut(AppId, bool)) {
        let mut branches = core::mem::take(&mut self.toggled);
        while let Some(branch) = branches.pop() {
            let inner = self.classes[branch.index()].inner;
            for id in self.ready.all(inner.index()).map(ClassId) {
                match self.is_branch(id) {
                    true => branches.push(id),
                    false => each(self.classes[id.index()].app, self.is_held_back(id)),
                }
            }
        }
    }

    /// Nobody asks for those.
    pub(crate) fn forget_toggled(&mut self) {
        self.toggled.clear();
    }
}

impl Policy {
    /// Checks that branches are a tree, and promise no more than they have.
    ///
    /// # Errors
    /// Names what is wrong first.
    pub fn check_tree(&self) -> Result<(), TreeError> {
        if self.branches.len() > BRANCHES_MAX {
            return Err(TreeError::TooMany(self.branches.len()));
        }
        let branches = self.branches.iter().filter_map(|(app, branch)| Some((*app, branch.within?)));
        for (app, within) in branches.chain(self.within.iter().map(|(app, within)| (*app, *within))) {
            let (mut at, mut depth) = (within, 1);
            loop {
                let branch = self.branches.get(&at).ok_or(TreeError::UnknownParent(app, at))?;
                let Some(next) = branch.within else { break };
                (at, depth) = (next, depth + 1);
                if depth > DEPTH_MAX {
                    return Err(TreeError::TooDeep(app));
                }
            }
        }
        for (app, branch) in &self.branches {
            for (name, rate) in
                [("min", Rate::bytes_of as fn(&Rate) -> _), ("min_requests", Rate::requests_of)]
            {
                let Some(own) = rate(&branch.entitlement.min).or(rate(&branch.entitlement.max)) else {
                    continue;
                };
                let sum = self.floors_within(*app, rate);
                if sum > own.get() {
                    return Err(TreeError::FloorsAbove(*app, name, sum, own.get()));
                }
            }
        }
        Ok(())
    }

    /// What the floors of those within a branch are together: those that are named, and, as there may be one, one that is not.
    fn floors_within(&self, branch: AppId, rate: fn(&Rate) -> Option<NonZeroU64>) -> u64 {
        let branches = self.branches.values().filter(|one| one.within == Some(branch));
        let apps = self.within.iter().filter(|(_, within)| **within == branch);
        let others = self.branches.get(&branch).map(|branch| branch.others);
        let named = apps.map(|(app, _)| self.apps.get(app).copied().or(others).unwrap_or_default());
        let floors = branches.map(|one| one.entitlement).chain(named).chain(others).map(|one| one.min);
        floors.filter_map(|min| rate(&min)).fold(0, |sum, min| sum.saturating_add(min.get()))
    }
}

impl Rate {
    fn bytes_of(&self) -> Option<NonZeroU64> {
        self.bytes
    }

    fn requests_of(&self) -> Option<NonZeroU64> {
        self.requests
    }
}
