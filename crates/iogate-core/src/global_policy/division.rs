//! How caps of branches, and a total, are divided among what is within them: from the outside in, by weights and floors.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::fill::{Level, Want};
use crate::hash::HashMap;
use crate::policy::{Leaf, Policy};
use crate::request::AppId;

/// One division.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// By branch; `None`: all that there is.
    pools: HashMap<Option<AppId>, Pool>,
}

/// What those within one branch have together.
#[derive(Debug, Default)]
struct Pool {
    wants: Vec<Want>,
    /// What it is divided to, and what each gets beyond its demand.
    level: Option<Level>,
    spare: u64,
}

impl Pool {
    /// Divides what there is. What nobody asks for is spread, and one share of that is left for who comes.
    fn divide(&mut self, budget: u64) {
        let level = Level::of(budget, &self.wants);
        let asked = self.wants.iter().fold(0u64, |sum, want| sum.saturating_add(want.demand));
        let parts = self.wants.len() as u64 + 1;
        self.spare = if level.is_full() { budget.saturating_sub(asked) / parts } else { 0 };
        self.level = Some(level);
    }

    fn of(&self, want: &Want) -> u64 {
        self.level.map_or(0, |level| level.of_want(want).saturating_add(self.spare))
    }
}

impl Division {
    /// Divides what is `usable` of each cap among those that want something. O(n log total) for n of them.
    pub(super) fn of(
        policy: &Policy,
        usable: impl Fn(u64) -> u64,
        wants: impl IntoIterator<Item = (Leaf, Want)>,
    ) -> Division {
        let mut pools = HashMap::<Option<AppId>, Pool>::default();
        for (leaf, want) in wants {
            for branch in policy.branches_around(leaf.within) {
                pools.entry(Some(branch)).or_default();
            }
            pools.entry(leaf.within).or_default().wants.push(want);
        }
        let most = |around| policy.cap_around(around).map_or(u64::MAX, |cap| usable(cap.get()));
        // What is deepest wants first, and is given last.
        let mut order: Vec<(usize, AppId)> =
            pools.keys().filter_map(|key| Some((policy.branches_around(*key).count(), (*key)?))).collect();
        order.sort_unstable_by_key(|(depth, app)| (Reverse(*depth), *app));
        let mut wanted = Vec::with_capacity(order.len());
        for &(_, branch) in &order {
            let most = most(Some(branch));
            let want = policy.want_of_branch(branch, most, &pools[&Some(branch)].wants);
            let within = policy.branches_around(Some(branch)).nth(1);
            pools.entry(within).or_default().wants.push(want);
            wanted.push((branch, within, most, want));
        }
        if let Some(all) = pools.get_mut(&None) {
            all.divide(most(None));
        }
        for (branch, within, most, want) in wanted.into_iter().rev() {
            let budget = pools.get(&within).map_or(0, |around| around.of(&want)).min(most);
            if let Some(pool) = pools.get_mut(&Some(branch)) {
                pool.divide(budget);
            }
        }
        Division { pools }
    }

    /// What a class with this demand may have of all that it is within; nothing, where nobody was when it was divided.
    pub(super) fn share(&self, leaf: Leaf, want: &Want) -> u64 {
        self.pools.get(&leaf.within).map_or(0, |pool| pool.of(want))
    }
}

impl Policy {
    /// What a branch asks of what it is within, if those within it want this and it may have so much at `most`. It is promised what they
    /// are, and its own floor to whoever of them asks.
    fn want_of_branch(&self, branch: AppId, most: u64, within: &[Want]) -> Want {
        let entitlement = self.branch(branch).unwrap_or_default().entitlement;
        let sum = |of: fn(&Want) -> u64| within.iter().fold(0u64, |sum, want| sum.saturating_add(of(want)));
        let floors = sum(|want| want.floor.min(want.demand));
        let floor = entitlement.min.bytes.map_or(0, |min| min.get()).max(floors);
        Want { weight: entitlement.weight, floor, demand: sum(|want| want.demand).min(most) }
    }
}
