//! What a chooser wants to be in force, and what for.

use crate::auto::objective::Ln;
use crate::auto::status::Reason;
use crate::sched::SchedulerConfig;

/// What the gate should be switched to.
pub(super) struct Proposal {
    pub(super) index: usize,
    pub(super) scheduler: SchedulerConfig,
    pub(super) because: Because,
}

#[derive(Clone, Copy)]
pub(super) enum Because {
    /// The bound of what is in use follows the load.
    Bound,
    /// It is the turn of what is tried, or that of what is in use again.
    Turn,
    /// A change: how much faster it should be, and was in turns.
    Change(Reason, Ln, Option<Ln>),
}
