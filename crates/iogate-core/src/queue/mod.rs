//! What is queued in a gate, and the index of it that gate and schedulers share.

mod pending;
mod range_index;
mod unsought;

pub(crate) use self::pending::{AWAITED, NONE, Pending, QueueId, Run, RunCap, Slot, SlotId, State};
