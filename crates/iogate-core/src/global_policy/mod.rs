//! One policy over many gates: who may use how much of what all of them serve together.
//!
//! Each gate has a [`Holder`], and one [`Allotter`] serves all. A holder reports, some times a second, the *demand* and the use of each
//! class at its gate; the answer is a *grant*: an *allotment*, in bytes a second, for each of them, and all of it is a *lease* that ends by
//! itself. Reports and grants may be lost, late, doubled and out of order, gates come and go, and the allotter may be started anew.
//!
//! - *Who gets what*: a class's cap is divided over its gates by max-min fairness ([`level`]): no gate has more than another one that wants
//!   more. Where a total is given, it is first divided among classes, by weights and floors ([`Level`]); and so is the cap of a branch
//!   among those within it, from the outside in. Gates are allotted rates of classes with none within them ([`Leaf`]) alone: those of a
//!   branch together are never more than its cap.
//! - *No two gates hold the same byte a second*: what is taken away from one gate is given to another only when the first has said that it
//!   has given it up, or its lease has run out. A holder keeps to this: one report is on its way at a time, and only the answer to the
//!   latest one counts. So a report says all that its gate holds, and no answer to an earlier one is taken any more. Nor is one that comes
//!   when the lease is over of which the report told: the allotter may have taken it for over before the report came.
//! - *Whose clock*: a lease runs from when the report was *sent*, by the holder's clock, and from when the grant was sent, by the
//!   allotter's, which is later. Clocks need not agree on the time, only on how long a lease takes: to within `skew`.
//! - *Nobody answers*: a holder keeps its lease to its end, then the less of that and its *part* of the cap for [`Terms::grace`], then
//!   its part. Parts are granted like rates, but do not run out: those of all gates together are never more than the whole. The allotter
//!   keeps the part of a gate that it does not hear of for [`Terms::absent_max`], so that others are not in its place; after that, a gate
//!   that is cut off and lives has it nevertheless: with k such gates of n, at most k/n of a cap too much.
//! - *More classes than a report takes*: such a gate lets its lease run out, and then reports without classes. So it is known, and absent:
//!   it goes by its part, which is kept for as long as it reports.
//! - *The allotter is started anew*: for the length of a lease it grants no more than what gates say that they hold. From the parts that
//!   they hold it knows what those have that it has not heard of, and keeps that for [`Terms::absent_max`]. Gates that are new tell it
//!   nothing of that: where none of those of before finds it, it takes those for gone that it does not hear of. Allotters that die while
//!   they learn, one after the other, go on with a lease for no longer than one could that does not: the holder sees to that.
//!
//! The division is that of Doorman (YouTube's cooperative rate limits), the leases are Gray and Cheriton's (SOSP 1989).
//!
//! | file | part |
//! |---|---|
//! | `fill` | max-min fairness |
//! | `division` | a total, and caps of branches, among what is within them |
//! | `allotter` | who gets what: gates, leases, parts |
//! | `class` | what one class has at all gates |
//! | `holder` | a gate's side |
//! | `letters` | reports and grants as messages |
//! | `meter` | what a class at a gate asks for |

mod allotter;
mod class;
mod division;
mod fill;
mod holder;
mod letters;
mod meter;

use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU64;

pub use self::allotter::{Allotted, Allotter, GateId};
pub use self::fill::{Level, Want, level};
pub use self::holder::{Holder, Phase};
pub use self::meter::Usage;
use crate::policy::{Entitlement, Leaf, Policy};
use crate::time::Span;
use crate::wire::CLASSES_MAX;

/// A part of every cap, in 2^-32: this is the whole.
pub const WHOLE: u64 = 1 << 32;

/// What all gates and the allotter go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What a class is, as a policy's file says it (`user`, `group/user`): numbers of users mean nothing to a gate that divides by jobs.
    pub by: String,
    /// Who is entitled to what, over all gates: caps, and within a total and within branches with a cap, weights and floors. Only rates in
    /// bytes count.
    pub policy: Policy,
    /// How long a grant counts.
    pub lease: Span,
    /// How long from a report to the next.
    pub every: Span,
    /// By how much two clocks may differ in how long five leases take.
    pub skew: Span,
    /// For how long the part of a gate is kept that is not heard of.
    pub absent_max: Span,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            by: String::new(),
            policy: Policy::default(),
            lease: Span::from_secs(1),
            every: Span::from_millis(100),
            skew: Span::from_millis(10),
            absent_max: Span::from_secs(60),
        }
    }
}

impl Terms {
    /// The most that a class may have at all gates together, in bytes a second; `None`: it is not allotted.
    pub fn cap_of(&self, leaf: Leaf) -> Option<u64> {
        self.policy.cap_of(leaf).map(NonZeroU64::get)
    }

    /// Whether more than caps of classes is divided: a total, or caps of branches.
    fn has_pools(&self) -> bool {
        self.policy.total.is_some() || self.policy.is_nested()
    }

    /// For how long a gate has no more than it had by its lease, from a lease time after its last answer on. The leases of all others that
    /// were granted before it is known to be absent have run out then, also if an allotter that knows nothing of that has gone on with them
    /// for as long as it learnt.
    pub fn grace(&self) -> Span {
        let once = self.lease + self.skew;
        once + once + once + self.skew + self.skew
    }

    /// For how long after a lease of an allotter that knew what gates hold those that learn may go on with it. One of them learns for the
    /// first half of that at most, if it has begun before the lease is over.
    fn goes_on(&self) -> Span {
        let once = self.lease + self.skew;
        once + once
    }

    /// What a class asks of what it is within.
    fn want(&self, leaf: Leaf, demand: u64) -> Want {
        let Entitlement { weight, min, .. } = self.policy.of(leaf);
        Want { weight, floor: min.bytes.map_or(0, NonZeroU64::get), demand }
    }
}

/// What a gate tells the allotter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Counts a gate's reports, from 1.
    pub number: u64,
    /// The report whose grant the gate goes by; 0: by none, as its lease has run out.
    pub applied: u64,
    /// Its part of every cap, in 2^-32.
    pub part: u32,
    /// The gate goes: it holds nothing from now on.
    pub leaves: bool,
    /// All classes that it has a demand of, or holds something of.
    pub classes: Vec<Demand>,
}

/// A gate has more classes than a report takes; then it has its part of every cap, and no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a gate cannot report more than {CLASSES_MAX} classes: divide by something coarser")]
pub struct TooManyClasses;

/// One class at one gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The class.
    pub leaf: Leaf,
    /// What it would use, in bytes a second.
    pub demand: u64,
    /// What it has used.
    pub used: u64,
    /// What it may use at most until the answer is there.
    pub held: u64,
}

/// What the allotter answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The report that it answers.
    pub number: u64,
    /// How long it counts, from when that report was sent.
    pub lease: Span,
    /// How long from that report to the next.
    pub every: Span,
    /// The gate's part of every cap, in 2^-32, for when nobody answers.
    pub part: u32,
    /// The allotter has begun anew, and goes on with what gates say that they hold.
    pub learns: bool,
    /// What each class that was reported may use, in bytes a second.
    pub classes: Vec<(Leaf, u64)>,
}
