//! Who is entitled to how much of what a gate serves: weights, floors and caps.
//!
//! A [`Policy`] stands above the scheduler. A request that may run, and whose application's turn has not come, is *deferred*: it waits in
//! the gate, and the scheduler does not see it. So all schedulers, their runs and their waits stay as they are. What conflicts comes
//! before the policy: a request that one of another application waits for, or one that waits for that, is admitted at once, and its
//! application is in debt for it. One that only its own application's wait for waits like any other, and so does one that is only waited
//! for by those who would have to wait for a cap of theirs themselves, until that is over: else two that wait for each other's requests
//! in turn would have no caps.
//!
//! - *Weights*: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over *lots*. A lot is a budget of device time. The
//!   application with the least start tag gets one, and its requests are admitted until it is spent; then its next start tag is larger by
//!   what its dispatches took, divided by its weight. Two that always have requests thus differ by no more than a lot and a dispatch each.
//!   Who has the lot and nothing that waits, but has not been away for long, keeps it for as long as it would have the next one, too: a
//!   slot that it leaves free is *lent* to whoever has the least tag of the others, for one dispatch. What is lent is owed to it, up to
//!   four lots. Where a device has an arm, slots are kept free for who is back before going elsewhere were worth it, and that is its time.
//! - *Charges* are measured: while m dispatches are in service, each is charged the m-th part of the time, so that all charges
//!   together are the time in which the gate was busy. A dispatch of several applications is shared by bytes.
//! - *Floors* (after mClock: Gulati, Merchant and Varman, OSDI 2010): a request is due when the floor says that the next one should have
//!   been admitted, and is then admitted before all lots. What a floor has missed is made up for, up to 100 ms of it or a lot.
//! - *Caps*: a bucket that holds 5 ms of the rate or one request, whichever is more.
//! - *Bytes and requests* have a bucket each. A request is within a cap when both say so, and due by a floor when one of them does: each
//!   rate is promised. What a cap's one rate leaves unused because of the other is kept, up to 100 ms of it. A request that is due counts
//!   for both rates of a floor, so that all that goes by it is no more than is promised.
//! - *Branches*: classes with others within them, up to [`DEPTH_MAX`] deep. All of the above holds at each level: a lot goes to the child
//!   with the least tag of the branch with the least tag, and what it took is charged to each of them; a cap of a branch is over what
//!   is within it together; a floor of a branch is for whoever within it is next (hierarchical start-time fair queueing: Goyal, Guo and
//!   Vin, OSDI 1996).

mod allotments;
mod arbiter;
mod bucket;
mod limits;
mod lots;
mod nested;
mod order;
mod paths;
mod preempt;
mod ready;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use core::num::NonZeroU64;

pub(crate) use self::arbiter::{Arbiter, ClassId, Next, Served, Standing};
pub(crate) use self::lots::Work;
pub use self::paths::{Overlap, PathClasses};
use crate::request::AppId;
use crate::sched::ConfigError;
use crate::time::Span;

/// The largest weight.
pub const WEIGHT_MAX: u32 = 10_000;
/// Most branches that an application may be within.
pub const DEPTH_MAX: usize = 8;
/// Most branches of a policy.
pub const BRANCHES_MAX: usize = 1024;

/// Who may use how much of a gate: each application is a class of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Applications that are named.
    pub apps: BTreeMap<AppId, Entitlement>,
    /// Every other one.
    pub others: Entitlement,
    /// Classes with others within them, by numbers that no application has; none in a flat policy.
    pub branches: BTreeMap<AppId, Branch>,
    /// Branches that are not named, each of which is there once an application is placed in it; `None`: who is placed in what is not
    /// named is within nothing.
    pub other_branches: Option<OtherBranches>,
    /// In which branches applications are that are named; those that are not here are within nothing. Applications without a name are in
    /// the branches that they are [placed](crate::Gate::place) in, or in none.
    pub within: BTreeMap<AppId, AppId>,
    /// Where classes are files: which of them have which application. A gate does not look at it: who submits requests does.
    pub paths: PathClasses,
    /// How much device time an application gets at once. `None`: 20 times what the device charges for a jump, where the gate knows
    /// that it charges something, so that at most a twentieth is lost by going from one to the next; else 2 ms.
    pub lot: Option<Span>,
    /// Caps in bytes are those of many gates together: an application has of its own, and of those of its branches, what it is
    /// [allotted](crate::Gate::allot) here, and nothing before it is.
    pub is_shared: bool,
    /// Of such a policy: what all applications at all gates may have together, in bytes a second.
    pub total: Option<NonZeroU64>,
}

/// What an application is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Its share beside others that want more than there is, from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// It gets at least this, as far as it asks for it.
    pub min: Rate,
    /// It gets at most this.
    pub max: Rate,
}

/// A class with others within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// What those within it are entitled to together.
    pub entitlement: Entitlement,
    /// What each application within it is entitled to that is not named.
    pub others: Entitlement,
    /// The branch that it is within, if it is in one.
    pub within: Option<AppId>,
}

/// A class with none within it: an application, where it is. One that is in another branch elsewhere is another class there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leaf {
    /// The application; in a branch of this very number: all those that are not told apart there.
    pub app: AppId,
    /// The branch that it is within, if it is in one.
    pub within: Option<AppId>,
}

impl From<AppId> for Leaf {
    /// An application that is within nothing.
    fn from(app: AppId) -> Leaf {
        Leaf { app, within: None }
    }
}

/// Branches that are not named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherBranches {
    /// What each of them is entitled to.
    pub entitlement: Entitlement,
    /// The number of one more, which those share that would be more than [`BRANCHES_MAX`].
    pub rest: AppId,
}

/// Why a tree of classes is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// It is within what is no branch.
    #[error("class {0} is within {1}, and there is no branch {1}")]
    UnknownParent(AppId, AppId),
    /// It is within itself, or too deep.
    #[error("class {0} is within itself, or within more than {DEPTH_MAX} classes")]
    TooDeep(AppId),
    /// Those within it are promised more than it has.
    #[error("class {0}: the {1} of those within it are {2} together, above its own {3}")]
    FloorsAbove(AppId, &'static str, u64, u64),
    /// There are too many.
    #[error("{0} classes with others within them, expected at most {BRANCHES_MAX}")]
    TooMany(usize),
}

impl Entitlement {
    /// Whether it is a cap or a floor, too.
    fn is_limited(&self) -> bool {
        !self.min.is_none() || !self.max.is_none()
    }
}

impl Default for Entitlement {
    fn default() -> Entitlement {
        Entitlement { weight: 1, min: Rate::default(), max: Rate::default() }
    }
}

/// A rate; by default none is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second.
    pub bytes: Option<NonZeroU64>,
    /// Requests a second.
    pub requests: Option<NonZeroU64>,
}

impl Policy {
    /// What a leaf is entitled to; of the number of a branch that is named, within nothing: what that is.
    pub fn of(&self, class: impl Into<Leaf>) -> Entitlement {
        let Leaf { app, within } = class.into();
        let others = || match within {
            Some(branch) => self.branch(branch).unwrap_or_default().others,
            None => self.branches.get(&app).map_or(self.others, |branch| branch.entitlement),
        };
        self.apps.get(&app).copied().unwrap_or_else(others)
    }

    /// Whether there are classes with others within them.
    pub fn is_nested(&self) -> bool {
        !self.branches.is_empty() || self.other_branches.is_some()
    }

    /// The branch of this number, named or not; `None`: there is none.
    pub fn branch(&self, app: AppId) -> Option<Branch> {
        let unnamed = |others: OtherBranches| Branch { entitlement: others.entitlement, ..Branch::default() };
        self.branches.get(&app).copied().or_else(|| self.other_branches.map(unnamed))
    }

    /// The branches around what is within one, from the inside out.
    pub fn branches_around(&self, within: Option<AppId>) -> impl Iterator<Item = AppId> + '_ {
        let outer = |branch: &AppId| self.branches.get(branch).and_then(|branch| branch.within);
        core::iter::successors(within, outer).take(DEPTH_MAX)
    }

    /// The cap of a branch, or (`None`) the total, in bytes a second.
    pub fn cap_around(&self, branch: Option<AppId>) -> Option<NonZeroU64> {
        match branch {
            Some(branch) => self.branch(branch)?.entitlement.max.bytes,
            None => self.total,
        }
    }

    /// The least of a class's own cap, of those of its branches and the total, in bytes a second; `None`: nothing limits it.
    pub fn cap_of(&self, leaf: Leaf) -> Option<NonZeroU64> {
        let around = self.branches_around(leaf.within).map(Some).chain([None]);
        around.filter_map(|around| self.cap_around(around)).chain(self.of(leaf).max.bytes).min()
    }

    /// All that somebody is entitled to.
    fn entitlements(&self) -> impl Iterator<Item = &Entitlement> {
        let branches = self.branches.values().flat_map(|branch| [&branch.entitlement, &branch.others]);
        let others = self.other_branches.iter().map(|others| &others.entitlement);
        self.apps.values().chain([&self.others]).chain(branches).chain(others)
    }

    /// What applications are entitled to that are not named, by what they are within.
    fn others_within(&self) -> impl Iterator<Item = &Entitlement> {
        // Branches that are not named say nothing of those within them.
        self.branches.values().map(|branch| &branch.others).chain([&self.others])
    }

    /// Whether anybody has a cap in bytes.
    pub fn has_cap(&self) -> bool {
        self.entitlements().any(|entitlement| entitlement.max.bytes.is_some())
    }

    /// Checks that weights are in range, that no floor is above its cap, that a lot is some time, and that branches are a tree in which no
    /// floors are together above what they are within.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.lot == Some(Span::ZERO) {
            return Err(ConfigError::out_of_range("lot", 0, 1, u64::MAX));
        }
        self.check_tree()?;
        for entitlement in self.entitlements() {
            let Entitlement { weight, min, max } = *entitlement;
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return Err(ConfigError::out_of_range("weight", weight.into(), 1, WEIGHT_MAX.into()));
            }
            for (name, min, max) in
                [("min", min.bytes, max.bytes), ("min_requests", min.requests, max.requests)]
            {
                if let (Some(min), Some(max)) = (min, max)
                    && min > max
                {
                    return Err(ConfigError::out_of_range(name, min.get(), 1, max.get()));
                }
            }
        }
        Ok(())
    }
}
