//! How caps of branches, and a total, are divided among what is within them: from the outside in, by weights and floors.
//!
//! What is around classes is a *pool*, known by a number. A division tells each pool anew what is wanted of it, and works out anew only
//! what differs from the last time: in lists that stay where they are.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::num::NonZeroU64;

use super::fill::{Level, Want};
use crate::hash::HashMap;
use crate::policy::{DEPTH_MAX, Policy};
use crate::request::AppId;

/// Numbers a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(u32);

impl PoolId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Pools, and how they were divided.
#[derive(Debug, Default)]
pub(super) struct Division {
    pools: Vec<Pool>,
    vacant: Vec<PoolId>,
    /// By branch; `None`: all that there is.
    numbers: HashMap<Option<AppId>, PoolId>,
    /// Those of branches, the deepest first, if nobody has come or gone since it was sorted.
    order: Vec<PoolId>,
    is_sorted: bool,
}

/// What those within one branch have together.
#[derive(Debug)]
struct Pool {
    branch: Option<AppId>,
    /// What it is within; nothing of all that there is.
    around: Option<PoolId>,
    depth: usize,
    cap: Option<u64>,
    /// What it asks of what it is within, if it may have as much as there is of its cap, which is `most`.
    want: Want,
    own_floor: u64,
    most: u64,
    /// Classes within it, and within what is within it.
    classes: usize,
    /// What all gates may hold of them together.
    committed: u128,
    /// What is wanted of it by what is directly within it; how many of those have been told of in this division, and whether one differs.
    wants: Vec<Want>,
    told: usize,
    is_changed: bool,
    /// Their demands and their floors together.
    asked: u64,
    floors: u64,
    /// What it was divided to, of how much, and what each gets beyond its demand.
    level: Option<Level>,
    budget: u64,
    spare: u64,
}

impl Pool {
    fn new(policy: &Policy, branch: Option<AppId>, around: Option<PoolId>, depth: usize) -> Pool {
        let entitlement = branch.and_then(|branch| policy.branch(branch)).unwrap_or_default().entitlement;
        Pool {
            branch,
            around,
            depth,
            cap: policy.cap_around(branch).map(NonZeroU64::get),
            want: Want { weight: entitlement.weight, floor: 0, demand: 0 },
            own_floor: entitlement.min.bytes.map_or(0, NonZeroU64::get),
            most: 0,
            classes: 0,
            committed: 0,
            wants: Vec::new(),
            told: 0,
            is_changed: true,
            asked: 0,
            floors: 0,
            level: None,
            budget: 0,
            spare: 0,
        }
    }

    fn tell(&mut self, want: Want) {
        match self.wants.get_mut(self.told) {
            Some(before) if *before == want => {}
            Some(before) => (*before, self.is_changed) = (want, true),
            None => {
                self.wants.push(want);
                self.is_changed = true;
            }
        }
        self.told += 1;
    }

    /// All have been told of. It is promised what those within it are, and its own floor to whoever of them asks.
    fn sum_up(&mut self, most: u64) {
        self.is_changed |= self.told < self.wants.len();
        self.wants.truncate(self.told);
        if self.is_changed {
            let sum =
                |of: fn(&Want) -> u64| self.wants.iter().fold(0u64, |sum, want| sum.saturating_add(of(want)));
            (self.asked, self.floors) = (sum(|want| want.demand), sum(|want| want.floor.min(want.demand)));
        }
        self.most = most;
        self.want.floor = self.own_floor.max(self.floors);
        self.want.demand = self.asked.min(most);
    }

    /// Divides what there is. What nobody asks for is spread, and one share of that is left for who comes.
    fn divide(&mut self, budget: u64) {
        if !self.is_changed && self.level.is_some() && self.budget == budget {
            return;
        }
        let level = Level::of(budget, &self.wants);
        let parts = self.wants.len() as u64 + 1;
        self.spare = if level.is_full() { budget.saturating_sub(self.asked) / parts } else { 0 };
        (self.level, self.budget) = (Some(level), budget);
    }

    fn of(&self, want: &Want) -> u64 {
        self.level.map_or(0, |level| level.of_want(want).saturating_add(self.spare))
    }
}

impl Division {
    /// A class is within this branch, or within nothing. Returns the pool around it, and whether one of those around it is new.
    pub(super) fn enter(&mut self, policy: &Policy, within: Option<AppId>) -> (PoolId, bool) {
        let (mut branches, mut depth) = ([AppId::default(); DEPTH_MAX], 0);
        for (place, branch) in branches.iter_mut().zip(policy.branches_around(within)) {
            *place = branch;
            depth += 1;
        }
        let known = self.numbers.len();
        let mut id = self.pool(policy, None, None, 0);
        for (at, branch) in branches[..depth].iter().rev().enumerate() {
            id = self.pool(policy, Some(*branch), Some(id), at + 1);
        }
        let is_new = self.numbers.len() > known;
        self.is_sorted &= !is_new;
        (id, is_new)
    }

    /// A pool with one class more.
    fn pool(
        &mut self,
        policy: &Policy,
        branch: Option<AppId>,
        around: Option<PoolId>,
        depth: usize,
    ) -> PoolId {
        let id = self.numbers.get(&branch).copied().unwrap_or_else(|| {
            let pool = Pool::new(policy, branch, around, depth);
            let id = match self.vacant.pop() {
                Some(id) => {
                    self.pools[id.index()] = pool;
                    id
                }
                None => {
                    self.pools.push(pool);
                    PoolId(self.pools.len() as u32 - 1)
                }
            };
            self.numbers.insert(branch, id);
            id
        });
        self.pools[id.index()].classes += 1;
        id
    }

    /// What is deepest wants first, and is given last.
    fn sort(&mut self) {
        let Division { pools, numbers, order, is_sorted, .. } = self;
        *is_sorted = true;
        order.clear();
        order.extend(numbers.iter().filter(|(branch, _)| branch.is_some()).map(|(_, id)| *id));
        order.sort_unstable_by_key(|id| (Reverse(pools[id.index()].depth), pools[id.index()].branch));
    }

    /// A class within this is no more.
    pub(super) fn leave(&mut self, id: PoolId) {
        let (mut at, known) = (Some(id), self.numbers.len());
        while let Some(id) = at {
            let pool = &mut self.pools[id.index()];
            at = pool.around;
            pool.classes -= 1;
            if pool.classes == 0 {
                self.numbers.remove(&pool.branch);
                self.vacant.push(id);
            }
        }
        self.is_sorted &= self.numbers.len() == known;
    }

    /// Gates may hold another sum of a class within this than before.
    pub(super) fn commit(&mut self, within: Option<PoolId>, before: u128, after: u128) {
        let mut at = within.filter(|_| before != after);
        while let Some(id) = at {
            let pool = &mut self.pools[id.index()];
            pool.committed = pool.committed - before + after;
            at = pool.around;
        }
    }

    /// How much nobody holds of what is `usable` of the caps around a class.
    pub(super) fn free(&self, within: Option<PoolId>, usable: impl Fn(u64) -> u64) -> u64 {
        let pools = core::iter::successors(within, |id| self.pools[id.index()].around)
            .map(|id| &self.pools[id.index()]);
        let left = |pool: &Pool| {
            let committed = u64::try_from(pool.committed).unwrap_or(u64::MAX);
            Some(usable(pool.cap?).saturating_sub(committed))
        };
        pools.filter_map(left).min().unwrap_or(u64::MAX)
    }

    /// All pools are divided anew: each class is to [want](Division::want) something of what is around it.
    pub(super) fn begin(&mut self) {
        self.pools.iter_mut().for_each(|pool| (pool.told, pool.is_changed) = (0, false));
    }

    pub(super) fn want(&mut self, of: PoolId, want: Want) {
        self.pools[of.index()].tell(want);
    }

    /// Divides what is `usable` of each cap among those that want something. O(n), and O(n log n) where something has changed.
    pub(super) fn finish(&mut self, usable: impl Fn(u64) -> u64) {
        if !self.is_sorted {
            self.sort();
        }
        let most = |pool: &Pool| pool.cap.map_or(u64::MAX, &usable);
        for at in 0..self.order.len() {
            let pool = &mut self.pools[self.order[at].index()];
            pool.sum_up(most(pool));
            let (want, around) = (pool.want, pool.around);
            if let Some(around) = around {
                self.pools[around.index()].tell(want);
            }
        }
        if let Some(all) = self.numbers.get(&None) {
            let all = &mut self.pools[all.index()];
            all.sum_up(most(all));
            all.divide(all.most);
        }
        for at in (0..self.order.len()).rev() {
            let Pool { around, want, most, .. } = self.pools[self.order[at].index()];
            let budget = around.map_or(0, |around| self.pools[around.index()].of(&want)).min(most);
            self.pools[self.order[at].index()].divide(budget);
        }
    }

    /// What a class with this demand may have of all that it is within; nothing, where it has not been divided since somebody came.
    pub(super) fn share(&self, within: PoolId, want: &Want) -> u64 {
        self.pools[within.index()].of(want)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Branch, Entitlement, OtherBranches, Rate};

    fn entitled(weight: u32, min: u64, max: u64) -> Entitlement {
        let rate = |bytes: u64| Rate { bytes: bytes.try_into().ok(), requests: None };
        Entitlement { weight, min: rate(min), max: rate(max) }
    }

    /// A branch within another one, one beside them, and two that are not named.
    const WITHIN: [Option<AppId>; 6] =
        [None, Some(AppId(1)), Some(AppId(2)), Some(AppId(3)), Some(AppId(4)), Some(AppId(5))];

    fn policy(total: u64) -> Policy {
        let branch = |entitlement, within| Branch { entitlement, within, ..Branch::default() };
        let outer = branch(entitled(2, 400, 5_000), None);
        let inner = branch(entitled(3, 0, 2_000), Some(AppId(1)));
        let beside = branch(entitled(1, 100, 0), None);
        let others = OtherBranches { entitlement: entitled(1, 0, 900), rest: AppId(9) };
        Policy {
            total: total.try_into().ok(),
            branches: [(AppId(1), outer), (AppId(2), inner), (AppId(3), beside)].into(),
            other_branches: Some(others),
            ..Policy::default()
        }
    }

    fn divide(division: &mut Division, wants: &[(PoolId, Want)], kept: u64) {
        division.begin();
        wants.iter().for_each(|(pool, want)| division.want(*pool, *want));
        division.finish(|cap| cap.saturating_sub(cap * kept / 16));
    }

    proptest! {
        /// Whoever came, went and wanted something else before: what each gets is what it gets of a division that was never divided.
        #[test]
        fn a_division_that_has_been_used_is_as_a_new_one(
            total in prop_oneof![1 => Just(0), 3 => 0u64..8_000],
            rounds in prop::collection::vec(
                (prop::collection::vec((0usize..12, 0u64..3_000, any::<bool>()), 0..4), prop_oneof![3 => Just(0), 1 => 0u64..=16]),
                1..40,
            ),
        ) {
            let policy = policy(total);
            let mut used = Division::default();
            let mut here: Vec<Option<(PoolId, Want)>> = [None; 12].into();
            for (changes, kept) in rounds {
                for (class, demand, stays) in changes {
                    if let Some((pool, _)) = here[class].filter(|_| !stays) {
                        used.leave(pool);
                        here[class] = None;
                        continue;
                    }
                    let pool = here[class].map_or_else(|| used.enter(&policy, WITHIN[class % 6]).0, |(pool, _)| pool);
                    let want = Want { weight: 1 + class as u32 % 3, floor: 100 * (class as u64 % 2), demand };
                    here[class] = Some((pool, want));
                }
                let wants: Vec<(PoolId, Want)> = here.iter().flatten().copied().collect();
                divide(&mut used, &wants, kept);
                let mut new = Division::default();
                let classes = here.iter().enumerate().filter_map(|(class, here)| Some((class, (*here)?.1)));
                let anew: Vec<(PoolId, Want)> =
                    classes.map(|(class, want)| (new.enter(&policy, WITHIN[class % 6]).0, want)).collect();
                divide(&mut new, &anew, kept);
                for ((pool, want), (of_new, _)) in wants.into_iter().zip(anew) {
                    for demand in [want.demand, 700] {
                        let want = Want { demand, ..want };
                        prop_assert_eq!(used.share(pool, &want), new.share(of_new, &want));
                    }
                }
            }
        }
    }
}
