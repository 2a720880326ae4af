//! Classes within classes: the tree of a policy, and the way down to who is next.

use alloc::collections::BTreeSet;
use core::num::NonZeroU64;

use super::arbiter::{Arbiter, ClassId};
use super::{BRANCHES_MAX, DEPTH_MAX, Policy, Rate, TreeError};
use crate::hash::HashMap;
use crate::request::AppId;
use crate::time::Time;

/// Applications that are placed, at most; those beyond are within nothing, until others have gone.
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

/// The queue of those that are within one branch, or within nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Inner {
    /// The start tag of the lot that was opened last.
    pub(super) virtual_time: u128,
    /// The largest tag that a completion has led to: the virtual time when nobody asks for anything any more.
    finish_max: u128,
    /// The branch.
    class: ClassId,
}

impl Inner {
    /// A lot with this start tag is opened.
    pub(super) fn opened(&mut self, start: u128) {
        self.virtual_time = self.virtual_time.max(start);
    }

    /// A completion has led to this tag.
    pub(super) fn finished(&mut self, finish: u128) {
        self.finish_max = self.finish_max.max(finish);
    }

    /// Nobody asks for anything any more.
    pub(super) fn catch_up(&mut self) {
        self.virtual_time = self.virtual_time.max(self.finish_max);
    }
}

/// The first of those that are within a branch.
pub(super) fn first_within<K: Copy + Ord + Default>(
    list: &BTreeSet<(InnerId, K, ClassId)>,
    inner: InnerId,
) -> Option<(K, ClassId)> {
    let from = (inner, K::default(), ClassId::default());
    let (of, key, id) = list.range(from..).next()?;
    (*of == inner).then_some((*key, *id))
}

/// The first of those that are within nothing.
pub(super) fn first<K: Copy>(list: &BTreeSet<(InnerId, K, ClassId)>) -> Option<(K, ClassId)>
where
    (InnerId, K, ClassId): Ord,
{
    let (of, key, id) = list.first()?;
    (*of == InnerId::NONE).then_some((*key, *id))
}

impl Arbiter {
    /// All branches that the policy has.
    pub(super) fn open_branches(&mut self) {
        let apps: alloc::vec::Vec<AppId> = self.policy.branches.keys().copied().collect();
        for app in &apps {
            let id = self.add(*app);
            let inner = InnerId(self.inners.len() as u16);
            self.inners.push(Inner { class: id, ..Inner::default() });
            self.classes[id.index()].inner = inner;
        }
        for app in apps {
            let within = self.policy.branches.get(&app).and_then(|branch| branch.within);
            let within = within.map_or(InnerId::NONE, |within| self.inner_of(within));
            let id = self.of_app[&app];
            self.classes[id.index()].within = within;
        }
    }

    fn inner_of(&self, branch: AppId) -> InnerId {
        self.of_app.get(&branch).map_or(InnerId::NONE, |id| self.classes[id.index()].inner)
    }

    /// What an application is within.
    pub(super) fn place_of(&self, app: AppId) -> InnerId {
        if self.policy.branches.is_empty() {
            return InnerId::NONE;
        }
        let branch = self.policy.within.get(&app).or_else(|| self.placed.get(&app));
        branch.map_or(InnerId::NONE, |branch| self.inner_of(*branch))
    }

    /// An application is within a branch, from when on it has nothing in the gate.
    pub(crate) fn place(&mut self, app: AppId, branch: AppId) {
        if self.placed.len() >= PLACED_MAX && !self.placed.contains_key(&app) {
            let of_app = &self.of_app;
            self.placed.retain(|app, _| of_app.contains_key(app));
            if self.placed.len() >= PLACED_MAX {
                return;
            }
        }
        self.placed.insert(app, branch);
        let within = self.place_of(app);
        if let Some(id) = self.of_app.get(&app).copied().filter(|id| !self.is_branch(*id)) {
            let class = &mut self.classes[id.index()];
            if class.is_idle() && class.within != within {
                // What it has had elsewhere is nobody's business here.
                (class.within, class.finish) = (within, 0);
            }
        }
    }

    /// Where applications were placed, for the policy that comes after this one.
    pub(crate) fn take_placed(&mut self) -> HashMap<AppId, AppId> {
        core::mem::take(&mut self.placed)
    }

    /// Takes over where applications were placed: what is called as before is the same branch.
    pub(crate) fn keep_placed(&mut self, placed: HashMap<AppId, AppId>) {
        self.placed = placed;
    }

    /// The branch that a class is within.
    pub(super) fn branch_of(&self, id: ClassId) -> Option<ClassId> {
        match self.classes[id.index()].within {
            InnerId::NONE => None,
            within => Some(self.inners[within.index()].class),
        }
    }

    /// By its number as an application.
    pub(crate) fn branch_of_app(&self, app: AppId) -> Option<AppId> {
        let id = self.of_app.get(&app).copied().unwrap_or_default();
        self.branch_of(id).map(|branch| self.classes[branch.index()].app)
    }

    /// What a class is within has been charged: others there may wait.
    pub(super) fn rank_branches(&mut self, now: Time, id: ClassId) {
        if let Some(branch) = self.branch_of(id) {
            self.rank(now, branch);
        }
    }

    pub(super) fn is_branch(&self, id: ClassId) -> bool {
        self.classes[id.index()].inner != InnerId::NONE
    }

    /// Whether somebody waits who may have a lot.
    pub(super) fn is_asked(&self) -> bool {
        first(&self.ready).is_some()
    }

    /// Whether the next request of a class may go now, as far as caps are concerned.
    pub(super) fn conform(&self, now: Time, id: ClassId) -> bool {
        self.classes[id.index()].conforms_at() <= now
            && self.branch_of(id).is_none_or(|branch| self.conform(now, branch))
    }

    /// Whether a class waits for its cap, or for that of what it is within.
    pub(super) fn is_held_back(&self, id: ClassId) -> bool {
        self.classes[id.index()].capped.is_some()
            || self.branch_of(id).is_some_and(|branch| self.is_held_back(branch))
    }

    /// Who is next: whose floor is due by then, at each level as far as one is, else who has the least tag. There must be somebody.
    pub(super) fn descend(&self, due_by: Option<Time>) -> ClassId {
        let (mut inner, mut due_by) = (InnerId::NONE, due_by);
        loop {
            let due = due_by.and_then(|by| first_within(&self.due, inner).filter(|(at, _)| *at <= by));
            due_by = due_by.filter(|_| due.is_some());
            let next = due.map(|(_, id)| id).or_else(|| first_within(&self.ready, inner).map(|(_, id)| id));
            // A branch that is ready has somebody within it who is.
            let Some(id) = next else { return ClassId::default() };
            if !self.is_branch(id) {
                return id;
            }
            inner = self.classes[id.index()].inner;
        }
    }

    /// Applications that have come to wait for the cap of a branch since this was asked last, or wait for none any more.
    pub(crate) fn take_toggled(&mut self, mut each: impl FnMut(AppId, bool)) {
        let mut branches = core::mem::take(&mut self.toggled);
        while let Some(branch) = branches.pop() {
            let inner = self.classes[branch.index()].inner;
            let from = (inner, 0, ClassId::default());
            for (_, _, id) in self.ready.range(from..).take_while(|(of, ..)| *of == inner) {
                match self.is_branch(*id) {
                    true => branches.push(*id),
                    false => each(self.classes[id.index()].app, self.is_held_back(*id)),
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
    /// Whether branches are a tree, and promise no more than they have.
    pub(super) fn check_tree(&self) -> Result<(), TreeError> {
        if self.branches.len() > BRANCHES_MAX {
            return Err(TreeError::TooMany(self.branches.len()));
        }
        if self.is_shared && !self.branches.is_empty() {
            return Err(TreeError::Shared);
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

    /// What the floors of those that are named within a branch are together.
    fn floors_within(&self, branch: AppId, rate: fn(&Rate) -> Option<NonZeroU64>) -> u64 {
        let branches = self.branches.values().filter(|one| one.within == Some(branch));
        let apps = self.within.iter().filter(|(_, within)| **within == branch);
        let floors = branches.map(|one| one.entitlement.min).chain(apps.map(|(app, _)| self.of(*app).min));
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
